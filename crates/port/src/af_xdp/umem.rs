//! The packet memory: one mapping for all queues, cut into frames of equal size.

use std::io;
use std::ptr::NonNull;

/// Anonymous memory, mapped and present until dropped.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Region {}

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
        Ok(Region { start, len })
    }

    /// All of it.
    ///
    /// The kernel writes only to the frames that it was lent through the fill ring and
    /// to the metadata of those in the transmit ring; the engine hands out others only.
    #[inline]
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is valid for `len` bytes as long as `self`, borrowed here.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// The address of its first byte.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping made in `new`, and no borrow outlives `self`.
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
}
