//! A flow that lasts over active time-outs: several records, one source (RFC 5103, section
//! 6.3), and what was learnt of it in each.

use sonde_results::flow::{App, FlowEnd, FlowRecord};
use sonde_wire::feature::Layers;

use super::super::{Config, FlowCache, features};
use super::basics::{ACK, FIN, MS, Meter, RST, S, START, SYN, answer, config, packet, with};

/// Who is the source, and how many packets there were each way.
fn counts(record: &FlowRecord) -> (u16, u64, u64) {
    (record.key.source_port, record.forward.packets, record.reverse.packets)
}

/// Whether a packet or the clock ends the record, and whoever sends next.
#[test]
fn the_first_sender_is_the_source_of_every_record() {
    for by_clock in [false, true] {
        let mut meter = Meter::new(config(8));
        meter.packet(with(packet(0), SYN)).packet(with(answer(1), SYN | ACK));
        for i in 1..12 {
            meter.packet(answer(5 * i * S));
        }
        if by_clock {
            meter.timeout(START + 60 * S + 600 * MS);
            assert_eq!((meter.records.len(), meter.cache.occupancy().flows), (1, 1));
        }
        meter.packet(answer(61 * S)).packet(answer(62 * S)).packet(packet(63 * S));
        meter.packet(packet(64 * S)).timeout(START + 75 * S);
        let records = &meter.records;
        assert_eq!(
            records.iter().map(counts).collect::<Vec<_>>(),
            [(50_000, 1, 12), (50_000, 2, 2)]
        );
        assert_eq!([records[0].end, records[1].end], [FlowEnd::Active, FlowEnd::Idle]);
        let (forward, reverse) = (records[1].forward, records[1].reverse);
        assert_eq!((forward.first_ns, forward.last_ns), (START + 63 * S, START + 64 * S));
        assert_eq!((reverse.first_ns, reverse.last_ns), (START + 61 * S, START + 62 * S));
        assert_eq!((forward.tcp_flags, reverse.tcp_flags), (ACK, ACK));
        assert_eq!((forward.tos, reverse.tos, reverse.ttl_max), (4, 8, 50));
        assert_eq!(meter.cache.counters().flows, 2);
    }
}

/// Many time-outs, in which one end may be silent: every record is in time, none is empty.
#[test]
fn a_silent_end_stays_what_it_was() {
    for source_answers in [false, true] {
        let mut meter = Meter::new(Config { active_ns: 3 * S, ..config(8) });
        meter.packet(packet(0));
        for i in 1..40 {
            let at = i * S + 500 * MS;
            meter.timeout(START + at - 1).packet(if source_answers {
                packet(at)
            } else {
                answer(at)
            });
        }
        let records = meter.finish(START + 40 * S);
        assert!(records.len() >= 13, "{}", records.len());
        for record in &records[1..] {
            let (source, forward, reverse) = counts(record);
            assert_eq!(source, 50_000);
            assert_eq!((forward == 0, reverse == 0), (!source_answers, source_answers));
        }
        let packets: u64 = records.iter().map(|r| r.forward.packets + r.reverse.packets).sum();
        assert_eq!(packets, 40);
    }
}

/// A flow that goes on and then is silent leaves without a record; what comes later is new.
#[test]
fn an_idle_flow_is_forgotten_without_an_empty_record() {
    for late in [false, true] {
        let mut meter = Meter::new(config(8));
        for i in 0..12 {
            meter.packet(packet(5 * i * S));
        }
        if !late {
            meter.timeout(START + 60 * S + 600 * MS);
            assert_eq!((meter.records.len(), meter.cache.occupancy().flows), (1, 1));
            meter.cache.scan(0..8, |_| panic!("there is nothing to be seen of it"));
            meter.timeout(START + 66 * S);
            assert_eq!(meter.cache.occupancy().flows, 0);
        }
        meter.packet(answer(66 * S));
        let records = meter.finish(START + 67 * S);
        assert_eq!(records.iter().map(counts).collect::<Vec<_>>(), [(50_000, 12, 0), (443, 1, 0)]);
        assert_eq!(records[0].end, FlowEnd::Active);
    }
}

/// One that goes on takes up room, and none that has not been reported is lost with it.
#[test]
fn a_flow_that_goes_on_may_be_evicted() {
    let mut meter = Meter::new(Config { active_ns: S, ..config(8) });
    (0..8).for_each(|i| {
        meter.packet(sonde_wire::feature::Feature { source_port: i, ..packet(i.into()) });
    });
    meter.timeout(START + 2 * S);
    assert_eq!((meter.records.len(), meter.cache.occupancy().flows), (8, 8));
    meter.packet(packet(2 * S));
    assert_eq!((meter.records.len(), meter.cache.occupancy().flows), (8, 8));
    assert_eq!(meter.cache.counters().evicted_full, 0);
    assert_eq!(meter.finish(START + 2 * S).len(), 9);
}

#[test]
fn a_connection_closes_over_a_time_out() {
    // FIN of one end before it, of the other behind it.
    let mut meter = Meter::new(Config { active_ns: 5 * S, ..config(8) });
    meter.packet(with(packet(0), SYN)).packet(with(packet(4 * S), FIN | ACK));
    meter.packet(answer(6 * S)).packet(with(answer(7 * S), FIN | ACK)).packet(packet(7 * S + 1));
    meter.timeout(START + 9 * S + 1);
    let ends: Vec<_> = meter.records.iter().map(|r| (counts(r), r.end)).collect();
    assert_eq!(ends, [((50_000, 2, 0), FlowEnd::Active), ((50_000, 1, 2), FlowEnd::EndDetected)]);
    assert_eq!(meter.cache.occupancy().flows, 0);
}

/// After FIN or RST a SYN is another connection's, though the time-out came between.
#[test]
fn a_syn_after_the_end_turns_the_flow() {
    for flags in [FIN, RST] {
        let mut meter = Meter::new(Config { active_ns: S, ..config(8) });
        meter.packet(packet(0)).packet(with(answer(S / 2), flags)).timeout(START + 3 * S / 2);
        meter.packet(with(answer(8 * S / 5), SYN));
        let records = meter.finish(START + 2 * S);
        assert_eq!(records.iter().map(counts).collect::<Vec<_>>(), [(50_000, 1, 1), (443, 1, 0)]);
    }
}

/// What closed lingers for its time, also where its record was over in that.
#[test]
fn a_closed_connection_lingers_over_a_time_out() {
    let mut meter = Meter::new(Config { active_ns: S, ..config(8) });
    meter.packet(packet(0)).packet(with(answer(S / 2), RST)).timeout(START + 3 * S / 2);
    meter.packet(answer(2 * S));
    assert_eq!(meter.records.len(), 1);
    meter.timeout(START + 4 * S);
    assert_eq!(
        meter.records.iter().map(counts).collect::<Vec<_>>(),
        [(50_000, 1, 1), (50_000, 0, 1)]
    );
    assert_eq!((meter.records[1].end, meter.cache.occupancy().flows), (FlowEnd::EndDetected, 0));
}

/// The handshake and the application are in every record; counts are each record's own.
#[test]
fn what_was_learnt_is_in_every_record() {
    let features = features::Config { tcp: true, apps: true, spread: true, ..Default::default() };
    let mut cache = FlowCache::new(Config { active_ns: 10 * S, features, ..config(8) });
    let mut records = Vec::new();
    let request = b"GET /a HTTP/1.1\r\nHost: example.org\r\n\r\n";
    let response = b"HTTP/1.1 204 No Content\r\n\r\n";
    let mut give = |mut packet: sonde_wire::feature::Feature, sequence: u32, data: &[u8]| {
        (packet.sequence, packet.headers) = (sequence, 10);
        packet.ip_len = 40 + data.len() as u32;
        let layers = Layers { payload: 1, end: 1 + data.len() as u16, ..Layers::default() };
        let frame = [b"|", data].concat();
        cache.burst(&[packet], &[(&frame, layers)], &mut |record| records.push(record));
    };
    give(with(packet(0), SYN), 99, b"");
    give(with(answer(20 * MS), SYN | ACK), 499, b"");
    give(packet(30 * MS), 100, b"");
    give(packet(40 * MS), 100, request);
    // Seen again: a retransmission of the first record.
    give(packet(41 * MS), 100, request);
    give(packet(9 * S), 100 + request.len() as u32, b"");
    // The answer comes in the second record.
    give(answer(12 * S), 500, response);
    give(packet(20 * S), 100 + request.len() as u32, b"");
    give(answer(23 * S), 500 + response.len() as u32, b"");
    cache.finish(START + 24 * S, &mut |record| records.push(record));
    assert_eq!(records.len(), 3);
    let mut statuses = Vec::new();
    for (i, record) in records.iter().enumerate() {
        assert_eq!(record.key.source_port, 50_000);
        let extra = record.extra.as_ref().unwrap();
        let tcp = extra.tcp.unwrap();
        let handshake = (tcp.handshake_server_ns, tcp.handshake_client_ns);
        assert_eq!(handshake, (20 * MS as u64, 10 * MS as u64));
        assert_eq!(tcp.retransmitted, u32::from(i == 0));
        let payloads = [extra.forward_spread, extra.reverse_spread].map(|s| s.is_some());
        assert_eq!(payloads, [i == 0, i == 1]);
        let Some(App::Http { host, status, .. }) = &extra.app else { panic!("{extra:?}") };
        assert_eq!(host, "example.org");
        statuses.push(*status);
    }
    assert_eq!(statuses, [0, 204, 204]);
}
