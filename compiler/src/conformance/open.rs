//! Models whose sizes are all open: what every test should give as well when the sizes of its inputs are known only at run time.
use super::{FolderOptions, Settings, fed, short};
use crate::{
    error::Error,
    onnx::{
        Model, import,
        proto::{Dimension, DimensionValue, TypeProto, TypeValue},
    },
};
use std::{collections::BTreeMap, path::Path};

/// How the sizes of inputs become symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenSizes {
    /// Every size is a symbol of its own, `INPUT_AXIS`.
    Each,
    /// Equal sizes are the same symbol, `size_N`; sizes that the model leaves open stay what they are.
    Alike,
}

/// A copy of the model's inputs without numbers, and how to import them.
pub(super) fn open(model: &mut Model, settings: Settings, how: OpenSizes) -> Settings {
    let inputs: Vec<String> = fed(model).map(|i| i.name.clone()).collect();
    for input in model.graph_mut().input.iter_mut().filter(|i| inputs.contains(&i.name)) {
        if let Some(ty) = &mut input.r#type {
            open_type(ty, &input.name, how);
        }
    }
    match how {
        OpenSizes::Each => Settings { dims: BTreeMap::new(), distinct_dims: false, ..settings },
        OpenSizes::Alike => settings,
    }
}

fn open_type(ty: &mut TypeProto, name: &str, how: OpenSizes) {
    match &mut ty.value {
        Some(TypeValue::Tensor(t)) => {
            for (axis, d) in t.shape.iter_mut().flat_map(|s| &mut s.dim).enumerate() {
                open_dimension(d, name, axis, how);
            }
        }
        // The elements of a sequence may have different sizes, so these have no names.
        Some(TypeValue::Sequence(e) | TypeValue::Optional(e)) => {
            if let Some(TypeValue::Tensor(t)) = e.elem_type.as_mut().and_then(|t| t.value.as_mut()) {
                t.shape.iter_mut().flat_map(|s| &mut s.dim).for_each(|d| d.value = None);
            }
        }
        _ => {}
    }
}

fn open_dimension(d: &mut Dimension, name: &str, axis: usize, how: OpenSizes) {
    match (how, &d.value) {
        (OpenSizes::Each, _) => d.value = Some(DimensionValue::Param(format!("{name}_{axis}"))),
        (OpenSizes::Alike, Some(DimensionValue::Value(n))) => {
            d.value = Some(DimensionValue::Param(format!("size_{n}")));
        }
        (OpenSizes::Alike, _) => {}
    }
}

/// Is the model refused because it has to know a size, is it this one, and is there a hint what to do about it?
pub fn expect_refusal(dir: &Path, size: &str, options: FolderOptions) -> Result<(), String> {
    let (model, settings) = super::load(dir, options)?;
    let Err(e) = import::import(&model, &settings.import()) else {
        return Err(format!("is not refused, but listed as one that has to know `{size}`: take it off the list"));
    };
    if !e.to_string().contains(&format!("`{size}`")) {
        return Err(format!("the refusal does not name `{size}`: {}", short(&e)));
    }
    match &e {
        Error::Model { problems, .. } if problems.iter().all(|p| p.hint.is_some()) => Ok(()),
        e => Err(format!("the refusal has no hint: {}", short(e))),
    }
}

/// The size that a line of a list of refusals names: the first word of what follows the test's name.
pub fn named_size(reason: &str) -> &str {
    reason.split_whitespace().next().unwrap_or("")
}
