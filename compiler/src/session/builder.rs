//! How a session comes to be: from a file or from bytes, compiled in memory unless it is compiled already.
use super::Session;
use crate::{
    Error, Place, Problem, Result,
    compile::{self, Generator, Options, model_name},
    native,
    onnx::{self, import},
    output::artifact::read_artifact,
    space::check_memory,
};
use bytes::Bytes;
use numrsc_passes::Level;
use numrsc_runtime::{Model, artifact::MAGIC};
use std::path::{Path, PathBuf};

/// What a model is compiled for, and how it runs. Made by [`Session::builder`].
///
/// A model that is compiled already (an artifact of `numrsc compile`) is loaded as it is; of all that is here, it has use for [`threads`](Builder::threads) only.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    import: import::Options,
    /// Names of inputs and texts of their shapes, which are read when the model is.
    shapes: Vec<(String, String)>,
    options: Options,
    threads: Option<usize>,
    folder: Option<PathBuf>,
}

impl Builder {
    /// Fix the size of a named dimension: code for known sizes is faster, and some models need it.
    pub fn dim(mut self, name: impl Into<String>, size: usize) -> Builder {
        self.import.dims.insert(name.into(), i64::try_from(size).unwrap_or(i64::MAX));
        self
    }

    /// Give an input a shape that the model does not declare: sizes, names of sizes, and `?` for others, as in `2,3,batch`.
    pub fn shape(mut self, input: impl Into<String>, shape: impl Into<String>) -> Builder {
        self.shapes.push((input.into(), shape.into()));
        self
    }

    /// Make a size of an input open that the model has as a number, under a name: exporters write the sizes of their example. If the model cannot do
    /// with other sizes, the error names the node.
    ///
    /// ```
    /// # fn main() -> numrsc::Result<()> {
    /// # use numrsc::{Session, TensorRef};
    /// // Exported for `x: f32[1, 3]`.
    /// let session = Session::builder().open("x", 0, "batch").load("examples/scores.onnx")?;
    /// let outputs = session.run(&[("x", TensorRef::new(&[1f32; 6], &[2, 3]))])?;
    /// assert_eq!(outputs.get("y")?.shape(), [2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(mut self, input: impl Into<String>, axis: usize, name: impl Into<String>) -> Builder {
        self.import.open.insert((input.into(), axis), name.into());
        self
    }

    /// Take a name of a dimension that several inputs use as a different size in each.
    pub fn distinct_dims(mut self) -> Builder {
        self.import.distinct_dims = true;
        self
    }

    /// What generates code: LLVM's is the fastest, Cranelift compiles in a fraction of the time. By default it is LLVM where it is installed (`numrsc-llvm`), and
    /// [`Session::warnings`] say if it is not.
    pub fn backend(mut self, backend: Generator) -> Builder {
        self.options.generator = backend;
        self
    }

    /// How much to optimise.
    pub fn level(mut self, level: Level) -> Builder {
        self.options.passes.level = level;
        self
    }

    /// Keep compiled kernels in this folder, so that compiling again takes little time. By default nothing is kept.
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Builder {
        self.options.cache = Some(folder.into());
        self
    }

    /// Everything that there is to choose about compiling, in place of what was chosen so far.
    pub fn options(mut self, options: Options) -> Builder {
        self.options = options;
        self
    }

    /// How many threads work on one run, that of the caller included; as many as there are processors by default. Where many runs go on at a time, 1 is best.
    pub fn threads(mut self, threads: usize) -> Builder {
        self.threads = Some(threads);
        self
    }

    /// Where models from [bytes](Builder::load_bytes) have the files of their weights, if these are not in the bytes.
    pub fn data_folder(mut self, folder: impl Into<PathBuf>) -> Builder {
        self.folder = Some(folder.into());
        self
    }

    /// Load a file: ONNX, the JSON of NumRs, or an artifact of `numrsc compile`. Models are compiled, in memory.
    ///
    /// The file must not be changed while the session lives.
    pub fn load(self, file: impl AsRef<Path>) -> Result<Session> {
        let file = file.as_ref();
        if read_artifact(file)?.is_some() {
            let model = Model::load(file).map_err(|source| Error::Artifact { file: file.to_owned(), source })?;
            return Ok(self.session(model, vec![]));
        }
        self.build(&onnx::load(file)?)
    }

    /// As [`Builder::load`], from memory.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let bytes = std::fs::read("examples/scores.onnx")?;
    /// let session = numrsc::Session::builder().load_bytes(bytes)?;
    /// assert_eq!(session.inputs().next().unwrap().type_text, "f32[1, 3]");
    /// # Ok(())
    /// # }
    /// ```
    pub fn load_bytes(self, bytes: impl Into<Bytes>) -> Result<Session> {
        let bytes = bytes.into();
        if bytes.starts_with(&MAGIC) {
            let in_memory = |source| Error::Artifact { file: "<memory>".into(), source };
            let model = Model::from_bytes(&bytes).map_err(in_memory)?;
            return Ok(self.session(model, vec![]));
        }
        let model = onnx::load_bytes(bytes, self.folder.as_deref())?;
        self.build(&model)
    }

    /// Compile a model that was loaded by `onnx`.
    #[doc(hidden)]
    pub fn build(mut self, model: &onnx::Model) -> Result<Session> {
        let file = model.file();
        for (input, shape) in std::mem::take(&mut self.shapes) {
            let parsed = import::parse_shape(&shape).map_err(|message| Error::Decode {
                file: file.to_owned(),
                message: format!("the shape `{shape}` for input `{input}`: {message}"),
                hint: None,
            })?;
            self.import.shapes.insert(input, parsed);
        }
        let func = import::import(model, &self.import)?;
        check_memory(file, compile::memory_estimate(&func))?;
        let (options, no_llvm) = self.options.settled();
        let artifact = compile::compile(&func, &model_name(file), &options, None)?;
        let loaded = native::load_artifact(&artifact)?;
        let note = |why| Problem::new(Place::model(), format!("it was compiled by Cranelift, without LLVM: {why}"));
        let warnings = model.warnings().iter().cloned().chain(no_llvm.map(note)).collect();
        Ok(self.session(loaded, warnings))
    }

    fn session(self, model: Model, warnings: Vec<Problem>) -> Session {
        let threads = self.threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
        Session::new(model, threads.unwrap_or(1).max(1), warnings)
    }
}
