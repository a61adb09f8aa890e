//! Grammars that bound what is generated, and the state of one output: which tokens may come next.
//!
//! Masks are llguidance's: a lexer of derivatives of regular expressions, and an Earley parser over its lexemes, run along the
//! tree of all tokens. What it may take is bounded by its own limits and by `budget`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::toktrie::SimpleVob;
use llguidance::Matcher;
use serde_json::{json, Value};

use crate::budget::{self, Budget};
use crate::deep_stack;
use crate::error::{Code, Result, TextError};
use crate::schema_place::{first_line, place_of, prepare};
use crate::tokenizer::TextTokenizer;

/// How a grammar is written. The numbers are those of `plait::GrammarKind`.
#[derive(Clone, Copy)]
pub enum Kind {
    JsonSchema,
    Regex,
    Lark,
    /// A JSON list of texts.
    Choices,
}

impl Kind {
    pub fn of(number: i32) -> Result<Self> {
        match number {
            0 => Ok(Self::JsonSchema),
            1 => Ok(Self::Regex),
            2 => Ok(Self::Lark),
            3 => Ok(Self::Choices),
            _ => Err(TextError::invalid(format!("{number} is no kind of grammar"), "")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::JsonSchema => "the JSON schema",
            Self::Regex => "the regular expression",
            Self::Lark => "the grammar",
            Self::Choices => "the list of choices",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::JsonSchema => "docs/serving.md lists the keywords that are followed; leave the others out",
            Self::Regex => "the syntax is that of Rust's regex crate, without look-around and back references",
            Self::Lark => "the syntax is Lark's, as llguidance reads it; the first rule is named start",
            Self::Choices => "expected a JSON list of texts",
        }
    }
}

/// llguidance's hook captures backtraces, which allocate: it is set first, so that ours comes before it.
pub fn keep_panics_quiet() {
    let _ = llguidance::panic_utils::catch_unwind(|| Ok(()));
}

const MOST_TEXT: usize = 256 << 10;
const COMPILING: Budget = Budget { bytes: 256 << 20, milliseconds: 2_000, cancels: None };
const STEPPING: Budget = Budget { bytes: 64 << 20, milliseconds: 1_000, cancels: None };
/// Between the parts of a JSON text, at most once: a space, or a line break and an indentation. Without a bound, a model that likes blanks
/// never comes to an end.
const BLANKS: &str = r"\x20|\x0D?\x0A[\x20\x09]{0,20}";

/// Immutable, and shared by all outputs that follow it.
pub struct Grammar {
    start: Mutex<Constraint>,
}

/// One output's state.
pub struct Constraint {
    /// Keeps the vocabulary.
    tokenizer: Arc<TextTokenizer>,
    matcher: Matcher,
    next: Next,
}

pub enum Next {
    Unknown,
    /// The only continuation of the text: these tokens, at least one.
    Forced(VecDeque<i32>),
    Mask {
        tokens: SimpleVob,
        may_end: bool,
    },
    /// Nothing may follow.
    End,
}

impl Grammar {
    pub fn new(tokenizer: &Arc<TextTokenizer>, kind: Kind, text: &str) -> Result<Self> {
        if text.len() > MOST_TEXT {
            let message = format!("{} has {} bytes, expected at most {MOST_TEXT}", kind.name(), text.len());
            return Err(TextError::invalid(message, "make it smaller"));
        }
        tokenizer.vocabulary()?;
        // Texts nest, and so does what reads them.
        deep_stack::run(COMPILING.bytes, || {
            let over = |stop| budget::over(stop, kind.name(), &COMPILING, "make it smaller, or its repetitions");
            budget::within(&COMPILING, over, || {
                let mut start = Constraint::new(tokenizer, kind, text)?;
                start.compute()?;
                Ok(Self { start: Mutex::new(start) })
            })
        })
    }

    pub fn start(&self) -> Result<Constraint> {
        // A fork that was ended has changed nothing.
        let start = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        start.fork()
    }
}

impl Constraint {
    fn new(tokenizer: &Arc<TextTokenizer>, kind: Kind, text: &str) -> Result<Self> {
        let grammar = match kind {
            Kind::JsonSchema => return Self::of_schema(tokenizer, text),
            Kind::Regex => TopLevelGrammar::from_regex(text),
            Kind::Lark => TopLevelGrammar::from_lark(prepared_lark(text).map_err(|error| refused(kind, "", &error))?),
            Kind::Choices => TopLevelGrammar::from_lark(lark_of_choices(text)?),
        };
        match matcher_of(tokenizer, grammar)? {
            Ok(matcher) => Ok(Self { tokenizer: Arc::clone(tokenizer), matcher, next: Next::Unknown }),
            Err(error) => Err(refused(kind, "", &error)),
        }
    }

    fn of_schema(tokenizer: &Arc<TextTokenizer>, text: &str) -> Result<Self> {
        let kind = Kind::JsonSchema;
        let schema: Value = serde_json::from_str(text)
            .map_err(|error| TextError::invalid(format!("{} is not JSON: {error}", kind.name()), ""))?;
        if !schema.is_object() && !schema.is_boolean() {
            return Err(TextError::invalid(format!("{} is neither an object nor true", kind.name()), ""));
        }
        let compiled = |part: &Value| match grammar_of_schema(part) {
            Ok(grammar) => matcher_of(tokenizer, grammar),
            Err(error) => Ok(Err(error)),
        };
        match compiled(&schema)? {
            Ok(matcher) => Ok(Self { tokenizer: Arc::clone(tokenizer), matcher, next: Next::Unknown }),
            Err(error) => {
                let error_of = |part: Value| compiled(&part).ok()?.err();
                Err(refused(kind, &place_of(&schema, &error, error_of), &error))
            }
        }
    }

    /// An independent copy.
    pub fn fork(&self) -> Result<Self> {
        let next = match &self.next {
            Next::Unknown => Next::Unknown,
            Next::Forced(ids) => Next::Forced(ids.clone()),
            Next::Mask { tokens, may_end } => Next::Mask { tokens: tokens.clone(), may_end: *may_end },
            Next::End => Next::End,
        };
        Ok(Self { tokenizer: Arc::clone(&self.tokenizer), matcher: self.matcher.deep_clone(), next })
    }

    /// Appends a token; whether nothing may follow it.
    pub fn commit(&mut self, id: i32) -> Result<bool> {
        let token = u32::try_from(id).map_err(|_| TextError::invalid(format!("{id} is not a token id"), ""))?;
        let mut rest = VecDeque::new();
        if let Next::Forced(ids) = &mut self.next {
            if ids.front() != Some(&id) {
                return Err(not_allowed(id));
            }
            ids.pop_front();
            rest = std::mem::take(ids);
        } else if let Next::Mask { tokens, .. } = &self.next {
            if token as usize >= tokens.len() || !tokens.is_allowed(token) {
                return Err(not_allowed(id));
            }
        }
        self.next = if rest.is_empty() { Next::Unknown } else { Next::Forced(rest) };
        stepping(|| self.matcher.consume_token(token).map_err(|error| self.broken(&error.to_string())))?;
        let ended = self.matcher.is_stopped() && matches!(self.next, Next::Unknown);
        if ended {
            self.next = Next::End;
        }
        Ok(ended)
    }

    /// What may come next; computed if it is not known.
    pub fn next(&mut self) -> Result<&Next> {
        if matches!(self.next, Next::Unknown) {
            stepping(|| self.compute())?;
        }
        Ok(&self.next)
    }

    fn compute(&mut self) -> Result<()> {
        let end = self.tokenizer.vocabulary()?.end;
        self.next = self.computed(end)?;
        Ok(())
    }

    fn computed(&mut self, end: u32) -> Result<Next> {
        if self.matcher.is_stopped() && !self.matcher.is_error() {
            return Ok(Next::End);
        }
        let forced = self.matcher.compute_ff_tokens();
        if !forced.is_empty() {
            return Ok(Next::Forced(forced.into_iter().map(|id| id as i32).collect()));
        }
        let mut tokens = self.matcher.compute_mask().map_err(|error| self.broken(&error.to_string()))?;
        let may_end = tokens.is_allowed(end);
        tokens.disallow_token(end);
        Ok(if tokens.is_zero() && may_end { Next::End } else { Next::Mask { tokens, may_end } })
    }

    fn broken(&self, error: &str) -> TextError {
        let what = first_line(error);
        if what.starts_with("panic") {
            return fault(what);
        }
        if what.contains("NoExtension") {
            return TextError::new(
                Code::Unsupported,
                "no token of the model's vocabulary continues the text as the grammar requires",
                "the grammar asks for characters that the tokenizer cannot write, or for two things at once",
            );
        }
        TextError::new(
            Code::Unsupported,
            format!("the grammar takes too much work for one token: {what}"),
            "make it simpler: fewer alternatives, shorter repetitions",
        )
    }
}

fn stepping<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    let over = |stop| budget::over(stop, "a step of the grammar", &STEPPING, "make the grammar simpler");
    budget::within(&STEPPING, over, body)
}

/// A panic of the library, which is caught: some grammars that make no sense are not refused when they are compiled.
fn fault(what: &str) -> TextError {
    let hint = "write the grammar in another way; if it makes sense, please report it";
    TextError::new(Code::Unsupported, format!("the grammar library fails on this grammar: {what}"), hint)
}

fn not_allowed(id: i32) -> TextError {
    TextError::invalid(format!("the grammar does not allow token {id} here"), "choose one of its mask")
}

/// The outer error is a fault, the inner one the grammar's.
fn matcher_of(
    tokenizer: &Arc<TextTokenizer>,
    grammar: TopLevelGrammar,
) -> Result<std::result::Result<Matcher, String>> {
    let mut matcher = Matcher::new(tokenizer.vocabulary()?.factory.create_parser(grammar));
    // The first look at it may find more: an expression that no text matches.
    let _ = matcher.is_accepting();
    Ok(match matcher.get_error() {
        Some(error) => Err(error),
        None => Ok(matcher),
    })
}

/// The schemas within it prepared, too.
fn prepared_lark(text: &str) -> std::result::Result<String, String> {
    const MARK: &str = "%json";
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(MARK) {
        let (before, after) = rest.split_at(at + MARK.len());
        out.push_str(before);
        let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
        rest = match values.next() {
            Some(Ok(mut schema)) => {
                prepare(&mut schema)?;
                out.push(' ');
                out.push_str(&schema.to_string());
                &after[values.byte_offset()..]
            }
            _ => after,
        };
    }
    out.push_str(rest);
    Ok(out)
}

/// An error is one of a bound.
fn grammar_of_schema(schema: &Value) -> std::result::Result<TopLevelGrammar, String> {
    let mut schema = schema.clone();
    prepare(&mut schema)?;
    if let Value::Object(fields) = &mut schema {
        let options = fields.entry("x-guidance").or_insert_with(|| json!({}));
        if let Value::Object(options) = options {
            if options.get("whitespace_flexible") != Some(&json!(false)) {
                options.entry("whitespace_pattern").or_insert(json!(BLANKS));
            }
        }
    } else {
        schema = json!({ "allOf": [schema], "x-guidance": { "whitespace_pattern": BLANKS } });
    }
    Ok(TopLevelGrammar::from_grammar(GrammarWithLexer::from_json_schema(schema)))
}

fn lark_of_choices(text: &str) -> Result<String> {
    let kind = Kind::Choices;
    let choices: Vec<String> = serde_json::from_str(text)
        .map_err(|error| TextError::invalid(format!("{}: {error}", kind.name()), kind.hint()))?;
    if choices.is_empty() {
        return Err(TextError::invalid(format!("{} is empty", kind.name()), kind.hint()));
    }
    Ok(format!("start: {}", choices.iter().map(|choice| json!(choice).to_string()).collect::<Vec<_>>().join(" | ")))
}

fn refused(kind: Kind, place: &str, error: &str) -> TextError {
    let at = if place.is_empty() { String::new() } else { format!(" at {place}") };
    let what = error.split("\n<").next().unwrap_or_default().trim_end();
    TextError::invalid(format!("{}{at} cannot be followed: {what}", kind.name()), kind.hint())
}
