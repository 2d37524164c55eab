//! Classical machine learning (the domain `ai.onnx.ml`). Trees, support vectors and vocabularies become constant
//! tensors, and all rows of features are evaluated at once. Maps have no counterpart in the IR and are refused.
mod svm;
mod tree;

use crate::onnx::import::{Fail, table::onnx_ops};
use numrsc_ir::{
    DType, Dim, Elems, Error, ReduceFn, Result, Tensor,
    build::{Graph, X},
};

onnx_ops! { pub(super) ML in "ai.onnx.ml", |g, cx|
    // Features.
    "ArrayFeatureExtractor" 1 (x: Any, at: Int) {} => array_feature_extractor(x, at);
    "Binarizer" 1 (x: Num) { threshold: f64 = 0.0 } => binarizer(x, threshold);
    "FeatureVectorizer" 1 (..xs: Num) { inputdimensions: Vec<i64> = vec![] }
        => feature_vectorizer(g, xs, &inputdimensions);
    "Imputer" 1 (x: Num) {
        imputed_value_floats: Vec<f64> = vec![], replaced_value_float: f64 = 0.0,
        imputed_value_int64s: Vec<i64> = vec![], replaced_value_int64: i64 = 0,
    } => imputer(x, (imputed_value_floats, replaced_value_float), (&imputed_value_int64s, replaced_value_int64));
    "Normalizer" 1 (x: Num) { norm: String = "MAX".into() } => normalizer(x, &norm);
    "OneHotEncoder" 1 (x: Any) {
        cats_int64s: Vec<i64> = vec![], cats_strings: Vec<String> = vec![], zeros: bool = true,
    } => one_hot_encoder(x, cats_int64s, cats_strings, zeros);
    "Scaler" 1 (x: Num) { offset: Vec<f64> = vec![0.0], scale: Vec<f64> = vec![1.0] } => scaler(x, &offset, &scale);

    // Labels.
    "CategoryMapper" 1 (x: Any) {
        cats_int64s: Vec<i64> = vec![], cats_strings: Vec<String> = vec![],
        default_int64: i64 = -1, default_string: String = "_Unused".into(),
    } => category_mapper(x, &cats_int64s, cats_strings, default_int64, default_string);
    "LabelEncoder" 1 (x: Any) {
        classes_strings: Vec<String> = vec![], default_int64: i64 = -1, default_string: String = "_Unused".into(),
    } => {
        let numbers: Vec<i64> = (0..classes_strings.len() as i64).collect();
        category_mapper(x, &numbers, classes_strings, default_int64, default_string)
    };
    "LabelEncoder" 2 (x: Any) {
        keys_floats: Vec<f64> = vec![], keys_int64s: Vec<i64> = vec![], keys_strings: Vec<String> = vec![],
        values_floats: Vec<f64> = vec![], values_int64s: Vec<i64> = vec![], values_strings: Vec<String> = vec![],
        default_float: f64 = -0.0, default_int64: i64 = -1, default_string: String = "_Unused".into(),
        keys_tensor: Option<Tensor>, values_tensor: Option<Tensor>, default_tensor: Option<Tensor>,
    } => label_encoder(x, &only_list(keys_floats, &keys_int64s, keys_strings, keys_tensor)?,
                       &only_list(values_floats, &values_int64s, values_strings, values_tensor)?,
                       (default_float, default_int64, default_string, default_tensor));

    // Models.
    "LinearRegressor" 1 (x: Num) {
        coefficients: Vec<f64> = vec![], intercepts: Vec<f64> = vec![], targets: i64 = 1,
        post_transform: String = "NONE".into(),
    } => linear(x, &coefficients, &intercepts, targets).and_then(|y| transformed(y, &post_transform));
    "LinearClassifier" 1 (x: Num) {
        coefficients: Vec<f64>, intercepts: Vec<f64> = vec![], multi_class: i64 = 0,
        classlabels_ints: Vec<i64> = vec![], classlabels_strings: Vec<String> = vec![],
        post_transform: String = "NONE".into(),
    } => linear_classifier(x, &coefficients, &intercepts, &Labels::new(classlabels_ints, classlabels_strings)?,
                           &post_transform);
    "SVMRegressor" 1 (x: Num) {
        coefficients: Vec<f64> = vec![], support_vectors: Vec<f64> = vec![], n_supports: i64 = 0,
        rho: Vec<f64> = vec![], one_class: bool = false, post_transform: String = "NONE".into(),
        kernel_type: String = "LINEAR".into(), kernel_params: Vec<f64> = vec![],
    } => svm::Regressor {
        coefficients, support_vectors, n_supports, rho, one_class, post_transform,
        kernel: svm::Kernel::new(&kernel_type, &kernel_params)?,
    }.run(x);
    "SVMClassifier" 1 (x: Num) {
        coefficients: Vec<f64> = vec![], support_vectors: Vec<f64> = vec![], vectors_per_class: Vec<i64> = vec![],
        rho: Vec<f64> = vec![], prob_a: Vec<f64> = vec![], prob_b: Vec<f64> = vec![],
        classlabels_ints: Vec<i64> = vec![], classlabels_strings: Vec<String> = vec![],
        kernel_type: String = "LINEAR".into(), kernel_params: Vec<f64> = vec![],
        post_transform: String = "NONE".into(),
    } => svm::Classifier {
        coefficients, support_vectors, vectors_per_class, rho, prob_a, prob_b, post_transform,
        labels: Labels::new(classlabels_ints, classlabels_strings)?,
        kernel: svm::Kernel::new(&kernel_type, &kernel_params)?,
    }.run(x);
    "TreeEnsembleRegressor" 1 (x: Num) {
        nodes_treeids: Vec<i64> = vec![], nodes_nodeids: Vec<i64> = vec![],
        nodes_featureids: Vec<i64> = vec![], nodes_modes: Vec<String> = vec![],
        nodes_values: Vec<f64> = vec![], nodes_values_as_tensor: Option<Tensor>,
        nodes_missing_value_tracks_true: Vec<i64> = vec![],
        nodes_truenodeids: Vec<i64> = vec![], nodes_falsenodeids: Vec<i64> = vec![],
        nodes_hitrates: Vec<f64> = vec![], nodes_hitrates_as_tensor: Option<Tensor>,
        target_treeids: Vec<i64> = vec![], target_nodeids: Vec<i64> = vec![], target_ids: Vec<i64> = vec![],
        target_weights: Vec<f64> = vec![], target_weights_as_tensor: Option<Tensor>,
        base_values: Vec<f64> = vec![], base_values_as_tensor: Option<Tensor>,
        n_targets: i64, aggregate_function: String = "SUM".into(), post_transform: String = "NONE".into(),
    } => tree::regressor(x,
        &tree::Nodes {
            trees: nodes_treeids, ids: nodes_nodeids, features: nodes_featureids, modes: nodes_modes,
            values: either(nodes_values, nodes_values_as_tensor), missing: nodes_missing_value_tracks_true,
            yes: nodes_truenodeids, no: nodes_falsenodeids,
        },
        &tree::Votes {
            trees: target_treeids, nodes: target_nodeids, targets: target_ids,
            weights: either(target_weights, target_weights_as_tensor),
            base: either(base_values, base_values_as_tensor),
        },
        n_targets, &aggregate_function, &post_transform);
    "TreeEnsembleClassifier" 1 (x: Num) {
        nodes_treeids: Vec<i64> = vec![], nodes_nodeids: Vec<i64> = vec![],
        nodes_featureids: Vec<i64> = vec![], nodes_modes: Vec<String> = vec![],
        nodes_values: Vec<f64> = vec![], nodes_values_as_tensor: Option<Tensor>,
        nodes_missing_value_tracks_true: Vec<i64> = vec![],
        nodes_truenodeids: Vec<i64> = vec![], nodes_falsenodeids: Vec<i64> = vec![],
        nodes_hitrates: Vec<f64> = vec![], nodes_hitrates_as_tensor: Option<Tensor>,
        class_treeids: Vec<i64> = vec![], class_nodeids: Vec<i64> = vec![], class_ids: Vec<i64> = vec![],
        class_weights: Vec<f64> = vec![], class_weights_as_tensor: Option<Tensor>,
        base_values: Vec<f64> = vec![], base_values_as_tensor: Option<Tensor>,
        classlabels_int64s: Vec<i64> = vec![], classlabels_strings: Vec<String> = vec![],
        post_transform: String = "NONE".into(),
    } => tree::classifier(x,
        &tree::Nodes {
            trees: nodes_treeids, ids: nodes_nodeids, features: nodes_featureids, modes: nodes_modes,
            values: either(nodes_values, nodes_values_as_tensor), missing: nodes_missing_value_tracks_true,
            yes: nodes_truenodeids, no: nodes_falsenodeids,
        },
        &tree::Votes {
            trees: class_treeids, nodes: class_nodeids, targets: class_ids,
            weights: either(class_weights, class_weights_as_tensor),
            base: either(base_values, base_values_as_tensor),
        },
        &Labels::new(classlabels_int64s, classlabels_strings)?, &post_transform);
    "TreeEnsemble" 5 (x: Float) {
        tree_roots: Vec<i64>, nodes_featureids: Vec<i64>, nodes_modes: Tensor, nodes_splits: Tensor,
        membership_values: Option<Tensor>, nodes_missing_value_tracks_true: Vec<i64> = vec![],
        nodes_hitrates: Option<Tensor>, nodes_truenodeids: Vec<i64>, nodes_trueleafs: Vec<i64>,
        nodes_falsenodeids: Vec<i64>, nodes_falseleafs: Vec<i64>, leaf_targetids: Vec<i64>, leaf_weights: Tensor,
        n_targets: i64, aggregate_function: i64 = 1, post_transform: i64 = 0,
    } => tree::ensemble(x,
        tree::Splits {
            roots: tree_roots, features: nodes_featureids, modes: nodes_modes.to_f64s(),
            values: nodes_splits.to_f64s(), members: membership_values.map(|t| t.to_f64s()).unwrap_or_default(),
            missing: nodes_missing_value_tracks_true,
            yes: (nodes_truenodeids, nodes_trueleafs), no: (nodes_falsenodeids, nodes_falseleafs),
        },
        &leaf_targetids, &leaf_weights.to_f64s(), n_targets, (aggregate_function, post_transform));

    // Maps.
    "CastMap" 1 (x: Value) {
        cast_to: String = "TO_FLOAT".into(), map_form: String = "DENSE".into(), max_map: i64 = 1,
    } => no_maps();
    "DictVectorizer" 1 (x: Value) {
        int64_vocabulary: Vec<i64> = vec![], string_vocabulary: Vec<String> = vec![],
    } => no_maps();
    "ZipMap" 1 (x: Value) {
        classlabels_int64s: Vec<i64> = vec![], classlabels_strings: Vec<String> = vec![],
    } => no_maps();
}

fn no_maps<'g>() -> Result<X<'g>, Fail> {
    Err("maps are not supported; export the model without them (`zipmap=False` in sklearn-onnx)".into())
}

/// A list attribute, or the tensor that replaces it.
fn either(list: Vec<f64>, tensor: Option<Tensor>) -> Vec<f64> {
    tensor.map_or(list, |t| t.to_f64s())
}

/// A constant of floats.
fn floats<'g>(g: &'g Graph, dtype: DType, shape: &[usize], values: Vec<f64>) -> Result<X<'g>, Fail> {
    if numrsc_ir::tensor::count(shape) != Some(values.len()) {
        return Err(format!("{} numbers are given for a shape of {shape:?}", values.len()).into());
    }
    Ok(g.constant(Tensor::from_elems(dtype, shape.to_vec(), &Elems::Float(values)))?)
}

/// Rows of features as f32 (or f64, if they are).
fn features(x: X<'_>) -> Result<X<'_>, Fail> {
    let x = if x.dtype() == DType::F64 { x } else { x.cast(DType::F32)? };
    match x.rank() {
        1 => Ok(x.unsqueeze(&[0])?),
        2 => Ok(x),
        _ => Err(format!("expected rows of features, got {}", x.ty()).into()),
    }
}

/// What a classifier calls its classes.
enum Labels {
    Ints(Vec<i64>),
    Strings(Vec<String>),
}

impl Labels {
    fn new(ints: Vec<i64>, strings: Vec<String>) -> Result<Labels, Fail> {
        match (ints.is_empty(), strings.is_empty()) {
            (false, true) => Ok(Labels::Ints(ints)),
            (true, false) => Ok(Labels::Strings(strings)),
            _ => Err("labels must be given either as integers or as strings".into()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Labels::Ints(v) => v.len(),
            Labels::Strings(v) => v.len(),
        }
    }

    /// With a label for "none of them" in front, where there is only one.
    fn with_none(&self) -> Labels {
        match self {
            Labels::Ints(v) => Labels::Ints([&[0], &v[..]].concat()),
            Labels::Strings(v) => Labels::Strings([&[String::new()], &v[..]].concat()),
        }
    }

    /// The labels of classes given by number.
    fn of<'g>(&self, class: X<'g>) -> Result<X<'g>, Fail> {
        let table = match self {
            Labels::Ints(v) => class.graph().ints(v)?,
            Labels::Strings(v) => class.graph().constant(Tensor::from_strings(vec![v.len()], v.clone())?)?,
        };
        Ok(table.gather(class, 0, 0)?)
    }
}

/// Apply a `post_transform` to rows of scores.
fn transformed<'g>(x: X<'g>, how: &str) -> Result<X<'g>, Fail> {
    let g = x.graph();
    Ok(match how {
        "NONE" => x,
        "LOGISTIC" => x.map(|x| x.sigmoid())?,
        "SOFTMAX" => x.softmax(&[1])?,
        "SOFTMAX_ZERO" => {
            // Like softmax, but a score of zero stays zero; 1/2 each if all are.
            let e = g.map([x, x.max(&[1], true)?], |[x, m]| x.abs().gt(1e-7).select((x - m).exp(), x * (-m).exp()))?;
            g.map([e, e.sum(&[1], true)?], |[e, s]| s.eq(0.0).select(s.lit(0.5), e / s))?
        }
        // sqrt(2) * erfinv(2 x - 1), with Winitzki's approximation that the reference uses.
        "PROBIT" => x.map(|x| {
            let t = x * 2.0 - 1.0;
            let product = (1.0 - t) * (t + 1.0);
            let log = product.log();
            let v = log * 0.5 + 2.0 / (std::f64::consts::PI * 0.147);
            let root = ((v * v - log / 0.147).sqrt() - v).sqrt() * std::f64::consts::SQRT_2;
            product.eq(0.0).select(x.lit(0.0), t.lt(0.0).select(-root, root))
        })?,
        _ => return Err(format!("`post_transform` is `{how}`, which is not one of the specification").into()),
    })
}

/// Take elements of the last axis; a vector counts as a matrix of one row.
fn array_feature_extractor<'g>(x: X<'g>, at: X<'g>) -> Result<X<'g>, Fail> {
    let x = if x.rank() == 1 { x.unsqueeze(&[0])? } else { x };
    let Some(last) = x.rank().checked_sub(1) else { return Err("`X` is a scalar".into()) };
    Ok(x.gather(at.indices()?.flatten()?, last, 0)?)
}

fn binarizer(x: X<'_>, threshold: f64) -> Result<X<'_>> {
    let wide = if x.dtype().is_float() { x.dtype() } else { DType::F64 };
    x.map(|x| x.cast(wide).gt(threshold).cast(x.dtype()))
}

/// Matrices side by side, each cut or filled with zeros to a given number of columns.
fn feature_vectorizer<'g>(g: &'g Graph, xs: Vec<X<'g>>, columns: &[i64]) -> Result<X<'g>, Fail> {
    if xs.is_empty() || (columns.len() != xs.len() && !columns.is_empty()) {
        return Err(format!("`inputdimensions` has {} entries for {} inputs", columns.len(), xs.len()).into());
    }
    let zero = g.scalar(DType::F32, 0.0)?;
    let mut parts = Vec::new();
    for (i, x) in xs.into_iter().enumerate() {
        let x = features(x)?.cast(DType::F32)?;
        let missing = columns.get(i).map_or(Ok(Dim::ZERO), |c| Ok::<_, Fail>(&Dim::Const(*c) - &x.dim(1)?))?;
        parts.push(x.pad(&[Dim::ZERO, Dim::ZERO], &[Dim::ZERO, missing], zero)?);
    }
    Ok(g.concat(&parts, 1)?)
}

/// Replace one value (NaN, for example) by another, one for all columns or one for each.
fn imputer<'g>(x: X<'g>, floating: (Vec<f64>, f64), whole: (&[i64], i64)) -> Result<X<'g>, Fail> {
    let (g, dtype) = (x.graph(), x.dtype());
    let (new, old) = if dtype.is_float() {
        (floats(g, dtype, &[floating.0.len()], floating.0)?, floating.1)
    } else {
        (g.ints(whole.0)?.cast(dtype)?, whole.1 as f64)
    };
    if new.len() == Dim::ZERO {
        return Err(format!("no imputed value is given for {}", x.ty()).into());
    }
    let whole = i128::from(whole.1);
    Ok(g.map([x, new], |[x, new]| match dtype.is_float() {
        true if old.is_nan() => x.is_nan().select(new, x),
        true => x.eq(old).select(new, x),
        false => x.eq(x.int(whole)).select(new, x),
    })?)
}

/// Divide rows by their maximum, the sum of their magnitudes, or their length; where that is zero, leave them.
fn normalizer<'g>(x: X<'g>, norm: &str) -> Result<X<'g>, Fail> {
    let x = x.cast(DType::F32)?;
    let Some(last) = x.rank().checked_sub(1) else { return Err("`X` is a scalar".into()) };
    let by = match norm {
        "MAX" => x.max(&[last], true)?,
        "L1" => x.map(|x| x.abs())?.sum(&[last], true)?,
        "L2" => x.map(|x| x.square())?.sum(&[last], true)?.map(|x| x.sqrt())?,
        _ => return Err(format!("`norm` is `{norm}`, not MAX, L1 or L2").into()),
    };
    Ok(x.graph().map([x, by], |[x, n]| n.eq(0.0).select(x, x / n))?)
}

fn scaler<'g>(x: X<'g>, offset: &[f64], scale: &[f64]) -> Result<X<'g>, Fail> {
    let g = x.graph();
    let offset = floats(g, DType::F32, &[offset.len()], offset.to_vec())?;
    let scale = floats(g, DType::F32, &[scale.len()], scale.to_vec())?;
    Ok(g.map([x.cast(DType::F32)?, offset, scale], |[x, o, s]| (x - o) * s)?)
}

/// For each element, which of the keys it equals, the last if several; `None` counts as -1.
fn position_of<'g>(x: X<'g>, keys: X<'g>) -> Result<X<'g>, Fail> {
    let (g, rank) = (x.graph(), x.rank());
    let number = g.range(DType::I64, &keys.dim(0)?)?;
    let float = keys.dtype().is_float();
    let found = g.map([x.unsqueeze(&[rank])?, keys, number], |[x, key, i]| {
        let same = if float { x.eq(key).or(x.is_nan().and(key.is_nan())) } else { x.eq(key) };
        same.select(i, -1.0)
    })?;
    Ok(found.reduce(ReduceFn::Max, &[rank], false)?)
}

/// Each element of `keys` replaced by the value at the same place, all others by the default.
fn lookup<'g>(x: X<'g>, keys: &Tensor, values: &Tensor, default: &Tensor) -> Result<X<'g>, Fail> {
    let g = x.graph();
    if keys.dtype() != x.dtype() {
        return Err(format!("the keys are {}, the input is {}", keys.dtype(), x.ty()).into());
    }
    if keys.len() != values.len() || keys.is_empty() || default.len() != 1 || default.dtype() != values.dtype() {
        return Err(
            format!("{} keys, {} values and {} defaults do not fit", keys.len(), values.len(), default.len()).into()
        );
    }
    let count = keys.len();
    let at = position_of(x, g.constant(keys.reshaped(vec![count])?)?)?;
    let table = g.concat(&[g.constant(values.reshaped(vec![count])?)?, g.constant(default.reshaped(vec![1])?)?], 0)?;
    Ok(table.gather(at.map(|i| i.lt(0.0).select(i.lit(count as f64), i))?, 0, 0)?)
}

fn int_list(v: &[i64]) -> Tensor {
    Tensor::from_i64(&[v.len()], v)
}

fn string_list(v: Vec<String>) -> Result<Tensor, Fail> {
    Ok(Tensor::from_strings(vec![v.len()], v)?)
}

/// Integers to strings or strings to integers, whichever the input asks for.
fn category_mapper<'g>(x: X<'g>, ints: &[i64], strings: Vec<String>, int: i64, string: String) -> Result<X<'g>, Fail> {
    match x.dtype() {
        DType::Str => lookup(x, &string_list(strings)?, &int_list(ints), &int_list(&[int])),
        DType::I64 => lookup(x, &int_list(ints), &string_list(strings)?, &string_list(vec![string])?),
        _ => Err(format!("expected strings or i64, got {}", x.ty()).into()),
    }
}

/// The one list that is given.
fn only_list(floats: Vec<f64>, ints: &[i64], strings: Vec<String>, tensor: Option<Tensor>) -> Result<Tensor, Fail> {
    match (floats.is_empty(), ints.is_empty(), strings.is_empty(), tensor) {
        (false, true, true, None) => Ok(Tensor::from_elems(DType::F32, vec![floats.len()], &Elems::Float(floats))),
        (true, false, true, None) => Ok(int_list(ints)),
        (true, true, false, None) => string_list(strings),
        (true, true, true, Some(t)) => Ok(t),
        _ => Err("keys and values must each be given by one attribute".into()),
    }
}

fn label_encoder<'g>(
    x: X<'g>,
    keys: &Tensor,
    values: &Tensor,
    (float, int, string, tensor): (f64, i64, String, Option<Tensor>),
) -> Result<X<'g>, Fail> {
    let default = match (values.dtype(), tensor) {
        (dtype, Some(t)) if t.dtype() == dtype => t,
        (DType::Str, _) => string_list(vec![string])?,
        (d, _) if d.is_float() => Tensor::scalar(d, float),
        (d, _) if d.is_int() => Tensor::from_elems(d, vec![1], &Elems::Int(vec![i128::from(int)])),
        (d, _) => return Err(format!("labels of {d} are not supported").into()),
    };
    lookup(x, keys, values, &default)
}

/// A new last axis with a one at the place of the category.
fn one_hot_encoder<'g>(x: X<'g>, ints: Vec<i64>, strings: Vec<String>, zeros: bool) -> Result<X<'g>, Fail> {
    let g = x.graph();
    let (x, keys) = match Labels::new(ints, strings)? {
        Labels::Strings(v) => (x, string_list(v)?),
        Labels::Ints(v) => (x.cast(DType::I64)?, int_list(&v)),
    };
    if x.dtype() != keys.dtype() {
        return Err(format!("the categories are {}, the input is {}", keys.dtype(), x.ty()).into());
    }
    let rank = x.rank();
    let hot = g.map([x.unsqueeze(&[rank])?, g.constant(keys)?], |[x, key]| x.eq(key).cast(DType::F32))?;
    if zeros {
        return Ok(hot);
    }
    // An unknown category is an error: it reads outside of a table of one element.
    let known = hot.max(&[rank], true)?.map(|x| x.gt(0.0).select(x.cast(DType::I64).int(0), -1.0))?;
    let one = floats(g, DType::F32, &[1], vec![1.0])?.gather(known, 0, 0)?;
    Ok(g.map([hot, one], |[x, one]| x * one)?)
}

/// `x * coefficients^T + intercepts`, with one row of coefficients per target.
fn linear<'g>(x: X<'g>, coefficients: &[f64], intercepts: &[f64], targets: i64) -> Result<X<'g>, Fail> {
    let (g, x) = (x.graph(), features(x)?.cast(DType::F32)?);
    let Some(rows) = usize::try_from(targets).ok().filter(|t| *t > 0 && coefficients.len().is_multiple_of(*t)) else {
        return Err(format!("{} coefficients do not fit {targets} targets", coefficients.len()).into());
    };
    let w = floats(g, DType::F32, &[rows, coefficients.len() / rows], coefficients.to_vec())?;
    let y = x.contract(w, &[], &[(1, 1)])?;
    match intercepts.len() {
        0 => Ok(y),
        n if n == rows || n == 1 => Ok(g.map([y, floats(g, DType::F32, &[n], intercepts.to_vec())?], |[y, b]| y + b)?),
        n => Err(format!("{n} intercepts are given for {rows} targets").into()),
    }
}

/// The columns `-s, s` of a score for the second of two classes.
fn both_classes(s: X<'_>) -> Result<X<'_>> {
    s.graph().concat(&[s.map(|s| -s)?, s], 1)
}

fn linear_classifier<'g>(
    x: X<'g>,
    coefficients: &[f64],
    intercepts: &[f64],
    labels: &Labels,
    transform: &str,
) -> Result<Vec<X<'g>>, Fail> {
    // One row per class, unless one row tells two classes apart.
    let width = features(x)?.dim(1)?.as_usize();
    let rows = match width {
        Some(w) if w > 0 => coefficients.len() / w,
        _ if intercepts.len() > 1 => intercepts.len(),
        _ if labels.len() == 2 => {
            return Err(Error::Open { message: "the number of features".into(), size: features(x)?.dim(1)? }.into());
        }
        _ => labels.len(),
    };
    let raw = linear(x, coefficients, intercepts, rows as i64)?;
    let scores = if rows == 1 && labels.len() == 2 { both_classes(raw)? } else { raw };
    let scores = transformed(scores, transform)?;
    let (class, labels) = match (rows.max(scores.dim(1)?.as_usize().unwrap_or(0)), labels.len()) {
        (1, 1) => {
            let limit = if transform == "NONE" { 0.0 } else { 0.5 };
            (scores.squeeze(&[1])?.map(|s| s.ge(limit).cast(DType::I64))?, &labels.with_none())
        }
        (n, m) if n == m => (scores.arg(ReduceFn::Max, 1, false)?, labels),
        (n, m) => return Err(format!("{m} labels are given for {n} scores").into()),
    };
    Ok(vec![labels.of(class)?, scores])
}
