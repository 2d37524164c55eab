//! Silero's model on one window after the other, and what is speech by that.
use numrsc_runtime::{Heap, Result};

numrsc_runtime::include_model!("silero");

/// Samples that the model takes at a time, 32 ms.
pub const WINDOW: usize = 512;
/// Samples of the window before that it also sees.
const CONTEXT: usize = 64;

/// The model, and what it remembers between windows.
pub struct Detector {
    model: Silero<Heap>,
    input: [[f32; CONTEXT + WINDOW]; 1],
    state: [[[f32; 128]; 1]; 2],
}

impl Detector {
    pub fn new() -> Result<Detector> {
        // One thread: a window is far too little work for two.
        Ok(Detector { model: Silero::with_threads(1)?, input: [[0.0; CONTEXT + WINDOW]], state: [[[0.0; 128]]; 2] })
    }

    /// How likely the next window is speech.
    pub fn probability(&mut self, window: &[f32; WINDOW]) -> Result<f32> {
        let [input] = &mut self.input;
        input.copy_within(WINDOW.., 0);
        input[CONTEXT..].copy_from_slice(window);
        let outputs = self.model.run(&self.input, &self.state)?;
        self.state = *outputs.staten;
        Ok(outputs.output[0][0])
    }
}

/// Joins windows to segments of speech.
#[derive(Default)]
pub struct Segments {
    windows: usize,
    start: Option<usize>,
    /// Since when it has been quiet within a segment.
    quiet: Option<usize>,
}

impl Segments {
    /// Speech begins at this probability, and goes on while it is not below the other one.
    const BEGIN: f32 = 0.5;
    const GO_ON: f32 = 0.35;
    /// Windows of quiet that end a segment, about 100 ms.
    const PAUSE: usize = 3;

    /// The segment that ended by this window, if one did.
    pub fn next(&mut self, probability: f32) -> Option<(usize, usize)> {
        let now = self.windows;
        self.windows += 1;
        if probability >= Self::BEGIN {
            self.start.get_or_insert(now);
        }
        if probability >= Self::GO_ON {
            self.quiet = None;
            return None;
        }
        let quiet = *self.quiet.get_or_insert(now);
        if now + 1 - quiet < Self::PAUSE { None } else { Some((self.start.take()?, quiet)) }
    }

    /// The segment that the recording ended in.
    pub fn last(self) -> Option<(usize, usize)> {
        Some((self.start?, self.quiet.unwrap_or(self.windows)))
    }
}
