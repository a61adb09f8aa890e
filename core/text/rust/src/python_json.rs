//! JSON text exactly as Python's json.dumps writes it: chat templates put it into prompts, and models were trained
//! on Python's spacing.

use std::fmt::Write;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// Deeper values would need more stack than a host's thread may have.
const MOST_LEVELS: usize = 128;

/// The arguments of json.dumps that templates use.
pub struct Style {
    pub ensure_ascii: bool,
    /// One level of indentation; None writes one line.
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

pub fn dumps(value: &Value, style: &Style) -> Result<String, Error> {
    let mut out = String::new();
    write(value, style, 0, &mut out)?;
    Ok(out)
}

fn write(value: &Value, style: &Style, level: usize, out: &mut String) -> Result<(), Error> {
    if level > MOST_LEVELS {
        return Err(Error::new(ErrorKind::BadSerialization, format!("tojson: more than {MOST_LEVELS} levels")));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
        ValueKind::Number => out.push_str(&float(f64::try_from(value.clone())?)),
        ValueKind::String => quote(value.as_str().unwrap_or_default(), style.ensure_ascii, out),
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter()?.collect::<Vec<_>>();
            list(('[', ']'), &items, style, level, out, |item, out| write(item, style, level + 1, out))?;
        }
        ValueKind::Map => {
            let mut keys =
                value.try_iter()?.map(|key| Ok((key_text(&key)?, key))).collect::<Result<Vec<_>, Error>>()?;
            if style.sort_keys {
                keys.sort_by(|a, b| a.0.cmp(&b.0));
            }
            list(('{', '}'), &keys, style, level, out, |(text, key), out| {
                quote(text, style.ensure_ascii, out);
                out.push_str(&style.key_separator);
                write(&value.get_item(key)?, style, level + 1, out)
            })?;
        }
        other => {
            return Err(Error::new(
                ErrorKind::BadSerialization,
                format!("tojson: a value of type {other} has no JSON form"),
            ))
        }
    }
    Ok(())
}

fn list<T>(
    brackets: (char, char),
    items: &[T],
    style: &Style,
    level: usize,
    out: &mut String,
    mut write_item: impl FnMut(&T, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    let new_line = |level: usize, out: &mut String| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(indent.as_str(), level));
        }
    };
    out.push(brackets.0);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(&style.item_separator);
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

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_string()),
        ValueKind::None => Ok("null".to_string()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_string()),
        ValueKind::Number if key.is_integer() => Ok(key.to_string()),
        ValueKind::Number => Ok(float(f64::try_from(key.clone())?)),
        other => {
            Err(Error::new(ErrorKind::BadSerialization, format!("tojson: a key of type {other} has no JSON form")))
        }
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
            other if other < ' ' || (ensure_ascii && !other.is_ascii()) => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// Python's repr: the shortest digits that read back, an exponent below 1e-4 and from 1e16 on.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_string();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_string();
    }
    let shortest = format!("{number:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = number.to_string();
        if plain.contains('.') {
            plain
        } else {
            plain + ".0"
        }
    } else {
        format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
    }
}
