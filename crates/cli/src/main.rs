//! `sonde`: the command line.

mod args;
mod config;
mod exit;
mod output;
mod settings;
mod targets;
mod units;

fn main() {}
