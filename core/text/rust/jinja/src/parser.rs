//! Statements from tokens.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::Kind as Fault;
use crate::error::{fail, unsupported, Error, Result};
use crate::lexer::{tokens, Token};
use crate::syntax::{Body, Expr, For, Kind, MacroCode, Name, Program, Statement, Target};

/// Expressions and statements within each other; one level of a program takes a few hundred bytes of stack.
const MOST_LEVELS: usize = 500;

pub struct Parser {
    tokens: Vec<(Token, u32)>,
    at: usize,
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, Name>,
    levels: usize,
    /// Conditions around this place: what is not known there fails only when it is reached.
    pub(crate) conditions: usize,
    loops: usize,
    marks: bool,
    /// Names that macros and loops look at, by how often they were met.
    seen: HashMap<&'static str, usize>,
}

const WATCHED: [&str; 4] = ["caller", "kwargs", "varargs", "loop"];

pub fn parse(source: &str) -> Result<Program> {
    let mut parser = Parser {
        tokens: tokens(source)?,
        at: 0,
        names: Vec::new(),
        numbers: HashMap::new(),
        levels: 0,
        conditions: 0,
        loops: 0,
        marks: false,
        seen: HashMap::new(),
    };
    let body = parser.body(&[]);
    let line = parser.line();
    let body = body.map_err(|error| error.at(line))?;
    Ok(Program { body, names: parser.names, marks: parser.marks })
}

impl Parser {
    pub(crate) fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    pub(crate) fn peek_second(&self) -> &Token {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].0
    }

    fn line(&self) -> u32 {
        self.tokens[self.at].1
    }

    pub(crate) fn next(&mut self) -> Token {
        let token = self.tokens[self.at].0.clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    pub(crate) fn is_op(&self, operator: &str) -> bool {
        matches!(self.peek(), Token::Op(own) if *own == operator)
    }

    pub(crate) fn skip_op(&mut self, operator: &str) -> bool {
        let found = self.is_op(operator);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Token::Name(own) if own == name)
    }

    pub(crate) fn skip_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn unexpected<T>(&self, expected: &str) -> Result<T> {
        let found = match self.peek() {
            Token::End => "end of template".to_string(),
            Token::Name(name) => format!("'{name}'"),
            Token::Op(operator) => format!("'{operator}'"),
            Token::BlockEnd => "end of statement block".to_string(),
            Token::VariableEnd => "end of print statement".to_string(),
            _ => "a text or a number".to_string(),
        };
        fail(Fault::Syntax, format!("unexpected {found}, expected {expected}"))
    }

    pub(crate) fn expect_op(&mut self, operator: &str) -> Result<()> {
        if self.skip_op(operator) {
            return Ok(());
        }
        self.unexpected(&format!("'{operator}'"))
    }

    fn expect_block_end(&mut self) -> Result<()> {
        self.expect(&Token::BlockEnd, "end of statement block")
    }

    fn expect(&mut self, token: &Token, what: &str) -> Result<()> {
        if self.peek() != token {
            return self.unexpected(what);
        }
        self.at += 1;
        Ok(())
    }

    pub(crate) fn expect_name(&mut self) -> Result<String> {
        let Token::Name(name) = self.peek().clone() else { return self.unexpected("a name") };
        self.at += 1;
        Ok(name)
    }

    pub(crate) fn number_of(&mut self, name: &str) -> Name {
        if let Some(watched) = WATCHED.into_iter().find(|watched| *watched == name) {
            *self.seen.entry(watched).or_default() += 1;
        }
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.names.len() as Name;
        let name: Arc<str> = name.into();
        self.names.push(Arc::clone(&name));
        self.numbers.insert(name, number);
        number
    }

    fn seen(&self, name: &str) -> usize {
        self.seen.get(name).copied().unwrap_or(0)
    }

    /// Reads what may contain itself.
    pub(crate) fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.levels += 1;
        if self.levels > MOST_LEVELS {
            return fail(
                Fault::Limit,
                format!("more than {MOST_LEVELS} statements and expressions within each other"),
            );
        }
        let out = read(self);
        self.levels -= 1;
        out
    }

    /// Until a tag of `ends`, whose name is the next token; until the end of the template if there are none.
    fn body(&mut self, ends: &[&str]) -> Result<Body> {
        let mut out = Body::new();
        loop {
            let line = self.line();
            let kind = match self.next() {
                Token::End if ends.is_empty() => return Ok(out),
                Token::End => {
                    return fail(Fault::Syntax, format!("unexpected end of template, expected {}", ends.join(" or ")))
                }
                Token::Data(text) => Kind::Text(text.into()),
                Token::VariableBegin => {
                    let value = self.tuple(true, None)?;
                    self.expect(&Token::VariableEnd, "end of print statement")?;
                    Kind::Print(vec![value])
                }
                _ => {
                    if matches!(self.peek(), Token::Name(name) if ends.contains(&name.as_str())) {
                        return Ok(out);
                    }
                    let kind = self.deeper(Self::statement).map_err(|error| error.at(line))?;
                    self.expect_block_end()?;
                    kind
                }
            };
            out.push(Statement { line, kind });
        }
    }

    /// The body of a tag whose head is read, with its end.
    fn body_to(&mut self, end: &str) -> Result<Body> {
        let body = self.body_before(&[end])?;
        self.at += 1;
        Ok(body)
    }

    fn body_before(&mut self, ends: &[&str]) -> Result<Body> {
        self.skip_op(":");
        self.expect_block_end()?;
        self.deeper(|own| own.body(ends))
    }

    /// A body that is run on its own: loops around it do not reach into it.
    fn own_body_to(&mut self, end: &str) -> Result<Body> {
        let outer = (std::mem::take(&mut self.loops), std::mem::take(&mut self.conditions));
        let body = self.body_to(end);
        (self.loops, self.conditions) = outer;
        body
    }

    fn statement(&mut self) -> Result<Kind> {
        let name = self.expect_name()?;
        match name.as_str() {
            "for" => self.for_loop(),
            "if" => self.condition(),
            "set" => self.set(),
            "macro" => self.macro_code(),
            "call" => self.call(),
            "with" => self.with(),
            "filter" => {
                let filter = self.filter_chain(None, true)?;
                Ok(Kind::FilterBody(filter, self.own_body_to("endfilter")?))
            }
            "print" => {
                let mut values = Vec::new();
                while *self.peek() != Token::BlockEnd {
                    if !values.is_empty() {
                        self.expect_op(",")?;
                    }
                    values.push(self.expression()?);
                }
                Ok(Kind::Print(values))
            }
            "block" => {
                let name = self.expect_name()?;
                self.skip_name("scoped");
                self.skip_name("required");
                let body = self.own_body_to("endblock")?;
                self.skip_name(&name);
                Ok(Kind::Block(body))
            }
            "generation" => {
                self.marks = true;
                Ok(Kind::Generation(self.own_body_to("endgeneration")?))
            }
            "break" | "continue" if self.loops == 0 => fail(Fault::Syntax, format!("'{name}' outside of a loop")),
            "break" => Ok(Kind::Break),
            "continue" => Ok(Kind::Continue),
            "include" | "import" | "from" | "extends" => {
                unsupported(format!("the tag '{name}' (there is only one template)"))
            }
            "autoescape" => unsupported("the tag 'autoescape'"),
            _ => fail(Fault::Syntax, format!("Encountered unknown tag '{name}'")),
        }
    }

    fn for_loop(&mut self) -> Result<Kind> {
        let target = self.targets("in")?;
        if !self.skip_name("in") {
            return self.unexpected("'in'");
        }
        let list = self.tuple(false, Some("recursive"))?;
        let test = if self.skip_name("if") { Some(self.expression()?) } else { None };
        let recursive = self.skip_name("recursive");
        let loops_seen = self.seen("loop");
        self.loops += 1;
        let conditions = std::mem::take(&mut self.conditions);
        let body = self.body_before(&["endfor", "else"]);
        self.loops -= 1;
        let body = body?;
        let uses_loop = self.seen("loop") > loops_seen;
        let otherwise = if self.skip_name("else") { self.body_before(&["endfor"])? } else { Body::new() };
        self.conditions = conditions;
        self.at += 1;
        Ok(Kind::For(Arc::new(For { target, list, test, body, otherwise, recursive, uses_loop })))
    }

    fn condition(&mut self) -> Result<Kind> {
        let mut cases = Vec::new();
        self.conditions += 1;
        loop {
            let condition = self.tuple(false, None)?;
            let body = self.body_before(&["elif", "else", "endif"])?;
            cases.push((condition, body));
            if !self.skip_name("elif") {
                break;
            }
        }
        let otherwise = if self.skip_name("else") { self.body_before(&["endif"])? } else { Body::new() };
        self.conditions -= 1;
        self.at += 1;
        Ok(Kind::If(cases, otherwise))
    }

    fn set(&mut self) -> Result<Kind> {
        let target = self.targets("")?;
        if self.skip_op("=") {
            return Ok(Kind::Set(target, self.tuple(true, None)?));
        }
        let filter = if self.is_op("|") { Some(self.filter_chain(None, false)?) } else { None };
        Ok(Kind::SetBody(target, filter, self.own_body_to("endset")?))
    }

    fn with(&mut self) -> Result<Kind> {
        let mut values = Vec::new();
        while *self.peek() != Token::BlockEnd {
            if !values.is_empty() {
                self.expect_op(",")?;
            }
            let target = self.target()?;
            self.expect_op("=")?;
            values.push((target, self.expression()?));
        }
        Ok(Kind::With(values, self.body_to("endwith")?))
    }

    /// A name, a namespace's member, or several within brackets.
    fn target(&mut self) -> Result<Target> {
        if self.skip_op("(") {
            let target = self.deeper(|own| own.targets(""))?;
            self.expect_op(")")?;
            return Ok(target);
        }
        let name = self.expect_name()?;
        if matches!(name.as_str(), "true" | "false" | "none" | "True" | "False" | "None") {
            return fail(Fault::Syntax, format!("can't assign to '{name}'"));
        }
        let number = self.number_of(&name);
        if self.skip_op(".") {
            return Ok(Target::Attribute(number, self.expect_name()?.into()));
        }
        Ok(Target::Name(number))
    }

    /// Targets with commas between; `end` is a name that ends them.
    fn targets(&mut self, end: &str) -> Result<Target> {
        let first = self.target()?;
        if !self.is_op(",") {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.skip_op(",") {
            if self.is_name(end) || self.is_op("=") || self.is_op(")") || *self.peek() == Token::BlockEnd {
                break;
            }
            all.push(self.target()?);
        }
        Ok(Target::Tuple(all))
    }

    fn parameters(&mut self) -> Result<(Vec<Arc<str>>, Vec<Expr>)> {
        let (mut names, mut defaults) = (Vec::new(), Vec::new());
        self.expect_op("(")?;
        while !self.is_op(")") {
            if !names.is_empty() {
                self.expect_op(",")?;
            }
            names.push(self.expect_name()?.into());
            if self.skip_op("=") {
                defaults.push(self.expression()?);
            } else if !defaults.is_empty() {
                return fail(Fault::Syntax, "non-default argument follows default argument");
            }
        }
        self.expect_op(")")?;
        Ok((names, defaults))
    }

    fn callable(&mut self, name: &str, signature: (Vec<Arc<str>>, Vec<Expr>), end: &str) -> Result<Arc<MacroCode>> {
        let (names, defaults) = signature;
        let before = WATCHED.map(|watched| self.seen(watched));
        let body = self.own_body_to(end)?;
        let used = |at: usize| self.seen(WATCHED[at]) > before[at] && !names.iter().any(|own| **own == *WATCHED[at]);
        let (uses_caller, uses_kwargs, uses_varargs) = (used(0), used(1), used(2));
        let parameters = names.iter().map(|name| self.number_of(name)).collect();
        let name = name.into();
        Ok(Arc::new(MacroCode { name, parameters, names, defaults, body, uses_varargs, uses_kwargs, uses_caller }))
    }

    fn macro_code(&mut self) -> Result<Kind> {
        let name = self.expect_name()?;
        self.number_of(&name);
        let signature = self.parameters()?;
        Ok(Kind::Macro(self.callable(&name, signature, "endmacro")?))
    }

    fn call(&mut self) -> Result<Kind> {
        let signature = if self.is_op("(") { self.parameters()? } else { Default::default() };
        let call = self.expression()?;
        if !matches!(call, Expr::Call(..)) {
            return Err(Error::new(Fault::Syntax, "expected call"));
        }
        Ok(Kind::CallBody(call, self.callable("caller", signature, "endcall")?))
    }
}
