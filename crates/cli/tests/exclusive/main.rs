//! Tests that would disturb each other: they measure real packets, or take both processors. Each
//! takes a [`turn`]; those of two threads that both need the machine wait for each other.

mod agent_cli;
mod bench_cli;
mod docs;
mod e2e;
#[path = "../support/process.rs"]
mod process;
mod rtt;
#[path = "../../../../tests/support/turn.rs"]
mod turn;
