//! `numrsc targets`: what can be compiled for.
use super::{
    Outcome, table,
    terminal::{self, say, tell},
};
use numrsc_codegen::{Target, targets};
use serde_json::json;

/// List target triples, and the CPUs of each with their features
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, quiet: bool) -> Outcome {
    let host = Target::native().unwrap_or_else(|e| {
        if !quiet {
            tell!("note: Cranelift compiles for this machine only, and others are for LLVM: {e}");
        }
        Target { cpu: String::new(), ..Target::host() }
    });
    if args.json {
        let cpus = |t: &numrsc_codegen::TargetInfo| {
            t.cpus.iter().map(|c| json!({ "names": c.names, "features": c.features })).collect::<Vec<_>>()
        };
        let rows: Vec<_> = targets().iter().map(|t| json!({ "triple": t.triple, "cpus": cpus(t) })).collect();
        terminal::print_json(&json!({ "host": { "triple": host.triple, "cpu": host.cpu }, "targets": rows }));
        return Outcome::Success;
    }
    let cpu = if host.cpu.is_empty() { "a CPU whose name LLVM would know" } else { &host.cpu };
    say!("This machine is {} with CPU {cpu}.", host.triple);
    for target in targets() {
        say!("\n{}", target.triple);
        let features = |features: &[&str]| if features.is_empty() { "-".to_owned() } else { features.join(" ") };
        let rows: Vec<_> = target.cpus.iter().map(|cpu| vec![cpu.names.join(", "), features(&cpu.features)]).collect();
        table::print(&rows, "  ");
    }
    Outcome::Success
}
