#!/usr/bin/env python3
"""Judge optimised models: `optimized.py` reads lines `FOLDER FILE exact|close` and answers each with `ok NODES` or `no REASON`.

FOLDER has a model with its inputs and tolerances, as `fetch.py models` makes them; FILE is what was made of it. It has to pass onnx.checker and to give, run by ONNX Runtime with its
own optimisations off, what the model gives there: the same bits, or numbers within the tolerances of the folder.
"""
import json
import os
import sys
from pathlib import Path

from fetch import VENV


def main() -> int:
    if Path(sys.prefix).resolve() != VENV.resolve():
        python = VENV / "bin" / "python"
        os.execv(python, [str(python), str(Path(__file__).resolve()), *sys.argv[1:]])
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    for line in sys.stdin:
        folder, file, how = line.split()
        try:
            print("ok", judge(Path(folder), file, how == "exact"), flush=True)
        except Exception as e:
            print("no", " ".join(f"{type(e).__name__}: {e}".split())[:400], flush=True)
    return 0


def judge(folder: Path, file: str, exact: bool) -> int:
    import onnx
    from onnx import numpy_helper

    onnx.checker.check_model(file)
    settings = json.loads((folder / "data.json").read_text()) if (folder / "data.json").exists() else {}
    inputs = {}
    for path in (folder / "test_data_set_0").glob("input_*.pb"):
        tensor = onnx.load_tensor(path)
        inputs[tensor.name] = numpy_helper.to_array(tensor)
    want, got = run(str(folder / "model.onnx"), inputs), run(file, inputs)
    if list(want) != list(got):
        raise ValueError(f"outputs {list(got)}, expected {list(want)}")
    for i, name in enumerate(want):
        compare(name, got[name], want[name], exact, settings, i)
    return count(onnx.load(file, load_external_data=False).graph)


def run(file: str, inputs: dict) -> dict:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def compare(name: str, got, want, exact: bool, settings: dict, index: int) -> None:
    import numpy as np

    if isinstance(want, list):
        if exact and str(got) != str(want):
            raise ValueError(f"`{name}` differs")
        return
    if got.dtype != want.dtype or got.shape != want.shape:
        raise ValueError(f"`{name}` is {got.dtype}{got.shape}, expected {want.dtype}{want.shape}")
    if got.dtype == object or exact:
        if got.tobytes() != want.tobytes() if got.dtype != object else (got != want).any():
            wrong = np.flatnonzero(got.reshape(-1) != want.reshape(-1))
            raise ValueError(f"`{name}`: {len(wrong)} of {want.size} elements have other bits")
        return
    atols = settings.get("atols", [])
    atol = max(atols[index] if index < len(atols) else settings.get("atol", 1e-7), 1e-5)
    a, b = got.astype(np.float64), want.astype(np.float64)
    close = np.isclose(a, b, rtol=max(settings.get("rtol", 1e-3), 1e-3), atol=atol, equal_nan=True)
    if not close.all():
        worst = np.nanmax(np.abs(a - b))
        raise ValueError(f"`{name}`: {(~close).sum()} of {want.size} elements differ by up to {worst:.3g}")


def count(graph) -> int:
    inner = [g for n in graph.node for a in n.attribute for g in ([a.g] if a.type == 5 else a.graphs)]
    return len(graph.node) + sum(map(count, inner))


if __name__ == "__main__":
    sys.exit(main())
