//! Products of a row that is full of zeros, as rows behind a rectifier are: of the columns, which take longer to read than to use, only those elements are read that
//! meet something else.
//!
//! For each part of the depth, what is not zero and where it is are listed first, without a branch that nobody could predict. What is left out would have added zeros:
//! columns are constants that are finite, and whatever is not a number in the row is not zero either.
use super::{
    cx::Cx,
    fuse::is_view,
    gemm::{At, Gemm, Part, UNROLL},
    tile::{Column, Operands, multiply_add},
};
use crate::scalar::range;
use numrsc_ir::{
    DType, Dim, Func, Op, Value,
    dim::Sym,
    kernel::{Compare, Convert, Elem, Ty, V},
};

/// Columns of fewer bytes stay in a cache that is as fast as making a list.
const LEAST_BYTES: i64 = 256 << 10;

/// Is a tensor behind a rectifier: is its least element 0?
pub(super) fn is_rectified(func: &Func, mut v: Value) -> bool {
    while is_view(&func.node(v).op) {
        v = func.node(v).args[0];
    }
    let node = func.node(v);
    let Op::Map { f } = &node.op else { return false };
    let dtypes: Option<Vec<DType>> = node.args.iter().map(|&a| func.ty(a).as_tensor().ok().map(|t| t.dtype)).collect();
    let types = dtypes.and_then(|d| f.types(&d).ok());
    types.is_some_and(|types| {
        types.last() == Some(&DType::F32) && range::ranges(f, &types).last().is_some_and(|r| r.0 == 0.0)
    })
}

impl Gemm {
    /// Does a tile leave out what meets zeros? Rows that share columns have their zeros in different places.
    pub(super) fn leaves_out_zeros(&self, cx: &Cx<'_>, at: &At) -> bool {
        let listed = self.depth.len() == 1 && self.most_at_once().is_some();
        let far = self.b.length.as_const().is_some_and(|n| n * self.b.bytes() >= LEAST_BYTES);
        let alone = at.height == 1 && at.panels > 1;
        self.rectified && far && alone && listed && !cx.shared.context.options.sanitize && !cx.shared.context.device
    }

    /// How long a list may be.
    fn most_at_once(&self) -> Option<i64> {
        self.summed_depth().or_else(|| self.depth.last()?.1.as_const())
    }

    /// The sums after a part of the depth, of what is not zero.
    pub(super) fn along_nonzero(
        &self,
        cx: &mut Cx<'_>,
        operands: &Operands<'_>,
        (part, first): (&Part, &Sym),
        columns: &[Column],
        start: &[V],
    ) -> Vec<V> {
        let most = self.most_at_once().expect("lists have a length") as u32;
        let (values, rounds) = (cx.b.buffer(Elem::I32, most), cx.b.buffer(Elem::I64, most));
        let none = cx.b.i64(0);
        let count = unrolled(cx, part.count, &[none], &mut |cx, round, listed| {
            let bits = operands.bits_of_row(cx, &(&Dim::sym(first.clone()) + round));
            let at = cx.uniform(round);
            cx.b.store(values, listed[0], bits);
            cx.b.store(rounds, listed[0], at);
            // Of both zeros, no bit but the sign is set.
            let (magnitude, zero) = (cx.b.add(bits, bits), cx.b.int(cx.b.ty(bits), 0));
            let counts = cx.b.compare(Compare::Ne, magnitude, zero);
            let counts = cx.b.convert(Convert::ZExt, counts, Elem::I64);
            vec![cx.b.add(listed[0], counts)]
        })[0];
        let dtype = self.out.dtype(cx);
        unrolled(cx, count, start, &mut |cx, number, sums| {
            let number = cx.uniform(number);
            let round = cx.fresh(false);
            let at = cx.b.load(Ty::I64, rounds, number);
            cx.symbols.insert(round.clone(), at);
            let x = cx.b.load(Ty::F32, values, number);
            let x = cx.b.splat(x, self.tile.lanes);
            let depth = &Dim::sym(first.clone()) + &Dim::sym(round);
            let b = operands.of_columns(cx, (&depth, 1), columns);
            sums.iter().zip(b).map(|(&sum, b)| multiply_add(cx, dtype, x, b, sum)).collect()
        })
    }
}

/// The round with this number: what it makes of what is carried.
type Round<'r> = dyn FnMut(&mut Cx<'_>, &Dim, &[V]) -> Vec<V> + 'r;

/// A loop whose rounds are written out several at a time, and what it carries.
fn unrolled(cx: &mut Cx<'_>, count: V, start: &[V], f: &mut Round<'_>) -> Vec<V> {
    let (mut low, mut carried) = (cx.b.i64(0), start.to_vec());
    for step in [UNROLL, 1] {
        let size = cx.b.i64(step);
        let left = cx.b.urem(count, size);
        let high = cx.b.sub(count, left);
        if cx.b.as_const(low).is_some() && cx.b.as_const(low) == cx.b.as_const(high) {
            continue;
        }
        let open = cx.b.open_for(&carried);
        let round = cx.fresh(false);
        cx.symbols.insert(round.clone(), open.var);
        let inside = (0..step)
            .fold(open.inside.clone(), |inside, u| f(cx, &(&Dim::sym(round.clone()) + &Dim::Const(u)), &inside));
        carried = cx.b.close_for(open, low, high, step, inside);
        low = high;
    }
    carried
}
