//! Tests that may run beside each other: of files and loopback, and of links on which nothing
//! depends on what else the machine does.

mod bench_bridge;
mod exec_cli;
mod explain_cli;
mod flow_cli;
mod flow_collectors;
mod lab;
mod load;
mod messages;
mod otg_cli;
mod output_files;
mod pipes;
#[path = "../support/process.rs"]
#[expect(dead_code, reason = "the exclusive tests use more of it")]
mod process;
mod refused_options;
mod report_cli;
mod rtt_cli;
mod stalled_reader;
mod store_cli;
mod top_cli;
mod traffic;
