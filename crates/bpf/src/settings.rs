//! The reflector's settings, shared with the running program through a mapped page.
//!
//! A map update would copy the bytes with no promise about order. The program must never see half
//! of a time offset, so each field is stored in one piece.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, Ordering};

use crate::BpfError;
use crate::mapping::{Access, Mapping};

/// `struct settings` in `c/reflect.bpf.c`, mapped.
#[derive(Debug)]
pub(crate) struct Settings(Mapping);

#[repr(C)]
#[derive(Debug)]
struct Layout {
    utc_behind_ns: AtomicI64,
    generation: AtomicU32,
    error_estimate: AtomicU16,
    redirect_to: AtomicU32,
}

impl Settings {
    /// Maps the page of a global-data map whose only variable is the settings.
    pub(crate) fn map(map: BorrowedFd<'_>) -> Result<Settings, BpfError> {
        Mapping::new(&map, 0, size_of::<Layout>(), Access::Write).map(Settings)
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
        // SAFETY: mapped until drop, page-aligned, of this length, and atomics only.
        unsafe { &*self.0.bytes().cast() }
    }
}
