//! Chat templates: which one a model has, and rendering a conversation with it.

use minijinja::value::Serde;
use minijinja::{Environment, Error, Value};
use serde_json::{Map, Value as Json};

use crate::chat_code::ChatCode;
use crate::chat_environment::{environment, template_config, without_generation_tags, RaisedByTemplate};
use crate::error::{Code, Result, TextError};

/// What tokenizer_config.json and the chat template files contain.
pub struct ChatSettings {
    /// (name, template); a model with a single template calls it "default".
    templates: Vec<(String, String)>,
    /// Where they come from, for messages.
    file: &'static str,
    /// The variables a template may print: bos_token, eos_token, and so on.
    tokens: Map<String, Json>,
}

/// Five times the longest template known; bounds the depth of its expressions (see `deep_stack`).
const MOST_TEMPLATE_BYTES: usize = 256 << 10;

/// Instructions of one rendering, about two seconds: an endless loop is an error. A turn of a
/// conversation takes some hundred.
const MOST_INSTRUCTIONS: u64 = 20_000_000;

const TEMPLATE_FILE: &str = "chat_template.jinja";
const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";
const CONFIG_HINT: &str = "tokenizer_config.json must be the file that Hugging Face's transformers library writes";

impl ChatSettings {
    /// Empty texts stand for files that do not exist. `template` is chat_template.jinja, `template_json` is
    /// chat_template.json; the first of them that exists is used, then tokenizer_config.json's own.
    pub fn parse(config: &str, template: &str, template_json: &str) -> Result<Self> {
        let config = object("tokenizer_config.json", config)?;
        let mut settings = Self { templates: Vec::new(), file: TEMPLATE_FILE, tokens: tokens(&config) };
        if !template.is_empty() {
            settings.templates.push((DEFAULT.to_string(), template.to_string()));
        } else {
            let other = object("chat_template.json", template_json)?;
            let (file, found) = match other.get("chat_template") {
                Some(found) => ("chat_template.json", Some(found)),
                None => ("tokenizer_config.json", config.get("chat_template")),
            };
            settings.file = file;
            settings.templates = templates(found)?;
        }
        Ok(settings)
    }

    /// "the model's chat template (chat_template.jinja)"
    pub fn template_text(&self) -> String {
        format!("the model's chat template ({})", self.file)
    }

    /// None if there is no template of that name.
    fn compiled(&self, name: &str) -> Result<Option<ChatCode>> {
        let Some((_, template)) = self.templates.iter().rev().find(|(other, _)| other == name) else {
            return Ok(None);
        };
        if template.len() > MOST_TEMPLATE_BYTES {
            let message =
                format!("the model's chat template has {} bytes, more than {MOST_TEMPLATE_BYTES}", template.len());
            return Err(TextError::bad_model(message, "give a shorter one as chat_template.jinja"));
        }
        let config = template_config().map_err(|error| broken(&error))?;
        let code = ChatCode::compile(name, &without_generation_tags(template), &config);
        code.map(Some).map_err(|error| broken(&error))
    }

    pub fn has_template(&self) -> bool {
        !self.templates.is_empty()
    }

    pub fn token(&self, key: &str) -> Option<&str> {
        self.tokens.get(key)?.as_str()
    }
}

fn object(file: &str, text: &str) -> Result<Map<String, Json>> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(text)
        .map_err(|error| TextError::bad_model(format!("{file} cannot be read: {error}"), CONFIG_HINT))
}

/// A token is a string or an object with "content".
fn token_text(value: &Json) -> Option<Json> {
    let text = value.as_str().or_else(|| value.get("content")?.as_str());
    text.map(Json::from)
}

fn tokens(config: &Map<String, Json>) -> Map<String, Json> {
    let mut tokens = Map::new();
    for (key, value) in config {
        match value {
            Json::Array(list) if key.ends_with("special_tokens") => {
                tokens.insert(key.clone(), list.iter().filter_map(token_text).collect());
            }
            Json::Object(named) if key == "extra_special_tokens" => {
                tokens.extend(named.iter().filter_map(|(name, value)| Some((name.clone(), token_text(value)?))));
            }
            _ if key.ends_with("_token") => tokens.extend(token_text(value).map(|text| (key.clone(), text))),
            _ => {}
        }
    }
    tokens
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

pub struct ChatTemplate {
    env: Environment<'static>,
    default: ChatCode,
    tool_use: Option<ChatCode>,
    tokens: Map<String, Json>,
}

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
        let mut env = environment();
        env.set_fuel(Some(MOST_INSTRUCTIONS));
        Ok(Self { env, default, tool_use: settings.compiled(TOOL_USE)?, tokens: settings.tokens.clone() })
    }

    pub fn render(&self, request: &ChatRequest) -> Result<String> {
        let mut variables = self.tokens.clone();
        let tools = argument("tools", request.tools, Json::Null, |tools| tools.is_array() || tools.is_null())?;
        // A model with a template for tools means it for conversations that have some.
        let tool_use = if tools.is_null() { None } else { self.tool_use.as_ref() };
        variables.insert("messages".into(), argument("messages", request.messages, Json::Null, Json::is_array)?);
        variables.insert("tools".into(), tools);
        variables.insert("documents".into(), Json::Null);
        variables.insert("add_generation_prompt".into(), request.add_generation_prompt.into());
        if let Json::Object(extra) =
            argument("extra variables", request.extra, Json::Object(Map::new()), Json::is_object)?
        {
            variables.extend(extra);
        }
        let variables = Value::from(Serde(&variables));
        tool_use.unwrap_or(&self.default).render(&self.env, variables).map_err(|error| refused(&error))
    }
}

fn argument(what: &str, text: &str, absent: Json, fits: impl Fn(&Json) -> bool) -> Result<Json> {
    if text.is_empty() && fits(&absent) {
        return Ok(absent);
    }
    let hint = "messages and tools are JSON lists, extra variables a JSON object";
    let value = serde_json::from_str(text)
        .map_err(|error| TextError::invalid(format!("the {what} are not JSON: {error}"), hint))?;
    if fits(&value) {
        Ok(value)
    } else {
        Err(TextError::invalid(format!("the {what} have the wrong JSON type"), hint))
    }
}

fn broken(error: &Error) -> TextError {
    TextError::bad_model(
        format!("the model's chat template cannot be compiled: {}", trail(error)),
        "check the template",
    )
}

fn refused(error: &Error) -> TextError {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(RaisedByTemplate(message)) = cause.downcast_ref() {
            return TextError::invalid(
                format!("the model's chat template refuses the conversation: {message}"),
                "change the messages accordingly",
            );
        }
        source = cause.source();
    }
    TextError::invalid(
        format!("the model's chat template failed: {}", trail(error)),
        "the messages may lack a field that the template reads",
    )
}

fn trail(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
