//! A 64-bit hash whose value is part of the fast form, so it may never change without a new format version.
//!
//! Every step is a bijection of the state for a given word and of the word for a given state; therefore a change
//! within any one aligned 8-byte word always changes the result, which is what a checksum is for. It is not meant
//! to resist someone who forges a file: the reader also checks all bounds.

const MULTIPLY: u64 = 0x9E37_79B9_7F4A_7C15;
const FINISH: u64 = 0xD6E8_FEB8_6659_FD93;

fn word(bytes: &[u8]) -> u64 {
    let mut padded = [0u8; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(padded)
}

fn step(state: u64, word: u64) -> u64 {
    (state ^ word).wrapping_mul(MULTIPLY).rotate_left(29)
}

/// Spreads every input bit over the whole word; a bijection.
pub fn mix(mut x: u64) -> u64 {
    x ^= x >> 32;
    x = x.wrapping_mul(FINISH);
    x ^= x >> 32;
    x = x.wrapping_mul(FINISH);
    x ^ (x >> 32)
}

/// Four lanes hide the latency of the multiplication: about 10 GB/s, so that hashing a whole tokenizer.json at
/// each load costs milliseconds.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut state = (bytes.len() as u64).wrapping_mul(MULTIPLY);
    let mut blocks = bytes.chunks_exact(32);
    if bytes.len() >= 32 {
        let mut lanes = [1u64, 2, 3, 4];
        for block in &mut blocks {
            for (lane, chunk) in lanes.iter_mut().zip(block.chunks_exact(8)) {
                *lane = step(*lane, u64::from_le_bytes(chunk.try_into().unwrap()));
            }
        }
        for lane in lanes {
            state = step(state, lane);
        }
    }
    for chunk in blocks.remainder().chunks(8) {
        state = step(state, word(chunk));
    }
    mix(state)
}

/// The home slot of `hash` in a table of `slots` entries.
pub fn slot(hash: u64, slots: usize) -> usize {
    ((hash as u128 * slots as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_part_of_the_fast_form() {
        let text: Vec<u8> = (0..100).collect();
        let expected = [0x0000_0000_0000_0000, 0x0786_98AB_AA51_C7D3, 0x34E7_D426_28DD_C737, 0x795E_3940_8A48_03EF];
        assert_eq!([hash(b""), hash(b"a"), hash(b"plait text"), hash(&text)], expected);
        let lengths: std::collections::HashSet<u64> = (0..100).map(|n| hash(&vec![0u8; n])).collect();
        assert_eq!(lengths.len(), 100);
    }

    #[test]
    fn every_single_byte_counts() {
        let text: Vec<u8> = (0..77).collect();
        for at in 0..text.len() {
            let mut other = text.clone();
            other[at] ^= 0x40;
            assert_ne!(hash(&text), hash(&other), "byte {at}");
        }
    }
}
