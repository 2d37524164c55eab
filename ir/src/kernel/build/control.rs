//! Control flow: loops, branches and checks around what is built.
use super::{Builder, Scope};
use crate::kernel::{Axis, Block, Stmt, Ty, V};

/// A `for` whose body is under construction.
#[derive(Debug)]
pub struct OpenFor {
    pub var: V,
    /// The carried values inside.
    pub inside: Vec<V>,
    init: Vec<V>,
}

/// A `while` whose body is under construction.
#[derive(Debug)]
pub struct OpenWhile {
    /// The carried values inside.
    pub inside: Vec<V>,
    init: Vec<V>,
    cond: Block,
}

impl Builder {
    pub fn fail(&mut self, code: u32) {
        self.top().stmts.push(Stmt::Fail { code });
    }

    /// End the run with a code unless the condition holds.
    pub fn check(&mut self, cond: V, code: u32) {
        match self.as_const(cond) {
            Some(1) => {}
            Some(_) => self.fail(code),
            // What was found to hold still does.
            None if self.scopes.iter().any(|s| s.checked.contains(&cond)) => {}
            None => {
                self.top().checked.insert(cond);
                let fail = Block { stmts: vec![Stmt::Fail { code }], results: vec![] };
                self.top().stmts.push(Stmt::If { cond, then: Block::default(), or: fail, outs: vec![] });
            }
        }
    }

    /// `for` with carried values: the body gets the variable and the values, and gives the next ones.
    pub fn for_carried(
        &mut self,
        low: V,
        high: V,
        step: i64,
        init: &[V],
        body: impl FnOnce(&mut Builder, V, &[V]) -> Vec<V>,
    ) -> Vec<V> {
        let open = self.open_for(init);
        let next = body(self, open.var, &open.inside);
        self.close_for(open, low, high, step, next)
    }

    /// Begin a `for`; what is built until [`Builder::close_for`] is its body.
    pub fn open_for(&mut self, init: &[V]) -> OpenFor {
        self.open(false);
        let var = self.fresh(Ty::I64);
        let inside = init.iter().map(|&v| self.fresh(self.ty(v))).collect();
        OpenFor { var, inside, init: init.to_vec() }
    }

    pub fn close_for(&mut self, open: OpenFor, low: V, high: V, step: i64, next: Vec<V>) -> Vec<V> {
        let OpenFor { var, inside, init } = open;
        let body = self.close(next);
        let outs: Vec<V> = init.iter().map(|&v| self.fresh(self.ty(v))).collect();
        let carried = inside.into_iter().zip(init).collect();
        self.top().stmts.push(Stmt::For {
            axis: Axis::Serial,
            var,
            low,
            high,
            step,
            carried,
            body,
            outs: outs.clone(),
        });
        outs
    }

    pub fn for_(&mut self, low: V, high: V, step: i64, body: impl FnOnce(&mut Builder, V)) {
        self.for_carried(low, high, step, &[], |b, i, _| {
            body(b, i);
            vec![]
        });
    }

    pub fn while_(
        &mut self,
        init: &[V],
        cond: impl FnOnce(&mut Builder, &[V]) -> V,
        body: impl FnOnce(&mut Builder, &[V]) -> Vec<V>,
    ) -> Vec<V> {
        let open = self.open_while(init, cond);
        let next = body(self, &open.inside);
        self.close_while(open, next)
    }

    /// Begin a `while`; what is built until [`Builder::close_while`] is its body.
    pub fn open_while(&mut self, init: &[V], cond: impl FnOnce(&mut Builder, &[V]) -> V) -> OpenWhile {
        self.open(true);
        let inside: Vec<V> = init.iter().map(|&v| self.fresh(self.ty(v))).collect();
        let go = cond(self, &inside);
        let cond = self.close(vec![go]);
        // What the condition computed is not visible in the body: it is another block.
        self.open(true);
        let number = self.top().number;
        inside.iter().for_each(|v| self.blocks[v.0 as usize] = number);
        OpenWhile { inside, init: init.to_vec(), cond }
    }

    pub fn close_while(&mut self, open: OpenWhile, next: Vec<V>) -> Vec<V> {
        let OpenWhile { inside, init, cond } = open;
        let body = self.close(next);
        let outs: Vec<V> = init.iter().map(|&v| self.fresh(self.ty(v))).collect();
        let carried = inside.into_iter().zip(init).collect();
        self.top().stmts.push(Stmt::While { carried, cond, body, outs: outs.clone() });
        outs
    }

    /// Both branches give values of the same types.
    pub fn if_(
        &mut self,
        cond: V,
        then: impl FnOnce(&mut Builder) -> Vec<V>,
        or: impl FnOnce(&mut Builder) -> Vec<V>,
    ) -> Vec<V> {
        self.open(true);
        let results = then(self);
        let then = self.close_branch(results);
        self.open(true);
        let results = or(self);
        let or = self.close_branch(results);
        self.close_if(cond, then, or)
    }

    /// Begin a block that a condition guards; [`Builder::close_branch`] ends it.
    pub fn open_branch(&mut self) {
        self.open(true);
    }

    pub fn close_branch(&mut self, results: Vec<V>) -> Block {
        self.close(results)
    }

    /// `if` of two finished branches.
    pub fn close_if(&mut self, cond: V, then: Block, or: Block) -> Vec<V> {
        let types: Vec<Ty> = then.results.iter().map(|&v| self.ty(v)).collect();
        let outs: Vec<V> = types.into_iter().map(|t| self.fresh(t)).collect();
        self.top().stmts.push(Stmt::If { cond, then, or, outs: outs.clone() });
        outs
    }

    fn open(&mut self, guarded: bool) {
        let number = self.next_block;
        self.next_block += 1;
        self.scopes.push(Scope { number, guarded, ..Scope::default() });
    }

    fn close(&mut self, results: Vec<V>) -> Block {
        let scope = self.scopes.pop().expect("a block is open");
        Block { stmts: scope.stmts, results }
    }
}
