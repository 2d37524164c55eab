//! Sums of products in register tiles: a few rows by a few vectors of columns, with all accumulators in registers. Contractions and convolutions differ
//! only in where operands and results lie.
//!
//! The columns of `b` are read in panels as wide as a tile. A panel is used by all rows of a block before the next one, a part of the depth at a time, so
//! that the part stays in the nearest cache; it is fetched into the cache while the panel before it is used. Every sum goes along the depth in order, part by part:
//! neither tiles nor blocks nor threads change its rounding.
use super::{
    cx::{Cx, Lane},
    epilogue::Sink,
    index::unravel,
    tile::{Column, Operands, Place, Tile, ceil_div},
};
use crate::scalar;
use numrsc_ir::{
    Dim,
    dim::Sym,
    kernel::{Binary, Compare, Ty, V},
};

/// Rounds of the depth that are written out.
pub(super) const UNROLL: i64 = 4;
/// Panels that few rows go through at once, for enough independent sums.
const GROUP: i64 = 2;
/// The numbers of rows that may do so: what batches are, as each takes code of its own.
const GROUP_ROWS: [i64; 3] = [1, 2, 4];
/// A panel is used by this much of the depth at a time, times the steps that are done at once, unless all of it is little more.
const DEPTH: i64 = 256;
/// Bytes of the rows of a block, as far as there are not too few or too many rows.
const BLOCK_BYTES: i64 = 384 << 10;
const BLOCK_ROWS: std::ops::RangeInclusive<i64> = 132..=240;
pub(super) const CACHE_LINE: i64 = 64;

/// `out[row, column] = Σ a[row, depth] * b[depth, column]` for every round of the outer loops. Where `b` is read is said by the number of a panel and the
/// number of a column within it; positions are consecutive in the latter.
pub(crate) struct Gemm {
    pub a: Place,
    pub b: Place,
    pub out: Sink,
    pub row: Sym,
    pub rows: Dim,
    /// The most rows of a block, if that is not for it to choose.
    pub most_rows: Option<i64>,
    pub column: Sym,
    pub panel: Sym,
    pub within: Sym,
    pub columns: Dim,
    pub depth: Vec<(Sym, Dim)>,
    pub tile: Tile,
    /// Steps of the depth that are done at once; those of `a` lie side by side then. Two of integers with signs, of 16 bits or fewer; four of integers of 8 bits, of which
    /// those of `a` have no sign, and those of `b` are grouped.
    pub at_once: i64,
    /// Are there likely zeros in `a`, and nothing in `b` that makes more of them than zeros?
    pub rectified: bool,
}

/// A part of the rows or panels: the first, and how many or where they end.
pub(super) type Span = (V, V);

/// The part of the depth that a tile sums over.
#[derive(Clone)]
pub(super) struct Part {
    /// Its first round, if there is one loop.
    pub first: V,
    pub count: V,
    /// Sums that go on from part to part: the memory they are kept in, and whether this part is the first and the last.
    pub kept: Option<(V, V, V)>,
}

/// One tile: its number of rows, panels and vectors of each, where it begins, and which one of how many in the block it is.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub height: u32,
    pub panels: u32,
    pub vectors: u32,
    pub row: V,
    /// Its first row in the block.
    pub inside: V,
    pub panel: V,
    pub number: V,
    pub tiles: V,
}

impl Gemm {
    pub(super) fn height(&self) -> i64 {
        i64::from(self.tile.rows)
    }

    fn panels(&self) -> Dim {
        self.columns.ceil_div(&Dim::Const(self.tile.width()))
    }

    /// Panels of a unit.
    fn group(&self) -> i64 {
        if self.rows.as_const().is_none_or(|n| self.together(n)) { self.panels_at_once() } else { 1 }
    }

    /// Panels that few rows go through at once. Narrow integers are there before the sums are that they are added to, so it takes more of these, as far as
    /// registers go.
    fn panels_at_once(&self) -> i64 {
        if self.at_once > 1 && self.height() >= 4 * GROUP { 2 * GROUP } else { GROUP }
    }

    /// Do so many rows go through several panels at once? Their sums are no more than those of a tile then.
    fn together(&self, rows: i64) -> bool {
        GROUP_ROWS.contains(&rows) && rows * self.panels_at_once() <= self.height()
    }

    /// May there be so few rows that reading the columns takes longer than using them?
    pub(crate) fn may_have_few_rows(&self) -> bool {
        self.group() > 1
    }

    /// Rows of a unit.
    pub(super) fn block(&self) -> i64 {
        let most = self.most_rows.unwrap_or_else(|| {
            let row_bytes = self.depth_size().as_const().unwrap_or(DEPTH).max(1) * self.a.bytes();
            (BLOCK_BYTES / row_bytes).clamp(*BLOCK_ROWS.start(), *BLOCK_ROWS.end()) / self.height() * self.height()
        });
        match self.rows.as_const() {
            Some(n) => ceil_div(n.max(1), ceil_div(n.max(1), most)),
            None => most,
        }
    }

    fn depth_size(&self) -> Dim {
        Dim::product(self.depth.iter().map(|(_, n)| n))
    }

    fn unit_sizes(&self, outer: &[(Sym, Dim)]) -> Vec<Dim> {
        let mut sizes: Vec<Dim> = outer.iter().map(|(_, n)| n.clone()).collect();
        sizes.push(self.rows.ceil_div(&Dim::Const(self.block())));
        sizes.push(self.panels().ceil_div(&Dim::Const(self.group())));
        sizes
    }

    /// The number of units that [`Gemm::unit`] does.
    pub(crate) fn units(&self, outer: &[(Sym, Dim)]) -> Dim {
        Dim::product(&self.unit_sizes(outer))
    }

    /// A rough count of instructions for a unit.
    pub(crate) fn work(&self) -> Dim {
        let rows = self.rows.lesser(&Dim::Const(self.block()));
        &(&self.depth_size() * &rows) * &Dim::Const(self.group() * i64::from(self.tile.vectors))
    }

    /// A block of rows by a few panels, in one round of the outer loops.
    pub(crate) fn unit(&self, cx: &mut Cx<'_>, outer: &[(Sym, Dim)], number: &Sym) {
        let index = unit_index(cx, outer, &self.unit_sizes(outer), number);
        let rows = block_of_rows(cx, &index[0], &self.rows, (self.block(), self.height()));
        let all = cx.shared.size(&self.panels());
        let (each, all) = (cx.b.i64(self.group()), cx.uniform(&all));
        let (first, count) = part(cx, &index[1], each, all);
        let end = cx.b.add(first, count);
        self.span(cx, rows, (first, end));
    }

    /// A block of rows by all panels.
    pub(crate) fn all_panels(&self, cx: &mut Cx<'_>, rows: Span) {
        let all = cx.shared.size(&self.panels());
        let (zero, all) = (cx.b.i64(0), cx.uniform(&all));
        let (open, group) = (cx.b.open_for(&[]), cx.b.i64(self.group()));
        let end = cx.b.add(open.var, group);
        let end = cx.b.binary(Binary::SMin, end, all);
        self.span(cx, rows, (open.var, end));
        cx.b.close_for(open, zero, all, self.group(), vec![]);
    }

    /// A block of rows by the panels up to an end.
    pub(crate) fn block_by_panels(&self, cx: &mut Cx<'_>, number: &Dim, end: V) {
        let rows = block_of_rows(cx, number, &self.rows, (self.block(), self.height()));
        let zero = cx.b.i64(0);
        self.span(cx, rows, (zero, end));
    }

    /// So many rows by the panels up to an end.
    fn span(&self, cx: &mut Cx<'_>, rows: Span, panels: Span) {
        let few: Vec<u32> =
            self.heights().into_iter().filter(|&h| self.group() > 1 && self.together(i64::from(h))).collect();
        self.few_rows(cx, &few, rows, panels);
    }

    /// Few rows take several panels at once.
    fn few_rows(&self, cx: &mut Cx<'_>, few: &[u32], rows: Span, panels: Span) {
        let Some((&height, others)) = few.split_first() else { return self.panel_by_panel(cx, rows, panels) };
        let wanted = cx.b.i64(i64::from(height));
        let so_many = cx.b.compare(Compare::Eq, rows.1, wanted);
        let (count, group) = (cx.b.sub(panels.1, panels.0), cx.b.i64(self.group()));
        let group_there = cx.b.compare(Compare::Eq, count, group);
        let width = cx.b.i64(self.tile.width());
        let (end, columns) = (cx.b.mul(panels.1, width), cx.uniform(&self.columns));
        let fits = cx.b.compare(Compare::Le, end, columns);
        let fits = if self.b.padded { cx.b.bits(Ty::I1, 1) } else { fits };
        let together = cx.b.and(so_many, group_there);
        let together = cx.b.and(together, fits);
        branch(cx, together, &mut |cx, together| {
            if !together {
                return self.few_rows(cx, others, rows, panels);
            }
            let (zero, one) = (cx.b.i64(0), cx.b.i64(1));
            let part = Part { first: zero, count: self.last_depth(cx), kept: None };
            let (panels, panel, vectors) = (self.group() as u32, panels.0, self.tile.vectors);
            let at = At { height, panels, vectors, row: rows.0, inside: zero, panel, number: zero, tiles: one };
            self.tile(cx, &at, &part);
        });
    }

    fn last_depth(&self, cx: &mut Cx<'_>) -> V {
        match self.depth.last() {
            Some((_, n)) => cx.uniform(n),
            None => cx.b.i64(1),
        }
    }

    fn panel_by_panel(&self, cx: &mut Cx<'_>, rows: Span, (first, end): Span) {
        let open = cx.b.open_for(&[]);
        let panel = open.var;
        let all = self.last_depth(cx);
        match self.part_of_depth() {
            None => {
                let zero = cx.b.i64(0);
                self.tiles(cx, rows, panel, &Part { first: zero, count: all, kept: None });
            }
            Some(size) => {
                let elem = scalar::number(self.out.dtype(cx));
                let memory = cx.b.buffer(elem, (self.block() * self.tile.width()) as u32);
                let (zero, most) = (cx.b.i64(0), cx.b.i64(size));
                let parts = cx.b.open_for(&[]);
                let left = cx.b.sub(all, parts.var);
                let count = cx.b.binary(Binary::SMin, left, most);
                let is_first = cx.b.compare(Compare::Eq, parts.var, zero);
                let is_last = cx.b.compare(Compare::Le, left, most);
                self.tiles(cx, rows, panel, &Part { first: parts.var, count, kept: Some((memory, is_first, is_last)) });
                // Without any depth, one round stores the zeros.
                let one = cx.b.i64(1);
                let rounds = cx.b.binary(Binary::SMax, all, one);
                cx.b.close_for(parts, zero, rounds, size, vec![]);
            }
        }
        cx.b.close_for(open, first, end, 1, vec![]);
    }

    /// How much of the depth a panel is used for at a time, if not for all of it.
    fn part_of_depth(&self) -> Option<i64> {
        let one_tile = self.rows.as_const().is_some_and(|n| n <= self.height());
        self.summed_depth().filter(|_| !one_tile)
    }

    /// How much of the depth is summed up by itself, if not all of it: errors of rounding grow with the length of a sum.
    pub(super) fn summed_depth(&self) -> Option<i64> {
        let [(_, n)] = &self.depth[..] else { return None };
        let (most, whole) = (DEPTH * self.at_once, UNROLL * self.at_once);
        match n.as_const() {
            Some(n) if n <= most * 3 / 2 => None,
            Some(n) => Some(ceil_div(ceil_div(n, ceil_div(n, most)), whole) * whole),
            None => Some(most),
        }
    }

    /// How loops go along the depth, one after the other: by so many rounds, of which so many are done at once. The last one does what is left.
    fn steps(&self) -> Vec<(i64, i64)> {
        let n = self.at_once;
        let left = match self.depth.last().and_then(|(_, depth)| depth.as_const()) {
            Some(depth) => (depth % n).max(1),
            None => 1,
        };
        if n == 1 { vec![(UNROLL, 1), (1, 1)] } else { vec![(UNROLL * n, n), (n, n), (left, left)] }
    }

    /// The numbers of rows that tiles may have.
    fn heights(&self) -> Vec<u32> {
        let all: Vec<i64> = match self.rows.as_const() {
            None => (1..=self.height()).collect(),
            Some(n) => {
                let block = self.block();
                [block.min(n), n % block]
                    .into_iter()
                    .filter(|n| *n > 0)
                    .flat_map(|n| {
                        let tiles = ceil_div(n, self.height());
                        [n / tiles, ceil_div(n, tiles)]
                    })
                    .collect()
            }
        };
        let mut heights: Vec<u32> = all.into_iter().map(|n| n as u32).collect();
        heights.sort_unstable();
        heights.dedup();
        heights.reverse();
        heights
    }

    /// All rows of a block by one panel, in tiles of nearly the same height.
    fn tiles(&self, cx: &mut Cx<'_>, (first, count): Span, panel: V, part: &Part) {
        let (zero, one, height) = (cx.b.i64(0), cx.b.i64(1), cx.b.i64(self.height()));
        let (up, tiles) = (cx.b.i64(self.height() - 1), count);
        let tiles = cx.b.add(tiles, up);
        let tiles = cx.b.udiv(tiles, height);
        let low = cx.b.udiv(count, tiles);
        let in_low = cx.b.mul(low, tiles);
        let higher = cx.b.sub(count, in_low);
        let high = cx.b.add(low, one);
        let lower = cx.b.sub(tiles, higher);
        let before = cx.b.mul(higher, high);
        for h in self.heights() {
            let size = cx.b.i64(i64::from(h));
            let (is_high, is_low) = (cx.b.compare(Compare::Eq, size, high), cx.b.compare(Compare::Eq, size, low));
            let of_low = cx.b.select(is_low, lower, zero);
            let here = cx.b.select(is_high, higher, of_low);
            if cx.b.as_const(here) == Some(0) {
                continue;
            }
            let (start, number) = (cx.b.select(is_high, zero, before), cx.b.select(is_high, zero, higher));
            let open = cx.b.open_for(&[]);
            let rows = cx.b.mul(open.var, size);
            let inside = cx.b.add(start, rows);
            let (row, number) = (cx.b.add(first, inside), cx.b.add(number, open.var));
            let vectors = self.tile.vectors;
            self.tile(cx, &At { height: h, panels: 1, vectors, row, inside, panel, number, tiles }, part);
            cx.b.close_for(open, zero, here, 1, vec![]);
        }
    }

    /// One tile, or as many columns of it as there are.
    fn tile(&self, cx: &mut Cx<'_>, at: &At, part: &Part) {
        let all = self.columns.as_const().is_some_and(|n| n % self.tile.width() == 0);
        if self.b.padded && self.may_end_early(at) {
            let early = self.ends_early(cx, at);
            return branch(cx, early, &mut |cx, early| {
                let at = if early { At { vectors: 1, ..*at } } else { *at };
                self.sum(cx, &at, part, None);
            });
        }
        if self.b.padded || all {
            return self.sum(cx, at, part, None);
        }
        let fits = self.fits(cx, at, at.panels);
        branch(cx, fits, &mut |cx, fits| {
            let limit = (!fits).then(|| cx.uniform(&self.columns));
            self.sum(cx, at, part, limit);
        });
    }

    /// Can a tile be the last one, with so few columns that they are one vector? Only tiles of few heights are written out once more for that.
    fn may_end_early(&self, at: &At) -> bool {
        let left = self.columns.as_const().map_or(1, |n| n % self.tile.width());
        let few = (1..=i64::from(self.tile.lanes)).contains(&left) && self.rows.as_const().is_some();
        few && at.panels == 1 && at.vectors > 1
    }

    fn ends_early(&self, cx: &mut Cx<'_>, at: &At) -> V {
        let (width, lanes) = (cx.b.i64(self.tile.width()), cx.b.i64(i64::from(self.tile.lanes)));
        let (first, columns) = (cx.b.mul(at.panel, width), cx.uniform(&self.columns));
        let left = cx.b.sub(columns, first);
        cx.b.compare(Compare::Le, left, lanes)
    }

    /// Are there as many columns as in the first panels of a tile?
    fn fits(&self, cx: &mut Cx<'_>, at: &At, panels: u32) -> V {
        let (more, width) = (cx.b.i64(i64::from(panels)), cx.b.i64(self.tile.width()));
        let end = cx.b.add(at.panel, more);
        let (end, columns) = (cx.b.mul(end, width), cx.uniform(&self.columns));
        cx.b.compare(Compare::Le, end, columns)
    }

    /// The sums of a tile over a part of the depth, and what becomes of them.
    fn sum(&self, cx: &mut Cx<'_>, at: &At, part: &Part, limit: Option<V>) {
        let dtype = self.out.dtype(cx);
        let wide = Ty::vector(scalar::number(dtype), self.tile.lanes);
        let zero = if wide.elem.is_float() { cx.b.float(wide, 0.0) } else { cx.b.int(wide, 0) };
        let columns = self.columns_of(cx, at, limit);
        let count = at.height as usize * columns.len();
        let zeros = vec![zero; count];
        let sums = match (&part.kept, self.summed_depth()) {
            (None, Some(size)) => self.by_parts(cx, at, part, &columns, &zeros, size),
            (None, None) => self.along_depth(cx, at, part, &columns, &zeros),
            (Some((memory, is_first, _)), _) => {
                let own = self.along_depth(cx, at, part, &columns, &zeros);
                // Read only now: there are no registers for both.
                cx.b.open_branch();
                let none = cx.b.close_branch(zeros);
                cx.b.open_branch();
                let places = self.kept_at(cx, at, count);
                let kept = places.into_iter().map(|i| cx.b.load(wide, *memory, i)).collect();
                let kept = cx.b.close_branch(kept);
                let before = cx.b.close_if(*is_first, none, kept);
                before.iter().zip(own).map(|(before, own)| cx.b.add(*before, own)).collect()
            }
        };
        let Some((memory, _, is_last)) = part.kept else { return self.put(cx, at, limit, sums) };
        branch(cx, is_last, &mut |cx, is_last| {
            if is_last {
                return self.put(cx, at, limit, sums.clone());
            }
            let places = self.kept_at(cx, at, count);
            places.into_iter().zip(&sums).for_each(|(i, x)| cx.b.store(memory, i, *x));
        });
    }

    /// The sums of all of the depth where a tile does it at once: of the same parts as if it did not.
    fn by_parts(&self, cx: &mut Cx<'_>, at: &At, all: &Part, columns: &[Column], zeros: &[V], size: i64) -> Vec<V> {
        let (zero, most) = (cx.b.i64(0), cx.b.i64(size));
        let open = cx.b.open_for(zeros);
        let (left, first) = (cx.b.sub(all.count, open.var), cx.b.add(all.first, open.var));
        let count = cx.b.binary(Binary::SMin, left, most);
        let own = self.along_depth(cx, at, &Part { first, count, kept: None }, columns, zeros);
        let sums = open.inside.iter().zip(own).map(|(before, own)| cx.b.add(*before, own)).collect();
        cx.b.close_for(open, zero, all.count, size, sums)
    }

    /// Where the sums of a tile are between parts of the depth.
    fn kept_at(&self, cx: &mut Cx<'_>, at: &At, count: usize) -> Vec<V> {
        let width = cx.b.i64(self.tile.width());
        let first = cx.b.mul(at.inside, width);
        (0..count as i64)
            .map(|n| {
                let offset = cx.b.i64(n * i64::from(self.tile.lanes));
                cx.b.add(first, offset)
            })
            .collect()
    }

    fn columns_of(&self, cx: &mut Cx<'_>, at: &At, limit: Option<V>) -> Vec<Column> {
        let panel = cx.fresh(false);
        cx.symbols.insert(panel.clone(), at.panel);
        let vectors = (0..at.panels).flat_map(|p| (0..at.vectors).map(move |j| (p, j)));
        let mut columns = Vec::new();
        for (p, j) in vectors {
            let panel = &Dim::sym(panel.clone()) + &Dim::Const(i64::from(p));
            let within = i64::from(j * self.tile.lanes);
            let mask = limit.map(|limit| {
                let first = cx.uniform(&(&(&panel * &Dim::Const(self.tile.width())) + &Dim::Const(within)));
                cx.lanes_below(first, limit, self.tile.lanes)
            });
            columns.push(Column { panel, within, mask });
        }
        columns
    }

    /// The sums after a part of the depth.
    fn along_depth(&self, cx: &mut Cx<'_>, at: &At, part: &Part, columns: &[Column], start: &[V]) -> Vec<V> {
        let (row, first) = (cx.fresh(false), cx.fresh(false));
        cx.symbols.insert(row.clone(), at.row);
        cx.symbols.insert(first.clone(), part.first);
        let operands = Operands::new(self, cx, (&row, &columns[0].panel, &first));
        if self.leaves_out_zeros(cx, at) {
            return self.along_nonzero(cx, &operands, (part, &first), columns, start);
        }
        let outer = &self.depth[..self.depth.len().saturating_sub(1)];
        cx.carry(outer, start, &mut |cx, sums| {
            if self.depth.is_empty() {
                return operands.step(cx, (&Dim::ZERO, 1), at.height, columns, sums);
            }
            let (mut low, mut sums) = (cx.b.i64(0), sums.to_vec());
            let steps = self.steps();
            for (number, &(step, at_once)) in steps.iter().enumerate() {
                let size = cx.b.i64(step);
                let left = cx.b.urem(part.count, size);
                let whole = cx.b.sub(part.count, left);
                let high = if number + 1 == steps.len() { part.count } else { whole };
                if cx.b.as_const(low).is_some() && cx.b.as_const(low) == cx.b.as_const(high) {
                    continue;
                }
                let open = cx.b.open_for(&sums);
                let round = cx.fresh(false);
                cx.symbols.insert(round.clone(), open.var);
                let mut inside = open.inside.clone();
                if number == 0 {
                    operands.fetch_next(cx, at, part, (open.var, step));
                }
                for u in (0..step).step_by(at_once as usize) {
                    let depth = &(&Dim::sym(first.clone()) + &Dim::sym(round.clone())) + &Dim::Const(u);
                    inside = operands.step(cx, (&depth, at_once), at.height, columns, &inside);
                }
                sums = cx.b.close_for(open, low, high, step, inside);
                low = high;
            }
            sums
        })
    }

    /// Finish the sums of a tile.
    fn put(&self, cx: &mut Cx<'_>, at: &At, limit: Option<V>, mut sums: Vec<V>) {
        let dtype = self.out.dtype(cx);
        if dtype.is_float() {
            sums.iter_mut().for_each(|x| *x = scalar::round_float(cx.b, *x, dtype));
        }
        let all =
            limit.is_none() && (!self.b.padded || self.columns.as_const().is_some_and(|n| n % self.tile.width() == 0));
        // What becomes of a sum is long: where code should be small, it is there once.
        let by_rows = self.out.scalars_only || cx.shared.context.device;
        if all && !by_rows {
            return self.put_vectors(cx, at, &sums, None);
        }
        if limit.is_some() || by_rows || at.vectors < self.tile.vectors {
            return self.put_rest(cx, at, &sums);
        }
        let fits = self.fits(cx, at, at.panels);
        branch(cx, fits, &mut |cx, fits| {
            if fits { self.put_vectors(cx, at, &sums, None) } else { self.put_rest(cx, at, &sums) }
        });
    }

    /// A name for a row of a tile.
    fn row_name(&self, cx: &mut Cx<'_>, first: V, number: V) -> Sym {
        let (name, row) = (cx.variable(&self.rows), cx.b.add(first, number));
        cx.symbols.insert(name.clone(), row);
        name
    }

    /// Finish the sums of the columns there are.
    fn put_rest(&self, cx: &mut Cx<'_>, at: &At, sums: &[V]) {
        let Cx { shared, .. } = cx;
        if !shared.context.machine.masks
            || shared.context.options.sanitize
            || shared.context.device
            || !self.out.in_order(&self.column)
        {
            return self.put_rows(cx, at, sums);
        }
        let limit = cx.uniform(&self.columns);
        self.put_vectors(cx, at, sums, Some(limit));
    }

    /// Finish the sums of a tile that is complete, or up to a column.
    fn put_vectors(&self, cx: &mut Cx<'_>, at: &At, sums: &[V], limit: Option<V>) {
        let vectors = (at.panels * at.vectors) as usize;
        let width = cx.b.i64(self.tile.width());
        let start = cx.b.mul(at.panel, width);
        // What becomes of a sum may be a long chain: two at once keep the processor busy, if there are registers for it.
        let fits = cx.shared.context.machine.registers >= 32 && self.tile.lanes > 1;
        let pairs = limit.is_none() && fits && vectors.is_multiple_of(2);
        let (together, lanes) = match pairs && self.out.in_order(&self.column) {
            true => (2, 2 * self.tile.lanes),
            false => (1, self.tile.lanes),
        };
        for (i, sums) in sums.chunks(vectors).enumerate() {
            let number = cx.b.i64(i as i64);
            let row = self.row_name(cx, at.row, number);
            for (j, sums) in sums.chunks(together).enumerate() {
                let sum = if let [a, b] = sums { cx.b.shuffle(*a, *b, (0..lanes).collect()) } else { sums[0] };
                let offset = cx.b.i64(j as i64 * i64::from(lanes));
                let (column, first) = (cx.variable(&self.columns), cx.b.add(start, offset));
                cx.symbols.insert(column.clone(), first);
                let mask = limit.map(|limit| cx.lanes_below(first, limit, lanes));
                let outer = (cx.lane.replace(Lane { sym: column.clone(), base: first, mask }), cx.lanes);
                cx.lanes = lanes;
                let names = |s: &Sym| {
                    let name = if *s == self.row { &row } else { &column };
                    (*s == self.row || *s == self.column).then(|| Dim::sym(name.clone()))
                };
                self.out.put(cx, &names, sum);
                (cx.lane, cx.lanes) = outer;
            }
        }
    }

    /// Finish the sums of the columns there are, by way of memory: what is computed of them may read where there is none.
    fn put_rows(&self, cx: &mut Cx<'_>, at: &At, sums: &[V]) {
        let ty = Ty::vector(scalar::number(self.out.dtype(cx)), self.tile.lanes);
        let memory = cx.b.buffer(ty.elem, sums.len() as u32 * self.tile.lanes);
        for (n, &sum) in sums.iter().enumerate() {
            let place = cx.b.i64(n as i64 * i64::from(self.tile.lanes));
            cx.b.store(memory, place, sum);
        }
        let all = cx.b.i64(i64::from(at.vectors * self.tile.lanes * at.panels));
        let width = cx.b.i64(self.tile.width());
        let column = cx.b.mul(at.panel, width);
        let (end, limit) = (cx.b.add(column, all), cx.uniform(&self.columns));
        let end = cx.b.binary(Binary::SMin, end, limit);
        let rows = cx.b.open_for(&[]);
        let row = self.row_name(cx, at.row, rows.var);
        let position = cx.b.mul(rows.var, all);
        let names = |s: &Sym| (*s == self.row).then(|| Dim::sym(row.clone()));
        self.out.put_row(cx, (&self.column, &names, &self.columns), (column, end), (memory, position, ty));
        let (none, height) = (cx.b.i64(0), cx.b.i64(i64::from(at.height)));
        cx.b.close_for(rows, none, height, 1, vec![]);
    }
}

/// The index of a unit: the variables of the outer loops get their values, and what is left of the index is returned.
pub(super) fn unit_index(cx: &mut Cx<'_>, outer: &[(Sym, Dim)], sizes: &[Dim], number: &Sym) -> Vec<Dim> {
    let sizes: Vec<Dim> = sizes.iter().map(|d| cx.shared.size(d)).collect();
    let mut index = unravel(&Dim::sym(number.clone()), &sizes, &cx.extents);
    for ((var, _), i) in outer.iter().zip(&index) {
        let v = cx.uniform(i);
        cx.symbols.insert(var.clone(), v);
    }
    index.split_off(outer.len())
}

/// A block of rows of at most that many, in tiles of that height. Blocks have nearly the same size, so that no few rows are left for which all columns would have
/// to be read once more.
pub(super) fn block_of_rows(cx: &mut Cx<'_>, number: &Dim, rows: &Dim, (most, height): (i64, i64)) -> Span {
    let all = cx.uniform(rows);
    let quotient = |cx: &mut Cx<'_>, a: V, b: V| {
        let one = cx.b.i64(1);
        let up = cx.b.sub(b, one);
        let a = cx.b.add(a, up);
        cx.b.udiv(a, b)
    };
    let each = match rows.as_const() {
        Some(_) => cx.b.i64(most),
        None => {
            let (most, height) = (cx.b.i64(most), cx.b.i64(height));
            let blocks = quotient(cx, all, most);
            let even = quotient(cx, all, blocks);
            let tiles = quotient(cx, even, height);
            cx.b.mul(tiles, height)
        }
    };
    part(cx, number, each, all)
}

/// What neighbouring units have in common, of which this is number `part`: only the first of them does it, or the first unit that a worker begins with.
pub(super) fn once_per_block(cx: &mut Cx<'_>, (begin, unit): (V, &Sym), part: &Dim, f: &mut dyn FnMut(&mut Cx<'_>)) {
    if part.as_const().is_some() {
        return f(cx);
    }
    let (zero, unit, part) = (cx.b.i64(0), cx.symbol(unit), cx.uniform(part));
    let first = cx.b.compare(Compare::Eq, part, zero);
    let begins = cx.b.compare(Compare::Eq, unit, begin);
    let needed = cx.b.or(first, begins);
    branch(cx, needed, &mut |cx, needed| {
        if needed {
            f(cx);
        }
    });
}

/// A part of that size: its first, and how many there are.
fn part(cx: &mut Cx<'_>, number: &Dim, size: V, all: V) -> Span {
    let number = cx.uniform(number);
    let first = cx.b.mul(number, size);
    let left = cx.b.sub(all, first);
    (first, cx.b.binary(Binary::SMin, left, size))
}

/// Code for both cases of a condition, unless one cannot occur.
pub(super) fn branch(cx: &mut Cx<'_>, cond: V, f: &mut dyn FnMut(&mut Cx<'_>, bool)) {
    if let Some(known) = cx.b.as_const(cond) {
        return f(cx, known != 0);
    }
    cx.b.open_branch();
    f(cx, true);
    let then = cx.b.close_branch(vec![]);
    cx.b.open_branch();
    f(cx, false);
    let or = cx.b.close_branch(vec![]);
    cx.b.close_if(cond, then, or);
}
