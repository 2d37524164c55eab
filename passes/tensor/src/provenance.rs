//! Where values come from, through passes that make a function anew.
//!
//! What a pass adds for a node comes from what the node came from: it tells the new function (`Func::set_source`) before it
//! adds anything. What is left to do is the same for all passes: nodes that others took the place of hand their origins on
//! to those who used them.
use numrsc_ir::{Func, Origins, Value};

/// Give the new function what the old one came from. `placed` says what became of a node, if
/// anything. A node of which nothing is left is folded if it needed no data; otherwise it is a part of what its users are.
pub(crate) fn carry(func: &Func, pass: &str, out: &mut Func, placed: &dyn Fn(Value) -> Option<Value>) {
    if !func.has_origins() {
        return;
    }
    let live = out.live_nodes();
    let known = func.without_data();
    let users = users(func);
    let mut moved = vec![Origins::NONE; func.nodes().len()];
    for (v, _) in func.values() {
        let at = v.0 as usize;
        let (own, moved_here) = (func.origins(v), std::mem::take(&mut moved[at]));
        if own.is_empty() && moved_here.is_empty() {
            continue;
        }
        if let Some(new) = placed(v).filter(|new| live.contains(new)) {
            out.add_origins(new, own);
            out.add_origins(new, &moved_here);
            continue;
        }
        if known[at] {
            out.add_folded(&own.union(&moved_here));
            continue;
        }
        let gone = own.union(&moved_here).moved_by(pass);
        for user in &users[at] {
            let there = &mut moved[user.0 as usize];
            *there = there.union(&gone);
        }
    }
}

/// The nodes that have each node as an operand.
fn users(func: &Func) -> Vec<Vec<Value>> {
    let mut users = vec![Vec::new(); func.nodes().len()];
    for (v, node) in func.values() {
        for a in &node.args {
            if users[a.0 as usize].last() != Some(&v) {
                users[a.0 as usize].push(v);
            }
        }
    }
    users
}
