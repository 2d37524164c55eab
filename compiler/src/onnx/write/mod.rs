//! Models as files: protobuf, with the values of large tensors in another file where asked for or needed, and the JSON of NumRs.
//!
//! What a model holds is written as it was read: names, documentation, metadata, nodes of any domain. The same model gives the same bytes.
mod external;
mod protobuf;

use super::{
    check::NEWEST_IR,
    model::Model,
    numrs_json,
    proto::{FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto},
};
use crate::{
    error::{Error, Place, Problem, Result},
    output::files,
};
use std::{
    io::{self, Write},
    path::Path,
};

/// What protobuf can hold in one message.
pub const LARGEST: usize = i32::MAX as usize;

/// How to write a model.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Put the values of tensors from 1 KiB on into a file next to the model, `model.onnx.data` for `model.onnx`. This is done in any case if the model would be
    /// larger than protobuf allows, 2 GB.
    pub external_data: bool,
}

/// Write a model, as NumRs's JSON if the name ends in `.json`. The file, or both, appear complete or not at all. Values are copied from file to file: what is in memory does not
/// grow with them.
pub fn write(model: &Model, path: &Path, options: &Options) -> Result<()> {
    let mut proto = whole(model)?;
    let failed =
        |message: String| Error::Model { file: path.to_owned(), problems: vec![Problem::new(Place::model(), message)] };
    if path.extension().is_some_and(|kind| kind == "json") {
        if options.external_data {
            return Err(failed("NumRs's JSON holds all values itself: there is no external data".into()));
        }
        let text = numrs_json::encode(&proto).map_err(|problems| Error::Model { file: path.to_owned(), problems })?;
        return files::write_file(path, |to| serde_json::to_writer(to, &text).map_err(io::Error::from));
    }
    let size = prost::Message::encoded_len(&proto);
    if !options.external_data && size <= LARGEST {
        return files::write_file(path, |to| protobuf::write(proto, to));
    }
    if files::is_special(path) {
        return Err(failed("the model needs a file next to it, so it cannot be written to a pipe".into()));
    }
    let data = external::take_out(&mut proto, path).map_err(failed)?;
    let size = prost::Message::encoded_len(&proto);
    if size > LARGEST {
        return Err(failed(format!(
            "without the values of its initialisers it still takes {size} bytes, and protobuf holds {LARGEST}"
        )));
    }
    // The model is published when the data has been.
    files::write_file(path, |to| {
        protobuf::write(proto, to)?;
        data.write()
    })
}

/// The bytes of a model in one piece, its values included.
pub fn to_bytes(model: &Model) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let written = protobuf::write(whole(model)?, &mut bytes);
    written.map_err(|source| Error::Io { file: model.file().to_owned(), source })?;
    Ok(bytes)
}

/// The messages of a model with the values of all tensors in them, which are views of the files that they come from.
pub(crate) fn whole(model: &Model) -> Result<ModelProto> {
    let mut proto = model.proto().clone();
    let mut problems = Vec::new();
    if let Some(version) = proto.ir_version.filter(|&version| version > NEWEST_IR) {
        let message = format!("IR version {version} is newer than {NEWEST_IR}: what is new in it would be lost");
        problems.push(Problem::new(Place::model(), message));
    }
    each_tensor(&mut proto, &mut |t| {
        if t.data_location == 1 {
            match model.stored_bytes(t) {
                Ok(bytes) => {
                    t.raw_data = bytes;
                    t.external_data.clear();
                    t.data_location = 0;
                }
                Err(message) => problems.push(Problem::new(Place::model(), message)),
            }
        }
    });
    if problems.is_empty() { Ok(proto) } else { Err(Error::Model { file: model.file().to_owned(), problems }) }
}

/// Visit all tensors of a model.
fn each_tensor(model: &mut ModelProto, f: &mut dyn FnMut(&mut TensorProto)) {
    let training = model.training_info.iter_mut().flat_map(|t| t.initialization.iter_mut().chain(&mut t.algorithm));
    model.graph.iter_mut().chain(training).for_each(|g| tensors_of_graph(g, f));
    for FunctionProto { node, attribute_proto, .. } in &mut model.functions {
        node.iter_mut().for_each(|n| tensors_of_node(n, f));
        attribute_proto.iter_mut().filter_map(|a| a.t.as_deref_mut()).for_each(&mut *f);
    }
}

fn tensors_of_graph(graph: &mut GraphProto, f: &mut dyn FnMut(&mut TensorProto)) {
    graph.initializer.iter_mut().for_each(&mut *f);
    graph.sparse_initializer.iter_mut().for_each(|t| tensors_of_sparse(t, f));
    graph.node.iter_mut().for_each(|n| tensors_of_node(n, f));
}

fn tensors_of_node(node: &mut NodeProto, f: &mut dyn FnMut(&mut TensorProto)) {
    for a in &mut node.attribute {
        a.t.as_deref_mut().into_iter().chain(&mut a.tensors).for_each(&mut *f);
        a.sparse_tensor.as_deref_mut().into_iter().chain(&mut a.sparse_tensors).for_each(|t| tensors_of_sparse(t, f));
        a.subgraphs_mut().for_each(|g| tensors_of_graph(g, f));
    }
}

fn tensors_of_sparse(t: &mut SparseTensorProto, f: &mut dyn FnMut(&mut TensorProto)) {
    t.values.iter_mut().chain(&mut t.indices).for_each(f);
}

/// Write zeros.
fn pad(to: &mut dyn Write, count: usize) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), count as u64), to).map(drop)
}
