//! Errors, whose texts name the input, the axis, what was expected and what was found.
use crate::DType;
use core::fmt::{self, Write};

pub type Result<T> = core::result::Result<T, Error>;

#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    // Loading.
    #[cfg(feature = "std")]
    Io {
        path: Text,
        error: std::io::Error,
    },
    /// The file does not start with the magic of an artifact.
    NotAnArtifact,
    Version {
        found: u32,
        supported: u32,
    },
    /// The header states another length.
    Length {
        expected: u64,
        found: u64,
    },
    /// The checksum of a part does not match.
    Damaged {
        part: &'static str,
    },
    /// The checksums match, but the contents do not describe a model.
    Malformed {
        what: &'static str,
    },
    /// The model cannot be used without a part of this kind, which this runtime does not know.
    UnknownSection {
        kind: u32,
    },
    Architecture {
        needed: &'static str,
        host: &'static str,
    },
    CpuFeature {
        name: Text,
    },
    /// Static data is not aligned as compiled code requires.
    StaticAlignment {
        needed: usize,
    },
    /// The system provides no executable memory.
    #[cfg(feature = "std")]
    NoExecutableMemory {
        error: std::io::Error,
    },

    // Inputs and outputs.
    InputCount {
        expected: usize,
        found: usize,
        known: Text,
    },
    UnknownName {
        what: &'static str,
        name: Text,
        known: Text,
    },
    MissingInput {
        name: Text,
    },
    DuplicateName {
        what: &'static str,
        name: Text,
    },
    Kind {
        name: Text,
        expected: &'static str,
        found: &'static str,
    },
    ElementType {
        name: Text,
        expected: DType,
        found: DType,
    },
    Rank {
        name: Text,
        expected: usize,
        found: usize,
    },
    Size {
        name: Text,
        axis: usize,
        expected: u64,
        found: u64,
    },
    /// The number of elements (or of bytes, where only those are known) is not that of the shape.
    Count {
        name: Text,
        unit: &'static str,
        expected: u64,
        found: u64,
    },
    /// The shape has more elements than the address space.
    TooLarge {
        name: Text,
    },
    Alignment {
        name: Text,
        needed: usize,
    },
    /// The buffer that was given for an output is too small.
    OutputRoom {
        name: Text,
        needed: u64,
        room: u64,
    },
    /// The output was written to a buffer of the caller.
    OutputElsewhere {
        name: Text,
    },
    OutputPosition {
        position: usize,
        count: usize,
    },
    /// There are outputs only after a successful run.
    NoOutputs,

    // Running.
    /// The context belongs to another model.
    OtherModel,
    OutOfMemory {
        bytes: u64,
    },
    /// Compiled code refused the inputs.
    Failed {
        code: u32,
        message: Text,
    },
    /// A `Canceller` ended the run.
    #[cfg(feature = "std")]
    Cancelled,
    /// The C interface was used against its contract.
    #[cfg(feature = "std")]
    Misuse {
        what: &'static str,
    },
    /// Compiled code broke its contract: a bug of the compiler.
    Internal {
        what: &'static str,
    },
    /// A string of an output is not UTF-8; its bytes can still be read.
    NotUtf8 {
        name: Text,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "std")]
            Error::Io { path, error } => write!(f, "cannot read {path}: {error}"),
            Error::NotAnArtifact => write!(f, "this is not a compiled model of numrsc"),
            Error::Version { found, supported } => write!(
                f,
                "the compiled model has format version {found}, this runtime reads version {supported}: compile it again"
            ),
            Error::Length { expected, found } if found < expected => {
                write!(f, "the compiled model is cut off: {found} bytes of {expected}")
            }
            Error::Length { expected, found } => {
                write!(f, "the compiled model has bytes after its end: {found} instead of {expected}")
            }
            Error::Damaged { part } => write!(f, "the compiled model is damaged: wrong checksum of its {part}"),
            Error::Malformed { what } => write!(f, "the compiled model is malformed: {what}"),
            Error::UnknownSection { kind } => {
                write!(
                    f,
                    "the compiled model needs a newer runtime: it has a part of kind {kind}, which this one does not know"
                )
            }
            Error::Architecture { needed, host } => {
                write!(f, "the model was compiled for {needed}, this machine is {host}")
            }
            Error::CpuFeature { name } => write!(
                f,
                "the model was compiled for a CPU with {name}, which this one lacks: compile it for this CPU, or without --cpu"
            ),
            Error::StaticAlignment { needed } => write!(
                f,
                "the bytes of the model must start at a multiple of {needed}: include them by `include_artifact!`"
            ),
            #[cfg(feature = "std")]
            Error::NoExecutableMemory { error } => write!(f, "no executable memory for the compiled code: {error}"),
            Error::InputCount { expected, found, known } => {
                let (inputs, were) = (plural(*expected, "input", "inputs"), plural(*found, "was", "were"));
                write!(f, "the model has {expected} {inputs} ({known}), but {found} {were} given")
            }
            Error::UnknownName { what, name, known } => {
                write!(f, "the model has no {what} `{name}`; it has {known}")
            }
            Error::MissingInput { name } => write!(f, "input `{name}` is missing"),
            Error::DuplicateName { what, name } => write!(f, "{what} `{name}` is given twice"),
            Error::Kind { name, expected, found } => write!(f, "`{name}` is {expected}, but {found} was given"),
            Error::ElementType { name, expected, found } => {
                write!(f, "`{name}` has elements of type {expected}, but {found} was given")
            }
            Error::Rank { name, expected, found } => {
                let (axes, were) = (plural(*expected, "axis", "axes"), plural(*found, "was", "were"));
                write!(f, "`{name}` has {expected} {axes}, but {found} {were} given")
            }
            Error::Size { name, axis, expected, found } => {
                write!(f, "axis {axis} of `{name}` has size {expected}, but {found} was given")
            }
            Error::Count { name, unit, expected, found } => {
                write!(f, "the shape given for `{name}` has {expected} {unit}, its data has {found}")
            }
            Error::TooLarge { name } => write!(f, "the shape given for `{name}` is too large for memory"),
            Error::Alignment { name, needed } => {
                write!(f, "the data of `{name}` must start at a multiple of {needed} bytes")
            }
            Error::OutputRoom { name, needed, room } => {
                write!(f, "output `{name}` needs {needed} bytes, the buffer given for it has {room}")
            }
            Error::OutputElsewhere { name } => {
                write!(f, "output `{name}` was written to the buffer given for it, the context does not have it")
            }
            Error::OutputPosition { position, count } => {
                write!(f, "there is no output at position {position}: the model has {count}")
            }
            Error::NoOutputs => write!(f, "there are no outputs: the context has not run, or its last run failed"),
            Error::OtherModel => write!(f, "the context was made for another model"),
            Error::OutOfMemory { bytes } => write!(f, "out of memory: {bytes} bytes are not available"),
            Error::Failed { code, message } if message.as_str().is_empty() => {
                write!(f, "the compiled model failed with code {code}")
            }
            Error::Failed { message, .. } => write!(f, "{message}"),
            #[cfg(feature = "std")]
            Error::Cancelled => write!(f, "the run was stopped"),
            #[cfg(feature = "std")]
            Error::Misuse { what } => write!(f, "wrong call: {what}"),
            Error::Internal { what } => write!(f, "bug in the compiled model: {what}"),
            Error::NotUtf8 { name } => write!(f, "a string of `{name}` is not UTF-8"),
        }
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            #[cfg(feature = "std")]
            Error::Io { error, .. } | Error::NoExecutableMemory { error } => Some(error),
            _ => None,
        }
    }
}

fn plural(count: usize, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// Text within an error: a string, or its beginning where there is no allocator.
#[derive(Clone, PartialEq, Eq)]
pub struct Text(Buffer);

#[cfg(feature = "alloc")]
type Buffer = alloc::string::String;
#[cfg(not(feature = "alloc"))]
type Buffer = Start;

impl Text {
    pub fn new(value: impl fmt::Display) -> Text {
        let mut buffer = Buffer::default();
        // The buffers themselves never fail; if a Display does, what it wrote so far is kept.
        let _ = write!(buffer, "{value}");
        Text(buffer)
    }

    /// A list of names for people.
    pub fn list<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Text {
        struct List<I>(I);
        impl<'a, I: Iterator<Item = &'a str> + Clone> fmt::Display for List<I> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut empty = true;
                for name in self.0.clone() {
                    write!(f, "{}`{name}`", if empty { "" } else { ", " })?;
                    empty = false;
                }
                if empty { f.write_str("none") } else { Ok(()) }
            }
        }
        Text::new(List(names))
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// The first bytes of a text.
#[cfg(any(test, not(feature = "alloc")))]
#[derive(Clone, PartialEq, Eq)]
struct Start {
    bytes: [u8; Start::LONGEST],
    len: u8,
}

#[cfg(any(test, not(feature = "alloc")))]
impl Start {
    /// Keeps `Error` small enough to return by value.
    const LONGEST: usize = 47;

    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

#[cfg(any(test, not(feature = "alloc")))]
impl Default for Start {
    fn default() -> Start {
        Start { bytes: [0; Start::LONGEST], len: 0 }
    }
}

#[cfg(any(test, not(feature = "alloc")))]
impl fmt::Write for Start {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let len = usize::from(self.len);
        let taken = text.floor_char_boundary(Start::LONGEST - len);
        self.bytes[len..len + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken as u8;
        // A truncated text stays truncated: nothing may follow the cut.
        if taken < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_without_allocator_are_cut_between_characters() {
        let mut start = Start::default();
        assert!(write!(start, "{}", "ä".repeat(20)).is_ok());
        assert!(write!(start, "{}", "ä".repeat(20)).is_err());
        assert_eq!(start.as_str(), "ä".repeat(23));
    }

    #[test]
    fn lists_name_all() {
        assert_eq!(Text::list(["a", "b"].into_iter()).as_str(), "`a`, `b`");
        assert_eq!(Text::list([].into_iter()).as_str(), "none");
    }
}
