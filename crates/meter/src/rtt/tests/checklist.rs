//! The correctness checklist, a test a row.

use super::*;

#[test]
fn repeated_tsval_arms_once_and_matches_the_first_echo_only() {
    let mut bench = Bench::new();
    bench
        .at(0, client(ACK, 100, 1, 10).ts(5, 1))
        .at(1_000, client(ACK, 110, 1, 10).ts(6, 1)) // the first edge: not certain
        .at(2_000, client(ACK, 120, 1, 10).ts(7, 1)) // armed
        .at(2_500, client(ACK, 130, 1, 10).ts(7, 1)) // the same TSval
        .at(12_000, server(ACK, 1, 130, 0).ts(90, 7))
        .at(12_400, server(ACK, 1, 140, 0).ts(90, 7));
    assert_eq!(bench.samples(), [ts(10_000)]);
}

#[test]
fn handshake_is_split_into_the_servers_and_the_clients_side() {
    let mut bench = Bench::new();
    bench
        .at(0, client(SYN, 99, 0, 0).ts(1000, 0))
        .at(20_000, server(SYN | ACK, 499, 100, 0).ts(70, 1000))
        .at(23_000, client(ACK, 100, 500, 0).ts(1023, 70))
        .at(23_500, client(ACK, 100, 500, 50).ts(1024, 70))
        .at(44_000, server(ACK, 500, 150, 200).ts(95, 1024))
        .at(47_000, client(ACK, 150, 700, 0).ts(1047, 95));
    let clean = RttClass::Clean;
    assert_eq!(
        bench.samples(),
        [
            (RttKind::TcpHandshakeServer, clean, 20_000),
            (RttKind::TcpHandshakeClient, clean, 3_000),
            ts(20_500),
            ts(3_000),
        ]
    );
    let flow = bench.flow();
    assert_eq!(flow.flow.source_port, 40_000, "the client is the source");
    assert_eq!((flow.handshake_server_ns, flow.handshake_client_ns), (20_000_000, 3_000_000));
    assert_eq!((flow.forward.samples, flow.backward.samples), (2, 2));
    assert_eq!(flow.forward.rtt_min_ns, 20_000_000);
    assert_eq!((flow.responses, (flow.response_max_ns + 500) / 1000), (1, 20_500));
}

#[test]
fn sequence_numbers_serve_where_timestamps_are_absent() {
    let mut bench = Bench::new();
    bench
        .at(0, client(ACK, 100, 1, 10))
        .at(10_000, server(ACK, 1, 110, 0))
        .at(11_000, client(ACK, 110, 1, 10))
        .at(12_000, client(ACK, 120, 1, 10))
        .at(22_000, server(ACK, 1, 130, 0)); // covers both: the newest counts
    assert_eq!(bench.samples(), [seq(10_000), seq(10_000)]);
}

#[test]
fn echo_requests_are_matched_by_sequence_number() {
    let mut bench = Bench::new();
    let echo = |reply, sequence| {
        let (a, b) = (("192.0.2.1", 7), ("198.51.100.2", 7));
        let (a, b) = if reply { (b, a) } else { (a, b) };
        packet(1, a, b, 84, Detail::Echo { reply, sequence })
    };
    bench
        .packet_at(0, &echo(false, 1), 1)
        .packet_at(1_000, &echo(false, 2), 1)
        .packet_at(9_000, &echo(true, 2), 1)
        .packet_at(10_000, &echo(true, 1), 1);
    let clean = RttClass::Clean;
    assert_eq!(
        bench.samples(),
        [(RttKind::IcmpEcho, clean, 8_000), (RttKind::IcmpEcho, clean, 10_000)]
    );
}
