//! The grammar of PTX as compilers write it: directives, variables, entries, instructions. Debug information is skipped.
use super::{
    Entry, Instruction, Module, Operand, Param, Registers, Space, SyntaxError, Variable,
    token::{Spanned, Token, tokens},
};

/// Read a module.
pub fn parse(text: &str) -> Result<Module, SyntaxError> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0 };
    parser.module()
}

struct Parser<'t> {
    tokens: &'t [Spanned],
    at: usize,
}

type Parsed<T> = Result<T, SyntaxError>;

impl Parser<'_> {
    fn module(&mut self) -> Parsed<Module> {
        let mut module = Module::default();
        while let Some(word) = self.peek_word().map(str::to_owned) {
            match &word[..] {
                ".version" => {
                    self.at += 1;
                    module.version = self.version()?;
                }
                ".target" => {
                    self.at += 1;
                    module.target = self.word()?;
                    while self.accept(',') {
                        self.word()?;
                    }
                }
                ".address_size" => {
                    self.at += 1;
                    if self.int()? != 64 {
                        return self.fail("only addresses of 64 bits are supported");
                    }
                }
                ".visible" | ".weak" | ".extern" => self.at += 1,
                ".entry" => {
                    self.at += 1;
                    let entry = self.entry()?;
                    module.entries.push(entry);
                }
                ".global" | ".const" | ".shared" => {
                    let variables = self.variables()?;
                    module.variables.extend(variables);
                }
                ".func" => {
                    return self.fail("functions besides entries are not supported: everything has to be inlined");
                }
                _ if self.skip_debug()? => {}
                other => return self.fail(format!("`{other}` is not expected in a module")),
            }
        }
        match self.tokens.get(self.at) {
            Some(_) => self.fail("expected a directive"),
            None if module.version == (0, 0) => self.fail("a module begins with `.version`"),
            None => Ok(module),
        }
    }

    /// `.version 7.0` reads as the word of a fraction.
    fn version(&mut self) -> Parsed<(u32, u32)> {
        let Some((Token::F64(bits), _)) = self.tokens.get(self.at) else { return self.fail("expected a version") };
        self.at += 1;
        let tenths = (f64::from_bits(*bits) * 10.0).round() as u32;
        Ok((tenths / 10, tenths % 10))
    }

    /// Skip `.file`, `.section` and `.loc`; false for anything else.
    fn skip_debug(&mut self) -> Parsed<bool> {
        let Some(word) = self.peek_word() else { return Ok(false) };
        match word {
            ".file" | ".loc" => {
                let line = self.line();
                while self.at < self.tokens.len() && self.line() == line {
                    self.at += 1;
                }
            }
            ".section" => {
                while !self.accept('{') {
                    self.at += 1;
                    if self.at >= self.tokens.len() {
                        return self.fail("a section does not begin");
                    }
                }
                let mut depth = 1;
                while depth > 0 {
                    match self.tokens.get(self.at) {
                        Some((Token::Punct('{'), _)) => depth += 1,
                        Some((Token::Punct('}'), _)) => depth -= 1,
                        Some(_) => {}
                        None => return self.fail("a section does not end"),
                    }
                    self.at += 1;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn entry(&mut self) -> Parsed<Entry> {
        let line = self.line();
        let mut entry = Entry {
            name: self.word()?,
            line,
            params: vec![],
            max_threads: None,
            required_threads: None,
            registers: vec![],
            variables: vec![],
            code: vec![],
            labels: vec![],
        };
        if self.accept('(') && !self.accept(')') {
            loop {
                let param = self.param(&entry)?;
                entry.params.push(param);
                if !self.accept(',') {
                    break;
                }
            }
            self.expect(')')?;
        }
        while !self.accept('{') {
            match &self.word()?[..] {
                ".maxntid" => entry.max_threads = Some(self.extents()?),
                ".reqntid" => entry.required_threads = Some(self.extents()?),
                ".minnctapersm" | ".maxnreg" => drop(self.int()?),
                ".noreturn" => {}
                other => return self.fail(format!("`{other}` is not expected in front of an entry's body")),
            }
        }
        self.body(&mut entry)?;
        Ok(entry)
    }

    fn extents(&mut self) -> Parsed<[u32; 3]> {
        let mut out = [1; 3];
        for (i, slot) in out.iter_mut().enumerate() {
            if i > 0 && !self.accept(',') {
                break;
            }
            *slot = self.small()?;
        }
        Ok(out)
    }

    /// `.param .align 4 .b8 name[16]`, `.param .u64 .ptr .global .align 16 name`
    fn param(&mut self, entry: &Entry) -> Parsed<Param> {
        if self.word()? != ".param" {
            return self.fail("expected `.param`");
        }
        let (mut align, mut bytes, mut is_pointer) = (None, None, false);
        let name = loop {
            let word = self.word()?;
            match &word[..] {
                ".ptr" => is_pointer = true,
                ".align" => {
                    let n = self.int()?;
                    // Of a pointer, this is the alignment of what it points to.
                    align = if is_pointer { align } else { Some(n) };
                }
                ".global" | ".shared" | ".const" | ".local" => {}
                ty if ty.starts_with('.') => bytes = Some(self.type_bytes(ty)?),
                _ => break word,
            }
        };
        let Some(element) = bytes else { return self.fail("a parameter has no type") };
        let count = self.array()?.unwrap_or(1);
        let align = align.unwrap_or(element).max(1);
        let offset = entry.param_bytes().next_multiple_of(align);
        Ok(Param { name, offset, bytes: element * count, align })
    }

    /// `[16]`, or `[]`, which is 0.
    fn array(&mut self) -> Parsed<Option<u64>> {
        let mut count = None;
        while self.accept('[') {
            let n = if self.accept(']') {
                0
            } else {
                let n = self.int()?;
                self.expect(']')?;
                n
            };
            count = Some(count.unwrap_or(1) * n);
        }
        Ok(count)
    }

    fn type_bytes(&self, ty: &str) -> Parsed<u64> {
        match type_bits(ty.trim_start_matches('.')) {
            Some(bits) => Ok(u64::from(bits / 8)),
            None => self.fail(format!("`{ty}` is not a type")),
        }
    }

    /// `.shared .align 16 .b8 tile[4096];`, `.const .b32 table[2] = {1, 2};`
    fn variables(&mut self) -> Parsed<Vec<Variable>> {
        let (mut space, mut align, mut element) = (Space::Global, None, None);
        let mut out = vec![];
        loop {
            let word = self.word()?;
            match &word[..] {
                ".global" => space = Space::Global,
                ".const" => space = Space::Const,
                ".shared" => space = Space::Shared,
                ".align" => align = Some(self.int()?),
                ".attribute" => {
                    self.skip_to(')')?;
                }
                ty if ty.starts_with('.') => element = Some(self.type_bytes(ty)?),
                _ => {
                    let Some(element) = element else { return self.fail("a variable has no type") };
                    let bytes = self.array()?.map_or(element, |n| n * element);
                    let init = if self.accept('=') { self.init(element)? } else { vec![] };
                    out.push(Variable { name: word, space, align: align.unwrap_or(element).max(1), bytes, init });
                    if self.accept(';') {
                        return Ok(out);
                    }
                    self.expect(',')?;
                }
            }
        }
    }

    fn init(&mut self, element: u64) -> Parsed<Vec<u8>> {
        let mut bytes = vec![];
        if !self.accept('{') {
            self.init_number(element, &mut bytes)?;
            return Ok(bytes);
        }
        let mut depth = 1;
        while depth > 0 {
            if self.accept('{') {
                depth += 1;
            } else if self.accept('}') {
                depth -= 1;
            } else if !self.accept(',') {
                self.init_number(element, &mut bytes)?;
            }
        }
        Ok(bytes)
    }

    fn init_number(&mut self, element: u64, bytes: &mut Vec<u8>) -> Parsed<()> {
        let bits = match self.operand()? {
            Operand::Int(n) | Operand::F64(n) => n,
            Operand::F32(n) => u64::from(n),
            other => return self.fail(format!("{other:?} is not a constant")),
        };
        bytes.extend_from_slice(&bits.to_le_bytes()[..element as usize]);
        Ok(())
    }

    fn body(&mut self, entry: &mut Entry) -> Parsed<()> {
        let mut depth = 1;
        loop {
            if self.accept('}') {
                depth -= 1;
                if depth == 0 {
                    return Ok(());
                }
                continue;
            }
            if self.accept('{') {
                depth += 1;
                continue;
            }
            if self.skip_debug()? {
                continue;
            }
            if self.peek_word().is_none() && !matches!(self.tokens.get(self.at), Some((Token::Punct('@'), _))) {
                return self.fail("expected an instruction");
            }
            match self.peek_word() {
                Some(".reg") => {
                    self.at += 1;
                    self.registers(entry)?;
                }
                Some(".shared" | ".global" | ".const") => {
                    let variables = self.variables()?;
                    entry.variables.extend(variables);
                }
                Some(".local") => return self.fail("local memory is not supported: accumulators live in registers"),
                Some(".pragma") => {
                    self.skip_to(';')?;
                }
                Some(word) if matches!(self.tokens.get(self.at + 1), Some((Token::Punct(':'), _))) => {
                    entry.labels.push((word.to_owned(), entry.code.len()));
                    self.at += 2;
                }
                _ => {
                    let instruction = self.instruction()?;
                    entry.code.push(instruction);
                }
            }
        }
    }

    fn registers(&mut self, entry: &mut Entry) -> Parsed<()> {
        let ty = self.word()?.trim_start_matches('.').to_owned();
        loop {
            let name = self.word()?;
            let count = if self.accept('<') {
                let n = self.small()?;
                self.expect('>')?;
                Some(n)
            } else {
                None
            };
            entry.registers.push(Registers { ty: ty.clone(), name, count });
            if self.accept(';') {
                return Ok(());
            }
            self.expect(',')?;
        }
    }

    fn instruction(&mut self) -> Parsed<Instruction> {
        let line = self.line();
        let guard = if self.accept('@') {
            let negated = self.accept('!');
            Some((self.word()?, negated))
        } else {
            None
        };
        let op = self.word()?.split('.').map(str::to_owned).collect();
        let mut operands = vec![];
        while !self.accept(';') {
            if !operands.is_empty() {
                self.expect(',')?;
            }
            operands.push(self.operand()?);
        }
        Ok(Instruction { line, guard, op, operands })
    }

    fn operand(&mut self) -> Parsed<Operand> {
        let first = self.single_operand()?;
        if !self.accept('|') {
            return Ok(first);
        }
        let second = self.single_operand()?;
        Ok(Operand::Pair(Box::new(first), Box::new(second)))
    }

    fn single_operand(&mut self) -> Parsed<Operand> {
        if self.accept('[') {
            let base = self.single_operand()?;
            let is_moved = self.accept('+') || matches!(self.tokens.get(self.at), Some((Token::Punct('-'), _)));
            let offset = if is_moved { self.signed()? } else { 0 };
            self.expect(']')?;
            return Ok(Operand::Address(Box::new(base), offset));
        }
        if self.accept('{') {
            let mut parts = vec![];
            while !self.accept('}') {
                if !parts.is_empty() {
                    self.expect(',')?;
                }
                parts.push(self.single_operand()?);
            }
            return Ok(Operand::Vector(parts));
        }
        if self.accept('!') {
            return Ok(Operand::Name(self.word()?, true));
        }
        if self.accept('-') {
            return Ok(match self.single_operand()? {
                Operand::Int(n) => Operand::Int(n.wrapping_neg()),
                Operand::F32(n) => Operand::F32(n ^ 0x8000_0000),
                Operand::F64(n) => Operand::F64(n ^ 0x8000_0000_0000_0000),
                other => return self.fail(format!("{other:?} cannot be negated")),
            });
        }
        let Some((token, _)) = self.tokens.get(self.at) else {
            return self.fail("the text ends within an instruction");
        };
        self.at += 1;
        Ok(match token {
            Token::Word(name) => Operand::Name(name.clone(), false),
            Token::Int(n) => Operand::Int(*n),
            Token::F32(n) => Operand::F32(*n),
            Token::F64(n) => Operand::F64(*n),
            Token::Text(_) | Token::Punct(_) => {
                self.at -= 1;
                return self.fail("expected an operand");
            }
        })
    }

    fn signed(&mut self) -> Parsed<i64> {
        let negative = self.accept('-');
        let n = self.int()?.cast_signed();
        Ok(if negative { n.wrapping_neg() } else { n })
    }

    fn peek_word(&self) -> Option<&str> {
        match self.tokens.get(self.at) {
            Some((Token::Word(word), _)) => Some(word),
            _ => None,
        }
    }

    fn word(&mut self) -> Parsed<String> {
        let Some(word) = self.peek_word().map(str::to_owned) else { return self.fail("expected a name") };
        self.at += 1;
        Ok(word)
    }

    fn int(&mut self) -> Parsed<u64> {
        let Some(&(Token::Int(n), _)) = self.tokens.get(self.at) else { return self.fail("expected an integer") };
        self.at += 1;
        Ok(n)
    }

    fn small(&mut self) -> Parsed<u32> {
        let n = self.int()?;
        u32::try_from(n).map_err(|_| SyntaxError::at(self.line(), format!("{n} is too large")))
    }

    /// Skip everything up to this, and it too.
    fn skip_to(&mut self, c: char) -> Parsed<()> {
        while !self.accept(c) {
            if self.at >= self.tokens.len() {
                return self.fail(format!("`{c}` is missing"));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn accept(&mut self, c: char) -> bool {
        let is_next = matches!(self.tokens.get(self.at), Some((Token::Punct(p), _)) if *p == c);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, c: char) -> Parsed<()> {
        if self.accept(c) { Ok(()) } else { self.fail(format!("expected `{c}`")) }
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |t| t.1)
    }

    fn fail<T>(&self, message: impl Into<String>) -> Parsed<T> {
        let message = message.into();
        let found = match self.tokens.get(self.at) {
            Some((Token::Word(word), _)) => format!("{message}, at `{word}`"),
            Some((Token::Punct(c), _)) => format!("{message}, at `{c}`"),
            _ => message,
        };
        Err(SyntaxError::at(self.line(), found))
    }
}

/// The width of a fundamental type; predicates have 1 bit.
pub(crate) fn type_bits(ty: &str) -> Option<u32> {
    Some(match ty {
        "pred" => 1,
        "b8" | "u8" | "s8" => 8,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 16,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => 32,
        "b64" | "u64" | "s64" | "f64" => 64,
        _ => return None,
    })
}
