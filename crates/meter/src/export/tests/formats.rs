//! Each format: what is written is what was measured.

use sonde_results::flow::{FlowRecord, FlowSide};

use super::sample::{NOW, Random, assert_same, export, extra, read, tls};
use crate::export::decode::value;
use crate::export::{
    Config, Decoded, Decoder, ExportInterface, ExportProtocol, Exporter, Extra, Profile, TimeUnit,
};

/// The record as one direction of it is exported, with times in whole `unit`s.
fn uniflow(record: &FlowRecord, reversed: bool, unit: i64) -> FlowRecord {
    let near = if reversed { record.reverse } else { record.forward };
    let mut key = if reversed { record.key.reversed() } else { record.key };
    if reversed && matches!(key.protocol, 1 | 58) {
        let reply = if key.protocol == 1 { 0 } else { 129 << 8 };
        (key.source_port, key.destination_port) = (0, reply);
    }
    key.point = 0;
    FlowRecord {
        key,
        forward: whole(near, unit),
        reverse: FlowSide::default(),
        end: record.end,
        extra: None,
    }
}

fn whole(side: FlowSide, unit: i64) -> FlowSide {
    let cut = |ns: i64| ns.div_euclid(unit) * unit;
    FlowSide { first_ns: cut(side.first_ns), last_ns: cut(side.last_ns), ..side }
}

fn uniflows(records: &[FlowRecord], unit: i64) -> Vec<FlowRecord> {
    let sides = records.iter().flat_map(|record| [(record, false), (record, true)]);
    sides
        .filter(|(r, reversed)| (if *reversed { r.reverse } else { r.forward }).packets > 0)
        .map(|(record, reversed)| uniflow(record, reversed, unit))
        .collect()
}

fn records(seed: u64, count: usize) -> Vec<FlowRecord> {
    println!("seed {seed}");
    let mut random = Random(seed);
    (0..count).map(|_| random.record()).collect()
}

pub fn config(profile: Profile) -> Config {
    let interface =
        |index| ExportInterface { index, name: format!("eth{index}"), description: String::new() };
    Config { profile, interfaces: vec![interface(3), interface(4)], ..Config::default() }
}

#[test]
fn ipfix_exports_each_direction_exactly() {
    let records = records(1, 3000);
    for (time, unit) in [(TimeUnit::Milli, 1_000_000), (TimeUnit::Micro, 1000), (TimeUnit::Nano, 1)]
    {
        let config = config(Profile { time, ..Profile::default() });
        let (exporter, messages) = export(&config, &records);
        let wanted = uniflows(&records, unit);
        assert_eq!(exporter.counters().records, wanted.len() as u64);
        assert_same(&read(&messages), &wanted);
    }
}

#[test]
fn a_biflow_keeps_both_directions_in_one_record() {
    let records = records(2, 3000);
    let config = config(Profile { biflow: true, ..Profile::default() });
    let (exporter, messages) = export(&config, &records);
    assert_eq!(exporter.counters().records, records.len() as u64);
    let wanted: Vec<FlowRecord> = records
        .iter()
        .map(|record| {
            let mut wanted = uniflow(record, false, 1_000_000);
            wanted.reverse = whole(record.reverse, 1_000_000);
            if record.forward.packets == 0 {
                // Its time is the record's.
                (wanted.forward.first_ns, wanted.forward.last_ns) =
                    (wanted.reverse.first_ns, wanted.reverse.last_ns);
            }
            wanted
        })
        .collect();
    assert_same(&read(&messages), &wanted);
}

#[test]
fn the_direction_of_a_biflow_is_exported() {
    let mut random = Random(3);
    let mut record = random.biflow();
    for (forward, reverse) in [(1, 1), (1, 0), (0, 1)] {
        (record.forward.packets, record.reverse.packets) = (forward, reverse);
        let config = config(Profile { biflow: true, ..Profile::default() });
        let (_, messages) = export(&config, std::slice::from_ref(&record));
        assert_eq!(field(&messages, 0, 239), [1]);
        let std::net::IpAddr::V4(source) = record.key.source else { continue };
        assert_eq!(field(&messages, 0, 8), source.octets());
    }
}

/// The value of a field of the last flow in the messages.
fn field(messages: &[Vec<u8>], enterprise: u32, id: u16) -> Vec<u8> {
    let mut decoder = Decoder::new(37);
    let mut found = None;
    for message in messages {
        decoder.message(message, &mut |decoded| {
            if let Decoded::Flow(flow) = decoded {
                let raw = flow.raw.expect("IPFIX");
                found = value(&raw, enterprise, id).map(<[u8]>::to_vec);
            }
        });
    }
    found.unwrap_or_else(|| panic!("no field {enterprise}/{id}"))
}

#[test]
fn the_interface_has_the_index_of_its_point() {
    let mut random = Random(4);
    let mut record = random.biflow();
    for (point, index) in [(0, 3), (1, 4), (2, 0)] {
        record.key.point = point;
        let (_, messages) = export(&config(Profile::default()), std::slice::from_ref(&record));
        assert_eq!(field(&messages, 0, 10), [0, 0, 0, index]);
    }
}

#[test]
fn tcp_flags_take_one_byte_where_one_will_do() {
    let mut record = Random(11).biflow();
    record.reverse.packets = 0;
    for (flags, bytes) in [(0x0fff, vec![0x0f, 0xff]), (0xff, vec![0xff])] {
        record.forward.tcp_flags = flags;
        let (_, messages) = export(&config(Profile::default()), std::slice::from_ref(&record));
        assert_eq!(field(&messages, 0, 6), bytes);
        assert_eq!(read(&messages)[0].forward.tcp_flags, flags);
    }
}

#[test]
fn netflow_9_exports_milliseconds_exactly() {
    let records = records(5, 3000);
    let config = config(Profile { protocol: ExportProtocol::Netflow9, ..Profile::default() });
    let (_, messages) = export(&config, &records);
    let mut wanted = uniflows(&records, 1_000_000);
    for record in &mut wanted {
        // No reason and 8 flags in this format.
        record.end = sonde_results::flow::FlowEnd::Idle;
    }
    assert_same(&read(&messages), &wanted);
    assert!(messages.iter().all(|message| message.len() % 4 == 0));
}

#[test]
fn netflow_5_counts_what_it_cannot_express() {
    let mut records = records(6, 500);
    records[0].key.source = [10, 0, 0, 1].into();
    records[0].key.destination = [10, 0, 0, 2].into();
    records[0].forward.packets = 1;
    records[0].forward.bytes = 1 << 32;
    records[0].reverse.packets = 0;
    let config = config(Profile { protocol: ExportProtocol::Netflow5, ..Profile::default() });
    let (exporter, messages) = export(&config, &records);
    let all = uniflows(&records, 1_000_000);
    let mut wanted: Vec<FlowRecord> = all[1..].to_vec();
    wanted.retain(|record| record.key.source.is_ipv4());
    for record in &mut wanted {
        record.end = sonde_results::flow::FlowEnd::Idle;
        record.key.vlan = 0;
        (record.forward.ttl_min, record.forward.ttl_max) = (0, 0);
    }
    assert_same(&read(&messages), &wanted);
    let missed = (all.len() - wanted.len()) as u64;
    assert_eq!(exporter.counters().not_exportable, missed);
    assert!(missed > 1, "IPv6 was among them");
    for message in &messages {
        assert!((message.len() - 24) / 48 <= 30);
    }
}

#[test]
fn extra_fields_bear_the_numbers_in_use() {
    let mut record = Random(7).biflow();
    record.key.protocol = 6;
    record.key.source = [10, 0, 0, 1].into();
    record.key.destination = [10, 0, 0, 2].into();
    record.extra = Some(Box::new(extra()));
    let profile = Profile {
        biflow: true,
        lists: true,
        extra: Extra { link: true, tcp: true, apps: true },
        ..Profile::default()
    };
    let (exporter, messages) = export(&config(profile), std::slice::from_ref(&record));
    assert_eq!(exporter.counters().reduced, 0);
    let get = |enterprise, id| field(&messages, enterprise, id);
    assert_eq!(get(0, 56), [2, 0, 0, 0, 0, 1]);
    assert_eq!(get(0, 80), [2, 0, 0, 0, 0, 2]);
    assert_eq!(get(0, 245), [0, 77]);
    assert_eq!(get(0, 70), [0, 1, 2]);
    assert_eq!(get(0, 71), [0, 3, 5]);
    assert_eq!(get(0, 351), [1, 0, 0, 0, 0, 0xab, 0xcd, 0xef]);
    assert_eq!(get(0, 8), [192, 0, 2, 1], "the outer header is first");
    assert_eq!(get(0, 530), 12_345u32.to_be_bytes());
    assert_eq!(get(29305, 530), 987u32.to_be_bytes());
    assert_eq!(get(35632, 109), 3u32.to_be_bytes());
    assert_eq!(get(35632, 112), 6u32.to_be_bytes());
    assert_eq!(get(8057, 808), tls().sni.as_bytes());
    assert_eq!(get(39499, 333), [3, 4]);
    assert_eq!(get(39499, 337), b"h2");
    assert_eq!(get(39499, 357).len(), 16);
    assert_eq!(get(8057, 809), tls().ja4.as_bytes());
    assert_eq!(get(0, 96), b"tls");
    // And the basic record: the inner header's addresses, which come last.
    let flows = read(&messages);
    assert_eq!(flows[0].key.source, record.key.source);
    assert_eq!(flows[0].reverse.bytes, record.reverse.bytes);
}

#[test]
fn nothing_extra_is_sent_unasked() {
    let mut plain = Random(8).biflow();
    let mut full = plain.clone();
    full.extra = Some(Box::new(extra()));
    let config = config(Profile::default());
    let (_, with) = export(&config, std::slice::from_ref(&full));
    let (_, without) = export(&config, std::slice::from_ref(&plain));
    assert_eq!(with, without);
    plain.extra = Some(Box::default());
    assert_eq!(export(&config, &[plain]).1, without);
}

#[test]
fn a_record_too_long_for_a_message_loses_its_lists_then_the_rest() {
    let mut record = Random(9).biflow();
    let mut long = extra();
    long.packets = vec![long.packets[0]; 255];
    record.extra = Some(Box::new(long));
    record.reverse.packets = 0;
    let profile = Profile {
        lists: true,
        extra: Extra { link: true, tcp: true, apps: true },
        ..Profile::default()
    };
    let config = |message_bytes| Config { message_bytes, ..config(profile) };
    for (bytes, reduced, has_name) in [(65_535, 0, true), (1452, 1, true), (512, 1, true)] {
        let (exporter, messages) = export(&config(bytes), std::slice::from_ref(&record));
        assert_eq!(exporter.counters().reduced, reduced, "{bytes}");
        assert_eq!(read(&messages).len(), 1);
        assert_eq!(!field(&messages, 8057, 808).is_empty(), has_name);
    }
    let sonde_results::flow::App::Tls(info) = record.extra.as_mut().unwrap().app.as_mut().unwrap()
    else {
        panic!("TLS")
    };
    (info.sni, info.alpn, info.ja4) = ("x".repeat(200), "y".repeat(200), "z".repeat(200));
    record.key.source = "2001:db8::1".parse().unwrap();
    let (exporter, messages) = export(&config(512), std::slice::from_ref(&record));
    assert_eq!(exporter.counters().reduced, 1);
    assert_eq!(read(&messages).len(), 1);
}

#[test]
fn templates_beyond_the_most_are_done_without() {
    // Every combination of what a sender of packets can choose: more than 1024.
    let profile = Profile {
        biflow: true,
        lists: true,
        extra: Extra { link: true, tcp: true, apps: true },
        ..Profile::default()
    };
    let (full, mut records) = (extra(), Vec::new());
    for n in 0..4096u32 {
        let mut record = Random(12).biflow();
        let mut extra = full.clone();
        let has = |bit: u32| n & 1 << bit != 0;
        record.key.protocol = if has(0) { 1 } else { 6 };
        record.forward.tcp_flags = if has(1) { 0xfff } else { 1 };
        record.reverse.packets = u64::from(has(2));
        let link = extra.link.as_mut().unwrap();
        link.mpls.truncate(usize::from(has(3)));
        link.tunnel = link.tunnel.filter(|_| has(4));
        extra.tcp = extra.tcp.filter(|_| has(5));
        extra.packets.truncate(usize::from(has(6)));
        extra.forward_spread = extra.forward_spread.filter(|_| has(7));
        extra.reverse_spread = extra.reverse_spread.filter(|_| has(8));
        extra.app = extra.app.filter(|_| has(9));
        extra.link = extra.link.filter(|_| has(10));
        record.key.source = if has(11) { [10, 0, 0, 1].into() } else { record.key.source };
        record.key.destination =
            if has(11) { [10, 0, 0, 2].into() } else { record.key.destination };
        record.extra = Some(Box::new(extra));
        records.push(record);
    }
    let (exporter, messages) = export(&config(profile), &records);
    assert!(exporter.counters().reduced > 0);
    assert_eq!(read(&messages).len(), records.len());
    let mut decoder = Decoder::new(37);
    let mut ids = std::collections::HashSet::new();
    for message in &messages {
        for set in sonde_wire::ipfix::Message::new_checked(message).unwrap().sets() {
            ids.extend(set.ok().map(|set| set.id).filter(|id| *id >= 256));
        }
        decoder.message(message, &mut |_| ());
    }
    // The basic shapes are always found.
    assert!((1024..1024 + 16).contains(&ids.len()), "{}", ids.len());
    assert_eq!(decoder.counters().not_flows, 0);
}

#[test]
fn times_before_any_other_are_exported_by_netflow_9() {
    // Flows of an old capture, exported now: the header's clock gives way.
    let mut record = Random(10).biflow();
    record.reverse.packets = 0;
    let mut exporter =
        Exporter::new(config(Profile { protocol: ExportProtocol::Netflow9, ..Profile::default() }));
    let mut messages = Vec::new();
    let year = 365 * 24 * 3600 * 1_000_000_000;
    let out = &mut |message: &[u8]| messages.push(message.to_vec());
    exporter.push(&record, NOW + year, out);
    exporter.flush(NOW + year, out);
    assert_eq!(read(&messages)[0].forward, whole(record.forward, 1_000_000));
}

/// Times since the exporter's start (RFC 5102, 5.9), whose time is in the record itself, behind
/// them, or in an options record before. 32 bits of ms wrap in 49.7 days. Without the start nothing
/// is known.
#[test]
fn times_since_the_exporters_start_are_read() {
    const BOOT_MS: u64 = 1_699_999_940_000;
    const EXPORTED_S: u32 = 1_700_000_005;
    let long_ago = BOOT_MS - (1 << 32);
    let cases = [
        (Some(BOOT_MS), None, 60_000, Some(1_700_000_000_000)),
        (None, Some(BOOT_MS), 60_000, Some(1_700_000_000_000)),
        (Some(BOOT_MS), Some(77), 60_000, Some(1_700_000_000_000)),
        (Some(long_ago), None, 60_000, Some(1_700_000_000_000)),
        (None, None, 60_000, None),
    ];
    for (in_record, in_options, first, wanted) in cases {
        let mut sets: Vec<u8> = Vec::new();
        let mut set = |id: u16, body: &[&[u8]]| {
            let body = body.concat();
            sets.extend(id.to_be_bytes());
            sets.extend((body.len() as u16 + 4).to_be_bytes());
            sets.extend(body);
        };
        if let Some(boot) = in_options {
            // Scope: the domain (149).
            set(3, &[&[1, 1, 0, 2, 0, 1, 0, 149, 0, 4, 0, 160, 0, 8]]);
            set(257, &[&7u32.to_be_bytes(), &boot.to_be_bytes()]);
        }
        let count = 7 + u8::from(in_record.is_some());
        let fields =
            [0, 8, 0, 4, 0, 12, 0, 4, 0, 4, 0, 1, 0, 2, 0, 8, 0, 1, 0, 8, 0, 22, 0, 4, 0, 21, 0, 4];
        let init: &[u8] = if in_record.is_some() { &[0, 160, 0, 8] } else { &[] };
        set(2, &[&[1, 0, 0, count], &fields, init]);
        let boot = in_record.map(|boot| boot.to_be_bytes().to_vec()).unwrap_or_default();
        let counts = [3u64.to_be_bytes(), 300u64.to_be_bytes()].concat();
        let times = [u32::to_be_bytes(first), u32::to_be_bytes(first + 1_000)].concat();
        set(256, &[&[192, 0, 2, 1, 192, 0, 2, 2, 17], &counts, &times, &boot]);
        let mut message = vec![0, 10, 0, 0];
        message.extend(EXPORTED_S.to_be_bytes());
        message.extend([0, 0, 0, 0, 0, 0, 0, 7]);
        message.extend(sets);
        let length = (message.len() as u16).to_be_bytes();
        message[2..4].copy_from_slice(&length);
        let mut found = Vec::new();
        Decoder::new(0).message(&message, &mut |decoded| {
            if let Decoded::Flow(flow) = decoded {
                assert!(flow.exact_uptime);
                found.push((flow.record.forward.first_ns, flow.record.forward.last_ns));
            }
        });
        let wanted = wanted.map_or((0, 0), |ms: i64| (ms * 1_000_000, (ms + 1_000) * 1_000_000));
        assert_eq!(found, [wanted]);
    }
}
