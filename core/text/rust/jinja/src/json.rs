//! JSON as Python's json module reads and writes it: keys keep their order, whole numbers stay whole, and chat templates put
//! the text into prompts with Python's blanks.

use std::fmt::Write;

use crate::error::{fail, Error, Kind, Result};
use crate::text::float;
use crate::value::{Dict, Value};

/// Deeper values would need more stack than a host's thread may have.
const MOST_LEVELS: usize = 128;

/// The arguments of json.dumps that templates use.
#[derive(Default)]
pub struct Style {
    pub ensure_ascii: bool,
    /// One level of indentation; None writes one line.
    pub indent: Option<String>,
    pub separators: Option<(String, String)>,
    pub sort_keys: bool,
}

impl Style {
    fn between(&self) -> (&str, &str) {
        match &self.separators {
            Some((items, keys)) => (items, keys),
            None if self.indent.is_some() => (",", ": "),
            None => (", ", ": "),
        }
    }
}

pub fn dumps(value: &Value, style: &Style) -> Result<String> {
    let mut out = String::new();
    write(value, style, 0, &mut out)?;
    Ok(out)
}

fn write(value: &Value, style: &Style, level: usize, out: &mut String) -> Result<()> {
    if level > MOST_LEVELS {
        return fail(Kind::Limit, format!("tojson: more than {MOST_LEVELS} levels"));
    }
    match value {
        Value::None => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => {
            let _ = write!(out, "{value}");
        }
        Value::Float(value) => out.push_str(&number(*value)),
        Value::Str(text) | Value::Markup(text) => quote(text, style.ensure_ascii, out),
        Value::List(items) => {
            list(('[', ']'), items, style, level, out, |item, out| write(item, style, level + 1, out))?
        }
        Value::Tuple(items) => {
            list(('[', ']'), items, style, level, out, |item, out| write(item, style, level + 1, out))?;
        }
        Value::Dict(dict) => {
            let mut entries = dict.entries().iter().collect::<Vec<_>>();
            if style.sort_keys {
                let mut wrong = None;
                entries.sort_by(|left, right| {
                    crate::operators::order("<", &left.0, &right.0, 0)
                        .unwrap_or_else(|error| {
                            wrong = Some(error);
                            None
                        })
                        .unwrap_or(std::cmp::Ordering::Equal)
                });
                if let Some(error) = wrong {
                    return Err(error);
                }
            }
            list(('{', '}'), &entries, style, level, out, |(key, value), out| {
                quote(&key_text(key)?, style.ensure_ascii, out);
                out.push_str(style.between().1);
                write(value, style, level + 1, out)
            })?;
        }
        other => return fail(Kind::Type, format!("Object of type {} is not JSON serializable", other.type_name())),
    }
    Ok(())
}

fn list<T>(
    brackets: (char, char),
    items: &[T],
    style: &Style,
    level: usize,
    out: &mut String,
    mut write_item: impl FnMut(&T, &mut String) -> Result<()>,
) -> Result<()> {
    let new_line = |level: usize, out: &mut String| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(indent.as_str(), level));
        }
    };
    out.push(brackets.0);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(style.between().0);
        }
        new_line(level + 1, out);
        write_item(item, out)?;
    }
    if !items.is_empty() {
        new_line(level, out);
    }
    out.push(brackets.1);
    Ok(())
}

fn key_text(key: &Value) -> Result<String> {
    match key {
        Value::Str(text) | Value::Markup(text) => Ok(text.to_string()),
        Value::None => Ok("null".to_string()),
        Value::Bool(value) => Ok(if *value { "true" } else { "false" }.to_string()),
        Value::Int(value) => Ok(value.to_string()),
        Value::Float(value) => Ok(number(*value)),
        other => fail(Kind::Type, format!("keys must be str, int, float, bool or None, not {}", other.type_name())),
    }
}

fn number(value: f64) -> String {
    match float(value).as_str() {
        "nan" => "NaN".to_string(),
        "inf" => "Infinity".to_string(),
        "-inf" => "-Infinity".to_string(),
        text => text.to_string(),
    }
}

fn quote(text: &str, ensure_ascii: bool, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            other if other < ' ' || (ensure_ascii && (!other.is_ascii() || other == '\x7f')) => {
                if other == '\x7f' {
                    out.push(other);
                    continue;
                }
                for unit in other.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// Reads one value. Errors name the byte.
pub fn parse(text: &str) -> Result<Value> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.blanks();
    if reader.at < text.len() {
        return reader.wrong("more after the value");
    }
    Ok(value)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn wrong<T>(&self, what: &str) -> Result<T> {
        fail(Kind::Value, format!("{what} at byte {}", self.at))
    }

    fn blanks(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    fn skip(&mut self, what: &str) -> bool {
        let found = self.text[self.at..].starts_with(what);
        self.at += if found { what.len() } else { 0 };
        found
    }

    fn value(&mut self, level: usize) -> Result<Value> {
        if level > MOST_LEVELS {
            return self.wrong("more than 128 levels");
        }
        self.blanks();
        for (word, value) in [
            ("null", Value::None),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("NaN", Value::Float(f64::NAN)),
            ("Infinity", Value::Float(f64::INFINITY)),
            ("-Infinity", Value::Float(f64::NEG_INFINITY)),
        ] {
            if self.skip(word) {
                return Ok(value);
            }
        }
        match self.text.as_bytes().get(self.at) {
            Some(b'{') => self.object(level),
            Some(b'[') => self.array(level),
            Some(b'"') => Ok(Value::str(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => self.wrong("no value"),
            None => self.wrong("the text ends"),
        }
    }

    /// After an item: whether another follows.
    fn more(&mut self, end: &str) -> Result<bool> {
        self.blanks();
        if self.skip(",") {
            return Ok(true);
        }
        if self.skip(end) {
            return Ok(false);
        }
        self.wrong("neither a comma nor the end of a list or object")
    }

    fn array(&mut self, level: usize) -> Result<Value> {
        self.at += 1;
        let mut out = Vec::new();
        self.blanks();
        if self.skip("]") {
            return Ok(Value::list(out));
        }
        loop {
            out.push(self.value(level + 1)?);
            if !self.more("]")? {
                return Ok(Value::list(out));
            }
        }
    }

    fn object(&mut self, level: usize) -> Result<Value> {
        self.at += 1;
        let mut out = Dict::default();
        self.blanks();
        if self.skip("}") {
            return Ok(Value::dict(out));
        }
        loop {
            self.blanks();
            if !self.text[self.at..].starts_with('"') {
                return self.wrong("no name of a member");
            }
            let key = self.string()?;
            self.blanks();
            if !self.skip(":") {
                return self.wrong("no colon after a name");
            }
            out.set(Value::str(key), self.value(level + 1)?)?;
            if !self.more("}")? {
                return Ok(Value::dict(out));
            }
        }
    }

    fn number(&mut self) -> Result<Value> {
        let rest = &self.text[self.at..];
        let size = rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E')).unwrap_or(rest.len());
        let text = &rest[..size];
        let digits = text.strip_prefix('-').unwrap_or(text);
        let whole = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let bad_start = whole == 0 || (whole > 1 && digits.starts_with('0'));
        let bad_point =
            digits[whole..].strip_prefix('.').is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
        if bad_start || bad_point {
            return self.wrong("no number");
        }
        let value = if whole == digits.len() {
            match text.parse() {
                Ok(value) => Value::Int(value),
                Err(_) => return self.wrong("a whole number of more than 127 bits"),
            }
        } else {
            match text.parse() {
                Ok(value) => Value::Float(value),
                Err(_) => return self.wrong("no number"),
            }
        };
        self.at += size;
        Ok(value)
    }

    fn string(&mut self) -> Result<String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(size) = rest.find(|c: char| c == '"' || c == '\\' || c < ' ') else {
                return self.wrong("a text without an end");
            };
            out.push_str(&rest[..size]);
            self.at += size;
            match rest.as_bytes()[size] {
                b'"' => {
                    self.at += 1;
                    return Ok(out);
                }
                b'\\' => out.push(self.escape()?),
                _ => return self.wrong("a control character in a text"),
            }
        }
    }

    fn unit(&mut self) -> Result<u32> {
        let digits =
            self.text.get(self.at..self.at + 4).filter(|digits| digits.bytes().all(|c| c.is_ascii_hexdigit()));
        let Some(unit) = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) else {
            return self.wrong("no four digits after \\u");
        };
        self.at += 4;
        Ok(unit)
    }

    fn escape(&mut self) -> Result<char> {
        let kind = self.text.as_bytes().get(self.at + 1).copied().unwrap_or(0);
        let character = match kind {
            b'"' | b'\\' | b'/' => char::from(kind),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                self.at += 2;
                let mut code = self.unit()?;
                if (0xd800..0xdc00).contains(&code) && self.skip("\\u") {
                    let low = self.unit()?;
                    if (0xdc00..0xe000).contains(&low) {
                        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                    }
                }
                return char::from_u32(code)
                    .ok_or_else(|| Error::new(Kind::Value, format!("half of a surrogate pair at byte {}", self.at)));
            }
            _ => return self.wrong("an unknown escape"),
        };
        self.at += 2;
        Ok(character)
    }
}
