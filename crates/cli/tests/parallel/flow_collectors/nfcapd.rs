//! nfcapd collects, nfdump reads.

use std::process::Command;

use serde_json::Value;
use sonde_meter::export::{ExportSelector, ExportStats, Profile, SelectorAlgorithm};

use super::collector::{
    BIFLOW, Collector, DEFAULT, Folder, MICROS, NETFLOW5, NETFLOW9, RECORDS, config, free_port,
    program,
};
use super::truth::{self, CollectorFlow, Flows, compare};

/// What nfcapd wrote down, and what it says itself of sequence numbers.
fn collect(
    test: &str,
    profile: Profile,
    stats: &ExportStats,
    ipv6: bool,
) -> Option<(Flows, usize)> {
    let nfcapd = program(test, "nfcapd")?;
    let nfdump = program(test, "nfdump")?;
    let folder = Folder::new(test);
    let port = free_port();
    let mut command = Command::new(nfcapd);
    command.args(["-p", &port.to_string(), "-b", "127.0.0.1", "-t", "3600", "-w"]);
    command.arg(folder.path());
    let mut collector = Collector::start(command, port);
    collector.send(&truth::messages(config(profile), stats, &truth::records(RECORDS, ipv6)));
    collector.process.signal("TERM");
    let said = collector.process.end();
    let said = said.out + &said.err;
    assert!(said.contains("Sequence Errors: 0, Bad Packets: 0"), "{said}");
    let output = Command::new(nfdump)
        .env("TZ", "UTC")
        .args(["-o", "json", "-R"])
        .arg(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let records: Vec<Value> = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let flows: Flows = records.iter().map(flow).collect();
    assert_eq!(flows.len(), records.len(), "a flow came twice");
    Some((flows, records.len()))
}

fn flow(record: &Value) -> (truth::Key, CollectorFlow) {
    let integer = |name: &str| record[name].as_u64().unwrap_or(0);
    let address = |name: &str| {
        let text = [format!("{name}4_addr"), format!("{name}6_addr")];
        let found = text.iter().find_map(|field| record[field].as_str());
        found.unwrap_or_else(|| panic!("no {name} address: {record}")).parse().unwrap()
    };
    let protocol = integer("proto") as u8;
    let mut ports = (integer("src_port") as u16, integer("dst_port") as u16);
    if matches!(protocol, 1 | 58) {
        ports = (0, (integer("icmp_type") << 8 | integer("icmp_code")) as u16);
    }
    let key = (address("src"), address("dst"), ports.0, ports.1, protocol);
    let time = |name: &str| truth::iso_us(record[name].as_str().unwrap());
    let flags = record["tcp_flags"].as_str().unwrap_or("");
    let bits = flags.bytes().rev().enumerate().filter(|(_, c)| *c != b'.');
    let collected = CollectorFlow {
        packets: integer("in_packets"),
        bytes: integer("in_bytes"),
        first_us: time("first"),
        last_us: time("last"),
        tcp_flags: bits.map(|(bit, _)| 1 << bit).sum(),
    };
    (key, collected)
}

#[test]
fn nfcapd_reads_the_default_profile() {
    let Some((collected, _)) = collect("nfcapd-ipfix", DEFAULT, &ExportStats::default(), true)
    else {
        return;
    };
    compare("nfcapd, IPFIX", &collected, &truth::flows(&truth::records(RECORDS, true)));
}

#[test]
fn nfcapd_reads_netflow_9() {
    let Some((collected, _)) = collect("nfcapd-v9", NETFLOW9, &ExportStats::default(), true) else {
        return;
    };
    compare("nfcapd, NetFlow 9", &collected, &truth::flows(&truth::records(RECORDS, true)));
}

#[test]
fn nfcapd_reads_netflow_5() {
    let Some((collected, _)) = collect("nfcapd-v5", NETFLOW5, &ExportStats::default(), false)
    else {
        return;
    };
    compare("nfcapd, NetFlow 5", &collected, &truth::flows(&truth::records(RECORDS, false)));
}

/// 1.7.1 keeps the counters of microsecond profiles and biflows, not their times and flags:
/// why neither is the default.
#[test]
fn nfcapd_counts_what_is_opted_in() {
    for (name, profile) in [("nfcapd-us", MICROS), ("nfcapd-biflow", BIFLOW)] {
        let Some((collected, records)) = collect(name, profile, &ExportStats::default(), true)
        else {
            return;
        };
        let records_sent = truth::records(RECORDS, true);
        let truth = truth::flows(&records_sent);
        let sent = if profile.biflow { records_sent.len() } else { truth.len() };
        assert_eq!(records, sent, "{name}");
        for (key, collected) in &collected {
            assert_eq!(
                (collected.packets, collected.bytes),
                (truth[key].packets, truth[key].bytes)
            );
        }
    }
}

#[test]
fn nfcapd_multiplies_by_the_sampling_interval() {
    let one_of_100 = ExportSelector {
        id: 1,
        algorithm: SelectorAlgorithm::SystematicCount { interval: 1, space: 99 },
        observed: 1000,
        selected: 10,
    };
    let stats = ExportStats { selectors: vec![one_of_100], ..ExportStats::default() };
    for (name, profile) in [("nfcapd-sampled", DEFAULT), ("nfcapd-sampled-v9", NETFLOW9)] {
        let Some((collected, _)) = collect(name, profile, &stats, true) else { return };
        let mut truth = truth::flows(&truth::records(RECORDS, true));
        for collected in truth.values_mut() {
            collected.packets *= 100;
            collected.bytes *= 100;
        }
        compare(name, &collected, &truth);
    }
}
