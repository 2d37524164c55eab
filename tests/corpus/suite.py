"""Write the ONNX backend suite in the standard layout, with an index.

<kind>/<test>/{model.onnx, test_data_set_N/{input,output}_I.pb [, data.json]} for the kinds node, simple, pytorch-operator,
pytorch-converted, light; data.json ({"rtol", "atol"}) only where a tolerance is not the default rtol 1e-3, atol 1e-7.
The onnx wheel generates node and simple by numpy code; the other kinds lie in it as files. Nothing else is downloaded.
"""
import json
import os
import shutil
import sys
import warnings
from collections import Counter
from pathlib import Path

# ImageDecoder: with pillow onnx re-encodes the images with the local codec libraries, without it the bytes frozen in the
# wheel are used. Force the latter: the suite must not depend on what else is installed.
sys.modules["PIL"] = None  # type: ignore[assignment]
sys.modules["PIL.Image"] = None  # type: ignore[assignment]
warnings.filterwarnings("ignore", category=RuntimeWarning)

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from fetch import replace_dir

EXPECTED = {"node": 1884, "simple": 26, "pytorch-operator": 35, "pytorch-converted": 82, "light": 9}
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
RTOL, ATOL = 1e-3, 1e-7


def build(out: Path, key: str, scratch: Path) -> int:
    from onnx.backend.test.case import model as model_cases
    from onnx.backend.test.loader import load_node_model_tests

    tmp = scratch / out.name
    for case in load_node_model_tests():
        export_case(case, tmp / "node" / case.name)
    for case in model_cases.collect_testcases():
        if case.kind == "simple":
            export_case(case, tmp / "simple" / case.name)
        elif case.kind == "real":
            export_light(case, tmp / "light" / case.name)
    for kind in ("pytorch-operator", "pytorch-converted"):
        for test in sorted((DATA / kind).iterdir()):
            if (test / "model.onnx").exists():
                shutil.copytree(test, tmp / kind / test.name)
    rows = [index_row(kind, test) for kind in EXPECTED for test in sorted((tmp / kind).iterdir())]
    counts = Counter(r[0] for r in rows)
    if counts != EXPECTED:
        raise SystemExit(f"suite: {dict(counts)} tests, expected {EXPECTED}")
    (tmp / "index.tsv").write_text("".join("\t".join(r) + "\n" for r in [HEADER, *rows]))
    (tmp / ".stamp").write_text(key)
    replace_dir(tmp, out)
    print(f"suite: {len(rows)} tests in {out}: " + ", ".join(f"{k} {n}" for k, n in counts.items()))
    return 0


# ---------------------------------------------------------------- files

def export_case(case, out: Path) -> None:
    write(out / "model.onnx", case.model)
    for n, (inputs, outputs) in enumerate(case.data_sets):
        folder = out / f"test_data_set_{n}"
        folder.mkdir()
        for i, (value, info) in enumerate(zip(inputs, case.model.graph.input)):
            write(folder / f"input_{i}.pb", to_proto(value, info))
        for i, (value, info) in enumerate(zip(outputs, case.model.graph.output)):
            write(folder / f"output_{i}.pb", to_proto(value, info))
    write_tolerance(case, out)


def export_light(case, out: Path) -> None:
    """The same dummy input and stored outputs as onnx.backend.test.runner uses."""
    src = DATA / "light" / os.path.basename(case.url)
    model = onnx.load(src)
    folder = out / "test_data_set_0"
    folder.mkdir(parents=True)
    shutil.copyfile(src, out / "model.onnx")
    weights = {t.name for t in model.graph.initializer}
    for i, info in enumerate(v for v in model.graph.input if v.name not in weights):
        shape = [d.dim_value if d.HasField("dim_value") else 1 for d in info.type.tensor_type.shape.dim]
        n = np.prod(shape)
        write(folder / f"input_{i}.pb", numpy_helper.from_array((np.arange(n).reshape(shape) / n).astype(np.float32), info.name))
    for i in range(len(model.graph.output)):
        shutil.copyfile(src.with_name(f"{src.stem}_output_{i}.pb"), folder / f"output_{i}.pb")
    write_tolerance(case, out)


def to_proto(value, info):
    """A test's numpy/list/None/TensorProto value as the proto that belongs in a .pb file."""
    kind = info.type.WhichOneof("value")
    if kind == "map_type":
        return numpy_helper.from_dict(value, info.name)
    if kind == "sequence_type":
        return numpy_helper.from_list(value, info.name)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, info.name)
    if isinstance(value, TensorProto):
        proto = TensorProto()
        proto.CopyFrom(value)
        proto.name = info.name
        return proto
    array = np.asarray(value)
    return numpy_helper.from_array(array.astype(object) if array.dtype.kind in "US" else array, info.name)


def write(path: Path, proto) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(proto.SerializeToString(deterministic=True))


def write_tolerance(case, out: Path) -> None:
    if (case.rtol, case.atol) != (RTOL, ATOL):
        (out / "data.json").write_text(json.dumps({"rtol": case.rtol, "atol": case.atol}))


# ---------------------------------------------------------------- index

HEADER = ["kind", "test", "ops", "opset", "opset_imports", "ir", "rtol", "atol", "flags", "dtypes", "n_in", "n_out", "n_sets"]
DTYPES = {v: k.lower() for k, v in TensorProto.DataType.items()}
SMALL_DTYPES = {"float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0", "float4e2m1",
                "int4", "uint4", "int2", "uint2"}
FLAG_OF_OP = {
    **dict.fromkeys(["SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
                     "SequenceMap", "SplitToSequence", "ConcatFromSequence"], "seq"),
    **dict.fromkeys(["Optional", "OptionalGetElement", "OptionalHasElement"], "opt"),
    **dict.fromkeys(["StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch"], "str"),
    **dict.fromkeys(["RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"], "rand"),
}
FLAG_OF_DOMAIN = {"ai.onnx.preview.training": "train", "ai.onnx.training": "train", "ai.onnx.ml": "ml"}


class Scan:
    """Operators, dtypes and features of a model, subgraphs and local functions included."""

    def __init__(self, model):
        self.ops, self.dtypes, self.flags = Counter(), set(), set()
        self.graph(model.graph, top=True)
        for function in model.functions:
            self.flags.add("localfn")
            for node in function.node:
                self.node(node)

    def graph(self, graph, top):
        for value in [*graph.input, *graph.output]:
            self.type(value.type, top)
        for tensor in graph.initializer:
            self.dtypes.add(DTYPES[tensor.data_type])
        if graph.sparse_initializer:
            self.flags.add("sparse")
        for node in graph.node:
            self.node(node)

    def type(self, t, top=False):
        kind = t.WhichOneof("value")
        if kind == "tensor_type":
            self.dtypes.add(DTYPES[t.tensor_type.elem_type])
            if top and not t.tensor_type.HasField("shape"):
                self.flags.add("norank")
            if any(not d.HasField("dim_value") for d in t.tensor_type.shape.dim):
                self.flags.add("symdim")
        elif kind == "sequence_type":
            self.flags.add("seq")
            self.type(t.sequence_type.elem_type)
        elif kind == "optional_type":
            self.flags.add("opt")
            self.type(t.optional_type.elem_type)
        elif kind == "map_type":
            self.flags.add("map")
        elif kind == "sparse_tensor_type":
            self.flags.add("sparse")

    def node(self, node):
        domain = "" if node.domain == "ai.onnx" else node.domain
        self.ops[f"{domain}::{node.op_type}" if domain else node.op_type] += 1
        self.flags |= {FLAG_OF_OP.get(node.op_type), FLAG_OF_DOMAIN.get(domain)} - {None}
        if node.op_type in ("If", "Loop", "Scan", "SequenceMap"):
            self.flags.add("ctrl")
        for a in node.attribute:
            if a.type == AttributeProto.TENSOR:
                self.dtypes.add(DTYPES[a.t.data_type])
            elif a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
                for g in [a.g] if a.type == AttributeProto.GRAPH else a.graphs:
                    self.graph(g, top=False)
            elif a.type in (AttributeProto.SPARSE_TENSOR, AttributeProto.SPARSE_TENSORS):
                self.flags.add("sparse")
            elif a.type == AttributeProto.TYPE_PROTO:
                self.type(a.tp)
            elif a.type == AttributeProto.INT and a.i and a.name in ("to", "dtype", "output_dtype"):
                self.dtypes.add(DTYPES.get(a.i, str(a.i)))
            elif a.type == AttributeProto.STRINGS and a.name.endswith("_strings"):
                self.dtypes.add("string")
            if node.op_type == "BatchNormalization" and a.name == "training_mode" and a.i:
                self.flags.add("trainmode")


def shapes_depend_on_values(model) -> bool | None:
    """Whether some output shape cannot be inferred from the input shapes alone; None where onnx's own inference fails."""
    m = onnx.ModelProto()
    m.CopyFrom(model)
    for o in m.graph.output:
        if o.type.HasField("tensor_type"):
            o.type.tensor_type.ClearField("shape")
    try:
        m = onnx.shape_inference.infer_shapes(m, data_prop=True)
    except Exception:
        return None
    types = [o.type.tensor_type for o in m.graph.output if o.type.HasField("tensor_type")]
    return any(not t.HasField("shape") or any(not d.HasField("dim_value") for d in t.shape.dim) for t in types)


def has_empty_tensor(path: Path) -> bool:
    try:
        tensor = TensorProto.FromString(path.read_bytes())
    except Exception:  # a sequence or an optional
        return False
    return bool(tensor.data_type) and 0 in tensor.dims


def index_row(kind: str, folder: Path) -> list[str]:
    model = onnx.load(folder / "model.onnx")
    scan = Scan(model)
    flags, dtypes = scan.flags, scan.dtypes - {"undefined"}
    tolerance = folder / "data.json"
    limits = json.loads(tolerance.read_text()) if tolerance.exists() else {}
    for dtype, flag in (("string", "str"), ("bfloat16", "bf16"), ("float16", "f16"), ("complex64", "complex"), ("complex128", "complex")):
        if dtype in dtypes:
            flags.add(flag)
    if dtypes & SMALL_DTYPES:
        flags.add("exotic")
    if "_expanded" in folder.name:
        flags.add("expanded")
    if folder.name.startswith("test_training_dropout") and "zero_ratio" not in folder.name:
        flags.add("rand")
    flags |= {None: {"noinfer"}, True: {"ddshape"}, False: set()}[shapes_depend_on_values(model)]
    sets = sorted(folder.glob("test_data_set_*"))
    files = sorted(sets[0].iterdir())
    if any(has_empty_tensor(f) for f in files):
        flags.add("empty")
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    return [kind, folder.name, ",".join(op + (f"*{n}" if n > 1 else "") for op, n in sorted(scan.ops.items())), str(opset),
            ",".join(f"{o.domain or 'ai.onnx'}:{o.version}" for o in model.opset_import), str(model.ir_version),
            f"{limits.get('rtol', RTOL):g}", f"{limits.get('atol', ATOL):g}", ",".join(sorted(flags)), ",".join(sorted(dtypes)),
            str(sum(f.name.startswith("input_") for f in files)), str(sum(f.name.startswith("output_") for f in files)), str(len(sets))]
