//! What Sonde exports, held against other people's collectors: nfcapd, nfacctd, goflow2
//! and tshark. Flow records of known truth go out over UDP on the loopback, options first;
//! then what the collector says of them must be the truth: every flow once, counts both
//! ways, times to the millisecond, flags, nothing missed by the sequence numbers.
//!
//! Without a collector its tests are skipped, and say so.

mod collector;
mod goflow2;
mod nfacctd;
mod nfcapd;
mod truth;
mod tshark;
