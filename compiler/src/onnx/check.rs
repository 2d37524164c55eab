//! Checks of a decoded model that need no knowledge of operators: names, scopes, order, dimensions, functions.
//!
//! Everything is reported in one go. Each name is looked at once per graph it passes through, and prost bounds how
//! deep graphs nest, so the time is near-linear in the size of the model.
use super::{
    calls::{self, Calls},
    domain,
    order::{Dependencies, Order},
    proto::{
        AttributeProto, DimensionValue, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
        SparseTensorProto, TensorProto, TypeProto, TypeValue, ValueInfoProto,
    },
    short, tensor_data,
};
use crate::error::{NodePlace, Place, Problem};
use prost::Message;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::Entry},
    rc::Rc,
};

/// What the check found out about a model.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
    pub(super) orders: Vec<Order>,
    pub(super) opsets: BTreeMap<String, i64>,
}

/// Newest version of the file format whose changes are known here.
pub(super) const NEWEST_IR: i64 = 14;
/// More graphs inside graphs than prost lets through; guards models that were built in memory.
const DEEPEST: usize = 64;
/// Enough to repair any model; a damaged file could fill the memory with its problems.
const MOST_PROBLEMS: usize = 1000;

pub(super) fn check(model: &ModelProto) -> Findings {
    let mut c = Checker::default();
    c.ir_version(model.ir_version);
    if !model.training_info.is_empty() {
        c.warn(Place::model(), "training information is ignored".into());
    }
    let opsets = c.opsets(&Place::model(), &model.opset_import);
    for (i, f) in model.functions.iter().enumerate() {
        if f.name.is_empty() {
            c.problem(Place::graph(function_path(f)), format!("function #{i} has no name"));
        }
        if c.functions.insert((domain(&f.domain), &f.name, &f.overload), i).is_some() {
            c.problem(Place::graph(function_path(f)), "the function is defined more than once".into());
        }
    }
    let mut bodies = vec![];
    for (i, function) in model.functions.iter().enumerate() {
        c.function(i, function);
        bodies.push(std::mem::take(&mut c.calls));
    }
    match &model.graph {
        Some(graph) => c.main(graph, &opsets),
        None => c.hinted(Place::model(), "the model has no graph".into(), "is it a model, and is the file complete?"),
    }
    c.found.problems.extend(calls::check(&model.functions, &bodies, &c.calls));
    c.sparse_sizes(model);
    c.found.opsets = opsets;
    c.found
}

/// Domain, name, overload.
type FunctionId<'a> = (&'a str, &'a str, &'a str);

#[derive(Default)]
struct Checker<'a> {
    found: Findings,
    functions: BTreeMap<FunctionId<'a>, usize>,
    /// Names defined by the graphs around the one being checked, and how many of them define it.
    visible: HashMap<&'a str, usize>,
    /// The way to the graph being checked.
    function: Option<usize>,
    steps: Vec<(usize, usize, usize)>,
    /// Of the function or main graph being checked, inner graphs included.
    calls: Calls,
    /// Dense bytes of all sparse tensors.
    sparse: usize,
}

/// A graph or the body of a function.
struct Body<'a> {
    path: Rc<str>,
    inputs: Vec<&'a str>,
    initializers: Vec<&'a str>,
    nodes: &'a [NodeProto],
    outputs: Vec<&'a str>,
}

/// What all graphs of one function or of the main graph share.
struct Context<'a> {
    opsets: BTreeMap<String, i64>,
    /// The attributes of the function; `None` outside of functions.
    attributes: Option<HashSet<&'a str>>,
    /// Domains already reported.
    missing: BTreeSet<&'a str>,
}

/// The use of a value that is not defined in the graph itself: by a node, or as an output.
struct Use<'a> {
    name: &'a str,
    path: Rc<str>,
    node: Option<(usize, &'a NodeProto)>,
}

#[derive(Clone, Copy)]
enum Definition {
    Input,
    Initializer,
    Node(usize),
}

impl<'a> Checker<'a> {
    fn problem(&mut self, place: Place, message: String) {
        add(&mut self.found.problems, Problem::new(place, message));
    }

    fn hinted(&mut self, place: Place, message: String, hint: &str) {
        add(&mut self.found.problems, Problem::new(place, message).hint(hint));
    }

    fn warn(&mut self, place: Place, message: String) {
        add(&mut self.found.warnings, Problem::new(place, message));
    }

    fn ir_version(&mut self, version: Option<i64>) {
        let hint = "export the model again, or convert it with `onnx.version_converter`";
        match version.unwrap_or(0) {
            0 => self.hinted(
                Place::model(),
                "the model has no IR version".into(),
                "is it a model, and is the file complete?",
            ),
            v if v < 3 => self.hinted(Place::model(), format!("IR version {v}: the oldest supported is 3"), hint),
            v if v > NEWEST_IR => self.warn(
                Place::model(),
                format!("IR version {v} is newer than {NEWEST_IR}: parts of the model may go unnoticed"),
            ),
            _ => {}
        }
    }

    fn opsets(&mut self, place: &Place, imports: &[OperatorSetIdProto]) -> BTreeMap<String, i64> {
        let mut opsets = BTreeMap::new();
        for import in imports {
            let (name, version) = (domain(&import.domain), import.version);
            if version < 1 {
                self.problem(place.clone(), format!("opset version {version} of domain `{}`", short(name)));
            }
            if let Some(other) = opsets.insert(name.to_string(), version).filter(|&other| other != version) {
                self.problem(
                    place.clone(),
                    format!("domain `{}` is imported in versions {other} and {version}", short(name)),
                );
            }
        }
        opsets
    }

    fn main(&mut self, graph: &'a GraphProto, opsets: &BTreeMap<String, i64>) {
        self.function = None;
        let path: Rc<str> = "main".into();
        let place = || Place::graph("main");
        let body = self.graph(&path, graph);
        let stored: HashSet<&str> = body.initializers.iter().copied().collect();
        for input in &graph.input {
            if input.r#type.as_ref().is_none_or(|t| t.value.is_none()) && !stored.contains(&*input.name) {
                self.problem(place(), format!("input `{}` has no type", short(&input.name)));
            }
        }
        if graph.node.is_empty() {
            self.warn(place(), "the graph has no nodes: it computes nothing".into());
        }
        if graph.input.iter().all(|input| stored.contains(&*input.name)) {
            self.warn(place(), "the graph has no inputs: its outputs are always the same".into());
        }
        if graph.output.is_empty() {
            self.problem(place(), "the graph has no outputs".into());
        }
        let inputs: HashSet<&str> = body.inputs.iter().copied().collect();
        let mut outputs = HashSet::new();
        for &name in &body.outputs {
            if !outputs.insert(name) {
                self.problem(place(), format!("output `{}` is listed more than once", short(name)));
            }
            if inputs.contains(name) && !stored.contains(name) {
                self.warn(place(), format!("output `{}` is an input, returned as it is", short(name)));
            }
        }
        let mut context = Context { opsets: opsets.clone(), attributes: None, missing: BTreeSet::new() };
        let undefined = self.body(&body, &mut context);
        self.undefined(undefined);
    }

    fn function(&mut self, index: usize, f: &'a FunctionProto) {
        self.function = Some(index);
        let path: Rc<str> = function_path(f).into();
        let place = || Place::graph(&*path);
        let opsets = self.opsets(&place(), &f.opset_import);
        let mut attributes = HashSet::new();
        for name in f.attribute.iter().chain(f.attribute_proto.iter().map(|a| &a.name)) {
            if !attributes.insert(name.as_str()) {
                self.problem(place(), format!("attribute `{}` is declared more than once", short(name)));
            }
        }
        self.value_infos(&path, &f.value_info);
        let body = Body {
            path: path.clone(),
            inputs: f.input.iter().map(String::as_str).collect(),
            initializers: vec![],
            nodes: &f.node,
            outputs: f.output.iter().map(String::as_str).collect(),
        };
        let mut context = Context { opsets, attributes: Some(attributes), missing: BTreeSet::new() };
        for default in &f.attribute_proto {
            self.attribute(&place, default, &context);
            if default.subgraphs().next().is_some() {
                self.problem(place(), format!("attribute `{}`: a graph cannot be a default", short(&default.name)));
            }
        }
        let undefined = self.body(&body, &mut context);
        self.undefined(undefined);
    }

    fn undefined(&mut self, uses: Vec<Use<'a>>) {
        for used in uses {
            let name = short(used.name);
            let place = place(&used.path, used.node);
            match used.node {
                Some(_) => self.problem(place, format!("value `{name}` is used but nothing defines it")),
                None => self.problem(place, format!("output `{name}` is not produced by any node")),
            }
        }
    }

    /// A graph as a body, after checking its own tensors and declared types.
    fn graph(&mut self, path: &Rc<str>, graph: &'a GraphProto) -> Body<'a> {
        for infos in [&graph.input, &graph.output, &graph.value_info] {
            self.value_infos(path, infos);
        }
        for tensor in &graph.initializer {
            self.tensor(&|| Place::graph(&**path), tensor);
        }
        for sparse in &graph.sparse_initializer {
            self.sparse(&|| Place::graph(&**path), sparse);
        }
        let sparse = graph.sparse_initializer.iter().map(|s| s.values.as_ref().map_or("", |v| v.name.as_str()));
        Body {
            path: path.clone(),
            inputs: graph.input.iter().map(|v| v.name.as_str()).collect(),
            initializers: graph.initializer.iter().map(|t| t.name.as_str()).chain(sparse).collect(),
            nodes: &graph.node,
            outputs: graph.output.iter().map(|v| v.name.as_str()).collect(),
        }
    }

    fn value_infos(&mut self, path: &Rc<str>, infos: &[ValueInfoProto]) {
        for info in infos {
            if let Some(dim) = info.r#type.as_ref().and_then(negative_dim) {
                self.hinted(
                    Place::graph(&**path),
                    format!("value `{}` has the negative dimension {dim}", short(&info.name)),
                    "an unknown dimension has a name or nothing at all, not a number",
                );
            }
        }
    }

    fn tensor(&mut self, place: &dyn Fn() -> Place, tensor: &TensorProto) {
        let header = tensor_data::element_type(tensor.data_type).and(tensor_data::shape(&tensor.dims).map(|_| ()));
        if let Err(e) = header {
            self.problem(place(), format!("tensor `{}`: {e}", short(&tensor.name)));
        }
    }

    fn sparse(&mut self, place: &dyn Fn() -> Place, sparse: &SparseTensorProto) {
        match tensor_data::dense_size(sparse) {
            Ok(size) => self.sparse = self.sparse.saturating_add(size),
            Err(e) => {
                let name = sparse.values.as_ref().map_or("", |v| &v.name);
                self.problem(place(), format!("sparse tensor `{}`: {e}", short(name)));
            }
        }
    }

    /// Many sparse tensors, each within its limit, must not add up to more than one may have.
    fn sparse_sizes(&mut self, model: &ModelProto) {
        if self.sparse > 0 && self.sparse > tensor_data::sparse_limit(model.encoded_len()) {
            self.problem(
                Place::model(),
                format!("its sparse tensors take {} bytes when dense, too much for its size", self.sparse),
            );
        }
    }

    /// Check a body and all graphs inside; the result are the values it takes from around it, each once.
    fn body(&mut self, body: &Body<'a>, context: &mut Context<'a>) -> Vec<Use<'a>> {
        if self.steps.len() > DEEPEST {
            self.problem(Place::graph(&*body.path), format!("graphs are nested more than {DEEPEST} deep"));
            return vec![];
        }
        let defined = self.definitions(body);
        #[expect(clippy::iter_over_hash_type, reason = "counting does not depend on the order")]
        for name in defined.keys() {
            *self.visible.entry(name).or_default() += 1;
        }
        let mut outside: Vec<Use<'a>> = vec![];
        let mut seen = HashSet::new();
        let mut dependencies = Dependencies::default();
        for (i, node) in body.nodes.iter().enumerate() {
            let inner = self.node(body, i, node, context);
            let own = node.input.iter().filter(|name| !name.is_empty());
            let own = own.map(|name| Use { name, path: body.path.clone(), node: Some((i, node)) });
            for used in own.chain(inner) {
                match defined.get(used.name) {
                    Some(Definition::Node(producer)) => dependencies.push(*producer),
                    Some(Definition::Input | Definition::Initializer) => {}
                    None if seen.insert(used.name) => outside.push(used),
                    None => {}
                }
            }
            dependencies.end_node();
        }
        for &name in &body.outputs {
            if name.is_empty() {
                self.problem(Place::graph(&*body.path), "an output has no name".into());
            } else if !defined.contains_key(name) && seen.insert(name) {
                outside.push(Use { name, path: body.path.clone(), node: None });
            }
        }
        self.order(body, &dependencies);
        #[expect(clippy::iter_over_hash_type, reason = "counting does not depend on the order")]
        for name in defined.keys() {
            if let Entry::Occupied(mut count) = self.visible.entry(name) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        outside
    }

    /// Who defines which name, after checking that nobody does twice.
    fn definitions(&mut self, body: &Body<'a>) -> HashMap<&'a str, Definition> {
        let mut defined = HashMap::new();
        let inputs = body.inputs.iter().map(|&name| (name, Definition::Input));
        let initializers = body.initializers.iter().map(|&name| (name, Definition::Initializer));
        let outputs = body.nodes.iter().enumerate().flat_map(|(i, node)| {
            // An output without a name is one that is not wanted.
            let named = node.output.iter().filter(|name| !name.is_empty());
            named.map(move |name| (name.as_str(), Definition::Node(i)))
        });
        for (name, definition) in inputs.chain(initializers).chain(outputs) {
            let what = match definition {
                Definition::Input => "input",
                Definition::Initializer => "initializer",
                Definition::Node(_) => "value",
            };
            let place = || match definition {
                Definition::Node(i) => place(&body.path, Some((i, &body.nodes[i]))),
                Definition::Input | Definition::Initializer => Place::graph(&*body.path),
            };
            if name.is_empty() {
                self.problem(place(), format!("an {what} has no name"));
                continue;
            }
            match (defined.insert(name, definition), definition) {
                (None, _) => {
                    if self.visible.contains_key(name) {
                        self.warn(place(), format!("{what} `{}` hides the one of a graph around it", short(name)));
                    }
                }
                // An initializer is the default of the input of the same name.
                (Some(Definition::Input), Definition::Initializer) => {}
                (Some(Definition::Node(first)), _) => self.problem(
                    place(),
                    format!(
                        "{what} `{}` is defined more than once: also by {}",
                        short(name),
                        node_place(first, &body.nodes[first])
                    ),
                ),
                (Some(_), _) => {
                    self.problem(place(), format!("{what} `{}` is defined more than once", short(name)));
                }
            }
        }
        defined
    }

    /// Check a node and the graphs inside; the result are the values that those take from around them.
    fn node(&mut self, body: &Body<'a>, i: usize, node: &'a NodeProto, context: &mut Context<'a>) -> Vec<Use<'a>> {
        let place = || place(&body.path, Some((i, node)));
        self.calls.nodes += 1;
        if node.op_type.is_empty() {
            self.problem(place(), "the node has no operator".into());
        }
        let name = domain(&node.domain);
        if let Some(&function) = self.functions.get(&(name, node.op_type.as_str(), node.overload.as_str())) {
            self.calls.functions.push(function);
        } else if !context.opsets.contains_key(name) && context.missing.insert(name) {
            self.hinted(
                place(),
                format!("no opset is imported for domain `{}`", if name.is_empty() { "ai.onnx" } else { name }),
                "a model has to say which version of the operators it means (`opset_import`)",
            );
        }
        let mut uses = vec![];
        let mut given: HashMap<&str, &AttributeProto> = HashMap::new();
        for (a, attribute) in node.attribute.iter().enumerate() {
            let name = short(&attribute.name);
            match given.insert(attribute.name.as_str(), attribute) {
                None => {}
                Some(first) if first == attribute => {
                    self.warn(place(), format!("attribute `{name}` is given more than once, with the same value"));
                }
                Some(_) => self.hinted(
                    place(),
                    format!("attribute `{name}` is given more than once, with different values"),
                    "only one of them can be meant: remove the others from the node",
                ),
            }
            self.attribute(&place, attribute, context);
            for (g, graph) in attribute.subgraphs().enumerate() {
                let label = if node.name.is_empty() { &node.op_type } else { &node.name };
                let inside = format!("{}/#{i} {}.{}", body.path, short(label), short(&attribute.name));
                let body = self.graph(&inside.into(), graph);
                self.steps.push((i, a, g));
                uses.extend(self.body(&body, context));
                self.steps.pop();
            }
        }
        uses
    }

    fn attribute(&mut self, place: &dyn Fn() -> Place, attribute: &AttributeProto, context: &Context<'a>) {
        let name = short(&attribute.name);
        let target = attribute.ref_attr_name.as_str();
        if attribute.name.is_empty() {
            self.problem(place(), "an attribute has no name".into());
        }
        match &context.attributes {
            _ if target.is_empty() => {
                if let Err(e) = attribute.value() {
                    self.problem(place(), format!("attribute `{name}`: {e}"));
                }
            }
            None => self.problem(place(), format!("attribute `{name}` refers to a function, but is in none")),
            Some(known) if !known.contains(target) => {
                self.problem(
                    place(),
                    format!("attribute `{name}` refers to `{}`, which the function lacks", short(target)),
                );
            }
            Some(_) => {}
        }
        for tensor in attribute.t.as_deref().into_iter().chain(&attribute.tensors) {
            self.tensor(place, tensor);
        }
        for sparse in attribute.sparse_tensor.as_deref().into_iter().chain(&attribute.sparse_tensors) {
            self.sparse(place, sparse);
        }
    }

    /// ONNX demands sorted nodes; where an exporter did not care, sorting them is safe and worth a warning.
    fn order(&mut self, body: &Body<'a>, dependencies: &Dependencies) {
        let Some(first) = dependencies.first_unsorted() else { return };
        let node = |i: usize| place(&body.path, Some((i, &body.nodes[i])));
        match dependencies.sort() {
            Ok(order) => {
                self.warn(node(first), "the node comes before one it depends on; nodes were sorted".into());
                self.found.orders.push(Order { function: self.function, steps: self.steps.clone(), order });
            }
            Err(cycle) => {
                let most = 8;
                let mut names: Vec<String> =
                    cycle.iter().take(most).map(|&i| node_place(i, &body.nodes[i]).to_string()).collect();
                if cycle.len() > most {
                    names.push(format!("… ({} nodes)", cycle.len()));
                }
                let message = format!("cycle: each of these nodes needs the next: {}", names.join(", "));
                self.problem(node(cycle[0]), message);
            }
        }
    }
}

fn add(problems: &mut Vec<Problem>, problem: Problem) {
    match problems.len() {
        n if n < MOST_PROBLEMS => problems.push(problem),
        MOST_PROBLEMS => problems.push(Problem::new(Place::model(), "there are more, which are not listed")),
        _ => {}
    }
}

pub(super) fn function_path(f: &FunctionProto) -> String {
    let overload = if f.overload.is_empty() { String::new() } else { format!(":{}", short(&f.overload)) };
    format!("function {}::{}{overload}", short(&f.domain), short(&f.name))
}

fn node_place(index: usize, node: &NodeProto) -> NodePlace {
    NodePlace { index, name: short(&node.name), op_type: short(&node.op_type) }
}

fn place(path: &str, node: Option<(usize, &NodeProto)>) -> Place {
    Place { graph: path.to_string(), node: node.map(|(i, node)| node_place(i, node)) }
}

fn negative_dim(t: &TypeProto) -> Option<i64> {
    match t.value.as_ref()? {
        TypeValue::Tensor(t) | TypeValue::SparseTensor(t) => t.shape.as_ref()?.dim.iter().find_map(|d| match d.value {
            // Paddle's exporter writes -1 for an unknown dimension; the importer takes it as such.
            Some(DimensionValue::Value(n)) if n < -1 => Some(n),
            _ => None,
        }),
        TypeValue::Sequence(e) | TypeValue::Optional(e) => negative_dim(e.elem_type.as_ref()?),
        TypeValue::Map(m) => negative_dim(m.value_type.as_ref()?),
        TypeValue::Opaque(_) => None,
    }
}
