#!/usr/bin/env python3
"""Build target/corpus/sizes: ONNX Runtime's outputs of dynamic models at two other sizes than those of target/corpus/models.

<name>/test_data_set_{1,2}/{input,output}_I.pb, for the names given. Elements of inputs come from the stored ones, over and over, so that
they stay what the model takes. Needs what `fetch.py models` makes, and is no part of it: other sizes do not change what is there.
"""
import itertools
import os
import shutil
import sys
from pathlib import Path

from fetch import CORPUS, HERE, VENV, digest, lock, replace_dir, stamped, write_atomic

OUT = CORPUS / "sizes"


def key(name: str) -> str:
    return digest([HERE / "sizes.py", HERE / "golden.py", CORPUS / "models" / name / "info.json"])


def main() -> int:
    missing = [n for n in sys.argv[1:] if not stamped(OUT / n, key(n))]
    if missing and Path(sys.prefix).resolve() != VENV.resolve():
        python = VENV / "bin" / "python"
        os.execv(python, [str(python), str(Path(__file__).resolve()), *sys.argv[1:]])
    lock("sizes") if missing else None
    for name in missing:
        if not stamped(OUT / name, key(name)):
            build(name)
    return 0


def build(name: str) -> None:
    import onnx
    from onnx import numpy_helper

    import golden

    folder, tmp = CORPUS / "models" / name, CORPUS / f".sizes.{name}"
    shutil.rmtree(tmp, ignore_errors=True)
    model = onnx.load(folder / "model.onnx")
    quantised = golden.describe(next(m for m in golden.MODELS if m.name == name), model)["quantised"]
    stored = sorted((folder / "test_data_set_0").glob("input_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
    tensors = [onnx.load_tensor(p) for p in stored]
    feeds = {t.name: numpy_helper.to_array(t) for t in tensors}
    exact = golden.unsigned_weights(model)
    source = model.SerializeToString() if exact else folder / "model.onnx"
    session = golden.open_session(source, golden.UNOPTIMISED, precise=quantised)
    made = 0
    for inputs in others(model, feeds):
        try:
            outputs = session.run(None, inputs)
        except Exception:
            continue  # not every size fits every model
        made += 1
        data = tmp / f"test_data_set_{made}"
        data.mkdir(parents=True)
        for kind, values in [("input", inputs.items()), ("output", zip([o.name for o in session.get_outputs()], outputs, strict=True))]:
            for i, (value_name, value) in enumerate(values):
                (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(value, value_name).SerializeToString(deterministic=True))
        if made == 2:
            write_atomic(tmp / ".stamp", key(name).encode())
            OUT.mkdir(exist_ok=True)
            replace_dir(tmp, OUT / name)
            print(f"sizes: {name}", flush=True)
            return
    raise SystemExit(f"sizes: {name} takes {made} other sizes")


def others(model, feeds: dict):
    """Inputs of other shapes: all symbols changed at once, then each by itself."""
    import numpy as np

    # A size without a name is a symbol of its own.
    symbols = {v.name: [d.dim_param or (None if d.HasField("dim_value") else f"{v.name} {a}") for a, d in enumerate(v.type.tensor_type.shape.dim)]
               for v in model.graph.input if v.name in feeds}
    names = sorted({s for axes in symbols.values() for s in axes if s})
    # The cheap ones first; images often have to be multiples of something.
    large = lambda change: lambda n: change(n) if n >= 32 else n
    changes = [lambda n: n + 1, lambda n: n + 2, large(lambda n: n + 32), large(lambda n: n // 2), large(lambda n: n // 4),
               lambda n: 2 * n, lambda n: 3 * n]
    seen = [[v.shape for v in feeds.values()]]
    for changed, change in itertools.product([names, *([n] for n in names)], changes):
        inputs = {}
        for name, value in feeds.items():
            shape = tuple(change(n) if s in changed else n for n, s in zip(value.shape, symbols[name]))
            inputs[name] = np.resize(value, shape)
        if (shapes := [v.shape for v in inputs.values()]) not in seen:
            seen.append(shapes)
            yield inputs


if __name__ == "__main__":
    sys.exit(main())
