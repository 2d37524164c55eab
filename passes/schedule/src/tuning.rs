//! Choices among schedules: lowering lists the candidates for a shape, and a tuning table may select one. Without a
//! table, costs decide.
use numrsc_ir::Func;

/// A choice among schedules.
#[derive(Clone, Debug)]
pub struct Candidates {
    /// The operation with all sizes, as text.
    pub shape: String,
    /// All candidates, cheapest first.
    pub schedules: Vec<String>,
    /// The operation as a function of its own, for measuring.
    pub func: Func,
}
