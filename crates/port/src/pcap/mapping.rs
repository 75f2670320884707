//! A file mapped into memory, read only.
//!
//! It must not be shortened while it is mapped: reading beyond its new end would end the
//! process (SIGBUS).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

/// A mapped file. Empty files are not mapped, but are empty all the same.
pub struct MappedFile {
    bytes: &'static [u8],
}

impl MappedFile {
    /// Maps the whole file.
    pub fn new(file: &File) -> io::Result<Self> {
        let len = usize::try_from(file.metadata()?.len())
            .map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        if len == 0 {
            return Ok(MappedFile { bytes: &[] });
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches no other.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping just made. Only a hint: the result does not matter.
        unsafe { libc::madvise(at, len, libc::MADV_SEQUENTIAL) };
        // SAFETY: mapped for reading over its whole length until `self` is dropped;
        // nobody in this process writes to it.
        let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) };
        Ok(MappedFile { bytes })
    }

    /// The bytes of the file.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes
    }

    /// The bytes of the file, for who keeps the mapping beside them.
    ///
    /// # Safety
    /// They must not be used after `self` is dropped.
    pub(super) unsafe fn bytes(&self) -> &'static [u8] {
        self.bytes
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            // SAFETY: mapped in `new` with this address and length.
            unsafe { libc::munmap(self.bytes.as_ptr().cast_mut().cast(), self.bytes.len()) };
        }
    }
}
