//! PTX as text: modules, entries, variables and instructions as they are written, before anything is known of opcodes.
mod parse;
mod token;

pub use parse::parse;
pub(crate) use parse::type_bits;

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct SyntaxError {
    pub line: u32,
    pub message: String,
}

impl SyntaxError {
    pub(crate) fn at(line: u32, message: impl Into<String>) -> SyntaxError {
        SyntaxError { line, message: message.into() }
    }
}

/// A module: what one call of the driver loads.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// `.version`
    pub version: (u32, u32),
    /// `.target`, such as `sm_75`
    pub target: String,
    pub variables: Vec<Variable>,
    pub entries: Vec<Entry>,
}

/// Where a variable or an access lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    Generic,
    Global,
    Shared,
    Const,
    Param,
}

/// A variable of a module or of an entry.
#[derive(Clone, Debug)]
pub struct Variable {
    pub name: String,
    pub space: Space,
    pub align: u64,
    /// 0 for an array whose size the launch gives.
    pub bytes: u64,
    /// The first bytes; the others are 0.
    pub init: Vec<u8>,
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub line: u32,
    pub params: Vec<Param>,
    /// `.maxntid` or `.reqntid`: the most threads of a block, or exactly those.
    pub max_threads: Option<[u32; 3]>,
    pub required_threads: Option<[u32; 3]>,
    pub registers: Vec<Registers>,
    pub variables: Vec<Variable>,
    pub code: Vec<Instruction>,
    /// Labels: the instruction that each stands in front of.
    pub labels: Vec<(String, usize)>,
}

/// A parameter, in the block of parameters.
#[derive(Clone, Debug)]
pub struct Param {
    pub name: String,
    pub offset: u64,
    pub bytes: u64,
    pub align: u64,
}

/// `.reg .f32 %f<9>;` declares `%f0` to `%f8`; without a count, the name itself.
#[derive(Clone, Debug)]
pub struct Registers {
    pub ty: String,
    pub name: String,
    pub count: Option<u32>,
}

/// `@%p1 add.s32 %r1, %r2, 4;`
#[derive(Clone, Debug)]
pub struct Instruction {
    pub line: u32,
    /// A predicate, and whether it has to be false.
    pub guard: Option<(String, bool)>,
    /// The opcode and its modifiers: `["ld", "global", "v4", "f32"]`.
    pub op: Vec<String>,
    pub operands: Vec<Operand>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register, a special register, a label or a variable. `!%p1` has the flag.
    Name(String, bool),
    Int(u64),
    F32(u32),
    F64(u64),
    /// `[base + offset]`
    Address(Box<Operand>, i64),
    /// `{%f1, %f2}`
    Vector(Vec<Operand>),
    /// `%p1|%p2`: two results.
    Pair(Box<Operand>, Box<Operand>),
}

impl Entry {
    /// Bytes of all parameters.
    pub fn param_bytes(&self) -> u64 {
        self.params.last().map_or(0, |p| p.offset + p.bytes)
    }
}
