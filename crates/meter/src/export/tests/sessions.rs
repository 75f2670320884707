//! Templates and sequence numbers over the life of a session.

use std::collections::HashSet;

use sonde_results::flow::FlowRecord;
use sonde_results::units::SECOND;
use sonde_wire::ipfix::{Message, OPTIONS_TEMPLATE_SET, TEMPLATE_SET};

use super::sample::{NOW, Random, export, read};
use crate::export::decode::value;
use crate::export::{
    Config, Decoded, Decoder, ExportInterface, ExportProtocol, ExportSelector, ExportStats,
    Exporter, Profile, SelectorAlgorithm,
};
use crate::flow::sampling::HashFunction;

fn records(seed: u64, count: usize) -> Vec<FlowRecord> {
    println!("seed {seed}");
    let mut random = Random(seed);
    (0..count).map(|_| random.record()).collect()
}

/// Ids of templates, and of data sets, in a message, in order.
fn sets(message: &[u8]) -> (Vec<u16>, Vec<u16>) {
    let (mut templates, mut data) = (Vec::new(), Vec::new());
    for set in Message::new_checked(message).unwrap().sets() {
        let set = set.unwrap();
        match set.id {
            TEMPLATE_SET | OPTIONS_TEMPLATE_SET => {
                templates.push(u16::from_be_bytes([set.body[0], set.body[1]]));
            }
            id => data.push(id),
        }
    }
    (templates, data)
}

#[test]
fn a_template_is_in_the_message_of_its_first_data() {
    for bytes in [512, 576, 1452, 65_535] {
        let config = Config { message_bytes: bytes, ..Config::default() };
        let (_, messages) = export(&config, &records(1, 500));
        let mut known = HashSet::new();
        for message in &messages {
            let (templates, data) = sets(message);
            known.extend(templates.iter().copied());
            for id in &data {
                assert!(known.contains(id));
            }
            for id in templates {
                assert!(data.contains(&id), "a template without data");
            }
        }
        assert!(known.len() >= 4);
    }
}

#[test]
fn over_udp_a_template_goes_with_its_data_in_the_first_messages() {
    // Collectors of up to 16 threads find each of the first 16 messages complete.
    let config =
        Config { message_bytes: 512, template_every_messages: u32::MAX, ..Config::default() };
    let (_, messages) = export(&config, &records(8, 2000));
    let mut seen = std::collections::HashMap::new();
    for message in &messages {
        let (templates, data) = sets(message);
        for id in data.into_iter().collect::<HashSet<_>>() {
            let times: &mut u32 = seen.entry(id).or_default();
            *times += 1;
            assert_eq!(templates.contains(&id), *times <= 16, "template {id}, time {times}");
        }
    }
    assert!(seen.values().all(|times| *times > 16));
}

#[test]
fn over_udp_every_template_comes_again_by_count() {
    let config = Config { template_every_messages: 5, message_bytes: 512, ..Config::default() };
    let (_, messages) = export(&config, &records(2, 2000));
    let mut last = std::collections::HashMap::new();
    for (at, message) in messages.iter().enumerate() {
        let (templates, data) = sets(message);
        for id in templates {
            last.insert(id, at);
        }
        // Data may come up to a period after the template, and begins the next with it.
        for id in data {
            assert!(at - last[&id] < 2 * 5, "message {at}, template {id}");
        }
    }
}

#[test]
fn over_udp_templates_come_again_by_time_also_without_data() {
    let config = Config { template_every_ns: 60 * SECOND, ..Config::default() };
    let mut exporter = Exporter::new(config);
    let mut messages = Vec::new();
    let record = &records(3, 1)[0];
    exporter.push(record, NOW, &mut |m| messages.push(m.to_vec()));
    exporter.flush(NOW, &mut |m| messages.push(m.to_vec()));
    let first = messages.len();
    for second in 1..=130 {
        exporter.flush(NOW + second * SECOND, &mut |m| messages.push(m.to_vec()));
    }
    let again: Vec<_> = messages[first..].iter().map(|message| sets(message)).collect();
    assert_eq!(again.len(), 2, "after 60 and 120 s");
    assert!(again.iter().all(|(templates, data)| !templates.is_empty() && data.is_empty()));
    read(&messages);
}

#[test]
fn over_tcp_templates_come_once_a_connection() {
    let config = Config { datagram: false, template_every_ns: 1, ..Config::default() };
    let mut exporter = Exporter::new(config);
    let records = records(4, 400);
    let mut messages: Vec<Vec<u8>> = Vec::new();
    for record in &records[..200] {
        exporter.push(record, NOW, &mut |m| messages.push(m.to_vec()));
    }
    let ids: Vec<u16> = messages.iter().flat_map(|message| sets(message).0).collect();
    assert_eq!(ids.len(), ids.iter().collect::<HashSet<_>>().len());
    // The connection breaks in the middle of a message, which keeps what is in it.
    let mut second = Vec::new();
    exporter.reconnected(NOW, &mut |m| second.push(m.to_vec()));
    let preamble = second.len();
    for record in &records[200..] {
        exporter.push(record, NOW, &mut |m| second.push(m.to_vec()));
    }
    exporter.flush(NOW, &mut |m| second.push(m.to_vec()));
    assert!(preamble > 0 && sets(&second[0]).1.is_empty());
    // A collector that knows only the second connection reads all of it.
    let later = read(&second).len();
    let all: Vec<Vec<u8>> = messages.into_iter().chain(second).collect();
    assert_eq!(exporter.counters().records, read(&all).len() as u64);
    assert!(later > 200);
}

fn stats() -> ExportStats {
    ExportStats {
        process: 4711,
        ignored_packets: 5,
        ignored_octets: 300,
        ignored_ns: (NOW - SECOND, NOW),
        not_sent_flows: 7,
        selectors: vec![
            ExportSelector {
                id: 1,
                algorithm: SelectorAlgorithm::SystematicCount { interval: 1, space: 99 },
                observed: 1000,
                selected: 10,
            },
            ExportSelector {
                id: 2,
                algorithm: SelectorAlgorithm::Hash {
                    function: HashFunction::Ipsx,
                    payload_offset: 0,
                    payload_size: 8,
                    output: (0, 1023),
                    selected: (0, 255),
                    initialiser: 0,
                },
                observed: 10,
                selected: 3,
            },
        ],
        ..ExportStats::default()
    }
}

/// Values of options records by the id of a field they have: the first record's.
fn options(messages: &[Vec<u8>], has: u16, wanted: u16) -> Vec<Vec<u8>> {
    let mut decoder = Decoder::new(37);
    let mut found = Vec::new();
    for message in messages {
        decoder.message(message, &mut |decoded| {
            if let Decoded::Options { record, .. } = decoded
                && value(&record, 0, has).is_some()
            {
                found.push(value(&record, 0, wanted).expect("the field").to_vec());
            }
        });
    }
    assert_eq!(decoder.counters().malformed, 0);
    assert_eq!(decoder.counters().missing, 0);
    found
}

#[test]
fn options_carry_what_rfc_7011_asks_for() {
    let interface = ExportInterface { index: 3, name: "eth0".into(), description: "uplink".into() };
    let profile = Profile { lists: true, ..Profile::default() };
    let config = Config { profile, interfaces: vec![interface], ..Config::default() };
    let mut exporter = Exporter::new(config);
    let mut messages = Vec::new();
    let mut record = Random(5).biflow();
    record.reverse.packets = 0;
    exporter.push(&record, NOW, &mut |m| messages.push(m.to_vec()));
    exporter.flush(NOW, &mut |m| messages.push(m.to_vec()));
    let octets = messages[0].len() as u64;
    exporter.options(&stats(), NOW, &mut |m| messages.push(m.to_vec()));
    exporter.flush(NOW, &mut |m| messages.push(m.to_vec()));
    let one = |has, wanted| options(&messages, has, wanted).remove(0);
    assert_eq!(one(41, 41), 1u64.to_be_bytes());
    assert_eq!(one(42, 42), 1u64.to_be_bytes());
    assert_eq!(one(40, 40), octets.to_be_bytes());
    assert_eq!(one(164, 164), 5u64.to_be_bytes());
    assert_eq!(one(166, 166), 7u64.to_be_bytes());
    assert_eq!(one(166, 144), 4711u32.to_be_bytes());
    assert_eq!(one(82, 82)[..5], *b"eth0\0");
    assert_eq!(one(82, 83)[..7], *b"uplink\0");
    assert_eq!(options(&messages, 304, 304), [[0, 1], [0, 7]]);
    assert_eq!(one(305, 306), 99u32.to_be_bytes());
    assert_eq!(options(&messages, 34, 34), [400u32.to_be_bytes()]);
    assert_eq!(one(319, 319), 10u64.to_be_bytes());
    // Fields 0 to 3 are addresses and ports; interface, VLAN and protocol lie further on.
    let keys = u64::from_be_bytes(one(173, 173).try_into().unwrap());
    assert_eq!((keys & 15, keys.count_ones()), (15, 7));
    assert!(options(&messages, 341, 341)[0].starts_with(b"packetLengths\0"));
    // The process's statistics are in messages of no domain, with their own sequence.
    let domains = |m: &Vec<u8>| Message::new_checked(m).unwrap().header.domain;
    assert_eq!(messages.iter().map(domains).collect::<Vec<_>>(), [1, 1, 0]);
    // Again only the statistics, until there is something new to send, or it is time.
    let mut again_at = |exporter: &mut Exporter, at| {
        let mut again = Vec::new();
        exporter.options(&stats(), at, &mut |m| again.push(m.to_vec()));
        messages.extend_from_slice(&again);
        again.iter().map(domains).collect::<Vec<_>>()
    };
    assert_eq!(again_at(&mut exporter, NOW + SECOND), [0]);
    record.key.protocol = if record.key.protocol == 1 { 17 } else { 1 };
    exporter.push(&record, NOW, &mut |_| ());
    assert_eq!(
        again_at(&mut exporter, NOW + 2 * SECOND),
        [1, 1, 0],
        "flow, information, statistics"
    );
    assert_eq!(again_at(&mut exporter, NOW + 602 * SECOND), [1, 0]);
    assert_eq!(options(&messages, 42, 42).last().unwrap(), &2u64.to_be_bytes());
}

/// Three of seven packets are one of 2.33.
#[test]
fn a_rate_that_is_no_integer_is_left_to_the_selectors() {
    let of = |protocol, (interval, space)| {
        let mut stats = stats();
        stats.selectors.truncate(1);
        stats.selectors[0].algorithm = SelectorAlgorithm::SystematicCount { interval, space };
        let profile = Profile { protocol, ..Profile::default() };
        let mut exporter = Exporter::new(Config { profile, ..Config::default() });
        let mut messages = Vec::new();
        exporter.options(&stats, NOW, &mut |m| messages.push(m.to_vec()));
        exporter.flush(NOW, &mut |m| messages.push(m.to_vec()));
        let u32s = |has| -> Vec<u32> {
            let found = options(&messages, has, has);
            found.iter().map(|o| u32::from_be_bytes(o[..].try_into().unwrap())).collect()
        };
        [34, 305, 306].map(u32s)
    };
    assert_eq!(of(ExportProtocol::Ipfix, (3, 4)), [vec![], vec![3], vec![4]]);
    assert_eq!(of(ExportProtocol::Ipfix, (3, 6)), [vec![3], vec![3], vec![6]]);
    assert_eq!(of(ExportProtocol::Netflow9, (3, 4))[0], [2]);
}

#[test]
fn netflow_9_has_options_of_its_own_kind() {
    let profile = Profile { protocol: ExportProtocol::Netflow9, ..Profile::default() };
    let interface = ExportInterface { index: 3, name: "eth0".into(), ..ExportInterface::default() };
    let mut exporter =
        Exporter::new(Config { profile, interfaces: vec![interface], ..Config::default() });
    let mut messages = Vec::new();
    exporter.options(&stats(), NOW, &mut |m| messages.push(m.to_vec()));
    exporter.flush(NOW, &mut |m| messages.push(m.to_vec()));
    assert_eq!(options(&messages, 34, 34)[0], 400u32.to_be_bytes());
    assert_eq!(options(&messages, 82, 82)[0][..5], *b"eth0\0");
}

#[test]
fn a_file_has_its_span_and_survives_a_cut() {
    let config = Config { datagram: false, message_bytes: 4096, ..Config::default() };
    let records = records(6, 1000);
    let mut exporter = Exporter::new(config);
    let mut file = Vec::new();
    for record in &records {
        exporter.push(record, NOW, &mut |m| file.extend_from_slice(m));
    }
    exporter.finish_file(NOW + SECOND, &mut |m| file.extend_from_slice(m));
    let mut decoder = Decoder::new(37);
    let (mut flows, mut window) = (Vec::new(), None);
    let rest = decoder.file(&file, &mut |decoded| match decoded {
        Decoded::Flow(flow) => flows.push(flow.record.forward.first_ns),
        Decoded::Options { record, .. } => {
            window = value(&record, 0, 272).map(<[u8]>::to_vec);
        }
    });
    assert_eq!(rest, 0);
    let first = flows.iter().min().unwrap() / 1_000_000 - 37_000;
    assert_eq!(window.unwrap(), first.to_be_bytes());
    // Killed in the middle of a message: all before it is there.
    let mut decoder = Decoder::new(37);
    let mut count = 0;
    let rest = decoder.file(&file[..file.len() / 2], &mut |_| count += 1);
    assert!(rest > 0 && rest < 4096);
    assert!(count > records.len() / 3);
    assert_eq!(decoder.counters().malformed, 1);
    assert_eq!(decoder.counters().missing, 0);
}

#[test]
fn what_is_missing_is_found_by_the_sequence_numbers() {
    let (_, messages) = export(&Config::default(), &records(7, 1000));
    let mut decoder = Decoder::new(37);
    let mut count = 0;
    for message in messages.iter().enumerate().filter(|(at, _)| *at != 3).map(|(_, m)| m) {
        decoder.message(message, &mut |_| count += 1);
    }
    let mut lost = 0;
    let mut all = Decoder::new(37);
    for (at, message) in messages.iter().enumerate() {
        all.message(message, &mut |_| lost += u64::from(at == 3));
    }
    assert!(lost > 0);
    assert_eq!(decoder.counters().missing, lost);
}
