//! Products of sparse rows, such as those behind a rectifier: the columns take longer to read than to use, so only the
//! elements that meet a nonzero are read.
//!
//! For each part of the depth, the nonzero elements and their positions are listed first, by code without unpredictable
//! branches. What is skipped would have added zeros: columns are finite constants, and NaN and infinities in the row
//! are not zero.
use crate::{
    element::ElementEmitter,
    gemm::{At, Gemm, Part, UNROLL},
    tile::{Column, Operands, multiply_add},
};
use numrsc_facts::{float_ranges, ops::is_view};
use numrsc_ir::{
    DType, Dim, Func, Op, Value,
    dim::Sym,
    kernel::{Compare, Convert, Elem, Ty, V},
};

/// Columns of fewer bytes stay in a cache, and reading them is as fast as making the list.
const LEAST_BYTES: i64 = 256 << 10;

/// Is a tensor behind a rectifier, so that its smallest possible element is 0?
pub(super) fn is_rectified(func: &Func, mut v: Value) -> bool {
    while is_view(&func.node(v).op) {
        v = func.node(v).args[0];
    }
    let node = func.node(v);
    let Op::Map { f } = &node.op else { return false };
    let dtypes: Option<Vec<DType>> = node.args.iter().map(|&a| func.ty(a).as_tensor().ok().map(|t| t.dtype)).collect();
    let types = dtypes.and_then(|d| f.types(&d).ok());
    types.is_some_and(|types| {
        types.last() == Some(&DType::F32) && float_ranges::ranges(f, &types).last().is_some_and(|r| r.0 == 0.0)
    })
}

impl Gemm {
    /// Does a tile skip zeros? Rows that share columns have their zeros in different places.
    pub(super) fn leaves_out_zeros(&self, em: &ElementEmitter<'_>, at: &At) -> bool {
        let listed = self.depth.len() == 1 && self.most_at_once().is_some();
        let far = self.b.length.as_const().is_some_and(|n| n * self.b.bytes() >= LEAST_BYTES);
        let alone = at.height == 1 && at.panels > 1;
        self.rectified && far && alone && listed && !em.state.context.options.sanitize && !em.state.context.device
    }

    /// The largest length of a list.
    fn most_at_once(&self) -> Option<i64> {
        self.summed_depth().or_else(|| self.depth.last()?.1.as_const())
    }

    /// The sums after a part of the depth, over nonzero elements.
    pub(super) fn along_nonzero(
        &self,
        em: &mut ElementEmitter<'_>,
        operands: &Operands<'_>,
        (part, first): (&Part, &Sym),
        columns: &[Column],
        start: &[V],
    ) -> Vec<V> {
        let most = self.most_at_once().expect("lists have a length") as u32;
        let (values, rounds) = (em.b.buffer(Elem::I32, most), em.b.buffer(Elem::I64, most));
        let none = em.b.i64(0);
        let count = unrolled(em, part.count, &[none], &mut |em, round, listed| {
            let bits = operands.bits_of_row(em, &(&Dim::sym(first.clone()) + round));
            let at = em.uniform(round);
            em.b.store(values, listed[0], bits);
            em.b.store(rounds, listed[0], at);
            // Both zeros have no bit set but the sign.
            let (magnitude, zero) = (em.b.add(bits, bits), em.b.int(em.b.ty(bits), 0));
            let counts = em.b.compare(Compare::Ne, magnitude, zero);
            let counts = em.b.convert(Convert::ZExt, counts, Elem::I64);
            vec![em.b.add(listed[0], counts)]
        })[0];
        let dtype = self.out.dtype(em);
        unrolled(em, count, start, &mut |em, number, sums| {
            let number = em.uniform(number);
            let round = em.fresh(false);
            let at = em.b.load(Ty::I64, rounds, number);
            em.symbols.insert(round.clone(), at);
            let x = em.b.load(Ty::F32, values, number);
            let x = em.b.splat(x, self.tile.lanes);
            let depth = &Dim::sym(first.clone()) + &Dim::sym(round);
            let b = operands.of_columns(em, (&depth, 1), columns);
            sums.iter().zip(b).map(|(&sum, b)| multiply_add(em, dtype, x, b, sum)).collect()
        })
    }
}

/// The round with this number: what it makes of what is carried.
type Round<'r> = dyn FnMut(&mut ElementEmitter<'_>, &Dim, &[V]) -> Vec<V> + 'r;

/// A loop whose rounds are written out several at a time, and what it carries.
fn unrolled(em: &mut ElementEmitter<'_>, count: V, start: &[V], f: &mut Round<'_>) -> Vec<V> {
    let (mut low, mut carried) = (em.b.i64(0), start.to_vec());
    for step in [UNROLL, 1] {
        let size = em.b.i64(step);
        let left = em.b.urem(count, size);
        let high = em.b.sub(count, left);
        if em.b.as_const(low).is_some() && em.b.as_const(low) == em.b.as_const(high) {
            continue;
        }
        let open = em.b.open_for(&carried);
        let round = em.fresh(false);
        em.symbols.insert(round.clone(), open.var);
        let inside = (0..step)
            .fold(open.inside.clone(), |inside, u| f(em, &(&Dim::sym(round.clone()) + &Dim::Const(u)), &inside));
        carried = em.b.close_for(open, low, high, step, inside);
        low = high;
    }
    carried
}
