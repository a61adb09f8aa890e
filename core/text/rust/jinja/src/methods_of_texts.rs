//! Python's methods of str.

use std::sync::Arc;

use crate::characters as chars;
use crate::error::{fail, unsupported, Kind, Result};
use crate::format;
use crate::methods::bound;
use crate::value::{count_chars, Args, Value};

pub const NAMES: [&str; 47] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];

pub fn call(text: &Arc<str>, name: &str, args: Args) -> Result<Value> {
    match name {
        "encode" | "maketrans" | "translate" => unsupported(format!("the method '{name}' of 'str'")),
        "format" => format::format(text, &args).map(Value::str),
        "format_map" => {
            let [map] = args.bind(name, [""], 1)?;
            format::format_map(text, &map.unwrap_or(Value::None)).map(Value::str)
        }
        "join" => join(text, args),
        "split" | "rsplit" => split(text, name == "rsplit", name, args),
        "splitlines" => {
            let [keep] = args.bind(name, ["keepends"], 0)?;
            Ok(Value::texts(chars::lines(text, keep.is_some_and(|keep| keep.is_true()))))
        }
        "partition" | "rpartition" => partition(text, name, args),
        "strip" | "lstrip" | "rstrip" => strip(text, name, args),
        "startswith" | "endswith" => begins_or_ends(text, name, args),
        "find" | "rfind" | "index" | "rindex" | "count" => search(text, name, args),
        "replace" => {
            let [old, new, count] = args.bind(name, ["", "", "count"], 2)?;
            let (old, new) = (needed(old.as_ref(), name)?, needed(new.as_ref(), name)?);
            let count = number(count.as_ref(), -1)?;
            Ok(Value::str(replace(text, &old, &new, count)))
        }
        "removeprefix" | "removesuffix" => {
            let [part] = args.bind(name, [""], 1)?;
            let part = needed(part.as_ref(), name)?;
            let cut = if name == "removeprefix" { text.strip_prefix(&*part) } else { text.strip_suffix(&*part) };
            Ok(Value::str(cut.unwrap_or(text)))
        }
        "center" | "ljust" | "rjust" => {
            let [width, fill] = args.bind(name, ["", ""], 1)?;
            justify(text, name, number(width.as_ref(), 0)?, fill.as_ref()).map(Value::str)
        }
        "zfill" => {
            let [width] = args.bind(name, [""], 1)?;
            zero_fill(text, number(width.as_ref(), 0)?).map(Value::str)
        }
        "expandtabs" => {
            let [size] = args.bind(name, ["tabsize"], 0)?;
            Ok(Value::str(expand_tabs(text, number(size.as_ref(), 8)?)))
        }
        _ if name.starts_with("is") => {
            args.none(name)?;
            Ok(Value::Bool(is(text, name)))
        }
        _ => {
            args.none(name)?;
            Ok(Value::str(match name {
                "lower" => text.to_lowercase(),
                "upper" => text.to_uppercase(),
                "capitalize" => chars::capitalize(text),
                "title" => chars::title(text),
                "swapcase" => chars::swap_case(text),
                _ => chars::case_fold(text),
            }))
        }
    }
}

fn needed(value: Option<&Value>, name: &str) -> Result<Arc<str>> {
    match value {
        Some(Value::Str(text) | Value::Markup(text)) => Ok(Arc::clone(text)),
        other => {
            fail(Kind::Type, format!("{name}() argument must be str, not {}", other.map_or("None", Value::type_name)))
        }
    }
}

fn number(value: Option<&Value>, absent: i128) -> Result<i128> {
    match value {
        None => Ok(absent),
        Some(Value::Undefined(what)) => fail(Kind::Undefined, &**what),
        Some(value) => match value.as_int() {
            Some(number) => Ok(number),
            None => fail(Kind::Type, format!("'{}' object cannot be interpreted as an integer", value.type_name())),
        },
    }
}

fn join(text: &str, args: Args) -> Result<Value> {
    let [list] = args.bind("join", [""], 1)?;
    let mut out = String::new();
    for (at, item) in list.unwrap_or(Value::None).items()?.iter().enumerate() {
        if at > 0 {
            out.push_str(text);
        }
        let Some(item) = item.as_str() else {
            let what = format!("sequence item {at}: expected str instance, {} found", item.type_name());
            return fail(Kind::Type, what);
        };
        out.push_str(item);
    }
    Ok(Value::str(out))
}

/// Cut at runs of blanks, `most` times at most.
fn split_blanks(text: &str, from_right: bool, most: usize) -> Vec<&str> {
    let mut out = Vec::new();
    if from_right {
        let mut rest = chars::trim_end(text);
        while !rest.is_empty() && out.len() < most {
            let begin =
                rest.rfind(chars::is_space).map_or(0, |at| at + rest[at..].chars().next().map_or(1, char::len_utf8));
            out.push(&rest[begin..]);
            rest = chars::trim_end(&rest[..begin]);
        }
        if !rest.is_empty() {
            out.push(rest);
        }
        out.reverse();
    } else {
        let mut rest = chars::trim_start(text);
        while !rest.is_empty() && out.len() < most {
            let end = rest.find(chars::is_space).unwrap_or(rest.len());
            out.push(&rest[..end]);
            rest = chars::trim_start(&rest[end..]);
        }
        if !rest.is_empty() {
            out.push(rest);
        }
    }
    out
}

fn split(text: &str, from_right: bool, name: &str, args: Args) -> Result<Value> {
    let [separator, most] = args.bind(name, ["sep", "maxsplit"], 0)?;
    let most = number(most.as_ref(), -1)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    if separator.as_ref().is_none_or(Value::is_none) {
        return Ok(Value::texts(split_blanks(text, from_right, most)));
    }
    let separator = needed(separator.as_ref(), name)?;
    if separator.is_empty() {
        return fail(Kind::Value, "empty separator");
    }
    let count = most.saturating_add(1);
    Ok(if from_right {
        let mut parts: Vec<&str> = text.rsplitn(count, &*separator).collect();
        parts.reverse();
        Value::texts(parts)
    } else {
        Value::texts(text.splitn(count, &*separator))
    })
}

fn partition(text: &str, name: &str, args: Args) -> Result<Value> {
    let [separator] = args.bind(name, [""], 1)?;
    let separator = needed(separator.as_ref(), name)?;
    if separator.is_empty() {
        return fail(Kind::Value, "empty separator");
    }
    let from_right = name == "rpartition";
    let found = if from_right { text.rsplit_once(&*separator) } else { text.split_once(&*separator) };
    let parts = match found {
        Some((left, right)) => [left, &*separator, right],
        None if from_right => ["", "", text],
        None => [text, "", ""],
    };
    Ok(Value::tuple(parts.into_iter().map(Value::str).collect()))
}

fn strip(text: &Arc<str>, name: &str, args: Args) -> Result<Value> {
    let [set] = args.bind(name, [""], 0)?;
    Ok(Value::str(strip_of(text, name, set.as_ref())?))
}

pub fn strip_of<'a>(text: &'a str, name: &str, set: Option<&Value>) -> Result<&'a str> {
    let set: Option<Vec<char>> = match set {
        None | Some(Value::None) => None,
        Some(set) => Some(needed(Some(set), name)?.chars().collect()),
    };
    let strips =
        |character: char| set.as_ref().map_or_else(|| chars::is_space(character), |set| set.contains(&character));
    Ok(match name {
        "strip" => text.trim_matches(strips),
        "lstrip" => text.trim_start_matches(strips),
        _ => text.trim_end_matches(strips),
    })
}

/// The part of a text between two places, counted in characters; none if it begins beyond the end.
fn part<'a>(text: &'a str, start: Option<&Value>, stop: Option<&Value>) -> Result<Option<(&'a str, usize)>> {
    let length = count_chars(text);
    let stop = bound(stop, length, length)?;
    let begins_late = start.and_then(Value::as_int).is_some_and(|start| start > length as i128);
    let start = bound(start, length, 0)?;
    if begins_late || start > stop {
        return Ok(None);
    }
    let byte = |place: usize| {
        if text.is_ascii() {
            place
        } else {
            text.char_indices().nth(place).map_or(text.len(), |(at, _)| at)
        }
    };
    Ok(Some((&text[byte(start)..byte(stop)], start)))
}

fn begins_or_ends(text: &str, name: &str, args: Args) -> Result<Value> {
    let [wanted, start, stop] = args.bind(name, ["", "", ""], 1)?;
    let begins = name == "startswith";
    let Some((text, _)) = part(text, start.as_ref(), stop.as_ref())? else { return Ok(Value::Bool(false)) };
    let fits = |wanted: &Value| match wanted {
        Value::Str(wanted) | Value::Markup(wanted) => {
            Ok(if begins { text.starts_with(&**wanted) } else { text.ends_with(&**wanted) })
        }
        other => {
            fail(Kind::Type, format!("{name} first arg must be str or a tuple of str, not {}", other.type_name()))
        }
    };
    match wanted {
        Some(Value::Tuple(all)) => {
            for wanted in all.iter() {
                if fits(wanted)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        wanted => Ok(Value::Bool(fits(&wanted.unwrap_or(Value::None))?)),
    }
}

fn search(text: &str, name: &str, args: Args) -> Result<Value> {
    let [wanted, start, stop] = args.bind(name, ["", "", ""], 1)?;
    let wanted = needed(wanted.as_ref(), name)?;
    let found = part(text, start.as_ref(), stop.as_ref())?;
    if name == "count" {
        let count =
            found.map_or(
                0,
                |(text, _)| {
                    if wanted.is_empty() {
                        count_chars(text) + 1
                    } else {
                        text.matches(&*wanted).count()
                    }
                },
            );
        return Ok(Value::Int(count as i128));
    }
    let at = found.and_then(|(text, start)| {
        let byte = if name.starts_with('r') { text.rfind(&*wanted) } else { text.find(&*wanted) }?;
        Some(start + count_chars(&text[..byte]))
    });
    match at {
        Some(at) => Ok(Value::Int(at as i128)),
        None if name.ends_with("find") => Ok(Value::Int(-1)),
        None => fail(Kind::Value, "substring not found"),
    }
}

pub fn replace(text: &str, old: &str, new: &str, count: i128) -> String {
    match usize::try_from(count) {
        Ok(count) => text.replacen(old, new, count),
        Err(_) => text.replace(old, new),
    }
}

pub fn justify(text: &str, name: &str, width: i128, fill: Option<&Value>) -> Result<String> {
    let fill = match fill {
        None => " ".into(),
        Some(fill) => needed(Some(fill), name)?,
    };
    if count_chars(&fill) != 1 {
        return fail(Kind::Type, "The fill character must be exactly one character long");
    }
    let length = count_chars(text);
    let width = usize::try_from(width).unwrap_or(0);
    let missing = width.saturating_sub(length);
    if missing > 1 << 28 {
        return fail(Kind::Limit, "a text becomes too long");
    }
    let (left, right) = match name {
        "ljust" => (0, missing),
        "rjust" => (missing, 0),
        _ => {
            let left = missing / 2 + (missing & width & 1);
            (left, missing - left)
        }
    };
    Ok(format!("{}{text}{}", fill.repeat(left), fill.repeat(right)))
}

fn zero_fill(text: &str, width: i128) -> Result<String> {
    let (sign, digits) = text.split_at(usize::from(text.starts_with(['-', '+'])));
    let width = width - sign.len() as i128;
    Ok(format!("{sign}{}", justify(digits, "rjust", width, Some(&Value::str("0")))?))
}

fn expand_tabs(text: &str, size: i128) -> String {
    let size = usize::try_from(size.min(1 << 16)).unwrap_or(0);
    let mut out = String::new();
    let mut column = 0;
    for character in text.chars() {
        match character {
            '\t' if size > 0 => {
                let blanks = size - column % size;
                out.extend(std::iter::repeat_n(' ', blanks));
                column += blanks;
            }
            '\t' => {}
            '\n' | '\r' => {
                out.push(character);
                column = 0;
            }
            _ => {
                out.push(character);
                column += 1;
            }
        }
    }
    out
}

fn is(text: &str, name: &str) -> bool {
    let all = |test: fn(char) -> bool| !text.is_empty() && text.chars().all(test);
    match name {
        "isascii" => text.is_ascii(),
        "isprintable" => text.chars().all(|character| character == ' ' || !chars::is_unprintable(character)),
        "isalpha" => all(chars::is_letter),
        "isdecimal" => all(chars::is_decimal),
        "isdigit" => all(chars::is_digit),
        "isnumeric" => all(chars::is_numeric),
        "isalnum" => all(|character| chars::is_letter(character) || chars::is_numeric(character)),
        "isspace" => all(chars::is_space),
        "isidentifier" => {
            let first = |character: char| {
                chars::is_identifier_part(character) && (character == '_' || !chars::is_digit(character))
            };
            text.chars().next().is_some_and(first) && text.chars().all(chars::is_identifier_part)
        }
        "islower" => {
            let wrong = |character| chars::is_upper(character) || chars::is_title_letter(character);
            text.chars().any(chars::is_lower) && !text.chars().any(wrong)
        }
        "isupper" => {
            let wrong = |character| chars::is_lower(character) || chars::is_title_letter(character);
            text.chars().any(chars::is_upper) && !text.chars().any(wrong)
        }
        _ => is_title(text),
    }
}

fn is_title(text: &str) -> bool {
    let (mut within, mut found) = (false, false);
    for character in text.chars() {
        let begins = chars::is_upper(character) || chars::is_title_letter(character);
        if begins == within && (begins || chars::is_lower(character)) {
            return false;
        }
        if !begins && chars::is_lower(character) && !within {
            return false;
        }
        within = chars::is_cased(character);
        found |= within;
    }
    found
}
