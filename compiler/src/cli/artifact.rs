//! What `check` and `inspect` say of an artifact.
use super::{
    Failure, Outcome, bytes, plural, table,
    terminal::{self, say},
};
use numrsc_runtime::{
    Artifact, Manifest, Model,
    artifact::{Labels, List, NodeNames, Port, Size},
};
use serde_json::json;
use std::path::Path;

/// Checks everything, weights included. Prints the answer, and returns it as a row of a report.
pub(crate) fn check(path: &Path, content: &[u8], quiet: bool) -> (bool, serde_json::Value) {
    let file = path.display().to_string();
    let versions = versions(content).and_then(|versions| {
        versions.iter().try_for_each(Artifact::verify_weights)?;
        versions.iter().try_for_each(|version| version.names().map(drop))?;
        Ok(versions)
    });
    let versions = match versions {
        Ok(versions) => versions,
        Err(e) => {
            terminal::error(&format!("{file}: {e}"));
            return (false, json!({ "file": file, "ok": false, "problems": [{ "message": e.to_string() }] }));
        }
    };
    let here = Model::load(path).err().map(|e| e.to_string());
    if !quiet {
        for artifact in &versions {
            let m = artifact.manifest;
            let (model, triple, kernels) =
                (m.model(), m.target_triple(), plural(m.kernels().len(), "function", "functions"));
            let (code, weights) = (bytes(artifact.code.len()), bytes(artifact.weights.len()));
            say!("{file}: ok, an artifact of `{model}` for {triple}, {kernels}, {code} of code, {weights} of weights");
        }
        if let Some(why) = &here {
            say!("  it cannot run here: {why}");
        }
    }
    let row =
        json!({ "file": file, "ok": true, "problems": [], "artifact": describe(&versions), "cannot_run_here": here });
    (true, row)
}

pub(crate) fn inspect(path: &Path, content: &[u8], as_json: bool) -> Result<Outcome, Failure> {
    let versions = match versions(content) {
        Ok(versions) => versions,
        Err(e) => {
            terminal::error(&format!("{}: {e}", path.display()));
            return Ok(Outcome::Negative);
        }
    };
    if as_json {
        terminal::print_json(&describe(&versions));
    } else {
        versions.iter().for_each(|version| people(path, version));
    }
    Ok(Outcome::Success)
}

fn versions(content: &[u8]) -> numrsc_runtime::Result<Vec<Artifact<'_>>> {
    Artifact::versions(content).collect()
}

fn people(path: &Path, artifact: &Artifact<'_>) {
    let m = artifact.manifest;
    say!("{}", path.display());
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
        say!("\n{title}");
        let labels = |i: usize| if title == "outputs" { m.labels(i) } else { None };
        let about = |i: usize| labels(i).map_or(String::new(), |l| format!("for {}", labels_json(l)));
        let rows: Vec<Vec<String>> =
            ports.enumerate().map(|(i, p)| vec![p.name.into(), p.type_text.into(), about(i)]).collect();
        table::print(&rows, "  ");
    }
    say!("\nfunctions ({})", m.kernels().len());
    let rows: Vec<Vec<String>> = m
        .kernels()
        .map(|k| {
            let length = if k.length == 0 { "as an earlier one".into() } else { bytes(k.length as usize) };
            vec![k.name.into(), length]
        })
        .collect();
    table::print(&rows, "  ");
    if let Ok(Some(names)) = artifact.names() {
        print_names(artifact, &names);
    }
}

/// What the launches are for.
fn print_names(artifact: &Artifact<'_>, names: &NodeNames<'_>) {
    let nodes: Vec<String> = names.nodes().map(|n| format!("{} ({})", n.name, n.operator)).collect();
    let list = |numbers: List<'_, u32>| {
        let names: Vec<&str> = numbers.map(|n| nodes[n as usize].as_str()).collect();
        names.join(", ")
    };
    let kernels: Vec<&str> = artifact.manifest.kernels().map(|k| k.name).collect();
    say!("\nlaunches ({})", names.launches().len());
    let kernel = |number: u32| kernels.get(number as usize).copied().unwrap_or("?").to_owned();
    let rows: Vec<Vec<String>> = names.launches().map(|l| vec![kernel(l.kernel), list(l.nodes)]).collect();
    table::print(&rows, "  ");
    for (title, numbers) in [("computed by the entry", names.entry()), ("folded", names.folded())] {
        if numbers.len() > 0 {
            say!("\n{title} ({})\n  {}", numbers.len(), list(numbers));
        }
    }
}

/// The same for programs; nothing if the names were left out.
fn names_json(artifact: &Artifact<'_>) -> serde_json::Value {
    let Ok(Some(names)) = artifact.names() else { return serde_json::Value::Null };
    let nodes: Vec<&str> = names.nodes().map(|n| n.name).collect();
    let list = |numbers: List<'_, u32>| numbers.map(|n| nodes[n as usize]).collect::<Vec<_>>();
    json!({
        "nodes": names.nodes().map(|n| json!({ "name": n.name, "operator": n.operator })).collect::<Vec<_>>(),
        "launches": names.launches().map(|l| json!({ "function": l.kernel, "nodes": list(l.nodes) })).collect::<Vec<_>>(),
        "computed_by_entry": list(names.entry()),
        "folded": list(names.folded()),
    })
}

fn labels_json(labels: Labels<'_>) -> serde_json::Value {
    match labels {
        Labels::Integers(numbers) => numbers.collect(),
        Labels::Texts(texts) => texts.collect(),
    }
}

fn size(size: Size<'_>) -> String {
    match size {
        Size::Fixed(n) => bytes(n as usize),
        Size::Formula(text) => text.to_owned(),
    }
}

/// The version that is best, and the others.
fn describe(versions: &[Artifact<'_>]) -> serde_json::Value {
    let mut all: Vec<_> = versions.iter().map(describe_version).collect();
    let mut best = all.pop().unwrap_or_default();
    best["other_versions"] = all.into();
    best
}

fn describe_version(artifact: &Artifact<'_>) -> serde_json::Value {
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
        "outputs": m.outputs().enumerate().map(|(i, p)| {
            let mut port = port(p);
            if let Some(labels) = m.labels(i) {
                port["labels"] = labels_json(labels);
            }
            port
        }).collect::<Vec<_>>(),
        "code_bytes": artifact.code.len(),
        "weight_bytes": artifact.weights.len(),
        "arena": size(m.arena()),
        "peak": size(m.peak()),
        "needs_heap": m.needs_heap(),
        "names": names_json(artifact),
        "functions": m.kernels().map(|k| json!({ "name": k.name, "offset": k.offset, "bytes": k.length })).collect::<Vec<_>>(),
    })
}
