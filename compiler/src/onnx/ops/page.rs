//! The reference page of the operators, made from the tables.
use super::{all, newest_opset};
use crate::onnx::import::{
    OnnxOp,
    table::{Arity, Types},
};
use std::{collections::BTreeMap, fmt::Write};

/// `docs/operators.md`: every operator with its versions, inputs, element types and attributes.
pub fn page() -> String {
    let mut by_domain: BTreeMap<&str, BTreeMap<&str, Vec<&OnnxOp>>> = BTreeMap::new();
    for op in all() {
        by_domain.entry(op.domain).or_default().entry(op.name).or_default().push(op);
    }
    let mut out = String::from(
        "# Operators\n\nMade from the tables in `compiler/src/onnx/ops/` (a test compares; `NUMRSC_BLESS=1` rewrites).\n\
         A row is one meaning of an operator and holds from its opset up to the next row of the same name, or up to the\n\
         newest opset. Inputs in brackets are optional, `..` takes any number. What a row does not list is refused.\n\n",
    );
    let _ = writeln!(out, "## Element types\n\n| name | types |\n|---|---|");
    for types in Types::ALL {
        let _ = writeln!(out, "| {types:?} | {} |", types.list());
    }
    for (domain, ops) in by_domain {
        let title = if domain.is_empty() { "ai.onnx" } else { domain };
        let newest = newest_opset(domain).map_or(String::new(), |v| format!(", up to opset {v}"));
        let _ = writeln!(out, "\n## {title}\n\n{} operators{newest}.\n", ops.len());
        let _ = writeln!(out, "| operator | opsets | inputs | attributes |\n|---|---|---|---|");
        for (name, mut rows) in ops {
            rows.sort_by_key(|r| r.since);
            for (i, row) in rows.iter().enumerate() {
                let opsets = match rows.get(i + 1) {
                    Some(next) if next.since - 1 == row.since => row.since.to_string(),
                    Some(next) => format!("{}–{}", row.since, next.since - 1),
                    None => format!("{}+", row.since),
                };
                let _ = writeln!(out, "| {name} | {opsets} | {} | {} |", inputs(row), attributes(row));
            }
        }
    }
    out
}

fn inputs(row: &OnnxOp) -> String {
    let one = |i: &crate::onnx::import::table::Input| match i.arity {
        Arity::Required => format!("{}: {:?}", i.name, i.types),
        Arity::Optional => format!("[{}: {:?}]", i.name, i.types),
        Arity::Variadic => format!("..{}: {:?}", i.name, i.types),
    };
    row.inputs.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn attributes(row: &OnnxOp) -> String {
    let one = |a: &crate::onnx::import::table::AttrInfo| {
        // Types and defaults are Rust; a bar would end the table's cell.
        let code = |s: &str| {
            let s = s.split_whitespace().collect::<Vec<_>>().join(" ");
            s.replace('|', "\\|").replace(".into()", "").replace("vec![", "[")
        };
        let name = a.name.trim_start_matches("r#");
        if a.default.is_empty() {
            format!("{name}: {}", code(a.ty))
        } else {
            format!("{name}: {} = {}", code(a.ty), code(a.default))
        }
    };
    row.attrs.iter().map(one).collect::<Vec<_>>().join(", ")
}
