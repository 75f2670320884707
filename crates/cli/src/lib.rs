//! The parts of `sonde`: from the command line to workers, and from records to output.
#![forbid(unsafe_code)]
// `println!` panics when nobody reads: see `console`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
pub mod console;

pub mod agent;
pub mod args;
pub mod bench;
pub mod capture_file;
pub mod compare;
pub mod config;
pub mod confined;
pub mod demo;
pub mod doctor;
pub mod exit;
pub mod flow;
pub mod joins;
pub mod lab;
pub mod log;
pub mod names;
pub mod otg;
pub mod output;
pub mod probe;
pub mod pump;
pub mod records;
pub mod reflect;
pub mod report;
pub mod rtt;
pub mod session;
pub mod settings;
pub mod signals;
pub mod sources;
pub mod targets;
pub mod traffic;
pub mod unreachable;
pub mod worker;
