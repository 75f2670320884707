//! One reading of one of the kernel's clocks, as all clocks here take it.

use sonde_wire::Time;

/// The time of `clock`, which the vDSO serves where it can.
#[inline]
pub(crate) fn read(clock: libc::clockid_t) -> Time {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is valid memory for the answer; the clocks used here always
    // exist, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &mut ts) };
    from_timespec(&ts)
}

#[inline]
pub(crate) fn from_timespec(ts: &libc::timespec) -> Time {
    Time::from_nanos(ts.tv_sec * 1_000_000_000 + ts.tv_nsec)
}
