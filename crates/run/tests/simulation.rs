//! Sender, reflector and the pump between them and their ports, over a modelled path in
//! virtual time. The path counts what it does: the instrument must find the same.

use sonde_meter::Instrument as _;
use sonde_meter::stamp::{
    LinkHeader, Reflector, ReflectorConfig, ReflectorKind, Schedule, Sender, SenderConfig,
    StreamSpec,
};
use sonde_port::mem::{Bottleneck, Jitter, MemLink, MemStats, PathModel};
use sonde_port::{Port as _, PortStats};
use sonde_results::Interval;
use sonde_results::record::LossSide;
use sonde_results::units::SECOND;
use sonde_run::pump;
use sonde_wire::{StampSource, Time};

const MS: i64 = 1_000_000;

struct SimulationResult {
    total: Interval,
    path: MemStats,
    sender: sonde_meter::stamp::SenderCounters,
    reflector: sonde_meter::stamp::ReflectorCounters,
    reflector_port: PortStats,
}

/// Stream `i`: 250 probes, 20 ms apart.
fn spec(i: i64) -> StreamSpec {
    StreamSpec {
        source: format!("10.0.0.1:{}", 62_000 + i % 5).parse().unwrap(),
        destination: format!("10.2.0.{}:862", 1 + i / 5).parse().unwrap(),
        dscp: 0,
        ttl: 64,
        next_hop: 0,
        ssid: 1 + i as u16,
        ip_length: 150,
        period: 20 * MS,
        phase: i * MS / 2,
        schedule: Schedule::Periodic,
        count: Some(250),
        reflector: ReflectorKind::Stateful,
    }
}

fn config(seed: u64) -> SenderConfig {
    SenderConfig {
        start: Time::ZERO + SECOND,
        timeout: SECOND,
        interval: 2 * SECOND,
        late_limit: 50_000,
        tai_offset: 37 * SECOND,
        clock_synchronised: true,
        clock_error: 100,
        tx_stamps: true,
        kernel_resolves: false,
        histogram_pages: 100_000,
        samples: false,
        seed,
    }
}

fn run(seed: u64, forward: PathModel, backward: PathModel) -> SimulationResult {
    let (mut near, mut far, clock) = MemLink::new(seed, forward, backward);
    let streams: Vec<_> = (0..40).map(spec).collect();
    let config = config(seed);
    let link = LinkHeader::new([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], &[]);
    let mut sender = Sender::new(config, &streams, vec![Ok(link)]).unwrap();
    let settings = ReflectorConfig::new(vec![862], 37 * SECOND, seed);
    let mut reflector = Reflector::new(&settings, Time::ZERO).unwrap();
    let mut total = Interval::empty(0);
    let mut record = Interval::empty(0);
    while clock.now() < Time::ZERO + 9 * SECOND {
        pump::turn(&mut near, &mut sender).unwrap();
        pump::turn(&mut far, &mut reflector).unwrap();
        while sender.poll_record(&mut record) {
            total.merge(&record);
        }
        let step = clock.now() + MS / 10;
        clock.advance_to(clock.next_event().map_or(step, |event| event.min(step)));
    }
    sender.finish(clock.now());
    while sender.poll_record(&mut record) {
        total.merge(&record);
    }
    SimulationResult {
        total,
        path: clock.stats(),
        sender: sender.counters(),
        reflector: *reflector.counters(),
        reflector_port: far.stats(),
    }
}

#[test]
fn a_clean_path_gives_exactly_its_delays() {
    let model = |delay_ns| PathModel { delay_ns, ..PathModel::default() };
    let o = run(1, model(3 * MS), model(5 * MS));
    let c = o.total.counters;
    assert_eq!((c.sent, c.received, c.lost), (10_000, 10_000, 0));
    assert_eq!((c.duplicated, c.reordered, c.late, c.skipped), (0, 0, 0, 0));
    // NTP rounds each stamp to 0.23 ns; virtual time moves in steps of 0.1 ms, which the
    // reflector's dwell shows and nothing else.
    assert!((o.total.forward.min - 3 * MS).abs() <= 1 && (o.total.forward.max - 3 * MS).abs() <= 1);
    assert!(
        (o.total.backward.min - 5 * MS).abs() <= 1 && (o.total.backward.max - 5 * MS).abs() <= 1
    );
    assert!((o.total.rtt_net.max - 8 * MS).abs() <= 2);
    assert_eq!(o.total.t1_source, Some(StampSource::Driver));
    assert_eq!(o.sender.unstamped, 0);
    assert_eq!(o.reflector.reflected, 10_000);
}

/// Neither streams that stay nor those that come and go lose anything. Each probe that was sent
/// has its reply, and each stream its records.
#[test]
fn streams_come_and_go_while_others_run_on() {
    let model = |delay_ns| PathModel { delay_ns, ..PathModel::default() };
    // Where nothing changes.
    let usual = run(3, model(3 * MS), model(5 * MS)).total.caveats;
    let (mut near, mut far, clock) = MemLink::new(3, model(3 * MS), model(5 * MS));
    let link = LinkHeader::new([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], &[]);
    let streams: Vec<_> = (0..40).map(spec).collect();
    let mut sender = Sender::new(config(3), &streams, vec![Ok(link)]).unwrap();
    let settings = ReflectorConfig::new(vec![862], 37 * SECOND, 3);
    let mut reflector = Reflector::new(&settings, Time::ZERO).unwrap();
    let mut totals: Vec<Interval> = (0..51).map(Interval::empty).collect();
    let mut record = Interval::empty(0);
    let (mut added, mut again) = (false, false);
    while clock.now() < Time::ZERO + 18 * SECOND {
        let now = clock.now();
        if !added && now >= Time::ZERO + 3 * SECOND {
            added = true;
            // Streams 30 to 39 end after 2 s; 40 to 49 are new, with a period of their own, too.
            sender.end(&(30..40).collect::<Vec<u32>>(), now);
            let period = |i: i64| if i % 2 == 0 { 20 * MS } else { 50 * MS };
            let new: Vec<_> =
                (40..50).map(|i| StreamSpec { period: period(i), ..spec(i) }).collect();
            sender.add(&new, now, 1_000).unwrap();
            // Replies to the ended stream 30 may still come: they would count for a new one.
            assert!(sender.add(&[spec(30)], now, 100).is_err());
        }
        if !again && now >= Time::ZERO + 6 * SECOND {
            again = true;
            sender.add(&[spec(30)], now, 100).unwrap();
        }
        pump::turn(&mut near, &mut sender).unwrap();
        pump::turn(&mut far, &mut reflector).unwrap();
        while sender.poll_record(&mut record) {
            totals[record.stream as usize].merge(&record);
        }
        let step = clock.now() + MS / 10;
        clock.advance_to(clock.next_event().map_or(step, |event| event.min(step)));
    }
    sender.finish(clock.now());
    while sender.poll_record(&mut record) {
        totals[record.stream as usize].merge(&record);
    }
    for (i, total) in totals.iter().enumerate() {
        let c = &total.counters;
        let sent = match i {
            30..40 => 100,
            _ => 250,
        };
        // The phases of those that ended reach beyond the 2 s by less than a period.
        assert!(c.sent.abs_diff(sent) <= u64::from((30..40).contains(&i)), "{i}: {c:?}");
        assert_eq!((c.received, c.lost, c.skipped), (c.sent, 0, 0), "{i}: {c:?}");
        assert_eq!((c.duplicated, c.reordered, c.late), (0, 0, 0), "{i}");
        assert!((total.rtt_net.max - 8 * MS).abs() <= 2, "{i}");
        assert_eq!(total.caveats, usual, "{i}");
    }
    let c = sender.counters();
    assert_eq!((c.strangers, c.forged, c.late, c.stamps_late), (0, 0, 0, 0));
}

#[test]
fn losses_are_found_on_the_side_where_the_path_lost_them() {
    for seed in 1..=5 {
        let o = run(
            seed,
            PathModel { delay_ns: 2 * MS, loss: 0.03, ..PathModel::default() },
            PathModel { delay_ns: 2 * MS, loss: 0.01, ..PathModel::default() },
        );
        let c = o.total.counters;
        assert_eq!(c.sent, 10_000, "seed {seed}");
        assert_eq!(c.lost, o.path.forward.lost + o.path.backward.lost, "seed {seed}");
        assert_ne!(o.total.loss_side, LossSide::Unknown);
        // What a stream lost after its last reply has no side.
        let (forward, backward) = (c.lost_forward.unwrap(), c.lost_backward.unwrap());
        assert!(c.lost - forward - backward <= 40, "seed {seed}: {c:?}");
        assert!(forward <= o.path.forward.lost && backward <= o.path.backward.lost);
        assert!(forward + 40 >= o.path.forward.lost, "seed {seed}: {c:?} {:?}", o.path);
    }
}

#[test]
fn duplication_and_reordering_are_not_loss() {
    for seed in 1..=5 {
        let rough = PathModel {
            delay_ns: 2 * MS,
            duplicate: 0.02,
            reorder: 0.02,
            reorder_extra_ns: 70 * MS,
            ..PathModel::default()
        };
        let o = run(seed, rough.clone(), rough);
        let c = o.total.counters;
        assert_eq!((c.sent, c.received, c.lost), (10_000, 10_000, 0), "seed {seed}");
        assert_eq!((c.lost, c.lost_unknown), (0, 0));
        // Each copy of a request is answered once; each copy of an answer is a duplicate.
        let copies = o.path.forward.duplicated + o.path.backward.duplicated;
        assert_eq!(c.duplicated + c.late, copies, "seed {seed}");
        assert_eq!(o.reflector.reflected, 10_000 + o.path.forward.duplicated);
        assert!(c.reordered > 100, "seed {seed}: {c:?}");
    }
}

#[test]
fn damage_is_dropped_and_counted_never_measured() {
    for seed in 1..=5 {
        let bad = PathModel { delay_ns: 2 * MS, corrupt: 0.05, ..PathModel::default() };
        let o = run(seed, bad.clone(), bad);
        let c = o.total.counters;
        assert_eq!(c.sent, 10_000);
        assert_eq!(c.sent, c.received + c.lost);
        // A bit flipped in the Ethernet header harms nothing that is measured; any other
        // one must cost the packet, not spoil a result.
        let damaged = o.path.forward.corrupted + o.path.backward.corrupted;
        assert!(c.lost > damaged / 2 && c.lost <= damaged, "seed {seed}: {} {damaged}", c.lost);
        assert!((o.total.forward.min - 2 * MS).abs() <= 1, "seed {seed}");
        assert!((o.total.forward.max - 2 * MS).abs() <= 1, "seed {seed}");
        assert!((o.total.backward.max - 2 * MS).abs() <= 1, "seed {seed}");
    }
}

#[test]
fn a_full_queue_shows_as_delay_and_then_as_loss() {
    // 2,000 packets/s of 164 bytes are 2.6 Mbit/s; the link carries 2.
    let narrow = PathModel {
        delay_ns: MS,
        bottleneck: Some(Bottleneck { rate_bps: 2_000_000, queue_bytes: 16_400 }),
        ..PathModel::default()
    };
    let o = run(1, narrow, PathModel { delay_ns: MS, ..PathModel::default() });
    let c = o.total.counters;
    assert_eq!(c.lost, o.path.forward.queue_drops);
    assert!(c.lost > 1_000 && c.lost_backward.unwrap_or(0) == 0, "{c:?}");
    // A hundred packets wait at most: 66 ms.
    let most = o.total.forward.max;
    assert!((50 * MS..70 * MS).contains(&most), "{most}");
}

#[test]
fn jitter_and_an_outage() {
    let shaky = PathModel {
        delay_ns: 10 * MS,
        jitter: Jitter::Uniform(MS),
        down: vec![(Time::ZERO + 3 * SECOND, Time::ZERO + 4 * SECOND)],
        ..PathModel::default()
    };
    let o = run(9, shaky, PathModel { delay_ns: MS, ..PathModel::default() });
    let c = o.total.counters;
    assert_eq!(c.lost, o.path.forward.down_drops);
    assert!((1_900..=2_100).contains(&c.lost), "{c:?}");
    assert_eq!(c.lost_backward.unwrap_or(0), 0);
    assert!(o.total.forward.min >= 10 * MS - 1 && o.total.forward.max <= 11 * MS + 1);
    assert!(o.total.ipdv_forward.max <= MS + 2 && o.total.ipdv_forward.min >= -MS - 2);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let model = || PathModel {
        delay_ns: 2 * MS,
        jitter: Jitter::Uniform(MS),
        loss: 0.02,
        duplicate: 0.01,
        ..PathModel::default()
    };
    let (a, b) = (run(4, model(), model()), run(4, model(), model()));
    assert_eq!(a.total, b.total);
    assert_eq!(a.reflector_port, b.reflector_port);
    assert_ne!(a.total, run(5, model(), model()).total);
}
