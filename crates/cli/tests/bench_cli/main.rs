//! `sonde bench` as a process, as a user starts it: real frames through devices in network
//! namespaces, run folders, interruptions, exit codes. Without root most of these are skipped,
//! and say so.

mod devices;
mod evidence;
mod folders;
mod interrupted;
mod plans;
mod procedures;
#[path = "../e2e/process.rs"]
#[expect(dead_code, reason = "the end-to-end tests use more of it")]
mod process;
mod starved;
mod support;
