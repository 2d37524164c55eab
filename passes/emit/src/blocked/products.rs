//! The register tile: a few pixels by a few vectors of outputs, all accumulators in registers over the whole depth.
use crate::{element::ElementEmitter, gemm::CACHE_LINE, tile::add_dot2};
use numrsc_facts::sizes::ceil_div;
use numrsc_ir::{
    Dim,
    dim::Sym,
    kernel::{Binary, Compare, Elem, Ty, V},
};
use numrsc_schedule::conv::numbers::Numbers;

/// More accumulators do not hide latencies better, and LLVM needs a few registers of its own.
const MAX_PIXELS: i64 = 12;
const MAX_PIXELS_OF_ONE_VECTOR: i64 = 8;
/// Tiles of so many pixels at most where their number is not known: 49 pixels and more are tiles of 8 and 7. There are
/// at least so many tiles then.
const TYPICAL_PIXELS: i64 = 8;
const TYPICAL_TILES: i64 = 7;
const FEW_PIXELS: i64 = 4;

/// Vectors of zeros to begin sums with.
pub(super) fn zeros(numbers: Numbers, em: &mut ElementEmitter<'_>, elem: Elem, lanes: i64) -> V {
    let ty = Ty::vector(elem, lanes as u32);
    if numbers == Numbers::Float { em.b.float(ty, 0.0) } else { em.b.int(ty, 0) }
}

/// Loops over the depth with what to add to positions in operand and weights; how many steps are written out inside of
/// them, and how far each moves in the operand. Every step reads `vectors` vectors of weights, one after the other.
pub(super) struct Products {
    pub loops: Vec<(Sym, Dim)>,
    pub x_at: Dim,
    pub w_at: Dim,
    pub steps: i64,
    pub x_step: Dim,
    pub weights: V,
    pub vectors: i64,
    pub lanes: i64,
    pub numbers: Numbers,
    /// Weights that all tiles of a block use before any of them uses the next ones, which lie behind them.
    pub round: i64,
}

/// A few pixels of a block: the first and how many, the tile's number, and how many there are of them at least.
pub(super) struct PixelTile {
    pub first: Dim,
    pub pixels: i64,
    number: V,
    count: i64,
}

/// Loads an element of a pixel by its number, or those that are multiplied at once, so many elements behind a position.
pub(super) type Load<'l> = dyn FnMut(&mut ElementEmitter<'_>, i64, (V, V)) -> V + 'l;

impl Products {
    /// The sums of a tile, vector by vector for each pixel; a position and what an element lies behind it are two
    /// numbers because LLVM takes a sum of them apart and keeps an address in memory for every step of every pixel.
    pub(super) fn sums(&self, em: &mut ElementEmitter<'_>, tile: &PixelTile, load: &mut Load<'_>) -> Vec<V> {
        let lanes = self.lanes as u32;
        let at_once = self.numbers.at_once();
        let wide = Ty::vector(self.numbers.weight(), lanes * at_once as u32);
        let zeros =
            vec![zeros(self.numbers, em, self.numbers.sum(), self.lanes); (tile.pixels * self.vectors) as usize];
        em.carry(&self.loops, &zeros, &mut |em, sums| {
            let (x_at, w_at, x_step) = (em.uniform(&self.x_at), em.uniform(&self.w_at), em.uniform(&self.x_step));
            self.fetch_next(em, tile, w_at);
            let mut sums = sums.to_vec();
            for step in 0..self.steps {
                let w: Vec<V> = (0..self.vectors)
                    .map(|j| {
                        let offset = em.b.i64((step * self.vectors + j) * self.lanes * at_once);
                        let at = em.b.add(w_at, offset);
                        em.b.load_fixed(wide, self.weights, at)
                    })
                    .collect();
                let number = em.b.i64(step);
                let behind = em.b.mul(x_step, number);
                for (i, sums) in sums.chunks_mut(self.vectors as usize).enumerate() {
                    let x = load(em, i as i64, (x_at, behind));
                    let x = match at_once as u32 {
                        1 => em.b.splat(x, lanes),
                        n => em.b.shuffle(x, x, (0..n * lanes).map(|i| i % n).collect()),
                    };
                    for (sum, &w) in sums.iter_mut().zip(&w) {
                        *sum = match self.numbers {
                            Numbers::Float => em.b.muladd(x, w, *sum),
                            Numbers::Dot2(_) => add_dot2(em, x, w, *sum),
                            Numbers::Dot4 => em.b.dot4(x, w, *sum),
                        };
                    }
                }
            }
            sums
        })
    }

    /// Prefetches a share of the weights that follow: all tiles of a block together prefetch what the next round over
    /// them reads. Not for few pixels, which only read, so that the hardware prefetcher does better.
    fn fetch_next(&self, em: &mut ElementEmitter<'_>, tile: &PixelTile, w_at: V) {
        if tile.count == 1 && tile.pixels <= FEW_PIXELS || em.state.context.options.sanitize || em.state.context.device
        {
            return;
        }
        let lines = ceil_div(
            self.steps * self.vectors * self.lanes * self.numbers.at_once() * self.numbers.weight_bytes(),
            CACHE_LINE,
        );
        let bytes = self.numbers.weight_bytes();
        let share = ceil_div(lines, tile.count.max(1));
        // Further tiles would prefetch what is there already.
        let (each, last) = (em.b.i64(share), em.b.i64(lines - share));
        let before = em.b.mul(tile.number, each);
        let before = em.b.binary(Binary::SMin, before, last);
        let (line, next, size) = (em.b.i64(CACHE_LINE), em.b.i64(self.round * bytes), em.b.i64(bytes));
        let skipped = em.b.mul(before, line);
        let distance = em.b.add(next, skipped);
        let here = em.b.mul(w_at, size);
        let at = em.b.add(distance, here);
        for number in 0..share {
            let behind = em.b.i64(number * CACHE_LINE);
            let at = em.b.add(at, behind);
            em.b.prefetch(self.weights, at);
        }
    }
}

/// Pixels whose accumulators fit the registers, beside a vector of weights each and an element.
pub(super) fn most_pixels(registers: i64, vectors: i64) -> i64 {
    let most = if vectors == 1 { MAX_PIXELS_OF_ONE_VECTOR } else { MAX_PIXELS };
    ((registers - vectors - 1) / vectors).clamp(1, most)
}

/// Call `body` for `count` pixels in tiles of almost equal size, at most `most`. `known` are the two counts there are,
/// the larger one last.
pub(super) fn tiles(
    em: &mut ElementEmitter<'_>,
    count: V,
    known: Option<[i64; 2]>,
    mut most: i64,
    body: &mut dyn FnMut(&mut ElementEmitter<'_>, &PixelTile),
) {
    // `n` pixels are tiles of `size` and `size - 1` if there are enough of them, or if there are as many tiles as that.
    let splits = |size: i64| known.is_some_and(|counts| counts.iter().all(|&n| n >= ceil_div(n, size) * (size - 1)));
    most = known.map_or(most, |counts| most.min(counts[1])).max(1);
    most = (ceil_div(most, 2)..=most).rev().find(|&size| splits(size)).unwrap_or(most.min(TYPICAL_PIXELS));
    let always = splits(most);
    let (size, less, zero) = (em.b.i64(most), em.b.i64(most - 1), em.b.i64(0));
    let rounded = em.b.add(count, less);
    let tiles = em.b.udiv(rounded, size);
    let whole = em.b.mul(tiles, less);
    let mut large = em.b.sub(count, whole);
    let mut small = em.b.sub(tiles, large);
    if !always {
        let fits = em.b.compare(Compare::Le, zero, large);
        let whole = em.b.udiv(count, size);
        (large, small) = (em.b.select(fits, large, whole), em.b.select(fits, small, zero));
    }
    let middle = em.b.mul(large, size);
    let least = known.map_or(TYPICAL_TILES, |counts| ceil_div(counts[0], most));
    let mut from = |em: &mut ElementEmitter<'_>, start: V, before: V, low: V, high: V, pixels: i64| {
        let open = em.b.open_for(&[]);
        let step = em.b.i64(pixels);
        let at = em.b.mul(open.var, step);
        let at = em.b.add(start, at);
        let (first, number) = (em.name_of(at), em.b.add(before, open.var));
        body(em, &PixelTile { first, pixels, number, count: least });
        em.b.close_for(open, low, high, 1, vec![]);
    };
    from(em, zero, zero, zero, large, most);
    if most > 1 {
        from(em, middle, large, zero, small, most - 1);
    }
    if !always && most > 1 {
        let done = em.b.mul(small, less);
        let done = em.b.add(middle, done);
        from(em, zero, zero, done, count, 1);
    }
}
