//! Classical machine learning (the domain `ai.onnx.ml`). Trees, support vectors and vocabularies become constant
//! tensors, and all rows of features are evaluated at once. Maps have no counterpart in the IR and are refused.
mod svm;
mod tree;

use crate::onnx::import::{Ctx, Fail, table::onnx_ops};
use numrsc_ir::{
    DType, Dim, Elems, ReduceFn, Result, Tensor,
    build::{Graph, X},
};
use std::collections::BTreeMap;

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
    } => {
        // Intercepts that are not one for each target count as none, as in ONNX Runtime.
        let fit = usize::try_from(targets) == Ok(intercepts.len());
        linear(x, &coefficients, if fit { &intercepts } else { &[] }, targets).and_then(|y| transformed(y, &post_transform))
    };
    "LinearClassifier" 1 (x: Num) {
        coefficients: Vec<f64>, intercepts: Vec<f64> = vec![], multi_class: i64 = 0,
        classlabels_ints: Vec<i64> = vec![], classlabels_strings: Vec<String> = vec![],
        post_transform: String = "NONE".into(),
    } => {
        // Old exporters leave out the labels 0 and 1.
        let none = classlabels_ints.is_empty() && classlabels_strings.is_empty();
        let labels = if none { None } else { Some(Labels::new(classlabels_ints, classlabels_strings)?) };
        linear_classifier(x, &coefficients, &intercepts, labels.as_ref(), &post_transform)
    };
    "SVMRegressor" 1 (x: Num) {
        coefficients: Vec<f64> = vec![], support_vectors: Vec<f64> = vec![], n_supports: i64 = 0,
        rho: Vec<f64> = vec![], one_class: bool = false, post_transform: String = "NONE".into(),
        kernel_type: String = "LINEAR".into(), kernel_params: Vec<f64> = vec![],
    } => svm::Regressor {
        coefficients, support_vectors, n_supports, rho, one_class,
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
    "ZipMap" 1 (x: Num) {
        classlabels_int64s: Vec<i64> = vec![], classlabels_strings: Vec<String> = vec![],
    } => zip_map(cx, x, &Labels::new(classlabels_int64s, classlabels_strings)?);
}

fn no_maps<'g>() -> Result<X<'g>, Fail> {
    Err("maps are supported as outputs only (`ZipMap`); let the model take a tensor in their place".into())
}

/// A map from labels to numbers for each row: the rows as they are, with their labels beside them.
fn zip_map<'g>(cx: &Ctx<'_, 'g>, x: X<'g>, labels: &Labels) -> Result<X<'g>, Fail> {
    let rows = match x.rank() {
        1 => Dim::ONE,
        2 => x.dim(0)?,
        _ => return Err(format!("expected rows of scores, got {}", x.ty()).into()),
    };
    // Also where the number of columns is known at run time only.
    let x = x.reshape(&[rows, Dim::from(labels.len())])?;
    // Of equal labels the last counts, as in a map.
    let (labels, kept) = labels.last_of_each();
    let x = if kept.len() as i64 == x.dim(1)?.as_const().unwrap_or(0) {
        x
    } else {
        x.gather(x.graph().ints(&kept)?, 1, 0)?
    };
    cx.label(labels.tensor()?)?;
    Ok(x)
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

    fn tensor(&self) -> Result<Tensor, Fail> {
        Ok(match self {
            Labels::Ints(v) => int_list(v),
            Labels::Strings(v) => string_list(v.clone())?,
        })
    }

    /// Without repetitions, and the places of those that are left.
    fn last_of_each(&self) -> (Labels, Vec<i64>) {
        fn last<T: PartialEq + Clone>(all: &[T]) -> (Vec<T>, Vec<i64>) {
            let kept = all.iter().enumerate().filter(|(i, one)| !all[i + 1..].contains(one));
            kept.map(|(i, one)| (one.clone(), i as i64)).unzip()
        }
        match self {
            Labels::Ints(v) => {
                let (labels, kept) = last(v);
                (Labels::Ints(labels), kept)
            }
            Labels::Strings(v) => {
                let (labels, kept) = last(v);
                (Labels::Strings(labels), kept)
            }
        }
    }

    /// With a label for "none of them" in front, where there is only one. Of integers, that one is 1, whatever it is
    /// called: ONNX Runtime says so.
    fn with_none(&self) -> Labels {
        match self {
            Labels::Ints(_) => Labels::Ints(vec![0, 1]),
            Labels::Strings(v) => Labels::Strings([&[String::new()], &v[..]].concat()),
        }
    }

    /// The labels of classes given by number.
    fn of<'g>(&self, class: X<'g>) -> Result<X<'g>, Fail> {
        Ok(class.graph().constant(self.tensor()?)?.gather(class, 0, 0)?)
    }
}

/// Apply a `post_transform` to rows of scores. One score by itself is left alone but for `PROBIT`, as in ONNX Runtime:
/// the standard does not say what becomes of it.
fn transformed<'g>(x: X<'g>, how: &str) -> Result<X<'g>, Fail> {
    let g = x.graph();
    let alone = x.dim(1)? == Dim::ONE;
    Ok(match how {
        "NONE" => x,
        "LOGISTIC" | "SOFTMAX" | "SOFTMAX_ZERO" if alone => x,
        "LOGISTIC" => x.map(|x| x.sigmoid())?,
        "SOFTMAX" => x.softmax(&[1])?,
        "SOFTMAX_ZERO" => {
            // Like softmax, but a score of zero stays zero, and is no part of the sum.
            let max = x.max(&[1], true)?;
            let e = g.map([x, max], |[x, m]| x.abs().gt(1e-7).select((x - m).exp(), x * (-m).exp()))?;
            let summed = g.map([x, e], |[x, e]| x.abs().gt(1e-7).select(e, 0.0))?;
            g.map([e, summed.sum(&[1], true)?], |[e, s]| e / s)?
        }
        // sqrt(2) * erfinv(2 x - 1), with Winitzki's approximation that the reference uses.
        "PROBIT" => x.map(|x| {
            let t = x * 2.0 - 1.0;
            let log = ((1.0 - t) * (t + 1.0)).log();
            let v = log * 0.5 + 2.0 / (std::f64::consts::PI * 0.147);
            let root = ((v * v - log / 0.147).sqrt() - v).sqrt() * std::f64::consts::SQRT_2;
            t.lt(0.0).select(-root, root)
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
        let x = if x.rank() > 2 { x.reshape(&[x.dim(0)?, size_of(&x.shape()[1..])])? } else { x };
        let x = features(x)?.cast(DType::F32)?;
        let missing = columns.get(i).map_or(Ok(Dim::ZERO), |c| Ok::<_, Fail>(&Dim::Const(*c) - &x.dim(1)?))?;
        parts.push(x.pad(&[Dim::ZERO, Dim::ZERO], &[Dim::ZERO, missing], zero)?);
    }
    Ok(g.concat(&parts, 1)?)
}

fn size_of(shape: &[Dim]) -> Dim {
    shape.iter().fold(Dim::ONE, |size, d| &size * d)
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
    // In the precision of the input: what is left of a large number may be small.
    let wide = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let offset = floats(g, wide, &[offset.len()], offset.to_vec())?;
    let scale = floats(g, wide, &[scale.len()], scale.to_vec())?;
    Ok(g.map([x.cast(wide)?, offset, scale], |[x, o, s]| (x - o) * s)?.cast(DType::F32)?)
}

/// Which of several equal keys counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    First,
    Last,
}

/// The places of keys, without those that repeat others.
fn distinct(keys: &Tensor, of: Of) -> Vec<i64> {
    // Zeros are equal, and so are NaNs.
    let name = |x: f64| {
        if x == 0.0 {
            0
        } else if x.is_nan() {
            u64::MAX
        } else {
            x.to_bits()
        }
    };
    let names: Vec<String> = match keys.elems() {
        Elems::Str(v) => v,
        Elems::Int(v) => v.iter().map(ToString::to_string).collect(),
        Elems::Float(v) => v.iter().map(|x| name(*x).to_string()).collect(),
    };
    let mut place = BTreeMap::new();
    for (i, name) in names.into_iter().enumerate() {
        match of {
            Of::First => *place.entry(name).or_insert(i as i64),
            Of::Last => place.insert(name, i as i64).unwrap_or(0),
        };
    }
    let mut kept: Vec<i64> = place.into_values().collect();
    kept.sort_unstable();
    kept
}

/// For each element, which of the keys it equals; `None` counts as -1.
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
fn lookup<'g>(x: X<'g>, keys: &Tensor, values: &Tensor, default: &Tensor, of: Of) -> Result<X<'g>, Fail> {
    let g = x.graph();
    if keys.dtype() != x.dtype() {
        return Err(format!("the keys are {}, the input is {}", keys.dtype(), x.ty()).into());
    }
    if keys.len() != values.len() || keys.is_empty() || default.len() != 1 || default.dtype() != values.dtype() {
        return Err(
            format!("{} keys, {} values and {} defaults do not fit", keys.len(), values.len(), default.len()).into()
        );
    }
    let (given, kept) = (keys.len(), distinct(keys, of));
    let part = |t: &Tensor| -> Result<X<'g>, Fail> {
        let all = g.constant(t.reshaped(vec![given])?)?;
        Ok(if kept.len() == given { all } else { all.gather(g.ints(&kept)?, 0, 0)? })
    };
    let count = kept.len();
    let at = position_of(x, part(keys)?)?;
    let table = g.concat(&[part(values)?, g.constant(default.reshaped(vec![1])?)?], 0)?;
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
        DType::Str => lookup(x, &string_list(strings)?, &int_list(ints), &int_list(&[int]), Of::Last),
        DType::I64 => lookup(x, &int_list(ints), &string_list(strings)?, &string_list(vec![string])?, Of::Last),
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
    lookup(x, keys, values, &default, Of::First)
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
    let (rank, count) = (x.rank(), keys.len());
    // Of a category that is given twice, the last place counts, and the others stay cold.
    let mut counts = vec![0.0; count];
    distinct(&keys, Of::Last).iter().for_each(|&i| counts[i as usize] = 1.0);
    let all = counts.iter().all(|c| *c == 1.0);
    let hot = g.map([x.unsqueeze(&[rank])?, g.constant(keys)?], |[x, key]| x.eq(key).cast(DType::F32))?;
    let hot =
        if all { hot } else { g.map([hot, floats(g, DType::F32, &[count], counts)?], |[hot, counts]| hot * counts)? };
    if zeros {
        return Ok(hot);
    }
    // An unknown category is an error: it reads outside of a table of one element.
    let known = hot.max(&[rank], true)?.map(|x| x.gt(0.0).select(x.cast(DType::I64).int(0), -1.0))?;
    let one = floats(g, DType::F32, &[1], vec![1.0])?.gather(known, 0, 0)?;
    Ok(g.map([hot, one], |[x, one]| x * one)?)
}

/// `x * coefficients^T + intercepts`, with one row of coefficients per target, and an intercept for each or none.
fn linear<'g>(x: X<'g>, coefficients: &[f64], intercepts: &[f64], targets: i64) -> Result<X<'g>, Fail> {
    let (g, x) = (x.graph(), features(x)?.cast(DType::F32)?);
    let fit = |rows: &usize| match x.dim(1).ok().and_then(|d| d.as_usize()) {
        // Coefficients that are left over are those of no target.
        Some(width) => rows.checked_mul(width).is_some_and(|n| n <= coefficients.len()),
        None => coefficients.len().is_multiple_of(*rows),
    };
    let Some(rows) = usize::try_from(targets).ok().filter(|t| *t > 0 && fit(t)) else {
        return Err(format!("{} coefficients do not fit {targets} targets of {}", coefficients.len(), x.ty()).into());
    };
    let width = x.dim(1)?.as_usize().unwrap_or(coefficients.len() / rows);
    let w = floats(g, DType::F32, &[rows, width], coefficients[..rows * width].to_vec())?;
    let y = x.contract(w, &[], &[(1, 1)])?;
    if intercepts.is_empty() {
        return Ok(y);
    }
    Ok(g.map([y, floats(g, DType::F32, &[rows], intercepts.to_vec())?], |[y, b]| y + b)?)
}

/// The columns of both classes from a score for the second one: `1 - s` and `s` of what is a probability, `-s` and `s`
/// of a margin. `LOGISTIC` makes probabilities of either; the other transforms change nothing, as in ONNX Runtime.
fn both_classes<'g>(s: X<'g>, margin: bool, transform: &str) -> Result<X<'g>, Fail> {
    let margin = margin || transform == "LOGISTIC";
    let first = if margin { s.map(|s| -s)? } else { s.map(|s| 1.0 - s)? };
    let both = s.graph().concat(&[first, s], 1)?;
    transformed(both, if matches!(transform, "SOFTMAX" | "SOFTMAX_ZERO") { "NONE" } else { transform })
}

/// Whether each row's only score is above a limit.
fn above<'g>(s: X<'g>, limit: f64) -> Result<X<'g>, Fail> {
    Ok(s.squeeze(&[1])?.map(|s| s.gt(limit).cast(DType::I64))?)
}

/// As many classes as intercepts, of which a single one tells two labels apart.
fn linear_classifier<'g>(
    x: X<'g>,
    coefficients: &[f64],
    intercepts: &[f64],
    labels: Option<&Labels>,
    transform: &str,
) -> Result<Vec<X<'g>>, Fail> {
    let default = Labels::Ints(vec![0, 1]);
    let names = labels.unwrap_or(&default);
    let rows = match (intercepts.len(), features(x)?.dim(1)?.as_usize()) {
        (0, Some(width)) if width > 0 => coefficients.len() / width,
        (0, _) if names.len() == 2 => {
            return Err("without `intercepts`, the number of features must be known at compile time".into());
        }
        (0, _) => names.len(),
        (n, _) => n,
    };
    let raw = linear(x, coefficients, intercepts, rows as i64)?;
    if rows == 1 {
        let with_none;
        let (names, scores) = match names.len() {
            2 if labels.is_some() => (names, both_classes(raw, false, transform)?),
            2 => (names, transformed(raw, transform)?),
            1 => {
                with_none = names.with_none();
                (&with_none, transformed(raw, transform)?)
            }
            n => return Err(format!("{n} labels are given for one row of coefficients").into()),
        };
        return Ok(vec![names.of(above(raw, 0.0)?)?, scores]);
    }
    if names.len() < rows {
        return Err(format!("{} labels are given for {rows} classes", names.len()).into());
    }
    Ok(vec![names.of(raw.arg(ReduceFn::Max, 1, false)?)?, transformed(raw, transform)?])
}
