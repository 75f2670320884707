//! What safe code cannot ask of the machine. It is a cache line before it is needed, pages that are
//! zero without having been written, and eight comparisons at once. The one module in this crate
//! with `unsafe`.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

/// A bucket of the flow cache's index: eight ways in one cache line. It is made of integers
/// alone, so that [`zeroed`] may take fresh memory for buckets in which nothing is entered.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    /// Of each way 16 bits of its key's hash, from the lowest; 0: free.
    pub(super) tags: [u64; 2],
    pub(super) slots: [u32; WAYS],
    /// Keys whose home this is and that lie in their other bucket.
    pub(super) away: u32,
}

/// Fetches the cache line in which `slice[index]` begins, so that a later access need not
/// wait. An index out of range is harmless.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    fetch(slice.as_ptr().wrapping_add(index).cast());
}

#[inline(always)]
fn fetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and never faults, whatever the address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    // Elsewhere there is no stable instruction for it: the cache is right, and slower.
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Fetches every cache line of `slice[index]`.
#[inline(always)]
pub(crate) fn prefetch_all<T>(slice: &[T], index: usize) {
    let first = slice.as_ptr().wrapping_add(index).cast::<u8>();
    for line in 0..size_of::<T>().div_ceil(64) {
        fetch(first.wrapping_add(line * 64));
    }
    prefetch_end(slice, index);
}

/// Fetches the cache line in which `slice[index]` ends.
#[inline(always)]
pub(crate) fn prefetch_end<T>(slice: &[T], index: usize) {
    let end = slice.as_ptr().wrapping_add(index + 1).cast::<u8>().wrapping_sub(1);
    fetch(end);
}

/// `len` buckets in which nothing is entered. Fresh memory is zero: what is never used is
/// never touched, and has no page behind it.
pub(super) fn zeroed(len: usize) -> Vec<Bucket> {
    let layout = Layout::array::<Bucket>(len).expect("buckets of 2^26 flows fit");
    assert!(layout.size() > 0);
    // SAFETY: the layout is that of a vector of `len` buckets, and not empty. All bytes 0 are a
    // bucket, which is made of integers. The vector owns the memory from here on.
    unsafe {
        let memory = alloc_zeroed(layout).cast::<Bucket>();
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        Vec::from_raw_parts(memory, len, len)
    }
}

/// Which of eight 16-bit lanes, from the lowest of the first word, are `value`. The lowest bit that
/// is set is in lane n where it is bit 2 n or the one above.
#[inline(always)]
pub(super) fn equal(lanes: [u64; 2], value: u16) -> u32 {
    // SAFETY: every x86-64 processor has SSE2; no memory is touched.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use core::arch::x86_64::{
            _mm_cmpeq_epi16, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi16,
        };
        let lanes = _mm_set_epi64x(lanes[1] as i64, lanes[0] as i64);
        _mm_movemask_epi8(_mm_cmpeq_epi16(lanes, _mm_set1_epi16(value as i16))) as u32
    }
    #[cfg(not(target_arch = "x86_64"))]
    equal_anywhere(lanes, value)
}

/// The same on any machine.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn equal_anywhere(lanes: [u64; 2], value: u16) -> u32 {
    let lane = |i: usize| (lanes[i / 4] >> (i % 4 * 16)) as u16;
    (0..8).map(|i| u32::from(lane(i) == value) << (2 * i)).sum()
}

/// Keys that a bucket has room for.
pub(super) const WAYS: usize = 8;
const _: () = assert!(size_of::<Bucket>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    /// Also next to lanes that differ by one bit.
    #[test]
    fn lanes_are_compared_exactly() {
        let lanes = [0x0002_0003_0002_0001, 0x0002_0000_8001_8000];
        for value in 0..=u16::MAX {
            let lowest = |mask: u32| (mask != 0).then(|| mask.trailing_zeros() / 2);
            let wanted = lowest(equal_anywhere(lanes, value));
            assert_eq!(lowest(equal(lanes, value)), wanted, "{value}");
        }
        assert_eq!(equal_anywhere(lanes, 2).trailing_zeros(), 2);
        assert_eq!(equal_anywhere(lanes, 0x8001).trailing_zeros(), 10);
    }
}
