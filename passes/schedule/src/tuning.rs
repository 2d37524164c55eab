//! Choices among schedules: lowering says what there is for a shape, and a table may say what to take. Without one, costs decide.
use numrsc_ir::Func;

/// Something that can be done in several ways.
#[derive(Clone, Debug)]
pub struct Candidates {
    /// What is computed of what, with all sizes.
    pub shape: String,
    /// What the costs prefer comes first.
    pub schedules: Vec<String>,
    /// The same and nothing else, to be measured.
    pub func: Func,
}
