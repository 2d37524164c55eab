//! `numrsc check`: whether models can be compiled and artifacts are undamaged. Reports every problem at once.
use super::{
    Failure, Given, ImportArgs, Outcome, artifact, bytes,
    inspect::weight_bytes,
    plural,
    terminal::{self, say},
};
use numrsc::{Error, output::artifact::read_artifact};
use std::path::PathBuf;

/// Check whether models can be compiled and artifacts are undamaged, and report every problem at once
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// ONNX or NumRs files, or artifacts of `numrsc compile`
    #[arg(required = true)]
    models: Vec<PathBuf>,
    #[command(flatten)]
    import: ImportArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, given: &Given, quiet: bool) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::Success;
    if let [one] = &args.models[..]
        && let Ok(Some(_)) = read_artifact(one)
    {
        given.fit_artifact_at_rest(one)?;
    }
    let mut report = Vec::new();
    for path in &args.models {
        let file = path.display().to_string();
        if let Ok(Some(content)) = read_artifact(path) {
            let (good, row) = artifact::check(path, &content, quiet || args.json);
            if !good && matches!(outcome, Outcome::Success) {
                outcome = Outcome::Negative;
            }
            report.push(row);
            continue;
        }
        match super::load(path, &args.import.options(), quiet || args.json) {
            Ok((model, func)) => {
                if args.json {
                    report.push(
                        serde_json::json!({ "file": file, "ok": true, "problems": [], "ops": func.nodes().len() }),
                    );
                } else if !quiet {
                    let nodes = plural(model.graph().node.len(), "node", "nodes");
                    let ops = plural(func.nodes().len(), "core op", "core ops");
                    say!("{file}: ok, {nodes} as {ops}, {} of weights", bytes(weight_bytes(&func)));
                }
            }
            Err(e) => {
                if e.is_unreadable() {
                    outcome = Outcome::Unreadable;
                } else if matches!(outcome, Outcome::Success) {
                    outcome = Outcome::Negative;
                }
                if args.json {
                    report.push(serde_json::json!({ "file": file, "ok": false, "problems": problems(&e) }));
                } else {
                    terminal::error(&e);
                }
            }
        }
    }
    if args.json {
        terminal::print_json(&serde_json::Value::from(report));
    }
    Ok(outcome)
}

fn problems(e: &Error) -> Vec<serde_json::Value> {
    match e {
        Error::Model { problems, .. } => problems
            .iter()
            .map(|p| {
                let node = p.place.node.as_ref();
                serde_json::json!({
                    "graph": p.place.graph,
                    "node": node.map(|n| n.name.clone()),
                    "index": node.map(|n| n.index),
                    "operator": node.map(|n| n.op_type.clone()),
                    "message": p.message,
                    "hint": p.hint,
                })
            })
            .collect(),
        other => vec![serde_json::json!({ "message": other.to_string() })],
    }
}
