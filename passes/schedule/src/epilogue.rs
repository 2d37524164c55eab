//! Epilogue fusion: a map that is computed where its product would be stored.
use crate::index::linear;
use numrsc_ir::{Dim, Value};

/// The mapping from the elements of a product to those of its root.
#[derive(Clone, Debug)]
pub enum Order {
    /// For each axis of the root, the axis of the product; `None` where there is only one index.
    Axes(Vec<Option<usize>>),
    /// Both have the same order in memory.
    Memory,
}

impl Order {
    /// The order, if a root with loops `domain` reads each element of the product once, at `index`, and the last axes
    /// agree: then vectors of the product are vectors of the root.
    pub fn of(index: &[Dim], shape: &[Dim], domain: &[Dim], root_shape: &[Dim]) -> Option<Order> {
        if Dim::product(shape) != Dim::product(root_shape) {
            return None;
        }
        let axis = |(var, size): (&Dim, &Dim)| {
            if *var == Dim::ZERO {
                return Some(None);
            }
            let at = index.iter().position(|i| i == var)?;
            (shape[at] == *size).then_some(Some(at))
        };
        if let Some(axes) = domain.iter().zip(root_shape).map(axis).collect::<Option<Vec<_>>>() {
            let others_are_one = (0..shape.len()).all(|a| axes.contains(&Some(a)) || shape[a] == Dim::ONE);
            let last = shape.iter().rposition(|d| *d != Dim::ONE);
            if others_are_one && axes.iter().rev().find_map(|a| *a) == last {
                return Some(Order::Axes(axes));
            }
        }
        (linear(index, shape) == linear(domain, root_shape)).then_some(Order::Memory)
    }
}

/// A product and the root in which it is computed.
#[derive(Clone, Debug)]
pub struct Epilogue {
    pub product: Value,
    pub root: Value,
    pub order: Order,
}

impl Epilogue {
    /// A product that is stored itself.
    pub fn none(product: Value, rank: usize) -> Epilogue {
        Epilogue { product, root: product, order: Order::Axes((0..rank).map(Some).collect()) }
    }
}
