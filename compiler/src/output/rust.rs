//! Models inside of programs: what a build script calls. It compiles a model to a static library, and writes a Rust module with a type whose `run` has the
//! model's inputs as parameters and its outputs as fields, shapes in their types where they are fixed.
//!
//! ```no_run
//! // In the `main` of build.rs.
//! numrsc::Build::new("model.onnx").dim("batch", 1).compile();
//! ```
//!
//! ```ignore
//! // src/main.rs
//! numrsc_runtime::include_model!("model");
//! let mut model = Model::new()?;
//! let outputs = model.run(&image)?;
//! ```
use super::{artifact::Artifact, files::write_file, object};
use crate::{
    Error, Result,
    compile::{Generator, Options, compile},
    onnx::{self, import},
};
use numrsc_codegen::llvm::{Service, VARIABLE};
use numrsc_passes::{Level, emit};
use numrsc_runtime::{
    DType,
    artifact::{DATA_ALIGN, DimSpec, LabelsSpec, PortSpec, PortTypeSpec},
};
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};
use std::{
    collections::BTreeSet,
    env,
    path::{Path, PathBuf},
};

/// A model to be compiled into a program; see the module.
#[derive(Clone, Debug)]
pub struct Build {
    model: PathBuf,
    name: Option<String>,
    /// As they were given.
    shapes: Vec<(String, String)>,
    import: import::Options,
    options: Options,
}

impl Build {
    /// The file is looked up from the folder of the package, where build scripts run.
    pub fn new(model: impl Into<PathBuf>) -> Build {
        let options = Options { cpu: default_cpu(), cache: None, ..Options::default() };
        Build { model: model.into(), name: None, shapes: vec![], import: import::Options::default(), options }
    }

    /// What `include_model!` and the type are called, instead of like the file.
    #[must_use]
    pub fn name(mut self, name: &str) -> Build {
        self.name = Some(name.to_owned());
        self
    }

    /// Fix the size of a named dimension, which makes it a part of types.
    #[must_use]
    pub fn dim(mut self, name: &str, size: i64) -> Build {
        self.import.dims.insert(name.to_owned(), size);
        self
    }

    /// The processor to compile for, `native` for that of this machine. By default it is what the program is compiled for, which
    /// `RUSTFLAGS="-C target-cpu=…"` changes for both.
    #[must_use]
    pub fn cpu(mut self, cpu: &str) -> Build {
        self.options.cpu = cpu.to_owned();
        self
    }

    /// The shape of an input, where the model does not declare it: sizes, names of sizes, and `?` for others, as in `"2,3,batch"`.
    #[must_use]
    pub fn shape(mut self, input: &str, shape: &str) -> Build {
        self.shapes.push((input.to_owned(), shape.to_owned()));
        self
    }

    /// Take a name of a dimension that several inputs use as a different size in each.
    #[must_use]
    pub fn distinct_dims(mut self) -> Build {
        self.import.distinct_dims = true;
        self
    }

    /// Make a value of the model an output as well: one of its tensors, or what a node gives, by its name.
    #[must_use]
    pub fn keep(mut self, name: &str) -> Build {
        self.import.keep.push(name.to_owned());
        self
    }

    /// Leave out the names of the model's nodes, which messages of failed runs have otherwise.
    #[must_use]
    pub fn strip_names(mut self) -> Build {
        self.options.strip_names = true;
        self
    }

    /// How much to optimise.
    #[must_use]
    pub fn level(mut self, level: Level) -> Build {
        self.options.passes.level = level;
        self
    }

    /// What a convolution or product may be off by where it could be exact, relative to the largest sum of magnitudes of an element of its result: with 2e-5 or more,
    /// 3x3 convolutions are computed with fewer products; with 0, every operation on floats of 16 bits rounds its result, not only the last one.
    #[must_use]
    pub fn tolerance(mut self, tolerance: f64) -> Build {
        self.options.passes.tolerance = tolerance;
        self
    }

    /// Compile, and tell cargo what to link and when to do this again. Problems become errors of cargo, all of them, and end the build script.
    pub fn compile(self) {
        if let Err(error) = self.try_compile() {
            for line in error.to_string().lines() {
                println!("cargo::error={line}");
            }
            std::process::exit(1);
        }
    }

    /// As [`Build::compile`], for scripts that deal with problems themselves.
    pub fn try_compile(mut self) -> Result<()> {
        let variable = |name: &str| {
            env::var_os(name).ok_or_else(|| Error::Codegen(format!("{name} is not set: this is for build scripts")))
        };
        let folder = PathBuf::from(variable("OUT_DIR")?);
        self.options.triple = variable("TARGET")?.to_string_lossy().into_owned();
        println!("cargo::rerun-if-changed={}", self.model.display());
        println!("cargo::rerun-if-env-changed={VARIABLE}");
        let name = self.name.clone().unwrap_or_else(|| stem(&self.model));
        for (input, shape) in &self.shapes {
            let parsed = import::parse_shape(shape);
            let parsed = parsed.map_err(|e| Error::Codegen(format!("the shape of `{input}`: {e}")))?;
            self.import.shapes.insert(input.clone(), parsed);
        }
        let model = onnx::load(&self.model)?;
        let func = import::import(&model, &self.import);
        for file in model.external_files() {
            println!("cargo::rerun-if-changed={}", file.display());
        }
        let func = func?;
        let (options, why) = self.options.settled();
        let artifact = compile(&func, &name, &options, None)?;
        println!("cargo::warning={}", compiled_by(&self.model, &options, &artifact, why.as_deref()));
        let symbol = format!("numrsc_{}", object::symbol_name(&name));
        let code = module(&artifact, &name, &symbol)?;
        object::write_static_library(&artifact, &symbol, &folder.join(format!("lib{symbol}.a")))?;
        write_file(&folder.join(format!("{name}.rs")), |to| std::io::Write::write_all(to, code.as_bytes()))?;
        println!("cargo::rustc-link-search=native={}", folder.display());
        // Not a part of a library in between: weights would be copied.
        println!("cargo::rustc-link-lib=static:-bundle={symbol}");
        Ok(())
    }
}

/// What cargo says of it: the code is as fast as what made it.
fn compiled_by(model: &Path, options: &Options, artifact: &Artifact, why: Option<&str>) -> String {
    let version = || Service::find().map_or(String::new(), |service| format!(" {}", service.version()));
    let (by, why) = match (options.generator, why) {
        (Generator::Cranelift, Some(why)) => ("Cranelift".to_owned(), format!(", whose code is slower: {why}")),
        (Generator::Cranelift, None) => ("Cranelift".to_owned(), String::new()),
        (Generator::Auto | Generator::Llvm, _) => ("LLVM".to_owned() + &version(), String::new()),
    };
    let cpu = if options.cpu.is_empty() { "any CPU" } else { &options.cpu };
    format!("{}: compiled for {} ({cpu}) by {by}{why}", model.display(), artifact.manifest.target_triple)
}

/// The least processor that has what the program is compiled for.
fn default_cpu() -> String {
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    let has = |wanted: &[&str]| wanted.iter().all(|w| features.split(',').any(|f| f == *w));
    let level = [("x86-64-v4", &["avx512f", "avx512bw", "avx512vl"][..]), ("x86-64-v3", &["avx2", "fma"])];
    level.iter().find(|(_, wanted)| has(wanted)).map_or(String::new(), |(cpu, _)| (*cpu).to_owned())
}

fn stem(path: &Path) -> String {
    path.file_stem().map_or("model".into(), |s| s.to_string_lossy().into_owned())
}

/// A parameter or field of the generated type.
struct Port {
    ident: Ident,
    name: String,
    element: TokenStream,
    shape: Shape,
    text: String,
}

enum Shape {
    /// Part of the type.
    Fixed(Vec<usize>),
    /// Only the number of axes is.
    Open(usize),
}

/// The Rust module of a compiled model.
fn module(artifact: &Artifact, name: &str, symbol: &str) -> Result<String> {
    let manifest = &artifact.manifest;
    let mut problems = vec![];
    let inputs = ports(&manifest.inputs, "input", &mut problems);
    let outputs = ports(&manifest.outputs, "output", &mut problems);
    if !problems.is_empty() {
        return Err(Error::Codegen(problems.join("\n")));
    }
    let ty = format_ident!("{}", camel_case(name));
    let results = format_ident!("{ty}Outputs");
    let [entry, manifest_start, manifest_size, weights, weights_size] =
        ["entry", "manifest", "manifest_size", "weights", "weights_size"].map(|part| format_ident!("{symbol}_{part}"));

    let about = format!("The model `{}`, compiled for {}.", manifest.model, manifest.target_triple);
    let run_docs = inputs.iter().map(|p| format!("- `{}`: `{}`", p.ident, p.text));
    let parameters = inputs.iter().map(|p| {
        let (ident, ty) = (&p.ident, p.parameter_type());
        quote!(#ident: #ty)
    });
    let tensors = inputs.iter().map(Port::tensor);
    let fields = outputs.iter().map(|p| {
        let (ident, ty, doc) = (&p.ident, p.field_type(), format!("`{}`: `{}`", p.name, p.text));
        quote!(#[doc = #doc] pub #ident: #ty)
    });
    let values = outputs.iter().enumerate().map(|(i, p)| p.value(i));
    let borrows = if outputs.is_empty() { quote!() } else { quote!(<'a>) };
    let lends = if outputs.is_empty() { quote!() } else { quote!(<'_>) };
    let labels = manifest.labels.iter().map(|(&i, labels)| {
        let port = &outputs[i];
        let ident = format_ident!("{}_LABELS", port.ident.to_string().to_ascii_uppercase());
        let doc = format!("What the entries along the last axis of `{}` stand for.", port.ident);
        let (ty, values) = match labels {
            LabelsSpec::Integers(numbers) => (quote!(i64), quote!([#(#numbers),*])),
            LabelsSpec::Texts(texts) => (quote!(&'static str), quote!([#(#texts),*])),
        };
        let count = Literal::usize_unsuffixed(match labels {
            LabelsSpec::Integers(numbers) => numbers.len(),
            LabelsSpec::Texts(texts) => texts.len(),
        });
        quote!(#[doc = #doc] pub const #ident: [#ty; #count] = #values;)
    });
    let labels = (!manifest.labels.is_empty()).then(|| {
        quote! {
            #[allow(dead_code)]
            impl #results #lends {
                #(#labels)*
            }
        }
    });
    let fixed_memory = memory_bytes(artifact, &inputs, &outputs).map(|bytes| {
        let bytes = Literal::u64_unsuffixed(bytes);
        quote! {
            #[allow(dead_code)]
            impl #ty<::numrsc_runtime::Fixed<'_>> {
                /// Bytes of memory in which the model runs.
                pub const MEMORY_BYTES: usize = #bytes;
            }
        }
    });

    // A program need not use all of it.
    let code = quote! {
        #[doc = #about]
        #[derive(Debug)]
        pub struct #ty<M: ::numrsc_runtime::Memory> {
            context: ::numrsc_runtime::ContextIn<M>,
        }

        #[doc = "The outputs of a run."]
        #[derive(Clone, Copy, Debug)]
        #[allow(dead_code)]
        pub struct #results #borrows {
            #(#fields,)*
        }

        #labels

        ::numrsc_runtime::with_allocator! {
            #[allow(dead_code)]
            impl #ty<::numrsc_runtime::Heap> {
                /// With as many threads as the process may use.
                pub fn new() -> ::numrsc_runtime::Result<Self> {
                    let context = ::numrsc_runtime::Context::new(&Self::model()?)?;
                    Ok(Self { context })
                }

                /// With that many threads, the calling one included.
                pub fn with_threads(threads: usize) -> ::numrsc_runtime::Result<Self> {
                    let context = ::numrsc_runtime::Context::with_threads(&Self::model()?, threads)?;
                    Ok(Self { context })
                }
            }
        }

        #[allow(dead_code)]
        impl<'m> #ty<::numrsc_runtime::Fixed<'m>> {
            /// Without an allocator, in memory of the caller, on one thread.
            pub fn in_memory(memory: &'m mut [::core::mem::MaybeUninit<u8>]) -> ::numrsc_runtime::Result<Self> {
                let context = ::numrsc_runtime::FixedContext::in_memory(&Self::model()?, memory)?;
                Ok(Self { context })
            }
        }

        #fixed_memory

        impl<M: ::numrsc_runtime::Memory> #ty<M> {
            #[allow(unsafe_code)]
            fn model() -> ::numrsc_runtime::Result<::numrsc_runtime::Model> {
                unsafe extern "C" {
                    fn #entry(context: *mut ::numrsc_runtime::context::RunContext) -> i32;
                    static #manifest_start: u8;
                    static #manifest_size: u64;
                    static #weights: u8;
                    static #weights_size: u64;
                }
                // SAFETY: these are the parts of one compiled model, from the library that was written along with this file.
                unsafe {
                    let part = |start: *const u8, size: u64| ::core::slice::from_raw_parts(start, size as usize);
                    ::numrsc_runtime::Model::from_parts(
                        part(&raw const #manifest_start, #manifest_size),
                        #entry,
                        part(&raw const #weights, #weights_size),
                    )
                }
            }

            /// Run the model. The outputs stay until the next run.
            ///
            #(#[doc = #run_docs])*
            #[allow(clippy::too_many_arguments)]
            pub fn run(&mut self, #(#parameters),*) -> ::numrsc_runtime::Result<#results #lends> {
                let model = self.context.model().clone();
                model.run_in_order(&mut self.context, &[#(#tensors),*])?;
                Ok(#results { #(#values,)* })
            }
        }
    };
    Ok(code.to_string())
}

/// Bytes that a run on one thread needs, if all sizes are known: the arena, the outputs, and the tables of the context.
fn memory_bytes(artifact: &Artifact, inputs: &[Port], outputs: &[Port]) -> Option<u64> {
    const SLOTS: usize = size_of::<numrsc_runtime::context::TensorSlots>();
    let blocks = |bytes: u64| bytes.next_multiple_of(DATA_ALIGN as u64);
    if artifact.manifest.needs_heap {
        return None;
    }
    let arena = artifact.memory().arena_bytes(&|s| (**s == *emit::THREADS).then_some(1))?;
    let mut table = 0;
    for port in inputs.iter().chain(outputs) {
        let Shape::Fixed(sizes) = &port.shape else { return None };
        table += SLOTS + 8 * sizes.len();
    }
    let bytes = |(port, spec): (&Port, &PortSpec)| match &port.shape {
        Shape::Fixed(sizes) => blocks((sizes.iter().product::<usize>() * spec.dtype.size()) as u64),
        Shape::Open(_) => 0,
    };
    let results: u64 = outputs.iter().zip(&artifact.manifest.outputs).map(bytes).sum();
    // And what is skipped to align the first block.
    Some(blocks(arena) + blocks(table as u64) + results + DATA_ALIGN as u64)
}

impl Port {
    fn parameter_type(&self) -> TokenStream {
        let element = &self.element;
        match &self.shape {
            Shape::Fixed(sizes) => {
                let nested = nested(element, sizes);
                quote!(&#nested)
            }
            Shape::Open(rank) => quote!(::numrsc_runtime::Array<'_, #element, #rank>),
        }
    }

    fn field_type(&self) -> TokenStream {
        let element = &self.element;
        match &self.shape {
            Shape::Fixed(sizes) => {
                let nested = nested(element, sizes);
                quote!(&'a #nested)
            }
            Shape::Open(rank) => quote!(::numrsc_runtime::Array<'a, #element, #rank>),
        }
    }

    /// The parameter as the runtime wants it.
    fn tensor(&self) -> TokenStream {
        let ident = &self.ident;
        match &self.shape {
            Shape::Fixed(sizes) => {
                let flat = match sizes.len() {
                    0 => quote!(::core::slice::from_ref(#ident)),
                    rank => {
                        let flatten = vec![quote!(.as_flattened()); rank - 1];
                        quote!(#ident.as_slice()#(#flatten)*)
                    }
                };
                quote!(::numrsc_runtime::TensorRef::new(#flat, &[#(#sizes),*]))
            }
            Shape::Open(_) => quote!(::numrsc_runtime::TensorRef::new(#ident.data, &#ident.shape)),
        }
    }

    /// The field of an output, from the context.
    fn value(&self, position: usize) -> TokenStream {
        let (ident, element) = (&self.ident, &self.element);
        let view = quote!(self.context.output(#position)?);
        match &self.shape {
            Shape::Fixed(sizes) => {
                let chunks = sizes.iter().skip(1).rev().map(|n| quote!(.as_chunks::<#n>().0));
                let first = if sizes.is_empty() { quote!(.first()) } else { quote!(.try_into().ok()) };
                quote!(#ident: #view.as_slice::<#element>()?#(#chunks)*#first
                    .ok_or(::numrsc_runtime::Error::Internal { what: "an output has another shape" })?)
            }
            Shape::Open(_) => quote!(#ident: ::numrsc_runtime::Array::of(#view)?),
        }
    }
}

fn nested(element: &TokenStream, sizes: &[usize]) -> TokenStream {
    sizes.iter().rev().fold(element.clone(), |inner, n| quote!([#inner; #n]))
}

/// The ports that can be parts of a signature; what is wrong with others is added to the problems.
fn ports(specs: &[PortSpec], what: &str, problems: &mut Vec<String>) -> Vec<Port> {
    let mut taken = BTreeSet::new();
    let mut port = |spec: &PortSpec| {
        let PortTypeSpec::Tensor { dims } = &spec.ty else { return Err("it is a sequence") };
        let element = rust_type(spec.dtype)?;
        let fixed = |d: &DimSpec| match d {
            DimSpec::Fixed(n) if *n > 0 => usize::try_from(*n).ok(),
            _ => None,
        };
        let shape = match dims.iter().map(fixed).collect() {
            Some(sizes) => Shape::Fixed(sizes),
            None => Shape::Open(dims.len()),
        };
        let mut name = snake_case(&spec.name, what);
        while !taken.insert(name.clone()) {
            name.push('_');
        }
        let ident = Ident::new(&name, Span::call_site());
        Ok(Port { ident, name: spec.name.clone(), element, shape, text: spec.type_text.clone() })
    };
    let mut found = vec![];
    for spec in specs {
        match port(spec) {
            Ok(port) => found.push(port),
            Err(why) => problems.push(format!(
                "{what} `{}` ({}) has no Rust type, since {why}; compile the model to an artifact, which takes everything, and load that with `numrsc_runtime::Model`",
                spec.name, spec.type_text
            )),
        }
    }
    found
}

/// Of an element, or why there is none.
fn rust_type(dtype: DType) -> std::result::Result<TokenStream, &'static str> {
    Ok(match dtype {
        DType::F16 => quote!(::numrsc_runtime::F16),
        DType::BF16 => quote!(::numrsc_runtime::BF16),
        DType::F32 => quote!(f32),
        DType::F64 => quote!(f64),
        DType::I8 => quote!(i8),
        DType::I16 => quote!(i16),
        DType::I32 => quote!(i32),
        DType::I64 => quote!(i64),
        DType::U8 => quote!(u8),
        DType::U16 => quote!(u16),
        DType::U32 => quote!(u32),
        DType::U64 => quote!(u64),
        DType::Bool => quote!(bool),
        DType::Str => return Err("it is text"),
        _ => return Err("its elements are narrower than a byte or floats of 8 bits"),
    })
}

/// A type's name: `silero_vad-v6` is `SileroVadV6`.
fn camel_case(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    let name: String = words.map(|w| w[..1].to_ascii_uppercase() + &w[1..]).collect();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { format!("Model{name}") }
}

/// A name for a value: `onnx::Relu_0` is `onnx_relu_0`.
fn snake_case(text: &str, fallback: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    let name = words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("_");
    match is_keyword(&name) || !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => format!("{fallback}_{name}").trim_end_matches('_').to_owned(),
        false => name,
    }
}

/// Words that cannot be names.
fn is_keyword(word: &str) -> bool {
    const KEYWORDS: &str = "abstract as async await become box break const continue crate do dyn else enum extern false final fn for gen if impl in let loop \
                            macro match mod move mut override priv pub ref return self static struct super trait true try type typeof unsafe unsized use \
                            virtual where while yield model";
    KEYWORDS.split_whitespace().any(|k| k == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ports_without_a_type_are_named() {
        let port = |name: &str, dtype: DType| PortSpec {
            name: name.into(),
            dtype,
            ty: PortTypeSpec::Tensor { dims: vec![DimSpec::Fixed(3)] },
            type_text: format!("{dtype}[3]"),
        };
        let mut problems = vec![];
        let specs = [port("words", DType::Str), port("halves", DType::F16), port("nibbles", DType::I4)];
        let found = ports(&specs, "input", &mut problems);
        assert_eq!(found.iter().map(|p| &p.name[..]).collect::<Vec<_>>(), ["halves"]);
        assert!(problems[0].starts_with("input `words` (str[3]) has no Rust type, since it is text;"), "{problems:?}");
        assert!(problems[1].starts_with("input `nibbles` (i4[3]) has no Rust type, since its elements are narrower"));
        assert_eq!(problems.len(), 2);
    }

    #[test]
    fn names_are_those_of_rust() {
        let cases = [
            ("x", "x"),
            ("onnx::Relu_0", "onnx_relu_0"),
            ("input", "input"),
            ("type", "input_type"),
            ("7", "input_7"),
            ("", "input"),
        ];
        for (text, name) in cases {
            assert_eq!(snake_case(text, "input"), name);
        }
        for (text, name) in [("silero_vad-v6", "SileroVadV6"), ("7seg", "Model7seg"), ("", "Model")] {
            assert_eq!(camel_case(text), name);
        }
    }
}
