//! Pings, DNS and QUIC as lossy paths, mirror ports and the loopback show them: both matchers
//! over the same packets, with the right values.

use crate::common::privileged;
use crate::common::rtt::both::Both;
use crate::common::rtt::{A, B, MS, Segment, T0, echo, udp};
use sonde_bpf::{RttSide, RttTestPacket};
use sonde_results::rtt::RttKind;

/// What both find in frames at their times, ms: kind and us of each sample.
fn found(both: &mut Both, frames: &[(f64, Vec<u8>)]) -> Vec<(RttKind, u64)> {
    let before = both.samples.len();
    for (ms, frame) in frames {
        let now = T0 + (ms * MS as f64) as i64;
        let packet = RttTestPacket { frame, ..RttTestPacket::default() };
        both.packet_counted(RttSide::Ingress, &packet, now);
    }
    both.samples[before..].iter().map(|s| (s.kind, (s.rtt_ns + 500) / 1_000)).collect()
}

/// A query or its response, for the name `label`; without a question if that is empty.
fn dns(response: bool, id: u16, label: &str) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend([if response { 0x81 } else { 1 }, 0, 0, u8::from(!label.is_empty())]);
    message.extend([0; 6]);
    if !label.is_empty() {
        message.push(label.len() as u8);
        message.extend(label.as_bytes());
        message.extend([0, 0, 1, 0, 1]);
    }
    udp(response, 4000, 53, &message)
}

#[test]
fn unanswered_pings_block_nothing_and_are_counted() {
    if !privileged("unanswered_pings_block_nothing_and_are_counted") {
        return;
    }
    for lost in [50, 10, 7] {
        let mut both = Both::load(|_, _| ());
        let mut frames = Vec::new();
        for i in 0..600u16 {
            let ms = f64::from(i) * 1_000.0;
            frames.push((ms, echo(false, i)));
            if i % lost != 3 {
                frames.push((ms + 20.0, echo(true, i)));
            }
        }
        let unanswered = (0..600).filter(|i| i % lost == 3).count();
        let samples = found(&mut both, &frames);
        assert_eq!(samples, vec![(RttKind::IcmpEcho, 20_000); 600 - unanswered]);
        assert_eq!((both.count("requests"), both.count("stale")), (600, 0));
        assert_eq!(both.count("answered"), samples.len() as u64);
        // Flows are compared here, with what they say of their requests.
        both.finish();
    }
}

#[test]
fn many_requests_in_flight() {
    if !privileged("many_requests_in_flight") {
        return;
    }
    let mut both = Both::load(|_, _| ());
    let pings = (0..200u16).map(|i| (f64::from(i) * 10.0, i));
    let mut frames: Vec<_> =
        pings.flat_map(|(ms, i)| [(ms, echo(false, i)), (ms + 500.0, echo(true, i))]).collect();
    frames.sort_by(|a, b| a.0.total_cmp(&b.0));
    // A table for 1,024 flows has 512 entries: not one of 50 in flight goes without.
    assert_eq!(found(&mut both, &frames), vec![(RttKind::IcmpEcho, 500_000); 200]);
    let mut frames: Vec<_> = (0..8).map(|i| (3_000.0, dns(false, i, "www"))).collect();
    frames.extend((0..8).rev().map(|i| (3_020.0, dns(true, i, "www"))));
    assert_eq!(found(&mut both, &frames), vec![(RttKind::Dns, 20_000); 8]);
    assert_eq!(both.count("slots_full"), 0);
    both.finish();
}

#[test]
fn the_table_is_full_and_late_answers_come() {
    if !privileged("the_table_is_full_and_late_answers_come") {
        return;
    }
    let mut both = Both::load(|_, _| ());
    let asked: Vec<_> =
        (0..2_000).map(|i| (0.01 * f64::from(i), dns(false, i as u16, "x"))).collect();
    found(&mut both, &asked);
    assert!(both.count("slots_full") > 1_000, "512 entries");
    assert_eq!(both.count("requests") + both.count("slots_full"), 2_000);
    // 9 s later all are given up, and answered after all.
    let late: Vec<_> = (0..2_000).map(|i| (9_000.0, dns(true, i as u16, "x"))).collect();
    let samples = found(&mut both, &late);
    assert_eq!(samples.len() as u64, both.count("requests"));
    assert_eq!(both.count("answered"), both.count("requests"));
    both.finish();
}

#[test]
fn questions_copies_and_repetitions() {
    if !privileged("questions_copies_and_repetitions") {
        return;
    }
    let mut both = Both::load(|_, _| ());
    let samples = found(
        &mut both,
        &[
            (0.0, dns(false, 9, "example")),
            (20.0, dns(true, 9, "")), // an error that does not repeat the question
            (30.0, dns(false, 8, "one")),
            (30.5, dns(false, 8, "two")),
            (40.0, dns(true, 8, "")), // whose?
            (41.5, dns(true, 8, "TWO")),
            (50.0, dns(false, 7, "")), // for a cookie
            (51.0, dns(true, 7, "")),
            (60.0, echo(false, 1)),
            (60.005, echo(false, 1)), // a mirror port's copy
            (80.0, echo(true, 1)),
            (80.005, echo(true, 1)),
            (90.0, echo(false, 2)),
            (1_090.0, echo(false, 2)), // sent again
            (1_110.0, echo(true, 2)),
            (2_000.0, echo(false, 3)),
            (8_000.0, echo(false, 3)), // the first one is given up
            (8_020.0, echo(true, 3)),
        ],
    );
    let us = |kind, us| (kind, us);
    assert_eq!(
        samples,
        [
            us(RttKind::Dns, 20_000),
            us(RttKind::Dns, 11_000),
            us(RttKind::Dns, 1_000),
            us(RttKind::IcmpEcho, 20_000),
            us(RttKind::IcmpEcho, 20_000),
        ]
    );
    assert_eq!((both.count("requests"), both.count("answered")), (8, 6));
    both.finish();
}

#[test]
fn a_host_that_pings_itself() {
    if !privileged("a_host_that_pings_itself") {
        return;
    }
    let own = |mut frame: Vec<u8>| {
        let source: [u8; 4] = frame[26..30].try_into().unwrap();
        frame[30..34].copy_from_slice(&source);
        frame
    };
    for hidden in [false, true] {
        let mut both = Both::load(|a, b| (a.hide_addresses, b.hide_addresses) = (hidden, hidden));
        let frames: Vec<_> = (0..10)
            .flat_map(|i| {
                let ms = f64::from(i) * 1_000.0;
                let ping = [false, true].map(|reply| {
                    let mut frame = echo(false, i as u16);
                    frame[34] = if reply { 0 } else { 8 };
                    own(frame)
                });
                let [request, reply] = ping;
                [(ms, request), (ms + 0.03, reply)]
            })
            .collect();
        let samples = found(&mut both, &frames);
        assert_eq!(samples, vec![(RttKind::IcmpEcho, 30); 10], "hidden: {hidden}");
        both.finish();
    }
}

#[test]
fn quic_with_greased_bits_and_early_data() {
    if !privileged("quic_with_greased_bits_and_early_data") {
        return;
    }
    let long = |back, port, first, version: u8| {
        udp(back, port, 443, &[first, 0, 0, 0, version, 8, 1, 1, 1, 1, 1, 1, 1, 1, 0])
    };
    for fixed in [0, 0x40] {
        let [initial, early, handshake] = [0x80, 0x90, 0xA0].map(|first| first | fixed);
        let mut both = Both::load(|_, _| ());
        let frames = [
            (0.0, long(false, 4000, initial, 1)),
            (30.0, long(true, 4000, initial, 1)),
            (34.0, long(false, 4000, handshake, 1)),
            // 0-RTT data overtakes the Initial.
            (100.0, long(false, 4001, early, 1)),
            (200.0, long(false, 4001, initial, 1)),
            (230.0, long(true, 4001, initial, 1)),
            (234.0, long(false, 4001, handshake, 1)),
            // Another version is asked for; the first octet of that may be anything.
            (300.0, long(false, 4002, initial, 1)),
            (320.0, long(true, 4002, 0x80, 0)),
            (400.0, long(false, 4002, initial, 1)),
            (430.0, long(true, 4002, initial, 1)),
            (434.0, long(false, 4002, handshake, 1)),
        ];
        let want = [30_000, 4_000].map(|us| (RttKind::QuicHandshake, us)).repeat(3);
        assert_eq!(found(&mut both, &frames), want, "{fixed:x}");
        // Spinning, whatever the fixed bit is.
        let mut frames = Vec::new();
        for i in 0..40u8 {
            for (back, ms) in [(false, 0.0), (true, 5.0)] {
                let first = fixed | (i & 1) << 5 | 3;
                frames
                    .push((1_000.0 + f64::from(i) * 20.0 + ms, udp(back, 4000, 443, &[first, 1])));
            }
        }
        let spins = found(&mut both, &frames);
        assert!(spins.len() > 40 && spins.iter().all(|s| s.0 == RttKind::QuicSpin), "{spins:?}");
        both.finish();
    }
}

/// The frame's length counts where IP states none, as segmentation offload leaves it.
#[test]
fn an_ip_length_of_0() {
    if !privileged("an_ip_length_of_0") {
        return;
    }
    let mut both = Both::load(|_, _| ());
    let mut frames = Vec::new();
    for round in 0..10u32 {
        let seq = 1 + round * 1_400;
        let mut data = Segment { seq, len: 1_400, ..A }.frame();
        data[16..18].fill(0);
        let ms = f64::from(round) * 100.0;
        frames.push((ms, data));
        frames.push((ms + 20.0, Segment { ack: seq + 1_400, ..B }.frame()));
    }
    assert_eq!(found(&mut both, &frames), vec![(RttKind::TcpSequence, 20_000); 10]);
    assert_eq!(both.count("malformed"), 0);
    both.finish();
}

#[test]
fn each_direction_with_its_own_vlan() {
    if !privileged("each_direction_with_its_own_vlan") {
        return;
    }
    for (vlan_in_key, samples) in [(true, 0), (false, 10)] {
        let mut both =
            Both::load(|a, b| (a.vlan_in_key, b.vlan_in_key) = (vlan_in_key, vlan_in_key));
        let tagged = |vlan, mut frame: Vec<u8>| {
            frame.splice(12..12, [0x81, 0, 0, vlan]);
            frame
        };
        let frames: Vec<_> = (0..10)
            .flat_map(|i| {
                let ms = f64::from(i) * 100.0;
                let answer = tagged(20, echo(true, i as u16));
                [(ms, tagged(10, echo(false, i as u16))), (ms + 20.0, answer)]
            })
            .collect();
        assert_eq!(found(&mut both, &frames).len(), samples);
        both.finish();
    }
}
