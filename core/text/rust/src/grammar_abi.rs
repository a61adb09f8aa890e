//! The functions for grammars that `core/text/rust_abi.h` declares.
//!
//! SAFETY of every `unsafe` block below: as in `abi`.

use std::sync::Arc;

use crate::abi_support::{guarded, ErrorOut, Owned, View};
use crate::grammar::{Constraint, Grammar, Kind, Next};
use crate::tokenizer::TextTokenizer;

type Handle = Arc<TextTokenizer>;

/// Grammars are shared, and constraints move between threads.
const _: fn() = || {
    fn shareable<T: Send + Sync>() {}
    fn movable<T: Send>() {}
    shareable::<Grammar>();
    movable::<Constraint>();
};

/// `plait_text_next`
#[repr(C)]
pub struct NextOut {
    mask: *const u32,
    mask_words: usize,
    forced: *const i32,
    forced_count: usize,
    may_end: bool,
    ended: bool,
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_token_bytes(
    tokenizer: *const Handle,
    id: i32,
    out: *mut Owned<u8>,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            out.write(Owned::new((*tokenizer).token_bytes(id)?));
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_prepare_grammars(tokenizer: *const Handle, error: *mut ErrorOut) -> i32 {
    unsafe { guarded(error, || (*tokenizer).vocabulary().map(|_| ())) }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_grammar_create(
    tokenizer: *const Handle,
    kind: i32,
    text: View,
    out: *mut *mut Grammar,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            let grammar = Grammar::new(&*tokenizer, Kind::of(kind)?, text.text("the grammar")?)?;
            out.write(Box::into_raw(Box::new(grammar)));
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_grammar_free(grammar: *mut Grammar) {
    unsafe { release(grammar) }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_grammar_start(
    grammar: *const Grammar,
    out: *mut *mut Constraint,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            out.write(Box::into_raw(Box::new((*grammar).start()?)));
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_constraint_fork(
    constraint: *const Constraint,
    out: *mut *mut Constraint,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            out.write(Box::into_raw(Box::new((*constraint).fork()?)));
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_constraint_commit(
    constraint: *mut Constraint,
    id: i32,
    ended: *mut bool,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            ended.write((*constraint).commit(id)?);
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_constraint_next(
    constraint: *mut Constraint,
    out: *mut NextOut,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            let mut next = NextOut {
                mask: std::ptr::null(),
                mask_words: 0,
                forced: std::ptr::null(),
                forced_count: 0,
                may_end: false,
                ended: false,
            };
            match (*constraint).next()? {
                Next::Mask { tokens, may_end } => {
                    next.mask = tokens.as_ptr();
                    next.mask_words = tokens.len().div_ceil(32);
                    next.may_end = *may_end;
                }
                Next::Forced(ids) => {
                    // From a whole deque: elements are popped at the front only.
                    let (ids, _) = ids.as_slices();
                    next.forced = ids.as_ptr();
                    next.forced_count = ids.len();
                }
                Next::End => next.ended = true,
                Next::Unknown => {}
            }
            out.write(next);
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_constraint_free(constraint: *mut Constraint) {
    unsafe { release(constraint) }
}

unsafe fn release<T>(object: *mut T) {
    unsafe {
        guarded(std::ptr::null_mut(), || {
            if !object.is_null() {
                drop(Box::from_raw(object));
            }
            Ok(())
        });
    }
}
