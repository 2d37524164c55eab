//! From a decoded model to tensor IR. Every node is looked up in the operator table and expands into core ops; types
//! and shapes are inferred as nodes are pushed. All problems of a model are reported at once.
mod context;
mod names;
mod open;
pub mod operand;
pub mod table;

use super::{
    AttributeValue, Model, domain,
    model::function_opsets,
    ops,
    proto::{
        AttributeProto, Dimension, DimensionValue, FunctionProto, GraphProto, NodeProto, TensorShapeProto, TensorType,
        TypeProto, TypeValue, ValueInfoProto,
    },
};
use crate::{
    error::{Error, NodePlace, Place, Problem},
    near,
};
use numrsc_ir::{
    DType, Dim, Elem, Func, Tensor, Type,
    build::{Graph, X},
    dim::Sym,
    known::Known,
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
};

pub(crate) use context::free_names;
pub use context::{Ctx, Inputs};
use names::Names;
pub use table::{OnnxOp, Outputs};

/// Choices of the user that concern the import.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Shapes of inputs that the model does not declare, or not as far as they are known (`--shape x=2,3,batch`).
    pub shapes: BTreeMap<String, Vec<DimensionValue>>,
    /// Sizes for named dimensions (`--dim batch=1`).
    pub dims: BTreeMap<String, i64>,
    /// Names for sizes that the model has as numbers, by input and axis (`--open x:0=batch`).
    pub open: BTreeMap<(String, usize), String>,
    /// Take a name of a dimension that several inputs use as a different size in each: some exporters reuse names.
    pub distinct_dims: bool,
    /// Values that become outputs as well, by their names or those of the nodes that give them (`--keep conv1`).
    pub keep: Vec<String>,
}

/// Import a model. The error lists everything that is wrong with it.
pub fn import(model: &Model, options: &Options) -> Result<Func, Error> {
    let func = import_once(model, options)?;
    open::check(model, options)?;
    Ok(func)
}

fn import_once(model: &Model, options: &Options) -> Result<Func, Error> {
    let mut sizes = BTreeMap::new();
    let (result, mut problems) = loop {
        let mut importer = Importer::new(model, options, &sizes);
        let result = importer.main();
        let found = std::mem::take(importer.found.get_mut());
        let problems = importer.problems.into_inner();
        if found.is_empty() {
            break (result, problems);
        }
        // With the numbers from the start, everything behind them has numbers, too.
        sizes.extend(found);
    };
    // A loop body is imported more than once while its types settle.
    let mut seen = BTreeSet::new();
    problems.retain(|p: &Problem| seen.insert(p.to_string()));
    let file = || model.file().to_path_buf();
    // A file may have all tensors of a model, and that it is missing is one problem.
    let missing = model.missing_data();
    problems.retain(|p| !missing.iter().any(|m| p.message.ends_with(&m.why)));
    match result {
        Ok(func) if problems.is_empty() && missing.is_empty() => Ok(func),
        _ if problems.is_empty() && !missing.is_empty() => Err(Error::Data { file: file(), missing }),
        _ => {
            let missing = missing.iter().map(|m| Problem::new(Place::model(), m.to_string()));
            Err(Error::Model { file: file(), problems: missing.chain(problems).collect() })
        }
    }
}

/// What importing found out about a value.
#[derive(Clone, Debug)]
pub struct Fact {
    pub ty: Type,
    /// Of small tensors of integers.
    pub known: Option<Known>,
}

/// By the path of a graph, as [`Place`] has it, and by name.
pub type Facts = HashMap<String, HashMap<String, Fact>>;

/// What is known of the values of a model, as far as its nodes are understood, and why the others are not.
pub fn facts(model: &Model, options: &Options) -> (Facts, Vec<Problem>) {
    let sizes = BTreeMap::new();
    let mut importer = Importer::new(model, options, &sizes);
    importer.facts = Some(RefCell::default());
    // What fails is among the problems.
    let _ = importer.main();
    (importer.facts.take().unwrap_or_default().into_inner(), importer.problems.into_inner())
}

/// A shape as people write it: sizes, names of sizes, and `?` for what has neither, with commas between them.
pub fn parse_shape(text: &str) -> Result<Vec<DimensionValue>, String> {
    let part = |text: &str| match text.parse::<i64>() {
        Ok(n) if n >= 0 => Ok(DimensionValue::Value(n)),
        Ok(n) => Err(format!("`{n}` is not a size")),
        Err(_) if text == "?" || text.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
            Ok(DimensionValue::Param(text.to_owned()))
        }
        Err(_) => Err(format!("`{text}` is neither a size nor a name")),
    };
    match text.trim() {
        // One number.
        "" => Ok(vec![]),
        text => text.split(',').map(|t| part(t.trim())).collect(),
    }
}

/// The inverse of [`parse_shape`].
pub fn shape_text<'a>(shape: impl Iterator<Item = Option<&'a DimensionValue>>) -> String {
    let sizes = shape.map(|d| match d {
        Some(DimensionValue::Value(n)) => n.to_string(),
        Some(DimensionValue::Param(name)) => name.clone(),
        None => "?".into(),
    });
    sizes.collect::<Vec<_>>().join(",")
}

/// The names of dimensions of the inputs.
pub fn dims(func: &Func) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for p in func.params() {
        func.ty(p).for_each_sym(&mut |s| {
            names.insert(s.to_string());
        });
    }
    names
}

/// Why a node has no meaning.
#[derive(Debug)]
pub enum Fail {
    Refused(String),
    /// A size has to be known.
    Open {
        message: String,
        size: Dim,
    },
    /// The reason is among the problems already.
    Reported,
}

impl From<numrsc_ir::Error> for Fail {
    fn from(e: numrsc_ir::Error) -> Fail {
        match e {
            numrsc_ir::Error::Open { ref size, .. } => Fail::Open { message: e.to_string(), size: size.clone() },
            _ => Fail::Refused(e.to_string()),
        }
    }
}

impl From<String> for Fail {
    fn from(message: String) -> Fail {
        Fail::Refused(message)
    }
}

impl From<&str> for Fail {
    fn from(message: &str) -> Fail {
        Fail::Refused(message.into())
    }
}

const UNDECLARED: &str = "its rank is not declared";
const DECLARES: &str = "the model declares the shape";

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
enum Bound<'g> {
    Value(X<'g>),
    /// An optional input that the call of a function leaves out: to its nodes, as if the name were empty.
    Absent,
    /// The node that should have given it was reported.
    Failed,
}

impl<'g> Bound<'g> {
    fn of(x: Option<X<'g>>) -> Bound<'g> {
        x.map_or(Bound::Failed, Bound::Value)
    }

    fn value(self) -> Option<X<'g>> {
        match self {
            Bound::Value(x) => Some(x),
            Bound::Absent | Bound::Failed => None,
        }
    }
}

type Scope<'m, 'g> = HashMap<&'m str, Bound<'g>>;

/// What names and versions mean inside a graph or a function of the model.
#[derive(Debug)]
struct Frame<'m> {
    opsets: BTreeMap<String, i64>,
    /// Attributes of the calling node, and the function's defaults.
    attrs: BTreeMap<&'m str, &'m AttributeProto>,
}

impl<'m> Frame<'m> {
    fn opset(&self, domain: &str) -> Option<i64> {
        self.opsets.get(domain).copied()
    }

    fn attr(&self, name: &str) -> Option<&'m AttributeProto> {
        self.attrs.get(name).copied()
    }
}

#[derive(Debug)]
struct Importer<'m> {
    model: &'m Model,
    options: &'m Options,
    problems: RefCell<Vec<Problem>>,
    /// Symbols given to the names that the model has for dimensions.
    symbols: RefCell<BTreeMap<String, String>>,
    /// Symbols that belong to earlier inputs.
    taken: RefCell<BTreeSet<String>>,
    /// The names of dimensions that the user gave a size, and that there are.
    fixed: RefCell<BTreeSet<String>>,
    /// What the entries along the last axis of outputs stand for, by name.
    labels: RefCell<BTreeMap<String, Tensor>>,
    names: RefCell<Names>,
    /// Sizes of inputs that weights leave no choice of.
    sizes: &'m BTreeMap<Sym, i64>,
    /// More of them.
    found: RefCell<BTreeMap<Sym, i64>>,
    /// If they are asked for.
    facts: Option<RefCell<Facts>>,
}

impl<'m> Importer<'m> {
    fn new(model: &'m Model, options: &'m Options, sizes: &'m BTreeMap<Sym, i64>) -> Importer<'m> {
        Importer {
            model,
            options,
            problems: RefCell::default(),
            symbols: RefCell::default(),
            taken: RefCell::default(),
            fixed: RefCell::default(),
            labels: RefCell::default(),
            names: RefCell::default(),
            sizes,
            found: RefCell::default(),
            facts: None,
        }
    }

    fn report(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// Keep what is known of a value. Graphs of loops are imported until their types have settled, so the last word counts.
    fn note(&self, path: &str, name: &str, x: X<'_>) {
        if let Some(facts) = &self.facts {
            let fact = Fact { ty: x.ty(), known: x.known() };
            facts.borrow_mut().entry(path.to_owned()).or_default().insert(name.to_owned(), fact);
        }
    }

    fn main(&self) -> Result<Func, Fail> {
        let graph = self.model.graph();
        let frame = Frame { opsets: self.model.opsets().clone(), attrs: BTreeMap::new() };
        self.check_opsets(&frame.opsets);
        let stored: BTreeSet<&str> = graph
            .initializer
            .iter()
            .chain(graph.sparse_initializer.iter().filter_map(|t| t.values.as_ref()))
            .map(|t| t.name.as_str())
            .collect();
        let g = Graph::new();
        let mut scope = Scope::new();
        let mut names = Vec::new();
        // An initialiser that is also an input is its default value, and compiled in.
        for input in graph.input.iter().filter(|i| !stored.contains(i.name.as_str())) {
            names.push(input.name.clone());
            let declared = self.input_type(input);
            let param = declared
                .and_then(|ty| self.declared_type(&g, &ty))
                .and_then(|ty| g.param(self.with_sizes(&ty)).map_err(|e| e.to_string()))
                .map(|x| if is_optional(input.r#type.as_ref()) { x.as_optional() } else { x })
                .map_err(|e| self.report_input(input, &e));
            if let Ok(x) = param {
                self.note("main", &input.name, x);
            }
            scope.insert(&input.name, Bound::of(param.ok()));
            if self.options.distinct_dims {
                self.taken.borrow_mut().extend(self.symbols.take().into_values());
            }
        }
        let results = self.graph(&g, graph, &frame, "main", &mut scope);
        self.find_sizes(&g);
        let mut results = results?;
        let mut result_names: Vec<String> = graph.output.iter().map(|o| o.name.clone()).collect();
        self.keep(graph, &scope, &mut result_names, &mut results)?;
        self.check_outputs(graph, &results);
        let results: Vec<_> = results.iter().map(|x| x.value()).collect();
        let mut func = g.finish(&results);
        func.param_names = names;
        func.result_names = result_names;
        let unused = self.names.borrow_mut().others(graph, &func);
        func.add_folded(&unused);
        let labels = self.labels.borrow();
        let labelled = |(i, o): (usize, &ValueInfoProto)| Some((i, labels.get(&o.name)?.clone()));
        func.result_labels = graph.output.iter().enumerate().filter_map(labelled).collect();
        self.check_dims(&func);
        let (shapes, open) = (self.options.shapes.keys(), self.options.open.keys().map(|(input, _)| input));
        for (name, what) in shapes.map(|name| (name, "a shape")).chain(open.map(|name| (name, "an open size"))) {
            if !func.param_names.contains(name) {
                let near = near::hint(name, func.param_names.iter().map(String::as_str));
                let message = format!("no input is called `{name}`, for which {what} was given");
                let there_are = format!("there are {}{near}", func.param_names.join(", "));
                self.report(Problem::new(Place::graph("main"), message).hint(there_are));
            }
        }
        Ok(func)
    }

    /// The values that the user wants to see become outputs.
    fn keep<'g>(
        &self,
        graph: &'m GraphProto,
        scope: &Scope<'m, 'g>,
        names: &mut Vec<String>,
        results: &mut Vec<X<'g>>,
    ) -> Result<(), Fail> {
        let output = |node: &'m NodeProto| node.output.iter().find(|o| !o.is_empty()).map(String::as_str);
        let mut missing = false;
        for name in &self.options.keep {
            if names.contains(name) {
                continue;
            }
            let value = scope.get(name.as_str()).or_else(|| {
                let node = graph.node.iter().find(|node| node.name == *name)?;
                scope.get(output(node)?)
            });
            match value.map(|bound| bound.value()) {
                Some(Some(x)) => {
                    names.push(name.clone());
                    results.push(x);
                }
                // Why it could not be imported is said already.
                Some(None) => missing = true,
                None => {
                    missing = true;
                    let nodes = graph.node.iter().flat_map(|n| n.output.iter().chain([&n.name]));
                    let known = scope.keys().copied().chain(nodes.map(String::as_str)).filter(|n| !n.is_empty());
                    let near = near::near(name, known.collect::<BTreeSet<&str>>());
                    let hint = match near {
                        Some(near) => format!("is `{near}` meant?"),
                        None => {
                            "`numrsc inspect --dot` shows the nodes; those of nested graphs and functions cannot be \
                                 kept"
                                .into()
                        }
                    };
                    let message = format!("no value and no node is called `{name}`, which was to be kept");
                    self.report(Problem::new(Place::graph("main"), message).hint(hint));
                }
            }
        }
        if missing { Err(Fail::Reported) } else { Ok(()) }
    }

    /// The declared type of an input, with the shape and the open sizes that the user gave.
    fn input_type(&self, input: &ValueInfoProto) -> Result<TypeProto, String> {
        let mut ty = self.shaped(input)?;
        open::name_sizes(&input.name, &mut ty, &self.options.open)?;
        Ok(ty)
    }

    fn shaped(&self, input: &ValueInfoProto) -> Result<TypeProto, String> {
        let mut ty = input.r#type.clone().ok_or("it has no type")?;
        let Some(given) = self.options.shapes.get(&input.name) else { return Ok(ty) };
        let Some(TypeValue::Tensor(tensor)) = &mut ty.value else { return Err("only tensors have shapes".into()) };
        let known = |d: Option<&DimensionValue>| match d {
            Some(DimensionValue::Value(n)) if *n >= 0 => Some(*n),
            _ => None,
        };
        if let Some(stated) = &tensor.shape {
            let differs = |(s, g): (&Dimension, &DimensionValue)| {
                known(s.value.as_ref()).is_some_and(|n| known(Some(g)).is_none_or(|g| g != n))
            };
            if stated.dim.len() != given.len() || stated.dim.iter().zip(given).any(differs) {
                let stated = shape_text(stated.dim.iter().map(|d| d.value.as_ref()));
                return Err(format!("{DECLARES} {stated}, which the one given does not fit"));
            }
        }
        let dim = given.iter().map(|d| Dimension::from(d.clone())).collect();
        tensor.shape = Some(TensorShapeProto { dim });
        Ok(ty)
    }

    fn report_input(&self, input: &ValueInfoProto, message: &str) {
        let name = &input.name;
        let is_map = matches!(input.r#type, Some(TypeProto { value: Some(TypeValue::Map(_)), .. }));
        let problem = Problem::new(Place::graph("main"), format!("input `{name}`: {message}"));
        self.report(match message {
            UNDECLARED => problem.hint(format!("give its shape: --shape {name}=2,3,batch has two sizes and a name")),
            _ if message.starts_with(DECLARES) => {
                problem.hint(format!("--open {name}:0=batch makes its first size open"))
            }
            _ if is_map => problem.hint("give the model a tensor in its place, one column for each key"),
            _ => problem.hint("inputs are tensors of a known rank, and sequences and optionals of tensors"),
        });
    }

    fn with_sizes(&self, ty: &Type) -> Type {
        ty.map_dims(&|d| d.subst(&|s| self.sizes.get(s).copied().map(Dim::Const)))
    }

    /// Sizes of inputs that turned out to be numbers: what is multiplied with weights is as long as they are.
    fn find_sizes(&self, g: &Graph) {
        let open = g.open_sizes();
        self.found.borrow_mut().extend(g.demanded().into_iter().filter(|(s, _)| open.contains(s)));
    }

    /// A size for a dimension that no input has is a mistake.
    fn check_dims(&self, func: &Func) {
        let mut names = dims(func);
        names.extend(self.fixed.borrow().iter().cloned());
        let there_are = match names.iter().cloned().collect::<Vec<_>>() {
            names if names.is_empty() => "all sizes are known".to_owned(),
            names => format!("there are {}", names.join(", ")),
        };
        for name in self.options.dims.keys().filter(|name| !names.contains(*name)) {
            let message = format!("no input has a dimension `{name}`, for which a size was given");
            let near = near::hint(name, names.iter().map(String::as_str));
            self.report(Problem::new(Place::graph("main"), message).hint(there_are.clone() + &near));
        }
    }

    /// The declared element type of an output must be the one computed. Declared shapes are not used: they often state
    /// what only run time can know.
    fn check_outputs(&self, graph: &GraphProto, results: &[X<'_>]) {
        for (output, x) in graph.output.iter().zip(results) {
            if x.has_open_rank() {
                let message = format!("the rank of output `{}` depends on values; it is one element", output.name);
                self.report(
                    Problem::new(Place::graph("main"), message).hint("reshape it to a fixed shape in the model"),
                );
            }
            let Some(TypeValue::Tensor(t)) = output.r#type.as_ref().and_then(|t| t.value.as_ref()) else { continue };
            let declared = DType::from_onnx(t.elem_type);
            if let (Some(d), Type::Tensor(got)) = (declared, x.ty())
                && d != got.dtype
            {
                let message = format!("output `{}` is declared as {d} but computed as {}", output.name, got.dtype);
                self.report(Problem::new(Place::graph("main"), message));
            }
        }
    }

    fn check_opsets(&self, opsets: &BTreeMap<String, i64>) {
        for (domain, version) in opsets {
            if let Some(newest) = ops::newest_opset(domain)
                && *version > newest
            {
                let name = if domain.is_empty() { "ai.onnx" } else { domain };
                let message = format!("opset {version} of {name} is newer than {newest}, the newest supported");
                self.report(Problem::new(Place::model(), message).hint("export the model for an older opset"));
            }
        }
    }

    /// Import the nodes of a graph and give its outputs. Nodes that fail are reported, and so are all others that
    /// can be judged without them.
    fn graph<'g>(
        &self,
        g: &'g Graph,
        graph: &'m GraphProto,
        frame: &Frame<'m>,
        path: &str,
        scope: &mut Scope<'m, 'g>,
    ) -> Result<Vec<X<'g>>, Fail> {
        for t in &graph.initializer {
            let x = self.model.tensor(t).and_then(|t| g.constant(t).map_err(|e| e.to_string()));
            let x = x.map_err(|e| self.report(Problem::new(Place::graph(path), e)));
            scope.insert(&t.name, Bound::of(x.ok()));
        }
        for t in &graph.sparse_initializer {
            let x = self.model.sparse_tensor(t).and_then(|t| g.constant(t).map_err(|e| e.to_string()));
            let name = t.values.as_ref().map_or("", |v| v.name.as_str());
            let x = x.map_err(|e| self.report(Problem::new(Place::graph(path), e)));
            scope.insert(name, Bound::of(x.ok()));
        }
        self.nodes(g, &graph.node, frame, path, scope);
        let outputs: Option<Vec<X<'g>>> =
            graph.output.iter().map(|o| scope.get(o.name.as_str()).and_then(|b| b.value())).collect();
        outputs.ok_or(Fail::Reported)
    }

    fn nodes<'g>(
        &self,
        g: &'g Graph,
        nodes: &'m [NodeProto],
        frame: &Frame<'m>,
        path: &str,
        scope: &mut Scope<'m, 'g>,
    ) {
        for (index, node) in nodes.iter().enumerate() {
            let inner = format!("{path}/#{index} {}", node.name);
            let import = || self.node(g, node, frame, &inner, scope);
            let origin = self.names.borrow_mut().origin(node, index, path, &inner);
            let outputs = match origin {
                Some(origin) => g.from_node(origin, import, |outputs| outputs.iter().flatten().copied().collect()),
                None => import(),
            };
            let outputs = outputs.unwrap_or_else(|fail| {
                let (message, hint) = match fail {
                    Fail::Refused(message) => (message.clone(), self.hint(node, frame, &message)),
                    Fail::Open { message, size } => {
                        let hint = self.size_hint(g, &size).unwrap_or_else(|| self.hint(node, frame, &message));
                        (message, hint)
                    }
                    Fail::Reported => return vec![],
                };
                let at = NodePlace { index, name: node.name.clone(), op_type: describe(node, frame) };
                let place = Place { graph: path.into(), node: Some(at) };
                self.report(Problem { place, message, hint: Some(hint) });
                vec![]
            });
            let given = outputs.into_iter().chain(std::iter::repeat(None));
            for (name, x) in node.output.iter().zip(given).filter(|(name, _)| !name.is_empty()) {
                if let Some(x) = x {
                    self.note(path, name, x);
                }
                scope.insert(name, Bound::of(x));
            }
        }
    }

    fn node<'g>(
        &self,
        g: &'g Graph,
        node: &'m NodeProto,
        frame: &Frame<'m>,
        path: &str,
        scope: &Scope<'m, 'g>,
    ) -> Result<Outputs<'g>, Fail> {
        // Whether an operator is known does not depend on its inputs, so that is reported in any case.
        let function = self.model.function(&node.domain, &node.op_type, &node.overload);
        let row = if function.is_some() { None } else { Some(find(node, frame)?) };
        let mut args = Vec::with_capacity(node.input.len());
        for name in &node.input {
            args.push(match (name.as_str(), scope.get(name.as_str())) {
                ("", _) | (_, Some(Bound::Absent)) => None,
                (_, Some(Bound::Value(x))) => Some(*x),
                (_, Some(Bound::Failed)) => return Err(Fail::Reported),
                (_, None) => return Err(Fail::Refused(format!("`{name}` is not defined"))),
            });
        }
        match (row, function) {
            (Some(row), _) => {
                let cx = Ctx { g, importer: self, frame, node, scope, args: &args, path };
                let outputs = (row.import)(&cx)?;
                if let Some(i) =
                    (0..node.output.len()).find(|&i| cx.wants(i) && !matches!(outputs.get(i), Some(Some(_))))
                {
                    return Err(Fail::Refused(format!("output {i} `{}` is not supported", node.output[i])));
                }
                Ok(outputs)
            }
            (None, Some(function)) => self.call(g, node, function, frame, path, &args),
            (None, None) => unreachable!("a node without a function has a row"),
        }
    }

    /// Expand a call of a function that the model defines.
    fn call<'g>(
        &self,
        g: &'g Graph,
        node: &'m NodeProto,
        function: &'m FunctionProto,
        outer: &Frame<'m>,
        path: &str,
        args: &[Option<X<'g>>],
    ) -> Result<Outputs<'g>, Fail> {
        if args.len() > function.input.len() || node.output.len() > function.output.len() {
            return Err(Fail::Refused(format!(
                "the function takes {} inputs and gives {} outputs",
                function.input.len(),
                function.output.len()
            )));
        }
        let mut attrs: BTreeMap<&str, &AttributeProto> =
            function.attribute_proto.iter().map(|a| (a.name.as_str(), a)).collect();
        for a in &node.attribute {
            if !function.attribute.contains(&a.name) && !attrs.contains_key(a.name.as_str()) {
                return Err(Fail::Refused(format!("the function has no attribute `{}`", a.name)));
            }
            let given = if a.ref_attr_name.is_empty() { Some(a) } else { outer.attr(&a.ref_attr_name) };
            if let Some(given) = given {
                attrs.insert(&a.name, given);
            }
        }
        let frame = Frame { opsets: function_opsets(function), attrs };
        let given = |i: usize| args.get(i).copied().flatten().map_or(Bound::Absent, Bound::Value);
        let mut scope: Scope<'m, 'g> =
            function.input.iter().enumerate().map(|(i, name)| (name.as_str(), given(i))).collect();
        let before = self.problems.borrow().len();
        self.nodes(g, &function.node, &frame, path, &mut scope);
        if self.problems.borrow().len() > before {
            return Err(Fail::Reported);
        }
        Ok(function.output.iter().map(|o| scope.get(o.as_str()).and_then(|b| b.value())).collect())
    }

    /// Which sizes of inputs to fix, so that a size that depends on them is a number.
    fn size_hint(&self, g: &Graph, size: &Dim) -> Option<String> {
        let named: BTreeSet<String> = self.symbols.borrow().values().cloned().collect();
        let causes: Vec<String> =
            g.causes(size).iter().map(ToString::to_string).filter(|s| named.contains(s)).collect();
        // A nested graph does not see where the sizes around it come from.
        let names = if causes.is_empty() { named.into_iter().collect() } else { causes };
        let list = names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
        let example = names.first()?;
        Some(match names.len() {
            1 => format!("give {list} a size, as in --dim {example}=4"),
            _ => format!("give sizes to those of {list} on which it depends, as in --dim {example}=4"),
        })
    }

    /// What the user could do about a node that failed.
    fn hint(&self, node: &NodeProto, frame: &Frame<'_>, message: &str) -> String {
        let (here, name) = (domain(&node.domain), &node.op_type);
        if frame.opset(here).is_none() {
            return format!("add `{}` to the model's opset imports", if here.is_empty() { "ai.onnx" } else { here });
        }
        if let Some(advice) = ops::advice(here, name) {
            return advice.into();
        }
        if ops::first_version(here, name).is_none() {
            return match ops::similar(here, name) {
                Some(name) => format!("did you mean `{name}`?"),
                None => "docs/operators.md lists what is supported; a model without this part can be cut out with \
                         `onnx.utils.extract_model`"
                    .into(),
            };
        }
        match &self.open_sizes(message)[..] {
            [] => format!("docs/operators.md lists what is supported of `{name}`, and in which versions"),
            names => {
                let dims: Vec<String> = names.iter().map(|name| format!("--dim {name}=SIZE")).collect();
                format!("if sizes have to be known, give them: {}", dims.join(" "))
            }
        }
    }

    /// The sizes with a name in the model that a message mentions among shapes, as in `f32[batch, 3]`.
    fn open_sizes(&self, message: &str) -> Vec<String> {
        let inside = message.split('[').skip(1).filter_map(|s| s.split(']').next());
        let words = inside.flat_map(|s| s.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
        let words: BTreeSet<&str> = words.collect();
        let (symbols, taken) = (self.symbols.borrow(), self.taken.borrow());
        let named = symbols.values().chain(taken.iter()).filter(|s| words.contains(s.as_str()));
        named.cloned().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The IR type for a declared one. Dimensions without a name get one.
    fn declared_type(&self, g: &Graph, ty: &TypeProto) -> Result<Type, String> {
        match &ty.value {
            Some(TypeValue::Tensor(t)) => {
                let dtype = super::tensor_data::element_type(t.elem_type)?;
                let shape = t.shape.as_ref().ok_or(UNDECLARED)?;
                let dims =
                    shape.dim.iter().map(|d| Ok(self.dimension(d.value.as_ref())?.unwrap_or_else(|| g.fresh_size())));
                Ok(Type::tensor(dtype, dims.collect::<Result<Vec<Dim>, String>>()?))
            }
            // An optional is a sequence of at most one.
            Some(TypeValue::Sequence(e) | TypeValue::Optional(e)) => {
                let elem = e.elem_type.as_deref().ok_or("its elements have no type")?;
                Ok(Type::Seq(Box::new(self.declared_elem(elem)?)))
            }
            Some(TypeValue::Map(_)) => Err("maps are not supported".into()),
            Some(TypeValue::SparseTensor(_)) => Err("sparse tensors are supported as constants only".into()),
            Some(TypeValue::Opaque(_)) => Err("opaque types are not supported".into()),
            None => Err("it has no type".into()),
        }
    }

    fn declared_elem(&self, ty: &TypeProto) -> Result<Elem, String> {
        match &ty.value {
            Some(TypeValue::Tensor(TensorType { elem_type, shape })) => {
                let dtype = super::tensor_data::element_type(*elem_type)?;
                // A name says nothing that holds for all elements: each has its own size.
                let number = |d: Option<Dim>| d.filter(|d| d.as_const().is_some());
                let dims = |s: &TensorShapeProto| -> Result<Vec<Option<Dim>>, String> {
                    s.dim.iter().map(|d| Ok(number(self.dimension(d.value.as_ref())?))).collect()
                };
                let shape = shape.as_ref().map(dims).transpose()?;
                Ok(Elem::Tensor { dtype, shape })
            }
            Some(TypeValue::Sequence(e) | TypeValue::Optional(e)) => {
                let elem = e.elem_type.as_deref().ok_or("its elements have no type")?;
                Ok(Elem::Seq(Box::new(self.declared_elem(elem)?)))
            }
            _ => Err("its elements are of a kind that is not supported".into()),
        }
    }

    fn dimension(&self, d: Option<&DimensionValue>) -> Result<Option<Dim>, String> {
        match d {
            Some(DimensionValue::Value(-1)) => Ok(None),
            Some(DimensionValue::Value(n)) if *n < 0 => Err(format!("it has the negative dimension {n}")),
            Some(DimensionValue::Value(n)) => Ok(Some(Dim::Const(*n))),
            // Some exporters write `?` for what has no name.
            Some(DimensionValue::Param(name)) if name.contains(char::is_alphanumeric) => {
                // By the model's name, or by the one that we show.
                let symbol = self.symbol(name);
                let given = [name, &symbol].into_iter().find_map(|name| self.options.dims.get_key_value(name));
                let Some((name, size)) = given else { return Ok(Some(Dim::sym(symbol))) };
                self.fixed.borrow_mut().insert(name.clone());
                Ok(Some(Dim::Const(*size)))
            }
            _ => Ok(None),
        }
    }

    /// A symbol for a name that may hold any characters; different names get different symbols.
    fn symbol(&self, name: &str) -> String {
        let mut symbols = self.symbols.borrow_mut();
        if let Some(s) = symbols.get(name) {
            return s.clone();
        }
        let mut symbol: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        // A leading underscore marks symbols that have no name in the model.
        if !symbol.starts_with(|c: char| c.is_ascii_alphabetic()) {
            symbol.insert(0, 'd');
        }
        while symbols.values().any(|s| *s == symbol) || self.taken.borrow().contains(&symbol) {
            symbol.push('x');
        }
        symbols.insert(name.to_string(), symbol.clone());
        symbol
    }
}

fn is_optional(ty: Option<&TypeProto>) -> bool {
    matches!(ty.and_then(|t| t.value.as_ref()), Some(TypeValue::Optional(_)))
}

/// The row that gives a node its meaning.
fn find(node: &NodeProto, frame: &Frame<'_>) -> Result<&'static OnnxOp, Fail> {
    let here = domain(&node.domain);
    let Some(opset) = frame.opset(here) else {
        return Err(Fail::Refused(format!("the model does not import the operator set `{here}`")));
    };
    ops::find(here, &node.op_type, opset).ok_or_else(|| match ops::first_version(here, &node.op_type) {
        Some(first) => Fail::Refused(format!("the operator exists from opset {first} on, the model imports {opset}")),
        None => Fail::Refused("the operator is not supported".into()),
    })
}

/// `Relu, opset 14` or `com.microsoft::Gelu, opset 1`
fn describe(node: &NodeProto, frame: &Frame<'_>) -> String {
    let here = domain(&node.domain);
    let prefix = if here.is_empty() { String::new() } else { format!("{here}::") };
    let opset = frame.opset(here).map_or(String::new(), |v| format!(", opset {v}"));
    format!("{prefix}{}{opset}", node.op_type)
}
