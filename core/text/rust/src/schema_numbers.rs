//! Bounds of numbers that are too far for the compiler of grammars: those of 64 bits, of float and of double. They are drawn in, so that
//! each number that a grammar allows is still one of the schema.

use serde_json::{json, Map, Value};

/// The largest double below 2^63, at which integers end; and a number up to which decimals are spelled out.
const MOST_INTEGER: f64 = 9_223_372_036_854_774_784.0;
const MOST_REAL: f64 = 9e15;
/// Positive numbers below it need more zeros than a grammar may have.
const LEAST_REAL: f64 = 1e-15;

const LOWER: [&str; 2] = ["minimum", "exclusiveMinimum"];
const UPPER: [&str; 2] = ["maximum", "exclusiveMaximum"];

/// Of one schema, not of its parts. The error names the bound that leaves no number.
pub fn draw_in(fields: &mut Map<String, Value>) -> Result<(), String> {
    let integers = only_integers(fields.get("type"));
    for (keys, sign) in [(LOWER, 1.0), (UPPER, -1.0)] {
        for key in keys {
            // As if it were a lower bound.
            let Some(bound) = fields.get(key).and_then(Value::as_f64).map(|bound| bound * sign) else { continue };
            let most = if integers { MOST_INTEGER } else { MOST_REAL };
            let drawn = if bound > most {
                return Err(format!("{key} is {}, beyond the numbers that are followed", bound * sign));
            } else if bound < -most {
                -most
            } else if integers || bound == 0.0 || bound.abs() >= LEAST_REAL {
                continue;
            } else if bound > 0.0 {
                LEAST_REAL
            } else {
                0.0
            } * sign;
            let value = if integers { json!(drawn as i64) } else { json!(drawn) };
            fields.insert(key.to_string(), value);
        }
    }
    Ok(())
}

fn only_integers(kind: Option<&Value>) -> bool {
    let is = |kind: &Value, name: &str| kind.as_str() == Some(name);
    match kind {
        Some(Value::Array(kinds)) => {
            kinds.iter().any(|kind| is(kind, "integer")) && !kinds.iter().any(|kind| is(kind, "number"))
        }
        Some(kind) => is(kind, "integer"),
        None => false,
    }
}
