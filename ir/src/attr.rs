//! Attribute types: how each prints, reads back, and mentions dimensions.
use crate::{
    DType, Dim, Error, Func, Result, Scalar, Tensor, Type,
    dim::{Sym, sym_text},
    parse::Parser,
    print,
    types::Elem,
};
use std::{fmt::Write, sync::Arc};

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
}

/// Attributes that print by `Display` and mention no dimensions.
macro_rules! plain {
    ($($ty:ty => $parse:expr;)*) => { $(
        impl Attr for $ty {
            fn print(&self, out: &mut String) { write!(out, "{self}").expect("writing to a string"); }
            fn parse(p: &mut Parser<'_>) -> Result<Self> { let f: fn(&mut Parser<'_>) -> Result<Self> = $parse; f(p) }
            fn map_dims(&self, _: &dyn Fn(&Dim) -> Dim) -> Self { self.clone() }
        }
    )* };
}

plain! {
    i64 => |p| p.int();
    bool => |p| match p.word()? { "true" => Ok(true), "false" => Ok(false), w => Err(p.error(format!("expected true or false, got `{w}`"))) };
    DType => |p| p.dtype();
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
