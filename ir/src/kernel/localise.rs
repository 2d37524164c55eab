//! Constants and addresses at constant offsets are computed again where they are used. In a long function, such as an entry with thousands of
//! launches, they would otherwise live from its beginning to their last use, and the time to allocate registers would grow with the square of its length.
use super::{
    Block, Function, Inst, Stmt, V,
    renumber::{operands, renumber},
};
use std::collections::HashMap;

pub fn localise(f: &mut Function) {
    let mut cheap: HashMap<V, Inst> = HashMap::new();
    for stmt in &f.body.stmts {
        if let Stmt::Let { out, inst } = stmt {
            match inst {
                Inst::Const(_) => drop(cheap.insert(*out, inst.clone())),
                Inst::Offset(p, c) if cheap.contains_key(c) && !cheap.contains_key(p) => {
                    cheap.insert(*out, inst.clone());
                }
                _ => {}
            }
        }
    }
    let mut localiser = Localiser { cheap, types: std::mem::take(&mut f.types) };
    localiser.block(&mut f.body);
    f.types = localiser.types;
    renumber(f);
}

struct Localiser {
    cheap: HashMap<V, Inst>,
    types: Vec<super::Ty>,
}

impl Localiser {
    fn block(&mut self, block: &mut Block) {
        let mut stmts = Vec::with_capacity(block.stmts.len() * 2);
        for mut stmt in std::mem::take(&mut block.stmts) {
            if matches!(&stmt, Stmt::Let { out, .. } if self.cheap.contains_key(out)) {
                continue;
            }
            let mut made = HashMap::new();
            let mut local = |v: &mut V| self.copy(v, &mut made, &mut stmts);
            match &mut stmt {
                Stmt::Let { inst, .. } => operands(inst, &mut local),
                Stmt::Store { ptr, index, value, mask } => [ptr, index, value].into_iter().chain(mask).for_each(local),
                Stmt::For { low, high, carried, body, .. } => {
                    [low, high].into_iter().chain(carried.iter_mut().map(|c| &mut c.1)).for_each(local);
                    self.block(body);
                }
                Stmt::While { carried, cond, body, .. } => {
                    carried.iter_mut().map(|c| &mut c.1).for_each(local);
                    self.block(cond);
                    self.block(body);
                }
                Stmt::If { cond, then, or, .. } => {
                    local(cond);
                    self.block(then);
                    self.block(or);
                }
                Stmt::Launch { args, extent, grain, .. } => args.iter_mut().chain([extent, grain]).for_each(local),
                Stmt::Prefetch { ptr, bytes } => [ptr, bytes].into_iter().for_each(local),
                Stmt::Fail { .. } | Stmt::Barrier => {}
            }
            stmts.push(stmt);
        }
        let mut made = HashMap::new();
        block.results.iter_mut().for_each(|v| self.copy(v, &mut made, &mut stmts));
        block.stmts = stmts;
    }

    /// Name a copy of a cheap value that is made here.
    fn copy(&mut self, v: &mut V, made: &mut HashMap<V, V>, stmts: &mut Vec<Stmt>) {
        let Some(inst) = self.cheap.get(v) else { return };
        if let Some(&copy) = made.get(v) {
            *v = copy;
            return;
        }
        let mut inst = inst.clone();
        operands(&mut inst, &mut |operand| self.copy(operand, made, stmts));
        let copy = V(self.types.len() as u32);
        self.types.push(self.types[v.0 as usize]);
        stmts.push(Stmt::Let { out: copy, inst });
        made.insert(*v, copy);
        *v = copy;
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
}
