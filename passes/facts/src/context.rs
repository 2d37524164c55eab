//! The inputs of decisions: the user's options and the machine.
use numrsc_ir::Machine;
use std::{collections::BTreeMap, sync::Arc};

/// The user's options.
#[derive(Clone, Debug)]
pub struct PassOptions {
    pub level: Level,
    /// What a convolution or product may be off by where it could be exact, relative to the largest sum of magnitudes
    /// `∑|x||w|` of an element of its result. With 0, floats of 16 bits are rounded after every operation, too.
    pub tolerance: f64,
    /// Rules of the optimiser, passes, or `attention`, disabled by name.
    pub without: Vec<String>,
    /// Check every access of memory at run time.
    pub sanitize: bool,
    /// Measured schedules, by shape.
    pub tuning: Option<Arc<Tuning>>,
    /// Threads that compile; 0 for as many as there are cores. What comes out does not depend on it.
    pub jobs: usize,
}

impl Default for PassOptions {
    fn default() -> PassOptions {
        PassOptions {
            level: Level::default(),
            tolerance: TOLERANCE,
            without: vec![],
            sanitize: false,
            tuning: None,
            jobs: 0,
        }
    }
}

/// What every pass gets beside the function.
#[derive(Clone, Debug)]
pub struct Context {
    pub machine: Machine,
    /// For a device with one thread and little memory, where memory matters more than time.
    pub device: bool,
    pub options: PassOptions,
}

impl Context {
    /// For a machine, with the options that are the default.
    pub fn new(machine: Machine) -> Context {
        Context { machine, device: false, options: PassOptions::default() }
    }

    /// The same with other options.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut PassOptions)) -> Context {
        change(&mut self.options);
        self
    }

    /// Is the rule, pass or kernel of this name left out?
    pub fn leaves_out(&self, name: &str) -> bool {
        self.options.without.iter().any(|w| w == name)
    }
}

/// Optimisation levels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Level {
    /// Nothing.
    O0,
    /// Constant folding and dead code.
    O1,
    /// All rules that keep every bit.
    #[default]
    O2,
    /// Also rules that change floating-point results by rounding, and a wider search.
    O3,
}

/// The name of what lowering does to attention: one kernel, in which no scores are written to memory.
pub const ATTENTION: &str = "attention";

/// The default tolerance: the error that a convolution may add where it could be exact, relative to the largest sum of
/// magnitudes `∑|x||w|` of an element of its result. It admits Winograd F(2x2, 3x3), but not F(4x4, 3x3).
pub const TOLERANCE: f64 = 1e-6;

/// Names of schedules by shape. A name that is not among the candidates of its shape is ignored.
pub type Tuning = BTreeMap<String, String>;
