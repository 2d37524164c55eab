//! [`Session`]: a model that is loaded, compiled and ready to run, from as many threads as there are.
mod builder;
mod cancel;
mod outputs;

pub use builder::Builder;
pub use cancel::{Cancel, RunOptions};
pub use outputs::Outputs;

use crate::{Error, Problem, Result, deadline::Deadline};
use numrsc_runtime::{Context, Model, TensorRef, artifact::Ports};
use std::{
    fmt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

/// A model that is compiled and ready to run.
///
/// It can be used by many threads at a time, and clones share everything. What a run needs (memory, and threads of its own if there is more than one) is kept for the runs to
/// come: there is as much of it as there ever were runs at the same time, and [`Outputs`] that are not dropped yet.
#[derive(Clone)]
pub struct Session(Arc<Shared>);

/// What clones of a session and its outputs have in common.
struct Shared {
    model: Model,
    threads: usize,
    warnings: Vec<Problem>,
    /// Contexts that nothing uses.
    idle: Mutex<Vec<Context>>,
}

impl Shared {
    fn take(&self) -> Result<Context> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| Ok(Context::with_threads(&self.model, self.threads)?), Ok)
    }

    fn give_back(&self, context: Context) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(context);
    }
}

impl Session {
    /// Load and compile a file with all choices as they are by default, see [`Builder::load`].
    pub fn load(file: impl AsRef<Path>) -> Result<Session> {
        Session::builder().load(file)
    }

    /// Choose how to compile and run.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn new(model: Model, threads: usize, warnings: Vec<Problem>) -> Session {
        Session(Arc::new(Shared { model, threads, warnings, idle: Mutex::default() }))
    }

    /// Run with inputs by name, in any order. They are not copied.
    ///
    /// ```
    /// # fn main() -> numrsc::Result<()> {
    /// use numrsc::{Session, TensorRef};
    /// let session = Session::load("examples/scores.onnx")?;
    /// let outputs = session.run(&[("x", TensorRef::new(&[1f32, 2.0, 3.0], &[1, 3]))])?;
    /// assert_eq!(outputs.get("y")?.as_slice::<f32>()?, [1.0, 20.0, 300.0]);
    ///
    /// let wrong = session.run(&[("x", TensorRef::new(&[1f32, 2.0], &[1, 2]))]).unwrap_err();
    /// assert_eq!(wrong.to_string(), "axis 1 of `x` has size 3, but 2 was given");
    /// # Ok(())
    /// # }
    /// ```
    pub fn run(&self, inputs: &[(&str, TensorRef<'_>)]) -> Result<Outputs> {
        let mut context = self.0.take()?;
        let result = self.0.model.run(&mut context, inputs);
        let outputs = Outputs::new(context, Arc::clone(&self.0));
        result.map(|()| outputs).map_err(Error::Run)
    }

    /// As [`Session::run`], with a time limit or a way to end the run.
    ///
    /// ```
    /// # fn main() -> numrsc::Result<()> {
    /// use numrsc::{Cancel, Error, RunOptions, Session, TensorRef};
    /// use std::time::Duration;
    /// let session = Session::load("examples/scores.onnx")?;
    /// let (cancel, x) = (Cancel::new(), [("x", TensorRef::new(&[1f32; 3], &[1, 3]))]);
    /// let options = RunOptions::new().time_limit(Duration::from_secs(10)).cancel(&cancel);
    /// session.run_with(&options, &x)?;
    ///
    /// cancel.cancel(); // from any thread
    /// assert!(matches!(session.run_with(&options, &x), Err(Error::Cancelled)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_with(&self, options: &RunOptions, inputs: &[(&str, TensorRef<'_>)]) -> Result<Outputs> {
        let limit = options.time_limit.map(|time| (time, Cancel::new()));
        let mut context = self.0.take()?;
        let canceller = context.canceller();
        // What is in here watches the context until the run is over, and no longer.
        let result = {
            let cancels = [options.cancel.as_ref(), limit.as_ref().map(|(_, cancel)| cancel)];
            let watched: Option<Vec<_>> = cancels.into_iter().flatten().map(|c| c.begin(&canceller)).collect();
            let _deadline = limit.clone().map(|(time, cancel)| Deadline::after(time, move || cancel.cancel()));
            match watched {
                Some(_watched) => self.0.model.run(&mut context, inputs),
                None => Err(numrsc_runtime::Error::Cancelled),
            }
        };
        canceller.reset();
        let outputs = Outputs::new(context, Arc::clone(&self.0));
        result.map(|()| outputs).map_err(|e| match (e, limit) {
            (numrsc_runtime::Error::Cancelled, Some((time, limit))) if limit.is_cancelled() => Error::TimedOut(time),
            (numrsc_runtime::Error::Cancelled, _) => Error::Cancelled,
            (e, _) => Error::Run(e),
        })
    }

    /// The inputs of the model: names, element types and sizes.
    pub fn inputs(&self) -> Ports<'_> {
        self.0.model.manifest().inputs()
    }

    /// The outputs of the model.
    pub fn outputs(&self) -> Ports<'_> {
        self.0.model.manifest().outputs()
    }

    /// What is suspicious about the model, although it could be compiled.
    pub fn warnings(&self) -> &[Problem] {
        &self.0.warnings
    }

    /// The compiled model, for those who keep contexts by themselves.
    pub fn model(&self) -> &Model {
        &self.0.model
    }

    /// Give back the memory and threads that are kept for runs to come.
    pub fn trim(&self) {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("model", &self.0.model)
            .field("threads", &self.0.threads)
            .finish_non_exhaustive()
    }
}
