//! The fast form: the tables of a BPE tokenizer as they lie in memory, and the rest of tokenizer.json as JSON.
//!
//! Little-endian. A header of 48 bytes:
//!   0 "PLAITTOK" | 8 version u32 | 12 sections u32 | 16 bytes of the file u64
//!   24 hash of the tokenizer.json it was made from u64 | 32 its length u64 | 40 zero
//! then for each section its offset and its length (u64 each), then the sections, each at a multiple of 16, and at
//! the end the hash of everything before it.

use crate::error::{Result, TextError};
use plait_bpe::hash;
use plait_bpe::tables::{BpeTables, Merge, PieceSlot};

const MAGIC: &[u8; 8] = b"PLAITTOK";
const VERSION: u32 = 1;
const HEADER: usize = 48;
const SECTIONS: usize = 5;

/// Identifies the tokenizer.json from which a fast form was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    pub hash: u64,
    pub size: u64,
}

impl Source {
    pub fn of(json: &[u8]) -> Self {
        Self { hash: hash::hash(json), size: json.len() as u64 }
    }
}

pub fn write(source: Source, config: &str, tables: &BpeTables) -> Vec<u8> {
    let numbers = |list: &[u32]| list.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let pieces = tables.piece_slots.iter().flat_map(|slot| [slot.tag, slot.entry]);
    let merges = tables.merge_slots.iter().flat_map(|merge| [merge.left, merge.right, merge.rank, merge.merged]);
    let sections: [&[u8]; SECTIONS] = [
        config.as_bytes(),
        &numbers(&tables.offsets),
        tables.text.as_bytes(),
        &numbers(&pieces.collect::<Vec<u32>>()),
        &numbers(&merges.collect::<Vec<u32>>()),
    ];
    let mut directory = Vec::new();
    let mut end = HEADER + SECTIONS * 16;
    for section in sections {
        let begin = end.next_multiple_of(16);
        directory.extend_from_slice(&(begin as u64).to_le_bytes());
        directory.extend_from_slice(&(section.len() as u64).to_le_bytes());
        end = begin + section.len();
    }
    let size = end.next_multiple_of(16) + 8;

    let mut out = Vec::with_capacity(size);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(SECTIONS as u32).to_le_bytes());
    for number in [size as u64, source.hash, source.size, 0] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&directory);
    for section in sections {
        out.resize(out.len().next_multiple_of(16), 0);
        out.extend_from_slice(section);
    }
    out.resize(size - 8, 0);
    let checksum = hash::hash(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

/// The config JSON and the tables. Fails on anything but an undamaged file of this version, made from `source`.
pub fn read(bytes: &[u8], source: Source) -> Result<(String, BpeTables)> {
    let reader = Reader { bytes };
    if bytes.get(..8) != Some(MAGIC) {
        return Err(reader.error("it does not start with \"PLAITTOK\""));
    }
    if bytes.len() < HEADER + SECTIONS * 16 + 8 || reader.u64(16) != bytes.len() as u64 {
        return Err(reader.error("its length is not the one it states: it was cut off"));
    }
    let (version, sections) = (reader.u64(8) as u32, (reader.u64(8) >> 32) as u32);
    if (version, sections) != (VERSION, SECTIONS as u32) {
        return Err(reader.error(&format!("it has version {version}, expected {VERSION}")));
    }
    let body = bytes.len() - 8;
    if hash::hash(&bytes[..body]) != reader.u64(body) {
        return Err(reader.error("its checksum does not match: it is damaged"));
    }
    if (Source { hash: reader.u64(24), size: reader.u64(32) }) != source {
        return Err(reader.error("it was made from another tokenizer.json"));
    }
    let tables = BpeTables {
        offsets: reader.table(1, |[offset]| offset)?,
        text: reader.text(2)?,
        piece_slots: reader.table(3, |[tag, entry]| PieceSlot { tag, entry })?,
        merge_slots: reader.table(4, |[left, right, rank, merged]| Merge { left, right, rank, merged })?,
    };
    tables.check().map_err(|what| reader.error(what))?;
    Ok((reader.text(0)?, tables))
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn error(&self, what: &str) -> TextError {
        TextError::bad_model(
            format!("the fast form of the tokenizer cannot be used: {what}"),
            "delete it; it is made again from tokenizer.json",
        )
    }

    /// `at` lies within the header or the directory, whose presence `read` has checked.
    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }

    fn section(&self, index: usize) -> Result<&'a [u8]> {
        let entry = HEADER + index * 16;
        let (begin, size) = (self.u64(entry), self.u64(entry + 8));
        let end = begin.checked_add(size).filter(|end| *end <= self.bytes.len() as u64 - 8);
        let end = end.ok_or_else(|| self.error("a section lies outside of it"))?;
        Ok(&self.bytes[begin as usize..end as usize])
    }

    fn text(&self, index: usize) -> Result<String> {
        let text = std::str::from_utf8(self.section(index)?);
        text.map(str::to_string).map_err(|_| self.error("a text in it is not UTF-8"))
    }

    /// A section of entries of N numbers each.
    fn table<const N: usize, T>(&self, index: usize, entry: impl Fn([u32; N]) -> T) -> Result<Vec<T>> {
        let section = self.section(index)?;
        if section.len() % (4 * N) != 0 {
            return Err(self.error("a table in it has no valid length"));
        }
        let number = |chunk: &[u8], at: usize| u32::from_le_bytes(chunk[4 * at..4 * at + 4].try_into().unwrap());
        Ok(section.chunks_exact(4 * N).map(|chunk| entry(std::array::from_fn(|at| number(chunk, at)))).collect())
    }
}

/// Files whose checksum is right although their contents are not: only this crate can make them.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe_build;
    use plait_bpe::{Bpe, BpeSettings};

    const SOURCE: Source = Source { hash: 1, size: 2 };

    fn tables() -> BpeTables {
        let piece = |text: &'static str, id: u32| (text.into(), id);
        let vocabulary = vec![piece("a", 0), piece("b", 1), piece("ab", 2), piece("\u{e9}", 4), piece("aba", 5)];
        let merges = vec![("a".into(), "b".into()), ("ab".into(), "a".into())];
        bpe_build::build(&vocabulary, &merges, 0).unwrap().unwrap()
    }

    fn seal(bytes: &mut [u8]) {
        let body = bytes.len() - 8;
        let checksum = hash::hash(&bytes[..body]);
        bytes[body..].copy_from_slice(&checksum.to_le_bytes());
    }

    #[test]
    fn round_trip() {
        let (config, read_back) = read(&write(SOURCE, "{}", &tables()), SOURCE).unwrap();
        let original = tables();
        assert_eq!(config, "{}");
        assert_eq!((read_back.offsets, read_back.text), (original.offsets, original.text));
        assert_eq!((read_back.piece_slots, read_back.merge_slots), (original.piece_slots, original.merge_slots));
    }

    #[test]
    fn forged_numbers_are_errors_or_harmless() {
        let good = write(SOURCE, "{}", &tables());
        for at in (HEADER..good.len() - 8).step_by(4) {
            for value in [0, 1, 3, 6, 7, 0x7FFF_FFFF, 0x8000_0000, u32::MAX, good.len() as u32] {
                let mut forged = good.clone();
                forged[at..at + 4].copy_from_slice(&value.to_le_bytes());
                seal(&mut forged);
                if let Ok((_, tables)) = read(&forged, SOURCE) {
                    let count = tables.id_count() as u32;
                    let bpe = Bpe::new(tables, BpeSettings { byte_fallback: true, ..Default::default() });
                    let tokens = bpe.tokenize("ababa\u{e9}x").unwrap();
                    assert!(tokens.iter().all(|token| token.id < count));
                    assert!((0..count + 2).all(|id| bpe.tables.piece(id).is_none_or(|piece| piece.len() < 100)));
                }
            }
        }
    }

    #[test]
    fn tables_without_an_unused_slot_are_refused() {
        let mut full = tables();
        full.piece_slots.retain(|slot| slot.entry != 0);
        assert!(read(&write(SOURCE, "", &full), SOURCE).is_err());
        let mut full = tables();
        full.merge_slots.retain(|merge| merge.left != plait_bpe::tables::UNUSED);
        assert!(read(&write(SOURCE, "", &full), SOURCE).is_err());
        assert!(read(&write(SOURCE, "", &BpeTables::default()), SOURCE).is_err());
    }
}
