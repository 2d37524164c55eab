//! Two products with functions of rows between them, such as attention: `softmax(q k + mask) v`. One kernel computes all of it for a block of rows at a time,
//! whose scores stay in memory of the worker, and so in its cache. What is computed, and in which order, is what the products and the function would
//! compute by themselves: every bit is the same.
//!
//! Nothing here knows of softmax: between the products may be whatever depends on the scores of one row only.
use super::{
    contract::{Product, Right, RowNest, swaps},
    element::{ElementEmitter, Local, Site},
    entry::{Entry, Frame},
    epilogue::{Epilogue, Order},
    fuse::{Fuser, is_view},
    gemm::{block_of_rows, unit_index},
    index::{linear, mentions},
    nest::Reads,
    pointwise::Kernel,
    state::Arg,
    tile::{Tile, ceil_div},
};
use crate::{Result, scalar, weights::narrow_operands};
use numrsc_ir::{
    Dim, Func, Op, Value,
    dim::Sym,
    kernel::{Kind, Ty, build::Builder},
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Bytes of the scores of a block of rows, as far as there are not too few or too many rows.
const SCORES_BYTES: i64 = 192 << 10;
const SCORES_ROWS: std::ops::RangeInclusive<i64> = 12..=96;
/// What a number of scores per row that is not known is taken for.
const TYPICAL_ROW: i64 = 1024;
/// More nodes than this are not looked at.
const MAX_MEMBERS: usize = 48;
const ALIGN: i64 = 64;

/// A node that is kept in memory for a block of rows, and its index.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub value: Value,
    index: Vec<Dim>,
}

/// The first product, and what becomes of its result on the way to the second. All indices are over the variables of one: that of the second product's operand.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    pub variables: Vec<Dim>,
    /// The first product.
    pub scores: Stage,
    /// What takes the place of the scores in memory, one after the other: the first ends the product, and the second product reads the last.
    stages: Vec<Stage>,
    /// Everything that is computed on the way, the first product included.
    pub members: BTreeSet<Value>,
}

impl Attention {
    /// The attention that a product is the end of.
    pub(super) fn find(fuser: &mut Fuser<'_>, product: Value) -> Option<Attention> {
        let func = fuser.func;
        let node = func.node(product);
        let Op::Contract { a_batch, a_sum, .. } = &node.op else { return None };
        let top = *node.args.first()?;
        let shape = fuser.shape(top);
        let last = shape.len().checked_sub(1)?;
        // Rows lie one after the other, and are summed over.
        let rows_together = a_sum[..] == [last as i64] && a_batch.iter().all(|b| (*b as usize) < a_batch.len());
        let widens = |v: Value| narrow_operands(func, func.node(v)).is_some();
        // Weights are many columns, which threads share only if the product is a kernel of its own: here, units are blocks of rows, of which there may be one.
        let weights = matches!(func.node(*node.args.get(1)?).op, Op::Const { .. });
        if !rows_together || weights || swaps(func, node) || widens(product) || columns(func, product)? > 1 {
            return None;
        }
        let (scores, members) = between(fuser, product, top)?;
        if swaps(func, func.node(scores)) || widens(scores) || columns(func, scores)? != 1 {
            return None;
        }
        let variables = fuser.variables(&shape);
        let wanted = wanted(fuser, top, &variables, &members)?;
        let shapes: BTreeMap<Value, Vec<Dim>> = members.iter().map(|v| (*v, fuser.shape(*v))).collect();
        // The index of a node whose elements are in the order of the scores and are wanted of one row only, at any place in it.
        let column = variables[last].as_sym()?.clone();
        let position = linear(&variables, &shape);
        let row_index = |v: &Value| -> Option<Vec<Dim>> {
            let mut found: Option<Vec<Dim>> = None;
            for index in &wanted[v] {
                let place = index.last()?.as_sym()?.clone();
                if shapes[v].last() != Some(&shape[last]) {
                    return None;
                }
                let here = |d: &Dim| d.subst(&|s| (*s == place).then(|| Dim::sym(column.clone())));
                let index: Vec<Dim> = index.iter().map(here).collect();
                let others = &index[..index.len() - 1];
                let fits = linear(&index, &shapes[v]) == position && !others.iter().any(|d| mentions(d, &column));
                if !fits || found.as_ref().is_some_and(|f| *f != index) {
                    return None;
                }
                found = Some(index);
            }
            found
        };
        let scores = Stage { value: scores, index: row_index(&scores)? };
        let below = below(func, &members);
        let needed: Vec<Stage> = members
            .iter()
            .filter(|v| **v == scores.value || matches!(func.node(**v).op, Op::Map { .. }))
            .filter(|v| **v == top || !reaches(func, &members, top, scores.value, **v))
            .filter_map(|v| Some(Stage { value: *v, index: row_index(v)? }))
            .collect();
        // What all of the result comes from is kept where a reduction needs it, or the end.
        let reduces = |low: Value, high: Value| {
            let is_reduction = |r: &&Value| matches!(func.node(**r).op, Op::Reduce { .. });
            below[&high].iter().filter(is_reduction).any(|r| below[r].contains(&low))
        };
        let mut stages: Vec<Stage> = Vec::new();
        for (i, stage) in needed.iter().enumerate() {
            if needed.get(i + 1).is_none_or(|next| reduces(stage.value, next.value)) {
                stages.push(stage.clone());
            }
        }
        let mut end = top;
        while is_view(&func.node(end).op) {
            end = func.node(end).args[0];
        }
        let complete = needed.first()?.value == scores.value && stages.len() > 1 && stages.last()?.value == end;
        complete.then_some(Attention { variables, scores, stages, members })
    }

    /// An index for the index at which the second product reads its operand.
    fn at(&self, index: &[Dim], operand: &[Dim]) -> Vec<Dim> {
        let name = |s: &Sym| Some(operand[self.variables.iter().position(|v| v.as_sym() == Some(s))?].clone());
        index.iter().map(|d| d.subst(&name)).collect()
    }

    fn end_of_scores(&self, func: &Func) -> Epilogue {
        let (product, root) = (self.scores.value, self.stages[0].value);
        let shape = |v: Value| func.ty(v).as_tensor().map_or(&[][..], |t| &t.shape);
        let order = if shape(product) == shape(root) {
            Order::Axes((0..shape(product).len()).map(Some).collect())
        } else {
            Order::Memory
        };
        Epilogue { product, root, order }
    }
}

/// How many axes of the second operand of a contraction are columns.
fn columns(func: &Func, product: Value) -> Option<usize> {
    let node = func.node(product);
    let Op::Contract { b_batch, b_sum, .. } = &node.op else { return None };
    Some(func.ty(node.args[1]).as_tensor().ok()?.rank() - b_batch.len() - b_sum.len())
}

/// The product that `top` is a function of, and everything in between, if nothing else wants any of it.
fn between(fuser: &Fuser<'_>, product: Value, top: Value) -> Option<(Value, BTreeSet<Value>)> {
    let func = fuser.func;
    let (mut seen, mut left, mut products) = (BTreeSet::from([top]), vec![top], Vec::new());
    while let Some(v) = left.pop() {
        let op = &func.node(v).op;
        if matches!(op, Op::Contract { .. }) {
            products.push(v);
        } else if matches!(op, Op::Map { .. } | Op::Reduce { .. }) || is_view(op) {
            left.extend(func.node(v).args.iter().filter(|a| seen.insert(**a)));
        }
        if seen.len() > MAX_MEMBERS {
            return None;
        }
    }
    products.sort_unstable();
    products.into_iter().rev().find_map(|scores| {
        let mut members = BTreeSet::from([scores]);
        for &v in seen.range(scores..) {
            if func.node(v).args.iter().any(|a| members.contains(a)) {
                members.insert(v);
            }
        }
        let alone = members.iter().all(|v| {
            let uses = &fuser.uses[v.0 as usize];
            let inside = |user: &Value| if *v == top { *user == product } else { members.contains(user) };
            !func.results().contains(v) && uses.iter().all(|(user, _)| inside(user))
        });
        let once = fuser.uses[top.0 as usize].len() == 1;
        (members.contains(&top) && alone && once).then_some((scores, members))
    })
}

/// The indices at which each member is wanted.
fn wanted(
    fuser: &mut Fuser<'_>,
    top: Value,
    variables: &[Dim],
    members: &BTreeSet<Value>,
) -> Option<BTreeMap<Value, Vec<Vec<Dim>>>> {
    let mut wanted = BTreeMap::from([(top, vec![variables.to_vec()])]);
    for &v in members.iter().rev().filter(|v| **v != top) {
        let mut of: Vec<Vec<Dim>> = Vec::new();
        for (user, operand) in fuser.uses[v.0 as usize].clone() {
            for index in &wanted[&user] {
                let index = fuser.operand_index(user, operand, index);
                if !of.contains(&index) {
                    of.push(index);
                }
            }
        }
        if of.len() > MAX_MEMBERS {
            return None;
        }
        wanted.insert(v, of);
    }
    Some(wanted)
}

/// The members that each one depends on, itself included.
fn below(func: &Func, members: &BTreeSet<Value>) -> BTreeMap<Value, BTreeSet<Value>> {
    let mut below: BTreeMap<Value, BTreeSet<Value>> = BTreeMap::new();
    for &v in members {
        let mut of = BTreeSet::from([v]);
        for a in &func.node(v).args {
            of.extend(below.get(a).into_iter().flatten());
        }
        below.insert(v, of);
    }
    below
}

/// Does `from` depend on `to` by a way that does not lead through `without`?
fn reaches(func: &Func, members: &BTreeSet<Value>, from: Value, to: Value, without: Value) -> bool {
    let (mut seen, mut left) = (BTreeSet::from([from]), vec![from]);
    while let Some(v) = left.pop() {
        if v == without {
            continue;
        }
        if v == to {
            return true;
        }
        left.extend(func.node(v).args.iter().filter(|a| members.contains(a) && seen.insert(**a)));
    }
    false
}

pub(crate) fn emit(entry: &mut Entry, frame: &mut Frame<'_>, attention: &Attention, epilogue: &Epilogue) -> Result<()> {
    let func = frame.scope.func;
    let scores = attention.end_of_scores(func);
    let pair = Pair {
        attention,
        first: Product::new(func, &scores),
        second: Product::new(func, epilogue),
        rights: [&scores, epilogue]
            .map(|e| Product::new(func, e).right(entry, frame))
            .into_iter()
            .collect::<Result<Vec<_>>>()?,
    };
    let (mut kernel, bytes) = pair.kernel(entry, frame);
    let reads = &frame.fusion.reads[pair.second.left.0.0 as usize];
    kernel.in_place.retain(|v| !reads.contains(v));
    let output = entry.take_over_or_allocate(frame, epilogue.root, &kernel.in_place)?;
    let (scratch, memory) = entry.scratch(frame, &bytes)?;
    entry.launch(frame, kernel, output, Some(scratch))?;
    entry.give_back(scratch, memory);
    pair.rights.into_iter().for_each(|right| right.give_back(entry));
    Ok(())
}

/// Both products of an attention, and how they read their second operands.
struct Pair<'p> {
    attention: &'p Attention,
    first: Product<'p>,
    second: Product<'p>,
    rights: Vec<Right>,
}

impl Pair<'_> {
    /// The index of the scores, by batch, rows and column, where the second product has this index of its operand.
    fn scores_at(&self, operand: &[Dim]) -> [Vec<Dim>; 3] {
        let mut batch = self.attention.at(&self.attention.scores.index, operand);
        let mut rows = batch.split_off(self.first.left.1.batches());
        let column = rows.split_off(rows.len() - 1);
        [batch, rows, column]
    }

    /// The kernel, and the bytes that every worker needs.
    fn kernel(&self, entry: &mut Entry, frame: &Frame<'_>) -> (Kernel, Dim) {
        let Pair { attention, first, second, rights } = self;
        let mut builder = Builder::new(Kind::Kernel, &[]);
        let [begin, end, worker] = [builder.params()[0], builder.params()[1], builder.params()[2]];
        let site = Site::Kernel { args: vec![], pointers: HashMap::new() };
        let mut em = ElementEmitter::new(&mut builder, &mut entry.state, &frame.scope, site);
        let output = em.parameter(Ty::PTR, Arg::Output);
        let scratch = em.parameter(Ty::PTR, Arg::Scratch);

        // Loops over batches and rows that neither product finds hard to follow.
        let [first_sizes, sizes] = [first, second].map(|product| product.sizes_in(&mut em));
        let [batch0, rows0, columns0, depth0] = sizes.any_index(&mut em);
        let [.., scores_depth0] = first_sizes.any_index(&mut em);
        let positions = |em: &mut ElementEmitter<'_>, batch: &[Dim], rows: &[Dim]| {
            let [b, r, c] = self.scores_at(&second.left.1.index(batch, rows, &depth0));
            let mut all = second.epilogue.positions(em, &second.out_index(batch, rows, &columns0));
            all.extend(first.epilogue.positions(em, &first.out_index(&b, &r, &c)));
            all.extend(first.positions(em, &rights[0], [&b, &r, &c, &scores_depth0]));
            if !rights[1].is_packed() {
                all.push(second.right_position(em, batch, &columns0, &depth0));
            }
            all
        };
        let batch = em.nest(&sizes.batch, &[], &mut |em, i| positions(em, i, &rows0));
        let rows = em.nest(&sizes.rows, &[], &mut |em, i| positions(em, &batch0, i));
        let mut outer = [&batch.loops[..], &rows.loops].concat();
        let (row, count) = match rows.loops.is_empty() {
            true => (em.variable(&Dim::ONE), Dim::ONE),
            false => outer.pop().expect("not empty"),
        };

        // Scores of a block of rows, for every size of element that there is.
        let length = Dim::product(&sizes.depth);
        let (block, height) = (block(&em, attention, &length, &count), height(&em, attention, &length));
        // Rows begin with a cache line, and not all with one that falls into the same place of a cache.
        let lines = length.ceil_div(&Dim::Const(ALIGN / 4)).floor_div(&Dim::Const(2));
        let stride = em.state.size(&(&(&lines * &Dim::Const(ALIGN / 2)) + &Dim::Const(ALIGN / 4)));
        let elements = &stride * &Dim::Const(block);
        let mut places: BTreeMap<i64, Dim> = BTreeMap::new();
        let mut bytes = Dim::ZERO;
        for stage in &attention.stages {
            let size = scalar::memory(em.dtype(stage.value)).size();
            places.entry(size).or_insert_with(|| {
                let at = bytes.clone();
                bytes = &at + &(&(&elements * &Dim::Const(size)).ceil_div(&Dim::Const(ALIGN)) * &Dim::Const(ALIGN));
                at
            });
        }
        let each = em.uniform(&bytes);
        let own = em.b.mul(worker, each);
        let own = em.b.offset(scratch, own);

        let at = RowNest {
            batch: &batch.index,
            index: &rows.index,
            row: row.clone(),
            count: count.clone(),
            most: Some(block),
        };
        let [scores_batch, scores_rows, _] = self.scores_at(&second.left.1.index(&batch.index, &rows.index, &depth0));
        let scores_at = RowNest {
            batch: &scores_batch,
            index: &scores_rows,
            row: row.clone(),
            count: count.clone(),
            most: Some(block),
        };
        let unit_sizes: Vec<Dim> =
            outer.iter().map(|(_, n)| n.clone()).chain([count.ceil_div(&Dim::Const(block))]).collect();
        let extent = Dim::product(&unit_sizes);
        let unit = em.variable(&extent);
        let mut in_place = vec![];
        em.range(&unit.clone(), begin, end, &[], |em, _| {
            let number = unit_index(em, &outer, &unit_sizes, &unit).remove(0);
            let span = block_of_rows(em, &number, &count, (block, height));
            let first_row = em.fresh(false);
            em.symbols.insert(first_row.clone(), span.0);
            let from = second.left.1.index(&batch.index, &rows.index, &[Dim::ZERO]);
            let mut shape = em.shape(second.left.0);
            *shape.last_mut().expect("rows") = stride.clone();
            let start = linear(&from, &shape).subst(&|s| (*s == row).then(|| Dim::sym(first_row.clone())));
            let local = |em: &mut ElementEmitter<'_>, stage: &Stage| {
                let place = em.uniform(&places[&scalar::memory(em.dtype(stage.value)).size()]);
                let pointer = em.b.offset(own, place);
                Local { pointer, start: start.clone(), row: stride.clone(), length: elements.clone() }
            };
            let memory = local(em, &attention.stages[0]);
            let (gemm, ..) = first.gemm(em, &first_sizes, &scores_at, &rights[0], &mut |em, out| {
                first.epilogue.sink_in(em, memory.clone(), out)
            });
            gemm.all_panels(em, span);
            em.locals = HashMap::from([(attention.stages[0].value, memory)]);
            let (begin, end) = (span.0, em.b.add(span.0, span.1));
            em.range(&row, begin, end, &[], |em, _| {
                em.outermost = em.b.depth();
                for stage in &attention.stages[1..] {
                    let to = local(em, stage);
                    let column = em.variable(&length);
                    let operand = second.left.1.index(&batch.index, &rows.index, &[Dim::sym(column.clone())]);
                    write(em, stage.value, &attention.at(&stage.index, &operand), (&column, &length), &to);
                    em.locals = HashMap::from([(stage.value, to)]);
                }
                em.outermost = 0;
                vec![]
            });
            let (gemm, _, columns) =
                second.gemm(em, &sizes, &at, &rights[1], &mut |em, out| second.epilogue.sink(em, output, out));
            in_place = second.epilogue.in_place(em, &second.out_index(&batch.index, &rows.index, &columns));
            gemm.all_panels(em, span);
            em.locals.clear();
            vec![]
        });
        let depths = &Dim::product(&first_sizes.depth) + &Dim::product(&sizes.columns);
        let work = &(&length * &(&depths + &Dim::Const(32))) * &Dim::Const(ceil_div(block, 8));
        let Site::Kernel { args, .. } = em.site else { unreachable!("a kernel") };
        (Kernel { function: builder.finish("attention", vec![]), args, extent, work, in_place }, bytes)
    }
}

/// The rows of a tile.
fn height(em: &ElementEmitter<'_>, attention: &Attention, length: &Dim) -> i64 {
    i64::from(Tile::new(em.state.context.machine, em.dtype(attention.scores.value), length).rows)
}

/// The rows of a block.
fn block(em: &ElementEmitter<'_>, attention: &Attention, length: &Dim, rows: &Dim) -> i64 {
    let size = attention.stages.iter().map(|s| scalar::memory(em.dtype(s.value)).size()).max().unwrap_or(1);
    let row = length.as_const().unwrap_or(TYPICAL_ROW).max(1) * size;
    let height = height(em, attention, length);
    let most = (SCORES_BYTES / row).clamp(*SCORES_ROWS.start(), *SCORES_ROWS.end()) / height * height;
    match rows.as_const() {
        Some(n) => ceil_div(n.max(1), ceil_div(n.max(1), most)),
        None => most,
    }
}

/// Compute a row of a node.
fn write(em: &mut ElementEmitter<'_>, v: Value, index: &[Dim], (column, columns): (&Sym, &Dim), to: &Local) {
    let dtype = em.dtype(v);
    let mut reads = Reads::default();
    em.reads(v, index, &mut reads);
    let widest = reads.widest.max(scalar::memory(dtype).size() as u32);
    let lanes = if reads.scalars_only { 1 } else { em.state.context.machine.lanes(widest) };
    let lanes = em.lanes_along(column, lanes, &reads);
    let (zero, end) = (em.b.i64(0), em.uniform(columns));
    em.by_vectors(column, (zero, end), lanes, &[], &mut |_, _| vec![], &mut |em, _| {
        let x = em.value(v, index);
        em.store_in(v, index, to, x);
        vec![]
    });
}
