//! A decoded and checked model: what the importer works on.
use super::{
    check, domain,
    external::{ExternalData, MissingData},
    order,
    proto::{FunctionProto, GraphProto, ModelProto, SparseTensorProto, TensorProto},
    tensor_data,
};
use crate::error::{Error, Problem, Result};
use bytes::Bytes;
use numrsc_ir::Tensor;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// How a model was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Protobuf,
    NumRsJson,
}

/// A model whose structure is sound: names are defined once and before use, graphs and functions are free of cycles,
/// attributes hold what they declare. Operators, types and the data of tensors are not looked at yet.
#[derive(Debug)]
pub struct Model {
    file: PathBuf,
    format: Format,
    proto: ModelProto,
    warnings: Vec<Problem>,
    opsets: BTreeMap<String, i64>,
    functions: BTreeMap<(String, String, String), usize>,
    external: ExternalData,
}

impl Model {
    /// Check a decoded model and sort its nodes. `file` is only used in messages; external data is looked up in `folder`.
    pub fn new(file: &Path, folder: Option<&Path>, format: Format, mut proto: ModelProto) -> Result<Model> {
        let found = check::check(&proto);
        if !found.problems.is_empty() {
            return Err(Error::Model { file: file.to_path_buf(), problems: found.problems });
        }
        order::reorder(&mut proto, found.orders);
        let id = |f: &FunctionProto| (domain(&f.domain).to_string(), f.name.clone(), f.overload.clone());
        Ok(Model {
            file: file.to_path_buf(),
            format,
            warnings: found.warnings,
            opsets: found.opsets,
            functions: proto.functions.iter().enumerate().map(|(i, f)| (id(f), i)).collect(),
            external: ExternalData::new(folder),
            proto,
        })
    }

    /// The model comes from its file rather than from memory.
    pub(super) fn with_file_data(mut self) -> Model {
        self.external = ExternalData::of_file(&self.file);
        self
    }

    /// Add what the reader of the file noticed.
    pub(super) fn with_warnings(mut self, warnings: Vec<Problem>) -> Model {
        self.warnings.extend(warnings);
        self
    }

    /// The file, for messages.
    pub fn file(&self) -> &Path {
        &self.file
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn proto(&self) -> &ModelProto {
        &self.proto
    }

    pub fn into_proto(self) -> ModelProto {
        self.proto
    }

    /// The main graph. Nodes are in topological order, here and in all graphs inside.
    ///
    /// # Panics
    /// Never: a model without a graph does not pass the check.
    pub fn graph(&self) -> &GraphProto {
        self.proto.graph.as_ref().expect("checked when made")
    }

    /// For changes that keep the structure sound, such as forgetting declared shapes.
    ///
    /// # Panics
    /// Never, as [`Model::graph`].
    pub fn graph_mut(&mut self) -> &mut GraphProto {
        self.proto.graph.as_mut().expect("checked when made")
    }

    /// What is suspicious but does not keep the model from being compiled.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// Versions of the operators by domain; the default domain is `""`.
    pub fn opsets(&self) -> &BTreeMap<String, i64> {
        &self.opsets
    }

    /// A function defined in the model itself.
    pub fn function(&self, domain_name: &str, name: &str, overload: &str) -> Option<&FunctionProto> {
        let id = (domain(domain_name).to_string(), name.to_string(), overload.to_string());
        self.functions.get(&id).map(|&i| &self.proto.functions[i])
    }

    /// The files with external data that were read so far.
    pub fn external_files(&self) -> Vec<PathBuf> {
        self.external.files()
    }

    /// The files with external data that were asked for in vain so far.
    pub fn missing_data(&self) -> Vec<MissingData> {
        self.external.missing()
    }

    /// The value of a tensor of this model; the error names it.
    pub fn tensor(&self, proto: &TensorProto) -> Result<Tensor, String> {
        tensor_data::tensor(proto, &self.external)
    }

    /// The bytes of a tensor of this model that lie in another file; the error names it.
    pub(super) fn stored_bytes(&self, proto: &TensorProto) -> Result<Bytes, String> {
        tensor_data::stored_elsewhere(proto, &self.external)
    }

    /// The dense value of a sparse tensor of this model; the error names it.
    pub fn sparse_tensor(&self, proto: &SparseTensorProto) -> Result<Tensor, String> {
        tensor_data::sparse_tensor(proto, &self.external)
    }
}

/// Versions of the operators that the nodes of a function mean, by domain.
pub fn function_opsets(function: &FunctionProto) -> BTreeMap<String, i64> {
    function.opset_import.iter().map(|o| (domain(&o.domain).to_string(), o.version)).collect()
}
