//! Operators on values, as in Python.

use std::cmp::Ordering;
use std::rc::Rc;

use crate::error::{fail, unsupported, Error, Kind, Result};
use crate::percent;
use crate::syntax::{Binary, Compare};
use crate::text::escape;
use crate::value::{range_length, Dict, Value, View, MOST_LEVELS};
use crate::work;

fn undefined<T>(what: &str) -> Result<T> {
    fail(Kind::Undefined, what)
}

fn too_large<T>() -> Result<T> {
    fail(Kind::Unsupported, "a whole number of more than 127 bits is not supported in chat templates")
}

fn int(value: Option<i128>) -> Result<Value> {
    value.map_or_else(too_large, |value| Ok(Value::Int(value)))
}

pub fn binary(operator: Binary, left: &Value, right: &Value) -> Result<Value> {
    if let (Binary::Mod, Some(text)) = (operator, left.as_str()) {
        let out = percent::format(text, right)?;
        return Ok(if matches!(left, Value::Markup(_)) { Value::Markup(out.into()) } else { Value::str(out) });
    }
    for value in [left, right] {
        if let Value::Undefined(what) = value {
            return undefined(what);
        }
    }
    if let (Some(left), Some(right)) = (left.as_int(), right.as_int()) {
        return of_ints(operator, left, right);
    }
    if let (Some(left), Some(right)) = (left.as_float(), right.as_float()) {
        return of_floats(operator, left, right);
    }
    let out = match operator {
        Binary::Add => joined(left, right),
        Binary::Mul => match (left.as_int(), right.as_int()) {
            (None, Some(count)) => repeated(left, count)?,
            (Some(count), None) => repeated(right, count)?,
            _ => None,
        },
        _ => None,
    };
    let Some(out) = out else {
        let (left, right) = (left.type_name(), right.type_name());
        return fail(
            Kind::Type,
            format!("unsupported operand type(s) for {}: '{left}' and '{right}'", symbol(operator)),
        );
    };
    Ok(out)
}

fn symbol(operator: Binary) -> &'static str {
    match operator {
        Binary::Add => "+",
        Binary::Sub => "-",
        Binary::Mul => "*",
        Binary::Div => "/",
        Binary::FloorDiv => "//",
        Binary::Mod => "%",
        Binary::Pow => "** or pow()",
    }
}

fn joined(left: &Value, right: &Value) -> Option<Value> {
    match (left, right) {
        (Value::Str(left), Value::Str(right)) => Some(Value::str([&**left, &**right].concat())),
        (Value::Markup(left), Value::Markup(right)) => Some(Value::Markup([&**left, &**right].concat().into())),
        (Value::Markup(left), Value::Str(right)) => Some(Value::Markup([&**left, &escape(right)].concat().into())),
        (Value::Str(left), Value::Markup(right)) => Some(Value::Markup([&escape(left), &**right].concat().into())),
        (Value::List(left), Value::List(right)) => Some(Value::list([&left[..], &right[..]].concat())),
        (Value::Tuple(left), Value::Tuple(right)) => Some(Value::tuple([&left[..], &right[..]].concat())),
        _ => None,
    }
}

fn repeated(value: &Value, count: i128) -> Result<Option<Value>> {
    let size = match value {
        Value::Str(text) | Value::Markup(text) => text.len(),
        Value::List(items) => items.len() * size_of::<Value>(),
        Value::Tuple(items) => items.len() * size_of::<Value>(),
        _ => return Ok(None),
    };
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    if size > 0 && count > (isize::MAX as usize) / size {
        return fail(Kind::Limit, "a text or a list becomes too long");
    }
    let count = if size == 0 { 1 } else { count };
    Ok(Some(match value {
        Value::Str(text) => Value::str(text.repeat(count)),
        Value::Markup(text) => Value::Markup(text.repeat(count).into()),
        Value::List(items) => Value::list(times(items, count)),
        Value::Tuple(items) => Value::tuple(times(items, count)),
        _ => return Ok(None),
    }))
}

fn times(items: &[Value], count: usize) -> Vec<Value> {
    std::iter::repeat_n(items, count).flatten().cloned().collect()
}

fn floor_div(left: i128, right: i128) -> Option<i128> {
    let quotient = left.checked_div(right)?;
    Some(if left % right != 0 && (left < 0) != (right < 0) { quotient - 1 } else { quotient })
}

fn of_ints(operator: Binary, left: i128, right: i128) -> Result<Value> {
    let zero = |what: &str| fail(Kind::ZeroDivision, what);
    match operator {
        Binary::Add => int(left.checked_add(right)),
        Binary::Sub => int(left.checked_sub(right)),
        Binary::Mul => int(left.checked_mul(right)),
        Binary::Div if right == 0 => zero("division by zero"),
        Binary::FloorDiv | Binary::Mod if right == 0 => zero("integer division or modulo by zero"),
        Binary::Div => {
            const EXACT: u128 = 1 << 53;
            if left.unsigned_abs() > EXACT || right.unsigned_abs() > EXACT {
                // The quotient of the nearest floats may not be the nearest float.
                if left % right == 0 {
                    return Ok(Value::Float((left / right) as f64));
                }
                return unsupported("the quotient of whole numbers above 2**53");
            }
            Ok(Value::Float(left as f64 / right as f64))
        }
        Binary::FloorDiv => int(floor_div(left, right)),
        Binary::Mod => {
            int(floor_div(left, right).and_then(|quotient| left.checked_sub(quotient.checked_mul(right)?)))
        }
        Binary::Pow if right < 0 => of_floats(operator, left as f64, right as f64),
        Binary::Pow => match left {
            0 | 1 if right > 0 => Ok(Value::Int(left)),
            -1 => Ok(Value::Int(if right % 2 == 0 { 1 } else { -1 })),
            _ => int(u32::try_from(right).ok().and_then(|right| left.checked_pow(right))),
        },
    }
}

fn of_floats(operator: Binary, left: f64, right: f64) -> Result<Value> {
    let zero = |what: &str| fail(Kind::ZeroDivision, what);
    Ok(Value::Float(match operator {
        Binary::Add => left + right,
        Binary::Sub => left - right,
        Binary::Mul => left * right,
        Binary::Div if right == 0.0 => return zero("float division by zero"),
        Binary::FloorDiv if right == 0.0 => return zero("float floor division by zero"),
        Binary::Mod if right == 0.0 => return zero("float modulo"),
        Binary::Div => left / right,
        Binary::FloorDiv => {
            let quotient = (left - float_mod(left, right)) / right;
            let floor = quotient.floor();
            if quotient - floor > 0.5 {
                floor + 1.0
            } else {
                floor
            }
        }
        Binary::Mod => float_mod(left, right),
        Binary::Pow if left == 0.0 && right < 0.0 => return zero("0.0 cannot be raised to a negative power"),
        Binary::Pow if left < 0.0 && left.is_finite() && right.is_finite() && right.fract() != 0.0 => {
            return unsupported("a complex number (a root of a negative number)");
        }
        Binary::Pow => {
            let out = left.powf(right);
            if out.is_infinite() && left.is_finite() && right.is_finite() {
                return fail(Kind::Overflow, "Numerical result out of range");
            }
            out
        }
    }))
}

/// The remainder has the sign of the divisor.
fn float_mod(left: f64, right: f64) -> f64 {
    let rest = left % right;
    if rest == 0.0 {
        return 0.0_f64.copysign(right);
    }
    if (rest < 0.0) != (right < 0.0) {
        rest + right
    } else {
        rest
    }
}

pub fn sign(sign: char, value: &Value) -> Result<Value> {
    if let Value::Undefined(what) = value {
        return undefined(what);
    }
    match (value, value.as_int()) {
        (_, Some(number)) if sign == '-' => int(number.checked_neg()),
        (_, Some(number)) => Ok(Value::Int(number)),
        (Value::Float(number), _) => Ok(Value::Float(if sign == '-' { -number } else { *number })),
        _ => fail(Kind::Type, format!("bad operand type for unary {sign}: '{}'", value.type_name())),
    }
}

pub fn compare(operator: Compare, left: &Value, right: &Value) -> Result<bool> {
    let ordered = |symbol: &str, fits: fn(Ordering) -> bool| Ok(order(symbol, left, right, 0)?.is_some_and(fits));
    match operator {
        Compare::Eq => equal(left, right),
        Compare::Ne => Ok(!equal(left, right)?),
        Compare::Lt => ordered("<", Ordering::is_lt),
        Compare::Le => ordered("<=", Ordering::is_le),
        Compare::Gt => ordered(">", Ordering::is_gt),
        Compare::Ge => ordered(">=", Ordering::is_ge),
        Compare::In => contains(right, left),
        Compare::NotIn => Ok(!contains(right, left)?),
    }
}

pub fn equal(left: &Value, right: &Value) -> Result<bool> {
    equal_at(left, right, 0)
}

fn equal_at(left: &Value, right: &Value, level: usize) -> Result<bool> {
    if level > MOST_LEVELS {
        return fail(Kind::Limit, format!("values of more than {MOST_LEVELS} levels cannot be compared"));
    }
    let items = |left: &[Value], right: &[Value]| -> Result<bool> {
        if left.len() != right.len() {
            return Ok(false);
        }
        work::check()?;
        for (left, right) in left.iter().zip(right) {
            if !equal_at(left, right, level + 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    if let (Some(left_number), Some(right_number)) = (left.as_float(), right.as_float()) {
        let ints = left.as_int().zip(right.as_int());
        return Ok(number_order(left_number, right_number, ints) == Some(Ordering::Equal));
    }
    Ok(match (left, right) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::List(left), Value::List(right)) => Rc::ptr_eq(left, right) || items(left, right)?,
        (Value::Tuple(left), Value::Tuple(right)) => items(left, right)?,
        (Value::Dict(left), Value::Dict(right)) => Rc::ptr_eq(left, right) || equal_dicts(left, right, level)?,
        (Value::View(left, a), Value::View(right, b)) if a == b && *a != View::Values => {
            let all = left.view(*a);
            all.len() == right.len()
                && all.iter().all(|one| right.view(*b).iter().any(|other| equal(one, other).unwrap_or(false)))
        }
        (Value::Range(a, b, c), Value::Range(d, e, f)) => {
            let (left_size, right_size) = (range_length(*a, *b, *c), range_length(*d, *e, *f));
            left_size == right_size && (left_size == 0 || (a == d && (left_size == 1 || c == f)))
        }
        (Value::Namespace(left), Value::Namespace(right)) => Rc::ptr_eq(left, right),
        (Value::Iter(left), Value::Iter(right)) => Rc::ptr_eq(left, right),
        (Value::Loop(left), Value::Loop(right)) => Rc::ptr_eq(left, right),
        (Value::Macro(left), Value::Macro(right)) => Rc::ptr_eq(left, right),
        (Value::Cycler(left), Value::Cycler(right)) => Rc::ptr_eq(left, right),
        (Value::Joiner(left), Value::Joiner(right)) => Rc::ptr_eq(left, right),
        (Value::Function(left), Value::Function(right)) => left == right,
        _ => match (left.as_str(), right.as_str()) {
            (Some(left), Some(right)) => left == right,
            _ => false,
        },
    })
}

fn equal_dicts(left: &Dict, right: &Dict, level: usize) -> Result<bool> {
    if left.len() != right.len() {
        return Ok(false);
    }
    work::check()?;
    for (key, value) in left.entries() {
        match right.get(key)? {
            Some(other) if equal_at(value, other, level + 1)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// `ints`: the numbers themselves, where both are whole.
fn number_order(left: f64, right: f64, ints: Option<(i128, i128)>) -> Option<Ordering> {
    ints.map_or_else(|| left.partial_cmp(&right), |(left, right)| Some(left.cmp(&right)))
}

/// None: neither (NaN).
pub fn order(symbol: &str, left: &Value, right: &Value, level: usize) -> Result<Option<Ordering>> {
    if level > MOST_LEVELS {
        return fail(Kind::Limit, format!("values of more than {MOST_LEVELS} levels cannot be compared"));
    }
    for value in [left, right] {
        if let Value::Undefined(what) = value {
            return undefined(what);
        }
    }
    if let (Some(left_number), Some(right_number)) = (left.as_float(), right.as_float()) {
        let ints = left.as_int().zip(right.as_int());
        return Ok(number_order(left_number, right_number, ints));
    }
    if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
        return Ok(Some(left.cmp(right)));
    }
    let (left_items, right_items) = match (left, right) {
        (Value::List(left), Value::List(right)) => (&left[..], &right[..]),
        (Value::Tuple(left), Value::Tuple(right)) => (&left[..], &right[..]),
        _ => {
            let (left, right) = (left.type_name(), right.type_name());
            return fail(Kind::Type, format!("'{symbol}' not supported between instances of '{left}' and '{right}'"));
        }
    };
    work::check()?;
    for (left, right) in left_items.iter().zip(right_items) {
        if !equal_at(left, right, level + 1)? {
            return order(symbol, left, right, level + 1);
        }
    }
    Ok(Some(left_items.len().cmp(&right_items.len())))
}

pub fn contains(list: &Value, value: &Value) -> Result<bool> {
    match list {
        Value::Str(text) | Value::Markup(text) => match value.as_str() {
            Some(part) => Ok(text.contains(&**part)),
            None => {
                fail(Kind::Type, format!("'in <string>' requires string as left operand, not {}", value.type_name()))
            }
        },
        Value::Dict(dict) | Value::View(dict, View::Keys) => Ok(dict.get(value)?.is_some()),
        Value::Range(start, stop, step) => match value.as_int() {
            Some(value) => {
                let inside =
                    if *step > 0 { value >= *start && value < *stop } else { value <= *start && value > *stop };
                Ok(inside && (value - start) % step == 0)
            }
            None => any_equal(&list.items()?, value),
        },
        Value::List(items) => any_equal(items, value),
        Value::Tuple(items) => any_equal(items, value),
        other if other.is_iterable() => any_equal(&other.items()?, value),
        other => fail(Kind::Type, format!("argument of type '{}' is not iterable", other.type_name())),
    }
}

fn any_equal(items: &[Value], value: &Value) -> Result<bool> {
    for (at, item) in items.iter().enumerate() {
        if at % 1024 == 0 {
            work::check()?;
        }
        if equal(item, value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// value[start:stop:step]
pub fn slice(value: &Value, parts: [Option<Value>; 3]) -> Result<Value> {
    if let Value::Undefined(what) = value {
        return undefined(what);
    }
    let mut bounds = [None; 3];
    for (bound, part) in bounds.iter_mut().zip(&parts) {
        *bound = match part {
            None | Some(Value::None) => None,
            Some(Value::Undefined(what)) => return undefined(what),
            Some(part) => Some(part.as_int().ok_or_else(|| {
                Error::new(Kind::Type, "slice indices must be integers or None or have an __index__ method")
            })?),
        };
    }
    let [start, stop, step] = bounds;
    let step = step.unwrap_or(1);
    if step == 0 {
        return fail(Kind::Value, "slice step cannot be zero");
    }
    if !matches!(value, Value::Str(_) | Value::Markup(_) | Value::List(_) | Value::Tuple(_) | Value::Range(..)) {
        return match value {
            Value::Dict(_) => fail(Kind::Type, "unhashable type: 'slice'"),
            other => fail(Kind::Type, format!("'{}' object is not subscriptable", other.type_name())),
        };
    }
    let length = value.len().unwrap_or(0) as i128;
    let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let clamp = |at: i128| if at < 0 { (at.saturating_add(length)).max(low) } else { at.min(high) };
    let start = start.map_or(if step > 0 { low } else { high }, clamp);
    let stop = stop.map_or(if step > 0 { high } else { low }, clamp);
    let count = range_length(start, stop, step);
    let places = (0..count).map(|at| (start + step * at as i128) as usize);
    Ok(match value {
        Value::List(items) => Value::list(places.map(|at| items[at].clone()).collect()),
        Value::Tuple(items) => Value::tuple(places.map(|at| items[at].clone()).collect()),
        Value::Range(first, _, by) => Value::Range(first + start * by, first + stop * by, by * step),
        other => {
            let text = other.as_str().map_or("", |text| text);
            if text.is_ascii() && step == 1 {
                let begin = (start as usize).min(text.len());
                return Ok(Value::str(&text[begin..begin + count]));
            }
            let characters: Vec<char> = text.chars().collect();
            Value::str(places.map(|at| characters[at]).collect::<String>())
        }
    })
}
