//! A name for every node of a model, different from all others: what messages, reports and the launches of kernels call it.
use crate::onnx::{
    domain,
    proto::{GraphProto, NodeProto},
};
use numrsc_ir::{Func, Origin, Origins};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// The names given so far. Graphs that are imported more than once get the same ones again.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// By the path of the node.
    names: HashMap<String, Arc<str>>,
    /// Whose they are.
    owners: HashMap<Arc<str>, String>,
}

impl Names {
    /// The node at this position of a graph, unless it computes nothing. Its path is `inner`.
    pub(super) fn origin(&mut self, node: &NodeProto, index: usize, graph: &str, inner: &str) -> Option<Origin> {
        let here = domain(&node.domain);
        if here.is_empty() && ["Constant", "Identity"].contains(&&*node.op_type) {
            return None;
        }
        let operator = if here.is_empty() { node.op_type.clone() } else { format!("{here}.{}", node.op_type) };
        Some(Origin { node: self.name(node, index, graph, inner), operator: operator.into(), moved_by: None })
    }

    /// The nodes of a model that nothing of a function comes from: in branches that are never taken, or needed by nobody.
    pub(super) fn others(&mut self, graph: &GraphProto, func: &Func) -> Origins {
        let mut known: HashSet<&str> = HashSet::new();
        func.for_each_origin(&mut |origin| {
            known.insert(&origin.node);
        });
        let mut all = Vec::new();
        self.list(graph, "main", &mut all);
        all.into_iter().filter(|origin| !known.contains(&*origin.node)).collect()
    }

    fn list(&mut self, graph: &GraphProto, path: &str, all: &mut Vec<Origin>) {
        for (index, node) in graph.node.iter().enumerate() {
            let inner = format!("{path}/#{index} {}", node.name);
            all.extend(self.origin(node, index, path, &inner));
            for attribute in &node.attribute {
                for nested in attribute.subgraphs() {
                    self.list(nested, &format!("{inner}.{}", attribute.name), all);
                }
            }
        }
    }

    /// Names of nodes are optional, and need not differ; those of outputs differ within a graph.
    fn name(&mut self, node: &NodeProto, index: usize, graph: &str, inner: &str) -> Arc<str> {
        if let Some(name) = self.names.get(inner) {
            return name.clone();
        }
        let output = node.output.iter().find(|name| !name.is_empty());
        let own = Some(&node.name).filter(|name| !name.is_empty());
        let prefix = self.prefix(graph);
        let numbered = || format!("{prefix}{}#{index}", own.or(output).unwrap_or(&node.op_type));
        let given = own.into_iter().chain(output).map(|name| format!("{prefix}{name}"));
        let free = |name: &String| !self.owners.contains_key(name.as_str());
        let mut name = given.into_iter().find(free).unwrap_or_else(numbered);
        while self.owners.contains_key(name.as_str()) {
            name.push('\'');
        }
        let name: Arc<str> = name.into();
        self.names.insert(inner.to_owned(), name.clone());
        self.owners.insert(name.clone(), inner.to_owned());
        name
    }

    /// What the names within a graph begin with: the name of the node that it belongs to, and which of its graphs it is.
    fn prefix(&self, graph: &str) -> String {
        if let Some(call) = self.names.get(graph) {
            return format!("{call}/");
        }
        let nested = graph.rsplit_once('.').and_then(|(node, which)| Some((self.names.get(node)?, which)));
        nested.map_or(String::new(), |(node, which)| format!("{node}.{which}/"))
    }
}
