//! Types of values: tensors with static rank and symbolic dimensions, sequences, tuples.
use crate::{DType, Dim, Result, dim::Sym, refuse};
use std::fmt;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Type {
    Tensor(TensorType),
    /// Any number of elements. An ONNX optional is a sequence of at most one.
    Seq(Box<Elem>),
    /// The results of an op that has several; taken apart by `get`.
    Tuple(Vec<Type>),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorType {
    pub dtype: DType,
    pub shape: Vec<Dim>,
}

/// What is known of every element of a sequence; `None` differs from element to element.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Elem {
    Tensor { dtype: DType, shape: Option<Vec<Option<Dim>>> },
    Seq(Box<Elem>),
}

impl Type {
    pub fn tensor(dtype: DType, shape: impl Into<Vec<Dim>>) -> Type {
        Type::Tensor(TensorType { dtype, shape: shape.into() })
    }

    pub fn scalar(dtype: DType) -> Type {
        Type::tensor(dtype, [])
    }

    pub fn as_tensor(&self) -> Result<&TensorType> {
        match self {
            Type::Tensor(t) => Ok(t),
            _ => refuse!("expected a tensor, got {self}"),
        }
    }

    pub fn as_seq(&self) -> Result<&Elem> {
        match self {
            Type::Seq(e) => Ok(e),
            _ => refuse!("expected a sequence, got {self}"),
        }
    }

    /// Call `f` on every dimension mentioned.
    pub fn for_each_dim<'t>(&'t self, f: &mut dyn FnMut(&'t Dim)) {
        match self {
            Type::Tensor(t) => t.shape.iter().for_each(f),
            Type::Seq(e) => e.for_each_dim(f),
            Type::Tuple(ts) => ts.iter().for_each(|t| t.for_each_dim(f)),
        }
    }

    /// The type with every dimension replaced by `f` of it.
    #[must_use]
    pub fn map_dims(&self, f: &dyn Fn(&Dim) -> Dim) -> Type {
        match self {
            Type::Tensor(t) => Type::tensor(t.dtype, t.shape.iter().map(f).collect::<Vec<_>>()),
            Type::Seq(e) => Type::Seq(Box::new(e.map_dims(f))),
            Type::Tuple(ts) => Type::Tuple(ts.iter().map(|t| t.map_dims(f)).collect()),
        }
    }

    /// Call `f` on every symbol mentioned.
    pub fn for_each_sym<'t>(&'t self, f: &mut dyn FnMut(&'t Sym)) {
        self.for_each_dim(&mut |d| d.for_each_sym(f));
    }
}

impl TensorType {
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The shape as numbers, if no dimension is symbolic.
    pub fn static_shape(&self) -> Option<Vec<usize>> {
        self.shape.iter().map(Dim::as_usize).collect()
    }
}

impl Elem {
    /// What is known of elements that are all of type `t`.
    pub fn of(t: &Type) -> Result<Elem> {
        Ok(match t {
            Type::Tensor(t) => {
                Elem::Tensor { dtype: t.dtype, shape: Some(t.shape.iter().cloned().map(Some).collect()) }
            }
            Type::Seq(e) => Elem::Seq(e.clone()),
            Type::Tuple(_) => refuse!("a sequence cannot hold tuples"),
        })
    }

    /// What is known of elements that are of either kind.
    pub fn join(&self, o: &Elem) -> Result<Elem> {
        match (self, o) {
            (Elem::Tensor { dtype: a, shape: s }, Elem::Tensor { dtype: b, shape: t }) if a == b => {
                let shape = match (s, t) {
                    (Some(s), Some(t)) if s.len() == t.len() => {
                        Some(s.iter().zip(t).map(|(x, y)| if x == y { x.clone() } else { None }).collect())
                    }
                    _ => None,
                };
                Ok(Elem::Tensor { dtype: *a, shape })
            }
            (Elem::Seq(a), Elem::Seq(b)) => Ok(Elem::Seq(Box::new(a.join(b)?))),
            _ => refuse!("a sequence cannot hold both {self} and {o}"),
        }
    }

    /// Does everything known here hold for elements described by `o`?
    pub fn admits(&self, o: &Elem) -> bool {
        self.join(o).as_ref() == Ok(self)
    }

    fn for_each_dim<'t>(&'t self, f: &mut dyn FnMut(&'t Dim)) {
        match self {
            Elem::Tensor { shape, .. } => shape.iter().flatten().flatten().for_each(f),
            Elem::Seq(e) => e.for_each_dim(f),
        }
    }

    fn map_dims(&self, f: &dyn Fn(&Dim) -> Dim) -> Elem {
        match self {
            Elem::Tensor { dtype, shape } => Elem::Tensor {
                dtype: *dtype,
                shape: shape.as_ref().map(|s| s.iter().map(|d| d.as_ref().map(f)).collect()),
            },
            Elem::Seq(e) => Elem::Seq(Box::new(e.map_dims(f))),
        }
    }
}

pub(crate) fn join<T: ToString>(items: &[T], separator: &str) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor(t) => write!(f, "{t}"),
            Type::Seq(e) => write!(f, "seq<{e}>"),
            Type::Tuple(ts) => write!(f, "({})", join(ts, ", ")),
        }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.dtype, join(&self.shape, ", "))
    }
}

impl fmt::Display for Elem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Elem::Tensor { dtype, shape: None } => write!(f, "{dtype}[..]"),
            Elem::Tensor { dtype, shape: Some(s) } => {
                let dims: Vec<String> = s.iter().map(|d| d.as_ref().map_or("?".into(), ToString::to_string)).collect();
                write!(f, "{dtype}[{}]", dims.join(", "))
            }
            Elem::Seq(e) => write!(f, "seq<{e}>"),
        }
    }
}
