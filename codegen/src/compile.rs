//! Compiles a whole module: every distinct function once, on all cores, or from the cache of earlier runs.
//!
//! What comes out does not depend on the number of threads nor on what the cache holds (I6).
use crate::cache::{Cache, Key};
use crate::{Backend, Code, Error, Image, Result, link};
use numrsc_ir::kernel::{Block, FuncId, Function, Inst, Kind, Module, Stmt};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How to compile.
#[derive(Clone, Copy, Default)]
pub struct CodegenOptions<'a> {
    /// Threads; 0 for as many as there are cores.
    pub jobs: usize,
    /// A directory for compiled functions; created if missing.
    pub cache: Option<&'a Path>,
    /// Called after each function with the numbers of compiled and of all functions.
    pub progress: Option<&'a (dyn Fn(usize, usize) + Sync)>,
}

impl fmt::Debug for CodegenOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodegenOptions").field("jobs", &self.jobs).field("cache", &self.cache).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub struct Compiled {
    /// All functions linked; [`Image::offsets`] are by position in the module.
    pub image: Image,
    /// Offset of the entry, if the module has one.
    pub entry: Option<u64>,
    /// By position in the module.
    pub stats: Vec<FunctionStats>,
}

/// What compiling one function took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionStats {
    pub name: String,
    pub bytes: usize,
    pub time: Duration,
    /// It was found in the cache.
    pub cached: bool,
    /// It shares the code of an earlier function.
    pub same_as: Option<FuncId>,
}

impl Compiled {
    /// Of a module whose code is not linked here.
    pub fn without_code(module: &Module) -> Result<Compiled> {
        let stats = |(i, first): (usize, FuncId)| FunctionStats {
            name: module.functions[i].name.clone(),
            bytes: 0,
            time: Duration::ZERO,
            cached: false,
            same_as: (first.0 as usize != i).then_some(first),
        };
        Ok(Compiled {
            image: Image { bytes: vec![], offsets: vec![0; module.functions.len()] },
            entry: None,
            stats: representatives(module)?.into_iter().enumerate().map(stats).collect(),
        })
    }
}

pub fn compile(backend: &dyn Backend, module: &Module, options: &CodegenOptions<'_>) -> Result<Compiled> {
    let same = representatives(module)?;
    let unique: Vec<usize> = (0..same.len()).filter(|&i| same[i].0 as usize == i).collect();
    let cache = options.cache.map(Cache::open).transpose()?;
    let finished = compile_all(backend, module, &unique, cache.as_ref(), options)?;
    if let Some(cache) = cache.filter(|_| finished.iter().any(|done| !done.cached)) {
        cache.trim(crate::cache::LIMIT)?;
    }

    let place: HashMap<FuncId, u32> = unique.iter().zip(0..).map(|(&i, at)| (FuncId(i as u32), at)).collect();
    let mut codes = vec![];
    let mut stats: Vec<FunctionStats> = vec![];
    for done in &finished {
        let mut code = done.code.clone();
        for link in &mut code.links {
            let first = same.get(link.to.0 as usize).and_then(|f| place.get(f));
            link.to = FuncId(*first.ok_or_else(|| Error::Link(format!("there is no function {}", link.to.0)))?);
        }
        codes.push(code);
    }
    let mut image = link(&codes)?;
    let mut offsets = vec![];
    for (i, first) in same.iter().enumerate() {
        let at = place[first] as usize;
        let (done, own) = (&finished[at], first.0 as usize == i);
        offsets.push(image.offsets[at]);
        stats.push(FunctionStats {
            name: module.functions[i].name.clone(),
            bytes: if own { done.code.bytes.len() } else { 0 },
            time: if own { done.time } else { Duration::ZERO },
            cached: done.cached,
            same_as: (!own).then_some(*first),
        });
    }
    image.offsets = offsets;
    let entry = module.functions.iter().position(|f| f.kind == Kind::Entry).map(|i| image.offsets[i]);
    Ok(Compiled { image, entry, stats })
}

struct Done {
    code: Code,
    time: Duration,
    cached: bool,
}

/// Compiles the functions at these positions, in this order.
fn compile_all(
    backend: &dyn Backend,
    module: &Module,
    unique: &[usize],
    cache: Option<&Cache>,
    options: &CodegenOptions<'_>,
) -> Result<Vec<Done>> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = if options.jobs == 0 { cores() } else { options.jobs }.clamp(1, unique.len().max(1));
    // Longest first, so that no long one is left at the end.
    let mut order: Vec<usize> = (0..unique.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(size(&module.functions[unique[i]].body)));
    let (next, count) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results: Mutex<BTreeMap<usize, Result<Done>>> = Mutex::default();
    let work = || {
        while let Some(&i) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = compile_one(backend, module, FuncId(unique[i] as u32), cache);
            results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(i, result);
            let done = count.fetch_add(1, Ordering::Relaxed) + 1;
            if let Some(progress) = options.progress {
                progress(done, order.len());
            }
        }
    };
    std::thread::scope(|scope| {
        // This thread takes part.
        for _ in 1..jobs {
            scope.spawn(work);
        }
        work();
    });
    // Of several errors, the first by position is reported, whichever occurred first.
    results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).into_values().collect()
}

fn compile_one(backend: &dyn Backend, module: &Module, id: FuncId, cache: Option<&Cache>) -> Result<Done> {
    let start = Instant::now();
    let done = |code, cached| Ok(Done { code, time: start.elapsed(), cached });
    let Some(cache) = cache else { return done(backend.compile(module, id)?, false) };

    // The same function may call others at other positions of another module, so callees are keyed by order of
    // appearance.
    let mut callees: Vec<FuncId> = vec![];
    let canonical = renamed(&module.functions[id.0 as usize], |callee| {
        let known = callees.iter().position(|c| *c == callee);
        FuncId(known.unwrap_or_else(|| {
            callees.push(callee);
            callees.len() - 1
        }) as u32)
    });
    let mut key = Key::new(backend);
    key.add(&canonical);
    for callee in &callees {
        let f = &module.functions[callee.0 as usize];
        let types = |vs: &[_]| vs.iter().map(|v| f.ty(*v)).collect::<Vec<_>>();
        key.add(&(f.kind, types(&f.params), types(&f.body.results)));
    }
    let key = key.finish();
    if let Some(mut code) = cache.read(&key, callees.len()) {
        code.links.iter_mut().for_each(|link| link.to = callees[link.to.0 as usize]);
        return done(code, true);
    }
    let code = backend.compile(module, id)?;
    let mut stored = code.clone();
    for link in &mut stored.links {
        let local = callees.iter().position(|c| *c == link.to);
        let unknown = || Error::Link(format!("code refers to function {}, its source does not", link.to.0));
        link.to = FuncId(local.ok_or_else(unknown)? as u32);
    }
    cache.write(&key, &stored)?;
    done(code, false)
}

/// For every function, the first one that is equal apart from its name.
fn representatives(module: &Module) -> Result<Vec<FuncId>> {
    let count = module.functions.len();
    let mut same: Vec<FuncId> = (0..count as u32).map(FuncId).collect();
    // Functions that call equal functions become equal only in the next round.
    loop {
        let mut first: HashMap<Function, FuncId> = HashMap::new();
        let mut next = vec![];
        for (f, id) in module.functions.iter().zip((0..).map(FuncId)) {
            let mut missing = None;
            let canonical = renamed(f, |callee| {
                let found = same.get(callee.0 as usize).copied();
                missing = missing.or(found.is_none().then_some(callee));
                found.unwrap_or(callee)
            });
            if let Some(callee) = missing {
                return Err(Error::Link(format!("`{}` calls function {}, which is not there", f.name, callee.0)));
            }
            next.push(*first.entry(canonical).or_insert(id));
        }
        if next == same {
            return Ok(same);
        }
        same = next;
    }
}

/// The module with all calls redirected to the first of equal functions, and the positions of these.
pub(crate) fn without_copies(module: &Module) -> Result<(Module, Vec<FuncId>)> {
    let same = representatives(module)?;
    let mut module = module.clone();
    module.functions.iter_mut().for_each(|f| rename_callees(&mut f.body, &mut |callee| same[callee.0 as usize]));
    let kept = same.iter().zip((0..).map(FuncId)).filter(|(first, own)| *first == own).map(|(first, _)| *first);
    Ok((module, kept.collect()))
}

/// The function without its name, with other callees.
fn renamed(f: &Function, mut to: impl FnMut(FuncId) -> FuncId) -> Function {
    let mut f = Function { name: String::new(), ..f.clone() };
    rename_callees(&mut f.body, &mut to);
    f
}

fn rename_callees(block: &mut Block, to: &mut dyn FnMut(FuncId) -> FuncId) {
    for stmt in &mut block.stmts {
        match stmt {
            Stmt::Let { inst: Inst::Call(callee, _), .. } | Stmt::Launch { kernel: callee, .. } => {
                *callee = to(*callee);
            }
            Stmt::For { body, .. } => rename_callees(body, to),
            Stmt::While { cond: a, body: b, .. } | Stmt::If { then: a, or: b, .. } => {
                rename_callees(a, to);
                rename_callees(b, to);
            }
            Stmt::Let { .. } | Stmt::Store { .. } | Stmt::Prefetch { .. } | Stmt::Fail { .. } | Stmt::Barrier => {}
        }
    }
}

/// The number of statements.
fn size(block: &Block) -> usize {
    let inner = |stmt: &Stmt| match stmt {
        Stmt::For { body, .. } => size(body),
        Stmt::While { cond: a, body: b, .. } | Stmt::If { then: a, or: b, .. } => size(a) + size(b),
        Stmt::Let { .. }
        | Stmt::Store { .. }
        | Stmt::Prefetch { .. }
        | Stmt::Fail { .. }
        | Stmt::Launch { .. }
        | Stmt::Barrier => 0,
    };
    block.stmts.iter().map(|stmt| 1 + inner(stmt)).sum()
}
