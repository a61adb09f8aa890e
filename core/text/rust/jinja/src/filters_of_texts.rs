//! Filters of texts.

use crate::characters as chars;
use crate::error::{fail, Kind, Result};
use crate::filters::{flag, number};
use crate::methods_of_texts::{justify, replace, strip_of};
use crate::percent;
use crate::run::Run;
use crate::text::escape;
use crate::value::{count_chars, Args, Dict, Value};
use crate::wrap;

impl Run<'_> {
    pub(crate) fn filter_text(&mut self, name: &str, value: &Value, args: Args) -> Result<Value> {
        match name {
            "urlencode" => return args.none(name).and_then(|()| url_encode(value)).map(Value::str),
            "xmlattr" => return xml_attributes(value, args),
            "truncate" if value.as_str().is_none() => return truncate_other(value, args),
            "indent" | "wordwrap" if value.as_str().is_none() => {
                return fail(Kind::Type, format!("{name} takes a text, not '{}'", value.type_name()));
            }
            _ => {}
        }
        let text = value.text()?;
        Ok(Value::str(match name {
            "upper" => args.none(name).map(|()| text.to_uppercase())?,
            "lower" => args.none(name).map(|()| text.to_lowercase())?,
            "capitalize" => args.none(name).map(|()| chars::capitalize(&text))?,
            "title" => args.none(name).map(|()| title(&text))?,
            "trim" => {
                let [set] = args.bind(name, ["chars"], 0)?;
                strip_of(&text, "strip", set.as_ref())?.to_string()
            }
            "center" => {
                let [width] = args.bind(name, ["width"], 0)?;
                justify(&text, name, number(width, 80)?, None)?
            }
            "replace" => {
                let [old, new, count] = args.bind(name, ["old", "new", "count"], 2)?;
                let (old, new) = (old.unwrap_or(Value::None).text()?, new.unwrap_or(Value::None).text()?);
                let count = count.filter(|count| !count.is_none());
                replace(&text, &old, &new, number(count, -1)?)
            }
            "format" => {
                let given = if args.named.is_empty() {
                    Value::tuple(args.list)
                } else if args.list.is_empty() {
                    let mut dict = Dict::default();
                    for (name, value) in args.named {
                        dict.set(Value::Str(name), value)?;
                    }
                    Value::dict(dict)
                } else {
                    return fail(Kind::Type, "can't handle positional and keyword arguments at the same time");
                };
                percent::format(&text, &given)?
            }
            "indent" => indent(&text, args)?,
            "truncate" => truncate(&text, args)?,
            "wordwrap" => wrap::filter(&text, args)?,
            _ => {
                args.none(name)?;
                let mut within = false;
                let mut count = 0;
                for character in text.chars() {
                    let word = chars::is_word(character);
                    count += i128::from(word && !within);
                    within = word;
                }
                return Ok(Value::Int(count));
            }
        }))
    }
}

/// Words after blanks, hyphens and opening brackets begin with a capital.
fn title(text: &str) -> String {
    let separates = |character: char| chars::is_space(character) || matches!(character, '-' | '(' | '{' | '[' | '<');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|character| separates(character) != separates(first)).unwrap_or(rest.len());
        let (head, tail) = rest[..end].split_at(first.len_utf8());
        out += &head.to_uppercase();
        out += &tail.to_lowercase();
        rest = &rest[end..];
    }
    out
}

fn indent(text: &str, args: Args) -> Result<String> {
    let [width, first, blank] = args.bind("indent", ["width", "first", "blank"], 0)?;
    let indention = match width {
        Some(Value::Str(text) | Value::Markup(text)) => text.to_string(),
        width => " ".repeat(number(width, 4)?.clamp(0, 1 << 20) as usize),
    };
    let text = format!("{text}\n");
    let lines = chars::lines(&text, false);
    let mut out = String::new();
    if flag(first) {
        out.push_str(&indention);
    }
    let blank = flag(blank);
    for (at, line) in lines.iter().enumerate() {
        if at > 0 {
            out.push('\n');
            if blank || !line.is_empty() {
                out.push_str(&indention);
            }
        }
        out.push_str(line);
    }
    Ok(out)
}

fn truncate(text: &str, args: Args) -> Result<String> {
    let [length, kill, end, leeway] = args.bind("truncate", ["length", "killwords", "end", "leeway"], 0)?;
    let length = number(length, 255)?;
    let end = end.map_or_else(|| Ok("...".to_string()), |end| end.text())?;
    let leeway = number(leeway.filter(|leeway| !leeway.is_none()), 5)?;
    let end_length = count_chars(&end) as i128;
    if length < end_length || leeway < 0 {
        return fail(
            Kind::Value,
            format!("expected length >= {end_length}, got {length}, and leeway >= 0, got {leeway}"),
        );
    }
    if count_chars(text) as i128 <= length + leeway {
        return Ok(text.to_string());
    }
    let kept: String = text.chars().take((length - end_length) as usize).collect();
    if flag(kill) {
        return Ok(kept + &end);
    }
    let words = kept.rsplit_once(' ').map_or(kept.as_str(), |(words, _)| words);
    Ok(format!("{words}{end}"))
}

/// jinja2 leaves what is short enough as it is, and cannot shorten a list.
fn truncate_other(value: &Value, args: Args) -> Result<Value> {
    let [length, _, _, leeway] = args.bind("truncate", ["length", "killwords", "end", "leeway"], 0)?;
    let most = number(length, 255)? + number(leeway.filter(|leeway| !leeway.is_none()), 5)?;
    match value.len() {
        Some(length) if length as i128 <= most => Ok(value.clone()),
        _ => fail(Kind::Type, format!("truncate takes a text, not '{}'", value.type_name())),
    }
}

fn quote_url(text: &str, whole: bool) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'.' | b'-' | b'~' => out.push(char::from(byte)),
            b'/' if whole => out.push('/'),
            b' ' if !whole => out.push('+'),
            other => out += &format!("%{other:02X}"),
        }
    }
    out
}

fn url_encode(value: &Value) -> Result<String> {
    let pairs = match value {
        Value::Dict(dict) => dict.view(crate::value::View::Items),
        Value::Str(text) | Value::Markup(text) => return Ok(quote_url(text, true)),
        other if other.is_iterable() => other.items()?,
        other => return Ok(quote_url(&other.text()?, true)),
    };
    let mut out = Vec::new();
    for pair in pairs {
        match &pair.items()?[..] {
            [key, value] => {
                out.push(format!("{}={}", quote_url(&key.text()?, false), quote_url(&value.text()?, false)))
            }
            other => {
                return fail(Kind::Value, format!("expected pairs of names and values, not {} values", other.len()))
            }
        }
    }
    Ok(out.join("&"))
}

fn xml_attributes(value: &Value, args: Args) -> Result<Value> {
    let [space] = args.bind("xmlattr", ["autospace"], 0)?;
    let Value::Dict(dict) = value else {
        return fail(Kind::Type, format!("'{}' object has no attribute 'items'", value.type_name()));
    };
    let mut out = Vec::new();
    for (key, value) in dict.entries() {
        if value.is_none() || value.is_undefined() {
            continue;
        }
        let key = key.text()?;
        if key.contains(|character: char| chars::is_space(character) || matches!(character, '/' | '>' | '=')) {
            return fail(Kind::Value, format!("Invalid character in attribute name: '{key}'"));
        }
        out.push(format!("{}=\"{}\"", escape(&key), escape(&value.text()?)));
    }
    let space = if space.is_none_or(|space| space.is_true()) && !out.is_empty() { " " } else { "" };
    Ok(Value::str(format!("{space}{}", out.join(" "))))
}
