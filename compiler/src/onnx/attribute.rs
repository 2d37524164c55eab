//! Attributes as one value each, whatever way the exporter wrote them.
use super::proto::{AttributeProto, AttributeType as Kind, GraphProto, SparseTensorProto, TensorProto, TypeProto};
use bytes::Bytes;

/// The value of an attribute, borrowed from the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AttributeValue<'a> {
    Float(f32),
    Int(i64),
    String(&'a [u8]),
    Tensor(&'a TensorProto),
    Graph(&'a GraphProto),
    Floats(&'a [f32]),
    Ints(&'a [i64]),
    Strings(&'a [Bytes]),
    Tensors(&'a [TensorProto]),
    Graphs(&'a [GraphProto]),
    SparseTensor(&'a SparseTensorProto),
    SparseTensors(&'a [SparseTensorProto]),
    Type(&'a TypeProto),
    Types(&'a [TypeProto]),
}

impl AttributeProto {
    /// What the attribute holds. Old files leave the type out: then the only field present decides.
    pub fn kind(&self) -> Result<Kind, String> {
        match self.r#type {
            None | Some(0) => {}
            Some(code) => return Kind::try_from(code).map_err(|_| format!("unknown attribute type {code}")),
        }
        let present = [
            (self.f.is_some(), Kind::Float),
            (self.i.is_some(), Kind::Int),
            (self.s.is_some(), Kind::String),
            (self.t.is_some(), Kind::Tensor),
            (self.g.is_some(), Kind::Graph),
            (!self.floats.is_empty(), Kind::Floats),
            (!self.ints.is_empty(), Kind::Ints),
            (!self.strings.is_empty(), Kind::Strings),
            (!self.tensors.is_empty(), Kind::Tensors),
            (!self.graphs.is_empty(), Kind::Graphs),
            (self.sparse_tensor.is_some(), Kind::SparseTensor),
            (!self.sparse_tensors.is_empty(), Kind::SparseTensors),
            (self.tp.is_some(), Kind::TypeProto),
            (!self.type_protos.is_empty(), Kind::TypeProtos),
        ];
        let mut kinds = present.iter().filter(|(is, _)| *is).map(|(_, kind)| *kind);
        match (kinds.next(), kinds.next()) {
            (Some(kind), None) => Ok(kind),
            (None, _) => Err("neither a type nor a value".into()),
            (Some(a), Some(b)) => Err(format!("no type, and values of more than one ({a:?} and {b:?})")),
        }
    }

    /// The value. A scalar left out by a writer that omits zeros is zero; a missing tensor or graph is an error.
    pub fn value(&self) -> Result<AttributeValue<'_>, String> {
        use AttributeValue as V;
        if !self.ref_attr_name.is_empty() {
            return Err(format!("refers to attribute `{}` of the enclosing function", self.ref_attr_name));
        }
        let missing = |what: &str| format!("is declared as {what} but holds none");
        Ok(match self.kind()? {
            Kind::Undefined => return Err("has no type".into()),
            Kind::Float => V::Float(self.f.unwrap_or_default()),
            Kind::Int => V::Int(self.i.unwrap_or_default()),
            Kind::String => V::String(self.s.as_deref().unwrap_or_default()),
            Kind::Tensor => V::Tensor(self.t.as_deref().ok_or_else(|| missing("a tensor"))?),
            Kind::Graph => V::Graph(self.g.as_deref().ok_or_else(|| missing("a graph"))?),
            Kind::Floats => V::Floats(&self.floats),
            Kind::Ints => V::Ints(&self.ints),
            Kind::Strings => V::Strings(&self.strings),
            Kind::Tensors => V::Tensors(&self.tensors),
            Kind::Graphs => V::Graphs(&self.graphs),
            Kind::SparseTensor => {
                V::SparseTensor(self.sparse_tensor.as_deref().ok_or_else(|| missing("a sparse tensor"))?)
            }
            Kind::SparseTensors => V::SparseTensors(&self.sparse_tensors),
            Kind::TypeProto => V::Type(self.tp.as_deref().ok_or_else(|| missing("a type"))?),
            Kind::TypeProtos => V::Types(&self.type_protos),
        })
    }

    /// Every graph inside, used or not.
    pub fn subgraphs(&self) -> impl Iterator<Item = &GraphProto> {
        self.g.as_deref().into_iter().chain(&self.graphs)
    }

    pub(crate) fn subgraphs_mut(&mut self) -> impl Iterator<Item = &mut GraphProto> {
        self.g.as_deref_mut().into_iter().chain(&mut self.graphs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_may_be_missing_or_the_zero_omitted() {
        let old = AttributeProto { ints: vec![1, 2], ..Default::default() };
        assert_eq!(old.value(), Ok(AttributeValue::Ints(&[1, 2])));
        let zero = AttributeProto { i: Some(0), ..Default::default() };
        assert_eq!(zero.value(), Ok(AttributeValue::Int(0)));
        let omitted = AttributeProto { r#type: Some(Kind::Float as i32), ..Default::default() };
        assert_eq!(omitted.value(), Ok(AttributeValue::Float(0.0)));
        let empty = AttributeProto { r#type: Some(Kind::Ints as i32), ..Default::default() };
        assert_eq!(empty.value(), Ok(AttributeValue::Ints(&[])));
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let nothing = AttributeProto::default();
        assert!(nothing.value().unwrap_err().contains("neither"));
        let two = AttributeProto { i: Some(1), f: Some(1.0), ..Default::default() };
        assert!(two.value().unwrap_err().contains("more than one"));
        let no_graph = AttributeProto { r#type: Some(Kind::Graph as i32), ..Default::default() };
        assert!(no_graph.value().unwrap_err().contains("a graph"));
        let strange = AttributeProto { r#type: Some(99), ..Default::default() };
        assert!(strange.value().unwrap_err().contains("99"));
        let reference = AttributeProto { ref_attr_name: "alpha".into(), ..Default::default() };
        assert!(reference.value().unwrap_err().contains("alpha"));
    }
}
