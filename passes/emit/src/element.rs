//! Emits the code for one element of a tensor: inside a kernel, or in the entry function for scalars.
//!
//! [`ElementEmitter::value`] gives the code for an element at a symbolic index. What has a buffer is loaded; everything
//! else is computed on the spot from its operands, so that maps and views fuse into whoever asks. The builder moves
//! what does not change out of the loops.
use crate::{arg::Arg, index::Index, nest::Reads, tile::MemoryOperand};
use numrsc_ir::{
    DType, Dim, Op, Scalar, ScalarFn, Value,
    dim::Sym,
    kernel::{Binary, Block, Compare, Convert, Elem, Ty, V, build::Builder},
    scalar::Step,
};
use numrsc_scalar as scalar;
use numrsc_schedule::{
    fuse::Scope,
    index::{linear, mentions, view_index},
    state::LowerState,
};
use std::collections::{BTreeMap, HashMap};

/// Conditions of at least this many steps are computed only where their guard holds.
const GUARDED_STEPS: usize = 24;

/// The loop variable that runs along the lanes of vectors, its value in lane 0, and the mask of active lanes, if not
/// all are.
#[derive(Clone)]
pub(crate) struct Lane {
    pub sym: Sym,
    pub base: V,
    pub mask: Option<V>,
}

impl Local {
    /// The row-major position of an element in a tensor of this shape.
    pub(crate) fn position(&self, index: &[Dim], shape: &[Dim]) -> Dim {
        let (before, _) = shape.split_at(shape.len().saturating_sub(1));
        let row = shape.last().map(|_| self.row.clone());
        linear(index, &before.iter().cloned().chain(row).collect::<Vec<_>>())
    }
}

/// Where the code under construction is.
pub(crate) enum Site<'c> {
    /// A kernel: values from outside become parameters.
    Kernel { args: Vec<Arg>, pointers: HashMap<Value, V> },
    /// The entry function, where memory changes between one statement and the next.
    Entry { symbols: &'c HashMap<Sym, V> },
}

/// Scratch memory of the kernel that holds part of a tensor: the elements from position `start` on, where positions are
/// row-major with `row` elements in the last axis.
#[derive(Clone)]
pub(crate) struct Local {
    pub pointer: V,
    pub start: Dim,
    pub row: Dim,
    pub length: Dim,
}

/// Which lanes of a vector are being computed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ComputedLanes {
    /// All of them, or the only one.
    All,
    /// One alone, of this number.
    One(u32),
    /// What is the same in all of them, once.
    Uniform,
}

/// The place of a computed element: node, index, lanes, number of lanes.
pub(crate) type Key = (Value, Vec<Dim>, ComputedLanes, u32);

pub(crate) struct ElementEmitter<'c> {
    pub b: &'c mut Builder,
    pub state: &'c mut LowerState,
    pub scope: &'c Scope<'c>,
    pub site: Site<'c>,
    /// Values of symbols: loop variables, sizes, indices that were loaded.
    pub symbols: HashMap<Sym, V>,
    /// The extent of each loop variable.
    pub extents: HashMap<Sym, Dim>,
    pub lane: Option<Lane>,
    pub lanes: u32,
    /// Loaded indices that differ from lane to lane.
    pub varying: BTreeMap<Sym, Vec<V>>,
    pub computing: ComputedLanes,
    /// The product whose kernel this is, and the element of it (one per lane) that is being finished.
    pub given: Option<(Value, V)>,
    /// Nodes that the kernel currently keeps in scratch memory.
    pub locals: HashMap<Value, Local>,
    /// The outermost loop depth at which reductions may be emitted: what they read is written inside of it.
    pub outermost: usize,
    /// Elements that were computed already.
    pub computed: HashMap<Key, V>,
    /// Symbols of loaded indices, by node and index.
    loaded: HashMap<Key, Sym>,
    next_symbol: u32,
}

impl<'c> ElementEmitter<'c> {
    /// At the beginning of a kernel.
    pub(crate) fn for_kernel(
        b: &'c mut Builder,
        state: &'c mut LowerState,
        scope: &'c Scope<'c>,
    ) -> ElementEmitter<'c> {
        ElementEmitter::new(b, state, scope, Site::Kernel { args: vec![], pointers: HashMap::new() })
    }

    /// What the entry passes for the parameters of the kernel.
    pub(crate) fn into_arguments(self) -> Vec<Arg> {
        let Site::Kernel { args, .. } = self.site else { unreachable!("a kernel") };
        args
    }

    pub(crate) fn new(
        b: &'c mut Builder,
        state: &'c mut LowerState,
        scope: &'c Scope<'c>,
        site: Site<'c>,
    ) -> ElementEmitter<'c> {
        b.halves = state.context.machine.halves;
        b.fused = state.context.machine.fused;
        ElementEmitter {
            b,
            state,
            scope,
            site,
            symbols: HashMap::new(),
            extents: HashMap::new(),
            lane: None,
            lanes: 1,
            varying: BTreeMap::new(),
            computing: ComputedLanes::All,
            given: None,
            locals: HashMap::new(),
            outermost: 0,
            computed: HashMap::new(),
            loaded: HashMap::new(),
            next_symbol: 0,
        }
    }

    pub(crate) fn dtype(&self, v: Value) -> DType {
        self.scope.dtype(v)
    }

    /// The shape of a node, with sizes as polynomials of plain symbols.
    pub(crate) fn shape(&mut self, v: Value) -> Vec<Dim> {
        self.scope.shape(v).iter().map(|d| self.state.size(d)).collect()
    }

    /// A new symbol; `any` if it may be negative.
    pub(crate) fn fresh(&mut self, any: bool) -> Sym {
        self.next_symbol += 1;
        format!("{}#{}", if any { "$" } else { "" }, self.next_symbol).into()
    }

    /// A new variable of a loop of that many rounds.
    pub(crate) fn variable(&mut self, extent: &Dim) -> Sym {
        let s = self.fresh(false);
        self.extents.insert(s.clone(), extent.clone());
        s
    }

    pub(crate) fn symbol(&mut self, s: &Sym) -> V {
        if let Some(&v) = self.symbols.get(s) {
            return v;
        }
        let v = match &mut self.site {
            Site::Kernel { args, .. } => {
                args.push(Arg::Size(Dim::sym(s.clone())));
                self.b.add_param(Ty::I64)
            }
            Site::Entry { symbols } => match symbols.get(s) {
                Some(&v) => return v,
                None => {
                    let meaning = self.state.meaning(s).unwrap_or_else(|| panic!("`{s}` is defined before it is used"));
                    return self.uniform(&meaning);
                }
            },
        };
        self.symbols.insert(s.clone(), v);
        v
    }

    /// The address of a buffer.
    pub(crate) fn pointer(&mut self, v: Value) -> V {
        match &mut self.site {
            Site::Kernel { args, pointers } => *pointers.entry(v).or_insert_with(|| {
                args.push(Arg::Pointer(v));
                self.b.add_param(Ty::PTR)
            }),
            Site::Entry { .. } => self.scope.buffers[&v].pointer,
        }
    }

    /// An extra parameter of the kernel.
    pub(crate) fn parameter(&mut self, ty: Ty, arg: Arg) -> V {
        match &mut self.site {
            Site::Kernel { args, .. } => args.push(arg),
            Site::Entry { .. } => unreachable!("the entry takes no parameters"),
        }
        self.b.add_param(ty)
    }

    /// With `--sanitize`: fails unless `index .. index + lanes` lies in a buffer of that many elements.
    pub(crate) fn check_bounds(&mut self, length: &Dim, index: V, lanes: u32, readable_if_empty: bool) {
        if !self.state.context.options.sanitize || matches!(self.site, Site::Entry { .. }) {
            return;
        }
        let code = self.state.message("an access outside of a buffer: a bug of the compiler");
        let mut length = self.uniform(length);
        if readable_if_empty {
            let one = self.b.i64(1);
            length = self.b.binary(Binary::SMax, length, one);
        }
        let lanes = self.b.i64(i64::from(lanes));
        let end = self.b.add(index, lanes);
        let zero = self.b.i64(0);
        let (low, high) = (self.b.compare(Compare::Le, zero, index), self.b.compare(Compare::Le, end, length));
        let inside = self.b.and(low, high);
        let level = self.b.level(inside).max(self.b.guard_level());
        self.b.at_level(level, |b| b.check(inside, code));
    }

    /// Load elements of a buffer at a position, as numbers.
    pub(crate) fn load(&mut self, v: Value, position: &Dim) -> V {
        let place = self.place(v, position.clone());
        let dtype = place.dtype;
        let raw = match self.index(&place.position) {
            Index::Uniform(i) => {
                let raw = self.load_raw(&place, i, 1);
                let x = scalar::decode(self.b, dtype, raw);
                return self.b.splat(x, self.lanes);
            }
            Index::Steps(first, 1) => self.load_raw(&place, first, self.lanes),
            Index::Steps(first, -1) => {
                let back = self.b.i64(i64::from(self.lanes) - 1);
                let low = self.b.sub(first, back);
                let raw = self.load_raw(&place, low, self.lanes);
                self.b.shuffle(raw, raw, (0..self.lanes).rev().collect())
            }
            Index::Steps(first, step) => {
                let lanes: Vec<V> = (0..i64::from(self.lanes))
                    .map(|l| {
                        let offset = self.b.i64(l * step);
                        let i = self.b.add(first, offset);
                        self.load_raw(&place, i, 1)
                    })
                    .collect();
                self.b.vector(&lanes)
            }
            Index::Lanes(indices) => {
                let lanes: Vec<V> = indices.into_iter().map(|i| self.load_raw(&place, i, 1)).collect();
                self.b.vector(&lanes)
            }
        };
        scalar::decode(self.b, dtype, raw)
    }

    fn load_raw(&mut self, place: &MemoryOperand, index: V, lanes: u32) -> V {
        let ty = Ty::vector(scalar::memory(place.dtype), lanes);
        let fixed = matches!(self.site, Site::Kernel { .. }) && !place.changes;
        if let Some(mask) = self.mask().filter(|_| lanes > 1) {
            let load = if fixed { Builder::load_fixed_masked } else { Builder::load_masked };
            return load(self.b, ty, place.pointer, index, mask);
        }
        self.check_bounds(&place.length, index, lanes, true);
        let load = if fixed { Builder::load_fixed } else { Builder::load };
        load(self.b, ty, place.pointer, index)
    }

    /// The mask of active lanes, if not all are.
    pub(crate) fn mask(&self) -> Option<V> {
        self.lane.as_ref()?.mask
    }

    /// Does a node have a buffer?
    pub(crate) fn is_stored(&self, v: Value) -> bool {
        self.locals.contains_key(&v) || self.scope.has_buffer(v)
    }

    /// The position of an element of a tensor in memory, by its index in a shape of the same order.
    pub(crate) fn position(&self, v: Value, index: &[Dim], shape: &[Dim]) -> Dim {
        match self.locals.get(&v) {
            Some(local) => local.position(index, shape),
            None => linear(index, shape),
        }
    }

    /// The element of a node at an index, as a number in every lane.
    pub(crate) fn value(&mut self, v: Value, index: &[Dim]) -> V {
        let key = (v, index.to_vec(), self.computing, self.lanes);
        if let Some(&x) = self.computed.get(&key)
            && self.b.is_visible(x)
        {
            return x;
        }
        let x = self.compute(v, index);
        // In the entry, memory may change before the next use.
        if matches!(self.site, Site::Kernel { .. }) {
            self.computed.insert(key, x);
        }
        x
    }

    fn compute(&mut self, v: Value, index: &[Dim]) -> V {
        if let Some((product, x)) = self.given
            && product == v
        {
            return match self.computing {
                ComputedLanes::All => x,
                ComputedLanes::Uniform => self.b.extract(x, 0),
                ComputedLanes::One(lane) => self.b.extract(x, lane),
            };
        }
        if self.is_stored(v) {
            let shape = self.shape(v);
            return self.load(v, &self.position(v, index, &shape));
        }
        let node = self.scope.func.node(v);
        let args = &node.args;
        match &node.op {
            Op::Const { value } => {
                let literal = numrsc_facts::constants::scalar_literal(value).expect("larger constants have a buffer");
                scalar::literal(self.b, &literal, self.lanes)
            }
            Op::Bind { dim } => {
                let x = self.symbol(dim);
                self.b.splat(x, self.lanes)
            }
            Op::Size { dim } => {
                let dim = self.state.attribute(dim);
                let x = self.uniform(&dim);
                self.b.splat(x, self.lanes)
            }
            Op::Iota { dtype: DType::I32, axis, .. } if self.lanes > 1 => self.index_value32(&index[*axis as usize]),
            Op::Iota { dtype, axis, .. } => {
                let x = self.index_value(&index[*axis as usize]);
                scalar::call(self.b, numrsc_ir::ScalarFn::Cast, &[DType::I64], *dtype, &[x])
            }
            Op::Map { f } if self.guard_of(f, args).is_some() => self.guarded(f, args, index),
            Op::Map { f } => {
                let dtypes: Vec<DType> = args.iter().map(|&a| self.dtype(a)).collect();
                let xs: Vec<V> = args.iter().map(|&a| self.value(a, index)).collect();
                scalar::expression(self.b, f, &dtypes, &xs)
            }
            Op::Gather { axis, batch } => {
                let at = self.gathered(v, *axis as usize, *batch as usize, index);
                self.value(args[0], &at)
            }
            Op::Reduce { f, axes } => self.reduced(v, *f, axes, index),
            Op::Arg { f, axis, last } => self.chosen(args[0], *f, *axis as usize, *last, index),
            // A window over no axes is one element.
            Op::Window { .. } => self.value(args[0], index),
            op @ (Op::Reshape { .. } | Op::Transpose { .. } | Op::Broadcast { .. } | Op::Slice { .. }) => {
                match self.view(op, args, index) {
                    Some((x, View::Index(index))) => self.value(x, &index),
                    Some((x, View::Position(p))) => self.load(x, &p),
                    None => unreachable!("`{op}` is a view"),
                }
            }
            Op::Param { .. }
            | Op::Pad { .. }
            | Op::Concat { .. }
            | Op::Scatter { .. }
            | Op::Scan { .. }
            | Op::ArgSort { .. }
            | Op::Compress { .. }
            | Op::Contract { .. }
            | Op::Conv { .. }
            | Op::If { .. }
            | Op::Loop { .. }
            | Op::Get { .. }
            | Op::SeqMake { .. }
            | Op::SeqLen {}
            | Op::SeqAt { .. }
            | Op::SeqInsert { .. }
            | Op::SeqErase {} => unreachable!("`{}` has a buffer", node.op),
        }
    }

    /// The operand that a view reads, and the index in it.
    pub(crate) fn view(&mut self, op: &Op, args: &[Value], index: &[Dim]) -> Option<(Value, View)> {
        if let Op::Reshape { shape } = op
            && self.is_stored(args[0])
        {
            let to: Vec<Dim> = shape.iter().map(|d| self.state.size(d)).collect();
            let rows_stay = self.shape(args[0]).last() == to.last();
            if rows_stay || !self.locals.contains_key(&args[0]) {
                return Some((args[0], View::Position(self.position(args[0], index, &to))));
            }
        }
        let of = if args.len() == 1 { self.shape(args[0]) } else { vec![] };
        let at = view_index(op, &of, index, &self.extents, self.state)?;
        Some((args[0], View::Index(at)))
    }

    /// An index as i64 numbers in every lane.
    pub(crate) fn index_value(&mut self, x: &Dim) -> V {
        match self.index(x) {
            Index::Uniform(i) => self.b.splat(i, self.lanes),
            Index::Steps(first, step) => {
                let ty = Ty::vector(numrsc_ir::kernel::Elem::I64, self.lanes);
                let (first, iota, step) = (self.b.splat(first, self.lanes), self.b.iota(ty), self.b.int(ty, step));
                let offsets = self.b.mul(iota, step);
                self.b.add(first, offsets)
            }
            Index::Lanes(lanes) => self.b.vector(&lanes),
        }
    }

    /// The low half of an index as `i32` numbers in every lane.
    fn index_value32(&mut self, x: &Dim) -> V {
        let Index::Steps(first, step) = self.index(x) else {
            let wide = self.index_value(x);
            return self.b.convert(Convert::Narrow, wide, Elem::I32);
        };
        let ty = Ty::vector(Elem::I32, self.lanes);
        let first = self.b.convert(Convert::Narrow, first, Elem::I32);
        let (first, iota, step) = (self.b.splat(first, self.lanes), self.b.iota(ty), self.b.int(ty, step));
        let offsets = self.b.mul(iota, step);
        self.b.add(first, offsets)
    }

    /// The operand without which a long condition does not hold, if it is in memory.
    #[allow(clippy::wildcard_enum_match_arm, reason = "looks for conditions among the steps")]
    fn guard_of(&self, f: &Scalar, args: &[Value]) -> Option<usize> {
        if f.steps().len() < GUARDED_STEPS || self.lane.is_none() || !self.in_kernel() {
            return None;
        }
        let mut conjuncts = vec![f.steps().len() - 1];
        while let Some(at) = conjuncts.pop() {
            match &f.steps()[at] {
                Step::Arg(n) if self.dtype(args[*n as usize]) == DType::Bool && self.is_stored(args[*n as usize]) => {
                    return Some(*n as usize);
                }
                Step::Call(c) if c.f == ScalarFn::And => conjuncts.extend(c.args.iter().map(|&a| a as usize)),
                _ => {}
            }
        }
        None
    }

    /// A long condition, computed only if its guard holds in some lane.
    fn guarded(&mut self, f: &Scalar, args: &[Value], index: &[Dim]) -> V {
        let guard = self.guard_of(f, args).expect("a guard");
        let dtypes: Vec<DType> = args.iter().map(|&a| self.dtype(a)).collect();
        let lane = self.lane.as_ref().map(|lane| lane.sym.clone());
        for (n, &a) in args.iter().enumerate() {
            // Values that are the same in all lanes are computed before the branch, so that they can leave the loop.
            let mut reads = Reads::default();
            self.reads(a, index, &mut reads);
            if n == guard || !reads.positions.iter().any(|p| lane.as_ref().is_some_and(|s| mentions(p, s))) {
                self.value(a, index);
            }
        }
        let holds = self.value(args[guard], index);
        let (any, none) = (self.b.reduce(Binary::Or, holds), self.b.bits(Ty::vector(Elem::I1, self.lanes), 0));
        self.b.open_branch();
        let xs: Vec<V> = args.iter().map(|&a| self.value(a, index)).collect();
        let x = scalar::expression(self.b, f, &dtypes, &xs);
        let then = self.b.close_branch(vec![x]);
        let or = Block { stmts: vec![], results: vec![none] };
        self.b.close_if(any, then, or)[0]
    }

    /// The index at which a gather reads its operand; the loaded index becomes a symbol.
    fn gathered(&mut self, v: Value, axis: usize, batch: usize, index: &[Dim]) -> Vec<Dim> {
        let args = &self.scope.func.node(v).args;
        let (x, indices) = (args[0], args[1]);
        let count = self.scope.shape(indices).len() - batch;
        let inner = [&index[..batch], &index[axis..axis + count]].concat();
        let key = (v, inner.clone(), self.computing, self.lanes);
        let known = self.loaded.get(&key).filter(|s| {
            let values = self.varying.get(*s).map(|v| v[0]).or_else(|| self.symbols.get(*s).copied());
            values.is_some_and(|v| self.b.is_visible(v))
        });
        let name = match known.cloned() {
            Some(name) => name,
            None => {
                let size = self.shape(x)[axis].clone();
                let name = self.fresh(false);
                let varies = self.lane.is_some() && inner.iter().any(|d| !matches!(self.index(d), Index::Uniform(_)));
                if varies {
                    let lanes = self.load_indices(indices, &inner, &size);
                    self.varying.insert(name.clone(), lanes);
                } else {
                    let i = self.in_all_lanes(|em| em.load_index(indices, &inner, &size));
                    self.symbols.insert(name.clone(), i);
                }
                if matches!(self.site, Site::Kernel { .. }) {
                    self.loaded.insert(key, name.clone());
                }
                name
            }
        };
        [&index[..axis], &[Dim::sym(name)], &index[axis + count..]].concat()
    }

    /// An element of an index tensor that must lie inside an axis of this size.
    pub(crate) fn load_index(&mut self, indices: Value, at: &[Dim], size: &Dim) -> V {
        let i = self.value(indices, at);
        self.check_index(indices, i, size);
        i
    }

    /// An element of an index tensor for every lane. Computed indices are computed as a vector; stored ones are loaded
    /// lane by lane, since that is how they are used.
    fn load_indices(&mut self, indices: Value, at: &[Dim], size: &Dim) -> Vec<V> {
        if !matches!(self.scope.func.node(indices).op, Op::Map { .. }) || self.is_stored(indices) {
            return (0..self.lanes).map(|l| self.in_lane(l, |em| em.load_index(indices, at, size))).collect();
        }
        let all = self.value(indices, at);
        let lanes: Vec<V> = (0..self.lanes).map(|l| self.b.extract(all, l)).collect();
        lanes.iter().for_each(|&i| self.check_index(indices, i, size));
        lanes
    }

    fn check_index(&mut self, indices: Value, i: V, size: &Dim) {
        if size.as_const().is_some_and(|n| numrsc_facts::ranges::fits_axis(self.scope.func, indices, n)) {
            return;
        }
        let size = self.uniform(size);
        let inside = self.b.compare(Compare::ULt, i, size);
        let code = self.state.message("an index lies outside of its axis");
        let level = self.b.level(inside).max(self.b.guard_level());
        let level = if matches!(self.site, Site::Entry { .. }) { self.b.depth() } else { level };
        self.b.at_level(level, |b| b.check(inside, code));
    }

    /// Write numbers to consecutive elements (one per lane) of a tensor of which memory holds a part.
    pub(crate) fn store_in(&mut self, v: Value, index: &[Dim], to: &Local, x: V) {
        let shape = self.shape(v);
        let position = &to.position(index, &shape) - &to.start;
        self.store(self.dtype(v), to.pointer, &position, &to.length, x);
    }

    /// Write numbers to consecutive elements (one per lane) of a buffer of the given length.
    #[allow(clippy::wildcard_enum_match_arm, reason = "an index that is not consecutive is one per lane")]
    pub(crate) fn store(&mut self, dtype: DType, pointer: V, position: &Dim, length: &Dim, x: V) {
        let raw = scalar::encode(self.b, dtype, x);
        match self.index(position) {
            Index::Uniform(i) | Index::Steps(i, 1) => match self.mask() {
                Some(mask) => self.b.store_masked(pointer, i, raw, mask),
                None => {
                    self.check_bounds(length, i, self.lanes, false);
                    self.b.store(pointer, i, raw);
                }
            },
            other => {
                for l in 0..self.lanes {
                    let i = match &other {
                        Index::Steps(first, step) => {
                            let offset = self.b.i64(i64::from(l) * step);
                            self.b.add(*first, offset)
                        }
                        Index::Lanes(lanes) => lanes[l as usize],
                        Index::Uniform(i) => *i,
                    };
                    self.check_bounds(length, i, 1, false);
                    let lane = self.b.extract(raw, l);
                    self.b.store(pointer, i, lane);
                }
            }
        }
    }

    /// The outermost loop depth at which all symbols of an index are known and memory may be read.
    pub(crate) fn level_of(&mut self, index: &[Dim]) -> usize {
        if matches!(self.site, Site::Entry { .. }) {
            return self.b.depth();
        }
        let mut symbols = Vec::new();
        index.iter().for_each(|d| d.for_each_sym(&mut |s| symbols.push(s.clone())));
        let mut level = self.b.guard_level().max(self.outermost);
        for s in symbols {
            let values = match self.varying.get(&s) {
                Some(lanes) => lanes.clone(),
                None => vec![self.symbol(&s)],
            };
            values.into_iter().for_each(|v| level = level.max(self.b.level(v)));
        }
        level
    }
}

/// What a view makes of an index: another index, or a position in its operand's buffer.
pub(crate) enum View {
    Index(Vec<Dim>),
    Position(Dim),
}
