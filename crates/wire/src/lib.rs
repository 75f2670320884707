//! Bytes to values and back: every format Sonde reads or writes, one format a file.
//!
//! No I/O, no clock, no allocation, no `unsafe`. A checked view (`Packet<&[u8]>`)
//! reads fields where they lie; a `Repr` is the same packet as a plain value.
#![no_std]
#![forbid(unsafe_code)]

pub mod packet;
pub mod time;

pub use packet::{Stamp, StampSource, TxDone, Verdict};
pub use time::Time;
