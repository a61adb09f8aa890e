//! The one error type: a code, what happened, what to do about it.

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// The numbers are those of `plait::Code` (core/base/error.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    InvalidArgument = 1,
    BadModel = 3,
    Unsupported = 4,
    OutOfMemory = 5,
    Cancelled = 7,
    Timeout = 8,
    Internal = 12,
}

#[derive(Debug)]
pub struct TextError {
    pub code: Code,
    pub message: String,
    pub hint: &'static str,
}

pub type Result<T> = std::result::Result<T, TextError>;

impl TextError {
    pub fn new(code: Code, message: impl Into<String>, hint: &'static str) -> Self {
        Self { code, message: message.into(), hint }
    }

    pub fn bad_model(message: impl Into<String>, hint: &'static str) -> Self {
        Self::new(Code::BadModel, message, hint)
    }

    pub fn invalid(message: impl Into<String>, hint: &'static str) -> Self {
        Self::new(Code::InvalidArgument, message, hint)
    }
}

pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// For readers of the `tokenizers` crate, which panic on some damaged files: that is a kind of damage like others.
pub fn reading<T>(read: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let message = format!("tokenizer.json cannot be used: {}", panic_text(&*panic));
        Err(TextError::bad_model(message, "it may need a newer version of Plait, or be damaged"))
    })
}
