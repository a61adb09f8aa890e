//! The vocabulary and the merges of a BPE model as flat arrays: what the fast form stores is what lookups read, so
//! loading is a copy and a check. The `tokenizers` crate's own BPE needs 1.5 million string look-ups and one million
//! small allocations for a vocabulary of 262,144 pieces, and keeps every piece twice.

use crate::hash;

/// Set in `offsets[id]` when no piece has this id. (Texts are therefore shorter than 2 GiB.)
pub const ABSENT: u32 = 1 << 31;
/// `left` of an unused merge slot.
pub const UNUSED: u32 = u32::MAX;

/// One applicable merge: `left` followed by `right` becomes `merged`; the lowest rank is applied first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    pub left: u32,
    pub right: u32,
    pub rank: u32,
    pub merged: u32,
}

/// Where to look for one piece. The tag, half of the piece's hash, spares the comparison of texts, and with it two
/// cache misses, for all but one in four billion of the wrong slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PieceSlot {
    pub tag: u32,
    /// The id + 1; 0 in an unused slot.
    pub entry: u32,
}

/// Invariants: `offsets` has one more entry than there are ids; both tables have an unused slot, so that probing
/// ends; every id is below `id_count`. `bpe_build` holds them, `check` makes sure after reading from a file, which
/// may be anything: beyond them, look-ups merely must not fail.
#[derive(Default)]
pub struct BpeTables {
    /// Where in `text` each piece begins; it ends where the next one begins.
    pub offsets: Vec<u32>,
    pub text: String,
    /// Open addressing from the hash of a piece.
    pub piece_slots: Vec<PieceSlot>,
    /// Open addressing from (left, right); 16 bytes, so that a look-up touches one cache line as a rule.
    pub merge_slots: Vec<Merge>,
}

/// A walk over the slots of a table from the home of `hash`, around the end.
pub fn probe(hash: u64, slots: usize) -> impl Iterator<Item = usize> {
    let home = hash::slot(hash, slots);
    (home..slots).chain(0..home)
}

pub fn merge_hash(left: u32, right: u32) -> u64 {
    hash::mix((u64::from(left) << 32) | u64::from(right))
}

impl BpeTables {
    /// One past the largest id.
    pub fn id_count(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    pub fn piece(&self, id: u32) -> Option<&str> {
        let begin = *self.offsets.get(id as usize)?;
        let end = *self.offsets.get(id as usize + 1)?;
        if begin & ABSENT != 0 {
            return None;
        }
        self.text.get(begin as usize..(end & !ABSENT) as usize)
    }

    pub fn id(&self, piece: &str) -> Option<u32> {
        let hash = hash::hash(piece.as_bytes());
        for at in probe(hash, self.piece_slots.len()) {
            let slot = self.piece_slots[at];
            if slot.entry == 0 {
                return None;
            }
            if slot.tag == hash as u32 && self.piece(slot.entry - 1) == Some(piece) {
                return Some(slot.entry - 1);
            }
        }
        None
    }

    pub fn merge(&self, left: u32, right: u32) -> Option<Merge> {
        for at in probe(merge_hash(left, right), self.merge_slots.len()) {
            let found = self.merge_slots[at];
            if found.left == left && found.right == right {
                return Some(found);
            }
            if found.left == UNUSED {
                return None;
            }
        }
        None
    }

    /// Whether the invariants hold; the error names the one that does not.
    pub fn check(&self) -> Result<(), &'static str> {
        let ids = self.id_count() as u32;
        if self.offsets.is_empty() || ids >= ABSENT {
            return Err("it has no valid number of ids");
        }
        if !self.piece_slots.iter().any(|slot| slot.entry == 0) || self.piece_slots.iter().any(|slot| slot.entry > ids)
        {
            return Err("its table of pieces is damaged");
        }
        let valid = |merge: &Merge| merge.left == UNUSED || merge.left.max(merge.right).max(merge.merged) < ids;
        if !self.merge_slots.iter().any(|merge| merge.left == UNUSED) || !self.merge_slots.iter().all(valid) {
            return Err("its table of merges is damaged");
        }
        Ok(())
    }
}
