//! Convolutions, and how the attributes of convolutions and pools place windows over the spatial axes.
use crate::onnx::import::table::onnx_ops;
use numrsc_ir::{
    Dim, Result,
    build::{Window, X},
    refuse,
};

onnx_ops! { pub(super) CONV in "", |g, cx|
    "Conv" 1 (x: Float, w: Float; b: Float) { auto_pad: String = "NOTSET".into(), kernel_shape: Vec<i64> = vec![], strides: Vec<i64> = vec![],
        dilations: Vec<i64> = vec![], pads: Vec<i64> = vec![], group: i64 = 1 }
        => conv(x, w, b, &kernel_shape, group, &Placement { auto_pad: &auto_pad, strides: &strides, dilations: &dilations, pads: &pads, ceil: false });
}

/// The attributes that place windows; empty lists stand for their defaults.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placement<'a> {
    pub auto_pad: &'a str,
    pub strides: &'a [i64],
    pub dilations: &'a [i64],
    pub pads: &'a [i64],
    /// Is a last window that is only partly inside one more window?
    pub ceil: bool,
}

impl Placement<'_> {
    /// Windows of size `kernel` over axes of size `input`.
    ///
    /// Where the number of windows is prescribed (`SAME_*`, `ceil`), `high` is what gives exactly that number. It may
    /// be negative, which only drops elements that no window sees.
    pub(super) fn windows(&self, input: &[Dim], kernel: &[Dim]) -> Result<Vec<Window>> {
        let n = input.len();
        if kernel.len() != n {
            refuse!("a kernel of {} axes does not fit {n} spatial axes", kernel.len());
        }
        let (strides, dilations) =
            (per_axis("strides", self.strides, n, 1)?, per_axis("dilations", self.dilations, n, 1)?);
        let pads = per_axis("pads", self.pads, 2 * n, 0)?;
        if let Some(bad) = strides.iter().chain(&dilations).find(|&&s| s < 1) {
            refuse!("strides and dilations must be positive, got {bad}");
        }
        if self.auto_pad != "NOTSET" && pads.iter().any(|&p| p != 0) {
            refuse!("`pads` cannot be combined with `auto_pad` {}", self.auto_pad);
        }
        (0..n)
            .map(|i| {
                let (stride, dilation) = (strides[i], dilations[i]);
                let step = Dim::Const(stride);
                let reach = reach(&kernel[i], dilation);
                // What is missing at the end for `count` windows.
                let missing = |count: &Dim, low: &Dim| &(&(&(&(count - &Dim::ONE) * &step) + &reach) - &input[i]) - low;
                let (low, high) = match self.auto_pad {
                    "NOTSET" => {
                        let (low, high) = (Dim::Const(pads[i]), Dim::Const(pads[n + i]));
                        if self.ceil {
                            let padded = &input[i] + &low;
                            let all = &(&(&padded + &high) - &reach).ceil_div(&step) + &Dim::ONE;
                            // A window must not start in the padding at the end.
                            let count = all.lesser(&padded.ceil_div(&step));
                            (low.clone(), missing(&count, &low))
                        } else {
                            (low, high)
                        }
                    }
                    "VALID" => (Dim::ZERO, Dim::ZERO),
                    "SAME_UPPER" | "SAME_LOWER" => {
                        let count = input[i].ceil_div(&step);
                        let total = missing(&count, &Dim::ZERO);
                        let low = halves(self.auto_pad, &total);
                        (low.clone(), &total - &low)
                    }
                    other => refuse!("`auto_pad` {other:?} is not NOTSET, VALID, SAME_UPPER or SAME_LOWER"),
                };
                Ok(Window { stride, dilation, low, high })
            })
            .collect()
    }
}

/// The part of a total padding that comes first: the smaller half for `SAME_UPPER`, else the larger one.
fn halves(auto_pad: &str, total: &Dim) -> Dim {
    let two = Dim::Const(2);
    let half = if auto_pad == "SAME_UPPER" { total.floor_div(&two) } else { total.ceil_div(&two) };
    half.greater(&Dim::ZERO)
}

/// How many elements a window spans: `(kernel - 1) * dilation + 1`.
fn reach(kernel: &Dim, dilation: i64) -> Dim {
    &(&(kernel - &Dim::ONE) * &Dim::Const(dilation)) + &Dim::ONE
}

/// A list attribute with one entry for each of `n` places, all `default` if it is absent.
pub(super) fn per_axis(name: &str, values: &[i64], n: usize, default: i64) -> Result<Vec<i64>> {
    match values.len() {
        0 => Ok(vec![default; n]),
        len if len == n => Ok(values.to_vec()),
        len => refuse!("`{name}` has {len} entries, {n} are needed"),
    }
}

/// The sizes of the axes after batch and channels.
pub(super) fn spatial(x: X<'_>) -> Result<Vec<Dim>> {
    match x.shape().get(2..) {
        Some(space) => Ok(space.to_vec()),
        None => refuse!("{} has no batch and channel axes", x.ty()),
    }
}

/// Weights of shape (out, in, space..) whose spatial sizes are what `kernel_shape`, if given, says.
pub(super) fn with_kernel_shape<'g>(w: X<'g>, kernel_shape: &[i64]) -> Result<X<'g>> {
    let (shape, space) = (w.shape(), spatial(w)?);
    if kernel_shape.is_empty() {
        return Ok(w);
    }
    let stated: Vec<Dim> = kernel_shape.iter().map(|&k| Dim::Const(k)).collect();
    if stated.len() != space.len() || stated.iter().zip(&space).any(|(a, b)| a.equals(b) == Some(false)) {
        refuse!("`kernel_shape` {kernel_shape:?} does not fit the weights {}", w.ty());
    }
    w.reshape(&[&shape[..2], &stated].concat())
}

/// Add a vector along the channel axis.
pub(super) fn add_bias<'g>(y: X<'g>, bias: Option<X<'g>>) -> Result<X<'g>> {
    let Some(bias) = bias else { return Ok(y) };
    if bias.rank() != 1 {
        refuse!("the bias {} is not a vector", bias.ty());
    }
    let bias = bias.broadcast_in(&y.shape(), &[1])?;
    y.graph().map([y, bias], |[y, b]| y + b)
}

pub(super) fn conv<'g>(
    x: X<'g>,
    w: X<'g>,
    bias: Option<X<'g>>,
    kernel_shape: &[i64],
    groups: i64,
    placement: &Placement<'_>,
) -> Result<X<'g>> {
    let (space, w) = (spatial(x)?, with_kernel_shape(w, kernel_shape)?);
    let windows = placement.windows(&space, &spatial(w)?)?;
    add_bias(x.conv(w, &windows, &vec![1; space.len()], groups)?, bias)
}
