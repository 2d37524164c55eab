//! What kind of file some bytes are, by Google's Magika.
use numrsc_runtime::{Array, Heap, Result};
use serde::Serialize;

numrsc_runtime::include_model!("magika");

/// What the model sees of a file: its first and its last bytes.
pub type Features = [i32; 2 * SIDE];
const SIDE: usize = 1024;
/// It looks for them in blocks of this size, without the space around them.
const BLOCK: usize = 4096;
const PADDING: i32 = 256;
/// With fewer bytes it cannot say anything.
pub const MIN_BYTES: usize = 8;

#[derive(Clone, Serialize)]
pub struct Kind {
    pub label: &'static str,
    pub score: f32,
}

/// `None` if there are too few bytes.
pub fn features(file: &[u8]) -> Option<Features> {
    let first = file[..file.len().min(BLOCK)].trim_ascii_start();
    let last = file[file.len().saturating_sub(BLOCK)..].trim_ascii_end();
    let (first, last) = (&first[..first.len().min(SIDE)], &last[last.len().saturating_sub(SIDE)..]);
    if first.len() < MIN_BYTES {
        return None;
    }
    let mut features = [PADDING; 2 * SIDE];
    for (to, &byte) in features.iter_mut().zip(first) {
        *to = i32::from(byte);
    }
    for (to, &byte) in features.iter_mut().rev().zip(last.iter().rev()) {
        *to = i32::from(byte);
    }
    Some(features)
}

pub struct Detector {
    model: Magika<Heap>,
    labels: Vec<&'static str>,
}

impl Detector {
    pub fn new() -> Result<Detector> {
        Ok(Detector { model: Magika::new()?, labels: include_str!("../labels.txt").lines().collect() })
    }

    /// The kinds of several files, in one run of the model.
    pub fn detect(&mut self, files: &[Features]) -> Result<Vec<Kind>> {
        let input = Array::new(files.as_flattened(), [files.len(), 2 * SIDE]);
        let scores = self.model.run(input)?.target_label;
        let best = |scores: &[f32]| {
            let (label, score) = self.labels.iter().zip(scores).max_by(|a, b| a.1.total_cmp(b.1))?;
            Some(Kind { label, score: *score })
        };
        Ok(scores.data.chunks_exact(scores.shape[1]).filter_map(best).collect())
    }
}
