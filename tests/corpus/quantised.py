#!/usr/bin/env python3
"""Build target/corpus/quantised: random cases of quantised operators with ONNX Runtime's outputs, which ours have to equal in every bit.

quantised.py COUNT     COUNT cases of each operator, in models of up to 40: <operator>/<number>, test folders as the ONNX suite has them
A case is a node with inputs of its own; all its parameters are drawn from the number of the model. Scales lie next to numbers of few bits,
so that many results are next to ties, where every rounding shows.
"""
import os
import shutil
import sys
from pathlib import Path

from fetch import CORPUS, HERE, VENV, digest, lock, replace_dir, stamped, write_atomic

OUT = CORPUS / "quantised"
PER_MODEL = 40
MS = "com.microsoft"


def main() -> int:
    count = int(sys.argv[1])
    key = f"{digest([HERE / 'quantised.py'])} {count}"
    if enough(key):
        return 0
    if Path(sys.prefix).resolve() != VENV.resolve():
        python = VENV / "bin" / "python"
        os.execv(python, [str(python), str(Path(__file__).resolve()), *sys.argv[1:]])
    lock("quantised")
    if not enough(key):
        tmp = CORPUS / ".quantised"
        shutil.rmtree(tmp, ignore_errors=True)
        for number, (name, make) in enumerate(OPERATORS.items()):
            for first in range(0, count, PER_MODEL):
                write(tmp / name / f"{first // PER_MODEL:03}", make, [number, first], min(PER_MODEL, count - first))
        write_atomic(tmp / ".stamp", key.encode())
        replace_dir(tmp, OUT)
    return 0


def enough(key: str) -> bool:
    """Is there what was asked for, or more of it?"""
    try:
        have, want = (OUT / ".stamp").read_text().split(), key.split()
    except OSError:
        return False
    return have[0] == want[0] and int(have[1]) >= int(want[1])


class Draw:
    """Random parameters of cases."""

    def __init__(self, seed):
        import numpy

        self.np, self.rng = numpy, numpy.random.default_rng(seed)

    def below(self, n):
        return int(self.rng.integers(n))

    def pick(self, *values):
        return values[self.below(len(values))]

    def between(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def ints(self, dtype, *shape):
        info = self.np.iinfo(dtype)
        return self.np.asarray(self.rng.integers(info.min, info.max + 1, shape), dtype)

    def scale(self, *shape, power=0):
        """A few quarters, up to three units of the last place off, times a power of two; now and then any number."""
        if self.below(4) == 0:
            x = self.rng.uniform(0.25, 2.0, shape)
        else:
            x = self.rng.integers(1, 8, shape) / 4 * (1 + self.rng.integers(-3, 4, shape) * 2.0**-23)
        return self.np.asarray(x * 2.0**power, self.np.float32)

    def byte(self):
        return self.pick(self.np.uint8, self.np.int8)

    def weight_type(self, dtype):
        """ONNX Runtime has kernels for weights with signs, and for those without next to tensors without."""
        return self.pick(self.np.uint8, self.np.int8) if dtype == self.np.uint8 else self.np.int8


def window(d, spatial):
    kernel = [d.between(1, 3) for _ in spatial]
    pads = [d.below(k) for k in kernel] + [d.below(k) for k in kernel]
    return dict(kernel_shape=kernel, pads=pads, strides=[d.between(1, 2) for _ in kernel])


def convolution(d):
    """Shapes and attributes of a convolution: dense, grouped or depthwise, of one to three axes."""
    groups, per_group, outputs = d.pick((1, d.between(1, 9), d.between(1, 17)), (2, d.between(1, 5), d.between(1, 5)), (d.between(2, 17), 1, 1))
    spatial = [d.between(3, 9) for _ in range(d.pick(1, 2, 2, 2, 3))]
    attributes = dict(window(d, spatial), group=groups)
    if d.below(4) == 0 and all(s > 2 * (k - 1) for s, k in zip(spatial, attributes["kernel_shape"])):
        attributes["dilations"] = [2] * len(spatial)
    return [d.between(1, 2), groups * per_group, *spatial], [groups * outputs, per_group, *attributes["kernel_shape"]], attributes


def quantised_weights(d, dtype, channels):
    """Scale and zero point of weights: one, or one per channel, which ONNX Runtime takes with equal zero points only."""
    per_channel = channels if d.below(2) else None
    shape = [] if per_channel is None else [per_channel]
    zero = d.ints(dtype) if dtype == d.np.uint8 else d.np.asarray(0, dtype)
    return d.scale(*shape, power=-6), d.np.full(shape, zero, dtype)


def qlinear_conv(d):
    dtype = d.byte()
    weights = d.weight_type(dtype)
    x, w, attributes = convolution(d)
    w_scale, w_zero = quantised_weights(d, weights, w[0])
    inputs = [d.ints(dtype, *x), d.scale(), d.ints(dtype), d.ints(weights, *w), w_scale, w_zero, d.scale(), d.ints(dtype)]
    if d.below(2):
        inputs.append(d.rng.integers(-5000, 5000, w[0]).astype(d.np.int32))
    return "QLinearConv", "", inputs, attributes


def conv_integer(d):
    dtype = d.byte()
    weights = d.weight_type(dtype)
    x, w, attributes = convolution(d)
    zero = d.ints(weights) if weights == d.np.uint8 else d.np.asarray(0, weights)
    return "ConvInteger", "", [d.ints(dtype, *x), d.ints(weights, *w), d.ints(dtype), zero], attributes


def product(d):
    rows, depth, columns = d.between(1, 20), d.pick(d.between(1, 9), d.between(10, 70)), d.between(1, 40)
    batch = d.pick([], [], [2], [2, 3])
    return [*batch, rows, depth], [*(batch if d.below(2) else []), depth, columns]


def qlinear_matmul(d):
    dtype = d.byte()
    weights = d.weight_type(dtype)
    a, b = product(d)
    columns = [b[-1]] if len(b) == 2 and d.below(2) else []
    zero = d.ints(weights, *columns)
    return "QLinearMatMul", "", [d.ints(dtype, *a), d.scale(), d.ints(dtype), d.ints(weights, *b), d.scale(*columns, power=-6), zero,
                                 d.scale(), d.ints(dtype)], {}


def matmul_integer(d):
    dtype = d.byte()
    weights = d.weight_type(dtype)
    a, b = product(d)
    columns = [b[-1]] if len(b) == 2 and d.below(2) else []
    return "MatMulInteger", "", [d.ints(dtype, *a), d.ints(weights, *b), d.ints(dtype), d.ints(weights, *columns)], {}


def broadcast(d):
    """Two shapes that broadcast, of which neither, one or both grow."""
    shape = [d.between(1, 9) for _ in range(d.between(1, 4))]
    return d.pick((shape, shape), (shape, []), ([], shape), *[(part(d, shape), part(d, shape))] * 3)


def part(d, shape):
    cut = shape[d.below(len(shape)):] if d.below(3) == 0 else shape
    return [1 if d.below(3) == 0 else n for n in cut]


def elementwise(operator):
    def make(d):
        dtype = d.byte()
        a, b = broadcast(d)
        power = -5 if operator == "QLinearMul" else 0
        return operator, MS, [d.ints(dtype, *a), d.scale(), d.ints(dtype), d.ints(dtype, *b), d.scale(power=power), d.ints(dtype),
                              d.scale(), d.ints(dtype)], {}
    return make


def average_pool(d):
    dtype = d.byte()
    spatial = [d.between(3, 9) for _ in range(d.pick(1, 2, 2, 2, 3))]
    attributes = dict(window(d, spatial), count_include_pad=d.below(2), ceil_mode=d.below(2), channels_last=d.below(2))
    shape = [d.between(1, 2), *spatial, d.between(1, 5)] if attributes["channels_last"] else [d.between(1, 2), d.between(1, 5), *spatial]
    return "QLinearAveragePool", MS, [d.ints(dtype, *shape), d.scale(), d.ints(dtype), d.scale(), d.ints(dtype)], attributes


def global_average_pool(d):
    dtype = d.byte()
    shape = [d.between(1, 2), d.between(1, 9), *[d.between(1, 9) for _ in range(d.between(1, 3))]]
    return ("QLinearGlobalAveragePool", MS, [d.ints(dtype, *shape), d.scale(), d.ints(dtype), d.scale(), d.ints(dtype)],
            dict(channels_last=d.below(2)))


OPERATORS = {
    "QLinearConv": qlinear_conv,
    "ConvInteger": conv_integer,
    "QLinearMatMul": qlinear_matmul,
    "MatMulInteger": matmul_integer,
    "QLinearAdd": elementwise("QLinearAdd"),
    "QLinearMul": elementwise("QLinearMul"),
    "QLinearAveragePool": average_pool,
    "QLinearGlobalAveragePool": global_average_pool,
}

# These inputs are constants: weights and what belongs to them.
CONSTANT = {"QLinearConv": range(1, 9), "ConvInteger": range(1, 4), "QLinearMatMul": range(1, 8), "MatMulInteger": range(1, 4),
            "QLinearAdd": [1, 2, 4, 5, 6, 7], "QLinearMul": [1, 2, 4, 5, 6, 7], "QLinearAveragePool": range(1, 5),
            "QLinearGlobalAveragePool": range(1, 5)}


def write(folder: Path, make, seed, count: int) -> None:
    """One model of `count` cases that ONNX Runtime takes, with inputs and outputs."""
    import onnx
    from onnx import helper, numpy_helper

    nodes, constants, inputs, outputs = [], [], {}, {}
    case = 0
    while len(nodes) < count:
        operator, domain, values, attributes = make(Draw([*seed, case]))
        case += 1
        names = [f"{len(nodes)}_{i}" for i in range(len(values))]
        y = f"y{len(nodes)}"
        node = helper.make_node(operator, names, [y], domain=domain, **attributes)
        result = run(node, dict(zip(names, values)), y)
        if result is None:
            continue
        nodes.append(node)
        for i, (name, value) in enumerate(zip(names, values)):
            if i in CONSTANT[operator]:
                constants.append(numpy_helper.from_array(value, name))
            else:
                inputs[name] = value
        outputs[y] = result
    model = of(nodes, inputs, list(outputs), constants)
    for info, value in zip(model.graph.output, outputs.values()):
        info.type.CopyFrom(helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape)))
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    (folder / "data.json").write_text('{"rtol": 0, "atol": 0}\n')
    for kind, values in [("input", inputs.values()), ("output", outputs.values())]:
        for i, value in enumerate(values):
            (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(value).SerializeToString())


def of(nodes, inputs, outputs, constants=()):
    import onnx
    from onnx import helper

    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape)) for n, a in inputs.items()]
    graph = helper.make_graph(nodes, "quantised", infos, [onnx.ValueInfoProto(name=o) for o in outputs], list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19), helper.make_opsetid(MS, 1)], ir_version=9)


def run(node, inputs, output):
    """ONNX Runtime's output of a node, None if it has no kernel for it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(of([node], inputs, [output]).SerializeToString(), options)
        return session.run([output], inputs)[0]
    except Exception:  # noqa: BLE001 its exceptions have no common class
        return None


if __name__ == "__main__":
    sys.exit(main())
