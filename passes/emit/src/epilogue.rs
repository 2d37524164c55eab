//! Epilogue fusion: a map over the result of a product (contraction, convolution or window) is computed where the
//! product would be stored. The kernel of the product evaluates the map, its *root*, at every index, and the product's
//! own value comes from the accumulators. There is no buffer between them.
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
    /// The addresses that the epilogue reads and writes for an element of the product.
    fn positions(&self, em: &mut ElementEmitter<'_>, at: &[Dim]) -> Vec<Dim>;

    /// The operands whose memory the root may reuse: none that the product reads as well.
    fn in_place(&self, em: &mut ElementEmitter<'_>, at: &[Dim]) -> Vec<Value>;

    /// The sink of a kernel that computes the product at an index over its loop variables.
    fn sink(&self, em: &mut ElementEmitter<'_>, pointer: V, at: &[Dim]) -> Sink;

    /// The sink of a kernel that keeps only part of the root.
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

/// Stores elements of a product after its epilogue.
pub(crate) struct Sink {
    product: Value,
    root: Value,
    to: Local,
    /// The index of the root over the loop variables of the product's kernel.
    index: Vec<Dim>,
    /// Must the epilogue run element by element?
    pub scalars_only: bool,
    /// The addresses that the epilogue of an element reads and writes.
    reads: Reads,
}

impl Sink {
    /// The element type of the product.
    pub(crate) fn dtype(&self, em: &ElementEmitter<'_>) -> DType {
        em.dtype(self.product)
    }

    /// Are all elements that the epilogue reads and writes along a row contiguous? Then vectors may have any number of
    /// lanes.
    pub(crate) fn in_order(&self, column: &Sym) -> bool {
        !self.scalars_only && self.reads.in_order(column)
    }

    /// A rough count of instructions that finish an element, or several at once.
    pub(crate) fn work(&self) -> i64 {
        self.reads.work
    }

    /// The largest vector for the epilogue in a row of that length. Never longer than the row: code that does not
    /// depend on the column is hoisted, and its checks would fail for lanes beyond the end.
    pub(crate) fn lanes(&self, columns: &Dim, most: u32) -> u32 {
        if self.scalars_only { 1 } else { fitting_lanes(columns, most) }
    }

    /// Runs the epilogue on the elements (one per lane) in `x` and stores them, at the index that `names` makes of the
    /// loop variables.
    pub(crate) fn put(&self, em: &mut ElementEmitter<'_>, names: &Names<'_>, x: V) {
        let index: Vec<Dim> = self.index.iter().map(|d| d.subst(names)).collect();
        em.given = Some((self.product, x));
        let y = em.value(self.root, &index);
        em.given = None;
        em.store_in(self.root, &index, &self.to, y);
    }

    /// Finish elements that lie in memory of the kernel, as numbers: those of the columns `first..end`, of which the
    /// first is at `position`.
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
