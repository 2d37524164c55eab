//! The inputs of a run: files as NumPy writes them, or files that hold nothing but the elements.
use super::{Failure, Result, linux, linux::File};
use crate::{
    DType, Model, TensorRef,
    artifact::{Dim, Port},
    npy,
};
use alloc::{format, string::String, vec, vec::Vec};

/// In the order of the model.
pub(super) struct Inputs(Vec<(DType, Content)>);

struct Content {
    shape: Vec<usize>,
    bytes: Vec<u8>,
    /// Where the elements start.
    start: usize,
}

impl Content {
    fn elements(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl Inputs {
    pub(super) fn read(model: &Model, files: &[Option<File>]) -> Result<Inputs> {
        let input = |(port, file): (Port<'_>, &Option<File>)| {
            let Some(file) = *file else {
                return Err(Failure::Usage(format!("where is the input {}? --input {0}=FILE", port.name)));
            };
            let bytes = linux::read(file).map_err(|error| format!("{error}"));
            let content = bytes.and_then(|bytes| decode(&port, bytes));
            let failed = |why| Failure::Run(format!("input {}, {}: {why}", port.name, file.name("input")));
            Ok((port.dtype, content.map_err(failed)?))
        };
        model.manifest().inputs().zip(files).map(input).collect::<Result<_>>().map(Inputs)
    }

    /// Inputs that nobody gave, at sizes that suit most models where they are open, and those sizes as text.
    pub(super) fn zeros(model: &Model) -> Result<(Inputs, String)> {
        let mut chosen = String::new();
        let input = |port: Port<'_>| {
            let mut shape = sizes(&port);
            for axis in open_axes(&port) {
                let Some(Dim::Formula(name)) = port.dims.and_then(|mut dims| dims.nth(axis)) else { continue };
                if name.contains(|c: char| !is_part_of_name(c)) {
                    return Err(Failure::Usage(format!("at which sizes? --input {}=FILE", port.name)));
                }
                shape[axis] = example_size(model, name);
                let text = format!("{name}={}", shape[axis]);
                if !chosen.split([' ', ',']).any(|part| part == text) {
                    chosen += if chosen.is_empty() { " with " } else { ", " };
                    chosen += &text;
                }
            }
            Ok((port.dtype, Content { bytes: vec![0; bytes_of(&shape, port.dtype)], start: 0, shape }))
        };
        let inputs = model.manifest().inputs().map(input).collect::<Result<_>>().map(Inputs)?;
        Ok((inputs, chosen))
    }

    pub(super) fn tensors(&self) -> Vec<TensorRef<'_>> {
        self.0.iter().map(|(dtype, content)| TensorRef::raw(*dtype, content.elements(), &content.shape)).collect()
    }
}

/// As `numrsc run` and `bench` choose: 1 for batches, which a name tells or that it is the first axis wherever it is used, 64 for others.
fn example_size(model: &Model, name: &str) -> usize {
    let is_named =
        |dim| matches!(dim, Dim::Formula(text) if text.split(|c| !is_part_of_name(c)).any(|part| part == name));
    let first_only = model.manifest().inputs().all(|port| {
        let rank = port.dims.map_or(0, Iterator::count);
        port.dims.into_iter().flatten().enumerate().all(|(axis, dim)| !is_named(dim) || axis == 0 && rank > 1)
    });
    let batch = name.as_bytes().windows(5).any(|part| part.eq_ignore_ascii_case(b"batch"));
    if batch || first_only { 1 } else { 64 }
}

fn is_part_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Of any element.
const ALIGNMENT: usize = 16;

fn decode(port: &Port<'_>, mut bytes: Vec<u8>) -> core::result::Result<Content, String> {
    if !bytes.starts_with(npy::MAGIC) {
        return Ok(Content { shape: sizes_of_raw(port, bytes.len())?, bytes, start: 0 });
    }
    let (mut start, shape) = npy::parse(&bytes, port.dtype)?;
    // NumPy aligns the elements. Others move to the start of the block, which is aligned for all of them.
    if !start.is_multiple_of(ALIGNMENT) {
        bytes.drain(..start);
        start = 0;
    }
    Ok(Content { shape, bytes, start })
}

/// One size that the model leaves open follows from the number of bytes.
fn sizes_of_raw(port: &Port<'_>, bytes: usize) -> core::result::Result<Vec<usize>, String> {
    let mut shape = sizes(port);
    let unit = bytes_of(&shape, port.dtype);
    let mut open = open_axes(port);
    match (open.next(), open.next()) {
        (None, _) if bytes == unit => {}
        (None, _) => return Err(format!("{bytes} bytes instead of {unit}, and this is no .npy file")),
        (Some(axis), None) if unit > 0 && bytes.is_multiple_of(unit) => shape[axis] = bytes / unit,
        (Some(_), None) => return Err(format!("{bytes} bytes are no multiple of {unit}, and this is no .npy file")),
        (Some(_), Some(_)) => return Err("the number of bytes does not tell the sizes: use a .npy file".into()),
    }
    Ok(shape)
}

/// The sizes of a tensor, 1 where the model leaves them open.
fn sizes(port: &Port<'_>) -> Vec<usize> {
    let size = |dim| if let Dim::Fixed(size) = dim { size as usize } else { 1 };
    port.dims.into_iter().flatten().map(size).collect()
}

fn open_axes<'a>(port: &Port<'a>) -> impl Iterator<Item = usize> + use<'a> {
    let dims = port.dims.into_iter().flatten().enumerate();
    dims.filter(|(_, dim)| !matches!(dim, Dim::Fixed(_))).map(|(axis, _)| axis)
}

fn bytes_of(shape: &[usize], dtype: DType) -> usize {
    shape.iter().product::<usize>() * dtype.size()
}
