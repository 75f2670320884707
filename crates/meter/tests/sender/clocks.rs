//! Clocks that are set, and times that cannot be.

use sonde_meter::Instrument;
use sonde_meter::stamp::Sender;
use sonde_results::Interval;
use sonde_results::caveat::Caveat;
use sonde_wire::stamp::ReflectorPacket;
use sonde_wire::{Scale, Time, parse_udp};

use crate::world::*;

/// The reply's T2 and T3 as they stand, and its Z bit.
fn with_times(probe: &[u8], t2: u64, t3: u64, z: bool) -> Vec<u8> {
    let mut frame = reflect(probe, START, START, Some(0));
    let udp = parse_udp(&frame).unwrap();
    let body = &mut frame[udp.payload.clone()];
    body[16..24].copy_from_slice(&t2.to_be_bytes());
    body[4..12].copy_from_slice(&t3.to_be_bytes());
    body[12..14].copy_from_slice(&(0x8001 | u16::from(z) << 14).to_be_bytes());
    finish(&mut frame);
    frame
}

#[test]
fn a_format_that_contradicts_its_flag_is_recognised() {
    let (t2, t3) = (Time::from_nanos(START + 300 * US), Time::from_nanos(START + 320 * US));
    for (t2, t3, z) in
        [(t2.to_ptp().0, t3.to_ptp().0, false), (t2.to_ntp(TAI).0, t3.to_ntp(TAI).0, true)]
    {
        let (mut sender, _, probe) = first_probe(config());
        answer(&mut sender, with_times(&probe, t2, t3, z), START + 820 * US);
        let r = record(&mut sender, START + 2 * SECOND);
        for (hist, value) in
            [(&r.rtt_net, 800 * US), (&r.forward, 300 * US), (&r.backward, 500 * US)]
        {
            assert_eq!(hist.count, 1);
            assert!((hist.max - value).abs() <= 2, "Z {z}: {hist:?}");
        }
        assert!(r.caveats.contains(Caveat::TimestampFormatWrong));
        assert!(!r.caveats.contains(Caveat::OneWayImplausible));
        assert_eq!(sender.counters().format_wrong, 1);
    }
}

#[test]
fn one_way_delays_of_decades_are_left_out_and_what_is_right_stays() {
    // The reflector's clock stands in 1970; only its differences are right.
    let mut world = World::new(Sender::new(config(), &[spec(0)], hops()).unwrap());
    let offset = START - SECOND;
    let mut buffer = [0u8; 2048];
    while world.now < START + 12 * SECOND {
        world.receive();
        let now = Time::from_nanos(world.now);
        while let Some(sent) = world.sender.poll_transmit(now, &mut buffer) {
            let way = if world.reflector_seq.is_multiple_of(2) { 300 * US } else { 400 * US };
            let t2 = world.now + way - offset;
            let reply = reflect(&buffer[..sent.len], t2, t2 + 20 * US, Some(world.reflector_seq));
            world.reflector_seq += 1;
            world.air.push((world.now + way + 520 * US, reply));
        }
        world.collect();
        world.now += 50 * US;
    }
    let (records, sender, _) = world.finish();
    let mut r = Interval::empty(0);
    records.iter().for_each(|one| r.merge(one));
    assert_eq!((r.rtt.count, r.rtt_net.count, r.forward.count, r.backward.count), (100, 100, 0, 0));
    assert!((r.rtt_net.max - 900 * US).abs() <= 2);
    assert_eq!(r.ipdv_forward.count, 99);
    assert!((r.ipdv_forward.max - 100 * US).abs() <= 2 && r.ipdv_backward.max.abs() <= 2);
    assert!(r.caveats.contains(Caveat::OneWayImplausible));
    assert_eq!(sender.counters().one_way_implausible, 100);
}

#[test]
fn a_peer_whose_clock_is_set_makes_no_variation_of_seconds() {
    let mut world = World::new(Sender::new(config(), &[spec(0)], hops()).unwrap());
    world.run(START + 12 * SECOND, &mut |n| Trip {
        // Ten seconds forward: seen from here the way there is so much longer.
        forward: 300 * US + if n >= 50 { 10 * SECOND } else { 0 },
        backward: 500 * US - if n >= 50 { 10 * SECOND } else { 0 },
        ..PLAIN
    });
    let (records, sender, _) = world.finish();
    let mut r = Interval::empty(0);
    records.iter().for_each(|one| r.merge(one));
    assert_eq!((r.counters.received, r.ipdv_forward.count), (100, 98));
    assert!(r.ipdv_forward.max.abs() <= 2 && r.jitter_backward_ns < 2.0);
    assert!(r.caveats.contains(Caveat::PeerClockStepped));
    assert_eq!(sender.counters().peer_clock_stepped, 1);
}

#[test]
fn no_delay_spans_a_step_of_our_clock() {
    let (mut sender, _, probe) = first_probe(config());
    let scale = |steps, shift| Scale {
        // Set forward: UTC is nearer to the steady time by as much.
        utc_offset: TAI - shift,
        tai_shift: shift,
        steps,
        last_step: shift,
    };
    // Under way meanwhile: it is known by the clock it carries, and measures nothing.
    sender.set_scale(scale(1, 10 * SECOND), Time::from_nanos(START + 100 * US));
    answer(
        &mut sender,
        reflect(&probe, START + 300 * US, START + 320 * US, Some(0)),
        START + 820 * US,
    );
    assert_eq!((sender.counters().replies, sender.counters().clock_stepped), (1, 1));
    // The next one carries the clock as it is, and is measured.
    let mut buffer = [0u8; 2048];
    let sent = sender.poll_transmit(Time::from_nanos(START + 100 * MS), &mut buffer).unwrap();
    let t1 = ReflectorPacket::new_checked(&buffer[42..sent.len]).unwrap().timestamp();
    let true_clock = Time::from_nanos(START + 100 * MS + 10 * SECOND);
    assert_eq!(t1, true_clock.to_ntp(TAI).0);
    let t2 = Time::from_nanos(START + 100 * MS + 300 * US + 10 * SECOND).as_nanos();
    let reply = reflect(&buffer[..sent.len], t2, t2 + 20 * US, Some(1));
    answer(&mut sender, reply, START + 100 * MS + 820 * US);
    let r = record(&mut sender, START + 3 * SECOND);
    assert_eq!((r.counters.received, r.rtt.count, r.forward.count), (2, 1, 1));
    assert!((r.forward.max - 300 * US).abs() <= 2 && (r.backward.max - 500 * US).abs() <= 2);
    assert!(r.caveats.contains(Caveat::ClockStepped));
}

#[test]
fn doubts_stand_in_the_record_of_their_time() {
    let mut config = config();
    config.interval = 2 * SECOND;
    let mut world = World::new(Sender::new(config, &[spec(0)], hops()).unwrap());
    world.sender.doubt(Time::from_nanos(START + 5 * SECOND), Caveat::CpuStolen);
    world.run(START + 12 * SECOND, &mut |_| PLAIN);
    let (records, ..) = world.finish();
    let stolen: Vec<_> = records.iter().map(|r| r.caveats.contains(Caveat::CpuStolen)).collect();
    assert_eq!(stolen, [false, false, true, false, false]);
}
