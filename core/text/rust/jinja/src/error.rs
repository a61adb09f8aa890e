//! What can go wrong, by the kinds of Python that templates' own functions tell apart.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Syntax,
    Type,
    Value,
    /// A key or an index that is not there.
    Lookup,
    Overflow,
    ZeroDivision,
    Undefined,
    Security,
    /// jinja2 has it, and this engine has not.
    Unsupported,
    /// By `raise_exception`.
    Raised,
    /// The template takes too long or nests too deep.
    Limit,
}

#[derive(Debug)]
pub struct Error {
    pub kind: Kind,
    pub message: String,
    /// Of the statement; counted from 1.
    pub line: Option<u32>,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), line: None }
    }

    pub fn at(mut self, line: u32) -> Self {
        self.line.get_or_insert(line);
        self
    }

    /// Whether `int` and `float` answer it with their default.
    pub fn is_conversion(&self) -> bool {
        matches!(self.kind, Kind::Type | Kind::Value | Kind::Overflow)
    }
}

pub fn fail<T>(kind: Kind, message: impl Into<String>) -> Result<T> {
    Err(Error::new(kind, message))
}

pub fn unsupported<T>(what: impl std::fmt::Display) -> Result<T> {
    fail(Kind::Unsupported, format!("{what} is not supported in chat templates"))
}
