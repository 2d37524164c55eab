//! Sizes of inputs that the model has as numbers and the user wants open: exporters write the sizes of the example that they traced.
use super::{Options, import_once};
use crate::{
    error::{Error, Problem},
    onnx::{
        Model,
        proto::{Dimension, DimensionValue, TypeProto, TypeValue},
    },
};
use std::collections::BTreeMap;

/// Put the names that the user gave in the place of sizes.
pub(super) fn name_sizes(
    input: &str,
    ty: &mut TypeProto,
    open: &BTreeMap<(String, usize), String>,
) -> Result<(), String> {
    for ((_, axis), name) in open.iter().filter(|((of, _), _)| of == input) {
        *dimension(ty, *axis)? = DimensionValue::Param(name.clone());
    }
    Ok(())
}

fn dimension(ty: &mut TypeProto, axis: usize) -> Result<&mut DimensionValue, String> {
    let Some(TypeValue::Tensor(tensor)) = &mut ty.value else { return Err("only tensors have sizes to open".into()) };
    let shape = tensor.shape.as_mut().ok_or(super::UNDECLARED)?;
    let rank = shape.dim.len();
    let dim: &mut Dimension =
        shape.dim.get_mut(axis).ok_or_else(|| format!("it has no axis {axis} to open: its rank is {rank}"))?;
    Ok(dim.value.get_or_insert(DimensionValue::Value(-1)))
}

/// See whether the model can do with other sizes than those it has, at a size that most models take which take any: twice as much. Types of open sizes do not tell,
/// since a size that has a name may turn out to be the one that fits. What cannot do with it is among the problems.
pub(super) fn check(model: &Model, options: &Options) -> Result<(), Error> {
    let mut sizes: BTreeMap<&String, i64> = BTreeMap::new();
    for ((input, axis), name) in options.open.iter().filter(|(_, name)| !options.dims.contains_key(*name)) {
        let declared = model.graph().input.iter().find(|i| i.name == *input).and_then(|i| i.r#type.clone());
        if let Some(DimensionValue::Value(size @ 0..)) =
            declared.and_then(|mut ty| dimension(&mut ty, *axis).ok().cloned())
        {
            sizes.entry(name).or_insert(size);
        }
    }
    if sizes.is_empty() {
        return Ok(());
    }
    let mut other = options.clone();
    other.dims.extend(sizes.iter().map(|(name, size)| ((*name).clone(), (2 * size).max(2))));
    let Err(error) = import_once(model, &other) else { return Ok(()) };
    let Error::Model { file, problems } = error else { return Err(error) };
    let tried: Vec<String> =
        sizes.iter().map(|(name, size)| format!("{name}={} instead of {size}", other.dims[*name])).collect();
    let tried = tried.join(", ");
    let fixed = |p: Problem| Problem {
        message: format!("with {tried}: {}", p.message),
        hint: Some("this fixes the size: the model has to be exported with an open one".into()),
        ..p
    };
    Err(Error::Model { file, problems: problems.into_iter().map(fixed).collect() })
}
