//! Delays and their variation.

use sonde_meter::Instrument;
use sonde_meter::stamp::Sender;
use sonde_results::caveat::Caveat;
use sonde_results::record::pdv;
use sonde_results::{Counters, Interval};
use sonde_wire::{Stamp, StampSource, Time, TxDone};

use crate::world::*;

#[test]
fn a_plain_path_gives_its_own_delays() {
    let (r, sender) = one(&mut |_| PLAIN);
    assert_eq!(r.counters, Counters { sent: 100, received: 100, ..Counters::default() });
    for (hist, value) in [
        (&r.rtt, 820 * US),
        (&r.rtt_net, 800 * US),
        (&r.forward, 300 * US),
        (&r.backward, 500 * US),
    ] {
        // The wire format resolves 0.23 ns, so each stamp may be off by one.
        assert_eq!(hist.count, 100);
        assert!((hist.min - value).abs() <= 2 && (hist.max - value).abs() <= 2, "{hist:?}");
    }
    assert_eq!((r.ipdv_forward.count, r.ipdv_backward.count), (99, 99));
    assert!(r.ipdv_forward.max.abs() <= 2 && r.jitter_forward_ns < 2.0);
    assert!(pdv(&r.forward, 0.999).unwrap() <= 2);
    assert_eq!(r.t4_source, Some(StampSource::Driver));
    assert_eq!(r.t1_source, Some(StampSource::User));
    assert!(r.caveats.contains(Caveat::SoftwareStamps));
    assert!(!r.caveats.contains(Caveat::PeerClockUnsynchronised));
    assert_eq!(sender.counters().replies, 100);
    assert!(sender.is_done());
}

#[test]
fn delay_variation_is_between_neighbours_in_sending_order() {
    let (r, _) =
        one(&mut |n| Trip { forward: if n % 2 == 0 { 300 * US } else { 400 * US }, ..PLAIN });
    assert_eq!(r.ipdv_forward.count, 99);
    assert!((r.ipdv_forward.max - 100 * US).abs() <= 2);
    assert!((r.ipdv_forward.min + 100 * US).abs() <= 2);
    assert!((r.jitter_forward_ns / 1000.0 - 100.0).abs() < 1.0, "{}", r.jitter_forward_ns);
    assert!(r.ipdv_backward.max.abs() <= 2);
    assert!((pdv(&r.forward, 1.0).unwrap() - 100 * US).abs() < 2 * US);
}

#[test]
fn the_true_departure_counts_not_the_time_in_the_packet() {
    for reply_first in [false, true] {
        let mut c = config();
        c.tx_stamps = true;
        let mut sender = Sender::new(c, &[spec(0)], hops()).unwrap();
        let mut buffer = [0u8; 2048];
        let now = Time::from_nanos(START);
        let sent = sender.poll_transmit(now, &mut buffer).unwrap();
        assert_ne!(sent.cookie, 0);
        let left = START + 70 * US;
        let done = TxDone {
            cookie: sent.cookie,
            stamp: Stamp { at: Time::from_nanos(left), source: StampSource::Driver },
        };
        let mut reply = reflect(&buffer[..sent.len], left + 5 * US, left + 6 * US, Some(0));
        let t4 = Stamp { at: Time::from_nanos(left + 10 * US), source: StampSource::Driver };
        if reply_first {
            sender.input(&mut reply, t4, now);
            sender.transmitted(done);
        } else {
            sender.transmitted(done);
            sender.input(&mut reply, t4, now);
        }
        sender.finish(Time::from_nanos(START + SECOND));
        let mut r = Interval::empty(0);
        assert!(sender.poll_record(&mut r));
        assert_eq!(r.rtt.max, 10 * US);
        assert!((r.forward.max - 5 * US).abs() <= 1);
        assert_eq!(r.t1_source, Some(StampSource::Driver));
        assert_eq!(sender.counters().unstamped, 0);
    }
}

#[test]
fn impossible_reflector_times_spoil_only_what_depends_on_them() {
    let mut sender = Sender::new(config(), &[spec(0)], hops()).unwrap();
    let mut buffer = [0u8; 2048];
    let now = Time::from_nanos(START);
    let len = sender.poll_transmit(now, &mut buffer).unwrap().len;
    let mut reply = reflect(&buffer[..len], START + US, START + SECOND, Some(0));
    let stamp = Stamp { at: Time::from_nanos(START + 900 * US), source: StampSource::Driver };
    sender.input(&mut reply, stamp, now);
    sender.finish(Time::from_nanos(START + 2 * SECOND));
    let mut r = Interval::empty(0);
    assert!(sender.poll_record(&mut r));
    assert_eq!((r.rtt.count, r.rtt_net.count, r.forward.count), (1, 0, 0));
    assert!(r.caveats.contains(Caveat::ReflectorTimesWrong));
}

#[test]
fn a_slow_reflector_is_reported() {
    let dominates = |dwell| {
        let (r, _) = one(&mut |_| Trip { dwell, ..PLAIN });
        r.caveats.contains(Caveat::DwellDominates)
    };
    assert!(!dominates(700 * US));
    assert!(dominates(900 * US));
}
