//! The loss ledger: every counter on the way that moved during a trial.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Result;
use sonde_lab::device::{Counter, CounterKind};
use sonde_results::trial::{LedgerEntry, Side};

use super::Made;
use crate::bench::tester::InterfaceCounts;

/// Counters as they stood when a trial began.
pub(super) struct Ledger {
    before: Vec<Counter>,
}

impl Ledger {
    /// Reads them.
    pub(super) fn begin(made: &Made) -> Result<Ledger> {
        Ok(Ledger { before: read(made)? })
    }

    /// Reads them again, after the drain: what was dropped in between, and where.
    pub(super) fn end(self, made: &Made) -> Result<Vec<LedgerEntry>> {
        Ok(dropped(&self.before, read(made)?))
    }
}

/// What was dropped between two readings.
pub fn dropped(before: &[Counter], after: Vec<Counter>) -> Vec<LedgerEntry> {
    let same =
        |a: &Counter, b: &Counter| a.side == b.side && a.place == b.place && a.name == b.name;
    let mut entries = Vec::new();
    for now in after.into_iter().filter(|c| c.kind == CounterKind::Dropped) {
        let before = before.iter().find(|c| same(c, &now)).map_or(0, |c| c.value);
        // A device that was reset begins anew.
        let frames = now.value.checked_sub(before).unwrap_or(now.value);
        if frames > 0 {
            let Counter { side, place, name: counter, .. } = now;
            entries.push(LedgerEntry { side, place, counter, frames });
        }
    }
    entries
}

fn read(made: &Made) -> Result<Vec<Counter>> {
    Ok(match made {
        Made::Lab(bed) => bed.counters()?,
        Made::There(there) => there.counters(),
    })
}

/// What a port of the tester at somebody else's device lost. On virtual Ethernet a frame that
/// finds the device's ring full is counted here, and is the device's loss.
pub fn of_port(
    name: &str,
    netns: Option<&str>,
    interface: &str,
    virtual_end: bool,
) -> Vec<Counter> {
    let Some(counts) = InterfaceCounts::read(netns, interface) else { return Vec::new() };
    let refused = if virtual_end { Side::Device } else { Side::Tester };
    [
        (Side::Tester, "rx_errors", counts.rx_errors),
        (Side::Tester, "rx_dropped", counts.rx_dropped),
        (Side::Tester, "tx_errors", counts.tx_errors),
        (refused, "tx_dropped", counts.tx_dropped),
    ]
    .map(|(side, counter, value)| Counter {
        side,
        place: format!("tester {name}"),
        name: counter.into(),
        kind: CounterKind::Dropped,
        value,
    })
    .into()
}

/// What a reader has to know of the host to repeat a run.
pub fn host_facts() -> BTreeMap<String, String> {
    let file = |path: &str| fs::read_to_string(path).map(|t| t.trim().to_owned()).ok();
    let mut facts = BTreeMap::new();
    for (name, path) in [
        ("kernel command line", "/proc/cmdline"),
        ("kernel version", "/proc/version"),
        ("smt", "/sys/devices/system/cpu/smt/control"),
        ("isolated processors", "/sys/devices/system/cpu/isolated"),
        ("transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
        (
            "real-time throttling (kernel.sched_rt_runtime_us)",
            "/proc/sys/kernel/sched_rt_runtime_us",
        ),
        ("net.core.netdev_budget", "/proc/sys/net/core/netdev_budget"),
        ("net.core.netdev_max_backlog", "/proc/sys/net/core/netdev_max_backlog"),
        ("net.core.bpf_jit_enable", "/proc/sys/net/core/bpf_jit_enable"),
    ] {
        if let Some(value) = file(path).filter(|v| !v.is_empty()) {
            facts.insert(name.to_owned(), value);
        }
    }
    let cpuinfo = file("/proc/cpuinfo").unwrap_or_default();
    if let Some(line) = cpuinfo.lines().find(|l| l.starts_with("microcode")) {
        let value = line.split_once(':').map_or("", |(_, v)| v.trim());
        facts.insert("microcode".into(), value.into());
    }
    let vulnerabilities = fs::read_dir("/sys/devices/system/cpu/vulnerabilities");
    for entry in vulnerabilities.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(value) = file(&entry.path().to_string_lossy()) {
            facts.insert(format!("mitigation {name}"), value);
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moved_is_told_and_what_began_anew_counts_from_zero() {
        let counter = |place: &str, name: &str, kind, value| Counter {
            side: Side::Tester,
            place: place.into(),
            name: name.into(),
            kind,
            value,
        };
        let dropping = |value| counter("a", "tx_dropped", CounterKind::Dropped, value);
        let still = counter("b", "tx_dropped", CounterKind::Dropped, 3);
        let new = counter("b", "rx_errors", CounterKind::Dropped, 2);
        let told = |before: &[Counter], after: Vec<Counter>| {
            let entries = dropped(before, after).into_iter();
            entries.map(|e| (e.place, e.counter, e.frames)).collect::<Vec<_>>()
        };
        assert_eq!(
            told(&[dropping(5), still.clone()], vec![dropping(12), still.clone(), new]),
            [("a".into(), "tx_dropped".into(), 7), ("b".into(), "rx_errors".into(), 2)]
        );
        assert_eq!(told(&[dropping(5)], vec![dropping(1)]), [("a".into(), "tx_dropped".into(), 1)]);
    }
}
