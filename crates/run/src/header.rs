//! The head of every run file: which instrument measured, when, and on which host.

use sonde_results::{HostInfo, RunHeader};
use sonde_sys::clock::ClockState;
use sonde_sys::host::HostFacts;

/// This host, for run files.
pub fn describe_host(facts: &HostFacts, clock: &ClockState) -> HostInfo {
    HostInfo {
        name: facts.name.clone(),
        kernel: facts.kernel.clone(),
        cpu: facts.cpu.clone(),
        cpus: facts.cpus,
        clock_source: facts.clock_source.clone(),
        tai_offset_s: clock.tai_offset_s,
        clock_synchronised: clock.synchronised,
        clock_max_error_ns: clock.max_error_ns,
    }
}

/// The header of a run file of `instrument` that begins at `start_ns` (TAI), now.
pub fn run_header(instrument: &str, schema: u32, start_ns: i64, clock: &ClockState) -> RunHeader {
    RunHeader {
        schema,
        version: env!("CARGO_PKG_VERSION").into(),
        instrument: instrument.into(),
        start_ns,
        end_ns: start_ns,
        host: describe_host(&HostFacts::read(), clock),
    }
}
