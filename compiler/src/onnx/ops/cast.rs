//! Conversions between element types.
use crate::onnx::import::table::onnx_ops;
use numrsc_ir::{DType, Elems, Result, Tensor, build::X, refuse};

onnx_ops! { pub(super) CAST in "", |g, cx|
    "Cast"      1 (x: Any)            { to: String } => cast(x, type_named(&to)?, true, "up");
    "Cast"      6 (x: Any)            { to: DType, saturate: bool = true, round_mode: String = "up".into() }
        => cast(x, to, saturate, &round_mode);
    "CastLike" 15 (x: Any, like: Any) { saturate: bool = true, round_mode: String = "up".into() }
        => cast(x, like.dtype(), saturate, &round_mode);
    "BitCast"  26 (x: Any)            { to: DType } => bit_cast(x, to);
}

/// Convert the value, which is rounded to floats of 16 bits even where results of operations are kept with more. `saturate` concerns floats of 8 bits, `round_mode` those that are powers of two.
fn cast<'g>(x: X<'g>, to: DType, saturate: bool, round_mode: &str) -> Result<X<'g>> {
    if !["up", "down", "nearest"].contains(&round_mode) {
        refuse!("attribute `round_mode` is `{round_mode}`; supported are `up`, `down` and `nearest`");
    }
    match to {
        _ if x.dtype() == to => Ok(x),
        _ if x.dtype() == DType::Str => match x.as_const() {
            Some(t) => x.graph().constant(parsed(&t, to)?),
            None => {
                refuse!("strings that are not constants cannot be converted to {to}: there is no native code for it")
            }
        },
        DType::Str => match x.as_const() {
            Some(t) => x.graph().constant(printed(&t)?),
            None => refuse!("{} can be converted to strings in constants only", x.ty()),
        },
        DType::F8E8M0 => power_of_two(x, saturate, round_mode),
        _ if to.is_float() && to.bits() == 8 && saturate => x.map(|x| x.cast_sat(to)),
        DType::F16 | DType::BF16 => x.map(|x| x.cast_round(to)),
        _ => x.cast(to),
    }
}

/// A power of two next to `x`. What is out of range becomes the nearest power there is, or NaN without `saturate`.
fn power_of_two<'g>(x: X<'g>, saturate: bool, round_mode: &str) -> Result<X<'g>> {
    const TO: DType = DType::F8E8M0;
    let smallest = 2f64.powi(-127);
    x.map(|x| {
        let x = x.cast(DType::F64);
        let near = x.cast_sat(TO).cast(DType::F64);
        let rounded = match round_mode {
            "up" => near.lt(x).select(near * 2.0, near),
            "down" => x.lt(near).select(near * 0.5, near),
            _ => x,
        };
        if saturate {
            return rounded.cast_sat(TO);
        }
        x.lt(smallest).or(x.is_inf()).select(x.lit(f64::NAN), rounded).cast(TO)
    })
}

/// The same bits as another type of the same width; a bool is a byte.
fn bit_cast(x: X<'_>, to: DType) -> Result<X<'_>> {
    let from = x.dtype();
    let width = |d: DType| if d == DType::Bool { 8 } else { d.bits() };
    if from == DType::Str || to == DType::Str || width(from) != width(to) {
        refuse!("the bits of {from} cannot be read as {to}: both must be numbers of the same width");
    }
    match (from, to) {
        _ if from == to => Ok(x),
        (DType::Bool, _) => x.map(|x| x.cast(DType::U8).bitcast(to)),
        (_, DType::Bool) => x.map(|x| x.bitcast(DType::U8).ne(0.0)),
        _ => x.map(|x| x.bitcast(to)),
    }
}

/// Numbers from their text: plain or scientific, or `inf` and `nan` in any case.
fn parsed(t: &Tensor, to: DType) -> Result<Tensor> {
    let mut floats = Vec::new();
    let mut ints = Vec::new();
    for s in t.strings().unwrap_or_default() {
        let s = s.trim();
        let float: Result<f64, _> = s.parse();
        match (to.is_float(), s.parse::<i128>(), float) {
            (true, _, Ok(x)) => floats.push(x),
            (false, Ok(i), _) => ints.push(if to == DType::Bool { i128::from(i != 0) } else { i }),
            (false, _, Ok(x)) => ints.push(if to == DType::Bool { i128::from(x != 0.0) } else { x as i128 }),
            _ => refuse!("the string `{s}` is not a number that can be converted to {to}"),
        }
    }
    let elems = if to.is_float() { Elems::Float(floats) } else { Elems::Int(ints) };
    Ok(Tensor::from_elems(to, t.shape().to_vec(), &elems))
}

/// The text of numbers: plain, with the digits that tell them from their neighbours.
fn printed(t: &Tensor) -> Result<Tensor> {
    let plain = |x: f64| match x {
        _ if x.is_nan() => "NaN".to_string(),
        _ if x.is_infinite() => if x > 0.0 { "INF" } else { "-INF" }.to_string(),
        _ => {
            let text = if t.dtype() == DType::F64 { x.to_string() } else { (x as f32).to_string() };
            if text.contains('.') { text } else { text + ".0" }
        }
    };
    let strings = match t.elems() {
        Elems::Float(v) => v.into_iter().map(plain).collect(),
        Elems::Int(v) if t.dtype() == DType::Bool => {
            v.into_iter().map(|x| if x != 0 { "True" } else { "False" }.to_string()).collect()
        }
        Elems::Int(v) => v.iter().map(ToString::to_string).collect(),
        Elems::Str(v) => v,
    };
    Ok(Tensor::from_strings(t.shape().to_vec(), strings)?)
}

/// An element type by its name in ONNX, as opsets 1 to 5 give it.
fn type_named(name: &str) -> Result<DType> {
    Ok(match name.to_ascii_uppercase().as_str() {
        "FLOAT" => DType::F32,
        "DOUBLE" => DType::F64,
        "FLOAT16" => DType::F16,
        "INT8" => DType::I8,
        "INT16" => DType::I16,
        "INT32" => DType::I32,
        "INT64" => DType::I64,
        "UINT8" => DType::U8,
        "UINT16" => DType::U16,
        "UINT32" => DType::U32,
        "UINT64" => DType::U64,
        "BOOL" => DType::Bool,
        _ => refuse!("attribute `to` is `{name}`, which is not a supported element type"),
    })
}
