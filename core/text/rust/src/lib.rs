//! Tokenizer and chat template of Plait, behind the C ABI that `core/text/rust_abi.h` declares.
//!
//! All Rust of the library is linked into this one crate: two static Rust libraries in one program collide. The crate
//! prints nothing and never aborts: `abi` turns every error and every panic into a code and a message.
//!
//! In the order a tokenizer comes to be: `json_form` reads tokenizer.json, `bpe_build` makes its tables,
//! `fast_form` stores and reads them, the crate `plait_bpe` merges with them, `tokenizer` puts the parts together, `stream` and
//! `pieces` turn ids back into text, `chat` renders conversations (with the
//! crate `plait_jinja`) that `chat_messages` reads, `grammar` finds the tokens that a grammar allows, over
//! the `vocabulary`. `budget` bounds what all of them may take. `patterns` is for graphs, and needs no tokenizer.
// See `budget`. It has had this form since 2018; CMakeLists.txt switches it on for this crate.
#![feature(alloc_error_hook)]
#![deny(unsafe_op_in_unsafe_fn)]

mod abi;
mod abi_support;
mod bpe_build;
mod budget;
mod chat;
mod chat_messages;
mod deep_stack;
mod error;
mod fast_form;
#[cfg(feature = "grammars")]
mod grammar;
#[cfg(not(feature = "grammars"))]
#[path = "no_grammars.rs"]
mod grammar;
mod grammar_abi;
mod json_form;
mod model;
mod patterns;
mod pieces;
#[cfg(feature = "grammars")]
mod schema_numbers;
#[cfg(feature = "grammars")]
mod schema_place;
mod special_tokens;
mod stream;
mod token_bytes;
mod tokenizer;
#[cfg(feature = "grammars")]
mod vocabulary;
#[cfg(not(feature = "grammars"))]
use grammar as vocabulary;
