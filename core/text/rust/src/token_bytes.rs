//! The bytes of tokens: what each adds to a text, which need not be whole characters.

use tokenizers::DecoderWrapper;

use crate::error::Result;
use crate::pieces::{append_byte_level, byte_of, Decoding};
use crate::tokenizer::TextTokenizer;

/// How the pieces of a vocabulary become bytes, within a text: not at its beginning, where decoders drop a blank.
pub struct PieceBytes<'a> {
    tokenizer: &'a TextTokenizer,
    rule: Rule,
}

enum Rule {
    ByteLevel,
    /// Each of the texts is replaced; "<0xE2>" is a byte if `byte_fallback`.
    Replace {
        texts: Vec<(String, String)>,
        byte_fallback: bool,
    },
    /// Only the decoder knows: it decodes each piece after an anchor.
    Decode {
        anchored: String,
        byte_fallback: bool,
    },
}

impl<'a> PieceBytes<'a> {
    pub fn new(tokenizer: &'a TextTokenizer) -> Result<Self> {
        let decoder = tokenizer.decoder();
        let rule = match tokenizer.decoding {
            Decoding::ByteLevel | Decoding::Opaque { lossy: true, .. } => Rule::ByteLevel,
            Decoding::Opaque { byte_fallback, .. } => match replacements(decoder) {
                Some(texts) => Rule::Replace { texts, byte_fallback },
                None => {
                    let anchored = tokenizer.join(vec![tokenizer.anchor.to_string()])?;
                    Rule::Decode { anchored, byte_fallback }
                }
            },
        };
        Ok(Self { tokenizer, rule })
    }

    /// Empty if the id has no piece. A special token's are its name.
    pub fn of(&self, id: u32) -> Result<Vec<u8>> {
        let Some(piece) = self.tokenizer.piece(id as i32) else { return Ok(Vec::new()) };
        if self.tokenizer.is_added(id) {
            return Ok(piece.into_bytes());
        }
        Ok(match &self.rule {
            Rule::ByteLevel => {
                let mut out = Vec::with_capacity(piece.len());
                append_byte_level(&piece, &mut out);
                out
            }
            Rule::Replace { byte_fallback: true, .. } | Rule::Decode { byte_fallback: true, .. }
                if byte_of(&piece).is_some() =>
            {
                byte_of(&piece).into_iter().collect()
            }
            Rule::Replace { texts, .. } => {
                let mut out = piece;
                for (from, to) in texts {
                    if out.contains(from.as_str()) {
                        out = out.replace(from.as_str(), to);
                    }
                }
                out.into_bytes()
            }
            Rule::Decode { anchored, .. } => {
                let text = self.tokenizer.join(vec![self.tokenizer.anchor.to_string(), piece])?;
                text.strip_prefix(anchored.as_str()).unwrap_or_default().as_bytes().to_vec()
            }
        })
    }
}

/// The replacements of a decoder that does nothing else within a text; None for other decoders.
fn replacements(decoder: Option<&DecoderWrapper>) -> Option<Vec<(String, String)>> {
    match decoder? {
        DecoderWrapper::Sequence(steps) => {
            let mut out = Vec::new();
            for step in steps.get_decoders() {
                out.extend(replacements(Some(step))?);
            }
            Some(out)
        }
        DecoderWrapper::Metaspace(space) => Some(vec![(space.get_replacement().to_string(), " ".to_string())]),
        DecoderWrapper::Replace(replace) => {
            // Its pattern is private, but written.
            let written = serde_json::to_value(replace).ok()?;
            let from = written.get("pattern")?.get("String")?.as_str()?.to_string();
            (!from.is_empty()).then(|| vec![(from, replace.content.clone())])
        }
        // These change the beginning and the end of a text, or join.
        DecoderWrapper::Strip(_) | DecoderWrapper::Fuse(_) | DecoderWrapper::ByteFallback(_) => Some(Vec::new()),
        _ => None,
    }
}
