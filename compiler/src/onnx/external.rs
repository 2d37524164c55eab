//! Files next to a model that hold its weights: found safely, mapped once, shared by all tensors in them.
//!
//! A model from a stranger must not read files of the user, so a location has to stay inside the model's folder:
//! no absolute path, no `..`, and no link (of the file or of a folder on the way) that leads out.
//!
//! A model that is itself a link has two folders: the one that the link is in and the one that the file is in. Caches of models are like this: names in one folder
//! are links to content in another. Data is looked up by its name in the first and then in the second, and a link may lead into either of them, but nowhere else.
use super::load;
use super::proto::TensorProto;
use bytes::Bytes;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Component, Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// The external data files of one model.
#[derive(Debug, Default)]
pub struct ExternalData {
    /// Where names are looked up, in this order.
    folders: Vec<PathBuf>,
    /// By canonical path.
    open: Mutex<BTreeMap<PathBuf, Bytes>>,
    /// By location.
    missing: Mutex<BTreeMap<String, MissingData>>,
}

/// A file with external data that is not to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingData {
    /// The names of the tensors in it.
    pub tensors: BTreeSet<String>,
    pub why: String,
    /// It is where it may be, but cannot be read.
    pub unreadable: bool,
}

impl MissingData {
    fn new(why: String, unreadable: bool) -> MissingData {
        MissingData { tensors: BTreeSet::new(), why, unreadable }
    }
}

impl fmt::Display for MissingData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tensors.len() {
            0 | 1 => {}
            count => write!(f, "the values of {count} tensors: ")?,
        }
        f.write_str(&self.why)
    }
}

impl ExternalData {
    /// Files are looked up in `folder`; without one, external data is an error.
    pub fn new(folder: Option<&Path>) -> ExternalData {
        // The folder of a bare file name is the current one.
        let folder = folder.map(|f| if f.as_os_str().is_empty() { PathBuf::from(".") } else { f.to_path_buf() });
        ExternalData { folders: folder.into_iter().collect(), ..ExternalData::default() }
    }

    /// Of the model in a file, which may be a link.
    pub fn of_file(file: &Path) -> ExternalData {
        let mut external = ExternalData::new(file.parent());
        let is_link = file.symlink_metadata().is_ok_and(|about| about.is_symlink());
        if let Some(real) = file.canonicalize().ok().filter(|_| is_link) {
            external.folders.extend(real.parent().map(Path::to_path_buf));
        }
        external
    }

    /// The files that were read so far.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// The files that were asked for in vain.
    pub(super) fn missing(&self) -> Vec<MissingData> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The bytes of a tensor stored in another file, of which `size` are needed.
    pub(super) fn bytes(&self, tensor: &TensorProto, size: usize) -> Result<Bytes, String> {
        let (mut location, mut offset, mut length) = (None, 0, None);
        for entry in &tensor.external_data {
            let text = std::str::from_utf8(&entry.value)
                .map_err(|_| format!("external data: `{}` is not UTF-8", entry.key))?;
            match entry.key.as_str() {
                "location" => location = Some(text),
                "offset" => offset = number("offset", text)?,
                "length" => length = Some(number("length", text)?),
                // `checksum` and the keys runtimes add for themselves do not change the data.
                _ => {}
            }
        }
        let location = location.ok_or("external data without a location")?;
        if length.is_some_and(|length| length != size) {
            return Err(format!(
                "external data in `{location}`: {size} bytes are needed but its length is {}",
                length.unwrap_or_default()
            ));
        }
        if size == 0 {
            return Ok(Bytes::new());
        }
        let file = self.known_file(location, &tensor.name)?;
        match offset.checked_add(size) {
            Some(end) if end <= file.len() => Ok(file.slice(offset..end)),
            _ => Err(format!(
                "external data: {size} bytes at offset {offset} of `{location}` reach beyond its {} bytes",
                file.len()
            )),
        }
    }

    /// As [`ExternalData::file`], keeping account of what is missing, which is looked for once.
    fn known_file(&self, location: &str, tensor: &str) -> Result<Bytes, String> {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        if !missing.contains_key(location) {
            match self.file(location) {
                Ok(bytes) => return Ok(bytes),
                Err(why) => drop(missing.insert(location.to_owned(), why)),
            }
        }
        let entry = missing.get_mut(location).ok_or("external data")?;
        entry.tensors.insert(tensor.to_owned());
        Err(entry.why.clone())
    }

    fn file(&self, location: &str) -> Result<Bytes, MissingData> {
        let shown = super::short(location);
        let refused = |why: &str| MissingData::new(format!("external data in `{shown}` is refused: {why}"), false);
        if self.folders.is_empty() {
            return Err(refused("the model does not come from a folder"));
        }
        if location.chars().any(char::is_control) {
            return Err(refused("its name has control characters"));
        }
        let relative = Path::new(location);
        for part in relative.components() {
            match part {
                Component::Normal(_) | Component::CurDir => {}
                Component::ParentDir => return Err(refused("`..` may lead out of the model's folder")),
                Component::Prefix(_) | Component::RootDir => return Err(refused("it must be a relative path")),
            }
        }
        let failed = |path: &Path, e: std::io::Error| {
            MissingData::new(format!("external data in `{shown}`: {}: {e}", path.display()), true)
        };
        let root = |folder: &PathBuf| folder.canonicalize().map_err(|e| failed(folder, e));
        let roots = self.folders.iter().map(root).collect::<Result<Vec<_>, _>>()?;
        let named = roots.iter().map(|root| root.join(relative));
        // If it is nowhere, it is missing in the first folder.
        let place = named.clone().find(|path| path.symlink_metadata().is_ok()).or_else(|| named.clone().next());
        let path = place.unwrap_or_default();
        let path = path.canonicalize().map_err(|e| failed(&path, e))?;
        if !roots.iter().any(|root| path.starts_with(root)) {
            return Err(refused("a link leads out of the model's folder (copy the file next to the model)"));
        }
        // Canonical paths name each file once, so every file is mapped once.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = open.get(&path) {
            return Ok(bytes.clone());
        }
        // Opening a pipe would wait for a writer, so look before opening.
        if !path.metadata().map_err(|e| failed(&path, e))?.is_file() {
            return Err(refused("it is not a file"));
        }
        let bytes = load::map(&path).map_err(|e| failed(&path, e))?;
        open.insert(path, bytes.clone());
        Ok(bytes)
    }
}

fn number(key: &str, text: &str) -> Result<usize, String> {
    text.trim().parse().map_err(|_| format!("external data: `{text}` is not a valid {key}"))
}
