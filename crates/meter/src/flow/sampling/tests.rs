use std::net::IpAddr;

use proptest::prelude::*;
use sonde_wire::feature::{self, Keys};
use sonde_wire::flow::LinkType;

use super::*;

/// An Ethernet frame with a UDP datagram between these ends.
fn datagram(ends: [(IpAddr, u16); 2], identification: u16, ttl: u8, data: &[u8]) -> Vec<u8> {
    let length = (8 + data.len()) as u16;
    let mut frame = vec![2; 12];
    match (ends[0].0, ends[1].0) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + length).to_be_bytes());
            frame.extend(identification.to_be_bytes());
            frame.extend([0x40, 0, ttl, 17, 0, 0]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend([0x86, 0xDD, 0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([17, ttl]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        _ => panic!("two address families"),
    }
    for port in [ends[0].1, ends[1].1, length, 0] {
        frame.extend(port.to_be_bytes());
    }
    frame.extend(data);
    frame
}

fn ends(v6: bool) -> [(IpAddr, u16); 2] {
    let addresses = if v6 { ["2001:db8::1", "2001:db8::2"] } else { ["192.0.2.1", "198.51.100.2"] };
    [(addresses[0].parse().unwrap(), 40000), (addresses[1].parse().unwrap(), 443)]
}

fn packet(frame: &[u8]) -> (Feature, Layers) {
    feature::parse(frame, LinkType::Ethernet, Keys::Outer, 0, 0).unwrap()
}

/// Which of so many packets, 1 us apart, are selected.
fn run(sequence: &mut Sequence, packets: usize) -> Vec<bool> {
    let select = |i| {
        let packet = Feature { at_ns: i as i64 * 1000, ..Feature::default() };
        sequence.select(&packet, &[], &Layers::default())
    };
    (0..packets).map(select).collect()
}

fn alone(selector: Selector, seed: u64) -> Sequence {
    Sequence::new(vec![selector], seed).unwrap()
}

fn count(selected: &[bool]) -> usize {
    selected.iter().filter(|&&yes| yes).count()
}

#[test]
fn without_selectors_everything_is_selected() {
    let mut all = Sequence::new(Vec::new(), 0).unwrap();
    assert_eq!(run(&mut all, 3), [true; 3]);
    assert_eq!((all.is_empty(), all.scale(), all.report().count()), (true, 1.0, 0));
}

#[test]
fn a_sequence_counts_at_each_selector() {
    let wanted = PropertyFilter { protocols: vec![17], ..PropertyFilter::default() };
    let every = Selector::SystematicCount { interval: 1, spacing: 4 };
    let mut sequence = Sequence::new(vec![Selector::Filter(wanted), every], 0).unwrap();
    for i in 0..100 {
        let packet = Feature { protocol: if i % 2 == 0 { 17 } else { 6 }, ..Feature::default() };
        let selected = sequence.select(&packet, &[], &Layers::default());
        assert_eq!(selected, i % 10 == 0, "{i}");
    }
    let counts: Vec<Selected> = sequence.report().map(|(_, counts)| counts).collect();
    let seen = |observed, selected| Selected { observed, selected, cut_short: 0 };
    assert_eq!(counts, [seen(100, 50), seen(50, 10)]);
    assert!((sequence.scale() - 5.0).abs() < 1e-12);
}

#[test]
fn time_selects_by_the_packets_own_times() {
    let selector = Selector::SystematicTime { interval_us: 10, spacing_us: 90 };
    let selected = run(&mut alone(selector, 0), 1000);
    assert!(selected.iter().enumerate().all(|(i, &yes)| yes == (i % 100 < 10)));
}

#[test]
fn uniform_selects_its_share() {
    const PACKETS: usize = 200_000;
    for (seed, probability) in [(1, 0.5), (2, 0.01), (3, 0.1), (4, 0.9)] {
        let selected = run(&mut alone(Selector::Uniform { probability }, seed), PACKETS);
        // Five standard deviations: met by all but one in a million seeds.
        let expected = PACKETS as f64 * probability;
        let bound = 5.0 * (expected * (1.0 - probability)).sqrt();
        let off = (count(&selected) as f64 - expected).abs();
        assert!(off < bound, "seed {seed}: {off} from {expected}");
        // Neighbours are independent.
        let pairs = selected.windows(2).filter(|pair| pair[0] && pair[1]).count() as f64;
        let expected = expected * probability;
        let off = (pairs - expected).abs();
        assert!(off < 8.0 * expected.sqrt() + 8.0, "seed {seed}: {off} pairs from {expected}");
    }
    assert_eq!(count(&run(&mut alone(Selector::Uniform { probability: 1.0 }, 5), 1000)), 1000);
}

#[test]
fn every_position_of_the_population_is_as_likely() {
    const ROUNDS: usize = 20_000;
    let selector = Selector::RandomNOutOfN { size: 3, population: 10 };
    let selected = run(&mut alone(selector, 6), ROUNDS * 10);
    let mut counts = [0.0; 10];
    for block in selected.chunks(10) {
        assert_eq!(count(block), 3);
        for (count, &yes) in counts.iter_mut().zip(block) {
            *count += f64::from(u8::from(yes));
        }
    }
    let bound = 5.0 * (ROUNDS as f64 * 0.3 * 0.7).sqrt();
    for count in counts {
        assert!((count - ROUNDS as f64 * 0.3).abs() < bound, "{counts:?}, seed 6");
    }
}

#[test]
fn what_a_router_changes_does_not_change_the_choice() {
    let input = HashInput::Packet { offset: 0, size: 16 };
    let functions = [HashFunction::Bob, HashFunction::Crc32];
    let cases = functions.into_iter().flat_map(|f| [(f, false), (f, true)]);
    for (function, v6) in cases {
        let hash = HashSelector::of_fraction(function, input, 0xFEED, 0.1).unwrap();
        let near = datagram(ends(v6), 7, 64, b"sonde sonde sonde");
        let mut far = datagram(ends(v6), 7, 61, b"sonde sonde sonde");
        far.splice(12..12, [0x81, 0, 0, 9]); // over a VLAN
        far.extend([0; 9]); // with padding
        let value = |frame: &[u8], hash: HashSelector| {
            let (feature, layers) = packet(frame);
            hash.value(&feature, frame, &layers)
        };
        let (first, whole) = value(&near, hash);
        assert!(whole);
        assert_eq!(value(&far, hash), (first, true));
        // Another packet of the flow, the answer, and another initialiser: another value.
        let [a, b] = ends(v6);
        let next = datagram([a, b], 8, 64, b"sonde sonde sondf");
        let answer = datagram([b, a], 7, 64, b"sonde sonde sonde");
        assert_ne!(value(&answer, hash).0, first);
        assert_ne!(value(&near, HashSelector { initialiser: 1, ..hash }).0, first);
        let longer = HashInput::Packet { offset: 0, size: 25 };
        let longer = HashSelector { input: longer, ..hash };
        assert_ne!(value(&next, longer).0, value(&near, longer).0);
        // The flow as a whole: the same for both directions and for all packets.
        let flow = HashSelector { input: HashInput::Flow, ..hash };
        assert_eq!(value(&answer, flow), value(&next, flow));
        let other = datagram([(a.0, 40001), b], 7, 64, b"sonde sonde sonde");
        assert_ne!(value(&other, flow).0, value(&near, flow).0);
    }
}

#[test]
fn the_hash_is_over_the_octets_that_the_standard_names() {
    let frame = datagram(ends(false), 0x0102, 64, b"0123456789");
    let (feature, layers) = packet(&frame);
    let hash = |offset, size| HashSelector {
        function: HashFunction::Bob,
        input: HashInput::Packet { offset, size },
        initialiser: 9,
        selected: [0, 0],
    };
    let header = [1, 2, 0x40, 0, 192, 0, 2, 1, 198, 51, 100, 2];
    let of = |rest: &[u8]| Some(bob::bob(&[&header[..], rest].concat(), 9));
    assert_eq!(hash(0, 0).value(&feature, &frame, &layers), (of(&[]), true));
    assert_eq!(hash(10, 3).value(&feature, &frame, &layers), (of(b"234"), true));
    assert_eq!(hash(15, 9).value(&feature, &frame, &layers), (of(b"789"), true));
    assert_eq!(hash(99, 9).value(&feature, &frame, &layers), (of(&[]), true));
    let cut = &frame[..44];
    let (feature, layers) = packet(cut);
    assert_eq!(hash(8, 4).value(&feature, cut, &layers), (of(b"01"), false));
    let frame = datagram(ends(true), 0, 64, b"0123456789");
    let (feature, layers) = packet(&frame);
    // Payload length 18; of 2001:db8::1 and ::2 all octets that are taken but the last are 0.
    let fields = [0, 18, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2, b'0', b'1'];
    assert_eq!(hash(8, 2).value(&feature, &frame, &layers), (Some(bob::bob(&fields, 9)), true));
    let crc = HashSelector { function: HashFunction::Crc32, ..hash(8, 2) };
    assert_eq!(crc.value(&feature, &frame, &layers), (Some(crc::crc32(&fields, 9)), true));
}

#[test]
fn ipsx_is_over_the_fields_that_the_standard_names_and_of_ipv4() {
    let hash = HashSelector::of_fraction(HashFunction::Ipsx, HashInput::IPSX, 0, 0.5).unwrap();
    hash.check().unwrap();
    let frame = datagram(ends(false), 0x0102, 64, b"");
    let (feature, layers) = packet(&frame);
    // The payload's second word is UDP's length and checksum.
    let input = [1, 2, 0x40, 0, 192, 0, 2, 1, 198, 51, 100, 2, 0, 8, 0, 0];
    let value = u32::from(ipsx::ipsx(&input));
    assert_eq!(hash.value(&feature, &frame, &layers), (Some(value), true));
    let short = &frame[..frame.len() - 1];
    assert!(!hash.value(&feature, short, &layers).1);
    let frame = datagram(ends(true), 0, 64, b"");
    let (feature, layers) = packet(&frame);
    let all = HashSelector::of_fraction(HashFunction::Ipsx, HashInput::IPSX, 0, 1.0).unwrap();
    assert_eq!(all.selected, [0, 0xFFFF]);
    assert!(!alone(Selector::Hash(all), 0).select(&feature, &frame, &layers));
}

#[test]
fn hashes_of_flows_are_evenly_spread() {
    let hash = HashSelector::of_fraction(HashFunction::Bob, HashInput::Flow, 3, 0.25).unwrap();
    let selector = Selector::Hash(hash);
    assert!((selector.fraction() - 0.25).abs() < 1e-9);
    let mut sequence = alone(selector, 0);
    assert!(!sequence.needs_frame());
    for i in 0..40_000u32 {
        let mut packet = Feature { protocol: 17, destination_port: 53, ..Feature::default() };
        packet.source[12..].copy_from_slice(&(0x0A00_0000 + i).to_be_bytes());
        sequence.select(&packet, &[], &Layers::default());
    }
    let (_, counts) = sequence.report().next().unwrap();
    let bound = 5.0 * (40_000.0 * 0.25 * 0.75f64).sqrt();
    assert!((counts.selected as f64 - 10_000.0).abs() < bound, "{counts:?}");
}

#[test]
fn a_packet_hash_needs_the_packet() {
    let input = HashInput::Packet { offset: 0, size: 8 };
    let hash = HashSelector::of_fraction(HashFunction::Bob, input, 0, 1.0).unwrap();
    let mut sequence = alone(Selector::Hash(hash), 0);
    assert!(sequence.needs_frame());
    assert!(sequence.select(&Feature::default(), &[], &Layers::default()));
    let counts = Selected { observed: 1, selected: 1, cut_short: 1 };
    assert_eq!(sequence.report().next().unwrap().1, counts);
}

#[test]
fn filters() {
    let frame = datagram(ends(false), 0, 64, b"");
    let (packet, _) = packet(&frame);
    let fragment = Feature { shape: sonde_wire::feature::SHAPE_LATER_FRAGMENT, ..packet };
    let icmp = Feature { protocol: 1, destination_port: 443, ..packet };
    let net = |text: &str, length| vec![(text.parse().unwrap(), length)];
    let all = PropertyFilter::default();
    for (filter, holds) in [
        (all.clone(), [true, true, true]),
        (PropertyFilter { protocols: vec![6, 17], ..all.clone() }, [true, true, false]),
        (PropertyFilter { ports: vec![443], ..all.clone() }, [true, false, false]),
        (PropertyFilter { ports: vec![80], ..all.clone() }, [false, false, false]),
        (PropertyFilter { nets: net("198.51.100.0", 24), ..all.clone() }, [true, true, true]),
        (PropertyFilter { nets: net("::", 0), ..all.clone() }, [false, false, false]),
    ] {
        let found = [packet, fragment, icmp].map(|packet| filter.matches(&packet));
        assert_eq!(found, holds, "{filter:?}");
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let net = |length| PropertyFilter {
        nets: vec![("192.0.2.0".parse().unwrap(), length)],
        ..PropertyFilter::default()
    };
    let function = HashFunction::Bob;
    let hash = HashSelector { function, input: HashInput::Flow, initialiser: 0, selected: [2, 1] };
    let ipsx = HashSelector { function: HashFunction::Ipsx, input: HashInput::IPSX, ..hash };
    let packet = HashInput::Packet { offset: 0, size: 65 };
    for (selector, word) in [
        (Selector::SystematicCount { interval: 0, spacing: 5 }, "interval"),
        (Selector::SystematicTime { interval_us: 0, spacing_us: 5 }, "interval"),
        (Selector::RandomNOutOfN { size: 0, population: 5 }, "0 out of 5"),
        (Selector::RandomNOutOfN { size: 6, population: 5 }, "6 out of 5"),
        (Selector::Uniform { probability: 0.0 }, "probability"),
        (Selector::Uniform { probability: f64::NAN }, "probability"),
        (Selector::Uniform { probability: 1.5 }, "probability"),
        (Selector::Filter(net(33)), "192.0.2.0/33"),
        (
            Selector::Filter(PropertyFilter { ports: vec![1; 9], ..PropertyFilter::default() }),
            "9 ports",
        ),
        (Selector::Hash(hash), "0x2 to 0x1"),
        (Selector::Hash(HashSelector { input: packet, selected: [1, 2], ..hash }), "65 octets"),
        (Selector::Hash(HashSelector { selected: [0, 0x1_0000], ..ipsx }), "16 bits"),
        (Selector::Hash(HashSelector { selected: [0, 1], initialiser: 1, ..ipsx }), "no key"),
        (Selector::Hash(HashSelector { selected: [0, 1], input: packet, ..ipsx }), "own input"),
    ] {
        let error = Sequence::new(vec![selector], 0).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    for fraction in [0.0, -1.0, 1.1, f64::NAN, 1e-11] {
        assert!(
            HashSelector::of_fraction(function, HashInput::Flow, 0, fraction).is_err(),
            "{fraction}"
        );
    }
    let many = vec![Selector::Uniform { probability: 0.5 }; 5];
    assert_eq!(Sequence::new(many, 0).unwrap_err(), SelectorError::Selectors(5));
}

proptest! {
    #[test]
    fn systematic_counts_are_exact(interval in 1u32..20, spacing in 0u32..50, periods in 1usize..20) {
        let period = (interval + spacing) as usize;
        let selected = run(&mut alone(Selector::SystematicCount { interval, spacing }, 0), period * periods);
        for (i, &yes) in selected.iter().enumerate() {
            prop_assert_eq!(yes, i % period < interval as usize);
        }
        prop_assert_eq!(count(&selected), interval as usize * periods);
    }

    #[test]
    fn n_out_of_n_is_exact(population in 1u32..100, part in 0.0f64..1.0, seed: u64) {
        let size = 1 + (f64::from(population - 1) * part) as u32;
        let selector = Selector::RandomNOutOfN { size, population };
        let selected = run(&mut alone(selector.clone(), seed), population as usize * 7);
        for block in selected.chunks(population as usize) {
            prop_assert_eq!(count(block), size as usize);
        }
        // The same seed makes the same choice.
        prop_assert_eq!(run(&mut alone(selector, seed), selected.len()), selected);
    }

    #[test]
    fn no_packet_makes_a_hash_panic(
        frame in proptest::collection::vec(any::<u8>(), 0..120),
        offsets: [u16; 2], ip_len: u32, shape: u8, offset: u16, size in 0u16..=64,
    ) {
        let packet = Feature { ip_len, shape, ..Feature::default() };
        let layers = Layers { ip: offsets[0], end: offsets[1], ..Layers::default() };
        for (function, input) in [
            (HashFunction::Bob, HashInput::Packet { offset, size }),
            (HashFunction::Crc32, HashInput::Flow),
            (HashFunction::Ipsx, HashInput::IPSX),
        ] {
            let hash = HashSelector { function, input, initialiser: 0, selected: [0, 1] };
            hash.check().unwrap();
            let _ = hash.value(&packet, &frame, &layers);
        }
    }
}
