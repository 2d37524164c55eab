//! What `check` and `inspect` say of an artifact.
use super::{Failure, Outcome, bytes, table};
use numrsc_runtime::{
    Artifact, Manifest, Model,
    artifact::{Port, Size},
};
use serde_json::json;
use std::path::Path;

/// Check everything, weights included. Prints the answer, and gives it as a row of a report.
pub(crate) fn check(path: &Path, content: &[u8], quiet: bool) -> (bool, serde_json::Value) {
    let file = path.display().to_string();
    let artifact = match Artifact::parse(content).and_then(|a| a.verify_weights().map(|()| a)) {
        Ok(artifact) => artifact,
        Err(e) => {
            super::show(&format!("{file}: {e}"));
            return (false, json!({ "file": file, "ok": false, "problems": [{ "message": e.to_string() }] }));
        }
    };
    let manifest = artifact.manifest;
    let here = Model::load(path).err().map(|e| e.to_string());
    if !quiet {
        let (model, triple, kernels) = (manifest.model(), manifest.target_triple(), manifest.kernels().len());
        let (code, weights) = (bytes(artifact.code.len()), bytes(artifact.weights.len()));
        println!(
            "{file}: ok, an artifact of `{model}` for {triple}, {kernels} functions, {code} of code, {weights} of weights"
        );
        if let Some(why) = &here {
            println!("  it cannot run here: {why}");
        }
    }
    let row =
        json!({ "file": file, "ok": true, "problems": [], "artifact": describe(&artifact), "cannot_run_here": here });
    (true, row)
}

pub(crate) fn inspect(path: &Path, content: &[u8], as_json: bool) -> Result<Outcome, Failure> {
    let artifact = match Artifact::parse(content) {
        Ok(artifact) => artifact,
        Err(e) => {
            super::show(&format!("{}: {e}", path.display()));
            return Ok(Outcome::Negative);
        }
    };
    if as_json {
        println!("{:#}", describe(&artifact));
    } else {
        people(path, &artifact);
    }
    Ok(Outcome::Success)
}

fn people(path: &Path, artifact: &Artifact<'_>) {
    let m = artifact.manifest;
    println!("{}", path.display());
    let or_none = |names: Vec<&str>, none: &str| if names.is_empty() { none.to_owned() } else { names.join(", ") };
    let mut head = vec![
        vec!["model".into(), m.model().into()],
        vec!["producer".into(), m.producer().into()],
        vec!["target".into(), m.target_triple().into()],
        vec!["CPU features".into(), or_none(m.cpu_features().collect(), "none beyond the plainest")],
        vec!["dims".into(), or_none(m.symbols().collect(), "all static")],
        vec!["code".into(), bytes(artifact.code.len())],
        vec!["weights".into(), bytes(artifact.weights.len())],
        vec!["arena".into(), size(m.arena())],
        vec!["peak".into(), size(m.peak())],
    ];
    if m.needs_heap() {
        head.push(vec!["heap".into(), "more memory, as the data asks for".into()]);
    }
    table::print(&head, "  ");
    for (title, ports) in [("inputs", m.inputs()), ("outputs", m.outputs())] {
        println!("\n{title}");
        let rows: Vec<Vec<String>> = ports.map(|p| vec![p.name.into(), p.type_text.into()]).collect();
        table::print(&rows, "  ");
    }
    println!("\nfunctions ({})", m.kernels().len());
    let rows: Vec<Vec<String>> = m
        .kernels()
        .map(|k| {
            let length = if k.length == 0 { "as an earlier one".into() } else { bytes(k.length as usize) };
            vec![k.name.into(), length]
        })
        .collect();
    table::print(&rows, "  ");
}

fn size(size: Size<'_>) -> String {
    match size {
        Size::Fixed(n) => bytes(n as usize),
        Size::Formula(text) => text.to_owned(),
    }
}

fn describe(artifact: &Artifact<'_>) -> serde_json::Value {
    let m: Manifest<'_> = artifact.manifest;
    let port = |p: Port<'_>| json!({ "name": p.name, "type": p.type_text });
    let size = |s: Size<'_>| match s {
        Size::Fixed(n) => json!(n),
        Size::Formula(text) => json!(text),
    };
    json!({
        "model": m.model(),
        "producer": m.producer(),
        "target": m.target_triple(),
        "cpu_features": m.cpu_features().collect::<Vec<_>>(),
        "dims": m.symbols().collect::<Vec<_>>(),
        "inputs": m.inputs().map(port).collect::<Vec<_>>(),
        "outputs": m.outputs().map(port).collect::<Vec<_>>(),
        "code_bytes": artifact.code.len(),
        "weight_bytes": artifact.weights.len(),
        "arena": size(m.arena()),
        "peak": size(m.peak()),
        "needs_heap": m.needs_heap(),
        "functions": m.kernels().map(|k| json!({ "name": k.name, "offset": k.offset, "bytes": k.length })).collect::<Vec<_>>(),
    })
}
