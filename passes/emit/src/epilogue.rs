//! Maps over the result of a product (a contraction, convolution or window) that are computed where the product would be stored: the kernel of the product
//! asks for the value of the map, its *root*, at every index, and answers for the product itself from its accumulators. No buffer lies between.
use crate::{
    element::{ElementEmitter, Local},
    nest::{Lanes, Reads, fitting_lanes},
    pointwise::read_where_written,
};
use numrsc_ir::{
    DType, Dim, Value,
    dim::Sym,
    kernel::{Ty, V},
};
use numrsc_schedule::{
    epilogue::{Epilogue, Order},
    index::{linear, reshaped},
};

/// What a product's kernel asks of its epilogue.
pub(crate) trait Finish {
    /// The addresses that finishing the element of the product at an index reads and writes.
    fn positions(&self, em: &mut ElementEmitter<'_>, at: &[Dim]) -> Vec<Dim>;

    /// What the root may take the memory of: nothing that the product reads as well.
    fn in_place(&self, em: &mut ElementEmitter<'_>, at: &[Dim]) -> Vec<Value>;

    /// The end of a kernel that computes the product at an index over its loop variables.
    fn sink(&self, em: &mut ElementEmitter<'_>, pointer: V, at: &[Dim]) -> Sink;

    /// The end of a kernel that keeps a part of the root only.
    fn sink_in(&self, em: &mut ElementEmitter<'_>, to: Local, at: &[Dim]) -> Sink;
}

impl Finish for Epilogue {
    fn positions(&self, em: &mut ElementEmitter<'_>, at: &[Dim]) -> Vec<Dim> {
        let (mut reads, to) = reads(self, em, at);
        reads.positions.push(to);
        reads.positions
    }

    fn in_place(&self, em: &mut ElementEmitter<'_>, at: &[Dim]) -> Vec<Value> {
        let (reads, to) = reads(self, em, at);
        let mut candidates = read_where_written(&reads, &to);
        let mut of_product = Reads::default();
        for &x in &em.scope.func.node(self.product).args {
            let index: Vec<Dim> = em.shape(x).iter().map(|n| Dim::sym(em.variable(n))).collect();
            em.reads(x, &index, &mut of_product);
        }
        candidates.retain(|v| of_product.buffers.iter().all(|(b, _)| b != v));
        candidates
    }

    fn sink(&self, em: &mut ElementEmitter<'_>, pointer: V, at: &[Dim]) -> Sink {
        let shape = em.shape(self.root);
        let (row, length) = (shape.last().cloned().unwrap_or(Dim::ONE), Dim::product(&shape));
        self.sink_in(em, Local { pointer, start: Dim::ZERO, row, length }, at)
    }

    fn sink_in(&self, em: &mut ElementEmitter<'_>, to: Local, at: &[Dim]) -> Sink {
        let (mut reads, position) = reads(self, em, at);
        reads.positions.push(position);
        let index = index(self, em, at);
        Sink { product: self.product, root: self.root, to, index, scalars_only: reads.scalars_only, reads }
    }
}

/// The index of the root for an index of the product.
fn index(epilogue: &Epilogue, em: &mut ElementEmitter<'_>, at: &[Dim]) -> Vec<Dim> {
    match &epilogue.order {
        Order::Axes(axes) => axes.iter().map(|a| a.map_or(Dim::ZERO, |a| at[a].clone())).collect(),
        Order::Memory => {
            let (shape, root_shape) = (em.shape(epilogue.product), em.shape(epilogue.root));
            reshaped(at, &shape, &root_shape, &em.extents, em.state)
        }
    }
}

fn reads(epilogue: &Epilogue, em: &mut ElementEmitter<'_>, at: &[Dim]) -> (Reads, Dim) {
    let index = index(epilogue, em, at);
    let mut reads = Reads::default();
    em.reads(epilogue.root, &index, &mut reads);
    let shape = em.shape(epilogue.root);
    (reads, linear(&index, &shape))
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
