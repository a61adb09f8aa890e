//! A conversation as a template expects it, from what clients send and data sets contain: the one reader for training and
//! serving. What it does is what transformers' apply_chat_template does to its messages (null members dropped, a thought
//! under all of its names), and what servers also do: calls' arguments as objects, the deprecated function_call
//! as a call, parts of a content that are only text joined for templates that take no parts.

use std::sync::Arc;

use plait_jinja::{json, Dict, Value};

use crate::error::{Result, TextError};

/// Members of messages that are known, by this reader or to templates in general.
const KNOWN: [&str; 12] = [
    "role",
    "content",
    "name",
    "tool_calls",
    "tool_call_id",
    "function_call",
    "reasoning_content",
    "reasoning",
    "thinking",
    "refusal",
    "weight",
    "tools",
];
const THOUGHTS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];
const HINT: &str = "a message is {\"role\": \"user\", \"content\": \"...\"}, as in OpenAI's API";

/// What a template takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Takes {
    /// A content that is a list of parts.
    pub parts: bool,
    /// The role "developer"; other templates know it as the system's.
    pub developer: bool,
}

/// `empty`: a message without a content has an empty one.
pub fn read(messages: &[Value], takes: Takes, empty: bool) -> Result<Vec<Value>> {
    let one = |(at, message): (usize, &Value)| {
        message_of(message, takes, empty).map_err(|what| TextError::invalid(format!("messages[{at}]{what}"), HINT))
    };
    messages.iter().enumerate().map(one).collect()
}

/// Names of members that neither this reader nor the template knows.
pub fn unknown<'a>(messages: &'a [Value], templates: &[&str]) -> Vec<&'a str> {
    let mut out = Vec::new();
    for message in messages {
        let Value::Dict(dict) = message else { continue };
        for (key, _) in dict.entries() {
            let Some(name) = key.as_str() else { continue };
            let known = KNOWN.contains(&&**name)
                || out.contains(&&**name)
                || templates.iter().any(|text| text.contains(&**name));
            if !known {
                out.push(name);
            }
        }
    }
    out
}

type Read<T> = std::result::Result<T, String>;

fn message_of(message: &Value, takes: Takes, empty: bool) -> Read<Value> {
    let Value::Dict(given) = message else { return Err(" is no object".into()) };
    let text = |name: &str| given.text(name).filter(|value| !value.is_none());
    let thought = THOUGHTS.iter().find_map(|name| text(name)).cloned();
    let mut out = Dict::default();
    let set =
        |out: &mut Dict, name: &str, value: Value| out.set(Value::str(name), value).map_err(|error| error.message);
    let mut part_thought = None;
    if let Some(thought) = &thought {
        set(&mut out, "thinking", thought.clone())?;
    }
    for (key, value) in given.entries() {
        let name = key.as_str().map_or("", |name| name);
        if value.is_none() || name == "weight" {
            continue;
        }
        let value = match name {
            "role" => role(value, takes)?,
            "content" => content(value, takes, &mut part_thought)?,
            "tool_calls" => calls(value)?,
            "function_call" => {
                if text("tool_calls").is_none() {
                    let call = object([("type", Value::str("function")), ("function", call_of(value)?)])?;
                    set(&mut out, "tool_calls", Value::list(vec![call]))?;
                }
                continue;
            }
            _ => value.clone(),
        };
        set(&mut out, name, value)?;
    }
    if empty && out.text("content").is_none() {
        set(&mut out, "content", Value::str(""))?;
    }
    if let Some(thought) = thought.or(part_thought.map(Value::str)) {
        set(&mut out, "reasoning_content", thought.clone())?;
        if out.text("thinking").is_none() {
            set(&mut out, "thinking", thought)?;
        }
    }
    Ok(Value::dict(out))
}

fn object<const N: usize>(members: [(&str, Value); N]) -> Read<Value> {
    let mut out = Dict::default();
    for (name, value) in members {
        out.set(Value::str(name), value).map_err(|error| error.message)?;
    }
    Ok(Value::dict(out))
}

fn role(value: &Value, takes: Takes) -> Read<Value> {
    let Some(role) = value.as_str() else { return Err(".role is no text".into()) };
    Ok(match &**role {
        "developer" if !takes.developer => Value::str("system"),
        "function" => Value::str("tool"),
        _ => value.clone(),
    })
}

fn content(value: &Value, takes: Takes, thought: &mut Option<String>) -> Read<Value> {
    let Value::List(parts) = value else { return Ok(value.clone()) };
    let mut texts: Vec<Arc<str>> = Vec::new();
    let mut out = Vec::new();
    let part_of = |text: Arc<str>| object([("type", Value::str("text")), ("text", Value::Str(text))]);
    for (at, part) in parts.iter().enumerate() {
        let of = |name: &str| match part {
            Value::Dict(part) => part.text(name).and_then(Value::as_str).cloned(),
            _ => None,
        };
        if let Some(text) = part.as_str() {
            texts.push(Arc::clone(text));
            out.push(part_of(Arc::clone(text))?);
            continue;
        }
        let Some(kind) = of("type") else { return Err(format!(".content[{at}] has no type")) };
        let field = match &*kind {
            "text" | "input_text" | "output_text" => "text",
            "refusal" => "refusal",
            "thinking" => "thinking",
            // The template writes what stands for it, and the caller gives its embeddings.
            _ if takes.parts => {
                out.push(part.clone());
                continue;
            }
            _ => return Err(format!(".content[{at}].type: content of type \"{kind}\" is not supported, only text")),
        };
        let Some(text) = of(field) else { return Err(format!(".content[{at}] has no {field}")) };
        if field == "thinking" {
            thought.get_or_insert_default().push_str(&text);
        } else {
            texts.push(Arc::clone(&text));
            out.push(part_of(text)?);
        }
    }
    Ok(if takes.parts { Value::list(out) } else { Value::str(texts.concat()) })
}

fn calls(value: &Value) -> Read<Value> {
    let Value::List(calls) = value else { return Err(".tool_calls is no list of calls".into()) };
    let one = |call: &Value| {
        let Value::Dict(given) = call else { return Err(".tool_calls has an entry that is no object".to_string()) };
        if given.text("function").is_none_or(Value::is_none) {
            return call_of(call);
        }
        let mut out = Dict::default();
        for (key, value) in given.entries() {
            let is_function = key.as_str().is_some_and(|name| **name == *"function");
            let value = if is_function { call_of(value)? } else { value.clone() };
            out.set(key.clone(), value).map_err(|error| error.message)?;
        }
        Ok(Value::dict(out))
    };
    Ok(Value::list(calls.iter().map(one).collect::<Read<_>>()?))
}

/// A function's name and arguments; arguments become an object.
fn call_of(value: &Value) -> Read<Value> {
    let Value::Dict(given) = value else { return Err(": a call's function is no object".into()) };
    let mut out = Dict::clone(given);
    let arguments = match given.text("arguments") {
        None | Some(Value::None) => Value::dict(Dict::default()),
        Some(Value::Str(text)) if text.trim().is_empty() => Value::dict(Dict::default()),
        Some(Value::Str(text)) => match json::parse(text) {
            Ok(Value::None) => Value::dict(Dict::default()),
            Ok(object @ Value::Dict(_)) => object,
            // What is no object stays as it was written.
            _ => Value::Str(Arc::clone(text)),
        },
        Some(other) => other.clone(),
    };
    out.set(Value::str("arguments"), arguments).map_err(|error| error.message)?;
    Ok(Value::dict(out))
}
