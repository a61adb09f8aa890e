//! The Jinja dialect of Hugging Face's chat templates: what `apply_chat_template` of the transformers library offers
//! to a template beyond the language itself.

use std::sync::Arc;

use minijinja::machinery::TemplateConfig;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{from_args, Kwargs, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use crate::chat_code;
use crate::python_json::{dumps, Style};

/// The source of an error that `raise_exception` made, so that it can be told from a fault of the template.
#[derive(Debug)]
pub struct RaisedByTemplate(pub String);

impl std::fmt::Display for RaisedByTemplate {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for RaisedByTemplate {}

pub fn template_config() -> Result<TemplateConfig, Error> {
    Ok(TemplateConfig {
        syntax_config: SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?,
        default_auto_escape: Arc::new(|_| AutoEscape::None),
    })
}

pub fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    chat_code::prepare(&mut env);
    env.set_unknown_method_callback(method);
    env.add_filter("tojson", tojson);
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", strftime_now);
    // In Python a string is a sequence, and so is a slice of a list; None can not be iterated over.
    let is_iterable = |value: &Value| {
        use ValueKind::{Iterable, Map, Seq, String, Undefined};
        matches!(value.kind(), String | Seq | Map | Iterable | Undefined)
    };
    env.add_test("iterable", is_iterable);
    env.add_test("sequence", is_iterable);
    env
}

/// Replaces the tags of `{% generation %}` blocks, which only mark text for training, by tags without effect that
/// trim the same blanks.
pub fn without_generation_tags(template: &str) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let size = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let (tag, after) = tag.split_at(size);
        let name = tag.trim_start_matches("{%").trim_end_matches("%}").trim_matches(['-', '+']).trim();
        match name {
            "generation" => out.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out + rest
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(RaisedByTemplate(message)))
}

fn tojson(value: &Value, ensure_ascii: Option<bool>, kwargs: Kwargs) -> Result<Value, Error> {
    let indent = match kwargs.get::<Option<Value>>("indent")? {
        None => None,
        Some(value) if value.is_none() => None,
        Some(value) => Some(match value.as_str() {
            Some(text) => text.to_string(),
            // More than any template indents, and no way to ask for gigabytes.
            None => " ".repeat(usize::try_from(value)?.min(64)),
        }),
    };
    let separators = kwargs.get::<Option<Vec<String>>>("separators")?.filter(|list| list.len() == 2);
    let item_default = if indent.is_some() { "," } else { ", " };
    let [item_separator, key_separator] = match separators {
        Some(list) => [list[0].clone(), list[1].clone()],
        None => [item_default.to_string(), ": ".to_string()],
    };
    let style = Style {
        ensure_ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.or(ensure_ascii).unwrap_or(false),
        indent,
        item_separator,
        key_separator,
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    dumps(value, &style).map(Value::from)
}

/// The local time in the C library's format language, which is also Python's.
fn strftime_now(format: String) -> Result<String, Error> {
    let failed = || Error::new(ErrorKind::InvalidOperation, format!("strftime_now cannot format {format:?}"));
    let text = std::ffi::CString::new(format.as_str()).map_err(|_| failed())?;
    let mut out = vec![0u8; 256];
    // SAFETY: `time` takes a null pointer; `localtime_r` writes the tm it is given; `strftime` writes at most
    // `out.len()` bytes and reads a terminated format.
    let written = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut parts: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&now, &mut parts).is_null() {
            return Err(failed());
        }
        libc::strftime(out.as_mut_ptr().cast(), out.len(), text.as_ptr(), &parts)
    };
    if written == 0 && !format.is_empty() {
        return Err(failed());
    }
    out.truncate(written);
    String::from_utf8(out).map_err(|_| failed())
}

/// Python's string methods: a few that `pycompat` lacks, then `pycompat`.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        match name {
            "removeprefix" => {
                let (prefix,): (&str,) = from_args(args)?;
                return Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)));
            }
            "removesuffix" => {
                let (suffix,): (&str,) = from_args(args)?;
                return Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)));
            }
            "partition" | "rpartition" => {
                let (separator,): (&str,) = from_args(args)?;
                return partition(text, separator, name == "rpartition");
            }
            "rsplit" => {
                let (separator, most): (&str, Option<usize>) = from_args(args)?;
                return rsplit(text, separator, most);
            }
            _ => {}
        }
    }
    pycompat::unknown_method_callback(state, value, name, args)
}

fn refuse_empty(separator: &str) -> Result<(), Error> {
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
    }
    Ok(())
}

fn partition(text: &str, separator: &str, from_right: bool) -> Result<Value, Error> {
    refuse_empty(separator)?;
    let found = if from_right { text.rsplit_once(separator) } else { text.split_once(separator) };
    let parts = match found {
        Some((left, right)) => [left, separator, right],
        None if from_right => ["", "", text],
        None => [text, "", ""],
    };
    Ok(parts.into_iter().map(Value::from).collect())
}

fn rsplit(text: &str, separator: &str, most: Option<usize>) -> Result<Value, Error> {
    refuse_empty(separator)?;
    let count = most.map_or(usize::MAX, |most| most.saturating_add(1));
    let parts: Vec<&str> = text.rsplitn(count, separator).collect();
    Ok(parts.into_iter().rev().map(Value::from).collect())
}
