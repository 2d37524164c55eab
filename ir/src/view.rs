//! A function as a graph: for scheduling (petgraph) and for looking at (Graphviz).
use crate::{Func, Node, Op, Value, attr::Attr, dim::Sym, func::node_syms, types::join};
use petgraph::graph::{DiGraph, NodeIndex};
use std::{
    collections::BTreeSet,
    fmt::{self, Write},
};

/// Why a node needs another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Edge {
    /// It is the operand with this number.
    Operand(usize),
    /// It introduces this symbol.
    Symbol(Sym),
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Edge::Operand(i) => write!(f, "{i}"),
            Edge::Symbol(s) => f.write_str(s),
        }
    }
}

/// The graph of a function; edges lead from what is needed to its user. Node `i` is value `%i`.
pub fn graph(func: &Func) -> DiGraph<Value, Edge> {
    let mut g = DiGraph::with_capacity(func.nodes().len(), func.nodes().len());
    let definitions = func.sym_definitions();
    for (v, node) in func.values() {
        let user = g.add_node(v);
        for (i, a) in node.args.iter().enumerate() {
            g.add_edge(NodeIndex::new(a.0 as usize), user, Edge::Operand(i));
        }
        let mut syms = BTreeSet::new();
        node_syms(node, &mut syms);
        for s in syms {
            if let Some(d) = definitions.get(&s).filter(|d| **d < v) {
                g.add_edge(NodeIndex::new(d.0 as usize), user, Edge::Symbol(s));
            }
        }
    }
    g
}

/// The function in Graphviz's language: parameters and results are ellipses, constants are small and grey, nested
/// functions are boxes that point to the node that runs them, dotted lines are symbols that a node computes.
pub fn dot(func: &Func) -> String {
    let mut out = String::from(
        "digraph {\n  rankdir=TB; ranksep=0.35; nodesep=0.25; fontname=\"Helvetica\";\n  \
         node [shape=box, style=\"rounded,filled\", fillcolor=\"#eef3fb\", color=\"#7c93b8\", fontname=\"Helvetica\", \
         fontsize=11, margin=\"0.12,0.06\"];\n  edge [color=\"#5b6678\", arrowsize=0.6, fontname=\"Helvetica\", fontsize=9, \
         fontcolor=\"#5b6678\"];\n",
    );
    write_nodes(func, "", 1, &mut out);
    out.push_str("}\n");
    out
}

fn write_nodes(func: &Func, prefix: &str, depth: usize, out: &mut String) {
    let margin = "  ".repeat(depth);
    let id = |v: Value| format!("\"{prefix}{}\"", v.0);
    for (v, node) in func.values() {
        let look = match &node.op {
            Op::Param { .. } => ", shape=ellipse, fillcolor=\"#e3f4e3\", color=\"#6fa36f\"",
            Op::Const { .. } => {
                ", shape=plaintext, style=\"\", fontsize=8, fontcolor=\"#888888\", margin=0, height=0.2, width=0.2"
            }
            op if !op.bodies().is_empty() => ", fillcolor=\"#fdf1dc\", color=\"#c79a4b\"",
            _ => "",
        };
        let _ = writeln!(out, "{margin}{} [label={}{look}];", id(v), label(func, v, node));
        for (name, attr) in node.op.attrs() {
            let Some(body) = attr.as_func() else { continue };
            let inner = format!("{prefix}{}.{name}.", v.0);
            let _ = writeln!(out, "{margin}subgraph \"cluster_{inner}\" {{");
            let _ =
                writeln!(out, "{margin}  label=\"{v} {name}\"; fontname=\"Helvetica\"; fontsize=10; style=rounded;");
            let _ = writeln!(out, "{margin}  color=\"#c79a4b\"; fontcolor=\"#8a6a30\";");
            write_nodes(body, &inner, depth + 1, out);
            let _ = writeln!(out, "{margin}}}");
            if let Some(last) = body.results().len().checked_sub(1) {
                let look = "style=dashed, arrowhead=empty, color=\"#c79a4b\"";
                let _ = writeln!(out, "{margin}\"{inner}out{last}\" -> {} [{look}];", id(v));
            }
        }
    }
    let g = graph(func);
    for e in g.edge_indices() {
        let (Some((from, to)), Some(edge)) = (g.edge_endpoints(e), g.edge_weight(e)) else { continue };
        let (from, to) = (g[from], g[to]);
        let look = match edge {
            Edge::Operand(_) if matches!(func.node(from).op, Op::Const { .. }) => {
                " [color=\"#cccccc\", arrowsize=0.4]".into()
            }
            // The order of operands matters only where there are several.
            Edge::Operand(i) if func.node(to).args.len() > 1 => format!(" [label=\"{i}\"]"),
            Edge::Operand(_) => String::new(),
            // A parameter's symbols are everywhere; only computed ones are worth a line.
            Edge::Symbol(_) if matches!(func.node(from).op, Op::Param { .. }) => continue,
            Edge::Symbol(_) if func.node(to).args.contains(&from) => continue,
            Edge::Symbol(s) => format!(" [style=dotted, constraint=false, label={}]", text(s)),
        };
        let _ = writeln!(out, "{margin}{} -> {}{look};", id(from), id(to));
    }
    for (i, r) in func.results().iter().enumerate() {
        let name = func.result_names.get(i).cloned().unwrap_or_else(|| format!("result {i}"));
        let _ = writeln!(
            out,
            "{margin}\"{prefix}out{i}\" [label={}, shape=ellipse, fillcolor=\"#fbe6e6\", color=\"#b87c7c\"];",
            text(&name)
        );
        let _ = writeln!(out, "{margin}{} -> \"{prefix}out{i}\";", id(*r));
    }
}

fn label(func: &Func, v: Value, node: &Node) -> String {
    const MAX_ATTRS: usize = 60;
    let short = |s: String, max: usize| {
        if s.chars().count() > max { s.chars().take(max - 1).chain(['…']).collect() } else { s }
    };
    let ty = short(node.ty.to_string(), MAX_ATTRS);
    match &node.op {
        Op::Param { .. } => {
            let name = func.param_names.get(v.0 as usize).cloned().unwrap_or_else(|| v.to_string());
            return text(&format!("{name}\n{ty}"));
        }
        Op::Const { value } => {
            let mut shown = ty;
            if value.len() <= 4 {
                shown.clear();
                value.print(&mut shown);
            }
            return text(&short(shown, MAX_ATTRS / 2));
        }
        _ => {}
    }
    let attrs: Vec<String> = node
        .op
        .attrs()
        .into_iter()
        .filter(|(name, attr)| attr.as_func().is_none() && *name != "types")
        .map(|(name, attr)| {
            let mut text = String::new();
            attr.print(&mut text);
            // A scalar expression says what the map does; its attribute's name adds nothing.
            if matches!(node.op, Op::Map { .. }) { text } else { format!("{name}={text}") }
        })
        .collect();
    let attrs = short(join(&attrs, ", "), MAX_ATTRS);
    text(&format!("{v} {}\n{attrs}{}{ty}", node.op, if attrs.is_empty() { "" } else { "\n" }))
}

/// A quoted string of Graphviz; lines are centred.
fn text(s: &str) -> String {
    let mut out = String::from("\"");
    for c in s.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_edges() {
        let f = crate::parse(
            "func(%0: bool[n]) {
               %1 = compress %0 {count=k} : i64[k]
               %2 = iota {dtype=f32, shape=[k], axis=0} : f32[k]
               return %2 \"y\"
             }",
        )
        .unwrap();
        let g = graph(&f);
        let edges: Vec<_> = g.raw_edges().iter().map(|e| (e.source().index(), e.target().index(), &e.weight)).collect();
        let k = Edge::Symbol("k".into());
        assert_eq!(edges, [(0, 1, &Edge::Operand(0)), (1, 2, &k)]);
        assert!(dot(&f).contains("\"1\" -> \"2\" [style=dotted, constraint=false, label=\"k\"];"));
    }
}
