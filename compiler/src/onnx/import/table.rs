//! The operator table: one row per operator and meaning. A row names its inputs with the element types they accept,
//! its attributes with defaults, and what it means; everything a row does not mention is refused.
use super::{AttributeValue, Ctx, Fail};
use numrsc_ir::{DType, Elem, Tensor, build::X};

/// One meaning of an operator, from opset `since` up to the next row of the same name.
#[derive(Debug)]
pub struct OnnxOp {
    pub domain: &'static str,
    pub name: &'static str,
    pub since: i64,
    pub inputs: &'static [Input],
    pub attrs: &'static [AttrInfo],
    pub import: for<'a, 'g> fn(&Ctx<'a, 'g>) -> Result<Outputs<'g>, Fail>,
}

#[derive(Debug)]
pub struct Input {
    pub name: &'static str,
    pub arity: Arity,
    pub types: Types,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arity {
    Required,
    Optional,
    /// This input and all that follow.
    Variadic,
}

#[derive(Debug)]
pub struct AttrInfo {
    pub name: &'static str,
    pub ty: &'static str,
    pub default: &'static str,
}

impl AttrInfo {
    /// Is this the value that the row takes it to have if it is absent?
    pub fn is_default(&self, value: AttributeValue<'_>) -> bool {
        match value {
            AttributeValue::Int(i) => match self.default {
                "true" => i == 1,
                "false" => i == 0,
                number => number.parse() == Ok(i),
            },
            AttributeValue::Float(x) => self.default.parse() == Ok(x),
            AttributeValue::String(s) => {
                self.default.strip_suffix(".into()").is_some_and(|text| text.trim_matches('"').as_bytes() == s)
            }
            // Lists that are empty stand for the same number everywhere.
            AttributeValue::Ints(v) if self.default == "vec![]" => match self.name {
                "strides" | "dilations" => v.iter().all(|&n| n == 1),
                "pads" | "output_padding" => v.iter().all(|&n| n == 0),
                _ => v.is_empty(),
            },
            _ => false,
        }
    }
}

/// What a node gives; `None` for an optional output that is not there.
pub type Outputs<'g> = Vec<Option<X<'g>>>;

/// Sets of element types that an input accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Types {
    /// Tensors of any element type.
    Any,
    /// Floats of 16 bits and more.
    Float,
    /// Floats of any width.
    AnyFloat,
    /// Integers of 8 bits and more, and floats of 16 bits and more.
    Num,
    /// Integers of any width and floats of any width.
    AnyNum,
    Int,
    Bool,
    /// Integers or bool.
    Bits,
    /// `i32` or `i64`.
    Index,
    Str,
    /// Tensors, sequences and optionals.
    Value,
}

impl Types {
    /// Every set, in declaration order.
    pub const ALL: &'static [Types] = &[
        Types::Any,
        Types::Float,
        Types::AnyFloat,
        Types::Num,
        Types::AnyNum,
        Types::Int,
        Types::Bool,
        Types::Bits,
        Types::Index,
        Types::Str,
        Types::Value,
    ];

    pub fn holds(self, d: DType) -> bool {
        match self {
            Types::Any | Types::Value => true,
            Types::Float => d.is_float() && d.bits() >= 16,
            Types::AnyFloat => d.is_float(),
            Types::Num => (d.is_float() && d.bits() >= 16) || (d.is_int() && d.bits() >= 8),
            Types::AnyNum => d.is_float() || d.is_int(),
            Types::Int => d.is_int(),
            Types::Bool => d == DType::Bool,
            Types::Bits => d.is_int() || d == DType::Bool,
            Types::Index => matches!(d, DType::I32 | DType::I64),
            Types::Str => d == DType::Str,
        }
    }

    /// The element types in this set, for messages and the reference page.
    pub fn list(self) -> String {
        let names: Vec<&str> = DType::ALL.iter().filter(|d| self.holds(**d)).map(|d| d.name()).collect();
        names.join(", ")
    }
}

/// What the meaning of a row may evaluate to.
pub trait IntoOutputs<'g> {
    fn into_outputs(self) -> Outputs<'g>;
}

impl<'g> IntoOutputs<'g> for X<'g> {
    fn into_outputs(self) -> Outputs<'g> {
        vec![Some(self)]
    }
}

impl<'g> IntoOutputs<'g> for Vec<X<'g>> {
    fn into_outputs(self) -> Outputs<'g> {
        self.into_iter().map(Some).collect()
    }
}

impl<'g, const N: usize> IntoOutputs<'g> for [X<'g>; N] {
    fn into_outputs(self) -> Outputs<'g> {
        self.into_iter().map(Some).collect()
    }
}

impl<'g> IntoOutputs<'g> for Outputs<'g> {
    fn into_outputs(self) -> Outputs<'g> {
        self
    }
}

/// Bring the meaning of a row, whatever its kind of result, to outputs.
pub fn outputs<'g, T: IntoOutputs<'g>, E: Into<Fail>>(result: Result<T, E>) -> Result<Outputs<'g>, Fail> {
    result.map(IntoOutputs::into_outputs).map_err(Into::into)
}

/// Stands for an attribute that is a graph; [`Ctx::subgraph`] gives it.
#[derive(Clone, Copy, Debug)]
pub struct Subgraph;

/// A type that an attribute can be read as.
pub trait FromAttr: Sized {
    fn read(value: super::AttributeValue<'_>, cx: &Ctx<'_, '_>) -> Result<Self, String>;
    /// The value where the attribute is absent and the row gives no default.
    fn absent() -> Option<Self> {
        None
    }
}

macro_rules! from_attr {
    ($($ty:ty: $what:literal, |$cx:ident| { $($pat:pat => $value:expr),* };)*) => { $(
        impl FromAttr for $ty {
            fn read(value: super::AttributeValue<'_>, $cx: &Ctx<'_, '_>) -> Result<$ty, String> {
                use super::AttributeValue as V;
                match value { $($pat => $value,)* _ => Err(concat!("is not ", $what).into()) }
            }
        }
    )* };
}

from_attr! {
    i64: "an integer", |_cx| { V::Int(i) => Ok(i) };
    bool: "0 or 1", |_cx| { V::Int(i @ (0 | 1)) => Ok(i == 1) };
    f64: "a float", |_cx| { V::Float(x) => Ok(f64::from(x)) };
    String: "a string", |_cx| { V::String(s) => utf8(s) };
    DType: "an element type", |_cx| { V::Int(i) => element_type(i) };
    Tensor: "a tensor", |cx| { V::Tensor(t) => cx.model().tensor(t), V::SparseTensor(t) => cx.model().sparse_tensor(t) };
    Subgraph: "a graph", |_cx| { V::Graph(_) => Ok(Subgraph) };
    Elem: "a type", |cx| { V::Type(t) => cx.importer.declared_elem(t) };
    Vec<i64>: "a list of integers", |_cx| { V::Ints(v) => Ok(v.to_vec()) };
    Vec<f64>: "a list of floats", |_cx| { V::Floats(v) => Ok(v.iter().map(|&x| f64::from(x)).collect()) };
    Vec<String>: "a list of strings", |_cx| { V::Strings(v) => v.iter().map(|s| utf8(s)).collect() };
}

fn utf8(s: &[u8]) -> Result<String, String> {
    String::from_utf8(s.to_vec()).map_err(|_| "is not valid UTF-8".into())
}

fn element_type(code: i64) -> Result<DType, String> {
    i32::try_from(code).ok().and_then(DType::from_onnx).ok_or_else(|| format!("{code} is not a supported element type"))
}

impl<T: FromAttr> FromAttr for Option<T> {
    fn read(value: super::AttributeValue<'_>, cx: &Ctx<'_, '_>) -> Result<Option<T>, String> {
        T::read(value, cx).map(Some)
    }
    fn absent() -> Option<Option<T>> {
        Some(None)
    }
}

/// Declare a table of operators.
///
/// ```text
/// onnx_ops! { pub MATH in "", |g, cx|
///     "Gemm" 1 (a: Num, b: Num; c: Num) { alpha: f64 = 1.0, transA: bool = false } => gemm(a, b, c, alpha, transA);
/// }
/// ```
/// Inputs before `;` are required, those after it optional (`Option<X>`); `..xs: Num` takes all that are left.
/// An attribute whose name is a keyword is written `r#type`.
///
/// What is behind `where` are the shapes that inputs must have, each as a list of sizes in terms of inputs and attributes:
/// `where b[w.dim(0)?]` is a vector with an element for each filter. What is not known when compiling is checked at run time.
/// `g` is the graph, `cx` the node's context. The meaning is a `Result` of one value, several, or [`Outputs`].
macro_rules! onnx_ops {
    ($vis:vis $table:ident in $domain:literal, |$g:ident, $cx:ident| $(
        $name:literal $since:literal ($($inputs:tt)*) { $($attr:ident : $ty:ty $(= $default:expr)?),* $(,)? }
            $(where $($operand:ident [$($size:expr),*]),*)? => $body:expr;
    )*) => {
        #[rustfmt::skip]
        $vis const $table: &[$crate::onnx::import::OnnxOp] = &[$( $crate::onnx::import::OnnxOp {
            domain: $domain,
            name: $name,
            since: $since,
            inputs: $crate::onnx::import::table::onnx_inputs!(@info [] $($inputs)*),
            attrs: &[$( $crate::onnx::import::table::AttrInfo {
                name: stringify!($attr), ty: stringify!($ty), default: concat!("", $(stringify!($default))?),
            } ),*],
            import: {
                // A method's path is not general over lifetimes as a closure is.
                #[allow(clippy::redundant_closure_for_method_calls)]
                #[allow(non_snake_case, unused_mut, unused_variables, clippy::redundant_closure_call)]
                fn import<'a, 'g>($cx: &$crate::onnx::import::Ctx<'a, 'g>)
                    -> Result<$crate::onnx::import::table::Outputs<'g>, $crate::onnx::import::Fail>
                {
                    let $g = $cx.graph();
                    let mut inputs = $cx.inputs();
                    $crate::onnx::import::table::onnx_inputs!(@bind $cx inputs $($inputs)*);
                    inputs.finish()?;
                    $( let $attr: $ty = $crate::onnx::import::table::onnx_inputs!(@attr $cx $attr $ty $(= $default)?); )*
                    $cx.all_attributes_read(&[$(stringify!($attr)),*])?;
                    $($( let $operand = $crate::onnx::import::operand::Operand::shaped($operand, stringify!($operand), &[$($size),*])?; )*)?
                    $crate::onnx::import::table::outputs($body)
                }
                import
            },
        } ),*];
    };
}

/// The parts of a row that [`onnx_ops`] takes apart.
macro_rules! onnx_inputs {
    (@attr $cx:ident $attr:ident $ty:ty = $default:expr) => {
        match $cx.attr::<$ty>(stringify!($attr))? { Some(x) => x, None => $default }
    };
    (@attr $cx:ident $attr:ident $ty:ty) => { $cx.required_attr::<$ty>(stringify!($attr))? };

    (@info [$($done:tt)*]) => { &[$($done)*] };
    (@info [$($done:tt)*] .. $x:ident : $t:ident) => { &[$($done)* $crate::onnx::import::table::Input {
        name: stringify!($x), arity: $crate::onnx::import::table::Arity::Variadic, types: $crate::onnx::import::table::Types::$t }] };
    (@info [$($done:tt)*] ; $($x:ident : $t:ident,)* .. $r:ident : $rt:ident) => {
        $crate::onnx::import::table::onnx_inputs!(@info [$($done)* $($crate::onnx::import::table::Input {
            name: stringify!($x), arity: $crate::onnx::import::table::Arity::Optional, types: $crate::onnx::import::table::Types::$t },)*] .. $r : $rt)
    };
    (@info [$($done:tt)*] ; $($x:ident : $t:ident),*) => { &[$($done)* $($crate::onnx::import::table::Input {
        name: stringify!($x), arity: $crate::onnx::import::table::Arity::Optional, types: $crate::onnx::import::table::Types::$t }),*] };
    (@info [$($done:tt)*] $x:ident : $t:ident $(, $($rest:tt)*)?) => { $crate::onnx::import::table::onnx_inputs!(@info [$($done)* $crate::onnx::import::table::Input {
        name: stringify!($x), arity: $crate::onnx::import::table::Arity::Required, types: $crate::onnx::import::table::Types::$t },] $($($rest)*)?) };
    (@info [$($done:tt)*] $x:ident : $t:ident ; $($rest:tt)*) => { $crate::onnx::import::table::onnx_inputs!(@info [$($done)* $crate::onnx::import::table::Input {
        name: stringify!($x), arity: $crate::onnx::import::table::Arity::Required, types: $crate::onnx::import::table::Types::$t },] ; $($rest)*) };

    (@bind $cx:ident $in:ident) => {};
    (@bind $cx:ident $in:ident .. $x:ident : $t:ident) => {
        let $x = $in.rest(stringify!($x), $crate::onnx::import::table::Types::$t)?;
    };
    (@bind $cx:ident $in:ident ; $($x:ident : $t:ident,)* .. $r:ident : $rt:ident) => {
        $( let $x = $in.optional(stringify!($x), $crate::onnx::import::table::Types::$t)?; )*
        $crate::onnx::import::table::onnx_inputs!(@bind $cx $in .. $r : $rt);
    };
    (@bind $cx:ident $in:ident ; $($x:ident : $t:ident),*) => {
        $( let $x = $in.optional(stringify!($x), $crate::onnx::import::table::Types::$t)?; )*
    };
    (@bind $cx:ident $in:ident $x:ident : $t:ident $(, $($rest:tt)*)?) => {
        let $x = $in.required(stringify!($x), $crate::onnx::import::table::Types::$t)?;
        $crate::onnx::import::table::onnx_inputs!(@bind $cx $in $($($rest)*)?);
    };
    (@bind $cx:ident $in:ident $x:ident : $t:ident ; $($rest:tt)*) => {
        let $x = $in.required(stringify!($x), $crate::onnx::import::table::Types::$t)?;
        $crate::onnx::import::table::onnx_inputs!(@bind $cx $in ; $($rest)*);
    };
}

pub(crate) use {onnx_inputs, onnx_ops};
