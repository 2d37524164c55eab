//! What a table row sees of the node it gives a meaning to.
use super::{
    AttributeValue, Bound, Fail, Frame, Importer, Scope,
    table::{FromAttr, Types},
};
use crate::onnx::{
    Model, domain, ops,
    proto::{AttributeProto, GraphProto, NodeProto},
};
use numrsc_ir::{
    Tensor, Type,
    build::{Graph, X},
};
use std::collections::BTreeSet;

/// A node with its surroundings.
#[derive(Debug)]
pub struct Ctx<'a, 'g> {
    pub(super) g: &'g Graph,
    pub(super) importer: &'a Importer<'a>,
    pub(super) frame: &'a Frame<'a>,
    pub(super) node: &'a NodeProto,
    pub(super) scope: &'a Scope<'a, 'g>,
    pub(super) args: &'a [Option<X<'g>>],
    /// `main, node #3`, in front of what nested graphs report.
    pub(super) path: &'a str,
}

impl<'a, 'g> Ctx<'a, 'g> {
    pub fn graph(&self) -> &'g Graph {
        self.g
    }

    pub fn model(&self) -> &'a Model {
        self.importer.model
    }

    /// The version of the operator's domain that the model asks for.
    pub fn opset(&self) -> i64 {
        self.frame.opset(domain(&self.node.domain)).unwrap_or(1)
    }

    /// How many outputs the node has, unused ones in between included.
    pub fn outputs(&self) -> usize {
        self.node.output.len()
    }

    /// Does the node have output `i`?
    pub fn wants(&self, i: usize) -> bool {
        self.node.output.get(i).is_some_and(|name| !name.is_empty())
    }

    /// A number that tells this node from others of the model: the seed of random operators that have none.
    pub fn seed(&self) -> u64 {
        // FNV-1a over what identifies the node.
        let text = format!("{} {} {:?}", self.path, self.node.name, self.node.output);
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
    }

    /// Say what the entries along the last axis of the node's output stand for. Only outputs of the model can have
    /// such labels: whatever else used the value would not see them.
    pub fn label(&self, labels: Tensor) -> Result<(), Fail> {
        let (graph, name) = (self.model().graph(), &self.node.output[0]);
        let mut used: BTreeSet<&str> = BTreeSet::new();
        for node in &graph.node {
            used.extend(node.input.iter().map(String::as_str));
            node.attribute.iter().flat_map(AttributeProto::subgraphs).for_each(|g| free_names(g, &mut used));
        }
        if used.contains(name.as_str()) || !graph.node.iter().any(|n| std::ptr::eq(n, self.node)) {
            return Err("maps are supported as outputs of the model only, not in between".into());
        }
        self.importer.labels.borrow_mut().insert(name.clone(), labels);
        Ok(())
    }

    pub fn inputs(&self) -> Inputs<'a, 'g> {
        Inputs { args: self.args, next: 0 }
    }

    fn attribute(&self, name: &str) -> Option<&'a AttributeProto> {
        // Rows write names that are keywords of Rust as `r#type`.
        let name = name.trim_start_matches("r#");
        let found = self.node.attribute.iter().find(|a| a.name == name)?;
        if found.ref_attr_name.is_empty() { Some(found) } else { self.frame.attr(&found.ref_attr_name) }
    }

    /// The value of an attribute, if the node has it.
    pub fn attr<T: FromAttr>(&self, name: &str) -> Result<Option<T>, Fail> {
        let Some(found) = self.attribute(name) else { return Ok(None) };
        found
            .value()
            .and_then(|v| T::read(v, self))
            .map(Some)
            .map_err(|e| Fail::Refused(format!("attribute `{name}` {e}")))
    }

    pub fn required_attr<T: FromAttr>(&self, name: &str) -> Result<T, Fail> {
        match self.attr(name)?.or_else(T::absent) {
            Some(x) => Ok(x),
            None => Err(Fail::Refused(format!("attribute `{name}` is missing"))),
        }
    }

    /// Refuse attributes that the row does not know, unless they ask for nothing: with the value that another version
    /// of the operator takes them to have if they are not there. Before opset 6, operators had an attribute that says
    /// which inputs may be overwritten; it does not change results.
    pub fn all_attributes_read(&self, known: &[&str]) -> Result<(), Fail> {
        let legacy = if domain(&self.node.domain).is_empty() && self.opset() < 6 { "consumed_inputs" } else { "" };
        let given = self.node.attribute.iter().filter(|a| !named(&a.name, known) && a.name != legacy);
        let strange: Vec<&str> = given.filter(|a| !self.is_default(&a.name)).map(|a| a.name.as_str()).collect();
        match &strange[..] {
            [] => Ok(()),
            [one] => Err(Fail::Refused(format!("attribute `{one}` is not supported"))),
            many => Err(Fail::Refused(format!("attributes `{}` are not supported", many.join("`, `")))),
        }
    }

    /// Does an attribute have the value that it has by default in some version of the operator?
    fn is_default(&self, name: &str) -> bool {
        // Without it, old versions train and new ones do not.
        if name == "is_test" {
            return false;
        }
        let Some(Ok(value)) = self.attribute(name).map(AttributeProto::value) else { return false };
        let rows = ops::all().filter(|o| o.domain == domain(&self.node.domain) && o.name == self.node.op_type);
        rows.flat_map(|o| o.attrs).any(|a| a.name == name && a.is_default(value))
    }

    /// A graph that is an attribute of the node.
    pub fn subgraph(&self, name: &str) -> Result<&'a GraphProto, Fail> {
        let found = self.attribute(name).ok_or_else(|| Fail::Refused(format!("attribute `{name}` is missing")))?;
        match found.value() {
            Ok(AttributeValue::Graph(g)) => Ok(g),
            Ok(_) => Err(Fail::Refused(format!("attribute `{name}` is not a graph"))),
            Err(e) => Err(Fail::Refused(format!("attribute `{name}` {e}"))),
        }
    }

    /// The outer values that the graphs use, with their names.
    pub fn captures(&self, graphs: &[&'a GraphProto]) -> Result<(Vec<&'a str>, Vec<X<'g>>), Fail> {
        let mut names = BTreeSet::new();
        for graph in graphs {
            free_names(graph, &mut names);
        }
        let mut found = (Vec::new(), Vec::new());
        for name in names {
            match self.scope.get(name) {
                Some(Bound::Value(x)) => {
                    found.0.push(name);
                    found.1.push(*x);
                }
                // Nested graphs see it as absent, too.
                Some(Bound::Absent) => {}
                Some(Bound::Failed) => return Err(Fail::Reported),
                None => return Err(Fail::Refused(format!("`{name}` is not defined"))),
            }
        }
        Ok(found)
    }

    /// Import a nested graph: its inputs are `inputs`, and `names` are captured as `captured`.
    pub fn run<'b>(
        &self,
        what: &str,
        graph: &'a GraphProto,
        g: &'b Graph,
        inputs: &[X<'b>],
        names: &[&'a str],
        captured: &[X<'b>],
    ) -> Result<Vec<X<'b>>, Fail> {
        if graph.input.len() != inputs.len() {
            return Err(Fail::Refused(format!("`{what}` takes {} inputs, not {}", graph.input.len(), inputs.len())));
        }
        let absent =
            self.scope.iter().filter(|(_, b)| matches!(b, Bound::Absent)).map(|(name, _)| (*name, Bound::Absent));
        let mut scope: Scope<'a, 'b> = absent.collect();
        scope.extend(names.iter().copied().zip(captured.iter().copied().map(Bound::Value)));
        scope.extend(graph.input.iter().map(|i| i.name.as_str()).zip(inputs.iter().copied().map(Bound::Value)));
        let path = format!("{}.{what}", self.path);
        self.importer.graph(g, graph, self.frame, &path, &mut scope)
    }

    /// The type that a nested graph declares for one of its inputs, if it is complete.
    pub fn declared(&self, graph: &GraphProto, input: usize) -> Option<Type> {
        let ty = graph.input.get(input)?.r#type.as_ref()?;
        self.importer.declared_type(self.g, ty).ok()
    }

    /// The type that a type proto describes.
    pub fn declared_type(&self, name: &str) -> Result<Type, Fail> {
        match self.attribute(name).map(AttributeProto::value) {
            Some(Ok(AttributeValue::Type(t))) => Ok(self.importer.declared_type(self.g, t)?),
            _ => Err(Fail::Refused(format!("attribute `{name}` is not a type"))),
        }
    }
}

fn named(attribute: &str, known: &[&str]) -> bool {
    known.iter().any(|k| k.trim_start_matches("r#") == attribute)
}

/// Names that a graph uses without defining them.
pub(crate) fn free_names<'m>(graph: &'m GraphProto, out: &mut BTreeSet<&'m str>) {
    let mut local: BTreeSet<&str> = graph.input.iter().map(|i| i.name.as_str()).collect();
    local.extend(graph.initializer.iter().map(|t| t.name.as_str()));
    local.extend(graph.sparse_initializer.iter().filter_map(|t| t.values.as_ref()).map(|t| t.name.as_str()));
    local.extend(graph.node.iter().flat_map(|n| &n.output).map(String::as_str));
    let mut used: BTreeSet<&str> = graph.output.iter().map(|o| o.name.as_str()).collect();
    for node in &graph.node {
        used.extend(node.input.iter().map(String::as_str));
        for inner in node.attribute.iter().flat_map(AttributeProto::subgraphs) {
            free_names(inner, &mut used);
        }
    }
    out.extend(used.into_iter().filter(|name| !name.is_empty() && !local.contains(name)));
}

/// The inputs of a node, taken in order.
#[derive(Debug)]
pub struct Inputs<'a, 'g> {
    args: &'a [Option<X<'g>>],
    next: usize,
}

impl<'g> Inputs<'_, 'g> {
    pub fn required(&mut self, name: &str, types: Types) -> Result<X<'g>, Fail> {
        self.optional(name, types)?.ok_or_else(|| Fail::Refused(format!("input `{name}` is missing")))
    }

    pub fn optional(&mut self, name: &str, types: Types) -> Result<Option<X<'g>>, Fail> {
        let x = self.args.get(self.next).copied().flatten();
        self.next += 1;
        x.map(|x| checked(x, name, types)).transpose()
    }

    pub fn rest(&mut self, name: &str, types: Types) -> Result<Vec<X<'g>>, Fail> {
        let from = self.next.min(self.args.len());
        self.next = self.args.len();
        let missing = || Fail::Refused(format!("an input of `{name}` is missing"));
        self.args[from..].iter().map(|x| checked(x.ok_or_else(missing)?, name, types)).collect()
    }

    /// Refuse inputs that the row does not know.
    pub fn finish(&self) -> Result<(), Fail> {
        let given = self.args.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        if given > self.next {
            return Err(Fail::Refused(format!("{given} inputs are given, {} are supported", self.next)));
        }
        Ok(())
    }
}

fn checked<'g>(x: X<'g>, name: &str, types: Types) -> Result<X<'g>, Fail> {
    match x.ty() {
        Type::Tensor(t) if types.holds(t.dtype) => Ok(x),
        Type::Seq(_) if types == Types::Value => Ok(x),
        ty => Err(Fail::Refused(format!("input `{name}` is {ty}; supported are tensors of {}", types.list()))),
    }
}
