//! The parts of `sonde`: from the command line to instruments, and from records to output.
#![forbid(unsafe_code)]
// `println!` panics when nobody reads: see `console`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
pub mod console;

pub mod agent;
pub mod args;
pub mod bench;
mod choice;
pub mod compare;
pub mod demo;
pub mod doctor;
pub mod exit;
pub mod explain;
pub mod export;
pub mod flow;
pub mod lab;
pub mod log;
pub mod manual;
mod number;
pub mod options;
pub mod otg;
pub mod output;
pub mod probe;
pub mod query;
pub mod reflect;
pub mod report;
pub mod rtt;
pub mod schema;
pub mod service_manager;
pub mod signals;
pub mod silence;
pub mod station;
pub mod status;
mod store_place;
pub mod token;
pub mod top;
pub mod traffic;
