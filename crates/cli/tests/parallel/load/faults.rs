//! Devices and links that misbehave: a clear result each time, and never a hang.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sonde_lab::{Impairment, Relay, skip};
use sonde_results::trial::Offer;
use sonde_testbed::tester::{LoadEngine, Tester};

use super::bed::{Bed, PORT, TOWARDS_A, TOWARDS_B, run};

const ALL: [LoadEngine; 3] = [LoadEngine::Xdp, LoadEngine::AfPacket, LoadEngine::AfXdp];

#[test]
fn losses_and_overtaking_are_counted_exactly() {
    if skip("losses_and_overtaking_are_counted_exactly") {
        return;
    }
    let bed = Bed::new("ld-relay", 1500);
    for engine in ALL {
        let there = Impairment {
            delay: Duration::from_millis(2),
            loss: 0.03,
            reorder: 0.02,
            // Longer than any pause of this machine, so that others surely overtake.
            reorder_by: Duration::from_millis(60),
            ..Impairment::default()
        };
        let relay =
            Relay::start(&bed.device, [TOWARDS_A, TOWARDS_B], there, Impairment::default(), 5)
                .unwrap();
        let mut way = bed.way(false, false, &[128]);
        way.traffic.flows = 1;
        // A wire: what arrives is addressed as it was sent.
        way.for_mac = None;
        let mut tester = Tester::open(&bed.spec(engine, vec![way])).unwrap();
        let offer = Offer::steady(2_000.0, 1_000_000_000);
        let outcome = run(&mut tester, &offer);
        drop(tester);
        let report = relay.stop().unwrap();
        let (d, there) = (&outcome.directions[0], &report.directions[0]);
        assert_eq!((there.queue_full, there.failed), (0, 0));
        assert!(there.lost > 20 && there.reordered > 20, "{there:?}");
        assert_eq!((d.sent, d.lost), (2_000, there.lost), "{engine:?}");
        assert_eq!(d.received, d.sent - d.lost);
        assert_eq!((d.duplicates, d.corrupted, d.stray), (0, 0, 0));
        // Those that were held back and came, but for the last ones, whom nobody overtook.
        let held = there.reordered;
        assert!(d.reordered <= held && d.reordered + 8 >= held, "{} of {held}", d.reordered);
        assert_eq!(d.losses.iter().map(|r| r.frames).sum::<u64>(), d.lost);
        assert!(d.latency.min >= 2_000_000 && d.latency.max >= 62_000_000, "{engine:?}");
        assert_eq!(d.worst[0].latency_ns, d.latency.max);
    }
}

#[test]
fn a_device_that_drops_everything_is_a_result() {
    if skip("a_device_that_drops_everything_is_a_result") {
        return;
    }
    let bed = Bed::new("ld-drop", 1500);
    for engine in ALL {
        let mut tester =
            Tester::open(&bed.spec(engine, vec![bed.way(false, false, &[64])])).unwrap();
        let d = &run(&mut tester, &Offer::steady(1_000.0, 100_000_000)).directions[0];
        assert_eq!((d.sent, d.received, d.lost, d.losses.len()), (100, 0, 100, 1));
        assert_eq!((d.received_ns, d.latency.count), ([0, 0], 0));
    }
}

#[test]
fn a_port_that_goes_down_ends_the_trial_and_is_named() {
    if skip("a_port_that_goes_down_ends_the_trial_and_is_named") {
        return;
    }
    for engine in ALL {
        let bed = Bed::router("ld-down", 1500);
        let mut tester =
            Tester::open(&bed.spec(engine, vec![bed.way(false, false, &[64])])).unwrap();
        let offer = Offer::steady(1_000.0, 60_000_000_000);
        let mut done = false;
        let outcome = tester.run(&offer, &AtomicBool::new(false), &mut |progress| {
            if progress.sent > 50 && !done {
                done = true;
                bed.b.set_up(PORT, false).unwrap();
            }
        });
        let outcome = outcome.unwrap();
        let down = outcome.down.expect("it was seen");
        assert!(down.contains("port b"), "{down}");
        let d = &outcome.directions[0];
        assert!(d.sent < d.intended && d.sent > 50 && d.received <= d.sent, "{engine:?}");
        assert_eq!(d.lost, d.sent - d.received);
    }
}

#[test]
fn a_stop_ends_the_trial_with_right_counts() {
    if skip("a_stop_ends_the_trial_with_right_counts") {
        return;
    }
    let bed = Bed::router("ld-stop", 1500);
    for engine in ALL {
        let mut tester =
            Tester::open(&bed.spec(engine, vec![bed.way(false, false, &[64])])).unwrap();
        let stop = AtomicBool::new(false);
        let offer = Offer::steady(1_000.0, 600_000_000_000);
        let outcome = tester
            .run(&offer, &stop, &mut |progress| {
                stop.fetch_or(progress.received > 100, Ordering::Relaxed);
            })
            .unwrap();
        let d = &outcome.directions[0];
        assert!(d.sent > 100 && d.sent < d.intended, "{engine:?}: {}", d.sent);
        assert_eq!((d.lost + d.received, d.intended), (d.sent, 600_000));
    }
}

#[test]
fn a_router_that_must_ask_is_answered() {
    if skip("a_router_that_must_ask_is_answered") {
        return;
    }
    let bed = Bed::router("ld-ask", 1500);
    for interface in [TOWARDS_A, TOWARDS_B] {
        for family in ["-4", "-6"] {
            let flush = ["ip", family, "neigh", "flush", "dev", interface, "nud", "permanent"];
            bed.device.run(&flush).unwrap();
        }
    }
    for ipv6 in [false, true] {
        let ways = vec![bed.way(false, ipv6, &[84]), bed.way(true, ipv6, &[84])];
        let mut tester = Tester::open(&bed.spec(LoadEngine::Xdp, ways)).unwrap();
        let learning = run(&mut tester, &Offer::steady(100.0, 200_000_000));
        let received: Vec<u64> = learning.directions.iter().map(|d| d.received).collect();
        assert!(received.iter().all(|&r| r > 0), "{received:?}");
        let outcome = run(&mut tester, &Offer::steady(1_000.0, 200_000_000));
        for d in &outcome.directions {
            assert_eq!((d.sent, d.received, d.stray), (200, 200, 0), "{}", d.name);
        }
    }
}

#[test]
fn frames_that_the_devices_end_refuses_are_the_devices_loss() {
    if skip("frames_that_the_devices_end_refuses_are_the_devices_loss") {
        return;
    }
    let bed = Bed::router("ld-refuse", 1500);
    // Half of the frames are longer than what the device takes; its end of the virtual link
    // refuses them as it does when its ring is full.
    bed.device.run(&["ip", "link", "set", TOWARDS_A, "mtu", "500"]).unwrap();
    for engine in ALL {
        let ways = vec![bed.way(false, false, &[64, 1000])];
        let mut tester = Tester::open(&bed.spec(engine, ways)).unwrap();
        let outcome = run(&mut tester, &Offer::steady(1_000.0, 200_000_000));
        let d = &outcome.directions[0];
        let counts = (d.intended, d.sent, d.received, d.lost, d.sent_bytes);
        assert_eq!(counts, (200, 200, 100, 100, 100 * 1064), "{engine:?}: {d:?}");
        assert_eq!((&outcome.counters[..], d.losses.len()), (&[][..], 100), "{engine:?}");
    }
}

#[test]
fn frames_that_the_kernel_refused_are_not_the_devices_loss() {
    if skip("frames_that_the_kernel_refused_are_not_the_devices_loss") {
        return;
    }
    let bed = Bed::router("ld-gro", 1500);
    bed.device.set_feature(TOWARDS_A, "gro", false).unwrap();
    let ways = vec![bed.way(false, false, &[64])];
    let mut tester = Tester::open(&bed.spec(LoadEngine::Xdp, ways)).unwrap();
    let offer = Offer::steady(1_000.0, 100_000_000);
    let error = tester.run(&offer, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("GRO"), "{error:#}");
    bed.device.set_feature(TOWARDS_A, "gro", true).unwrap();
    assert_eq!(run(&mut tester, &offer).directions[0].received, 100);
}
