//! Maps over the result of a product (a contraction, convolution or window) that are computed where the product would be stored: the kernel of the product
//! asks for the value of the map, its *root*, at every index, and answers for the product itself from its accumulators. No buffer lies between.
use super::{
    element::{ElementEmitter, Local},
    index::{linear, reshaped},
    nest::{Lanes, Reads, fitting_lanes},
    pointwise::read_where_written,
};
use numrsc_ir::{
    DType, Dim, Value,
    dim::Sym,
    kernel::{Ty, V},
};

/// How the elements of a root follow from those of its product.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// The axis of the product that each axis of the root is; none where there is one index only.
    Axes(Vec<Option<usize>>),
    /// Both have the same order in memory.
    Memory,
}

impl Order {
    /// The order if a root with loops `domain` wants each element of a product once, at `index`, and the last axes agree: then vectors of
    /// the product are vectors of the root.
    pub(crate) fn of(index: &[Dim], shape: &[Dim], domain: &[Dim], root_shape: &[Dim]) -> Option<Order> {
        if Dim::product(shape) != Dim::product(root_shape) {
            return None;
        }
        let axis = |(var, size): (&Dim, &Dim)| {
            if *var == Dim::ZERO {
                return Some(None);
            }
            let at = index.iter().position(|i| i == var)?;
            (shape[at] == *size).then_some(Some(at))
        };
        if let Some(axes) = domain.iter().zip(root_shape).map(axis).collect::<Option<Vec<_>>>() {
            let others_are_one = (0..shape.len()).all(|a| axes.contains(&Some(a)) || shape[a] == Dim::ONE);
            let last = shape.iter().rposition(|d| *d != Dim::ONE);
            if others_are_one && axes.iter().rev().find_map(|a| *a) == last {
                return Some(Order::Axes(axes));
            }
        }
        (linear(index, shape) == linear(domain, root_shape)).then_some(Order::Memory)
    }
}

/// A product and the stored node that it is computed for.
#[derive(Clone, Debug)]
pub(crate) struct Epilogue {
    pub product: Value,
    pub root: Value,
    pub order: Order,
}

impl Epilogue {
    /// A product that is stored itself.
    pub(crate) fn none(product: Value, rank: usize) -> Epilogue {
        Epilogue { product, root: product, order: Order::Axes((0..rank).map(Some).collect()) }
    }

    /// The index of the root for an index of the product.
    fn index(&self, em: &mut ElementEmitter<'_>, at: &[Dim]) -> Vec<Dim> {
        match &self.order {
            Order::Axes(axes) => axes.iter().map(|a| a.map_or(Dim::ZERO, |a| at[a].clone())).collect(),
            Order::Memory => {
                let (shape, root_shape) = (em.shape(self.product), em.shape(self.root));
                reshaped(at, &shape, &root_shape, &em.extents, em.state)
            }
        }
    }

    fn reads(&self, em: &mut ElementEmitter<'_>, at: &[Dim]) -> (Reads, Dim) {
        let index = self.index(em, at);
        let mut reads = Reads::default();
        em.reads(self.root, &index, &mut reads);
        let shape = em.shape(self.root);
        (reads, linear(&index, &shape))
    }

    /// The addresses that finishing the element of the product at an index reads and writes.
    pub(crate) fn positions(&self, em: &mut ElementEmitter<'_>, at: &[Dim]) -> Vec<Dim> {
        let (mut reads, to) = self.reads(em, at);
        reads.positions.push(to);
        reads.positions
    }

    /// What the root may take the memory of: nothing that the product reads as well.
    pub(crate) fn in_place(&self, em: &mut ElementEmitter<'_>, at: &[Dim]) -> Vec<Value> {
        let (reads, to) = self.reads(em, at);
        let mut candidates = read_where_written(&reads, &to);
        let mut of_product = Reads::default();
        for &x in &em.scope.func.node(self.product).args {
            let index: Vec<Dim> = em.shape(x).iter().map(|n| Dim::sym(em.variable(n))).collect();
            em.reads(x, &index, &mut of_product);
        }
        candidates.retain(|v| of_product.buffers.iter().all(|(b, _)| b != v));
        candidates
    }

    /// The end of a kernel that computes the product at an index over its loop variables.
    pub(crate) fn sink(&self, em: &mut ElementEmitter<'_>, pointer: V, at: &[Dim]) -> Sink {
        let shape = em.shape(self.root);
        let (row, length) = (shape.last().cloned().unwrap_or(Dim::ONE), Dim::product(&shape));
        self.sink_in(em, Local { pointer, start: Dim::ZERO, row, length }, at)
    }

    /// The end of a kernel that keeps a part of the root only.
    pub(crate) fn sink_in(&self, em: &mut ElementEmitter<'_>, to: Local, at: &[Dim]) -> Sink {
        let (mut reads, position) = self.reads(em, at);
        reads.positions.push(position);
        let index = self.index(em, at);
        Sink { product: self.product, root: self.root, to, index, scalars_only: reads.scalars_only, reads }
    }
}

/// What becomes of the loop variables in an index.
pub(crate) type Names<'n> = dyn Fn(&Sym) -> Option<Dim> + 'n;

/// Where finished elements of a product go.
pub(crate) struct Sink {
    product: Value,
    root: Value,
    to: Local,
    /// The index of the root over the loop variables of the product's kernel.
    index: Vec<Dim>,
    /// Must elements be finished one by one?
    pub scalars_only: bool,
    /// What finishing an element reads, and where it goes.
    reads: Reads,
}

impl Sink {
    /// The element type of the product.
    pub(crate) fn dtype(&self, em: &ElementEmitter<'_>) -> DType {
        em.dtype(self.product)
    }

    /// Does all that finishing elements along a column reads and writes lie one after the other? Then vectors may have any number of lanes.
    pub(crate) fn in_order(&self, column: &Sym) -> bool {
        !self.scalars_only && self.reads.in_order(column)
    }

    /// A rough count of instructions that finish an element, or several at once.
    pub(crate) fn work(&self) -> i64 {
        self.reads.work
    }

    /// How many elements of a row of that length are finished at once, at most. Never more than there are: what does not depend on the column is moved out
    /// of the loop, where its checks would fail.
    pub(crate) fn lanes(&self, columns: &Dim, most: u32) -> u32 {
        if self.scalars_only { 1 } else { fitting_lanes(columns, most) }
    }

    /// Finish and store the elements (one per lane) that the product has in `x`, at the index that `names` makes of the loop variables.
    pub(crate) fn put(&self, em: &mut ElementEmitter<'_>, names: &Names<'_>, x: V) {
        let index: Vec<Dim> = self.index.iter().map(|d| d.subst(names)).collect();
        em.given = Some((self.product, x));
        let y = em.value(self.root, &index);
        em.given = None;
        em.store_in(self.root, &index, &self.to, y);
    }

    /// Finish elements that lie in memory of the kernel, as numbers: those of the columns `first..end`, of which the first is at `position`.
    pub(crate) fn put_row(
        &self,
        em: &mut ElementEmitter<'_>,
        (column, names, columns): (&Sym, &Names<'_>, &Dim),
        (first, end): (V, V),
        (memory, position, ty): (V, V, Ty),
    ) {
        let var = em.variable(columns);
        let lanes = Lanes { most: self.lanes(columns, ty.lanes), masked: false };
        em.by_vectors(&var.clone(), (first, end), lanes, &[], &mut |_, _| vec![], &mut |em, _| {
            let here = em.symbol(&var);
            let offset = em.b.sub(here, first);
            let at = em.b.add(position, offset);
            let x = em.b.load(Ty::vector(ty.elem, em.lanes), memory, at);
            let names = |s: &Sym| if s == column { Some(Dim::sym(var.clone())) } else { names(s) };
            self.put(em, &names, x);
            vec![]
        });
    }
}
