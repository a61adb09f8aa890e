//! Tokens that tokenizer_config.json and special_tokens_map.json name, next to those of tokenizer.json.

use serde_json::{Map, Value as Json};
use tokenizers::AddedToken;

use crate::error::{Result, TextError};

const HINT: &str = "tokenizer_config.json must be the file that Hugging Face's transformers library writes";

#[derive(Default)]
pub struct SpecialTokens {
    /// What a template may print: bos_token, eos_token, and so on.
    pub variables: Map<String, Json>,
    /// Of "added_tokens_decoder", by their ids.
    pub added: Vec<(u32, AddedToken)>,
}

impl SpecialTokens {
    /// As transformers: special_tokens_map.json counts where tokenizer_config.json has no "added_tokens_decoder".
    pub fn parse(config: &Map<String, Json>, map: &Map<String, Json>) -> Result<Self> {
        let mut out = Self::default();
        out.name(config);
        match config.get("added_tokens_decoder") {
            None | Some(Json::Null) => out.name(map),
            Some(Json::Object(tokens)) => {
                for (id, token) in tokens {
                    out.added.push((id.parse().map_err(|_| bad(id))?, added_token(token).ok_or_else(|| bad(id))?));
                }
                out.added.sort_by_key(|(id, _)| *id);
            }
            Some(_) => return Err(TextError::bad_model("\"added_tokens_decoder\" is no object", HINT)),
        }
        Ok(out)
    }

    fn name(&mut self, config: &Map<String, Json>) {
        let tokens = &mut self.variables;
        for (key, value) in config {
            match value {
                Json::Array(list) if key.ends_with("special_tokens") => {
                    tokens.insert(key.clone(), list.iter().filter_map(token_text).collect());
                }
                Json::Object(named) if key == "extra_special_tokens" || key == "model_specific_special_tokens" => {
                    tokens.extend(named.iter().filter_map(|(name, value)| Some((name.clone(), token_text(value)?))));
                }
                _ if key.ends_with("_token") => tokens.extend(token_text(value).map(|text| (key.clone(), text))),
                _ => {}
            }
        }
    }

    /// Texts of all named tokens.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.variables.values().flat_map(|value| match value {
            Json::Array(list) => list.iter().filter_map(Json::as_str).collect(),
            other => Vec::from_iter(other.as_str()),
        })
    }
}

fn bad(id: &str) -> TextError {
    TextError::bad_model(format!("the entry {id:?} of \"added_tokens_decoder\" is no token with an id"), HINT)
}

/// A token is a string or an object with "content".
fn token_text(value: &Json) -> Option<Json> {
    let text = value.as_str().or_else(|| value.get("content")?.as_str());
    text.map(Json::from)
}

fn added_token(value: &Json) -> Option<AddedToken> {
    let content = token_text(value)?;
    let flag = |name: &str| value.get(name).and_then(Json::as_bool);
    let special = flag("special").unwrap_or(false);
    Some(
        AddedToken::from(content.as_str()?, special)
            .single_word(flag("single_word").unwrap_or(false))
            .lstrip(flag("lstrip").unwrap_or(false))
            .rstrip(flag("rstrip").unwrap_or(false))
            .normalized(flag("normalized").unwrap_or(!special)),
    )
}
