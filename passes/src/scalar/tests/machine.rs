//! A small evaluator of straight-line code, `while` and `if`, lane by lane, with and without a fused `muladd`.
use numrsc_ir::kernel::{
    Binary, Block, Compare, Convert, Elem, Function, Inst, Kind, Stmt, Ty, Unary, V, build::Builder,
};
use std::{collections::HashMap, rc::Rc};

/// The bits of every lane.
pub(crate) type Lanes = Rc<Vec<u64>>;

pub(crate) struct Machine {
    pub(crate) fused: bool,
    /// What addresses count from 0.
    pub(crate) memory: Vec<u8>,
}

/// A helper with one result, over parameters of these types.
pub(crate) fn function(params: &[Ty], build: impl FnOnce(&mut Builder, &[V]) -> V) -> Function {
    let mut b = Builder::new(Kind::Helper, params);
    let params = b.params().to_vec();
    let result = build(&mut b, &params);
    b.finish("f", vec![result])
}

impl Machine {
    pub(crate) fn new(fused: bool) -> Machine {
        Machine { fused, memory: vec![] }
    }

    pub(crate) fn run(&self, f: &Function, args: &[Lanes]) -> Lanes {
        let mut values: HashMap<V, Lanes> = f.params.iter().copied().zip(args.iter().cloned()).collect();
        self.block(f, &f.body, &mut values);
        values[&f.body.results[0]].clone()
    }

    fn block(&self, f: &Function, block: &Block, values: &mut HashMap<V, Lanes>) {
        for stmt in &block.stmts {
            match stmt {
                Stmt::Let { out, inst } => {
                    let value = self.inst(f, f.ty(*out), inst, values);
                    assert_eq!(value.len(), f.ty(*out).lanes as usize, "{inst:?}");
                    values.insert(*out, Rc::new(value));
                }
                Stmt::While { carried, cond, body, outs } => {
                    for (inside, first) in carried {
                        values.insert(*inside, values[first].clone());
                    }
                    loop {
                        self.block(f, cond, values);
                        if values[&cond.results[0]][0] == 0 {
                            break;
                        }
                        self.block(f, body, values);
                        let next: Vec<Lanes> = body.results.iter().map(|v| values[v].clone()).collect();
                        values.extend(carried.iter().map(|c| c.0).zip(next));
                    }
                    for ((inside, _), out) in carried.iter().zip(outs) {
                        values.insert(*out, values[inside].clone());
                    }
                }
                Stmt::If { cond, then, or, outs } => {
                    let taken = if values[cond][0] != 0 { then } else { or };
                    self.block(f, taken, values);
                    for (result, out) in taken.results.iter().zip(outs) {
                        values.insert(*out, values[result].clone());
                    }
                }
                other => panic!("not in scalar code: {other:?}"),
            }
        }
    }

    fn inst(&self, f: &Function, ty: Ty, inst: &Inst, values: &HashMap<V, Lanes>) -> Vec<u64> {
        let get = |v: &V| values[v].clone();
        let elem = |v: &V| f.ty(*v).elem;
        match inst {
            Inst::Const(bits) => vec![*bits; ty.lanes as usize],
            Inst::Unary(op, a) => get(a).iter().map(|&x| unary(*op, ty.elem, x)).collect(),
            Inst::Binary(op, a, b) => {
                let (a, b) = (get(a), get(b));
                a.iter().zip(b.iter()).map(|(&x, &y)| binary(*op, ty.elem, x, y)).collect()
            }
            Inst::MulAdd(a, b, c) => {
                let (a, b, c) = (get(a), get(b), get(c));
                a.iter().zip(b.iter()).zip(c.iter()).map(|((&x, &y), &z)| self.muladd(ty.elem, x, y, z)).collect()
            }
            Inst::Compare(op, a, b) => {
                let e = elem(a);
                let (a, b) = (get(a), get(b));
                a.iter().zip(b.iter()).map(|(&x, &y)| u64::from(compare(*op, e, x, y))).collect()
            }
            Inst::Select(c, a, b) => {
                let (c, a, b) = (get(c), get(a), get(b));
                c.iter().zip(a.iter()).zip(b.iter()).map(|((&c, &x), &y)| if c != 0 { x } else { y }).collect()
            }
            Inst::Convert(op, a) => {
                let e = elem(a);
                get(a).iter().map(|&x| convert(*op, e, ty.elem, x)).collect()
            }
            Inst::Splat(a) => vec![get(a)[0]; ty.lanes as usize],
            Inst::Extract(a, lane) => vec![get(a)[*lane as usize]],
            Inst::Insert(a, x, lane) => {
                let mut lanes = get(a).to_vec();
                lanes[*lane as usize] = get(x)[0];
                lanes
            }
            Inst::Reduce(Binary::Or, a) => vec![get(a).iter().fold(0, |x, y| x | y)],
            Inst::Load { ptr, index, mask: None } => {
                let size = ty.elem.size() as usize;
                let at = get(ptr)[0] as usize + get(index)[0] as usize * size;
                vec![self.memory[at..at + size].iter().rev().fold(0, |x, &b| (x << 8) | u64::from(b))]
            }
            Inst::Offset(p, by) => vec![get(p)[0].wrapping_add(get(by)[0])],
            other => panic!("not in scalar code: {other:?}"),
        }
    }

    fn muladd(&self, elem: Elem, x: u64, y: u64, z: u64) -> u64 {
        if !self.fused {
            return binary(Binary::Add, elem, binary(Binary::Mul, elem, x, y), z);
        }
        match elem {
            Elem::F32 => u64::from(single(x).mul_add(single(y), single(z)).to_bits()),
            _ => f64::from_bits(x).mul_add(f64::from_bits(y), f64::from_bits(z)).to_bits(),
        }
    }
}

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn mask(elem: Elem, x: u64) -> u64 {
    if elem.bits() == 64 { x } else { x & ((1 << elem.bits()) - 1) }
}

fn signed(elem: Elem, x: u64) -> i64 {
    let unused = 64 - elem.bits();
    ((x << unused) as i64) >> unused
}

fn unary(op: Unary, elem: Elem, x: u64) -> u64 {
    macro_rules! float {
        ($x:expr) => {
            match op {
                Unary::Neg => -$x,
                Unary::Abs => $x.abs(),
                Unary::Sqrt => $x.sqrt(),
                Unary::Floor => $x.floor(),
                Unary::Ceil => $x.ceil(),
                Unary::Trunc => $x.trunc(),
                Unary::Round => $x.round_ties_even(),
                Unary::Not => panic!("not of a float"),
            }
            .to_bits()
        };
    }
    match (elem, op) {
        (Elem::F32, _) => u64::from(float!(single(x))),
        (Elem::F64, _) => float!(f64::from_bits(x)),
        (_, Unary::Neg) => mask(elem, x.wrapping_neg()),
        (_, Unary::Not) => mask(elem, !x),
        _ => panic!("{op:?} of an integer"),
    }
}

fn binary(op: Binary, elem: Elem, x: u64, y: u64) -> u64 {
    macro_rules! float {
        ($x:expr, $y:expr) => {{
            let (x, y) = ($x, $y);
            match op {
                Binary::Add => x + y,
                Binary::Sub => x - y,
                Binary::Mul => x * y,
                Binary::FDiv => x / y,
                Binary::FMin => {
                    if x < y {
                        x
                    } else {
                        y
                    }
                }
                Binary::FMax => {
                    if x > y {
                        x
                    } else {
                        y
                    }
                }
                _ => panic!("{op:?} of floats"),
            }
            .to_bits()
        }};
    }
    match elem {
        Elem::F32 => return u64::from(float!(single(x), single(y))),
        Elem::F64 => return float!(f64::from_bits(x), f64::from_bits(y)),
        _ => {}
    }
    let (sx, sy) = (signed(elem, x), signed(elem, y));
    let shift = || {
        assert!(y < u64::from(elem.bits()), "shift by {y} of {elem:?}");
        y as u32
    };
    let no_overflow = || assert!(sy != 0 && !(sy == -1 && sx == signed(elem, 1 << (elem.bits() - 1))), "{sx} / {sy}");
    let result = match op {
        Binary::Add => x.wrapping_add(y),
        Binary::Sub => x.wrapping_sub(y),
        Binary::Mul => x.wrapping_mul(y),
        Binary::SDiv => {
            no_overflow();
            (sx / sy) as u64
        }
        Binary::SRem => {
            no_overflow();
            (sx % sy) as u64
        }
        Binary::UDiv => x / y,
        Binary::URem => x % y,
        Binary::SMin => sx.min(sy) as u64,
        Binary::SMax => sx.max(sy) as u64,
        Binary::UMin => x.min(y),
        Binary::UMax => x.max(y),
        Binary::And => x & y,
        Binary::Or => x | y,
        Binary::Xor => x ^ y,
        Binary::Shl => x << shift(),
        Binary::LShr => x >> shift(),
        Binary::AShr => (sx >> shift()) as u64,
        Binary::FDiv | Binary::FMin | Binary::FMax => panic!("{op:?} of integers"),
    };
    mask(elem, result)
}

fn compare(op: Compare, elem: Elem, x: u64, y: u64) -> bool {
    macro_rules! ordered {
        ($x:expr, $y:expr) => {
            match op {
                Compare::Eq => $x == $y,
                Compare::Ne => $x != $y,
                Compare::Lt => $x < $y,
                Compare::Le => $x <= $y,
                Compare::ULt | Compare::ULe => panic!("unsigned comparison"),
            }
        };
    }
    assert!(elem != Elem::I1, "comparison of i1");
    match (elem, op) {
        (Elem::F32, _) => ordered!(single(x), single(y)),
        (Elem::F64, _) => ordered!(f64::from_bits(x), f64::from_bits(y)),
        (_, Compare::ULt) => x < y,
        (_, Compare::ULe) => x <= y,
        _ => ordered!(signed(elem, x), signed(elem, y)),
    }
}

fn convert(op: Convert, from: Elem, to: Elem, x: u64) -> u64 {
    let float = |x: u64| if from == Elem::F32 { f64::from(single(x)) } else { f64::from_bits(x) };
    match op {
        Convert::Narrow => {
            assert!(to.bits() < from.bits(), "{from:?} to {to:?}");
            mask(to, x)
        }
        Convert::SExt | Convert::ZExt => {
            assert!(to.bits() > from.bits(), "{from:?} to {to:?}");
            mask(to, if op == Convert::SExt { signed(from, x) as u64 } else { x })
        }
        Convert::Float => match to {
            Elem::F32 => u64::from((float(x) as f32).to_bits()),
            _ => float(x).to_bits(),
        },
        Convert::SToF if to == Elem::F32 => u64::from((signed(from, x) as f32).to_bits()),
        Convert::SToF => (signed(from, x) as f64).to_bits(),
        Convert::UToF if to == Elem::F32 => u64::from((x as f32).to_bits()),
        Convert::UToF => (x as f64).to_bits(),
        Convert::FToS => {
            let high = (1i128 << (to.bits() - 1)) - 1;
            mask(to, (float(x) as i128).clamp(-high - 1, high) as u64)
        }
        Convert::FToU => (float(x) as i128).clamp(0, (1i128 << to.bits()) - 1) as u64,
        Convert::Bits | Convert::Pointer => {
            assert_eq!(from.size(), to.size(), "{from:?} to {to:?}");
            x
        }
    }
}
