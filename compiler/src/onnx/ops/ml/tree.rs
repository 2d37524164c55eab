//! Ensembles of decision trees. The nodes of all trees are constant tables, and one index per row and tree walks from
//! the roots to the leaves: as many gathers as the deepest tree has levels.
use super::{Labels, above, both_classes, features, floats, transformed};
use crate::onnx::import::Fail;
use numrsc_ir::{
    DType, Dim, Elems, ReduceFn, Tensor,
    build::{Graph, LoopOut, X},
    expr::S,
};
use std::collections::{BTreeMap, BTreeSet};

/// Trees with fewer levels are walked without a loop.
const MAX_UNROLLED: usize = 4;

/// Nodes as the older operators state them; children are named by tree and id.
pub(super) struct Nodes {
    pub trees: Vec<i64>,
    pub ids: Vec<i64>,
    pub features: Vec<i64>,
    pub modes: Vec<String>,
    pub values: Vec<f64>,
    pub missing: Vec<i64>,
    pub yes: Vec<i64>,
    pub no: Vec<i64>,
}

/// What reaching a leaf adds to which target.
pub(super) struct Votes {
    pub trees: Vec<i64>,
    pub nodes: Vec<i64>,
    pub targets: Vec<i64>,
    pub weights: Vec<f64>,
    pub base: Vec<f64>,
}

/// Nodes as `TreeEnsemble` states them: branches lead to a node or, where the flag says so, to a leaf.
pub(super) struct Splits {
    pub roots: Vec<i64>,
    pub features: Vec<i64>,
    pub modes: Vec<f64>,
    pub values: Vec<f64>,
    pub members: Vec<f64>,
    pub missing: Vec<i64>,
    pub yes: (Vec<i64>, Vec<i64>),
    pub no: (Vec<i64>, Vec<i64>),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Test {
    Le,
    Lt,
    Ge,
    Gt,
    Eq,
    Ne,
}

const TESTS: [Test; 6] = [Test::Le, Test::Lt, Test::Ge, Test::Gt, Test::Eq, Test::Ne];

impl Test {
    fn named(mode: &str) -> Result<Option<Test>, Fail> {
        const NAMES: [&str; 6] = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"];
        match NAMES.iter().position(|n| *n == mode) {
            Some(i) => Ok(Some(TESTS[i])),
            None if mode == "LEAF" => Ok(None),
            None => Err(format!("the node mode `{mode}` is not one of the specification").into()),
        }
    }

    fn apply<'e>(self, x: S<'e>, value: S<'e>) -> S<'e> {
        match self {
            Test::Le => x.le(value),
            Test::Lt => x.lt(value),
            Test::Ge => x.ge(value),
            Test::Gt => x.gt(value),
            Test::Eq => x.eq(value),
            Test::Ne => x.ne(value),
        }
    }
}

#[derive(Clone)]
struct Node {
    /// Nothing for a leaf.
    test: Option<Test>,
    feature: i64,
    value: f64,
    /// Does a missing value (NaN) pass the test?
    missing: bool,
    yes: usize,
    no: usize,
}

/// All trees; a leaf leads to itself.
struct Forest {
    nodes: Vec<Node>,
    roots: Vec<usize>,
}

/// Where the nodes are, by tree and id.
type Places = BTreeMap<(i64, i64), usize>;

impl Nodes {
    /// The forest, and the place of each node by tree and id.
    fn forest(&self) -> Result<(Forest, Places), Fail> {
        let count = self.trees.len();
        let lengths = [self.ids.len(), self.features.len(), self.modes.len(), self.values.len(), self.yes.len()];
        if lengths.iter().any(|&n| n != count) || self.no.len() != count || count == 0 {
            return Err("the attributes `nodes_*` must be lists of the same length, not empty".into());
        }
        if ![0, count].contains(&self.missing.len()) {
            return Err("`nodes_missing_value_tracks_true` does not have one entry per node".into());
        }
        let mut place = BTreeMap::new();
        let mut roots = BTreeMap::new();
        for i in 0..count {
            if place.insert((self.trees[i], self.ids[i]), i).is_some() {
                return Err(format!("tree {} has two nodes {}", self.trees[i], self.ids[i]).into());
            }
            roots.entry(self.trees[i]).or_insert(i);
        }
        let mut nodes = Vec::with_capacity(count);
        for i in 0..count {
            let test = Test::named(&self.modes[i])?;
            let child = |id: i64| match place.get(&(self.trees[i], id)) {
                _ if test.is_none() => Ok(i),
                Some(at) => Ok(*at),
                None => Err(Fail::Refused(format!("tree {} has no node {id}", self.trees[i]))),
            };
            nodes.push(Node {
                test,
                feature: if test.is_some() { self.features[i] } else { 0 },
                value: self.values[i],
                missing: self.missing.get(i).is_some_and(|m| *m != 0),
                yes: child(self.yes[i])?,
                no: child(self.no[i])?,
            });
        }
        Ok((Forest { nodes, roots: roots.into_values().collect() }, place))
    }
}

impl Splits {
    /// The forest, whose nodes from the given number on are the leaves.
    fn forest(self, leaves: usize) -> Result<(Forest, usize), Fail> {
        let count = self.features.len();
        let lengths = [self.modes.len(), self.values.len(), self.yes.0.len(), self.yes.1.len(), self.no.0.len()];
        if lengths.iter().any(|&n| n != count) || self.no.1.len() != count {
            return Err("the attributes `nodes_*` must be lists of the same length".into());
        }
        if ![0, count].contains(&self.missing.len()) {
            return Err("`nodes_missing_value_tracks_true` does not have one entry per node".into());
        }
        let target = |(ids, leaf): &(Vec<i64>, Vec<i64>), i: usize| {
            let (offset, limit) = if leaf[i] != 0 { (count, leaves) } else { (0, count) };
            match usize::try_from(ids[i]) {
                Ok(at) if at < limit => Ok(offset + at),
                _ => Err(Fail::Refused(format!("node {i} leads to {}, of {limit}", ids[i]))),
            }
        };
        // Sets for the membership tests, in the order of the nodes, each ended by a NaN.
        let mut sets = self.members.split(|m| m.is_nan());
        let leaf = |i| Node { test: None, feature: 0, value: 0.0, missing: false, yes: i, no: i };
        let mut nodes: Vec<Node> = (0..count + leaves).map(leaf).collect();
        for i in 0..count {
            let mode = self.modes[i];
            let (yes, no) = (target(&self.yes, i)?, target(&self.no, i)?);
            let missing = self.missing.get(i).is_some_and(|m| *m != 0);
            let node = |test, value, no| Node { test: Some(test), feature: self.features[i], value, missing, yes, no };
            nodes[i] = match TESTS.iter().enumerate().find(|(k, _)| *k as f64 == mode) {
                Some((_, test)) => node(*test, self.values[i], no),
                None if mode == 6.0 => {
                    // Membership is a chain of tests for equality.
                    let set = sets.next().ok_or("`membership_values` has too few sets")?;
                    let mut rest = no;
                    for value in set.iter().skip(1).rev() {
                        nodes.push(node(Test::Eq, *value, rest));
                        rest = nodes.len() - 1;
                    }
                    // Nothing equals NaN: an empty set.
                    node(Test::Eq, set.first().copied().unwrap_or(f64::NAN), rest)
                }
                None => return Err(format!("the node mode {mode} is not one of the specification").into()),
            };
        }
        let root = |r: &i64| usize::try_from(*r).ok().filter(|r| *r < count).ok_or(format!("there is no node {r}"));
        let roots = self.roots.iter().map(root).collect::<Result<Vec<_>, _>>()?;
        if roots.is_empty() {
            return Err("`tree_roots` is empty".into());
        }
        Ok((Forest { nodes, roots }, count))
    }
}

impl Forest {
    /// The number of tests on the longest way from a root to a leaf.
    fn depth(&self) -> Result<usize, Fail> {
        let mut level: BTreeSet<usize> = self.roots.iter().copied().collect();
        let mut depth = 0;
        loop {
            let inner = level.iter().filter(|&&i| self.nodes[i].test.is_some());
            level = inner.flat_map(|&i| [self.nodes[i].yes, self.nodes[i].no]).collect();
            if level.is_empty() {
                return Ok(depth);
            }
            depth += 1;
            if depth > self.nodes.len() {
                return Err("the nodes of a tree form a cycle".into());
            }
        }
    }

    /// For rows of features, the leaf of each tree that they end in: `[rows, trees]`.
    fn leaves<'g>(&self, x: X<'g>) -> Result<X<'g>, Fail> {
        if let Some(node) = self.nodes.iter().find(|n| n.feature < 0) {
            return Err(format!("a node tests feature {}", node.feature).into());
        }
        let g = x.graph();
        let roots: Vec<i64> = self.roots.iter().map(|&r| r as i64).collect();
        let mut at = g.ints(&roots)?.broadcast_to(&[x.dim(0)?, Dim::from(roots.len())])?;
        let depth = self.depth()?;
        if depth <= MAX_UNROLLED {
            for _ in 0..depth {
                at = self.step(x, at)?;
            }
            return Ok(at);
        }
        let (last, _) =
            g.loop_(g.scalar(DType::I64, depth as f64)?, g.scalar(DType::Bool, 1.0)?, &[at], &[x], &|b| {
                let next = self.step(b.captures[0], b.states[0])?;
                Ok::<_, Fail>(LoopOut { cond: b.cond, states: vec![next], rows: vec![] })
            })?;
        Ok(last[0])
    }

    /// One level down.
    fn step<'b>(&self, x: X<'b>, at: X<'b>) -> Result<X<'b>, Fail> {
        let g = x.graph();
        let ints = |f: &dyn Fn(&Node) -> i64| looked_up(g, &self.nodes.iter().map(f).collect::<Vec<_>>(), at);
        let feature = x.gather(ints(&|n| n.feature)?, 1, 1)?;
        let values = self.nodes.iter().map(|n| n.value).collect();
        let value = floats(g, x.dtype(), &[self.nodes.len()], values)?.gather(at, 0, 0)?;
        let tests: Vec<Test> = self.nodes.iter().filter_map(|n| n.test).collect::<BTreeSet<_>>().into_iter().collect();
        let Some((first, others)) = tests.split_first() else { return Ok(at) };
        let kind = ints(&|n| n.test.map_or(0, |t| t as i64))?;
        let missing = ints(&|n| i64::from(n.missing))?;
        let any_missing = self.nodes.iter().any(|n| n.missing);
        let (yes, no) = (ints(&|n| n.yes as i64)?, ints(&|n| n.no as i64)?);
        // Operands that no test needs are left out.
        let mut operands = vec![feature, value, yes, no];
        operands.extend((!others.is_empty()).then_some(kind));
        operands.extend(any_missing.then_some(missing));
        Ok(g.map_all(&operands, |s| {
            let (x, value) = (s[0], s[1]);
            let mut pass = first.apply(x, value);
            for test in others {
                pass = s[4].eq(f64::from(*test as u8)).select(test.apply(x, value), pass);
            }
            if any_missing {
                pass = pass.or(x.is_nan().and(s[s.len() - 1].ne(0.0)));
            }
            pass.select(s[2], s[3])
        })?)
    }

    /// 1 where a leaf on a row's way has voted for a target, as f32: `[rows, targets]`. Nothing if all have for all, which
    /// is so if for each target there is a tree whose leaves all vote for it.
    fn voted<'g>(&self, x: X<'g>, votes: &[(usize, usize, f64)], targets: usize) -> Result<Option<X<'g>>, Fail> {
        let all: BTreeSet<(usize, usize)> = votes.iter().map(|v| (v.0, v.1)).collect();
        let leaves = |root: usize| {
            let (mut found, mut next) = (BTreeSet::new(), vec![root]);
            while let Some(i) = next.pop() {
                if found.insert(i) && self.nodes[i].test.is_some() {
                    next.extend([self.nodes[i].yes, self.nodes[i].no]);
                }
            }
            found.into_iter().filter(|&i| self.nodes[i].test.is_none()).collect::<Vec<_>>()
        };
        let trees: Vec<Vec<usize>> = self.roots.iter().map(|&root| leaves(root)).collect();
        if (0..targets).all(|t| trees.iter().any(|leaves| leaves.iter().all(|&leaf| all.contains(&(leaf, t))))) {
            return Ok(None);
        }
        let ones: Vec<_> = all.into_iter().map(|(leaf, target)| (leaf, target, 1.0)).collect();
        Ok(Some(self.scores(x, &ones, targets, Combine::Max)?.cast(DType::F32)?))
    }

    /// Combine the votes of the leaves that the rows end in: `[rows, targets]`. `votes` holds leaf, target, weight.
    fn scores<'g>(
        &self,
        x: X<'g>,
        votes: &[(usize, usize, f64)],
        targets: usize,
        combine: Combine,
    ) -> Result<X<'g>, Fail> {
        let g = x.graph();
        // A table with a row for every node, of which only those of leaves are looked up: one number less to wait for than the number of the leaf.
        let mut table = vec![combine.neutral(); self.nodes.len() * targets];
        let mut seen = BTreeSet::new();
        // Of several votes of a leaf for the only target there is, ONNX Runtime takes the first.
        let counts = |v: &(usize, usize, f64)| self.nodes[v.0].test.is_none() && (targets > 1 || seen.insert(v.0));
        for (leaf, target, weight) in votes.iter().copied().filter(counts) {
            let cell = &mut table[leaf * targets + target];
            *cell = combine.apply(*cell, weight);
        }
        let table = floats(g, x.dtype(), &[self.nodes.len(), targets], table)?;
        let all = table.gather(self.leaves(x)?, 0, 0)?;
        let trees = self.roots.len() as f64;
        Ok(match combine {
            Combine::Sum => all.sum(&[1], false)?,
            Combine::Average => all.sum(&[1], false)?.map(|s| s / trees)?,
            // A target without a vote has the score 0.
            Combine::Min => all.min(&[1], false)?.map(|s| s.eq(f64::INFINITY).select(s.lit(0.0), s))?,
            Combine::Max => all.max(&[1], false)?.map(|s| s.eq(f64::NEG_INFINITY).select(s.lit(0.0), s))?,
        })
    }
}

/// Elements of a table of numbers that are not negative, as i64. Walking a forest is waiting for tables, so they are as narrow as they can be.
fn looked_up<'b>(g: &'b Graph, table: &[i64], at: X<'b>) -> Result<X<'b>, Fail> {
    let dtype = match table.iter().max() {
        Some(0..=0xff) => DType::U8,
        Some(0..=0xffff) => DType::U16,
        Some(0..=0xffff_ffff) => DType::U32,
        _ => DType::I64,
    };
    let narrow = Elems::Int(table.iter().map(|&n| i128::from(n)).collect());
    let table = g.constant(Tensor::from_elems(dtype, vec![table.len()], &narrow))?;
    Ok(table.gather(at, 0, 0)?.cast(DType::I64)?)
}

#[derive(Clone, Copy)]
enum Combine {
    Average,
    Sum,
    Min,
    Max,
}

impl Combine {
    fn named(name: &str) -> Result<Combine, Fail> {
        match name {
            "AVERAGE" => Ok(Combine::Average),
            "SUM" => Ok(Combine::Sum),
            "MIN" => Ok(Combine::Min),
            "MAX" => Ok(Combine::Max),
            _ => Err(format!("`aggregate_function` is `{name}`, not AVERAGE, SUM, MIN or MAX").into()),
        }
    }

    fn neutral(self) -> f64 {
        match self {
            Combine::Average | Combine::Sum => 0.0,
            Combine::Min => f64::INFINITY,
            Combine::Max => f64::NEG_INFINITY,
        }
    }

    fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            Combine::Average | Combine::Sum => a + b,
            Combine::Min => a.min(b),
            Combine::Max => a.max(b),
        }
    }
}

impl Votes {
    /// Leaf, target and weight of each vote.
    fn resolve(&self, place: &Places, targets: usize) -> Result<Vec<(usize, usize, f64)>, Fail> {
        let count = self.weights.len();
        if [self.trees.len(), self.nodes.len(), self.targets.len()] != [count; 3] {
            return Err("the lists that describe the votes of leaves must have the same length".into());
        }
        let vote = |i: usize| {
            let leaf = place.get(&(self.trees[i], self.nodes[i]));
            let target = usize::try_from(self.targets[i]).ok().filter(|t| *t < targets);
            match (leaf, target) {
                (Some(leaf), Some(target)) => Ok((*leaf, target, self.weights[i])),
                _ => Err(Fail::Refused(format!(
                    "node {} of tree {} cannot vote for {}",
                    self.nodes[i], self.trees[i], self.targets[i]
                ))),
            }
        };
        (0..count).map(vote).collect()
    }
}

/// With a constant added to each column, if there is one.
fn plus_base<'g>(scores: X<'g>, base: &[f64], targets: usize) -> Result<X<'g>, Fail> {
    let g = scores.graph();
    match base.len() {
        0 => Ok(scores),
        n if n == targets => {
            let base = floats(g, scores.dtype(), &[n], base.to_vec())?;
            Ok(g.map([scores, base], |[s, b]| s + b)?)
        }
        n => Err(format!("{n} base values are given for {targets} targets").into()),
    }
}

fn count(n: i64) -> Result<usize, Fail> {
    match usize::try_from(n) {
        Ok(n @ 1..=0xffff) => Ok(n),
        _ => Err(format!("`n_targets` is {n}").into()),
    }
}

pub(super) fn regressor<'g>(
    x: X<'g>,
    nodes: &Nodes,
    votes: &Votes,
    targets: i64,
    combine: &str,
    transform: &str,
) -> Result<X<'g>, Fail> {
    let (x, targets) = (features(x)?, count(targets)?);
    let (forest, place) = nodes.forest()?;
    let resolved = votes.resolve(&place, targets)?;
    let scores = forest.scores(x, &resolved, targets, Combine::named(combine)?)?;
    let mut scores = plus_base(scores, &votes.base, targets)?.cast(DType::F32)?;
    if targets > 1
        && !votes.base.is_empty()
        && let Some(voted) = forest.voted(x, &resolved, targets)?
    {
        // In ONNX Runtime, a target without a vote has no base value either.
        scores = x.graph().map([scores, voted], |[s, v]| v.gt(0.0).select(s, 0.0))?;
    }
    transformed(scores, transform)
}

pub(super) fn classifier<'g>(
    x: X<'g>,
    nodes: &Nodes,
    votes: &Votes,
    labels: &Labels,
    transform: &str,
) -> Result<Vec<X<'g>>, Fail> {
    let (x, classes) = (features(x)?, labels.len());
    let (forest, place) = nodes.forest()?;
    let resolved = votes.resolve(&place, classes)?;
    let voted: BTreeSet<usize> = resolved.iter().map(|v| v.1).collect();
    let sums = forest.scores(x, &resolved, classes, Combine::Sum)?;
    if classes == 2 && voted.len() == 1 {
        return one_column(sums, voted.contains(&1), votes, labels, transform);
    }
    let scores = plus_base(sums, &votes.base, classes)?.cast(DType::F32)?;
    if classes == 1 {
        return Ok(vec![labels.with_none().of(above(scores, 0.0)?)?, transformed(scores, transform)?]);
    }
    // A class that no leaf on a row's way has voted for cannot win, even if all others are below 0.
    // Of two classes with votes for both, too, the higher score wins; ONNX Runtime's label is 1 wherever the second
    // score is positive, whatever the classes are called, which no exporter asks for.
    let decisive = match forest.voted(x, &resolved, classes)? {
        Some(voted) if votes.base.is_empty() => {
            x.graph().map([scores, voted], |[s, v]| v.gt(0.0).select(s, f64::NEG_INFINITY))?
        }
        _ => scores,
    };
    Ok(vec![labels.of(decisive.arg(ReduceFn::Max, 1, false)?)?, transformed(scores, transform)?])
}

/// Two classes, and votes for one of them only, which are a probability if none is negative, or else a margin. This is
/// what ONNX Runtime makes of it, which exporters rely on: votes for the first class, too, speak for the second one.
fn one_column<'g>(
    sums: X<'g>,
    second: bool,
    votes: &Votes,
    labels: &Labels,
    transform: &str,
) -> Result<Vec<X<'g>>, Fail> {
    let g = sums.graph();
    let base = match (&votes.base[..], second) {
        (&[base] | &[base, _], false) | (&[_, base], true) => base,
        ([] | [_], _) => 0.0,
        (many, _) => return Err(format!("{} base values are given for 2 classes", many.len()).into()),
    };
    let s = sums.slice_axis(1, &Dim::from(usize::from(second)), &Dim::ONE, 1)?;
    let s = s.map(|s| s + base)?.cast(DType::F32)?;
    let margin = votes.weights.iter().any(|w| *w < 0.0);
    let label = labels.of(above(s, if margin { 0.0 } else { 0.5 })?)?;
    let zero = || s.map(|s| s.lit(0.0));
    let scores = match (second, votes.base.len()) {
        (true, _) => transformed(g.concat(&[zero()?, s], 1)?, transform)?,
        (false, 2) => transformed(g.concat(&[s, zero()?], 1)?, transform)?,
        _ => both_classes(s, margin, transform)?,
    };
    Ok(vec![label, scores])
}

pub(super) fn ensemble<'g>(
    x: X<'g>,
    splits: Splits,
    leaf_targets: &[i64],
    leaf_weights: &[f64],
    targets: i64,
    (combine, transform): (i64, i64),
) -> Result<X<'g>, Fail> {
    const COMBINE: [&str; 4] = ["AVERAGE", "SUM", "MIN", "MAX"];
    // The standard has 1 and 2 the other way round; ONNX Runtime, against which exporters test, has them like this.
    const TRANSFORM: [&str; 5] = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"];
    let name = |names: &[&'static str], i: i64| usize::try_from(i).ok().and_then(|i| names.get(i).copied());
    let combine = name(&COMBINE, combine).ok_or("`aggregate_function` is not one of the specification")?;
    let transform = name(&TRANSFORM, transform).ok_or("`post_transform` is not one of the specification")?;
    let (dtype, targets) = (x.dtype(), count(targets)?);
    if leaf_targets.len() != leaf_weights.len() {
        return Err("`leaf_targetids` and `leaf_weights` differ in length".into());
    }
    let (forest, first_leaf) = splits.forest(leaf_weights.len())?;
    let mut votes = Vec::new();
    for (i, (target, weight)) in leaf_targets.iter().zip(leaf_weights).enumerate() {
        let target = usize::try_from(*target).ok().filter(|t| *t < targets);
        votes.push((first_leaf + i, target.ok_or("an entry of `leaf_targetids` is not a target")?, *weight));
    }
    let scores = forest.scores(features(x)?, &votes, targets, Combine::named(combine)?)?;
    Ok(transformed(scores, transform)?.cast(dtype)?)
}
