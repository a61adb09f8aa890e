//! Byte-pair encoding: `tables` are the flat tables, `bpe` merges with them, `hash` is the hash of both.
#![deny(unsafe_op_in_unsafe_fn)]

mod bpe;
pub mod hash;
pub mod tables;

pub use bpe::{Bpe, BpeSettings};
