//! What every ONNX operator means, one table row each, by theme.
// `S::abs` in place of `|x| x.abs()` is not general enough in the lifetime of the expression.
#![allow(clippy::redundant_closure_for_method_calls)]
mod activation;
mod attention;
mod cast;
mod control;
mod conv;
mod detection;
mod image;
mod index;
mod linalg;
mod logic;
mod math;
mod microsoft;
mod microsoft_quant;
mod ml;
mod norm;
pub mod page;
mod pool;
mod qlinear;
mod quant;
mod random;
mod reduce;
mod resize;
mod rnn;
mod sampling;
mod sequence;
mod shape;
mod signal;
mod slice;
mod softmax;
mod sort;
mod text;
mod training;

use super::import::OnnxOp;
use crate::near;

/// The tables, in the order of the reference page.
const TABLES: &[&[OnnxOp]] = &[
    math::MATH,
    activation::ACTIVATION,
    logic::LOGIC,
    cast::CAST,
    linalg::LINALG,
    conv::CONV,
    pool::POOL,
    norm::NORM,
    reduce::REDUCE,
    softmax::SOFTMAX,
    shape::SHAPE,
    index::INDEX,
    image::IMAGE,
    signal::SIGNAL,
    attention::ATTENTION,
    attention::FLEX,
    rnn::RNN,
    control::CONTROL,
    sequence::SEQUENCE,
    random::RANDOM,
    quant::QUANT,
    text::TEXT,
    ml::ML,
    training::TRAINING,
    microsoft::MICROSOFT,
    microsoft_quant::MICROSOFT_QUANT,
    microsoft::MICROSOFT_DEFAULT,
];

/// Operator sets and their newest supported versions.
const NEWEST: &[(&str, i64)] = &[
    ("", 28),
    ("ai.onnx.ml", 5),
    ("ai.onnx.preview", 1),
    ("ai.onnx.preview.training", 1),
    ("ai.onnx.training", 1),
    ("com.microsoft", 1),
];

const NO_MAPS: &str = "let the model begin behind it, with a tensor of features, and make that in your program";
const NO_TEXT: &str = "split the model, and do what makes text in your program: models can compare, choose and move strings, not make new ones";

/// What to do about operators that need what compiled models do not have.
const ADVICE: &[(&str, &str, &str)] = &[
    ("ai.onnx.ml", "CastMap", NO_MAPS),
    ("ai.onnx.ml", "DictVectorizer", NO_MAPS),
    ("ai.onnx.ml", "ZipMap", "let its input be the output of the model (`zipmap=False` in most exporters)"),
    ("", "RegexFullMatch", NO_TEXT),
    ("", "StringConcat", NO_TEXT),
    ("", "StringNormalizer", NO_TEXT),
    ("", "StringSplit", NO_TEXT),
    ("com.microsoft", "Tokenizer", NO_TEXT),
];

/// Advice for whoever has a model with an operator that was refused.
pub fn advice(domain: &str, name: &str) -> Option<&'static str> {
    ADVICE.iter().find(|a| (a.0, a.1) == (domain, name)).map(|a| a.2)
}

/// Every row.
pub fn all() -> impl Iterator<Item = &'static OnnxOp> {
    TABLES.iter().copied().flatten()
}

/// The meaning of an operator in a version of its operator set.
pub fn find(domain: &str, name: &str, opset: i64) -> Option<&'static OnnxOp> {
    all().filter(|o| o.domain == domain && o.name == name && o.since <= opset).max_by_key(|o| o.since)
}

/// The first version that has the operator.
pub fn first_version(domain: &str, name: &str) -> Option<i64> {
    all().filter(|o| o.domain == domain && o.name == name).map(|o| o.since).min()
}

pub fn newest_opset(domain: &str) -> Option<i64> {
    NEWEST.iter().find(|(d, _)| *d == domain).map(|(_, v)| *v)
}

/// A supported operator whose name differs only in case or comes from another domain, or is nearly this one.
pub fn similar(domain: &str, name: &str) -> Option<String> {
    let same = all().find(|o| o.name.eq_ignore_ascii_case(name));
    let of_domain = || all().filter(|o| o.domain == domain);
    let nearest = || near::near(name, of_domain().map(|o| o.name));
    let found = same.or_else(|| nearest().and_then(|nearest| of_domain().find(|o| o.name == nearest)))?;
    Some(if found.domain == domain { found.name.to_string() } else { format!("{}::{}", found.domain, found.name) })
}
