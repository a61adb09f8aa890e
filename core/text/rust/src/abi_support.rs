//! What every function of the ABI needs: views of the caller's memory, memory handed to the caller, and a guard
//! that turns errors and panics into a code.

use std::cell::Cell;
use std::panic::{catch_unwind, set_hook, take_hook, AssertUnwindSafe};
use std::sync::Once;

use crate::budget;
use crate::error::{panic_text, Code, Result, TextError};
use crate::grammar;

/// `plait_text_view`: memory of the caller, read during the call only. `data` may be null when `size` is 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    data: *const u8,
    size: usize,
}

impl View {
    pub fn of(text: &str) -> Self {
        Self { data: text.as_ptr(), size: text.len() }
    }

    /// # Safety
    /// The memory must be readable for as long as the result is used.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.size == 0 {
            return &[];
        }
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.data, self.size) }
    }

    /// # Safety
    /// As for `bytes`.
    pub unsafe fn text<'a>(self, what: &str) -> Result<&'a str> {
        // SAFETY: the caller's promise.
        let text = std::str::from_utf8(unsafe { self.bytes() });
        text.map_err(|error| {
            TextError::invalid(
                format!("{what}: not UTF-8 at byte {}", error.valid_up_to()),
                "convert it to UTF-8 first",
            )
        })
    }
}

/// `plait_text_bytes` and `plait_text_ids`: memory of ours that the caller gives back.
#[repr(C)]
pub struct Owned<T> {
    data: *mut T,
    size: usize,
}

impl<T> Owned<T> {
    pub fn new(list: Vec<T>) -> Self {
        let list = Box::leak(list.into_boxed_slice());
        Self { data: list.as_mut_ptr(), size: list.len() }
    }

    pub fn nothing() -> Self {
        Self { data: std::ptr::null_mut(), size: 0 }
    }

    /// # Safety
    /// `self` must come from `new` and must not be released twice.
    pub unsafe fn release(self) {
        if !self.data.is_null() {
            // SAFETY: `new` leaked a boxed slice of this place and size.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.data, self.size)) });
        }
    }
}

/// `plait_text_error`
#[repr(C)]
pub struct ErrorOut {
    message: Owned<u8>,
    /// Of static lifetime.
    hint: View,
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Counts the calls this thread is inside of.
pub struct Inside;

impl Inside {
    pub fn enter() -> Self {
        DEPTH.with(|depth| depth.set(depth.get() + 1));
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.with(|depth| depth.set(depth.get() - 1));
    }
}

/// Panics inside our calls become errors, so they print nothing; all others go to the hook that was there.
fn quieten_own_panics() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        grammar::keep_panics_quiet();
        let previous = take_hook();
        set_hook(Box::new(move |panic| {
            if DEPTH.with(Cell::get) == 0 {
                previous(panic);
            }
        }));
        budget::panic_on_failed_allocations(|| DEPTH.with(Cell::get) > 0);
    });
}

/// Runs `body`; an error or a panic goes to `error`, which may be null. Returns 0 or the code.
///
/// # Safety
/// `error` must be null or writable; what it held before is overwritten.
pub unsafe fn guarded(error: *mut ErrorOut, body: impl FnOnce() -> Result<()>) -> i32 {
    // Without it nothing is begun: a failed allocation would end the process, or what crates keep for the process.
    if !plait_reserve::hold() {
        if !error.is_null() {
            // SAFETY: the caller's promise.
            unsafe { error.write(ErrorOut { message: Owned::nothing(), hint: View::of("the machine has no memory left") }) };
        }
        return Code::OutOfMemory as i32;
    }
    let _inside = Inside::enter();
    quieten_own_panics();
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        if budget::take_machine_failure() {
            return Err(budget::no_memory("the tokenizer library"));
        }
        let message = format!("a fault in the tokenizer library: {}", panic_text(&*panic));
        Err(TextError::new(
            Code::Internal,
            message,
            "tokenizer.json or the chat template may be damaged; if not, please report this",
        ))
    });
    match outcome {
        Ok(()) => 0,
        Err(failure) => {
            if !error.is_null() {
                let out = ErrorOut {
                    message: Owned::new(printable(&failure.message).into_bytes()),
                    hint: View::of(failure.hint),
                };
                // SAFETY: the caller's promise.
                unsafe { error.write(out) };
            }
            failure.code as i32
        }
    }
}

/// Messages quote files and templates, which may hold anything, and a lot of it.
fn printable(message: &str) -> String {
    const MOST: usize = 2000;
    let mut out = String::new();
    for character in message.chars() {
        if out.len() > MOST {
            return out + " ...";
        }
        match character {
            '\n' => out.push('\n'),
            other if other.is_control() => out.extend(other.escape_default()),
            other => out.push(other),
        }
    }
    out
}
