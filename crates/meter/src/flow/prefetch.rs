//! Asking for a cache line before it is needed: the one place in this crate with `unsafe`.
#![allow(unsafe_code)]

/// Fetches the cache line in which `slice[index]` begins, so that a later access need not
/// wait. An index out of range is harmless.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    let address = slice.as_ptr().wrapping_add(index).cast::<i8>();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and never faults, whatever the address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address);
    }
    // Elsewhere there is no stable instruction for it: the cache is right, and slower.
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
