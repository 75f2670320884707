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
    outln!("{}", line(record));
}

/// A report on one line: what was answered and where, and all that was not answered.
fn line(record: &ReflectorReport) -> String {
    let ReflectorReport { reflected, per_second, sessions, user, port, kernel, .. } = record;
    let mut line = format!("reflected {reflected} ({per_second:.0}/s), ");
    line += &match (kernel, record.kernel_sessions) {
        (Some(kernel), Some(begun)) => format!(
            "{} of them in the kernel; sessions: {begun} begun in the kernel, {sessions} in user \
             space",
            kernel.get("reflected").copied().unwrap_or(0)
        ),
        _ => format!("{sessions} sessions"),
    };
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
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sessions_of_kernel_and_user_space_are_both_shown() {
        let mut report = ReflectorReport {
            reflected: 360,
            per_second: 36.0,
            sessions: 12,
            user: [("dropped_short", 2), ("reflected", 360)].into(),
            ..ReflectorReport::default()
        };
        assert_eq!(line(&report), "reflected 360 (36/s), 12 sessions, dropped_short 2");
        report.sessions = 1;
        report.kernel_sessions = Some(15);
        report.kernel = Some([("reflected", 350), ("new_sessions", 15)].into());
        let wanted = "reflected 360 (36/s), 350 of them in the kernel; sessions: 15 begun in the \
                      kernel, 1 in user space, dropped_short 2";
        assert_eq!(line(&report), wanted);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["sessions"], &json["kernel_sessions"]), (&1.into(), &15.into()));
    }
}
