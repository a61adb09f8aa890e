//! text % values

use crate::error::{fail, Error, Kind, Result};
use crate::numbers::{float_of, float_text, int_of, radix_text};
use crate::text::ascii;
use crate::value::{count_chars, Value};

#[derive(Default)]
struct Field {
    left: bool,
    plus: bool,
    space: bool,
    zero: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
}

/// Wider fields are a template's mistake.
const MOST_WIDTH: i128 = 1 << 24;

struct Values<'a> {
    all: &'a Value,
    next: usize,
}

impl Values<'_> {
    fn next(&mut self) -> Result<Value> {
        let at = self.next;
        self.next += 1;
        match self.all {
            Value::Tuple(items) => items.get(at).cloned(),
            single => (at == 0).then(|| single.clone()),
        }
        .ok_or_else(|| Error::new(Kind::Type, "not enough arguments for format string"))
    }

    fn named(&mut self, key: &str) -> Result<Value> {
        match self.all {
            Value::Dict(dict) => {
                dict.text(key).cloned().ok_or_else(|| Error::new(Kind::Lookup, format!("no value for '{key}'")))
            }
            Value::Undefined(what) => fail(Kind::Undefined, &**what),
            _ => fail(Kind::Type, "format requires a mapping"),
        }
    }

    fn are_used(&self) -> bool {
        match self.all {
            Value::Tuple(items) => self.next >= items.len(),
            Value::Dict(_) | Value::List(_) | Value::Undefined(_) | Value::Range(..) => true,
            _ => self.next > 0,
        }
    }
}

type Rest<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// A width or a precision: digits, or a star for the next value.
fn number(rest: &mut Rest, values: &mut Values) -> Result<Option<i128>> {
    if rest.next_if_eq(&'*').is_some() {
        let value = values.next()?;
        return value.as_int().map(Some).ok_or_else(|| Error::new(Kind::Type, "* wants int"));
    }
    let mut out = None;
    while let Some(digit) = rest.next_if(char::is_ascii_digit) {
        out = Some((out.unwrap_or(0) * 10 + i128::from(digit as u32 - 48)).min(MOST_WIDTH + 1));
    }
    Ok(out)
}

/// "(name)"
fn key(rest: &mut Rest) -> Result<Option<String>> {
    if rest.next_if_eq(&'(').is_none() {
        return Ok(None);
    }
    let mut name = String::new();
    let mut open = 1;
    loop {
        let Some(character) = rest.next() else { return fail(Kind::Value, "incomplete format key") };
        open += i32::from(character == '(') - i32::from(character == ')');
        if open == 0 {
            return Ok(Some(name));
        }
        name.push(character);
    }
}

pub fn format(text: &str, values: &Value) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    let mut values = Values { all: values, next: 0 };
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let key = key(&mut rest)?;
        let mut field = Field::default();
        while let Some(flag) = rest.next_if(|flag| "-+ 0#".contains(*flag)) {
            match flag {
                '-' => field.left = true,
                '+' => field.plus = true,
                ' ' => field.space = true,
                '0' => field.zero = true,
                _ => field.alternate = true,
            }
        }
        let mut width = number(&mut rest, &mut values)?.unwrap_or(0);
        if width < 0 {
            field.left = true;
            width = -width;
        }
        let precision = if rest.next_if_eq(&'.').is_some() {
            Some(number(&mut rest, &mut values)?.unwrap_or(0).max(0))
        } else {
            None
        };
        if width > MOST_WIDTH || precision.is_some_and(|precision| precision > MOST_WIDTH) {
            return fail(Kind::Value, "width or precision too big");
        }
        field.width = width as usize;
        field.precision = precision.map(|precision| precision as usize);
        while rest.next_if(|letter| "hlL".contains(*letter)).is_some() {}
        let Some(kind) = rest.next() else { return fail(Kind::Value, "incomplete format") };
        if kind == '%' {
            out.push('%');
            continue;
        }
        let value = match key {
            Some(key) => values.named(&key)?,
            None => values.next()?,
        };
        push(&field, kind, &value, &mut out)?;
    }
    if !values.are_used() {
        return fail(Kind::Type, "not all arguments converted during string formatting");
    }
    Ok(out)
}

fn push(field: &Field, kind: char, value: &Value, out: &mut String) -> Result<()> {
    let text = match kind {
        's' => value.text()?,
        'r' => value.repr()?,
        'a' => ascii(value)?,
        'c' => match value {
            Value::Str(text) if count_chars(text) == 1 => text.to_string(),
            Value::Bool(code) => char::from(u8::from(*code)).to_string(),
            Value::Int(code) => match u32::try_from(*code).ok().and_then(char::from_u32) {
                Some(character) => character.to_string(),
                None => return fail(Kind::Overflow, "%c arg not in range(0x110000)"),
            },
            _ => return fail(Kind::Type, "%c requires int or char"),
        },
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
            return push_number(field, kind, value, out)
        }
        other => return fail(Kind::Value, format!("unsupported format character '{other}' (0x{:x})", other as u32)),
    };
    let text: String = match field.precision {
        Some(most) if kind != 'c' => text.chars().take(most).collect(),
        _ => text,
    };
    pad(field, "", &text, false, out);
    Ok(())
}

fn push_number(field: &Field, kind: char, value: &Value, out: &mut String) -> Result<()> {
    let needs =
        |what: &str| Error::new(Kind::Type, format!("%{kind} format: {what} is required, not {}", value.type_name()));
    let (negative, digits) = match kind {
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' => {
            let hex = !matches!(kind, 'd' | 'i' | 'u');
            let number = match value {
                Value::Float(_) if !hex => int_of(value)?,
                _ => value.as_int().ok_or_else(|| needs(if hex { "an integer" } else { "a real number" }))?,
            };
            let radix = match kind {
                'x' | 'X' => 16,
                'o' => 8,
                _ => 10,
            };
            let mut digits = radix_text(number.unsigned_abs(), radix);
            let least = field.precision.unwrap_or(0);
            digits = "0".repeat(least.saturating_sub(digits.len())) + &digits;
            (number < 0, digits)
        }
        _ => {
            let number = match value {
                Value::Str(_) | Value::Markup(_) => {
                    return Err(Error::new(Kind::Type, format!("must be real number, not {}", value.type_name())))
                }
                other => float_of(other)?,
            };
            let text =
                float_text(number.abs(), kind.to_ascii_lowercase(), field.precision.unwrap_or(6), field.alternate);
            (number.is_sign_negative() && !number.is_nan(), text)
        }
    };
    let digits = if kind.is_ascii_uppercase() { digits.to_uppercase() } else { digits };
    let sign = if negative {
        "-"
    } else if field.plus {
        "+"
    } else if field.space {
        " "
    } else {
        ""
    };
    let prefix = match kind {
        'x' if field.alternate => "0x",
        'X' if field.alternate => "0X",
        'o' if field.alternate => "0o",
        _ => "",
    };
    pad(field, &format!("{sign}{prefix}"), &digits, field.zero, out);
    Ok(())
}

fn pad(field: &Field, sign: &str, text: &str, zeros: bool, out: &mut String) {
    let missing = field.width.saturating_sub(sign.len() + count_chars(text));
    let blanks = |count: usize, out: &mut String| out.extend(std::iter::repeat_n(' ', count));
    if !field.left && !zeros {
        blanks(missing, out);
    }
    out.push_str(sign);
    if !field.left && zeros {
        out.extend(std::iter::repeat_n('0', missing));
    }
    out.push_str(text);
    if field.left {
        blanks(missing, out);
    }
}
