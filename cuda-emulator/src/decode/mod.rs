//! From instructions as they are written to operations on registers: names are looked up, constants lie in registers of their own, and
//! every modifier is understood or refused with its line.
mod collective;
mod convert;
mod float;
mod integer;
mod memory;
mod movement;
mod rounding;

use crate::{
    exec::registers::LaneOp,
    ptx::{Entry, Instruction, Module, Operand, Param, Space, SyntaxError},
};
use std::collections::HashMap;

pub use collective::{Reduce, Shuffle, Vote, VoteKind, Way};
pub use memory::{Access, Action, AtomicOp, Base, Held};

pub(crate) type Decoded<T> = Result<T, SyntaxError>;

/// An entry, ready to run.
pub struct Program {
    pub name: String,
    pub line: u32,
    pub params: Vec<Param>,
    pub param_bytes: u64,
    pub max_threads: Option<[u32; 3]>,
    pub required_threads: Option<[u32; 3]>,
    pub ops: Vec<Op>,
    /// How many registers there are of each file.
    pub words: usize,
    pub doubles: usize,
    pub predicates: usize,
    /// What registers hold from the start: constants, and addresses of variables of the module by name.
    pub word_constants: Vec<(usize, u32)>,
    pub double_constants: Vec<(usize, u64)>,
    /// Predicates that always hold; those that never do are 0 from the start.
    pub true_predicates: Vec<usize>,
    pub addresses: Vec<(usize, String)>,
    pub specials: Vec<(Special, usize)>,
    /// Bytes of shared memory that the entry declares; what the launch adds lies behind them.
    pub shared_bytes: u64,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("name", &self.name).field("ops", &self.ops.len()).finish_non_exhaustive()
    }
}

/// An instruction.
#[derive(Debug)]
pub struct Op {
    pub line: u32,
    /// A predicate, and whether it has to be false.
    pub guard: Option<(usize, bool)>,
    pub kind: Kind,
    pub class: Class,
}

pub enum Kind {
    Lanes(LaneOp),
    Access(Access),
    Branch(usize),
    Exit,
    Trap,
    Barrier,
    /// `bar.warp.sync` of the lanes that a register names.
    WarpBarrier(usize),
    Shuffle(Shuffle),
    Vote(Vote),
    Reduce(Reduce),
    /// Which lanes are here, into a register.
    ActiveMask(usize),
    /// Fences and hints, which change nothing here.
    Nothing,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Lanes(_) => "Lanes",
            Kind::Access(_) => "Access",
            Kind::Branch(_) => "Branch",
            Kind::Exit => "Exit",
            Kind::Trap => "Trap",
            Kind::Barrier => "Barrier",
            Kind::WarpBarrier(_) => "WarpBarrier",
            Kind::Shuffle(_) => "Shuffle",
            Kind::Vote(_) => "Vote",
            Kind::Reduce(_) => "Reduce",
            Kind::ActiveMask(_) => "ActiveMask",
            Kind::Nothing => "Nothing",
        })
    }
}

/// What instructions are counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// `fma` of `f32` and `f16`, or the dot product of four.
    Fma,
    Float,
    /// Anything with `f64`.
    Double,
    Integer,
    /// Conversions and moves.
    Move,
    Global,
    Shared,
    /// Parameters and constants.
    Constant,
    Atomic,
    Control,
    Barrier,
    /// Shuffles and votes.
    Collective,
}

/// Registers that the hardware fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    Thread(usize),
    Threads(usize),
    Block(usize),
    Blocks(usize),
    Lane,
    Warp,
    /// The lanes before, up to, from and behind this one.
    Before,
    UpTo,
    From,
    Behind,
    DynamicShared,
}

/// Decode an entry of a module.
pub fn decode(module: &Module, entry: &Entry) -> Decoded<Program> {
    let mut decoder = Decoder::new(module, entry)?;
    let labels: HashMap<&str, usize> = entry.labels.iter().map(|(name, at)| (&name[..], *at)).collect();
    let ops = entry.code.iter().map(|i| decoder.op(i, &labels)).collect::<Decoded<Vec<Op>>>()?;
    Ok(Program {
        name: entry.name.clone(),
        line: entry.line,
        params: entry.params.clone(),
        param_bytes: entry.param_bytes(),
        max_threads: entry.max_threads,
        required_threads: entry.required_threads,
        ops,
        words: decoder.words,
        doubles: decoder.doubles,
        predicates: decoder.predicates,
        word_constants: decoder.word_constants.into_iter().map(|(bits, at)| (at, bits)).collect(),
        double_constants: decoder.double_constants.into_iter().map(|(bits, at)| (at, bits)).collect(),
        true_predicates: decoder.true_predicates,
        addresses: decoder.addresses.into_iter().map(|(name, at)| (at, name)).collect(),
        specials: decoder.specials,
        shared_bytes: decoder.shared_bytes,
    })
}

/// A register: the file it lies in and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Of 16 or 32 bits.
    Word(usize, u32),
    Double(usize),
    Predicate(usize),
}

pub(crate) struct Decoder<'m> {
    names: HashMap<String, Slot>,
    params: HashMap<String, u64>,
    /// Shared variables and their places.
    shared: HashMap<String, u64>,
    dynamic: Vec<String>,
    globals: HashMap<&'m str, Space>,
    words: usize,
    doubles: usize,
    predicates: usize,
    word_constants: HashMap<u32, usize>,
    double_constants: HashMap<u64, usize>,
    addresses: HashMap<String, usize>,
    true_predicates: Vec<usize>,
    specials: Vec<(Special, usize)>,
    shared_bytes: u64,
    line: u32,
}

impl<'m> Decoder<'m> {
    fn new(module: &'m Module, entry: &'m Entry) -> Decoded<Decoder<'m>> {
        let mut d = Decoder {
            names: HashMap::new(),
            params: entry.params.iter().map(|p| (p.name.clone(), p.offset)).collect(),
            shared: HashMap::new(),
            dynamic: vec![],
            globals: HashMap::new(),
            words: 0,
            doubles: 0,
            predicates: 0,
            word_constants: HashMap::new(),
            double_constants: HashMap::new(),
            addresses: HashMap::new(),
            true_predicates: vec![],
            specials: vec![],
            shared_bytes: 0,
            line: entry.line,
        };
        for variable in module.variables.iter().chain(&entry.variables) {
            match (variable.space, variable.bytes) {
                (Space::Shared, 0) => d.dynamic.push(variable.name.clone()),
                (Space::Shared, bytes) => {
                    let at = d.shared_bytes.next_multiple_of(variable.align);
                    d.shared.insert(variable.name.clone(), at);
                    d.shared_bytes = at + bytes;
                }
                (space, _) => drop(d.globals.insert(&variable.name, space)),
            }
        }
        for registers in &entry.registers {
            let names: Vec<String> = match registers.count {
                Some(n) => (0..n).map(|i| format!("{}{i}", registers.name)).collect(),
                None => vec![registers.name.clone()],
            };
            let Some(bits) = crate::ptx::type_bits(&registers.ty) else {
                return Err(d.refuse(format!("registers of type `{}`", registers.ty)));
            };
            for name in names {
                let slot = d.slot(bits);
                d.names.insert(name, slot);
            }
        }
        Ok(d)
    }

    fn slot(&mut self, bits: u32) -> Slot {
        match bits {
            1 => {
                self.predicates += 1;
                Slot::Predicate(self.predicates - 1)
            }
            64 => {
                self.doubles += 1;
                Slot::Double(self.doubles - 1)
            }
            _ => {
                self.words += 1;
                Slot::Word(self.words - 1, bits)
            }
        }
    }

    pub(crate) fn refuse(&self, what: impl std::fmt::Display) -> SyntaxError {
        SyntaxError::at(self.line, format!("{what} is not supported"))
    }

    fn fail(&self, message: impl Into<String>) -> SyntaxError {
        SyntaxError::at(self.line, message)
    }

    fn op(&mut self, i: &Instruction, labels: &HashMap<&str, usize>) -> Decoded<Op> {
        self.line = i.line;
        let guard = match &i.guard {
            Some((name, negated)) => Some((self.predicate_named(name)?, *negated)),
            None => None,
        };
        let mut mods = Mods { op: i.op.join("."), rest: i.op[1..].iter().map(|s| &s[..]).collect() };
        let (kind, class) = self.kind(&i.op[0], &mut mods, &i.operands, labels)?;
        if let Some(left) = mods.rest.first() {
            return Err(self.refuse(format!("`.{left}` of `{}`", mods.op)));
        }
        Ok(Op { line: i.line, guard, kind, class })
    }

    fn kind(
        &mut self,
        name: &str,
        mods: &mut Mods<'_>,
        operands: &[Operand],
        labels: &HashMap<&str, usize>,
    ) -> Decoded<(Kind, Class)> {
        match name {
            "bra" => {
                mods.take("uni");
                let [Operand::Name(label, false)] = operands else { return Err(self.fail("`bra` takes a label")) };
                match labels.get(&label[..]) {
                    Some(&at) => Ok((Kind::Branch(at), Class::Control)),
                    None => Err(self.fail(format!("there is no label `{label}`"))),
                }
            }
            "ret" | "exit" => {
                mods.take("uni");
                Ok((Kind::Exit, Class::Control))
            }
            "trap" => Ok((Kind::Trap, Class::Control)),
            "membar" | "fence" | "nanosleep" | "prefetch" | "prefetchu" => {
                mods.rest.clear();
                Ok((Kind::Nothing, Class::Control))
            }
            "bar" | "barrier" | "shfl" | "vote" | "activemask" | "redux" => self.collective(name, mods, operands),
            "ld" | "ldu" | "st" | "atom" | "red" => self.access(name, mods, operands),
            "mov" | "selp" | "cvta" | "isspacep" => self.movement(name, mods, operands),
            "cvt" => self.convert(mods, operands),
            _ => {
                let ty = mods.last_type().ok_or_else(|| self.refuse(format!("`{}`", mods.op)))?;
                if matches!(ty, "f16" | "f16x2" | "bf16" | "bf16x2" | "f32" | "f64") {
                    self.float(name, ty, mods, operands)
                } else {
                    self.integer(name, ty, mods, operands)
                }
            }
        }
    }

    /// The register of an operand of at most 32 bits; constants get one.
    pub(crate) fn word(&mut self, operand: &Operand) -> Decoded<usize> {
        match operand {
            Operand::Name(name, false) => {
                if let Some(Slot::Word(at, _)) = self.names.get(name) {
                    return Ok(*at);
                }
                if let Some(&at) = self.shared.get(name) {
                    return Ok(self.word_constant(at as u32));
                }
                if self.dynamic.contains(name) {
                    return Ok(self.special(Special::DynamicShared));
                }
                match special(name) {
                    Some(special) => Ok(self.special(special)),
                    None => Err(self.fail(format!("`{name}` is not a register of at most 32 bits"))),
                }
            }
            Operand::Int(n) => Ok(self.word_constant(*n as u32)),
            Operand::F32(bits) => Ok(self.word_constant(*bits)),
            Operand::F64(bits) => Ok(self.word_constant((f64::from_bits(*bits) as f32).to_bits())),
            other => Err(self.fail(format!("{other:?} is not expected here"))),
        }
    }

    /// The register of an operand of 64 bits.
    pub(crate) fn double(&mut self, operand: &Operand) -> Decoded<usize> {
        match operand {
            Operand::Name(name, false) => {
                if let Some(Slot::Double(at)) = self.names.get(name) {
                    return Ok(*at);
                }
                if let Some(&at) = self.shared.get(name) {
                    return Ok(self.double_constant(at));
                }
                if self.globals.contains_key(&name[..]) {
                    if let Some(&at) = self.addresses.get(name) {
                        return Ok(at);
                    }
                    self.doubles += 1;
                    self.addresses.insert(name.clone(), self.doubles - 1);
                    return Ok(self.doubles - 1);
                }
                Err(self.fail(format!("`{name}` is not a register of 64 bits")))
            }
            Operand::Int(n) => Ok(self.double_constant(*n)),
            Operand::F32(bits) => Ok(self.double_constant(f64::from(f32::from_bits(*bits)).to_bits())),
            Operand::F64(bits) => Ok(self.double_constant(*bits)),
            other => Err(self.fail(format!("{other:?} is not expected here"))),
        }
    }

    pub(crate) fn predicate(&mut self, operand: &Operand) -> Decoded<(usize, bool)> {
        match operand {
            Operand::Name(name, negated) => Ok((self.predicate_named(name)?, *negated)),
            Operand::Int(n) => {
                self.predicates += 1;
                if *n != 0 {
                    self.true_predicates.push(self.predicates - 1);
                }
                Ok((self.predicates - 1, false))
            }
            other => Err(self.fail(format!("{other:?} is not a predicate"))),
        }
    }

    fn predicate_named(&mut self, name: &str) -> Decoded<usize> {
        match self.names.get(name) {
            Some(Slot::Predicate(at)) => Ok(*at),
            _ => Err(self.fail(format!("`{name}` is not a predicate"))),
        }
    }

    /// The register that an operand names, of any file; `_` is a new one that nobody reads.
    pub(crate) fn destination(&mut self, operand: &Operand, bits: u32) -> Decoded<Slot> {
        match operand {
            Operand::Name(name, false) if name == "_" => Ok(self.slot(bits)),
            Operand::Name(name, false) => match self.names.get(name) {
                Some(&slot) => Ok(slot),
                None => Err(self.fail(format!("`{name}` is not a register"))),
            },
            other => Err(self.fail(format!("{other:?} is not a register"))),
        }
    }

    pub(crate) fn word_constant(&mut self, bits: u32) -> usize {
        if let Some(&at) = self.word_constants.get(&bits) {
            return at;
        }
        self.words += 1;
        self.word_constants.insert(bits, self.words - 1);
        self.words - 1
    }

    pub(crate) fn double_constant(&mut self, bits: u64) -> usize {
        if let Some(&at) = self.double_constants.get(&bits) {
            return at;
        }
        self.doubles += 1;
        self.double_constants.insert(bits, self.doubles - 1);
        self.doubles - 1
    }

    fn special(&mut self, special: Special) -> usize {
        if let Some((_, at)) = self.specials.iter().find(|(s, _)| *s == special) {
            return *at;
        }
        self.words += 1;
        self.specials.push((special, self.words - 1));
        self.words - 1
    }

    pub(crate) fn operands<'o, const N: usize>(&self, operands: &'o [Operand]) -> Decoded<[&'o Operand; N]> {
        let all: Vec<&Operand> = operands.iter().collect();
        <[&Operand; N]>::try_from(all)
            .map_err(|_| self.fail(format!("{N} operands are expected, not {}", operands.len())))
    }

    pub(crate) fn words<const N: usize>(&mut self, operands: [&Operand; N]) -> Decoded<[usize; N]> {
        let mut out = [0; N];
        for (slot, operand) in out.iter_mut().zip(operands) {
            *slot = self.word(operand)?;
        }
        Ok(out)
    }

    pub(crate) fn doubles<const N: usize>(&mut self, operands: [&Operand; N]) -> Decoded<[usize; N]> {
        let mut out = [0; N];
        for (slot, operand) in out.iter_mut().zip(operands) {
            *slot = self.double(operand)?;
        }
        Ok(out)
    }
}

fn special(name: &str) -> Option<Special> {
    let axis = |name: &str| ["x", "y", "z"].iter().position(|a| *a == name);
    match name.strip_prefix('%')?.split_once('.') {
        Some(("tid", a)) => axis(a).map(Special::Thread),
        Some(("ntid", a)) => axis(a).map(Special::Threads),
        Some(("ctaid", a)) => axis(a).map(Special::Block),
        Some(("nctaid", a)) => axis(a).map(Special::Blocks),
        _ => Some(match name {
            "%laneid" => Special::Lane,
            "%warpid" => Special::Warp,
            "%lanemask_lt" => Special::Before,
            "%lanemask_le" => Special::UpTo,
            "%lanemask_ge" => Special::From,
            "%lanemask_gt" => Special::Behind,
            _ => return None,
        }),
    }
}

/// The modifiers of an opcode that are not understood yet.
pub(crate) struct Mods<'i> {
    pub op: String,
    pub rest: Vec<&'i str>,
}

impl<'i> Mods<'i> {
    /// Is this modifier there? It is understood then.
    pub(crate) fn take(&mut self, name: &str) -> bool {
        let at = self.rest.iter().position(|m| *m == name);
        at.map(|i| self.rest.remove(i)).is_some()
    }

    /// The first of these that is there.
    pub(crate) fn one_of(&mut self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.take(name))
    }

    /// The type that an opcode ends with.
    pub(crate) fn last_type(&mut self) -> Option<&'i str> {
        let last = *self.rest.last()?;
        crate::ptx::type_bits(last)?;
        self.rest.pop()
    }

    /// Drop what says how caches should behave.
    pub(crate) fn skip_hints(&mut self) {
        const HINTS: [&str; 18] = [
            "ca",
            "cg",
            "cs",
            "lu",
            "cv",
            "wb",
            "wt",
            "relaxed",
            "weak",
            "volatile",
            "cta",
            "gpu",
            "sys",
            "L2::128B",
            "L2::64B",
            "L2::256B",
            "L1::evict_last",
            "L1::evict_first",
        ];
        self.rest.retain(|m| !HINTS.contains(m) && !m.starts_with("L1::") && !m.starts_with("L2::"));
    }
}
