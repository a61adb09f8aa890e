//! What stands for `grammar` and `vocabulary` in a build without grammars: making the first of either fails, so that there is
//! never one to be used.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::{Code, Result, TextError};
use crate::tokenizer::TextTokenizer;

pub struct Kind;
pub enum Grammar {}
pub enum Constraint {}
pub struct Vocabulary;

pub enum Next {
    Unknown,
    Mask { tokens: Vec<u32>, may_end: bool },
    Forced(VecDeque<i32>),
    End,
}

fn left_out<T>() -> Result<T> {
    let message = "this build of Plait has no grammars, on which structured output is made";
    Err(TextError::new(Code::Unsupported, message, "build with the CMake option PLAIT_GRAMMARS=ON"))
}

/// See `grammar::keep_panics_quiet`.
pub fn keep_panics_quiet() {}

impl Kind {
    pub fn of(_number: i32) -> Result<Self> {
        left_out()
    }
}

impl Vocabulary {
    pub fn new(_tokenizer: &Arc<TextTokenizer>) -> Result<Self> {
        left_out()
    }
}

impl Grammar {
    pub fn new(_tokenizer: &Arc<TextTokenizer>, _kind: Kind, _text: &str) -> Result<Self> {
        left_out()
    }

    pub fn start(&self) -> Result<Constraint> {
        match *self {}
    }
}

impl Constraint {
    pub fn fork(&self) -> Result<Self> {
        match *self {}
    }

    pub fn commit(&mut self, _id: i32) -> Result<bool> {
        match *self {}
    }

    pub fn next(&mut self) -> Result<&Next> {
        match *self {}
    }
}
