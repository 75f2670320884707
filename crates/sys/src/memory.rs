//! Large allocations on huge pages. The state of thousands of streams is touched in no order, and
//! with 4 KiB pages most of the cost is address translation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

/// The system's allocator, but allocations of 2 MiB and more are mapped by themselves and aligned.
/// The kernel is advised to back them by huge pages, where it has any. When such an allocation
/// fails, the program ends with a message and exit code 3.
///
/// A binary opts in with `#[global_allocator] static A: HugePageAllocator = HugePageAllocator;`.
pub struct HugePageAllocator;

// SAFETY: below `HUGE` every call goes to `System`. From `HUGE` on, memory is a private anonymous
// mapping of its own, as long as the rounded size, aligned to `HUGE`. The size and alignment in
// `layout` decide the same way in `alloc` and `dealloc`, so what was mapped is unmapped and nothing
// else.
unsafe impl GlobalAlloc for HugePageAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return map(layout.size());
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return map(layout.size()); // fresh mappings are zero
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if is_large(layout) {
            // SAFETY: mapped by `map` with the same rounded size.
            unsafe { libc::munmap(memory.cast(), round_up(layout.size())) };
            return;
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: `size` is not 0 and fits, by the caller's promise; the alignment is valid.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if !is_large(layout) && !is_large(new) {
            // SAFETY: the caller's promise is passed on.
            return unsafe { System.realloc(memory, layout, size) };
        }
        // SAFETY: both layouts are valid, and the copy stays within the smaller one.
        unsafe {
            let moved = self.alloc(new);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(memory, moved, layout.size().min(size));
                self.dealloc(memory, layout);
            }
            moved
        }
    }
}

fn is_large(layout: Layout) -> bool {
    layout.size() >= HUGE && layout.align() <= HUGE
}

fn round_up(size: usize) -> usize {
    size.div_ceil(HUGE) * HUGE
}

/// Ends the process as one that could not run. No caller of an allocator can go on without,
/// and what Rust itself does is an abort that names no way out. Nothing is allocated here.
fn exhausted(size: usize) -> ! {
    let say = |text: &[u8]| {
        // SAFETY: the kernel reads `text`, which lives through the call.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    };
    let (mut digits, mut at, mut left) = ([0u8; 20], 20, size >> 20);
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    say(b"sonde: this host does not give ");
    say(&digits[at..]);
    say(b" MiB of memory in one piece; ask for less: fewer --flows or --max-sessions, \
          fewer streams, a shorter --timeout or a lower rate\n");
    // SAFETY: ends the process; nothing runs after it.
    unsafe { libc::_exit(CANNOT_RUN) }
}

/// Maps `size` bytes, rounded up, at a multiple of [`HUGE`].
fn map(size: usize) -> *mut u8 {
    let Some(length) = size.checked_add(2 * HUGE).map(|_| round_up(size)) else {
        exhausted(size);
    };
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping touches no existing memory. It is longer than
    // needed by one unit, so that an aligned part of full length lies in it.
    let start = unsafe { libc::mmap(ptr::null_mut(), length + HUGE, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        exhausted(size);
    }
    let address = start as usize;
    let lead = address.next_multiple_of(HUGE) - address;
    // SAFETY: only parts of the mapping just made are given back: the lead before the
    // aligned part, and what follows it. A refused advice costs speed only.
    unsafe {
        let aligned = start.byte_add(lead);
        if lead > 0 {
            libc::munmap(start, lead);
        }
        if HUGE > lead {
            libc::munmap(aligned.byte_add(length), HUGE - lead);
        }
        libc::madvise(aligned, length, libc::MADV_HUGEPAGE);
        aligned.cast()
    }
}

const HUGE: usize = 2 << 20;
/// The exit code of a program that could not run.
const CANNOT_RUN: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_small_memory_is_distinct_aligned_zeroed_and_survives_growing() {
        // SAFETY: every block is used within its size and freed once with its layout.
        unsafe {
            for size in [8, HUGE - 1, HUGE, HUGE + 1, 5 * HUGE + 4096] {
                let layout = Layout::from_size_align(size, 64).unwrap();
                let a = HugePageAllocator.alloc_zeroed(layout);
                let b = HugePageAllocator.alloc(layout);
                assert!(!a.is_null() && !b.is_null() && (a as usize).is_multiple_of(64));
                assert!((0..size).step_by(997).all(|i| *a.add(i) == 0));
                a.write_bytes(7, size);
                b.write_bytes(9, size);
                assert!((0..size).step_by(997).all(|i| *a.add(i) == 7));
                for grown in [size * 3, size / 2 + 1] {
                    let c = HugePageAllocator.alloc(layout);
                    c.write_bytes(5, size);
                    let c = HugePageAllocator.realloc(c, layout, grown);
                    assert!((0..size.min(grown)).step_by(997).all(|i| *c.add(i) == 5));
                    HugePageAllocator.dealloc(c, Layout::from_size_align(grown, 64).unwrap());
                }
                HugePageAllocator.dealloc(a, layout);
                HugePageAllocator.dealloc(b, layout);
            }
        }
    }
}
