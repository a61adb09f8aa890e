//! jinja2's tests: `value is name`.

use std::rc::Rc;

use crate::error::{fail, Kind, Result};
use crate::filters;
use crate::operators::{binary, compare, contains, equal};
use crate::run::Run;
use crate::syntax::{Binary, Compare};
use crate::value::{Args, Value};

const NAMES: [&str; 39] = [
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "boolean",
    "callable",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

pub fn exists(name: &str) -> bool {
    NAMES.contains(&name)
}

pub fn known(name: &str) -> Result<()> {
    if exists(name) {
        return Ok(());
    }
    fail(Kind::Syntax, format!("No test named '{name}'."))
}

impl Run<'_> {
    pub(crate) fn test(&mut self, name: &str, value: &Value, args: Args) -> Result<bool> {
        known(name)?;
        self.step()?;
        self.check()?;
        let comparison = match name {
            "==" | "eq" | "equalto" => Some(Compare::Eq),
            "!=" | "ne" => Some(Compare::Ne),
            ">" | "gt" | "greaterthan" => Some(Compare::Gt),
            ">=" | "ge" => Some(Compare::Ge),
            "<" | "lt" | "lessthan" => Some(Compare::Lt),
            "<=" | "le" => Some(Compare::Le),
            "in" => Some(Compare::In),
            _ => None,
        };
        if let Some(comparison) = comparison {
            let [other] = args.bind(name, [if name == "in" { "seq" } else { "" }], 1)?;
            let other = other.unwrap_or(Value::None);
            return if name == "in" { contains(&other, value) } else { compare(comparison, value, &other) };
        }
        if name == "divisibleby" || name == "sameas" {
            let [other] = args.bind(name, [if name == "sameas" { "other" } else { "num" }], 1)?;
            let other = other.unwrap_or(Value::None);
            return if name == "sameas" { same(value, &other) } else { remainder_is(value, &other, 0) };
        }
        args.none(name)?;
        Ok(match name {
            "boolean" => matches!(value, Value::Bool(_)),
            "callable" => value.is_callable(),
            "defined" => !value.is_undefined(),
            "undefined" => value.is_undefined(),
            "escaped" => matches!(value, Value::Markup(_)),
            "even" => remainder_is(value, &Value::Int(2), 0)?,
            "odd" => remainder_is(value, &Value::Int(2), 1)?,
            "true" => matches!(value, Value::Bool(true)),
            "false" => matches!(value, Value::Bool(false)),
            "filter" => value.as_str().is_some_and(|name| filters::exists(name)),
            "test" => value.as_str().is_some_and(|name| exists(name)),
            "float" => matches!(value, Value::Float(_)),
            "integer" => matches!(value, Value::Int(_)),
            "number" => value.as_float().is_some(),
            "iterable" => value.is_iterable(),
            "sequence" => value.is_sequence(),
            "mapping" => matches!(value, Value::Dict(_)),
            "none" => value.is_none(),
            "string" => value.as_str().is_some(),
            "lower" => crate::methods_of_texts::call(&value.text()?.into(), "islower", Args::default())?.is_true(),
            _ => crate::methods_of_texts::call(&value.text()?.into(), "isupper", Args::default())?.is_true(),
        })
    }
}

fn remainder_is(value: &Value, divisor: &Value, wanted: i128) -> Result<bool> {
    equal(&binary(Binary::Mod, value, divisor)?, &Value::Int(wanted))
}

/// Python's `is`; equal texts and numbers of one type count as the same.
fn same(left: &Value, right: &Value) -> Result<bool> {
    Ok(match (left, right) {
        (Value::List(left), Value::List(right)) => Rc::ptr_eq(left, right),
        (Value::Dict(left), Value::Dict(right)) => Rc::ptr_eq(left, right),
        (Value::Tuple(left), Value::Tuple(right)) => Rc::ptr_eq(left, right) || left.is_empty() && right.is_empty(),
        (Value::Undefined(_), Value::Undefined(_)) => false,
        _ => left.type_name() == right.type_name() && equal(left, right)?,
    })
}
