//! Reads tokenizer.json in one pass that borrows its strings. (The `tokenizers` crate's own reading of a BPE model
//! buffers the JSON twice as trees of owned values: 1.0 s and 440 MiB for 262,144 pieces.)

use std::borrow::Cow;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokenizers::ModelWrapper;

use crate::bpe_build::{self, MergeList, Vocabulary};
use crate::error::{reading, Result, TextError};
use crate::model::TextModel;
use plait_bpe::{Bpe, BpeSettings};

const HINT: &str = "tokenizer.json must be the file that Hugging Face's tokenizers library writes";

#[derive(Deserialize)]
struct File<'a> {
    #[serde(default, borrow)]
    version: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    added_tokens: Option<&'a RawValue>,
    #[serde(default, borrow)]
    normalizer: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pre_tokenizer: Option<&'a RawValue>,
    #[serde(default, borrow)]
    post_processor: Option<&'a RawValue>,
    #[serde(default, borrow)]
    decoder: Option<&'a RawValue>,
    #[serde(borrow)]
    model: ModelFile<'a>,
}

#[derive(Deserialize)]
struct ModelFile<'a> {
    #[serde(default, rename = "type", borrow)]
    kind: Option<Text<'a>>,
    #[serde(default)]
    dropout: Option<f32>,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: Option<bool>,
    #[serde(default)]
    byte_fallback: Option<bool>,
    #[serde(default)]
    ignore_merges: Option<bool>,
    #[serde(default, borrow)]
    vocab: Pieces<'a>,
    #[serde(default, borrow)]
    merges: Option<Merges<'a>>,
}

/// A string that borrows from the file unless it holds an escape.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Empty unless the file's "vocab" is an object (Unigram's is a list of pairs).
#[derive(Default)]
struct Pieces<'a>(Vocabulary<'a>);

struct Merges<'a>(MergeList<'a>);

/// What the rest of the crate needs of a tokenizer.json.
pub struct Parsed {
    /// The JSON that `tokenizer::Config` reads: everything but the vocabulary and the merges.
    pub config: String,
    pub model: TextModel,
}

/// `crate_model` asks for the `tokenizers` crate's model even where the flat one would do.
pub fn parse(json: &str, crate_model: bool) -> Result<Parsed> {
    let file: File = serde_json::from_str(json).map_err(|error| damaged(&error))?;
    if let Some(version) = file.version.as_deref().filter(|version| *version != "1.0") {
        return Err(TextError::bad_model(format!("tokenizer.json has version {version:?}, expected \"1.0\""), HINT));
    }
    let settings = settings(&file.model);
    let config = config(&file, &settings)?;
    let flat = if crate_model { None } else { flat_model(file.model, settings)? };
    let model = match flat {
        Some(bpe) => TextModel::Flat(Box::new(bpe)),
        None => crate_model_of(json)?,
    };
    Ok(Parsed { config, model })
}

fn damaged(error: &serde_json::Error) -> TextError {
    TextError::bad_model(format!("tokenizer.json cannot be read: {error}"), HINT)
}

fn settings(model: &ModelFile) -> BpeSettings {
    BpeSettings {
        unk_token: model.unk_token.clone(),
        continuing_subword_prefix: model.continuing_subword_prefix.clone(),
        end_of_word_suffix: model.end_of_word_suffix.clone(),
        fuse_unk: model.fuse_unk.unwrap_or(false),
        byte_fallback: model.byte_fallback.unwrap_or(false),
        ignore_merges: model.ignore_merges.unwrap_or(false),
    }
}

fn config(file: &File, settings: &BpeSettings) -> Result<String> {
    let raw = |part: Option<&RawValue>| part.map_or("null", RawValue::get).to_string();
    let added = file.added_tokens.map_or("[]", RawValue::get);
    let model = serde_json::to_string(settings).map_err(|error| damaged(&error))?;
    Ok(format!(
        "{{\"added_tokens\":{added},\"normalizer\":{},\"pre_tokenizer\":{},\"post_processor\":{},\"decoder\":{},\
         \"model\":{model}}}",
        raw(file.normalizer),
        raw(file.pre_tokenizer),
        raw(file.post_processor),
        raw(file.decoder)
    ))
}

/// None where the flat model does not apply. Dropout draws random numbers, which only the crate's model does.
fn flat_model(file: ModelFile, settings: BpeSettings) -> Result<Option<Bpe>> {
    let is_bpe = file.kind.is_none_or(|kind| kind.0 == "BPE");
    let (true, true, Some(merges)) = (is_bpe, file.dropout.unwrap_or(0.0) == 0.0, file.merges) else {
        return Ok(None);
    };
    let prefix = settings.continuing_subword_prefix.as_deref().unwrap_or_default().len();
    let tables = bpe_build::build(&file.vocab.0, &merges.0, prefix)?;
    Ok(tables.map(|tables| Bpe::new(tables, settings)))
}

fn crate_model_of(json: &str) -> Result<TextModel> {
    #[derive(Deserialize)]
    struct OnlyModel {
        model: ModelWrapper,
    }
    let only: OnlyModel = reading(|| serde_json::from_str(json).map_err(|error| damaged(&error)))?;
    Ok(TextModel::Crate(Box::new(only.model)))
}

impl<'de: 'a, 'a> Deserialize<'de> for Pieces<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct PiecesVisitor;
        impl<'de> Visitor<'de> for PiecesVisitor {
            type Value = Pieces<'de>;

            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str("a vocabulary")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
                let mut pieces = Vec::new();
                while let Some((piece, id)) = map.next_entry::<Text, u32>()? {
                    pieces.push((piece.0, id));
                }
                Ok(Pieces(pieces))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Self::Value, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Pieces(Vec::new()))
            }
        }
        deserializer.deserialize_any(PiecesVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Merges<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct MergesVisitor;
        impl<'de> Visitor<'de> for MergesVisitor {
            type Value = Merges<'de>;

            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str("a list of merges")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Self::Value, A::Error> {
                let mut merges = Vec::new();
                while let Some(MergeItem(merge)) = list.next_element()? {
                    merges.extend(merge);
                }
                Ok(Merges(merges))
            }
        }
        deserializer.deserialize_seq(MergesVisitor)
    }
}

/// Either ["left", "right"] or, in older files, "left right"; None for the "#version" line of the latter.
struct MergeItem<'a>(Option<(Cow<'a, str>, Cow<'a, str>)>);

impl<'de: 'a, 'a> Deserialize<'de> for MergeItem<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct ItemVisitor;
        impl<'de> Visitor<'de> for ItemVisitor {
            type Value = MergeItem<'de>;

            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str("a merge: two pieces")
            }

            fn visit_borrowed_str<E: serde::de::Error>(self, line: &'de str) -> std::result::Result<Self::Value, E> {
                let pair = split_line::<E>(line)?;
                Ok(MergeItem(pair.map(|(left, right)| (Cow::Borrowed(left), Cow::Borrowed(right)))))
            }

            fn visit_str<E: serde::de::Error>(self, line: &str) -> std::result::Result<Self::Value, E> {
                let pair = split_line::<E>(line)?;
                Ok(MergeItem(pair.map(|(left, right)| (left.to_string().into(), right.to_string().into()))))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Self::Value, A::Error> {
                let (left, right) = (list.next_element::<Text>()?, list.next_element::<Text>()?);
                match (left, right, list.next_element::<IgnoredAny>()?) {
                    (Some(left), Some(right), None) => Ok(MergeItem(Some((left.0, right.0)))),
                    _ => Err(serde::de::Error::custom("a merge must have two pieces")),
                }
            }
        }
        deserializer.deserialize_any(ItemVisitor)
    }
}

fn split_line<E: serde::de::Error>(line: &str) -> std::result::Result<Option<(&str, &str)>, E> {
    if line.starts_with("#version") {
        return Ok(None);
    }
    match line.split_once(' ') {
        Some((left, right)) if !right.contains(' ') => Ok(Some((left, right))),
        _ => Err(E::custom(format!("merge {line:?} is not two pieces with one space between"))),
    }
}
