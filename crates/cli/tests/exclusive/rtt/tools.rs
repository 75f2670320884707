//! Other people's judges: tshark and tcptrace over a capture file, and whether they are here.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use super::oracle::Direction;

/// Whether a program can be run; if not, the test is skipped, and says so past the test
/// harness's capture.
pub fn missing(test: &str, programs: &[&str]) -> bool {
    let found = |program: &str| {
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        path.split(':').any(|folder| Path::new(folder).join(program).is_file())
    };
    let Some(absent) = programs.iter().find(|program| !found(program)) else { return false };
    let why = format!("no '{absent}' on this machine; 'make setup' installs it");
    sonde_lab::skipped(test, why);
    true
}

/// What tshark says about one packet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Analysis {
    /// `tcp.analysis.ack_rtt`, ns.
    pub ack_rtt_ns: Option<i64>,
    /// `dns.time`, ns.
    pub dns_ns: Option<i64>,
    /// `icmp.resptime`, ns.
    pub icmp_ns: Option<i64>,
    /// Any of its three kinds of retransmission.
    pub retransmission: bool,
    pub out_of_order: bool,
    pub duplicate_ack: bool,
    pub zero_window: bool,
    /// A SACK block about data that came twice (RFC 2883).
    pub duplicate_sack: bool,
}

/// tshark's analysis of each packet of a capture, in order.
pub fn tshark(file: &Path) -> Vec<Analysis> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "fields", "-E", "separator=,", "-E", "occurrence=f"]);
    command.args(TSHARK_FIELDS.iter().flat_map(|field| ["-e", field]));
    let output = command.arg("-r").arg(file).output().unwrap();
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(fields.len(), TSHARK_FIELDS.len(), "tshark: {line}");
        let set = |n: usize| !fields[n].is_empty();
        Analysis {
            ack_rtt_ns: decimal(fields[0], 9),
            dns_ns: decimal(fields[1], 9),
            icmp_ns: decimal(fields[2], 6),
            retransmission: set(3) || set(4) || set(5),
            out_of_order: set(6),
            duplicate_ack: set(7),
            zero_window: set(8),
            duplicate_sack: set(9),
        }
    };
    text.lines().map(line).collect()
}

/// One of tcptrace's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceSample {
    /// Of the segment that was timed.
    pub direction: Direction,
    /// When its acknowledgement passed, us since 1970.
    pub at_us: i64,
}

/// All samples that tcptrace finds (its graph of them, option `-R`, is the only form that
/// says when each was taken; the times are cut to whole milliseconds in every form).
/// `folder` is for the files that it writes.
pub fn tcptrace(file: &Path, folder: &Path) -> Vec<TraceSample> {
    std::fs::create_dir_all(folder).unwrap();
    let mut command = Command::new("tcptrace");
    // Hardware duplicates: two packets with one IP identification, which Linux sends.
    command.args(["-n", "-R", "--nocheck_hwdups"]).arg(file).current_dir(folder);
    // It would read options from here.
    command.env_remove("TCPTRACEOPTS").env("HOME", folder);
    let output = command.output().unwrap();
    assert!(output.status.success(), "tcptrace: {}", String::from_utf8_lossy(&output.stderr));
    let mut samples = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.to_str().unwrap().ends_with("_rtt.xpl") {
            samples.extend(graph(&std::fs::read_to_string(path).unwrap()));
        }
    }
    samples
}

/// The samples of one graph: its title names the direction, each dot is one.
fn graph(text: &str) -> Vec<TraceSample> {
    let end = |end: &str| -> (IpAddr, u16) {
        let (address, port) = end.rsplit_once(':').unwrap();
        (address.parse().unwrap(), port.parse().unwrap())
    };
    let title = text.lines().skip_while(|l| *l != "title").nth(1).unwrap();
    let title = title.strip_suffix(" (rtt samples)").unwrap();
    let (source, destination) = title.split_once("_==>_").unwrap();
    let (source, destination) = (end(source), end(destination));
    let direction = (source.0, source.1, destination.0, destination.1);
    let dots = text.lines().filter_map(|l| l.strip_prefix("dot "));
    let at_us = |dot: &str| decimal(dot.split(' ').next().unwrap(), 6).unwrap();
    dots.map(|dot| TraceSample { direction, at_us: at_us(dot) }).collect()
}

/// How often each value occurs.
pub fn count<T: Eq + std::hash::Hash>(values: impl IntoIterator<Item = T>) -> HashMap<T, usize> {
    let mut counts = HashMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    counts
}

/// A decimal fraction in units of 10^-`places`; `None`: there is none.
fn decimal(text: &str, places: usize) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: i64 = whole.parse().ok()?;
    let fraction = format!("{fraction:0<places$}");
    Some(whole * 10i64.pow(places as u32) + fraction[..places].parse::<i64>().unwrap())
}

const TSHARK_FIELDS: [&str; 10] = [
    "tcp.analysis.ack_rtt",
    "dns.time",
    "icmp.resptime",
    "tcp.analysis.retransmission",
    "tcp.analysis.fast_retransmission",
    "tcp.analysis.spurious_retransmission",
    "tcp.analysis.out_of_order",
    "tcp.analysis.duplicate_ack",
    "tcp.analysis.zero_window",
    "tcp.options.sack.dsack_le",
];

mod tests {
    use super::super::capture::{golden, golden_file};
    use super::*;
    use sonde_results::rtt::RttKind;

    #[test]
    fn tshark_and_tcptrace_agree_with_what_is_there_by_construction() {
        let test = "tshark_and_tcptrace_agree_with_what_is_there_by_construction";
        if missing(test, &["tshark", "tcptrace"]) {
            return;
        }
        let _turn = crate::turn::shared();
        let case = golden().into_iter().find(|c| c.name == "tcp_sequence").unwrap();
        let found = tshark(&golden_file("tcp_sequence"));
        for sample in &case.expected.samples {
            let analysis = &found[sample.packet];
            assert_eq!(analysis.ack_rtt_ns, Some(sample.rtt_ns as i64), "{sample:?}");
        }
        assert!(!found.iter().any(|a| a.retransmission || a.out_of_order || a.duplicate_ack));
        let folder = std::env::temp_dir().join(format!("sonde-tcptrace.{}", std::process::id()));
        let mut found: Vec<_> =
            tcptrace(&golden_file("tcp_sequence"), &folder).iter().map(|s| s.at_us).collect();
        std::fs::remove_dir_all(&folder).unwrap();
        found.sort();
        let known: Vec<_> = case.expected.samples.iter().map(|s| s.at_ns / 1000).collect();
        assert_eq!(found, known);

        let case = golden().into_iter().find(|c| c.name == "dns").unwrap();
        let found = tshark(&golden_file("dns"));
        for sample in case.expected.samples.iter().filter(|s| s.kind == RttKind::Dns) {
            assert_eq!(found[sample.packet].dns_ns, Some(sample.rtt_ns as i64), "{sample:?}");
        }
        let karn = tshark(&golden_file("tcp_karn"));
        assert_eq!(karn.iter().filter(|a| a.retransmission).count(), 1);
    }

    #[test]
    fn decimals_are_cut_and_filled() {
        assert_eq!(decimal("1.5", 9), Some(1_500_000_000));
        assert_eq!(decimal("1700000000.010499968", 6), Some(1_700_000_000_010_499));
        assert_eq!(decimal("", 9), None);
    }
}
