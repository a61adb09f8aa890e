//! Chat templates: which one a model has, and rendering a conversation with it.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use plait_jinja::{json, Environment, Error, Kind, Rendered, Template, Value};
use serde_json::{Map, Value as Json};

use crate::budget;
use crate::chat_messages::{self, Takes};
use crate::error::{Code, Result, TextError};
use crate::special_tokens::SpecialTokens;

/// What tokenizer_config.json, special_tokens_map.json and the chat template files contain.
pub struct ChatSettings {
    /// (name, template); a model with a single template calls it "default".
    templates: Vec<(String, String)>,
    /// Where they come from, for messages.
    file: &'static str,
    pub tokens: SpecialTokens,
}

/// The texts of a model's files; empty for files that do not exist.
pub struct ChatFiles<'a> {
    pub config: &'a str,
    pub special_tokens: &'a str,
    /// chat_template.jinja and chat_template.json: the first of them that exists is used, then tokenizer_config.json's own.
    pub template: &'a str,
    pub template_json: &'a str,
    /// additional_chat_templates/tool_use.jinja
    pub tool_use: &'a str,
}

/// Five times the longest template known.
const MOST_TEMPLATE_BYTES: usize = 256 << 10;

/// Expressions and statements of one rendering, about two seconds: an endless loop is an error. A turn of a conversation
/// takes some hundred.
const MOST_STEPS: u64 = 20_000_000;

const TEMPLATE_FILE: &str = "chat_template.jinja";
const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";
const CONFIG_HINT: &str = "tokenizer_config.json must be the file that Hugging Face's transformers library writes";

impl ChatSettings {
    pub fn parse(files: &ChatFiles) -> Result<Self> {
        let config = object("tokenizer_config.json", files.config)?;
        let tokens = SpecialTokens::parse(&config, &object("special_tokens_map.json", files.special_tokens)?)?;
        let mut settings = Self { templates: Vec::new(), file: TEMPLATE_FILE, tokens };
        if !files.template.is_empty() {
            settings.templates.push((DEFAULT.to_string(), files.template.to_string()));
        } else {
            let other = object("chat_template.json", files.template_json)?;
            let (file, found) = match other.get("chat_template") {
                Some(found) => ("chat_template.json", Some(found)),
                None => ("tokenizer_config.json", config.get("chat_template")),
            };
            settings.file = file;
            settings.templates = templates(found)?;
        }
        if !files.tool_use.is_empty() {
            settings.templates.push((TOOL_USE.to_string(), files.tool_use.to_string()));
        }
        Ok(settings)
    }

    /// "the model's chat template (chat_template.jinja)"
    pub fn template_text(&self) -> String {
        format!("the model's chat template ({})", self.file)
    }

    /// None if there is no template of that name.
    fn compiled(&self, name: &str) -> Result<Option<Compiled>> {
        let Some((_, source)) = self.templates.iter().rev().find(|(other, _)| other == name) else {
            return Ok(None);
        };
        if source.len() > MOST_TEMPLATE_BYTES {
            let message =
                format!("the model's chat template has {} bytes, more than {MOST_TEMPLATE_BYTES}", source.len());
            return Err(TextError::bad_model(message, "give a shorter one as chat_template.jinja"));
        }
        let template = Template::compile(source).map_err(|error| broken(name, &error))?;
        Ok(Some(Compiled { name: name.to_string(), source: source.clone(), template, takes: OnceLock::new() }))
    }

    pub fn has_template(&self) -> bool {
        !self.templates.is_empty()
    }

    pub fn token(&self, key: &str) -> Option<&str> {
        self.tokens.variables.get(key)?.as_str()
    }
}

fn object(file: &str, text: &str) -> Result<Map<String, Json>> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(text)
        .map_err(|error| TextError::bad_model(format!("{file} cannot be read: {error}"), CONFIG_HINT))
}

fn templates(value: Option<&Json>) -> Result<Vec<(String, String)>> {
    let named = |entry: &Json| {
        let name = entry.get("name").and_then(Json::as_str)?;
        Some((name.to_string(), entry.get("template").and_then(Json::as_str)?.to_string()))
    };
    let found = match value {
        None | Some(Json::Null) => Some(Vec::new()),
        Some(Json::String(template)) => Some(vec![(DEFAULT.to_string(), template.clone())]),
        Some(Json::Array(list)) => list.iter().map(named).collect(),
        Some(Json::Object(map)) => {
            map.iter().map(|(name, text)| Some((name.clone(), text.as_str()?.to_string()))).collect()
        }
        Some(_) => None,
    };
    found.ok_or_else(|| {
        TextError::bad_model("\"chat_template\" is neither a template nor a list of named templates", CONFIG_HINT)
    })
}

/// The arguments of one rendering.
pub struct ChatRequest<'a> {
    /// JSON: a list of messages.
    pub messages: &'a str,
    /// JSON: a list of tools, or empty for none.
    pub tools: &'a str,
    /// JSON: an object of further variables, or empty for none.
    pub extra: &'a str,
    pub add_generation_prompt: bool,
}

/// A rendered conversation.
pub struct ChatText {
    pub text: String,
    /// Bytes within `{% generation %}` blocks; none if the template has no such blocks, or not where they can be placed.
    pub generated: Option<Vec<(usize, usize)>>,
    /// Members of messages that the template does not name.
    pub unknown: Vec<String>,
}

struct Compiled {
    name: String,
    source: String,
    template: Template,
    takes: OnceLock<Takes>,
}

pub struct ChatTemplate {
    environment: Environment,
    default: Compiled,
    tool_use: Option<Compiled>,
    tokens: Map<String, Json>,
}

type Variables = HashMap<Arc<str>, Value>;

impl ChatTemplate {
    pub fn compile(settings: &ChatSettings) -> Result<Self> {
        if settings.templates.is_empty() {
            return Err(TextError::new(
                Code::Unsupported,
                "the model has no chat template: no chat_template.jinja, no \"chat_template\" in tokenizer_config.json",
                "give a plain prompt, or put the template next to tokenizer.json as chat_template.jinja",
            ));
        }
        let Some(default) = settings.compiled(DEFAULT)? else {
            let names: Vec<&str> = settings.templates.iter().map(|(name, _)| name.as_str()).collect();
            let message = format!("none of the model's chat templates is called \"default\": {}", names.join(", "));
            return Err(TextError::new(
                Code::Unsupported,
                message,
                "put the one to use next to tokenizer.json as chat_template.jinja",
            ));
        };
        let environment = Environment { most_steps: MOST_STEPS, goes_on: budget::check, time: local_time };
        let tokens = settings.tokens.variables.clone();
        Ok(Self { environment, default, tool_use: settings.compiled(TOOL_USE)?, tokens })
    }

    pub fn render(&self, request: &ChatRequest) -> Result<ChatText> {
        let tools =
            argument("tools", request.tools, Value::None, |tools| matches!(tools, Value::List(_) | Value::None))?;
        // A model with a template for tools means it for conversations that have some.
        let tool_use = if tools.is_none() { None } else { self.tool_use.as_ref() };
        let template = tool_use.unwrap_or(&self.default);
        let messages = argument("messages", request.messages, Value::None, |value| matches!(value, Value::List(_)))?;
        let messages = messages.items().map_err(|error| refused(&template.name, &error))?;
        let mut variables = self.variables(tools, request.add_generation_prompt);
        if let Value::Dict(extra) = argument("extra variables", request.extra, Value::None, |value| {
            matches!(value, Value::Dict(_) | Value::None)
        })? {
            let named = |(name, value): &(Value, Value)| Some((Arc::clone(name.as_str()?), value.clone()));
            variables.extend(extra.entries().iter().filter_map(named));
        }
        let takes = *template.takes.get_or_init(|| self.takes(template));
        let mut run = |empty| -> Result<std::result::Result<Rendered, Error>> {
            let messages = chat_messages::read(&messages, takes, empty)?;
            variables.insert("messages".into(), Value::list(messages));
            Ok(template.template.render(&self.environment, &variables))
        };
        // Some templates add texts to each message's content, and there may be none.
        let rendered = match run(false)? {
            Err(error) if matches!(error.kind, Kind::Undefined | Kind::Type) => run(true)?.map_err(|_| error),
            other => other,
        };
        let rendered = rendered.map_err(|error| refused(&template.name, &error))?;
        let marked = template.template.marks_generation() && !rendered.generated_elsewhere;
        let unknown = chat_messages::unknown(&messages, &[&template.source]);
        Ok(ChatText {
            text: rendered.text,
            generated: marked.then_some(rendered.generated),
            unknown: unknown.into_iter().map(str::to_string).collect(),
        })
    }

    fn variables(&self, tools: Value, add_generation_prompt: bool) -> Variables {
        let token = |value: &Json| match value {
            Json::Array(list) => Value::list(list.iter().filter_map(Json::as_str).map(Value::str).collect()),
            other => Value::str(other.as_str().unwrap_or_default()),
        };
        let mut out: Variables =
            self.tokens.iter().map(|(name, value)| (name.as_str().into(), token(value))).collect();
        out.insert("tools".into(), tools);
        out.insert("documents".into(), Value::None);
        out.insert("add_generation_prompt".into(), Value::Bool(add_generation_prompt));
        out
    }

    /// Renders a message in parts: a template that takes them writes their text, and not what parts are made of.
    fn takes(&self, template: &Compiled) -> Takes {
        const MESSAGE: &str = r#"[{"role":"user","content":[{"type":"text","text":"plait-probe"}]}]"#;
        let mut variables = self.variables(Value::None, false);
        variables.extend(json::parse(MESSAGE).ok().map(|messages| ("messages".into(), messages)));
        let text =
            template.template.render(&self.environment, &variables).map_or_else(|_| String::new(), |out| out.text);
        let parts = text.contains("plait-probe") && !text.contains("'text'") && !text.contains("\"text\"");
        Takes { parts, developer: template.source.contains("developer") }
    }
}

fn argument(what: &str, text: &str, absent: Value, fits: impl Fn(&Value) -> bool) -> Result<Value> {
    if text.is_empty() && fits(&absent) {
        return Ok(absent);
    }
    let hint = "messages and tools are JSON lists, extra variables a JSON object";
    let value = json::parse(text)
        .map_err(|error| TextError::invalid(format!("the {what} are not JSON: {}", error.message), hint))?;
    if fits(&value) {
        Ok(value)
    } else {
        Err(TextError::invalid(format!("the {what} have the wrong JSON type"), hint))
    }
}

/// " (in default:3)"
fn place(name: &str, error: &Error) -> String {
    error.line.map_or_else(String::new, |line| format!(" (in {name}:{line})"))
}

fn broken(name: &str, error: &Error) -> TextError {
    TextError::bad_model(
        format!("the model's chat template cannot be compiled: {}{}", error.message, place(name, error)),
        "check the template",
    )
}

fn refused(name: &str, error: &Error) -> TextError {
    if error.kind == Kind::Raised {
        return TextError::invalid(
            format!("the model's chat template refuses the conversation: {}", error.message),
            "change the messages accordingly",
        );
    }
    TextError::invalid(
        format!("the model's chat template failed: {}{}", error.message, place(name, error)),
        "the messages may lack a field that the template reads",
    )
}

/// The local time in the C library's format language, which is also Python's.
fn local_time(format: &str) -> std::result::Result<String, String> {
    let failed = || format!("strftime_now cannot format {format:?}");
    let text = std::ffi::CString::new(format).map_err(|_| failed())?;
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
