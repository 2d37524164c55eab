//! A loaded model: checked, shared between threads, never changed.
#![allow(unsafe_code)]
use crate::{
    artifact::{DATA_ALIGN, Index, Manifest},
    context::EntryFn,
    error::{Error, Result},
};
use core::fmt;
#[cfg(feature = "std")]
use {
    crate::{
        artifact::{Architecture, Artifact},
        cpu,
        error::Text,
    },
    memmap2::{Mmap, MmapMut, MmapOptions},
    std::{fs::File, io, path::Path},
};

/// A compiled model that can run here. Cheap to clone where there is an allocator; the clones share everything.
///
/// An artifact is a program: load only what you would also execute. The checks are against accidents, not against malice.
#[derive(Clone)]
pub struct Model(Shared);

#[cfg(feature = "alloc")]
type Shared = alloc::sync::Arc<Parts>;
#[cfg(not(feature = "alloc"))]
type Shared = Parts;

#[cfg_attr(not(feature = "alloc"), derive(Clone))]
struct Parts {
    /// Lives exactly as long as this; only lent out.
    manifest: &'static [u8],
    index: Index,
    entry: EntryFn,
    weights: *const u8,
    /// Mappings that have to live as long as this.
    #[cfg(feature = "std")]
    _code: Option<Mmap>,
    #[cfg(feature = "std")]
    _file: Option<Mmap>,
}

// SAFETY: everything behind the pointers is read only.
unsafe impl Send for Parts {}
// SAFETY: as above.
unsafe impl Sync for Parts {}

impl Model {
    /// A model whose code and data are part of the program, as where there is no operating system.
    ///
    /// # Safety
    /// `entry` and `weights` are what was compiled along with `manifest`, for a CPU like the one that runs it. (With the
    /// feature `std` the CPU is checked.)
    pub unsafe fn from_parts(manifest: &'static [u8], entry: EntryFn, weights: &'static [u8]) -> Result<Model> {
        let parsed = Manifest::parse(manifest)?;
        if parsed.weights_bytes() != weights.len() as u64 {
            return Err(Error::Malformed { what: "size of the weights" });
        }
        check_alignment(weights)?;
        #[cfg(feature = "std")]
        cpu::check_features(parsed.cpu_features())?;
        Ok(Model::new(Parts {
            manifest,
            index: parsed.index(),
            entry,
            weights: start_of(weights),
            #[cfg(feature = "std")]
            _code: None,
            #[cfg(feature = "std")]
            _file: None,
        }))
    }

    fn new(parts: Parts) -> Model {
        #[cfg(feature = "alloc")]
        return Model(alloc::sync::Arc::new(parts));
        #[cfg(not(feature = "alloc"))]
        return Model(parts);
    }

    pub fn manifest(&self) -> Manifest<'_> {
        Manifest::from_index(self.0.manifest, self.0.index)
    }

    pub(crate) fn entry(&self) -> EntryFn {
        self.0.entry
    }

    pub(crate) fn weights(&self) -> *const u8 {
        self.0.weights
    }

    pub(crate) fn is_same(&self, other: &Model) -> bool {
        #[cfg(feature = "alloc")]
        return alloc::sync::Arc::ptr_eq(&self.0, &other.0);
        #[cfg(not(feature = "alloc"))]
        return core::ptr::eq(self.0.manifest, other.0.manifest) && self.0.weights == other.0.weights;
    }
}

#[cfg(feature = "std")]
impl Model {
    /// Map a file. Manifest and code are checked, weights are not read: this takes the same time for any size.
    ///
    /// The file must not be written to while the model lives (replace it by renaming another one over it). Weights are
    /// shared with all processes that map the same file.
    pub fn load(path: impl AsRef<Path>) -> Result<Model> {
        load(path.as_ref(), false)
    }

    /// As [`Model::load`], and compare the weights with their checksum.
    pub fn load_verified(path: impl AsRef<Path>) -> Result<Model> {
        load(path.as_ref(), true)
    }

    /// A model from the bytes of an artifact, wherever they lie. They are copied to memory of the model's own: weights to where they are aligned, and code to where it may be
    /// executed, which is never memory that can be written.
    pub fn from_bytes(bytes: &[u8]) -> Result<Model> {
        let refused = |_: io::Error| Error::OutOfMemory { bytes: bytes.len() as u64 };
        // Nothing large is copied in vain.
        best_version(bytes)?;
        let mut copy = MmapMut::map_anon(bytes.len()).map_err(refused)?;
        copy.copy_from_slice(bytes);
        let whole = copy.make_read_only().map_err(refused)?;
        let artifact = best_version(&whole)?;
        let code = executable_copy(artifact.code)?;
        // SAFETY: `whole`, which all of it is in, is kept along with it. Moving it does not move the mapping.
        let parts = unsafe { Parts::of(&artifact, code) };
        Ok(Model::new(Parts { _file: Some(whole), ..parts }))
    }

    /// A model that is part of the program's data, see [`crate::include_artifact`]. Manifest and weights are used where they are; the
    /// code is copied to memory that may be executed.
    pub fn from_static(bytes: &'static [u8]) -> Result<Model> {
        let artifact = best_version(bytes)?;
        check_alignment(artifact.weights)?;
        let code = executable_copy(artifact.code)?;
        // SAFETY: everything is static.
        Ok(Model::new(unsafe { Parts::of(&artifact, code) }))
    }
}

#[cfg(feature = "std")]
impl Parts {
    /// # Safety
    /// The bytes that the artifact was parsed from live as long as the result: they are static, or go to `_file` next.
    unsafe fn of(artifact: &Artifact<'_>, code: Mmap) -> Parts {
        let manifest = artifact.manifest.bytes();
        // SAFETY: as the caller says; the lifetime does not get out.
        let manifest = unsafe { core::slice::from_raw_parts(manifest.as_ptr(), manifest.len()) };
        let entry = code.as_ptr().wrapping_add(artifact.manifest.entry() as usize);
        // SAFETY: parsing checked that the entry is within the code, and that the code is what the compiler wrote. The caller
        // checked that it is for this machine.
        let entry = unsafe { core::mem::transmute::<*const u8, EntryFn>(entry) };
        let weights = start_of(artifact.weights);
        Parts { manifest, index: artifact.manifest.index(), entry, weights, _code: Some(code), _file: None }
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Model").field(&self.manifest()).finish()
    }
}

/// The bytes of an artifact as part of the program, aligned as [`Model::from_static`] needs them.
///
/// ```ignore
/// let model = Model::from_static(numrsc_runtime::include_artifact!("model.nrsc"))?;
/// ```
#[macro_export]
macro_rules! include_artifact {
    ($path:expr) => {{
        #[repr(C, align(4096))]
        struct Aligned<Bytes: ?Sized>(Bytes);
        static ARTIFACT: &Aligned<[u8]> = &Aligned(*include_bytes!($path));
        &ARTIFACT.0
    }};
}

/// The type that a build script made of a model: `numrsc::Build::new("model.onnx").compile()` in `build.rs`, and then
///
/// ```ignore
/// numrsc_runtime::include_model!("model");
/// let mut model = Model::new()?;
/// ```
#[macro_export]
macro_rules! include_model {
    ($name:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $name, ".rs"));
    };
}

/// What is for programs with an allocator only: the feature is the runtime's, not that of the crate with the model.
#[cfg(feature = "alloc")]
#[doc(hidden)]
#[macro_export]
macro_rules! with_allocator {
    ($($item:item)*) => { $($item)* };
}

#[cfg(not(feature = "alloc"))]
#[doc(hidden)]
#[macro_export]
macro_rules! with_allocator {
    ($($item:item)*) => {};
}

/// Memory that compiled code may read where nothing is needed: an element of an empty tensor, a weight of none.
#[repr(C, align(64))]
struct Nothing([u64; 8]);
static NOTHING: Nothing = Nothing([0; 8]);

pub(crate) fn nothing() -> *const u8 {
    NOTHING.0.as_ptr().cast()
}

fn start_of(bytes: &[u8]) -> *const u8 {
    if bytes.is_empty() { nothing() } else { bytes.as_ptr() }
}

fn check_alignment(weights: &[u8]) -> Result<()> {
    if weights.is_empty() || weights.as_ptr().addr().is_multiple_of(DATA_ALIGN) {
        Ok(())
    } else {
        Err(Error::StaticAlignment { needed: DATA_ALIGN })
    }
}

/// The last version that this CPU can run.
#[cfg(feature = "std")]
fn best_version(file: &[u8]) -> Result<Artifact<'_>> {
    let mut best = Err(Error::NotAnArtifact);
    for (position, artifact) in Artifact::versions(file).enumerate() {
        let artifact = artifact?;
        let usable = check_host(&artifact).map(|()| artifact);
        // If none can run, the first one, which requires the least, gives the reason.
        if position == 0 || usable.is_ok() {
            best = usable;
        }
    }
    best
}

#[cfg(feature = "std")]
fn check_host(artifact: &Artifact<'_>) -> Result<()> {
    if Architecture::host() != Some(artifact.architecture) {
        return Err(Error::Architecture { needed: artifact.architecture.name(), host: std::env::consts::ARCH });
    }
    cpu::check_features(artifact.manifest.cpu_features())
}

#[cfg(feature = "std")]
fn load(path: &Path, verify: bool) -> Result<Model> {
    let failed = |error: io::Error| Error::Io { path: Text::new(path.display()), error };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
    }
    if metadata.len() == 0 {
        return Err(Error::NotAnArtifact);
    }
    // SAFETY: the documentation of `Model::load` asks that nobody writes to the file. This is MAP_SHARED and read only.
    let whole = unsafe { Mmap::map(&file) }.map_err(failed)?;
    let artifact = best_version(&whole)?;
    check_alignment(artifact.weights)?;
    if verify {
        artifact.verify_weights()?;
    }
    let mut options = MmapOptions::new();
    options.offset(artifact.code_offset).len(artifact.code.len());
    // SAFETY: as above. This is MAP_PRIVATE, and writable only until it is executable.
    let mapped = unsafe { options.map_copy(&file) }.and_then(MmapMut::make_exec);
    let code = match mapped {
        Ok(code) => code,
        // The file system may be mounted without permission to execute.
        Err(_) => executable_copy(artifact.code)?,
    };
    // SAFETY: `whole`, which all of it is in, is kept along with it. Moving it does not move the mapping.
    let parts = unsafe { Parts::of(&artifact, code) };
    Ok(Model::new(Parts { _file: Some(whole), ..parts }))
}

#[cfg(feature = "std")]
fn executable_copy(code: &[u8]) -> Result<Mmap> {
    let failed = |error: io::Error| Error::NoExecutableMemory { error };
    let mut copy = MmapMut::map_anon(code.len()).map_err(failed)?;
    copy.copy_from_slice(code);
    copy.make_exec().map_err(failed)
}
