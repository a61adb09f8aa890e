//! The tokens of a template, with jinja2's rules of blanks: `trim_blocks` and `lstrip_blocks` are on.

use crate::characters::{is_identifier_part, is_space, trim_end};
use crate::error::{fail, Error, Kind, Result};

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Data(String),
    BlockBegin,
    BlockEnd,
    VariableBegin,
    VariableEnd,
    Name(String),
    Str(String),
    Int(i128),
    Float(f64),
    Op(&'static str),
    End,
}

pub struct Lexer {
    text: Vec<char>,
    at: usize,
    /// How far `line` is counted.
    counted: usize,
    line: u32,
    /// What was read last ended a line.
    line_starts: bool,
    out: Vec<(Token, u32)>,
}

const OPERATORS: [&str; 26] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=",
    ".", ":", "|", ",", ";",
];

pub fn tokens(source: &str) -> Result<Vec<(Token, u32)>> {
    let mut text = source.replace("\r\n", "\n").replace('\r', "\n");
    if text.ends_with('\n') {
        text.pop();
    }
    let text = text.chars().collect();
    let mut lexer = Lexer { text, at: 0, counted: 0, line: 1, line_starts: true, out: Vec::new() };
    let read = lexer.read();
    let line = lexer.line_here();
    read.map_err(|error| error.at(line))?;
    lexer.push(Token::End);
    Ok(lexer.out)
}

impl Lexer {
    fn line_here(&mut self) -> u32 {
        let end = self.at.min(self.text.len());
        self.line += self.text[self.counted..end].iter().filter(|&&character| character == '\n').count() as u32;
        self.counted = end;
        self.line
    }

    fn push(&mut self, token: Token) {
        let line = self.line_here();
        self.out.push((token, line));
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).copied()
    }

    fn looking_at(&self, at: usize, what: &str) -> bool {
        what.chars().enumerate().all(|(i, character)| self.text.get(at + i) == Some(&character))
    }

    fn spaces_from(&self, mut at: usize) -> usize {
        while self.text.get(at).copied().is_some_and(is_space) {
            at += 1;
        }
        at
    }

    /// Where the first opening brace of a tag is, from here on.
    fn next_tag(&self) -> Option<usize> {
        (self.at..self.text.len().saturating_sub(1))
            .find(|&at| self.text[at] == '{' && matches!(self.text[at + 1], '{' | '%' | '#'))
    }

    fn slice(&self, begin: usize, end: usize) -> String {
        self.text[begin..end].iter().collect()
    }

    /// The text before a tag, without the blanks that the tag's sign takes.
    fn data(&mut self, begin: usize, end: usize, sign: Option<char>, strips_line: bool) {
        let mut text = self.slice(begin, end);
        if sign == Some('-') {
            text.truncate(trim_end(&text).len());
        } else if sign != Some('+') && strips_line {
            let line = text.rfind('\n').map_or(0, |at| at + 1);
            if (line > 0 || self.line_starts) && text[line..].chars().all(is_space) {
                text.truncate(line);
            }
        }
        if !text.is_empty() {
            self.push(Token::Data(text));
        }
    }

    fn sign_at(&self, at: usize) -> Option<char> {
        self.text.get(at).copied().filter(|&sign| sign == '-' || sign == '+')
    }

    fn finish(&mut self, at: usize) {
        self.line_starts = at > 0 && self.text[at - 1] == '\n';
        self.at = at;
    }

    fn read(&mut self) -> Result<()> {
        while let Some(tag) = self.next_tag() {
            let begin = self.at;
            let kind = self.text[tag + 1];
            let sign = self.sign_at(tag + 2);
            let inside = tag + 2 + usize::from(sign.is_some());
            self.data(begin, tag, sign, kind != '{');
            if kind == '%' {
                if let Some(end) = self.raw_begin(inside) {
                    self.finish(end);
                    self.raw()?;
                    continue;
                }
            }
            self.at = inside;
            self.line_starts = false;
            match kind {
                '#' => self.comment()?,
                '%' => {
                    self.push(Token::BlockBegin);
                    self.code(true)?;
                }
                _ => {
                    self.push(Token::VariableBegin);
                    self.code(false)?;
                }
            }
        }
        let rest = self.slice(self.at, self.text.len());
        if !rest.is_empty() {
            self.push(Token::Data(rest));
        }
        self.at = self.text.len();
        Ok(())
    }

    /// Where the text after "raw %}" begins.
    fn raw_begin(&self, at: usize) -> Option<usize> {
        let word = self.spaces_from(at);
        if !self.looking_at(word, "raw") {
            return None;
        }
        let end = self.spaces_from(word + 3);
        if self.looking_at(end, "-%}") {
            return Some(self.spaces_from(end + 3));
        }
        self.looking_at(end, "%}").then_some(end + 2)
    }

    fn raw(&mut self) -> Result<()> {
        let begin = self.at;
        for tag in begin..self.text.len() {
            if !self.looking_at(tag, "{%") {
                continue;
            }
            let sign = self.sign_at(tag + 2);
            let word = self.spaces_from(tag + 2 + usize::from(sign.is_some()));
            if !self.looking_at(word, "endraw") {
                continue;
            }
            if let Some(end) = self.tag_end(self.spaces_from(word + 6), "%}") {
                self.data(begin, tag, sign, true);
                self.finish(end);
                return Ok(());
            }
        }
        fail(Kind::Syntax, "Missing end of raw directive")
    }

    /// Where what follows the end of a block or a comment begins, if one is at `at`.
    fn tag_end(&self, at: usize, end: &str) -> Option<usize> {
        if self.looking_at(at, end) {
            let next = at + 2;
            return Some(next + usize::from(self.text.get(next) == Some(&'\n')));
        }
        match self.sign_at(at)? {
            _ if !self.looking_at(at + 1, end) => None,
            '-' => Some(self.spaces_from(at + 3)),
            _ => Some(at + 3),
        }
    }

    fn comment(&mut self) -> Result<()> {
        for at in self.at..self.text.len() {
            if let Some(end) = self.tag_end(at, "#}") {
                self.finish(end);
                return Ok(());
            }
        }
        fail(Kind::Syntax, "Missing end of comment tag")
    }

    /// The tokens of a block or of a printed expression, with its end.
    fn code(&mut self, block: bool) -> Result<()> {
        let mut open = Vec::new();
        loop {
            let blanks = self.spaces_from(self.at);
            if blanks > self.at {
                self.finish(blanks);
            }
            if open.is_empty() {
                let end = if block {
                    self.tag_end(self.at, "%}")
                } else if self.looking_at(self.at, "-}}") {
                    Some(self.spaces_from(self.at + 3))
                } else {
                    self.looking_at(self.at, "}}").then_some(self.at + 2)
                };
                if let Some(end) = end {
                    self.push(if block { Token::BlockEnd } else { Token::VariableEnd });
                    self.finish(end);
                    return Ok(());
                }
            }
            let Some(character) = self.peek(0) else {
                return fail(
                    Kind::Syntax,
                    format!("unexpected end of template, expected '{}'", if block { "%}" } else { "}}" }),
                );
            };
            if character.is_ascii_digit() {
                self.number()?;
            } else if is_identifier_part(character) {
                let begin = self.at;
                while self.peek(0).is_some_and(is_identifier_part) {
                    self.at += 1;
                }
                self.push(Token::Name(self.slice(begin, self.at)));
            } else if character == '\'' || character == '"' {
                self.string(character)?;
            } else {
                self.operator(character, &mut open)?;
            }
            self.line_starts = false;
        }
    }

    fn operator(&mut self, character: char, open: &mut Vec<char>) -> Result<()> {
        let Some(operator) = OPERATORS.into_iter().find(|operator| self.looking_at(self.at, operator)) else {
            return fail(Kind::Syntax, format!("unexpected char '{character}'"));
        };
        match character {
            '(' => open.push(')'),
            '[' => open.push(']'),
            '{' => open.push('}'),
            ')' | ']' | '}' if open.pop() != Some(character) => {
                return fail(Kind::Syntax, format!("unexpected '{character}'"));
            }
            _ => {}
        }
        self.push(Token::Op(operator));
        self.at += operator.len();
        Ok(())
    }

    /// The end of digits that single underscores may separate.
    fn digits(&self, mut at: usize, radix: u32) -> usize {
        let digit = |at: usize| self.text.get(at).is_some_and(|character| character.is_digit(radix));
        while digit(at) || (self.text.get(at) == Some(&'_') && digit(at + 1)) {
            at += 1;
        }
        at
    }

    fn number(&mut self) -> Result<()> {
        let begin = self.at;
        let plain = |text: String| text.replace('_', "");
        let whole = self.digits(begin, 10);
        let fraction = if self.text.get(whole) == Some(&'.') { self.digits(whole + 1, 10) } else { whole };
        let fraction = if fraction > whole + 1 && self.text[whole + 1] != '_' { fraction } else { whole };
        let mut end = fraction;
        if matches!(self.text.get(end), Some('e' | 'E')) {
            let digits = end + 1 + usize::from(matches!(self.text.get(end + 1), Some('+' | '-')));
            if self.text.get(digits).is_some_and(char::is_ascii_digit) {
                end = self.digits(digits, 10);
            }
        }
        let after_dot = begin > 0 && self.text[begin - 1] == '.';
        if end > whole && !after_dot {
            let value =
                plain(self.slice(begin, end)).parse().map_err(|_| Error::new(Kind::Syntax, "a bad number"))?;
            self.push(Token::Float(value));
            self.at = end;
            return Ok(());
        }
        let radix = match self.text.get(begin + 1) {
            Some('b' | 'B') => 2,
            Some('o' | 'O') => 8,
            Some('x' | 'X') => 16,
            _ => 10,
        };
        let (first, end) = match radix {
            10 if self.text[begin] == '0' => {
                (begin, (begin..whole).find(|&at| !matches!(self.text[at], '0' | '_')).unwrap_or(whole))
            }
            10 => (begin, whole),
            _ if self.text[begin] == '0' && self.digits(begin + 2, radix) > begin + 2 => {
                (begin + 2, self.digits(begin + 2, radix))
            }
            _ => (begin, whole),
        };
        let radix = if first == begin { 10 } else { radix };
        let Ok(value) = i128::from_str_radix(&plain(self.slice(first, end)), radix) else {
            return fail(
                Kind::Unsupported,
                "a whole number of more than 127 bits is not supported in chat templates",
            );
        };
        self.push(Token::Int(value));
        self.at = end;
        Ok(())
    }

    fn string(&mut self, quote: char) -> Result<()> {
        let begin = self.at + 1;
        let mut end = begin;
        loop {
            match self.text.get(end) {
                Some('\\') => end += 2,
                Some(&character) if character == quote => break,
                Some(_) => end += 1,
                None => return fail(Kind::Syntax, format!("unexpected char '{quote}'")),
            }
        }
        let value = unescape(&self.text[begin..end])?;
        self.push(Token::Str(value));
        self.at = end + 1;
        Ok(())
    }
}

/// What Python's codec "unicode-escape" makes of a text.
fn unescape(text: &[char]) -> Result<String> {
    let mut out = String::new();
    let mut at = 0;
    while at < text.len() {
        if text[at] != '\\' || at + 1 == text.len() {
            out.push(text[at]);
            at += 1;
            continue;
        }
        let kind = text[at + 1];
        at += 2;
        let digits = match kind {
            '\n' => continue,
            '\\' | '\'' | '"' => 0,
            'a' => 7,
            'b' => 8,
            't' => 9,
            'n' => 10,
            'v' => 11,
            'f' => 12,
            'r' => 13,
            '0'..='7' => {
                let size = text[at - 1..].iter().take(3).take_while(|digit| digit.is_digit(8)).count();
                let code =
                    text[at - 1..at - 1 + size].iter().fold(0, |sum, digit| sum * 8 + digit.to_digit(8).unwrap_or(0));
                out.extend(char::from_u32(code));
                at += size - 1;
                continue;
            }
            'x' | 'u' | 'U' => {
                let size = if kind == 'x' {
                    2
                } else if kind == 'u' {
                    4
                } else {
                    8
                };
                let digits: String = text[at..].iter().take(size).collect();
                let code = u32::from_str_radix(&digits, 16).ok().filter(|_| digits.chars().count() == size);
                let Some(character) = code.and_then(char::from_u32) else {
                    return fail(Kind::Syntax, format!("\\{kind}{digits} in a text is no character"));
                };
                out.push(character);
                at += size;
                continue;
            }
            'N' => {
                return fail(Kind::Unsupported, "\\N (a character by its name) is not supported in chat templates")
            }
            other => {
                out.push('\\');
                out.push(other);
                continue;
            }
        };
        out.push(if digits == 0 { kind } else { char::from(digits) });
    }
    Ok(out)
}
