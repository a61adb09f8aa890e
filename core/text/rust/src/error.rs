//! The one error type: a code, what happened, what to do about it.

/// The numbers are those of `plait::Code` (core/base/error.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    InvalidArgument = 1,
    BadModel = 3,
    Unsupported = 4,
    OutOfMemory = 5,
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
