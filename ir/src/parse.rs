//! The textual form, read. Every error has a line and a column; nesting is bounded.
use crate::{
    DType, Dim, Error, Func, Op, Result, Scalar, Tensor, Type, Value,
    dim::Sym,
    scalar::{Call, Lit, ScalarFn, Sig, Step},
    types::Elem,
};
use std::collections::HashMap;

/// Nested functions, types and expressions beyond this depth are refused.
const MAX_DEPTH: usize = 64;

/// Read a function; the inverse of printing it.
pub fn parse(text: &str) -> Result<Func> {
    let mut p = Parser { text, at: 0, depth: 0 };
    let f = p.func()?;
    p.skip_space();
    if p.at < text.len() {
        return Err(p.error("expected the end of the text"));
    }
    Ok(f)
}

/// Read a dimension expression.
pub fn parse_dim(text: &str) -> Result<Dim> {
    let mut p = Parser { text, at: 0, depth: 0 };
    let d = p.dim()?;
    p.skip_space();
    if p.at < text.len() { Err(p.error("expected the end of the expression")) } else { Ok(d) }
}

/// A position in a text.
#[derive(Debug)]
pub struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    pub(crate) fn error(&self, message: impl Into<String>) -> Error {
        let before = &self.text[..self.at];
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
    fn take(&mut self, token: &str) -> bool {
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

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'t str {
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

    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T> {
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
            let mut sum = if p.take("-") { -&p.product()? } else { p.product()? };
            loop {
                if p.take("+") {
                    sum = &sum + &p.product()?;
                } else if p.take("-") {
                    sum = &sum - &p.product()?;
                } else {
                    return Ok(sum);
                }
            }
        })
    }

    fn product(&mut self) -> Result<Dim> {
        let mut product = self.factor()?;
        while self.take("*") {
            product = &product * &self.factor()?;
        }
        Ok(product)
    }

    fn factor(&mut self) -> Result<Dim> {
        self.skip_space();
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            let digits = self.take_while(|c| c.is_ascii_digit());
            // One more than i64::MAX is the magnitude of i64::MIN, which only a leading minus makes valid.
            return match digits.parse::<u64>() {
                Ok(n) if n <= i64::MAX as u64 => Ok(Dim::Const(n as i64)),
                Ok(n) if n == 1 << 63 => Ok(-&Dim::Const(i64::MIN)),
                _ => Err(self.error("integer too large")),
            };
        }
        let name = self.symbol()?;
        if !self.rest().starts_with('(') {
            return Ok(Dim::sym(name));
        }
        self.expect("(")?;
        let a = self.dim()?;
        self.expect(",")?;
        let b = self.dim()?;
        self.expect(")")?;
        match &*name {
            "floordiv" => Ok(a.floor_div(&b)),
            "min" => Ok(a.lesser(&b)),
            "max" => Ok(a.greater(&b)),
            "bcast" => a.broadcast(&b).ok_or_else(|| self.error(format!("{a} and {b} do not broadcast"))),
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
            let is_name = self.take(&format!("t{} =", named.len()));
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
        text.parse().map(|x| Lit::float(dtype, x)).map_err(|_| bad())
    }

    pub(crate) fn tensor(&mut self) -> Result<Tensor> {
        let dtype = self.dtype()?;
        let shape = self.list('[', ']', |p| p.number::<usize>("a size"))?;
        let made = if self.take("#") {
            let hex = self.take_while(|c| c.is_ascii_hexdigit());
            let bytes: Option<Vec<u8>> =
                (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).ok()).collect();
            let bytes = bytes.filter(|_| hex.len() % 2 == 0).ok_or_else(|| self.error("odd number of digits"))?;
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

    fn quoted(&mut self) -> Result<String> {
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
                    Some((_, 'u')) => {
                        let code: String =
                            chars.by_ref().skip(1).take_while(|(_, c)| *c != '}').map(|(_, c)| c).collect();
                        let c = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
                        out.push(c.ok_or_else(|| self.error("bad escape"))?);
                    }
                    Some((_, c)) => out.push(c),
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
        self.nested(|p| {
            p.expect("func")?;
            let mut f = Func::new();
            let mut names = Vec::new();
            let params = p.list('(', ')', |p| {
                let v = p.named_value(&mut names)?;
                p.expect(":")?;
                Ok((v, p.ty()?))
            })?;
            for (i, (v, ty)) in params.iter().enumerate() {
                if v.0 as usize != i {
                    return Err(p.error(format!("expected parameter %{i}")));
                }
                f.param(ty.clone()).map_err(|e| p.error(e.to_string()))?;
            }
            f.param_names = p.all_or_none(names, params.len())?;
            p.expect("{")?;
            while !p.take("return") {
                p.node(&mut f)?;
            }
            let mut names = Vec::new();
            let mut results = Vec::new();
            while !p.take("}") {
                if !results.is_empty() {
                    p.expect(",")?;
                }
                let v = p.named_value(&mut names)?;
                p.defined(&f, v)?;
                results.push(v);
            }
            f.result_names = p.all_or_none(names, results.len())?;
            f.set_results(results);
            Ok(f)
        })
    }

    fn all_or_none(&self, names: Vec<String>, count: usize) -> Result<Vec<String>> {
        let distinct: HashMap<&String, ()> = names.iter().map(|n| (n, ())).collect();
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
        let v = self.value()?;
        if v.0 as usize != f.nodes().len() {
            return Err(self.error(format!("expected %{}", f.nodes().len())));
        }
        self.expect("=")?;
        let name = self.word()?;
        let mut args = Vec::new();
        self.skip_space();
        while self.rest().starts_with('%') || (!args.is_empty() && self.take(",")) {
            let a = self.value()?;
            self.defined(f, a)?;
            args.push(a);
            self.skip_space();
        }
        let braces = self.take("{");
        let op = Op::parse(name, self).ok_or_else(|| self.error(format!("`{name}` is not an op")))??;
        if braces {
            self.expect("}")?;
        }
        if matches!(op, Op::Param { .. }) {
            return Err(self.error("parameters stand in the head of the function"));
        }
        self.expect(":")?;
        let want = self.ty()?;
        let got = f.push_again(op, &args).map_err(|e| self.error(e.to_string()))?;
        if *f.ty(got) != want {
            return Err(self.error(format!("{got} has type {}, the text says {want}", f.ty(got))));
        }
        Ok(())
    }
}
