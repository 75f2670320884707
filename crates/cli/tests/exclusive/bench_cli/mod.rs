//! `sonde bench` as a process, as a user starts it: real frames through devices in network
//! namespaces, run folders, interruptions, exit codes. Without root most of these are skipped,
//! and say so.

mod devices;
mod evidence;
mod folders;
mod interrupted;
mod plans;
mod procedures;
mod starved;
mod support;
