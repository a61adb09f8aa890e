//! Regular expressions and letters' case, for the ops of ONNX on strings; `core/text/rust_abi.h` declares the functions.
//!
//! SAFETY of every `unsafe` block below: as in `abi`.

use regex::{Regex, RegexBuilder};

use crate::abi_support::{guarded, ErrorOut, Owned, View};
use crate::error::{Result, TextError};

/// Patterns are shared by runs.
const _: fn() = || {
    fn shareable<T: Send + Sync>() {}
    shareable::<Pattern>();
};

/// Matches whole texts, in time linear in each.
pub struct Pattern(Regex);

impl Pattern {
    /// The crate bounds the size of what it compiles to.
    fn new(pattern: &str) -> Result<Self> {
        let compiled = |text: &str| {
            RegexBuilder::new(text).build().map_err(|error| {
                TextError::bad_model(
                    format!("the pattern {pattern:?} cannot be used: {error}"),
                    "patterns have RE2's syntax, without look-around and back-references",
                )
            })
        };
        let pattern = &with_ascii_classes(pattern);
        compiled(pattern)?; // by itself: what it lacks may not come from what is put around it
        Ok(Self(compiled(&format!(r"\A(?:{pattern})\z"))?))
    }
}

/// RE2's classes of letters, digits and blanks are of ASCII, the crate's of Unicode. Classes may stand within brackets.
fn with_ascii_classes(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            out.push(letter);
            continue;
        }
        match letters.next() {
            Some('d') => out.push_str("[0-9]"),
            Some('D') => out.push_str("[^0-9]"),
            Some('w') => out.push_str("[0-9A-Za-z_]"),
            Some('W') => out.push_str("[^0-9A-Za-z_]"),
            Some('s') => out.push_str(r"[\t\n\f\r ]"),
            Some('S') => out.push_str(r"[^\t\n\f\r ]"),
            Some('b') => out.push_str(r"(?-u:\b)"),
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
    out
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_pattern_create(pattern: View, out: *mut *mut Pattern, error: *mut ErrorOut) -> i32 {
    unsafe {
        guarded(error, || {
            out.write(Box::into_raw(Box::new(Pattern::new(pattern.text("the pattern")?)?)));
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_pattern_match(
    pattern: *const Pattern,
    text: View,
    matches: *mut bool,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            matches.write((*pattern).0.is_match(text.text("the text")?));
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_pattern_free(pattern: *mut Pattern) {
    unsafe {
        guarded(std::ptr::null_mut(), || {
            if !pattern.is_null() {
                drop(Box::from_raw(pattern));
            }
            Ok(())
        });
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_change_case(
    text: View,
    upper: bool,
    out: *mut Owned<u8>,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            let text = text.text("the text")?;
            let changed = if upper { text.to_uppercase() } else { text.to_lowercase() };
            out.write(Owned::new(changed.into_bytes()));
            Ok(())
        })
    }
}
