//! Attribute types: how each prints, reads back, and mentions dimensions.
use crate::{
    DType, Dim, Error, Func, Result, Scalar, Tensor, Type,
    dim::{Sym, sym_text},
    parse::Parser,
    print,
    types::Elem,
};
use std::{fmt::Write, sync::Arc};

/// An attribute as data that knows nothing of its op: what an e-graph holds. Whole numbers are constant dimensions, so that `[1, 0]` is the same leaf
/// whether an op reads it as axes or as sizes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Leaf {
    Dim(Dim),
    Bool(bool),
    Word(&'static str),
    DType(DType),
    List(Vec<Leaf>),
}

impl Leaf {
    pub fn int(n: i64) -> Leaf {
        Leaf::Dim(Dim::Const(n))
    }

    pub fn as_int(&self) -> Option<i64> {
        i64::from_leaf(self)
    }
}

impl std::fmt::Display for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Leaf::Dim(d) => write!(f, "{d}"),
            Leaf::Bool(b) => write!(f, "{b}"),
            Leaf::Word(w) => f.write_str(w),
            Leaf::DType(d) => write!(f, "{d}"),
            Leaf::List(l) => write!(f, "[{}]", crate::types::join(l, ",")),
        }
    }
}

/// A type that can be an attribute of an op.
pub trait Attr: std::fmt::Debug {
    fn print(&self, out: &mut String);
    fn parse(p: &mut Parser<'_>) -> Result<Self>
    where
        Self: Sized;
    /// The nested function, if the attribute is one.
    fn as_func(&self) -> Option<&Func> {
        None
    }
    /// The attribute with every dimension replaced by `f` of it.
    #[must_use]
    fn map_dims(&self, f: &dyn Fn(&Dim) -> Dim) -> Self
    where
        Self: Sized;
    /// The attribute as a leaf; `None` for those that e-graphs do not hold.
    fn to_leaf(&self) -> Option<Leaf> {
        None
    }
    fn from_leaf(_: &Leaf) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
}

/// Attributes that print by `Display` and mention no dimensions.
macro_rules! plain {
    ($($ty:ty => $parse:expr $(, $to:expr, $from:pat => $back:expr)?;)*) => { $(
        impl Attr for $ty {
            fn print(&self, out: &mut String) { write!(out, "{self}").expect("writing to a string"); }
            fn parse(p: &mut Parser<'_>) -> Result<Self> { let f: fn(&mut Parser<'_>) -> Result<Self> = $parse; f(p) }
            fn map_dims(&self, _: &dyn Fn(&Dim) -> Dim) -> Self { self.clone() }
            $(
                fn to_leaf(&self) -> Option<Leaf> { Some($to(*self)) }
                fn from_leaf(leaf: &Leaf) -> Option<Self> { match leaf { $from => $back, _ => None } }
            )?
        }
    )* };
}

plain! {
    i64 => |p| p.int(), Leaf::int, Leaf::Dim(d) => d.as_const();
    bool => |p| match p.word()? { "true" => Ok(true), "false" => Ok(false), w => Err(p.error(format!("expected true or false, got `{w}`"))) }, Leaf::Bool, Leaf::Bool(b) => Some(*b);
    DType => |p| p.dtype(), Leaf::DType, Leaf::DType(d) => Some(*d);
    Scalar => |p| p.scalar();
}

impl Attr for Sym {
    fn print(&self, out: &mut String) {
        out.push_str(&sym_text(self));
    }
    fn parse(p: &mut Parser<'_>) -> Result<Sym> {
        p.symbol()
    }
    fn map_dims(&self, _: &dyn Fn(&Dim) -> Dim) -> Sym {
        self.clone()
    }
}

impl Attr for Dim {
    fn print(&self, out: &mut String) {
        write!(out, "{self}").expect("writing to a string");
    }
    fn parse(p: &mut Parser<'_>) -> Result<Dim> {
        p.dim()
    }
    fn map_dims(&self, f: &dyn Fn(&Dim) -> Dim) -> Dim {
        f(self)
    }
    fn to_leaf(&self) -> Option<Leaf> {
        Some(Leaf::Dim(self.clone()))
    }
    fn from_leaf(leaf: &Leaf) -> Option<Dim> {
        match leaf {
            Leaf::Dim(d) => Some(d.clone()),
            _ => None,
        }
    }
}

impl Attr for Type {
    fn print(&self, out: &mut String) {
        write!(out, "{self}").expect("writing to a string");
    }
    fn parse(p: &mut Parser<'_>) -> Result<Type> {
        p.ty()
    }
    fn map_dims(&self, f: &dyn Fn(&Dim) -> Dim) -> Type {
        Type::map_dims(self, f)
    }
}

impl Attr for Elem {
    fn print(&self, out: &mut String) {
        write!(out, "{self}").expect("writing to a string");
    }
    fn parse(p: &mut Parser<'_>) -> Result<Elem> {
        p.elem()
    }
    fn map_dims(&self, f: &dyn Fn(&Dim) -> Dim) -> Elem {
        match Type::Seq(Box::new(self.clone())).map_dims(f) {
            Type::Seq(e) => *e,
            _ => unreachable!("a sequence stays a sequence"),
        }
    }
}

impl Attr for Tensor {
    fn print(&self, out: &mut String) {
        print::tensor(self, out);
    }
    fn parse(p: &mut Parser<'_>) -> Result<Tensor> {
        p.tensor()
    }
    fn map_dims(&self, _: &dyn Fn(&Dim) -> Dim) -> Tensor {
        self.clone()
    }
}

impl Attr for Arc<Func> {
    fn print(&self, out: &mut String) {
        print::nested(self, out);
    }
    fn as_func(&self) -> Option<&Func> {
        Some(self)
    }
    fn parse(p: &mut Parser<'_>) -> Result<Arc<Func>> {
        p.func().map(Arc::new)
    }
    fn map_dims(&self, f: &dyn Fn(&Dim) -> Dim) -> Arc<Func> {
        Arc::new(Func::map_dims(self, f))
    }
}

impl<T: Attr> Attr for Vec<T> {
    fn print(&self, out: &mut String) {
        out.push('[');
        for (i, x) in self.iter().enumerate() {
            out.push_str(if i == 0 { "" } else { ", " });
            x.print(out);
        }
        out.push(']');
    }
    fn parse(p: &mut Parser<'_>) -> Result<Vec<T>> {
        p.list('[', ']', T::parse)
    }
    fn map_dims(&self, f: &dyn Fn(&Dim) -> Dim) -> Vec<T> {
        self.iter().map(|x| x.map_dims(f)).collect()
    }
    fn to_leaf(&self) -> Option<Leaf> {
        self.iter().map(Attr::to_leaf).collect::<Option<_>>().map(Leaf::List)
    }
    fn from_leaf(leaf: &Leaf) -> Option<Vec<T>> {
        match leaf {
            Leaf::List(l) => l.iter().map(T::from_leaf).collect(),
            _ => None,
        }
    }
}

/// Declare an enum whose variants are words in the textual form.
macro_rules! words {
    ($(#[$m:meta])* $name:ident { $($var:ident = $word:literal),* $(,)? }) => {
        $(#[$m])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum $name { $($var),* }
        impl Attr for $name {
            fn print(&self, out: &mut String) { out.push_str(match self { $($name::$var => $word),* }); }
            fn parse(p: &mut $crate::parse::Parser<'_>) -> Result<$name> {
                match p.word()? { $($word => Ok($name::$var),)* w => Err(p.error(format!("`{w}` is not a {}", stringify!($name)))) }
            }
            fn map_dims(&self, _: &dyn Fn(&Dim) -> Dim) -> $name { *self }
            fn to_leaf(&self) -> Option<$crate::attr::Leaf> {
                Some($crate::attr::Leaf::Word(match self { $($name::$var => $word),* }))
            }
            fn from_leaf(leaf: &$crate::attr::Leaf) -> Option<$name> {
                match leaf { $($crate::attr::Leaf::Word($word) => Some($name::$var),)* _ => None }
            }
        }
    };
}
pub(crate) use words;

/// Reading an attribute never fails in a way that is not the text's fault.
impl Parser<'_> {
    /// `name=value`, preceded by `, ` unless first.
    pub(crate) fn attr<T: Attr>(&mut self, name: &str, first: &mut bool) -> Result<T, Error> {
        if !std::mem::take(first) {
            self.expect(",")?;
        }
        self.expect(name)?;
        self.expect("=")?;
        T::parse(self)
    }
}
