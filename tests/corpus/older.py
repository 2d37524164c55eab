"""Node tests of older opsets, from wheels of onnx that still ship them as files: the older meanings of operators.

Writes onnx-<version>/node/<test>/{model.onnx, test_data_set_N/..}. The wheels are only unzipped, never installed.
"""
import zipfile
from pathlib import Path

from fetch import OLDER, replace_dir
from wheels import download

PREFIX = "onnx/backend/test/data/"


def build(outs: list[Path], key: str, scratch: Path) -> int:
    for (version, python, expected), out in zip(OLDER, outs, strict=True):
        tmp, wheel = scratch / out.name, download(f"onnx=={version}", scratch / f"wheel-{version}", python)
        with zipfile.ZipFile(wheel) as z:
            for member in z.namelist():
                if member.startswith(PREFIX + "node/") and not member.endswith("/"):
                    path = tmp / member.removeprefix(PREFIX)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(z.read(member))
        count = len(list(tmp.glob("node/*/model.onnx")))
        if count != expected:
            raise SystemExit(f"older: onnx {version} has {count} node tests, expected {expected}")
        (tmp / ".stamp").write_text(key)
        replace_dir(tmp, out)
        print(f"older: {count} tests in {out}", flush=True)
    return 0
