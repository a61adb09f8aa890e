//! From pieces to text: what whole decoding and streaming share.

use tokenizers::{Decoder, DecoderWrapper};

/// How the decoder of a tokenizer turns pieces into text.
pub enum Decoding {
    /// Each character of a piece stands for a byte (GPT-2, Llama 3, Qwen): text is the concatenation of the bytes.
    ByteLevel,
    /// Anything else: only the decoder itself knows.
    Opaque {
        /// Pieces like "<0xE2>" are bytes of a character.
        byte_fallback: bool,
        /// The decoder works on bytes somewhere inside, so that U+FFFD may stand for a character still incomplete.
        lossy: bool,
    },
}

impl Decoding {
    pub fn of(decoder: Option<&DecoderWrapper>) -> Self {
        match decoder {
            Some(DecoderWrapper::ByteLevel(_)) => Self::ByteLevel,
            Some(DecoderWrapper::Sequence(steps)) if steps.get_decoders().len() == 1 => {
                Self::of(steps.get_decoders().first())
            }
            other => Self::Opaque {
                byte_fallback: contains(other, &|step| matches!(step, DecoderWrapper::ByteFallback(_))),
                lossy: contains(other, &|step| matches!(step, DecoderWrapper::ByteLevel(_))),
            },
        }
    }
}

fn contains(decoder: Option<&DecoderWrapper>, what: &dyn Fn(&DecoderWrapper) -> bool) -> bool {
    match decoder {
        Some(DecoderWrapper::Sequence(steps)) => steps.get_decoders().iter().any(|step| contains(Some(step), what)),
        Some(step) => what(step),
        None => false,
    }
}

/// The text of pieces; a tokenizer without a decoder puts spaces between them.
pub fn join(decoder: Option<&DecoderWrapper>, pieces: Vec<String>) -> tokenizers::Result<String> {
    match decoder {
        // Some decoders do not expect an empty list.
        _ if pieces.is_empty() => Ok(String::new()),
        Some(decoder) => decoder.decode(pieces),
        None => Ok(pieces.join(" ")),
    }
}

/// Groups byte pieces into characters, one group at a time.
///
/// The `tokenizers` crate's decoder judges a whole run of byte pieces at once: one bad byte, or a last character
/// that is cut off, replaces every character of the run by U+FFFD. We end the run after each character (with an
/// empty piece), as SentencePiece itself does: valid characters survive, each stray byte becomes one U+FFFD, and
/// a stream can give a character away as soon as it is whole. Valid text is the same either way.
#[derive(Default)]
pub struct ByteRuns {
    /// The beginning of a character: at most 3 bytes, and their pieces.
    bytes: Vec<u8>,
    pieces: Vec<String>,
    after_byte: bool,
    /// Bytes at the beginning that are a prompt's: they count only as part of a character.
    prompt: usize,
}

impl ByteRuns {
    /// What came so far is a prompt.
    pub fn end_prompt(&mut self) {
        self.prompt = self.bytes.len();
    }

    /// Appends to `out` what is complete with this piece.
    pub fn push(&mut self, piece: String, out: &mut Vec<String>) {
        let Some(byte) = byte_of(&piece) else {
            self.finish(out);
            out.push(piece);
            self.after_byte = false;
            return;
        };
        self.bytes.push(byte);
        self.pieces.push(piece);
        while !self.bytes.is_empty() {
            match std::str::from_utf8(&self.bytes) {
                Ok(_) => {
                    self.prompt = 0;
                    self.release(self.bytes.len(), out);
                }
                Err(error) => match error.error_len() {
                    Some(stray) => self.release(stray, out),
                    None => break,
                },
            }
        }
    }

    /// Gives up waiting for the rest of a character.
    pub fn finish(&mut self, out: &mut Vec<String>) {
        if !self.bytes.is_empty() {
            self.release(self.bytes.len(), out);
        }
    }

    fn release(&mut self, count: usize, out: &mut Vec<String>) {
        let prompts = count.min(self.prompt);
        self.prompt -= prompts;
        self.bytes.drain(..prompts);
        self.pieces.drain(..prompts);
        let count = count - prompts;
        if count == 0 {
            return;
        }
        if self.after_byte {
            out.push(String::new());
        }
        self.bytes.drain(..count);
        out.extend(self.pieces.drain(..count));
        self.after_byte = true;
    }
}

/// Of a piece like "<0xE2>".
pub fn byte_of(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 {
        u8::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

/// Appends the bytes that a piece of a byte-level vocabulary stands for: bytes that print stand for themselves, the
/// other 68 are the characters from U+0100 on. A piece with any other character (an added token) is taken as it is.
pub fn append_byte_level(piece: &str, out: &mut Vec<u8>) {
    let begin = out.len();
    for character in piece.chars() {
        match byte_level_byte(character) {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(begin);
                out.extend_from_slice(piece.as_bytes());
                return;
            }
        }
    }
}

fn byte_level_byte(character: char) -> Option<u8> {
    match character as u32 {
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7F) as u8),
        0x143 => Some(0xAD),
        _ => None,
    }
}
