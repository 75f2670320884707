//! What is found in captures of real clients and servers is what tshark finds in them: see
//! `tests/golden/make_flow_apps.py`. With whole frames, each packet counts; cut at their
//! headers, nothing is found and nothing invented.

use std::path::PathBuf;

use serde_json::Value;
use sonde_meter::flow::{Config, FlowCache, features};
use sonde_results::flow::FlowRecord;
use sonde_wire::feature::{self, Keys};
use sonde_wire::{capture, flow::LinkType};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/flow_apps")
}

/// The records of a capture whose frames are cut to `snap` octets.
fn records(file: &[u8], biflow: bool, snap: usize) -> Vec<FlowRecord> {
    let features = features::Config { apps: true, ..features::Config::default() };
    let mut cache = FlowCache::new(Config { flows: 256, biflow, features, ..Config::default() });
    let mut found = Vec::new();
    let mut last = 0;
    for packet in capture::Reader::new(file).expect("a capture") {
        let packet = packet.expect("a packet");
        let link = LinkType::from_capture(packet.link_type).expect("a link that is known");
        let frame = &packet.data[..packet.data.len().min(snap)];
        last = packet.unix_nanos;
        let read = feature::parse(frame, link, Keys::Outer, last, 0).expect("an IP packet");
        cache.burst(&[read.0], &[(frame, read.1)], &mut |record| found.push(record));
    }
    cache.finish(last, &mut |record| found.push(record));
    found
}

fn app(record: &FlowRecord) -> Value {
    let app = record.extra.as_ref().and_then(|extra| extra.app.as_ref());
    serde_json::to_value(app).expect("a value")
}

#[test]
fn applications_are_those_that_tshark_sees() {
    let mut flows = 0;
    for name in ["tls", "quic", "http", "dns", "dns_notify", "others"] {
        let read = |kind: &str| {
            let path = folder().join(format!("{name}.{kind}"));
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let expected: Vec<Value> = serde_json::from_slice(&read("json")).expect("expectations");
        let found = records(&read("pcap"), true, usize::MAX);
        for want in &expected {
            let is = |record: &&FlowRecord| {
                let key = &record.key;
                want["protocol"] == key.protocol
                    && want["source_port"] == key.source_port
                    && want["destination_port"] == key.destination_port
            };
            // A flow whose ports were used again has the application in its first record.
            let record = found.iter().find(is).unwrap_or_else(|| panic!("{name}: no {want}"));
            assert_eq!(app(record), want["app"], "{name}");
            flows += 1;
        }
        // And nothing more.
        let seen = found.iter().filter(|record| !app(record).is_null()).count();
        assert_eq!(seen, expected.len(), "{name}");
    }
    assert!(flows >= 25, "{flows} flows");
}

#[test]
fn each_direction_alone_gives_its_part() {
    let file = std::fs::read(folder().join("http.pcap")).expect("a capture");
    let found = records(&file, false, usize::MAX);
    let apps: Vec<Value> = found.iter().map(app).filter(|app| !app.is_null()).collect();
    let (answers, requests): (Vec<_>, Vec<_>) = apps.iter().partition(|app| app["method"] == "");
    assert_eq!((requests.len(), answers.len()), (5, 5));
    assert!(requests.iter().all(|app| app["status"] == 0 && app["host"] != ""));
    assert!(answers.iter().all(|app| app["status"] != 0 && app["host"] == ""));
}

#[test]
fn headers_alone_give_nothing() {
    let file = std::fs::read(folder().join("tls.pcap")).expect("a capture");
    let found = records(&file, true, 66);
    assert!(found.len() >= 7);
    assert!(found.iter().all(|record| app(record).is_null()));
}
