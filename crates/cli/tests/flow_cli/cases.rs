//! Small inputs that failed once, with their right values.

use std::process::Command;

use sonde_results::flow::{App, FlowRecord};

use crate::support::{SONDE, flow, records};

fn case(name: &str) -> String {
    format!("{}/tests/flow_cli/cases/{name}", env!("CARGO_MANIFEST_DIR"))
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
