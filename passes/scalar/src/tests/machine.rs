//! Running scalar code in the interpreter, as on targets that fuse `muladd` and on those that do not.
use numrsc_ir::kernel::{
    Binary, Block, FuncId, Function, Inst, Kind, Module, Stmt, Ty, V, build::Builder, interp::Machine,
};

/// Code with one result, both ways.
pub(crate) struct Code {
    fused: Module,
    unfused: Module,
}

/// Code over parameters of these types.
pub(crate) fn function(params: &[Ty], build: impl FnOnce(&mut Builder, &[V]) -> V) -> Code {
    let mut b = Builder::new(Kind::Helper, params);
    let params = b.params().to_vec();
    let result = build(&mut b, &params);
    let f = b.finish("f", vec![result]);
    Code { unfused: Module { functions: vec![unfuse(f.clone())] }, fused: Module { functions: vec![f] } }
}

impl Code {
    /// How many instructions run always, constants aside, and how many only in loops.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let mut sizes = (0, 0);
        for stmt in &self.fused.functions[0].body.stmts {
            match stmt {
                Stmt::While { body, .. } => sizes.1 += body.stmts.len(),
                Stmt::Let { inst: Inst::Const(_), .. } => {}
                _ => sizes.0 += 1,
            }
        }
        sizes
    }

    pub(crate) fn has(&self, what: impl Fn(&Inst) -> bool) -> bool {
        self.fused.functions[0].body.stmts.iter().any(|s| matches!(s, Stmt::Let { inst, .. } if what(inst)))
    }

    pub(crate) fn machine(&self, fused: bool) -> Machine<'_> {
        let mut machine = Machine::new(if fused { &self.fused } else { &self.unfused }).expect("well-formed code");
        machine.fuel = u64::MAX;
        machine
    }

    /// Over columns of any length, several lanes at a time; the last elements are repeated to fill the lanes.
    pub(crate) fn run(&self, fused: bool, columns: &[Vec<u64>]) -> Vec<u64> {
        let f = &self.fused.functions[0];
        let lanes = f.ty(f.params[0]).lanes as usize;
        let count = columns[0].len();
        let mut machine = self.machine(fused);
        let mut out = Vec::with_capacity(count);
        for at in (0..count).step_by(lanes) {
            let chunk: Vec<Vec<u64>> =
                columns.iter().map(|c| (at..at + lanes).map(|i| c[i.min(count - 1)]).collect()).collect();
            let args: Vec<&[u64]> = chunk.iter().map(Vec::as_slice).collect();
            let result = machine.run_helper(FuncId(0), &args).expect("no traps");
            out.extend_from_slice(&result[..lanes.min(count - at)]);
        }
        out
    }
}

/// Every `muladd` as a multiplication and an addition.
fn unfuse(mut f: Function) -> Function {
    let mut body = std::mem::take(&mut f.body);
    unfuse_block(&mut body, &mut f.types);
    f.body = body;
    f
}

fn unfuse_block(block: &mut Block, types: &mut Vec<Ty>) {
    let mut stmts = Vec::with_capacity(block.stmts.len());
    for mut stmt in std::mem::take(&mut block.stmts) {
        match &mut stmt {
            Stmt::Let { out, inst } => {
                if let Inst::MulAdd(a, b, c) = *inst {
                    let product = V(types.len() as u32);
                    types.push(types[out.0 as usize]);
                    stmts.push(Stmt::Let { out: product, inst: Inst::Binary(Binary::Mul, a, b) });
                    *inst = Inst::Binary(Binary::Add, product, c);
                }
            }
            Stmt::While { cond, body, .. } => {
                unfuse_block(cond, types);
                unfuse_block(body, types);
            }
            other => panic!("not in scalar code: {other:?}"),
        }
        stmts.push(stmt);
    }
    block.stmts = stmts;
}
