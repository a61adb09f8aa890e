//! A thread of our own for chat templates.
//!
//! The template engine recurses with the depth of an expression and of a value, without a bound that suits the small
//! stacks of many hosts' threads, and a stack that overflows ends the process. With the limits on a template's size
//! and work (`chat`), the deepest recursion measured takes 64 MiB. Pages that are not touched cost nothing, and a
//! thread about 50 us.

use std::panic::resume_unwind;
use std::thread;

use crate::abi_support::Inside;
use crate::error::{Code, Result, TextError};

const STACK_BYTES: usize = 256 << 20;

pub fn run<T: Send>(body: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let silent = move || {
            let _inside = Inside::enter();
            body()
        };
        let started =
            thread::Builder::new().name("plait-chat".to_string()).stack_size(STACK_BYTES).spawn_scoped(scope, silent);
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
