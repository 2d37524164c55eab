"""Build target/corpus/ml-ops: operators of ai.onnx.ml (and TfIdfVectorizer) with random attributes, judged by ONNX Runtime.

<Operator>_<number>/{model.onnx, data.json, test_data_set_0/{input,output}_I.pb}. Attributes, labels, types and sizes are drawn so that every
combination that exporters write occurs; the number of rows is open in two of three models. What ONNX Runtime refuses is left out, and so is
what it leaves undefined (`undefined` below). Everything follows from the seed: `mlops.py OUT COUNT SEED` writes others.
"""
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

COUNT = 10  # models per operator
POSTS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]
TYPES = {np.dtype("float32"): TensorProto.FLOAT, np.dtype("float64"): TensorProto.DOUBLE, np.dtype("int64"): TensorProto.INT64,
         np.dtype("int32"): TensorProto.INT32, np.dtype(object): TensorProto.STRING}
WORDS = ["a", "b", "cat", "", "dog", "é", "zebra", "A"]
L, S, F = TensorProto.INT64, TensorProto.STRING, TensorProto.FLOAT


class Draw:
    """Random choices."""

    def __init__(self, *seed):
        self.rng = np.random.default_rng(list(seed))

    def one(self, options):
        return options[int(self.rng.integers(len(options)))]

    def upto(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def maybe(self, chance=0.5):
        return self.rng.random() < chance

    def floats(self, *shape, scale=1.0):
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def grid(self, *shape):
        """Multiples of 1/2, of which many are equal."""
        return (self.rng.integers(-4, 5, shape) / 2).astype(np.float32)

    def rows(self, width, dtypes=("float32",), scale=1.0):
        x = self.floats(self.one([1, 2, 5, 9]), width, scale=scale)
        dtype = self.one(dtypes)
        return (x * 3 if dtype.startswith("int") else x).astype(dtype)

    def words(self, *shape):
        return np.array([self.one(WORDS + ["unknown"]) for _ in range(int(np.prod(shape)))], dtype=object).reshape(shape)

    def distinct(self, n):
        return [int(i) for i in self.rng.permutation(20)[:n] - 5]

    def labels(self, n, ints="classlabels_ints", strings="classlabels_strings"):
        """Names of classes: the attribute, and the type of the output."""
        if self.maybe():
            return {ints: self.distinct(n)}, L
        return {strings: [f"class {i}" for i in self.rng.permutation(n)]}, S


NUMBERS = ("float32", "float64", "int64", "int32")


def linear_classifier(d):
    width, classes = d.upto(1, 5), d.one([1, 2, 2, 3, 5])
    labels, out = d.labels(max(classes, 2) + (d.upto(0, 1) if classes > 1 else 0))
    a = dict(coefficients=d.floats(classes * width), intercepts=d.floats(classes), post_transform=d.one(POSTS), **labels)
    undefined = classes == 1 and a["post_transform"] == "PROBIT"
    return a, [d.rows(width, NUMBERS)], [out, F], None if undefined else 1


def linear_regressor(d):
    width, targets = d.upto(1, 5), d.one([1, 2, 3])
    a = dict(coefficients=d.floats(targets * width), targets=targets, post_transform=d.one(POSTS))
    if d.maybe(0.7):
        a["intercepts"] = d.floats(d.one([1, targets, targets]))
    return a, [d.rows(width)], [F], 1


def kernel(d):
    name = d.one(["LINEAR", "POLY", "RBF", "SIGMOID"])
    return {"kernel_type": name, "kernel_params": [abs(float(d.floats(1)[0])) + 0.1, float(d.floats(1)[0]), float(d.one([2, 3, 1]))]}


def svm_regressor(d):
    width, n = d.upto(1, 5), d.upto(0, 6)
    a = dict(coefficients=d.floats(n or width), n_supports=n, rho=d.floats(1), one_class=d.upto(0, 1), post_transform=d.one(POSTS), **kernel(d))
    if n:
        a["support_vectors"] = d.floats(n * width)
    return a, [d.rows(width, scale=0.7)], [F], 1


def svm_classifier(d):
    width, classes = d.upto(1, 4), d.one([2, 2, 3, 4])
    labels, out = d.labels(classes)
    pairs = classes * (classes - 1) // 2
    a = dict(rho=d.floats(pairs), post_transform=d.one(POSTS), **labels, **kernel(d))
    if d.maybe(0.75):
        counts = [d.upto(1, 4) for _ in range(classes)]
        n = sum(counts)
        a |= dict(vectors_per_class=counts, support_vectors=d.floats(n * width), coefficients=d.floats((classes - 1) * n))
        if d.maybe():
            a |= dict(prob_a=-np.abs(d.floats(pairs)), prob_b=d.floats(pairs, scale=0.3))
    else:
        a["coefficients"] = np.abs(d.floats(classes * width)) if d.maybe(0.3) else d.floats(classes * width)
    undefined = classes == 2 and a["post_transform"] == "PROBIT" and "vectors_per_class" in a and "prob_a" not in a
    return a, [d.rows(width, NUMBERS, scale=0.7)], [out, F], None if undefined else 1


MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def forest(d, width, vote):
    """Nodes of trees, and what `vote(tree, node)` gives for leaves."""
    nodes = {k: [] for k in ["treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true"]}
    votes, one_mode = [], d.one([None, "BRANCH_LEQ", "BRANCH_LT"])

    def put(tree, node, feature, mode, value, yes, no):
        row = [tree, node, feature, mode, value, yes, no, d.upto(0, 1)]
        for k, v in zip(nodes, row):
            nodes[k].append(v)

    for tree in range(d.upto(1, 6)):
        depth, next_id = d.upto(0, 4), [0]

        def grow(level):
            me = next_id[0]
            next_id[0] += 1
            if level == 0 or (level < depth and d.maybe(0.2)):
                put(tree, me, 0, "LEAF", 0.0, 0, 0)
                votes.extend(vote(tree, me))
                return me
            at = len(nodes["treeids"])
            put(tree, me, d.upto(0, width - 1), one_mode or d.one(MODES), float(d.grid(1)[0]), 0, 0)
            nodes["truenodeids"][at] = grow(level - 1)
            nodes["falsenodeids"][at] = grow(level - 1)
            return me

        grow(depth)
    a = {f"nodes_{k}": v for k, v in nodes.items()}
    if d.maybe(0.4):
        del a["nodes_missing_value_tracks_true"]
    return a, votes


def grid_rows(d, width, dtypes):
    x = d.grid(d.one([1, 2, 5, 9]), width)
    dtype = d.one(dtypes)
    if dtype.startswith("float") and d.maybe(0.4):
        x[d.rng.random(x.shape) < 0.2] = np.nan
    return x.astype(dtype)


def voted(a, votes, kind, double):
    names = ["treeids", "nodeids", "ids"]
    a |= {f"{kind}_{k}": [int(v[i]) for v in votes] for i, k in enumerate(names)}
    weights = [float(v[3]) for v in votes]
    if double:
        a[f"{kind}_weights_as_tensor"] = helper.make_tensor("w", TensorProto.DOUBLE, [len(weights)], weights)
        values = a.pop("nodes_values")
        a["nodes_values_as_tensor"] = helper.make_tensor("v", TensorProto.DOUBLE, [len(values)], values)
    else:
        a[f"{kind}_weights"] = weights


def tree_regressor(d):
    width, targets = d.upto(1, 4), d.one([1, 1, 2, 3])
    sparse = targets > 1 and d.maybe(0.3)

    def vote(tree, node):
        return [(tree, node, t, d.floats(1)[0]) for t in range(targets) if not (sparse and d.maybe(0.3))]

    a, votes = forest(d, width, vote)
    x = grid_rows(d, width, NUMBERS[:2])
    voted(a, votes, "target", x.dtype == np.float64 and d.maybe())
    a |= dict(n_targets=targets, aggregate_function=d.one(["SUM", "AVERAGE", "MIN", "MAX"]), post_transform=d.one(POSTS))
    if d.maybe():
        a["base_values"] = d.floats(targets)
    return a, [x], [F], 3


def tree_classifier(d):
    """Classifiers of two classes have votes for one of them, as exporters write them: with votes for both, ONNX Runtime takes the sign of
    the second score for the label, and of two base values it mixes up the votes."""
    width, classes = d.upto(1, 4), d.one([2, 2, 2, 3, 4])
    labels, out = d.labels(classes, "classlabels_int64s")
    sign = d.one([np.abs, lambda v: v])
    only = d.upto(0, 1)

    def vote(tree, node):
        if classes == 2:
            return [(tree, node, only, sign(d.floats(1))[0] / 3)]
        return [(tree, node, c, sign(d.floats(1))[0]) for c in range(classes) if d.maybe(0.8)] or [(tree, node, 0, 0.25)]

    a, votes = forest(d, width, vote)
    x = grid_rows(d, width, NUMBERS)
    voted(a, votes, "class", x.dtype == np.float64 and d.maybe())
    a |= dict(post_transform=d.one(POSTS), **labels)
    base = d.one([0, 1, 2] if only == 0 else [0, 1]) if classes == 2 else d.one([0, classes])
    if base:
        a["base_values"] = d.floats(base)
    undefined = classes == 2 and only == 0 and base < 2 and a["post_transform"] == "PROBIT"
    return a, [x], [out, F], None if undefined else 3


def tree_ensemble(d):
    width, targets = d.upto(1, 4), d.one([1, 1, 2, 3])
    dtype = d.one(["float32", "float64"])
    roots, nodes, leaves = [], [], []
    one_mode = d.one([None, 0, 6])
    members = {}

    def grow(level):
        if level == 0:
            leaves.append((d.upto(0, targets - 1), d.floats(1)[0]))
            return len(leaves) - 1, 1
        at = len(nodes)
        mode = one_mode if one_mode is not None else d.upto(0, 6)
        nodes.append(None)
        split = float(d.grid(1)[0])
        if mode == 6:
            members[at] = sorted({float(d.upto(0, 6)) for _ in range(d.upto(1, 5))})
            split = 0.0
        yes, no = grow(d.upto(0, level - 1)), grow(d.upto(0, level - 1))
        nodes[at] = (d.upto(0, width - 1), mode, split, yes, no, d.upto(0, 1))
        return at, 0

    for _ in range(d.upto(1, 5)):
        roots.append(grow(d.upto(1, 4))[0])

    def tensor(name, values, kind=None):
        return helper.make_tensor(name, kind or TYPES[np.dtype(dtype)], [len(values)], values)

    a = dict(tree_roots=roots, nodes_featureids=[n[0] for n in nodes], nodes_modes=tensor("m", [n[1] for n in nodes], TensorProto.UINT8),
             nodes_splits=tensor("s", [n[2] for n in nodes]), nodes_truenodeids=[n[3][0] for n in nodes], nodes_trueleafs=[n[3][1] for n in nodes],
             nodes_falsenodeids=[n[4][0] for n in nodes], nodes_falseleafs=[n[4][1] for n in nodes], leaf_targetids=[v[0] for v in leaves],
             leaf_weights=tensor("w", [float(v[1]) for v in leaves]), n_targets=targets, aggregate_function=d.upto(0, 3), post_transform=d.upto(0, 4))
    if members:
        flat = [v for at in sorted(members) for v in [*members[at], float("nan")]]
        a["membership_values"] = tensor("sets", flat)
    if d.maybe():
        a["nodes_missing_value_tracks_true"] = [n[5] for n in nodes]
    x = d.rng.integers(-2, 7, (d.one([1, 2, 5, 9]), width)).astype(dtype)
    if d.maybe(0.3):
        x[d.rng.random(x.shape) < 0.2] = np.nan
    return a, [x], [TYPES[np.dtype(dtype)]], 5


def keyed(d, kind, n):
    """Keys or values of one kind, some of them twice."""
    if kind == "strings":
        return [d.one(WORDS) for _ in range(n)]
    return [d.upto(-3, 4) for _ in range(n)] if kind == "int64s" else [float(d.grid(1)[0]) for _ in range(n)]


def sample(d, kind, *shape):
    if kind == "strings":
        return d.words(*shape)
    return d.rng.integers(-5, 7, shape) if kind == "int64s" else d.grid(*shape)


def label_encoder(d):
    kinds = ["strings", "int64s", "floats"]
    key, value = d.one(kinds), d.one(kinds)
    n, opset = d.upto(1, 6), d.one([2, 3, 4])
    a = {f"keys_{key}": keyed(d, key, n), f"values_{value}": keyed(d, value, n)}
    if d.maybe():
        a |= {"strings": dict(default_string="none"), "int64s": dict(default_int64=77), "floats": dict(default_float=0.5)}[value]
    x = sample(d, key, *d.one([(4,), (3, 2), (0,), (2, 2, 2)]))
    return a, [x], [{"strings": S, "int64s": L, "floats": F}[value]], opset


def category_mapper(d):
    n, strings = d.upto(1, 6), d.maybe()
    a = dict(cats_strings=keyed(d, "strings", n), cats_int64s=keyed(d, "int64s", n), default_string="none", default_int64=-7)
    return a, [sample(d, "strings" if strings else "int64s", 3, 2)], [L if strings else S], 1


def label_encoder_1(d):
    a = dict(classes_strings=keyed(d, "strings", d.upto(1, 6)), default_string="none", default_int64=-7)
    strings = d.maybe()
    return a, [sample(d, "strings" if strings else "int64s", 3, 2)], [L if strings else S], 1


def feature_vectorizer(d):
    rows = d.upto(1, 4)
    xs = [(d.floats(*d.one([(rows, d.upto(1, 4)), (rows, 2, 2)])) * 3).astype(np.float64) for _ in range(d.upto(1, 3))]
    dtype = d.one(NUMBERS)
    xs = [x.astype(dtype) for x in xs]
    return dict(inputdimensions=[d.upto(1, 5) for _ in xs]), xs, [F], 1


def tfidf(d):
    strings, longest = d.maybe(), d.upto(1, 3)
    shortest, pool, counts = d.upto(1, longest), [], []
    for n in range(1, longest + 1):
        counts.append(len(pool))
        grams = {tuple(d.one(WORDS[:4]) if strings else d.upto(1, 4) for _ in range(n)) for _ in range(d.upto(0, 4))}
        pool += [t for g in sorted(grams) for t in g]
    ends = counts[1:] + [len(pool)]
    grams = sum((end - start) // n for n, (start, end) in enumerate(zip(counts, ends), 1))
    if not grams:
        return None
    indexes = [int(i) for i in d.rng.permutation(grams + d.upto(0, 2))[:grams]]
    a = dict(mode=d.one(["TF", "IDF", "TFIDF"]), min_gram_length=shortest, max_gram_length=longest, max_skip_count=d.upto(0, 5),
             ngram_counts=counts, ngram_indexes=indexes, **{"pool_strings" if strings else "pool_int64s": pool})
    if d.maybe():
        a["weights"] = d.floats(grams)
    shape = d.one([(d.upto(1, 8),), (d.upto(1, 3), d.upto(1, 8)), (2, 0)])
    x = np.array([d.one(WORDS[:4]) for _ in range(int(np.prod(shape)))], dtype=object) if strings else d.rng.integers(1, 5, int(np.prod(shape)))
    return a, [x.reshape(shape)], [F], 9


def normalizer(d):
    x = d.rows(d.upto(1, 5), NUMBERS)
    if d.maybe(0.3):
        x[0] = 0
    return dict(norm=d.one(["MAX", "L1", "L2"])), [x], [F], 1


def scaler(d):
    width = d.upto(1, 5)
    n = d.one([1, width])
    x = d.rows(width, NUMBERS)
    return dict(offset=d.floats(n), scale=d.floats(n)), [x + (1000000 if x.dtype == np.float64 else 0)], [F], 1


def imputer(d):
    width = d.upto(1, 5)
    n = d.one([1, width])
    if d.maybe():
        x = d.grid(3, width)
        old = d.one([float("nan"), 0.5])
        x[d.rng.random(x.shape) < 0.3] = old
        return dict(imputed_value_floats=d.floats(n), replaced_value_float=old), [x], [F], 1
    return dict(imputed_value_int64s=d.distinct(n), replaced_value_int64=0), [d.rng.integers(-1, 2, (3, width))], [L], 1


def one_hot(d):
    n, shape = d.upto(1, 5), d.one([(4,), (3, 2)])
    if d.maybe(0.4):
        return dict(cats_strings=keyed(d, "strings", n), zeros=1), [d.words(*shape)], [F], 1
    x = sample(d, "int64s", *shape).astype(d.one(["int64", "float32", "float64"]))
    return dict(cats_int64s=keyed(d, "int64s", n), zeros=1), [x if x.dtype == np.int64 else x * 1.25], [F], 1


def extractor(d):
    width = d.upto(1, 5)
    x = d.words(3, width) if d.maybe(0.3) else d.rows(width, NUMBERS)
    if d.maybe(0.3):
        x = x[0]
    at = d.rng.integers(0, width, d.upto(1, 4))
    return {}, [x, at if d.maybe() else at[None]], [TYPES[x.dtype]], 1


def binarizer(d):
    return dict(threshold=float(d.grid(1)[0])) if d.maybe(0.8) else {}, [d.grid(3, d.upto(1, 4))], [F], 1


def zip_map(d):
    n = d.upto(1, 4)
    labels, _ = d.labels(n, "classlabels_int64s")
    x = d.rows(n)
    return labels, [x], [labels], 1


OPERATORS = {
    "LinearClassifier": linear_classifier, "LinearRegressor": linear_regressor, "SVMRegressor": svm_regressor, "SVMClassifier": svm_classifier,
    "TreeEnsembleRegressor": tree_regressor, "TreeEnsembleClassifier": tree_classifier, "TreeEnsemble": tree_ensemble,
    "LabelEncoder": label_encoder, "CategoryMapper": category_mapper, "LabelEncoder_1": label_encoder_1,
    "FeatureVectorizer": feature_vectorizer, "TfIdfVectorizer": tfidf, "Normalizer": normalizer, "Scaler": scaler, "Imputer": imputer,
    "OneHotEncoder": one_hot, "ArrayFeatureExtractor": extractor, "Binarizer": binarizer, "ZipMap": zip_map,
}


def list_of_maps(name, labels):
    """The declared type of what ZipMap gives."""
    strings = "classlabels_strings" in labels
    ty = helper.make_sequence_type_proto(helper.make_map_type_proto(S if strings else L, helper.make_tensor_type_proto(F, [])))
    return helper.make_value_info(name, ty)


def model_of(op, d, made):
    attributes, xs, outs, opset = made
    domain = "" if op == "TfIdfVectorizer" else "ai.onnx.ml"
    # An open number of rows; operators of several inputs have the same one everywhere but the one whose second input is places.
    is_open = d.maybe(0.67)
    inputs = []
    for i, x in enumerate(xs):
        shape = list(x.shape)
        if is_open and shape and not (op == "ArrayFeatureExtractor" and i == 1):
            shape[0] = "N" if len(shape) > 1 else "W"
        inputs.append(helper.make_tensor_value_info(f"x{i}", TYPES[x.dtype], shape))
    outputs = [list_of_maps(f"y{i}", t) if isinstance(t, dict) else helper.make_tensor_value_info(f"y{i}", t, None)
               for i, t in enumerate(outs)]
    node = helper.make_node(op.removesuffix("_1"), [i.name for i in inputs], [o.name for o in outputs], domain=domain, **attributes)
    graph = helper.make_graph([node], op, inputs, outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", opset if domain else 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def session(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def maps_proto(maps, name="maps"):
    """A list of dictionaries as ONNX stores it."""
    from onnx import MapProto, SequenceProto
    sequence = SequenceProto(name=name, elem_type=SequenceProto.MAP)
    for one in maps:
        m = MapProto(key_type=S if any(isinstance(k, str) for k in one) else L)
        if m.key_type == S:
            m.string_keys.extend(k.encode() for k in one)
        else:
            m.keys.extend(one)
        m.values.elem_type = SequenceProto.TENSOR
        m.values.tensor_values.extend(numpy_helper.from_array(np.array(v, np.float32)) for v in one.values())
        sequence.map_values.append(m)
    return sequence


def value_proto(value):
    if isinstance(value, list):
        return maps_proto(value)
    return numpy_helper.from_array(np.asarray(value))


def write_set(folder, xs, ys):
    folder.mkdir(parents=True)
    for kind, values in (("input", xs), ("output", ys)):
        for i, value in enumerate(values):
            (folder / f"{kind}_{i}.pb").write_bytes(value_proto(value).SerializeToString())


def generate(out: Path, count: int = COUNT, seed: int = 0) -> int:
    written = 0
    for index, (op, draw) in enumerate(OPERATORS.items()):
        for number in range(count):
            d = Draw(seed, index, number)
            made = draw(d)
            if made is None or made[3] is None:
                continue
            model = model_of(op, d, made)
            xs = made[1]
            try:
                ys = session(model).run(None, {f"x{i}": x for i, x in enumerate(xs)})
            except Exception as e:  # what ONNX Runtime refuses it cannot judge
                print(f"ml-ops: {op}_{number}: {str(e).splitlines()[0][:150]}")
                continue
            folder = out / f"{op}_{number}"
            write_set(folder / "test_data_set_0", xs, ys)
            (folder / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
            # PROBIT makes much of little near 0 and 1, and ONNX Runtime computes it in single precision.
            probit = made[0].get("post_transform") in ("PROBIT", POSTS.index("PROBIT"))
            (folder / "data.json").write_text(json.dumps({"rtol": 1e-3, "atol": 1e-4} if probit else {"rtol": 1e-4, "atol": 1e-5}) + "\n")
            written += 1
    return written


if __name__ == "__main__":
    out, more = Path(sys.argv[1]), [int(n) for n in sys.argv[2:]]
    out.mkdir(parents=True, exist_ok=True)
    print(f"ml-ops: {generate(out, *more)} models in {out}")
