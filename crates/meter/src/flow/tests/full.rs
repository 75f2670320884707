//! A full cache, and those who want it full.

use std::collections::HashSet;

use sonde_results::flow::{FlowEnd, FlowRecord};
use sonde_wire::feature::{Feature, SHAPE_IPV6};

use super::super::{Config, FlowCache};
use super::basics::{MS, START, config};

fn packet(host: u32, port: u16, at: i64) -> Feature {
    let mut source = [0; 16];
    source[12..].copy_from_slice(&host.to_be_bytes());
    Feature {
        at_ns: START + at,
        source,
        source_port: 1_024,
        destination_port: port,
        ip_len: 40,
        protocol: 17,
        ..Feature::default()
    }
}

/// Also with flows that come and go, so that the index is well stirred.
#[test]
fn no_eviction_below_nine_tenths() {
    for (flows, seed) in [(8, 1), (100, 2), (1_000, 3), (70_000, 4)] {
        println!("{flows} flows, seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut cache = FlowCache::new(Config { secret: [seed, 0], ..config(flows) });
        let most = flows as u64 * 9 / 10;
        let mut at = 0;
        for round in 0..6 {
            while cache.occupancy().flows < most {
                cache.burst(&[packet(random.u32(..), 53, at)], &[], &mut |record| {
                    assert_ne!(record.end, FlowEnd::LackOfResources, "round {round}");
                });
            }
            at += 4_000 * MS;
            cache.handle_timeout(START + at, &mut |record| {
                assert_eq!(record.end, FlowEnd::Idle);
            });
        }
        let counters = cache.counters();
        assert_eq!((counters.evicted_full, counters.evicted_crowded), (0, 0));
        assert!(counters.flows > most);
    }
}

/// Ten times as many new flows as there is room, of one packet each: memory stays and the
/// established flows stay. Each that goes early is counted and says why.
#[test]
fn a_flood_evicts_itself() {
    const ROOM: u32 = 20_000;
    for (established, ipv6) in [(ROOM / 10, false), (ROOM / 2, false), (ROOM / 10, true)] {
        let mut cache = FlowCache::new(config(ROOM as usize));
        let memory = cache.memory();
        let (mut evicted, mut gone) = (0u64, 0u64);
        let mut sink = |record: FlowRecord| {
            assert_eq!(record.end, FlowEnd::LackOfResources);
            evicted += 1;
            gone += u64::from(record.key.destination_port == 443);
        };
        let shape = if ipv6 { SHAPE_IPV6 } else { 0 };
        for host in (0..established).chain(0..established) {
            let flow = Feature { shape, ..packet(host, 443, 0) };
            cache.burst(&[flow], &[], &mut sink);
        }
        for new in 0..10 * ROOM {
            let flood = Feature { shape, ..packet(new, 80, i64::from(new)) };
            cache.burst(&[flood], &[], &mut sink);
        }
        assert_eq!(cache.memory(), memory);
        assert_eq!(cache.occupancy().flows, u64::from(ROOM));
        assert_eq!(gone, 0, "of {established} established flows");
        let counters = *cache.counters();
        assert_eq!(evicted, counters.evicted_full + counters.evicted_crowded);
        assert_eq!(evicted, u64::from(9 * ROOM + established));
        // The newest of the flood are still there: the oldest went first.
        let mut left = HashSet::new();
        cache.finish(START + MS, &mut |record| {
            left.insert((record.key.source, record.key.destination_port));
        });
        assert_eq!(left.len(), ROOM as usize);
    }
}

/// All live: the one that has been silent for longest goes, and the newcomer is counted.
#[test]
fn a_cache_full_of_live_flows_gives_up_a_silent_one() {
    let mut cache = FlowCache::new(config(8));
    let mut evicted = Vec::new();
    let mut sink = |record: FlowRecord| evicted.push((record.end, record.key.destination_port));
    for round in 0..2 {
        for port in 1..=8 {
            cache.burst(&[packet(1, port, i64::from(10 * round + port))], &[], &mut sink);
        }
    }
    cache.burst(&[packet(1, 1, 50), packet(1, 9, 51)], &[], &mut sink);
    assert_eq!(evicted, [(FlowEnd::LackOfResources, 2)]);
    assert_eq!(cache.occupancy().load(), 1.0);
    assert_eq!(cache.occupancy().packets, 16);
}

/// Keys that all lie in the same two buckets, as if the secret were known. The cache stays within
/// its memory, finds what it holds, and loses no packet.
#[test]
fn keys_that_all_collide_evict_each_other() {
    let mut cache = FlowCache::new(config(1_000));
    let (mut found, mut host) = (Vec::new(), 0);
    while found.len() < 60 {
        host += 1;
        let candidate = packet(host, 53, 0);
        if cache.buckets_of(&candidate) == cache.buckets_of(found.first().unwrap_or(&candidate)) {
            found.push(candidate);
        }
    }
    let mut records = Vec::new();
    for _ in 0..3 {
        for packet in &found {
            cache.burst(&[*packet, *packet], &[], &mut |record| records.push(record));
        }
    }
    let counters = *cache.counters();
    assert!(counters.evicted_crowded > 0 && counters.evicted_full == 0);
    cache.finish(START, &mut |record| records.push(record));
    let packets: u64 = records.iter().map(|record| record.forward.packets).sum();
    assert_eq!(packets, 2 * 3 * 60);
}
