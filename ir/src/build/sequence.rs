//! Sequences and optionals, resolved where their structure is known.
use super::{Graph, X};
use crate::{DType, Dim, Elem, Op, Result, Type, refuse};

impl Graph {
    /// A sequence of the given elements.
    pub fn seq<'g>(&'g self, xs: &[X<'g>], elem: Option<Elem>) -> Result<X<'g>> {
        let mut all = elem;
        for x in xs {
            let e = Elem::of(&x.ty())?;
            all = Some(all.map_or(Ok(e.clone()), |a| a.join(&e))?);
        }
        match all {
            Some(elem) => self.raw(Op::SeqMake { elem }, xs),
            None => refuse!("an empty sequence needs an element type"),
        }
    }
}

impl<'g> X<'g> {
    /// The elements of a sequence whose structure is known.
    pub fn as_seq(self) -> Option<Vec<X<'g>>> {
        let node = self.g.node(self.v);
        let x = |i: usize| X { v: node.args[i], optional: false, ..self };
        match &node.op {
            Op::SeqMake { .. } => Some((0..node.args.len()).map(x).collect()),
            Op::SeqInsert { .. } => {
                let mut items = x(0).as_seq()?;
                let at = place(x(1), items.len(), items.len() + 1)?;
                items.insert(at, x(2));
                Some(items)
            }
            Op::SeqErase { .. } => {
                let mut items = x(0).as_seq()?;
                let at = place(x(1), items.len(), items.len())?;
                items.remove(at);
                Some(items)
            }
            _ => None,
        }
    }

    /// Is this sequence known to be empty, or typed as if it were while the types of a loop settle?
    pub fn is_empty_seq(self) -> bool {
        self.g.empty.borrow().contains(&self.v) || self.as_seq().is_some_and(|items| items.is_empty())
    }

    /// This sequence of at most one element, as an ONNX optional.
    #[must_use]
    pub fn as_optional(self) -> X<'g> {
        X { optional: true, ..self }
    }

    pub fn is_optional(self) -> bool {
        self.optional
    }

    pub fn seq_len(self) -> Result<X<'g>> {
        match self.as_seq() {
            Some(items) => self.g.constant(crate::Tensor::from_i64(&[], &[items.len() as i64])),
            None => self.g.raw(Op::SeqLen {}, &[self]),
        }
    }

    /// Element at an index that may count from the end.
    pub fn seq_at(self, index: X<'g>) -> Result<X<'g>> {
        let index = index.cast(DType::I64)?.reshape(&[])?;
        if let Some(items) = self.as_seq()
            && let Some(i) = place(index, items.len(), items.len())
        {
            return Ok(items[i]);
        }
        let ty = match self.ty().as_seq()? {
            Elem::Seq(e) => Type::Seq(e.clone()),
            Elem::Tensor { shape: None, .. } => refuse!("the rank of the elements of {} is not known", self.ty()),
            Elem::Tensor { dtype, shape: Some(s) } => {
                let dims: Vec<Dim> = s.iter().map(|d| d.clone().unwrap_or_else(|| self.g.fresh_size())).collect();
                Type::tensor(*dtype, dims)
            }
        };
        self.g.raw(Op::SeqAt { ty }, &[self, index])
    }

    /// With `x` inserted before an index that may count from the end; at the end if there is none.
    pub fn seq_insert(self, index: Option<X<'g>>, x: X<'g>) -> Result<X<'g>> {
        let index = index.map_or_else(|| self.seq_len(), |i| i.cast(DType::I64)?.reshape(&[]))?;
        let (held, new) = (self.ty().as_seq()?.clone(), Elem::of(&x.ty())?);
        let joined = held.join(&new)?;
        let elem = if self.is_empty_seq() { new } else { joined };
        self.g.raw(Op::SeqInsert { elem }, &[self, index, x])
    }

    /// Without the element at an index that may count from the end; without the last if there is none.
    pub fn seq_erase(self, index: Option<X<'g>>) -> Result<X<'g>> {
        let index = match index {
            Some(i) => i.cast(DType::I64)?.reshape(&[])?,
            None => self.g.scalar(DType::I64, -1.0)?,
        };
        self.g.raw(Op::SeqErase {}, &[self, index])
    }
}

/// A constant index that may count from the end of `len` elements, if it is below `limit`.
fn place(index: X<'_>, len: usize, limit: usize) -> Option<usize> {
    let i = *index.as_ints()?.first()?;
    let i = if i < 0 { i + len as i64 } else { i };
    usize::try_from(i).ok().filter(|&i| i < limit)
}
