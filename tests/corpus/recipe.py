"""Numbers that are the same everywhere: inputs from a seed, and the weights of graph-only ONNX files.

A graph-only file (tests/data/graphs) keeps every node, name, shape and small tensor of a real export; each large weight is a recipe in
its external_data entries: location "recipe", kind "uniform" with seed, low, high, or kind "constant" with value. Element i is
low + (high - low) * (splitmix64(seed + i) >> 40) / 2**24, computed in float64 and cast to the tensor's type.
"""
import numpy as np
import onnx
from onnx import helper


def unit(seed: int, n: int) -> np.ndarray:
    """n float64 in [0, 1): multiples of 2**-24 from splitmix64."""
    with np.errstate(over="ignore"):
        z = np.arange(n, dtype=np.uint64) + np.uint64(seed)
        z = (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float64) / 2**24


def weights(recipe: dict, dims: list, dtype) -> np.ndarray:
    if recipe["kind"] == "constant":
        return np.full(dims, float(recipe["value"]), dtype=dtype)
    low, high = float(recipe["low"]), float(recipe["high"])
    return (low + (high - low) * unit(int(recipe["seed"]), int(np.prod(dims, dtype=np.int64)))).astype(dtype).reshape(dims)


def fill(model) -> None:
    for t in [*model.graph.initializer, *tensor_attributes(model.graph.node)] + [t for f in model.functions for t in tensor_attributes(f.node)]:
        recipe = {e.key: e.value for e in t.external_data}
        if recipe.get("location") == "recipe":
            data = weights(recipe, list(t.dims), helper.tensor_dtype_to_np_dtype(t.data_type))
            del t.external_data[:]
            t.data_location = onnx.TensorProto.DEFAULT
            t.raw_data = data.tobytes()


def tensor_attributes(nodes):
    for a in (a for node in nodes for a in node.attribute):
        if a.HasField("t"):
            yield a.t
        for g in [a.g] if a.HasField("g") else a.graphs:
            yield from g.initializer
            yield from tensor_attributes(g.node)
