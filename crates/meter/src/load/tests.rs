//! Frames from the generator, through a path of known faults, to the analyser.

use std::net::IpAddr;

use proptest::prelude::*;
use sonde_results::trial::{Direction, Offer};
use sonde_wire::ethernet::{ETHERTYPE_QINQ, ETHERTYPE_VLAN, Tag};
use sonde_wire::signature::{Repr, Secret};
use sonde_wire::{Time, ipv4, udp};

use super::*;
use crate::Paced as _;

const SECRET: Secret = Secret([3, 5]);
const START: Time = Time::from_nanos(1_000_000_000_000);

fn traffic(ipv6: bool, sizes: &[u32], flows: u32) -> Traffic {
    let [source, destination]: [IpAddr; 2] = match ipv6 {
        false => ["198.18.0.2".parse().unwrap(), "198.19.0.2".parse().unwrap()],
        true => ["2001:2::2".parse().unwrap(), "2001:2:0:1::2".parse().unwrap()],
    };
    Traffic {
        sizes: sizes.to_vec(),
        tags: Vec::new(),
        labels: Vec::new(),
        source_mac: MacRule::Random { seed: 1 },
        destination_mac: MacRule::Fixed([2, 0, 0, 0, 0, 9]),
        source: AddressRule { first: source, count: 300, step: 1, order: ValueOrder::Increment },
        destination: AddressRule {
            first: destination,
            count: 256,
            step: 256,
            order: ValueOrder::Random,
        },
        source_port: PortRule::RFC4814_SOURCE,
        destination_port: PortRule::RFC4814_DESTINATION,
        flows,
        tos: vec![0],
        ttl: 64,
        seed: 11,
    }
}

fn pair(traffic: &Traffic, offer: &Offer) -> (LoadGenerator, LoadAnalyser) {
    traffic.check(16_000).unwrap();
    let schedule = LoadSchedule::new(offer);
    let headers = headers(traffic).unwrap();
    let start = START + schedule.counted_ns();
    let generator = LoadGenerator::new(headers, &traffic.sizes, schedule, START, 7, SECRET);
    let config =
        LoadAnalyserConfig { streams: traffic.flows as usize, start, ..analyser_config(offer) };
    (generator, LoadAnalyser::new(config))
}

/// All frames, each with its time of departure: it leaves when it is due.
fn send_all(generator: &mut LoadGenerator) -> Vec<(Time, Vec<u8>)> {
    let mut frames = Vec::new();
    let mut buffer = [0xee; 16_000];
    while let Some(due) = generator.due() {
        assert_eq!(generator.write(due + -1, &mut buffer), None);
        let len = generator.write(due, &mut buffer).unwrap();
        frames.push((due, buffer[..len].to_vec()));
    }
    frames
}

fn result(generator: &LoadGenerator, mut analyser: LoadAnalyser, offer: &Offer) -> Direction {
    let mut d = Direction::default();
    generator.read(&mut d, 0);
    analyser.read(&mut d);
    let mut losses = LossLog::new(LoadSchedule::new(offer), 1_000_000_000);
    let sent = generator.sent();
    analyser.harvest(sent, |first, arrived| losses.read(first, arrived, sent));
    losses.finish(&mut d);
    d
}

#[test]
fn every_frame_is_whole_for_those_who_forward_it() {
    for ipv6 in [false, true] {
        let least = if ipv6 { 84 } else { 64 };
        for sizes in [&[least][..], &[least, 101, 1518, 594, 9000]] {
            let traffic = traffic(ipv6, sizes, 37);
            let (mut generator, _) = pair(&traffic, &Offer::steady(1e6, 100_000));
            for (n, (_, frame)) in send_all(&mut generator).iter().enumerate() {
                assert_eq!(frame.len() + FCS_LEN, sizes[n % sizes.len()] as usize);
                let parsed = sonde_wire::parse_udp(frame).unwrap();
                assert_eq!(parsed.payload.end, frame.len());
                let datagram = udp::Packet::new_checked(&frame[parsed.l4_offset..]).unwrap();
                assert!(datagram.source_port() >= 1024 && datagram.destination_port() <= 49_151);
                if ipv6 {
                    assert!(sonde_wire::udp_intact(frame, &parsed), "frame {n}");
                } else {
                    let ip = ipv4::Packet::new_checked(&frame[14..]).unwrap();
                    assert!(ip.verify_checksum(), "frame {n}");
                    assert_eq!(datagram.checksum(), 0);
                }
            }
        }
    }
}

#[test]
fn a_short_stop_is_made_up_for_at_once_and_a_long_one_little_by_little() {
    // 10 us apart: 1 ms may be made up for.
    let (mut generator, _) = pair(&traffic(false, &[64], 1), &Offer::steady(1e5, 1_000_000_000));
    let mut buffer = [0; 64];
    let mut departures = Vec::new();
    let mut now = START;
    while let Some(due) = generator.due() {
        now = now.max(due);
        match generator.sent() {
            100 => now = now + 90_000,
            500 => now = now + 3_000_000,
            _ => {}
        }
        generator.write(now, &mut buffer).unwrap();
        departures.push(now - START);
    }
    let from = |n: usize| [0, 1, 2, 3].map(|i| departures[n + i]);
    // The short stop: nine frames leave with the late one, the tenth is in time.
    assert_eq!(from(99), [990_000, 1_090_000, 1_090_000, 1_090_000]);
    assert_eq!(from(108), [1_090_000, 1_090_000, 1_100_000, 1_110_000]);
    // The long one: no two leave together, but 156 ns nearer to each other than the 10 us. After
    // 19,231 frames the delay is made up.
    assert_eq!(from(499), [4_990_000, 8_000_000, 8_009_844, 8_019_688]);
    assert_eq!(from(500 + 19_229), [197_290_276, 197_300_120, 197_310_000, 197_320_000]);
    let mut d = Direction::default();
    generator.read(&mut d, 0);
    assert_eq!((d.lateness.max, d.lateness.count_above(100_000)), (3_000_000, 1));
}

#[test]
fn flows_differ_as_their_rules_say() {
    let traffic = traffic(false, &[64], 600);
    let all: std::collections::HashSet<_> =
        headers(&traffic).unwrap().into_iter().map(|h| h.octets).collect();
    assert_eq!(all.len(), 600);
    let first = |flow| traffic.source.of(flow, 0);
    assert_eq!((first(0), first(299)), (first(300), "198.18.1.45".parse().unwrap()));
    assert!(traffic.source.contains("198.18.1.45".parse().unwrap()));
    assert!(!traffic.source.contains("198.18.1.46".parse().unwrap()));
    assert!(!traffic.destination.contains("198.19.0.3".parse().unwrap()));
    let group = |a: &str| MacRule::Group.of(0, a.parse().unwrap());
    assert_eq!(group("239.193.2.3"), [1, 0, 0x5e, 0x41, 2, 3]);
    assert_eq!(group("ff0e::1:2:3"), [0x33, 0x33, 0, 2, 0, 3]);
    let counted = MacRule::Increment { first: [2, 0, 0, 0, 0, 0xff], count: 3 };
    assert_eq!(counted.of(4, "::".parse().unwrap()), [2, 0, 0, 0, 1, 0]);
}

#[test]
fn classes_go_round_among_the_flows() {
    for ipv6 in [false, true] {
        let traffic = Traffic { tos: vec![0, 184, 40], ..traffic(ipv6, &[84], 5) };
        let classes: Vec<u8> = (headers(&traffic).unwrap().iter())
            .map(|h| match ipv6 {
                false => h.octets[15],
                true => h.octets[14] << 4 | h.octets[15] >> 4,
            })
            .collect();
        assert_eq!(classes, [0, 184, 40, 0, 184]);
    }
    let none = Traffic { tos: vec![], ..traffic(false, &[84], 5) };
    assert!(none.check(1500).is_err());
}

#[test]
fn tags_and_labels_are_in_front_and_cost_octets() {
    let mut traffic = traffic(false, &[64], 1);
    traffic.tags =
        vec![Tag { tpid: ETHERTYPE_QINQ, tci: 100 }, Tag { tpid: ETHERTYPE_VLAN, tci: 200 }];
    traffic.labels = vec![16, 17];
    let Err(LoadError::Short { least, .. }) = traffic.check(1500) else { panic!("64 is enough") };
    assert_eq!(least, 64 + 16);
    traffic.sizes = vec![80];
    traffic.check(1500).unwrap();
    let header = &headers(&traffic).unwrap()[0];
    assert_eq!(header.octets[12..22], [0x88, 0xa8, 0, 100, 0x81, 0, 0, 200, 0x88, 0x47]);
    assert_eq!(header.octets[22..30], [0, 1, 0, 64, 0, 1, 0x11, 64]);
    assert_eq!((header.l3_at, header.octets[30], header.len), (30, 0x45, 58));
}

#[test]
fn sizes_that_cannot_be_are_refused_with_the_reason() {
    let short = traffic(true, &[1518, 64], 1).check(1500).unwrap_err().to_string();
    assert!(short.contains("at least 84"), "{short}");
    let long = traffic(false, &[9000], 1).check(1500).unwrap_err().to_string();
    assert!(long.contains("MTU of 1500") && long.contains("1518"), "{long}");
    traffic(false, &[1518], 1).check(1500).unwrap();
    assert!(traffic(false, &[], 1).check(1500).is_err());
    assert!(traffic(false, &[64], 0).check(1500).is_err());
    let mixed = Traffic {
        source: AddressRule::fixed("2001:2::1".parse().unwrap()),
        ..traffic(false, &[84], 1)
    };
    assert!(mixed.check(1500).is_err());
}

/// What a path does to a frame.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Lost,
    /// Arrives after so many ns, this many times.
    Arrives(i64, u8),
    /// Arrives with one bit changed.
    Changed(usize),
    /// Arrives without its last octet.
    Cut,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        1 => Just(Fate::Lost),
        12 => (1i64..5_000, 1u8..=2).prop_map(|(delay, times)| Fate::Arrives(delay, times)),
        12 => Just(Fate::Arrives(700, 1)),
        // Any bit of the signature but those of the mark.
        1 => (8usize..18 * 8).prop_map(Fate::Changed),
        1 => Just(Fate::Cut),
    ]
}

proptest! {
    #[test]
    fn every_fault_is_counted_as_what_it_is(
        fates in prop::collection::vec(fate(), 1..300), flows in 1u32..4, ipv6: bool,
        discard in 0i64..100_000,
    ) {
        let traffic = traffic(ipv6, if ipv6 { &[84] } else { &[64] }, flows);
        // One microsecond apart.
        let offer = Offer { frames: fates.len() as u64, discard_ns: discard, ..Offer::steady(1e6, 1) };
        let (mut generator, mut analyser) = pair(&traffic, &offer);
        let from = LoadSchedule::new(&offer).counted_from;
        let (mut arrivals, mut lost, mut changed, mut copies) = (Vec::new(), 0, 0, 0);
        for (n, ((at, frame), fate)) in send_all(&mut generator).into_iter().zip(&fates).enumerate() {
            let counted = u64::from(n as u64 >= from);
            match *fate {
                Fate::Lost => lost += counted,
                Fate::Arrives(delay, times) => {
                    copies += u64::from(times - 1) * counted;
                    for copy in 0..i64::from(times) {
                        arrivals.push((at + delay + copy * 10_000, n, Some(delay), frame.clone()));
                    }
                }
                Fate::Changed(bit) => {
                    (lost, changed) = (lost + counted, changed + 1);
                    let mut frame = frame;
                    let at_octet = frame.len() - 18 + bit / 8;
                    frame[at_octet] ^= 1 << (bit % 8);
                    arrivals.push((at + 700, n, None, frame));
                }
                Fate::Cut => {
                    // Known for ours only if what moved to the mark's offset looks like it.
                    let cut = &frame[..frame.len() - 1];
                    changed += u64::from(Repr::marked(cut));
                    lost += counted;
                    arrivals.push((at + 700, n, None, cut.to_vec()));
                }
            }
        }
        arrivals.sort_by_key(|(at, n, ..)| (*at, *n));
        let (mut seen, mut late) = (vec![false; fates.len()], 0);
        let mut next = vec![0usize; flows as usize];
        let (mut delays, mut jitter) = (vec![None; fates.len()], Vec::new());
        let mut before = None;
        for (at, n, delay, frame) in &arrivals {
            analyser.input(frame, *at);
            let (Some(delay), false) = (delay, *n < from as usize || seen[*n]) else { continue };
            seen[*n] = true;
            let next = &mut next[n % flows as usize];
            late += u64::from(*n < *next);
            *next = (*next).max(n + 1);
            delays[*n] = Some(*delay);
            jitter.extend(before.map(|b: i64| (delay - b).abs()));
            before = Some(*delay);
        }
        let mut ipdv = sonde_results::hist::Hist::default();
        for pair in delays.windows(2) {
            if let [Some(a), Some(b)] = pair {
                ipdv.add(b - a);
            }
        }
        let d = result(&generator, analyser, &offer);
        let received = seen.iter().filter(|&&s| s).count() as u64;
        prop_assert_eq!((d.sent, d.received, d.lost), (fates.len() as u64 - from, received, lost));
        prop_assert_eq!(d.lost, d.sent - d.received);
        prop_assert_eq!((d.duplicates, d.reordered), (copies, late));
        prop_assert_eq!((d.corrupted, d.stray), (changed, 0));
        prop_assert_eq!(&d.ipdv, &ipdv);
        prop_assert_eq!(d.jitter.sum, jitter.iter().map(|&j| i128::from(j)).sum::<i128>());
        prop_assert_eq!(d.latency.count, received);
        prop_assert_eq!(d.losses.iter().map(|r| r.frames).sum::<u64>(), lost);
        prop_assert_eq!(d.last_loss, d.losses.last().copied());
        let greatest = delays.iter().flatten().max();
        prop_assert_eq!(d.worst.first().map(|w| w.latency_ns), greatest.copied());
        prop_assert!(d.worst.is_sorted_by(|a, b| a.latency_ns >= b.latency_ns));
        prop_assert_eq!(d.series.iter().map(|p| p.received).sum::<u64>(), received);
    }
}

#[test]
fn frames_of_others_are_stray_or_none_of_our_business() {
    let traffic = traffic(false, &[64], 1);
    let offer = Offer::steady(1e6, 10_000);
    let (mut generator, mut analyser) = pair(&traffic, &offer);
    let frames = send_all(&mut generator);
    let (other, mut config) = (Secret([8, 9]), analyser_config(&offer));
    config.tag = 8;
    let mut next_trial = LoadAnalyser::new(config.clone());
    let mut other_tester = LoadAnalyser::new(LoadAnalyserConfig { secret: other, ..config });
    for (at, frame) in &frames {
        analyser.input(frame, *at + 5);
        next_trial.input(frame, *at + 5);
        other_tester.input(frame, *at + 5);
        // An ARP request, and a frame too short for anything.
        analyser.input(&[0xb5; 60], *at);
        analyser.input(&[0xb5; 9], *at);
    }
    let read = |a: LoadAnalyser| result(&generator, a, &offer);
    let (ours, next, others) = (read(analyser), read(next_trial), read(other_tester));
    assert_eq!((ours.received, ours.stray, ours.corrupted), (10, 0, 0));
    assert_eq!((next.received, next.stray, next.corrupted), (0, 10, 0));
    assert_eq!((others.received, others.stray, others.corrupted), (0, 0, 10));
}

fn analyser_config(offer: &Offer) -> LoadAnalyserConfig {
    LoadAnalyserConfig {
        tag: 7,
        secret: SECRET,
        schedule: LoadSchedule::new(offer),
        streams: 1,
        start: START,
        slot_ns: 1_000_000_000,
        length_change: 0,
        tagged: false,
        mac: None,
    }
}
