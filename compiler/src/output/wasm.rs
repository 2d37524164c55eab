//! A compiled model as a module of WebAssembly, and the JavaScript that loads and runs it.
//!
//! The module is what LLVM makes of all kernels, joined by the toolchain's linker with the weights. What a page has to know to call it
//! (names, types, sizes, messages) is JSON in a section of its own.
use super::{
    artifact::{Artifact, Weight},
    files::{Scratch, write_file},
    toolchain::{self, Format},
};
use crate::{Error, Result};
use numrsc_codegen::llvm::Llvm;
use numrsc_runtime::{
    DType,
    artifact::{Architecture, DATA_ALIGN, DimSpec, LabelsSpec, ManifestSpec, Piece, PortSpec, PortTypeSpec},
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{self, Write},
    path::Path,
};

/// The version of what modules and loaders expect of each other.
const FORMAT: u32 = 1;

/// The section that describes the model.
const SECTION: &str = "numrsc";

/// Below everything else, so that there is an error at its end instead of other data.
const STACK: &str = "stack-size=1048576";

/// How many bytes of weights a module can have: half of what there are addresses for, so that there is as much left to run in.
pub const WEIGHTS: u64 = (1 << 31) - 1;

/// The module.
pub fn write_module(artifact: &Artifact, path: &Path) -> Result<()> {
    let Some(llvm) = artifact.whole.as_ref().filter(|_| artifact.architecture == Architecture::Wasm32) else {
        return Err(Error::Codegen(format!("modules of WebAssembly are not for {}", artifact.manifest.target_triple)));
    };
    let description = description(&artifact.manifest)?.to_string();
    let code = llvm.web_object(&artifact.lowered.module).map_err(|e| Error::Codegen(e.to_string()))?;
    let (weights, bytes) = (artifact.pieces(), artifact.weights_length());
    let Some(length) = u32::try_from(bytes).ok().filter(|length| u64::from(*length) <= WEIGHTS) else {
        return Err(Error::Codegen(format!(
            "the weights take {bytes} bytes, and modules of WebAssembly hold less than 2 GB"
        )));
    };
    let scratch = Scratch::new(path)?;
    let [code_file, data_file, linked] = ["code.o", "data.o", "linked"].map(|name| scratch.file(name));
    write_file(&code_file, |to| to.write_all(&code))?;
    write_file(&data_file, |to| write_weights(&weights, length, to))?;
    let options = ["--no-entry", "--export=__heap_base", "--stack-first", "-z", STACK, "--strip-debug"];
    toolchain::link(&toolchain::linker()?, Format::Wasm, &options, &[&code_file, &data_file], &linked)?;
    write_file(path, |to| {
        io::copy(&mut fs::File::open(&linked)?, to)?;
        to.write_all(&custom_section(SECTION, description.as_bytes()))
    })
}

/// The ES module that loads a module of this file name, which is next to it.
pub fn loader(module: &str) -> String {
    // As in a URL, where nothing in it can mean something else.
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    let character = |b: u8| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    let name: String = module.bytes().map(character).collect();
    let stem = name.strip_suffix(".wasm").unwrap_or(&name);
    include_str!("loader.js")
        .replace("MODEL.wasm", &name)
        .replace("MODEL.js", &format!("{stem}.js"))
        .replace("FORMAT", &FORMAT.to_string())
}

/// What the loader has to know, or everything that it cannot pass on.
fn description(manifest: &ManifestSpec) -> Result<Value> {
    let mut problems = vec![];
    let mut ports = |ports: &[PortSpec], kind: &str| -> Vec<Value> {
        let describe = |port: &PortSpec| match (&port.ty, array(port.dtype)) {
            (PortTypeSpec::Tensor { dims }, Some(array)) => {
                let sizes: Vec<Value> = dims.iter().map(size).collect();
                Some(json!({ "name": port.name, "dtype": port.dtype.name(), "shape": sizes, "array": array }))
            }
            _ => {
                problems.push(format!("{kind} `{}` is {}", port.name, port.type_text));
                None
            }
        };
        ports.iter().filter_map(describe).collect()
    };
    let (inputs, mut outputs) = (ports(&manifest.inputs, "input"), ports(&manifest.outputs, "output"));
    if !problems.is_empty() {
        let problems = problems.join(", ");
        return Err(Error::Codegen(format!("models for the web take and give tensors of numbers, but {problems}")));
    }
    for (&i, labels) in &manifest.labels {
        outputs[i]["labels"] = match labels {
            LabelsSpec::Integers(numbers) => json!(numbers),
            LabelsSpec::Texts(texts) => json!(texts),
        };
    }
    let ManifestSpec { model, producer, failures, .. } = manifest;
    Ok(json!({
        "format": FORMAT, "model": model, "producer": producer, "inputs": inputs, "outputs": outputs, "failures": failures,
    }))
}

/// A number, or the text of a size that is open.
fn size(dim: &DimSpec) -> Value {
    match dim {
        DimSpec::Fixed(size) => json!(size),
        DimSpec::Formula(text) => json!(text),
        DimSpec::Any => json!("?"),
    }
}

/// The array of JavaScript for elements of a type. Those that JavaScript lacks are their bits.
fn array(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Str => return None,
        DType::F32 => "Float32Array",
        DType::F64 => "Float64Array",
        DType::I8 | DType::I4 | DType::I2 => "Int8Array",
        DType::I16 => "Int16Array",
        DType::I32 => "Int32Array",
        DType::I64 => "BigInt64Array",
        DType::U16 | DType::F16 | DType::BF16 => "Uint16Array",
        DType::U32 => "Uint32Array",
        DType::U64 => "BigUint64Array",
        _ => "Uint8Array",
    })
}

/// An object that holds the weights under the name that code knows, for the linker: a memory, of which it defines a part.
fn write_weights(weights: &[Piece<Weight<'_>>], length: u32, to: &mut impl Write) -> io::Result<()> {
    to.write_all(b"\0asm\x01\0\0\0")?;
    const IMPORT: u8 = 2;
    const DATA: u8 = 11;
    let memory = [&[1][..], &text("env"), &text("__linear_memory"), &[2, 0, 0]].concat();
    to.write_all(&section(IMPORT, &memory))?;
    // One piece of data, at a constant place that the linker chooses.
    let head = [&[1, 0, 0x41, 0, 0x0b][..], &number(length)].concat();
    to.write_all(&[DATA])?;
    to.write_all(&number(head.len() as u32 + length))?;
    to.write_all(&head)?;
    Piece::write_all(weights, &mut |bytes| to.write_all(bytes))?;
    // What linkers want to know, in version 2: how the piece is called and aligned, and which name stands for which part of it.
    let align = DATA_ALIGN.trailing_zeros();
    let pieces = [&[1][..], &text(".rodata.weights"), &number(align), &[0]].concat();
    let symbols = [&[1, 1, 0][..], &text(Llvm::WEIGHTS), &[0, 0], &number(length)].concat();
    let linking = [&[2][..], &section(5, &pieces), &section(8, &symbols)].concat();
    to.write_all(&custom_section("linking", &linking))
}

fn custom_section(name: &str, content: &[u8]) -> Vec<u8> {
    section(0, &[&text(name), content].concat())
}

fn section(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind][..], &number(content.len() as u32), content].concat()
}

fn text(text: &str) -> Vec<u8> {
    [&number(text.len() as u32), text.as_bytes()].concat()
}

/// By 7 bits, the lowest first.
fn number(mut n: u32) -> Vec<u8> {
    let mut bytes = vec![];
    while n >= 0x80 {
        bytes.push(n as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use numrsc_runtime::artifact::SizeSpec;

    fn port(name: &str, dtype: DType, ty: PortTypeSpec) -> PortSpec {
        PortSpec { name: name.into(), dtype, ty, type_text: format!("{dtype}[…]") }
    }

    fn manifest(inputs: Vec<PortSpec>, outputs: Vec<PortSpec>) -> ManifestSpec {
        ManifestSpec {
            model: "m".into(),
            producer: "numrsc".into(),
            target_triple: String::new(),
            cpu_features: vec![],
            entry: 0,
            inputs,
            outputs,
            symbols: vec![],
            arena: SizeSpec::Fixed(0),
            peak: SizeSpec::Fixed(0),
            needs_heap: false,
            single_threaded: false,
            labels: Default::default(),
            failures: vec!["too bad".into()],
            kernels: vec![],
        }
    }

    #[test]
    fn everything_that_a_page_cannot_pass_is_named() {
        let tensor = || PortTypeSpec::Tensor { dims: vec![DimSpec::Formula("n".into()), DimSpec::Fixed(3)] };
        let sequence = PortTypeSpec::Sequence { depth: 1, dims: None };
        let good = manifest(vec![port("x", DType::F16, tensor())], vec![port("y", DType::I64, tensor())]);
        let described = description(&good).unwrap();
        let x = json!([{ "name": "x", "dtype": "f16", "shape": ["n", 3], "array": "Uint16Array" }]);
        assert_eq!((&described["inputs"], &described["failures"]), (&x, &json!(["too bad"])));
        let bad = manifest(vec![port("a", DType::Str, tensor())], vec![port("b", DType::F32, sequence)]);
        let error = description(&bad).unwrap_err().to_string();
        assert!(error.contains("input `a` is str[…], output `b` is f32[…]"), "{error}");
    }

    #[test]
    fn a_loader_names_its_module_only() {
        let text = loader("größe\".wasm");
        let url = "gr%C3%B6%C3%9Fe%22";
        assert!(text.contains(&format!("new URL(\"./{url}.wasm\", import.meta.url)")), "{text}");
        assert!(text.contains(&format!("from \"./{url}.js\"")), "{text}");
        assert!(!text.contains("MODEL") && !text.contains("FORMAT"), "{text}");
    }

    #[test]
    fn numbers_take_as_many_bytes_as_they_need() {
        assert_eq!((number(0), number(127), number(128)), (vec![0], vec![127], vec![0x80, 1]));
        assert_eq!(number(u32::MAX), [0xff, 0xff, 0xff, 0xff, 0x0f]);
    }
}
