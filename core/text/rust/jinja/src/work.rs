//! Whether the rendering on this thread may go on. What goes down into values asks, for a few values within each other can
//! stand for more than anyone can visit.

use std::cell::Cell;

use crate::error::{fail, Kind, Result};

thread_local! {
    static GOES_ON: Cell<fn() -> bool> = const { Cell::new(|| true) };
}

/// Until the next rendering on this thread.
pub fn begin(goes_on: fn() -> bool) {
    GOES_ON.set(goes_on);
}

pub fn check() -> Result<()> {
    if GOES_ON.get()() {
        return Ok(());
    }
    fail(Kind::Limit, "the time is over")
}
