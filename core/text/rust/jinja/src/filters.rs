//! jinja2's filters: which there are, and those of single values.

use crate::error::{fail, unsupported, Kind, Result};
use crate::eval;
use crate::json::{dumps, Style};
use crate::numbers;
use crate::operators::sign;
use crate::run::Run;
use crate::text::escape;
use crate::value::{Args, Value};

const NAMES: [&str; 50] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "wordcount",
    "wordwrap",
    "xmlattr",
];

/// What jinja2 has and this crate has not.
const REFUSED: [&str; 4] = ["pprint", "random", "striptags", "urlize"];

pub fn exists(name: &str) -> bool {
    NAMES.contains(&name) || REFUSED.contains(&name)
}

pub fn known(name: &str) -> Result<()> {
    if REFUSED.contains(&name) {
        return unsupported(format!("the filter '{name}'"));
    }
    if NAMES.contains(&name) {
        return Ok(());
    }
    fail(Kind::Syntax, format!("No filter named '{name}'."))
}

/// An argument that may be left out, as a number.
pub fn number(value: Option<Value>, absent: i128) -> Result<i128> {
    match value {
        None => Ok(absent),
        Some(Value::Undefined(what)) => fail(Kind::Undefined, &*what),
        Some(value) => match value.as_int() {
            Some(number) => Ok(number),
            None => fail(Kind::Type, format!("'{}' object cannot be interpreted as an integer", value.type_name())),
        },
    }
}

pub fn flag(value: Option<Value>) -> bool {
    value.is_some_and(|value| value.is_true())
}

impl Run<'_> {
    pub(crate) fn filter(&mut self, name: &str, value: Value, args: Args) -> Result<Value> {
        known(name)?;
        self.step()?;
        self.check()?;
        match name {
            "default" | "d" => {
                let [otherwise, boolean] = args.bind(name, ["default_value", "boolean"], 0)?;
                let absent = value.is_undefined() || (flag(boolean) && !value.is_true());
                Ok(if absent { otherwise.unwrap_or_else(|| Value::str("")) } else { value })
            }
            "abs" => {
                args.none(name)?;
                match &value {
                    Value::Float(number) => Ok(Value::Float(number.abs())),
                    Value::Undefined(what) => fail(Kind::Undefined, &**what),
                    _ => match value.as_int() {
                        Some(number) if number < 0 => sign('-', &value),
                        Some(number) => Ok(Value::Int(number)),
                        None => fail(Kind::Type, format!("bad operand type for abs(): '{}'", value.type_name())),
                    },
                }
            }
            "attr" => {
                let [name] = args.bind(name, ["name"], 1)?;
                let name = name.unwrap_or(Value::None).text()?;
                // Attributes only: no items.
                match value {
                    Value::Dict(_) if !crate::methods::has(&value, &name) => Ok(Value::missing(&name)),
                    value => eval::attribute(&value, &name),
                }
            }
            "int" => {
                let [otherwise, base] = args.bind(name, ["default", "base"], 0)?;
                int(&value, otherwise.unwrap_or(Value::Int(0)), number(base, 10)?)
            }
            "float" => {
                let [otherwise] = args.bind(name, ["default"], 0)?;
                match numbers::float_of(&value) {
                    Ok(number) => Ok(Value::Float(number)),
                    Err(error) if error.is_conversion() => Ok(otherwise.unwrap_or(Value::Float(0.0))),
                    Err(error) => Err(error),
                }
            }
            "round" => round(&value, args),
            "string" => {
                args.none(name)?;
                Ok(if matches!(value, Value::Markup(_)) { value } else { Value::str(value.text()?) })
            }
            "escape" | "e" => {
                args.none(name)?;
                Ok(if matches!(value, Value::Markup(_)) {
                    value
                } else {
                    Value::Markup(escape(&value.text()?).into())
                })
            }
            "forceescape" => args.none(name).and_then(|()| Ok(Value::Markup(escape(&value.text()?).into()))),
            "safe" => args.none(name).and_then(|()| Ok(Value::Markup(value.text()?.into()))),
            "tojson" => to_json(&value, args).map(Value::str),
            "filesizeformat" => {
                let [binary] = args.bind(name, ["binary"], 0)?;
                file_size(&value, flag(binary)).map(Value::str)
            }
            "length" | "count" => {
                args.none(name)?;
                match value.len() {
                    Some(length) => Ok(Value::Int(length as i128)),
                    None => fail(Kind::Type, format!("object of type '{}' has no len()", value.type_name())),
                }
            }
            "capitalize" | "center" | "format" | "indent" | "lower" | "replace" | "title" | "trim" | "truncate"
            | "upper" | "urlencode" | "wordcount" | "wordwrap" | "xmlattr" => self.filter_text(name, &value, args),
            _ => self.filter_list(name, value, args),
        }
    }
}

fn int(value: &Value, otherwise: Value, base: i128) -> Result<Value> {
    let first = match value {
        Value::Str(text) | Value::Markup(text) => numbers::parse_int(text, u32::try_from(base).unwrap_or(10)),
        other => numbers::int_of(other),
    };
    let second = match first {
        Err(error) if error.is_conversion() => {
            numbers::float_of(value).and_then(|number| numbers::int_of(&Value::Float(number)))
        }
        other => other,
    };
    match second {
        Ok(number) => Ok(Value::Int(number)),
        Err(error) if error.is_conversion() => Ok(otherwise),
        Err(error) => Err(error),
    }
}

fn round(value: &Value, args: Args) -> Result<Value> {
    let [precision, method] = args.bind("round", ["precision", "method"], 0)?;
    let precision = number(precision, 0)?;
    let method = method.map_or_else(|| Ok("common".to_string()), |method| method.text())?;
    let power = || {
        if precision >= 0 {
            10_f64.powi(precision.min(400) as i32)
        } else {
            1.0 / 10_f64.powi((-precision).min(400) as i32)
        }
    };
    match (method.as_str(), value) {
        ("common", Value::Float(number)) => Ok(Value::Float(numbers::round(*number, precision))),
        ("common", _) => match value.as_int() {
            Some(number) if precision >= 0 => Ok(Value::Int(number)),
            Some(number) => {
                let Some(unit) = u32::try_from(-precision).ok().and_then(|power| 10_i128.checked_pow(power)) else {
                    return Ok(Value::Int(0));
                };
                // A tie goes to the even multiple.
                let (down, rest) = (number.div_euclid(unit), number.rem_euclid(unit));
                let up = rest * 2 > unit || (rest * 2 == unit && down % 2 != 0);
                Ok(Value::Int((down + i128::from(up)) * unit))
            }
            None if value.is_undefined() => fail(Kind::Undefined, value_name(value)),
            None => fail(Kind::Type, format!("type {} doesn't define __round__ method", value.type_name())),
        },
        ("ceil" | "floor", _) => {
            let Some(number) = value.as_float() else {
                return fail(Kind::Type, format!("must be real number, not {}", value.type_name()));
            };
            let scaled = number * power();
            if !scaled.is_finite() {
                return fail(Kind::Overflow, "cannot convert float infinity or NaN to integer");
            }
            let whole = if method == "ceil" { scaled.ceil() } else { scaled.floor() };
            Ok(Value::Float((if whole == 0.0 { 0.0 } else { whole }) / power()))
        }
        _ => fail(Kind::Value, "method must be common, ceil or floor"),
    }
}

fn value_name(value: &Value) -> String {
    match value {
        Value::Undefined(what) => what.to_string(),
        other => other.type_name().to_string(),
    }
}

fn to_json(value: &Value, args: Args) -> Result<String> {
    let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let [ascii, indent, separators, sort_keys] = args.bind("tojson", names, 0)?;
    let indent = match indent {
        None | Some(Value::None) => None,
        Some(Value::Str(text) | Value::Markup(text)) => Some(text.to_string()),
        // More than any template indents, and no way to ask for gigabytes.
        Some(width) => Some(" ".repeat(number(Some(width), 0)?.clamp(0, 64) as usize)),
    };
    let separators = match separators {
        None | Some(Value::None) => None,
        Some(list) => match &list.items()?[..] {
            [Value::Str(items), Value::Str(keys)] => Some((items.to_string(), keys.to_string())),
            _ => return fail(Kind::Value, "separators are two texts"),
        },
    };
    dumps(value, &Style { ensure_ascii: flag(ascii), indent, separators, sort_keys: flag(sort_keys) })
}

fn file_size(value: &Value, binary: bool) -> Result<String> {
    let bytes = numbers::float_of(value)?;
    let base: f64 = if binary { 1024.0 } else { 1000.0 };
    if bytes == 1.0 {
        return Ok("1 Byte".to_string());
    }
    if bytes < base {
        return Ok(format!("{} Bytes", numbers::int_of(&Value::Float(bytes))?));
    }
    let prefixes = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
    let mut unit = base;
    for (at, prefix) in prefixes.iter().enumerate() {
        unit *= base;
        if bytes < unit || at + 1 == prefixes.len() {
            let number = base * bytes / unit;
            let name = if binary { format!("{}iB", prefix.to_uppercase()) } else { format!("{prefix}B") };
            return Ok(format!("{number:.1} {name}"));
        }
    }
    Ok(String::new())
}
