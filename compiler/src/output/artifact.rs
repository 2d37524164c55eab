//! The artifact: a compiled model as one file that the runtime maps, with its code, weights and manifest.
use super::files::{is_special, write_file};
use crate::{
    Error, Result,
    compile::{Codegen, Phases},
    native::runtime_type,
    onnx,
};
use bytes::Bytes;
use numrsc_codegen::{Compiled, llvm::Llvm};
use numrsc_ir::{Dim, Func, Tensor, Type, Value, dim::Sym, types::Elem};
use numrsc_passes::emit::{self, Lowered, MemoryPlan};
use numrsc_runtime::artifact::{
    Addition, Architecture, Builder, Content, DimSpec, KernelSpec, LabelsSpec, ManifestSpec, Piece, PortSpec,
    PortTypeSpec, SizeSpec,
};
use std::{collections::BTreeSet, io, ops::ControlFlow, path::Path};

/// A compiled model, ready to be written.
#[derive(Debug)]
pub struct Artifact {
    pub manifest: ManifestSpec,
    pub architecture: Architecture,
    pub lowered: Lowered,
    pub compiled: Compiled,
    /// Sections that a model can be used without.
    pub additions: Vec<Addition>,
    /// What makes the code of objects, for targets that have no artifacts.
    pub whole: Option<Llvm>,
    /// How long each phase took.
    pub phases: Phases,
}

/// A constant of a model, in the order in which code reads it.
#[derive(Clone, Copy, Debug)]
pub struct Weight<'a>(&'a emit::Stored);

impl Content for Weight<'_> {
    fn length(&self) -> u64 {
        self.0.length()
    }

    fn write(&self, to: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut result = Ok(());
        let _ = self.0.write(&mut |bytes| match to(bytes) {
            Ok(()) => ControlFlow::Continue(()),
            failed => {
                result = failed;
                ControlFlow::Break(())
            }
        });
        result
    }
}

/// The content of a file if it is an artifact (or a part of one), which its first bytes tell; `None` if it is something else.
///
/// Artifacts are mapped, so a pipe has none. What it has can be read once, and is left to whoever reads models.
pub fn read_artifact(path: &Path) -> Result<Option<Bytes>> {
    if is_special(path) {
        return Ok(None);
    }
    let bytes = onnx::load::map(path).map_err(|source| Error::Io { file: path.to_owned(), source })?;
    Ok(bytes.starts_with(&numrsc_runtime::artifact::MAGIC).then_some(bytes))
}

impl Artifact {
    /// Write the artifact; the file is complete or not there.
    pub fn write(&self, path: &Path) -> Result<()> {
        Artifact::write_versions(&[self], path)
    }

    /// Write the artifact to where there is no way back. Weights are made twice.
    pub fn write_to(&self, to: &mut impl io::Write) -> io::Result<()> {
        Builder::stream_versions(&[self.builder(&self.pieces())], to)
    }

    /// Write the artifact to where its header can be written last.
    pub(crate) fn write_in_place(&self, to: &mut (impl io::Write + io::Seek)) -> io::Result<()> {
        Builder::write_versions(&[self.builder(&self.pieces())], to)
    }

    /// Write artifacts of one model as versions of one: where it is loaded, the last one that the CPU can run is taken.
    pub fn write_versions(versions: &[&Artifact], path: &Path) -> Result<()> {
        let pieces: Vec<_> = versions.iter().map(|version| version.pieces()).collect();
        let builders: Vec<_> = versions.iter().zip(&pieces).map(|(version, pieces)| version.builder(pieces)).collect();
        write_file(path, |to| match to.can_go_back() {
            true => Builder::write_versions(&builders, to),
            false => Builder::stream_versions(&builders, to),
        })
    }

    fn builder<'a>(&'a self, weights: &'a [Piece<Weight<'a>>]) -> Builder<'a, Weight<'a>> {
        let code = &self.compiled.image.bytes;
        let additions = &self.additions;
        Builder { architecture: self.architecture, manifest: &self.manifest, code, additions, weights }
    }

    /// The weights at their places.
    pub fn pieces(&self) -> Vec<Piece<Weight<'_>>> {
        let pieces = self.lowered.weights.pieces().iter();
        pieces.map(|piece| Piece { offset: piece.offset, bytes: Weight(&piece.stored) }).collect()
    }

    /// Bytes from the first weight to the last.
    pub fn weights_length(&self) -> u64 {
        self.lowered.weights.pieces().last().map_or(0, |last| last.offset + last.stored.length())
    }

    pub fn memory(&self) -> &MemoryPlan {
        &self.lowered.memory
    }
}

pub(crate) fn manifest(
    func: &Func,
    name: &str,
    codegen: &Codegen,
    lowered: &Lowered,
    compiled: &Compiled,
    with_names: bool,
) -> ManifestSpec {
    let ports = |values: &[Value], names: &[String], kind: &str| {
        let port = |(i, v): (usize, &Value)| {
            let name = names.get(i).cloned().unwrap_or_else(|| format!("{kind}{i}"));
            port(name, func.ty(*v))
        };
        values.iter().enumerate().map(port).collect()
    };
    let mut symbols: BTreeSet<Sym> = BTreeSet::new();
    for p in func.params() {
        func.ty(p).for_each_sym(&mut |s| {
            symbols.insert(s.clone());
        });
    }
    let size =
        |fixed: Option<u64>| fixed.map_or_else(|| SizeSpec::Formula("depends on the inputs".into()), SizeSpec::Fixed);
    let none = |_: &Sym| None;
    let module = &lowered.module;
    let kernels = module.functions.iter().zip(&compiled.image.offsets).zip(&compiled.stats);
    ManifestSpec {
        model: name.to_owned(),
        producer: format!("numrsc {}", env!("CARGO_PKG_VERSION")),
        target_triple: codegen.backend.target().triple.clone(),
        cpu_features: codegen.features.clone(),
        entry: compiled.entry.unwrap_or(0),
        inputs: ports(&func.params(), &func.param_names, "input"),
        outputs: ports(func.results(), &func.result_names, "output"),
        symbols: symbols.iter().map(ToString::to_string).collect(),
        arena: size(lowered.memory.fixed),
        peak: size(lowered.memory.lower_bound(&none)),
        needs_heap: lowered.memory.heap,
        single_threaded: false,
        failures: lowered.messages.iter().map(|m| m.text(with_names)).collect(),
        kernels: kernels
            .map(|((f, &offset), stats)| KernelSpec { name: f.name.clone(), offset, length: stats.bytes as u64 })
            .collect(),
        labels: func.result_labels.iter().map(|(&i, l)| (i, labels(l))).collect(),
    }
}

fn labels(labels: &Tensor) -> LabelsSpec {
    match labels.strings() {
        Some(texts) => LabelsSpec::Texts(texts.to_vec()),
        None => LabelsSpec::Integers(labels.to_i64s().unwrap_or_default()),
    }
}

fn port(name: String, ty: &Type) -> PortSpec {
    let dim = |d: &Dim| d.as_const().map_or_else(|| DimSpec::Formula(d.to_string()), |c| DimSpec::Fixed(c as u64));
    let (dtype, spec) = match ty {
        Type::Tensor(t) => (runtime_type(t.dtype), PortTypeSpec::Tensor { dims: t.shape.iter().map(dim).collect() }),
        Type::Seq(elem) => {
            let (mut depth, mut elem) = (1, &**elem);
            while let Elem::Seq(inner) = elem {
                (depth, elem) = (depth + 1, inner);
            }
            let Elem::Tensor { dtype: d, shape } = elem else { unreachable!("the innermost element is a tensor") };
            let dims = shape.as_ref().map(|s| s.iter().map(|d| d.as_ref().map_or(DimSpec::Any, dim)).collect());
            (runtime_type(*d), PortTypeSpec::Sequence { depth, dims })
        }
        Type::Tuple(_) => unreachable!("tuples are neither inputs nor outputs"),
    };
    PortSpec { name, dtype, ty: spec, type_text: ty.to_string() }
}
