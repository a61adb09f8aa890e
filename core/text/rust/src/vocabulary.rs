//! What grammars need of a tokenizer: the bytes of all tokens as a prefix tree, and the canonical tokens of a text.

use std::sync::{Arc, Weak};

use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::ParserFactory;

use crate::budget::{self, Budget};
use crate::error::{Code, Result, TextError};
use crate::token_bytes::PieceBytes;
use crate::tokenizer::TextTokenizer;

/// The tree's nodes have 10 bits for their depth.
const MOST_TOKEN_BYTES: usize = 1000;
/// And 22 bits for the nodes below them.
const MOST_BYTES: usize = 4_000_000;
const BUDGET: Budget = Budget { bytes: 1 << 30, milliseconds: 60_000, cancels: None };

pub struct Vocabulary {
    pub factory: ParserFactory,
    /// One past the largest id; as a token, the end of the text.
    pub end: u32,
}

impl Vocabulary {
    pub fn new(tokenizer: &Arc<TextTokenizer>) -> Result<Self> {
        let hint = "use a tokenizer of another model, or no grammar";
        let over = |stop| budget::over(stop, "the tree of the tokenizer's tokens", &BUDGET, hint);
        budget::within(&BUDGET, over, || Self::make(tokenizer))
    }

    fn make(tokenizer: &Arc<TextTokenizer>) -> Result<Self> {
        let end = tokenizer.id_count;
        let bytes = PieceBytes::new(tokenizer)?;
        let mut words = Vec::with_capacity(end as usize + 1);
        for id in 0..end {
            let mut word = bytes.of(id)?;
            if tokenizer.is_special(id as i32) {
                word.insert(0, TokTrie::SPECIAL_TOKEN_MARKER);
            }
            // One that is too long is never allowed.
            words.push(if word.len() > MOST_TOKEN_BYTES { Vec::new() } else { word });
        }
        words.push(Vec::new());
        let unsupported = |what: String| TextError::new(Code::Unsupported, what, "grammars cannot be used with it");
        if words.iter().map(Vec::len).sum::<usize>() > MOST_BYTES {
            return Err(unsupported(format!("the tokenizer's tokens have more than {MOST_BYTES} bytes together")));
        }
        let trie = TokTrie::from(&TokRxInfo::new(end + 1, end), &words);
        let environment: TokEnv = Arc::new(Environment { trie, tokenizer: Arc::downgrade(tokenizer) });
        let capabilities = InferenceCapabilities { ff_tokens: true, ..Default::default() };
        let slices = llguidance::earley::SlicedBiasComputer::json_slices();
        let mut factory = ParserFactory::new(&environment, capabilities, &slices)
            .map_err(|error| unsupported(format!("the tokenizer's tokens cannot be indexed: {error}")))?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.verbose_errors = false;
        // About 2 KiB each, kept with a sample.
        limits.max_lexer_states = 50_000;
        Ok(Self { factory, end })
    }
}

struct Environment {
    trie: TokTrie,
    /// Weak: the tokenizer owns this. Grammars keep it.
    tokenizer: Weak<TextTokenizer>,
}

impl Environment {
    /// As the tokenizer writes it within a text, if that is possible.
    fn canonical(&self, text: &str) -> Option<Vec<TokenId>> {
        let tokenizer = self.tokenizer.upgrade()?;
        let ids: Vec<TokenId> =
            tokenizer.encode(text.as_bytes(), false).ok()?.into_iter().map(|id| id as TokenId).collect();
        // A pipeline may add a blank, normalise, or have no token for a character.
        (self.trie.decode_raw(&ids) == text.as_bytes()).then_some(ids)
    }
}

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let text = |text: &str| self.canonical(text).unwrap_or_else(|| self.trie.greedy_tokenize(text.as_bytes()));
        self.trie.tokenize_with_greedy_fallback(bytes, text)
    }
}
