//! The operands of a register tile, and one step of a product along the depth.
use crate::{
    element::ElementEmitter,
    gemm::{At, CACHE_LINE, Gemm, Part},
    reduce::wrap,
};
use numrsc_facts::sizes::ceil_div;
use numrsc_ir::{
    DType, Dim, Machine, Scalar,
    dim::Sym,
    kernel::{Convert, Elem, Ty, V},
};
use numrsc_scalar as scalar;

/// The smallest number of tiles of a block, if their number is not known.
const FEW_TILES: i64 = 4;

/// Elements in memory at symbolic positions.
#[derive(Clone)]
pub(crate) struct MemoryOperand {
    pub pointer: V,
    pub dtype: DType,
    pub position: Dim,
    /// Elements of the buffer.
    pub length: Dim,
    /// Does the kernel itself write it?
    pub changes: bool,
    /// May columns beyond the end be read?
    pub padded: bool,
    /// Are the steps of one instruction adjacent for each column?
    pub grouped: bool,
    /// The conversion of elements as they are loaded.
    pub widen: Option<Scalar>,
}

impl MemoryOperand {
    /// Elements that do not change while the kernel runs.
    pub(crate) fn fixed(pointer: V, dtype: DType, position: Dim, length: Dim) -> MemoryOperand {
        MemoryOperand { pointer, dtype, position, length, changes: false, padded: false, grouped: false, widen: None }
    }

    /// An element as an operand of multiplication.
    fn decode(&self, em: &mut ElementEmitter<'_>, raw: V) -> V {
        let x = scalar::decode(em.b, self.dtype, raw);
        match &self.widen {
            None => x,
            Some(f) => scalar::expression(em.b, f, &[self.dtype], &[x]),
        }
    }

    pub(super) fn bytes(&self) -> i64 {
        scalar::memory(self.dtype).size()
    }
}

/// Rows and vectors of columns of a tile, and lanes of a vector.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    pub rows: u32,
    pub vectors: u32,
    pub lanes: u32,
}

impl Tile {
    /// The tile for a machine's registers, no wider than the number of columns.
    pub(crate) fn new(machine: Machine, dtype: DType, columns: &Dim) -> Tile {
        let lanes = machine.lanes(scalar::number(dtype).size().max(scalar::memory(dtype).size()) as u32);
        let (rows, vectors) = match machine.registers {
            0..=7 => (1, 1),
            8..=15 => (2, 2),
            16..=31 if machine.vector_bytes <= 16 => (4, 2),
            16..=31 => (6, 2),
            _ => (8, 2),
        };
        let enough =
            columns.as_const().map_or(vectors, |n| ceil_div(n, i64::from(lanes)).clamp(1, i64::from(vectors)) as u32);
        Tile { rows, vectors: enough, lanes }
    }

    /// The width of a tile, and so of a panel, in columns.
    pub(crate) fn width(self) -> i64 {
        i64::from(self.vectors * self.lanes)
    }
}

/// A vector of columns of a tile: its panel, the first column in it, and the lanes there are.
pub(super) struct Column {
    pub panel: Dim,
    pub within: i64,
    pub mask: Option<V>,
}

/// The operands of a tile, by addresses relative to its first elements, so that offsets between elements are constants
/// wherever sizes are.
pub(super) struct Operands<'g> {
    gemm: &'g Gemm,
    row: Sym,
    a: Origin,
    b: Origin,
}

struct Origin {
    pointer: V,
    position: Dim,
}

impl<'g> Operands<'g> {
    pub(super) fn new(
        gemm: &'g Gemm,
        em: &mut ElementEmitter<'_>,
        (row, panel, first): (&Sym, &Dim, &Sym),
    ) -> Operands<'g> {
        let start = |s: &Sym| {
            if *s == gemm.row {
                return Some(Dim::sym(row.clone()));
            }
            if *s == gemm.panel {
                return Some(panel.clone());
            }
            if *s == gemm.within {
                return Some(Dim::ZERO);
            }
            let at = gemm.depth.iter().position(|(d, _)| d == s)?;
            Some(if at + 1 == gemm.depth.len() { Dim::sym(first.clone()) } else { Dim::ZERO })
        };
        let mut origin = |place: &MemoryOperand| {
            // Checks are made of whole positions.
            if em.state.context.options.sanitize {
                return Origin { pointer: place.pointer, position: Dim::ZERO };
            }
            let position = place.position.subst(&start);
            let bytes = em.uniform(&(&position * &Dim::Const(place.bytes())));
            Origin { pointer: em.b.offset(place.pointer, bytes), position }
        };
        let (a, b) = (origin(&gemm.a), origin(&gemm.b));
        Operands { gemm, row: row.clone(), a, b }
    }

    /// The columns at one step of the innermost loop over the depth, or at a group of steps.
    pub(super) fn of_columns(
        &self,
        em: &mut ElementEmitter<'_>,
        (depth, rounds): (&Dim, i64),
        columns: &[Column],
    ) -> Vec<V> {
        let (gemm, lanes) = (self.gemm, self.gemm.tile.lanes);
        let last = gemm.depth.last().map(|(s, _)| s);
        let mut vector = |c: &Column| {
            let position = |round: i64| {
                let depth = depth + &Dim::Const(round);
                gemm.b.position.subst(&|s| match s {
                    s if *s == gemm.panel => Some(c.panel.clone()),
                    s if *s == gemm.within => Some(Dim::Const(c.within)),
                    s => (Some(s) == last).then(|| depth.clone()),
                })
            };
            match gemm.at_once {
                1 => {
                    let raw = load(em, &gemm.b, &self.b, &position(0), lanes, c.mask);
                    gemm.b.decode(em, raw)
                }
                n if gemm.b.grouped => load(em, &gemm.b, &self.b, &position(0), n as u32 * lanes, None),
                _ => {
                    let first = load(em, &gemm.b, &self.b, &position(0), lanes, c.mask);
                    let second = match rounds {
                        1 => em.b.int(em.b.ty(first), 0),
                        _ => load(em, &gemm.b, &self.b, &position(1), lanes, c.mask),
                    };
                    em.b.shuffle(first, second, (0..lanes).flat_map(|i| [i, lanes + i]).collect())
                }
            }
        };
        columns.iter().map(&mut vector).collect()
    }

    /// The element of a row at a step, broadcast to all lanes, or its group of steps as in memory. Steps beyond the end
    /// of the row are padding that meets zeros.
    fn of_row(&self, em: &mut ElementEmitter<'_>, (depth, rounds): (&Dim, i64), number: u32) -> V {
        let (gemm, lanes, at_once) = (self.gemm, self.gemm.tile.lanes, self.gemm.at_once);
        let elements = |em: &mut ElementEmitter<'_>, first: i64, count: i64| {
            let position = self.row_position(&(depth + &Dim::Const(first)), number);
            load(em, &gemm.a, &self.a, &position, count as u32, None)
        };
        if at_once == 1 {
            let a = elements(em, 0, 1);
            let a = gemm.a.decode(em, a);
            return em.b.splat(a, lanes);
        }
        let group = if rounds == at_once {
            elements(em, 0, at_once)
        } else {
            let each: Vec<V> = (0..at_once).map(|n| elements(em, n.min(rounds - 1), 1)).collect();
            em.b.vector(&each)
        };
        em.b.shuffle(group, group, (0..lanes * at_once as u32).map(|i| i % at_once as u32).collect())
    }

    /// The bits of the single row's element.
    pub(super) fn bits_of_row(&self, em: &mut ElementEmitter<'_>, depth: &Dim) -> V {
        let position = self.row_position(depth, 0);
        let bits = MemoryOperand { dtype: DType::I32, ..self.gemm.a.clone() };
        load(em, &bits, &self.a, &position, 1, None)
    }

    fn row_position(&self, depth: &Dim, number: u32) -> Dim {
        let gemm = self.gemm;
        let last = gemm.depth.last().map(|(s, _)| s);
        let row = &Dim::sym(self.row.clone()) + &Dim::Const(i64::from(number));
        gemm.a.position.subst(&|s| match s {
            s if *s == gemm.row => Some(row.clone()),
            s => (Some(s) == last).then(|| depth.clone()),
        })
    }

    /// One step along the depth, or one group of steps.
    pub(super) fn step(
        &self,
        em: &mut ElementEmitter<'_>,
        (depth, rounds): (&Dim, i64),
        height: u32,
        columns: &[Column],
        sums: &[V],
    ) -> Vec<V> {
        let dtype = self.gemm.out.dtype(em);
        let b = self.of_columns(em, (depth, rounds), columns);
        let mut next = Vec::with_capacity(sums.len());
        for i in 0..height {
            let a = self.of_row(em, (depth, rounds), i);
            for (j, &b) in b.iter().enumerate() {
                let sum = sums[i as usize * columns.len() + j];
                next.push(match self.gemm.at_once {
                    1 => multiply_add(em, dtype, a, b, sum),
                    2 => add_dot2(em, a, b, sum),
                    _ => em.b.dot4(a, b, sum),
                });
            }
        }
        next
    }

    /// Prefetches a share of the data that follows in `b`: all tiles of a block together prefetch what the next round
    /// over them reads. Not for few rows with several panels at once, which only read, so that the hardware prefetcher
    /// does better; nor next to rows that the kernel itself wrote (attention, with few columns), where LLVM would hoist
    /// all loads and run out of registers.
    pub(super) fn fetch_next(&self, em: &mut ElementEmitter<'_>, at: &At, part: &Part, (round, rounds): (V, i64)) {
        let gemm = self.gemm;
        if !gemm.b.padded
            || gemm.b.changes
            || gemm.a.changes
            || at.panels > 1
            || em.state.context.options.sanitize
            || em.state.context.device
        {
            return;
        }
        let bytes = gemm.tile.width() * gemm.b.bytes();
        let lines = ceil_div(rounds * bytes, CACHE_LINE);
        let least = gemm.rows.eval(&|_| Some(1)).unwrap_or(1).clamp(1, gemm.block());
        let tiles = match gemm.rows.as_const() {
            Some(_) => ceil_div(least, gemm.height()),
            // Low ones are few.
            None if 2 * at.height > gemm.tile.rows => ceil_div(least, gemm.height()).max(FEW_TILES),
            None => 1,
        };
        let share = ceil_div(lines, tiles);
        let (size, before) = (em.b.i64(bytes), em.b.mul(at.number, part.count));
        // Tiles prefetch equal shares, to spread the requests.
        let up = em.b.i64(bytes - 1);
        let up = em.b.add(at.tiles, up);
        let per_round = em.b.udiv(up, at.tiles);
        let (next, skipped) = (em.b.mul(part.count, size), em.b.mul(before, per_round));
        let first = em.b.add(next, skipped);
        for i in 0..share {
            let later = em.b.i64(i * rounds / share);
            let round = em.b.add(round, later);
            let here = em.b.mul(round, per_round);
            let at = em.b.add(first, here);
            em.b.prefetch(self.b.pointer, at);
        }
    }
}

/// Elements at a position, as they are in memory.
fn load(
    em: &mut ElementEmitter<'_>,
    place: &MemoryOperand,
    origin: &Origin,
    position: &Dim,
    lanes: u32,
    mask: Option<V>,
) -> V {
    let relative = position - &origin.position;
    // The offset between unrolled steps is added last, so that it becomes part of the load instruction.
    let constant = relative.terms().iter().find(|t| t.factors.is_empty()).map_or(0, |t| t.coef);
    let varying = em.uniform(&(&relative - &Dim::Const(constant)));
    let constant = em.b.i64(constant);
    let index = em.b.add(varying, constant);
    let ty = Ty::vector(scalar::memory(place.dtype), lanes);
    match mask.filter(|_| !place.padded) {
        Some(mask) => em.b.load_fixed_masked(ty, origin.pointer, index, mask),
        None => {
            em.check_bounds(&place.length, index, lanes, true);
            if place.changes {
                em.b.load(ty, origin.pointer, index)
            } else {
                em.b.load_fixed(ty, origin.pointer, index)
            }
        }
    }
}

/// The dot product of two (dot2): vectors of integers are multiplied and neighbouring products added to each sum. The
/// backend finds the instruction in this form.
pub(super) fn add_dot2(em: &mut ElementEmitter<'_>, a: V, b: V, sum: V) -> V {
    let lanes = em.b.ty(sum).lanes;
    let [a, b] = [a, b].map(|x| em.b.convert(Convert::SExt, x, Elem::I32));
    let products = em.b.mul(a, b);
    let [even, odd] = [0, 1].map(|first| em.b.shuffle(products, products, (0..lanes).map(|i| 2 * i + first).collect()));
    let pairs = em.b.add(even, odd);
    em.b.add(sum, pairs)
}

pub(super) fn multiply_add(em: &mut ElementEmitter<'_>, dtype: DType, a: V, b: V, sum: V) -> V {
    if dtype.is_float() {
        return em.b.muladd(a, b, sum);
    }
    let product = em.b.mul(a, b);
    let sum = em.b.add(sum, product);
    wrap(em, dtype, sum)
}
