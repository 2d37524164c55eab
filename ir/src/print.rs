//! The textual form, written. [`crate::parse()`] reads it back exactly.
use crate::{Func, Lit, Op, Tensor, Value, types::join};
use std::fmt::{self, Write};

/// Larger constants print as hexadecimal bytes.
const MAX_LISTED: usize = 64;

/// How much of large constants to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Everything: reads back to the same function.
    Exact,
    /// Large constants as `...`, for people.
    Brief,
}

impl fmt::Display for Func {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&func(self, Detail::Exact))
    }
}

/// The text of a function.
pub fn func(f: &Func, detail: Detail) -> String {
    let mut out = String::new();
    write_func(f, 0, detail, &mut out);
    out.push('\n');
    out
}

pub(crate) fn nested(f: &Func, out: &mut String) {
    write_func(f, 0, Detail::Exact, out);
}

pub(crate) fn tensor(t: &Tensor, out: &mut String) {
    write_tensor(t, Detail::Exact, out);
}

fn write_func(f: &Func, depth: usize, detail: Detail, out: &mut String) {
    let margin = "  ".repeat(depth);
    let name = |names: &[String], i: usize| names.get(i).map_or(String::new(), |n| format!(" {}", quoted(n)));
    let params = f.params();
    let listed: Vec<String> = params
        .iter()
        .map(|p| {
            let mut text = format!("{p}{}: {}", name(&f.param_names, p.0 as usize), f.ty(*p));
            let _ = f.origins(*p).print("from", &mut text);
            text
        })
        .collect();
    let _ = writeln!(out, "func({}) {{", listed.join(", "));
    for (v, node) in f.values().skip(params.len()) {
        let _ = write!(out, "{margin}  {v} = {}", node.op.name());
        if !node.args.is_empty() {
            let _ = write!(out, " {}", join(&node.args, ", "));
        }
        let attrs = node.op.attrs();
        if !attrs.is_empty() {
            out.push_str(" {");
            for (i, (key, attr)) in attrs.iter().enumerate() {
                let _ = write!(out, "{}{key}=", if i == 0 { "" } else { ", " });
                match (&node.op, attr.as_func()) {
                    (Op::Const { value }, _) => write_tensor(value, detail, out),
                    (_, Some(body)) => write_func(body, depth + 1, detail, out),
                    _ => attr.print(out),
                }
            }
            out.push('}');
        }
        let _ = write!(out, " : {}", node.ty);
        let _ = f.origins(v).print("from", out);
        out.push('\n');
    }
    let results: Vec<String> = f
        .results()
        .iter()
        .enumerate()
        .map(|(i, r): (usize, &Value)| {
            let mut text = format!("{r}{}", name(&f.result_names, i));
            if let Some(labels) = f.result_labels.get(&i) {
                text.push_str(" labels ");
                write_tensor(labels, detail, &mut text);
            }
            text
        })
        .collect();
    let _ = write!(out, "{margin}  return{}{}", if results.is_empty() { "" } else { " " }, results.join(", "));
    if !f.folded().is_empty() {
        let _ = write!(out, "\n{margin}  folded {}", f.folded());
    }
    let _ = write!(out, "\n{margin}}}");
}

fn write_tensor(t: &Tensor, detail: Detail, out: &mut String) {
    let _ = write!(out, "{}[{}]", t.dtype(), join(t.shape(), ", "));
    if let Some(strings) = t.strings() {
        let list: Vec<String> = strings.iter().map(|s| quoted(s)).collect();
        let _ = write!(out, "({})", list.join(", "));
    } else if let Some(numbers) = (t.len() <= MAX_LISTED).then(|| numbers(t)).flatten() {
        let _ = write!(out, "({})", numbers.join(", "));
    } else if detail == Detail::Brief {
        out.push_str("(...)");
    } else {
        out.push('#');
        t.bytes().iter().for_each(|b| {
            let _ = write!(out, "{b:02x}");
        });
    }
}

/// Every element, or `None` if some bytes are not what their number encodes to (then only the bytes are exact).
fn numbers(t: &Tensor) -> Option<Vec<String>> {
    let d = t.dtype();
    let literal = |bytes: &[u8]| {
        let bits = bytes.iter().rev().fold(0u64, |x, &b| (x << 8) | u64::from(b));
        let lit = Lit::from_bits(d, bits)?;
        (lit.bits().to_le_bytes()[..d.size()] == *bytes).then(|| lit.number_text())
    };
    t.bytes().chunks_exact(d.size()).map(literal).collect()
}

/// `"text"` with quotes, backslashes and control characters escaped.
pub(crate) fn quoted(s: &str) -> String {
    let mut out = String::from("\"");
    for c in s.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{{{:x}}}", c as u32);
            }
            c => out.push(c),
        }
    }
    out + "\""
}
