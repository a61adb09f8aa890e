//! Byte-pair encoding over `tables`.
//!
//! The rules, down to the order in which unknown characters are fused, are those of the `tokenizers` crate, whose
//! own model cannot be built without hashing every piece and every merge at each load (0.4 s for 262,144 pieces on
//! an idle core). That crate's model stays the oracle: the tests compare every id with it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};
use tokenizers::Token;

use crate::tables::{BpeTables, ABSENT};

/// The scalars of tokenizer.json's "model".
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct BpeSettings {
    pub unk_token: Option<String>,
    pub continuing_subword_prefix: Option<String>,
    pub end_of_word_suffix: Option<String>,
    pub fuse_unk: bool,
    pub byte_fallback: bool,
    pub ignore_merges: bool,
}

pub struct Bpe {
    pub tables: BpeTables,
    /// Ids that have a piece.
    pub piece_count: usize,
    settings: BpeSettings,
    /// Ids of "<0x00>" to "<0xFF>".
    bytes: Vec<Option<u32>>,
}

const NONE: u32 = u32::MAX;

/// A piece of the word so far; merged-away ones have length 0.
struct Symbol {
    id: u32,
    previous: u32,
    next: u32,
    /// In bytes of the sequence.
    length: u32,
}

#[derive(Default)]
struct Word {
    symbols: Vec<Symbol>,
}

impl Word {
    fn push(&mut self, id: u32, length: u32) {
        let at = self.symbols.len() as u32;
        if let Some(last) = self.symbols.last_mut() {
            last.next = at;
        }
        let previous = if at == 0 { NONE } else { at - 1 };
        self.symbols.push(Symbol { id, previous, next: NONE, length });
    }
}

/// Characters without a piece that wait to become one unknown token, or several.
struct Unknown {
    id: u32,
    length: u32,
}

impl Bpe {
    pub fn new(tables: BpeTables, settings: BpeSettings) -> Self {
        let byte_piece = |byte: u32| tables.id(&format!("<0x{byte:02X}>"));
        let bytes = if settings.byte_fallback { (0..256).map(byte_piece).collect() } else { Vec::new() };
        let piece_count = (0..tables.id_count()).filter(|&id| tables.offsets[id] & ABSENT == 0).count();
        Self { tables, piece_count, settings, bytes }
    }

    pub fn tokenize(&self, sequence: &str) -> tokenizers::Result<Vec<Token>> {
        if sequence.is_empty() {
            return Ok(Vec::new());
        }
        if sequence.len() >= NONE as usize {
            return Err("a text without a split is longer than 4 GiB".into());
        }
        if self.settings.ignore_merges {
            if let Some(id) = self.tables.id(sequence) {
                return Ok(vec![Token::new(id, sequence.to_string(), (0, sequence.len()))]);
            }
        }
        let mut word = self.characters(sequence)?;
        self.merge_all(&mut word);
        let mut begin = 0;
        let tokens = word.symbols.iter().filter(|symbol| symbol.length != 0).map(|symbol| {
            let end = begin + symbol.length as usize;
            let token =
                Token::new(symbol.id, self.tables.piece(symbol.id).unwrap_or_default().to_string(), (begin, end));
            begin = end;
            token
        });
        Ok(tokens.collect())
    }

    /// The word as one symbol a character; unknown ones as bytes, as the unknown token, or dropped.
    fn characters(&self, sequence: &str) -> tokenizers::Result<Word> {
        let mut word = Word { symbols: Vec::with_capacity(sequence.len()) };
        let mut unknown: Option<Unknown> = None;
        let mut decorated = String::new();
        for (at, character) in sequence.char_indices() {
            let length = character.len_utf8();
            let plain = &sequence[at..at + length];
            let piece = self.decorate(plain, at == 0, at + length == sequence.len(), &mut decorated);
            if let Some(id) = self.tables.id(piece) {
                if let Some(waiting) = unknown.take() {
                    word.push(waiting.id, waiting.length);
                }
                word.push(id, length as u32);
            } else if !self.push_bytes(piece, &mut word) {
                self.add_unknown(length as u32, &mut unknown, &mut word)?;
            }
        }
        if let Some(waiting) = unknown {
            word.push(waiting.id, waiting.length);
        }
        Ok(word)
    }

    fn decorate<'a>(&self, plain: &'a str, first: bool, last: bool, decorated: &'a mut String) -> &'a str {
        let prefix = self.settings.continuing_subword_prefix.as_deref().filter(|_| !first).unwrap_or_default();
        let suffix = self.settings.end_of_word_suffix.as_deref().filter(|_| last).unwrap_or_default();
        if prefix.is_empty() && suffix.is_empty() {
            return plain;
        }
        decorated.clear();
        decorated.push_str(prefix);
        decorated.push_str(plain);
        decorated.push_str(suffix);
        decorated
    }

    /// False unless every byte of the piece has a byte piece.
    fn push_bytes(&self, piece: &str, word: &mut Word) -> bool {
        let id = |byte: u8| self.bytes.get(byte as usize).copied().flatten();
        if !piece.bytes().all(|byte| id(byte).is_some()) {
            return false;
        }
        for byte in piece.bytes() {
            word.push(id(byte).unwrap(), 1);
        }
        true
    }

    fn add_unknown(&self, length: u32, unknown: &mut Option<Unknown>, word: &mut Word) -> tokenizers::Result<()> {
        let Some(token) = &self.settings.unk_token else { return Ok(()) };
        let id =
            self.tables.id(token).ok_or_else(|| format!("the unknown token {token:?} is not in the vocabulary"))?;
        match unknown {
            Some(waiting) if self.settings.fuse_unk => waiting.length += length,
            _ => {
                if let Some(waiting) = unknown.replace(Unknown { id, length }) {
                    word.push(waiting.id, waiting.length);
                }
            }
        }
        Ok(())
    }

    /// Applies the merge of the lowest rank, the leftmost one among equals, until none is left. The queue may hold
    /// entries that a later merge has made void; they are recognised when they come up.
    fn merge_all(&self, word: &mut Word) {
        let symbols = &mut word.symbols;
        let mut queue = BinaryHeap::with_capacity(symbols.len());
        for at in 1..symbols.len() {
            self.enqueue(symbols, at as u32 - 1, at as u32, &mut queue);
        }
        while let Some(Reverse((_, at, merged))) = queue.pop() {
            let left = &symbols[at as usize];
            if left.length == 0 || left.next == NONE {
                continue;
            }
            let next = left.next;
            let right = &symbols[next as usize];
            if self.tables.merge(left.id, right.id).is_none_or(|merge| merge.merged != merged) {
                continue;
            }
            let (length, after) = (right.length, right.next);
            symbols[next as usize].length = 0;
            let left = &mut symbols[at as usize];
            left.id = merged;
            left.length += length;
            left.next = after;
            let before = left.previous;
            if after != NONE {
                symbols[after as usize].previous = at;
                self.enqueue(symbols, at, after, &mut queue);
            }
            if before != NONE {
                self.enqueue(symbols, before, at, &mut queue);
            }
        }
    }

    fn enqueue(&self, symbols: &[Symbol], left: u32, right: u32, queue: &mut BinaryHeap<Reverse<(u32, u32, u32)>>) {
        if let Some(merge) = self.tables.merge(symbols[left as usize].id, symbols[right as usize].id) {
            queue.push(Reverse((merge.rank, left, merge.merged)));
        }
    }
}
