//! A tokenizer: the `tokenizers` crate's pipeline around our model, immutable once made.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::OnceLock;

use serde::Deserialize;
use tokenizers::{
    AddedToken, DecoderWrapper, Model, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, TokenizerBuilder,
    TokenizerImpl,
};

use crate::bpe::{Bpe, BpeSettings};
use crate::chat::{ChatRequest, ChatSettings, ChatTemplate};
use crate::deep_stack;
use crate::error::{reading, Code, Result, TextError};
use crate::fast_form::{self, Source};
use crate::json_form::{self, Parsed};
use crate::model::TextModel;
use crate::pieces::{self, ByteRuns, Decoding};

type Pipeline = TokenizerImpl<TextModel, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

/// tokenizer.json without its vocabulary. "truncation" and "padding" are left out on purpose: they are what the
/// training script happened to set, and Hugging Face's callers switch them off too.
#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    post_processor: Option<PostProcessorWrapper>,
    decoder: Option<DecoderWrapper>,
    #[serde(default)]
    model: BpeSettings,
}

pub struct TextTokenizer {
    pipeline: Pipeline,
    pub decoding: Decoding,
    /// A piece that its decoder maps to itself; see `stream`.
    pub anchor: &'static str,
    /// One past the largest id.
    pub id_count: u32,
    source: Source,
    config: String,
    chat: ChatSettings,
    template: OnceLock<Result<ChatTemplate>>,
}

impl TextTokenizer {
    pub fn from_json(json: &[u8], chat: ChatSettings, crate_model: bool) -> Result<Self> {
        let text = std::str::from_utf8(json).map_err(|error| {
            TextError::bad_model(
                format!("tokenizer.json is not UTF-8 at byte {}", error.valid_up_to()),
                "export it again",
            )
        })?;
        let Parsed { config, model } = json_form::parse(text, crate_model)?;
        Self::new(read_config(&config)?, config, model, Source::of(json), chat)
    }

    pub fn from_fast(fast: &[u8], json: &[u8], chat: ChatSettings) -> Result<Self> {
        let source = Source::of(json);
        let (text, tables) = fast_form::read(fast, source)?;
        let mut config = read_config(&text)?;
        let model = TextModel::Flat(Box::new(Bpe::new(tables, std::mem::take(&mut config.model))));
        Self::new(config, text, model, source, chat)
    }

    fn new(parts: Config, config: String, model: TextModel, source: Source, chat: ChatSettings) -> Result<Self> {
        let mut pipeline = TokenizerBuilder::new()
            .with_model(model)
            .with_normalizer(parts.normalizer)
            .with_pre_tokenizer(parts.pre_tokenizer)
            .with_post_processor(parts.post_processor)
            .with_decoder(parts.decoder)
            .build()
            .map_err(|error| failed("build the tokenizer", &*error))?;
        pipeline.add_tokens(parts.added_tokens).map_err(|error| failed("add the added tokens", &*error))?;
        let id_count = count_ids(&pipeline);
        if id_count > i32::MAX as u32 {
            return Err(TextError::bad_model("tokenizer.json has an id above 2147483646", "renumber its vocabulary"));
        }
        let decoding = Decoding::of(pipeline.get_decoder());
        let anchor = anchor(pipeline.get_decoder());
        Ok(Self { pipeline, decoding, anchor, id_count, source, config, chat, template: OnceLock::new() })
    }

    pub fn save_fast(&self) -> Result<Vec<u8>> {
        match self.pipeline.get_model() {
            TextModel::Flat(bpe) => Ok(fast_form::write(self.source, &self.config, &bpe.tables)),
            TextModel::Crate(_) => Err(TextError::new(
                Code::Unsupported,
                "only BPE tokenizers have a fast form",
                "load it from tokenizer.json each time",
            )),
        }
    }

    pub fn encode(&self, text: &[u8], add_special: bool) -> Result<Vec<i32>> {
        let text = std::str::from_utf8(text).map_err(|error| {
            TextError::invalid(
                format!("the text is not UTF-8 at byte {}", error.valid_up_to()),
                "convert it to UTF-8 first",
            )
        })?;
        let encoding =
            self.pipeline.encode_fast(text, add_special).map_err(|error| failed("encode the text", &*error))?;
        Ok(encoding.get_ids().iter().map(|id| *id as i32).collect())
    }

    /// Ids without a piece (a model's padding of its vocabulary) have no text.
    pub fn decode(&self, ids: &[i32], skip_special: bool) -> Result<String> {
        let mut runs = matches!(self.decoding, Decoding::Opaque { byte_fallback: true, .. }).then(ByteRuns::default);
        let mut list = Vec::with_capacity(ids.len());
        for id in ids {
            match (self.text_piece(*id, skip_special)?, &mut runs) {
                (Some(piece), Some(runs)) => runs.push(piece, &mut list),
                (Some(piece), None) => list.push(piece),
                (None, _) => {}
            }
        }
        if let Some(runs) = &mut runs {
            runs.finish(&mut list);
        }
        self.join(list)
    }

    pub fn join(&self, pieces: Vec<String>) -> Result<String> {
        pieces::join(self.pipeline.get_decoder(), pieces).map_err(|error| failed("decode the ids", &*error))
    }

    /// The piece that decoding sees; None for ids that have no text.
    pub fn text_piece(&self, id: i32, skip_special: bool) -> Result<Option<String>> {
        let id =
            u32::try_from(id).map_err(|_| TextError::invalid(format!("{id} is not a token id"), "ids start at 0"))?;
        let piece = self.pipeline.id_to_token(id);
        Ok(piece.filter(|piece| !skip_special || !self.pipeline.get_added_vocabulary().is_special_token(piece)))
    }

    pub fn piece(&self, id: i32) -> Option<String> {
        let id = u32::try_from(id).ok()?;
        let added = self.pipeline.get_added_vocabulary().get_added_tokens_decoder();
        added.get(&id).map(|token| token.content.clone()).or_else(|| self.pipeline.get_model().id_to_token(id))
    }

    pub fn id(&self, piece: &[u8]) -> Option<i32> {
        self.pipeline.token_to_id(std::str::from_utf8(piece).ok()?).map(|id| id as i32)
    }

    pub fn is_special(&self, id: i32) -> bool {
        let added = self.pipeline.get_added_vocabulary().get_added_tokens_decoder();
        u32::try_from(id).is_ok_and(|id| added.get(&id).is_some_and(|token| token.special))
    }

    /// The id of the token that tokenizer_config.json names under `key` ("bos_token").
    pub fn named_token(&self, key: &str) -> Option<i32> {
        self.id(self.chat.token(key)?.as_bytes())
    }

    pub fn has_chat_template(&self) -> bool {
        self.chat.has_template()
    }

    /// The template is compiled at the first use: most loads are for plain prompts, and a bad template must not spoil
    /// those.
    pub fn render_chat(&self, request: &ChatRequest) -> Result<String> {
        deep_stack::run(|| {
            let compiled = self.template.get_or_init(|| ChatTemplate::compile(&self.chat));
            match compiled {
                Ok(template) => template.render(request),
                Err(error) => Err(TextError::new(error.code, error.message.clone(), error.hint)),
            }
        })
    }
}

fn read_config(config: &str) -> Result<Config> {
    reading(|| {
        serde_json::from_str(config).map_err(|error| {
            TextError::bad_model(
                format!("tokenizer.json cannot be used: {error}"),
                "it may need a newer version of Plait, or be damaged",
            )
        })
    })
}

/// A decoder that panics on a letter spoils decoding only, not loading and encoding.
fn anchor(decoder: Option<&DecoderWrapper>) -> &'static str {
    let keeps = |letter: &&str| {
        let text = catch_unwind(AssertUnwindSafe(|| pieces::join(decoder, vec![letter.to_string()])));
        matches!(text, Ok(Ok(text)) if text == *letter)
    };
    ["a", "0", "!"].into_iter().find(keeps).unwrap_or("a")
}

fn count_ids(pipeline: &Pipeline) -> u32 {
    let added = pipeline.get_added_vocabulary().get_added_tokens_decoder().keys().copied().max();
    let model = match pipeline.get_model() {
        TextModel::Flat(bpe) => (bpe.tables.id_count() as u32).checked_sub(1),
        TextModel::Crate(model) => model.get_vocab().into_values().max(),
    };
    added.max(model).map_or(0, |largest| largest.saturating_add(1))
}

fn failed(what: &str, error: &(dyn std::error::Error + 'static)) -> TextError {
    TextError::bad_model(format!("the tokenizer failed to {what}: {error}"), "check tokenizer.json")
}
