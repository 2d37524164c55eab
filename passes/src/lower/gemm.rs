//! Sums of products in register tiles: a few rows by a few vectors of columns, with all accumulators in registers over the whole depth. Contractions and
//! convolutions differ only in where operands and results lie.
use super::{
    cx::{Cx, Lane},
    epilogue::Sink,
    index::{Index, unravel},
    reduce::wrap,
};
use crate::scalar;
use numrsc_ir::{
    DType, Dim, Scalar,
    dim::Sym,
    kernel::{Binary, Compare, Elem, Ty, V},
};

/// Elements in memory at symbolic positions.
#[derive(Clone)]
pub(crate) struct Place {
    pub pointer: V,
    pub dtype: DType,
    pub position: Dim,
    /// Elements of the buffer.
    pub length: Dim,
    /// Does the kernel itself write it?
    pub changes: bool,
    /// May more columns be read than there are?
    pub padded: bool,
    /// What the elements in memory become when they are loaded.
    pub widen: Option<Scalar>,
}

impl Place {
    /// Elements that stay as they are while the kernel runs.
    pub(crate) fn fixed(pointer: V, dtype: DType, position: Dim, length: Dim) -> Place {
        Place { pointer, dtype, position, length, changes: false, padded: false, widen: None }
    }

    /// An element as it enters products.
    fn decode(&self, cx: &mut Cx<'_>, raw: V) -> V {
        let x = scalar::decode(cx.b, self.dtype, raw);
        match &self.widen {
            None => x,
            Some(f) => scalar::expression(cx.b, f, &[self.dtype], &[x]),
        }
    }
}

/// `out[row, column] = Σ a[row, depth] * b[depth, column]` for every round of the outer loops. Positions in `b` are consecutive in `column`.
pub(crate) struct Gemm {
    pub a: Place,
    pub b: Place,
    pub out: Sink,
    pub row: Sym,
    pub rows: Dim,
    pub column: Sym,
    pub columns: Dim,
    pub depth: Vec<(Sym, Dim)>,
    /// Rows and vectors of columns of a tile.
    pub tile: (u32, u32),
    pub lanes: u32,
}

impl Gemm {
    /// Columns of a tile.
    pub(crate) fn width(&self) -> i64 {
        i64::from(self.tile.1 * self.lanes)
    }

    /// The number of units that [`Gemm::unit`] does.
    pub(crate) fn units(&self, outer: &[(Sym, Dim)]) -> Dim {
        let tiles = &self.columns.ceil_div(&Dim::Const(self.width()))
            * &self.rows.ceil_div(&Dim::Const(i64::from(self.tile.0)));
        &tiles * &Dim::product(outer.iter().map(|(_, n)| n))
    }

    /// One tile of one round of the outer loops. Tiles below each other follow, so that a block of columns of `b` stays near.
    pub(crate) fn unit(&self, cx: &mut Cx<'_>, outer: &[(Sym, Dim)], number: &Sym) {
        let mut sizes: Vec<Dim> = outer.iter().map(|(_, n)| n.clone()).collect();
        sizes.push(self.columns.ceil_div(&Dim::Const(self.width())));
        sizes.push(self.rows.ceil_div(&Dim::Const(i64::from(self.tile.0))));
        let sizes: Vec<Dim> = sizes.iter().map(|d| cx.shared.size(d)).collect();
        let index = unravel(&Dim::sym(number.clone()), &sizes, &cx.extents);
        for ((var, _), i) in outer.iter().zip(&index) {
            let v = cx.uniform(i);
            cx.symbols.insert(var.clone(), v);
        }
        let column = cx.uniform(&(&index[outer.len()] * &Dim::Const(self.width())));
        let row = cx.uniform(&(&index[outer.len() + 1] * &Dim::Const(i64::from(self.tile.0))));
        self.tile_at(cx, row, column);
    }

    /// The tile whose first row and column are given, or as much of it as there is.
    pub(crate) fn tile_at(&self, cx: &mut Cx<'_>, row: V, column: V) {
        let (rows, columns) = (cx.uniform(&self.rows), cx.uniform(&self.columns));
        let (height, width) = (cx.b.i64(i64::from(self.tile.0)), cx.b.i64(self.width()));
        let (row_end, column_end) = (cx.b.add(row, height), cx.b.add(column, width));
        // A last tile that is not complete never occurs where the size is a multiple.
        let whole = |size: &Dim, by: i64| size.as_const().is_some_and(|n| n % by == 0);
        let all_rows = whole(&self.rows, i64::from(self.tile.0));
        let all_columns = whole(&self.columns, self.width());
        let rows_fit = cx.b.compare(Compare::Le, row_end, rows);
        let columns_fit = cx.b.compare(Compare::Le, column_end, columns);
        choose(cx, columns_fit, all_columns, &mut |cx, full| {
            let limit = (!full).then_some(columns);
            choose(cx, rows_fit, all_rows, &mut |cx, full| {
                if full {
                    self.tile_code(cx, row, column, self.tile.0, limit);
                } else {
                    let open = cx.b.open_for(&[]);
                    self.tile_code(cx, open.var, column, 1, limit);
                    cx.b.close_for(open, row, rows, 1, vec![]);
                }
            });
        });
    }

    fn tile_code(&self, cx: &mut Cx<'_>, row: V, column: V, height: u32, limit: Option<V>) {
        let dtype = self.out.dtype(cx);
        let wide = Ty::vector(scalar::number(dtype), self.lanes);
        let zero = if wide.elem.is_float() { cx.b.float(wide, 0.0) } else { cx.b.int(wide, 0) };
        let row_name = cx.fresh(false);
        cx.symbols.insert(row_name.clone(), row);
        let columns: Vec<(Sym, V, Option<V>)> = (0..self.tile.1)
            .map(|j| {
                let step = cx.b.i64(i64::from(j * self.lanes));
                let first = cx.b.add(column, step);
                let name = cx.variable(&self.columns);
                cx.symbols.insert(name.clone(), first);
                let mask = limit.map(|limit| {
                    let ty = Ty::vector(Elem::I64, self.lanes);
                    let left = cx.b.sub(limit, first);
                    let (left, iota) = (cx.b.splat(left, self.lanes), cx.b.iota(ty));
                    cx.b.compare(Compare::Lt, iota, left)
                });
                (name, first, mask)
            })
            .collect();
        let start = vec![zero; (height * self.tile.1) as usize];
        let mut sums = cx.carry(&self.depth, &start, &mut |cx, sums| {
            let b: Vec<V> = columns.iter().map(|c| load_vector(cx, &self.b, &self.column, c, self.lanes)).collect();
            let mut next = Vec::with_capacity(sums.len());
            for i in 0..height {
                let at = &Dim::sym(row_name.clone()) + &Dim::Const(i64::from(i));
                let position = self.a.position.subst(&|s| (*s == self.row).then(|| at.clone()));
                let a = load_scalar(cx, &self.a, &position);
                let a = cx.b.splat(a, self.lanes);
                for (j, &b) in b.iter().enumerate() {
                    let sum = sums[i as usize * columns.len() + j];
                    next.push(multiply_add(cx, dtype, a, b, sum));
                }
            }
            next
        });
        if dtype.is_float() {
            sums.iter_mut().for_each(|x| *x = scalar::round_float(cx.b, *x, dtype));
        }
        match limit {
            None if !self.out.scalars_only => self.put_vectors(cx, row, &columns, &sums),
            _ => self.put_rows(cx, row, column, limit, &sums),
        }
    }

    /// A name for a row of a tile.
    fn row_name(&self, cx: &mut Cx<'_>, first: V, number: V) -> Sym {
        let (name, row) = (cx.variable(&self.rows), cx.b.add(first, number));
        cx.symbols.insert(name.clone(), row);
        name
    }

    /// Finish the sums of a tile that is complete.
    fn put_vectors(&self, cx: &mut Cx<'_>, row: V, columns: &[(Sym, V, Option<V>)], sums: &[V]) {
        for (i, sums) in sums.chunks(columns.len()).enumerate() {
            let number = cx.b.i64(i as i64);
            let at = self.row_name(cx, row, number);
            for ((name, first, _), &sum) in columns.iter().zip(sums) {
                let outer = (cx.lane.replace(Lane { sym: name.clone(), base: *first }), cx.lanes);
                cx.lanes = self.lanes;
                let names = |s: &Sym| {
                    let name = if *s == self.row { &at } else { name };
                    (*s == self.row || *s == self.column).then(|| Dim::sym(name.clone()))
                };
                self.out.put(cx, &names, sum);
                (cx.lane, cx.lanes) = outer;
            }
        }
    }

    /// Finish the sums of the columns there are, by way of memory: what is computed of them may read where there is none.
    fn put_rows(&self, cx: &mut Cx<'_>, row: V, column: V, limit: Option<V>, sums: &[V]) {
        let ty = Ty::vector(scalar::number(self.out.dtype(cx)), self.lanes);
        let memory = cx.b.buffer(ty.elem, sums.len() as u32 * self.lanes);
        for (n, &sum) in sums.iter().enumerate() {
            let at = cx.b.i64(n as i64 * i64::from(self.lanes));
            cx.b.store(memory, at, sum);
        }
        let width = cx.b.i64(self.width());
        let mut end = cx.b.add(column, width);
        if let Some(limit) = limit {
            end = cx.b.binary(Binary::SMin, end, limit);
        }
        let rows = cx.b.open_for(&[]);
        let at = self.row_name(cx, row, rows.var);
        let position = cx.b.mul(rows.var, width);
        let names = |s: &Sym| (*s == self.row).then(|| Dim::sym(at.clone()));
        self.out.put_row(cx, (&self.column, &names, &self.columns), (column, end), (memory, position, ty));
        let (none, all) = (cx.b.i64(0), cx.b.i64(sums.len() as i64 / i64::from(self.tile.1)));
        cx.b.close_for(rows, none, all, 1, vec![]);
    }
}

/// Code for both cases of a condition, unless one cannot occur.
fn choose(cx: &mut Cx<'_>, cond: V, always: bool, f: &mut dyn FnMut(&mut Cx<'_>, bool)) {
    if always {
        return f(cx, true);
    }
    cx.b.open_branch();
    f(cx, true);
    let then = cx.b.close_branch(vec![]);
    cx.b.open_branch();
    f(cx, false);
    let or = cx.b.close_branch(vec![]);
    cx.b.close_if(cond, then, or);
}

fn multiply_add(cx: &mut Cx<'_>, dtype: DType, a: V, b: V, sum: V) -> V {
    if dtype.is_float() {
        return cx.b.muladd(a, b, sum);
    }
    let product = cx.b.mul(a, b);
    let sum = cx.b.add(sum, product);
    wrap(cx, dtype, sum)
}

fn load_scalar(cx: &mut Cx<'_>, place: &Place, position: &Dim) -> V {
    let index = cx.uniform(position);
    cx.check_bounds(&place.length, index, 1, true);
    let ty = Ty::scalar(scalar::memory(place.dtype));
    let raw =
        if place.changes { cx.b.load(ty, place.pointer, index) } else { cx.b.load_fixed(ty, place.pointer, index) };
    place.decode(cx, raw)
}

fn load_vector(
    cx: &mut Cx<'_>,
    place: &Place,
    column: &Sym,
    (name, first, mask): &(Sym, V, Option<V>),
    lanes: u32,
) -> V {
    let position = place.position.subst(&|s| (s == column).then(|| Dim::sym(name.clone())));
    let outer = (cx.lane.replace(Lane { sym: name.clone(), base: *first }), cx.lanes);
    cx.lanes = lanes;
    let index = cx.index(&position);
    (cx.lane, cx.lanes) = outer;
    let ty = Ty::vector(scalar::memory(place.dtype), lanes);
    let raw = match index {
        Index::Steps(i, 1) => match mask.filter(|_| !place.padded) {
            None => {
                cx.check_bounds(&place.length, i, lanes, true);
                if place.changes { cx.b.load(ty, place.pointer, i) } else { cx.b.load_fixed(ty, place.pointer, i) }
            }
            Some(mask) => cx.b.load_fixed_masked(ty, place.pointer, i, mask),
        },
        Index::Uniform(i) => {
            let x = cx.b.load_fixed(Ty::scalar(ty.elem), place.pointer, i);
            cx.b.splat(x, lanes)
        }
        Index::Steps(..) | Index::Lanes(_) => unreachable!("positions are consecutive"),
    };
    place.decode(cx, raw)
}

/// Rows and vectors of columns of a tile that fits the registers.
pub(crate) fn tile(cx: &Cx<'_>) -> (u32, u32) {
    match cx.shared.machine.registers {
        0..=7 => (1, 1),
        8..=15 => (2, 2),
        16..=31 => (4, 2),
        _ => (6, 2),
    }
}
