//! Numbers from texts, and floats as texts.

use crate::characters::{decimal, trim};
use crate::error::{fail, Error, Kind, Result};
use crate::value::Value;

/// The text with ASCII digits; none if an underscore does not separate two digits.
fn plain(text: &str, digit: impl Fn(char) -> bool) -> Option<String> {
    let text: String = trim(text)
        .chars()
        .map(|character| decimal(character).and_then(|digit| char::from_digit(digit, 10)).unwrap_or(character))
        .collect();
    let characters: Vec<char> = text.chars().collect();
    let separates =
        |at: usize| at > 0 && digit(characters[at - 1]) && characters.get(at + 1).copied().is_some_and(&digit);
    let fits = characters.iter().enumerate().all(|(at, &character)| character != '_' || separates(at));
    fits.then(|| text.replace('_', ""))
}

/// int(text, base)
pub fn parse_int(text: &str, base: u32) -> Result<i128> {
    let wrong = || Error::new(Kind::Value, format!("invalid literal for int() with base {base}: '{text}'"));
    let trimmed = trim(text);
    let (negative, digits) = match trimmed.strip_prefix(['-', '+']) {
        Some(rest) => (trimmed.starts_with('-'), rest),
        None => (false, trimmed),
    };
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    let of_prefix = match lower.as_deref() {
        Some("0x") => 16,
        Some("0o") => 8,
        Some("0b") => 2,
        _ => 0,
    };
    let mut base = base;
    let mut digits = digits;
    if of_prefix > 0 && (base == 0 || base == of_prefix) {
        base = of_prefix;
        digits = &digits[2..];
        digits = digits.strip_prefix('_').unwrap_or(digits);
    } else if base == 0 {
        base = 10;
        if digits.len() > 1 && digits.starts_with('0') && digits.contains(|c: char| c.is_ascii_digit() && c != '0') {
            return Err(wrong());
        }
    }
    if digits != trim(digits) || digits.starts_with(['-', '+']) {
        return Err(wrong());
    }
    let digits = plain(digits, |character| character.is_digit(base)).ok_or_else(wrong)?;
    if digits.is_empty() || !digits.chars().all(|character| character.is_digit(base)) {
        return Err(wrong());
    }
    let text = if negative { format!("-{digits}") } else { digits };
    match i128::from_str_radix(&text, base) {
        Ok(value) => Ok(value),
        Err(_) => fail(Kind::Unsupported, "a whole number of more than 127 bits is not supported in chat templates"),
    }
}

/// float(text)
pub fn parse_float(text: &str) -> Result<f64> {
    let wrong = || Error::new(Kind::Value, format!("could not convert string to float: '{text}'"));
    plain(text, |character| character.is_ascii_digit()).ok_or_else(wrong)?.parse().map_err(|_| wrong())
}

/// int(value)
pub fn int_of(value: &Value) -> Result<i128> {
    match value {
        Value::Float(number) if number.is_nan() => fail(Kind::Value, "cannot convert float NaN to integer"),
        Value::Float(number) if number.is_infinite() => {
            fail(Kind::Overflow, "cannot convert float infinity to integer")
        }
        Value::Float(number) if number.abs() >= 1.7e38 => {
            fail(Kind::Unsupported, "a whole number of more than 127 bits is not supported in chat templates")
        }
        Value::Float(number) => Ok(number.trunc() as i128),
        Value::Str(text) | Value::Markup(text) => parse_int(text, 10),
        Value::Undefined(what) => fail(Kind::Undefined, &**what),
        other => other.as_int().ok_or_else(|| {
            Error::new(
                Kind::Type,
                format!(
                    "int() argument must be a string, a bytes-like object or a real number, not '{}'",
                    other.type_name()
                ),
            )
        }),
    }
}

/// float(value)
pub fn float_of(value: &Value) -> Result<f64> {
    match value {
        Value::Str(text) | Value::Markup(text) => parse_float(text),
        Value::Undefined(what) => fail(Kind::Undefined, &**what),
        other => other.as_float().ok_or_else(|| {
            Error::new(
                Kind::Type,
                format!("float() argument must be a string or a real number, not '{}'", other.type_name()),
            )
        }),
    }
}

/// round(number, digits): to the nearest, of the exact value.
pub fn round(number: f64, digits: i128) -> f64 {
    if !number.is_finite() || digits > 323 {
        return number;
    }
    if digits >= 0 {
        return format!("{number:.*}", digits as usize).parse().unwrap_or(number);
    }
    if digits < -308 {
        return 0.0_f64.copysign(number);
    }
    // A tie of a whole number: to the even one.
    let power = 10_f64.powi(-digits as i32);
    (number / power).round_ties_even() * power
}

/// Digits with `precision` places, an exponent of two digits at least.
fn exponent(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// How a float is written: 'e', 'f', 'g', or 'r' for a precision without a letter.
pub fn float_text(number: f64, kind: char, precision: usize, alternate: bool) -> String {
    if !number.is_finite() {
        return crate::text::float(number);
    }
    let dotted = |text: String| {
        if alternate && !text.contains('.') {
            match text.find('e') {
                Some(at) => format!("{}.{}", &text[..at], &text[at..]),
                None => text + ".",
            }
        } else {
            text
        }
    };
    match kind {
        'f' => dotted(format!("{number:.precision$}")),
        'e' => dotted(exponent(number, precision)),
        _ => {
            let precision = precision.max(1);
            let text = exponent(number, precision - 1);
            let power: i32 = text.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0);
            let limit = precision as i32 - i32::from(kind == 'r');
            let fixed = (-4..limit).contains(&power);
            let text =
                if fixed { format!("{number:.*}", (precision as i32 - 1 - power).max(0) as usize) } else { text };
            if alternate {
                return dotted(text);
            }
            let (digits, rest) = text.find('e').map_or((&text[..], ""), |at| text.split_at(at));
            let digits =
                if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
            let point = if kind == 'r' && fixed && !digits.contains('.') { ".0" } else { "" };
            format!("{digits}{point}{rest}")
        }
    }
}

/// A whole number's digits.
pub fn radix_text(number: u128, radix: u32) -> String {
    match radix {
        2 => format!("{number:b}"),
        8 => format!("{number:o}"),
        16 => format!("{number:x}"),
        _ => number.to_string(),
    }
}
