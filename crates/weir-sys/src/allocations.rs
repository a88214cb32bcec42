//! Counts the allocations of each thread, so that "nothing is allocated per packet" is measured.
//!
//! A program that wants to know makes `Counting` its allocator; that costs it an addition to a
//! number of its own thread per allocation, and no atomic operation.
#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Constant and without a destructor: reading it neither allocates nor registers anything.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting.
///
/// ```
/// use weir_sys::allocations::{Counting, on_this_thread};
/// #[global_allocator]
/// static ALLOCATOR: Counting = Counting;
///
/// let before = on_this_thread();
/// std::hint::black_box(Box::new(1));
/// assert_eq!(on_this_thread() - before, 1);
/// ```
#[derive(Debug)]
pub struct Counting;

/// Allocations of this thread since it began; stands still if the program's allocator is not
/// `Counting`.
pub fn on_this_thread() -> u64 {
    COUNT.try_with(Cell::get).unwrap_or(0)
}

fn count() {
    // A thread that is being torn down is not counted.
    let _ = COUNT.try_with(|count| count.set(count.get().wrapping_add(1)));
}

// SAFETY: every call is handed on unchanged to the system's allocator, whose answers are given
// back unchanged; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.dealloc(memory, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.realloc(memory, layout, size) }
    }
}
