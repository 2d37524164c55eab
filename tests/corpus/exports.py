#!/usr/bin/env python3
"""Build target/corpus/exports-<part>: fitted estimators as their exporters write them, with ONNX Runtime's outputs.

    exports.py sklearn    scikit-learn and LightGBM, and the operators of mlops.py (target/corpus/ml-ops)
    exports.py boosted    XGBoost and CatBoost, whose packages are large

<name>/{model.onnx, data.json, test_data_set_N/{input,output}_I.pb} and index.json: what there is, and why the rest of scikit-learn's
estimators is not (they have no converter, or ONNX Runtime refuses what it writes). Every part has a venv of its own.

Classifiers come with integer and with text labels, of two and of three classes, with ZipMap (the exporters' default) and without it, from
floats and from doubles. The number of rows is open: data sets have 11, 1 and, where ONNX Runtime runs it, 0 rows. Seeds are fixed.
"""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
import warnings
from pathlib import Path

sys.dont_write_bytecode = True

from fetch import CORPUS, HERE, PINS as BASE, digest, lock, replace_dir, stamped, write_atomic  # noqa: E402

OUTS = {"sklearn": ["exports-sklearn", "ml-ops"], "boosted": ["exports-boosted"]}

# Beside those of fetch.py; complete again, so that pip resolves nothing.
PINS = {
    "sklearn": ["scikit-learn==1.9.1", "scipy==1.17.1", "joblib==1.6.0", "threadpoolctl==3.8.0", "cloudpickle==3.1.2", "narwhals==2.28.0", "skl2onnx==1.20.0",
                "onnxmltools==1.16.0", "lightgbm==4.7.0"],
    "boosted": ["scikit-learn==1.9.1", "scipy==1.17.1", "joblib==1.6.0", "threadpoolctl==3.8.0", "cloudpickle==3.1.2", "narwhals==2.28.0", "skl2onnx==1.20.0",
                "onnxmltools==1.16.0", "xgboost==3.2.0", "catboost==1.2.10", "pandas==3.1.1", "python-dateutil==4.0.0", "six==1.17.0",
                "tzdata==2026.6", "graphviz==0.21", "plotly==7.1.0", "matplotlib==3.11.2", "contourpy==1.3.3", "cycler==0.12.1",
                "fonttools==4.68.0", "kiwisolver==1.5.1", "pillow==13.0.0", "pyparsing==3.3.3"],
}
ROWS = [11, 1, 0]


def key() -> str:
    return digest([HERE / "exports.py", HERE / "mlops.py"])


def fetch(part: str) -> int:
    """Make the part, and its venv, if need be."""
    outs = OUTS[part]
    if not all(stamped(CORPUS / out, key()) for out in outs):
        lock(part)
    if all(stamped(CORPUS / out, key()) for out in outs):
        print(f"{part}: up to date in {CORPUS}")
        return 0
    pins, where = BASE + PINS[part], CORPUS / f"venv-{part}"
    stamp = hashlib.sha256("\n".join(pins).encode()).hexdigest()
    python = where / "bin" / "python"
    if not stamped(where, stamp):
        print(f"{part}: installing {' '.join(pins)}", flush=True)
        shutil.rmtree(where, ignore_errors=True)
        venv.create(where, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", *pins], check=True)
        write_atomic(where / ".stamp", stamp.encode())
    # One thread each: sums in another order are other sums, and labels at ties are others.
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    for out in outs:
        new = CORPUS / f".{out}.tmp"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        command = ["mlops.py", new] if out == "ml-ops" else ["exports.py", part, new]
        subprocess.run([python, HERE / command[0], *command[1:]], check=True, env=env)
        write_atomic(new / ".stamp", key().encode())
        replace_dir(new, CORPUS / out)
    return 0


# ---------------------------------------------------------------- in the part's venv

def main(part: str, out: Path) -> None:
    import numpy as np
    warnings.filterwarnings("ignore")
    index = {}

    def add(name, make, **kind):
        """`make` gives a model and its inputs for a number of rows; what goes wrong is why there is no such model."""
        np.random.seed(0)
        try:
            model, inputs = make()
            write(out / name, model, inputs, **kind)
            index[name] = ""
        except Exception as e:
            shutil.rmtree(out / name, ignore_errors=True)
            index[name] = f"{type(e).__name__}: {str(e).strip().splitlines()[0][:200] if str(e).strip() else ''}"

    integers_from_booleans()
    {"sklearn": sklearn_part, "boosted": boosted_part}[part](add)
    (out / "index.json").write_text(json.dumps(index, indent=1, sort_keys=True) + "\n")
    there = [n for n, why in index.items() if not why]
    print(f"exports: {len(there)} models of {len(index)} in {out}")
    for name, why in index.items():
        if why:
            print(f"  {name}: {why}")


def integers_from_booleans() -> None:
    """Protobuf takes no booleans for integers any more, and skl2onnx writes some."""
    import numpy as np
    from onnx import helper
    original = helper.make_attribute

    def plain(value):
        if isinstance(value, (bool, np.bool_)):
            return int(value)
        return [plain(v) for v in value] if isinstance(value, list) else value

    helper.make_attribute = lambda key, value, *more, **named: original(key, plain(value), *more, **named)


def write(folder: Path, model, inputs, rtol=1e-3, atol=1e-5) -> None:
    import numpy as np
    import onnxruntime
    from mlops import write_set
    folder.mkdir()
    data = model.SerializeToString(deterministic=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    written = 0
    for rows in ROWS:
        xs = [x[:rows] for x in inputs]
        try:
            ys = session.run(None, {i.name: x for i, x in zip(session.get_inputs(), xs)})
        except Exception:
            if rows:
                raise
            continue
        if not rows and not all(isinstance(y, list) or np.asarray(y).shape[:1] == (0,) for y in ys):
            continue  # a guess of ONNX Runtime's about nothing
        write_set(folder / f"test_data_set_{written}", xs, ys)
        written += 1
    (folder / "model.onnx").write_bytes(data)
    (folder / "data.json").write_text(json.dumps({"rtol": rtol, "atol": atol}) + "\n")


def table(classes=3, rows=120, width=6):
    """Features that tell classes apart, but not too well."""
    import numpy as np
    rng = np.random.default_rng(7)
    y = rng.integers(0, classes, rows)
    x = rng.standard_normal((rows, width)) + np.outer(y, np.linspace(1.5, -1, width))
    return x.astype(np.float32), y


def fresh(x):
    """Rows that nothing was fitted to."""
    import numpy as np
    rng = np.random.default_rng(11)
    return (x[: max(ROWS)] + rng.standard_normal(x[: max(ROWS)].shape) * 0.3).astype(x.dtype)


def names_of(y):
    import numpy as np
    return np.array(["red", "green", "blue", "none of these"])[y]


def sklearn_part(add):
    import numpy as np
    from skl2onnx import to_onnx
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from sklearn.base import clone
    from sklearn.utils import all_estimators

    def export(estimator, x, zipmap=True):
        target = {"": 18, "ai.onnx.ml": 3}
        if not zipmap:
            try:
                return to_onnx(estimator, x[:1], target_opset=target, options={id(estimator): {"zipmap": False}})
            except NameError:
                pass  # it gives labels only
        return to_onnx(estimator, x[:1], target_opset=target)

    for name, kind in all_estimators():
        supported = kind in sklearn_operator_name_map
        made = special(name) if supported else None
        if not supported:
            add(name, lambda: (_ for _ in ()).throw(NotImplementedError("scikit-learn's exporter has no converter")))
            continue
        estimator = made["estimator"] if "estimator" in made else kind(**made.get("arguments", {}))
        task = made.get("task") or task_of(estimator)
        for variant, x, y, zipmap in variants(task):
            x = made.get("x", lambda x: x)(x)

            def make():
                model = clone(estimator)
                model.fit(x, y) if y is not None else model.fit(x)
                return export(model, x, zipmap), [fresh(x) if x.dtype.kind == "f" and "x" not in made else x[: max(ROWS)]]

            add(f"{name}-{variant}" if variant else name, make, **made.get("tolerance", {}))
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.linear_model import LogisticRegression
    for classes in (2, 3):
        x, y = table(classes)
        add(f"pipeline-{classes}", lambda: (export(make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y), x), [fresh(x)]))
    lightgbm_models(add)


def task_of(estimator):
    from sklearn.base import is_classifier, is_outlier_detector, is_regressor
    if is_classifier(estimator):
        return "classes"
    return "numbers" if is_regressor(estimator) else "outliers" if is_outlier_detector(estimator) else "features"


def variants(task):
    """Name, features, targets, ZipMap?"""
    import numpy as np
    x2, y2 = table(2)
    x3, y3 = table(3)
    number = (x3 @ np.arange(1, 7) + np.sin(x3[:, 0])).astype(np.float32)
    if task == "classes":
        return [("2", x2, y2, True), ("3-text", x3, names_of(y3), True), ("3-double", x3.astype(np.float64), y3, False)]
    if task == "two classes":
        return [("2", x2, y2, True), ("2-text", x2, names_of(y2), False)]
    if task == "numbers":
        return [("float", x3, number, True), ("double", x3.astype(np.float64), number.astype(np.float64), True)]
    if task == "positive numbers":
        return [("float", x3, np.exp(number / 10), True)]
    if task == "many numbers":
        return [("float", x3, np.stack([number, x3[:, 1]], 1), True)]
    if task == "many classes":
        return [("2", x2, np.stack([y2, 1 - y2], 1), True), ("3-text", x3, np.stack([names_of(y3), names_of((y3 + 1) % 3)], 1), True)]
    if task == "two features":
        return [("int", x2, y2, True)]
    if task == "counts":
        return [("2", np.round(np.abs(x2)), y2, True), ("3-text", np.round(np.abs(x3)), names_of(y3), True)]
    if task == "text":
        return [("", x3, None, True)]
    if task == "labels":
        return [("", y3, None, True), ("text", names_of(y3), None, True)]
    return [("float", x3, y3, True), ("double", x3.astype(np.float64), y3, True)]


SENTENCES = ["the cat sat on the mat", "a dog and a cat", "the dog ran", "no animals here", "mat and hat", "cat cat dog", "on and on",
             "here sat the dog", "a hat", "ran here and there", "the the the", "nothing else"]


def special(name):
    """How an estimator has to be made, where it cannot be made without arguments or takes other data."""
    import numpy as np
    from sklearn import ensemble, feature_selection, linear_model, naive_bayes, preprocessing, svm, tree

    def lines(_):
        return np.array(SENTENCES * 2)

    def categories(_):
        rng = np.random.default_rng(3)
        return rng.integers(0, 4, (120, 3)).astype(np.int64)

    def gaps(x):
        x = x.copy()
        x[np.random.default_rng(5).random(x.shape) < 0.2] = np.nan
        return x

    tree2, line = tree.DecisionTreeClassifier(max_depth=3, random_state=0), linear_model.LogisticRegression()
    numbers = linear_model.LinearRegression()
    trees = dict(n_estimators=5, max_depth=4, random_state=0)
    few = {
        "AdaBoostClassifier": dict(arguments=dict(n_estimators=5, random_state=0)), "AdaBoostRegressor": dict(arguments=dict(n_estimators=5, random_state=0)),
        "BaggingClassifier": dict(arguments=dict(n_estimators=4, random_state=0)), "BaggingRegressor": dict(arguments=dict(n_estimators=4, random_state=0)),
        "RandomForestClassifier": dict(arguments=trees), "RandomForestRegressor": dict(arguments=trees), "ExtraTreesClassifier": dict(arguments=trees),
        "ExtraTreesRegressor": dict(arguments=trees), "GradientBoostingClassifier": dict(arguments=trees), "GradientBoostingRegressor": dict(arguments=trees),
        "RandomTreesEmbedding": dict(arguments=trees), "IsolationForest": dict(arguments=dict(n_estimators=5, random_state=0)),
        "HistGradientBoostingClassifier": dict(arguments=dict(max_iter=5, random_state=0)),
        "HistGradientBoostingRegressor": dict(arguments=dict(max_iter=5, random_state=0)),
        "DecisionTreeClassifier": dict(arguments=dict(max_depth=5, random_state=0)), "DecisionTreeRegressor": dict(arguments=dict(max_depth=5, random_state=0)),
        "ExtraTreeClassifier": dict(arguments=dict(max_depth=5, random_state=0)), "ExtraTreeRegressor": dict(arguments=dict(max_depth=5, random_state=0)),
        "CalibratedClassifierCV": dict(estimator=__import__("sklearn.calibration", fromlist=["x"]).CalibratedClassifierCV(line, cv=2)),
        "CategoricalNB": dict(task="classes", x=lambda x: np.round(np.abs(x)).clip(0, 3), arguments=dict(min_categories=5)),
        "BernoulliNB": dict(task="counts"), "ComplementNB": dict(task="counts"), "MultinomialNB": dict(task="counts"),
        "ColumnTransformer": dict(estimator=__import__("sklearn.compose", fromlist=["x"]).ColumnTransformer(
            [("a", preprocessing.StandardScaler(), [0, 1]), ("b", preprocessing.MinMaxScaler(), [3, 4])])),
        "CountVectorizer": dict(task="text", x=lines), "TfidfVectorizer": dict(task="text", x=lines),
        "FeatureUnion": dict(estimator=__import__("sklearn.pipeline", fromlist=["x"]).FeatureUnion(
            [("a", preprocessing.StandardScaler()), ("b", preprocessing.MinMaxScaler())])),
        "Pipeline": dict(estimator=__import__("sklearn.pipeline", fromlist=["x"]).Pipeline(
            [("a", preprocessing.StandardScaler()), ("b", ensemble.RandomForestClassifier(**trees))])),
        "GridSearchCV": dict(estimator=__import__("sklearn.model_selection", fromlist=["x"]).GridSearchCV(line, {"C": [0.1, 1.0]}, cv=2)),
        "TunedThresholdClassifierCV": dict(task="two classes", estimator=__import__("sklearn.model_selection", fromlist=["x"])
                                           .TunedThresholdClassifierCV(line, cv=2)),
        "GammaRegressor": dict(task="positive numbers"), "PoissonRegressor": dict(task="positive numbers"), "TweedieRegressor": dict(task="positive numbers"),
        "GaussianRandomProjection": dict(arguments=dict(n_components=3, random_state=0)),
        "KBinsDiscretizer": dict(arguments=dict(n_bins=4, encode="onehot-dense")), "KNNImputer": dict(x=gaps), "SimpleImputer": dict(x=gaps),
        "LabelBinarizer": dict(task="labels"), "LabelEncoder": dict(task="labels"), "OneHotEncoder": dict(task="features", x=categories),
        "OrdinalEncoder": dict(task="features", x=categories), "TargetEncoder": dict(task="two features", x=categories),
        "GenericUnivariateSelect": dict(arguments=dict(mode="k_best", param=3)),
        "MultiOutputClassifier": dict(task="many classes", estimator=__import__("sklearn.multioutput", fromlist=["x"]).MultiOutputClassifier(line)),
        "MultiOutputRegressor": dict(task="many numbers", estimator=__import__("sklearn.multioutput", fromlist=["x"]).MultiOutputRegressor(numbers)),
        "MultiTaskElasticNet": dict(task="many numbers"), "MultiTaskElasticNetCV": dict(task="many numbers", arguments=dict(cv=2)),
        "MultiTaskLasso": dict(task="many numbers"), "MultiTaskLassoCV": dict(task="many numbers", arguments=dict(cv=2)),
        "OneVsOneClassifier": dict(estimator=__import__("sklearn.multiclass", fromlist=["x"]).OneVsOneClassifier(line)),
        "OneVsRestClassifier": dict(estimator=__import__("sklearn.multiclass", fromlist=["x"]).OneVsRestClassifier(line)),
        "RFE": dict(estimator=feature_selection.RFE(line, n_features_to_select=3)), "RFECV": dict(estimator=feature_selection.RFECV(line, cv=2)),
        "SelectFromModel": dict(estimator=feature_selection.SelectFromModel(tree2)),
        "SelectKBest": dict(arguments=dict(k=3)), "SelectPercentile": dict(arguments=dict(percentile=50)),
        "StackingClassifier": dict(estimator=ensemble.StackingClassifier([("a", line), ("b", tree2)], cv=2)),
        "StackingRegressor": dict(estimator=ensemble.StackingRegressor([("a", numbers), ("b", linear_model.Ridge())], cv=2)),
        "VotingClassifier": dict(estimator=ensemble.VotingClassifier([("a", line), ("b", tree2)], voting="soft", flatten_transform=False)),
        "VotingRegressor": dict(estimator=ensemble.VotingRegressor([("a", numbers), ("b", linear_model.Ridge())])),
        "SVC": dict(arguments=dict(probability=True, random_state=0)), "NuSVC": dict(arguments=dict(probability=True, random_state=0, nu=0.3)),
        "LocalOutlierFactor": dict(arguments=dict(novelty=True)), "RadiusNeighborsClassifier": dict(arguments=dict(radius=9.0)),
        "RadiusNeighborsRegressor": dict(arguments=dict(radius=9.0)), "MLPClassifier": dict(arguments=dict(hidden_layer_sizes=(8,), max_iter=60, random_state=0)),
        "MLPRegressor": dict(arguments=dict(hidden_layer_sizes=(8,), max_iter=60, random_state=0)),
        "KMeans": dict(arguments=dict(n_clusters=3, n_init=2, random_state=0)), "MiniBatchKMeans": dict(arguments=dict(n_clusters=3, n_init=2, random_state=0)),
        "QuantileTransformer": dict(arguments=dict(n_quantiles=20, random_state=0)), "TfidfTransformer": dict(x=lambda x: np.round(np.abs(x))),
        "NearestNeighbors": dict(arguments=dict(n_neighbors=3, radius=None)), "PLSRegression": dict(task="numbers"),
        "GaussianMixture": dict(arguments=dict(n_components=2, random_state=0)), "BayesianGaussianMixture": dict(arguments=dict(n_components=2, random_state=0)),
        "PCA": dict(arguments=dict(n_components=3)), "IncrementalPCA": dict(arguments=dict(n_components=3)), "KernelPCA": dict(arguments=dict(n_components=3, kernel="rbf")),
        "NeighborhoodComponentsAnalysis": dict(arguments=dict(n_components=2, max_iter=20, random_state=0)),
        "FunctionTransformer": dict(estimator=preprocessing.FunctionTransformer()),
        "GaussianProcessClassifier": dict(task="two classes"), "QuantileRegressor": dict(arguments=dict(alpha=0.01)),
    }
    return few.get(name, {})


def lightgbm_models(add):
    import lightgbm
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType
    import numpy as np
    arguments = dict(n_estimators=6, max_depth=4, num_leaves=9, random_state=0, n_jobs=1, verbose=-1, min_child_samples=5)

    def export(model, x, zipmap=True):
        return convert_lightgbm(model, initial_types=[("x", FloatTensorType([None, x.shape[1]]))], target_opset=15, zipmap=zipmap)

    for classes in (2, 3):
        x, y = table(classes)
        for variant, labels, zipmap in (("", y, True), ("-text", names_of(y), True), ("-plain", y, False)):
            add(f"LGBMClassifier-{classes}{variant}",
                lambda: (export(lightgbm.LGBMClassifier(**arguments).fit(x, labels), x, zipmap), [fresh(x)]))
    x, y = table(3)
    gaps = x.copy()
    gaps[np.random.default_rng(5).random(x.shape) < 0.2] = np.nan
    number = (x @ np.arange(1, 7)).astype(np.float32)
    for objective in ("regression", "regression_l1", "huber", "poisson", "tweedie", "gamma", "quantile"):
        target = np.exp(number / 10) if objective in ("poisson", "tweedie", "gamma") else number
        add(f"LGBMRegressor-{objective}",
            lambda: (export(lightgbm.LGBMRegressor(objective=objective, **arguments).fit(x, target), x), [fresh(x)]))
    add("LGBMRegressor-gaps", lambda: (export(lightgbm.LGBMRegressor(**arguments).fit(gaps, number), x), [gaps[:11]]))
    add("LGBMClassifier-gaps", lambda: (export(lightgbm.LGBMClassifier(**arguments).fit(gaps, y), x), [gaps[:11]]))
    for boosting in ("dart", "rf"):
        more = dict(bagging_freq=1, bagging_fraction=0.7) if boosting == "rf" else {}
        add(f"LGBMClassifier-{boosting}",
            lambda: (export(lightgbm.LGBMClassifier(boosting_type=boosting, **arguments, **more).fit(x, y), x), [fresh(x)]))
    kinds = np.random.default_rng(3).integers(0, 6, (120, 3)).astype(np.float32)
    add("LGBMRegressor-categories",
        lambda: (export(lightgbm.LGBMRegressor(**arguments).fit(kinds, number, categorical_feature=[0, 1]), kinds), [kinds[:11]]))


def boosted_part(add):
    import catboost
    import numpy as np
    import onnx
    import tempfile
    import xgboost
    from onnxmltools import convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType
    arguments = dict(n_estimators=6, max_depth=4, random_state=0, n_jobs=1)

    def export(model, x):
        return convert_xgboost(model, initial_types=[("x", FloatTensorType([None, x.shape[1]]))], target_opset=15)

    x, y = table(3)
    number = (x @ np.arange(1, 7)).astype(np.float32)
    gaps = x.copy()
    gaps[np.random.default_rng(5).random(x.shape) < 0.2] = np.nan
    for classes in (2, 3):
        xc, yc = table(classes)
        add(f"XGBClassifier-{classes}", lambda: (export(xgboost.XGBClassifier(**arguments).fit(xc, yc), xc), [fresh(xc)]))
        add(f"XGBRFClassifier-{classes}", lambda: (export(xgboost.XGBRFClassifier(**arguments).fit(xc, yc), xc), [fresh(xc)]))
    add("XGBClassifier-gaps", lambda: (export(xgboost.XGBClassifier(**arguments).fit(gaps, y), x), [gaps[:11]]))
    for objective in ("reg:squarederror", "reg:absoluteerror", "reg:logistic", "count:poisson", "reg:gamma", "reg:tweedie"):
        target = (number - number.min()) / np.ptp(number) if objective == "reg:logistic" else np.exp(number / 10)
        add(f"XGBRegressor-{objective.replace(':', '-')}",
            lambda: (export(xgboost.XGBRegressor(objective=objective, **arguments).fit(x, target), x), [fresh(x)]))
    add("XGBRegressor-gaps", lambda: (export(xgboost.XGBRegressor(**arguments).fit(gaps, number), x), [gaps[:11]]))
    add("XGBRFRegressor", lambda: (export(xgboost.XGBRFRegressor(**arguments).fit(x, number), x), [fresh(x)]))
    add("XGBRegressor-dart", lambda: (export(xgboost.XGBRegressor(booster="dart", **arguments).fit(x, number), x), [fresh(x)]))

    def cat(model, x, *more):
        model.fit(x, *more)
        with tempfile.TemporaryDirectory() as folder:
            model.save_model(f"{folder}/model.onnx", format="onnx")
            return onnx.load(f"{folder}/model.onnx")

    small = dict(iterations=6, depth=4, random_seed=0, thread_count=1, verbose=False, allow_writing_files=False)
    for classes in (2, 3):
        xc, yc = table(classes)
        for variant, labels in (("", yc), ("-text", names_of(yc))):
            add(f"CatBoostClassifier-{classes}{variant}", lambda: (cat(catboost.CatBoostClassifier(**small), xc, labels), [fresh(xc)]))
    add("CatBoostClassifier-gaps", lambda: (cat(catboost.CatBoostClassifier(**small), gaps, y), [gaps[:11]]))
    for loss in ("RMSE", "MAE", "Quantile", "Poisson"):
        add(f"CatBoostRegressor-{loss}", lambda: (cat(catboost.CatBoostRegressor(loss_function=loss, **small), x, np.exp(number / 10)), [fresh(x)]))


if __name__ == "__main__":
    if sys.argv[1:2] not in (["sklearn"], ["boosted"]) or len(sys.argv) > 3:
        sys.exit(__doc__)
    sys.exit(fetch(sys.argv[1]) if len(sys.argv) == 2 else main(sys.argv[1], Path(sys.argv[2])))
