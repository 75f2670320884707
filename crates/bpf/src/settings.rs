//! The reflector's settings, shared with the running program through a mapped page.
//!
//! A map update would copy the bytes with no promise about order. The program must never see half
//! of a time offset, so each field is stored in one piece.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, Ordering};

use crate::BpfError;

/// `struct settings` in `c/reflect.bpf.c`, mapped.
#[derive(Debug)]
pub(crate) struct Settings(NonNull<Layout>);

#[repr(C)]
#[derive(Debug)]
struct Layout {
    utc_behind_ns: AtomicI64,
    generation: AtomicU32,
    error_estimate: AtomicU16,
    redirect_to: AtomicU32,
}

// SAFETY: the page stays mapped as long as the value lives, and holds atomics only.
unsafe impl Send for Settings {}
// SAFETY: as above.
unsafe impl Sync for Settings {}

impl Settings {
    /// Maps the page of a global-data map whose only variable is the settings.
    pub(crate) fn map(map: BorrowedFd<'_>) -> Result<Settings, BpfError> {
        // SAFETY: a new mapping at an address of the kernel's choice; the result is checked.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Layout>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(BpfError::io("map the reflector's settings", io::Error::last_os_error()));
        }
        Ok(Settings(NonNull::new(page.cast()).expect("the kernel maps nothing at 0")))
    }

    pub(crate) fn set_utc_behind_ns(&self, ns: i64) {
        self.layout().utc_behind_ns.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn set_error_estimate(&self, field: u16) {
        self.layout().error_estimate.store(field.to_be(), Ordering::Relaxed);
    }

    /// The interface that replies are redirected to; 0: `XDP_TX`.
    pub(crate) fn set_redirect_to(&self, ifindex: u32) {
        self.layout().redirect_to.store(ifindex, Ordering::Relaxed);
    }

    /// After a change of addresses: sessions are admitted anew.
    pub(crate) fn next_generation(&self) {
        self.layout().generation.fetch_add(1, Ordering::Release);
    }

    fn layout(&self) -> &Layout {
        // SAFETY: mapped until drop, page-aligned, and at least a page long.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // SAFETY: this mapping was made in `map` and nobody can use it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Layout>()) };
    }
}
