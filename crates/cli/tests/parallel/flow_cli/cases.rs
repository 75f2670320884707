//! Small inputs that failed once, with their right values.

use std::path::Path;
use std::process::Command;

use sonde_results::flow::{App, FlowRecord};

use super::support::{Folder, SONDE, flow, records, run_of};

fn case(name: &str) -> String {
    format!("{}/tests/parallel/flow_cli/cases/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn metered(name: &str) -> Vec<FlowRecord> {
    let ended = flow(&format!("{} -q --fields apps,tcp --jsonl -", case(name)));
    assert_eq!(ended.code, 0, "{}", ended.err);
    records(&ended.out)
}

/// A connection over several active time-outs, of which the server says something first.
#[test]
fn who_opened_a_connection_is_the_source_of_all_its_records() {
    let all = metered("active_dir.pcap");
    assert_eq!(all.len(), 3);
    for record in &all {
        assert_eq!(
            (record.key.source.to_string().as_str(), record.key.source_port),
            ("192.0.2.1", 5_000)
        );
        assert!(record.forward.packets > 0 && record.reverse.packets > 0);
    }
    let packets: u64 = all.iter().map(|r| r.forward.packets + r.reverse.packets).sum();
    assert_eq!(packets, 281);
}

#[test]
fn what_a_connection_speaks_is_in_all_its_records() {
    let all = metered("active_app.pcap");
    assert_eq!(all.len(), 3);
    for record in &all {
        let extra = record.extra.as_ref().unwrap();
        assert!(matches!(&extra.app, Some(App::Http { .. })), "{extra:?}");
        assert_eq!(extra.app, all[0].extra.as_ref().unwrap().app);
        let tcp = extra.tcp.unwrap();
        assert!(tcp.handshake_server_ns > 0 && tcp.handshake_client_ns > 0, "{tcp:?}");
    }
}

/// Uptimes of the exporter, and when it was started, in each record.
#[test]
fn times_since_the_exporters_start_are_verified() {
    let mut command = Command::new(SONDE);
    command.args(["flow", "verify", "--truth", &case("verify_uptime_truth.csv")]);
    let ended = command.arg(case("verify_uptime_in_record.ipfix")).output().unwrap();
    let text = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success(), "{text}");
    assert!(!text.contains(" off by "), "{text}");
}

/// The captures of `rtt_cli::cases`: nothing in them was sent again, though much looks like it.
#[test]
fn what_looks_like_sent_again_is_not_counted_as_that() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/rtt_cases");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 24);
    let (mut timed, mut halves) = (0, 0);
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let out = Folder::new();
        let lines = out.file("flows.jsonl");
        let ended = flow(&format!("{} --fields tcp --jsonl {lines} --json", path.display()));
        assert_eq!(ended.code, 0, "{name}: {}", ended.err);
        let copies = run_of(&ended.out).counters["copies"];
        assert_eq!(copies, if name.starts_with("span_dup") { 103 } else { 0 }, "{name}");
        for record in records(&std::fs::read_to_string(lines).unwrap()) {
            let Some(tcp) = record.extra.and_then(|extra| extra.tcp) else { continue };
            let again = [tcp.retransmitted, tcp.reverse_retransmitted];
            let late = [tcp.reordered, tcp.reverse_reordered];
            assert_eq!((again, late), ([0; 2], [0; 2]), "{name}");
            // 20 ms to the server, 10 on another path, a link of 0.3; 1 ms to the client.
            let [server, client] = [tcp.handshake_server_ns, tcp.handshake_client_ns];
            assert!([0, 20_000_000, 9_999_872, 300_032].contains(&server), "{name}: {server}");
            assert!([0, 999_936, 299_776].contains(&client), "{name}: {client}");
            timed += usize::from(server > 0);
            halves += usize::from(client > 0);
        }
    }
    assert_eq!((timed, halves), (17, 15));
}
