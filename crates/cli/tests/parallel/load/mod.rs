//! The tester on real frames, in network namespaces: what it counts is held against what is
//! known of the device between its ports. Without root these are skipped, and say so.

mod bed;
mod engines;
mod faults;
