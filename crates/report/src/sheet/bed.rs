//! Sheets on the test bed: its ports and what else was recorded of it.

use sonde_results::bench::BenchRun;

use super::{Cell, Sheet};
use crate::quantity::show_time;

pub fn ports(run: &BenchRun) -> Sheet {
    let columns =
        [("port", ""), ("interface", ""), ("driver", ""), ("speed", "bit/s"), ("mode", "")];
    let mut sheet = Sheet::new(
        "ports",
        "Ports of the tester",
        &format!("Joined so: {}", run.bed.diagram.join("; ")),
        &columns,
    );
    sheet.rows = run
        .bed
        .ports
        .iter()
        .map(|p| {
            vec![
                p.name.as_str().into(),
                p.interface.as_str().into(),
                p.driver.as_str().into(),
                Cell::maybe(p.speed_bps.map(|s| s as f64)),
                p.mode.as_str().into(),
            ]
        })
        .collect();
    sheet
}

/// Everything else that a repetition elsewhere needs to know.
pub fn facts(run: &BenchRun) -> Sheet {
    let mut sheet = Sheet::new("bed", "Test bed and run", "", &[("fact", ""), ("value", "")]);
    let host = &run.header.host;
    let synchronised = match host.clock_synchronised {
        true => format!("yes, to {} ns at worst", host.clock_max_error_ns),
        false => "no".into(),
    };
    let time = |ns: i64| show_time(ns, host.tai_offset_s);
    let own = [
        ("Sonde", run.header.version.clone()),
        ("Command", run.config.command.join(" ")),
        ("Engine", run.config.engine.clone()),
        ("Seed", run.config.seed.to_string()),
        ("Plan, SHA-256", run.config.plan_sha256.clone()),
        ("Began", time(run.header.start_ns)),
        ("Ended", if run.header.end_ns > 0 { time(run.header.end_ns) } else { "not yet".into() }),
        ("Host", host.name.clone()),
        ("Kernel", host.kernel.clone()),
        ("Processors", format!("{} x {}", host.cpus, host.cpu)),
        ("Clock source", host.clock_source.clone()),
        ("Clock synchronised", synchronised),
    ];
    let own = own.into_iter().map(|(name, value)| (name.to_string(), value));
    let found = run.bed.facts.iter().map(|(name, value)| (name.clone(), value.clone()));
    sheet.rows = own
        .chain(found)
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| vec![name.into(), value.into()])
        .collect();
    sheet
}
