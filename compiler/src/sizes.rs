//! Dimension names that several inputs share.
use numrsc_ir::{Data, Type};
use std::collections::BTreeMap;

/// The advice for two inputs that disagree about a dimension.
pub fn disagreement<'a>(inputs: impl Iterator<Item = (&'a str, &'a Type, &'a Data)>) -> Option<String> {
    let mut seen: BTreeMap<String, (usize, &str, usize)> = BTreeMap::new();
    for (name, ty, data) in inputs {
        let (Type::Tensor(ty), Data::Tensor(data)) = (ty, data) else { continue };
        for (axis, (dim, &size)) in ty.shape.iter().zip(data.shape()).enumerate() {
            let Some(sym) = dim.as_sym() else { continue };
            let (first, input, at) = *seen.entry(sym.to_string()).or_insert((size, name, axis));
            if first != size && input != name {
                return Some(format!(
                    "the size `{sym}` is {first} in axis {at} of `{input}`, and {size} in axis {axis} of `{name}`\n  \
                     hint: if these are different sizes, --distinct-dims gives the dimensions of every input names of \
                     their own (when the model is compiled)"
                ));
            }
        }
    }
    None
}
