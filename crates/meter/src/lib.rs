//! The instruments, sans-IO: packets and times go in, packets and records come out.
//!
//! No instrument reads a clock or opens a socket (`clippy.toml` of this crate bans both). So a
//! replay gives the same results at any speed, and every test runs in virtual time.
#![deny(unsafe_code)]

mod copies;
mod counters;
pub mod explain;
pub mod export;
pub mod flow;
pub mod keyed_hash;
pub mod load;
pub mod rtt;
mod sequence;
pub mod sla;
pub mod stamp;
pub mod traffic;
pub mod trial;

use sonde_wire::{Scale, Stamp, Time, TxDone, TxRefused, Verdict};

/// A packet that an instrument wants sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Length of the frame it wrote.
    pub len: usize,
    /// Its mark in [`TxDone`]; 0: no transmit stamp wanted.
    pub cookie: u64,
}

/// The verbs of every instrument. One thread owns it; nothing here allocates.
pub trait Instrument {
    /// What [`Self::poll_record`] gives.
    type Record;

    /// A received frame, beginning with its Ethernet header. `now` is the burst's time.
    fn input(&mut self, frame: &mut [u8], stamp: Stamp, now: Time) -> Verdict;

    /// A frame sent with a cookie has left.
    fn transmitted(&mut self, done: TxDone);

    /// A frame sent with a cookie did not leave this host.
    fn refused(&mut self, _refused: TxRefused) {}

    /// How time stands to the clocks that packets carry, as of `now`. Called before anything else
    /// of a turn; mostly nothing has changed.
    fn set_scale(&mut self, _scale: Scale, _now: Time) {}

    /// Writes the next frame that is due at `now`.
    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit>;

    /// When it next wants `poll_transmit` or `handle_timeout`, if ever.
    fn poll_timeout(&self) -> Option<Time>;

    /// Does what is due by `now`.
    fn handle_timeout(&mut self, now: Time);

    /// Fills `record` with the next finished one.
    fn poll_record(&mut self, record: &mut Self::Record) -> bool;
}

/// What only sends: each frame at a time of its own. One thread owns it; nothing here allocates.
pub trait Paced {
    /// When the next frame is due; `None`: there is none.
    fn due(&self) -> Option<Time>;

    /// Writes the next frame, if it is due at `now`, and returns its length. `now` becomes its
    /// transmit stamp.
    ///
    /// # Panics
    /// If the buffer is shorter than the frame.
    fn write(&mut self, now: Time, buffer: &mut [u8]) -> Option<usize>;

    /// The cookie of the frame that was written last: 0, or what a port that refuses it names it by.
    fn cookie(&self) -> u64 {
        0
    }
}
