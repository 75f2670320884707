//! The cache against a plain one: a map, and the definitions of the time-outs, nothing else.
//! Packets are in order of time; the caller's calls come whenever they like.

use std::cell::Cell;
use std::collections::BTreeMap;

use sonde_results::flow::{FlowEnd, FlowKey, FlowRecord};
use sonde_wire::feature::Feature;

use super::super::{BURST, Config, FlowCache};
use super::basics::{MS, S, START, config};

/// What a record says, without its addresses.
type Said = (u16, FlowEnd, u64, u64, i64, i64, i64, i64);

fn said(record: &FlowRecord) -> Said {
    let FlowKey { source_port, .. } = record.key;
    (
        source_port,
        record.end,
        record.forward.packets,
        record.reverse.packets,
        record.first_ns(),
        record.last_ns(),
        record.forward.first_ns,
        record.reverse.first_ns,
    )
}

/// A flow of the plain cache.
struct Plain {
    forward: bool,
    packets: [u64; 2],
    first: [i64; 2],
    last: i64,
}

/// All records that there should be, by definition; without FIN, RST and lack of room.
fn expected(packets: &[Feature], config: &Config, finish: i64) -> Vec<Said> {
    let mut flows: BTreeMap<u16, Plain> = BTreeMap::new();
    let mut records = Vec::new();
    let end = |flow: &Plain, port: u16, now: i64| -> Option<Said> {
        let begun = |side: usize| (flow.packets[side] > 0).then_some(flow.first[side]);
        let start = begun(0).into_iter().chain(begun(1)).min()?;
        let (idle, active) = (flow.last + config.idle_ns, start + config.active_ns);
        let reason = if idle <= active { FlowEnd::Idle } else { FlowEnd::Active };
        (now >= idle.min(active)).then(|| of(flow, port, reason))
    };
    for packet in packets {
        let forward = packet.destination_port == 443;
        let port = if forward { packet.source_port } else { packet.destination_port };
        if let Some(flow) = flows.get(&port)
            && let Some(record) = end(flow, port, packet.at_ns)
        {
            records.push(record);
            let goes_on = record.1 == FlowEnd::Active && packet.at_ns < flow.last + config.idle_ns;
            // The source stays the source.
            let next = Plain { forward: flow.forward, packets: [0; 2], first: [0; 2], last: 0 };
            if goes_on {
                flows.insert(port, next)
            } else {
                flows.remove(&port)
            };
        }
        let side = usize::from(!forward);
        let flow =
            flows.entry(port).or_insert(Plain { forward, packets: [0; 2], first: [0; 2], last: 0 });
        if flow.packets[side] == 0 {
            flow.first[side] = packet.at_ns;
        }
        flow.packets[side] += 1;
        flow.last = packet.at_ns;
    }
    for (port, flow) in &flows {
        records.push(end(flow, *port, finish).unwrap_or_else(|| of(flow, *port, FlowEnd::Forced)));
    }
    records.sort_by_key(sort_key);
    records
}

fn of(flow: &Plain, port: u16, end: FlowEnd) -> Said {
    let (one, other) = if flow.forward { (0, 1) } else { (1, 0) };
    (
        if flow.forward { port } else { 443 },
        end,
        flow.packets[one],
        flow.packets[other],
        [one, other]
            .iter()
            .filter(|s| flow.packets[**s] > 0)
            .map(|s| flow.first[*s])
            .min()
            .unwrap(),
        flow.last,
        flow.first[one],
        flow.first[other],
    )
}

fn sort_key(said: &Said) -> (i64, u16, u64) {
    (said.4, said.0, said.2)
}

/// Every record is the one expected, and those of time-outs come at most 1 s late. The caller looks
/// every 100 ms at least, as the worker does.
#[test]
fn records_are_those_of_the_definitions_and_in_time() {
    for seed in 0..40 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let config = Config {
            idle_ns: random.i64(MS..20 * S),
            active_ns: random.i64(MS..60 * S),
            ..config(4_096)
        };
        let flows = random.u16(1..500);
        let step = random.i64(1..2 * config.idle_ns / i64::from(flows) + 2);
        let mut at_ns = START;
        let packets: Vec<Feature> = (0..20_000)
            .map(|_| {
                at_ns += random.i64(0..step);
                let (client, server) = (random.u16(0..flows), 443);
                let (source_port, destination_port) =
                    if random.bool() { (client, server) } else { (server, client) };
                // Ports decide the order of the ends: the addresses are the same.
                Feature {
                    at_ns,
                    source_port,
                    destination_port,
                    ip_len: 40,
                    protocol: 17,
                    ..Feature::default()
                }
            })
            .filter(|packet| packet.source_port != packet.destination_port)
            .collect();
        let finish = at_ns + random.i64(0..2 * config.idle_ns);
        let mut cache = FlowCache::new(config.clone());
        let mut records = Vec::new();
        let (now, mut rest) = (Cell::new(START), &packets[..]);
        while now.get() < finish {
            let mut sink = |record: FlowRecord| {
                if record.end != FlowEnd::Forced {
                    let idle = record.last_ns() + config.idle_ns;
                    let deadline = idle.min(record.first_ns() + config.active_ns);
                    let late = now.get() - deadline;
                    assert!(late <= S, "{late} ns late: {record:?}");
                }
                records.push(said(&record));
            };
            let next = (now.get() + 100 * MS).min(finish);
            let due = rest.iter().take_while(|packet| packet.at_ns <= next).count();
            if due == 0 {
                now.set(next);
                cache.handle_timeout(next, &mut sink);
                continue;
            }
            let (burst, later) = rest.split_at(due.min(random.usize(1..=BURST)));
            now.set(burst[burst.len() - 1].at_ns);
            cache.burst(burst, &[], &mut sink);
            rest = later;
        }
        cache.finish(finish, &mut |record| records.push(said(&record)));
        records.sort_by_key(sort_key);
        let expected = expected(&packets, &config, finish);
        assert_eq!(records.len(), expected.len());
        for (found, wanted) in records.iter().zip(&expected) {
            assert_eq!(found, wanted);
        }
    }
}
