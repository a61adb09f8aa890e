//! The model of a tokenizer: our flat BPE, or one of the `tokenizers` crate.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tokenizers::models::bpe::BpeTrainer;
use tokenizers::models::TrainerWrapper;
use tokenizers::{Model, ModelWrapper, Result, Token};

use plait_bpe::Bpe;

pub enum TextModel {
    Flat(Box<Bpe>),
    /// Unigram, WordPiece, WordLevel; BPE with dropout or with an odd vocabulary; the tests' oracle.
    Crate(Box<ModelWrapper>),
}

impl Model for TextModel {
    type Trainer = TrainerWrapper;

    fn tokenize(&self, sequence: &str) -> Result<Vec<Token>> {
        match self {
            Self::Flat(bpe) => bpe.tokenize(sequence),
            Self::Crate(model) => model.tokenize(sequence),
        }
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        match self {
            Self::Flat(bpe) => bpe.tables.id(token),
            Self::Crate(model) => model.token_to_id(token),
        }
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        match self {
            Self::Flat(bpe) => bpe.tables.piece(id).map(str::to_string),
            Self::Crate(model) => model.id_to_token(id),
        }
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        match self {
            Self::Flat(bpe) => {
                let ids = 0..bpe.tables.id_count() as u32;
                ids.filter_map(|id| Some((bpe.tables.piece(id)?.to_string(), id))).collect()
            }
            Self::Crate(model) => model.get_vocab(),
        }
    }

    fn get_vocab_size(&self) -> usize {
        match self {
            Self::Flat(bpe) => bpe.piece_count,
            Self::Crate(model) => model.get_vocab_size(),
        }
    }

    fn save(&self, _folder: &Path, _prefix: Option<&str>) -> Result<Vec<PathBuf>> {
        Err("a model is saved through the fast form".into())
    }

    fn get_trainer(&self) -> TrainerWrapper {
        BpeTrainer::default().into()
    }
}
