//! Generated truth, exported by Sonde's own exporter, with one fault put in at a time: each
//! must be found and named, and nothing else.

use sonde_meter::export::{
    Config as ExportConfig, ExportProtocol, Exporter, Extra, Profile, TimeUnit,
};
use sonde_meter::traffic::{Config, FlowGenerator, FlowSideTruth, FlowTruth};
use sonde_results::flow::{FlowEnd, FlowKey, FlowRecord, FlowSide};
use sonde_results::units::SECOND;

use super::examples::Kind;
use super::messages::{Exporters, MessageCounters};
use super::observed::{ComparedFields, End, Half, ObservedFlow};
use super::table::{CompareOptions, ComparisonTable, Findings};
use super::{Report, Settings};

const SEED: u64 = 20_261_123;

/// Flows that last for seconds.
fn truth() -> Vec<FlowTruth> {
    println!("seed {SEED}");
    let config = Config {
        seed: SEED,
        flows: 100,
        packets: Some(3_000),
        rate: 300,
        start_ns: 1_700_000_000 * SECOND,
        ..Config::default()
    };
    let mut buffer = vec![0; config.longest_frame()];
    let mut generator = FlowGenerator::new(config).unwrap();
    let mut all = Vec::new();
    while let Some(at) = generator.next_at() {
        generator.emit(at, &mut buffer, &mut |flow| all.push(flow.clone()));
    }
    generator.finish(&mut |flow| all.push(flow.clone()));
    assert!(all.len() > 100);
    all
}

fn half(side: &FlowSideTruth, flow: &FlowTruth) -> Half {
    let fields = ComparedFields {
        tcp_flags: (flow.protocol == 6).then_some(side.tcp_flags),
        tos: Some(flow.tos),
        ..ComparedFields::default()
    };
    Half {
        packets: side.packets.into(),
        bytes: side.bytes,
        span: (side.packets > 0).then_some((side.first_ns, side.last_ns)),
        fields,
    }
}

fn observed(flow: &FlowTruth) -> ObservedFlow {
    ObservedFlow {
        source: End::new(flow.source, flow.source_port),
        destination: End::new(flow.destination, flow.destination_port),
        protocol: flow.protocol,
        forward: half(&flow.forward, flow),
        reverse: half(&flow.reverse, flow),
        unit_ns: 1,
        ..ObservedFlow::default()
    }
}

/// Each direction by itself.
fn directions(flow: &ObservedFlow) -> Vec<ObservedFlow> {
    let forward = ObservedFlow { reverse: Half::default(), ..*flow };
    let reverse = ObservedFlow {
        source: flow.destination,
        destination: flow.source,
        forward: flow.reverse,
        reverse: Half::default(),
        ..*flow
    };
    [forward, reverse].into_iter().filter(|f| f.forward.packets > 0).collect()
}

/// Compares records with the truth; `edit` puts the faults in.
fn judged(limits: CompareOptions, edit: impl FnOnce(&mut Vec<ObservedFlow>)) -> Findings {
    let mut table = ComparisonTable::new(CompareOptions { show: 3, fields: true, ..limits });
    let all: Vec<ObservedFlow> = truth().iter().map(observed).collect();
    all.iter().for_each(|flow| table.add_truth(flow));
    table.truth_is_complete();
    let mut records: Vec<ObservedFlow> = all.iter().flat_map(directions).collect();
    edit(&mut records);
    records.iter().for_each(|record| table.add(record));
    table.finish()
}

fn kinds(findings: &Findings) -> Vec<(Kind, u64)> {
    println!("{:#?}", findings.differences);
    findings.differences.iter().map(|d| (d.kind, d.count)).collect()
}

/// A record with several packets, not all at the same time.
fn long(records: &[ObservedFlow]) -> usize {
    let lasts = |r: &ObservedFlow| r.forward.span.is_some_and(|(a, b)| b - a > SECOND);
    let found = records.iter().position(|r| r.forward.packets >= 4 && lasts(r));
    found.expect("there is a long flow")
}

/// Two halves of a record: what came in the first `share` of its time, and the rest.
fn cut(record: &ObservedFlow) -> (ObservedFlow, ObservedFlow) {
    let (first, last) = record.forward.span.unwrap();
    let (mut a, mut b) = (*record, *record);
    a.forward.packets = 1;
    a.forward.bytes = record.forward.bytes / 2;
    a.forward.span = Some((first, first + (last - first) / 3));
    b.forward.packets -= 1;
    b.forward.bytes -= a.forward.bytes;
    b.forward.span = Some((first + (last - first) / 2, last));
    (a, b)
}

#[test]
fn exact_records_differ_in_nothing() {
    let findings = judged(CompareOptions::default(), |_| {});
    assert_eq!(kinds(&findings), []);
    assert_eq!(findings.exact, findings.directions);
    assert!(findings.segments[0].differences().iter().all(|d| *d == 0.0));
}

#[test]
fn a_truth_without_a_flow_is_no_proof_of_anything() {
    let report = |edit: fn(&mut ComparisonTable)| {
        let mut table = ComparisonTable::new(CompareOptions::default());
        edit(&mut table);
        Report::new(table.finish(), MessageCounters::default(), &Settings::default())
    };
    let nothing = report(|table| table.truth_is_complete());
    assert!(!nothing.exact, "{nothing}");
    assert!(nothing.to_string().contains("NOTHING COMPARED"), "{nothing}");
    let flow = report(|table| {
        let flow = observed(&truth()[0]);
        table.add_truth(&flow);
        table.truth_is_complete();
        table.add(&flow);
    });
    assert!(flow.exact, "{flow}");
}

#[test]
fn biflow_records_and_records_in_any_order_differ_in_nothing() {
    for whole_times in [false, true] {
        let findings = judged(CompareOptions::default(), |records| {
            let mut biflows: Vec<ObservedFlow> = truth().iter().map(observed).collect();
            if whole_times {
                for flow in &mut biflows {
                    flow.span = flow.whole();
                    (flow.forward.span, flow.reverse.span) = (None, None);
                }
            }
            *records = biflows;
            records.reverse();
        });
        assert_eq!(kinds(&findings), []);
        assert_eq!(findings.exact, findings.directions);
    }
}

#[test]
fn a_lost_record_is_missing() {
    let findings = judged(CompareOptions::default(), |records| {
        records.remove(7);
    });
    assert_eq!(kinds(&findings), [(Kind::Missing, 1)]);
    assert_eq!(findings.exact, findings.directions - 1);
    assert!(findings.segments[0].differences().iter().all(|d| *d > 0.0));
}

#[test]
fn packets_lost_within_a_flow_and_wrong_bytes_are_distinguished_from_surplus() {
    for (packets, bytes, kind) in
        [(-1, 0, Kind::Loss), (0, -1, Kind::Loss), (1, 0, Kind::Surplus), (0, 1, Kind::Surplus)]
    {
        let findings = judged(CompareOptions::default(), |records| {
            let at = long(records);
            let half = &mut records[at].forward;
            half.packets = half.packets.checked_add_signed(packets).unwrap();
            half.bytes = half.bytes.checked_add_signed(bytes).unwrap();
        });
        assert_eq!(kinds(&findings), [(kind, 1)]);
    }
}

#[test]
fn a_foreign_record_is_unexpected() {
    let findings = judged(CompareOptions::default(), |records| {
        let mut foreign = records[0];
        foreign.source = End::new("192.0.2.1".parse().unwrap(), 1);
        records.push(foreign);
    });
    assert_eq!(kinds(&findings), [(Kind::Unexpected, 1)]);
    assert_eq!(findings.exact, findings.directions);
}

#[test]
fn a_split_is_named_unless_a_time_out_asked_for_it() {
    let split = |limits: CompareOptions| {
        judged(limits, |records| {
            let at = long(records);
            let (mut a, b) = cut(&records[at]);
            a.reason = Some(FlowEnd::LackOfResources as u8);
            records[at] = a;
            records.push(b);
        })
    };
    let findings = split(CompareOptions::default());
    assert_eq!(kinds(&findings), [(Kind::Split, 1)]);
    assert!(findings.differences[0].examples[0].contains("lack of resources"));
    // Half of more than a second lies between the beginnings, a sixth between the records.
    for limits in [
        CompareOptions { active_ns: Some(SECOND / 2), ..CompareOptions::default() },
        CompareOptions { idle_ns: Some(SECOND / 6), ..CompareOptions::default() },
    ] {
        let findings = split(limits);
        assert_eq!(kinds(&findings), []);
        assert_eq!((findings.exact, findings.rightly_split), (findings.directions, 1));
    }
    let limits = CompareOptions { active_ns: Some(3_600 * SECOND), ..CompareOptions::default() };
    assert_eq!(kinds(&split(limits)), [(Kind::Split, 1)]);
}

#[test]
fn a_record_sent_twice_is_named_as_such() {
    let findings = judged(CompareOptions::default(), |records| {
        let twice = records[long(records)];
        records.push(twice);
    });
    assert_eq!(kinds(&findings), [(Kind::Duplicate, 1)]);
}

#[test]
fn flows_joined_into_one_record_are_named() {
    let mut table = ComparisonTable::new(CompareOptions { show: 3, ..CompareOptions::default() });
    let flow = |first: i64, last: i64, packets| ObservedFlow {
        source: End::new("192.0.2.1".parse().unwrap(), 5_000),
        destination: End::new("192.0.2.2".parse().unwrap(), 80),
        protocol: 6,
        forward: Half {
            packets,
            bytes: packets * 100,
            span: Some((first * SECOND, last * SECOND)),
            ..Half::default()
        },
        ..ObservedFlow::default()
    };
    // Not in the order of time.
    for truth in [flow(100, 110, 3), flow(0, 10, 5), flow(50, 60, 4)] {
        table.add_truth(&truth);
    }
    table.truth_is_complete();
    table.add(&flow(0, 60, 9));
    table.add(&flow(100, 110, 3));
    let findings = table.finish();
    assert_eq!(kinds(&findings), [(Kind::Joined, 1)]);
    assert_eq!((findings.directions, findings.exact), (3, 1));
}

#[test]
fn shifted_times_are_found_beyond_the_tolerance() {
    let shifted = |by: i64, unit_ns| {
        let limits = CompareOptions { time_tolerance_ns: 1_000_000, ..CompareOptions::default() };
        judged(limits, |records| {
            let at = long(records);
            let (first, last) = records[at].forward.span.unwrap();
            records[at].forward.span = Some((first, last + by));
            records[at].unit_ns = unit_ns;
        })
    };
    assert_eq!(kinds(&shifted(1_000_001, 1)), [(Kind::Time, 1)]);
    assert_eq!(kinds(&shifted(-1_000_001, 1)), [(Kind::Time, 1)]);
    assert_eq!(kinds(&shifted(1_000_000, 1)), []);
    // Seconds cannot say more.
    assert_eq!(kinds(&shifted(SECOND, SECOND)), []);
}

#[test]
fn wrong_fields_are_found_only_where_both_sides_tell_them() {
    let findings = judged(CompareOptions::default(), |records| {
        let tcp = records.iter().position(|r| r.protocol == 6).unwrap();
        let flags = records[tcp].forward.fields.tcp_flags.unwrap();
        records[tcp].forward.fields.tcp_flags = Some(flags ^ 0x20);
        records[tcp].forward.fields.vlan = Some(9);
        records[tcp + 1].forward.fields.tos = None;
    });
    assert_eq!(kinds(&findings), [(Kind::Field, 1)]);
}

#[test]
fn late_records_are_found() {
    let limits = CompareOptions { late_ns: Some(5 * SECOND), ..CompareOptions::default() };
    let findings = judged(limits, |records| {
        for record in records.iter_mut() {
            record.exported_ns = record.whole().map(|(_, last)| last + 4 * SECOND);
        }
        let at = long(records);
        records[at].exported_ns = records[at].exported_ns.map(|at| at + 2 * SECOND);
    });
    assert_eq!(kinds(&findings), [(Kind::Late, 1)]);
    assert_eq!(findings.lateness.max(), Some(6 * SECOND));
}

#[test]
fn sums_are_given_by_prefix_and_by_time() {
    let limits = CompareOptions {
        subnets: vec!["198.18.0.0/15".parse().unwrap(), "2001:2::/48".parse().unwrap()],
        every_ns: Some(2 * SECOND),
        ..CompareOptions::default()
    };
    let findings = judged(limits, |_| {});
    let [all, v4, v6, times @ ..] = &findings.segments[..] else { panic!("too few segments") };
    assert_eq!(all.packets, [3_000, 3_000]);
    assert_eq!(v4.packets[0] + v6.packets[0], 3_000);
    assert!(v4.packets[0] > 0 && v6.packets[0] > 0 && times.len() > 2);
    assert_eq!(times.iter().map(|s| s.bytes[1]).sum::<u64>(), all.bytes[1]);
}

fn side(side: &FlowSideTruth, ttl: u8, tos: u8) -> FlowSide {
    match side.packets {
        0 => FlowSide::default(),
        packets => FlowSide {
            packets: packets.into(),
            bytes: side.bytes,
            first_ns: side.first_ns,
            last_ns: side.last_ns,
            tcp_flags: side.tcp_flags.into(),
            tos,
            ttl_min: ttl,
            ttl_max: ttl,
        },
    }
}

fn messages(profile: Profile, flows: &[FlowTruth]) -> Vec<Vec<u8>> {
    let config = ExportConfig {
        profile,
        domain: 7,
        message_bytes: 1_400,
        datagram: true,
        template_every_ns: 600 * SECOND,
        template_every_messages: 1_000,
        tai_offset_s: 0,
        interfaces: Vec::new(),
    };
    let mut exporter = Exporter::new(config);
    let (mut out, now) = (Vec::new(), 1_700_000_100 * SECOND);
    for flow in flows {
        let record = FlowRecord {
            key: FlowKey {
                point: 0,
                vlan: flow.vlan,
                protocol: flow.protocol,
                source: flow.source,
                destination: flow.destination,
                source_port: flow.source_port,
                destination_port: flow.icmp.map_or(flow.destination_port, |[there, _]| there),
            },
            forward: side(&flow.forward, flow.ttl[0], flow.tos),
            reverse: side(&flow.reverse, flow.ttl[1], flow.tos),
            end: FlowEnd::Idle,
            extra: None,
        };
        exporter.push(&record, now, &mut |message| out.push(message.to_vec()));
    }
    exporter.flush(now, &mut |message| out.push(message.to_vec()));
    out
}

fn judged_messages(flows: &[FlowTruth], messages: &[Vec<u8>]) -> (Findings, MessageCounters) {
    let limits = CompareOptions {
        show: 3,
        time_tolerance_ns: 1_000_000,
        fields: true,
        ..CompareOptions::default()
    };
    let mut table = ComparisonTable::new(limits);
    flows.iter().map(observed).for_each(|flow| table.add_truth(&flow));
    table.truth_is_complete();
    let mut exporters = Exporters::default();
    for message in messages {
        exporters.message(1, message, &mut |flow| table.add(flow));
    }
    (table.finish(), exporters.counters())
}

fn profiles() -> Vec<Profile> {
    let of = |protocol, biflow, time| Profile {
        protocol,
        biflow,
        time,
        lists: false,
        extra: Extra::default(),
    };
    vec![
        of(ExportProtocol::Ipfix, false, TimeUnit::Milli),
        of(ExportProtocol::Ipfix, true, TimeUnit::Milli),
        of(ExportProtocol::Ipfix, false, TimeUnit::Micro),
        of(ExportProtocol::Ipfix, true, TimeUnit::Nano),
        of(ExportProtocol::Netflow9, false, TimeUnit::Milli),
        of(ExportProtocol::Netflow5, false, TimeUnit::Milli),
    ]
}

#[test]
fn every_protocol_is_read_without_a_difference() {
    for profile in profiles() {
        println!("{profile:?}");
        let mut flows = truth();
        if profile.protocol == ExportProtocol::Netflow5 {
            flows.retain(|flow| flow.source.is_ipv4());
        }
        let (findings, counters) = judged_messages(&flows, &messages(profile, &flows));
        assert_eq!(kinds(&findings), []);
        assert_eq!(findings.exact, findings.directions);
        assert_eq!((counters.sequence_missing, counters.sequence_back), (0, 0));
        assert_eq!((counters.unreadable, counters.without_template), (0, 0));
    }
}

#[test]
fn a_lost_message_shows_in_the_sequence_and_in_missing_flows() {
    for profile in profiles() {
        println!("{profile:?}");
        let mut flows = truth();
        if profile.protocol == ExportProtocol::Netflow5 {
            flows.retain(|flow| flow.source.is_ipv4());
        }
        let mut messages = messages(profile, &flows);
        messages.remove(messages.len() / 2);
        let (findings, counters) = judged_messages(&flows, &messages);
        let found = kinds(&findings);
        let [(Kind::Missing, missing)] = found[..] else { panic!("{found:?}") };
        let per_message = match profile.protocol {
            ExportProtocol::Netflow9 => 1,
            _ if profile.biflow => counters.sequence_missing,
            _ => missing,
        };
        assert_eq!(counters.sequence_missing, per_message);
        assert!(counters.sequence_missing > 0);
    }
}

#[test]
fn what_is_no_message_is_counted() {
    let mut exporters = Exporters::default();
    for garbage in [&b""[..], b"\0", b"\0\x0a\0\x10", &[0, 10, 0, 20, 0, 0, 0, 0, 0, 0], b"GET / "]
    {
        exporters.message(1, garbage, &mut |_| panic!("a flow in garbage"));
    }
    assert_eq!(exporters.counters().unreadable, 5);
}
