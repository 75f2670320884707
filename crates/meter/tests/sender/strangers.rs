//! Replies that are none of ours.

use sonde_meter::Instrument;
use sonde_meter::stamp::Sender;
use sonde_results::caveat::Caveat;
use sonde_wire::{Stamp, StampSource, Time};

use crate::world::*;

#[test]
fn strangers_forgers_and_rubbish_are_counted_and_change_nothing() {
    let mut sender = Sender::new(config(), &[spec(0)], hops()).unwrap();
    let mut buffer = [0u8; 2048];
    let now = Time::from_nanos(START);
    let len = sender.poll_transmit(now, &mut buffer).unwrap().len;
    let good = reflect(&buffer[..len], START + US, START + 2 * US, Some(0));
    let stamp = Stamp { at: Time::from_nanos(START + 3 * US), source: StampSource::Driver };
    let payload = 42;
    let mut case = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = good.clone();
        change(&mut frame);
        finish(&mut frame);
        sender.input(&mut frame, stamp, now);
        sender.counters()
    };
    assert_eq!(case(&|f| f.truncate(30)).malformed, 1);
    assert_eq!(case(&|f| f[29] = 9).other_replies, 1, "another address");
    assert_eq!(case(&|f| f[35] ^= 1).other_replies, 2, "another port");
    let stale = |f: &mut Vec<u8>| (f[29], f[payload + 28]) = (9, 0);
    assert_eq!(case(&stale).strangers, 1, "and nothing that we sent of late");
    assert_eq!(case(&|f| f[payload + 15] = 99).wrong_session, 1);
    assert_eq!(case(&|f| f[payload + 27] = 5).forged, 1, "never sent");
    assert_eq!(case(&|f| f[payload + 30] ^= 1).forged, 2, "echo is wrong");
    let c = case(&|f| {
        // A datagram of 20 octets.
        f[39] = 28;
        f[38] = 0;
    });
    assert_eq!((c.short, c.replies), (1, 0));
    let c = case(&|f| (f[39], f[38], f[29]) = (28, 0, 9));
    assert_eq!((c.short, c.strangers), (1, 2), "a short one of somebody else");
    let mut damaged = good.clone();
    damaged[payload + 20] ^= 0x40;
    sender.input(&mut damaged, stamp, now);
    assert_eq!(sender.counters().checksum, 1, "T2 is not what the reflector wrote");
    damaged[29] = 9;
    sender.input(&mut damaged, stamp, now);
    let c = sender.counters();
    assert_eq!((c.checksum, c.strangers), (1, 3), "a damaged one of somebody else");
    let mut case = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = good.clone();
        change(&mut frame);
        sender.input(&mut frame, stamp, now);
        sender.counters()
    };
    assert_eq!(case(&|_| ()).replies, 1, "the good one still counts");
    assert_eq!(case(&|_| ()).duplicates, 1);
}

#[test]
fn replies_from_elsewhere_are_counted_and_reported() {
    for (what, change) in [("port", 35), ("address", 29)] {
        let (mut sender, _, probe) = first_probe(config());
        let mut reply = reflect(&probe, START + US, START + 2 * US, Some(0));
        reply[change] ^= 1;
        finish(&mut reply);
        answer(&mut sender, reply, START + 3 * US);
        let c = sender.counters();
        assert_eq!((c.other_replies, c.strangers, c.replies), (1, 0, 0), "another {what}");
        let r = record(&mut sender, START + 2 * SECOND);
        assert!(r.caveats.contains(Caveat::OtherReplies), "another {what}");
    }
    let (mut sender, _, probe) = first_probe(config());
    let mut reply = reflect(&probe, START + US, START + 2 * US, Some(0));
    reply[42 + 15] = 99;
    finish(&mut reply);
    answer(&mut sender, reply, START + 3 * US);
    assert!(record(&mut sender, START + 2 * SECOND).caveats.contains(Caveat::OtherReplies));
}
