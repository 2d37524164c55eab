//! One method per kind of op: each picks operands that fit and pushes a node that evaluates without error.
use super::*;

impl Generator {
    pub(super) fn iota(&mut self) -> Option<Value> {
        let dtype = *self.rng.pick(&[DType::F32, DType::I64, DType::I32, DType::F16, DType::U8]);
        let rank = 1 + self.rng.below(2);
        let (shape, axis) = (self.shape(rank), self.rng.below(rank) as i64);
        self.push(Op::Iota { dtype, shape, axis }, &[])
    }

    /// Name a computed size of 1 to 3 and use it.
    pub(super) fn bind(&mut self) -> Option<Value> {
        let x = match self.find(|t| t.dtype == DType::I64 && t.rank() == 0) {
            Some(x) => x,
            None => {
                let d = self.size();
                self.push(Op::Size { dim: d }, &[])?
            }
        };
        let lit = |x: i128| Step::Lit(Lit::int(DType::I64, x));
        let call = |f, args| Step::Call(Call { f, args, to: None });
        let steps = [Step::Arg(0), lit(3), call(ScalarFn::Mod, vec![0, 1]), lit(1), call(ScalarFn::Add, vec![2, 3])];
        let size = self.push(Op::Map { f: Scalar::new(&steps, 4) }, &[x])?;
        let name = self.fresh("k");
        self.push(Op::Bind { dim: name.clone() }, &[size])?;
        self.sizes.push(name.clone());
        let dtype = *self.rng.pick(&[DType::F32, DType::I64]);
        self.push(Op::Iota { dtype, shape: vec![Dim::sym(name)], axis: 0 }, &[])
    }

    pub(super) fn map(&mut self) -> Option<Value> {
        let x = self.any()?;
        let shape = self.ty(x).shape;
        let mut args = vec![x];
        for _ in 0..self.rng.below(3) {
            args.push(self.find(|t| t.shape == shape)?);
        }
        let dtypes: Vec<DType> = args.iter().map(|a| self.ty(*a).dtype).collect();
        let f = scalar(&mut self.rng, &dtypes, self.config.special);
        self.push(Op::Map { f }, &args)
    }

    pub(super) fn reshape(&mut self) -> Option<Value> {
        let x = self.any()?;
        let mut shape = self.ty(x).shape;
        match self.rng.below(4) {
            0 => shape.reverse(),
            1 => shape = vec![Dim::product(&shape)],
            2 => shape.insert(self.rng.below(shape.len() + 1), Dim::ONE),
            _ if shape.len() > 1 => {
                let last = shape.pop()?;
                let merged = &shape.pop()? * &last;
                shape.push(merged);
            }
            _ => {}
        }
        self.push(Op::Reshape { shape }, &[x])
    }

    pub(super) fn transpose(&mut self) -> Option<Value> {
        let x = self.find(|t| t.rank() > 1)?;
        let mut perm: Vec<i64> = (0..self.ty(x).rank() as i64).collect();
        for i in (1..perm.len()).rev() {
            perm.swap(i, self.rng.below(i + 1));
        }
        self.push(Op::Transpose { perm }, &[x])
    }

    pub(super) fn broadcast(&mut self) -> Option<Value> {
        let x = self.find(|t| t.rank() < 4)?;
        let (mut shape, mut axes) = (vec![], vec![]);
        for d in &self.ty(x).shape {
            if self.rng.one_in(3) {
                shape.push(self.size());
            }
            axes.push(shape.len() as i64);
            shape.push(if *d == Dim::ONE && self.rng.one_in(2) { self.size() } else { d.clone() });
        }
        if shape.is_empty() || self.rng.one_in(4) {
            shape.push(self.size());
        }
        self.push(Op::Broadcast { shape, axes }, &[x])
    }

    pub(super) fn slice(&mut self) -> Option<Value> {
        let x = self.find(|t| t.rank() > 0)?;
        let (mut starts, mut sizes, mut steps) = (vec![], vec![], vec![]);
        for d in &self.ty(x).shape {
            let low = d.range(&range_of).low;
            let last = d - &Dim::ONE;
            let (start, size, step) = match (self.rng.below(4), d.as_const()) {
                (0, _) => (last, d.clone(), -1),
                (1, _) if low > 0 => (last, Dim::ONE, 1),
                (2, Some(n)) if n > 0 => {
                    let step = self.rng.between(1, 2);
                    let start = self.rng.between(0, n - 1);
                    (Dim::Const(start), Dim::Const((n - 1 - start) / step + 1), step)
                }
                (2 | 3, None) if low > 0 => (Dim::ZERO, d.lesser(&Dim::Const(2)), 1),
                _ => (Dim::ZERO, d.clone(), 1),
            };
            starts.push(start);
            sizes.push(size);
            steps.push(step);
        }
        self.push(Op::Slice { starts, sizes, steps }, &[x])
    }

    pub(super) fn pad(&mut self) -> Option<Value> {
        let x = self.find(|t| t.rank() > 0)?;
        let ty = self.ty(x);
        let value = self.constant(ty.dtype, vec![]);
        let mut amount = |d: &Dim| {
            let crop = i64::from(d.range(&range_of).low > 2);
            Dim::Const(self.rng.between(-crop, 2))
        };
        let low = ty.shape.iter().map(&mut amount).collect();
        let high = ty.shape.iter().map(&mut amount).collect();
        self.push(Op::Pad { low, high }, &[x, value])
    }

    pub(super) fn concat(&mut self) -> Option<Value> {
        let x = self.find(|t| t.rank() > 0)?;
        let ty = self.ty(x);
        let axis = self.rng.below(ty.rank());
        let same = |t: &TensorType| {
            t.dtype == ty.dtype
                && t.rank() == ty.rank()
                && (0..t.rank()).all(|i| i == axis || t.shape[i] == ty.shape[i])
        };
        let args: Vec<Value> = (0..1 + self.rng.below(3)).filter_map(|_| self.find(same)).collect();
        self.push(Op::Concat { axis: axis as i64 }, &args)
    }

    /// Indices into an axis of size `d`, in range whatever the values are.
    pub(super) fn indices(&mut self, shape: &[Dim], d: &Dim) -> Option<Value> {
        let raw = match self.find(|t| t.dtype == DType::I64 && t.shape == shape) {
            Some(v) => v,
            None if shape.is_empty() => self.int(3),
            None => {
                self.push(Op::Iota { dtype: DType::I64, shape: shape.to_vec(), axis: shape.len() as i64 - 1 }, &[])?
            }
        };
        let size = self.f.push(Op::Size { dim: d.clone() }, &[]).ok()?;
        let size = self.broadcast_scalar(size, shape);
        self.push(Op::Map { f: Scalar::call(ScalarFn::Mod) }, &[raw, size])
    }

    pub(super) fn gather(&mut self) -> Option<Value> {
        let x = self.find(|t| t.rank() > 0 && t.shape.iter().all(|d| d.range(&range_of).low > 0))?;
        let shape = self.ty(x).shape;
        let axis = self.rng.below(shape.len());
        let batch = if self.rng.one_in(2) { 0 } else { self.rng.below(axis + 1) };
        let mut index_shape = shape[..batch].to_vec();
        for _ in 0..self.rng.below(3) {
            index_shape.push(self.size());
        }
        let indices = self.indices(&index_shape, &shape[axis])?;
        self.push(Op::Gather { axis: axis as i64, batch: batch as i64 }, &[x, indices])
    }

    pub(super) fn scatter(&mut self) -> Option<Value> {
        let x = self.find(|t| t.rank() > 0 && t.shape[0].range(&range_of).low > 0)?;
        let ty = self.ty(x);
        let count = self.size();
        let indices = self.indices(&[count], &ty.shape[0])?;
        let rows = self.push(Op::Gather { axis: 0, batch: 0 }, &[x, indices])?;
        let updates = if self.rng.one_in(3) { rows } else { self.of_type(&self.ty(rows)) };
        let all = [ScatterFn::Set, ScatterFn::Max, ScatterFn::Min, ScatterFn::Add, ScatterFn::Mul];
        let f = *self.rng.pick(if ty.dtype == DType::Bool { &all[..3] } else { &all });
        self.push(Op::Scatter { f }, &[x, indices, updates])
    }

    pub(super) fn reduce_fn(&mut self, dtype: DType) -> ReduceFn {
        let all = [ReduceFn::Max, ReduceFn::Min, ReduceFn::Sum, ReduceFn::Prod];
        *self.rng.pick(if dtype == DType::Bool { &all[..2] } else { &all })
    }

    pub(super) fn reduce(&mut self) -> Option<Value> {
        let x = self.find(|t| t.rank() > 0)?;
        let ty = self.ty(x);
        let f = self.reduce_fn(ty.dtype);
        let axis = self.rng.below(ty.rank()) as i64;
        if self.rng.one_in(3) {
            let (exclusive, reverse) = (self.rng.one_in(2), self.rng.one_in(2));
            return self.push(Op::Scan { f, axis, exclusive, reverse }, &[x]);
        }
        let axes = if self.rng.one_in(3) {
            (0..ty.rank() as i64).filter(|_| self.rng.one_in(2)).collect()
        } else {
            vec![axis]
        };
        self.push(Op::Reduce { f, axes }, &[x])
    }

    pub(super) fn order(&mut self) -> Option<Value> {
        let x = self.find(|t| t.rank() > 0 && t.shape.iter().all(|d| d.range(&range_of).low > 0))?;
        let axis = self.rng.below(self.ty(x).rank()) as i64;
        if self.rng.one_in(2) {
            let descending = self.rng.one_in(2);
            return self.push(Op::ArgSort { axis, descending }, &[x]);
        }
        let f = *self.rng.pick(&[ReduceFn::Max, ReduceFn::Min]);
        let last = self.rng.one_in(2);
        self.push(Op::Arg { f, axis, last }, &[x])
    }

    /// The positions of some elements of a vector, and these elements.
    pub(super) fn compress(&mut self) -> Option<Value> {
        let x = self.find(|t| t.rank() == 1 && t.shape[0].range(&range_of).low > 0)?;
        let ty = self.ty(x);
        let zero = self.constant(ty.dtype, vec![]);
        let zero = self.broadcast_scalar(zero, &ty.shape);
        let mask = self.push(Op::Map { f: Scalar::call(ScalarFn::Lt) }, &[zero, x])?;
        let count = self.fresh("z");
        let indices = self.push(Op::Compress { count }, &[mask])?;
        self.push(Op::Gather { axis: 0, batch: 0 }, &[x, indices])
    }

    pub(super) fn contract(&mut self) -> Option<Value> {
        let a = self.number()?;
        let a_ty = self.ty(a);
        let b = self.find(|t| t.dtype == a_ty.dtype)?;
        let b_ty = self.ty(b);
        let (mut a_batch, mut b_batch, mut a_sum, mut b_sum) = (vec![], vec![], vec![], vec![]);
        for (i, d) in a_ty.shape.iter().enumerate() {
            let free =
                |j: &usize| b_ty.shape[*j] == *d && !b_batch.contains(&(*j as i64)) && !b_sum.contains(&(*j as i64));
            let Some(j) = (0..b_ty.rank()).find(free) else { continue };
            match self.rng.below(3) {
                0 => (a_batch.push(i as i64), b_batch.push(j as i64)),
                1 => (a_sum.push(i as i64), b_sum.push(j as i64)),
                _ => ((), ()),
            };
        }
        self.push(Op::Contract { a_batch, b_batch, a_sum, b_sum }, &[a, b])
    }

    pub(super) fn conv(&mut self) -> Option<Value> {
        if self.rng.one_in(3) {
            return self.blocked_conv();
        }
        let x = self.find(|t| {
            (t.dtype.is_float() || t.dtype.is_int())
                && t.rank() > 0
                && t.rank() < 3
                && t.shape.iter().all(|d| d.range(&range_of).low > 0)
        })?;
        let ty = self.ty(x);
        let (groups, out) = *self.rng.pick(&[(1usize, 2usize), (1, 1), (2, 2), (2, 4)]);
        let channels = groups * (1 + self.rng.below(2));
        let shape = [&[Dim::ONE, dim(channels)], &ty.shape[..]].concat();
        let axes = (2..shape.len() as i64).collect();
        let x = self.push(Op::Broadcast { shape, axes }, &[x])?;
        let kernel: Vec<usize> = (0..ty.rank()).map(|_| 1 + self.rng.below(3)).collect();
        let w = self.constant(ty.dtype, [&[out, channels / groups], &kernel[..]].concat());
        let mut per_axis = |high: i64| -> Vec<i64> { (0..ty.rank()).map(|_| self.rng.between(1, high)).collect() };
        let (strides, dilations, spread) = (per_axis(2), per_axis(2), per_axis(2));
        // Enough padding for at least one window.
        let reach = |i: usize| (kernel[i] as i64 - 1) * dilations[i];
        let low = (0..ty.rank()).map(|i| Dim::Const(reach(i) / 2)).collect();
        let high = (0..ty.rank()).map(|i| Dim::Const(reach(i) - reach(i) / 2)).collect();
        self.push(
            Op::Conv { strides, dilations, spread, low, high, groups: groups as i64, in_block: 1, out_block: 1 },
            &[x, w],
        )
    }

    /// A convolution over blocks of channels, with some that lowering has kernels for and some that it has not.
    fn blocked_conv(&mut self) -> Option<Value> {
        let positive = |t: &TensorType| t.shape.iter().all(|d| d.range(&range_of).low > 0);
        let x = self.find(|t| t.dtype == DType::F32 && (1..3).contains(&t.rank()) && positive(t))?;
        let (space, rank) = (self.ty(x).shape, self.ty(x).rank());
        let block = *self.rng.pick(&[4usize, 8]);
        let depthwise = self.rng.one_in(3);
        let in_block = if !depthwise && self.rng.one_in(3) { 1 } else { block };
        let blocks = 1 + self.rng.below(2);
        let channels = blocks * in_block;
        let (outputs, groups) = if depthwise { (channels, channels) } else { (block * (1 + self.rng.below(3)), 1) };
        let out_block = if self.rng.one_in(6) { 1 } else { block };
        let mut shape = [&[Dim::ONE, dim(blocks)], &space[..]].concat();
        shape.extend((in_block > 1).then_some(dim(in_block)));
        let x = self.push(Op::Broadcast { shape: shape.clone(), axes: (2..2 + rank as i64).collect() }, &[x])?;
        // Something different in every channel.
        let (own, axes) = match in_block {
            1 => (vec![blocks], vec![1]),
            n => (vec![blocks, n], vec![1, shape.len() as i64 - 1]),
        };
        let own = self.constant(DType::F32, own);
        let own = self.push(Op::Broadcast { shape, axes }, &[own])?;
        let add = Step::Call(Call { f: ScalarFn::Add, args: vec![0, 1], to: None });
        let x = self.push(Op::Map { f: Scalar::new(&[Step::Arg(0), Step::Arg(1), add], 2) }, &[x, own])?;
        let kernel: Vec<usize> = (0..rank).map(|_| 1 + self.rng.below(3)).collect();
        let w = self.constant(DType::F32, [&[outputs, channels / groups], &kernel[..]].concat());
        let mut per_axis = |high: i64| -> Vec<i64> { (0..rank).map(|_| self.rng.between(1, high)).collect() };
        let (strides, dilations) = (per_axis(2), per_axis(2));
        let spread = if self.rng.one_in(6) { vec![2; rank] } else { vec![1; rank] };
        let reach = |i: usize| (kernel[i] as i64 - 1) * dilations[i];
        let low = (0..rank).map(|i| Dim::Const(reach(i) / 2)).collect();
        let high = (0..rank).map(|i| Dim::Const(reach(i) - reach(i) / 2)).collect();
        let (in_block, out_block, groups) = (in_block as i64, out_block as i64, groups as i64);
        self.push(Op::Conv { strides, dilations, spread, low, high, groups, in_block, out_block }, &[x, w])
    }

    pub(super) fn window(&mut self) -> Option<Value> {
        let x = self.find(|t| t.rank() > 0 && t.shape.iter().all(|d| d.range(&range_of).low > 0))?;
        let ty = self.ty(x);
        let n = 1 + self.rng.below(ty.rank());
        let f = self.reduce_fn(ty.dtype);
        let mut per_axis = |high: i64| -> Vec<i64> { (0..n).map(|_| self.rng.between(1, high)).collect() };
        let (size, strides, dilations) = (per_axis(3), per_axis(2), per_axis(2));
        let low = (0..n).map(|i| Dim::Const((size[i] - 1) * dilations[i])).collect();
        let high = (0..n).map(|_| Dim::Const(self.rng.between(0, 1))).collect();
        self.push(Op::Window { f, size, strides, dilations, low, high }, &[x])
    }

    /// A function over parameters of the given types, with random nodes in it.
    pub(super) fn nested(&mut self, params: &[Type]) -> Generator {
        let mut g = Generator::new(Rng::new(self.rng.draw()), self.config, self.depth + 1);
        g.syms = self.syms;
        g.sizes = self.sizes.clone();
        for ty in params {
            let v = g.f.param(ty.clone()).expect("the type of a value");
            g.pool.push(v);
        }
        if g.pool.is_empty() {
            let v = g.constant(DType::F32, vec![2]);
            g.pool.push(v);
        }
        g.steps(1 + self.config.steps / 4);
        self.syms = g.syms;
        g
    }

    pub(super) fn captures(&mut self, max: usize) -> Vec<Value> {
        (0..self.rng.below(max + 1)).filter_map(|_| self.any()).collect()
    }

    pub(super) fn types(&self, values: &[Value]) -> Vec<Type> {
        values.iter().map(|v| self.f.ty(*v).clone()).collect()
    }

    pub(super) fn branch(&mut self) -> Option<Value> {
        if self.depth == self.config.depth {
            return None;
        }
        let cond = self.of_type(&TensorType { dtype: DType::Bool, shape: vec![] });
        let captures = self.captures(3);
        let params = self.types(&captures);
        let mut types = Vec::new();
        for _ in 0..1 + self.rng.below(2) {
            types.push(Type::Tensor(self.any().map(|v| self.ty(v))?));
        }
        let mut body = || {
            let mut g = self.nested(&params);
            let results = types.iter().map(|t| g.of_type(t.as_tensor().expect("a tensor"))).collect();
            g.f.set_results(results);
            Arc::new(g.f)
        };
        let (then, or) = (body(), body());
        let count = types.len() as i64;
        let tuple = self.push(Op::If { then, or, types }, &[&[cond], &captures[..]].concat())?;
        let index = self.rng.between(0, count - 1);
        self.push(Op::Get { index }, &[tuple])
    }

    pub(super) fn repeat(&mut self) -> Option<Value> {
        if self.depth == self.config.depth {
            return None;
        }
        let count = TensorType { dtype: DType::I64, shape: vec![] };
        let flag = TensorType { dtype: DType::Bool, shape: vec![] };
        let rounds = self.rng.between(0, 3);
        let trips = self.int(rounds);
        let cond = self.of_type(&flag);
        let states: Vec<Value> = (0..1 + self.rng.below(2)).filter_map(|_| self.any()).collect();
        let values = [&states[..], &self.captures(2)].concat();
        let mut params = vec![Type::Tensor(count), Type::Tensor(flag.clone())];
        params.extend(self.types(&values));
        let mut types = self.types(&states);
        let mut g = self.nested(&params);
        let mut results = vec![g.of_type(&flag)];
        results.extend(states.iter().map(|s| g.of_type(&self.ty(*s))));
        if self.rng.one_in(2) {
            let row = self.any().map(|v| self.ty(v))?;
            results.push(g.of_type(&row));
            let stacked = Dim::sym(self.fresh("z"));
            types.push(Type::tensor(row.dtype, [&[stacked], &row.shape[..]].concat()));
        }
        g.f.set_results(results);
        let outputs = types.len() as i64;
        let op = Op::Loop { states: states.len() as i64, body: Arc::new(g.f), types };
        let tuple = self.push(op, &[&[trips, cond], &values[..]].concat())?;
        let index = self.rng.between(0, outputs - 1);
        self.push(Op::Get { index }, &[tuple])
    }

    pub(super) fn sequence(&mut self) -> Option<Value> {
        let first = self.any()?;
        let dtype = self.ty(first).dtype;
        let mut xs = vec![first];
        for _ in 0..self.rng.below(3) {
            xs.push(self.find(|t| t.dtype == dtype)?);
        }
        let types = self.types(&xs);
        let elems: Vec<Elem> = types.iter().map(|t| Elem::of(t).expect("a tensor")).collect();
        let elem = elems.iter().try_fold(elems[0].clone(), |a, b| a.join(b)).ok()?;
        let v = self.push(Op::SeqMake { elem }, &xs)?;
        self.elements.insert(v, types);
        Some(v)
    }

    pub(super) fn sequence_use(&mut self) -> Option<Value> {
        let mut known: Vec<Value> = self.elements.keys().copied().collect();
        known.sort();
        if known.is_empty() {
            return self.sequence();
        }
        let seq = *self.rng.pick(&known);
        let mut elements = self.elements[&seq].clone();
        let Type::Seq(elem) = self.f.ty(seq).clone() else { return None };
        if self.rng.one_in(4) {
            return self.push(Op::SeqLen {}, &[seq]);
        }
        let n = elements.len();
        let at = self.rng.below(n.max(1));
        let index = if self.rng.one_in(2) { at as i64 } else { at as i64 - n.max(1) as i64 };
        let index = self.int(index);
        match self.rng.below(3) {
            0 if n > 0 => self.push(Op::SeqAt { ty: elements[at].clone() }, &[seq, index]),
            1 if n > 0 => {
                elements.remove(at);
                let v = self.push(Op::SeqErase {}, &[seq, index])?;
                self.elements.insert(v, elements);
                Some(v)
            }
            _ => {
                let Elem::Tensor { dtype, .. } = *elem else { return None };
                let x = self.find(|t| t.dtype == dtype)?;
                let ty = self.f.ty(x).clone();
                let at = self.rng.below(n + 1);
                let index = self.int(at as i64);
                elements.insert(at, ty.clone());
                let elem = elem.join(&Elem::of(&ty).ok()?).ok()?;
                let v = self.push(Op::SeqInsert { elem }, &[seq, index, x])?;
                self.elements.insert(v, elements);
                Some(v)
            }
        }
    }
}
