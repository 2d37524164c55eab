//! A function as a graph: for scheduling (petgraph) and for looking at (Graphviz).
use crate::{Func, Node, Op, Value, attr::Attr, dim::Sym, func::node_syms, types::join};
use petgraph::graph::{DiGraph, NodeIndex};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write},
    hash::{DefaultHasher, Hash, Hasher},
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
    digraph(|out| write_nodes(func, "", 1, &BTreeMap::new(), out))
}

/// A function before and after a change, side by side. What only one of them computes is red and green.
pub fn dot_change(before: &Func, after: &Func) -> String {
    let (old, new) = (meanings(before), meanings(after));
    let sides = [("before", before, &old, &new, "#f6c9c2"), ("after", after, &new, &old, "#bfe6bf")];
    digraph(|out| {
        for (name, func, own, other, colour) in sides {
            let known: BTreeSet<u64> = other.iter().copied().collect();
            let only_here = |v: &Value| !known.contains(&own[v.0 as usize]);
            let marked = func.values().map(|(v, _)| v).filter(only_here).map(|v| (v, colour)).collect();
            let _ = writeln!(out, "  subgraph \"cluster_{name}\" {{\n    label={}; fontsize=14;", text(name));
            write_nodes(func, &format!("{name}."), 2, &marked, out);
            out.push_str("  }\n");
        }
    })
}

fn digraph(write: impl FnOnce(&mut String)) -> String {
    let mut out = String::from(
        "digraph {\n  rankdir=TB; ranksep=0.35; nodesep=0.25; fontname=\"Helvetica\";\n  \
         node [shape=box, style=\"rounded,filled\", fillcolor=\"#eef3fb\", color=\"#7c93b8\", fontname=\"Helvetica\", \
         fontsize=11, margin=\"0.12,0.06\"];\n  edge [color=\"#5b6678\", arrowsize=0.6, fontname=\"Helvetica\", fontsize=9, \
         fontcolor=\"#5b6678\"];\n",
    );
    write(&mut out);
    out.push_str("}\n");
    out
}

/// A number for each node that says what it computes of the parameters.
fn meanings(func: &Func) -> Vec<u64> {
    let mut all: Vec<u64> = Vec::with_capacity(func.nodes().len());
    for node in func.nodes() {
        let mut hasher = DefaultHasher::new();
        node.op.hash(&mut hasher);
        node.args.iter().for_each(|a| all[a.0 as usize].hash(&mut hasher));
        all.push(hasher.finish());
    }
    all
}

fn write_nodes(func: &Func, prefix: &str, depth: usize, marked: &BTreeMap<Value, &str>, out: &mut String) {
    let margin = "  ".repeat(depth);
    let id = |v: Value| format!("\"{prefix}{}\"", v.0);
    for (v, node) in func.values() {
        let look: Cow<'_, str> = match &node.op {
            op if marked.contains_key(&v) && !matches!(op, Op::Const { .. }) => {
                format!(", fillcolor=\"{}\"", marked[&v]).into()
            }
            Op::Param { .. } => ", shape=ellipse, fillcolor=\"#e3f4e3\", color=\"#6fa36f\"".into(),
            Op::Const { .. } => {
                ", shape=plaintext, style=\"\", fontsize=8, fontcolor=\"#888888\", margin=0, height=0.2, width=0.2"
                    .into()
            }
            op if !op.bodies().is_empty() => ", fillcolor=\"#fdf1dc\", color=\"#c79a4b\"".into(),
            _ => "".into(),
        };
        let _ = writeln!(out, "{margin}{} [label={}{look}];", id(v), label(func, v, node));
        for (name, attr) in node.op.attrs() {
            let Some(body) = attr.as_func() else { continue };
            let inner = format!("{prefix}{}.{name}.", v.0);
            let _ = writeln!(out, "{margin}subgraph \"cluster_{inner}\" {{");
            let _ =
                writeln!(out, "{margin}  label=\"{v} {name}\"; fontname=\"Helvetica\"; fontsize=10; style=rounded;");
            let _ = writeln!(out, "{margin}  color=\"#c79a4b\"; fontcolor=\"#8a6a30\";");
            write_nodes(body, &inner, depth + 1, &BTreeMap::new(), out);
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
    fn only_what_changed_is_marked() {
        let parse = |f: &str| {
            crate::parse(&format!("func(%0: f32[n]) {{\n %1 = map %0 {{f=neg(a0)}} : f32[n]\n {f} }}")).unwrap()
        };
        let before = parse("%2 = map %1 {f=div(a0, 2.0:f32)} : f32[n]\n return %2 \"y\"");
        let after = parse("%2 = map %1 {f=mul(a0, 0.5:f32)} : f32[n]\n return %2 \"y\"");
        let picture = dot_change(&before, &after);
        let marked: Vec<&str> = picture.lines().filter(|l| l.contains("#f6c9c2") || l.contains("#bfe6bf")).collect();
        assert_eq!(marked.len(), 2, "{picture}");
        assert!(marked[0].contains("before.2") && marked[1].contains("after.2"), "{picture}");
    }

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
