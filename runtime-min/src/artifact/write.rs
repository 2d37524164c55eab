//! Writes artifacts. Weights are given as pieces and streamed to the file, never copied into one buffer.
use super::{
    Architecture, Checksum, FORMAT_VERSION, MAGIC, Manifest, NodeNames, PAGE, checksum, kind,
    manifest::{HAS_LABELS, NEEDS_HEAP, SINGLE_THREADED},
    sections::{MOST, ON_REQUEST, OPTIONAL, ROW, header_bytes, keeping},
};
use crate::{
    DType,
    error::{Error, Result},
};
use std::{
    collections::BTreeMap,
    io,
    io::{Seek, SeekFrom, Write},
};

/// What [`Manifest`] reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestSpec {
    pub model: String,
    pub producer: String,
    pub target_triple: String,
    pub cpu_features: Vec<String>,
    pub entry: u64,
    pub inputs: Vec<PortSpec>,
    pub outputs: Vec<PortSpec>,
    pub symbols: Vec<String>,
    pub arena: SizeSpec,
    pub peak: SizeSpec,
    pub needs_heap: bool,
    pub single_threaded: bool,
    pub failures: Vec<String>,
    pub kernels: Vec<KernelSpec>,
    /// By position of the output.
    pub labels: BTreeMap<usize, LabelsSpec>,
}

/// What the entries along the last axis of an output stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelsSpec {
    Integers(Vec<i64>),
    Texts(Vec<String>),
}

impl std::fmt::Display for LabelsSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LabelsSpec::Integers(numbers) => write!(f, "{numbers:?}"),
            LabelsSpec::Texts(texts) => write!(f, "{texts:?}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSpec {
    pub name: String,
    pub dtype: DType,
    pub ty: PortTypeSpec,
    /// The whole type as text, for people.
    pub type_text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortTypeSpec {
    Tensor {
        dims: Vec<DimSpec>,
    },
    /// Depth 1 is a sequence of tensors. `dims` holds what all of them have in common, `None` if not even the rank is
    /// known.
    Sequence {
        depth: u8,
        dims: Option<Vec<DimSpec>>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DimSpec {
    Fixed(u64),
    Formula(String),
    /// Within sequences only.
    Any,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SizeSpec {
    Fixed(u64),
    Formula(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSpec {
    pub name: String,
    pub offset: u64,
    pub length: u64,
}

/// What [`NodeNames`] reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamesSpec {
    pub nodes: Vec<NodeSpec>,
    pub launches: Vec<LaunchSpec>,
    pub entry: Vec<u32>,
    pub folded: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeSpec {
    pub name: String,
    pub operator: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchSpec {
    pub kernel: u32,
    pub nodes: Vec<u32>,
}

/// A section that a model can be used without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    pub kind: u32,
    /// What its offset is a multiple of, a power of two up to [`PAGE`].
    pub align: u64,
    pub bytes: Vec<u8>,
}

/// Bytes that are there, or are made when they are written.
pub trait Content {
    fn length(&self) -> u64;
    /// Passes all bytes to `to`, in order, part by part.
    fn write(&self, to: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>;
}

impl Content for &[u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn write(&self, to: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        to(self)
    }
}

/// A piece of weights and its offset in the weights section; gaps between pieces are filled with 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<C> {
    pub offset: u64,
    pub bytes: C,
}

impl<C: Content> Piece<C> {
    /// Passes all bytes of a weights section to `to`, gaps included.
    pub fn write_all(pieces: &[Piece<C>], to: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut end = 0;
        for piece in pieces {
            zeros(to, piece.offset - end)?;
            let mut length = 0;
            piece.bytes.write(&mut |bytes| {
                length += bytes.len() as u64;
                to(bytes)
            })?;
            if length != piece.bytes.length() {
                return Err(io::Error::other("a piece of the weights is not as long as it said"));
            }
            end = piece.offset + length;
        }
        Ok(())
    }

    /// The length of a section of these pieces.
    pub fn section_length(pieces: &[Piece<C>]) -> Result<u64> {
        pieces.iter().try_fold(0, |end, piece| {
            let is_behind = piece.offset >= end;
            let end = piece.offset.checked_add(piece.bytes.length()).filter(|_| is_behind);
            end.ok_or(Error::Malformed { what: "pieces of the weights overlap or are not in order" })
        })
    }
}

/// Everything an artifact is made of. Equal parts give equal bytes.
#[derive(Debug)]
pub struct Builder<'a, C> {
    pub architecture: Architecture,
    pub manifest: &'a ManifestSpec,
    pub code: &'a [u8],
    /// Sections besides manifest, code and weights; of each kind one.
    pub additions: &'a [Addition],
    /// In order of their offsets.
    pub weights: &'a [Piece<C>],
}

impl<C: Content> Builder<'_, C> {
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = io::Cursor::new(Vec::with_capacity(usize::try_from(self.length()?).unwrap_or(0)));
        let written = self.write_version(0, &mut bytes);
        written.map_err(|error| Error::Io { path: crate::Text::new("memory"), error })?;
        Ok(bytes.into_inner())
    }

    /// Writes the same model for several CPUs; the loader takes the last version that the CPU can run. Weights are
    /// generated once; the headers before them hold their checksums and are written afterwards.
    ///
    /// Many small writes: give it something with a buffer. Fails with `InvalidInput` if the parts do not fit together.
    pub fn write_versions(versions: &[Builder<'_, C>], to: &mut (impl Write + Seek)) -> io::Result<()> {
        for (version, following) in versions.iter().zip((0..versions.len() as u32).rev()) {
            version.write_version(following, to)?;
        }
        to.flush()
    }

    /// The same for writers that cannot seek, such as a pipe. Weights are generated twice.
    pub fn stream_versions(versions: &[Builder<'_, C>], to: &mut impl Write) -> io::Result<()> {
        for (version, following) in versions.iter().zip((0..versions.len() as u32).rev()) {
            let mut sum = Checksum::new();
            let prepared = version.prepare(following).map_err(invalid)?;
            version.write_weights(&mut sum, &mut |_| Ok(()))?;
            to.write_all(&prepared.header(sum))?;
            version.write_behind_header(&prepared, to)?;
        }
        to.flush()
    }

    /// The length of the file.
    pub fn length(&self) -> Result<u64> {
        Ok(self.prepare(0)?.length)
    }

    fn prepare(&self, following: u32) -> Result<Prepared> {
        let weights_length = Piece::section_length(self.weights)?;
        let manifest = self.manifest.encode(weights_length)?;
        let code = self.code.len() as u64;
        let inside = |offset: u64, length: u64| offset.checked_add(length).is_some_and(|end| end <= code);
        if self.manifest.entry >= code {
            return Err(Error::Malformed { what: "the entry is outside of the code" });
        }
        if self.manifest.kernels.iter().any(|kernel| !inside(kernel.offset, kernel.length)) {
            return Err(Error::Malformed { what: "a kernel is outside of the code" });
        }

        let is_new = |(i, a): (usize, &Addition)| {
            !(kind::MANIFEST..=kind::WEIGHTS).contains(&a.kind) && self.additions[..i].iter().all(|b| a.kind != b.kind)
        };
        let fits = |a: &Addition| a.align.is_power_of_two() && a.align <= PAGE;
        let all_fit = self.additions.iter().all(fits) && self.additions.iter().enumerate().all(is_new);
        if !all_fit || self.additions.len() + 3 > MOST {
            return Err(Error::Malformed { what: "additional sections" });
        }
        // Kind, flags, alignment, length, checksum.
        let mut sections = vec![
            (kind::MANIFEST, 0, 8, manifest.len() as u64, checksum(&manifest)),
            (kind::CODE, 0, PAGE, code, checksum(self.code)),
        ];
        let addition = |a: &Addition| (a.kind, OPTIONAL, a.align, a.bytes.len() as u64, checksum(&a.bytes));
        sections.extend(self.additions.iter().map(addition));
        // The checksum of the weights is known only when they are made.
        sections.push((kind::WEIGHTS, ON_REQUEST, PAGE, weights_length, 0));
        let mut table = Vec::new();
        let mut end = header_bytes(sections.len()) as u64;
        for &(kind, flags, align, length, sum) in &sections {
            let offset = end.next_multiple_of(align);
            table.extend(kind.to_le_bytes());
            table.extend(keeping(flags, align).to_le_bytes());
            table.extend(offset.to_le_bytes());
            table.extend(length.to_le_bytes());
            table.extend(sum.to_le_bytes());
            end = offset.checked_add(length).ok_or(Error::Malformed { what: "the weights are too large" })?;
        }
        let mut header = Vec::with_capacity(header_bytes(sections.len()));
        header.extend(MAGIC);
        header.extend(FORMAT_VERSION.to_le_bytes());
        header.extend((self.architecture as u32).to_le_bytes());
        header.extend(end.to_le_bytes());
        header.extend((sections.len() as u32).to_le_bytes());
        header.extend(following.to_le_bytes());
        header.extend(table);
        Ok(Prepared {
            header,
            manifest,
            length: end,
            padded: if following > 0 { end.next_multiple_of(PAGE) } else { end },
        })
    }

    fn write_version(&self, following: u32, to: &mut (impl Write + Seek)) -> io::Result<()> {
        let prepared = self.prepare(following).map_err(invalid)?;
        let start = to.stream_position()?;
        to.write_all(&vec![0; prepared.header_bytes()])?;
        let sum = self.write_behind_header(&prepared, to)?;
        to.seek(SeekFrom::Start(start))?;
        to.write_all(&prepared.header(sum))?;
        to.seek(SeekFrom::Start(start + prepared.padded)).map(drop)
    }

    /// Writes everything but the header and returns the checksum of the weights.
    fn write_behind_header(&self, prepared: &Prepared, to: &mut impl Write) -> io::Result<Checksum> {
        let mut at = prepared.header_bytes() as u64;
        let mut put = |bytes: &[u8], align: u64| -> io::Result<()> {
            let padding = at.next_multiple_of(align) - at;
            zeros(&mut |bytes| to.write_all(bytes), padding)?;
            to.write_all(bytes)?;
            at += padding + bytes.len() as u64;
            Ok(())
        };
        put(&prepared.manifest, 8)?;
        put(self.code, PAGE)?;
        for addition in self.additions {
            put(&addition.bytes, addition.align)?;
        }
        put(&[], PAGE)?;
        let mut sum = Checksum::new();
        self.write_weights(&mut sum, &mut |bytes| to.write_all(bytes))?;
        zeros(&mut |bytes| to.write_all(bytes), prepared.padded - prepared.length)?;
        Ok(sum)
    }

    fn write_weights(&self, sum: &mut Checksum, to: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        Piece::write_all(self.weights, &mut |bytes| {
            sum.update(bytes);
            to(bytes)
        })
    }
}

fn invalid(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

struct Prepared {
    /// Everything but the checksums of the weights and of the header itself.
    header: Vec<u8>,
    manifest: Vec<u8>,
    length: u64,
    /// Includes what lies between this version and the next.
    padded: u64,
}

impl Prepared {
    fn header_bytes(&self) -> usize {
        self.header.len() + 8
    }

    fn header(&self, weights: Checksum) -> Vec<u8> {
        let mut whole = self.header.clone();
        // Weights are in the last row, whose last word is the checksum.
        let row = whole.len() - ROW;
        whole[row + 24..].copy_from_slice(&weights.finish().to_le_bytes());
        whole.extend(checksum(&whole).to_le_bytes());
        whole
    }
}

impl NamesSpec {
    /// The section of these names.
    pub fn encode(&self) -> Result<Addition> {
        let mut out = Encoder(Vec::new());
        out.list(&self.nodes, |out, node| {
            out.text(&node.name);
            out.text(&node.operator);
        });
        let numbers = |out: &mut Encoder, numbers: &[u32]| out.list(numbers, |out, number| out.u32(*number));
        out.list(&self.launches, |out, launch| {
            out.u32(launch.kernel);
            numbers(out, &launch.nodes);
        });
        numbers(&mut out, &self.entry);
        numbers(&mut out, &self.folded);
        NodeNames::parse(&out.0)?;
        Ok(Addition { kind: kind::NAMES, align: 8, bytes: out.0 })
    }
}

fn zeros(to: &mut dyn FnMut(&[u8]) -> io::Result<()>, mut count: u64) -> io::Result<()> {
    while count > 0 {
        let part = count.min(PAGE);
        to(&[0; PAGE as usize][..part as usize])?;
        count -= part;
    }
    Ok(())
}

impl ManifestSpec {
    /// The bytes of the manifest alone, for code that is linked statically (`Model::from_parts`).
    pub fn encode(&self, weights_bytes: u64) -> Result<Vec<u8>> {
        let mut out = Encoder(Vec::new());
        out.u32(FORMAT_VERSION);
        out.text(&self.model);
        out.text(&self.producer);
        out.text(&self.target_triple);
        out.list(&self.cpu_features, |out, name| out.text(name));
        out.u64(self.entry);
        out.list(&self.inputs, Encoder::port);
        out.list(&self.outputs, Encoder::port);
        out.list(&self.symbols, |out, name| out.text(name));
        out.size(&self.arena);
        out.size(&self.peak);
        out.u64(weights_bytes);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.u8(flag(self.needs_heap, NEEDS_HEAP)
            | flag(self.single_threaded, SINGLE_THREADED)
            | flag(!self.labels.is_empty(), HAS_LABELS));
        out.list(&self.failures, |out, message| out.text(message));
        out.list(&self.kernels, |out, kernel| {
            out.text(&kernel.name);
            out.u64(kernel.offset);
            out.u64(kernel.length);
        });
        if !self.labels.is_empty() {
            let labels: Vec<_> = self.labels.iter().collect();
            out.list(&labels, |out, (output, labels)| {
                out.u32(**output as u32);
                match labels {
                    LabelsSpec::Integers(numbers) => {
                        out.u8(0);
                        out.list(numbers, |out, number| out.u64(number.cast_unsigned()));
                    }
                    LabelsSpec::Texts(texts) => {
                        out.u8(1);
                        out.list(texts, |out, text| out.text(text));
                    }
                }
            });
        }
        // Refuses here, rather than on loading, what could not be read back (a text of more than 4 GiB, a sequence of
        // depth 0).
        let read = Manifest::parse(&out.0)?;
        let depths =
            |ports: &[PortSpec]| ports.iter().all(|port| !matches!(port.ty, PortTypeSpec::Sequence { depth: 0, .. }));
        if read.kernels().len() != self.kernels.len() || !depths(&self.inputs) || !depths(&self.outputs) {
            return Err(Error::Malformed { what: "the description of the model cannot be encoded" });
        }
        Ok(out.0)
    }
}

struct Encoder(Vec<u8>);

impl Encoder {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.u32(text.len() as u32);
        self.0.extend(text.as_bytes());
    }

    fn list<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Encoder, &T)) {
        self.u32(items.len() as u32);
        for value in items {
            item(self, value);
        }
    }

    fn port(&mut self, port: &PortSpec) {
        self.text(&port.name);
        let (depth, dims) = match &port.ty {
            PortTypeSpec::Tensor { dims } => (0, Some(dims)),
            PortTypeSpec::Sequence { depth, dims } => (*depth, dims.as_ref()),
        };
        self.u8(depth);
        self.u32(port.dtype.onnx().cast_unsigned());
        self.u8(u8::from(dims.is_some()));
        self.list(dims.map_or(&[], Vec::as_slice), |out, dim| match dim {
            DimSpec::Fixed(size) => {
                out.u8(0);
                out.u64(*size);
            }
            DimSpec::Formula(formula) => {
                out.u8(1);
                out.text(formula);
            }
            DimSpec::Any => out.u8(2),
        });
        self.text(&port.type_text);
    }

    fn size(&mut self, size: &SizeSpec) {
        match size {
            SizeSpec::Fixed(bytes) => {
                self.u8(0);
                self.u64(*bytes);
            }
            SizeSpec::Formula(formula) => {
                self.u8(1);
                self.text(formula);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Artifact, Dim, Labels, PortKind, Size};
    use super::*;

    fn spec() -> ManifestSpec {
        let text = |text: &str| text.to_string();
        ManifestSpec {
            model: text("mnist"),
            producer: text("numrsc 0.1.0"),
            target_triple: text("x86_64-unknown-linux-gnu"),
            cpu_features: vec![text("avx2"), text("fma")],
            entry: 2,
            inputs: vec![PortSpec {
                name: text("x"),
                dtype: DType::F32,
                ty: PortTypeSpec::Tensor { dims: vec![DimSpec::Formula(text("batch*12")), DimSpec::Fixed(7)] },
                type_text: text("f32[batch*12, 7]"),
            }],
            outputs: vec![
                PortSpec {
                    name: text("all"),
                    dtype: DType::I64,
                    ty: PortTypeSpec::Sequence { depth: 2, dims: None },
                    type_text: text("seq<seq<i64[..]>>"),
                },
                PortSpec {
                    name: text("some"),
                    dtype: DType::Str,
                    ty: PortTypeSpec::Sequence { depth: 1, dims: Some(vec![DimSpec::Any, DimSpec::Fixed(0)]) },
                    type_text: text("seq<str[?, 0]>"),
                },
            ],
            symbols: vec![text("batch")],
            arena: SizeSpec::Formula(text("batch*4096")),
            peak: SizeSpec::Fixed(1 << 40),
            needs_heap: true,
            single_threaded: false,
            failures: vec![text("batch is 0"), text("Gather: index out of range")],
            kernels: vec![KernelSpec { name: text("gemm_7"), offset: 1, length: 2 }],
            labels: BTreeMap::from([
                (0, LabelsSpec::Integers(vec![-1, 7])),
                (1, LabelsSpec::Texts(vec![text("cat"), text("")])),
            ]),
        }
    }

    fn names() -> NamesSpec {
        let node = |name: &str, operator: &str| NodeSpec { name: name.into(), operator: operator.into() };
        NamesSpec {
            nodes: vec![node("conv1", "Conv"), node("", "com.microsoft.Gelu")],
            launches: vec![LaunchSpec { kernel: 0, nodes: vec![0, 1] }, LaunchSpec { kernel: 0, nodes: vec![] }],
            entry: vec![],
            folded: vec![1],
        }
    }

    #[test]
    fn every_cut_list_of_names_is_refused() {
        let bytes = names().encode().unwrap().bytes;
        for length in 0..bytes.len() {
            assert!(NodeNames::parse(&bytes[..length]).is_err(), "{length} bytes");
        }
        // Any change is either refused or still something that can be walked.
        for at in 0..bytes.len() {
            for value in [0, 1, 2, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                if let Ok(names) = NodeNames::parse(&changed) {
                    assert!(names.launches().map(|l| l.nodes.count()).sum::<usize>() + names.nodes().count() < 100);
                }
            }
        }
        let outside = NamesSpec { folded: vec![2], ..names() };
        assert!(outside.encode().is_err(), "there is no such node");
    }

    #[test]
    fn what_is_written_is_read() {
        let manifest = spec();
        let pieces = [Piece { offset: 0, bytes: &[1, 2, 3][..] }, Piece { offset: 64, bytes: &[4] }];
        let code = [0xc3; 5000];
        let names = names();
        let unknown = Addition { kind: 77, align: 64, bytes: vec![9; 3] };
        let additions = [names.encode().unwrap(), unknown];
        let builder = Builder {
            architecture: Architecture::Aarch64,
            manifest: &manifest,
            code: &code,
            additions: &additions,
            weights: &pieces,
        };
        let bytes = builder.to_bytes().unwrap();
        let mut streamed = Vec::new();
        assert_eq!(bytes.len() as u64, builder.length().unwrap());
        Builder::stream_versions(&[builder], &mut streamed).unwrap();
        assert_eq!(bytes, streamed);

        let artifact = Artifact::parse(&bytes).unwrap();
        artifact.verify_weights().unwrap();
        assert_eq!(artifact.architecture, Architecture::Aarch64);
        assert_eq!(artifact.code, code);
        assert_eq!(artifact.code_offset % PAGE, 0);
        let mut weights = vec![1, 2, 3];
        weights.resize(64, 0);
        weights.push(4);
        assert_eq!(artifact.weights, weights);
        assert_eq!((artifact.weights.as_ptr() as usize - bytes.as_ptr() as usize) as u64 % PAGE, 0);

        let read = artifact.names().unwrap().unwrap();
        let nodes: Vec<_> = read.nodes().map(|n| (n.name, n.operator)).collect();
        assert_eq!(nodes, [("conv1", "Conv"), ("", "com.microsoft.Gelu")]);
        let launches: Vec<_> = read.launches().map(|l| (l.kernel, l.nodes.collect::<Vec<_>>())).collect();
        assert_eq!(launches, [(0, vec![0, 1]), (0, vec![])]);
        assert_eq!((read.entry().collect::<Vec<_>>(), read.folded().collect::<Vec<_>>()), (vec![], vec![1]));
        let unknown = artifact.section(77).unwrap();
        assert_eq!((unknown.bytes, unknown.offset % 64), (&[9; 3][..], 0));
        assert_eq!(artifact.sections().map(|s| s.kind).collect::<Vec<_>>(), [1, 2, 4, 77, 3]);

        let read = artifact.manifest;
        assert_eq!((read.model(), read.producer()), ("mnist", "numrsc 0.1.0"));
        assert_eq!(read.target_triple(), "x86_64-unknown-linux-gnu");
        assert_eq!(read.cpu_features().collect::<Vec<_>>(), ["avx2", "fma"]);
        assert_eq!((read.entry(), read.weights_bytes()), (2, 65));
        let x = read.inputs().next().unwrap();
        assert_eq!((x.name, x.kind, x.dtype, x.type_text), ("x", PortKind::Tensor, DType::F32, "f32[batch*12, 7]"));
        assert_eq!(x.dims.unwrap().collect::<Vec<_>>(), [Dim::Formula("batch*12"), Dim::Fixed(7)]);
        let outputs: Vec<_> = read.outputs().collect();
        assert_eq!(outputs.len(), 2);
        assert_eq!((outputs[0].kind, outputs[0].dims), (PortKind::Sequence { depth: 2 }, None));
        assert_eq!(outputs[1].dims.unwrap().collect::<Vec<_>>(), [Dim::Any, Dim::Fixed(0)]);
        assert_eq!(outputs[1].dtype, DType::Str);
        assert_eq!(read.symbols().collect::<Vec<_>>(), ["batch"]);
        assert_eq!((read.arena(), read.peak()), (Size::Formula("batch*4096"), Size::Fixed(1 << 40)));
        assert_eq!((read.needs_heap(), read.single_threaded()), (true, false));
        assert_eq!(read.failures().collect::<Vec<_>>(), ["batch is 0", "Gather: index out of range"]);
        let kernel = read.kernels().next().unwrap();
        assert_eq!((kernel.name, kernel.offset, kernel.length), ("gemm_7", 1, 2));
        let Some(Labels::Integers(numbers)) = read.labels(0) else { panic!("labels of the first output") };
        assert_eq!(numbers.collect::<Vec<_>>(), [-1, 7]);
        let Some(Labels::Texts(texts)) = read.labels(1) else { panic!("labels of the second output") };
        assert_eq!(texts.collect::<Vec<_>>(), ["cat", ""]);
        assert_eq!(read.labels(2), None);
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let manifest = spec();
        let build = |manifest: &ManifestSpec, code: &[u8], weights: &[Piece<&[u8]>]| {
            Builder { architecture: Architecture::X86_64, manifest, code, additions: &[], weights }.to_bytes()
        };
        assert!(build(&manifest, &[0; 3], &[]).is_ok());
        assert!(build(&manifest, &[0; 2], &[]).is_err(), "entry and kernel outside of the code");
        let overlapping = [Piece { offset: 0, bytes: &[0; 65][..] }, Piece { offset: 64, bytes: &[0] }];
        assert!(build(&manifest, &[0; 3], &overlapping).is_err());
        assert!(build(&manifest, &[0; 3], &[Piece { offset: u64::MAX, bytes: &[0] }]).is_err());
        let with = |additions: &[(u32, u64)]| {
            let additions: Vec<_> =
                additions.iter().map(|&(kind, align)| Addition { kind, align, bytes: vec![1] }).collect();
            let weights: &[Piece<&[u8]>] = &[];
            let (architecture, code) = (Architecture::X86_64, &[0; 3][..]);
            Builder { architecture, manifest: &manifest, code, additions: &additions, weights }.to_bytes()
        };
        assert!(with(&[(4, 8), (5, 4096)]).is_ok());
        for wrong in [&[(5, 8), (5, 8)][..], &[(kind::CODE, 8)], &[(5, 3)], &[(5, 8192)], &[(9, 8); 100]] {
            assert!(with(wrong).is_err(), "{wrong:?}");
        }
        let mut flat = spec();
        flat.outputs[0].ty = PortTypeSpec::Sequence { depth: 0, dims: Some(vec![]) };
        assert!(build(&flat, &[0; 3], &[]).is_err());
    }

    /// Labels are an optional section: without any, the bytes of a manifest are those of before.
    #[test]
    fn labels_come_last() {
        let (with, mut without) = (spec(), spec());
        without.labels.clear();
        let (with, without) = (with.encode(0).unwrap(), without.encode(0).unwrap());
        let differing = with.iter().zip(&without).filter(|(a, b)| a != b).count();
        assert_eq!((differing, with.len() - without.len()), (1, 4 + (5 + 4 + 16) + (5 + 4 + 4 + 3 + 4)));
        assert_eq!(Manifest::parse(&without).unwrap().labels(0), None);
    }

    #[test]
    fn every_cut_manifest_is_refused() {
        let bytes = spec().encode(0).unwrap();
        assert!(Manifest::parse(&bytes).is_ok());
        for length in 0..bytes.len() {
            assert!(Manifest::parse(&bytes[..length]).is_err(), "{length} bytes");
        }
        // Any change is either refused or still a manifest that can be walked.
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                if let Ok(manifest) = Manifest::parse(&changed) {
                    assert!(manifest.inputs().count() + manifest.outputs().count() < 100);
                    let labels = (0..2).filter_map(|i| manifest.labels(i));
                    assert!(
                        labels
                            .map(|l| match l {
                                Labels::Integers(l) => l.count(),
                                Labels::Texts(l) => l.count(),
                            })
                            .sum::<usize>()
                            < 100
                    );
                }
            }
        }
    }
}
