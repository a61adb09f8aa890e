//! Bounds on the memory and the time of one call, and its cancellation from another thread.
//!
//! A tokenizer.json or a chat template is a program of a stranger: both can ask for any amount of memory or time, in
//! more ways than a list of checks would cover. So the bound is where all of it goes through: the allocator of this
//! crate counts what a thread holds within a call, and refuses more than the call's budget. A refused allocation is a
//! panic (the standard library's hook for it, `set_alloc_error_hook`, may unwind; the default would abort the
//! process), which ends the call with an error. Each allocation also looks at the clock and the cancellation; what
//! can run long without one (a template, see `chat`) calls `check`.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::error::{Code, Result, TextError};

/// What one call may take.
pub struct Budget<'a> {
    /// Most bytes held at once, counted from the beginning of the call.
    pub bytes: u64,
    /// Of processor time, in which a thread that waits for a processor is not charged: half of it at least, on a machine that is
    /// busy with other work.
    pub milliseconds: u64,
    /// The call is cancelled when this changes.
    pub cancels: Option<&'a AtomicU32>,
}

/// Why a call was ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    Bytes,
    Time,
    Cancelled,
    /// The machine has no memory left, whatever the budget.
    Machine,
}

/// The state of a thread. Only cells of plain numbers: reading it allocates nothing, and nothing is to be dropped.
struct Account {
    active: Cell<bool>,
    /// Allocated minus freed since the beginning; frees of older memory make it negative.
    held: Cell<i64>,
    most: Cell<i64>,
    /// On the coarse monotonic clock, in nanoseconds: when to look at the thread's processor time. That costs a call of the system,
    /// as much as a mask: the clock is not read at the beginning, but once half of the time has passed.
    look_at: Cell<u64>,
    half: Cell<u64>,
    /// On the clock of the thread's processor time, in nanoseconds; 0: not read yet.
    deadline: Cell<u64>,
    cancels: Cell<*const AtomicU32>,
    cancels_before: Cell<u32>,
    allocations: Cell<u32>,
    /// The allocation at hand was refused by us, so that a panic is allowed.
    refused: Cell<bool>,
    stop: Cell<Option<Stop>>,
}

thread_local! {
    static ACCOUNT: Account = const {
        Account {
            active: Cell::new(false),
            held: Cell::new(0),
            most: Cell::new(0),
            look_at: Cell::new(0),
            half: Cell::new(0),
            deadline: Cell::new(0),
            cancels: Cell::new(null()),
            cancels_before: Cell::new(0),
            allocations: Cell::new(0),
            refused: Cell::new(false),
            stop: Cell::new(None),
        }
    };
}

/// Sizes that a node of the standard library's BTreeMap may have. A map that splits a node and gets no memory for the new
/// one is left with a wrong length, and its destructor then ends the process: so blocks of these sizes are counted, and not
/// refused. (Nodes hold 11 keys and values, of 8 bytes at least in all of our crates. Other containers ask for memory
/// before they change anything.) What grows without an end comes to other sizes soon: a Vec by `realloc`, a hash table by
/// large blocks, values and iterators by small ones.
const TREE_NODES: std::ops::Range<usize> = 97..8192;

/// Allocations between two looks at the clock; a large one always looks.
const ALLOCATIONS_A_LOOK: u32 = 16;
const LARGE: usize = 64 << 10;

struct Counted;

#[global_allocator]
static ALLOCATOR: Counted = Counted;

// SAFETY: all memory is that of `plait_reserve`; a refused allocation returns null, as the trait allows.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !admit(layout.size(), !TREE_NODES.contains(&layout.size())) {
            return null_mut();
        }
        // SAFETY: the caller's promises are the same.
        got(unsafe { plait_reserve::allocate(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !admit(layout.size(), true) {
            return null_mut();
        }
        // SAFETY: as above.
        got(unsafe { plait_reserve::allocate_zeroed(layout) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        release(layout.size());
        // SAFETY: as above.
        unsafe { plait_reserve::free(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both blocks may exist for a while. Trees never ask for this.
        if !admit(size, true) {
            return null_mut();
        }
        // SAFETY: as above.
        let moved = got(unsafe { plait_reserve::reallocate(pointer, layout, size) });
        release(if moved.is_null() { size } else { layout.size() });
        moved
    }
}

/// If the system refused, the call ends at its next allocation that may fail: the reserve lends to what may not.
fn got((pointer, refused): (*mut u8, bool)) -> *mut u8 {
    if refused {
        ACCOUNT.with(|account| account.end(Stop::Machine));
    }
    pointer
}

fn release(size: usize) {
    ACCOUNT.with(|account| {
        if account.active.get() {
            account.held.set(account.held.get() - size as i64);
        }
    });
}

/// Counts an allocation; false if it must not be made, which only one that `may_fail` is.
fn admit(size: usize, may_fail: bool) -> bool {
    ACCOUNT.with(|account| !account.active.get() || account.admit(size, may_fail))
}

impl Account {
    /// While a panic unwinds everything is admitted: a destructor that panics would end the process.
    fn admit(&self, size: usize, may_fail: bool) -> bool {
        let held = self.held.get() + size as i64;
        let allocations = self.allocations.get().wrapping_add(1);
        self.held.set(held);
        self.allocations.set(allocations);
        if !may_fail {
            return true;
        }
        let look = size >= LARGE || allocations % ALLOCATIONS_A_LOOK == 0;
        let stop = match self.stop.get() {
            Some(Stop::Machine) => Some(Stop::Machine),
            _ if held > self.most.get() => Some(Stop::Bytes),
            _ => self.cancelled_or_late(look),
        };
        match stop {
            Some(stop) if !std::thread::panicking() => {
                self.held.set(held - size as i64);
                self.end(stop);
                self.refused.set(true);
                false
            }
            _ => true,
        }
    }

    fn cancelled_or_late(&self, look: bool) -> Option<Stop> {
        let cancels = self.cancels.get();
        // SAFETY: `within` borrows it for as long as the account is active.
        if !cancels.is_null() && unsafe { &*cancels }.load(Relaxed) != self.cancels_before.get() {
            return Some(Stop::Cancelled);
        }
        (look && self.is_late()).then_some(Stop::Time)
    }

    /// A thread has no more processor time than time has passed, so that there is nothing to look at before.
    fn is_late(&self) -> bool {
        let now = now();
        if now <= self.look_at.get() {
            return false;
        }
        if self.deadline.get() == 0 {
            self.deadline.set(processor_time().saturating_add(self.half.get()));
        }
        let left = self.deadline.get().saturating_sub(processor_time());
        self.look_at.set(now.saturating_add(left));
        left == 0
    }

    fn begin(&self, budget: &Budget) {
        self.held.set(0);
        self.most.set(i64::try_from(budget.bytes).unwrap_or(i64::MAX));
        self.half.set(budget.milliseconds.saturating_mul(500_000));
        self.look_at.set(now().saturating_add(self.half.get()));
        self.deadline.set(0);
        self.cancels.set(budget.cancels.map_or(null(), |cancels| cancels));
        self.cancels_before.set(budget.cancels.map_or(0, |cancels| cancels.load(Relaxed)));
        self.stop.set(None);
        self.refused.set(false);
        self.active.set(true);
    }

    /// The first reason stands.
    fn end(&self, stop: Stop) {
        self.stop.set(self.stop.get().or(Some(stop)));
    }
}

/// Nanoseconds; 4 ms steps, and a quarter of the cost of the exact clock.
fn now() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC_COARSE)
}

/// Nanoseconds that this thread ran.
fn processor_time() -> u64 {
    nanoseconds(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn nanoseconds(clock: libc::clockid_t) -> u64 {
    // SAFETY: `clock_gettime` writes the timespec it is given.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(clock, &mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// False if the call under way has to end. For work that allocates nothing, or nothing that may fail.
pub fn check() -> bool {
    ACCOUNT.with(|account| {
        if account.active.get() && account.stop.get().is_none() {
            let bytes = (account.held.get() > account.most.get()).then_some(Stop::Bytes);
            account.stop.set(bytes.or_else(|| account.cancelled_or_late(true)));
        }
        !account.active.get() || account.stop.get().is_none()
    })
}

/// Whether an allocation of this thread failed outside of `within` since the last call.
pub fn take_machine_failure() -> bool {
    ACCOUNT.with(|account| account.stop.take()) == Some(Stop::Machine)
}

/// A failed allocation becomes a panic, which `abi` turns into an error. Only inside of our calls, and not where a tree may
/// be at work (the machine's memory is exhausted): there the process ends as it would without us.
pub fn panic_on_failed_allocations(inside: fn() -> bool) {
    static INSIDE: std::sync::OnceLock<fn() -> bool> = std::sync::OnceLock::new();
    INSIDE.get_or_init(|| inside);
    std::alloc::set_alloc_error_hook(|layout| {
        let ours = ACCOUNT.with(|account| account.refused.replace(false));
        let may_unwind = ours || !TREE_NODES.contains(&layout.size());
        if may_unwind && INSIDE.get().is_some_and(|inside| inside()) {
            panic!("no memory for {} bytes", layout.size());
        }
    });
}

/// Runs `body` within `budget`, or within that of the call that this one is a part of. `over` makes the error of a call
/// that was ended; other panics go on.
pub fn within<T>(budget: &Budget, over: impl FnOnce(Stop) -> TextError, body: impl FnOnce() -> Result<T>) -> Result<T> {
    if ACCOUNT.with(|account| account.active.get()) {
        return body();
    }
    ACCOUNT.with(|account| account.begin(budget));
    let outcome = catch_unwind(AssertUnwindSafe(body));
    let stop = ACCOUNT.with(|account| {
        account.active.set(false);
        account.stop.take()
    });
    match (outcome, stop) {
        (Ok(Ok(value)), _) => Ok(value),
        (Ok(Err(_)) | Err(_), Some(stop)) => Err(over(stop)),
        (Ok(Err(error)), None) => Err(error),
        (Err(panic), None) => std::panic::resume_unwind(panic),
    }
}

/// `what` is the subject: "the model's chat template \"default\"". The hint is what to change about bytes and time.
pub fn over(stop: Stop, what: &str, budget: &Budget, hint: &'static str) -> TextError {
    match stop {
        Stop::Bytes => TextError::new(
            Code::OutOfMemory,
            format!("{what} takes more than {} of memory", size_text(budget.bytes)),
            hint,
        ),
        Stop::Time => {
            TextError::new(Code::Timeout, format!("{what} takes longer than {} ms", budget.milliseconds), hint)
        }
        Stop::Cancelled => TextError::new(Code::Cancelled, format!("{what} was cancelled"), ""),
        Stop::Machine => no_memory(what),
    }
}

pub fn no_memory(what: &str) -> TextError {
    TextError::new(
        Code::OutOfMemory,
        format!("{what}: the machine has no memory left"),
        "free some, or raise the process's limit (ulimit -v)",
    )
}

fn size_text(bytes: u64) -> String {
    if bytes >= 1 << 20 {
        format!("{} MiB", bytes >> 20)
    } else {
        format!("{bytes} bytes")
    }
}
