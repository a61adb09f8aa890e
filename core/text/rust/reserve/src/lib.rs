//! Memory for when the system refuses more. A crate's allocator that returns null ends the process, or poisons what was
//! being made: so a block is got while there is memory, and lends where the system does not. It is a last step, and not a
//! budget: `allocate` tells the caller that it borrows, and the caller should end.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

const SIZE: usize = 8 << 20;

static BLOCK: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// Bytes that are given away, and how many pieces of them are still in use: with the last one all are free again.
static USED: AtomicUsize = AtomicUsize::new(0);
static LENT: AtomicUsize = AtomicUsize::new(0);

/// Whether the block is there, which the first call gets. It takes address space; pages come with their first use.
pub fn hold() -> bool {
    if !BLOCK.load(Relaxed).is_null() {
        return true;
    }
    // SAFETY: a new anonymous mapping; no other memory is touched.
    let made = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(null_mut(), SIZE, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    if made == libc::MAP_FAILED {
        return false;
    }
    if BLOCK.compare_exchange(null_mut(), made.cast(), SeqCst, SeqCst).is_err() {
        // SAFETY: another thread was first, and this one was never shared.
        unsafe { libc::munmap(made, SIZE) };
    }
    true
}

fn lends(pointer: *const u8) -> bool {
    let block = BLOCK.load(Relaxed);
    !block.is_null() && (pointer as usize).wrapping_sub(block as usize) < SIZE
}

fn lend(layout: Layout) -> *mut u8 {
    let block = BLOCK.load(Relaxed);
    if block.is_null() {
        return null_mut();
    }
    LENT.fetch_add(1, SeqCst);
    let base = block as usize;
    let mut begin = 0;
    let taken = USED.fetch_update(SeqCst, SeqCst, |used| {
        begin = (base + used).next_multiple_of(layout.align()) - base;
        begin.checked_add(layout.size()).filter(|&end| end <= SIZE)
    });
    if taken.is_err() {
        give_back();
        return null_mut();
    }
    // SAFETY: begin + size lies within the block, and no other piece overlaps it.
    unsafe { block.add(begin) }
}

fn give_back() {
    // A thread that borrows in between has counted itself first, so that the count is not 1 here.
    if LENT.load(SeqCst) == 1 {
        let used = USED.load(SeqCst);
        if LENT.compare_exchange(1, 0, SeqCst, SeqCst).is_ok() {
            // Another thread may have taken a piece since: then the bytes stay taken until all are back.
            let _ = USED.compare_exchange(used, 0, SeqCst, SeqCst);
            return;
        }
    }
    LENT.fetch_sub(1, SeqCst);
}

/// The system's memory; or, if it refuses, the reserve's. The second: whether the system refused.
///
/// # Safety
/// As of `GlobalAlloc::alloc`.
pub unsafe fn allocate(layout: Layout) -> (*mut u8, bool) {
    // SAFETY: the caller's promise.
    let got = unsafe { System.alloc(layout) };
    if got.is_null() { (lend(layout), true) } else { (got, false) }
}

/// # Safety
/// As of `GlobalAlloc::alloc_zeroed`.
pub unsafe fn allocate_zeroed(layout: Layout) -> (*mut u8, bool) {
    // SAFETY: the caller's promise.
    let got = unsafe { System.alloc_zeroed(layout) };
    if !got.is_null() {
        return (got, false);
    }
    let lent = lend(layout);
    if !lent.is_null() {
        // SAFETY: it has that size.
        unsafe { lent.write_bytes(0, layout.size()) };
    }
    (lent, true)
}

/// # Safety
/// As of `GlobalAlloc::dealloc`.
pub unsafe fn free(pointer: *mut u8, layout: Layout) {
    if lends(pointer) {
        give_back();
    } else {
        // SAFETY: it is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// # Safety
/// As of `GlobalAlloc::realloc`.
pub unsafe fn reallocate(pointer: *mut u8, layout: Layout, size: usize) -> (*mut u8, bool) {
    if !lends(pointer) {
        // SAFETY: it is the system's.
        let got = unsafe { System.realloc(pointer, layout, size) };
        if !got.is_null() {
            return (got, false);
        }
    }
    // SAFETY: the size is the caller's, which does not overflow with this alignment; both blocks are as large as what is copied.
    unsafe {
        let (moved, refused) = allocate(Layout::from_size_align_unchecked(size, layout.align()));
        if !moved.is_null() {
            moved.copy_from_nonoverlapping(pointer, size.min(layout.size()));
            free(pointer, layout);
        }
        (moved, refused)
    }
}

/// An allocator that borrows without a word.
pub struct Reserved;

// SAFETY: all memory is `System`'s or the block's, whose pieces do not overlap.
unsafe impl GlobalAlloc for Reserved {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { allocate(layout) }.0
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { allocate_zeroed(layout) }.0
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { free(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { reallocate(pointer, layout, size) }.0
    }
}
