//! A compiled model as an object, a static library or a shared object.
//!
//! Objects hold the linked code, the weights and the manifest under five global names. Weights are written from where they are.
use super::{
    artifact::{Artifact, Weight},
    c_header,
    files::{Scratch, write_file},
    toolchain::{self, Format},
};
use crate::{Error, Result};
use numrsc_runtime::artifact::{Architecture, DATA_ALIGN, Piece};
use object::{
    Endianness, elf,
    write::{
        StreamingBuffer,
        elf::{FileHeader, SectionHeader, SectionIndex, Sym, Writer},
    },
};
use std::{
    io::{self, Write},
    path::Path,
};

/// A part of C names: other characters become `_`, and a digit does not come first.
pub fn symbol_name(text: &str) -> String {
    let name: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) { format!("model_{name}") } else { name }
}

/// How many bytes of weights an object can have that any linker puts anywhere: code refers to places at most 2 GB away, and there is more in a program.
pub const OBJECT_WEIGHTS: u64 = (2 << 30) - (64 << 20);

/// An ELF object, whose names start with `symbol`.
pub fn write_object(artifact: &Artifact, symbol: &str, path: &Path) -> Result<Footprint> {
    let bytes = artifact.weights_length();
    if bytes > OBJECT_WEIGHTS {
        return Err(Error::Codegen(format!(
            "the weights take {bytes} bytes, and objects that every linker can place hold less than 2 GB"
        )));
    }
    write_object_of_any_size(artifact, symbol, path)
}

/// The same for who links it and knows where large weights belong.
pub(crate) fn write_object_of_any_size(artifact: &Artifact, symbol: &str, path: &Path) -> Result<Footprint> {
    let mut object = Object::new(artifact, symbol)?;
    let Some(llvm) = &artifact.whole else {
        write_file(path, |to| object.write_to(to))?;
        return Footprint::of(artifact, path);
    };
    let code = llvm.object(&artifact.lowered.module, &format!("{symbol}_entry"));
    let code = code.map_err(|e| Error::Codegen(e.to_string()))?;
    // Linkers refuse to mix interfaces, and the features of the CPU decide which one it is.
    let flags = object::File::parse(&code[..]).map(|file| object::read::Object::flags(&file));
    if let Ok(object::FileFlags::Elf { e_flags, .. }) = flags {
        object.flags = e_flags;
    }
    let scratch = Scratch::new(path)?;
    let [code_file, data_file] = ["code.o", "data.o"].map(|name| scratch.file(name));
    write_file(&code_file, |to| to.write_all(&code))?;
    write_file(&data_file, |to| object.write_to(to))?;
    toolchain::link(&toolchain::linker()?, Format::Elf, &["-r"], &[&code_file, &data_file], path)?;
    Footprint::of(artifact, path)
}

/// What a program with an object takes on a device, and what the object asks of the linker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footprint {
    /// Code and weights; without the manifest, which only the runtime reads.
    pub flash_bytes: u64,
    /// The memory in which the model runs, if it is known; without inputs, outputs and the stack.
    pub ram_bytes: Option<u64>,
    /// Functions of the compiler's library.
    pub needs: Vec<String>,
}

impl Footprint {
    fn of(artifact: &Artifact, path: &Path) -> Result<Footprint> {
        use object::read::{Object as _, ObjectSection as _, ObjectSymbol as _};
        let failed = |e: object::Error| Error::Codegen(format!("{}: {e}", path.display()));
        let bytes = crate::onnx::load::map(path).map_err(|source| Error::Io { file: path.to_owned(), source })?;
        let file = object::File::parse(&bytes[..]).map_err(failed)?;
        let in_flash = |s: &object::Section<'_, '_>| {
            let object::SectionFlags::Elf { sh_flags } = s.flags() else { return false };
            sh_flags & u64::from(elf::SHF_ALLOC) != 0 && s.name().ok() != Some(MANIFEST_SECTION)
        };
        let needs = file.symbols().filter(|s| s.is_undefined() && s.is_global()).filter_map(|s| s.name().ok());
        Ok(Footprint {
            flash_bytes: file.sections().filter(in_flash).map(|s| s.size()).sum(),
            ram_bytes: c_header::memory_bytes(artifact),
            needs: needs.map(str::to_owned).collect(),
        })
    }
}

/// Weights from so many bytes on have a section of their own, so that it can be told where they go.
const MANY_WEIGHTS: u64 = 1 << 30;

/// By itself, so that a linker leaves it out where nobody asks for it.
const MANIFEST_SECTION: &str = ".rodata.numrsc_manifest";

/// An archive with that object and an index of its names.
pub fn write_static_library(artifact: &Artifact, symbol: &str, path: &Path) -> Result<Footprint> {
    let scratch = Scratch::new(path)?;
    let object = scratch.file("model.o");
    let footprint = write_object(artifact, symbol, &object)?;
    let bytes = crate::onnx::load::map(&object).map_err(|source| Error::Io { file: object, source })?;
    write_file(path, |to| write_archive(&bytes, symbol, to))?;
    Ok(footprint)
}

/// A shared object, made by the linker of the Rust toolchain.
pub fn write_shared_object(artifact: &Artifact, symbol: &str, path: &Path) -> Result<()> {
    let linker = toolchain::linker()?;
    let scratch = Scratch::new(path)?;
    let object = scratch.file("model.o");
    // Its code and data refer to each other by a table, which the linker makes.
    write_object_of_any_size(artifact, symbol, &object)?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    toolchain::link(&linker, Format::Elf, &["-shared", "--hash-style=gnu", "-soname", &name], &[&object], path)
}

/// Everything that goes into an ELF object.
struct Object<'a> {
    machine: u16,
    flags: u32,
    is_64: bool,
    code_align: u64,
    code: &'a [u8],
    weights: Vec<Piece<Weight<'a>>>,
    weights_length: u64,
    manifest: Vec<u8>,
    /// Local names first, as ELF wants them.
    symbols: Vec<Symbol>,
    locals: u32,
}

struct Symbol {
    name: String,
    place: Part,
    offset: u64,
    length: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Code,
    Weights,
    Manifest,
}

/// Where things are in the object.
struct Layout {
    sections: [SectionHeader; 4],
    symbols: Vec<Sym>,
}

impl<'a> Object<'a> {
    fn new(artifact: &'a Artifact, symbol: &str) -> Result<Object<'a>> {
        let (machine, flags, is_64) = match artifact.architecture {
            Architecture::X86_64 => (elf::EM_X86_64, 0, true),
            Architecture::Aarch64 => (elf::EM_AARCH64, 0, true),
            // As all programs for Linux: what is passed to the entry is the same in every variant of the interface.
            Architecture::Riscv64 => (elf::EM_RISCV, elf::EF_RISCV_RVC | elf::EF_RISCV_FLOAT_ABI_DOUBLE, true),
            Architecture::Arm => (elf::EM_ARM, elf::EF_ARM_EABI_VER5, false),
            Architecture::Riscv32 => (elf::EM_RISCV, elf::EF_RISCV_RVC, false),
            Architecture::Wasm32 => {
                return Err(Error::Codegen("there are no ELF objects for WebAssembly: emit `wasm`".into()));
            }
        };
        let (weights, weights_length) = (artifact.pieces(), artifact.weights_length());
        let manifest =
            artifact.manifest.encode(weights_length).map_err(|e| Error::Codegen(format!("the manifest: {e}")))?;
        let named = |f: &numrsc_codegen::FunctionStats, offset: u64| Symbol {
            name: f.name.clone(),
            place: Part::Code,
            offset,
            length: f.bytes as u64,
        };
        // Debuggers and profilers show the names of kernels.
        let functions = artifact.compiled.stats.iter().zip(&artifact.compiled.image.offsets);
        let mut symbols: Vec<Symbol> = functions
            .filter(|(f, _)| f.same_as.is_none() && f.bytes > 0)
            .map(|(f, &offset)| named(f, offset))
            .collect();
        let locals = symbols.len() as u32 + 1;
        let entry = artifact.manifest.entry;
        let entry_length = symbols.iter().find(|s| s.offset == entry).map_or(0, |s| s.length);
        let mut global = |part: &str, place, offset, length| {
            symbols.push(Symbol { name: format!("{symbol}_{part}"), place, offset, length });
        };
        if artifact.whole.is_none() {
            global("entry", Part::Code, entry, entry_length);
        }
        global("weights", Part::Weights, 0, weights_length);
        global("weights_size", Part::Manifest, 0, 8);
        global("manifest_size", Part::Manifest, 8, 8);
        global("manifest", Part::Manifest, 16, manifest.len() as u64);
        let code = &artifact.compiled.image.bytes;
        let code_align = if code.is_empty() { 1 } else { numrsc_codegen::Image::ALIGN };
        Ok(Object { machine, flags, is_64, code_align, code, weights, weights_length, manifest, symbols, locals })
    }

    fn write_to(&self, to: impl Write) -> io::Result<()> {
        let mut buffer = StreamingBuffer::new(to);
        self.write_all(&mut Writer::new(Endianness::Little, self.is_64, &mut buffer)).map_err(io::Error::other)?;
        buffer.result()?;
        buffer.into_inner().flush()
    }

    /// Two sizes and the manifest.
    fn manifest_length(&self) -> u64 {
        16 + self.manifest.len() as u64
    }

    /// The first half of what [`Writer`] wants: to be told of everything in the order of writing.
    fn lay_out<'w>(&'w self, writer: &mut Writer<'w>) -> Layout {
        const MANIFEST_ALIGN: u64 = 8;
        writer.reserve_file_header();
        writer.reserve_null_section_index();
        let code: SectionIndex = writer.reserve_section_index();
        let weights = writer.reserve_section_index();
        let manifest = writer.reserve_section_index();
        writer.reserve_section_index();
        writer.reserve_symtab_section_index();
        writer.reserve_strtab_section_index();
        writer.reserve_shstrtab_section_index();
        let weights_name = if self.weights_length < MANY_WEIGHTS { ".rodata" } else { ".large_weights" };
        let names = [".text", weights_name, MANIFEST_SECTION, ".note.GNU-stack"];
        let names = names.map(|name| writer.add_section_name(name.as_bytes()));
        writer.reserve_null_symbol_index();
        let mut symbols = Vec::new();
        for (symbol, at) in self.symbols.iter().zip(1..) {
            let (section, kind) = match symbol.place {
                Part::Code => (code, elf::STT_FUNC),
                Part::Weights => (weights, elf::STT_OBJECT),
                Part::Manifest => (manifest, elf::STT_OBJECT),
            };
            let binding = if at < self.locals { elf::STB_LOCAL } else { elf::STB_GLOBAL };
            let name = writer.add_string(symbol.name.as_bytes());
            writer.reserve_symbol_index(Some(section));
            symbols.push(Sym {
                name: Some(name),
                section: Some(section),
                st_info: (binding << 4) | kind,
                st_other: elf::STV_DEFAULT,
                st_shndx: 0,
                st_value: symbol.offset,
                st_size: symbol.length,
            });
        }
        let code_offset = writer.reserve(self.code.len(), self.code_align as usize) as u64;
        let weights_offset = writer.reserve(self.weights_length as usize, DATA_ALIGN) as u64;
        let manifest_offset = writer.reserve(self.manifest_length() as usize, MANIFEST_ALIGN as usize) as u64;
        writer.reserve_symtab();
        writer.reserve_strtab();
        writer.reserve_shstrtab();
        writer.reserve_section_headers();
        let section = |name: usize, flags: u32, offset: u64, length: u64, align: u64| SectionHeader {
            name: Some(names[name]),
            sh_type: elf::SHT_PROGBITS,
            sh_flags: u64::from(flags),
            sh_addr: 0,
            sh_offset: offset,
            sh_size: length,
            sh_link: 0,
            sh_info: 0,
            sh_addralign: align,
            sh_entsize: 0,
        };
        let sections = [
            section(0, elf::SHF_ALLOC | elf::SHF_EXECINSTR, code_offset, self.code.len() as u64, self.code_align),
            section(1, elf::SHF_ALLOC, weights_offset, self.weights_length, DATA_ALIGN as u64),
            section(2, elf::SHF_ALLOC, manifest_offset, self.manifest_length(), MANIFEST_ALIGN),
            // Its presence says that the stack need not be executable.
            section(3, 0, manifest_offset, 0, 1),
        ];
        Layout { sections, symbols }
    }

    fn write_all<'w>(&'w self, writer: &mut Writer<'w>) -> object::write::Result<()> {
        let layout = self.lay_out(writer);
        writer.write_file_header(&FileHeader {
            os_abi: elf::ELFOSABI_NONE,
            abi_version: 0,
            e_type: elf::ET_REL,
            e_machine: self.machine,
            e_entry: 0,
            e_flags: self.flags,
        })?;
        let [code, weights, manifest, _] = &layout.sections;
        writer.pad_until(code.sh_offset as usize);
        writer.write(self.code);
        writer.pad_until(weights.sh_offset as usize);
        // What fails to be written, the writer's buffer knows.
        let _ = Piece::write_all(&self.weights, &mut |bytes| {
            writer.write(bytes);
            Ok(())
        });
        writer.pad_until(manifest.sh_offset as usize);
        writer.write(&self.weights_length.to_le_bytes());
        writer.write(&(self.manifest.len() as u64).to_le_bytes());
        writer.write(&self.manifest);
        writer.write_null_symbol();
        layout.symbols.iter().for_each(|symbol| writer.write_symbol(symbol));
        writer.write_strtab();
        writer.write_shstrtab();
        writer.write_null_section_header();
        layout.sections.iter().for_each(|section| writer.write_section_header(section));
        writer.write_symtab_section_header(self.locals);
        writer.write_strtab_section_header();
        writer.write_shstrtab_section_header();
        Ok(())
    }
}

const ARCHIVE_MAGIC: &[u8] = b"!<arch>\n";
const MEMBER_HEADER: usize = 60;

/// The archive format of System V: an index of global names, then the object. No time, no owner: equal models give equal bytes.
fn write_archive(object: &[u8], symbol: &str, to: &mut impl Write) -> io::Result<()> {
    use object::read::{Object as _, ObjectSymbol as _};
    let file = object::File::parse(object).map_err(io::Error::other)?;
    let defined = file.symbols().filter(|s| s.is_global() && s.is_definition());
    let globals: Vec<&str> = defined.map(|s| s.name()).collect::<Result<_, _>>().map_err(io::Error::other)?;
    let mut names: Vec<u8> = globals.iter().flat_map(|name| name.bytes().chain([0])).collect();
    if names.len() % 2 == 1 {
        names.push(0);
    }
    let index_length = 4 + 4 * globals.len() + names.len();
    let member = (ARCHIVE_MAGIC.len() + MEMBER_HEADER + index_length) as u32;
    to.write_all(ARCHIVE_MAGIC)?;
    member_header("/", index_length as u64, to)?;
    to.write_all(&(globals.len() as u32).to_be_bytes())?;
    for _ in &globals {
        to.write_all(&member.to_be_bytes())?;
    }
    to.write_all(&names)?;
    // Names of more than 15 characters would need a table of their own, and nobody reads them.
    let short = &symbol[..symbol.len().min(13)];
    member_header(&format!("{short}.o/"), object.len() as u64, to)?;
    to.write_all(object)?;
    if object.len() % 2 == 1 { to.write_all(b"\n") } else { Ok(()) }
}

fn member_header(name: &str, length: u64, to: &mut impl Write) -> io::Result<()> {
    if length > 9_999_999_999 {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "archives hold less than 10 GB"));
    }
    writeln!(to, "{name:<16}{:<12}{:<6}{:<6}{:<8}{length:<10}`", 0, 0, 0, 644)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_c_names() {
        assert_eq!(symbol_name("resnet50-v1.7"), "resnet50_v1_7");
        assert_eq!(symbol_name("3d"), "model_3d");
        assert_eq!(symbol_name(""), "model_");
        assert_eq!(symbol_name("größe"), "gr__e");
    }
}
