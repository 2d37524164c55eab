#!/usr/bin/env python3
"""Build target/corpus/details: one small model for each detail on which exporters rely, and for each operand that has to be checked.

valid/<name> are models that ONNX Runtime runs, with its outputs; refused/<name> those that it refuses, with inputs only.
Needs the venv that fetch.py makes, and is no part of it.
"""
import os
import pickle
import shutil
import sys
from pathlib import Path

from fetch import CORPUS, HERE, VENV, digest, lock, replace_dir, stamped, write_atomic

OUT = CORPUS / "details"
MS = "com.microsoft"


def main() -> int:
    key = digest([HERE / "details.py"])
    if stamped(OUT, key):
        return 0
    if Path(sys.prefix).resolve() != VENV.resolve():
        python = VENV / "bin" / "python"
        os.execv(python, [str(python), str(Path(__file__).resolve())])
    lock("details")
    if not stamped(OUT, key):
        tmp = CORPUS / ".details"
        shutil.rmtree(tmp, ignore_errors=True)
        cases(Cases(tmp))
        write_atomic(tmp / ".stamp", key.encode())
        replace_dir(tmp, OUT)
    return 0


class Cases:
    def __init__(self, out: Path):
        import numpy

        self.out = out
        self.rng = numpy.random.default_rng(0)

    def floats(self, *shape, lo=-1.0, hi=1.0):
        import numpy

        return self.rng.uniform(lo, hi, shape).astype(numpy.float32)

    def run(self, name, nodes, inputs, outs=("y",), inits=None, opset=19, ir=9, shapes=None, hook=None):
        """Write a model with these inputs, and what ONNX Runtime makes of them. `shapes` declares inputs other than as they are."""
        import numpy
        import onnx
        from onnx import helper, numpy_helper

        nodes = nodes if isinstance(nodes, list) else [nodes]
        element = helper.np_dtype_to_tensor_dtype
        infos = [helper.make_tensor_value_info(n, element(a.dtype), (shapes or {}).get(n, list(a.shape))) for n, a in inputs.items()]
        stored = [numpy_helper.from_array(a, n) for n, a in (inits or {}).items()]
        graph = helper.make_graph(nodes, name, infos, [onnx.ValueInfoProto(name=o) for o in outs], stored)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)], ir_version=ir)
        if hook:
            hook(model)
        outputs = apart(model.SerializeToString(), inputs)
        folder = self.out / ("refused" if outputs is None else "valid") / name
        data = folder / "test_data_set_0"
        data.mkdir(parents=True)
        for kind, values in [("input", inputs.values()), ("output", outputs or [])]:
            for i, value in enumerate(values):
                (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(numpy.asarray(value)).SerializeToString())
        for info, value in zip(model.graph.output, outputs or [], strict=False):
            info.type.CopyFrom(helper.make_tensor_type_proto(element(numpy.asarray(value).dtype), None))
        onnx.save(model, folder / "model.onnx")


def apart(model: bytes, inputs):
    """The outputs of a model, from a process of its own: ONNX Runtime ends it for some. None if it refuses."""
    import onnxruntime

    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        onnxruntime.set_default_logger_severity(4)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            outputs = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, inputs)
        except Exception:
            outputs = None
        with os.fdopen(write, "wb") as file:
            pickle.dump(outputs, file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    return pickle.loads(data) if data else None


def node(op, inputs, outputs=("y",), domain="", **attributes):
    from onnx import helper

    return helper.make_node(op, list(inputs), list(outputs), domain=domain, **attributes)


def cases(c: Cases) -> None:
    for theme in [padding, attributes, axes, shapes, recurrent, pooled, grids, integers, norms, products, quantised, detection]:
        theme(c)


def padding(c):
    x, w = c.floats(1, 2, 7, 7), c.floats(3, 2, 3, 3)
    for auto in ["", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]:
        for tag, pads in [("", {}), ("_pads", {"pads": [1, 0, 1, 1]})]:
            name, kw = f"{auto or 'empty'}{tag}", {"auto_pad": auto, "strides": [2, 2], **pads}
            c.run(f"conv_{name}", node("Conv", "xw", **kw), {"x": x}, inits={"w": w})
            # What the standard says of an empty one next to pads, ONNX Runtime reads as a combination.
            if auto or not tag:
                c.run(f"conv_transpose_{name}", node("ConvTranspose", "xw", **kw), {"x": x}, inits={"w": c.floats(2, 3, 3, 3)})
            for op in ["MaxPool", "AveragePool", "LpPool"]:
                c.run(f"{op}_{name}", node(op, "x", kernel_shape=[3, 3], **kw), {"x": x})
                c.run(f"{op}_{name}_ceil", node(op, "x", kernel_shape=[2, 2], ceil_mode=1, **kw), {"x": x})


def attributes(c):
    import numpy as np

    def twice(value):
        def hook(model):
            attributes = model.graph.node[0].attribute
            attributes.add().CopyFrom(attributes[0])
            attributes[1].i = value

        return hook

    c.run("attribute_twice_otherwise", node("Softmax", "x", axis=1), {"x": c.floats(2, 3)}, hook=twice(0))
    c.run("attribute_unknown", node("Relu", "x", alpha=0.0), {"x": c.floats(2, 3)})
    for value in [0, 1]:
        kw = {"domain": MS, "num_heads": 2, "past_present_share_buffer": value}
        c.run(f"share_buffer_{value}", node("Attention", "xwb", **kw), {"x": c.floats(1, 3, 8)}, inits={"w": c.floats(8, 24), "b": c.floats(24)})
    c.run("compress_long", node("Compress", "xc", axis=0), {"x": c.floats(2, 3)}, inits={"c": np.array([0, 1, 1], bool)})
    condition = np.array([0, 1, 1, 1], bool)
    c.run("compress_long_open", node("Compress", "xc", axis=0), {"x": c.floats(2, 3), "c": condition}, shapes={"c": ["k"], "x": ["n", 3]})
    c.run("compress_short_open", node("Compress", "xc", axis=1), {"x": c.floats(2, 9), "c": condition}, shapes={"c": ["k"]})


def axes(c):
    import numpy as np

    for op in ["ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2"]:
        for name, list_of in [("twice", [1, 1]), ("twice_negative", [1, -2]), ("unsorted", [2, 0])]:
            for keep in [0, 1]:
                c.run(f"{op}_{name}_{keep}", node(op, "xa", keepdims=keep), {"x": c.floats(2, 3, 4)}, inits={"a": np.array(list_of)}, opset=18)
    for name, list_of in [("twice", [2, 2]), ("twice_negative", [2, -2]), ("unsorted", [2, 0]), ("none", []), ("not_one", [1])]:
        c.run(f"squeeze_{name}", node("Squeeze", "xa"), {"x": c.floats(1, 3, 1, 2)}, inits={"a": np.array(list_of, np.int64)})
    for name, list_of in [("unsorted", [3, 0]), ("negative", [-1, 0]), ("none", []), ("twice", [1, 1])]:
        c.run(f"unsqueeze_{name}", node("Unsqueeze", "xa"), {"x": c.floats(3, 2)}, inits={"a": np.array(list_of, np.int64)})
    for name, list_of in [("unsorted", [2, 0]), ("twice", [2, -1])]:
        inits = {"s": np.array([1, 0]), "e": np.array([3, 2]), "a": np.array(list_of)}
        c.run(f"slice_{name}", node("Slice", "xsea"), {"x": c.floats(3, 4, 5)}, inits=inits)
    c.run("normalise_twice", node("MeanVarianceNormalization", "x", axes=[2, 0, 0]), {"x": c.floats(2, 3, 4)})


def shapes(c):
    import numpy as np

    for allow in [0, 1]:
        for name, of, to in [("rest", [2, 3], [-1, 2]), ("rest_of_none", [0, 3], [-1, 2]), ("none", [0, 3], [3, 0]), ("both", [0, 3], [0, -1])]:
            for declared in [None, {"x": ["n", 3]}]:
                tag = f"{name}_{allow}_{'open' if declared else 'fixed'}"
                # One that is empty and two sizes of which one follows from the other: refused there, where it has one answer.
                if (name, allow) == ("both", 0) and declared:
                    continue
                c.run(f"reshape_{tag}", node("Reshape", "xs", allowzero=allow), {"x": c.floats(*of)}, inits={"s": np.array(to)}, shapes=declared)
    c.run("reshape_not_whole", node("Reshape", "xs"), {"x": c.floats(3, 3)}, inits={"s": np.array([-1, 2])}, shapes={"x": ["n", 3]})
    for op, kw in [("Flatten", {"axis": 2}), ("Softmax", {"axis": -1}), ("ReduceSum", {"keepdims": 1})]:
        c.run(f"empty_{op}", node(op, "x", **kw), {"x": c.floats(2, 0, 4)}, opset=13)
    c.run("empty_matmul", node("MatMul", "xw"), {"x": c.floats(2, 0)}, inits={"w": c.floats(0, 3)}, shapes={"x": ["n", 0]})
    c.run("empty_conv", node("Conv", "xw"), {"x": c.floats(0, 2, 5, 5)}, inits={"w": c.floats(3, 2, 3, 3)}, shapes={"x": ["n", 2, 5, 5]})
    c.run("empty_resize", node("Resize", ["x", "", "s"], mode="linear"), {"x": c.floats(0, 1, 4, 4)}, inits={"s": np.array([1, 1, 2, 2], np.float32)})
    split = node("SplitToSequence", "xn", "s", axis=0)
    for new in [0, 1]:
        c.run(f"sequence_{new}", [split, node("ConcatFromSequence", "s", axis=1, new_axis=new)], {"x": c.floats(4, 2), "n": np.array(2)})


def recurrent(c):
    import numpy as np

    for op, gates in [("RNN", 1), ("GRU", 3), ("LSTM", 4)]:
        outs = ["y", "h"] + ["c"] * (op == "LSTM")
        for direction, count in [("forward", 1), ("reverse", 1), ("bidirectional", 2)]:
            inits = {"w": c.floats(count, gates * 3, 2), "r": c.floats(count, gates * 3, 3), "b": c.floats(count, 2 * gates * 3)}
            for name, lens in [("some", [4, 0, 2]), ("none", [0, 0, 0]), ("long", [5, 1, 1])]:
                if name == "long" and direction == "forward":
                    continue
                feeds = {"x": c.floats(4, 3, 2), "l": np.array(lens, np.int32), "h0": c.floats(count, 3, 3)}
                if op == "LSTM":
                    feeds["c0"] = c.floats(count, 3, 3)
                inputs = ["x", "w", "r", "b", "l", "h0"] + ["c0"] * (op == "LSTM")
                layer = node(op, inputs, outs, hidden_size=3, direction=direction)
                c.run(f"{op}_{direction}_{name}", layer, feeds, outs, inits=inits, shapes={"x": ["t", "n", 2], "l": ["n"]})
        weights = {"w": c.floats(1, gates * 3, 2), "r": c.floats(1, gates * 3, 3)}
        c.run(f"{op}_bias_short", node(op, "xwrb", outs, hidden_size=3), {"x": c.floats(4, 2, 2)}, outs, inits={**weights, "b": c.floats(1, gates * 3)})
        state = node(op, ["x", "w", "r", "", "", "h0"], outs, hidden_size=3)
        c.run(f"{op}_state_short", state, {"x": c.floats(4, 2, 2), "h0": c.floats(1, 1, 3)}, outs, inits=weights, shapes={"x": ["t", "n", 2], "h0": [1, "m", 3]})


def pooled(c):
    import numpy as np

    indices, pool = np.array([[[[5, 7], [13, 15]]]]), {"kernel_shape": [2, 2], "strides": [2, 2]}
    x = c.floats(1, 1, 2, 2)
    c.run("unpool", node("MaxUnpool", "xi", **pool), {"x": x}, inits={"i": indices})
    for name, to in [("odd", [1, 1, 5, 5]), ("same", [1, 1, 4, 4]), ("small", [1, 1, 3, 3]), ("batch", [2, 1, 4, 4])]:
        c.run(f"unpool_{name}", node("MaxUnpool", "xis", **pool), {"x": x}, inits={"i": indices, "s": np.array(to)})
    c.run("unpool_open", node("MaxUnpool", "xis", **pool), {"x": x, "s": np.array([1, 1, 5, 5])}, inits={"i": indices})
    # What comes back out of a pool of an odd size.
    both = [node("MaxPool", "x", ["p", "i"], **pool), node("Shape", "x", ["s"]), node("MaxUnpool", "pis", **pool)]
    c.run("unpool_of_pool", both, {"x": c.floats(2, 3, 5, 5)})


def grids(c):
    import numpy as np

    x, steps = c.floats(1, 2, 4, 5), np.linspace(-2.5, 2.5, 21, dtype=np.float32)
    odd = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, -1, 1, 0.3, -1.2], np.float32)
    for opset, modes in [(16, ["bilinear", "nearest", "bicubic"]), (20, ["linear", "nearest", "cubic"])]:
        for mode in modes:
            for padding in ["zeros", "border", "reflection"]:
                for corners in [0, 1]:
                    for name, values in [("inside", steps), ("odd", odd)]:
                        grid = np.stack(np.meshgrid(values, values), -1)[None]
                        sample = node("GridSample", "xg", mode=mode, padding_mode=padding, align_corners=corners)
                        c.run(f"grid_{opset}_{mode}_{padding}_{corners}_{name}", sample, {"x": x, "g": grid}, opset=opset)


def integers(c):
    import numpy as np

    for kind, low, high in [(np.uint8, 0, 255), (np.int8, -128, 127), (np.int32, -1000, 1000)]:
        x = c.rng.integers(low, high, (1, 2, 5, 6)).astype(kind)
        for coordinates in ["half_pixel", "asymmetric", "pytorch_half_pixel"]:
            # With these, weights are exact. Others differ by a step in some elements, where a sum in f32 is not whole but for rounding.
            for scale in [[2.0, 2.0], [0.5, 0.25], [4.0, 1.0]]:
                inits, kw = {"s": np.array([1, 1, *scale], np.float32)}, {"coordinate_transformation_mode": coordinates}
                name = f"{x.dtype}_{coordinates}_{scale[0]}"
                c.run(f"resize_linear_{name}", node("Resize", ["x", "", "s"], mode="linear", **kw), {"x": x}, inits=inits)
                c.run(f"resize_nearest_{name}", node("Resize", ["x", "", "s"], mode="nearest", nearest_mode="floor", **kw), {"x": x}, inits=inits)
        for mode in ["linear", "nearest"]:
            c.run(f"upsample_{mode}_{x.dtype}", node("Upsample", "xs", mode=mode), {"x": x}, inits={"s": np.array([1, 1, 2, 2], np.float32)}, opset=9)
    # Places that are whole numbers but for rounding.
    x = c.floats(1, 1, 10, 10)
    for mode in ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]:
        inits = {"s": np.array([1, 1, 0.6, 0.7], np.float32)}
        c.run(f"resize_nearest_{mode}", node("Resize", ["x", "", "s"], mode="nearest", nearest_mode=mode), {"x": x}, inits=inits)


LENGTHS = [("right", 3), ("long", 4), ("one", 1), ("short", 2)]


def operand(c, name, nodes, feeds, inits, which, **kw):
    """With one operand stored in the model, and fed with an open length."""
    c.run(f"{name}_stored", nodes, feeds, inits=inits, **kw)
    fed = {**feeds, which: inits[which]}
    rest = {n: a for n, a in inits.items() if n != which}
    c.run(f"{name}_fed", nodes, fed, inits=rest, shapes={which: ["length", *inits[which].shape[1:]]}, **kw)


def norms(c):
    def positive(n):
        return c.floats(n, lo=0.5)

    for length, n in LENGTHS:
        for which in "sbmv":
            inits = {k: positive(n if k == which else 3) for k in "sbmv"}
            operand(c, f"batch_norm_{which}_{length}", node("BatchNormalization", "xsbmv"), {"x": c.floats(2, 3, 4)}, inits, which)
        for which in "sb":
            inits = {k: positive(n if k == which else 3) for k in "sb"}
            operand(c, f"instance_norm_{which}_{length}", node("InstanceNormalization", "xsb"), {"x": c.floats(2, 3, 4)}, inits, which)
            operand(c, f"layer_norm_{which}_{length}", node("LayerNormalization", "xsb"), {"x": c.floats(2, 3)}, inits, which)
            inits = {k: positive(2 * n if k == which else 6) for k in "sb"}
            c.run(f"group_norm_{which}_{length}", node("GroupNormalization", "xsb", num_groups=3), {"x": c.floats(2, 6, 4)}, inits=inits, opset=21)
        for which in ["gamma", "beta", "bias"]:
            inits = {k: positive(n if k == which else 3) for k in ["gamma", "beta", "bias"]}
            skip = node("SkipLayerNormalization", ["x", "skip", *inits], domain=MS)
            operand(c, f"skip_norm_{which}_{length}", skip, {"x": c.floats(2, 2, 3), "skip": c.floats(2, 2, 3)}, inits, which)
        c.run(f"simplified_norm_{length}", node("SimplifiedLayerNormalization", "xs"), {"x": c.floats(2, 3)}, inits={"s": positive(n)})


def products(c):
    import numpy as np

    x, w = c.floats(1, 2, 5, 5), c.floats(3, 2, 3, 3)
    for length, n in LENGTHS:
        operand(c, f"conv_bias_{length}", node("Conv", "xwb"), {"x": x}, {"w": w, "b": c.floats(n)}, "b")
        operand(c, f"fused_conv_bias_{length}", node("FusedConv", "xwb", domain=MS, activation="Relu"), {"x": x}, {"w": w, "b": c.floats(n)}, "b")
        operand(c, f"conv_transpose_bias_{length}", node("ConvTranspose", "xwb"), {"x": x}, {"w": c.floats(2, 3, 3, 3), "b": c.floats(n)}, "b")
        operand(c, f"gelu_bias_{length}", node("BiasGelu", "xb", domain=MS), {"x": c.floats(2, 3)}, {"b": c.floats(n)}, "b")
        blocks = node("MatMulNBits", ["a", "b", "s", "", "", "bias"], domain=MS, K=32, N=3, block_size=32, bits=4)
        packed = {"b": c.rng.integers(0, 255, (3, 1, 16)).astype(np.uint8), "s": c.floats(3), "bias": c.floats(n)}
        c.run(f"matmul_bits_bias_{length}", blocks, {"a": c.floats(2, 32)}, inits=packed)
        c.run(f"gemm_c_{length}", node("Gemm", "abc"), {"a": c.floats(2, 4)}, inits={"b": c.floats(4, 3), "c": c.floats(n)})
        attention = {"w": c.floats(4, 12), "b": c.floats(4 * n)}
        c.run(f"attention_bias_{length}", node("Attention", "xwb", domain=MS, num_heads=1), {"x": c.floats(1, 2, 4)}, inits=attention)
        heads = node("MultiHeadAttention", "qkvb", domain=MS, num_heads=1)
        c.run(f"heads_bias_{length}", heads, {n: c.floats(1, 2, 4) for n in "qkv"}, inits={"b": c.floats(4 * n)})
    c.run("fused_matmul", node("FusedMatMul", "ab", domain=MS), {"a": c.floats(2, 4)}, inits={"b": c.floats(3, 3)})
    c.run("conv_bias_scalar", node("Conv", "xwb"), {"x": x}, inits={"w": w, "b": c.floats(1).reshape(())})


def quantised(c):
    import numpy as np

    def scale(x):
        return np.array(x, np.float32)

    def numbers(*shape):
        return c.rng.integers(0, 255, shape).astype(np.uint8)

    u, i = np.uint8(3).reshape(()), np.int8(3).reshape(())
    x, w = numbers(1, 2, 5, 5), numbers(3, 2, 3, 3)
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    for length, n in LENGTHS:
        plain = {"xs": scale(0.02), "xz": u, "w": w, "ws": scale(0.01), "wz": u, "ys": scale(0.3), "yz": u}
        bias = np.arange(n, dtype=np.int32)
        operand(c, f"q_conv_bias_{length}", node("QLinearConv", names), {"x": x}, {**plain, "b": bias}, "b")
        for which, value in [("ws", scale([0.01] * n)), ("wz", np.full(n, 4, np.uint8))]:
            c.run(f"q_conv_{which}_{length}", node("QLinearConv", names[:8]), {"x": x}, inits={**plain, which: value})
        a, b = numbers(2, 4), numbers(4, 3)
        products = {"b": b, "as": scale(0.02), "bs": scale(0.03), "az": u, "bz": u, "bias": c.floats(n)}
        float_out = node("MatMulIntegerToFloat", ["a", "b", "as", "bs", "az", "bz", "bias"], domain=MS)
        operand(c, f"q_matmul_bias_{length}", float_out, {"a": a}, products, "bias")
        dynamic = node("DynamicQuantizeMatMul", ["a", "b", "bs", "bz", "bias"], domain=MS)
        rest = {k: products[k] for k in ["b", "bs", "bz", "bias"]}
        operand(c, f"dynamic_matmul_bias_{length}", dynamic, {"a": c.floats(2, 4)}, rest, "bias")
        c.run(f"integer_matmul_zero_{length}", node("MatMulInteger", ["a", "b", "az", "bz"]), {"a": a}, inits={"b": b, "az": u, "bz": np.ones(n, np.uint8)})
        for op, values in [("QuantizeLinear", c.floats(2, 3)), ("DequantizeLinear", numbers(2, 3))]:
            inits = {"s": scale([0.1] * 3), "z": np.ones(n, np.uint8)}
            c.run(f"{op}_zero_{length}", node(op, "xsz", axis=1), {"x": values}, inits=inits)
            c.run(f"{op}_scale_{length}", node(op, "xsz", axis=1), {"x": values}, inits={"s": scale([0.1] * n), "z": np.ones(n, np.uint8)})
    u8, i8, s = numbers(2, 3), c.rng.integers(-100, 100, (2, 3)).astype(np.int8), scale(0.1)
    concat = node("QLinearConcat", ["ys", "yz", "a", "s", "az", "b", "s", "bz"], domain=MS, axis=1)
    add = node("QLinearAdd", ["a", "s", "az", "b", "s", "bz", "ys", "yz"], domain=MS)
    for name, one, zero, other, second, result in [("u8", u8, u, u8, u, u), ("i8", i8, i, i8, i, i), ("mixed", u8, u, i8, i, u), ("result", u8, u, u8, u, i), ("zero", u8, i, u8, u, u)]:
        inits = {"ys": scale(0.2), "yz": result, "s": s, "az": zero, "bz": second}
        c.run(f"q_concat_{name}", concat, {"a": one, "b": other}, inits=inits)
        c.run(f"q_add_{name}", add, {"a": one, "b": other}, inits=inits)


def detection(c):
    import numpy as np

    caches = {"c": c.floats(8, 2), "s": c.floats(8, 2)}
    for name, positions in [("right", [[0, 1, 2]]), ("negative", [[0, -1, 2]]), ("large", [[0, 8, 2]])]:
        feeds = {"x": c.floats(1, 2, 3, 4), "p": np.array(positions)}
        c.run(f"rotary_{name}", node("RotaryEmbedding", "xcsp"), feeds, inits=caches, opset=23, ir=10)
        c.run(f"rotary_ms_{name}", node("RotaryEmbedding", "xpcs", domain=MS), feeds, inits=caches)
        embed = node("EmbedLayerNormalization", ["i", "", "w", "e", "", "g", "b", "", "p"], ["y", "m"], domain=MS)
        ids = {"i": np.array([[1, 2, 3]], np.int32), "p": np.array(positions, np.int32)}
        tables = {"w": c.floats(5, 3), "e": c.floats(8, 3), "g": c.floats(3), "b": c.floats(3)}
        c.run(f"embedding_{name}", embed, ids, ["y", "m"], inits=tables)
    limits = {"l": np.array([3]), "i": np.array([0.5], np.float32), "t": np.array([0.0], np.float32)}
    for name, boxes, scores in [
        ("right", [1, 6, 4], [1, 2, 6]), ("fewer", [1, 6, 4], [1, 2, 5]), ("more", [1, 6, 4], [1, 2, 7]), ("batch", [1, 6, 4], [2, 2, 6]),
        ("product", [2, 6, 4], [3, 2, 4]), ("edges", [1, 6, 5], [1, 2, 6]), ("none", [1, 0, 4], [1, 2, 0]), ("no_batch", [0, 6, 4], [0, 2, 6]),
    ]:
        for declared in [None, {"b": ["n", "k", boxes[2]], "s": ["m", 2, "l"]}]:
            feeds = {"b": c.floats(*boxes), "s": c.floats(*scores)}
            tag = f"{name}_{'open' if declared else 'fixed'}"
            c.run(f"boxes_{tag}", node("NonMaxSuppression", ["b", "s", "l", "i", "t"]), feeds, inits=limits, shapes=declared)
    for name, threshold in [("negative", -0.5), ("large", 1.5)]:
        feeds = {"b": c.floats(1, 6, 4), "s": c.floats(1, 2, 6)}
        inits = {**limits, "i": np.array([threshold], np.float32)}
        c.run(f"boxes_threshold_{name}", node("NonMaxSuppression", ["b", "s", "l", "i", "t"]), feeds, inits=inits)


if __name__ == "__main__":
    raise SystemExit(main())
