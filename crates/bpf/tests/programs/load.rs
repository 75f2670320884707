//! The load programs as functions: frames in, counts out, held against the same instruments
//! in user space.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common;
use crate::common::{in_namespace, index, ip, privileged, wait_for_the_kill};
use sonde_bpf::{
    Expected, FlowHeader, XdpAnalyser, XdpAnalyserConfig, XdpGenerator, XdpGeneratorConfig, XdpPace,
};
use sonde_meter::Paced as _;
use sonde_meter::load::{
    self, AddressRule, FCS_LEN, LoadSchedule, LossLog, MacRule, PortRule, Traffic,
};
use sonde_results::hist::bucket_of;
use sonde_results::trial::{Direction, Offer};
use sonde_wire::Time;
use sonde_wire::ethernet::{ETHERTYPE_VLAN, Tag};
use sonde_wire::signature::{self, Repr, Secret};

const SECRET: [u64; 2] = [0x1234_5678_9abc_def0, 77];
const TAG: u8 = 9;
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

fn traffic(ipv6: bool, tagged: bool, sizes: &[u32]) -> Traffic {
    let [source, destination]: [IpAddr; 2] = match ipv6 {
        false => ["198.18.0.2".parse().unwrap(), "198.19.0.2".parse().unwrap()],
        true => ["2001:2::2".parse().unwrap(), "2001:2:0:1::2".parse().unwrap()],
    };
    Traffic {
        sizes: sizes.to_vec(),
        tags: if tagged { vec![Tag { tpid: ETHERTYPE_VLAN, tci: 5 }] } else { Vec::new() },
        labels: Vec::new(),
        source_mac: MacRule::Random { seed: 1 },
        destination_mac: MacRule::Fixed([2, 0, 0, 0, 0, 9]),
        source: AddressRule::fixed(source),
        destination: AddressRule::fixed(destination),
        source_port: PortRule::RFC4814_SOURCE,
        destination_port: PortRule::RFC4814_DESTINATION,
        flows: 3,
        tos: vec![0],
        ttl: 64,
        seed: 11,
    }
}

/// On the loopback: a test run sends nothing.
fn kernel_generator(traffic: &Traffic, offer: &Offer) -> XdpGenerator {
    let headers = load::headers(traffic).unwrap();
    let config = XdpGeneratorConfig {
        ifindex: index("lo"),
        batch: 1,
        batch_stamps: false,
        sizes: traffic.sizes.iter().map(|s| s - FCS_LEN as u32).collect(),
        header_len: headers[0].len,
        l3_at: headers[0].l3_at,
        l4_at: headers[0].l4_at,
        ipv6: traffic.ipv6(),
        tag: TAG,
        secret: SECRET,
    };
    let flows: Vec<FlowHeader> = headers
        .into_iter()
        .map(|h| FlowHeader {
            header: h.octets,
            ip_sum: h.ip_sum,
            udp_sum: h.udp_sum,
            stream: h.stream,
        })
        .collect();
    let schedule = LoadSchedule::new(offer);
    let pace = XdpPace {
        frames: offer.frames,
        counted_from: schedule.counted_from,
        burst: offer.burst.into(),
        rate_fps: offer.rate_fps,
        changes: schedule.loads().skip(1).collect(),
        catch_up_ns: schedule.catch_up_ns(100_000) as u64,
    };
    XdpGenerator::load(&config, &flows, &pace).unwrap()
}

fn analyser(config: &XdpAnalyserConfig, expected: &Expected) -> XdpAnalyser {
    let mut analyser = XdpAnalyser::load(config).unwrap();
    analyser.begin(expected);
    analyser
}

fn config() -> XdpAnalyserConfig {
    XdpAnalyserConfig { queues: 1, secret: SECRET, ..XdpAnalyserConfig::default() }
}

fn expected(frames: u64, streams: usize) -> Expected {
    Expected {
        tag: TAG,
        frames,
        counted_from: 0,
        streams,
        start_ns: now(),
        slot_ns: 1_000_000_000,
        length_change: 0,
    }
}

/// The programs read CLOCK_TAI, which may be ahead of UTC: only differences matter here.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
}

#[test]
fn both_generators_write_the_same_octets() {
    if !privileged("both_generators_write_the_same_octets") {
        return;
    }
    in_namespace(|| {
        ip(&["link", "set", "lo", "up"]);
        for (ipv6, tagged) in [(false, false), (true, false), (false, true), (true, true)] {
            for sizes in [&[90][..], &[101, 90, 1518, 600]] {
                let traffic = traffic(ipv6, tagged, sizes);
                traffic.check(1500).unwrap();
                // Due at once, whatever the clock says.
                let offer = Offer::steady(1e9, 20);
                let kernel = kernel_generator(&traffic, &offer);
                kernel.start_at(1);
                let mut user = load::LoadGenerator::new(
                    load::headers(&traffic).unwrap(),
                    sizes,
                    LoadSchedule::new(&offer),
                    Time::from_nanos(1),
                    TAG,
                    Secret(SECRET),
                );
                for n in 0..offer.frames {
                    let made = kernel.test_run().unwrap();
                    assert_eq!(made.verdict, XDP_REDIRECT);
                    let found = Repr::parse(&made.packet, made.packet.len(), &Secret(SECRET));
                    let found = found.unwrap();
                    assert_eq!((found.sequence, found.stream), (n as u32, (n % 3) as u16));
                    let mut buffer = [0xaa; 2000];
                    let at = Time::from_nanos(found.sent as i64);
                    let len = user.write(at, &mut buffer).unwrap();
                    assert_eq!(made.packet, buffer[..len], "{traffic:?} frame {n}");
                    let parsed = sonde_wire::parse_udp(&buffer[..len]).unwrap();
                    assert_eq!(parsed.payload.end, len);
                }
                assert_eq!(kernel.test_run().unwrap().verdict, XDP_DROP, "all have left");
                let (mut a, mut b) = (Direction::default(), Direction::default());
                kernel.read(&mut a);
                user.read(&mut b, 0);
                assert_eq!((a.intended, a.sent, a.sent_bytes), (b.intended, b.sent, b.sent_bytes));
                assert_eq!((a.gaps.count, a.lateness.count), (19, 20));
            }
        }
    });
}

#[test]
fn nothing_leaves_before_it_is_due_or_after_the_stop() {
    if !privileged("nothing_leaves_before_it_is_due_or_after_the_stop") {
        return;
    }
    in_namespace(|| {
        ip(&["link", "set", "lo", "up"]);
        let traffic = traffic(false, false, &[64]);
        let offer = Offer { burst: 2, ..Offer::steady(1.0, 10_000_000_000) };
        let kernel = kernel_generator(&traffic, &offer);
        assert_eq!(kernel.test_run().unwrap().verdict, XDP_DROP, "no start was set");
        // The first burst is late by all the time since 1970: so are then the others, which are
        // due every two seconds from now on.
        kernel.start_at(1);
        for verdict in [XDP_REDIRECT, XDP_REDIRECT, XDP_DROP] {
            assert_eq!(kernel.test_run().unwrap().verdict, verdict);
        }
        kernel.stop();
        assert_eq!(kernel.test_run().unwrap().verdict, XDP_DROP);
        assert!(kernel.done() && kernel.sent() == 2);
        let mut d = Direction::default();
        kernel.read(&mut d);
        assert_eq!((d.sent, d.lateness.count, d.gaps.count), (2, 1, 1));
    });
}

/// Frames with faults of every kind, in an order drawn from a seed.
fn arrivals(seed: u64, ipv6: bool) -> (Vec<Vec<u8>>, u64) {
    let mut x = seed;
    let mut random = move |below: u64| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) % below
    };
    let (frames, traffic) = (600u64, traffic(ipv6, false, &[90, 140]));
    let mut generator = load::LoadGenerator::new(
        load::headers(&traffic).unwrap(),
        &traffic.sizes,
        // Due a nanosecond apart, as they leave below.
        LoadSchedule::new(&Offer { frames, ..Offer::steady(1e9, 1) }),
        Time::from_nanos(1),
        TAG,
        Secret(SECRET),
    );
    let mut arrivals = Vec::new();
    let mut buffer = [0; 2000];
    for n in 0..frames {
        let at = Time::from_nanos(now() + n as i64);
        let len = generator.write(at, &mut buffer).unwrap();
        let mut frame = buffer[..len].to_vec();
        let position = n * 4 + random(20) * random(2);
        match random(12) {
            0 => continue,
            1 => arrivals.push((n * 4 + random(60), frame.clone())),
            2 => frame[len - 1 - random(16) as usize] ^= 1 << random(8),
            3 => frame.truncate(len - 1),
            4 => {
                let mut other = Repr::parse(&frame, len, &Secret(SECRET)).unwrap();
                other.trial = TAG + 1;
                other.emit(&mut frame, &Secret(SECRET)).unwrap();
            }
            _ => {}
        }
        arrivals.push((position, frame));
        if random(30) == 0 {
            // Not ours: an ARP request.
            arrivals.push((n * 4, [&[0xff; 12][..], &[8, 6], &[0; 46]].concat()));
        }
    }
    arrivals.sort_by_key(|(position, _)| *position);
    (arrivals.into_iter().map(|(_, frame)| frame).collect(), frames)
}

#[test]
fn both_analysers_count_the_same() {
    if !privileged("both_analysers_count_the_same") {
        return;
    }
    for (seed, ipv6) in [(1, false), (2, true), (3, false)] {
        let (frames, sent) = arrivals(seed, ipv6);
        let offer = Offer { frames: sent, discard_ns: 20_000, ..Offer::steady(1e6, 1) };
        let schedule = LoadSchedule::new(&offer);
        let expected = Expected { counted_from: schedule.counted_from, ..expected(sent, 3) };
        let mut kernel = analyser(&config(), &expected);
        let mut user = load::LoadAnalyser::new(load::LoadAnalyserConfig {
            tag: TAG,
            secret: Secret(SECRET),
            schedule: schedule.clone(),
            streams: 3,
            start: Time::from_nanos(expected.start_ns),
            slot_ns: expected.slot_ns,
            length_change: 0,
            tagged: false,
            mac: None,
        });
        let mut verdicts = [0u32; 3];
        for frame in &frames {
            let verdict = kernel.test_run(frame).unwrap().verdict;
            verdicts[verdict as usize] += 1;
            user.input(frame, Time::from_nanos(now()));
        }
        assert!(verdicts[XDP_DROP as usize] > 400 && verdicts[XDP_PASS as usize] > 10);
        let (mut a, mut b) = (Direction::default(), Direction::default());
        kernel.read(&mut a);
        user.read(&mut b);
        let counts = |d: &Direction| {
            (
                (d.received, d.received_bytes, d.duplicates, d.reordered),
                (d.corrupted, d.stray, d.streams.clone()),
                (d.latency.count, d.ipdv.count, d.jitter.count, d.worst.len()),
            )
        };
        assert_eq!(counts(&a), counts(&b), "seed {seed}");
        assert!(a.duplicates > 0 && a.reordered > 0 && a.corrupted > 0 && a.stray > 0);
        let mut losses = [(); 2].map(|()| LossLog::new(schedule.clone(), 1 << 40));
        kernel.harvest(sent, |first, arrived| losses[0].read(first, arrived, sent));
        user.harvest(sent, |first, arrived| losses[1].read(first, arrived, sent));
        let [first, second] = losses;
        first.finish(&mut a);
        second.finish(&mut b);
        assert_eq!((a.lost, &a.losses, a.last_loss), (b.lost, &b.losses, b.last_loss));
        assert_eq!(a.lost, sent - schedule.counted_from - a.received);
    }
}

#[test]
fn buckets_are_those_of_the_results() {
    if !privileged("buckets_are_those_of_the_results") {
        return;
    }
    let mut analyser = analyser(&config(), &expected(u64::MAX, 1));
    let mut seen = std::collections::HashSet::new();
    // Latencies of either sign, from nothing to an hour: the clock's part cancels out below.
    let mut wanted = Vec::new();
    for power in 0..42 {
        for part in [0i64, 1, 3, 7, 13] {
            let value = (1i64 << power) + (part << power) / 16;
            wanted.extend([value, -value]);
        }
    }
    for (n, latency) in wanted.into_iter().enumerate() {
        // Each trial has one frame, so sum, minimum and maximum are its latency.
        analyser.begin(&Expected { tag: n as u8, ..expected(10, 1) });
        let mut frame = [0; 60];
        let sent = signature::sent(tai() - latency);
        Repr { trial: n as u8, stream: 0, sequence: 0, sent }
            .emit(&mut frame, &Secret(SECRET))
            .unwrap();
        assert_eq!(analyser.test_run(&frame).unwrap().verdict, XDP_DROP);
        let all = analyser.latency();
        assert_eq!((all.count, all.min, all.min), (1, all.max, all.sum as i64));
        assert!((all.min - latency).abs() < 1_000_000_000, "{} of {latency}", all.min);
        // Beyond 18 minutes the last bucket of each sign takes all.
        let bucket = bucket_of(all.min);
        let bucket = if all.min.abs() >= 1 << 40 { bucket.signum() * 1024 } else { bucket };
        let bucket = bucket.clamp(-1024, 1023);
        assert_eq!(all.buckets, [(bucket, 1)], "{}", all.min);
        seen.insert(bucket);
    }
    assert!(seen.len() > 100, "only {} buckets were tried", seen.len());
}

/// As the programs read it.
fn tai() -> i64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is valid memory for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_TAI, &raw mut ts) };
    ts.tv_sec * 1_000_000_000 + ts.tv_nsec
}

#[test]
fn other_lengths_and_addresses_are_reported() {
    if !privileged("other_lengths_and_addresses_are_reported") {
        return;
    }
    let frame = |len: usize| {
        let mut frame = vec![0u8; len];
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
        let r = Repr { trial: TAG, stream: 0, sequence: 0, sent: 0 };
        r.emit(&mut frame, &Secret(SECRET)).unwrap();
        frame
    };
    let read = |analyser: &XdpAnalyser| {
        let mut d = Direction::default();
        analyser.read(&mut d);
        (d.received, d.stray, d.corrupted)
    };
    // A device that adds four octets in front.
    let longer = [&[2, 0, 0, 0, 0, 7, 0, 0][..], &frame(64)[4..]].concat();
    assert_eq!(longer.len(), 68);
    let added = analyser(&config(), &Expected { length_change: 4, ..expected(1, 1) });
    added.test_run(&longer).unwrap();
    assert_eq!(read(&added), (1, 0, 0));
    // A tag that the kernel took out of it.
    let tagged = XdpAnalyserConfig { tagged: true, ..config() };
    let taken = analyser(&tagged, &expected(1, 1));
    taken.test_run(&[&frame(68)[..12], &frame(68)[16..]].concat()).unwrap();
    assert_eq!(read(&taken), (1, 0, 0));
    for (mac, want) in [([2, 0, 0, 0, 0, 7], (1, 0, 0)), ([2, 0, 0, 0, 1, 7], (0, 1, 0))] {
        let checked = XdpAnalyserConfig { mac: Some(mac), ..config() };
        let checked = analyser(&checked, &expected(1, 1));
        checked.test_run(&frame(64)).unwrap();
        assert_eq!(read(&checked), want);
    }
    // After the trial everything is stray.
    let ended = analyser(&config(), &expected(1, 1));
    ended.end();
    ended.test_run(&frame(64)).unwrap();
    assert_eq!(read(&ended), (0, 1, 0));
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let flow = FlowHeader { header: [0; 112], ip_sum: 0, udp_sum: 0, stream: 0 };
    let good = XdpGeneratorConfig {
        ifindex: 1,
        batch: 1,
        batch_stamps: false,
        sizes: vec![60],
        header_len: 42,
        l3_at: 14,
        l4_at: 34,
        ipv6: false,
        tag: 0,
        secret: [0, 0],
    };
    let pace = XdpPace {
        frames: 1,
        counted_from: 0,
        burst: 1,
        rate_fps: 1.0,
        changes: Vec::new(),
        catch_up_ns: 100_000,
    };
    let refused = |config: XdpGeneratorConfig, flows: &[FlowHeader], pace: &XdpPace| {
        XdpGenerator::load(&config, flows, pace).unwrap_err().to_string()
    };
    let one = std::slice::from_ref(&flow);
    let long = refused(XdpGeneratorConfig { sizes: vec![9000], ..good.clone() }, one, &pace);
    assert!(long.contains("af_packet"), "{long}");
    for (config, flows, pace) in [
        (XdpGeneratorConfig { sizes: vec![59], ..good.clone() }, vec![flow.clone()], pace.clone()),
        (XdpGeneratorConfig { sizes: vec![], ..good.clone() }, vec![flow.clone()], pace.clone()),
        (XdpGeneratorConfig { header_len: 113, ..good.clone() }, vec![flow.clone()], pace.clone()),
        (XdpGeneratorConfig { batch: 0, ..good.clone() }, vec![flow.clone()], pace.clone()),
        (good.clone(), vec![], pace.clone()),
        (good.clone(), vec![flow.clone()], XdpPace { burst: 0, ..pace.clone() }),
        (good.clone(), vec![flow.clone()], XdpPace { rate_fps: f64::NAN, ..pace.clone() }),
        (good.clone(), vec![flow.clone()], XdpPace { changes: vec![(1, 0.0)], ..pace.clone() }),
        (good.clone(), vec![flow.clone()], XdpPace { changes: vec![(5, 1.0), (4, 1.0)], ..pace }),
    ] {
        refused(config, &flows, &pace);
    }
}

/// Attaches and never returns: for `a_killed_tester_leaves_nothing`.
#[test]
#[ignore]
fn attach_and_wait() {
    let mut analyser = XdpAnalyser::load(&config()).unwrap();
    analyser.attach(index("va"), sonde_bpf::AttachMode::Native).unwrap();
    wait_for_the_kill()
}

#[test]
fn a_killed_tester_leaves_nothing() {
    if !privileged("a_killed_tester_leaves_nothing") {
        return;
    }
    common::nothing_outlives_the_kill(module_path!(), || common::xdp_attached("va"));
}
