//! The textual form, read. Every error has a line and a column; nesting is bounded.
use crate::{
    DType, Dim, Error, Func, Op, Origins, Result, Scalar, Tensor, Type, Value,
    dim::Sym,
    op::OPS,
    scalar::{Call, Lit, ScalarFn, Sig, Step},
    types::Elem,
};
use std::collections::HashSet;

/// Functions nested beyond this depth are refused, and so are types and expressions.
pub(crate) const MAX_DEPTH: usize = 64;

/// Read a function; the inverse of printing it.
pub fn parse(text: &str) -> Result<Func> {
    let mut p = Parser::new(text);
    let f = p.func()?;
    p.skip_space();
    if p.at < text.len() {
        return Err(p.error("expected the end of the text"));
    }
    Ok(f)
}

/// Read a dimension expression.
pub fn parse_dim(text: &str) -> Result<Dim> {
    let mut p = Parser::new(text);
    let d = p.dim()?;
    p.skip_space();
    if p.at < text.len() { Err(p.error("expected the end of the expression")) } else { Ok(d) }
}

/// A position in a text.
#[derive(Debug)]
pub struct Parser<'t> {
    text: &'t str,
    at: usize,
    /// Enclosing functions.
    functions: usize,
    /// Enclosing types and expressions.
    depth: usize,
}

impl<'t> Parser<'t> {
    pub(crate) fn new(text: &'t str) -> Parser<'t> {
        Parser { text, at: 0, functions: 0, depth: 0 }
    }

    /// Where the next token starts.
    pub(crate) fn position(&mut self) -> usize {
        self.skip_space();
        self.at
    }

    pub(crate) fn at_end(&mut self) -> bool {
        self.position() == self.text.len()
    }

    pub(crate) fn next_is(&mut self, c: char) -> bool {
        self.skip_space();
        self.rest().starts_with(c)
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> Error {
        self.error_at(self.at, message)
    }

    pub(crate) fn error_at(&self, at: usize, message: impl Into<String>) -> Error {
        let before = &self.text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
        Error::Parse { line, column, message: message.into() }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with("//") {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    /// Take `token` if it comes next.
    pub(crate) fn take(&mut self, token: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    pub(crate) fn expect(&mut self, token: &str) -> Result<()> {
        if self.take(token) { Ok(()) } else { Err(self.error(format!("expected `{token}`"))) }
    }

    pub(crate) fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'t str {
        self.skip_space();
        let rest = self.rest();
        let len = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    /// A run of letters, digits and underscores.
    pub(crate) fn word(&mut self) -> Result<&'t str> {
        match self.take_while(|c| c.is_ascii_alphanumeric() || c == '_') {
            "" => Err(self.error("expected a word")),
            w => Ok(w),
        }
    }

    pub(crate) fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T> {
        self.skip_space();
        let start = self.at;
        let text = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
        text.parse().map_err(|_| {
            self.at = start;
            self.error(format!("expected {what}"))
        })
    }

    pub(crate) fn int(&mut self) -> Result<i64> {
        self.number("an integer")
    }

    pub(crate) fn dtype(&mut self) -> Result<DType> {
        let word = self.word()?;
        word.parse().map_err(|e: String| self.error(e))
    }

    pub(crate) fn symbol(&mut self) -> Result<Sym> {
        self.skip_space();
        if self.rest().starts_with('"') {
            return self.quoted().map(Into::into);
        }
        let dollar = self.rest().starts_with('$');
        let start = self.at;
        self.at += usize::from(dollar);
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        if name.is_empty()
            || (!dollar && name.starts_with(|c: char| c.is_ascii_digit()))
            || self.text[start..self.at].contains(char::is_whitespace)
        {
            self.at = start;
            return Err(self.error("expected a symbol"));
        }
        Ok(self.text[start..self.at].into())
    }

    /// Items between brackets, separated by commas.
    pub(crate) fn list<T>(
        &mut self,
        open: char,
        close: char,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.expect(open.encode_utf8(&mut [0; 4]))?;
        let mut items = Vec::new();
        let close = &*close.to_string();
        while !self.take(close) {
            if !items.is_empty() {
                self.expect(",")?;
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return Err(self.error("nested too deeply"));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// `term + term - term`
    pub(crate) fn dim(&mut self) -> Result<Dim> {
        self.nested(|p| {
            let negative = p.take("-");
            let mut sum = p.product(negative)?;
            loop {
                let negative = p.take("-");
                if !negative && !p.take("+") {
                    return Ok(sum);
                }
                sum = &sum + &p.product(negative)?;
            }
        })
    }

    /// Factors joined by `*`; the sign belongs to the first, so that `i64::MIN` can be written.
    fn product(&mut self, negative: bool) -> Result<Dim> {
        let mut product = self.factor(negative)?;
        while self.take("*") {
            product = &product * &self.factor(false)?;
        }
        Ok(product)
    }

    fn factor(&mut self, negative: bool) -> Result<Dim> {
        self.skip_space();
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            let start = self.at;
            let magnitude = self.take_while(|c| c.is_ascii_digit()).parse::<i128>().ok();
            let n = magnitude.and_then(|m| i64::try_from(if negative { -m } else { m }).ok());
            return n.map(Dim::Const).ok_or_else(|| {
                self.at = start;
                self.error("integer too large")
            });
        }
        let atom = self.atom()?;
        Ok(if negative { -&atom } else { atom })
    }

    fn atom(&mut self) -> Result<Dim> {
        if self.take("(") {
            let d = self.dim()?;
            self.expect(")")?;
            return Ok(d);
        }
        let name = self.symbol()?;
        if !self.rest().starts_with('(') {
            return Ok(Dim::sym(name));
        }
        self.expect("(")?;
        if &*name == "toolarge" {
            self.expect(")")?;
            return Ok(Dim::too_large());
        }
        let a = self.dim()?;
        self.expect(",")?;
        let b = self.dim()?;
        self.expect(")")?;
        match &*name {
            "floordiv" => Ok(a.floor_div(&b)),
            "min" => Ok(a.lesser(&b)),
            "max" => Ok(a.greater(&b)),
            "bcast" => Ok(a.broadcast_at_run_time(&b)),
            "mul" => Ok(&a * &b),
            "add" => Ok(&a + &b),
            _ => Err(self.error(format!("`{name}` is not a function of dimensions"))),
        }
    }

    pub(crate) fn ty(&mut self) -> Result<Type> {
        self.nested(|p| {
            p.skip_space();
            if p.rest().starts_with('(') {
                return p.list('(', ')', Parser::ty).map(Type::Tuple);
            }
            if p.rest().starts_with("seq<") {
                return Ok(match p.elem()? {
                    Elem::Seq(e) => Type::Seq(e),
                    Elem::Tensor { .. } => unreachable!("the text says seq"),
                });
            }
            let dtype = p.dtype()?;
            Ok(Type::tensor(dtype, p.list('[', ']', Parser::dim)?))
        })
    }

    pub(crate) fn elem(&mut self) -> Result<Elem> {
        self.nested(|p| {
            if p.take("seq<") {
                let e = p.elem()?;
                p.expect(">")?;
                return Ok(Elem::Seq(Box::new(e)));
            }
            let dtype = p.dtype()?;
            if p.take("[..]") {
                return Ok(Elem::Tensor { dtype, shape: None });
            }
            let shape = p.list('[', ']', |p| if p.take("?") { Ok(None) } else { p.dim().map(Some) })?;
            Ok(Elem::Tensor { dtype, shape: Some(shape) })
        })
    }

    /// `t0 = exp(a0); mul(t0, t0)`
    pub(crate) fn scalar(&mut self) -> Result<Scalar> {
        let mut steps = Vec::new();
        let mut named: Vec<usize> = Vec::new();
        loop {
            let start = self.at;
            let name = self.take_while(|c| c.is_ascii_alphanumeric());
            let is_name = name.strip_prefix('t').and_then(|n| n.parse().ok()) == Some(named.len()) && self.take("=");
            if !is_name {
                self.at = start;
            }
            let root = self.scalar_expr(&mut steps, &named)?;
            if !is_name {
                return Ok(Scalar::new(&steps, root));
            }
            self.expect(";")?;
            named.push(root);
        }
    }

    fn scalar_expr(&mut self, steps: &mut Vec<Step>, named: &[usize]) -> Result<usize> {
        self.nested(|p| {
            p.skip_space();
            if p.rest().starts_with(|c: char| c.is_ascii_digit() || c == '-')
                || p.rest().starts_with("nan#")
                || p.rest().starts_with("inf:")
            {
                let lit = p.literal()?;
                steps.push(Step::Lit(lit));
                return Ok(steps.len() - 1);
            }
            let word = p.word()?;
            if word == "true" || word == "false" {
                steps.push(Step::Lit(Lit::int(DType::Bool, i128::from(word == "true"))));
                return Ok(steps.len() - 1);
            }
            p.skip_space();
            if p.rest().starts_with('(') {
                return p.call(word, steps, named);
            }
            let number = |prefix| word.strip_prefix(prefix).and_then(|n: &str| n.parse::<u32>().ok());
            if let Some(n) = number('a') {
                steps.push(Step::Arg(n));
                return Ok(steps.len() - 1);
            }
            match number('t').and_then(|n| named.get(n as usize)) {
                Some(&step) => Ok(step),
                None => Err(p.error(format!("`{word}` is not defined"))),
            }
        })
    }

    fn call(&mut self, name: &str, steps: &mut Vec<Step>, named: &[usize]) -> Result<usize> {
        let Some(f) = ScalarFn::ALL.iter().copied().find(|f| f.name() == name) else {
            return Err(self.error(format!("`{name}` is not a scalar function")));
        };
        self.expect("(")?;
        let mut args = Vec::new();
        for i in 0..f.arity() {
            if i > 0 {
                self.expect(",")?;
            }
            args.push(self.scalar_expr(steps, named)? as u32);
        }
        let to = if f.sig() == Sig::Convert {
            self.expect(",")?;
            Some(self.dtype()?)
        } else {
            None
        };
        self.expect(")")?;
        steps.push(Step::Call(Call { f, args, to }));
        Ok(steps.len() - 1)
    }

    /// `0.5:f32`, `-3:i64`, `nan#7fc00000:f32`
    fn literal(&mut self) -> Result<Lit> {
        let text = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '#'));
        self.expect(":")?;
        let dtype = self.dtype()?;
        self.element(text, dtype)
    }

    fn element(&self, text: &str, dtype: DType) -> Result<Lit> {
        let bad = || self.error(format!("`{text}` is not a number of type {dtype}"));
        if dtype == DType::Str {
            return Err(bad());
        }
        if !dtype.is_float() {
            let (low, high) = dtype.int_range();
            let x: i128 = text.parse().map_err(|_| bad())?;
            return if (low..=high).contains(&x) { Ok(Lit::int(dtype, x)) } else { Err(bad()) };
        }
        if let Some(bits) = text.strip_prefix("nan#") {
            let bits = u64::from_str_radix(bits, 16).ok().filter(|b| dtype.bits() == 64 || *b < 1 << dtype.bits());
            return bits.and_then(|b| Lit::nan(dtype, b)).ok_or_else(bad);
        }
        let x = match dtype {
            DType::F32 => text.parse::<f32>().map(f64::from),
            _ => text.parse::<f64>(),
        };
        let lit = Lit::float(dtype, x.map_err(|_| bad())?);
        // What the type cannot hold is an error, not an infinity or a NaN.
        if lit.as_f64().is_finite() || lit.as_f64().to_string() == text { Ok(lit) } else { Err(bad()) }
    }

    pub(crate) fn tensor(&mut self) -> Result<Tensor> {
        let dtype = self.dtype()?;
        let shape = self.list('[', ']', |p| p.number::<usize>("a size"))?;
        let made = if self.take("#") {
            let hex = self.take_while(|c| c.is_ascii_hexdigit()).as_bytes();
            if !hex.len().is_multiple_of(2) {
                return Err(self.error("odd number of digits"));
            }
            let digit = |d: u8| (d as char).to_digit(16).expect("a hexadecimal digit") as u8;
            let bytes: Vec<u8> = hex.chunks_exact(2).map(|d| digit(d[0]) << 4 | digit(d[1])).collect();
            Tensor::new(dtype, shape, bytes.into())
        } else if dtype == DType::Str {
            Tensor::from_strings(shape, self.list('(', ')', Parser::quoted)?)
        } else {
            let mut bytes = Vec::new();
            self.list('(', ')', |p| {
                let text = p.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '#'));
                bytes.extend_from_slice(&p.element(text, dtype)?.bits().to_le_bytes()[..dtype.size()]);
                Ok(())
            })?;
            Tensor::new(dtype, shape, bytes.into())
        };
        made.map_err(|e| self.error(e))
    }

    pub(crate) fn quoted(&mut self) -> Result<String> {
        self.expect("\"")?;
        let mut out = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 1;
                    return Ok(out);
                }
                '\\' => match chars.next() {
                    Some((_, c @ ('"' | '\\'))) => out.push(c),
                    Some((_, 'n')) => out.push('\n'),
                    Some((at, 'u')) => {
                        let code = self.rest()[at + 1..].strip_prefix('{').and_then(|r| r.split_once('}')).map(|r| r.0);
                        let c = code.and_then(|c| char::from_u32(u32::from_str_radix(c, 16).ok()?));
                        let (Some(code), Some(c)) = (code, c) else { return Err(self.error("bad escape in text")) };
                        out.push(c);
                        chars.nth(code.len() + 1);
                    }
                    Some(_) => return Err(self.error("bad escape in text")),
                    None => break,
                },
                c => out.push(c),
            }
        }
        Err(self.error("unterminated text"))
    }

    fn value(&mut self) -> Result<Value> {
        self.expect("%")?;
        self.number("a value's number").map(Value)
    }

    /// A value and the name that may follow it.
    fn named_value(&mut self, names: &mut Vec<String>) -> Result<Value> {
        let v = self.value()?;
        self.skip_space();
        if self.rest().starts_with('"') {
            names.push(self.quoted()?);
        }
        Ok(v)
    }

    pub(crate) fn func(&mut self) -> Result<Func> {
        if self.functions == MAX_DEPTH {
            return Err(self.error("functions are nested too deeply"));
        }
        self.functions += 1;
        self.expect("func")?;
        let mut f = Func::new();
        let mut names = Vec::new();
        let params = self.list('(', ')', |p| {
            p.skip_space();
            let start = p.at;
            let v = p.named_value(&mut names)?;
            if v.0 as usize != f.nodes().len() {
                p.at = start;
                return Err(p.error(format!("expected parameter %{}", f.nodes().len())));
            }
            p.expect(":")?;
            let ty = p.ty()?;
            let v = f.param(ty).map_err(|e| p.error(e.to_string()))?;
            p.origins_of(&mut f, v)?;
            Ok(v)
        })?;
        f.param_names = self.all_or_none(names, params.len())?;
        self.expect("{")?;
        while !self.take("return") {
            self.node(&mut f)?;
        }
        let mut names = Vec::new();
        let mut results = Vec::new();
        while !self.take("}") {
            if self.take("folded") {
                f.add_folded(&Origins::parse(self)?);
                self.expect("}")?;
                break;
            }
            if !results.is_empty() {
                self.expect(",")?;
            }
            let v = self.named_value(&mut names)?;
            self.defined(&f, v)?;
            if self.take("labels") {
                f.result_labels.insert(results.len(), self.tensor()?);
            }
            results.push(v);
        }
        f.result_names = self.all_or_none(names, results.len())?;
        f.set_results(results);
        self.functions -= 1;
        Ok(f)
    }

    fn all_or_none(&self, names: Vec<String>, count: usize) -> Result<Vec<String>> {
        let distinct: HashSet<&String> = names.iter().collect();
        if (names.is_empty() || names.len() == count) && distinct.len() == names.len() {
            Ok(names)
        } else {
            Err(self.error("name all values or none, each differently"))
        }
    }

    fn defined(&self, f: &Func, v: Value) -> Result<()> {
        if (v.0 as usize) < f.nodes().len() { Ok(()) } else { Err(self.error(format!("{v} is not defined"))) }
    }

    /// `%2 = map %0, %1 {f=add(a0, a1)} : f32[3]`
    fn node(&mut self, f: &mut Func) -> Result<()> {
        self.skip_space();
        let start = self.at;
        let v = self.value()?;
        if v.0 as usize != f.nodes().len() {
            return Err(self.error_at(start, format!("expected %{}", f.nodes().len())));
        }
        self.expect("=")?;
        self.skip_space();
        let op_at = self.at;
        let name = self.word()?;
        let Some(info) = OPS.iter().find(|o| o.name == name) else {
            return Err(self.error_at(op_at, format!("`{name}` is not an op")));
        };
        if name == "param" {
            return Err(self.error_at(op_at, "parameters stand in the head of the function"));
        }
        let mut args = Vec::new();
        self.skip_space();
        if self.rest().starts_with('%') {
            loop {
                let a = self.value()?;
                self.defined(f, a)?;
                args.push(a);
                if !self.take(",") {
                    break;
                }
            }
        }
        if !info.attrs.is_empty() {
            self.expect("{")?;
        }
        let op = Op::parse(name, self)?.expect("the op exists");
        if !info.attrs.is_empty() {
            self.expect("}")?;
        }
        self.expect(":")?;
        self.skip_space();
        let type_at = self.at;
        let want = self.ty()?;
        let got = f.push_again(op, &args).map_err(|e| self.error_at(op_at, e.to_string()))?;
        if *f.ty(got) != want {
            return Err(self.error_at(type_at, format!("{got} has type {}, the text says {want}", f.ty(got))));
        }
        self.origins_of(f, got)
    }

    /// Where a value comes from, if the text says so.
    fn origins_of(&mut self, f: &mut Func, v: Value) -> Result<()> {
        if self.take("from") {
            f.add_origins(v, &Origins::parse(self)?);
        }
        Ok(())
    }
}
