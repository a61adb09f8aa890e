//! Expressions from tokens, with jinja2's precedence.

use std::sync::Arc;

use crate::error::{fail, Kind as Fault, Result};
use crate::filters;
use crate::lexer::Token;
use crate::parser::Parser;
use crate::syntax::{Arguments, Binary, Compare, Constant, Expr};
use crate::tests;

/// Accesses, calls and filters that follow one value.
const MOST_LINKS: usize = 500;

type Read = fn(&mut Parser) -> Result<Expr>;

impl Parser {
    pub(crate) fn expression(&mut self) -> Result<Expr> {
        self.deeper(|own| {
            let mut value = own.any_of("or", |own| own.any_of("and", Self::negation, Expr::And), Expr::Or)?;
            let mut count = 0;
            while own.skip_name("if") {
                count += 1;
                own.limit(count)?;
                own.conditions += 1;
                let condition = own.any_of("or", |own| own.any_of("and", Self::negation, Expr::And), Expr::Or)?;
                let otherwise = if own.skip_name("else") { Some(own.expression()?) } else { None };
                own.conditions -= 1;
                value = Expr::Conditional(Box::new((condition, value, otherwise)));
            }
            Ok(value)
        })
    }

    /// Without a conditional.
    fn condition_free(&mut self) -> Result<Expr> {
        self.any_of("or", |own| own.any_of("and", Self::negation, Expr::And), Expr::Or)
    }

    fn limit(&self, count: usize) -> Result<()> {
        if count > MOST_LINKS {
            return fail(Fault::Limit, format!("more than {MOST_LINKS} parts of an expression within each other"));
        }
        Ok(())
    }

    fn any_of(&mut self, word: &str, read: Read, make: fn(Vec<Expr>) -> Expr) -> Result<Expr> {
        let first = read(self)?;
        if !self.is_name(word) {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.skip_name(word) {
            all.push(read(self)?);
        }
        Ok(make(all))
    }

    fn negation(&mut self) -> Result<Expr> {
        let mut count = 0;
        while self.skip_name("not") {
            count += 1;
        }
        let value = self.comparison()?;
        Ok(match count {
            0 => value,
            _ if count % 2 == 1 => Expr::Not(Box::new(value)),
            _ => Expr::Not(Box::new(Expr::Not(Box::new(value)))),
        })
    }

    fn comparison(&mut self) -> Result<Expr> {
        let first = self.sum()?;
        let mut rest = Vec::new();
        loop {
            let operator = match self.peek() {
                Token::Op("==") => Compare::Eq,
                Token::Op("!=") => Compare::Ne,
                Token::Op("<") => Compare::Lt,
                Token::Op("<=") => Compare::Le,
                Token::Op(">") => Compare::Gt,
                Token::Op(">=") => Compare::Ge,
                Token::Name(name) if name == "in" => Compare::In,
                Token::Name(name)
                    if name == "not" && matches!(self.peek_second(), Token::Name(name) if name == "in") =>
                {
                    self.next();
                    Compare::NotIn
                }
                _ => break,
            };
            self.next();
            rest.push((operator, self.sum()?));
        }
        Ok(if rest.is_empty() { first } else { Expr::Compare(Box::new(first), rest) })
    }

    fn chain(&mut self, operators: &[(&str, Binary)], read: Read) -> Result<Expr> {
        let first = read(self)?;
        let mut rest = Vec::new();
        while let Some((_, operator)) = operators.iter().find(|(text, _)| self.is_op(text)) {
            self.next();
            rest.push((*operator, read(self)?));
        }
        Ok(if rest.is_empty() { first } else { Expr::Binary(Box::new(first), rest) })
    }

    fn sum(&mut self) -> Result<Expr> {
        self.chain(&[("+", Binary::Add), ("-", Binary::Sub)], Self::concat)
    }

    fn concat(&mut self) -> Result<Expr> {
        let first = self.product()?;
        if !self.is_op("~") {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.skip_op("~") {
            all.push(self.product()?);
        }
        Ok(Expr::Concat(all))
    }

    fn product(&mut self) -> Result<Expr> {
        let operators = [("*", Binary::Mul), ("/", Binary::Div), ("//", Binary::FloorDiv), ("%", Binary::Mod)];
        self.chain(&operators, |own| own.chain(&[("**", Binary::Pow)], Self::signed))
    }

    fn signed(&mut self) -> Result<Expr> {
        let mut signs = Vec::new();
        while let Token::Op(sign @ ("-" | "+")) = self.peek() {
            signs.push(if *sign == "-" { '-' } else { '+' });
            self.next();
        }
        let mut value = self.primary()?;
        value = self.postfix(value)?;
        if !signs.is_empty() {
            value = Expr::Signs(signs, Box::new(value));
        }
        self.filtered(value)
    }

    fn primary(&mut self) -> Result<Expr> {
        let constant = |value| Ok(Expr::Constant(value));
        match self.peek().clone() {
            Token::Name(name) => {
                self.next();
                match name.as_str() {
                    "true" | "True" => constant(Constant::Bool(true)),
                    "false" | "False" => constant(Constant::Bool(false)),
                    "none" | "None" => constant(Constant::None),
                    _ => Ok(Expr::Name(self.number_of(&name))),
                }
            }
            Token::Str(mut text) => {
                self.next();
                while let Token::Str(more) = self.peek() {
                    text.push_str(more);
                    self.next();
                }
                constant(Constant::Str(text.into()))
            }
            Token::Int(value) => {
                self.next();
                constant(Constant::Int(value))
            }
            Token::Float(value) => {
                self.next();
                constant(Constant::Float(value))
            }
            Token::Op("(") => {
                self.next();
                let value = self.deeper(|own| own.items(true, None, true))?;
                self.expect_op(")")?;
                Ok(value)
            }
            Token::Op("[") => {
                self.next();
                Ok(Expr::List(self.list_to("]", Self::expression)?))
            }
            Token::Op("{") => {
                self.next();
                let pair = |own: &mut Self| {
                    let key = own.expression()?;
                    own.expect_op(":")?;
                    Ok((key, own.expression()?))
                };
                Ok(Expr::Dict(self.list_to("}", pair)?))
            }
            _ => self.unexpected("an expression"),
        }
    }

    /// Items with commas between, until `end`, which is read.
    fn list_to<T>(&mut self, end: &str, read: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut out = Vec::new();
        while !self.is_op(end) {
            if !out.is_empty() {
                self.expect_op(",")?;
            }
            if self.is_op(end) {
                break;
            }
            out.push(read(self)?);
        }
        self.expect_op(end)?;
        Ok(out)
    }

    /// An expression, or several with commas between.
    pub(crate) fn tuple(&mut self, conditionals: bool, end: Option<&str>) -> Result<Expr> {
        self.items(conditionals, end, false)
    }

    fn items(&mut self, conditionals: bool, end: Option<&str>, brackets: bool) -> Result<Expr> {
        let mut all = Vec::new();
        let mut several = false;
        loop {
            if !all.is_empty() {
                self.expect_op(",")?;
            }
            let ended = matches!(self.peek(), Token::BlockEnd | Token::VariableEnd | Token::Op(")"));
            if ended || end.is_some_and(|end| self.is_name(end)) {
                break;
            }
            all.push(if conditionals { self.expression()? } else { self.deeper(Self::condition_free)? });
            if !self.is_op(",") {
                break;
            }
            several = true;
        }
        match all.pop() {
            Some(only) if !several => Ok(only),
            None if !brackets => self.unexpected("an expression"),
            last => {
                all.extend(last);
                Ok(Expr::Tuple(all))
            }
        }
    }

    fn postfix(&mut self, mut value: Expr) -> Result<Expr> {
        let mut count = 0;
        loop {
            value = match self.peek() {
                Token::Op(".") => {
                    self.next();
                    match self.next() {
                        Token::Name(name) => Expr::Attribute(Box::new(value), name.into()),
                        Token::Int(number) => {
                            Expr::Item(Box::new(value), Box::new(Expr::Constant(Constant::Int(number))))
                        }
                        _ => return fail(Fault::Syntax, "expected name or number"),
                    }
                }
                Token::Op("[") => {
                    self.next();
                    self.subscript(value)?
                }
                Token::Op("(") => Expr::Call(Box::new(value), self.arguments()?),
                _ => return Ok(value),
            };
            count += 1;
            self.limit(count)?;
        }
    }

    fn subscript(&mut self, value: Expr) -> Result<Expr> {
        let mut all = Vec::new();
        while !self.is_op("]") {
            if !all.is_empty() {
                self.expect_op(",")?;
            }
            let first = if self.is_op(":") { None } else { Some(self.expression()?) };
            if !self.is_op(":") {
                all.extend(first);
                continue;
            }
            let mut parts = [first, None, None];
            for part in &mut parts[1..] {
                if !self.skip_op(":") {
                    break;
                }
                if !self.is_op(":") && !self.is_op("]") && !self.is_op(",") {
                    *part = Some(self.expression()?);
                }
            }
            if !all.is_empty() || !self.is_op("]") {
                return fail(Fault::Syntax, "a slice among several indices");
            }
            self.next();
            return Ok(Expr::Slice(Box::new(value), Box::new(parts)));
        }
        self.next();
        let index = match all.len() {
            0 => return fail(Fault::Syntax, "expected subscript expression"),
            1 => all.remove(0),
            _ => Expr::Tuple(all),
        };
        Ok(Expr::Item(Box::new(value), Box::new(index)))
    }

    pub(crate) fn arguments(&mut self) -> Result<Arguments> {
        self.expect_op("(")?;
        let mut out = Arguments::default();
        let mut first = true;
        while !self.is_op(")") {
            if !first {
                self.expect_op(",")?;
                if self.is_op(")") {
                    break;
                }
            }
            first = false;
            let wrong = || fail(Fault::Syntax, "invalid syntax for function call expression");
            if self.skip_op("*") {
                if out.more.is_some() || out.more_named.is_some() {
                    return wrong();
                }
                out.more = Some(Box::new(self.expression()?));
            } else if self.skip_op("**") {
                if out.more_named.is_some() {
                    return wrong();
                }
                out.more_named = Some(Box::new(self.expression()?));
            } else if matches!(self.peek(), Token::Name(_)) && *self.peek_second() == Token::Op("=") {
                let name: Arc<str> = self.expect_name()?.into();
                self.expect_op("=")?;
                if out.more_named.is_some() || out.named.iter().any(|(own, _)| *own == name) {
                    return wrong();
                }
                out.named.push((name, self.expression()?));
            } else {
                if out.more.is_some() || out.more_named.is_some() || !out.named.is_empty() {
                    return wrong();
                }
                out.list.push(self.expression()?);
            }
        }
        self.expect_op(")")?;
        Ok(out)
    }

    fn filtered(&mut self, mut value: Expr) -> Result<Expr> {
        let mut count = 0;
        loop {
            value = if self.is_op("|") {
                self.filter_chain(Some(value), false)?
            } else if self.skip_name("is") {
                self.test(value)?
            } else if self.is_op("(") {
                Expr::Call(Box::new(value), self.arguments()?)
            } else {
                return Ok(value);
            };
            count += 1;
            self.limit(count)?;
        }
    }

    /// Filters of `value`, or of a block's text; `inline`: the first has no bar.
    pub(crate) fn filter_chain(&mut self, mut value: Option<Expr>, mut inline: bool) -> Result<Expr> {
        let mut count = 0;
        while inline || self.skip_op("|") {
            inline = false;
            count += 1;
            self.limit(count)?;
            let name = self.dotted_name()?;
            if self.conditions == 0 {
                filters::known(&name)?;
            }
            let arguments = if self.is_op("(") { self.arguments()? } else { Arguments::default() };
            value = Some(Expr::Filter(value.map(Box::new), name.into(), arguments));
        }
        match value {
            Some(value) => Ok(value),
            None => self.unexpected("a filter"),
        }
    }

    fn dotted_name(&mut self) -> Result<String> {
        let mut name = self.expect_name()?;
        while self.skip_op(".") {
            name = name + "." + &self.expect_name()?;
        }
        Ok(name)
    }

    fn test(&mut self, value: Expr) -> Result<Expr> {
        let negated = self.skip_name("not");
        let name = self.dotted_name()?;
        if self.conditions == 0 {
            tests::known(&name)?;
        }
        let mut arguments = Arguments::default();
        let keyword = ["else", "or", "and"].iter().any(|word| self.is_name(word));
        let begins = matches!(
            self.peek(),
            Token::Name(_) | Token::Str(_) | Token::Int(_) | Token::Float(_) | Token::Op("[" | "{")
        );
        if self.is_op("(") {
            arguments = self.arguments()?;
        } else if begins && !keyword {
            if self.is_name("is") {
                return fail(Fault::Syntax, "You cannot chain multiple tests with is");
            }
            let argument = self.primary()?;
            arguments.list.push(self.postfix(argument)?);
        }
        let out = Expr::Test(Box::new(value), name.into(), arguments);
        Ok(if negated { Expr::Not(Box::new(out)) } else { out })
    }
}
