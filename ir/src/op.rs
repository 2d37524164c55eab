//! The core ops: one row declares everything the compiler knows of an op. The enum, its names, attribute access,
//! printing, parsing, type inference and the reference page are derived from the rows.
use crate::{
    DType, Dim, Func, Result, Scalar, Tensor, Type,
    attr::{Attr, Leaf, words},
    dim::Sym,
    infer, refuse,
    types::Elem,
};
use std::{fmt, sync::Arc};

words! {
    /// How a reduction or scan combines elements. On bools, `max` is "any" and `min` is "all".
    ReduceFn { Sum = "sum", Prod = "prod", Max = "max", Min = "min" }
}
words! {
    /// How a scatter combines an update with what is there.
    ScatterFn { Set = "set", Add = "add", Mul = "mul", Max = "max", Min = "min" }
}

/// What a table row says besides code.
#[derive(Debug)]
pub struct OpInfo {
    pub name: &'static str,
    /// Operand names; a name ending in `..` takes any number.
    pub operands: &'static [&'static str],
    /// Attribute names and types.
    pub attrs: &'static [(&'static str, &'static str)],
    pub doc: &'static str,
}

macro_rules! ops {
    ($( $(#[doc = $doc:literal])+ $name:literal = $var:ident ($($args:tt)*) { $($attr:ident : $ty:ty),* } : $infer:path; )*) => {
        /// An operation of the tensor IR with its attributes.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum Op { $( $(#[doc = $doc])+ $var { $($attr: $ty),* } ),* }

        /// An operation without its attributes.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum OpKind { $( $var ),* }

        impl OpKind {
            /// The kind of the op called `name`.
            pub fn named(name: &str) -> Option<OpKind> {
                match name {
                    $( $name => Some(OpKind::$var), )*
                    _ => None,
                }
            }
        }

        /// Every op, in table order.
        pub const OPS: &[OpInfo] = &[$( OpInfo {
            name: $name,
            operands: ops!(@names $($args)*),
            attrs: &[$((stringify!($attr), stringify!($ty))),*],
            doc: concat!($($doc),+),
        } ),*];

        impl Op {
            pub fn name(&self) -> &'static str { match self { $( Op::$var { .. } => $name ),* } }

            /// The attributes by name, in table order.
            pub fn attrs(&self) -> Vec<(&'static str, &dyn Attr)> {
                match self { $( Op::$var { $($attr),* } => vec![$((stringify!($attr), $attr as &dyn Attr)),*] ),* }
            }

            /// Read the attributes of the op called `name`; `None` if there is no such op.
            pub(crate) fn parse(name: &str, p: &mut crate::parse::Parser<'_>) -> Result<Option<Op>> {
                match name {
                    $( $name => {
                        let mut _first = true;
                        $( let $attr: $ty = p.attr(stringify!($attr), &mut _first)?; )*
                        Ok(Some(Op::$var { $($attr),* }))
                    } )*
                    _ => Ok(None),
                }
            }

            /// The op called `name` with these attributes, in table order.
            pub fn from_leaves(name: &str, leaves: &[Leaf]) -> Option<Op> {
                match name {
                    $( $name => {
                        let [$($attr),*] = leaves else { return None };
                        Some(Op::$var { $($attr: Attr::from_leaf($attr)?),* })
                    } )*
                    _ => None,
                }
            }

            /// The same op with every dimension in its attributes replaced by `f` of it.
            #[must_use]
            pub fn map_dims(&self, f: &dyn Fn(&Dim) -> Dim) -> Op {
                match self { $( Op::$var { $($attr),* } => Op::$var { $($attr: Attr::map_dims($attr, f)),* } ),* }
            }

            /// The type of the result, or why the op does not accept these operands and attributes.
            pub fn infer(&self, args: &[&Type]) -> Result<Type> {
                match self { $( Op::$var { $($attr),* } => ops!(@infer $infer, self, args, ($($args)*), $($attr),*) ),* }
            }
        }
    };
    (@names $($arg:ident),*) => { &[$(stringify!($arg)),*] };
    (@names $($arg:ident),* ; $rest:ident ..) => { &[$(stringify!($arg),)* concat!(stringify!($rest), "..")] };
    (@infer $infer:path, $self:ident, $args:ident, ($($arg:ident),*), $($attr:ident),*) => {
        if let [$($arg),*] = $args { $infer($($arg,)* $($attr),*) } else { $self.wrong_count($args.len()) }
    };
    (@infer $infer:path, $self:ident, $args:ident, (; $rest:ident ..), $($attr:ident),*) => { $infer($args, $($attr),*) };
    (@infer $infer:path, $self:ident, $args:ident, ($($arg:ident),* ; $rest:ident ..), $($attr:ident),*) => {
        if let [$($arg,)* $rest @ ..] = $args { $infer($($arg,)* $rest, $($attr),*) } else { $self.wrong_count($args.len()) }
    };
}

#[rustfmt::skip]
ops! {
    // Where values come from.
    #[doc = "Parameter number `index` of the function."]
    "param" = Param () { index: i64, ty: Type } : infer::param;
    #[doc = "A constant tensor."]
    "const" = Const () { value: Tensor } : infer::constant;
    #[doc = "The index along `axis`, as a tensor of the given shape."]
    "iota" = Iota () { dtype: DType, shape: Vec<Dim>, axis: i64 } : infer::iota;
    #[doc = "The value of a dimension expression, as a scalar."]
    "size" = Size () { dim: Dim } : infer::size;
    #[doc = "Name the value of an i64 scalar, so that dimension expressions can use it. The value passes through; a name without `$` demands it to be 0 or more."]
    "bind" = Bind (x) { dim: Sym } : infer::bind;

    // Elementwise.
    #[doc = "Apply a scalar expression to the elements of operands of equal shape."]
    "map" = Map (; xs ..) { f: Scalar } : infer::map;

    // Moving elements.
    #[doc = "The same elements in row-major order under another shape; the sizes must agree at run time."]
    "reshape" = Reshape (x) { shape: Vec<Dim> } : infer::reshape;
    #[doc = "Reorder axes: axis `i` of the result is axis `perm[i]` of the operand."]
    "transpose" = Transpose (x) { perm: Vec<i64> } : infer::transpose;
    #[doc = "Axis `i` of the operand becomes axis `axes[i]` of the result; the other axes repeat. An operand axis of size 1 repeats as well."]
    "broadcast" = Broadcast (x) { shape: Vec<Dim>, axes: Vec<i64> } : infer::broadcast;
    #[doc = "Element `i` of an axis is element `starts + i * steps` of the operand's; everything must lie inside."]
    "slice" = Slice (x) { starts: Vec<Dim>, sizes: Vec<Dim>, steps: Vec<i64> } : infer::slice;
    #[doc = "Put `low` elements before and `high` after every axis, all equal to the scalar `value`; negative numbers crop."]
    "pad" = Pad (x, value) { low: Vec<Dim>, high: Vec<Dim> } : infer::pad;
    #[doc = "Join tensors along an axis."]
    "concat" = Concat (; xs ..) { axis: i64 } : infer::concat;
    #[doc = "Take elements along `axis` by index: `x[b.., o.., idx[b.., i..], r..]` has shape `b.. o.. i.. r..`, where the first `batch` axes are shared. Indices count from 0; one outside the axis is an error if there is an element to take."]
    "gather" = Gather (x, indices) { axis: i64, batch: i64 } : infer::gather;
    #[doc = "Combine rows of `updates` into the rows of `x` named by a vector of indices, in order."]
    "scatter" = Scatter (x, indices, updates) { f: ScatterFn } : infer::scatter;

    // Combining elements.
    #[doc = "Combine the elements along `axes` and drop these axes. An empty set gives the neutral element."]
    "reduce" = Reduce (x) { f: ReduceFn, axes: Vec<i64> } : infer::reduce;
    #[doc = "Combine each element with all before it along an axis (or all after it; or without itself)."]
    "scan" = Scan (x) { f: ReduceFn, axis: i64, exclusive: bool, reverse: bool } : infer::scan;
    #[doc = "Index of the first (or last) largest or smallest element along an axis, dropping it. A NaN wins."]
    "arg" = Arg (x) { f: ReduceFn, axis: i64, last: bool } : infer::arg;
    #[doc = "Indices that sort the elements along an axis, stable; NaN counts as the largest."]
    "argsort" = ArgSort (x) { axis: i64, descending: bool } : infer::argsort;
    #[doc = "Indices of the true elements of a vector; `count` names how many there are."]
    "compress" = Compress (mask) { count: Sym } : infer::compress;

    // Linear algebra and windows.
    #[doc = "Sum of products over pairs of axes: the result has the batch axes, then the free axes of `a`, then those of `b`."]
    "contract" = Contract (a, b) { a_batch: Vec<i64>, b_batch: Vec<i64>, a_sum: Vec<i64>, b_sum: Vec<i64> } : infer::contract;
    #[doc = "Convolution of `x` (batch, channels, space..) with `w` (out channels, channels / groups, space..). `spread` puts `spread - 1` zeros between the elements of `x` first (transposed convolution). With an `in_block` or `out_block` above 1, the channels of `x` or the result lie in blocks of that many: (batch, channels / block, space.., block)."]
    "conv" = Conv (x, w) { strides: Vec<i64>, dilations: Vec<i64>, spread: Vec<i64>, low: Vec<Dim>, high: Vec<Dim>, groups: i64, in_block: i64, out_block: i64 } : infer::conv;
    #[doc = "Combine the elements in windows over the last axes of `x`; padding is neutral."]
    "window" = Window (x) { f: ReduceFn, size: Vec<i64>, strides: Vec<i64>, dilations: Vec<i64>, low: Vec<Dim>, high: Vec<Dim> } : infer::window;

    // Control flow.
    #[doc = "Run one of two functions on the captured values."]
    "if" = If (cond; captures ..) { then: Arc<Func>, or: Arc<Func>, types: Vec<Type> } : infer::if_;
    #[doc = "Repeat `body(iteration, cond, states.., captures..) -> (cond, states.., rows..)` while `cond` holds and fewer than `trips` rounds ran. Gives the last states and all rows stacked."]
    "loop" = Loop (trips, cond; values ..) { states: i64, body: Arc<Func>, types: Vec<Type> } : infer::loop_;
    #[doc = "One result of an op with several."]
    "get" = Get (tuple) { index: i64 } : infer::get;

    // Sequences, where their structure is not static.
    #[doc = "A sequence of the given elements."]
    "seq_make" = SeqMake (; xs ..) { elem: Elem } : infer::seq_make;
    #[doc = "Number of elements of a sequence."]
    "seq_len" = SeqLen (seq) {} : infer::seq_len;
    #[doc = "Element at an index that may count from the end."]
    "seq_at" = SeqAt (seq, index) { ty: Type } : infer::seq_at;
    #[doc = "The sequence with `x` before the element at an index that may count from the end."]
    "seq_insert" = SeqInsert (seq, index, x) { elem: Elem } : infer::seq_insert;
    #[doc = "The sequence without the element at an index that may count from the end."]
    "seq_erase" = SeqErase (seq, index) {} : infer::seq_erase;
}

impl Op {
    pub fn info(&self) -> &'static OpInfo {
        OPS.iter().find(|i| i.name == self.name()).expect("every op has a row")
    }

    fn wrong_count(&self, got: usize) -> Result<Type> {
        refuse!("`{}` takes ({}), got {got} operands", self.name(), self.info().operands.join(", "))
    }

    /// The attributes as leaves, in table order; `None` for an op with an attribute that is no leaf.
    pub fn leaves(&self) -> Option<Vec<Leaf>> {
        self.attrs().iter().map(|(_, a)| a.to_leaf()).collect()
    }

    /// The functions nested in this op.
    pub fn bodies(&self) -> Vec<&Arc<Func>> {
        match self {
            Op::If { then, or, .. } => vec![then, or],
            Op::Loop { body, .. } => vec![body],
            _ => vec![],
        }
    }

    pub(crate) fn bodies_mut(&mut self) -> Vec<&mut Arc<Func>> {
        match self {
            Op::If { then, or, .. } => vec![then, or],
            Op::Loop { body, .. } => vec![body],
            _ => vec![],
        }
    }

    /// The op with other functions nested in it.
    pub fn map_bodies<E>(
        &self,
        mut f: impl FnMut(&Func) -> std::result::Result<Func, E>,
    ) -> std::result::Result<Op, E> {
        Ok(match self {
            Op::If { then, or, types } => Op::If { then: f(then)?.into(), or: f(or)?.into(), types: types.clone() },
            Op::Loop { states, body, types } => {
                Op::Loop { states: *states, body: f(body)?.into(), types: types.clone() }
            }
            op => op.clone(),
        })
    }

    /// The types this op states for its results; they may introduce symbols.
    pub fn stated_types(&self) -> &[Type] {
        match self {
            Op::If { types, .. } | Op::Loop { types, .. } => types,
            Op::SeqAt { ty, .. } | Op::Param { ty, .. } => std::slice::from_ref(ty),
            _ => &[],
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
