//! Frames that were handed over and never left: which, and why.

use std::io;

use sonde_wire::{NotSent, TxRefused};

/// Refusals on their way to the instrument. They are shown with one burst and then forgotten.
pub(crate) struct Refusals {
    list: Vec<TxRefused>,
    shown: usize,
}

impl Refusals {
    /// Room for `most` between two bursts.
    pub fn new(most: usize) -> Self {
        Refusals { list: Vec::with_capacity(most), shown: 0 }
    }

    /// Frame `cookie` did not leave. 0: nobody asks.
    #[inline]
    pub fn add(&mut self, cookie: u64, why: NotSent) {
        if cookie != 0 && self.list.len() < self.list.capacity() {
            self.list.push(TxRefused { cookie, why });
        }
    }

    /// A new burst begins: what the last one showed is done with.
    #[inline]
    pub fn begin(&mut self) {
        self.list.drain(..std::mem::take(&mut self.shown));
    }

    /// Whether this burst shows none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// What this burst shows.
    #[inline]
    pub fn show(&mut self) -> &[TxRefused] {
        self.shown = self.list.len();
        &self.list
    }
}

/// What the kernel's answer to a send means. `routed`: it looks for the way itself.
pub(crate) fn why(error: &io::Error, routed: bool) -> NotSent {
    match error.raw_os_error() {
        Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => NotSent::LinkDown,
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => NotSent::NoRoute,
        // A source address that is not this host's (any more).
        Some(libc::EINVAL | libc::EADDRNOTAVAIL) if routed => NotSent::NoAddress,
        Some(libc::EPERM | libc::EACCES) => NotSent::Refused,
        Some(libc::EMSGSIZE) => NotSent::TooLong,
        Some(libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN) => NotSent::NoBuffer,
        _ => NotSent::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_shown_once() {
        let mut refusals = Refusals::new(3);
        refusals.add(0, NotSent::Other);
        refusals.add(7, NotSent::NoRoute);
        refusals.begin();
        assert_eq!(refusals.show(), [TxRefused { cookie: 7, why: NotSent::NoRoute }]);
        refusals.add(8, NotSent::Refused);
        refusals.begin();
        assert_eq!(refusals.show(), [TxRefused { cookie: 8, why: NotSent::Refused }]);
        refusals.begin();
        assert_eq!(refusals.show(), []);
    }

    #[test]
    fn each_answer_has_its_meaning() {
        let of = |errno| why(&io::Error::from_raw_os_error(errno), true);
        assert_eq!(of(libc::ENETUNREACH), NotSent::NoRoute);
        assert_eq!(of(libc::ENETDOWN), NotSent::LinkDown);
        assert_eq!(of(libc::EINVAL), NotSent::NoAddress);
        assert_eq!(of(libc::EPERM), NotSent::Refused);
        assert_eq!(of(libc::EMSGSIZE), NotSent::TooLong);
        assert_eq!(of(libc::ENOBUFS), NotSent::NoBuffer);
        assert_eq!(why(&io::Error::from_raw_os_error(libc::EINVAL), false), NotSent::Other);
    }
}
