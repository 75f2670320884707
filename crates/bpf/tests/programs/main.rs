//! The programs one packet at a time (`BPF_PROG_TEST_RUN`), most of them against what the Rust crates
//! make of the same packet. All in one binary, so that only one is linked.

#[path = "../common/mod.rs"]
mod common;

mod flow_feature;
mod forward;
mod load;
mod reflect;
mod reflect_agree;
mod rtt;
mod rtt_agree;
mod rtt_cases;
mod rtt_headers;
mod rtt_requests;
