//! The same through every engine: two directions at once, sizes in turn, IPv6, jumbo frames.

use sonde_lab::skip;
use sonde_results::trial::{LoadStep, Offer};
use sonde_testbed::tester::{LoadEngine, Tester};

use super::bed::{Bed, assert_clean, run};

const ALL: [LoadEngine; 3] = [LoadEngine::Xdp, LoadEngine::AfPacket, LoadEngine::AfXdp];

#[test]
fn a_pattern_of_sizes_arrives_whole_by_every_engine() {
    if skip("a_pattern_of_sizes_arrives_whole_by_every_engine") {
        return;
    }
    let bed = Bed::router("ld-sizes", 1500);
    let sizes = [84, 84, 594, 101, 1518];
    for engine in ALL {
        for ipv6 in [false, true] {
            let mut tester =
                Tester::open(&bed.spec(engine, vec![bed.way(false, ipv6, &sizes)])).unwrap();
            let offer = Offer::steady(5_000.0, 200_000_000);
            let outcome = run(&mut tester, &offer);
            let d = &outcome.directions[0];
            assert!(outcome.counters.is_empty(), "{engine:?}: {:?}", outcome.counters);
            assert_clean(d, 1000);
            assert_eq!(d.sent_bytes, 200 * sizes.iter().map(|&s| u64::from(s)).sum::<u64>());
        }
    }
}

#[test]
fn both_directions_at_once() {
    if skip("both_directions_at_once") {
        return;
    }
    let bed = Bed::router("ld-both", 1500);
    for engine in [LoadEngine::Xdp, LoadEngine::AfPacket] {
        let ways = vec![bed.way(false, false, &[64]), bed.way(true, false, &[64])];
        let mut tester = Tester::open(&bed.spec(engine, ways)).unwrap();
        let offer = Offer::steady(4_000.0, 500_000_000);
        // Twice: nothing of the first trial is in the second.
        for _ in 0..2 {
            let outcome = run(&mut tester, &offer);
            assert_eq!(outcome.down, None);
            let names: Vec<_> = outcome.directions.iter().map(|d| d.name.as_str()).collect();
            assert_eq!(names, ["a>b", "b>a"]);
            for d in &outcome.directions {
                assert_clean(d, offer.frames);
                assert_eq!((d.sent_bytes, d.streams.len()), (64 * offer.frames, 8));
            }
        }
    }
    let ways = vec![bed.way(false, false, &[64]), bed.way(true, false, &[64])];
    let refused = Tester::open(&bed.spec(LoadEngine::AfXdp, ways)).err().unwrap().to_string();
    assert!(refused.contains("one direction"), "{refused}");
}

#[test]
fn jumbo_frames_take_an_engine_that_can_carry_them() {
    if skip("jumbo_frames_take_an_engine_that_can_carry_them") {
        return;
    }
    let bed = Bed::router("ld-jumbo", 9000);
    let ways = || vec![bed.way(false, false, &[9000, 64, 4096])];
    let mut tester = Tester::open(&bed.spec(LoadEngine::AfPacket, ways())).unwrap();
    assert_clean(&run(&mut tester, &Offer::steady(1_000.0, 300_000_000)).directions[0], 300);
    drop(tester);
    let mut tester = Tester::open(&bed.spec(LoadEngine::Xdp, ways())).unwrap();
    let error = tester
        .run(&Offer::steady(1_000.0, 1_000_000), &Default::default(), &mut |_| {})
        .unwrap_err();
    assert!(format!("{error:#}").contains("af_packet"), "{error:#}");
    drop(tester);
    // As long as live frames can be, and sizes far apart in the same memory.
    let ways = vec![bed.way(false, true, &[84, 3204, 1518, 3203])];
    let mut tester = Tester::open(&bed.spec(LoadEngine::Xdp, ways)).unwrap();
    assert_clean(&run(&mut tester, &Offer::steady(10_000.0, 100_000_000)).directions[0], 1_000);
    drop(tester);
    let small = Bed::router("ld-small", 1500);
    let spec = small.spec(LoadEngine::Xdp, vec![small.way(false, false, &[1519])]);
    let error = Tester::open(&spec).err().unwrap().to_string();
    assert!(error.contains("MTU of 1500"), "{error}");
}

#[test]
fn steps_bursts_and_discarded_frames() {
    if skip("steps_bursts_and_discarded_frames") {
        return;
    }
    let bed = Bed::router("ld-steps", 1500);
    for engine in ALL {
        let mut tester =
            Tester::open(&bed.spec(engine, vec![bed.way(false, false, &[64])])).unwrap();
        let step = |after_frames, rate_fps| LoadStep { after_frames, rate_fps };
        let steps = vec![step(500, 500.0), step(600, 2_000.0)];
        let offer = Offer { frames: 800, steps, burst: 4, ..Offer::steady(5_000.0, 1) };
        let d = &run(&mut tester, &offer).directions[0];
        assert_clean(d, 800);
        // 0.1 s for the first 500, 0.2 s for 100, 0.1 s for the rest, the last burst's own 2 ms
        // not included; only the first can have been late by more than it was later.
        let took = d.sent_ns[1] - d.sent_ns[0];
        assert!(took + d.lateness.max >= 398_000_000, "{took}");
        assert_eq!(d.lateness.count, 200);
        let discard = Offer { discard_ns: 50_000_000, ..Offer::steady(2_000.0, 200_000_000) };
        let d = &run(&mut tester, &discard).directions[0];
        assert_clean(d, 300);
    }
}
