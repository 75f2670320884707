//! goflow2, installed by scripts/interop.sh or here, where there is Go.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use sonde_meter::export::{ExportStats, Profile};

use super::collector::{
    BIFLOW, Collector, DEFAULT, Folder, MICROS, NETFLOW5, NETFLOW9, RECORDS, config, free_port,
    skipped,
};
use super::truth::{self, CollectorFlow, Flows, compare};

/// The program that the variable `SONDE_GOFLOW2` names: scripts/interop.sh installs it.
fn goflow2(test: &str) -> Option<PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| std::env::var_os(PROGRAM).map(PathBuf::from));
    if found.is_none() {
        skipped(test, format!("{PROGRAM} names no goflow2; scripts/interop.sh does"));
    }
    found.clone()
}

fn collect(test: &str, profile: Profile, ipv6: bool, wanted: usize) -> Option<Flows> {
    let goflow2 = goflow2(test)?;
    let folder = Folder::new(test);
    let port = free_port();
    let mut command = Command::new(goflow2);
    command
        .args(["-addr", "127.0.0.1:0", "-listen", &format!("netflow://127.0.0.1:{port}")])
        .args(["-format", "json", "-transport", "file"])
        .args(["-transport.file", &folder.file("out.json")]);
    let mut collector = Collector::start(command, port);
    collector.send(&truth::messages(
        config(profile),
        &ExportStats::default(),
        &truth::records(RECORDS, ipv6),
    ));
    let printed = || std::fs::read_to_string(folder.file("out.json")).unwrap_or_default();
    collector.process.until("its flows", |_| printed().lines().count() >= wanted);
    collector.process.signal("INT");
    let said = collector.process.end();
    let said = said.out + &said.err;
    assert!(!said.contains("error"), "{said}");
    let text = printed();
    let records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), wanted);
    let flows: Flows = records.iter().map(flow).collect();
    assert_eq!(flows.len(), wanted, "a flow came twice");
    Some(flows)
}

fn flow(record: &Value) -> (truth::Key, CollectorFlow) {
    let integer = |name: &str| record[name].as_u64().unwrap_or_else(|| panic!("{name}: {record}"));
    let address = |name: &str| record[name].as_str().unwrap().parse().unwrap();
    let protocol = match record["proto"].as_str().unwrap() {
        "TCP" => 6,
        "UDP" => 17,
        "ICMP" => 1,
        "IPv6-ICMP" => 58,
        other => panic!("protocol {other}"),
    };
    let key = (
        address("src_addr"),
        address("dst_addr"),
        integer("src_port") as u16,
        integer("dst_port") as u16,
        protocol,
    );
    let collected = CollectorFlow {
        packets: integer("packets"),
        bytes: integer("bytes"),
        first_us: integer("time_flow_start_ns") as i64 / 1000,
        last_us: integer("time_flow_end_ns") as i64 / 1000,
        tcp_flags: integer("tcp_flags") as u16,
    };
    (key, collected)
}

/// It reads with two workers, of which one may come to the second message first: the first
/// flows are there because the first messages all have their templates with them.
#[test]
fn goflow2_reads_every_format() {
    for (name, profile, ipv6) in [
        ("goflow2-ipfix", DEFAULT, true),
        ("goflow2-us", MICROS, true),
        ("goflow2-v9", NETFLOW9, true),
        ("goflow2-v5", NETFLOW5, false),
    ] {
        let truth = truth::flows(&truth::records(RECORDS, ipv6));
        let Some(collected) = collect(name, profile, ipv6, truth.len()) else { return };
        compare(name, &collected, &truth);
    }
}

/// It knows no reverse elements.
#[test]
fn goflow2_reads_the_forward_half_of_biflows() {
    let truth = truth::forward_flows(&truth::records(RECORDS, true));
    let Some(collected) = collect("goflow2-biflow", BIFLOW, true, truth.len()) else { return };
    compare("goflow2, biflows", &collected, &truth);
}

const PROGRAM: &str = "SONDE_GOFLOW2";
