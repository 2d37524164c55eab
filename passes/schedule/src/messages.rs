//! What compiled code says when it ends a run: which node of the user's model, and what is wrong.
use numrsc_ir::{Func, Op, Origins, Value};

/// Shapes that are longer as text are not shown.
const LONGEST: usize = 200;
/// Of more nodes than this, the first ones are named.
const NAMED: usize = 3;

/// Where in a model something happens.
#[derive(Clone, Default, Debug)]
pub struct Place {
    /// `` `reshape` %29 ``: tells places from each other, and stands for the names where there are none.
    node: String,
    origins: Origins,
    /// `f32[batch, 12] -> f32[2, n]`
    shapes: String,
}

impl Place {
    /// A node of a function.
    pub fn of(func: &Func, v: Value) -> Place {
        let node = func.node(v);
        if matches!(node.op, Op::Param { .. }) {
            return Place::default();
        }
        let operands: Vec<String> = node.args.iter().map(|a| func.ty(*a).to_string()).collect();
        let mut shapes = format!("{} -> {}", operands.join(", "), node.ty);
        if shapes.len() > LONGEST || operands.is_empty() {
            shapes.clear();
        }
        Place { node: format!("`{}` {v}", node.op), origins: func.origins(v).clone(), shapes }
    }

    /// The same place, where more is computed than the node.
    pub fn with_origins(self, origins: &Origins) -> Place {
        Place { origins: origins.clone(), ..self }
    }

    pub fn message(&self, text: &str) -> Message {
        Message { place: self.clone(), text: text.to_owned() }
    }
}

/// What a code of a failed run means.
#[derive(Clone, Debug)]
pub struct Message {
    place: Place,
    text: String,
}

impl Message {
    /// What makes it another message.
    pub fn key(&self) -> (String, String) {
        (self.place.node.clone(), self.text.clone())
    }

    /// The whole text, with or without the names of the user's model.
    pub fn text(&self, with_names: bool) -> String {
        let Place { node, origins, shapes } = &self.place;
        let place = if with_names && !origins.is_empty() { named(origins) } else { node.clone() };
        let parts = [&place, &self.text, shapes];
        // Where there is no place, shapes are not those of the message.
        let count = if place.is_empty() { 2 } else { 3 };
        let parts: Vec<&str> = parts[..count].iter().map(|p| p.as_str()).filter(|p| !p.is_empty()).collect();
        parts.join(": ")
    }
}

/// ``node `conv1` (Conv)``
fn named(origins: &Origins) -> String {
    let word = if origins.len() == 1 { "node" } else { "nodes" };
    let names: Vec<String> = origins.iter().take(NAMED).map(|o| format!("`{}` ({})", o.node, o.operator)).collect();
    let more = match origins.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    format!("{word} {}{more}", names.join(", "))
}
