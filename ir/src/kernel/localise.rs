//! Long functions, such as an entry with thousands of launches, keep little alive: constants and addresses at an offset are computed
//! again where they are used, and what is used far from where it was made waits in memory. Otherwise such values would live from the beginning
//! of the function to their last use, and the time to allocate registers would grow with the square of its length.
use super::{
    Block, Convert, Elem, Function, Inst, Stmt, Ty, V, build,
    renumber::{operands, renumber},
};
use std::collections::HashMap;

/// With more statements than this between definition and use, a value waits in memory.
const FAR: usize = 64;
/// Bytes of a value in memory, whatever its type.
const SLOT: i64 = 8;

pub fn localise(f: &mut Function) {
    let cheap = cheap(&f.body);
    let count = f.types.len();
    let mut uses = Uses { cheap, types: &f.types, defined: vec![None; count], far: vec![false; count], place: 0 };
    uses.block(&mut f.body);
    let Uses { cheap, defined, far, .. } = uses;
    let mut count = 0;
    let slots = far.into_iter().map(|far| {
        count += u32::from(far);
        far.then_some(i64::from(count) - 1)
    });
    let slots = slots.collect();
    let mut localiser = Localiser { cheap, types: std::mem::take(&mut f.types), frame: V(0), defined, slots, place: 0 };
    localiser.frame = localiser.fresh(Ty::PTR);
    localiser.block(&mut f.body);
    if count > 0 {
        let inst = Inst::Buffer { elem: Elem::I64, count, shared: false };
        f.body.stmts.insert(0, Stmt::Let { out: localiser.frame, inst });
    }
    f.types = localiser.types;
    renumber(f);
}

/// What is made again wherever it is used.
fn cheap(body: &Block) -> HashMap<V, Inst> {
    let mut cheap: HashMap<V, Inst> = HashMap::new();
    for stmt in &body.stmts {
        if let Stmt::Let { out, inst } = stmt {
            match inst {
                Inst::Const(_) => drop(cheap.insert(*out, inst.clone())),
                Inst::Offset(p, _) if !cheap.contains_key(p) => drop(cheap.insert(*out, inst.clone())),
                _ => {}
            }
        }
    }
    cheap
}

/// The values that a statement itself uses, without the blocks inside it.
fn used(stmt: &mut Stmt, f: &mut dyn FnMut(&mut V)) {
    match stmt {
        Stmt::Let { inst, .. } => operands(inst, f),
        Stmt::Store { ptr, index, value, mask } => [ptr, index, value].into_iter().chain(mask).for_each(f),
        Stmt::For { low, high, carried, .. } => {
            [low, high].into_iter().chain(carried.iter_mut().map(|c| &mut c.1)).for_each(f);
        }
        Stmt::While { carried, .. } => carried.iter_mut().map(|c| &mut c.1).for_each(f),
        Stmt::If { cond, .. } => f(cond),
        Stmt::Launch { args, extent, grain, .. } => args.iter_mut().chain([extent, grain]).for_each(f),
        Stmt::Prefetch { ptr, bytes } => [ptr, bytes].into_iter().for_each(f),
        Stmt::Fail { .. } | Stmt::Barrier => {}
    }
}

/// The blocks inside a statement.
fn blocks(stmt: &mut Stmt) -> Vec<&mut Block> {
    match stmt {
        Stmt::For { body, .. } => vec![body],
        Stmt::While { cond: a, body: b, .. } | Stmt::If { then: a, or: b, .. } => vec![a, b],
        Stmt::Let { .. }
        | Stmt::Store { .. }
        | Stmt::Prefetch { .. }
        | Stmt::Launch { .. }
        | Stmt::Fail { .. }
        | Stmt::Barrier => vec![],
    }
}

/// What a statement defines for those after it.
fn defined(stmt: &Stmt) -> &[V] {
    match stmt {
        Stmt::Let { out, .. } => std::slice::from_ref(out),
        Stmt::For { outs, .. } | Stmt::While { outs, .. } | Stmt::If { outs, .. } => outs,
        Stmt::Store { .. } | Stmt::Prefetch { .. } | Stmt::Launch { .. } | Stmt::Fail { .. } | Stmt::Barrier => &[],
    }
}

/// Finds out which values are used far from their definitions.
struct Uses<'f> {
    cheap: HashMap<V, Inst>,
    types: &'f [Ty],
    /// How many statements begin before the one that defines each value.
    defined: Vec<Option<usize>>,
    far: Vec<bool>,
    place: usize,
}

impl Uses<'_> {
    fn block(&mut self, block: &mut Block) {
        for stmt in &mut block.stmts {
            self.place += 1;
            let place = self.place;
            used(stmt, &mut |v| self.used(*v));
            blocks(stmt).into_iter().for_each(|inner| self.block(inner));
            // A vector does not fit a slot.
            let scalars = defined(stmt).iter().map(|v| v.0 as usize).filter(|&v| self.types[v].lanes == 1);
            scalars.for_each(|v| self.defined[v] = Some(place));
        }
        block.results.iter().for_each(|v| self.used(*v));
    }

    fn used(&mut self, v: V) {
        // What is made here is made of what is used here.
        let mut operands = vec![];
        match self.cheap.get(&v) {
            Some(inst) => build::operands(inst, &mut |operand| operands.push(operand)),
            None => self.far[v.0 as usize] |= is_far(self.defined[v.0 as usize], self.place),
        }
        operands.into_iter().for_each(|v| self.used(v));
    }
}

/// Parameters of functions and of blocks have no definition and stay as they are.
fn is_far(defined: Option<usize>, place: usize) -> bool {
    defined.is_some_and(|at| place - at > FAR)
}

struct Localiser {
    cheap: HashMap<V, Inst>,
    types: Vec<Ty>,
    /// Memory for values that are used far from their definitions, and the slot of each.
    frame: V,
    slots: Vec<Option<i64>>,
    defined: Vec<Option<usize>>,
    place: usize,
}

impl Localiser {
    fn block(&mut self, block: &mut Block) {
        let mut stmts = Vec::with_capacity(block.stmts.len() * 2);
        for mut stmt in std::mem::take(&mut block.stmts) {
            self.place += 1;
            if matches!(&stmt, Stmt::Let { out, .. } if self.cheap.contains_key(out)) {
                continue;
            }
            let mut made = HashMap::new();
            used(&mut stmt, &mut |v| self.local(v, &mut made, &mut stmts));
            blocks(&mut stmt).into_iter().for_each(|inner| self.block(inner));
            let outs = defined(&stmt).to_vec();
            stmts.push(stmt);
            outs.into_iter().for_each(|v| self.keep(v, &mut stmts));
        }
        let mut made = HashMap::new();
        block.results.iter_mut().for_each(|v| self.local(v, &mut made, &mut stmts));
        block.stmts = stmts;
    }

    fn fresh(&mut self, ty: Ty) -> V {
        self.types.push(ty);
        V(self.types.len() as u32 - 1)
    }

    fn push(&mut self, ty: Ty, inst: Inst, stmts: &mut Vec<Stmt>) -> V {
        let out = self.fresh(ty);
        stmts.push(Stmt::Let { out, inst });
        out
    }

    fn slot(&self, v: V) -> Option<i64> {
        self.slots.get(v.0 as usize).copied().flatten()
    }

    /// Let a value name a copy that is made here, if it is cheap or far away.
    fn local(&mut self, v: &mut V, made: &mut HashMap<V, V>, stmts: &mut Vec<Stmt>) {
        if let Some(&copy) = made.get(v) {
            *v = copy;
            return;
        }
        let copy = match (self.cheap.get(v).cloned(), self.slot(*v)) {
            (Some(mut inst), _) => {
                operands(&mut inst, &mut |operand| self.local(operand, made, stmts));
                self.push(self.types[v.0 as usize], inst, stmts)
            }
            (None, Some(slot)) if is_far(self.defined[v.0 as usize], self.place) => self.fetch(*v, slot, stmts),
            _ => return,
        };
        made.insert(*v, copy);
        *v = copy;
    }

    /// Put a value that is needed later into memory.
    fn keep(&mut self, v: V, stmts: &mut Vec<Stmt>) {
        let Some(slot) = self.slot(v) else { return };
        let ty = self.types[v.0 as usize];
        let value = if ty == Ty::I1 { self.push(Ty::I64, Inst::Convert(Convert::ZExt, v), stmts) } else { v };
        let index = self.index(slot, self.types[value.0 as usize], stmts);
        stmts.push(Stmt::Store { ptr: self.frame, index, value, mask: None });
    }

    fn fetch(&mut self, v: V, slot: i64, stmts: &mut Vec<Stmt>) -> V {
        let ty = self.types[v.0 as usize];
        let stored = if ty == Ty::I1 { Ty::I64 } else { ty };
        let index = self.index(slot, stored, stmts);
        let value = self.push(stored, Inst::Load { ptr: self.frame, index, mask: None }, stmts);
        if ty == Ty::I1 { self.push(ty, Inst::Convert(Convert::Narrow, value), stmts) } else { value }
    }

    /// The index of a slot for elements of a type.
    fn index(&mut self, slot: i64, ty: Ty, stmts: &mut Vec<Stmt>) -> V {
        self.push(Ty::I64, Inst::Const((slot * (SLOT / ty.elem.size())) as u64), stmts)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{parse, verify};

    #[test]
    fn constants_and_addresses_are_where_they_are_used() {
        let text = "
kernel @k(%0: i64, %1: i64, %2: i64, %3: ptr) {
}

entry @e(%0: ptr) {
  %1: i64 = const 5
  %2: i64 = const 64
  %3: ptr = offset %0, %2
  %4: i64 = const 1
  launch @k(%3) extent %1 grain %4
  launch @k(%3) extent %1 grain %4
}
";
        let mut module = parse(text).unwrap_or_else(|e| panic!("{e}"));
        super::localise(&mut module.functions[1]);
        verify(&module).unwrap();
        let lines: Vec<String> = module.functions[1].to_string().lines().map(|l| l.trim().to_owned()).collect();
        let second = lines.iter().position(|l| l.starts_with("launch")).expect("a launch") + 1;
        assert!(lines[second..].iter().any(|l| l.contains("offset %0")), "{lines:#?}");
        assert_eq!(lines.iter().filter(|l| l.contains("const 5")).count(), 2, "{lines:#?}");
    }

    /// Sizes, truth values and results of branches, made first and used last, with much in between.
    fn long(between: usize) -> String {
        let store = "  store %2[%3], %3\n";
        format!(
            "
entry @e(%0: ptr) {{
  %1: i64 = const 4
  %2: ptr = load %0[%1]
  %3: i64 = load %2[%1]
  %4: i1 = lt %1, %3
  %5: i32 = narrow %3
  %6: i64 = if %4 {{
    yield %3
  }} else {{
    yield %1
  }}
{}  %7: i64 = sext %5
  %8: i64 = select %4, %6, %7
  store %2[%8], %8
}}
",
            store.repeat(between)
        )
    }

    #[test]
    fn what_is_used_far_away_waits_in_memory() {
        for between in [0, 3, 63, 64, 65, 300] {
            let mut module = parse(&long(between)).unwrap_or_else(|e| panic!("{e}"));
            super::localise(&mut module.functions[0]);
            verify(&module).unwrap();
            let text = module.functions[0].to_string();
            assert_eq!(text.contains("buffer"), between > 60, "{between}: {text}");
        }
    }
}
