//! The file with the values of a model's initialisers.
use super::pad;
use crate::{
    error::Error,
    onnx::{
        proto::{GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto},
        tensor_data,
    },
    output::files,
};
use bytes::Bytes;
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

/// What is smaller stays in the model.
const SMALLEST: usize = 1024;
/// Where values begin: at multiples of this, or of a page if they are large enough to be mapped one by one.
const ALIGNMENT: usize = 64;
const PAGE: usize = 4096;
const LARGE: usize = 1 << 20;

/// Values on their way to a file of their own.
#[derive(Debug)]
pub(super) struct Data {
    path: PathBuf,
    /// Where they begin, in ascending order.
    values: Vec<(usize, Bytes)>,
}

/// Take the values out of a model that will be at `path`.
pub(super) fn take_out(model: &mut ModelProto, path: &Path) -> Result<Data, String> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or("the name of a model with external data has to be text")?;
    let location = format!("{name}.data");
    let mut data = Data { path: path.with_file_name(&location), values: vec![] };
    let mut end = 0;
    initializers(model.graph.as_mut().into_iter(), &mut |tensor| {
        let Some(bytes) = tensor_data::stored(tensor)?.filter(|bytes| bytes.len() >= SMALLEST) else { return Ok(()) };
        let start = usize::next_multiple_of(end, if bytes.len() >= LARGE { PAGE } else { ALIGNMENT });
        end = start + bytes.len();
        let entry = |key: &str, value: String| StringStringEntryProto { key: key.into(), value: value.into() };
        *tensor = TensorProto {
            external_data: vec![
                entry("location", location.clone()),
                entry("offset", start.to_string()),
                entry("length", bytes.len().to_string()),
            ],
            data_location: 1,
            ..tensor_data::without_values(tensor)
        };
        data.values.push((start, bytes));
        Ok(())
    })?;
    Ok(data)
}

type Visit<'a> = dyn FnMut(&mut TensorProto) -> Result<(), String> + 'a;

/// Visit the initialisers of graphs and of all graphs inside.
fn initializers<'g>(graphs: impl Iterator<Item = &'g mut GraphProto>, f: &mut Visit<'_>) -> Result<(), String> {
    for graph in graphs {
        graph.initializer.iter_mut().try_for_each(&mut *f)?;
        for NodeProto { attribute, .. } in &mut graph.node {
            for a in attribute {
                inner(a.subgraphs_mut().collect(), f)?;
            }
        }
    }
    Ok(())
}

/// A type of its own for the recursion.
fn inner(graphs: Vec<&mut GraphProto>, f: &mut Visit<'_>) -> Result<(), String> {
    initializers(graphs.into_iter(), f)
}

impl Data {
    pub(super) fn write(self) -> io::Result<()> {
        let written = files::write_file(&self.path, |to| {
            let mut end = 0;
            for (start, bytes) in &self.values {
                pad(to, start - end)?;
                to.write_all(bytes)?;
                end = start + bytes.len();
            }
            Ok(())
        });
        written.map_err(|e| match e {
            Error::Io { file, source } => io::Error::new(source.kind(), format!("{}: {source}", file.display())),
            other => io::Error::other(other),
        })
    }
}
