//! str.format, with the sandbox's access to attributes and items.

use std::sync::Arc;

use crate::error::{fail, Error, Kind, Result};
use crate::eval::{attribute, item};
use crate::numbers::{float_text, radix_text};
use crate::text::{ascii, float};
use crate::value::{count_chars, Args, Value};

const MOST_WIDTH: usize = 1 << 24;

pub struct Formatter<'a> {
    args: &'a Args,
    /// Of format_map.
    named: Option<&'a Value>,
    /// The next number of fields without one; none once there was one with.
    next: Option<usize>,
    numbered: bool,
}

pub fn format(text: &str, args: &Args) -> Result<String> {
    Formatter { args, named: None, next: Some(0), numbered: false }.expand(text, 2)
}

pub fn format_map(text: &str, named: &Value) -> Result<String> {
    let args = Args::default();
    Formatter { args: &args, named: Some(named), next: Some(0), numbered: false }.expand(text, 2)
}

impl Formatter<'_> {
    /// `levels`: of fields within fields' formats.
    fn expand(&mut self, text: &str, levels: usize) -> Result<String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            out.push_str(&rest[..at]);
            let brace = &rest[at..at + 1];
            rest = &rest[at + 1..];
            if rest.starts_with(brace) {
                out.push_str(brace);
                rest = &rest[1..];
                continue;
            }
            if brace == "}" {
                return fail(Kind::Value, "Single '}' encountered in format string");
            }
            let mut open = 1;
            let end = rest.find(|character| {
                open += i32::from(character == '{') - i32::from(character == '}');
                open == 0
            });
            let Some(end) = end else { return fail(Kind::Value, "expected '}' before end of string") };
            if levels == 0 {
                return fail(Kind::Value, "Max string recursion exceeded");
            }
            self.field(&rest[..end], levels, &mut out)?;
            rest = &rest[end + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }

    fn field(&mut self, field: &str, levels: usize, out: &mut String) -> Result<()> {
        let mut within = false;
        let end = field.find(|character| {
            within = (within || character == '[') && character != ']';
            !within && (character == ':' || character == '!')
        });
        let (name, rest) = field.split_at(end.unwrap_or(field.len()));
        let mut value = self.named_value(name)?;
        let mut spec = rest.strip_prefix(':').unwrap_or("");
        if let Some(conversion) = rest.strip_prefix('!') {
            let mut characters = conversion.chars();
            let kind = characters.next();
            let after = characters.as_str();
            spec = match after.strip_prefix(':') {
                Some(spec) => spec,
                None if after.is_empty() => "",
                None => return fail(Kind::Value, "expected ':' after conversion specifier"),
            };
            value = Value::str(match kind {
                Some('s') => value.text()?,
                Some('r') => value.repr()?,
                Some('a') => ascii(&value)?,
                _ => return fail(Kind::Value, "Unknown conversion specifier"),
            });
        }
        let spec = self.expand(spec, levels - 1)?;
        out.push_str(&format_value(&value, &spec)?);
        Ok(())
    }

    fn named_value(&mut self, name: &str) -> Result<Value> {
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, mut rest) = name.split_at(end);
        let mut value = if first.is_empty() || first.bytes().all(|digit| digit.is_ascii_digit()) {
            let at = self.number(first)?;
            if self.named.is_some() {
                return fail(Kind::Value, "Format string contains positional fields");
            }
            let found = self.args.list.get(at).cloned();
            found.ok_or_else(|| {
                Error::new(Kind::Lookup, format!("Replacement index {at} out of range for positional args tuple"))
            })?
        } else if let Some(Value::Dict(dict)) = self.named {
            dict.text(first).cloned().ok_or_else(|| Error::new(Kind::Lookup, format!("no value for '{first}'")))?
        } else {
            let found = self.args.named.iter().find(|(own, _)| **own == *first).map(|(_, value)| value.clone());
            found.ok_or_else(|| Error::new(Kind::Lookup, format!("no value for '{first}'")))?
        };
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                value = attribute(&value, &after[..end])?;
                rest = &after[end..];
            } else if let Some((index, after)) = rest[1..].split_once(']').filter(|_| rest.starts_with('[')) {
                let index = index.parse().map_or_else(|_| Value::str(index), Value::Int);
                value = item(&value, &index)?;
                rest = after;
            } else {
                return fail(Kind::Value, "Missing ']' in format string");
            }
        }
        Ok(value)
    }

    fn number(&mut self, text: &str) -> Result<usize> {
        if text.is_empty() {
            let Some(next) = self.next.filter(|_| !self.numbered) else {
                return fail(
                    Kind::Value,
                    "cannot switch from manual field specification to automatic field numbering",
                );
            };
            self.next = Some(next + 1);
            return Ok(next);
        }
        if self.next != Some(0) {
            return fail(Kind::Value, "cannot switch from automatic field numbering to manual field specification");
        }
        self.numbered = true;
        text.parse().map_err(|_| Error::new(Kind::Value, "Too many decimal digits in format string"))
    }
}

#[derive(Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    zero: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

fn parse_spec(text: &str, type_name: &str) -> Result<Spec> {
    let characters: Vec<char> = text.chars().collect();
    let mut out = Spec::default();
    let mut at = 0;
    let is_align = |at: usize| characters.get(at).copied().filter(|character| "<>=^".contains(*character));
    if let Some(align) = is_align(1) {
        out.fill = Some(characters[0]);
        out.align = Some(align);
        at = 2;
    } else if let Some(align) = is_align(0) {
        out.align = Some(align);
        at = 1;
    }
    let take = |set: &str, at: &mut usize| {
        let found = characters.get(*at).copied().filter(|character| set.contains(*character));
        *at += usize::from(found.is_some());
        found
    };
    out.sign = take("+- ", &mut at);
    out.alternate = take("#", &mut at).is_some();
    out.zero = take("0", &mut at).is_some();
    let number = |at: &mut usize| -> Result<Option<usize>> {
        let mut value = None;
        while let Some(digit) = take("0123456789", at) {
            let next = value.unwrap_or(0) * 10 + (digit as usize - 48);
            if next > MOST_WIDTH {
                return fail(Kind::Value, "Too many decimal digits in format string");
            }
            value = Some(next);
        }
        Ok(value)
    };
    out.width = number(&mut at)?.unwrap_or(0);
    let grouping = characters.get(at).copied().filter(|character| *character == ',' || *character == '_');
    at += usize::from(grouping.is_some());
    out.grouping = grouping;
    if characters.get(at) == Some(&'.') {
        at += 1;
        let mut value = None;
        while let Some(digit) = characters.get(at).and_then(|digit| digit.to_digit(10)) {
            value = Some((value.unwrap_or(0) * 10 + digit as usize).min(MOST_WIDTH));
            at += 1;
        }
        out.precision = value;
        if value.is_none() {
            return fail(Kind::Value, "Format specifier missing precision");
        }
    }
    out.kind = characters.get(at).copied();
    if characters.len() > at + 1 {
        return fail(Kind::Value, format!("Invalid format specifier '{text}' for object of type '{type_name}'"));
    }
    Ok(out)
}

pub fn format_value(value: &Value, spec: &str) -> Result<String> {
    if spec.is_empty() {
        return value.text();
    }
    let name = value.type_name();
    let parsed = || parse_spec(spec, name);
    match value {
        Value::Str(text) => of_text(text, &parsed()?),
        Value::Bool(_) | Value::Int(_) => of_int(value.as_int().unwrap_or(0), &parsed()?),
        Value::Float(number) => of_float(*number, &parsed()?),
        _ => fail(Kind::Type, format!("unsupported format string passed to {name}.__format__")),
    }
}

fn unknown<T>(kind: char, name: &str) -> Result<T> {
    fail(Kind::Value, format!("Unknown format code '{kind}' for object of type '{name}'"))
}

fn of_text(text: &Arc<str>, spec: &Spec) -> Result<String> {
    if let Some(kind) = spec.kind.filter(|kind| *kind != 's') {
        return unknown(kind, "str");
    }
    if spec.sign.is_some() || spec.align == Some('=') || spec.alternate || spec.grouping.is_some() {
        return fail(Kind::Value, "Sign, '=', '#' or ',' not allowed in string format specifier");
    }
    let text: String = text.chars().take(spec.precision.unwrap_or(usize::MAX)).collect();
    let fill = spec.fill.unwrap_or(if spec.zero { '0' } else { ' ' });
    Ok(aligned("", &text, fill, spec.align.unwrap_or('<'), spec.width))
}

fn aligned(sign: &str, text: &str, fill: char, align: char, width: usize) -> String {
    let missing = width.saturating_sub(count_chars(sign) + count_chars(text));
    let fills = |count: usize| fill.to_string().repeat(count);
    match align {
        '<' => format!("{sign}{text}{}", fills(missing)),
        '^' => format!("{}{sign}{text}{}", fills(missing / 2), fills(missing - missing / 2)),
        '=' => format!("{sign}{}{text}", fills(missing)),
        _ => format!("{}{sign}{text}", fills(missing)),
    }
}

/// With a mark between groups of digits, `size` digits each.
fn grouped(digits: &str, mark: char, size: usize) -> String {
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % size == 0 {
            out.push(mark);
        }
        out.push(digit);
    }
    out
}

fn number(negative: bool, prefix: &str, whole: &str, rest: &str, group: usize, spec: &Spec) -> String {
    let sign = match spec.sign {
        _ if negative => "-",
        Some('+') => "+",
        Some(' ') => " ",
        _ => "",
    };
    let sign = format!("{sign}{prefix}");
    let zeros = spec.zero && spec.align.is_none();
    let fill = spec.fill.unwrap_or(if spec.zero { '0' } else { ' ' });
    let align = spec.align.unwrap_or(if zeros { '=' } else { '>' });
    let Some(mark) = spec.grouping.filter(|_| whole.bytes().all(|digit| digit.is_ascii_alphanumeric())) else {
        return aligned(&sign, &format!("{whole}{rest}"), fill, align, spec.width);
    };
    let mut digits = whole.to_string();
    if fill == '0' && align == '=' {
        // Zeros have marks, too.
        while sign.len() + grouped(&digits, mark, group).len() + rest.len() < spec.width {
            digits.insert(0, '0');
        }
    }
    aligned(&sign, &format!("{}{rest}", grouped(&digits, mark, group)), fill, align, spec.width)
}

fn of_int(value: i128, spec: &Spec) -> Result<String> {
    let kind = spec.kind.unwrap_or('d');
    let radix = match kind {
        'd' | 'n' => 10,
        'b' => 2,
        'o' => 8,
        'x' | 'X' => 16,
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%' => return of_float(value as f64, spec),
        'c' => {
            let Some(character) = u32::try_from(value).ok().and_then(char::from_u32) else {
                return fail(Kind::Overflow, "%c arg not in range(0x110000)");
            };
            let fill = spec.fill.unwrap_or(if spec.zero { '0' } else { ' ' });
            return Ok(aligned("", &character.to_string(), fill, spec.align.unwrap_or('<'), spec.width));
        }
        _ => return unknown(kind, "int"),
    };
    if spec.precision.is_some() {
        return fail(Kind::Value, "Precision not allowed in integer format specifier");
    }
    if radix != 10 && spec.grouping == Some(',') {
        return fail(Kind::Value, format!("Cannot specify ',' with '{kind}'."));
    }
    let mut digits = radix_text(value.unsigned_abs(), radix);
    let mut prefix = match kind {
        'b' if spec.alternate => "0b".to_string(),
        'o' if spec.alternate => "0o".to_string(),
        'x' | 'X' if spec.alternate => "0x".to_string(),
        _ => String::new(),
    };
    if kind == 'X' {
        digits.make_ascii_uppercase();
        prefix.make_ascii_uppercase();
    }
    Ok(number(value < 0, &prefix, &digits, "", if radix == 10 { 3 } else { 4 }, spec))
}

fn of_float(value: f64, spec: &Spec) -> Result<String> {
    let size = value.abs();
    let text = match (spec.kind, spec.precision) {
        (None, None) if spec.alternate => {
            return fail(Kind::Unsupported, "the format '#' of a float is not supported in chat templates")
        }
        (None, None) => float(size),
        (None, Some(precision)) => float_text(size, 'r', precision, spec.alternate),
        (Some(kind @ ('e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'n')), precision) => {
            let own = if kind == 'n' { 'g' } else { kind.to_ascii_lowercase() };
            let text = float_text(size, own, precision.unwrap_or(6), spec.alternate);
            if kind.is_ascii_uppercase() {
                text.to_uppercase()
            } else {
                text
            }
        }
        (Some('%'), precision) => float_text(size * 100.0, 'f', precision.unwrap_or(6), spec.alternate) + "%",
        (Some(kind), _) => return unknown(kind, "float"),
    };
    let whole = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let whole = if size.is_finite() { whole } else { text.len() };
    let negative = value.is_sign_negative() && !value.is_nan();
    Ok(number(negative, "", &text[..whole], &text[whole..], 3, spec))
}
