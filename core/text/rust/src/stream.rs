//! Text from ids as they come: whole characters only, and all chunks together equal the text of all ids.

use std::sync::Arc;

use crate::error::Result;
use crate::pieces::{append_byte_level, ByteRuns, Decoding};
use crate::tokenizer::TextTokenizer;

/// Pieces that a decoder may swallow before we stop keeping them; bounds the work and memory of each token.
const MOST_SILENT_PIECES: usize = 64;

pub struct TextStream {
    tokenizer: Arc<TextTokenizer>,
    skip_special: bool,
    state: State,
    /// The chunk that the last call returned.
    chunk: String,
}

enum State {
    ByteLevel {
        pending: Vec<u8>,
        /// Bytes at its beginning that are the prompt's.
        prompt: usize,
    },
    Opaque(Window),
}

impl TextStream {
    pub fn new(tokenizer: Arc<TextTokenizer>, skip_special: bool) -> Self {
        let state = State::new(&tokenizer);
        Self { tokenizer, skip_special, state, chunk: String::new() }
    }

    /// The text that this id completes, often none. Ids without a piece have no text.
    pub fn push(&mut self, id: i32) -> Result<&str> {
        self.chunk.clear();
        if let Some(piece) = self.tokenizer.text_piece(id, self.skip_special)? {
            match &mut self.state {
                State::ByteLevel { pending, prompt } => {
                    append_byte_level(&piece, pending);
                    take_characters(pending, prompt, &mut self.chunk);
                }
                State::Opaque(window) => window.push(&self.tokenizer, piece, &mut self.chunk)?,
            }
        }
        Ok(&self.chunk)
    }

    /// What came so far is a prompt. The beginning of a character at its end is part of the text if what follows completes
    /// it, and otherwise not: U+FFFD stands only for what follows.
    pub fn end_prompt(&mut self) {
        match &mut self.state {
            State::ByteLevel { pending, prompt } => *prompt = pending.len(),
            State::Opaque(window) => window.end_prompt(),
        }
    }

    /// The rest; an incomplete character becomes U+FFFD. The stream then is as new.
    pub fn finish(&mut self) -> Result<&str> {
        self.chunk.clear();
        match std::mem::replace(&mut self.state, State::new(&self.tokenizer)) {
            State::ByteLevel { pending, prompt } if pending.len() > prompt => self.chunk.push(char::REPLACEMENT_CHARACTER),
            State::ByteLevel { .. } => {}
            State::Opaque(mut window) => window.finish(&self.tokenizer, &mut self.chunk)?,
        }
        Ok(&self.chunk)
    }
}

impl State {
    fn new(tokenizer: &TextTokenizer) -> Self {
        match tokenizer.decoding {
            Decoding::ByteLevel => Self::ByteLevel { pending: Vec::new(), prompt: 0 },
            Decoding::Opaque { byte_fallback, lossy } => Self::Opaque(Window {
                runs: byte_fallback.then(ByteRuns::default),
                lossy,
                started: false,
                context: Vec::new(),
                pending: Vec::new(),
                prompt: 0,
            }),
        }
    }
}

/// Moves what is decided from `bytes` to `out`, invalid sequences as U+FFFD; keeps the start of a character. The first `prompt`
/// bytes only count as the beginning of a character.
fn take_characters(bytes: &mut Vec<u8>, prompt: &mut usize, out: &mut String) {
    let mut done = 0;
    loop {
        match std::str::from_utf8(&bytes[done..]) {
            Ok(text) => {
                out.push_str(text);
                done = bytes.len();
                break;
            }
            Err(error) => {
                let valid = done + error.valid_up_to();
                out.push_str(std::str::from_utf8(&bytes[done..valid]).unwrap_or_default());
                done = valid;
                let Some(stray) = error.error_len() else { break };
                if done + stray > *prompt {
                    out.push(char::REPLACEMENT_CHARACTER);
                }
                done += stray;
            }
        }
    }
    bytes.drain(..done);
    *prompt = prompt.saturating_sub(done);
}

/// Streams through a decoder that we know nothing of, by decoding a short window twice: without and with the new
/// pieces. The window starts with the pieces of the last chunk (some decoders look at a neighbour) and, before
/// them, an anchor: a plain letter, so that what a decoder does only to the first piece (dropping its space) is
/// done to the anchor. Until the first text comes, the window is everything.
struct Window {
    runs: Option<ByteRuns>,
    lossy: bool,
    started: bool,
    context: Vec<String>,
    pending: Vec<String>,
    /// Of `pending`, at its beginning: the prompt's.
    prompt: usize,
}

impl Window {
    fn end_prompt(&mut self) {
        if let Some(runs) = &mut self.runs {
            runs.end_prompt();
        }
        self.prompt = self.pending.len();
    }

    fn push(&mut self, tokenizer: &TextTokenizer, piece: String, out: &mut String) -> Result<()> {
        match &mut self.runs {
            Some(runs) => runs.push(piece, &mut self.pending),
            None => self.pending.push(piece),
        }
        self.emit(tokenizer, false, out)
    }

    fn finish(&mut self, tokenizer: &TextTokenizer, out: &mut String) -> Result<()> {
        if let Some(runs) = &mut self.runs {
            runs.finish(&mut self.pending);
        }
        self.emit(tokenizer, true, out)
    }

    fn emit(&mut self, tokenizer: &TextTokenizer, last: bool, out: &mut String) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let text = self.new_text(tokenizer)?;
        let incomplete = self.lossy && !last && text.ends_with(char::REPLACEMENT_CHARACTER);
        if !text.is_empty() && !(incomplete && self.pending.len() < MOST_SILENT_PIECES) {
            out.push_str(self.without_prompt(tokenizer, &text)?);
            self.started = true;
            self.context = std::mem::take(&mut self.pending);
            self.prompt = 0;
        } else if self.pending.len() > MOST_SILENT_PIECES {
            self.pending.remove(0);
            self.prompt = self.prompt.saturating_sub(1);
        }
        Ok(())
    }

    /// The text without what only the prompt's pieces stand for, if they are no characters.
    fn without_prompt<'a>(&self, tokenizer: &TextTokenizer, text: &'a str) -> Result<&'a str> {
        if self.prompt == 0 {
            return Ok(text);
        }
        let own = self.text_of(tokenizer, &self.pending[..self.prompt])?;
        let only_marks = own.chars().all(|character| character == char::REPLACEMENT_CHARACTER);
        Ok(text.strip_prefix(&own).filter(|_| only_marks).unwrap_or(text))
    }

    fn new_text(&self, tokenizer: &TextTokenizer) -> Result<String> {
        self.text_of(tokenizer, &self.pending)
    }

    /// What pieces add after the context.
    fn text_of(&self, tokenizer: &TextTokenizer, pieces: &[String]) -> Result<String> {
        if !self.started {
            return tokenizer.join(pieces.to_vec());
        }
        let mut window = vec![tokenizer.anchor.to_string()];
        window.extend_from_slice(&self.context);
        let before = tokenizer.join(window.clone())?;
        window.extend_from_slice(pieces);
        let after = tokenizer.join(window)?;
        // A decoder that rewrites what it gave before cannot be streamed exactly; what it adds still can.
        let common = before.char_indices().zip(after.chars()).find(|((_, a), b)| a != b);
        let common = common.map_or(before.len().min(after.len()), |((at, _), _)| at);
        Ok(after[common..].to_string())
    }
}
