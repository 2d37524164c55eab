//! The error type of the library, and problems of models.
use crate::onnx::external::MissingData;
use std::{collections::HashMap, fmt, io, path::PathBuf, time::Duration};

/// The result of what can go wrong with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong when a model is loaded, compiled or run. As text it is for people, and may have several lines.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be opened or read.
    #[error("{}: {source}", file.display())]
    Io {
        /// As it was given.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file is malformed; nothing of it could be used.
    #[error("{}: {message}{}", file.display(), hint_line(hint.as_deref(), "\n"))]
    Decode {
        /// As it was given.
        file: PathBuf,
        /// What is wrong with it.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// Files with tensor data are missing, and nothing else is wrong with the model.
    #[error("{}: {}", file.display(), list_data(missing))]
    Data {
        /// The model.
        file: PathBuf,
        /// All of them.
        missing: Vec<MissingData>,
    },
    /// The model was decoded but cannot be compiled: all problems.
    #[error("{}: {}", file.display(), list(problems))]
    Model {
        /// As it was given.
        file: PathBuf,
        /// All of them.
        problems: Vec<Problem>,
    },
    /// Code cannot be generated.
    #[error("{0}")]
    Codegen(String),
    /// What is compiled already cannot be loaded: it is damaged, or for another machine.
    #[error("{}: {source}", file.display())]
    Artifact {
        /// As it was given.
        file: PathBuf,
        /// What the runtime says.
        source: numrsc_runtime::Error,
    },
    /// A compiled model refused its inputs, or failed.
    #[error(transparent)]
    Run(#[from] numrsc_runtime::Error),
    /// A run took longer than it may, and was stopped.
    #[error("the run took longer than {} ms and was stopped", .0.as_millis())]
    TimedOut(Duration),
    /// A run was ended by a [`Cancel`](crate::Cancel).
    #[error("the run was cancelled")]
    Cancelled,
}

impl Error {
    /// Is it about reading or writing files, rather than about their contents?
    pub fn is_unreadable(&self) -> bool {
        match self {
            Error::Io { .. } => true,
            Error::Data { missing, .. } => missing.iter().all(|m| m.unreadable),
            Error::Decode { .. } | Error::Model { .. } | Error::Codegen(_) | Error::Artifact { .. } => false,
            Error::Run(_) | Error::TimedOut(_) | Error::Cancelled => false,
        }
    }
}

/// An error in a model, or a warning about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub place: Place,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// A place in a model: the path of graphs from the outside in, and the node if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// `main`, `main/#3 loop1.body`, `function my.domain::Relu6`; empty for the model as a whole.
    pub graph: String,
    /// None if it is about the whole graph.
    pub node: Option<NodePlace>,
}

/// A node of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlace {
    /// Position among the nodes of its graph.
    pub index: usize,
    /// May be empty: names of nodes are optional.
    pub name: String,
    /// The operator, with its operator set.
    pub op_type: String,
}

impl Problem {
    /// A problem without a hint.
    pub fn new(place: Place, message: impl Into<String>) -> Problem {
        Problem { place, message: message.into(), hint: None }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.hint = Some(hint.into());
        self
    }
}

impl Place {
    /// The model as a whole.
    pub fn model() -> Place {
        Place::default()
    }

    /// A graph by its path.
    pub fn graph(path: impl Into<String>) -> Place {
        Place { graph: path.into(), node: None }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place != Place::default() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.message)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.graph)?;
        match &self.node {
            Some(node) if self.graph.is_empty() => node.fmt(f),
            Some(node) => write!(f, ", {node}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for NodePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node #{}", self.index)?;
        if !self.name.is_empty() {
            write!(f, " `{}`", self.name.replace('\n', "\\n"))?;
        }
        if self.op_type.is_empty() { Ok(()) } else { write!(f, " ({})", self.op_type.replace('\n', "\\n")) }
    }
}

/// All problems; the same message about many nodes of one operator is given once.
fn list(problems: &[Problem]) -> String {
    let mut text = match problems.len() {
        1 => "1 problem".to_string(),
        n => format!("{n} problems"),
    };
    let about = |p: &Problem| (p.place.node.as_ref().map(|n| n.op_type.clone()), p.message.clone());
    let mut counts = HashMap::new();
    problems.iter().for_each(|p| *counts.entry(about(p)).or_insert(0) += 1);
    for problem in problems {
        let Some(count) = counts.remove(&about(problem)) else { continue };
        let more = match count - 1 {
            0 => String::new(),
            _ if problem.place.node.is_none() => String::new(),
            1 => " (and 1 more node)".to_string(),
            n => format!(" (and {n} more nodes)"),
        };
        text += &format!("\n  {problem}{more}{}", hint_line(problem.hint.as_deref(), "\n    "));
    }
    text
}

/// A line for each file; of many, the first ones.
fn list_data(missing: &[MissingData]) -> String {
    const MOST: usize = 5;
    if let [one] = missing {
        return one.to_string();
    }
    let mut text = format!("{} files with the values of tensors are missing", missing.len());
    missing.iter().take(MOST).for_each(|m| text += &format!("\n  {m}"));
    if missing.len() > MOST {
        text += &format!("\n  and {} more", missing.len() - MOST);
    }
    text
}

fn hint_line(hint: Option<&str>, before: &str) -> String {
    hint.map(|hint| format!("{before}hint: {hint}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_printed_with_place_and_hint() {
        let node = NodePlace { index: 3, name: "relu".into(), op_type: "Relu".into() };
        let error = Error::Model {
            file: "a.onnx".into(),
            problems: vec![
                Problem::new(Place { graph: "main".into(), node: Some(node) }, "wrong").hint("try another"),
                Problem::new(Place::model(), "no graph"),
            ],
        };
        let expected = "a.onnx: 2 problems\n  main, node #3 `relu` (Relu): wrong\n    hint: try another\n  no graph";
        assert_eq!(error.to_string(), expected);
    }
}
