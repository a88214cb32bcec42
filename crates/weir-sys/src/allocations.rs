//! Counts the allocations of each thread and the bytes that it holds, so that "nothing is allocated
//! per packet" and "memory does not grow" are measured.
//!
//! A program that wants to know makes `Counting` its allocator; that costs it two additions to
//! numbers of its own thread per allocation, and no atomic operation.
#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Constant and without a destructor: reading it neither allocates nor registers anything.
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
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

/// Bytes that this thread has taken and not given back; below 0 if it gave back what others took.
/// Stands still if the program's allocator is not `Counting`.
///
/// ```
/// use weir_sys::allocations::{Counting, live_bytes_on_this_thread};
/// #[global_allocator]
/// static ALLOCATOR: Counting = Counting;
///
/// let before = live_bytes_on_this_thread();
/// let mut bytes = vec![0u8; 100];
/// assert_eq!(live_bytes_on_this_thread() - before, 100);
/// bytes.reserve_exact(200);
/// assert_eq!(live_bytes_on_this_thread() - before, 300);
/// drop(bytes);
/// assert_eq!(live_bytes_on_this_thread(), before);
/// ```
pub fn live_bytes_on_this_thread() -> i64 {
    LIVE.try_with(Cell::get).unwrap_or(0)
}

fn count() {
    // A thread that is being torn down is not counted.
    let _ = COUNT.try_with(|count| count.set(count.get().wrapping_add(1)));
}

/// Notes that so many bytes were given back, and so many taken.
fn exchange(back: usize, taken: usize) {
    let _ = LIVE.try_with(|live| live.set(live.get() + taken as i64 - back as i64));
}

// SAFETY: every call is handed on unchanged to the system's allocator, whose answers are given
// back unchanged; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        exchange(0, layout.size());
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        exchange(layout.size(), 0);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.dealloc(memory, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        exchange(0, layout.size());
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        exchange(layout.size(), size);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.realloc(memory, layout, size) }
    }
}
