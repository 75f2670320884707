//! What is sent when, and what is not.

use sonde_meter::Instrument;
use sonde_meter::stamp::{Sender, SenderConfig, StreamSpec};
use sonde_results::Interval;
use sonde_results::caveat::Caveat;
use sonde_wire::{NotSent, Stamp, StampSource, Time, TxDone, TxRefused};

use crate::world::*;

#[test]
fn a_stalled_sender_neither_bursts_nor_forgets() {
    let streams: Vec<_> =
        (0..100).map(|i| StreamSpec { phase: i64::from(i) * MS, count: None, ..spec(i) }).collect();
    let mut sender = Sender::new(config(), &streams, hops()).unwrap();
    let mut buffer = [0u8; 2048];
    let mut sends = Vec::new();
    let mut now = START;
    // 1,000 sends a second; the machine stands still for 50 ms, then for 250 ms.
    while now < START + 2 * SECOND {
        while sender.poll_transmit(Time::from_nanos(now), &mut buffer).is_some() {
            sends.push(now);
        }
        now += 100 * US;
        if now == START + 500 * MS {
            now += 50 * MS;
        }
        if now == START + SECOND {
            now += 250 * MS;
        }
    }
    let shortest = sends.windows(2).map(|w| w[1] - w[0]).min().unwrap();
    // Half the planned spacing, less the step of this clock.
    assert!(shortest >= 400 * US, "the backlog left {shortest} ns apart");
    sender.finish(Time::from_nanos(now + SECOND));
    let mut all = Interval::empty(0);
    let mut r = Interval::empty(0);
    while sender.poll_record(&mut r) {
        all.merge(&r);
    }
    let c = all.counters;
    assert_eq!(c.sent + sender.counters().unresolved, sends.len() as u64);
    // Every planned probe was sent or is accounted for: 20 a stream.
    let planned = 100 * 20;
    let missing = planned - sends.len() as u64 - c.skipped;
    assert!(missing <= 130, "{missing} are still waiting at the end, no more");
    assert!(c.skipped >= 100 && c.sent_late > 0, "{c:?}");
    assert!(all.caveats.contains(Caveat::SenderLate) && all.caveats.contains(Caveat::SendsSkipped));
}

#[test]
fn without_a_next_hop_nothing_leaves_and_it_is_said() {
    let mut world =
        World::new(Sender::new(config(), &[spec(0)], vec![Err(NotSent::NoNeighbour)]).unwrap());
    world.run(START + SECOND, &mut |_| PLAIN);
    assert!(world.sent_at.is_empty());
    world.sender.set_way(0, hops()[0]);
    world.run(START + 12 * SECOND, &mut |_| PLAIN);
    let (records, ..) = world.finish();
    let mut all = Interval::empty(0);
    records.iter().for_each(|r| all.merge(r));
    assert_eq!((all.counters.skipped, all.counters.received), (10, 90), "a hundred attempts");
    assert!(!all.caveats.contains(Caveat::SendsSkipped), "the rate is not to blame");
    assert!(all.caveats.contains(Caveat::NextHopUnresolved));
}

#[test]
fn bad_plans_are_refused_with_a_reason() {
    let refused = |change: &dyn Fn(&mut StreamSpec)| {
        let mut s = spec(0);
        change(&mut s);
        Sender::new(config(), &[s], hops()).err().unwrap().to_string()
    };
    assert!(refused(&|s| s.dscp = 64).contains("0..=63"));
    assert!(refused(&|s| s.ip_length = 71).contains("72"));
    assert!(refused(&|s| s.ttl = 0).contains("TTL"));
    assert!(refused(&|s| s.period = 0).contains("zero"));
    assert!(refused(&|s| s.next_hop = 1).contains("next hop"));
    assert!(refused(&|s| s.destination = "[::1]:862".parse().unwrap()).contains("IP version"));
    let twice = Sender::new(config(), &[spec(0), spec(0)], hops()).err().unwrap().to_string();
    assert!(twice.contains("stream 1") && twice.contains("source port"));
}

#[test]
fn what_the_kernel_refused_is_not_sent_and_not_lost() {
    for (why, caveat) in [
        (NotSent::LinkDown, Caveat::SendsFailed),
        (NotSent::NoRoute, Caveat::SendsFailed),
        (NotSent::Refused, Caveat::SendsFailed),
        (NotSent::TooLong, Caveat::SendsFailed),
        (NotSent::NoNeighbour, Caveat::NextHopUnresolved),
    ] {
        let mut world = World::new(Sender::new(config(), &[spec(0)], hops()).unwrap());
        let mut buffer = [0u8; 2048];
        // Twenty of a hundred are refused; the next one is lost on its way.
        while world.now < START + 12 * SECOND {
            world.receive();
            let refused = (START + 2 * SECOND..START + 4 * SECOND).contains(&world.now);
            let now = Time::from_nanos(world.now);
            if refused {
                while let Some(sent) = world.sender.poll_transmit(now, &mut buffer) {
                    world.sent_at.push(world.now);
                    world.sender.refused(TxRefused { cookie: sent.cookie, why });
                }
            } else {
                world.send(&mut |n| Trip { lost_forward: n == 40, ..PLAIN });
            }
            world.sender.handle_timeout(now);
            world.collect();
            world.now += 50 * US;
        }
        let (records, sender, _) = world.finish();
        let mut all = Interval::empty(0);
        records.iter().for_each(|r| all.merge(r));
        let c = all.counters;
        assert_eq!((c.sent, c.received, c.lost, c.skipped), (80, 79, 1, 20), "{why:?}");
        assert_eq!((c.not_sent.of(why), c.not_sent.total()), (20, 20));
        assert_eq!((c.lost_forward, c.lost_backward), (Some(1), Some(0)));
        assert!(all.caveats.contains(caveat) && !all.caveats.contains(Caveat::SendsSkipped));
        assert_eq!((sender.counters().sent, sender.counters().withdrawn), (80, 20));
    }
}

#[test]
fn a_probe_that_vanished_in_a_dead_link_was_not_sent() {
    // Sockets: the kernel took it, the link was down, no transmit stamp came.
    let with = |stamped: bool, link: bool| {
        let config = SenderConfig { tx_stamps: true, kernel_resolves: true, ..config() };
        let (mut sender, cookie, _) = first_probe(config);
        if stamped {
            let stamp = Stamp { at: Time::from_nanos(START + 1), source: StampSource::Kernel };
            sender.transmitted(TxDone { cookie, stamp });
        }
        if !link {
            sender.set_way(0, Err(NotSent::LinkDown));
        }
        let mut buffer = [0u8; 2048];
        let next = Time::from_nanos(START + 100 * MS);
        assert!(sender.poll_transmit(next, &mut buffer).is_some(), "the kernel decides");
        record(&mut sender, START + 3 * SECOND).counters
    };
    let c = with(false, false);
    assert_eq!((c.sent, c.lost, c.not_sent.of(NotSent::LinkDown)), (0, 0, 2));
    let c = with(true, false);
    assert_eq!((c.sent, c.lost, c.not_sent.of(NotSent::LinkDown)), (1, 1, 1), "it had left");
    let c = with(false, true);
    assert_eq!((c.sent, c.lost, c.skipped), (2, 2, 0), "nothing speaks for it");
}
