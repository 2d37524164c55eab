//! The kernel of an attention: both products, and what lies between them for a block of rows in memory of the worker.
use crate::{
    arg::Arg,
    contract::{Product, Right, RowNest},
    element::{ElementEmitter, Local},
    entry::{Entry, Frame},
    epilogue::Finish,
    gemm::{block_of_rows, unit_index},
    nest::Reads,
    pointwise::Kernel,
    tile::Tile,
};
use numrsc_facts::{Result, sizes::ceil_div};
use numrsc_ir::{
    Dim, Value,
    dim::Sym,
    kernel::{Kind, Ty, build::Builder},
};
use numrsc_scalar as scalar;
use numrsc_schedule::{
    attention::{Attention, Stage},
    epilogue::Epilogue,
    index::linear,
};
use std::collections::{BTreeMap, HashMap};

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
        let mut em = ElementEmitter::for_kernel(&mut builder, &mut entry.state, &frame.scope);
        let output = em.parameter(Ty::PTR, Arg::Output);
        let scratch = em.parameter(Ty::PTR, Arg::Scratch);

        // Loops over batches and rows that give both products simple addresses.
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
        // Rows start at cache lines, with a pitch that avoids mapping all of them to the same cache set.
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
        let args = em.into_arguments();
        (Kernel { function: builder.finish("attention", vec![]), args, extent, work, in_place }, bytes)
    }
}

/// Bytes of the scores of a block of rows, within the limits on its number of rows.
const SCORES_BYTES: i64 = 192 << 10;

const SCORES_ROWS: std::ops::RangeInclusive<i64> = 12..=96;

/// Assumed number of scores per row where it is not known.
const TYPICAL_ROW: i64 = 1024;

const ALIGN: i64 = 64;

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

/// The rows of a tile.
fn height(em: &ElementEmitter<'_>, attention: &Attention, length: &Dim) -> i64 {
    i64::from(Tile::new(em.state.context.machine, em.dtype(attention.scores.value), length).rows)
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
