//! The outputs of a run, where the run has put them.
use super::Shared;
use crate::Result;
use numrsc_runtime::{Context, Element, TensorView};
use std::{fmt, sync::Arc};

/// The outputs of a run of a [`Session`](super::Session), which are not copied: they lie in the memory of the run, which the session uses again once this is dropped.
pub struct Outputs {
    /// There until this is dropped.
    context: Option<Context>,
    shared: Arc<Shared>,
}

impl Outputs {
    pub(super) fn new(context: Context, shared: Arc<Shared>) -> Outputs {
        Outputs { context: Some(context), shared }
    }

    /// The output of that name.
    ///
    /// ```
    /// # fn main() -> numrsc::Result<()> {
    /// # let session = numrsc::Session::load("examples/scores.onnx")?;
    /// let outputs = session.run(&[("x", numrsc::TensorRef::new(&[1f32, -2.0, 3.0], &[1, 3]))])?;
    /// let y = outputs.get("y")?;
    /// assert_eq!((y.shape(), y.as_slice::<f32>()?), (&[1, 3][..], &[1.0, 0.0, 300.0][..]));
    /// assert_eq!(outputs.get("z").unwrap_err().to_string(), "the model has no output `z`; it has `y`");
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, name: &str) -> Result<TensorView<'_>> {
        Ok(self.context().output_by_name(name)?)
    }

    /// The elements of the output of that name, as a copy.
    pub fn to_vec<T: Element>(&self, name: &str) -> Result<Vec<T>> {
        Ok(self.get(name)?.as_slice()?.to_vec())
    }

    /// The output at that position of the model's outputs.
    pub fn at(&self, position: usize) -> Result<TensorView<'_>> {
        Ok(self.context().output(position)?)
    }

    /// All of them, in the order of the model; each one knows its name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Result<TensorView<'_>>> {
        (0..self.len()).map(|position| self.at(position))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.context().output_count()
    }

    /// Whether the model has no outputs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn context(&self) -> &Context {
        self.context.as_ref().expect("there until this is dropped")
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        if let Some(context) = self.context.take() {
            self.shared.give_back(context);
        }
    }
}

impl fmt::Debug for Outputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().flatten()).finish()
    }
}
