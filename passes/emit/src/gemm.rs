//! Register-blocked matrix product: a tile of a few rows by a few vectors of columns keeps all accumulators in
//! registers. Contractions and convolutions differ only in where operands and results lie.
//!
//! The columns of `b` are read in panels as wide as a tile. All rows of a block use a panel before the next one, a part
//! of the depth at a time, so that the part stays in the first-level cache; it is prefetched while the previous panel
//! is used. Every sum runs along the depth in order, part by part: neither tiles nor blocks nor threads change its
//! rounding.
use crate::{
    element::{ElementEmitter, Lane},
    epilogue::Sink,
    tile::{Column, MemoryOperand, Operands, Tile},
};
use numrsc_facts::sizes::ceil_div;
use numrsc_ir::{
    Dim,
    dim::Sym,
    kernel::{Binary, Compare, Ty, V},
};
use numrsc_scalar as scalar;
use numrsc_schedule::index::unravel;

/// Unroll factor along the depth.
pub(super) const UNROLL: i64 = 4;
/// Panels that products with few rows process at once, to have enough independent sums.
const GROUP: i64 = 2;
/// The numbers of rows for which this code exists: common batch sizes, as each takes code of its own.
const GROUP_ROWS: [i64; 3] = [1, 2, 4];
/// The length of a part of the depth, in steps of the instruction; a depth that is little longer is one part.
const DEPTH: i64 = 256;
/// Bytes of the rows of a block, within the limits on its number of rows.
const BLOCK_BYTES: i64 = 384 << 10;
const BLOCK_ROWS: std::ops::RangeInclusive<i64> = 132..=240;
pub(super) const CACHE_LINE: i64 = 64;

/// `out[row, column] = Σ a[row, depth] * b[depth, column]` for every round of the outer loops. The position of `b` is a
/// function of the panel and of the column within it, and contiguous in the latter.
pub(crate) struct Gemm {
    pub a: MemoryOperand,
    pub b: MemoryOperand,
    pub out: Sink,
    pub row: Sym,
    pub rows: Dim,
    /// The largest number of rows of a block, if the caller decides it.
    pub most_rows: Option<i64>,
    pub column: Sym,
    pub panel: Sym,
    pub within: Sym,
    pub columns: Dim,
    pub depth: Vec<(Sym, Dim)>,
    pub tile: Tile,
    /// Steps along the depth per instruction, adjacent in `a`: 2 of signed integers of at most 16 bits (dot2); 4 of
    /// 8-bit integers (dot4), unsigned in `a`, and signed and grouped in `b`.
    pub at_once: i64,
    /// Is `a` likely sparse, and `b` finite, so that zeros in `a` can be skipped?
    pub rectified: bool,
}

/// A range of rows or panels: the first, and the number or the end.
pub(super) type Span = (V, V);

/// The part of the depth that a tile accumulates.
#[derive(Clone)]
pub(super) struct Part {
    /// Its first round, if there is one loop.
    pub first: V,
    pub count: V,
    /// Partial sums carried from part to part: their memory, and whether this part is the first and the last.
    pub kept: Option<(V, V, V)>,
}

/// One tile: its rows, panels and vectors per panel, its position, and its number within the block.
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

    /// Panels that few rows process at once. Narrow integers are loaded before the sums that they are added to are
    /// ready, so these products take more independent sums, as far as registers go.
    fn panels_at_once(&self) -> i64 {
        if self.at_once > 1 && self.height() >= 4 * GROUP { 2 * GROUP } else { GROUP }
    }

    /// Do this many rows process several panels at once? Their sums must fit the registers of a tile.
    fn together(&self, rows: i64) -> bool {
        GROUP_ROWS.contains(&rows) && rows * self.panels_at_once() <= self.height()
    }

    /// May there be so few rows that the product is bound by reading the columns?
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

    /// Computes a block of rows by a few panels, in one round of the outer loops.
    pub(crate) fn unit(&self, em: &mut ElementEmitter<'_>, outer: &[(Sym, Dim)], number: &Sym) {
        let index = unit_index(em, outer, &self.unit_sizes(outer), number);
        let rows = block_of_rows(em, &index[0], &self.rows, (self.block(), self.height()));
        let all = em.state.size(&self.panels());
        let (each, all) = (em.b.i64(self.group()), em.uniform(&all));
        let (first, count) = part(em, &index[1], each, all);
        let end = em.b.add(first, count);
        self.span(em, rows, (first, end));
    }

    /// Computes a block of rows by all panels.
    pub(crate) fn all_panels(&self, em: &mut ElementEmitter<'_>, rows: Span) {
        let all = em.state.size(&self.panels());
        let (zero, all) = (em.b.i64(0), em.uniform(&all));
        let (open, group) = (em.b.open_for(&[]), em.b.i64(self.group()));
        let end = em.b.add(open.var, group);
        let end = em.b.binary(Binary::SMin, end, all);
        self.span(em, rows, (open.var, end));
        em.b.close_for(open, zero, all, self.group(), vec![]);
    }

    /// Computes a block of rows by the panels up to an end.
    pub(crate) fn block_by_panels(&self, em: &mut ElementEmitter<'_>, number: &Dim, end: V) {
        let rows = block_of_rows(em, number, &self.rows, (self.block(), self.height()));
        let zero = em.b.i64(0);
        self.span(em, rows, (zero, end));
    }

    /// Computes a range of rows by a range of panels.
    fn span(&self, em: &mut ElementEmitter<'_>, rows: Span, panels: Span) {
        let few: Vec<u32> =
            self.heights().into_iter().filter(|&h| self.group() > 1 && self.together(i64::from(h))).collect();
        self.few_rows(em, &few, rows, panels);
    }

    /// Products with few rows process several panels at once.
    fn few_rows(&self, em: &mut ElementEmitter<'_>, few: &[u32], rows: Span, panels: Span) {
        let Some((&height, others)) = few.split_first() else { return self.panel_by_panel(em, rows, panels) };
        let wanted = em.b.i64(i64::from(height));
        let so_many = em.b.compare(Compare::Eq, rows.1, wanted);
        let (count, group) = (em.b.sub(panels.1, panels.0), em.b.i64(self.group()));
        let group_there = em.b.compare(Compare::Eq, count, group);
        let width = em.b.i64(self.tile.width());
        let (end, columns) = (em.b.mul(panels.1, width), em.uniform(&self.columns));
        let fits = em.b.compare(Compare::Le, end, columns);
        let fits = if self.b.padded { em.b.bits(Ty::I1, 1) } else { fits };
        let together = em.b.and(so_many, group_there);
        let together = em.b.and(together, fits);
        branch(em, together, &mut |em, together| {
            if !together {
                return self.few_rows(em, others, rows, panels);
            }
            let (zero, one) = (em.b.i64(0), em.b.i64(1));
            let part = Part { first: zero, count: self.last_depth(em), kept: None };
            let (panels, panel, vectors) = (self.group() as u32, panels.0, self.tile.vectors);
            let at = At { height, panels, vectors, row: rows.0, inside: zero, panel, number: zero, tiles: one };
            self.tile(em, &at, &part);
        });
    }

    fn last_depth(&self, em: &mut ElementEmitter<'_>) -> V {
        match self.depth.last() {
            Some((_, n)) => em.uniform(n),
            None => em.b.i64(1),
        }
    }

    fn panel_by_panel(&self, em: &mut ElementEmitter<'_>, rows: Span, (first, end): Span) {
        let open = em.b.open_for(&[]);
        let panel = open.var;
        let all = self.last_depth(em);
        match self.part_of_depth() {
            None => {
                let zero = em.b.i64(0);
                self.tiles(em, rows, panel, &Part { first: zero, count: all, kept: None });
            }
            Some(size) => {
                let elem = scalar::number(self.out.dtype(em));
                let memory = em.b.buffer(elem, (self.block() * self.tile.width()) as u32);
                let (zero, most) = (em.b.i64(0), em.b.i64(size));
                let parts = em.b.open_for(&[]);
                let left = em.b.sub(all, parts.var);
                let count = em.b.binary(Binary::SMin, left, most);
                let is_first = em.b.compare(Compare::Eq, parts.var, zero);
                let is_last = em.b.compare(Compare::Le, left, most);
                self.tiles(em, rows, panel, &Part { first: parts.var, count, kept: Some((memory, is_first, is_last)) });
                // With an empty depth, one round stores zeros.
                let one = em.b.i64(1);
                let rounds = em.b.binary(Binary::SMax, all, one);
                em.b.close_for(parts, zero, rounds, size, vec![]);
            }
        }
        em.b.close_for(open, first, end, 1, vec![]);
    }

    /// The length of a part of the depth, if the depth is split.
    fn part_of_depth(&self) -> Option<i64> {
        let one_tile = self.rows.as_const().is_some_and(|n| n <= self.height());
        self.summed_depth().filter(|_| !one_tile)
    }

    /// The length of partial sums, if the depth is split: rounding errors grow with the length of a sum.
    pub(super) fn summed_depth(&self) -> Option<i64> {
        let [(_, n)] = &self.depth[..] else { return None };
        let (most, whole) = (DEPTH * self.at_once, UNROLL * self.at_once);
        match n.as_const() {
            Some(n) if n <= most * 3 / 2 => None,
            Some(n) => Some(ceil_div(ceil_div(n, ceil_div(n, most)), whole) * whole),
            None => Some(most),
        }
    }

    /// The loops along the depth, in order: the number of rounds and the unroll factor of each. The last one does the
    /// remainder.
    fn steps(&self) -> Vec<(i64, i64)> {
        let n = self.at_once;
        let left = match self.depth.last().and_then(|(_, depth)| depth.as_const()) {
            Some(depth) => (depth % n).max(1),
            None => 1,
        };
        if n == 1 { vec![(UNROLL, 1), (1, 1)] } else { vec![(UNROLL * n, n), (n, n), (left, left)] }
    }

    /// The possible heights of tiles.
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

    /// Computes all rows of a block by one panel, in tiles of nearly equal height.
    fn tiles(&self, em: &mut ElementEmitter<'_>, (first, count): Span, panel: V, part: &Part) {
        let (zero, one, height) = (em.b.i64(0), em.b.i64(1), em.b.i64(self.height()));
        let (up, tiles) = (em.b.i64(self.height() - 1), count);
        let tiles = em.b.add(tiles, up);
        let tiles = em.b.udiv(tiles, height);
        let low = em.b.udiv(count, tiles);
        let in_low = em.b.mul(low, tiles);
        let higher = em.b.sub(count, in_low);
        let high = em.b.add(low, one);
        let lower = em.b.sub(tiles, higher);
        let before = em.b.mul(higher, high);
        for h in self.heights() {
            let size = em.b.i64(i64::from(h));
            let (is_high, is_low) = (em.b.compare(Compare::Eq, size, high), em.b.compare(Compare::Eq, size, low));
            let of_low = em.b.select(is_low, lower, zero);
            let here = em.b.select(is_high, higher, of_low);
            if em.b.as_const(here) == Some(0) {
                continue;
            }
            let (start, number) = (em.b.select(is_high, zero, before), em.b.select(is_high, zero, higher));
            let open = em.b.open_for(&[]);
            let rows = em.b.mul(open.var, size);
            let inside = em.b.add(start, rows);
            let (row, number) = (em.b.add(first, inside), em.b.add(number, open.var));
            let vectors = self.tile.vectors;
            self.tile(em, &At { height: h, panels: 1, vectors, row, inside, panel, number, tiles }, part);
            em.b.close_for(open, zero, here, 1, vec![]);
        }
    }

    /// Computes one tile, or the columns of it that exist.
    fn tile(&self, em: &mut ElementEmitter<'_>, at: &At, part: &Part) {
        let all = self.columns.as_const().is_some_and(|n| n % self.tile.width() == 0);
        if self.b.padded && self.may_end_early(at) {
            let early = self.ends_early(em, at);
            return branch(em, early, &mut |em, early| {
                let at = if early { At { vectors: 1, ..*at } } else { *at };
                self.sum(em, &at, part, None);
            });
        }
        if self.b.padded || all {
            return self.sum(em, at, part, None);
        }
        let fits = self.fits(em, at, at.panels);
        branch(em, fits, &mut |em, fits| {
            let limit = (!fits).then(|| em.uniform(&self.columns));
            self.sum(em, at, part, limit);
        });
    }

    /// May the last tile have so few columns that they fit one vector? Only a few tile heights get code for this case.
    fn may_end_early(&self, at: &At) -> bool {
        let left = self.columns.as_const().map_or(1, |n| n % self.tile.width());
        let few = (1..=i64::from(self.tile.lanes)).contains(&left) && self.rows.as_const().is_some();
        few && at.panels == 1 && at.vectors > 1
    }

    fn ends_early(&self, em: &mut ElementEmitter<'_>, at: &At) -> V {
        let (width, lanes) = (em.b.i64(self.tile.width()), em.b.i64(i64::from(self.tile.lanes)));
        let (first, columns) = (em.b.mul(at.panel, width), em.uniform(&self.columns));
        let left = em.b.sub(columns, first);
        em.b.compare(Compare::Le, left, lanes)
    }

    /// Does the tile have all columns of its first panels?
    fn fits(&self, em: &mut ElementEmitter<'_>, at: &At, panels: u32) -> V {
        let (more, width) = (em.b.i64(i64::from(panels)), em.b.i64(self.tile.width()));
        let end = em.b.add(at.panel, more);
        let (end, columns) = (em.b.mul(end, width), em.uniform(&self.columns));
        em.b.compare(Compare::Le, end, columns)
    }

    /// Accumulates a tile over a part of the depth, and stores or finishes the sums.
    fn sum(&self, em: &mut ElementEmitter<'_>, at: &At, part: &Part, limit: Option<V>) {
        let dtype = self.out.dtype(em);
        let wide = Ty::vector(scalar::number(dtype), self.tile.lanes);
        let zero = if wide.elem.is_float() { em.b.float(wide, 0.0) } else { em.b.int(wide, 0) };
        let columns = self.columns_of(em, at, limit);
        let count = at.height as usize * columns.len();
        let zeros = vec![zero; count];
        let sums = match (&part.kept, self.summed_depth()) {
            (None, Some(size)) => self.by_parts(em, at, part, &columns, &zeros, size),
            (None, None) => self.along_depth(em, at, part, &columns, &zeros),
            (Some((memory, is_first, _)), _) => {
                let own = self.along_depth(em, at, part, &columns, &zeros);
                // Loaded only now: there are no registers for both.
                em.b.open_branch();
                let none = em.b.close_branch(zeros);
                em.b.open_branch();
                let places = self.kept_at(em, at, count);
                let kept = places.into_iter().map(|i| em.b.load(wide, *memory, i)).collect();
                let kept = em.b.close_branch(kept);
                let before = em.b.close_if(*is_first, none, kept);
                before.iter().zip(own).map(|(before, own)| em.b.add(*before, own)).collect()
            }
        };
        let Some((memory, _, is_last)) = part.kept else { return self.put(em, at, limit, sums) };
        branch(em, is_last, &mut |em, is_last| {
            if is_last {
                return self.put(em, at, limit, sums.clone());
            }
            let places = self.kept_at(em, at, count);
            places.into_iter().zip(&sums).for_each(|(i, x)| em.b.store(memory, i, *x));
        });
    }

    /// Sums the whole depth in the same partial sums as the split version, so that rounding is identical.
    fn by_parts(
        &self,
        em: &mut ElementEmitter<'_>,
        at: &At,
        all: &Part,
        columns: &[Column],
        zeros: &[V],
        size: i64,
    ) -> Vec<V> {
        let (zero, most) = (em.b.i64(0), em.b.i64(size));
        let open = em.b.open_for(zeros);
        let (left, first) = (em.b.sub(all.count, open.var), em.b.add(all.first, open.var));
        let count = em.b.binary(Binary::SMin, left, most);
        let own = self.along_depth(em, at, &Part { first, count, kept: None }, columns, zeros);
        let sums = open.inside.iter().zip(own).map(|(before, own)| em.b.add(*before, own)).collect();
        em.b.close_for(open, zero, all.count, size, sums)
    }

    /// The memory of a tile's partial sums between parts of the depth.
    fn kept_at(&self, em: &mut ElementEmitter<'_>, at: &At, count: usize) -> Vec<V> {
        let width = em.b.i64(self.tile.width());
        let first = em.b.mul(at.inside, width);
        (0..count as i64)
            .map(|n| {
                let offset = em.b.i64(n * i64::from(self.tile.lanes));
                em.b.add(first, offset)
            })
            .collect()
    }

    fn columns_of(&self, em: &mut ElementEmitter<'_>, at: &At, limit: Option<V>) -> Vec<Column> {
        let panel = em.fresh(false);
        em.symbols.insert(panel.clone(), at.panel);
        let vectors = (0..at.panels).flat_map(|p| (0..at.vectors).map(move |j| (p, j)));
        let mut columns = Vec::new();
        for (p, j) in vectors {
            let panel = &Dim::sym(panel.clone()) + &Dim::Const(i64::from(p));
            let within = i64::from(j * self.tile.lanes);
            let mask = limit.map(|limit| {
                let first = em.uniform(&(&(&panel * &Dim::Const(self.tile.width())) + &Dim::Const(within)));
                em.lanes_below(first, limit, self.tile.lanes)
            });
            columns.push(Column { panel, within, mask });
        }
        columns
    }

    /// The sums after one part of the depth.
    fn along_depth(
        &self,
        em: &mut ElementEmitter<'_>,
        at: &At,
        part: &Part,
        columns: &[Column],
        start: &[V],
    ) -> Vec<V> {
        let (row, first) = (em.fresh(false), em.fresh(false));
        em.symbols.insert(row.clone(), at.row);
        em.symbols.insert(first.clone(), part.first);
        let operands = Operands::new(self, em, (&row, &columns[0].panel, &first));
        if self.leaves_out_zeros(em, at) {
            return self.along_nonzero(em, &operands, (part, &first), columns, start);
        }
        let outer = &self.depth[..self.depth.len().saturating_sub(1)];
        em.carry(outer, start, &mut |em, sums| {
            if self.depth.is_empty() {
                return operands.step(em, (&Dim::ZERO, 1), at.height, columns, sums);
            }
            let (mut low, mut sums) = (em.b.i64(0), sums.to_vec());
            let steps = self.steps();
            for (number, &(step, at_once)) in steps.iter().enumerate() {
                let size = em.b.i64(step);
                let left = em.b.urem(part.count, size);
                let whole = em.b.sub(part.count, left);
                let high = if number + 1 == steps.len() { part.count } else { whole };
                if em.b.as_const(low).is_some() && em.b.as_const(low) == em.b.as_const(high) {
                    continue;
                }
                let open = em.b.open_for(&sums);
                let round = em.fresh(false);
                em.symbols.insert(round.clone(), open.var);
                let mut inside = open.inside.clone();
                if number == 0 {
                    operands.fetch_next(em, at, part, (open.var, step));
                }
                for u in (0..step).step_by(at_once as usize) {
                    let depth = &(&Dim::sym(first.clone()) + &Dim::sym(round.clone())) + &Dim::Const(u);
                    inside = operands.step(em, (&depth, at_once), at.height, columns, &inside);
                }
                sums = em.b.close_for(open, low, high, step, inside);
                low = high;
            }
            sums
        })
    }

    /// Runs the epilogue on the sums of a tile.
    fn put(&self, em: &mut ElementEmitter<'_>, at: &At, limit: Option<V>, mut sums: Vec<V>) {
        let dtype = self.out.dtype(em);
        if dtype.is_float() {
            sums.iter_mut().for_each(|x| *x = scalar::round_float(em.b, *x, dtype));
        }
        let all =
            limit.is_none() && (!self.b.padded || self.columns.as_const().is_some_and(|n| n % self.tile.width() == 0));
        // The epilogue is long: where code should be small, it is emitted once.
        let by_rows = self.out.scalars_only || em.state.context.device;
        if all && !by_rows {
            return self.put_vectors(em, at, &sums, None);
        }
        if limit.is_some() || by_rows || at.vectors < self.tile.vectors {
            return self.put_rest(em, at, &sums);
        }
        let fits = self.fits(em, at, at.panels);
        branch(em, fits, &mut |em, fits| {
            if fits { self.put_vectors(em, at, &sums, None) } else { self.put_rest(em, at, &sums) }
        });
    }

    /// A symbol for a row of a tile.
    fn row_name(&self, em: &mut ElementEmitter<'_>, first: V, number: V) -> Sym {
        let (name, row) = (em.variable(&self.rows), em.b.add(first, number));
        em.symbols.insert(name.clone(), row);
        name
    }

    /// Runs the epilogue on the columns that exist.
    fn put_rest(&self, em: &mut ElementEmitter<'_>, at: &At, sums: &[V]) {
        let ElementEmitter { state, .. } = em;
        if !state.context.machine.masks
            || state.context.options.sanitize
            || state.context.device
            || !self.out.in_order(&self.column)
        {
            return self.put_rows(em, at, sums);
        }
        let limit = em.uniform(&self.columns);
        self.put_vectors(em, at, sums, Some(limit));
    }

    /// Runs the epilogue on a full tile, or on the columns before a limit.
    fn put_vectors(&self, em: &mut ElementEmitter<'_>, at: &At, sums: &[V], limit: Option<V>) {
        let vectors = (at.panels * at.vectors) as usize;
        let width = em.b.i64(self.tile.width());
        let start = em.b.mul(at.panel, width);
        // The epilogue may be a long dependency chain: interleaving two keeps the processor busy, if there are
        // registers for it.
        let fits = em.state.context.machine.registers >= 32 && self.tile.lanes > 1;
        let pairs = limit.is_none() && fits && vectors.is_multiple_of(2);
        let (together, lanes) = match pairs && self.out.in_order(&self.column) {
            true => (2, 2 * self.tile.lanes),
            false => (1, self.tile.lanes),
        };
        for (i, sums) in sums.chunks(vectors).enumerate() {
            let number = em.b.i64(i as i64);
            let row = self.row_name(em, at.row, number);
            for (j, sums) in sums.chunks(together).enumerate() {
                let sum = if let [a, b] = sums { em.b.shuffle(*a, *b, (0..lanes).collect()) } else { sums[0] };
                let offset = em.b.i64(j as i64 * i64::from(lanes));
                let (column, first) = (em.variable(&self.columns), em.b.add(start, offset));
                em.symbols.insert(column.clone(), first);
                let mask = limit.map(|limit| em.lanes_below(first, limit, lanes));
                let outer = (em.lane.replace(Lane { sym: column.clone(), base: first, mask }), em.lanes);
                em.lanes = lanes;
                let names = |s: &Sym| {
                    let name = if *s == self.row { &row } else { &column };
                    (*s == self.row || *s == self.column).then(|| Dim::sym(name.clone()))
                };
                self.out.put(em, &names, sum);
                (em.lane, em.lanes) = outer;
            }
        }
    }

    /// Runs the epilogue on the columns that exist, by way of memory: computed as a full vector, it may read where
    /// nothing is.
    fn put_rows(&self, em: &mut ElementEmitter<'_>, at: &At, sums: &[V]) {
        let ty = Ty::vector(scalar::number(self.out.dtype(em)), self.tile.lanes);
        let memory = em.b.buffer(ty.elem, sums.len() as u32 * self.tile.lanes);
        for (n, &sum) in sums.iter().enumerate() {
            let place = em.b.i64(n as i64 * i64::from(self.tile.lanes));
            em.b.store(memory, place, sum);
        }
        let all = em.b.i64(i64::from(at.vectors * self.tile.lanes * at.panels));
        let width = em.b.i64(self.tile.width());
        let column = em.b.mul(at.panel, width);
        let (end, limit) = (em.b.add(column, all), em.uniform(&self.columns));
        let end = em.b.binary(Binary::SMin, end, limit);
        let rows = em.b.open_for(&[]);
        let row = self.row_name(em, at.row, rows.var);
        let position = em.b.mul(rows.var, all);
        let names = |s: &Sym| (*s == self.row).then(|| Dim::sym(row.clone()));
        self.out.put_row(em, (&self.column, &names, &self.columns), (column, end), (memory, position, ty));
        let (none, height) = (em.b.i64(0), em.b.i64(i64::from(at.height)));
        em.b.close_for(rows, none, height, 1, vec![]);
    }
}

/// Decodes the index of a unit: binds the variables of the outer loops and returns the rest of the index.
pub(super) fn unit_index(em: &mut ElementEmitter<'_>, outer: &[(Sym, Dim)], sizes: &[Dim], number: &Sym) -> Vec<Dim> {
    let sizes: Vec<Dim> = sizes.iter().map(|d| em.state.size(d)).collect();
    let mut index = unravel(&Dim::sym(number.clone()), &sizes, &em.extents);
    for ((var, _), i) in outer.iter().zip(&index) {
        let v = em.uniform(i);
        em.symbols.insert(var.clone(), v);
    }
    index.split_off(outer.len())
}

/// Splits rows into blocks of at most that many, in tiles of that height. Blocks have nearly equal size, since a small
/// last block would read all columns once more.
pub(super) fn block_of_rows(em: &mut ElementEmitter<'_>, number: &Dim, rows: &Dim, (most, height): (i64, i64)) -> Span {
    let all = em.uniform(rows);
    let quotient = |em: &mut ElementEmitter<'_>, a: V, b: V| {
        let one = em.b.i64(1);
        let up = em.b.sub(b, one);
        let a = em.b.add(a, up);
        em.b.udiv(a, b)
    };
    let each = match rows.as_const() {
        Some(_) => em.b.i64(most),
        None => {
            let (most, height) = (em.b.i64(most), em.b.i64(height));
            let blocks = quotient(em, all, most);
            let even = quotient(em, all, blocks);
            let tiles = quotient(em, even, height);
            em.b.mul(tiles, height)
        }
    };
    part(em, number, each, all)
}

/// Work that neighbouring units share, of which this is number `part`: done by the first of them, or by the first unit
/// that a worker begins with.
pub(super) fn once_per_block(
    em: &mut ElementEmitter<'_>,
    (begin, unit): (V, &Sym),
    part: &Dim,
    f: &mut dyn FnMut(&mut ElementEmitter<'_>),
) {
    if part.as_const().is_some() {
        return f(em);
    }
    let (zero, unit, part) = (em.b.i64(0), em.symbol(unit), em.uniform(part));
    let first = em.b.compare(Compare::Eq, part, zero);
    let begins = em.b.compare(Compare::Eq, unit, begin);
    let needed = em.b.or(first, begins);
    branch(em, needed, &mut |em, needed| {
        if needed {
            f(em);
        }
    });
}

/// A part of that size: its start and length.
fn part(em: &mut ElementEmitter<'_>, number: &Dim, size: V, all: V) -> Span {
    let number = em.uniform(number);
    let first = em.b.mul(number, size);
    let left = em.b.sub(all, first);
    (first, em.b.binary(Binary::SMin, left, size))
}

/// Emits both cases of a condition, unless one cannot occur.
pub(super) fn branch(em: &mut ElementEmitter<'_>, cond: V, f: &mut dyn FnMut(&mut ElementEmitter<'_>, bool)) {
    if let Some(known) = em.b.as_const(cond) {
        return f(em, known != 0);
    }
    em.b.open_branch();
    f(em, true);
    let then = em.b.close_branch(vec![]);
    em.b.open_branch();
    f(em, false);
    let or = em.b.close_branch(vec![]);
    em.b.close_if(cond, then, or);
}
