//! `sonde`: the command line.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use sonde_cli::args::{Cli, Command};
use sonde_cli::exit::{Exit, Failure};
use sonde_cli::{
    agent, bench, compare, console, demo, doctor, explain, export, flow, lab, log, manual, options,
    otg, probe, query, reflect, report, rtt, schema, signals, silence, sonde_errln, station,
    status, token, top, traffic,
};

/// The state of thousands of streams lies in a few large allocations.
#[global_allocator]
static ALLOCATOR: sonde_sys::memory::HugePageAllocator = sonde_sys::memory::HugePageAllocator;

fn main() -> ExitCode {
    let asked = Cli::parse();
    options::of(Cli::command);
    log::show(asked.log);
    signals::outlive_file_limit();
    match dispatch(asked.command) {
        Ok(exit) => match console::failure() {
            Some(error) => {
                sonde_errln!(
                    ERROR,
                    "cannot write to standard output: {error}; what was printed is not whole"
                );
                exit.unless_saved().into()
            }
            None => exit.into(),
        },
        Err(failure) => {
            sonde_errln!(ERROR, "{}", failure.message());
            failure.code()
        }
    }
}

fn dispatch(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => station::run(&args),
        Command::CheckConfig(args) => station::check_config(&args),
        Command::Query(args) => query::run(&args),
        Command::Status(args) => status::status(&args),
        Command::Events(args) => status::events(&args),
        Command::Silence(args) => silence::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Reflect(args) => reflect::run(&args),
        Command::Rtt(args) => rtt::run(&args),
        Command::Gen(args) => traffic::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Flow(command) => flow::command(&command),
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::Otg(args) => otg::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Lab(command) => lab::run(&command),
        Command::Demo(args) => demo::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Completion(args) => manual::complete(&args, Cli::command()),
        Command::Man(args) => manual::write(&args, Cli::command()),
    }
}
