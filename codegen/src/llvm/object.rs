//! From the object file of one function to its bytes: code first, then constants, with references inside resolved.
//!
//! Where references are by page (AArch64) or in two halves (RISC-V), those inside the piece become relative to the
//! instruction, so that the piece may lie anywhere.
use super::text;
use crate::link::{self, Field};
use crate::{Code, Error, Link, LinkKind, Result};
use object::read::{Object as _, ObjectSection as _, ObjectSymbol as _};
use object::{RelocationFlags, RelocationTarget, SectionIndex, SectionKind, SymbolSection, elf};
use std::collections::HashMap;

pub(super) fn code(function: &str, bytes: &[u8]) -> Result<Code> {
    let failed = |message: String| Error::Llvm { module: function.to_owned(), message };
    let file = object::File::parse(bytes).map_err(|e| failed(format!("its object is not readable: {e}")))?;
    let mut piece = Piece { function, file: &file, bytes: vec![], align: 1, sections: HashMap::new(), links: vec![] };
    piece.lay_out()?;
    piece.relocate()?;
    Ok(Code { bytes: piece.bytes, align: piece.align, links: piece.links })
}

struct Piece<'a> {
    function: &'a str,
    file: &'a object::File<'a>,
    bytes: Vec<u8>,
    align: u64,
    /// Where each section starts.
    sections: HashMap<SectionIndex, u64>,
    links: Vec<Link>,
}

/// What a relocation refers to.
#[derive(Clone, Copy)]
enum Referent {
    Here(u64),
    Function(numrsc_ir::kernel::FuncId),
}

impl Piece<'_> {
    fn failed(&self, message: String) -> Error {
        Error::Llvm { module: self.function.to_owned(), message }
    }

    fn lay_out(&mut self) -> Result<()> {
        let file = self.file;
        let kept = |kind: SectionKind| {
            matches!(kind, SectionKind::Text | SectionKind::ReadOnlyData | SectionKind::ReadOnlyString)
        };
        // Code first: the function starts at byte 0.
        for code in [true, false] {
            for section in file.sections().filter(|s| s.size() > 0 && (s.kind() == SectionKind::Text) == code) {
                let name = section.name().unwrap_or("?");
                // RISC-V has its small constants among the data.
                if !kept(section.kind()) && !name.starts_with(".srodata") {
                    if matches!(section.kind(), SectionKind::Data | SectionKind::UninitializedData | SectionKind::Tls) {
                        return Err(self.failed(format!("section `{name}` is not constant")));
                    }
                    continue;
                }
                if name.starts_with(".eh_frame") {
                    continue;
                }
                let data = section.data().map_err(|e| self.failed(format!("section `{name}`: {e}")))?;
                let start = (self.bytes.len() as u64).next_multiple_of(section.align().max(1));
                self.bytes.resize(start as usize, 0);
                self.bytes.extend_from_slice(data);
                self.align = self.align.max(section.align());
                self.sections.insert(section.index(), start);
            }
        }
        let first = file.symbols().find(|s| s.is_global() && s.is_definition());
        if first.is_none_or(|s| s.address() & !1 != 0) {
            return Err(self.failed("the function is not first".to_owned()));
        }
        Ok(())
    }

    fn place(&self, target: RelocationTarget) -> Result<Referent> {
        let symbol = match target {
            RelocationTarget::Symbol(index) => self.file.symbol_by_index(index).ok(),
            RelocationTarget::Section(index) => {
                return match self.sections.get(&index) {
                    Some(start) => Ok(Referent::Here(*start)),
                    None => Err(self.failed("a reference to a section that is not there".to_owned())),
                };
            }
            _ => None,
        };
        let symbol = symbol.ok_or_else(|| self.failed("a reference to nothing".to_owned()))?;
        let name = symbol.name().unwrap_or("?");
        match symbol.section() {
            SymbolSection::Section(index) => match self.sections.get(&index) {
                Some(start) => Ok(Referent::Here(start + symbol.address())),
                None => Err(self.failed(format!("`{name}` is in a section that is not there"))),
            },
            _ => text::position(name).map(Referent::Function).ok_or_else(|| Error::Unsupported {
                function: self.function.to_owned(),
                message: format!("the target has no instruction for it and `{name}` is not part of compiled code"),
            }),
        }
    }

    fn relocate(&mut self) -> Result<()> {
        let file = self.file;
        let mut starts: Vec<(SectionIndex, u64)> = self.sections.iter().map(|(k, v)| (*k, *v)).collect();
        starts.sort_by_key(|(_, start)| *start);
        // RISC-V: the lower half names the place of the upper one, which names what both are about.
        let mut upper: HashMap<u64, (Referent, i64)> = HashMap::new();
        let mut all = vec![];
        for (index, start) in starts {
            let section = file.section_by_index(index).map_err(|e| self.failed(e.to_string()))?;
            for (offset, relocation) in section.relocations() {
                let RelocationFlags::Elf { r_type } = relocation.flags() else {
                    return Err(self.failed("an object that is not ELF".to_owned()));
                };
                let at = start + offset;
                if self.is_riscv() && matches!(r_type, elf::R_RISCV_RELAX) {
                    continue;
                }
                let place = self.place(relocation.target())?;
                if self.is_riscv() && r_type == elf::R_RISCV_PCREL_HI20 {
                    upper.insert(at, (place, relocation.addend()));
                }
                all.push((at, r_type, place, relocation.addend()));
            }
        }
        for (at, r_type, place, addend) in all {
            match file.architecture() {
                object::Architecture::X86_64 => self.x86_64(at, r_type, place, addend)?,
                object::Architecture::Aarch64 => self.aarch64(at, r_type, place, addend)?,
                object::Architecture::Riscv32 | object::Architecture::Riscv64 => {
                    self.riscv(at, r_type, place, addend, &upper)?;
                }
                other => {
                    return Err(Error::Unsupported {
                        function: self.function.to_owned(),
                        message: format!("it refers to other code or constants, which cannot be linked for {other:?}"),
                    });
                }
            }
        }
        Ok(())
    }

    fn is_riscv(&self) -> bool {
        matches!(self.file.architecture(), object::Architecture::Riscv32 | object::Architecture::Riscv64)
    }

    fn unknown(&self, r_type: u32) -> Error {
        self.failed(format!("relocation {r_type} of {:?} is not known", self.file.architecture()))
    }

    /// Fill in a field with the distance to a place here, or leave that to the linker.
    fn refer(&mut self, at: u64, field: Field, kind: Option<LinkKind>, place: Referent, addend: i64) -> Result<()> {
        match (place, kind) {
            (Referent::Here(to), _) => link::patch(&mut self.bytes, at, field, to as i64 + addend - at as i64),
            (Referent::Function(to), Some(kind)) => {
                self.links.push(Link { offset: at, kind, to, addend });
                Ok(())
            }
            (Referent::Function(_), None) => {
                Err(self.failed("a reference to a function in an unknown form".to_owned()))
            }
        }
    }

    fn x86_64(&mut self, at: u64, r_type: u32, place: Referent, addend: i64) -> Result<()> {
        match r_type {
            elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => {
                self.refer(at, Field::Word32, Some(LinkKind::Pc32), place, addend)
            }
            other => Err(self.unknown(other)),
        }
    }

    fn aarch64(&mut self, at: u64, r_type: u32, place: Referent, addend: i64) -> Result<()> {
        match r_type {
            elf::R_AARCH64_CALL26 | elf::R_AARCH64_JUMP26 => {
                self.refer(at, Field::Branch26, Some(LinkKind::Branch26), place, addend)
            }
            // `adrp` becomes `adr`, which needs no lower bits: they are 0 in the instructions that add them.
            elf::R_AARCH64_ADR_PREL_PG_HI21 => {
                if matches!(place, Referent::Here(_)) {
                    self.bytes[at as usize + 3] &= 0x7f;
                }
                self.refer(at, Field::Adr21, Some(LinkKind::Page21), place, addend)
            }
            elf::R_AARCH64_ADD_ABS_LO12_NC
            | elf::R_AARCH64_LDST8_ABS_LO12_NC
            | elf::R_AARCH64_LDST16_ABS_LO12_NC
            | elf::R_AARCH64_LDST32_ABS_LO12_NC
            | elf::R_AARCH64_LDST64_ABS_LO12_NC
            | elf::R_AARCH64_LDST128_ABS_LO12_NC => match place {
                Referent::Here(_) => Ok(()),
                Referent::Function(_) if r_type == elf::R_AARCH64_ADD_ABS_LO12_NC => {
                    self.refer(at, Field::Low12, Some(LinkKind::Low12), place, addend)
                }
                Referent::Function(_) => Err(self.unknown(r_type)),
            },
            elf::R_AARCH64_ADR_PREL_LO21 => self.refer(at, Field::Adr21, None, place, addend),
            elf::R_AARCH64_LD_PREL_LO19 | elf::R_AARCH64_CONDBR19 => {
                self.refer(at, Field::Literal19, None, place, addend)
            }
            elf::R_AARCH64_PREL32 => self.refer(at, Field::Word32, None, place, addend),
            other => Err(self.unknown(other)),
        }
    }

    fn riscv(
        &mut self,
        at: u64,
        r_type: u32,
        place: Referent,
        addend: i64,
        upper: &HashMap<u64, (Referent, i64)>,
    ) -> Result<()> {
        match r_type {
            elf::R_RISCV_CALL | elf::R_RISCV_CALL_PLT => {
                self.refer(at, Field::Upper20, Some(LinkKind::PcHigh20), place, addend)?;
                self.refer(at + 4, Field::Lower12, Some(LinkKind::PcLow12), place, addend + 4)
            }
            elf::R_RISCV_PCREL_HI20 => self.refer(at, Field::Upper20, Some(LinkKind::PcHigh20), place, addend),
            elf::R_RISCV_PCREL_LO12_I | elf::R_RISCV_PCREL_LO12_S => {
                let high = if let Referent::Here(high) = place { Some(high) } else { None };
                let Some((high, (to, more))) = high.and_then(|h| upper.get(&h).map(|u| (h, *u))) else {
                    return Err(self.failed("half an address".to_owned()));
                };
                let store = r_type == elf::R_RISCV_PCREL_LO12_S;
                let (field, kind) =
                    if store { (Field::Lower12Store, None) } else { (Field::Lower12, Some(LinkKind::PcLow12)) };
                // Relative to the upper half, not to this one.
                self.refer(at, field, kind, to, more + addend + (at as i64 - high as i64))
            }
            elf::R_RISCV_BRANCH => self.refer(at, Field::RiscvBranch, None, place, addend),
            elf::R_RISCV_JAL => self.refer(at, Field::RiscvJump, None, place, addend),
            elf::R_RISCV_32_PCREL => self.refer(at, Field::Word32, None, place, addend),
            // Entries of jump tables: one place minus another.
            elf::R_RISCV_ADD32 | elf::R_RISCV_SUB32 => {
                let Referent::Here(to) = place else { return Err(self.unknown(r_type)) };
                let field = &mut self.bytes[at as usize..at as usize + 4];
                let old = u32::from_le_bytes([field[0], field[1], field[2], field[3]]);
                let value = (to as i64 + addend) as u32;
                let new = if r_type == elf::R_RISCV_ADD32 { old.wrapping_add(value) } else { old.wrapping_sub(value) };
                field.copy_from_slice(&new.to_le_bytes());
                Ok(())
            }
            other => Err(self.unknown(other)),
        }
    }
}
