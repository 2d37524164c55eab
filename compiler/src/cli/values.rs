//! Inputs of models and artifacts: their types, and values read from files or generated from a seed.
use super::{Failure, npz, terminal::line};
use numrsc::{
    conformance, native, near, npy,
    onnx::{
        Model,
        proto::{ElementType, TypeProto, TypeValue},
    },
};
use numrsc_ir::{DType, Data, Dim, Elem, Elems, Func, Tensor, Type};
use numrsc_runtime::{
    Manifest,
    artifact::{self, PortKind},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// An input or output.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) ty: Type,
    /// How its files are encoded.
    proto: TypeProto,
}

/// A file for an input, as the command line gives it.
pub(crate) fn parse_input(text: &str) -> Result<(String, PathBuf), String> {
    // Names may hold `=`, paths rarely do.
    let (name, file) = text.rsplit_once('=').ok_or("expected NAME=FILE")?;
    Ok((name.into(), file.into()))
}

pub(crate) fn inputs_of_model(model: &Model, func: &Func) -> Vec<Port> {
    let declared = |name: &str| model.graph().input.iter().find(|i| i.name == name).and_then(|i| i.r#type.clone());
    let port = |(name, param): (&String, _)| Port {
        name: name.clone(),
        ty: func.ty(param).clone(),
        proto: declared(name).unwrap_or_default(),
    };
    func.param_names.iter().zip(func.params()).map(port).collect()
}

pub(crate) fn inputs_of_artifact(manifest: &Manifest<'_>) -> Result<Vec<Port>, Failure> {
    let port = |port: artifact::Port<'_>| {
        let ty = port_type(&port).ok_or_else(|| format!("input `{}`: unknown type {}", port.name, port.type_text))?;
        // Optionals are sequences in an artifact, and their files are read as such.
        let proto = match port.kind {
            PortKind::Tensor => TypeProto::default(),
            PortKind::Sequence { .. } => TypeProto::from(TypeValue::Sequence(ElementType::default())),
        };
        Ok(Port { name: port.name.to_owned(), ty, proto })
    };
    manifest.inputs().map(port).collect()
}

fn port_type(port: &artifact::Port<'_>) -> Option<Type> {
    let dtype = DType::from_onnx(port.dtype.onnx())?;
    let dim = |d: artifact::Dim<'_>| match d {
        artifact::Dim::Fixed(n) => i64::try_from(n).ok().map(Dim::from),
        artifact::Dim::Formula(text) => numrsc_ir::parse::parse_dim(text).ok(),
        artifact::Dim::Any => None,
    };
    match port.kind {
        PortKind::Tensor => Some(Type::tensor(dtype, port.dims?.map(dim).collect::<Option<Vec<Dim>>>()?)),
        PortKind::Sequence { depth } => {
            let mut elem = Elem::Tensor { dtype, shape: port.dims.map(|dims| dims.map(dim).collect()) };
            for _ in 1..depth {
                elem = Elem::Seq(Box::new(elem));
            }
            Some(Type::Seq(Box::new(elem)))
        }
    }
}

/// Words on the command line for generated inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    Zeros,
    Random,
}

impl Made {
    pub(crate) fn of(file: &Path) -> Option<Made> {
        match file.to_str()? {
            "zeros" => Some(Made::Zeros),
            "random" => Some(Made::Random),
            _ => None,
        }
    }
}

/// The inputs of a run.
#[derive(Debug)]
pub(crate) struct Inputs {
    /// In the order of the ports.
    pub(crate) values: Vec<Data>,
    /// What the named dimensions are.
    pub(crate) sizes: BTreeMap<String, i64>,
}

impl Inputs {
    /// Such as `f32[1, 3]`, for each.
    pub(crate) fn types(&self) -> impl Iterator<Item = String> {
        self.values.iter().map(|value| match value {
            Data::Tensor(t) => format!("{}{:?}", t.dtype(), t.shape()),
            Data::Seq(items) | Data::Tuple(items) => format!("sequence of {}", items.len()),
        })
    }

    /// Such as `batch=1, seq=64`; empty if there are no named dimensions.
    pub(crate) fn sizes_text(&self) -> String {
        self.sizes.iter().map(|(name, size)| format!("{name}={size}")).collect::<Vec<_>>().join(", ")
    }
}

/// One value for each input: from its file, or random if there is a seed. Named dimensions come from the files, then
/// from `dims`, then from typical sizes. `hint` says how to give missing inputs.
pub(crate) fn gather(
    ports: &[Port],
    given: &[(String, PathBuf)],
    dims: &[(String, i64)],
    seed: Option<u64>,
    hint: &str,
) -> Result<Inputs, Failure> {
    if let Some((name, _)) = given.iter().find(|(name, _)| !ports.iter().any(|p| p.name == *name)) {
        let near = line(&near::hint(name, ports.iter().map(|p| &p.name[..])));
        let known: Vec<String> = ports.iter().map(|p| line(&p.name)).collect();
        let known = known.join("`, `");
        return Err(Failure::Other(format!("the model has no input `{name}`; its inputs are `{known}`{near}")));
    }
    if let Some((name, _)) = given.iter().enumerate().find(|(i, g)| given[..*i].iter().any(|o| o.0 == g.0)).map(|d| d.1)
    {
        return Err(Failure::Usage(format!("input `{name}` is given twice")));
    }
    let file_of = |port: &Port| given.iter().find(|g| g.0 == port.name).map(|g| &g.1);
    let missing: Vec<String> = match seed {
        Some(_) => vec![],
        None => ports.iter().filter(|p| file_of(p).is_none()).map(|p| format!("{}: {}", line(&p.name), p.ty)).collect(),
    };
    if !missing.is_empty() {
        let list = missing.join("\n  ");
        return Err(Failure::Other(format!("inputs are missing ({hint}):\n  {list}")));
    }
    let mut sizes = native::example_sizes(ports.iter().map(|port| &port.ty));
    for (name, size) in dims {
        sizes.entry(name.clone()).and_modify(|s| *s = *size);
    }
    let read = |port: &Port| {
        let file = file_of(port).filter(|file| Made::of(file).is_none());
        let named = |e| format!("input `{}`: {e}", line(&port.name));
        file.map(|file| load(file, port).map_err(named)).transpose()
    };
    let from_files: Vec<Option<Data>> = ports.iter().map(read).collect::<Result<_, String>>()?;
    for (port, value) in ports.iter().zip(&from_files) {
        if let (Ok(ty), Some(Data::Tensor(value))) = (port.ty.as_tensor(), value) {
            let named = ty.shape.iter().zip(value.shape()).filter_map(|(dim, size)| Some((dim.as_sym()?, *size)));
            sizes.extend(named.map(|(name, size)| (name.to_string(), size as i64)));
        }
    }
    let size = |name: &str| sizes.get(name).copied();
    let seeds = (0..).map(|i| seed.unwrap_or_default().wrapping_add(i));
    let value = |((port, value), seed)| match value {
        Some(value) => Ok(value),
        None => make(port, file_of(port).and_then(|file| Made::of(file)).unwrap_or(Made::Random), seed, &size),
    };
    let values = ports.iter().zip(from_files).zip(seeds).map(value).collect::<Result<Vec<Data>, Failure>>()?;
    let all = ports.iter().zip(&values).map(|(port, data)| (&port.name[..], &port.ty, data));
    match numrsc::sizes::disagreement(all) {
        Some(message) => Err(Failure::Other(message)),
        None => Ok(Inputs { values, sizes }),
    }
}

fn load(file: &Path, port: &Port) -> Result<Data, String> {
    let dtype = || port.ty.as_tensor().map(|t| t.dtype).map_err(|e| e.to_string());
    if file.extension().is_some_and(|e| e == "npy") {
        return Ok(Data::Tensor(npy::read(file, dtype()?)?));
    }
    if let Some((archive, key)) = npz::split(file) {
        let array = npz::read(&archive, key)?.into();
        return npy::parse(&array, dtype()?).map(Data::Tensor).map_err(|e| format!("{}: {e}", file.display()));
    }
    if file.extension().is_some_and(|e| e == "npz") {
        let file = file.display();
        return Err(format!("{file} has several arrays: give one as {file}:KEY"));
    }
    conformance::load_data(file, &port.proto)
}

/// Generated values: floats from 0 to 1, and integers 0 or 1, because they may be indices.
fn make(port: &Port, what: Made, seed: u64, size: &dyn Fn(&str) -> Option<i64>) -> Result<Data, Failure> {
    let (name, ty) = (&line(&port.name), &port.ty);
    let Ok(t) = ty.as_tensor() else {
        return Err(Failure::Other(format!("input `{name}` is {ty}: give it with --input {name}=FILE.pb")));
    };
    let sizes = t.shape.iter().map(|d| d.eval(&|s| size(s)).and_then(|n| usize::try_from(n).ok()));
    let Some(shape) = sizes.collect::<Option<Vec<usize>>>() else {
        return Err(Failure::Other(format!("input `{name}` is {ty}: fix its sizes with --dim NAME=SIZE")));
    };
    let too_large = || format!("input `{name}` is too large");
    let n = numrsc_ir::tensor::count(&shape).filter(|n| *n < 1 << 40).ok_or_else(too_large)?;
    // Numbers are wide until they have their type.
    let wide = if t.dtype.is_float() { size_of::<f64>() } else { size_of::<i128>().max(size_of::<String>()) };
    numrsc_ir::tensor::room_for(n * (wide + t.dtype.size())).map_err(|e| format!("input `{name}`: {e}"))?;
    let bits = (0..n as u64).map(|i| splitmix64(seed.wrapping_mul(0x1000_0000_01b3).wrapping_add(i)));
    let elems = match t.dtype {
        DType::Str => Elems::Str(vec![String::new(); n]),
        d if what == Made::Zeros && d.is_float() => Elems::Float(vec![0.0; n]),
        _ if what == Made::Zeros => Elems::Int(vec![0; n]),
        d if d.is_float() => Elems::Float(bits.map(|b| (b >> 11) as f64 / (1u64 << 53) as f64).collect()),
        d => Elems::Int(bits.map(|b| i128::from(b >> 63).min(d.int_range().1)).collect()),
    };
    Ok(Data::Tensor(Tensor::from_elems(t.dtype, shape, &elems)))
}

fn splitmix64(x: u64) -> u64 {
    let z = x.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
