//! What a reload of 20,000 targets takes (SIGHUP), and whether a probe is lost or late by it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use sonde_lab::{LinkOptions, Topology};
use sonde_results::Counters;

use crate::args::Args;
use crate::figures::{median, quantile};
use crate::folder::WorkFolder;
use crate::reflectors;
use crate::station_process::{StationProcess, store_folder};
use crate::stored;

/// What a reload changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Edit {
    Nothing,
    OneChanged,
    Added,
    Removed,
}

impl Edit {
    const ALL: [Edit; 4] = [Edit::Nothing, Edit::OneChanged, Edit::Added, Edit::Removed];

    fn text(self) -> &'static str {
        match self {
            Edit::Nothing => "nothing",
            Edit::OneChanged => "one target's interval",
            Edit::Added => "1,000 targets added",
            Edit::Removed => "the same 1,000 removed",
        }
    }
}

/// A reload that was made.
struct Made {
    edit: Edit,
    /// Until the station said that it was read again, ms.
    took_ms: f64,
    /// When it was asked for, ns since 1970 UTC.
    asked_ns: i64,
    /// Targets that it added.
    added: Vec<String>,
}

/// All edits in turn while the probe sends, then what became of its probes.
pub fn bench(args: &Args) -> Result<()> {
    println!("\n## Reload of 20,000 targets\n");
    let rounds = if args.short { 1 } else { 5 };
    let topology = Topology::pair("bench", &LinkOptions::default())?;
    let _far = reflectors::start_kernel(&topology)?;
    let folder = WorkFolder::new()?;
    let mut all = Targets::default();
    let mut station = StationProcess::start(&topology.probe, &folder.0, &all.configuration())?;
    station.wait_for_phase("probe.many", "running")?;
    std::thread::sleep(SETTLE);
    let quiet_from = unix_ns()?;
    std::thread::sleep(QUIET);
    let mut made = Vec::new();
    for round in 0..rounds {
        for edit in Edit::ALL {
            eprintln!("reload: {}, round {} ...", edit.text(), round + 1);
            let added = all.change(edit);
            let asked_ns = unix_ns()?;
            let took_ms = station.reload(&all.configuration())?.as_secs_f64() * 1e3;
            made.push(Made { edit, took_ms, asked_ns, added });
            std::thread::sleep(BETWEEN);
        }
    }
    let until = unix_ns()? - ANSWERED_NS;
    let used = station.used();
    station.end()?;
    let kept = stored::intervals(&store_folder(&folder.0), (quiet_from, until))?;
    println!(
        "20,000 targets of one stream each, a probe a second each, `af_xdp`; the file has a line for each \
         target, {} octets. {rounds} rounds. Peak memory {:.0} MiB.\n",
        all.configuration().len(),
        used.peak as f64 / f64::from(1 << 20)
    );
    println!(
        "| what changes | until it is said, ms: median, most | first probe of what was added after, ms: \
         median, most | probes lost | not sent | more than 1 ms late |"
    );
    println!("|---|---|---|---|---|---|");
    // Seconds that a reload touches; the others are the noise.
    let touched = |m: &Made| m.asked_ns / SECOND..=(m.asked_ns + TOUCHED_NS) / SECOND;
    let busy: BTreeSet<i64> = made.iter().flat_map(touched).collect();
    let seconds = |wanted: &dyn Fn(i64) -> bool| {
        let mut sum = Counters::default();
        kept.by_second.iter().filter(|(s, _)| wanted(**s)).for_each(|(_, c)| sum.merge(c));
        sum
    };
    let last = until / SECOND;
    let quiet = seconds(&|s| !busy.contains(&s) && s < last);
    ensure!(quiet.sent > 0, "no second was without a reload");
    println!("| (no reload) | | | {} |", losses(&quiet));
    for edit in Edit::ALL {
        let own: Vec<&Made> = made.iter().filter(|m| m.edit == edit).collect();
        let own_seconds: BTreeSet<i64> = own.iter().flat_map(|m| touched(m)).collect();
        let took = || own.iter().map(|m| m.took_ms);
        let begin_of = |target: &String| kept.first_ns.get(target).copied();
        let first: Vec<f64> = own
            .iter()
            .flat_map(|m| m.added.iter().filter_map(begin_of).map(move |first| first - m.asked_ns))
            .map(|ns| ns as f64 / 1e6)
            .collect();
        let begins = match first.is_empty() {
            true => String::new(),
            false => format!(
                "{:.0}, {:.0}",
                median(first.iter().copied()),
                quantile(first.iter().copied(), 1.0)
            ),
        };
        println!(
            "| {} | {:.0}, {:.0} | {begins} | {} |",
            edit.text(),
            median(took()),
            quantile(took(), 1.0),
            losses(&seconds(&|s| own_seconds.contains(&s)))
        );
    }
    println!(
        "\nProbes are those of the seconds in which a reload was asked for and of the next {}. A stream \
         begins at its place in the second, so the first probe is up to a second after the reload.",
        TOUCHED_NS / SECOND
    );
    Ok(())
}

fn losses(c: &Counters) -> String {
    let late = 100.0 * c.sent_late as f64 / c.sent.max(1) as f64;
    format!("{} of {} | {} | {late:.3} %", c.lost, c.sent, c.skipped)
}

/// The targets of the file.
#[derive(Default)]
struct Targets {
    /// How often something was changed.
    changes: u32,
    /// The first of the added ones, as a number of a host; `None`: there are none.
    added: Option<u32>,
}

impl Targets {
    /// Makes a change; the targets that it adds.
    fn change(&mut self, edit: Edit) -> Vec<String> {
        match edit {
            Edit::Nothing => {}
            Edit::OneChanged => self.changes += 1,
            // Others each time, so that the first record of each is of this reload.
            Edit::Added => self.added = Some(COUNT + 1 + self.changes * ADDED),
            Edit::Removed => self.added = None,
        }
        let fresh = self.added.filter(|_| edit == Edit::Added);
        fresh.into_iter().flat_map(|first| first..first + ADDED).map(host).collect()
    }

    fn configuration(&self) -> String {
        let mut text = "[probe.many]\n\
            stream = { interval = \"1s\" }\n\
            run = { timeout = \"1s\", record_interval = \"1s\", late_limit = \"1ms\" }\n\
            engine = { engine = \"af_xdp\", cpu = 0 }\n\
            target = [\n"
            .to_owned();
        let own = |n: u32| {
            // The one that changes has another interval after each change.
            let odd = n == COUNT && self.changes > 0;
            let interval = 1_000 - self.changes;
            if odd {
                format!(", stream = {{ interval = \"{interval}ms\" }}")
            } else {
                String::new()
            }
        };
        let added = self.added.into_iter().flat_map(|first| first..first + ADDED);
        for n in (1..=COUNT).chain(added) {
            let _ = writeln!(text, "{{ host = \"{}\"{} }},", host(n), own(n));
        }
        text + "]\n"
    }
}

fn host(n: u32) -> String {
    Ipv4Addr::from(0x0a02_0000 + n).to_string()
}

fn unix_ns() -> Result<i64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as i64)
}

const COUNT: u32 = 20_000;
const ADDED: u32 = 1_000;
const SECOND: i64 = 1_000_000_000;
/// After the start.
const SETTLE: Duration = Duration::from_secs(5);
/// Without a reload.
const QUIET: Duration = Duration::from_secs(10);
const BETWEEN: Duration = Duration::from_secs(5);
/// A reload may cost probes so long after it was asked for, ns.
const TOUCHED_NS: i64 = 2 * SECOND;
/// Probes of the last seconds are not decided yet, ns.
const ANSWERED_NS: i64 = 2 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_edit_changes_what_it_says() {
        let mut all = Targets::default();
        let lines =
            |all: &Targets| all.configuration().lines().map(str::to_owned).collect::<Vec<_>>();
        let before = lines(&all);
        assert!(all.change(Edit::Nothing).is_empty());
        assert_eq!(lines(&all), before);
        all.change(Edit::OneChanged);
        let after = lines(&all);
        assert_eq!(before.iter().zip(&after).filter(|(a, b)| a != b).count(), 1);
        let first = all.change(Edit::Added);
        assert_eq!((first.len(), lines(&all).len()), (1_000, after.len() + 1_000));
        all.change(Edit::Removed);
        assert_eq!(lines(&all), after);
        all.change(Edit::OneChanged);
        let second = all.change(Edit::Added);
        assert!(first.iter().all(|target| !second.contains(target)));
    }
}
