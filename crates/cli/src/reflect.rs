//! `sonde reflect`: asks for a reflector, and prints what it counts.

use sonde_run::reflect::{self, ReflectorReport};

use crate::args::ReflectArgs;
use crate::exit::{Exit, Failure};
use crate::signals;

/// Runs until interrupted.
pub fn run(args: &ReflectArgs) -> Result<Exit, Failure> {
    let context = signals::confined_context(Vec::new())?;
    let (how, reflecting) = reflect::start(args.settings(), &context)?;
    if !args.json {
        outln!("reflecting on {how}");
    }
    reflecting.records.iter().for_each(|record| print(&record, args.json));
    Exit::of(reflecting.join())
}

fn print(record: &ReflectorReport, json: bool) {
    if json {
        match serde_json::to_string(record) {
            Ok(line) => outln!("{line}"),
            Err(error) => sonde_errln!(ERROR, "a record cannot be printed: {error}"),
        }
        return;
    }
    let ReflectorReport { reflected, per_second, sessions, user, port, kernel, .. } = record;
    let mut line = format!("reflected {reflected} ({per_second:.0}/s), {sessions} sessions");
    if let Some(kernel) = kernel {
        line += &format!(", {} in the kernel", kernel.get("reflected").copied().unwrap_or(0));
    }
    let dropped = user.iter().filter(|(name, _)| name.starts_with("dropped"));
    let lost_counters = ["rx_dropped", "rx_invalid", "tx_dropped", "interface_lost"];
    let lost = port.iter().filter(|(name, _)| lost_counters.contains(name));
    let refused = kernel
        .iter()
        .flatten()
        .filter(|(name, _)| name.starts_with("dropped") || **name == "passed_bad_checksum");
    for (name, n) in dropped.chain(lost).chain(refused).filter(|(_, n)| **n > 0) {
        line += &format!(", {name} {n}");
    }
    outln!("{line}");
}
