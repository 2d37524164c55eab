//! Models of the ONNX suites with random changes to what they are made of, compiled and run: whatever becomes of them, evaluator and
//! native code agree, or the model is refused.
//!
//! Everything follows from a seed: which model, which changes (`change.rs`), which inputs (`inputs.rs`). A case is judged in a process of its
//! own (`supervise.rs`), so that a crash, an abort or a hang is a finding like others. What a finding is named after is what went wrong without
//! the numbers in it, so findings of one cause are one line.
mod allowed;
mod change;
mod inputs;
mod judge;
mod minimise;
pub mod plant;
pub mod supervise;

use crate::{corpus, rng::Rng};
use numrsc::{
    conformance,
    onnx::{self, proto::ModelProto},
};
use numrsc_ir::Data;
use plant::Plant;
use prost::Message;
use std::path::{Path, PathBuf};

pub use allowed::ALLOWED;
pub use change::CHANGES;
pub use judge::{Outcome, judge, skeleton};

/// Larger models are covered by other tests.
const MAX_MODEL: u64 = 1 << 13;
/// Larger test data, too.
const MAX_DATA: u64 = 1 << 18;
/// Fewer changes are more likely to leave a valid model.
const MAX_CHANGES: usize = 4;

/// A model with inputs to run it on.
#[derive(Debug)]
pub struct Case {
    pub name: String,
    pub model: ModelProto,
    /// The data that inputs are made of.
    pub data: Vec<Option<Data>>,
    /// The seed of all random decisions.
    pub seed: u64,
    pub plant: Option<Plant>,
}

/// The models that are mutated.
#[derive(Clone, Debug)]
pub struct Seeds {
    folders: Vec<PathBuf>,
}

impl Seeds {
    /// The small tests of the newest suite and of the older ones.
    pub fn all() -> Seeds {
        let (suite, older) = (corpus::fetch("suite").join("onnx-suite"), corpus::fetch("older"));
        let mut folders = Vec::new();
        conformance::find_folders(&suite, &mut folders);
        for version in ["1.7.0", "1.9.0", "1.12.0", "1.15.0"] {
            conformance::find_folders(&older.join(format!("onnx-{version}")), &mut folders);
        }
        folders.retain(|f| is_small(f));
        assert!(folders.len() > 4000, "the suites are complete");
        Seeds { folders }
    }

    /// Only the tests of these names, each given once.
    #[must_use]
    pub fn only(mut self, names: &[&str]) -> Seeds {
        self.folders = names
            .iter()
            .map(|n| {
                self.folders.iter().find(|f| conformance::name(f) == *n).unwrap_or_else(|| panic!("no `{n}`")).clone()
            })
            .collect();
        self
    }

    /// The case of a seed; nothing if its model cannot be read.
    pub fn case(&self, seed: u64) -> Option<Case> {
        let mut rng = Rng::new(seed ^ 0x6d75_7461_7465);
        let folder = rng.pick(&self.folders);
        let mut case = load(folder)?;
        case.seed = seed;
        let mut made = vec![];
        // Most mutations do not apply to most models.
        let wanted = 1 + rng.below(MAX_CHANGES);
        for _ in 0..40 {
            if made.len() == wanted {
                break;
            }
            let change = change::pick(&mut rng);
            if (change.apply)(&mut rng, &mut case).is_some() {
                made.push(change.name);
            }
        }
        case.name = format!("{} {}", conformance::name(folder), made.join("+"));
        Some(case)
    }
}

fn is_small(folder: &Path) -> bool {
    let size = |name: &Path| std::fs::metadata(name).map_or(0, |m| m.len());
    let set = folder.join("test_data_set_0");
    let inputs: u64 = (0..8).map(|i| size(&set.join(format!("input_{i}.pb")))).sum();
    size(&folder.join("model.onnx")) < MAX_MODEL && inputs < MAX_DATA
}

/// A test folder as it is.
pub fn load(folder: &Path) -> Option<Case> {
    let bytes = std::fs::read(folder.join("model.onnx")).ok()?;
    let model = ModelProto::decode(&bytes[..]).ok()?;
    let set = folder.join("test_data_set_0");
    let graph = model.graph.as_ref()?;
    let mut fed = 0;
    let data = graph.input.iter().map(|input| {
        if graph.initializer.iter().any(|t| t.name == input.name) {
            return None;
        }
        fed += 1;
        let file = set.join(format!("input_{}.pb", fed - 1));
        conformance::load_data(&file, &input.r#type.clone().unwrap_or_default()).ok()
    });
    Some(Case { name: conformance::name(folder).into(), data: data.collect(), seed: 0, plant: None, model })
}

/// Import the model of a case, with everything that the front end checks.
fn import(model: &ModelProto) -> Result<numrsc_ir::Func, String> {
    onnx::load_bytes(model.encode_to_vec().into(), None)
        .and_then(|m| onnx::import::import(&m, &onnx::import::Options::default()))
        .map_err(|e| e.to_string())
}
