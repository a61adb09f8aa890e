//! Values that can come to hold themselves: a macro the scope that it stands in, a namespace itself, a loop what it was
//! asked about. Counts of references never free those, so the end of a rendering empties them.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use crate::run::{LoopState, Scope};
use crate::value::Dict;

enum Holder {
    Scope(Weak<Scope>),
    Namespace(Weak<RefCell<Dict>>),
    Loop(Weak<LoopState>),
}

impl Holder {
    fn lives(&self) -> bool {
        match self {
            Self::Scope(held) => held.strong_count() > 0,
            Self::Namespace(held) => held.strong_count() > 0,
            Self::Loop(held) => held.strong_count() > 0,
        }
    }

    fn empty(&self) {
        match self {
            Self::Scope(held) => held.upgrade().iter().for_each(|scope| scope.empty()),
            Self::Namespace(held) => {
                if let Some(dict) = held.upgrade() {
                    drop(dict.try_borrow_mut().map(|mut own| std::mem::take(&mut *own)));
                }
            }
            Self::Loop(held) => held.upgrade().iter().for_each(|state| state.empty()),
        }
    }
}

thread_local! {
    static HOLDERS: RefCell<Vec<Holder>> = const { RefCell::new(Vec::new()) };
}

fn keep(holder: Holder) {
    HOLDERS.with_borrow_mut(|all| {
        if all.len() == all.capacity() {
            all.retain(Holder::lives); // so that a long loop does not keep one for each of its turns
        }
        all.push(holder);
    });
}

pub fn keep_scope(scope: &Rc<Scope>) {
    keep(Holder::Scope(Rc::downgrade(scope)));
}

pub fn keep_namespace(dict: &Rc<RefCell<Dict>>) {
    keep(Holder::Namespace(Rc::downgrade(dict)));
}

pub fn keep_loop(state: &Rc<LoopState>) {
    keep(Holder::Loop(Rc::downgrade(state)));
}

/// Empties, at its end, what the rendering on this thread has made.
pub struct Rendering;

impl Drop for Rendering {
    fn drop(&mut self) {
        let all = HOLDERS.with_borrow_mut(std::mem::take);
        all.iter().for_each(Holder::empty);
    }
}
