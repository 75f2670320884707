//! Benchmarks of devices (RFC 2544 and its successors).
//!
//! `plan` is what was typed, and `expand` makes cases of it. `execution` measures all of them,
//! `runner` one of them, on the bed of `rig`, by the ports of `tester`. `agent` lends ports to a
//! controller elsewhere. `otg` obeys clients of the Open Traffic Generator model.
#![forbid(unsafe_code)]

pub mod agent;
pub mod cases;
mod checks;
mod counters;
mod device_health;
pub mod execution;
pub mod expand;
pub mod forwarder;
pub mod health;
mod judge;
mod layers;
mod networks;
pub mod otg;
mod outcome;
pub mod plan;
mod plan_values;
mod procedures;
mod resume;
mod rig;
pub mod runner;
pub mod store;
#[cfg(test)]
mod test_folder;
pub mod tester;
pub mod tls;
