//! Methods of values other than texts.

use std::rc::Rc;

use crate::error::{fail, unsupported, Kind, Result};
use crate::methods_of_texts;
use crate::operators::equal;
use crate::value::{Args, Dict, Value, View};

/// Methods that change their list or dict, which the sandbox does not allow.
pub fn changes(value: &Value, name: &str) -> bool {
    match value {
        Value::List(_) => {
            matches!(name, "append" | "clear" | "extend" | "insert" | "pop" | "remove" | "reverse" | "sort")
        }
        Value::Dict(_) => matches!(name, "clear" | "pop" | "popitem" | "setdefault" | "update"),
        _ => false,
    }
}

pub fn has(value: &Value, name: &str) -> bool {
    match value {
        Value::Str(_) | Value::Markup(_) => methods_of_texts::NAMES.contains(&name),
        Value::List(_) => matches!(name, "count" | "index" | "copy"),
        Value::Tuple(_) | Value::Range(..) => matches!(name, "count" | "index"),
        Value::Dict(_) => matches!(name, "items" | "keys" | "values" | "get" | "copy" | "fromkeys"),
        Value::View(_, view) => name == "isdisjoint" && *view != View::Values || name == "mapping",
        Value::Loop(_) => matches!(name, "cycle" | "changed"),
        Value::Cycler(_) => matches!(name, "next" | "reset"),
        Value::Int(_) | Value::Bool(_) => {
            matches!(name, "bit_length" | "bit_count" | "conjugate" | "as_integer_ratio" | "to_bytes" | "from_bytes")
        }
        Value::Float(_) => matches!(name, "is_integer" | "conjugate" | "as_integer_ratio" | "hex" | "fromhex"),
        _ => false,
    }
}

pub fn call(value: &Value, name: &str, args: Args) -> Result<Value> {
    match value {
        Value::Str(text) | Value::Markup(text) => methods_of_texts::call(text, name, args),
        Value::List(items) => of_items(value, items, name, args),
        Value::Tuple(items) => of_items(value, items, name, args),
        Value::Range(..) => of_items(value, &value.items()?, name, args),
        Value::Dict(dict) => of_dict(dict, name, args),
        Value::Loop(state) => match name {
            "cycle" => state.cycle(&args.list),
            _ => Ok(Value::Bool(state.changed(args.list)?)),
        },
        Value::Cycler(cycler) => {
            let at = cycler.at.get();
            args.none(name)?;
            if name == "reset" {
                cycler.at.set(0);
                return Ok(Value::None);
            }
            cycler.at.set((at + 1) % cycler.items.len());
            Ok(cycler.items[at].clone())
        }
        Value::Float(number) if name == "is_integer" => {
            args.none(name)?;
            Ok(Value::Bool(number.is_finite() && number.fract() == 0.0))
        }
        Value::Float(_) if name == "conjugate" => args.none(name).map(|()| value.clone()),
        _ => match (value.as_int(), name) {
            (Some(number), "bit_length") => Ok(Value::Int(i128::from(128 - number.unsigned_abs().leading_zeros()))),
            (Some(number), "bit_count") => Ok(Value::Int(i128::from(number.unsigned_abs().count_ones()))),
            (Some(number), "conjugate") => Ok(Value::Int(number)),
            (Some(number), "as_integer_ratio") => Ok(Value::tuple(vec![Value::Int(number), Value::Int(1)])),
            _ => unsupported(format!("the method '{name}' of '{}'", value.type_name())),
        },
    }
}

fn of_items(value: &Value, items: &[Value], name: &str, args: Args) -> Result<Value> {
    match name {
        "copy" => args.none(name).map(|()| value.clone()),
        "count" => {
            let [wanted] = args.bind(name, [""], 1)?;
            let wanted = wanted.unwrap_or(Value::None);
            let mut count = 0;
            for item in items {
                count += i128::from(equal(item, &wanted)?);
            }
            Ok(Value::Int(count))
        }
        _ => {
            let [wanted, start, stop] = args.bind(name, ["", "", ""], 1)?;
            let wanted = wanted.unwrap_or(Value::None);
            let (start, stop) =
                (bound(start.as_ref(), items.len(), 0)?, bound(stop.as_ref(), items.len(), items.len())?);
            for at in start..stop.max(start) {
                if equal(&items[at], &wanted)? {
                    return Ok(Value::Int(at as i128));
                }
            }
            fail(Kind::Value, format!("{} is not in {}", wanted.repr()?, value.type_name()))
        }
    }
}

/// The place that a bound of a search means.
pub fn bound(value: Option<&Value>, length: usize, absent: usize) -> Result<usize> {
    match value {
        None | Some(Value::None) => Ok(absent),
        Some(value) => match value.as_int() {
            Some(at) if at < 0 => Ok(usize::try_from(at.saturating_add(length as i128)).unwrap_or(0)),
            Some(at) => Ok(usize::try_from(at).unwrap_or(usize::MAX).min(length)),
            None => fail(Kind::Type, "slice indices must be integers or None or have an __index__ method"),
        },
    }
}

fn of_dict(dict: &Rc<Dict>, name: &str, args: Args) -> Result<Value> {
    let view = match name {
        "items" => View::Items,
        "keys" => View::Keys,
        "values" => View::Values,
        "copy" => return args.none(name).map(|()| Value::Dict(Rc::clone(dict))),
        "get" => {
            let [key, otherwise] = args.bind(name, ["", ""], 1)?;
            let found = dict.get(&key.unwrap_or(Value::None))?.cloned();
            return Ok(found.or(otherwise).unwrap_or(Value::None));
        }
        _ => {
            let [keys, value] = args.bind(name, ["", ""], 1)?;
            let value = value.unwrap_or(Value::None);
            let mut out = Dict::default();
            for key in keys.unwrap_or(Value::None).items()? {
                out.set(key, value.clone())?;
            }
            return Ok(Value::dict(out));
        }
    };
    args.none(name)?;
    Ok(Value::View(Rc::clone(dict), view))
}
