//! From a file to results: models are compiled when they are first used with arrays of some sizes, and kept.
use crate::{Array, Error};
use anyhow::Result;
use numrsc::{
    DType, Generator, Session, TensorRef, TensorView,
    onnx::{
        self, import,
        proto::{DimensionValue, TypeValue, ValueInfoProto},
        write,
    },
};
use std::{
    collections::HashMap,
    fmt,
    path::Path,
    sync::{Mutex, PoisonError},
};

/// A model as it is in its file, and what was compiled of it.
pub struct OnnxModel {
    /// What it is made of.
    pub graph: OnnxGraph,
    source: onnx::Model,
    compiled: Mutex<Vec<Compiled>>,
}

/// The operations of a model.
#[derive(Clone, Debug)]
pub struct OnnxGraph {
    /// Its name.
    pub name: String,
    /// The operations, in an order in which they can be computed.
    pub nodes: Vec<OnnxNode>,
    /// What has to be given, weights not included.
    pub inputs: Vec<OnnxTensor>,
    /// The names of the results.
    pub outputs: Vec<String>,
    /// What weights there are.
    pub initializers: Vec<OnnxTensor>,
}

/// An operation of a model.
#[derive(Clone, Debug)]
pub struct OnnxNode {
    /// Its name, which may be empty.
    pub name: String,
    /// Which operation.
    pub op_type: String,
    /// The names of its operands.
    pub inputs: Vec<String>,
    /// The names of its results.
    pub outputs: Vec<String>,
}

/// An input or a weight of a model.
#[derive(Clone, Debug)]
pub struct OnnxTensor {
    /// Its name.
    pub name: String,
    /// The type of its elements by its number in ONNX, 1 for `f32`.
    pub dtype: i32,
    /// The size of every axis, -1 where it is open.
    pub shape: Vec<i64>,
}

/// A model for inputs of some sizes.
struct Compiled {
    shapes: Vec<Vec<usize>>,
    session: Session,
}

/// How many of them are kept, those that were used last.
const KEPT: usize = 16;

/// Load a model: ONNX, or the JSON of NumRs. What is in the file decides, not its name.
///
/// Use it many times: it is compiled by the first [`infer`].
pub fn load_onnx(path: impl AsRef<Path>) -> Result<OnnxModel> {
    let source = onnx::load(path.as_ref()).map_err(Error::Model)?;
    // Says now what is wrong with the model, and not when it is used.
    import::import(&source, &import::Options::default()).map_err(Error::Model)?;
    let graph = source.graph();
    let weights: Vec<&str> = graph.initializer.iter().map(|t| &t.name[..]).collect();
    let node = |node: &onnx::proto::NodeProto| OnnxNode {
        name: node.name.clone(),
        op_type: node.op_type.clone(),
        inputs: node.input.clone(),
        outputs: node.output.clone(),
    };
    let initializers = graph.initializer.iter();
    let graph = OnnxGraph {
        name: graph.name.clone(),
        nodes: graph.node.iter().map(node).collect(),
        inputs: graph.input.iter().filter(|i| !weights.contains(&&i.name[..])).map(declared).collect(),
        outputs: graph.output.iter().map(|o| o.name.clone()).collect(),
        initializers: initializers
            .map(|t| OnnxTensor { name: t.name.clone(), dtype: t.data_type, shape: t.dims.clone() })
            .collect(),
    };
    Ok(OnnxModel { graph, source, compiled: Mutex::default() })
}

/// Write a model that was loaded: as the JSON of NumRs if the name ends in `.json`, otherwise as ONNX.
pub fn save_onnx(model: &OnnxModel, path: impl AsRef<Path>) -> Result<()> {
    write::write(&model.source, path.as_ref(), &write::Options::default()).map_err(Error::Model)?;
    Ok(())
}

fn declared(input: &ValueInfoProto) -> OnnxTensor {
    let tensor = match input.r#type.as_ref().and_then(|t| t.value.as_ref()) {
        Some(TypeValue::Tensor(tensor)) => Some(tensor),
        _ => None,
    };
    let size = |dim: &onnx::proto::Dimension| match dim.value {
        Some(DimensionValue::Value(n)) => n,
        _ => -1,
    };
    let shape = tensor.and_then(|t| t.shape.as_ref());
    OnnxTensor {
        name: input.name.clone(),
        dtype: tensor.map_or(0, |t| t.elem_type),
        shape: shape.map_or(vec![], |shape| shape.dim.iter().map(size).collect()),
    }
}

/// Run a model on inputs by name, and give its outputs by name.
///
/// For the sizes of these inputs it is compiled, once. They may be others than the model declares, a larger batch for example, as far as its operations allow it: where one does not,
/// the error names it. More or fewer axes of size 1 than the model declares make no difference.
#[expect(clippy::needless_pass_by_value, reason = "as in NumRs")]
pub fn infer(model: &OnnxModel, inputs: HashMap<String, Array>) -> Result<HashMap<String, Array>> {
    let ports = &model.graph.inputs;
    if let Some(name) = inputs.keys().filter(|name| !ports.iter().any(|port| port.name == **name)).min() {
        let known: Vec<String> = ports.iter().map(|port| format!("`{}`", port.name)).collect();
        return Err(Error::Input(format!("the model has no input `{name}`; it has {}", known.join(", "))).into());
    }
    let given = |port: &OnnxTensor| {
        let array = inputs.get(&port.name).ok_or_else(|| Error::Input(format!("input `{}` is missing", port.name)))?;
        Ok((array, fitted(port, &array.shape)?))
    };
    let given: Vec<(&Array, Vec<usize>)> = ports.iter().map(given).collect::<Result<_, Error>>()?;
    let session = model.session(&given).map_err(Error::Model)?;
    let named = ports.iter().zip(&given);
    let tensors: Vec<(&str, TensorRef<'_>)> =
        named.map(|(port, (array, shape))| (&port.name[..], TensorRef::new(&array.data, shape))).collect();
    let results = session.run(&tensors).map_err(Error::Model)?;
    let mut outputs = HashMap::with_capacity(results.len());
    for result in results.iter() {
        let result = result.map_err(Error::Model)?;
        outputs.insert(result.name().to_owned(), array(&result)?);
    }
    Ok(outputs)
}

/// The shape of an array as the model has it: with as many axes, if it is axes of size 1 that are too many or too few.
fn fitted(port: &OnnxTensor, shape: &[usize]) -> Result<Vec<usize>, Error> {
    let OnnxTensor { name, shape: declared, .. } = port;
    // The first size is the batch, and may be any.
    let fits = |axis: usize, size: usize| axis == 0 || declared[axis] < 0 || declared[axis] == size as i64;
    let (mut fitted, mut surplus) = (vec![], shape.len().saturating_sub(declared.len()));
    let mut missing = declared.len().saturating_sub(shape.len());
    for &size in shape {
        while missing > 0 && declared[fitted.len()] == 1 && !fits(fitted.len(), size) {
            fitted.push(1);
            missing -= 1;
        }
        let axis = fitted.len();
        match surplus > 0 && size == 1 && !(axis < declared.len() && fits(axis, size)) {
            true => surplus -= 1,
            false => fitted.push(size),
        }
    }
    let behind = declared.get(fitted.len()..).unwrap_or_default();
    if behind.iter().all(|size| *size == 1) {
        fitted.extend(behind.iter().map(|_| 1));
    }
    match fitted.len() == declared.len() {
        true => Ok(fitted),
        false => {
            let message = format!("input `{name}` has the shape {declared:?} in the model, but {shape:?} was given");
            Err(Error::Input(message))
        }
    }
}

/// The elements of an output as floats.
fn array(view: &TensorView<'_>) -> Result<Array, Error> {
    let data = match view.dtype() {
        DType::F32 => view.as_slice::<f32>().map(<[f32]>::to_vec),
        DType::F64 => view.as_slice::<f64>().map(|v| v.iter().map(|x| *x as f32).collect()),
        DType::I64 => view.as_slice::<i64>().map(|v| v.iter().map(|x| *x as f32).collect()),
        DType::I32 => view.as_slice::<i32>().map(|v| v.iter().map(|x| *x as f32).collect()),
        DType::Bool => view.as_slice::<bool>().map(|v| v.iter().map(|x| f32::from(*x)).collect()),
        other => {
            return Err(Error::Input(format!(
                "output `{}` is of type {other}, of which there are no arrays",
                view.name()
            )));
        }
    };
    let data = data.map_err(|e| Error::Model(e.into()))?;
    Ok(Array { shape: view.shape().to_vec(), data })
}

impl OnnxModel {
    /// The model for inputs of these shapes.
    fn session(&self, inputs: &[(&Array, Vec<usize>)]) -> Result<Session, numrsc::Error> {
        // Those who want the same thing at the same time wait for the first of them.
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |known: &Compiled| known.shapes.iter().eq(inputs.iter().map(|(_, shape)| shape));
        if let Some(at) = compiled.iter().position(fits) {
            let last = compiled.len() - 1;
            compiled.swap(at, last);
            return Ok(compiled[last].session.clone());
        }
        let shapes: Vec<Vec<usize>> = inputs.iter().map(|(_, shape)| shape.clone()).collect();
        let mut builder = Session::builder().backend(Generator::Cranelift);
        for (port, shape) in self.graph.inputs.iter().zip(&shapes) {
            for (axis, (size, declared)) in shape.iter().zip(&port.shape).enumerate() {
                if *declared != *size as i64 {
                    // Whatever it is called in the model, there is one size for it now.
                    let name = format!("{}_{axis}", port.name);
                    builder = builder.open(&port.name, axis, &name).dim(&name, *size);
                }
            }
        }
        let session = builder.build(&self.source)?;
        if compiled.len() == KEPT {
            compiled.remove(0);
        }
        compiled.push(Compiled { shapes, session: session.clone() });
        Ok(session)
    }
}

impl fmt::Debug for OnnxModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnnxModel").field("graph", &self.graph).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_of_one_element_make_no_difference() {
        let fit = |declared: &[i64], shape: &[usize]| {
            fitted(&OnnxTensor { name: "x".into(), dtype: 1, shape: declared.to_vec() }, shape).ok()
        };
        assert_eq!(fit(&[1, 128], &[1, 1, 128]), Some(vec![1, 128]));
        assert_eq!(fit(&[1, 128], &[32, 1, 128]), Some(vec![32, 128]));
        assert_eq!(fit(&[1, 1, 128], &[32, 128]), Some(vec![32, 1, 128]));
        assert_eq!(fit(&[1, 128, 1], &[5, 128]), Some(vec![5, 128, 1]));
        assert_eq!(fit(&[3], &[3, 1]), Some(vec![3]));
        assert_eq!(fit(&[-1, 4], &[7, 4]), Some(vec![7, 4]));
        assert_eq!(fit(&[], &[]), Some(vec![]));
        // As many axes are left to the model, whatever their sizes.
        assert_eq!(fit(&[2, 3], &[4, 5]), Some(vec![4, 5]));
        assert_eq!((fit(&[1, 128], &[2, 3, 128]), fit(&[1, 2, 128], &[1, 128])), (None, None));
    }
}
