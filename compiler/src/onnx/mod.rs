//! The ONNX front end: files in, checked models out, and back into files.
pub mod attribute;
mod calls;
mod check;
pub mod external;
pub mod import;
pub mod load;
pub mod model;
mod numrs_json;
pub mod ops;
mod order;
pub mod proto;
pub mod tensor_data;
pub mod value;
pub mod write;

pub use attribute::AttributeValue;
pub use load::{load, load_bytes};
pub use model::{Format, Model};
pub use value::{Value, load_value};
pub use write::write;

/// A name for a message: damaged files have names of any length, and of several lines.
pub(crate) fn short(name: &str) -> String {
    const MOST: usize = 80;
    let shown = match name.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_string(),
    };
    shown.replace('\n', "\\n")
}

/// `ai.onnx` is another name of the default domain, which is empty.
pub fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

#[cfg(test)]
mod tests;
