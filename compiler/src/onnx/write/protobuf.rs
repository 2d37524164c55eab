//! The messages of a model one after the other, so that what is encoded in memory is a node or the head of a tensor at a time: values go to the file from where they lie.
//! Fields are in the order of their numbers, as [`Message::encode`] has them.
use crate::onnx::proto::{GraphProto, ModelProto, NodeProto, TensorProto};
use bytes::Bytes;
use prost::{Message, encode_length_delimiter};
use std::{
    io::{self, Write},
    mem::take,
};

/// The numbers of the fields that are written in parts.
const MODEL_GRAPH: usize = 7;
const GRAPH_NODE: usize = 1;
const GRAPH_INITIALIZER: usize = 5;
const TENSOR_RAW_DATA: usize = 9;

pub(super) fn write(mut head: ModelProto, to: &mut dyn Write) -> io::Result<()> {
    let graph = head.graph.take();
    let tail = ModelProto {
        opset_import: take(&mut head.opset_import),
        metadata_props: take(&mut head.metadata_props),
        training_info: take(&mut head.training_info),
        functions: take(&mut head.functions),
        configuration: take(&mut head.configuration),
        ..ModelProto::default()
    };
    message(&head, to)?;
    if let Some(graph) = graph {
        field(MODEL_GRAPH, graph.encoded_len(), to)?;
        write_graph(graph, to)?;
    }
    message(&tail, to)
}

fn write_graph(mut tail: GraphProto, to: &mut dyn Write) -> io::Result<()> {
    for node in take(&mut tail.node) {
        field(GRAPH_NODE, node.encoded_len(), to)?;
        message::<NodeProto>(&node, to)?;
    }
    message(&GraphProto { name: take(&mut tail.name), ..GraphProto::default() }, to)?;
    for tensor in take(&mut tail.initializer) {
        field(GRAPH_INITIALIZER, tensor.encoded_len(), to)?;
        write_tensor(tensor, to)?;
    }
    message(&tail, to)
}

fn write_tensor(mut head: TensorProto, to: &mut dyn Write) -> io::Result<()> {
    let raw: Bytes = take(&mut head.raw_data);
    let tail = TensorProto {
        double_data: take(&mut head.double_data),
        uint64_data: take(&mut head.uint64_data),
        doc_string: take(&mut head.doc_string),
        external_data: take(&mut head.external_data),
        data_location: take(&mut head.data_location),
        metadata_props: take(&mut head.metadata_props),
        ..TensorProto::default()
    };
    message(&head, to)?;
    if !raw.is_empty() {
        field(TENSOR_RAW_DATA, raw.len(), to)?;
        to.write_all(&raw)?;
    }
    message(&tail, to)
}

fn message<M: Message>(m: &M, to: &mut dyn Write) -> io::Result<()> {
    to.write_all(&m.encode_to_vec())
}

/// What stands before a message or bytes inside a message: the number of the field with the code for "so many bytes", and how many.
fn field(number: usize, length: usize, to: &mut dyn Write) -> io::Result<()> {
    let mut head = Vec::with_capacity(16);
    for number in [number << 3 | 2, length] {
        encode_length_delimiter(number, &mut head).map_err(io::Error::other)?;
    }
    to.write_all(&head)
}
