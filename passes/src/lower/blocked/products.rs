//! The innermost part: a few pixels times a few vectors of outputs, all accumulators in registers over the whole depth.
use crate::lower::{cx::Cx, tile::ceil_div};
use numrsc_ir::{
    Dim,
    dim::Sym,
    kernel::{Compare, Elem, Ty, V},
};

/// More accumulators do not hide latencies better, and LLVM needs a few registers of its own.
const MAX_PIXELS: i64 = 12;
const MAX_PIXELS_OF_ONE_VECTOR: i64 = 8;
/// Tiles of so many pixels at most where their number is not known: 49 pixels and more are tiles of 8 and 7.
const TYPICAL_PIXELS: i64 = 8;

/// Channels of a block that are written out at most: with more of them, LLVM loads elements so early that registers run out.
pub(super) const MAX_STEPS: i64 = 8;

/// Loops over the depth with what to add to positions in operand and weights; how many steps are written out inside of them, and how far each moves in the
/// operand. Every step reads `vectors` vectors of weights, one after the other.
pub(super) struct Products {
    pub loops: Vec<(Sym, Dim)>,
    pub x_at: Dim,
    pub w_at: Dim,
    pub steps: i64,
    pub x_step: Dim,
    pub weights: V,
    pub vectors: i64,
    pub lanes: i64,
}

/// Loads an element of a pixel by its number, so many elements behind a position.
pub(super) type Load<'l> = dyn FnMut(&mut Cx<'_>, i64, (V, V)) -> V + 'l;

impl Products {
    /// What sums of some pixels start with.
    pub(super) fn zeros(&self, cx: &mut Cx<'_>, pixels: i64) -> Vec<V> {
        let zero = cx.b.float(Ty::vector(Elem::F32, self.lanes as u32), 0.0);
        vec![zero; (pixels * self.vectors) as usize]
    }

    /// Add to the sums of some pixels, vector by vector for each; a position and what an element lies behind it are two
    /// numbers because LLVM takes a sum of them apart and keeps an address in memory for every step of every pixel.
    pub(super) fn add_to(&self, cx: &mut Cx<'_>, sums: &[V], load: &mut Load<'_>) -> Vec<V> {
        let lanes = self.lanes as u32;
        let wide = Ty::vector(Elem::F32, lanes);
        cx.carry(&self.loops, sums, &mut |cx, sums| {
            let (x_at, w_at, x_step) = (cx.uniform(&self.x_at), cx.uniform(&self.w_at), cx.uniform(&self.x_step));
            let mut sums = sums.to_vec();
            for step in 0..self.steps {
                let w: Vec<V> = (0..self.vectors)
                    .map(|j| {
                        let offset = cx.b.i64((step * self.vectors + j) * self.lanes);
                        let at = cx.b.add(w_at, offset);
                        cx.b.load_fixed(wide, self.weights, at)
                    })
                    .collect();
                let number = cx.b.i64(step);
                let behind = cx.b.mul(x_step, number);
                for (i, sums) in sums.chunks_mut(self.vectors as usize).enumerate() {
                    let x = load(cx, i as i64, (x_at, behind));
                    let x = cx.b.splat(x, lanes);
                    sums.iter_mut().zip(&w).for_each(|(sum, w)| *sum = cx.b.muladd(x, *w, *sum));
                }
            }
            sums
        })
    }
}

/// Pixels whose accumulators fit the registers, beside a vector of weights each and an element.
pub(super) fn most_pixels(registers: i64, vectors: i64) -> i64 {
    let most = if vectors == 1 { MAX_PIXELS_OF_ONE_VECTOR } else { MAX_PIXELS };
    ((registers - vectors - 1) / vectors).clamp(1, most)
}

/// Call `body` for `count` pixels in tiles of almost equal size, at most `most`: with the first pixel of a tile and their number. `known` are the two
/// counts there are, the larger one last.
pub(super) fn tiles(
    cx: &mut Cx<'_>,
    count: V,
    known: Option<[i64; 2]>,
    mut most: i64,
    body: &mut dyn FnMut(&mut Cx<'_>, &Dim, i64),
) {
    // `n` pixels are tiles of `size` and `size - 1` if there are enough of them, or if there are as many tiles as that.
    let splits = |size: i64| known.is_some_and(|counts| counts.iter().all(|&n| n >= ceil_div(n, size) * (size - 1)));
    most = known.map_or(most, |counts| most.min(counts[1])).max(1);
    most = (ceil_div(most, 2)..=most).rev().find(|&size| splits(size)).unwrap_or(most.min(TYPICAL_PIXELS));
    let always = splits(most);
    let (size, less, zero) = (cx.b.i64(most), cx.b.i64(most - 1), cx.b.i64(0));
    let rounded = cx.b.add(count, less);
    let tiles = cx.b.udiv(rounded, size);
    let whole = cx.b.mul(tiles, less);
    let mut large = cx.b.sub(count, whole);
    let mut small = cx.b.sub(tiles, large);
    if !always {
        let fits = cx.b.compare(Compare::Le, zero, large);
        let whole = cx.b.udiv(count, size);
        (large, small) = (cx.b.select(fits, large, whole), cx.b.select(fits, small, zero));
    }
    let middle = cx.b.mul(large, size);
    let mut from = |cx: &mut Cx<'_>, start: V, low: V, high: V, pixels: i64| {
        let open = cx.b.open_for(&[]);
        let step = cx.b.i64(pixels);
        let at = cx.b.mul(open.var, step);
        let at = cx.b.add(start, at);
        let first = cx.name_of(at);
        body(cx, &first, pixels);
        cx.b.close_for(open, low, high, 1, vec![]);
    };
    from(cx, zero, zero, large, most);
    if most > 1 {
        from(cx, middle, zero, small, most - 1);
    }
    if !always && most > 1 {
        let done = cx.b.mul(small, less);
        let done = cx.b.add(middle, done);
        from(cx, zero, done, count, 1);
    }
}
