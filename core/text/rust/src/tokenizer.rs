//! A tokenizer: the `tokenizers` crate's pipeline around our model, immutable once made.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Once, OnceLock};

use serde::Deserialize;
use serde_json::Value as Json;
use tokenizers::{
    AddedToken, DecoderWrapper, Model, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, TokenizerBuilder,
    TokenizerImpl,
};

use crate::budget::{self, Budget};
use crate::chat::{ChatRequest, ChatSettings, ChatTemplate, ChatText};
use crate::deep_stack;
use crate::error::{reading, Code, Result, TextError};
use crate::fast_form::{self, Source};
use crate::json_form::{self, Parsed};
use crate::model::TextModel;
use crate::pieces::{self, ByteRuns, Decoding};
use crate::special_tokens::SpecialTokens;
use crate::token_bytes::PieceBytes;
use crate::vocabulary::Vocabulary;
use plait_bpe::{Bpe, BpeSettings};

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

/// Limits per text, in addition to an allowance for its size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Limits {
    pub bytes: u64,
    pub milliseconds: u64,
}

/// Memory for each byte of the input: a pipeline keeps about 300 for each byte of a text, a template copies.
const BYTES_A_TEXT_BYTE: u64 = 1024;
const BYTES_A_CHAT_BYTE: u64 = 64;
/// tokenizer.json makes tables of about 15 times its size, and more of the crate's own model.
const BYTES_A_FILE_BYTE: u64 = 128;
/// Slow machines and sanitizers encode 1 MB a second.
const INPUT_BYTES_A_MILLISECOND: u64 = 64;
/// Texts and templates of the file itself, regular expressions.
const LOADING: Limits = Limits { bytes: 256 << 20, milliseconds: 60_000 };

const LIMIT_HINT: &str = "if you trust the model's files, raise the options text_bytes and text_ms; if not, use others";
const LOADING_HINT: &str = "tokenizer.json may be made to do harm: use another";

impl Limits {
    fn budget<'a>(&self, input: usize, bytes_each: u64, cancels: Option<&'a AtomicU32>) -> Budget<'a> {
        let input = input as u64;
        Budget {
            bytes: self.bytes.saturating_add(input.saturating_mul(bytes_each)),
            milliseconds: self.milliseconds.saturating_add(input / INPUT_BYTES_A_MILLISECOND),
            cancels,
        }
    }
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
    vocabulary: OnceLock<Result<Vocabulary>>,
    limits: Limits,
    /// Calls under way end when it changes.
    cancels: AtomicU32,
}

impl TextTokenizer {
    pub fn from_json(json: &[u8], chat: ChatSettings, limits: Limits, crate_model: bool) -> Result<Self> {
        loading(json, || Self::read_json(json, chat, limits, crate_model))
    }

    pub fn from_fast(fast: &[u8], json: &[u8], chat: ChatSettings, limits: Limits) -> Result<Self> {
        loading(json, || Self::read_fast(fast, json, chat, limits))
    }

    fn read_json(json: &[u8], chat: ChatSettings, limits: Limits, crate_model: bool) -> Result<Self> {
        let text = std::str::from_utf8(json).map_err(|error| {
            TextError::bad_model(
                format!("tokenizer.json is not UTF-8 at byte {}", error.valid_up_to()),
                "export it again",
            )
        })?;
        let Parsed { config, model } = json_form::parse(text, crate_model)?;
        Self::new(read_config(&config)?, config, model, Source::of(json), chat, limits)
    }

    fn read_fast(fast: &[u8], json: &[u8], chat: ChatSettings, limits: Limits) -> Result<Self> {
        let source = Source::of(json);
        let (text, tables) = fast_form::read(fast, source)?;
        let mut config = read_config(&text)?;
        let model = TextModel::Flat(Box::new(Bpe::new(tables, std::mem::take(&mut config.model))));
        Self::new(config, text, model, source, chat, limits)
    }

    fn new(
        parts: Config,
        config: String,
        model: TextModel,
        source: Source,
        chat: ChatSettings,
        limits: Limits,
    ) -> Result<Self> {
        let mut pipeline = TokenizerBuilder::new()
            .with_model(model)
            .with_normalizer(parts.normalizer)
            .with_pre_tokenizer(parts.pre_tokenizer)
            .with_post_processor(parts.post_processor)
            .with_decoder(parts.decoder)
            .build()
            .map_err(|error| failed("build the tokenizer", &*error))?;
        pipeline.add_tokens(parts.added_tokens).map_err(|error| failed("add the added tokens", &*error))?;
        add_named_tokens(&mut pipeline, &chat.tokens)?;
        let id_count = count_ids(&pipeline);
        if id_count > i32::MAX as u32 {
            return Err(TextError::bad_model("tokenizer.json has an id above 2147483646", "renumber its vocabulary"));
        }
        let decoding = Decoding::of(pipeline.get_decoder());
        let anchor = anchor(pipeline.get_decoder());
        let (template, vocabulary) = (OnceLock::new(), OnceLock::new());
        let cancels = AtomicU32::new(0);
        let made =
            Self { pipeline, decoding, anchor, id_count, source, config, chat, template, vocabulary, limits, cancels };
        made.probe()?;
        Ok(made)
    }

    /// Goes through every part of the pipeline once, for what the file asks of it and it cannot do: some parts panic.
    /// That a text cannot be encoded is no fault here: a vocabulary without an unknown token may lack the probe's letters.
    fn probe(&self) -> Result<()> {
        reading(|| {
            for text in PROBES {
                let _ = self.pipeline.encode_fast(text, true);
            }
            Ok(())
        })
    }

    /// Calls of `encode`, `decode` and `render_chat` that are under way end with an error.
    pub fn cancel(&self) {
        self.cancels.fetch_add(1, Relaxed);
    }

    pub fn bounded<T>(
        &self,
        what: impl FnOnce() -> String,
        input: usize,
        bytes_each: u64,
        body: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let budget = self.limits.budget(input, bytes_each, Some(&self.cancels));
        budget::within(&budget, |stop| budget::over(stop, &what(), &budget, LIMIT_HINT), body)
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
        let what = || format!("tokenizer.json, given a text of {} bytes,", text.len());
        self.bounded(what, text.len(), BYTES_A_TEXT_BYTE, || {
            reading(|| {
                let encoding =
                    self.pipeline.encode_fast(text, add_special).map_err(|error| failed("encode the text", &*error))?;
                Ok(encoding.get_ids().iter().map(|id| *id as i32).collect())
            })
        })
    }

    /// Ids without a piece (a model's padding of its vocabulary) have no text.
    pub fn decode(&self, ids: &[i32], skip_special: bool) -> Result<String> {
        let what = || format!("tokenizer.json's decoder, given {} ids,", ids.len());
        self.bounded(what, size_of_val(ids), BYTES_A_TEXT_BYTE, || self.decode_all(ids, skip_special))
    }

    fn decode_all(&self, ids: &[i32], skip_special: bool) -> Result<String> {
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

    /// A stream's calls are not cancelled: their text would be lost.
    pub fn join(&self, pieces: Vec<String>) -> Result<String> {
        let size = pieces.iter().map(String::len).sum();
        let budget = self.limits.budget(size, BYTES_A_TEXT_BYTE, None);
        let over = |stop| budget::over(stop, "tokenizer.json's decoder", &budget, LIMIT_HINT);
        budget::within(&budget, over, || {
            reading(|| {
                pieces::join(self.pipeline.get_decoder(), pieces).map_err(|error| failed("decode the ids", &*error))
            })
        })
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

    /// The bytes that the id adds within a text; empty if it has no piece.
    pub fn token_bytes(&self, id: i32) -> Result<Vec<u8>> {
        match u32::try_from(id) {
            Ok(id) => PieceBytes::new(self)?.of(id),
            Err(_) => Err(TextError::invalid(format!("{id} is not a token id"), "ids start at 0")),
        }
    }

    pub fn decoder(&self) -> Option<&DecoderWrapper> {
        self.pipeline.get_decoder()
    }

    /// What grammars need of the vocabulary, made at the first use: not every tokenizer is used with one.
    pub fn vocabulary(self: &Arc<Self>) -> Result<&Vocabulary> {
        made_once(&self.vocabulary, || Vocabulary::new(self))
    }

    pub fn id(&self, piece: &[u8]) -> Option<i32> {
        self.pipeline.token_to_id(std::str::from_utf8(piece).ok()?).map(|id| id as i32)
    }

    /// Whether the id is one of the file's "added_tokens", whose pieces are texts.
    pub fn is_added(&self, id: u32) -> bool {
        self.pipeline.get_added_vocabulary().get_added_tokens_decoder().contains_key(&id)
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
    pub fn render_chat(&self, request: &ChatRequest) -> Result<ChatText> {
        let input = request.messages.len() + request.tools.len() + request.extra.len();
        let budget = self.limits.budget(input, BYTES_A_CHAT_BYTE, Some(&self.cancels));
        deep_stack::run(budget.bytes, || {
            self.bounded(
                || self.chat.template_text(),
                input,
                BYTES_A_CHAT_BYTE,
                || {
                    made_once(&self.template, || ChatTemplate::compile(&self.chat))?.render(request)
                },
            )
        })
    }
}

/// Tokens that only tokenizer_config.json or special_tokens_map.json has; transformers adds them, too. A special token without
/// an id is named and not used.
fn add_named_tokens(pipeline: &mut Pipeline, tokens: &SpecialTokens) -> Result<()> {
    let is_added = |pipeline: &Pipeline, text: &str| {
        pipeline.get_added_vocabulary().get_added_tokens_decoder().values().any(|token| token.content == text)
    };
    for (id, token) in &tokens.added {
        if is_added(pipeline, &token.content) {
            continue;
        }
        pipeline.add_tokens([token.clone()]).map_err(|error| failed("add the added tokens", &*error))?;
        let own = pipeline.token_to_id(&token.content);
        if own != Some(*id) {
            let own = own.map_or_else(|| "none".to_string(), |own| own.to_string());
            let message = format!("tokenizer_config.json gives {:?} the id {id}, and in tokenizer.json it has {own}", token.content);
            return Err(TextError::bad_model(message, "use the tokenizer.json that belongs to tokenizer_config.json"));
        }
    }
    for text in tokens.texts() {
        if !text.is_empty() && !is_added(pipeline, text) && pipeline.get_model().token_to_id(text).is_some() {
            let token = AddedToken::from(text, true);
            pipeline.add_tokens([token]).map_err(|error| failed("add the special tokens", &*error))?;
        }
    }
    Ok(())
}

/// Letters, digits, blanks, bytes of all lengths in UTF-8, what is decomposed, and a long word.
const PROBES: [&str; 4] =
    ["", "a", " Hello, World 123\r\n\t", "\u{e9}e\u{301}\u{6f22}\u{1f600}\u{0}\u{feff} a-b_c  <s>"];

/// What is made once. An error of the files stays; one of the machine, of time or of cancellation does not: the next call tries again.
fn made_once<T>(place: &OnceLock<Result<T>>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if place.get().is_none() {
        match make() {
            Err(error) if matches!(error.code, Code::OutOfMemory | Code::Timeout | Code::Cancelled) => return Err(error),
            made => drop(place.set(made)),
        }
    }
    match place.get() {
        Some(Ok(made)) => Ok(made),
        Some(Err(error)) => Err(TextError::new(error.code, error.message.clone(), error.hint)),
        None => Err(TextError::new(Code::Internal, "what was made is gone", "")),
    }
}

fn loading<T>(json: &[u8], read: impl FnOnce() -> Result<T>) -> Result<T> {
    make_statics();
    let budget = LOADING.budget(json.len(), BYTES_A_FILE_BYTE, None);
    budget::within(&budget, |stop| budget::over(stop, "loading tokenizer.json", &budget, LOADING_HINT), read)
}

/// The `tokenizers` crate makes its tables and expressions when they are first used, and a call that is ended while it
/// does would leave them unusable for the process. So they are made here, without a budget.
fn make_statics() {
    const ALL_PARTS: &str = r#"{"version":"1.0",
        "added_tokens":[{"id":1,"content":"x","single_word":true,"lstrip":true,"rstrip":true,"normalized":true,"special":false}],
        "normalizer":{"type":"ByteLevel"},
        "pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Whitespace"},
          {"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":true}]},
        "post_processor":null,
        "decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":true},
        "model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"a"}}"#;
    static MADE: Once = Once::new();
    MADE.call_once(|| {
        if let Ok(tokenizer) = ALL_PARTS.parse::<tokenizers::Tokenizer>() {
            let _ = tokenizer.encode("a x a\u{e9}", false);
            let _ = tokenizer.decode(&[0, 1], false);
        }
    });
}

fn read_config(config: &str) -> Result<Config> {
    let unusable = |error: serde_json::Error| {
        let message = format!("tokenizer.json cannot be used: {error}");
        TextError::bad_model(message, "it may need a newer version of Plait, or be damaged")
    };
    let parts: Json = serde_json::from_str(config).map_err(unusable)?;
    if let Some(token) = parts.get("post_processor").and_then(undeclared_token) {
        return Err(TextError::bad_model(
            format!("tokenizer.json: its TemplateProcessing names the special token {token:?}, and declares none of that name"),
            "add it to \"special_tokens\" of the post-processor",
        ));
    }
    reading(|| serde_json::from_str(config).map_err(unusable))
}

/// The first token that a template of the post-processor names without declaring it. The crate looks declarations up
/// when it encodes, and panics.
fn undeclared_token(processor: &Json) -> Option<String> {
    if let Some(Json::Array(parts)) = processor.get("processors") {
        return parts.iter().find_map(undeclared_token);
    }
    let declared = processor.get("special_tokens");
    let pieces = ["single", "pair"].into_iter().filter_map(|form| processor.get(form)?.as_array()).flatten();
    let mut names = pieces.filter_map(|piece| piece.get("SpecialToken")?.get("id")?.as_str());
    names.find(|name| declared.and_then(|all| all.get(name)).is_none()).map(str::to_string)
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
