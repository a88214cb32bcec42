//! Counts the allocations of each thread and the bytes that it holds, so that "nothing is allocated
//! per packet" and "memory does not grow" are measured.
//!
//! A program that wants to know makes `Counting` its allocator; that costs it two additions to
//! numbers of its own thread per allocation, and no atomic operation.
//!
//! Large blocks get huge pages where the kernel has them. Tables of flows, classes and packets are hit at random: with pages of
//! 4 KiB the processor misses the page of nearly every hit besides the hit itself.
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

/// A block that holds at least one huge page wherever it begins, bytes.
const LARGE: usize = 4 << 20;
const PAGE: usize = 4 << 10;

/// Asks the kernel for huge pages for a large block. What it says is advice: a kernel that has none changes nothing.
fn advise(memory: *mut u8, size: usize) {
    if size < LARGE || memory.is_null() {
        return;
    }
    // From the beginning of its first page: a mapping of which only a part is advised cannot grow where it is.
    let before = memory as usize % PAGE;
    // SAFETY: the pages hold a block that was just given out, and the advice changes nothing that can be read there.
    unsafe { libc::madvise(memory.sub(before).cast(), before + size, libc::MADV_HUGEPAGE) };
}

// SAFETY: every call is handed on unchanged to the system's allocator, whose answers are given
// back unchanged; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        exchange(0, layout.size());
        // SAFETY: the caller's promises are those that `System` asks for.
        let memory = unsafe { System.alloc(layout) };
        advise(memory, layout.size());
        memory
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
        let memory = unsafe { System.alloc_zeroed(layout) };
        advise(memory, layout.size());
        memory
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        exchange(layout.size(), size);
        // SAFETY: the caller's promises are those that `System` asks for.
        let memory = unsafe { System.realloc(memory, layout, size) };
        advise(memory, size);
        memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel notes of the pages at an address: `hg` where huge ones are asked for.
    fn notes(at: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("it is Linux");
        let mut is_it = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let number = |text: &str| usize::from_str_radix(text, 16).ok();
            if let Some((Some(from), Some(to))) = range.map(|(from, to)| (number(from), number(to))) {
                is_it = (from..to).contains(&at);
            } else if let Some(notes) = line.strip_prefix("VmFlags:").filter(|_| is_it) {
                return notes.to_owned();
            }
        }
        String::new()
    }

    #[test]
    fn large_blocks_ask_for_huge_pages() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            eprintln!("SKIPPED: this kernel has no huge pages");
            return;
        }
        let layout = Layout::from_size_align(LARGE, 64).expect("a power of two");
        let small = Layout::from_size_align(64, 64).expect("a power of two");
        for how in 0..4 {
            // SAFETY: the block is given back once, with the layout that it was last taken with.
            let asks = unsafe {
                let memory = match how {
                    // Reversed.
                    0 => System.alloc(layout),
                    1 => Counting.alloc(layout),
                    2 => Counting.alloc_zeroed(layout),
                    _ => Counting.realloc(Counting.alloc(small), small, LARGE),
                };
                memory.add(LARGE / 2).write(1);
                let notes = notes(memory as usize + LARGE / 2);
                Counting.dealloc(memory, layout);
                notes.split(' ').any(|note| note == "hg")
            };
            assert_eq!(asks, how > 0, "{how}");
        }
    }
}
