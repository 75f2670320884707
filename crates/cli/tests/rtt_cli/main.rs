//! `sonde rtt` as a process: what it prints of a capture and of an interface, what it says
//! when it is refused something, and how it ends.

mod captures;
mod cases;
mod interfaces;
mod joins;
mod links;
mod persist;
#[path = "../e2e/process.rs"]
#[expect(dead_code, reason = "the end-to-end tests use more of it")]
mod process;
mod refused;
mod streams;
mod support;
