//! The optimiser: one-line rewrite rules over an e-graph, and extraction by cost.
//!
//! A function is cut into regions; each becomes terms (`term`, `encode`), rules add equal terms (`rule`, `rules`, `attrs`), and the cheapest are taken
//! (`cost`, `extract`). Limits count nodes and rounds, never time: the same function gives the same result.

// A new op may not get a default that nobody thought of: matches list all ops, or say why not.
#![deny(clippy::wildcard_enum_match_arm)]

mod attrs;
mod composites;
pub mod cost;
mod encode;
mod explain;
pub mod extract;
mod needs;
mod regions;
pub mod rule;
pub mod rules;
mod sources;
mod structure;
pub mod term;

use composites::Composites;
use cost::CostModel;
use egg::{Id, Rewrite, Runner, StopReason};
use encode::{decode, encode, invalid};
pub use explain::explain;
use extract::Problem;
use numrsc_facts::{
    Context, Level, Result,
    constants::{is_finite, one_number},
};
use numrsc_ir::{Elems, Func, Machine, Op, Origins, Tensor, Value};
use regions::{Piece, Region};
use rule::Rule;
use sources::{Source, Sources};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use term::{Facts, Graph, Known, Term};

/// Rounds and nodes of the search at a level.
fn limits(level: Level) -> (usize, usize) {
    match level {
        Level::O0 | Level::O1 => (0, 0),
        Level::O2 => (16, 8_000),
        Level::O3 => (24, 20_000),
    }
}

/// Is a rule used at a level?
fn uses(level: Level, rule: &Rule) -> bool {
    level >= if rule.exact { Level::O2 } else { Level::O3 }
}

/// A report of what the optimiser did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Predicted picoseconds before and after.
    pub before: u64,
    pub after: u64,
    /// How often each rule found something new, in all regions.
    pub fired: BTreeMap<String, usize>,
    /// Composites that were recognised, whatever they were spelled like. Compiling does not need them.
    pub recognised: BTreeMap<&'static str, usize>,
    /// Terms of e-graphs and steps of extraction: what the time is in proportion to, the same on every machine.
    pub work: u64,
    /// Regions, and how many of them differ.
    pub regions: usize,
    pub distinct: usize,
}

/// The function with every region replaced by the cheapest equal one, and what was done and recognised.
pub fn optimise_and_report(func: &Func, cx: &Context) -> Result<(Func, Report)> {
    let mut optimiser = Optimiser { composites: Some(&COMPOSITES), ..Optimiser::new(cx) };
    let func = optimiser.function(func)?;
    Ok((func, optimiser.report))
}

/// The same function; nothing is looked for that only the report needs.
pub fn optimise(func: &Func, cx: &Context) -> Result<Func> {
    Optimiser::new(cx).function(func)
}

/// What extraction found for each region of a function, and the best there is unless finding it takes more than
/// `steps`.
pub fn optimality(func: &Func, cx: &Context, steps: usize) -> Result<Vec<(u64, Option<u64>)>> {
    let optimiser = Optimiser::new(cx);
    let mut found = Vec::new();
    for piece in regions::cut(func)? {
        let Piece::Region(region) = piece else { continue };
        let known = region.inputs.iter().map(|i| known(func, *i)).collect();
        let (graph, classes) = encode(&region.func, known, false);
        let roots: Vec<Id> = region.func.results().iter().map(|r| classes[r.0 as usize]).collect();
        let graph = optimiser.saturate(&optimiser.rewrites, graph, &mut BTreeMap::new());
        let problem = Problem::new(&graph, &roots, &optimiser.model);
        found.push((problem.greedy().cost, problem.exact(steps).map(|c| c.cost)));
    }
    Ok(found)
}

/// The names of all rules.
pub fn rule_names() -> Vec<&'static str> {
    rules::all().iter().map(|r| r.name).chain(structure::RULES.iter().map(|r| r.0)).collect()
}

/// Predicted picoseconds of one run of a function as it is, control flow counted once.
pub fn predict(func: &Func, machine: Machine) -> u64 {
    let model = CostModel::new(machine);
    let of_region = |region: &regions::Region| {
        let known = region.inputs.iter().map(|i| known(func, *i)).collect();
        let (graph, classes) = encode(&region.func, known, false);
        let roots: Vec<Id> = region.func.results().iter().map(|r| classes[r.0 as usize]).collect();
        Problem::new(&graph, &roots, &model).greedy().cost
    };
    let of_piece = |piece: &Piece| match piece {
        Piece::Region(region) => of_region(region),
        Piece::Node(v) => func.node(*v).op.bodies().iter().map(|f| predict(f, machine)).sum(),
    };
    regions::cut(func).map_or(0, |pieces| pieces.iter().map(of_piece).sum())
}

/// A region and what is known of its inputs: equal ones are optimised once.
type Key = (Func, Vec<Known>);

/// What egg runs for a rule.
type Rewrites = Vec<Rewrite<Term, Facts>>;

/// All rules, read once: small models are optimised in less time than that takes.
static COMPILED: LazyLock<Vec<(Rule, Rewrites)>> =
    LazyLock::new(|| rules::all().into_iter().map(|r| (r, r.compile())).collect());
static COMPOSITES: LazyLock<Composites> = LazyLock::new(Composites::new);

struct Optimiser<'c> {
    cx: &'c Context,
    rewrites: Vec<Rewrite<Term, Facts>>,
    /// Those that leave transposes where they are.
    settled: Vec<Rewrite<Term, Facts>>,
    structural: Vec<structure::Structural>,
    model: CostModel,
    /// Those that are looked for.
    composites: Option<&'static Composites>,
    done: HashMap<Key, Arc<Optimised>>,
    report: Report,
}

struct Optimised {
    func: Func,
    /// Which nodes of the region each node comes from.
    sources: Vec<(Value, Source)>,
    /// The nodes of the region of which nothing is left, as they need no data.
    folded: Vec<Value>,
    before: u64,
    after: u64,
    fired: BTreeMap<String, usize>,
    recognised: BTreeMap<&'static str, usize>,
    work: u64,
}

impl Optimised {
    /// Say where the nodes come from that a region became. Only here its nodes have names: others are equal to it.
    fn name(&self, func: &Func, region: &Region, placed: &[Value], out: &mut Func) {
        let mut origins = vec![Origins::NONE; region.func.nodes().len()];
        for (outer, inner) in &region.nodes {
            let own = &mut origins[inner.0 as usize];
            *own = own.union(func.origins(*outer));
        }
        for (new, (old, rule)) in &self.sources {
            let own = &origins[old.0 as usize];
            if !own.is_empty() {
                let own = rule.map_or(own.clone(), |rule| own.moved_by(rule));
                out.add_origins(placed[new.0 as usize], &own);
            }
        }
        let folded: Origins = self.folded.iter().flat_map(|v| &origins[v.0 as usize]).cloned().collect();
        out.add_folded(&folded);
    }
}

impl<'c> Optimiser<'c> {
    fn new(cx: &'c Context) -> Optimiser<'c> {
        let wanted = |name: &str| !cx.leaves_out(name);
        let rules = || COMPILED.iter().filter(|(r, _)| uses(cx.options.level, r) && wanted(r.name));
        Optimiser {
            cx,
            rewrites: rules().flat_map(|(_, rewrites)| rewrites.clone()).collect(),
            settled: rules()
                .filter(|(r, _)| !r.moves_transposes())
                .flat_map(|(_, rewrites)| rewrites.clone())
                .collect(),
            structural: structure::RULES.iter().filter(|r| wanted(r.0)).copied().collect(),
            model: CostModel::new(cx.machine),
            composites: None,
            done: HashMap::new(),
            report: Report::default(),
        }
    }

    fn function(&mut self, func: &Func) -> Result<Func> {
        let mut out = func.named_alike();
        let mut placed: HashMap<Value, Value> = HashMap::new();
        for p in func.params() {
            let new = out.param(func.ty(p).clone()).map_err(|e| invalid(&e))?;
            out.add_origins(new, func.origins(p));
            placed.insert(p, new);
        }
        let pieces = regions::cut(func)?;
        self.search_all(func, &pieces)?;
        for piece in pieces {
            match piece {
                Piece::Node(v) if placed.contains_key(&v) => {}
                Piece::Node(v) => {
                    let op = func.node(v).op.map_bodies(|body| self.function(body))?;
                    let args: Vec<Value> = func.node(v).args.iter().map(|a| placed[a]).collect();
                    let new = out.push(op, &args).map_err(|e| invalid(&e))?;
                    out.add_origins(new, func.origins(v));
                    placed.insert(v, new);
                }
                Piece::Region(region) => {
                    let better = self.region(&key(func, &region));
                    let inputs: Vec<Value> = region.inputs.iter().map(|i| placed[i]).collect();
                    let new = out.inline_nodes(&better.func, &inputs).map_err(|e| invalid(&e))?;
                    better.name(func, &region, &new, &mut out);
                    let results = better.func.results().iter().map(|r| new[r.0 as usize]);
                    placed.extend(region.outputs.iter().copied().zip(results));
                }
            }
        }
        out.set_results(func.results().iter().map(|r| placed[r]).collect());
        Ok(out.without_dead_nodes())
    }

    /// Optimises the regions that are not done yet, each distinct one once. Results do not depend on other regions.
    fn search_all(&mut self, func: &Func, pieces: &[Piece]) -> Result<()> {
        let mut keys: Vec<Key> = Vec::new();
        let mut seen: HashSet<Key> = HashSet::new();
        for piece in pieces {
            let Piece::Region(region) = piece else { continue };
            let key = key(func, region);
            if !self.done.contains_key(&key) && seen.insert(key.clone()) {
                keys.push(key);
            }
        }
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = if self.cx.options.jobs == 0 { cores() } else { self.cx.options.jobs }.clamp(1, keys.len().max(1));
        let next = AtomicUsize::new(0);
        let results: Mutex<BTreeMap<usize, Result<Optimised>>> = Mutex::default();
        let work = || {
            while let Some((i, (func, known))) = next_of(&keys, &next) {
                let result = self.search(func, known);
                results.lock().unwrap_or_else(PoisonError::into_inner).insert(i, result);
            }
        };
        std::thread::scope(|scope| {
            // This thread works as well.
            for _ in 1..jobs {
                scope.spawn(work);
            }
            work();
        });
        // Of several errors the first by position is reported, whichever came first in time.
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (key, done) in keys.into_iter().zip(results.into_values()) {
            let done = done?;
            self.report.distinct += 1;
            self.report.work += done.work;
            self.done.insert(key, Arc::new(done));
        }
        Ok(())
    }

    /// What was found for a region.
    fn region(&mut self, key: &Key) -> Arc<Optimised> {
        let done = self.done[key].clone();
        self.report.regions += 1;
        self.report.before += done.before;
        self.report.after += done.after;
        for (name, n) in &done.fired {
            *self.report.fired.entry(name.clone()).or_insert(0) += n;
        }
        for (name, n) in &done.recognised {
            *self.report.recognised.entry(name).or_insert(0) += n;
        }
        done
    }

    /// Searches with all rules and with fewer: the cost model ignores fusion, so lowering's own plan decides between
    /// the results.
    fn search(&self, func: &Func, known: &[Known]) -> Result<Optimised> {
        let constant: Vec<bool> = known.iter().map(|k| k.constant).collect();
        let planned =
            |func: &Func, cost: u64| cost + cost::overhead(numrsc_schedule::traffic(func, &constant, self.cx));
        let (graph, classes) = encode(func, known.to_vec(), false);
        let roots: Vec<Id> = func.results().iter().map(|r| classes[r.0 as usize]).collect();
        let original: Vec<Id> = graph.classes().map(|c| c.id).collect();
        let problem = Problem::new(&graph, &roots, &self.model);
        let before = planned(func, problem.greedy().cost);
        let mut best = Optimised {
            func: func.clone(),
            sources: func.values().map(|(v, _)| (v, (v, None))).collect(),
            folded: vec![],
            before,
            after: before,
            fired: BTreeMap::new(),
            recognised: BTreeMap::new(),
            work: problem.work(),
        };
        for rewrites in [&self.rewrites, &self.settled] {
            let mut fired = BTreeMap::new();
            let graph = self.saturate(rewrites, graph.clone(), &mut fired);
            if let Some(composites) = self.composites {
                let own: BTreeSet<Id> = original.iter().map(|c| graph.find(*c)).collect();
                for (name, n) in composites.count(&graph, &own) {
                    let most = best.recognised.entry(name).or_insert(0);
                    *most = n.max(*most);
                }
            }
            let problem = Problem::new(&graph, &roots, &self.model);
            let choice = problem.greedy();
            best.work += graph.total_size() as u64 + problem.work();
            let (better, places) = decode(func, &problem, &choice)?;
            let after = planned(&better, choice.cost);
            if after < best.after {
                let Sources { classes, folded } = Sources::of(&graph, func, &problem, &choice);
                let placed = classes.iter().filter_map(|(class, all)| Some((*places.get(class)?, all)));
                let nodes = placed.flat_map(|(v, all)| all.iter().map(move |source| (v, *source))).collect();
                best = Optimised { func: better, sources: nodes, folded, after, fired, ..best };
            }
        }
        Ok(best)
    }

    fn saturate(
        &self,
        rewrites: &[Rewrite<Term, Facts>],
        mut graph: Graph,
        fired: &mut BTreeMap<String, usize>,
    ) -> Graph {
        let (rounds, nodes) = limits(self.cx.options.level);
        // Rules of one line, and between rounds those that look at any number of operands.
        let mut left = rounds;
        while left > 0 {
            let step = left.min(4);
            let runner = Runner::default()
                .with_egraph(graph)
                .with_iter_limit(step)
                .with_node_limit(nodes)
                .with_time_limit(Duration::from_secs(1 << 30))
                .run(rewrites);
            for round in &runner.iterations {
                for (name, n) in &round.applied {
                    let name = name.as_str().split('#').next().unwrap_or_default();
                    *fired.entry(name.to_owned()).or_insert(0) += n;
                }
            }
            let stopped = matches!(runner.stop_reason, Some(StopReason::NodeLimit(_)));
            let saturated = matches!(runner.stop_reason, Some(StopReason::Saturated));
            graph = runner.egraph;
            if stopped {
                break;
            }
            let found = structure::apply(&self.structural, &mut graph);
            for (name, n) in &found {
                *fired.entry((*name).to_owned()).or_insert(0) += n;
            }
            if saturated && found.is_empty() {
                break;
            }
            left -= step;
        }
        graph
    }
}

/// The next region that no thread has taken.
fn next_of<'a, T>(all: &'a [T], next: &AtomicUsize) -> Option<(usize, &'a T)> {
    let i = next.fetch_add(1, Ordering::Relaxed);
    all.get(i).map(|x| (i, x))
}

fn key(func: &Func, region: &Region) -> Key {
    (region.func.clone(), region.inputs.iter().map(|i| known(func, *i)).collect())
}

#[allow(clippy::wildcard_enum_match_arm, reason = "only constants are known")]
fn known(func: &Func, v: Value) -> Known {
    let node = func.node(v);
    let ty = Arc::new(node.ty.clone());
    match &node.op {
        Op::Const { value } => {
            Known { ty, constant: true, finite: is_finite(value), number: one_number(value), counts: counts(value) }
        }
        _ => Known { ty, constant: false, finite: false, number: None, counts: false },
    }
}

/// Is a tensor 0, 1, 2, … along its last axis, and of size 1 along all others?
fn counts(t: &Tensor) -> bool {
    let along = t.shape().last().copied().unwrap_or(0);
    t.dtype().is_int()
        && t.shape().iter().product::<usize>() == along
        && matches!(t.elems(), Elems::Int(n) if n.iter().zip(0..).all(|(n, i)| *n == i))
}
