//! The model against its own account, and against arithmetic.

use super::*;
use proptest::prelude::*;

const MS: i64 = 1_000_000;

fn send(port: &mut MemPort, frame: &[u8], cookie: u64) {
    let mut burst = port.tx();
    burst.slot().expect("a free slot")[..frame.len()].copy_from_slice(frame);
    burst.commit(frame.len(), cookie);
    port.flush().unwrap();
}

fn receive(port: &mut MemPort) -> Vec<(Vec<u8>, i64)> {
    let mut burst = port.rx().unwrap();
    (0..burst.len())
        .map(|i| {
            let (frame, stamp) = burst.frame(i);
            (frame.to_vec(), stamp.at.as_nanos())
        })
        .collect()
}

/// Sends `count` frames, one every `gap` ns, and returns what arrived and when.
fn run(seed: u64, model: PathModel, count: u32, gap: i64) -> (Vec<(Vec<u8>, i64)>, PathStats) {
    let (mut a, mut b, clock) = MemLink::new(seed, model, PathModel::default());
    let mut got = Vec::new();
    for i in 0..count {
        clock.advance_to(Time::from_nanos(i64::from(i) * gap));
        send(&mut a, &[&i.to_be_bytes()[..], &[0; 96]].concat(), 0);
        got.extend(receive(&mut b));
    }
    while let Some(next) = clock.next_event() {
        clock.advance_to(next);
        got.extend(receive(&mut b));
    }
    (got, clock.stats().forward)
}

#[test]
fn a_frame_arrives_after_the_delay_and_its_completion_comes_first() {
    let model = PathModel { delay_ns: 5 * MS, ..PathModel::default() };
    let (mut a, mut b, clock) = MemLink::new(1, model.clone(), model);
    clock.advance_to(Time::from_nanos(MS));
    send(&mut a, b"ping", 7);
    assert_eq!(clock.next_event(), Some(clock.now()), "the completion");
    assert_eq!(a.rx().unwrap().done()[0].cookie, 7);
    assert_eq!(clock.next_event(), Some(Time::from_nanos(6 * MS)));
    assert_eq!(receive(&mut b), []);
    clock.advance_to(Time::from_nanos(6 * MS));
    let mut burst = b.rx().unwrap();
    let (frame, stamp) = burst.frame(0);
    frame.copy_from_slice(b"pong");
    assert_eq!((stamp.at.as_nanos(), stamp.source), (6 * MS, StampSource::Driver));
    burst.set_verdict(0, Verdict::Transmit { cookie: 9 });
    b.flush().unwrap();
    let done = b.rx().unwrap().done()[0];
    assert_eq!((done.cookie, done.stamp.at.as_nanos()), (9, 6 * MS));
    clock.advance_to(Time::from_nanos(11 * MS));
    assert_eq!(receive(&mut a), [(b"pong".to_vec(), 11 * MS)]);
    assert_eq!((a.stats().tx_frames, b.stats().tx_frames), (1, 1));
    assert_eq!(clock.next_event(), None);
}

#[test]
fn a_verdict_is_acted_upon_by_the_next_rx_too() {
    let (mut a, mut b, _clock) = MemLink::new(1, PathModel::default(), PathModel::default());
    send(&mut a, b"x", 0);
    b.rx().unwrap().set_verdict(0, Verdict::Transmit { cookie: 0 });
    assert!(b.rx().unwrap().is_empty());
    assert_eq!(receive(&mut a).len(), 1);
}

#[test]
fn a_full_transmit_ring_is_counted() {
    let (mut a, _b, _clock) = MemLink::new(1, PathModel::default(), PathModel::default());
    let mut burst = a.tx();
    while burst.slot().is_some() {
        burst.commit(60, 0);
    }
    assert!(a.tx().slot().is_none());
    assert_eq!(a.stats().tx_full, 1);
    a.flush().unwrap();
    assert!(a.tx().slot().is_some());
    assert_eq!(a.stats().tx_frames, BURST as u64);
}

#[test]
fn the_bottleneck_spaces_frames_and_drops_at_its_tail() {
    // 100 bytes at 8 Mbit/s take 100 us; ten fit.
    let bottleneck = Some(Bottleneck { rate_bps: 8_000_000, queue_bytes: 1000 });
    let (got, stats) = run(1, PathModel { bottleneck, ..PathModel::default() }, 12, 0);
    let times: Vec<_> = got.iter().map(|g| g.1).collect();
    assert_eq!(times, (1..=10).map(|i| i * 100_000).collect::<Vec<_>>());
    assert_eq!((stats.queue_drops, stats.delivered), (2, 10));
}

#[test]
fn a_fast_bottleneck_keeps_its_rate() {
    let bottleneck = Some(Bottleneck { rate_bps: 100_000_000_000, queue_bytes: 1 << 30 });
    let (got, _) = run(1, PathModel { bottleneck, ..PathModel::default() }, 10_000, 0);
    assert_eq!(got.last().unwrap().1, 10_000 * 8, "100 bytes in 8 ns each");
}

#[test]
fn while_down_everything_is_lost() {
    let down = vec![(Time::from_nanos(30), Time::from_nanos(60))];
    let (got, stats) = run(1, PathModel { down, ..PathModel::default() }, 10, 10);
    assert_eq!(got.iter().map(|g| g.1).collect::<Vec<_>>(), [0, 10, 20, 60, 70, 80, 90]);
    assert_eq!(stats.down_drops, 3);
}

#[test]
fn chances_come_out_as_asked() {
    let n = 20_000;
    let near = |count: u64, p: f64| (count as f64 / f64::from(n) - p).abs() < 0.01;
    let model = PathModel { loss: 0.1, duplicate: 0.05, corrupt: 0.2, ..PathModel::default() };
    let (got, stats) = run(42, model, n, 10);
    assert!(near(stats.lost, 0.1) && near(stats.duplicated, 0.9 * 0.05));
    assert!(near(stats.corrupted, 0.9 * 0.2));
    // A flipped bit is found again, in the right number of frames.
    let bad = got.iter().filter(|g| g.0[4..].iter().any(|&b| b != 0)).count() as u64;
    let of_96 = (stats.corrupted + stats.duplicated / 5) as f64 * 0.96;
    assert!((bad as f64 / of_96 - 1.0).abs() < 0.05, "{bad} {of_96}");
}

#[test]
fn jitter_has_its_distribution_and_keeps_order() {
    let wide = 10 * MS; // Frames so far apart that order needs no keeping.
    for (jitter, mean, most) in
        [(Jitter::Uniform(MS), 500_000.0, MS), (Jitter::Exponential(MS), 1e6, wide * 2)]
    {
        let (got, _) = run(3, PathModel { jitter, ..PathModel::default() }, 5000, 2 * wide);
        let delays = got.iter().enumerate().map(|(i, g)| g.1 - 2 * wide * i as i64);
        assert!(delays.clone().all(|d| (0..=most).contains(&d)));
        let m = delays.sum::<i64>() as f64 / 5000.0;
        assert!((m / mean - 1.0).abs() < 0.05, "{m}");
        let (_, dense) = run(3, PathModel { jitter, ..PathModel::default() }, 5000, 100);
        assert_eq!(dense.reordered, 0);
    }
}

#[test]
fn held_back_frames_are_overtaken_and_counted_once() {
    let model = PathModel { reorder: 0.1, reorder_extra_ns: 25, ..PathModel::default() };
    let (got, stats) = run(5, model, 2000, 10);
    let mut newest = 0;
    let mut behind = 0;
    for (frame, _) in &got {
        let sequence = u32::from_be_bytes(frame[..4].try_into().unwrap());
        behind += u64::from(sequence < newest);
        newest = newest.max(sequence);
    }
    assert_eq!(stats.reordered, behind);
    assert!((150..250).contains(&behind), "{behind}");
}

proptest! {
    #[test]
    fn nothing_is_unaccounted_for_and_the_seed_decides(
        seed in any::<u64>(), loss in 0.0..0.5f64, duplicate in 0.0..0.5f64,
        reorder in 0.0..0.5f64, queue_bytes in 100u64..2000, count in 1u32..200,
    ) {
        let model = PathModel {
            delay_ns: 1000, jitter: Jitter::Exponential(500), loss, duplicate, reorder,
            reorder_extra_ns: 700, corrupt: 0.1,
            bottleneck: Some(Bottleneck { rate_bps: 1_000_000_000, queue_bytes }),
            down: vec![(Time::from_nanos(2000), Time::from_nanos(3000))],
        };
        let (got, s) = run(seed, model.clone(), count, 100);
        prop_assert_eq!(s.in_flight, 0);
        prop_assert_eq!(s.delivered, got.len() as u64);
        prop_assert_eq!(s.sent, u64::from(count));
        prop_assert_eq!(s.sent + s.duplicated,
                        s.delivered + s.lost + s.queue_drops + s.down_drops);
        prop_assert!(got.is_sorted_by_key(|g| g.1));
        let again = run(seed, model, count, 100);
        prop_assert_eq!(&again.0, &got);
        prop_assert_eq!(again.1, s);
    }
}
