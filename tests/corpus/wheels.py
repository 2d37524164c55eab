"""Download one wheel by its pin. Always the wheel for the given Python on x86-64 Linux: the files in it do not depend on the host."""
import subprocess
import sys
from pathlib import Path

PLATFORMS = ["manylinux1_x86_64", "manylinux2010_x86_64", "manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_24_x86_64",
             "manylinux_2_28_x86_64"]


def download(pin: str, directory: Path, python: str = "3.11") -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--only-binary", ":all:",
               "--implementation", "cp", "--python-version", python, *(x for p in PLATFORMS for x in ("--platform", p)),
               "--dest", str(directory), pin]
    directory.mkdir(parents=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"pip cannot download {pin}: {(done.stdout.strip().splitlines() or ['no message'])[-1]}")
    return next(directory.glob("*.whl"))
