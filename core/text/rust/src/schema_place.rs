//! The parts of a JSON schema: where in it an error is (the compiler of grammars reports what is wrong, and rarely where), and what of
//! it is a remark.

use serde_json::{Map, Value};

use crate::schema_numbers::draw_in;

/// Keywords whose value is a schema, a list of schemas, or schemas by name.
const ONE: [&str; 12] = [
    "items",
    "additionalItems",
    "additionalProperties",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];
const LISTS: [&str; 5] = ["anyOf", "allOf", "oneOf", "prefixItems", "items"];
const NAMED: [&str; 5] = ["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"];
/// Kept with a part, so that its references lead somewhere.
const DEFINITIONS: [&str; 3] = ["$defs", "definitions", "$schema"];
const MOST_TRIES: usize = 300;

/// The path of the smallest part of `schema` that has the same error as the whole, as "properties.name.items"; "" if that
/// is the whole. `error_of`: the error of a schema, None if it has none.
pub fn place_of(schema: &Value, error: &str, error_of: impl Fn(Value) -> Option<String>) -> String {
    let mut definitions = Map::new();
    for name in DEFINITIONS {
        if let Some(value) = schema.get(name) {
            definitions.insert(name.to_string(), value.clone());
        }
    }
    let (mut place, mut part, mut tries) = (Vec::new(), schema, 0);
    'deeper: loop {
        for (path, child) in parts_of(part) {
            tries += 1;
            if tries > MOST_TRIES {
                break 'deeper;
            }
            let with_definitions = match child {
                Value::Object(fields) => {
                    let mut fields = fields.clone();
                    for (name, value) in &definitions {
                        fields.entry(name.clone()).or_insert_with(|| value.clone());
                    }
                    Value::Object(fields)
                }
                other => other.clone(),
            };
            if error_of(with_definitions).is_some_and(|other| first_line(&other) == first_line(error)) {
                place.push(path);
                part = child;
                continue 'deeper;
            }
        }
        break;
    }
    place.join(".")
}

/// The formats of JSON Schema (draft 2020-12, Validation, section 7.3).
const FORMATS: [&str; 19] = [
    "date-time",
    "date",
    "time",
    "duration",
    "email",
    "idn-email",
    "hostname",
    "idn-hostname",
    "ipv4",
    "ipv6",
    "uri",
    "uri-reference",
    "iri",
    "iri-reference",
    "uuid",
    "uri-template",
    "json-pointer",
    "relative-json-pointer",
    "regex",
];

/// What the compiler of grammars can read: without formats that are not JSON Schema's, which are remarks (section 7.2.3), as "int32" of
/// OpenAPI; with bounds of numbers that are not too far.
pub fn prepare(schema: &mut Value) -> Result<(), String> {
    let Value::Object(fields) = schema else { return Ok(()) };
    draw_in(fields)?;
    if fields.get("format").and_then(Value::as_str).is_some_and(|name| !FORMATS.contains(&name)) {
        fields.shift_remove("format");
    }
    for (key, value) in fields {
        match value {
            Value::Array(list) if LISTS.contains(&key.as_str()) => list.iter_mut().try_for_each(prepare)?,
            Value::Object(named) if NAMED.contains(&key.as_str()) => named.values_mut().try_for_each(prepare)?,
            Value::Object(_) if ONE.contains(&key.as_str()) => prepare(value)?,
            _ => {}
        }
    }
    Ok(())
}

pub fn first_line(error: &str) -> &str {
    error.lines().next().unwrap_or_default()
}

fn parts_of(schema: &Value) -> Vec<(String, &Value)> {
    let Value::Object(fields) = schema else { return Vec::new() };
    let mut out = Vec::new();
    for (key, value) in fields {
        match value {
            Value::Array(list) if LISTS.contains(&key.as_str()) => {
                out.extend(list.iter().enumerate().map(|(i, each)| (format!("{key}[{i}]"), each)));
            }
            Value::Object(named) if NAMED.contains(&key.as_str()) => {
                out.extend(named.iter().map(|(name, each)| (format!("{key}.{name}"), each)));
            }
            Value::Object(_) if ONE.contains(&key.as_str()) => out.push((key.clone(), value)),
            _ => {}
        }
    }
    out
}
