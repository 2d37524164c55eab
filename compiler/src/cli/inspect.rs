//! `numrsc inspect`: what a model or an artifact takes, gives and is made of.
use super::{
    CodeBackend, Failure, Given, ImportArgs, LevelArgs, Outcome, artifact, bytes, table,
    terminal::{self, say},
};
use numrsc::{
    compile::{self, Codegen, Options, Phases},
    near,
    onnx::{self, Model, import},
    output::artifact::read_artifact,
};
use numrsc_ir::{Func, Op, Value, print, view};
use numrsc_passes::{
    Context, egraph,
    pipeline::{self, PIPELINE, Pass, Stage},
};
use std::{collections::BTreeMap, path::PathBuf};

/// Show what a model or an artifact takes, gives and is made of
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An ONNX or NumRs file, or an artifact of `numrsc compile`
    model: PathBuf,
    #[command(flatten)]
    import: ImportArgs,
    #[command(flatten)]
    format: Format,
    /// Print the tensor IR as a Graphviz graph: as imported, with --after as a pass leaves it, with --explain before and after optimising, with colours for
    /// what changed
    #[arg(long, conflicts_with_all = ["json", "ir"])]
    dot: bool,
    /// With --after and --explain: the code generator to prepare for
    #[arg(long, value_enum, default_value_t, conflicts_with_all = ["json", "ir"])]
    backend: CodeBackend,
    /// With --after and --explain: the machine to prepare for [default: this one]
    #[arg(long, value_name = "TRIPLE", conflicts_with_all = ["json", "ir"])]
    target: Option<String>,
    /// With --after and --explain: the processor to prepare for
    #[arg(long, value_name = "NAME", conflicts_with_all = ["json", "ir"])]
    cpu: Option<String>,
    #[command(flatten)]
    level: LevelArgs,
    /// With --after and --explain: check every access of memory
    #[arg(long, conflicts_with_all = ["json", "ir"])]
    sanitize: bool,
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Format {
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// Print the tensor IR as text; large constants are left out
    #[arg(long)]
    ir: bool,
    /// Print the IR as text after a pass; large constants are left out
    #[arg(long, value_name = "PASS", value_parser = find_pass, long_help = after_help())]
    after: Option<&'static Pass>,
    /// Print what the optimiser did: predicted cost before and after, and the rules that fired. With a node of `--after fold` (such as %12), print the proof
    /// that what it became is equal to it
    #[arg(long, value_name = "NODE", num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = parse_node)]
    explain: Option<Node>,
}

/// A node to explain, or the whole model.
type Node = Option<Value>;

fn parse_node(text: &str) -> Result<Node, String> {
    let number = text.strip_prefix('%').unwrap_or(text);
    match number.parse() {
        _ if text.is_empty() => Ok(None),
        Ok(n) => Ok(Some(Value(n))),
        Err(_) => Err("a node is a number, such as %12".into()),
    }
}

fn find_pass(name: &str) -> Result<&'static Pass, String> {
    pipeline::find(name).ok_or_else(|| {
        let known: Vec<&str> = PIPELINE.iter().map(|pass| pass.name).collect();
        let near = near::hint(name, known.iter().copied());
        format!("there is no such pass{near} (known are {})", known.join(", "))
    })
}

fn after_help() -> String {
    let passes: String = PIPELINE.iter().map(|pass| format!("\n- {}: {}", pass.name, pass.why)).collect();
    format!(
        "Print the IR as text after a pass; large constants are left out. Passes in their order, and why there:{passes}"
    )
}

/// Bytes of all constants, nested functions included.
pub(crate) fn weight_bytes(func: &Func) -> usize {
    func.nodes()
        .iter()
        .map(|n| match &n.op {
            Op::Const { value } => value.bytes().len(),
            op => op.bodies().iter().map(|f| weight_bytes(f)).sum(),
        })
        .sum()
}

pub(crate) fn run(args: &Args, given: &Given) -> Result<Outcome, Failure> {
    if let Some(content) = read_artifact(&args.model)? {
        return match &args.format {
            Format { json, ir: false, after: None, explain: None } if !args.dot => {
                given.fit_artifact_at_rest(&args.model)?;
                artifact::inspect(&args.model, &content, *json)
            }
            _ => Err(Failure::Usage(format!("{} is an artifact: it has no IR any more", args.model.display()))),
        };
    }
    let model = onnx::load(&args.model)?;
    let func = import::import(&model, &args.import.options())?;
    match &args.format {
        Format { json: true, .. } => terminal::print_json(&json(&model, &func)),
        Format { ir: true, .. } => terminal::print(&print::func(&func, print::Detail::Brief)),
        Format { explain: Some(node), .. } => terminal::print(&explain(args, *node, &func)?),
        Format { after: Some(pass), .. } => terminal::print(&after(args, pass, &func)?),
        _ if args.dot => terminal::print(&view::dot(&func)),
        _ => people(&model, &func),
    }
    Ok(Outcome::Success)
}

/// What the optimiser did, or why a node became what it became.
fn explain(args: &Args, node: Option<Value>, func: &Func) -> Result<String, Failure> {
    let options = options(args);
    let codegen = Codegen::new(&options).map_err(|e| Failure::Usage(e.to_string()))?;
    let cx = Context { options: options.passes.clone(), ..Context::new(codegen.machine) };
    let fold = find_pass("fold").map_err(Failure::Usage)?;
    let folded = match compile::run_until(func, Some(fold), &codegen, &options, &mut Phases::new())? {
        Stage::Tensor(func) => func,
        Stage::Kernel(_) => unreachable!("folding is before lowering"),
    };
    let failed = |e: numrsc_passes::Error| Failure::Other(e.to_string());
    if let Some(node) = node {
        if node.0 as usize >= folded.nodes().len() {
            return Err(Failure::Usage(format!("there is no node {node} after `fold`")));
        }
        if args.dot {
            return Err(Failure::Usage("the proof for a node is no graph: leave out --dot or the node".into()));
        }
        return egraph::explain(&folded, node, &cx).map_err(failed);
    }
    let (optimised, report) = egraph::optimise_and_report(&folded, &cx).map_err(failed)?;
    if args.dot {
        return Ok(view::dot_change(&folded, &optimised));
    }
    let ms = |picoseconds: u64| format!("{:.3} ms", picoseconds as f64 / 1e9);
    let mut rows = vec![
        ("predicted before".to_owned(), ms(report.before)),
        ("predicted after".to_owned(), ms(report.after)),
        ("regions".to_owned(), format!("{} ({} different)", report.regions, report.distinct)),
    ];
    rows.extend(report.recognised.iter().map(|(name, n)| (format!("recognised {name}"), n.to_string())));
    rows.extend(report.fired.iter().map(|(name, n)| (format!("rule {name}"), n.to_string())));
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    Ok(rows.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect())
}

fn options(args: &Args) -> Options {
    let plain = if args.target.is_some() { "" } else { "native" };
    Options {
        generator: args.backend.generator(),
        triple: args.target.clone().unwrap_or_default(),
        cpu: args.cpu.clone().unwrap_or_else(|| plain.to_owned()),
        passes: numrsc_passes::PassOptions {
            level: args.level.level,
            without: args.level.without_rule.clone(),
            sanitize: args.sanitize,
            ..Default::default()
        },
        ..Options::default()
    }
}

fn after(args: &Args, pass: &Pass, func: &Func) -> Result<String, Failure> {
    let options = options(args);
    let codegen = Codegen::new(&options).map_err(|e| Failure::Usage(e.to_string()))?;
    Ok(match compile::run_until(func, Some(pass), &codegen, &options, &mut Phases::new())? {
        Stage::Tensor(func) if args.dot => view::dot(&func),
        Stage::Tensor(func) => print::func(&func, print::Detail::Brief),
        Stage::Kernel(_) if args.dot => {
            return Err(Failure::Usage(format!("after `{}` there are kernels, which are no graph", pass.name)));
        }
        Stage::Kernel(lowered) => lowered.module.to_string(),
    })
}

fn inputs(func: &Func) -> Vec<(String, String)> {
    func.param_names.iter().cloned().zip(func.params().iter().map(|p| func.ty(*p).to_string())).collect()
}

fn outputs(func: &Func) -> Vec<(String, String)> {
    func.result_names.iter().cloned().zip(func.results().iter().map(|r| func.ty(*r).to_string())).collect()
}

fn count<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(&'a str, usize)> {
    let mut counts = BTreeMap::new();
    names.for_each(|n| *counts.entry(n).or_insert(0) += 1);
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(name, n)| (std::cmp::Reverse(*n), *name));
    counts
}

fn operators(model: &Model) -> Vec<(&str, usize)> {
    count(model.graph().node.iter().map(|n| n.op_type.as_str()))
}

fn core_ops(func: &Func) -> Vec<(&str, usize)> {
    count(func.nodes().iter().map(|n| n.op.name()).filter(|n| *n != "param"))
}

fn producer(model: &Model) -> String {
    let proto = model.proto();
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    format!("{} {}", text(&proto.producer_name), text(&proto.producer_version)).trim_end().to_string()
}

fn people(model: &Model, func: &Func) {
    let proto = model.proto();
    let opsets: Vec<String> =
        model.opsets().iter().map(|(d, v)| format!("{} {v}", if d.is_empty() { "ai.onnx" } else { d })).collect();
    say!("{}", model.file().display());
    let mut head = vec![vec!["opsets".into(), opsets.join(", ")]];
    if !proto.producer_name.is_empty() {
        head.push(vec!["producer".into(), producer(model)]);
    }
    head.push(vec!["weights".into(), bytes(weight_bytes(func))]);
    let names: Vec<String> = import::dims(func).into_iter().collect();
    head.push(vec!["dims".into(), if names.is_empty() { "all static".into() } else { names.join(", ") }]);
    table::print(&head, "  ");
    for (title, values) in [("inputs", inputs(func)), ("outputs", outputs(func))] {
        say!("\n{title}");
        let rows: Vec<Vec<String>> = values.into_iter().map(|(name, ty)| vec![name, ty]).collect();
        table::print(&rows, "  ");
    }
    for (title, counts) in [("operators", operators(model)), ("core ops", core_ops(func))] {
        let total: usize = counts.iter().map(|(_, n)| n).sum();
        say!("\n{title} ({total})");
        let listed: Vec<String> = counts.iter().map(|(name, n)| format!("{name} {n}")).collect();
        say!("  {}", listed.join(", "));
    }
    for w in model.warnings() {
        say!("\nwarning: {w}");
    }
}

fn json(model: &Model, func: &Func) -> serde_json::Value {
    let list = |values: Vec<(String, String)>| -> Vec<serde_json::Value> {
        values.into_iter().map(|(name, ty)| serde_json::json!({ "name": name, "type": ty })).collect()
    };
    serde_json::json!({
        "file": model.file().display().to_string(),
        "opsets": model.opsets(),
        "producer": producer(model),
        "weight_bytes": weight_bytes(func),
        "dims": import::dims(func),
        "inputs": list(inputs(func)),
        "outputs": list(outputs(func)),
        "operators": BTreeMap::from_iter(operators(model)),
        "core_ops": BTreeMap::from_iter(core_ops(func)),
        "warnings": model.warnings().iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
