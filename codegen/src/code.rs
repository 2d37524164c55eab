//! The machine code of one function, and the interface of backends.
use crate::{Result, Target};
use numrsc_ir::kernel::{FuncId, Module};

/// A code generator. Functions are compiled one by one, so that all cores can do it and results can be cached.
///
/// Calling conventions, all C of the target: the entry is `i32 entry(ctx*)`; a kernel is `i32 kernel(const u64 *args, i64 begin, i64 end, i64
/// worker)`, whose own parameters lie in slots of 8 bytes at `args`; a helper takes its parameters and gives its result as they are.
/// `i32` is the code given to `fail`, or 0.
pub trait Backend: Sync {
    fn name(&self) -> &'static str;
    /// Of what makes the code: another version may make another.
    fn version(&self) -> String;
    fn target(&self) -> &Target;
    fn compile(&self, module: &Module, function: FuncId) -> Result<Code>;
}

/// Position-independent machine code of one function followed by its constants; the function starts at byte 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    pub bytes: Vec<u8>,
    pub align: u64,
    /// References to other functions of the module.
    pub links: Vec<Link>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Offset of the field in [`Code::bytes`].
    pub offset: u64,
    pub kind: LinkKind,
    pub to: FuncId,
    pub addend: i64,
}

/// How a field encodes an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// x86-64: 32 bits, `to + addend - place`.
    Pc32,
    /// AArch64 `bl` and `b`: 26 bits of words, `to + addend - place`.
    Branch26,
    /// AArch64 `adrp`: 21 bits of pages, `page(to + addend) - page(place)`.
    Page21,
    /// AArch64 `add`: the low 12 bits of `to + addend`.
    Low12,
    /// RISC-V `auipc` and the `jalr` or `addi` after it: `to + addend - place`.
    PcHigh20Low12,
    /// RISC-V `auipc` by itself, if what uses it is not the next instruction.
    PcHigh20,
    /// RISC-V `jalr` or `addi` by itself; its addend makes up for the distance to its `auipc`.
    PcLow12,
}
