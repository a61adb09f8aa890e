//! Global functions.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::error::{fail, Kind, Result};
use crate::run::Environment;
use crate::value::{range_length, Args, Cycler, Dict, Function, Joiner, Value};

/// jinja2's sandbox has the same limit.
const LONGEST_RANGE: usize = 100_000;

pub fn global(name: &str) -> Option<Function> {
    Some(match name {
        "range" => Function::Range,
        "dict" => Function::Dict,
        "namespace" => Function::Namespace,
        "cycler" => Function::Cycler,
        "joiner" => Function::Joiner,
        "raise_exception" => Function::RaiseException,
        "strftime_now" => Function::StrftimeNow,
        _ => return None,
    })
}

pub fn call(environment: &Environment, function: Function, args: Args) -> Result<Value> {
    match function {
        Function::Range => range(args),
        Function::Dict => Ok(Value::dict(dict(args, "dict")?)),
        Function::Namespace => {
            let made = Rc::new(RefCell::new(dict(args, "namespace")?));
            crate::cycles::keep_namespace(&made);
            Ok(Value::Namespace(made))
        }
        Function::Cycler => {
            if !args.named.is_empty() {
                return fail(Kind::Type, "cycler() takes no keyword arguments");
            }
            if args.list.is_empty() {
                return fail(Kind::Type, "at least one item has to be provided");
            }
            Ok(Value::Cycler(Rc::new(Cycler { items: args.list, at: Cell::new(0) })))
        }
        Function::Joiner => {
            let [separator] = args.bind("joiner", ["sep"], 0)?;
            let separator = separator.map_or_else(|| Ok(", ".to_string()), |separator| separator.text())?.into();
            Ok(Value::Joiner(Rc::new(Joiner { separator, used: Cell::new(false) })))
        }
        Function::RaiseException => {
            let [message] = args.bind("raise_exception", ["message"], 1)?;
            fail(Kind::Raised, message.map_or_else(|| Ok(String::new()), |message| message.text())?)
        }
        Function::StrftimeNow => {
            let [format] = args.bind("strftime_now", ["format"], 1)?;
            let Some(format) = format.as_ref().and_then(Value::as_str) else {
                return fail(Kind::Type, "strftime_now() takes a format");
            };
            (environment.time)(format).map_or_else(|error| fail(Kind::Value, error), |text| Ok(Value::str(text)))
        }
    }
}

fn range(args: Args) -> Result<Value> {
    if args.list.is_empty() {
        return fail(Kind::Type, "range expected at least 1 argument, got 0");
    }
    let parts = args.bind("range", ["", "", ""], 1)?;
    let mut numbers = Vec::new();
    for part in parts.iter().flatten() {
        let Some(number) = part.as_int() else {
            if let Value::Undefined(what) = part {
                return fail(Kind::Undefined, &**what);
            }
            return fail(Kind::Type, format!("'{}' object cannot be interpreted as an integer", part.type_name()));
        };
        numbers.push(number);
    }
    let (start, stop, step) = match numbers[..] {
        [stop] => (0, stop, 1),
        [start, stop] => (start, stop, 1),
        [start, stop, step] => (start, stop, step),
        _ => return fail(Kind::Type, "range expected at most 3 arguments"),
    };
    if step == 0 {
        return fail(Kind::Value, "range() arg 3 must not be zero");
    }
    if range_length(start, stop, step) > LONGEST_RANGE {
        return fail(
            Kind::Overflow,
            format!("Range too big. The sandbox blocks ranges larger than {LONGEST_RANGE}."),
        );
    }
    Ok(Value::Range(start, stop, step))
}

fn dict(args: Args, what: &str) -> Result<Dict> {
    let mut out = Dict::default();
    if args.list.len() > 1 {
        return fail(Kind::Type, format!("{what} expected at most 1 argument, got {}", args.list.len()));
    }
    match args.list.first() {
        Some(Value::Dict(dict)) => out = Dict::clone(dict),
        Some(pairs) => {
            for pair in pairs.items()? {
                let pair = pair.items()?;
                let [key, value] = &pair[..] else {
                    return fail(
                        Kind::Value,
                        format!("{what} update sequence element has length {}; 2 is required", pair.len()),
                    );
                };
                out.set(key.clone(), value.clone())?;
            }
        }
        None => {}
    }
    for (name, value) in args.named {
        out.set(Value::Str(name), value)?;
    }
    Ok(out)
}
