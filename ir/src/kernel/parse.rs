//! The textual form, read. Every error has a line and a column, nesting is bounded, and memory is in proportion to the text.
//!
//! Only the form is checked here, and that every value has one definition; the rules of the IR are [`super::verify()`]'s.
use super::{
    Axis, Binary, Block, Compare, Convert, Elem, FuncId, Function, Host, Inst, Kind, Module, Stmt, Ty, Unary, V,
    verify::MAX_DEPTH,
    words::{Form, Words},
};
use crate::{Origins, Result, parse::Parser};
use std::collections::{BTreeMap, HashMap};

/// Read a module; the inverse of printing it.
pub fn parse(text: &str) -> Result<Module> {
    let mut reader = Reader { p: Parser::new(text), types: BTreeMap::new(), depth: 0, mentioned: BTreeMap::new() };
    let mut functions = Vec::new();
    let mut positions = HashMap::new();
    while !reader.p.at_end() {
        let at = reader.p.position();
        let function = reader.function()?;
        if positions.insert(function.name.clone(), functions.len() as u32).is_some() {
            return Err(reader.p.error_at(at, format!("there are two functions `{}`", function.name)));
        }
        functions.push(function);
    }
    // A function may be mentioned before it is known where it stands.
    let mut resolved = vec![0; reader.mentioned.len()];
    let mut unknown = None;
    for (name, &Mention { number, at }) in &reader.mentioned {
        match positions.get(name) {
            Some(&position) => resolved[number as usize] = position,
            None => unknown = unknown.filter(|&(first, _)| first < at).or(Some((at, name))),
        }
    }
    if let Some((at, name)) = unknown {
        return Err(reader.p.error_at(at, format!("there is no function `{name}`")));
    }
    for function in &mut functions {
        callees(&mut function.body, &mut |id| {
            *id = FuncId(match id.0.checked_sub(MENTIONED) {
                Some(number) => resolved[number as usize],
                None => id.0,
            });
        });
    }
    Ok(Module { functions })
}

/// Numbers from here stand for mentioned names until all functions are known; text gives positions below only.
const MENTIONED: u32 = 1 << 31;

struct Mention {
    number: u32,
    /// Where in the text it is first.
    at: usize,
}

struct Reader<'t> {
    p: Parser<'t>,
    /// The values of the current function.
    types: BTreeMap<u32, Ty>,
    depth: usize,
    mentioned: BTreeMap<String, Mention>,
}

impl Reader<'_> {
    fn function(&mut self) -> Result<Function> {
        let at = self.p.position();
        let Some(kind) = Kind::from_word(self.p.word()?) else {
            return Err(self.p.error_at(at, "expected `entry`, `kernel` or `helper`"));
        };
        let name = self.symbol()?;
        self.types.clear();
        let params = self.parenthesised(Reader::definition)?;
        if self.p.take("unused") {
            self.parenthesised(Reader::definition)?;
        }
        let body = self.block()?;
        let types = std::mem::take(&mut self.types);
        if let Some((gap, _)) = types.keys().enumerate().find(|&(i, &number)| i != number as usize) {
            return Err(self.p.error_at(at, format!("%{gap} is neither defined nor listed as unused")));
        }
        Ok(Function { name, kind, params, types: types.into_values().collect(), body })
    }

    fn symbol(&mut self) -> Result<String> {
        self.p.expect("@")?;
        if self.p.next_is('"') { self.p.quoted() } else { self.p.word().map(str::to_string) }
    }

    fn callee(&mut self) -> Result<FuncId> {
        let at = self.p.position();
        if self.p.take("#") {
            let position: u32 = self.p.number("the position of a function")?;
            return if position < MENTIONED { Ok(FuncId(position)) } else { Err(self.p.error_at(at, "too large")) };
        }
        let name = self.symbol()?;
        let number = self.mentioned.len() as u32;
        Ok(FuncId(MENTIONED + self.mentioned.entry(name).or_insert(Mention { number, at }).number))
    }

    fn value(&mut self) -> Result<V> {
        self.p.expect("%")?;
        self.p.number("a value's number").map(V)
    }

    fn ty(&mut self) -> Result<Ty> {
        let at = self.p.position();
        let word = self.p.word()?;
        let (elem, lanes) = match word.split_once('x') {
            Some((elem, lanes)) => (elem, lanes.parse().ok().filter(|&n| n > 1)),
            None => (word, Some(1)),
        };
        match (Elem::from_word(elem), lanes) {
            (Some(elem), Some(lanes)) => Ok(Ty { elem, lanes }),
            _ => Err(self.p.error_at(at, format!("`{word}` is not a type"))),
        }
    }

    fn define(&mut self, at: usize, v: V, ty: Ty) -> Result<()> {
        match self.types.insert(v.0, ty) {
            None => Ok(()),
            Some(_) => Err(self.p.error_at(at, format!("{v} is defined twice"))),
        }
    }

    /// `%1: f32`
    fn definition(&mut self) -> Result<V> {
        let at = self.p.position();
        let v = self.value()?;
        self.p.expect(":")?;
        let ty = self.ty()?;
        self.define(at, v, ty)?;
        Ok(v)
    }

    fn parenthesised<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.p.expect("(")?;
        let mut items = Vec::new();
        while !self.p.take(")") {
            if !items.is_empty() {
                self.p.expect(",")?;
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// One or more, separated by commas.
    fn several<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.p.take(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn block(&mut self) -> Result<Block> {
        self.p.expect("{")?;
        if self.depth == MAX_DEPTH {
            return Err(self.p.error("blocks are nested too deeply"));
        }
        self.depth += 1;
        let mut block = Block::default();
        while !self.p.take("}") {
            let outs = if self.p.next_is('%') {
                let outs = self.several(Reader::definition)?;
                self.p.expect("=")?;
                outs
            } else {
                vec![]
            };
            let at = self.p.position();
            let word = self.p.word()?;
            if word == "yield" && outs.is_empty() {
                block.results = self.several(Reader::value)?;
                self.p.expect("}")?;
                break;
            }
            block.stmts.push(self.stmt(word, at, outs)?);
        }
        self.depth -= 1;
        Ok(block)
    }

    fn stmt(&mut self, word: &str, at: usize, outs: Vec<V>) -> Result<Stmt> {
        match word {
            "for" => return self.for_(outs),
            "while" => {
                let carried = self.carried()?;
                let cond = self.block()?;
                self.p.expect("do")?;
                return Ok(Stmt::While { carried, cond, body: self.block()?, outs });
            }
            "if" => {
                let cond = self.value()?;
                let then = self.block()?;
                let or = if self.p.take("else") { self.block()? } else { Block::default() };
                return Ok(Stmt::If { cond, then, or, outs });
            }
            _ => {}
        }
        if let [out] = *outs {
            let inst = self.inst(word, at, self.types[&out.0])?;
            return Ok(Stmt::Let { out, inst });
        }
        if !outs.is_empty() {
            return Err(self.p.error_at(at, "only `for`, `while` and `if` give several values"));
        }
        match word {
            "store" => {
                let (ptr, index) = self.place()?;
                self.p.expect(",")?;
                let value = self.value()?;
                Ok(Stmt::Store { ptr, index, value, mask: self.mask()? })
            }
            "fail" => Ok(Stmt::Fail { code: self.p.number("a code")? }),
            "launch" => {
                let kernel = self.callee()?;
                let args = self.parenthesised(Reader::value)?;
                self.p.expect("extent")?;
                let extent = self.value()?;
                self.p.expect("grain")?;
                let grain = self.value()?;
                let origins = if self.p.take("from") { Origins::parse(&mut self.p)? } else { Origins::NONE };
                Ok(Stmt::Launch { kernel, args, extent, grain, origins })
            }
            "prefetch" => {
                let ptr = self.value()?;
                self.p.expect(",")?;
                Ok(Stmt::Prefetch { ptr, bytes: self.value()? })
            }
            "barrier" => Ok(Stmt::Barrier),
            _ => Err(self.p.error_at(at, format!("`{word}` is not a statement"))),
        }
    }

    fn for_(&mut self, outs: Vec<V>) -> Result<Stmt> {
        let axis = if self.p.next_is('%') {
            Axis::Serial
        } else {
            let at = self.p.position();
            let word = self.p.word()?;
            Axis::from_word(word).ok_or_else(|| self.p.error_at(at, format!("`{word}` is not an axis")))?
        };
        let at = self.p.position();
        let var = self.value()?;
        self.define(at, var, Ty::I64)?;
        self.p.expect("=")?;
        let low = self.value()?;
        self.p.expect("to")?;
        let high = self.value()?;
        self.p.expect("step")?;
        let step = self.p.number("a step")?;
        let carried = self.carried()?;
        Ok(Stmt::For { axis, var, low, high, step, carried, body: self.block()?, outs })
    }

    /// `carry (%2: f32 = %1)`, or nothing.
    fn carried(&mut self) -> Result<Vec<(V, V)>> {
        if !self.p.take("carry") {
            return Ok(vec![]);
        }
        self.parenthesised(|r| {
            let inside = r.definition()?;
            r.p.expect("=")?;
            Ok((inside, r.value()?))
        })
    }

    /// `%1[%2]`
    fn place(&mut self) -> Result<(V, V)> {
        let ptr = self.value()?;
        self.p.expect("[")?;
        let index = self.value()?;
        self.p.expect("]")?;
        Ok((ptr, index))
    }

    fn mask(&mut self) -> Result<Option<V>> {
        if self.p.take("mask") { self.value().map(Some) } else { Ok(None) }
    }

    fn pair(&mut self) -> Result<(V, V)> {
        let a = self.value()?;
        self.p.expect(",")?;
        Ok((a, self.value()?))
    }

    fn triple(&mut self) -> Result<(V, V, V)> {
        let (a, b) = self.pair()?;
        self.p.expect(",")?;
        Ok((a, b, self.value()?))
    }

    fn inst(&mut self, word: &str, at: usize, ty: Ty) -> Result<Inst> {
        if let Some(op) = Unary::from_word(word) {
            return Ok(Inst::Unary(op, self.value()?));
        }
        if let Some(op) = Binary::from_word(word) {
            return self.pair().map(|(a, b)| Inst::Binary(op, a, b));
        }
        if let Some(op) = Compare::from_word(word) {
            return self.pair().map(|(a, b)| Inst::Compare(op, a, b));
        }
        if let Some(op) = Convert::from_word(word) {
            return Ok(Inst::Convert(op, self.value()?));
        }
        let Some(form) = Form::from_word(word) else {
            return Err(self.p.error_at(at, format!("`{word}` is not an instruction")));
        };
        Ok(match form {
            Form::Const => Inst::Const(self.constant(ty)?),
            Form::MulAdd => self.triple().map(|(a, b, c)| Inst::MulAdd(a, b, c))?,
            Form::Dot4 => self.triple().map(|(a, b, c)| Inst::Dot4(a, b, c))?,
            Form::Select => self.triple().map(|(a, b, c)| Inst::Select(a, b, c))?,
            Form::Splat => Inst::Splat(self.value()?),
            Form::Extract => {
                let a = self.value()?;
                self.p.expect(",")?;
                Inst::Extract(a, self.p.number("a lane")?)
            }
            Form::Insert => {
                let (a, b) = self.pair()?;
                self.p.expect(",")?;
                Inst::Insert(a, b, self.p.number("a lane")?)
            }
            Form::Shuffle => {
                let (a, b) = self.pair()?;
                self.p.expect(",")?;
                Inst::Shuffle(a, b, self.p.list('[', ']', |p| p.number("a lane"))?)
            }
            Form::Reduce => {
                let at = self.p.position();
                let op = Binary::from_word(self.p.word()?);
                Inst::Reduce(op.ok_or_else(|| self.p.error_at(at, "expected what to reduce by"))?, self.value()?)
            }
            Form::Iota => Inst::Iota,
            Form::Load => {
                let (ptr, index) = self.place()?;
                Inst::Load { ptr, index, mask: self.mask()? }
            }
            Form::Offset => self.pair().map(|(a, b)| Inst::Offset(a, b))?,
            Form::Buffer | Form::Shared => {
                let at = self.p.position();
                let elem = Elem::from_word(self.p.word()?);
                let elem = elem.ok_or_else(|| self.p.error_at(at, "expected a type of elements"))?;
                self.p.expect("[")?;
                let count = self.p.number("a count")?;
                self.p.expect("]")?;
                Inst::Buffer { elem, count, shared: form == Form::Shared }
            }
            Form::Call => Inst::Call(self.callee()?, self.parenthesised(Reader::value)?),
            Form::Host => {
                let at = self.p.position();
                let host = Host::from_word(self.p.word()?);
                let host = host.ok_or_else(|| self.p.error_at(at, "expected a function of the run context"))?;
                Inst::Host(host, self.parenthesised(Reader::value)?)
            }
        })
    }

    /// The bits of a constant; see the printer for its forms.
    fn constant(&mut self, ty: Ty) -> Result<u64> {
        let at = self.p.position();
        let text = self.p.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '#'));
        let bits = match text.strip_prefix('#') {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => number(ty.elem, text),
        };
        bits.ok_or_else(|| self.p.error_at(at, format!("`{text}` is not a constant of type {ty}")))
    }
}

fn number(elem: Elem, text: &str) -> Option<u64> {
    let nan = text.strip_prefix("nan#").map(|hex| u64::from_str_radix(hex, 16).ok());
    match elem {
        Elem::I1 => text.parse::<bool>().ok().map(u64::from),
        Elem::I8 => text.parse().ok().map(|x: i8| u64::from(x as u8)),
        Elem::I16 => text.parse().ok().map(|x: i16| u64::from(x as u16)),
        Elem::I32 => text.parse().ok().map(|x: i32| u64::from(x as u32)),
        Elem::I64 => text.parse().ok().map(|x: i64| x as u64),
        Elem::F32 => match nan {
            Some(bits) => bits.filter(|&b| b >> 32 == 0 && f32::from_bits(b as u32).is_nan()),
            None => text.parse().ok().filter(|x: &f32| exact(text, x.is_finite())).map(|x| u64::from(x.to_bits())),
        },
        Elem::F64 => match nan {
            Some(bits) => bits.filter(|&b| f64::from_bits(b).is_nan()),
            None => text.parse().ok().filter(|x: &f64| exact(text, x.is_finite())).map(f64::to_bits),
        },
        Elem::Ptr => None,
    }
}

/// What the type cannot hold is an error, not an infinity; a NaN has to give its payload.
fn exact(text: &str, finite: bool) -> bool {
    finite || matches!(text, "inf" | "-inf")
}

/// Call `f` for every mention of a function.
fn callees(block: &mut Block, f: &mut dyn FnMut(&mut FuncId)) {
    for stmt in &mut block.stmts {
        match stmt {
            Stmt::Let { inst: Inst::Call(id, _), .. } | Stmt::Launch { kernel: id, .. } => f(id),
            Stmt::For { body, .. } => callees(body, f),
            Stmt::While { cond: a, body: b, .. } | Stmt::If { then: a, or: b, .. } => {
                callees(a, f);
                callees(b, f);
            }
            Stmt::Let { .. } | Stmt::Store { .. } | Stmt::Prefetch { .. } | Stmt::Fail { .. } | Stmt::Barrier => {}
        }
    }
}
