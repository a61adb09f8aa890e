//! A thread of our own for chat templates.
//!
//! The template engine recurses with the depth of an expression and of a value, without a bound that suits the small
//! stacks of many hosts' threads, and a stack that overflows ends the process. With the limits on a template's size,
//! work (`chat`) and memory (`budget`), the deepest recursion measured takes 64 MiB. A level of a value takes some 100
//! bytes of memory, so the stack grows with the budget. Pages that are not touched cost nothing, and a thread about 50 us.

use std::panic::resume_unwind;
use std::thread;

use crate::abi_support::Inside;
use crate::error::{Code, Result, TextError};

const LEAST_STACK: u64 = 256 << 20;
/// Enough for as many levels as a template's instructions can make.
const MOST_STACK: u64 = 2 << 30;

/// Runs `body`, which may take `bytes` of memory, on a stack that suffices for any value of that size.
pub fn run<T: Send>(bytes: u64, body: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let silent = move || {
            let _inside = Inside::enter();
            body()
        };
        let stack = bytes.saturating_mul(4).clamp(LEAST_STACK, MOST_STACK) as usize;
        let started =
            thread::Builder::new().name("plait-chat".to_string()).stack_size(stack).spawn_scoped(scope, silent);
        let handle = started.map_err(|error| {
            TextError::new(
                Code::OutOfMemory,
                format!("cannot start a thread for the chat template: {error}"),
                "raise the limits on threads or address space",
            )
        })?;
        handle.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
