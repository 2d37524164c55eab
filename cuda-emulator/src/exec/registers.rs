//! The registers of a warp: one value for each of its 32 lanes, in files by width.

/// Threads of a warp.
pub const LANES: usize = 32;

/// A value per lane.
pub type Lanes<T> = [T; LANES];

/// What lies in a register before anything was written: a pattern that shows in results.
const POISON: u32 = 0xdead_c0de;

/// All registers of a warp. Values of 8 and 16 bits lie in the low bits of a word, the others being 0.
#[derive(Clone, Debug)]
pub struct Registers {
    pub words: Vec<Lanes<u32>>,
    pub doubles: Vec<Lanes<u64>>,
    /// A bit per lane.
    pub predicates: Vec<u32>,
}

impl Registers {
    pub fn new(words: usize, doubles: usize, predicates: usize) -> Registers {
        let double = u64::from(POISON) << 32 | u64::from(POISON);
        Registers {
            words: vec![[POISON; LANES]; words],
            doubles: vec![[double; LANES]; doubles],
            predicates: vec![0; predicates],
        }
    }
}

/// A type that one of the files holds.
pub trait Held: Copy + Default + Send + Sync + 'static {
    fn file(r: &Registers) -> &[Lanes<Self>];
    fn file_mut(r: &mut Registers) -> &mut [Lanes<Self>];
}

impl Held for u32 {
    fn file(r: &Registers) -> &[Lanes<u32>] {
        &r.words
    }
    fn file_mut(r: &mut Registers) -> &mut [Lanes<u32>] {
        &mut r.words
    }
}

impl Held for u64 {
    fn file(r: &Registers) -> &[Lanes<u64>] {
        &r.doubles
    }
    fn file_mut(r: &mut Registers) -> &mut [Lanes<u64>] {
        &mut r.doubles
    }
}

/// What an instruction does to the lanes of a mask.
pub type LaneOp = Box<dyn Fn(&mut Registers, u32) + Send + Sync>;

/// Reads a lane of a register of any file, extended by zeros.
pub type Read = Box<dyn Fn(&Registers, usize) -> u64 + Send + Sync>;

/// Write the lanes of a mask.
pub fn write<D: Held>(r: &mut Registers, d: usize, mask: u32, values: &Lanes<D>) {
    let out = &mut D::file_mut(r)[d];
    if mask == u32::MAX {
        *out = *values;
    } else {
        for lane in 0..LANES {
            if mask >> lane & 1 == 1 {
                out[lane] = values[lane];
            }
        }
    }
}

pub fn map1<A: Held, D: Held>(d: usize, a: usize, f: impl Fn(A) -> D + Send + Sync + 'static) -> LaneOp {
    Box::new(move |r, mask| {
        let x = A::file(r)[a];
        write(r, d, mask, &x.map(&f));
    })
}

pub fn map2<A: Held, B: Held, D: Held>(
    d: usize,
    [a, b]: [usize; 2],
    f: impl Fn(A, B) -> D + Send + Sync + 'static,
) -> LaneOp {
    Box::new(move |r, mask| {
        let (x, y) = (A::file(r)[a], B::file(r)[b]);
        let mut out = [D::default(); LANES];
        for lane in 0..LANES {
            out[lane] = f(x[lane], y[lane]);
        }
        write(r, d, mask, &out);
    })
}

pub fn map3<A: Held, B: Held, C: Held, D: Held>(
    d: usize,
    [a, b, c]: [usize; 3],
    f: impl Fn(A, B, C) -> D + Send + Sync + 'static,
) -> LaneOp {
    Box::new(move |r, mask| {
        let (x, y, z) = (A::file(r)[a], B::file(r)[b], C::file(r)[c]);
        let mut out = [D::default(); LANES];
        for lane in 0..LANES {
            out[lane] = f(x[lane], y[lane], z[lane]);
        }
        write(r, d, mask, &out);
    })
}

/// The lanes where a test holds, as a bit each.
pub fn lanes_where<A: Held>(r: &Registers, [a, b]: [usize; 2], f: impl Fn(A, A) -> bool) -> u32 {
    let (x, y) = (&A::file(r)[a], &A::file(r)[b]);
    (0..LANES).fold(0, |bits, lane| bits | u32::from(f(x[lane], y[lane])) << lane)
}
