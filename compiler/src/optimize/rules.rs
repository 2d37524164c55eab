//! The rules: what is looked for, what becomes of it, and what that does to results.
use super::{For, compose, fold, graph::Work, linear, ort, shape};

/// What a rule may do to results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Licence {
    /// Every bit stays.
    Exact,
    /// The same formula, with its roundings in another place: what weights absorb, and what one operator computes in place of several.
    Rounding,
}

/// One rewrite, tried at every node of these operators (of any, if there are none).
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: &'static str,
    pub(super) ops: &'static [&'static str],
    pub(super) licence: Licence,
    /// Only where this runs the model.
    pub(super) only: Option<For>,
    /// Change the graph, or give `None` where the pattern or a condition is not there.
    pub(super) apply: fn(&mut Work<'_>, usize) -> Option<()>,
}

use Licence::{Exact, Rounding};

const ANY: Option<For> = None;
const ONNX: Option<For> = Some(For::Onnx);
const ORT: Option<For> = Some(For::Ort);

type Apply = fn(&mut Work<'_>, usize) -> Option<()>;

const fn rule(
    name: &'static str,
    ops: &'static [&'static str],
    licence: Licence,
    only: Option<For>,
    apply: Apply,
) -> Rule {
    Rule { name, ops, licence, only, apply }
}

/// The first that applies to a node is done.
#[rustfmt::skip]
pub(super) const RULES: &[Rule] = &[
    // Constants.
    rule("known-size",      &[],                                Exact,    ANY,  fold::known),          // integers that follow from sizes
    rule("fold",            &[],                                Exact,    ANY,  fold::exact),          // f(constants), the same bits everywhere
    rule("fold-rounded",    &[],                                Rounding, ANY,  fold::any),            // f(constants)
    // What does nothing, or is done twice.
    rule("identity",        &["Cast", "CastLike", "Concat", "Dropout", "Expand", "Flatten", "Identity", "Max", "Mean", "Min", "Pad", "Reshape", "Slice", "Squeeze", "Sum", "Tile", "Transpose", "Unsqueeze", "Where"],
                                                                Exact,    ANY,  shape::identity),      // f(x) with the type and elements of x
    rule("neutral",         &["Add", "Div", "Mul", "Pow", "Sub"], Exact,  ANY,  shape::neutral),       // x * 1, x / 1, x - 0, x ^ 1
    rule("zero",            &["Add"],                           Rounding, ANY,  shape::zero),          // x + 0, which changes the sign of -0
    rule("casts",           &["Cast"],                          Exact,    ANY,  shape::casts),         // cast(cast(x)), the first lossless
    rule("transposes",      &["Transpose"],                     Exact,    ANY,  shape::transposes),    // transpose(transpose(x))
    rule("views",           &["Flatten", "Reshape", "Squeeze", "Unsqueeze"], Exact, ANY, shape::views), // reshape(reshape(x)), the first for nobody else
    rule("concats",         &["Concat"],                        Exact,    ANY,  shape::concats),       // concat(concat(a, b), c)
    rule("slices",          &["Slice"],                         Exact,    ANY,  shape::slices),        // slice(x, ..n), slice(x, n..), all of x
    rule("nots",            &["Not"],                           Exact,    ANY,  shape::nots),          // not(not(x))
    rule("relus",           &["Clip", "Relu"],                  Exact,    ANY,  shape::relus),         // relu(relu(x)), clip(relu(x), 0, ..)
    // Sizes as numbers.
    rule("reshape",         &["Reshape"],                       Exact,    ANY,  shape::reshape),       // reshape(x, computed), sizes known but for one
    rule("expand",          &["Expand"],                        Exact,    ANY,  shape::expand),        // expand(x, computed), sizes known or those of x
    // Convolutions and products.
    rule("conv-pad",        &["Conv"],                          Exact,    ANY,  linear::conv_pad),     // conv(pad(x, 0))
    rule("conv-norm",       &["BatchNormalization"],            Rounding, ANY,  linear::conv_norm),    // batch_norm(conv(x)), constants
    rule("conv-arithmetic", &["Add", "Mul", "Sub"],             Rounding, ANY,  linear::conv_arithmetic), // conv(x) * c + d, a number per channel
    rule("gemm",            &["Add"],                           Rounding, ANY,  linear::gemm),         // a b + c, matrices
    rule("gemm-bias",       &["Add"],                           Rounding, ANY,  linear::gemm_bias),    // gemm(a, b) + c
    rule("gemm-transpose",  &["Gemm"],                          Rounding, ANY,  linear::gemm_transpose), // gemm(transpose(a), b)
    rule("gemm-norm",       &["BatchNormalization"],            Rounding, ANY,  linear::gemm_norm),    // batch_norm(gemm(x)), constants
    rule("quotient",        &["Mul"],                           Rounding, ANY,  linear::quotient),     // 1 / x * y
    // Composites.
    rule("layer-norm",      &["Add"],                           Rounding, ANY,  compose::layer_norm),  // (x - mean) / sqrt(var + e) * s + b, opset 17
    rule("rms-norm",        &["Mul"],                           Rounding, ANY,  compose::rms_norm),    // x / sqrt(mean(x^2) + e) * s, opset 23
    rule("gelu",            &["Mul"],                           Rounding, ONNX, compose::gelu),        // x / 2 (1 + erf(x / sqrt 2)), or by tanh, opset 20
    rule("ort-gelu",        &["Gelu", "Mul"],                   Rounding, ORT,  ort::gelu),            // the same, with a bias
    rule("ort-fast-gelu",   &["Mul"],                           Rounding, ORT,  ort::fast_gelu),       // the same by tanh
    rule("ort-quick-gelu",  &["Mul"],                           Rounding, ORT,  ort::quick_gelu),      // x sigmoid(a x)
    rule("ort-skip-norm",   &["LayerNormalization"],            Rounding, ORT,  ort::skip_norm),       // layer_norm(x + skip + bias)
    rule("ort-conv-sum",    &["Add"],                           Rounding, ORT,  ort::conv_sum),        // conv(x) + z
    rule("ort-conv",        &["Clip", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh"], Rounding, ORT, ort::fused_conv), // f(conv(x))
    rule("ort-gemm",        &["LeakyRelu", "Relu", "Sigmoid", "Tanh"], Rounding, ORT, ort::fused_gemm), // f(gemm(a, b, c))
    rule("ort-matmul",      &["FusedMatMul", "MatMul"],         Rounding, ORT,  ort::fused_matmul),    // transpose(a) b, (a n) b
    rule("ort-scale",       &["Div", "Mul"],                    Rounding, ORT,  ort::matmul_scale),    // (a b) n
    rule("ort-quantised",   &["Mul"],                           Rounding, ORT,  ort::quantised_matmul), // cast(matmul_integer(quantise(x), b)) * scales
    rule("ort-quantised-bias", &["Add"],                        Rounding, ORT,  ort::quantised_bias),  // the same + bias
];
