//! Builds the tables of `bpe_tables` from the vocabulary and the merges of a tokenizer.json.

use std::borrow::Cow;

use crate::error::{Result, TextError};
use plait_bpe::hash;
use plait_bpe::tables::{merge_hash, probe, BpeTables, Merge, PieceSlot, ABSENT, UNUSED};

pub type Vocabulary<'a> = Vec<(Cow<'a, str>, u32)>;
pub type MergeList<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

const HINT: &str = "tokenizer.json is damaged or was edited by hand; export it again";

/// None when the vocabulary is of a kind that flat arrays do not suit: ids far apart, a piece or an id twice.
pub fn build(vocabulary: &Vocabulary, merges: &MergeList, continuing_prefix: usize) -> Result<Option<BpeTables>> {
    let Some(mut tables) = pieces(vocabulary) else { return Ok(None) };
    add_merges(&mut tables, merges, continuing_prefix)?;
    Ok(Some(tables))
}

fn pieces(vocabulary: &Vocabulary) -> Option<BpeTables> {
    let largest = vocabulary.iter().map(|(_, id)| *id as usize + 1).max().unwrap_or(0);
    let bytes: usize = vocabulary.iter().map(|(piece, _)| piece.len()).sum();
    if largest > 2 * vocabulary.len() + 65_536 || bytes >= ABSENT as usize {
        return None;
    }
    let mut by_id: Vec<Option<&str>> = vec![None; largest];
    for (piece, id) in vocabulary {
        if by_id[*id as usize].replace(piece).is_some() {
            return None;
        }
    }
    let mut tables = BpeTables {
        offsets: Vec::with_capacity(largest + 1),
        text: String::with_capacity(bytes),
        // Half full at most: a miss ends after about two probes.
        piece_slots: vec![PieceSlot::default(); 2 * vocabulary.len() + 1],
        merge_slots: Vec::new(),
    };
    for piece in &by_id {
        tables.offsets.push(tables.text.len() as u32 | if piece.is_none() { ABSENT } else { 0 });
        tables.text.push_str(piece.unwrap_or_default());
    }
    tables.offsets.push(tables.text.len() as u32);
    for (id, piece) in by_id.iter().enumerate() {
        if let Some(piece) = piece {
            if !insert_piece(&mut tables, id as u32, piece) {
                return None;
            }
        }
    }
    Some(tables)
}

/// False when the piece is there already.
fn insert_piece(tables: &mut BpeTables, id: u32, piece: &str) -> bool {
    let hash = hash::hash(piece.as_bytes());
    for at in probe(hash, tables.piece_slots.len()) {
        let slot = tables.piece_slots[at];
        if slot.entry == 0 {
            tables.piece_slots[at] = PieceSlot { tag: hash as u32, entry: id + 1 };
            return true;
        }
        if slot.tag == hash as u32 && tables.piece(slot.entry - 1) == Some(piece) {
            return false;
        }
    }
    false
}

fn add_merges(tables: &mut BpeTables, merges: &MergeList, continuing_prefix: usize) -> Result<()> {
    if merges.len() >= UNUSED as usize {
        return Err(TextError::bad_model("tokenizer.json lists more merges than 32 bits can count", HINT));
    }
    let unused = Merge { left: UNUSED, right: UNUSED, rank: 0, merged: 0 };
    // 5/3 slots a merge: a miss, the common case, ends after about four probes, within two cache lines.
    tables.merge_slots = vec![unused; merges.len() * 5 / 3 + 1];
    let mut joined = String::new();
    for (rank, (left, right)) in merges.iter().enumerate() {
        let tail = right.get(continuing_prefix..).ok_or_else(|| {
            TextError::bad_model(
                format!("merge {rank} of tokenizer.json: {right:?} lacks the prefix of continuing pieces"),
                HINT,
            )
        })?;
        joined.clear();
        joined.push_str(left);
        joined.push_str(tail);
        let find = |piece: &str| {
            tables.id(piece).ok_or_else(|| {
                let what = format!("merge {rank} of tokenizer.json ({left:?}, {right:?})");
                TextError::bad_model(format!("{what} needs {piece:?}, which is not in the vocabulary"), HINT)
            })
        };
        let merge = Merge { left: find(left)?, right: find(right)?, rank: rank as u32, merged: find(&joined)? };
        insert_merge(&mut tables.merge_slots, merge);
    }
    Ok(())
}

/// A pair that is listed twice has the later rank, as in the `tokenizers` crate.
fn insert_merge(slots: &mut [Merge], merge: Merge) {
    let fits = |slot: &Merge| slot.left == UNUSED || (slot.left, slot.right) == (merge.left, merge.right);
    if let Some(at) = probe(merge_hash(merge.left, merge.right), slots.len()).find(|at| fits(&slots[*at])) {
        slots[at] = merge;
    }
}
