//! The result of `numrsc compile`: a summary for people, details for programs.
use super::{
    bytes,
    compile::{Compiled, Written},
    plural, seconds, table,
    terminal::say,
    thread_count,
};
use numrsc::onnx::import::shape_text;
use numrsc_ir::{
    Origin, Origins,
    dim::Sym,
    kernel::{Kind, Module},
};
use numrsc_passes::emit::{Lowered, MemoryPlan, THREADS};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

/// Five lines at most, or with `verbose` what there is to know.
pub(crate) fn people(w: &Written<'_>, verbose: bool) {
    let target = w.codegen.backend.target();
    let size = |path: &Path| bytes(file_bytes(path) as usize);
    let cpu = if target.cpu.is_empty() { "any CPU" } else { &target.cpu };
    let with = w.companion.map(|(kind, file)| format!(", with its {kind} {}", file.display())).unwrap_or_default();
    say!("{}: {} for {} ({cpu}){with}", w.output.display(), size(w.output), target.triple);
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, text: String| rows.push(vec![name.into(), text]);
    if !w.other_cpus.is_empty() {
        row("versions", format!("also for {}; what follows is about {cpu}", w.other_cpus.join(", ")));
    }
    let lowered = lowered(w);
    let kernels = Kernels::of(w);
    let code = match &w.result {
        Compiled::Code(artifact) if artifact.whole.is_none() => Some(&artifact.compiled),
        _ => None,
    };
    let of_code = code.map(|code| format!("{} of code, ", bytes(code.image.bytes.len()))).unwrap_or_default();
    let weights = bytes(lowered.weights.size() as usize);
    let launches = plural(kernels.launches, "launch", "launches");
    row("kernels", format!("{} distinct, {launches}; {of_code}{weights} of weights", kernels.distinct));
    let cached = code.map_or(0, |code| code.stats.iter().filter(|f| f.cached && f.same_as.is_none()).count());
    if verbose && cached > 0 {
        row("cached", format!("{} compiled before", plural(cached, "function was", "functions were")));
    }
    if let (true, Some(tuned)) = (verbose, w.tuned) {
        row("schedules", format!("{} measured, kept in {}", tuned.measured, tuned.file.display()));
    }
    let more = if lowered.memory.heap { ", and more, as the data asks for" } else { "" };
    let memory = Memory::of(w).people() + more;
    match w.footprint {
        Some(footprint) => {
            let ram = footprint.ram_bytes.map_or("as the sizes ask for".into(), |n| bytes(n as usize));
            row("on a device", format!("{} of flash, {ram} of RAM", bytes(footprint.flash_bytes as usize)));
            if verbose {
                row("memory", memory);
            }
        }
        None => row("memory", memory),
    }
    let time = |(name, time): &(&str, Duration)| format!("{name} {}", seconds(*time));
    let all: Duration = w.phases.iter().map(|(_, time)| *time).sum();
    let longest = w.phases.iter().max_by_key(|(_, time)| *time).map(time).unwrap_or_default();
    match verbose {
        true => row("time", w.phases.iter().map(time).collect::<Vec<_>>().join(", ")),
        false => row("time", format!("{}, most of it {longest}; -v says more", seconds(all))),
    }
    table::print(&rows, "  ");
}

pub(crate) fn json(w: &Written<'_>) -> serde_json::Value {
    let target = w.codegen.backend.target();
    let lowered = lowered(w);
    let memory = Memory::of(w);
    let kernels = Kernels::of(w);
    let import = w.args.import.options();
    let ports = |names: &[String], values: &[numrsc_ir::Value]| -> Vec<serde_json::Value> {
        let port = |(name, v): (&String, &numrsc_ir::Value)| serde_json::json!({ "name": name, "type": w.func.ty(*v).to_string() });
        names.iter().zip(values).map(port).collect()
    };
    let companion =
        |wanted: &str| w.companion.filter(|(kind, _)| *kind == wanted).map(|(_, file)| file.display().to_string());
    let (code, functions) = match &w.result {
        Compiled::Code(artifact) => {
            let name = |id: numrsc_ir::kernel::FuncId| artifact.compiled.stats[id.0 as usize].name.clone();
            let row = |f: &numrsc_codegen::FunctionStats| {
                serde_json::json!({
                    "name": f.name, "bytes": f.bytes, "seconds": f.time.as_secs_f64(), "cached": f.cached,
                    "same_as": f.same_as.map(name),
                })
            };
            let code = artifact.whole.is_none().then_some(artifact.compiled.image.bytes.len());
            (code, artifact.compiled.stats.iter().map(row).collect())
        }
        Compiled::Text(_) => {
            (None, lowered.module.functions.iter().map(|f| serde_json::json!({ "name": f.name })).collect::<Vec<_>>())
        }
    };
    let phase = |(name, time): &(&str, Duration)| serde_json::json!({ "name": name, "seconds": time.as_secs_f64() });
    serde_json::json!({
        "model": w.args.model.display().to_string(),
        "output": w.output.display().to_string(),
        "output_bytes": file_bytes(w.output),
        "header": companion("header"),
        "loader": companion("loader"),
        "options": {
            "emit": w.emit,
            "backend": w.codegen.backend.name(),
            "target": target.triple,
            "cpu": target.cpu,
            "other_cpus": w.other_cpus,
            "cpu_features": w.codegen.features,
            "dims": import.dims,
            "shapes": import.shapes.iter().map(|(name, s)| (name, shape_text(s.iter().map(Some)))).collect::<BTreeMap<_, _>>(),
            "distinct_dims": import.distinct_dims,
            "keep": import.keep,
            "strip_names": w.options.strip_names,
            "level": w.options.passes.level as u8,
            "without_rules": w.options.passes.without,
            "sanitize": w.options.passes.sanitize,
            "tolerance": w.options.passes.tolerance,
            "tuned": w.tuned.map(|t| serde_json::json!({ "file": t.file.display().to_string(), "measured_shapes": t.measured })),
            "jobs": w.options.passes.jobs,
            "cache": w.options.cache.as_ref().map(|c| c.display().to_string()),
        },
        "inputs": ports(&w.func.param_names, &w.func.params()),
        "outputs": ports(&w.func.result_names, w.func.results()),
        "kernels": functions,
        "distinct_kernels": kernels.distinct,
        "launches": kernels.launches,
        "launched": lowered.launches.iter().map(|l| serde_json::json!({
            "kernel": lowered.module.functions[l.kernel.0 as usize].name,
            "nodes": nodes(&l.origins),
        })).collect::<Vec<_>>(),
        "computed_by_entry": nodes(&lowered.by_entry),
        "folded": nodes(&lowered.folded),
        "moved_bytes": lowered.moved,
        "code_bytes": code,
        "flash_bytes": w.footprint.map(|f| f.flash_bytes),
        "ram_bytes": w.footprint.and_then(|f| f.ram_bytes),
        "linker_needs": w.footprint.map(|f| &f.needs),
        "weight_bytes": lowered.weights.size(),
        "memory": {
            "arena_bytes": lowered.memory.fixed,
            "depends_on": memory.depends_on,
            "example": memory.example,
            "example_arena_bytes": memory.arena,
            "example_lower_bound_bytes": memory.lower_bound,
            "heap": lowered.memory.heap,
        },
        "phases": w.phases.iter().map(phase).collect::<Vec<_>>(),
    })
}

/// Nodes of the model, with the rule or pass that moved each, if one did.
fn nodes(origins: &Origins) -> Vec<serde_json::Value> {
    let row = |o: &Origin| serde_json::json!({ "node": &*o.node, "operator": &*o.operator, "moved_by": o.moved_by.as_deref() });
    origins.iter().map(row).collect()
}

fn lowered<'a>(w: &'a Written<'_>) -> &'a Lowered {
    match &w.result {
        Compiled::Code(artifact) => &artifact.lowered,
        Compiled::Text(lowered) => lowered,
    }
}

fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

struct Kernels {
    distinct: usize,
    /// Launch sites in the entry; one in a loop counts once.
    launches: usize,
}

impl Kernels {
    fn of(w: &Written<'_>) -> Kernels {
        let module: &Module = &lowered(w).module;
        let own = |i: usize| match &w.result {
            Compiled::Code(artifact) => artifact.compiled.stats[i].same_as.is_none(),
            Compiled::Text(_) => true,
        };
        let kernels = module.functions.iter().enumerate().filter(|(i, f)| f.kind == Kind::Kernel && own(*i));
        Kernels { distinct: kernels.count(), launches: lowered(w).launches.len() }
    }
}

/// The arena at typical sizes.
struct Memory {
    /// The symbols that its size depends on; sizes known only from data are `data`.
    depends_on: BTreeSet<String>,
    example: BTreeMap<String, i64>,
    arena: Option<u64>,
    lower_bound: Option<u64>,
}

impl Memory {
    fn of(w: &Written<'_>) -> Memory {
        let plan: &MemoryPlan = &lowered(w).memory;
        let params = w.func.params();
        let sizes = numrsc::native::example_sizes(params.iter().map(|p| w.func.ty(*p)));
        let known = |s: &Sym| match &**s {
            THREADS => Some(thread_count(None) as i64),
            name => sizes.get(name).copied(),
        };
        // Whatever it asks for, it depends on.
        let asked: RefCell<BTreeSet<Sym>> = RefCell::default();
        plan.arena_bytes(&|s| {
            asked.borrow_mut().insert(s.clone());
            Some(known(s).unwrap_or(1))
        });
        let asked = asked.into_inner();
        let name = |s: &Sym| if known(s).is_some() { s.to_string() } else { "data".to_owned() };
        Memory {
            depends_on: asked.iter().map(name).collect(),
            example: asked.iter().filter_map(|s| Some((s.to_string(), known(s)?))).collect(),
            arena: plan.arena_bytes(&known),
            lower_bound: plan.lower_bound(&known),
        }
    }

    fn people(&self) -> String {
        let (Some(arena), Some(bound)) = (self.arena, self.lower_bound) else {
            let names: Vec<&str> = self.depends_on.iter().map(String::as_str).collect();
            return format!("depends on {}", names.join(", "));
        };
        let sizes = format!("{} (at least {} are in use at once)", bytes(arena as usize), bytes(bound as usize));
        if self.example.is_empty() {
            return sizes;
        }
        let names: Vec<&str> = self.depends_on.iter().map(String::as_str).collect();
        let example: Vec<String> = self.example.iter().map(|(name, size)| format!("{name}={size}")).collect();
        format!("depends on {}; for {}: {sizes}", names.join(", "), example.join(", "))
    }
}
