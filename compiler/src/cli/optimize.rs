//! `numrsc optimize`: from a model to a model that runs faster elsewhere.
use super::{Failure, ImportArgs, Outcome, bytes, outputs, plural, terminal::tell};
use numrsc::{
    onnx::{self, proto::AttributeProto, proto::GraphProto, write},
    optimize::{For, Options, optimize, same_results},
};
use numrsc_passes::Level;
use std::path::PathBuf;

/// Optimise a model for other runtimes, as a model
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An ONNX or NumRs file
    model: PathBuf,
    /// Where to write; NumRs's JSON if it ends in .json
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// 1: every bit of the results stays; 2 and 3: what is computed with constants is part of weights, and composites are one operator, which rounds differently
    #[arg(short = 'O', value_name = "LEVEL", default_value = "1", value_parser = parse_level)]
    level: Level,
    /// What will run it: `ort` admits operators of com.microsoft
    #[arg(long = "for", value_name = "RUNTIME", value_enum, default_value_t)]
    target: Target,
    /// Raise the default operator set, where every node keeps its meaning
    #[arg(long, value_name = "N")]
    opset: Option<i64>,
    #[command(flatten)]
    import: ImportArgs,
    /// Put the values of large tensors into a file next to the model
    #[arg(long)]
    external_data: bool,
    /// Compile both models by Cranelift and compare what they compute from random inputs, before anything is written
    #[arg(long)]
    check: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    /// Any runtime that knows the model's operator sets
    #[default]
    Onnx,
    /// ONNX Runtime
    Ort,
}

fn parse_level(text: &str) -> Result<Level, String> {
    match super::parse_level(text)? {
        Level::O0 => Err("levels are 1 to 3".into()),
        level => Ok(level),
    }
}

pub(crate) fn run(args: &Args, quiet: bool) -> Result<Outcome, Failure> {
    outputs::distinct(&[("the model", &args.model)], &[("the result", &args.output)])?;
    outputs::writable(&[("the result", &args.output)])?;
    let model = super::load_model(&args.model, quiet)?;
    let target = match args.target {
        Target::Onnx => For::Onnx,
        Target::Ort => For::Ort,
    };
    let options = Options { level: args.level, target, opset: args.opset, import: args.import.options() };
    let done = optimize(&model, &options)?;
    if args.check {
        same_results(&model, &done.model, &options)?;
    }
    onnx::write(&done.model, &args.output, &write::Options { external_data: args.external_data })?;
    if !quiet {
        for note in &done.notes {
            tell!("note: kept as it is: {note}");
        }
        let size = |path: &std::path::Path| path.metadata().map_or(0, |m| m.len() as usize);
        let applied: Vec<String> = done.applied.iter().map(|(rule, times)| format!("{rule} {times}")).collect();
        tell!(
            "{} -> {}: {} -> {}, {} -> {}",
            args.model.display(),
            args.output.display(),
            count(model.graph()),
            plural(count(done.model.graph()), "node", "nodes"),
            bytes(size(&args.model)),
            bytes(size(&args.output)),
        );
        if !applied.is_empty() {
            tell!("rules applied: {}", applied.join(", "));
        }
    }
    Ok(Outcome::Success)
}

/// All nodes, those of graphs inside included.
fn count(graph: &GraphProto) -> usize {
    let inner = graph.node.iter().flat_map(|n| &n.attribute).flat_map(AttributeProto::subgraphs);
    graph.node.len() + inner.map(count).sum::<usize>()
}
