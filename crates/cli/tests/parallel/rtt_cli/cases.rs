//! Captures that were once measured wrongly, with the right values: `tests/golden/rtt_cases`.
//! docs/interop.md says what each is; distances are 20 ms to the server and 1 ms to the
//! client unless said. The tables of taps, VLANs and link types are in `joins` and `captures`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::support::{capture, lines, rtt};

/// A case: its samples (kind, rounded ms, how many), all of class `clean`. Then the counters of
/// the coverage that are not zero, without those that count what is right.
type Case = (&'static str, &'static [(&'static str, u64, usize)], &'static [(&'static str, u64)]);

const SERVER: (&str, u64, usize) = ("tcp_handshake_server", 20, 1);
const CLIENT: (&str, u64, usize) = ("tcp_handshake_client", 1, 1);
const SEQ: &str = "tcp_sequence";
const TS: &str = "tcp_timestamp";

#[rustfmt::skip]
const CASES: &[Case] = &[
    // A 300 us link; one ACK in ten was read 10 us before its data.
    ("ack_before_data_seq", &[("tcp_handshake_server", 0, 1), ("tcp_handshake_client", 0, 1), (SEQ, 0, 90)], &[("ack_unseen", 10)]),
    ("ack_before_data_ts", &[("tcp_handshake_server", 0, 1), ("tcp_handshake_client", 0, 1), (TS, 0, 90)], &[("ack_unseen", 10)]),
    ("blind_syn_seq", &[SERVER, CLIENT, (SEQ, 20, 70)], &[("unconfirmed", 1)]),
    ("blind_syn_ts", &[SERVER, CLIENT, (TS, 20, 70)], &[("unconfirmed", 1)]),
    ("const_tsval", &[SERVER, CLIENT, (SEQ, 20, 60)], &[]),
    ("dns_fixedport_loss2", &[("dns", 20, 1456)], &[]),
    ("dns_many", &[("dns", 50, 8)], &[]),
    ("dns_noquestion", &[("dns", 20, 1)], &[]),
    ("far_ahead_seq", &[SERVER, CLIENT, (SEQ, 20, 70)], &[("unconfirmed", 1)]),
    ("far_ahead_ts", &[SERVER, CLIENT, (TS, 20, 70)], &[("unconfirmed", 1)]),
    ("hs_client_false", &[SERVER, (SEQ, 1, 1)], &[]),
    ("iplen0", &[SERVER, CLIENT, (SEQ, 20, 30)], &[]),
    ("ping_loss10", &[("icmp_echo", 20, 529)], &[]),
    ("ping_loss2", &[("icmp_echo", 20, 587)], &[]),
    ("ping_many", &[("icmp_echo", 500, 200)], &[]),
    ("ping_self", &[("icmp_echo", 0, 10)], &[]),
    ("reuse_nosyn_seq", &[SERVER, CLIENT, (SEQ, 20, 70)], &[("resynchronised", 1), ("unconfirmed", 1)]),
    ("simopen", &[SERVER, (SEQ, 20, 10)], &[]),
    ("span_dup", &[SERVER, CLIENT, (SEQ, 20, 50)], &[("duplicated", 103)]),
    ("span_dup_ts", &[SERVER, CLIENT, (TS, 20, 50)], &[("duplicated", 103)]),
    ("step_push_seq", &[("tcp_handshake_server", 10, 1), CLIENT, (SEQ, 10, 10), (SEQ, 100, 50)], &[]),
    ("step_push_ts", &[("tcp_handshake_server", 10, 1), CLIENT, (TS, 10, 10), (TS, 100, 50)], &[]),
    ("ts_1hz", &[SERVER, CLIENT, (SEQ, 20, 399), (TS, 20, 1)], &[]),
    ("ts_oneside", &[SERVER, CLIENT, (SEQ, 20, 20)], &[]),
];

/// Requests and their answers, of the captures that have some: sent, answered, given up.
/// The last of them may still wait when the capture ends.
const REQUESTS: &[(&str, [u64; 3])] = &[
    ("dns_fixedport_loss2", [1500, 1456, 43]),
    ("ping_loss10", [600, 529, 71]),
    ("ping_loss2", [600, 587, 13]),
];

/// What a capture that is whole and right may count.
const ORDINARY: [&str; 6] =
    ["packets", "flows", "flows_ended", "samples_clean", "requests", "answered"];

#[test]
fn what_was_measured_wrongly_once_is_measured_rightly() {
    for (name, samples, counters) in CASES {
        let file = capture(&format!("../rtt_cases/{name}.pcap.gz"));
        let ended = rtt(&format!("{file} --format jsonl --sample-limit none"));
        assert_eq!(ended.code, 0, "{name}: {}", ended.err);
        let mut found = BTreeMap::new();
        for sample in lines(&ended.out, "sample") {
            assert_eq!(sample["class"], "clean", "{name}: {sample}");
            let ms = (sample["rtt_ns"].as_f64().unwrap() / 1e6).round() as u64;
            *found.entry((sample["kind"].as_str().unwrap().to_owned(), ms)).or_insert(0) += 1;
        }
        let right = samples.iter().map(|&(kind, ms, n)| ((kind.to_owned(), ms), n));
        assert_eq!(found, right.collect(), "{name}");

        let coverage = lines(&ended.out, "coverage").pop().unwrap();
        let counted = coverage["counters"].as_object().unwrap().iter();
        let counted = counted.map(|(name, n)| (name.as_str(), n.as_u64().unwrap()));
        let odd: Vec<_> = counted.filter(|(n, v)| *v > 0 && !ORDINARY.contains(n)).collect();
        assert_eq!(odd, *counters, "{name}");

        let flows = lines(&ended.out, "flow");
        let sum = |key: &str| -> u64 {
            let of = |side: &Value| side[key].as_u64().unwrap();
            flows.iter().map(|f| of(&f["forward"]) + of(&f["backward"])).sum()
        };
        assert_eq!(sum("retransmitted"), 0, "{name}");
        if let Some((_, right)) = REQUESTS.iter().find(|(n, _)| n == name) {
            assert_eq!(["requests", "answered", "unanswered"].map(sum), *right, "{name}");
        }
    }
}
