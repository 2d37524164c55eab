//! The section of an artifact that names the nodes of the user's model.
use numrsc_ir::Origins;
use numrsc_passes::emit::Lowered;
use numrsc_runtime::artifact::{Addition, LaunchSpec, NamesSpec, NodeSpec};
use std::{collections::HashMap, sync::Arc};

/// Which nodes each launch computes, and what became of the others; nothing if the function came from no model.
pub(crate) fn section(lowered: &Lowered) -> numrsc_runtime::Result<Option<Addition>> {
    let mut table = Table::default();
    let mut names = NamesSpec::default();
    for launch in &lowered.launches {
        names.launches.push(LaunchSpec { kernel: launch.kernel.0, nodes: table.numbers(&launch.origins) });
    }
    names.entry = table.numbers(&lowered.by_entry);
    names.folded = table.numbers(&lowered.folded);
    names.nodes = table.nodes;
    if names.nodes.is_empty() { Ok(None) } else { names.encode().map(Some) }
}

/// The nodes that were mentioned, each once.
#[derive(Default)]
struct Table {
    nodes: Vec<NodeSpec>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Table {
    fn numbers(&mut self, origins: &Origins) -> Vec<u32> {
        let mut numbers = Vec::with_capacity(origins.len());
        for origin in origins {
            let number = *self.numbers.entry(origin.node.clone()).or_insert_with(|| {
                self.nodes.push(NodeSpec { name: origin.node.to_string(), operator: origin.operator.to_string() });
                self.nodes.len() as u32 - 1
            });
            numbers.push(number);
        }
        numbers
    }
}
