//! From a file to a [`Model`]. Files are mapped, so weights stay where they are until somebody reads them.
use super::{
    model::{Format, Model},
    numrs_json,
    proto::ModelProto,
};
use crate::error::{Error, Result};
use bytes::Bytes;
use prost::Message;
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Load a model, whatever its form. The content decides, not the name: NumRs writes JSON into `.onnx` files.
/// The file, and files with external data, must not be changed as long as the model or its tensors are in use.
pub fn load(path: &Path) -> Result<Model> {
    let bytes = map(path).map_err(|source| Error::Io { file: path.to_path_buf(), source })?;
    decode(path, path.parent(), bytes).map(Model::with_file_data)
}

/// Load a model from memory. External data is looked up in `folder`.
pub fn load_bytes(bytes: Bytes, folder: Option<&Path>) -> Result<Model> {
    decode(Path::new("<memory>"), folder, bytes)
}

fn decode(file: &Path, folder: Option<&Path>, bytes: Bytes) -> Result<Model> {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    if text.trim_ascii_start().first() == Some(&b'{') {
        let (proto, warnings) = numrs_json::decode(text).map_err(|message| Error::Decode {
            file: file.to_path_buf(),
            message,
            hint: Some("files that begin with `{` are read as NumRs models (.onnx.json)".into()),
        })?;
        return Ok(Model::new(file, folder, Format::NumRsJson, proto)?.with_warnings(warnings));
    }
    let proto = message::<ModelProto>(file, bytes)?;
    Model::new(file, folder, Format::Protobuf, proto)
}

/// Decode a protobuf message, with an error that helps.
pub(super) fn message<M: Message + Default>(file: &Path, bytes: Bytes) -> Result<M> {
    let start = bytes.slice(..bytes.len().min(64));
    M::decode(bytes).map_err(|e| {
        let message = e.to_string();
        let hint = if message.contains("recursion limit") {
            Some("messages are nested more than 100 deep (about 33 graphs inside graphs)")
        } else if start.starts_with(&numrsc_runtime::artifact::MAGIC) {
            Some("this is an artifact, which has to be a file to be mapped")
        } else if file.extension().is_some_and(|kind| kind == "nrsc") {
            Some("this is an artifact by its name, but does not begin like one: it is damaged")
        } else if start.starts_with(b"version https://git-lfs") {
            Some("this is a Git LFS pointer: fetch the file itself with `git lfs pull`")
        } else if start.starts_with(b"PK\x03\x04") {
            Some("this is a zip archive (or a PyTorch checkpoint): export it to ONNX first")
        } else if start.starts_with(b"ir_version") || start.starts_with(b"<") {
            Some("this is text: only the binary form of ONNX and the JSON of NumRs are read")
        } else {
            Some("the file is damaged, incomplete or not ONNX")
        };
        Error::Decode { file: file.to_path_buf(), message, hint: hint.map(str::to_string) }
    })
}

/// The content of a file without reading it; pipes and the like are read.
pub(crate) fn map(path: &Path) -> io::Result<Bytes> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        let mut bytes = vec![];
        file.read_to_end(&mut bytes)?;
        return Ok(bytes.into());
    }
    if metadata.len() == 0 {
        // An empty range cannot be mapped.
        return Ok(Bytes::new());
    }
    // SAFETY: the map is private and read-only, and the owner inside `Bytes` keeps it alive. Like every program that
    // maps its input, this one relies on nobody changing the file meanwhile; the documentation of `load` says so.
    #[allow(unsafe_code)]
    let map = unsafe { memmap2::MmapOptions::new().map_copy_read_only(&file)? };
    Ok(Bytes::from_owner(map))
}
