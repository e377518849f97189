//! Counts the memory that a thread asks for, so that a law can bound it. Asking is enough to count: memory
//! that is never touched costs nothing here and everything on a smaller machine.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// Does some work, and says how many bytes it held at the same time at most.
pub fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    HELD.set(0);
    MOST.set(0);
    let done = work();
    (done, MOST.get().unsigned_abs())
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

/// A thread that ends may free memory after its counters are gone; nobody asks for them then.
fn note(more: isize) {
    let held = HELD.try_with(|held| {
        held.set(held.get().saturating_add(more));
        held.get()
    });
    if let Ok(held) = held {
        MOST.try_with(|most| most.set(most.get().max(held))).ok();
    }
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
#[expect(unsafe_code, reason = "an allocator cannot be written otherwise")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(signed(layout.size()));
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(signed(layout.size()));
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(signed(size).saturating_sub(signed(layout.size())));
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(signed(layout.size()).saturating_neg());
        unsafe { System.dealloc(pointer, layout) }
    }
}
