//! The packet memory: one mapping for all queues, cut into frames of equal size.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// Anonymous memory, or the part of it that one owner has.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len: usize,
    _whole: Arc<Memory>,
}

/// Mapped and present until dropped.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: its part of the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Region {}

// SAFETY: nothing is read or written through it; it only ends the mapping, once, when no part is
// left.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Region {
    /// `len` zeroed bytes, rounded up to whole huge pages; on huge pages where the
    /// kernel has some to give.
    pub fn new(len: usize) -> io::Result<Region> {
        let len = len.next_multiple_of(HUGE_PAGE);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches
        // no memory of ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Before the first touch, or small pages are there already (so no MAP_POPULATE:
        // registering the memory with the kernel makes every page present). Refused
        // where huge pages are switched off, which costs speed alone.
        // SAFETY: the range is the mapping just made.
        unsafe { libc::madvise(start, len, libc::MADV_HUGEPAGE) };
        let start = NonNull::new(start.cast()).expect("mmap never maps address 0 unasked");
        Ok(Region { start, len, _whole: Arc::new(Memory { start, len }) })
    }

    /// Cuts off what lies from `at` on: it belongs to the other owner from now on.
    pub fn split_off(&mut self, at: usize) -> Region {
        assert!(at <= self.len, "within the region");
        // SAFETY: inside the mapping, or just behind it.
        let start = unsafe { self.start.add(at) };
        let len = self.len - at;
        self.len = at;
        Region { start, len, _whole: self._whole.clone() }
    }

    /// All of it.
    ///
    /// The kernel writes only to the frames that it was lent through the fill ring and to the
    /// metadata of those in the transmit ring. The engine hands out others only.
    #[inline]
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is valid as long as `self`, borrowed here, and no other owner has
        // these `len` bytes.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// The address of its first byte.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping made in `Region::new`, and no part of it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Of x86-64 and of 64-bit ARM with 4 KiB pages.
const HUGE_PAGE: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_zeroed_and_writable_to_its_end() {
        let mut region = Region::new(3 << 20).unwrap();
        let bytes = region.bytes();
        assert_eq!(bytes.len(), 4 << 20);
        assert!(bytes.iter().all(|&b| b == 0));
        *bytes.last_mut().unwrap() = 7;
        assert_eq!(region.bytes()[(4 << 20) - 1], 7);
    }

    #[test]
    fn two_owners_have_a_part_each() {
        let mut first = Region::new(1).unwrap();
        let mut second = first.split_off(1 << 20);
        first.bytes().fill(1);
        second.bytes().fill(2);
        assert_eq!((first.bytes().len(), second.bytes().len()), (1 << 20, 1 << 20));
        assert!(first.bytes().iter().all(|&b| b == 1));
        drop(first);
        assert!(second.bytes().iter().all(|&b| b == 2));
    }
}
