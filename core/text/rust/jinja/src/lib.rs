//! Jinja as jinja2 renders it with the settings of transformers' chat templates: blanks of blocks trimmed, no escaping, the
//! immutable sandbox, loop controls, `{% generation %}`, tojson, raise_exception and strftime_now.
//!
//! `lexer`, `parser` and `expressions` read a template; `run` and `eval` render it on Python's values (`value`), whose
//! operators, texts, formats and methods are those of Python. What jinja2 has and this crate has not is refused by its
//! name: tags, filters and tests when a template is compiled, unless a condition stands before them, and otherwise when
//! they are reached.

mod calls;
mod characters;
mod cycles;
mod error;
mod eval;
mod expressions;
mod filters;
mod filters_of_lists;
mod filters_of_texts;
mod format;
pub mod json;
mod lexer;
mod methods;
mod methods_of_texts;
mod numbers;
mod operators;
mod parser;
mod percent;
mod run;
mod syntax;
mod tests;
mod text;
mod value;
mod work;
mod wrap;

use std::collections::HashMap;
use std::sync::Arc;

pub use error::{Error, Kind};
pub use run::{Environment, Rendered};
pub use value::{Dict, Value};

/// A compiled template, which threads can share.
pub struct Template(syntax::Program);

impl Template {
    pub fn compile(source: &str) -> Result<Self, Error> {
        parser::parse(source).map(Self)
    }

    /// Whether the template has `{% generation %}` blocks.
    pub fn marks_generation(&self) -> bool {
        self.0.marks
    }

    pub fn render(&self, environment: &Environment, variables: &HashMap<Arc<str>, Value>) -> Result<Rendered, Error> {
        run::render(environment, &self.0, variables)
    }
}
