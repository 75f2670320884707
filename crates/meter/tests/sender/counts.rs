//! What became of each probe: counts, sides, intervals.

use sonde_meter::Instrument;
use sonde_meter::stamp::{Fate, Schedule, Sender, SenderConfig, StreamSpec};
use sonde_results::Interval;
use sonde_results::caveat::Caveat;
use sonde_results::record::LossSide;
use sonde_wire::{Stamp, StampSource, Time};

use crate::world::*;

#[test]
fn losses_have_a_side_and_the_counts_add_up() {
    let (r, _) =
        one(&mut |n| Trip { lost_forward: n % 10 == 3, lost_backward: n % 10 == 7, ..PLAIN });
    assert_eq!((r.counters.sent, r.counters.received, r.counters.lost), (100, 80, 20));
    assert_eq!((r.counters.lost_forward, r.counters.lost_backward), (Some(10), Some(10)));
    assert_eq!(r.loss_side, LossSide::Known);
}

#[test]
fn a_reply_after_the_timeout_is_lost_and_late() {
    let (r, sender) =
        one(&mut |n| Trip { backward: if n == 50 { 1100 * MS } else { PLAIN.backward }, ..PLAIN });
    assert_eq!((r.counters.received, r.counters.lost, r.counters.late), (99, 1, 1));
    assert_eq!(sender.counters().late, 1);
    assert_eq!(r.rtt.max / MS, 0, "its delay is undefined (RFC 7680)");
}

/// Though it is settled in turns only, between which replies come.
#[test]
fn a_reply_after_a_short_timeout_is_late_whenever_its_probe_is_settled() {
    let config = SenderConfig { timeout: 10 * MS, ..config() };
    let spec = StreamSpec { count: Some(50), ..spec(0) };
    let mut world = World::new(Sender::new(config, &[spec], hops()).unwrap());
    let mut slow = |_| Trip { forward: 6 * MS, backward: 6 * MS, copies: 2, ..PLAIN };
    world.run(START + 6 * SECOND, &mut slow);
    let (records, sender, _) = world.finish();
    let c = records[0].counters;
    assert_eq!((c.sent, c.received, c.lost), (50, 0, 50));
    assert_eq!((c.late, c.duplicated), (100, 0));
    assert_eq!((records[0].rtt.count, sender.counters().late), (0, 100));
    assert_eq!(sender.delays().summary(), None);
}

#[test]
fn a_further_reply_is_late_after_the_timeout_and_a_duplicate_before() {
    let config = SenderConfig { timeout: 10 * MS, ..config() };
    let (mut sender, _, probe) = first_probe(config);
    let reply = |seq| reflect(&probe, START + 300, START + 400, Some(seq));
    answer(&mut sender, reply(0), START + MS);
    answer(&mut sender, reply(1), START + 10 * MS);
    answer(&mut sender, reply(2), START + 10 * MS + 1);
    let c = record(&mut sender, START + SECOND).counters;
    assert_eq!((c.received, c.duplicated, c.late), (1, 1, 1));
}

/// The process is stopped while replies come: they wait, with their stamps, and come in bursts.
#[test]
fn replies_that_waited_for_a_stopped_process_are_judged_by_their_stamps() {
    let mut sender = Sender::new(config(), &[spec(0)], hops()).unwrap();
    let mut buffer = [0u8; 2048];
    let mut probes = Vec::new();
    for i in 0..3 {
        let now = START + i * 100 * MS;
        let sent = sender.poll_transmit(Time::from_nanos(now), &mut buffer).unwrap();
        let late = if i == 2 { SECOND } else { 0 };
        let t4 = now + MS + late;
        probes.push((t4, reflect(&buffer[..sent.len], now + 300, now + 400, Some(i as u32))));
    }
    let mut now = START + 5 * SECOND;
    for (t4, mut reply) in probes {
        let stamp = Stamp { at: Time::from_nanos(t4), source: StampSource::Kernel };
        sender.input(&mut reply, stamp, Time::from_nanos(now));
        // What is due meanwhile settles what is old enough.
        while sender.poll_transmit(Time::from_nanos(now), &mut buffer).is_some() {}
        sender.handle_timeout(Time::from_nanos(now));
        now += 50 * US;
    }
    let r = record(&mut sender, now);
    assert_eq!((r.counters.received, r.counters.lost, r.counters.late), (2, 1, 1));
    assert_eq!(r.rtt.max, MS);
}

#[test]
fn duplicates_and_reordering_are_counted_once_each() {
    let (r, _) = one(&mut |n| Trip {
        copies: if n == 20 { 3 } else { 1 },
        backward: if n == 40 { 250 * MS } else { PLAIN.backward },
        ..PLAIN
    });
    assert_eq!((r.counters.received, r.counters.lost), (100, 0));
    assert_eq!(r.counters.duplicated, 2);
    assert_eq!(r.counters.reordered, 1, "probe 40 came after 41 and 42 (RFC 4737)");
    assert_eq!(r.counters.lost_unknown, 0);
}

#[test]
fn interval_records_cut_by_the_time_of_sending() {
    let mut config = config();
    config.interval = 2 * SECOND;
    let mut world = World::new(Sender::new(config, &[spec(0)], hops()).unwrap());
    world.run(START + 12 * SECOND, &mut |n| Trip { lost_forward: n == 19 || n == 20, ..PLAIN });
    let (records, ..) = world.finish();
    assert_eq!(records.len(), 5);
    for (i, r) in records.iter().enumerate() {
        assert_eq!(r.start_ns, START + i as i64 * 2 * SECOND);
        assert_eq!(r.end_ns - r.start_ns, 2 * SECOND);
        assert_eq!(r.counters.sent, 20);
        // 19 is the last probe of the first interval, 20 the first of the second.
        assert_eq!(r.counters.lost, u64::from(i < 2));
    }
}

#[test]
fn an_interrupted_run_leaves_open_probes_out() {
    let mut world = World::new(Sender::new(config(), &[spec(0)], hops()).unwrap());
    world.run(START + 2 * SECOND, &mut |n| Trip { lost_forward: n == 3 || n >= 15, ..PLAIN });
    let (records, sender, sent_at) = world.finish();
    assert_eq!(sent_at.len(), 20);
    let c = records[0].counters;
    // Of 3 and 15..20 unanswered, only what was sent a timeout ago is lost.
    let old = sent_at.iter().filter(|&&t| t <= START + SECOND).count();
    assert_eq!(old, 11);
    assert_eq!((c.sent, c.received, c.lost), (15, 14, 1));
    assert_eq!(sender.counters().unresolved, 5);
}

#[test]
fn the_sequence_number_wraps() {
    // Four billion probes are too many to send here: begin near the end of the sequence space.
    let mut sender = Sender::new(config(), &[spec(0)], hops()).unwrap();
    sender.begin_at(0, u32::MAX - 40);
    let mut world = World::new(sender);
    world.reflector_seq = u32::MAX - 40;
    let mut trip = |n| Trip { lost_forward: n == 60, copies: 1, ..PLAIN };
    while world.now < START + 12 * SECOND {
        world.receive();
        world.send(&mut trip);
        world.collect();
        world.now += 50 * US;
    }
    let (records, sender, _) = world.finish();
    let mut all = Interval::empty(0);
    records.iter().for_each(|r| all.merge(r));
    assert_eq!((all.counters.sent, all.counters.received, all.counters.lost), (100, 99, 1));
    assert_eq!((all.counters.late, all.counters.reordered), (0, 0));
    assert_eq!((all.counters.lost_forward, all.ipdv_forward.count), (Some(1), 97));
    assert_eq!(sender.counters().forged, 0);
}

#[test]
fn every_sent_probe_is_received_or_lost_whatever_happens() {
    for seed in 0..20u64 {
        let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = move || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x >> 11
        };
        let mut c = config();
        c.interval = SECOND;
        let streams: Vec<_> = (0..3)
            .map(|i| StreamSpec {
                schedule: if i == 1 { Schedule::Poisson } else { Schedule::Periodic },
                count: Some(40),
                ..spec(i)
            })
            .collect();
        let mut world = World::new(Sender::new(c, &streams, hops()).unwrap());
        let mut lost = 0;
        world.run(START + 16 * SECOND, &mut |_| {
            let t = Trip {
                forward: (random() % 900) as i64 * MS,
                lost_forward: random() % 10 == 0,
                lost_backward: random() % 10 == 0,
                copies: 1 + u32::from(random() % 10 == 0),
                ..PLAIN
            };
            lost += u64::from(t.lost_forward || t.lost_backward);
            t
        });
        let (records, sender, sent_at) = world.finish();
        let mut all = Interval::empty(0);
        records.iter().for_each(|r| all.merge(r));
        let n = all.counters;
        assert_eq!(n.sent, sent_at.len() as u64, "seed {seed}");
        assert_eq!(n.sent, n.received + n.lost, "seed {seed}");
        assert_eq!(n.lost, lost, "seed {seed}: no delay exceeds the timeout");
        assert_eq!(all.rtt.count, n.received, "seed {seed}");
        assert_eq!(sender.counters().replies, n.received, "seed {seed}");
    }
}

#[test]
fn samples_state_each_fate() {
    let mut world = World::new(Sender::new(config(), &[spec(0)], hops()).unwrap());
    world.run(START + 12 * SECOND, &mut |n| Trip { lost_forward: n == 5, ..PLAIN });
    let mut lost = Vec::new();
    let mut replies = 0;
    while let Some(sample) = world.sender.poll_sample() {
        match sample.fate {
            Fate::Lost => lost.push(sample.seq),
            Fate::NotSent(_) => unreachable!(),
            Fate::Reply { sender_ttl, .. } => {
                replies += 1;
                assert_eq!(sender_ttl, 255);
            }
        }
    }
    assert_eq!((replies, lost), (99, vec![5]));
}

#[test]
fn a_session_table_that_was_full_leaves_no_number_of_losses_by_side() {
    // A reflector that copies our sequence numbers; backward losses.
    let mut world = World::new(Sender::new(config(), &[spec(0)], hops()).unwrap());
    world.run(START + 12 * SECOND, &mut |n| Trip { lost_backward: n % 5 == 2, ..PLAIN });
    let (records, ..) = world.finish();
    let mut all = Interval::empty(0);
    records.iter().for_each(|r| all.merge(r));
    let c = all.counters;
    assert_eq!((c.lost, c.lost_forward, c.lost_backward, c.lost_unknown), (20, None, None, 20));
    assert_eq!(all.loss_side, LossSide::Unknown);
    assert!(all.caveats.contains(Caveat::LossSideUnknown));
}
