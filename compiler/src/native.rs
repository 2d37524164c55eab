//! Running compiled models on the compiler's own tensors: for tests, and for `numrsc run`.
use crate::{
    Error,
    compile::{Options, compile},
    conformance::Executor,
    deadline::Deadline,
    output::{artifact::Artifact, files::write_into},
    space::check_memory,
};
use numrsc_ir::{DType, Data, Func, Tensor, Type, tensor::room_for};
use numrsc_runtime::{Context, Model, TensorRef, TensorView};
use std::{collections::BTreeMap, fs::File, path::PathBuf, time::Duration};

/// Compiles a function and runs it once.
#[derive(Debug)]
pub struct Native {
    pub options: Options,
    pub threads: usize,
    /// A run that takes longer is stopped.
    pub timeout: Option<Duration>,
}

impl Executor for Native {
    fn run(&self, func: &Func, inputs: &[Data]) -> Result<Vec<Data>, String> {
        let model = load(func, &self.options)?;
        run_within(&model, inputs, self.threads, self.timeout)
    }
}

/// Compile a function and load it.
pub fn load(func: &Func, options: &Options) -> Result<Model, String> {
    let artifact = compile(func, "test", options, None).map_err(|e| e.to_string())?;
    load_artifact(&artifact).map_err(|e| e.to_string())
}

/// Load what was compiled, from memory: nothing is written to a disk.
pub fn load_artifact(artifact: &Artifact) -> Result<Model, Error> {
    let name = PathBuf::from(&artifact.manifest.model);
    check_memory(&name, artifact.weights_length())?;
    let failed = |source| Error::Io { file: name.clone(), source };
    let loaded = match file_in_memory() {
        Some((mut file, path)) => {
            write_into(&mut file, |to| artifact.write_in_place(to)).map_err(failed)?;
            Model::load(path)
        }
        None => {
            let mut bytes = vec![];
            artifact.write_to(&mut bytes).map_err(failed)?;
            Model::from_bytes(&bytes)
        }
    };
    loaded.map_err(|source| Error::Artifact { file: name.clone(), source })
}

/// A file that is nowhere but in memory, and how to open it as long as it is open.
#[cfg(target_os = "linux")]
fn file_in_memory() -> Option<(File, PathBuf)> {
    use std::os::fd::AsRawFd;
    let file = rustix::fs::memfd_create("numrsc", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    path.exists().then(|| (file.into(), path))
}

#[cfg(not(target_os = "linux"))]
fn file_in_memory() -> Option<(File, PathBuf)> {
    None
}

/// Run a model on inputs in order.
pub fn run(model: &Model, inputs: &[Data], threads: usize) -> Result<Vec<Data>, String> {
    run_within(model, inputs, threads, None)
}

/// As [`run`], unless it takes longer than that: then it is an error.
pub fn run_within(
    model: &Model,
    inputs: &[Data],
    threads: usize,
    timeout: Option<Duration>,
) -> Result<Vec<Data>, String> {
    let mut context = Context::with_threads(model, threads).map_err(|e| e.to_string())?;
    let _deadline = timeout.map(|time| {
        let canceller = context.canceller();
        Deadline::after(time, move || canceller.cancel())
    });
    run_in(model, &mut context, inputs)
}

pub fn run_in(model: &Model, context: &mut Context, inputs: &[Data]) -> Result<Vec<Data>, String> {
    with_inputs(inputs, |args| model.run_in_order(context, args).map_err(|e| e.to_string()))??;
    (0..context.output_count()).map(|i| data(&context.output(i).map_err(|e| e.to_string())?)).collect()
}

/// Do something with inputs as the runtime takes them.
pub fn with_inputs<R>(inputs: &[Data], f: impl FnOnce(&[TensorRef<'_>]) -> R) -> Result<R, String> {
    let mut held = Held::default();
    let tree: Vec<Node> = inputs.iter().map(|d| held.add(d)).collect::<Result<_, _>>()?;
    let refs = tree.iter().map(|n| held.reference(n)).collect::<Vec<Ref<'_>>>();
    let args: Vec<TensorRef<'_>> = refs.iter().map(Ref::tensor).collect();
    Ok(f(&args))
}

/// Copies of inputs at addresses fit for their elements: tensors of the compiler may lie anywhere.
#[derive(Default)]
struct Held {
    plain: Vec<(Vec<u64>, Tensor)>,
}

enum Node {
    Tensor(usize),
    Seq(Vec<Node>),
}

enum Ref<'h> {
    Tensor(TensorRef<'h>),
    Seq(Vec<TensorRef<'h>>),
}

impl Ref<'_> {
    fn tensor(&self) -> TensorRef<'_> {
        match self {
            Ref::Tensor(t) => *t,
            Ref::Seq(v) => TensorRef::sequence(v),
        }
    }
}

impl Held {
    fn add(&mut self, data: &Data) -> Result<Node, String> {
        Ok(match data {
            Data::Tensor(t) => {
                room_for(t.bytes().len())?;
                let mut words = vec![0u64; t.bytes().len().div_ceil(8)];
                for (word, bytes) in words.iter_mut().zip(t.bytes().chunks(8)) {
                    let mut all = [0; 8];
                    all[..bytes.len()].copy_from_slice(bytes);
                    *word = u64::from_ne_bytes(all);
                }
                self.plain.push((words, t.clone()));
                Node::Tensor(self.plain.len() - 1)
            }
            Data::Seq(v) => Node::Seq(v.iter().map(|d| self.add(d)).collect::<Result<_, _>>()?),
            Data::Tuple(_) => return Err("tuples are no inputs".into()),
        })
    }

    fn reference(&self, node: &Node) -> Ref<'_> {
        match node {
            Node::Tensor(i) => Ref::Tensor(self.tensor(*i)),
            Node::Seq(v) => Ref::Seq(v.iter().map(|n| self.leaf(n)).collect()),
        }
    }

    fn leaf(&self, node: &Node) -> TensorRef<'_> {
        match node {
            Node::Tensor(i) => self.tensor(*i),
            Node::Seq(v) => {
                // Sequences within sequences are rare; their references live as long as the process.
                let inner: Vec<TensorRef<'_>> = v.iter().map(|n| self.leaf(n)).collect();
                let leaked: &[TensorRef<'_>] = Box::leak(inner.into_boxed_slice());
                TensorRef::sequence(leaked)
            }
        }
    }

    fn tensor(&self, i: usize) -> TensorRef<'_> {
        let (words, tensor) = &self.plain[i];
        if let Some(strings) = tensor.strings() {
            return TensorRef::strings(strings, tensor.shape());
        }
        let dtype = runtime_type(tensor.dtype());
        TensorRef::raw(dtype, &bytes_of(words)[..tensor.bytes().len()], tensor.shape())
    }
}

/// The runtime's name of an element type.
pub(crate) fn runtime_type(dtype: DType) -> numrsc_runtime::DType {
    numrsc_runtime::DType::from_onnx(dtype.onnx()).expect("the runtime knows all element types")
}

fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: any bytes are valid, and the length is that of the words.
    #[allow(unsafe_code)]
    unsafe {
        std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 8)
    }
}

fn data(view: &TensorView<'_>) -> Result<Data, String> {
    let error = |e: numrsc_runtime::Error| e.to_string();
    if view.is_sequence() {
        return view.elements().map_err(error)?.map(|e| data(&e)).collect::<Result<_, _>>().map(Data::Seq);
    }
    let dtype = DType::from_onnx(view.dtype().onnx()).ok_or("an unknown element type")?;
    let shape = view.shape().to_vec();
    if dtype == DType::Str {
        let strings = view.texts().map_err(error)?.map(str::to_owned).collect();
        return Tensor::from_strings(shape, strings).map(Data::Tensor);
    }
    let bytes = view.bytes().map_err(error)?;
    room_for(bytes.len())?;
    let bytes = bytes.to_vec();
    Tensor::new(dtype, shape, bytes.into()).map(Data::Tensor)
}

/// Sizes that stand for the named dimensions of inputs where nobody gave any: 1 for batches, which a name tells or that it is
/// the first axis wherever it is used, and something that suits most models for others.
pub fn example_sizes<'t>(inputs: impl Iterator<Item = &'t Type>) -> BTreeMap<String, i64> {
    let mut first_only: BTreeMap<String, bool> = BTreeMap::new();
    for ty in inputs {
        ty.for_each_sym(&mut |s| {
            first_only.entry(s.to_string()).or_insert(true);
        });
        let shape = ty.as_tensor().map_or(&[][..], |t| &t.shape);
        for (axis, dim) in shape.iter().enumerate() {
            dim.for_each_sym(&mut |s| {
                if axis > 0 || shape.len() == 1 {
                    first_only.insert(s.to_string(), false);
                }
            });
        }
    }
    let size = |(name, first): (String, bool)| {
        let batch = first || name.to_ascii_lowercase().contains("batch");
        (name, if batch { 1 } else { 64 })
    };
    first_only.into_iter().map(size).collect()
}
