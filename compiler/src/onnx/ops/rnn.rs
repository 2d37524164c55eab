//! Recurrent layers. All directions of a layer run in one loop over time with the direction as a batch axis; what does
//! not depend on the state, the product of the inputs and their weights, is done for all steps and directions before it.
use crate::onnx::import::{operand::Operand, table::onnx_ops};
use numrsc_ir::{
    DType, Dim, Result,
    build::{LoopBody, LoopOut, X},
    expr::S,
    refuse,
};

onnx_ops! { pub(super) RNN in "", |g, cx|
    "RNN" 1 (X: Float, W: Float, R: Float; B: Float, sequence_lens: Index, initial_h: Float)
        { activation_alpha: Vec<f64> = vec![], activation_beta: Vec<f64> = vec![], activations: Option<Vec<String>>,
          clip: Option<f64>, direction: String = "forward".into(), hidden_size: Option<i64>,
          output_sequence: bool = false }
        => rnn([X, W, R], [B, sequence_lens, initial_h],
               &How { activation_alpha, activation_beta, activations, clip, direction, hidden_size, layout: false });
    "RNN" 7 (X: Float, W: Float, R: Float; B: Float, sequence_lens: Index, initial_h: Float)
        { activation_alpha: Vec<f64> = vec![], activation_beta: Vec<f64> = vec![], activations: Option<Vec<String>>,
          clip: Option<f64>, direction: String = "forward".into(), hidden_size: Option<i64> }
        => rnn([X, W, R], [B, sequence_lens, initial_h],
               &How { activation_alpha, activation_beta, activations, clip, direction, hidden_size, layout: false });
    "RNN" 14 (X: Float, W: Float, R: Float; B: Float, sequence_lens: Index, initial_h: Float)
        { activation_alpha: Vec<f64> = vec![], activation_beta: Vec<f64> = vec![], activations: Option<Vec<String>>,
          clip: Option<f64>, direction: String = "forward".into(), hidden_size: Option<i64>, layout: bool = false }
        => rnn([X, W, R], [B, sequence_lens, initial_h],
               &How { activation_alpha, activation_beta, activations, clip, direction, hidden_size, layout });
    "GRU" 1 (X: Float, W: Float, R: Float; B: Float, sequence_lens: Index, initial_h: Float)
        { activation_alpha: Vec<f64> = vec![], activation_beta: Vec<f64> = vec![], activations: Option<Vec<String>>,
          clip: Option<f64>, direction: String = "forward".into(), hidden_size: Option<i64>,
          output_sequence: bool = false }
        => gru([X, W, R], [B, sequence_lens, initial_h], false,
               &How { activation_alpha, activation_beta, activations, clip, direction, hidden_size, layout: false });
    "GRU" 3 (X: Float, W: Float, R: Float; B: Float, sequence_lens: Index, initial_h: Float)
        { activation_alpha: Vec<f64> = vec![], activation_beta: Vec<f64> = vec![], activations: Option<Vec<String>>,
          clip: Option<f64>, direction: String = "forward".into(), hidden_size: Option<i64>,
          linear_before_reset: bool = false, output_sequence: bool = false }
        => gru([X, W, R], [B, sequence_lens, initial_h], linear_before_reset,
               &How { activation_alpha, activation_beta, activations, clip, direction, hidden_size, layout: false });
    "GRU" 7 (X: Float, W: Float, R: Float; B: Float, sequence_lens: Index, initial_h: Float)
        { activation_alpha: Vec<f64> = vec![], activation_beta: Vec<f64> = vec![], activations: Option<Vec<String>>,
          clip: Option<f64>, direction: String = "forward".into(), hidden_size: Option<i64>,
          linear_before_reset: bool = false }
        => gru([X, W, R], [B, sequence_lens, initial_h], linear_before_reset,
               &How { activation_alpha, activation_beta, activations, clip, direction, hidden_size, layout: false });
    "GRU" 14 (X: Float, W: Float, R: Float; B: Float, sequence_lens: Index, initial_h: Float)
        { activation_alpha: Vec<f64> = vec![], activation_beta: Vec<f64> = vec![], activations: Option<Vec<String>>,
          clip: Option<f64>, direction: String = "forward".into(), hidden_size: Option<i64>,
          layout: bool = false, linear_before_reset: bool = false }
        => gru([X, W, R], [B, sequence_lens, initial_h], linear_before_reset,
               &How { activation_alpha, activation_beta, activations, clip, direction, hidden_size, layout });
    "LSTM" 1 (X: Float, W: Float, R: Float; B: Float, sequence_lens: Index, initial_h: Float, initial_c: Float,
             P: Float)
        { activation_alpha: Vec<f64> = vec![], activation_beta: Vec<f64> = vec![], activations: Option<Vec<String>>,
          clip: Option<f64>, direction: String = "forward".into(), hidden_size: Option<i64>,
          input_forget: bool = false, output_sequence: bool = false }
        => lstm([X, W, R], [B, sequence_lens, initial_h, initial_c, P], input_forget,
               &How { activation_alpha, activation_beta, activations, clip, direction, hidden_size, layout: false });
    "LSTM" 7 (X: Float, W: Float, R: Float; B: Float, sequence_lens: Index, initial_h: Float, initial_c: Float,
             P: Float)
        { activation_alpha: Vec<f64> = vec![], activation_beta: Vec<f64> = vec![], activations: Option<Vec<String>>,
          clip: Option<f64>, direction: String = "forward".into(), hidden_size: Option<i64>,
          input_forget: bool = false }
        => lstm([X, W, R], [B, sequence_lens, initial_h, initial_c, P], input_forget,
               &How { activation_alpha, activation_beta, activations, clip, direction, hidden_size, layout: false });
    "LSTM" 14 (X: Float, W: Float, R: Float; B: Float, sequence_lens: Index, initial_h: Float, initial_c: Float,
              P: Float)
        { activation_alpha: Vec<f64> = vec![], activation_beta: Vec<f64> = vec![], activations: Option<Vec<String>>,
          clip: Option<f64>, direction: String = "forward".into(), hidden_size: Option<i64>,
          input_forget: bool = false, layout: bool = false }
        => lstm([X, W, R], [B, sequence_lens, initial_h, initial_c, P], input_forget,
               &How { activation_alpha, activation_beta, activations, clip, direction, hidden_size, layout });
}

fn rnn<'g>([x, w, r]: [X<'g>; 3], [b, lens, h]: [Option<X<'g>>; 3], how: &How) -> Result<Vec<X<'g>>> {
    Layer { cell: Cell::Rnn, x, w: Weights::Plain(w), r: Weights::Plain(r), b, lens, h, c: None, p: None }.build(how)
}

fn gru<'g>(
    [x, w, r]: [X<'g>; 3],
    [b, lens, h]: [Option<X<'g>>; 3],
    linear_before_reset: bool,
    how: &How,
) -> Result<Vec<X<'g>>> {
    let cell = Cell::Gru { linear_before_reset };
    Layer { cell, x, w: Weights::Plain(w), r: Weights::Plain(r), b, lens, h, c: None, p: None }.build(how)
}

fn lstm<'g>(
    [x, w, r]: [X<'g>; 3],
    [b, lens, h, c, p]: [Option<X<'g>>; 5],
    input_forget: bool,
    how: &How,
) -> Result<Vec<X<'g>>> {
    let cell = Cell::Lstm { input_forget };
    Layer { cell, x, w: Weights::Plain(w), r: Weights::Plain(r), b, lens, h, c, p }.build(how)
}

/// The attributes that all recurrent operators share.
pub(super) struct How {
    pub activation_alpha: Vec<f64>,
    pub activation_beta: Vec<f64>,
    pub activations: Option<Vec<String>>,
    pub clip: Option<f64>,
    pub direction: String,
    pub hidden_size: Option<i64>,
    /// The batch axis of inputs and outputs comes first.
    pub layout: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Cell {
    Rnn,
    Gru { linear_before_reset: bool },
    Lstm { input_forget: bool },
}

impl Cell {
    fn gates(self) -> i64 {
        match self {
            Cell::Rnn => 1,
            Cell::Gru { .. } => 3,
            Cell::Lstm { .. } => 4,
        }
    }

    /// The activation functions of one direction: f, g, h.
    fn functions(self) -> &'static [&'static str] {
        match self {
            Cell::Rnn => &["Tanh"],
            Cell::Gru { .. } => &["Sigmoid", "Tanh"],
            Cell::Lstm { .. } => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

/// Matrices `[directions, out, in]` to multiply by.
#[derive(Clone, Copy)]
pub(super) enum Weights<'g> {
    Plain(X<'g>),
    /// `w` in i32 with its zero point taken away, `scale` of shape `[directions, 1 or out]`. The other factor is
    /// quantised to 8 bits on the fly.
    Quantised {
        w: X<'g>,
        scale: X<'g>,
    },
}

impl<'g> Weights<'g> {
    fn matrix(self) -> X<'g> {
        match self {
            Weights::Plain(w) | Weights::Quantised { w, .. } => w,
        }
    }

    fn with_matrix(self, w: X<'g>) -> Weights<'g> {
        match self {
            Weights::Plain(_) => Weights::Plain(w),
            Weights::Quantised { scale, .. } => Weights::Quantised { w, scale },
        }
    }

    /// `x w^T` for states `[directions, batch, in]`: every direction has its own.
    fn product(self, x: X<'g>) -> Result<X<'g>> {
        self.multiply(x, &[(0, 0)])
    }

    /// `x w^T` for inputs `[time, batch, in]` that all directions read: `[time, batch, directions, out]`.
    fn shared_product(self, x: X<'g>) -> Result<X<'g>> {
        self.multiply(x, &[])
    }

    fn multiply(self, x: X<'g>, own: &[(usize, usize)]) -> Result<X<'g>> {
        let g = x.graph();
        match self {
            Weights::Plain(w) => x.contract(w, own, &[(2, 2)]),
            Weights::Quantised { w, scale } => {
                let (q, zero, step) = quantised(x, own.len())?;
                let q = g.map([q, zero], |[q, z]| q.cast(DType::I32) - z.cast(DType::I32))?;
                let sum = q.contract(w, own, &[(2, 2)])?;
                let scale = if own.is_empty() { scale } else { scale.unsqueeze(&[1])? };
                g.map([sum, step, scale], |[y, a, b]| y.cast(DType::F32) * (a * b))
            }
        }
    }
}

/// A tensor in u8 with zero points and steps as `DynamicQuantizeLinear` chooses them, one for each index of the first `own` axes.
pub(super) fn quantised<'g>(x: X<'g>, own: usize) -> Result<(X<'g>, X<'g>, X<'g>)> {
    let g = x.graph();
    let axes: Vec<usize> = (own..x.rank()).collect();
    let (low, high) = (x.min(&axes, own > 0)?.map(|x| x.min(0.0))?, x.max(&axes, own > 0)?.map(|x| x.max(0.0))?);
    let step = g.map([low, high], |[l, h]| h.eq(l).select(h.lit(1.0), (h - l) / 255.0))?;
    let zero = g.map([low, step], |[l, s]| (0.0 - l / s).clamp(0.0, 255.0).round().cast(DType::U8))?;
    let q =
        g.map([x, step, zero], |[x, s, z]| ((x / s).round() + z.cast(x.dtype())).clamp(0.0, 255.0).cast(DType::U8))?;
    Ok((q, zero, step))
}

/// A recurrent layer with the inputs of its operator.
pub(super) struct Layer<'g> {
    pub cell: Cell,
    pub x: X<'g>,
    pub w: Weights<'g>,
    pub r: Weights<'g>,
    pub b: Option<X<'g>>,
    pub lens: Option<X<'g>>,
    pub h: Option<X<'g>>,
    pub c: Option<X<'g>>,
    pub p: Option<X<'g>>,
}

/// What a step of the loop needs to know besides its captures.
struct Step {
    cell: Cell,
    direction: String,
    hidden: Dim,
    clip: Option<f64>,
    /// The functions f, g, h of each direction.
    activations: Vec<Vec<Activation>>,
    quantised: bool,
    has: Has,
}

/// Which optional values are captured.
struct Has {
    bias: bool,
    peepholes: bool,
    lens: bool,
}

impl<'g> Layer<'g> {
    /// The outputs: all hidden states, the last one, and the last cell state of an LSTM.
    pub(super) fn build(&self, how: &How) -> Result<Vec<X<'g>>> {
        let g = self.x.graph();
        let (w, r) = (self.w.matrix(), self.r.matrix());
        if self.x.rank() != 3 || w.rank() != 3 || r.rank() != 3 {
            refuse!("`X`, `W` and `R` have rank 3, not {}, {} and {}", self.x.ty(), w.ty(), r.ty());
        }
        let directions = match how.direction.as_str() {
            "forward" | "reverse" => 1,
            "bidirectional" => 2,
            other => refuse!("`direction` is \"{other}\""),
        };
        let hidden = how.hidden_size.map_or_else(|| r.dim(2), |n| Ok(Dim::Const(n)))?;
        if hidden.at_most(&Dim::ZERO) == Some(true) {
            refuse!("`hidden_size` is {hidden}");
        }
        let batch_second = |x: X<'g>| if how.layout && x.rank() == 3 { x.transpose(&[1, 0, 2]) } else { Ok(x) };
        let x = batch_second(self.x)?;
        let [time, batch, inputs] = [x.dim(0)?, x.dim(1)?, x.dim(2)?];
        let d = Dim::Const(directions);
        let rows = &Dim::Const(self.cell.gates()) * &hidden;
        let w = self.w.with_matrix(w.shaped("W", &[d.clone(), rows.clone(), inputs])?);
        let r = self.r.with_matrix(r.shaped("R", &[d.clone(), rows.clone(), hidden.clone()])?);
        let state = [d.clone(), batch.clone(), hidden.clone()];
        let initial = |x: Option<X<'g>>, what: &str| match x {
            Some(x) => batch_second(x)?.shaped(what, &state),
            None => g.full(self.x.dtype(), 0.0, &state),
        };
        let lens = match self.lens {
            Some(n) => Some(n.shaped("sequence_lens", std::slice::from_ref(&batch))?.indices()?),
            None => None,
        };

        // All steps are the rows of one matrix, and the directions are its columns: who goes backward reads the rows from the end.
        let mut captures = vec![w.shared_product(self.within(x, lens)?)?];
        match (self.cell, r) {
            (Cell::Gru { linear_before_reset: false }, Weights::Plain(r)) => {
                captures.extend(r.split(1, &[&Dim::Const(2) * &hidden, hidden.clone()])?);
            }
            (_, Weights::Plain(r)) => captures.push(r),
            (_, Weights::Quantised { w, scale }) => captures.extend([w, scale]),
        }
        if let Some(b) = self.b {
            let b = b.shaped("B", &[d.clone(), &rows + &rows])?.split(1, &[rows.clone(), rows])?;
            let [b, c] = [b[0].unsqueeze(&[1])?, b[1].unsqueeze(&[1])?];
            captures.extend([g.map([b, c], |[b, c]| b + c)?, b, c]);
        }
        if let Some(p) = self.p {
            captures.push(p.shaped("P", &[d, &Dim::Const(3) * &hidden])?.unsqueeze(&[1])?);
        }
        if let Some(n) = lens {
            captures.push(n.unsqueeze(&[0, 2])?);
        }
        let step = Step {
            cell: self.cell,
            direction: how.direction.clone(),
            hidden,
            clip: how.clip,
            activations: activations(self.cell, how, directions as usize)?,
            quantised: matches!(self.r, Weights::Quantised { .. }),
            has: Has { bias: self.b.is_some(), peepholes: self.p.is_some(), lens: lens.is_some() },
        };
        let mut states = vec![initial(self.h, "initial_h")?];
        if matches!(self.cell, Cell::Lstm { .. }) {
            states.push(initial(self.c, "initial_c")?);
        }
        let go = g.scalar(DType::Bool, 1.0)?;
        let (mut last, all) = g.loop_(g.size(&time)?, go, &states, &captures, &|b| step.run(&b))?;
        // Where there was no step, there is no state either, whatever it would have begun with.
        if let Some(n) = lens {
            let n = n.unsqueeze(&[0, 2])?;
            for (last, _) in last.iter_mut().zip([self.h, self.c]).filter(|(_, first)| first.is_some()) {
                *last = g.map([*last, n], |[y, n]| n.gt(0.0).select(y, 0.0))?;
            }
        }
        let y = in_order(all[0], &how.direction, lens)?;
        let y = if how.layout { y.transpose(&[2, 0, 1, 3])? } else { y };
        [y].into_iter().map(Ok).chain(last.into_iter().map(batch_second)).collect()
    }

    /// Inputs to quantise without what lies behind the end of the longest sequence, which must not widen the range.
    fn within(&self, x: X<'g>, lens: Option<X<'g>>) -> Result<X<'g>> {
        let g = x.graph();
        let (Some(n), Weights::Quantised { .. }) = (lens, self.w) else { return Ok(x) };
        let t = g.iota(DType::I64, &[x.dim(0)?, Dim::ONE, Dim::ONE], 0)?;
        g.map([x, t, n.max(&[0], false)?], |[x, t, n]| t.lt(n).select(x, 0.0))
    }
}

/// Sequences `[time, batch, ..]` from their ends to their starts; what lies behind an end stays.
fn reversed<'g>(x: X<'g>, lens: Option<X<'g>>) -> Result<X<'g>> {
    let Some(n) = lens else { return x.reverse(0) };
    let g = x.graph();
    let t = g.iota(DType::I64, &[x.dim(1)?, x.dim(0)?], 1)?;
    let from = g.map([t, n.unsqueeze(&[1])?], |[t, n]| t.lt(n).select(n - 1.0 - t, t))?;
    x.transpose(&[1, 0, 2])?.gather(from, 1, 1)?.transpose(&[1, 0, 2])
}

/// Outputs `[time, directions, batch, hidden]` in the order of time.
fn in_order<'g>(y: X<'g>, direction: &str, lens: Option<X<'g>>) -> Result<X<'g>> {
    let back = |y: X<'g>, i: i64| reversed(y.at(1, &Dim::Const(i))?, lens)?.unsqueeze(&[1]);
    match direction {
        "forward" => Ok(y),
        "reverse" => back(y, 0),
        _ => y.graph().concat(&[y.slice_axis(1, &Dim::ZERO, &Dim::ONE, 1)?, back(y, 1)?], 1),
    }
}

impl Step {
    /// One step: the captures are the products of the inputs, the recurrent weights, and whatever the layer has of
    /// biases (sum, of inputs, recurrent), peepholes and lengths.
    fn run<'b>(&self, b: &LoopBody<'b>) -> Result<LoopOut<'b>> {
        let g = b.graph;
        let mut rest = b.captures.iter().copied();
        let mut next = || rest.next().ok_or("a capture is missing");
        let x = next()?;
        let r = match (self.quantised, self.cell) {
            (true, _) => vec![Weights::Quantised { w: next()?, scale: next()? }],
            (_, Cell::Gru { linear_before_reset: false }) => vec![Weights::Plain(next()?), Weights::Plain(next()?)],
            _ => vec![Weights::Plain(next()?)],
        };
        let bias = if self.has.bias { Some([next()?, next()?, next()?]) } else { None };
        let peepholes = if self.has.peepholes { Some(next()?) } else { None };
        let lens = if self.has.lens { Some(next()?) } else { None };
        let x = self.inputs(x, b.round, lens)?;

        let h = b.states[0];
        // Sequences that ended before the last step do not count for the range of quantised states.
        let h = match lens {
            Some(n) if self.quantised => g.map([h, b.round, n], |[h, t, n]| t.le(n).select(h, 0.0))?,
            _ => h,
        };
        let next = match self.cell {
            Cell::Rnn => {
                let sum = added(r[0].product(h)?, x, bias.map(|b| b[0]))?;
                vec![g.map([sum, self.backward(g)?], |[x, d]| self.act(0, x, d))?]
            }
            Cell::Gru { .. } => vec![self.gru(x, h, &r, bias)?],
            Cell::Lstm { input_forget } => {
                let sum = added(r[0].product(h)?, x, bias.map(|b| b[0]))?;
                self.lstm(sum, b.states[1], peepholes, input_forget)?
            }
        };
        let Some(n) = lens else { return Ok(LoopOut { cond: b.cond, rows: vec![next[0]], states: next }) };
        let row = g.map([next[0], b.round, n], |[y, t, n]| t.lt(n).select(y, 0.0))?;
        let states = next
            .iter()
            .zip(&b.states)
            .map(|(new, old)| g.map([*new, *old, b.round, n], |[new, old, t, n]| t.lt(n).select(new, old)));
        Ok(LoopOut { cond: b.cond, states: states.collect::<Result<_>>()?, rows: vec![row] })
    }

    /// The products `[directions, batch, rows]` of this round, of all `[time, batch, directions, rows]`.
    fn inputs<'b>(&self, x: X<'b>, round: X<'b>, lens: Option<X<'b>>) -> Result<X<'b>> {
        let g = x.graph();
        let [time, batch, directions] = [x.dim(0)?, x.dim(1)?, x.dim(2)?];
        if self.direction == "forward" {
            return x.gather(round, 0, 0)?.transpose(&[1, 0, 2]);
        }
        let end = lens.map_or_else(|| g.size(&time), |n| n.reshape(std::slice::from_ref(&batch)))?;
        let from_end = g.map([round, end], |[t, n]| t.lt(n).select(n - 1.0 - t, t))?;
        let at = match self.direction.as_str() {
            "reverse" => from_end,
            _ => {
                let direction = g.iota(DType::I64, &[directions.clone(), Dim::ONE], 0)?;
                g.map([direction, round, from_end], |[d, t, back]| d.eq(0.0).select(t, back))?
            }
        };
        x.transpose(&[2, 1, 0, 3])?.gather(at.broadcast_to(&[directions, batch])?, 2, 2)
    }

    /// `z, r = f(x + h R + b); h~ = g(x + (r h) R + b), or g(x + r (h R + rb) + wb); (1 - z) h~ + z h`
    fn gru<'b>(&self, x: X<'b>, h: X<'b>, r: &[Weights<'b>], bias: Option<[X<'b>; 3]>) -> Result<X<'b>> {
        let g = x.graph();
        let sizes = [&Dim::Const(2) * &self.hidden, self.hidden.clone()];
        let split = |x: X<'b>| x.split(2, &sizes);
        let d = self.backward(g)?;
        let (x_parts, bias) = (split(x)?, bias.map(|b| b.map(split)));
        let [both, b_in, b_rec] = match bias {
            Some([both, i, r]) => [Some(both?), Some(i?), Some(r?)],
            None => [None, None, None],
        };
        let (gates, linear) = match r {
            [all] => {
                let parts = split(all.product(h)?)?;
                (parts[0], Some(parts[1]))
            }
            _ => (r[0].product(h)?, None),
        };
        let gates = added(gates, x_parts[0], both.map(|b| b[0]))?;
        let gates = g.map([gates, d], |[x, d]| self.act(0, x, d))?;
        let gates = gates.split(2, &[self.hidden.clone(), self.hidden.clone()])?;
        let (z, reset) = (gates[0], gates[1]);
        let inner = match linear {
            Some(y) => {
                let y = match &b_rec {
                    Some(b) => g.map([y, b[1], reset], |[y, b, r]| r * (y + b))?,
                    None => g.map([y, reset], |[y, r]| r * y)?,
                };
                added(y, x_parts[1], b_in.map(|b| b[1]))?
            }
            None => {
                let y = added(r[1].product(g.map([reset, h], |[r, h]| r * h)?)?, x_parts[1], b_in.map(|b| b[1]))?;
                match b_rec {
                    Some(b) => g.map([y, b[1]], |[y, b]| y + b)?,
                    None => y,
                }
            }
        };
        g.map([inner, z, h, d], |[x, z, h, d]| (1.0 - z) * self.act(1, x, d) + z * h)
    }

    /// `i, f = f(. + p c); C = f c + i g(.); o = f(. + p C); o h(C)`, from the sums for i, o, f, c.
    fn lstm<'b>(&self, sum: X<'b>, c: X<'b>, peepholes: Option<X<'b>>, input_forget: bool) -> Result<Vec<X<'b>>> {
        let g = sum.graph();
        let d = self.backward(g)?;
        let parts = sum.split(2, &[0; 4].map(|_| self.hidden.clone()))?;
        let (mut i, mut o, mut f, cell) = (parts[0], parts[1], parts[2], parts[3]);
        let seen = |x: X<'b>, c: X<'b>, p: X<'b>| g.map([x, c, p], |[x, c, p]| x + p * c);
        let p = peepholes.map(|p| p.split(2, &[0; 3].map(|_| self.hidden.clone()))).transpose()?;
        if let Some(p) = &p {
            (i, f) = (seen(i, c, p[0])?, seen(f, c, p[2])?);
        }
        let new = g.map([i, f, cell, c, d], |[i, f, cell, c, d]| {
            let i = self.act(0, i, d);
            let f = if input_forget { 1.0 - i } else { self.act(0, f, d) };
            f * c + i * self.act(1, cell, d)
        })?;
        if let Some(p) = &p {
            o = seen(o, new, p[1])?;
        }
        let h = g.map([o, new, d], |[o, c, d]| self.act(0, o, d) * self.act(2, c, d))?;
        Ok(vec![h, new])
    }

    /// Tells the second direction from the first where their functions differ.
    fn backward<'b>(&self, g: &'b numrsc_ir::build::Graph) -> Result<X<'b>> {
        match &self.activations[..] {
            [first, second] if first != second => {
                g.iota(DType::I64, &[Dim::Const(2), Dim::ONE, Dim::ONE], 0)?.cast(DType::Bool)
            }
            _ => g.scalar(DType::Bool, 0.0),
        }
    }

    /// Activation function number `which` of a clipped input.
    fn act<'e>(&self, which: usize, x: S<'e>, backward: S<'e>) -> S<'e> {
        let x = self.clip.map_or(x, |c| x.clamp(-c, c));
        match &self.activations[..] {
            [first, second] if first != second => backward.select(second[which].of(x), first[which].of(x)),
            all => all[0][which].of(x),
        }
    }
}

/// `(x + h) + bias`, in the order of the reference.
fn added<'b>(h: X<'b>, x: X<'b>, bias: Option<X<'b>>) -> Result<X<'b>> {
    match bias {
        Some(b) => x.graph().map([x, h, b], |[x, h, b]| x + h + b),
        None => x.graph().map([x, h], |[x, h]| x + h),
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Activation {
    Relu,
    Tanh,
    Sigmoid,
    Affine(f64, f64),
    LeakyRelu(f64),
    ThresholdedRelu(f64),
    ScaledTanh(f64, f64),
    HardSigmoid(f64, f64),
    Elu(f64),
    Softsign,
    Softplus,
}

impl Activation {
    fn of(self, x: S<'_>) -> S<'_> {
        match self {
            Activation::Relu => x.relu(),
            Activation::Tanh => x.tanh(),
            Activation::Sigmoid => x.sigmoid(),
            Activation::Affine(a, b) => x * a + b,
            Activation::LeakyRelu(a) => x.lt(0.0).select(x * a, x),
            Activation::ThresholdedRelu(a) => x.ge(a).select(x, 0.0),
            Activation::ScaledTanh(a, b) => (x * b).tanh() * a,
            Activation::HardSigmoid(a, b) => (x * a + b).clamp(0.0, 1.0),
            Activation::Elu(a) => x.lt(0.0).select(x.expm1() * a, x),
            Activation::Softsign => x / (x.abs() + 1.0),
            Activation::Softplus => x.softplus(),
        }
    }
}

/// The activation functions of each direction. They take their alphas and betas from the lists in order; what the lists
/// do not have is the default of the operator of the same name.
fn activations(cell: Cell, how: &How, directions: usize) -> Result<Vec<Vec<Activation>>> {
    let per = cell.functions().len();
    let names: Vec<String> = match &how.activations {
        Some(names) => names.clone(),
        None => cell.functions().repeat(directions).iter().map(|s| (*s).to_string()).collect(),
    };
    // The default that the specification states for RNN has two names for one direction as well.
    let spare = matches!(cell, Cell::Rnn) && names.len() > directions;
    if names.len() != per * directions && !spare {
        refuse!("{} activation functions are needed, `activations` has {}", per * directions, names.len());
    }
    let (mut alphas, mut betas) = (how.activation_alpha.iter().copied(), how.activation_beta.iter().copied());
    let mut all = Vec::new();
    for name in names.iter().take(per * directions) {
        let mut alpha = |default: f64| alphas.next().unwrap_or(default);
        let mut beta = |default: f64| betas.next().unwrap_or(default);
        all.push(match name.to_ascii_lowercase().as_str() {
            "relu" => Activation::Relu,
            "tanh" => Activation::Tanh,
            "sigmoid" => Activation::Sigmoid,
            "affine" => Activation::Affine(alpha(1.0), beta(0.0)),
            "leakyrelu" => Activation::LeakyRelu(alpha(0.01)),
            "thresholdedrelu" => Activation::ThresholdedRelu(alpha(1.0)),
            "scaledtanh" => match (alphas.next(), betas.next()) {
                (Some(a), Some(b)) => Activation::ScaledTanh(a, b),
                _ => refuse!("ScaledTanh needs a value in `activation_alpha` and in `activation_beta`"),
            },
            "hardsigmoid" => Activation::HardSigmoid(alpha(0.2), beta(0.5)),
            "elu" => Activation::Elu(alpha(1.0)),
            "softsign" => Activation::Softsign,
            "softplus" => Activation::Softplus,
            _ => refuse!("the activation function \"{name}\" is not known"),
        });
    }
    Ok(all.chunks(per).map(<[Activation]>::to_vec).collect())
}
