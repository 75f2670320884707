//! The memory of maps, shared with the running programs.

use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use libbpf_rs::MapHandle;

use crate::BpfError;

/// A shared mapping of a map.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping lives as long as the value and belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: what is shared of it are atomics.
unsafe impl Sync for Mapping {}

/// What a mapping is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// To write, all of it at hand from the start.
    WriteAtOnce,
}

impl Mapping {
    /// `len` octets of the map from `offset`, a multiple of the page size.
    pub(crate) fn new(
        map: &impl AsFd,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<Self, BpfError> {
        let (protection, flags) = match access {
            Access::Read => (libc::PROT_READ, libc::MAP_SHARED),
            Access::Write => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED),
            Access::WriteAtOnce => {
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE)
            }
        };
        // SAFETY: a new mapping at an address of the kernel's choice; the result is checked.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                protection,
                flags,
                map.as_fd().as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(BpfError::io("map a map's memory", io::Error::last_os_error()));
        }
        Ok(Mapping { at: NonNull::new(at.cast()).expect("the kernel maps nothing at 0"), len })
    }

    /// Its first octet. Whoever reads and writes by it keeps to the mapping's length.
    #[inline]
    pub(crate) fn bytes(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// The word at this offset, a multiple of 4.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len);
        // SAFETY: as in `long`.
        unsafe { AtomicU32::from_ptr(self.at.as_ptr().add(offset).cast()) }
    }

    /// The double word at this offset, a multiple of 8.
    #[inline]
    pub(crate) fn long(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len);
        // SAFETY: within the mapping and aligned; the program changes it concurrently,
        // which atomics allow.
        unsafe { AtomicU64::from_ptr(self.at.as_ptr().add(offset).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping was made in `new`, and no borrow of it is left.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// All values of an array map, as a slice.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    mapping: Mapping,
    count: usize,
    of: PhantomData<T>,
}

/// A type that the programs may change while it is looked at.
///
/// # Safety
/// Laid out as the C structure of the map's values, of a multiple of 8 octets, and made of
/// 64-bit atomics only.
pub(crate) unsafe trait Plain {}

// SAFETY: it is one.
unsafe impl Plain for AtomicU64 {}

impl<T: Plain> Shared<T> {
    /// The first `count` values of `map`, which has as many and whose values are of this type.
    pub(crate) fn map(map: &MapHandle, count: usize) -> Result<Shared<T>, BpfError> {
        let mapping = Mapping::new(map, 0, count * size_of::<T>(), Access::WriteAtOnce)?;
        Ok(Shared { mapping, count, of: PhantomData })
    }
}

impl<T: Plain> Deref for Shared<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: mapped until drop, page-aligned, of this length; `T` is atomics only.
        unsafe { std::slice::from_raw_parts(self.mapping.bytes().cast(), self.count) }
    }
}
