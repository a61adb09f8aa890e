//! str() and repr().

use std::fmt::Write;

use crate::characters::is_unprintable;
use crate::error::{fail, unsupported, Kind, Result};
use crate::value::{Dict, Value, View, MOST_LEVELS};

/// Python's repr: the shortest digits that read back, an exponent below 1e-4 and from 1e16 on.
pub fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_string();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    let shortest = format!("{number:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..16).contains(&exponent) {
        return format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
    let plain = number.to_string();
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

impl Value {
    /// As printed.
    pub fn text(&self) -> Result<String> {
        let mut out = String::new();
        self.print(&mut out)?;
        Ok(out)
    }

    pub fn print(&self, out: &mut String) -> Result<()> {
        match self {
            Self::Undefined(_) => {}
            Self::Str(text) | Self::Markup(text) => out.push_str(text),
            other => other.represent(0, out)?,
        }
        Ok(())
    }

    pub fn repr(&self) -> Result<String> {
        let mut out = String::new();
        self.represent(0, &mut out)?;
        Ok(out)
    }

    fn represent(&self, level: usize, out: &mut String) -> Result<()> {
        if level > MOST_LEVELS {
            return fail(Kind::Limit, format!("a value of more than {MOST_LEVELS} levels cannot be printed"));
        }
        match self {
            Self::Undefined(_) => out.push_str("Undefined"),
            Self::None => out.push_str("None"),
            Self::Bool(value) => out.push_str(if *value { "True" } else { "False" }),
            Self::Int(value) => {
                let _ = write!(out, "{value}");
            }
            Self::Float(value) => out.push_str(&float(*value)),
            Self::Str(text) => quote(text, out),
            Self::Markup(text) => {
                out.push_str("Markup(");
                quote(text, out);
                out.push(')');
            }
            Self::List(items) => represent_items("[", items, "]", level, out)?,
            Self::Tuple(items) if items.len() == 1 => represent_items("(", items, ",)", level, out)?,
            Self::Tuple(items) => represent_items("(", items, ")", level, out)?,
            Self::Dict(dict) => represent_dict(dict, level, out)?,
            Self::View(dict, view) => {
                let name = match view {
                    View::Keys => "dict_keys([",
                    View::Values => "dict_values([",
                    View::Items => "dict_items([",
                };
                represent_items(name, &dict.view(*view), "])", level, out)?;
            }
            Self::Range(start, stop, 1) => {
                let _ = write!(out, "range({start}, {stop})");
            }
            Self::Range(start, stop, step) => {
                let _ = write!(out, "range({start}, {stop}, {step})");
            }
            Self::Namespace(dict) => {
                out.push_str("<Namespace ");
                represent_dict(&dict.borrow(), level, out)?;
                out.push('>');
            }
            Self::Loop(state) => out.push_str(&state.name()),
            Self::Macro(code) => {
                let _ = write!(out, "<Macro '{}'>", code.code.name);
            }
            // Python prints an address.
            other => return unsupported(format!("printing an object of type '{}' ", other.type_name()).trim_end()),
        }
        Ok(())
    }
}

fn represent_items(begin: &str, items: &[Value], end: &str, level: usize, out: &mut String) -> Result<()> {
    out.push_str(begin);
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        item.represent(level + 1, out)?;
    }
    out.push_str(end);
    Ok(())
}

fn represent_dict(dict: &Dict, level: usize, out: &mut String) -> Result<()> {
    out.push('{');
    for (at, (key, value)) in dict.entries().iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        key.represent(level + 1, out)?;
        out.push_str(": ");
        value.represent(level + 1, out)?;
    }
    out.push('}');
    Ok(())
}

fn quote(text: &str, out: &mut String) {
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(mark);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            ' ' => out.push(' '),
            _ if character == mark => {
                out.push('\\');
                out.push(mark);
            }
            _ if is_unprintable(character) => push_escape(character, out),
            _ => out.push(character),
        }
    }
    out.push(mark);
}

fn push_escape(character: char, out: &mut String) {
    let code = character as u32;
    let _ = match code {
        0..=0xff => write!(out, "\\x{code:02x}"),
        0x100..=0xffff => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}

/// ascii(): repr() with escapes for all that is not ASCII.
pub fn ascii(value: &Value) -> Result<String> {
    let mut out = String::new();
    for character in value.repr()?.chars() {
        if character.is_ascii() {
            out.push(character);
        } else {
            push_escape(character, &mut out);
        }
    }
    Ok(out)
}

/// markupsafe's escape().
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}
