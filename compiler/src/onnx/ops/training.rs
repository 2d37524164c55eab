//! Steps of optimisers: new weights and optimiser states from gradients, all elementwise.
use crate::onnx::import::table::{Outputs, onnx_ops};
use numrsc_ir::{Result, build::X, expr::S, refuse};

onnx_ops! { pub(super) TRAINING in "ai.onnx.preview.training", |g, cx|
    "Adagrad"  1 (rate: Float, step: Index, ..tensors: Float)
        { norm_coefficient: f64 = 0.0, decay_factor: f64 = 0.0, epsilon: f64 = 1e-6 }
        => update(rate, step, &tensors, |[r, t, x, g, h]| {
            let g = x * norm_coefficient + g;
            let h = h + g.square();
            let r = r / (t * decay_factor + 1.0);
            [x - r * g / (h.sqrt() + epsilon), h]
        });
    "Adam"     1 (rate: Float, step: Index, ..tensors: Float)
        { norm_coefficient: f64 = 0.0, norm_coefficient_post: f64 = 0.0, alpha: f64 = 0.9, beta: f64 = 0.999,
          epsilon: f64 = 1e-6 }
        => update(rate, step, &tensors, |[r, t, x, g, v, h]| {
            let g = x * norm_coefficient + g;
            let v = v * alpha + g * (1.0 - alpha);
            let h = h * beta + g.square() * (1.0 - beta);
            // From the second step on, the averages that began at zero are brought to their size.
            let corrected = r * (1.0 - x.lit(beta).pow(t)).sqrt() / (1.0 - x.lit(alpha).pow(t));
            let r = t.gt(0.0).select(corrected, r);
            [(x - r * (v / (h.sqrt() + epsilon))) * (1.0 - norm_coefficient_post), v, h]
        });
    "Momentum" 1 (rate: Float, step: Index, ..tensors: Float)
        { alpha: f64, beta: f64, mode: String, norm_coefficient: f64 }
        => momentum(rate, step, &tensors, alpha, beta, &mode, norm_coefficient);
}

fn momentum<'g>(
    rate: X<'g>,
    step: X<'g>,
    tensors: &[X<'g>],
    alpha: f64,
    beta: f64,
    mode: &str,
    norm_coefficient: f64,
) -> Result<Outputs<'g>> {
    let nesterov = match mode {
        "standard" => false,
        "nesterov" => true,
        other => refuse!("attribute `mode` is `{other}`; supported are `standard` and `nesterov`"),
    };
    update(rate, step, tensors, |[r, t, x, g, v]| {
        let g = x * norm_coefficient + g;
        let v = v * alpha + g * t.gt(0.0).select(t.lit(beta), 1.0);
        let direction = if nesterov { g + v * alpha } else { v };
        [x - r * direction, v]
    })
}

/// Apply a step to every set of tensors. `f` takes the learning rate, the number of the step, a weight, its gradient
/// and its states (`N` in all), and gives the new weight and states (`M` of them). The tensors, and so the results,
/// come as all weights, all gradients, all states of a kind.
fn update<'g, const N: usize, const M: usize>(
    rate: X<'g>,
    step: X<'g>,
    tensors: &[X<'g>],
    f: impl for<'e> Fn([S<'e>; N]) -> [S<'e>; M],
) -> Result<Outputs<'g>> {
    let (g, kinds) = (rate.graph(), N - 2);
    if tensors.is_empty() || !tensors.len().is_multiple_of(kinds) {
        refuse!("{} tensors are given, which is not a multiple of {kinds}", tensors.len());
    }
    let count = tensors.len() / kinds;
    let mut outputs = vec![None; M * count];
    for i in 0..count {
        let of = tensors[i].dtype();
        let mut xs = vec![rate.cast(of)?.reshape(&[])?, step.cast(of)?.reshape(&[])?];
        xs.extend((0..kinds).map(|k| tensors[k * count + i]));
        for m in 0..M {
            let y = g.map_all(&xs, |s| f(<[S<'_>; N]>::try_from(s).expect("as many as operands"))[m])?;
            outputs[m * count + i] = Some(y);
        }
    }
    Ok(outputs)
}
