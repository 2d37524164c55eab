//! Sliding windows over the last axes, one line of results at a time: where windows lie completely inside the operand,
//! several results are computed at once. For window reductions, and for convolutions with few outputs per group, where
//! im2col does not pay.
use crate::{
    arg::Arg,
    element::ElementEmitter,
    epilogue::{Finish, Sink},
    nest::Lanes,
    pointwise::Kernel,
    reduce::{Sum, wrap},
};
use numrsc_facts::constants::is_finite;
use numrsc_ir::{
    DType, Dim, Op, Value,
    dim::Sym,
    kernel::{Binary, Kind, Ty, V, build::Builder},
};
use numrsc_scalar as scalar;
use numrsc_schedule::{epilogue::Epilogue, fuse::Scope, index::unravel, state::LowerState};

/// Windows up to this long are unrolled along the last axis, and along all axes if they have at most that many taps.
const WRITTEN_OUT: i64 = 8;
const FEW_TAPS: i64 = 16;
/// With more outputs per group, im2col is better.
const FEW_OUTPUTS: i64 = 3;

/// How the elements of a window are combined.
enum Combine {
    /// All of them, by a reduction.
    Reduce(Sum),
    /// A weighted sum over the channels of a group.
    Weigh { w: Value, w_shape: Vec<Dim>, groups: i64 },
}

/// How the taps of a window along an axis are enumerated.
enum Taps {
    WrittenOut(i64),
    /// From one to before another.
    Loop(V, V),
}

struct Windows {
    x: Value,
    dtype: DType,
    combine: Combine,
    input: Vec<Dim>,
    output: Vec<Dim>,
    taps: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    low: Vec<Dim>,
}

/// Is a convolution better computed window by window? Padding is then skipped, which is the same as long as no weight
/// times zero is NaN.
pub(crate) fn suits(scope: &Scope<'_>, v: Value) -> bool {
    let node = scope.func.node(v);
    let Op::Conv { spread, groups, .. } = &node.op else { return false };
    let w = scope.shape(node.args[1]);
    let few = w[0].as_const().is_some_and(|n| n / groups <= FEW_OUTPUTS && n % groups == 0);
    let finite = !scope.dtype(v).is_float()
        || matches!(&scope.func.node(node.args[1]).op, Op::Const { value } if is_finite(value));
    few && finite
        && *groups > 1
        && spread.iter().all(|&s| s == 1)
        && w.len() > 2
        && w[1..].iter().all(|d| d.as_const().is_some())
}

pub(crate) fn kernel(state: &mut LowerState, scope: &Scope<'_>, epilogue: &Epilogue) -> Kernel {
    let v = epilogue.product;
    let windows = Windows::new(state, scope, v);
    let mut builder = Builder::new(Kind::Kernel, &[]);
    let range = [builder.params()[0], builder.params()[1]];
    let mut em = ElementEmitter::for_kernel(&mut builder, state, scope);
    let output = em.parameter(Ty::PTR, Arg::Output);
    let shape = em.shape(v);
    let axes: Vec<Sym> = shape.iter().map(|n| em.variable(n)).collect();
    let any: Vec<Dim> = axes.iter().cloned().map(Dim::sym).collect();
    let out = Output { sink: epilogue.sink(&mut em, output, &any), axes };
    let in_place = epilogue.in_place(&mut em, &any);
    let (lines, line) = (shape[..shape.len() - 1].to_vec(), shape[shape.len() - 1].clone());
    let extent = Dim::product(&lines);
    let number = em.variable(&extent);
    em.range(&number.clone(), range[0], range[1], &[], |em, _| {
        let index = unravel(&Dim::sym(number.clone()), &lines, &em.extents);
        // Symbols for quotients that are computed once per line.
        let index: Vec<Dim> = index.iter().zip(&lines).map(|(i, n)| named(em, i, n)).collect();
        windows.line(em, &out, &index, &line);
        vec![]
    });
    let each: i64 = windows.taps.iter().product();
    let work = &line * &Dim::Const(1 + each / 2);
    let args = em.into_arguments();
    let name = scope.func.node(v).op.name();
    Kernel { function: builder.finish(format!("{name}_lines"), vec![]), args, extent, work, in_place }
}

/// Where results go, with the names of their axes there.
struct Output {
    sink: Sink,
    axes: Vec<Sym>,
}

impl Output {
    fn put(&self, em: &mut ElementEmitter<'_>, at: &[Dim], x: V) {
        self.sink.put(em, &|s| self.axes.iter().position(|a| a == s).map(|a| at[a].clone()), x);
    }
}

/// A name for an index below a size.
fn named(em: &mut ElementEmitter<'_>, d: &Dim, size: &Dim) -> Dim {
    if d.as_const().is_some() || d.as_sym().is_some() {
        return d.clone();
    }
    let v = em.uniform(d);
    let name = em.variable(size);
    em.symbols.insert(name.clone(), v);
    Dim::sym(name)
}

/// Combine the elements of a window, tap by tap in the order of its axes.
fn over_taps(
    em: &mut ElementEmitter<'_>,
    axes: &[Taps],
    outer: &[Dim],
    sum: V,
    body: &mut dyn FnMut(&mut ElementEmitter<'_>, &[Dim], V) -> V,
) -> V {
    let Some((axis, rest)) = axes.split_first() else { return body(em, outer, sum) };
    let mut inside =
        |em: &mut ElementEmitter<'_>, tap: Dim, sum: V| over_taps(em, rest, &[outer, &[tap]].concat(), sum, body);
    match *axis {
        Taps::WrittenOut(count) => (0..count).fold(sum, |sum, t| inside(em, Dim::Const(t), sum)),
        Taps::Loop(low, high) => {
            let var = em.fresh(false);
            em.range(&var.clone(), low, high, &[sum], |em, sums| vec![inside(em, Dim::sym(var.clone()), sums[0])])[0]
        }
    }
}

impl Windows {
    #[allow(clippy::wildcard_enum_match_arm, reason = "`product` gives convolutions and windows")]
    fn new(state: &mut LowerState, scope: &Scope<'_>, v: Value) -> Windows {
        let node = scope.func.node(v);
        let x = node.args[0];
        let sizes =
            |state: &mut LowerState, v: Value| scope.shape(v).iter().map(|d| state.size(d)).collect::<Vec<Dim>>();
        let x_shape = sizes(state, x);
        let dtype = scope.dtype(x);
        let (taps, strides, dilations, low, combine) = match &node.op {
            Op::Window { f, size, strides, dilations, low, .. } => {
                (size.clone(), strides, dilations, low, Combine::Reduce(Sum { f: *f, dtype }))
            }
            Op::Conv { strides, dilations, low, groups, .. } => {
                let w_shape = sizes(state, node.args[1]);
                let taps = w_shape[2..].iter().map(|d| d.as_const().expect("checked by `suits`")).collect();
                (taps, strides, dilations, low, Combine::Weigh { w: node.args[1], w_shape, groups: *groups })
            }
            op => unreachable!("`{op}` has no windows"),
        };
        let lead = x_shape.len() - taps.len();
        Windows {
            x,
            dtype,
            combine,
            input: x_shape[lead..].to_vec(),
            output: sizes(state, v)[lead..].to_vec(),
            taps,
            strides: strides.clone(),
            dilations: dilations.clone(),
            low: low.iter().map(|d| state.attribute(d)).collect(),
        }
    }

    /// All results of one line: windows are clipped at its ends, complete in between.
    fn line(&self, em: &mut ElementEmitter<'_>, output: &Output, index: &[Dim], line: &Dim) {
        let last = self.taps.len() - 1;
        let stride = Dim::Const(self.strides[last]);
        let reach = Dim::Const((self.taps[last] - 1) * self.dilations[last]);
        let whole_from = self.low[last].ceil_div(&stride);
        let whole_to = &(&(&(&self.input[last] - &Dim::ONE) + &self.low[last]) - &reach).floor_div(&stride) + &Dim::ONE;
        let (zero, count) = (em.b.i64(0), em.uniform(line));
        let (from, to) = (em.uniform(&whole_from), em.uniform(&whole_to));
        let from = em.b.binary(Binary::SMax, from, zero);
        let from = em.b.binary(Binary::SMin, from, count);
        let to = em.b.binary(Binary::SMax, to, from);
        let to = em.b.binary(Binary::SMin, to, count);

        let place = |var: &Sym| [index, &[Dim::sym(var.clone())]].concat();
        let ends = em.variable(line);
        for (low, high) in [(zero, from), (to, count)] {
            em.range(&ends, low, high, &[], |em, _| {
                let at = place(&ends);
                let x = self.element(em, &at, false);
                output.put(em, &at, x);
                vec![]
            });
        }
        let middle = em.variable(line);
        let bytes = scalar::number(self.dtype).size().max(scalar::memory(self.dtype).size());
        let lanes = output.sink.lanes(line, em.state.context.machine.lanes(bytes as u32));
        let at = place(&middle);
        let lanes = Lanes { most: lanes, masked: false };
        em.by_vectors(&middle, (from, to), lanes, &[], &mut |_, _| vec![], &mut |em, _| {
            let x = self.element(em, &at, true);
            output.put(em, &at, x);
            vec![]
        });
    }

    /// The result at an index; `whole` if the window is not clipped along the last axis.
    fn element(&self, em: &mut ElementEmitter<'_>, index: &[Dim], whole: bool) -> V {
        let lead = index.len() - self.taps.len();
        let start: Vec<Dim> =
            (0..self.taps.len()).map(|d| &(&index[lead + d] * &Dim::Const(self.strides[d])) - &self.low[d]).collect();
        let last = self.taps.len() - 1;
        let few = self.taps.iter().product::<i64>() <= FEW_TAPS;
        let mut axes = Vec::new();
        for (d, start) in start.iter().enumerate() {
            let is_whole = if d == last { whole } else { self.is_never_cut_off(d) };
            let is_short = if d == last { self.taps[d] <= WRITTEN_OUT } else { few };
            axes.push(match is_whole {
                true if is_short => Taps::WrittenOut(self.taps[d]),
                true => Taps::Loop(em.b.i64(0), em.b.i64(self.taps[d])),
                false => {
                    let (begin, end) = em.taps(start, &self.input[d], self.taps[d], self.dilations[d]);
                    Taps::Loop(begin, end)
                }
            });
        }
        let zero = self.neutral(em);
        let sum = self.over_channels(em, zero, &mut |em, channel, sum| {
            over_taps(em, &axes, &[], sum, &mut |em, taps, sum| self.add(em, index, channel, &start, taps, sum))
        });
        self.finish(em, sum)
    }

    /// Do all windows lie inside of the operand along an axis, as far as sizes tell?
    fn is_never_cut_off(&self, d: usize) -> bool {
        let reach = (self.taps[d] - 1) * self.dilations[d];
        let end = &(&(&self.output[d] - &Dim::ONE) * &Dim::Const(self.strides[d])) + &Dim::Const(reach);
        self.low[d] == Dim::ZERO && (&self.input[d] - &end).as_const().is_some_and(|n| n > 0)
    }

    fn neutral(&self, em: &mut ElementEmitter<'_>) -> V {
        match &self.combine {
            Combine::Reduce(sum) => sum.neutral(em, em.lanes),
            Combine::Weigh { .. } => {
                let ty = Ty::vector(scalar::number(self.dtype), em.lanes);
                if ty.elem.is_float() { em.b.float(ty, 0.0) } else { em.b.int(ty, 0) }
            }
        }
    }

    fn finish(&self, em: &mut ElementEmitter<'_>, sum: V) -> V {
        match &self.combine {
            Combine::Reduce(s) => s.narrow(em, sum),
            Combine::Weigh { .. } if self.dtype.is_float() => scalar::round_float(em.b, sum, self.dtype),
            Combine::Weigh { .. } => sum,
        }
    }

    /// A convolution also sums over the channels of its group.
    fn over_channels(
        &self,
        em: &mut ElementEmitter<'_>,
        init: V,
        body: &mut dyn FnMut(&mut ElementEmitter<'_>, &Dim, V) -> V,
    ) -> V {
        match &self.combine {
            Combine::Reduce(_) => body(em, &Dim::ZERO, init),
            Combine::Weigh { w_shape, .. } if w_shape[1] == Dim::ONE => body(em, &Dim::ZERO, init),
            Combine::Weigh { w_shape, .. } => {
                let var = em.variable(&w_shape[1]);
                em.carry(&[(var.clone(), w_shape[1].clone())], &[init], &mut |em, inside| {
                    vec![body(em, &Dim::sym(var.clone()), inside[0])]
                })[0]
            }
        }
    }

    /// Combines one element of a window with the accumulator.
    fn add(&self, em: &mut ElementEmitter<'_>, index: &[Dim], channel: &Dim, start: &[Dim], taps: &[Dim], sum: V) -> V {
        let lead = index.len() - self.taps.len();
        let mut at = index.to_vec();
        for d in 0..self.taps.len() {
            at[lead + d] = &start[d] + &(&taps[d] * &Dim::Const(self.dilations[d]));
        }
        match &self.combine {
            Combine::Reduce(s) => {
                let item = em.value(self.x, &at);
                let item = s.widen(em, item);
                s.combine(em, sum, item)
            }
            Combine::Weigh { w, w_shape, groups } => {
                let output = index[1].clone();
                let per_group = w_shape[0].as_const().map_or(1, |n| n / groups);
                let group = if per_group == 1 { output.clone() } else { output.floor_div(&Dim::Const(per_group)) };
                at[1] = &(&group * &w_shape[1]) + channel;
                let item = em.value(self.x, &at);
                let weight = em.value(*w, &[&[output, channel.clone()], taps].concat());
                if self.dtype.is_float() {
                    return em.b.muladd(item, weight, sum);
                }
                let product = em.b.mul(item, weight);
                let sum = em.b.add(sum, product);
                wrap(em, self.dtype, sum)
            }
        }
    }
}
