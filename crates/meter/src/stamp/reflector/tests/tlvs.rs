//! RFC 8972, section 4, clause by clause.

use super::*;
use sonde_wire::stamp::BASE_LEN;

/// A TLV with the flags given.
fn tlv(flags: u8, kind: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![flags, kind];
    bytes.extend((value.len() as u16).to_be_bytes());
    bytes.extend_from_slice(value);
    bytes
}

/// What comes back for these TLVs, sent first in a new session at DSCP 46, ECN 1.
fn answer(reflector: &mut Reflector, area: &[u8]) -> Vec<u8> {
    reply(reflector, &request(1, 7, area))[BASE_LEN..].to_vec()
}

/// DSCP of the reply to these TLVs.
fn reply_dscp(reflector: &mut Reflector, area: &[u8]) -> u8 {
    let mut bytes = frame(SENDER, US, &[], &request(1, 7, area));
    assert!(matches!(put(reflector, &mut bytes), Verdict::Transmit { .. }));
    parse_udp(&bytes).unwrap().dscp
}

#[test]
fn s4_unknown_types_get_u_are_skipped_and_copied() {
    for kind in [0, 6, 8, 9, 10, 11, 12, 13, 200, 240, 251, 255] {
        let mut reflector = stateful();
        let area = [tlv(0x80, kind, &[1, 2, 3, 4]), tlv(0x80, 1, &[5; 3])].concat();
        let want = [tlv(0x80, kind, &[1, 2, 3, 4]), tlv(0, 1, &[5; 3])].concat();
        assert_eq!(answer(&mut reflector, &area), want);
        let counters = reflector.counters();
        assert_eq!(
            (counters.reflected_tlv, counters.tlv_unknown, counters.tlv_malformed),
            (1, 1, 0)
        );
    }
}

#[test]
fn s4_flags_are_ours_whatever_came() {
    // The first header is what a sender writes; the others have every flag wrong.
    let area = [tlv(0x80, 1, &[]), tlv(0x7f, 1, &[9]), tlv(0xff, 99, &[9])].concat();
    let want = [tlv(0, 1, &[]), tlv(0, 1, &[9]), tlv(0x80, 99, &[9])].concat();
    assert_eq!(answer(&mut stateful(), &area), want);
}

#[test]
fn s4_a_sender_that_forgets_the_u_flag_is_understood() {
    let asked = tlv(0, 4, &[10 << 2, 0, 0, 0]);
    assert_eq!(reply_dscp(&mut stateful(), &asked), 10);
    // But zeros, a length that is not valid, or an unknown type are padding.
    for area in [tlv(0, 4, &[1; 5]), tlv(0, 77, &[1; 4]), vec![0, 1, 0, 9, 1], vec![0; 4]] {
        assert_eq!(answer(&mut stateful(), &area), area);
    }
}

#[test]
fn s4_a_malformed_tlv_gets_m_and_ends_the_work() {
    // Wrong length for the type; then one that must stay untouched.
    for (kind, length) in [(2, 3), (3, 5), (4, 3), (5, 11), (5, 13)] {
        let mut reflector = stateful();
        let value = vec![7; length];
        let area = [tlv(0x80, 1, &[1]), tlv(0x80, kind, &value), tlv(0x80, 4, &[9; 4])].concat();
        let want = [tlv(0, 1, &[1]), tlv(0x40, kind, &value), tlv(0x80, 4, &[9; 4])].concat();
        assert_eq!(answer(&mut reflector, &area), want, "type {kind}");
        let counters = reflector.counters();
        assert_eq!((counters.tlv_unknown, counters.tlv_malformed), (0, 1));
    }
}

#[test]
fn s4_a_tlv_longer_than_the_packet_gets_m() {
    for (kind, flags) in [(1, 0x40), (4, 0x40), (99, 0xc0)] {
        let mut area = tlv(0x80, kind, &[1, 2, 3, 4]);
        area[3] = 5;
        let mut want = area.clone();
        want[0] = flags;
        assert_eq!(answer(&mut stateful(), &area), want);
    }
}

#[test]
fn s4_octets_behind_the_tlvs_that_are_none_come_back_as_they_are() {
    for tail in [&[][..], &[0x80], &[0x80, 4, 0], &[0; 9], &[0, 0, 0, 0, 0x80, 4, 0, 4, 1, 1, 1, 1]]
    {
        let area = [&tlv(0x80, 1, &[1])[..], tail].concat();
        let want = [&tlv(0, 1, &[1])[..], tail].concat();
        assert_eq!(answer(&mut stateful(), &area), want);
    }
}

#[test]
fn s4_1_padding_is_copied() {
    let value: Vec<u8> = (0..200u8).collect();
    assert_eq!(answer(&mut stateful(), &tlv(0x80, 1, &value)), tlv(0, 1, &value));
}

/// A location request with these sub-TLVs.
fn location(sub_tlvs: &[Vec<u8>]) -> Vec<u8> {
    tlv(0x80, 2, &[vec![0; 4], sub_tlvs.concat()].concat())
}

fn padded_to(len: usize, value: &[u8]) -> Vec<u8> {
    let mut bytes = value.to_vec();
    bytes.resize(len, 0);
    bytes
}

#[test]
fn s4_2_location_over_ipv4() {
    let asked = location(&[
        tlv(0x80, 1, &[0; 8]),
        tlv(0x80, 4, &[0; 16]),
        tlv(0x80, 7, &[0; 16]),
        tlv(0x80, 99, &[1, 2]),
        tlv(0x80, 5, &[3; 16]),
    ]);
    let value = [
        vec![0x03, 0x5e, 0xc3, 0x50],
        tlv(0, 2, &[2, 0, 0, 0, 0, 2, 0, 0]),
        tlv(0, 5, &padded_to(16, &[198, 51, 100, 7])),
        tlv(0, 8, &padded_to(16, &[192, 0, 2, 1])),
        tlv(0x80, 99, &[1, 2]),
        tlv(0x80, 5, &[3; 16]),
    ]
    .concat();
    assert_eq!(answer(&mut stateful(), &asked), tlv(0, 2, &value));
}

#[test]
fn s4_2_location_over_ipv6_without_a_mac_address() {
    let asked =
        location(&[tlv(0x80, 1, &[0xff; 8]), tlv(0x80, 4, &[0xff; 16]), tlv(0x80, 7, &[0xff; 16])]);
    let mut bytes = frame("[2001:db8::1]:50000", "[2001:db8::2]:862", &[], &request(1, 7, &asked));
    bytes[6..12].fill(0);
    assert!(matches!(put(&mut stateful(), &mut bytes), Verdict::Transmit { .. }));
    let address = |last: u8| {
        let mut octets = padded_to(16, &[0x20, 0x01, 0x0d, 0xb8]);
        octets[15] = last;
        octets
    };
    let value = [
        vec![0x03, 0x5e, 0xc3, 0x50],
        tlv(0, 3, &[0; 8]),
        tlv(0, 6, &address(2)),
        tlv(0, 9, &address(1)),
    ]
    .concat();
    assert_eq!(bytes[62 + BASE_LEN..], tlv(0, 2, &value));
}

#[test]
fn s4_2_2_policy_may_leave_location_untold() {
    let mut reflector =
        Reflector::new(&ReflectorConfig { location: false, ..config() }, time(0)).unwrap();
    let asked = location(&[tlv(0x80, 1, &[9; 8]), tlv(0x80, 7, &[9; 16])]);
    let value = [vec![0; 4], tlv(0, 2, &[0; 8]), tlv(0, 8, &[0; 16])].concat();
    assert_eq!(answer(&mut reflector, &asked), tlv(0, 2, &value));
}

#[test]
fn s4_2_1_a_malformed_sub_tlv_makes_the_location_malformed() {
    let good = tlv(0x80, 7, &[0; 16]);
    let beyond = vec![0x80, 7, 0, 17, 1, 2];
    for (bad, flags) in [
        (tlv(0x80, 7, &[0; 15]), 0x40),
        (tlv(0x80, 1, &[0; 16]), 0x40),
        (beyond, 0x40),
        (vec![0x80, 99, 0, 1], 0xc0),
    ] {
        let area = [location(&[good.clone(), bad.clone()]), tlv(0x80, 1, &[1])].concat();
        let mut want = area.clone();
        want[0] = 0x40;
        want[8 + good.len()] = flags;
        assert_eq!(answer(&mut stateful(), &area), want);
    }
    // Fewer octets than a header: there are no flags to set.
    let area = location(&[good, vec![0x80, 7]]);
    let mut want = area.clone();
    want[0] = 0x40;
    assert_eq!(answer(&mut stateful(), &area), want);
}

#[test]
fn s4_3_timestamp_information() {
    let mut reflector = stateful();
    let asked = tlv(0x80, 3, &[0xff; 4]);
    // Kernel stamps are software; the source of a synchronised clock is not stated.
    assert_eq!(answer(&mut reflector, &asked), tlv(0, 3, &[0, 2, 0, 2]));
    reflector.set_clock(0, false, 1);
    let mut bytes = frame(SENDER, US, &[], &request(1, 7, &asked));
    let stamp = Stamp { at: time(0), source: StampSource::Hardware };
    reflector.input(&mut bytes, stamp, time(1));
    assert_eq!(bytes[42 + BASE_LEN..], tlv(0, 3, &[5, 1, 5, 2]));
}

/// With erratum 8199: both DSCP2 and ECN say what arrived.
#[test]
fn s4_4_class_of_service() {
    let mut reflector = stateful();
    // Everything but DSCP1 is ours to write.
    let asked = tlv(0x80, 4, &[10 << 2 | 3, 0xff, 0xff, 0xff]);
    let [high, low] = (10u16 << 10 | 46 << 4 | 1 << 2).to_be_bytes();
    assert_eq!(answer(&mut reflector, &asked), tlv(0, 4, &[high, low, 0, 0]));
    assert_eq!(reply_dscp(&mut reflector, &asked), 10);
    // The first of several decides; without one the request's DSCP returns.
    let two = [tlv(0x80, 4, &[8 << 2, 0, 0, 0]), asked].concat();
    assert_eq!(reply_dscp(&mut reflector, &two), 8);
    assert_eq!(reply_dscp(&mut reflector, &tlv(0x80, 1, &[])), 46);
}

#[test]
fn s4_4_a_forbidden_dscp_leaves_the_request_s_and_sets_rp() {
    let config = ReflectorConfig { reply_dscps: 1 | 1 << 63, ..config() };
    let mut reflector = Reflector::new(&config, time(0)).unwrap();
    let asked = |dscp: u8| tlv(0x80, 4, &[dscp << 2, 0, 0, 0]);
    let [high, low] = (10u16 << 10 | 46 << 4 | 1 << 2 | 1).to_be_bytes();
    assert_eq!(answer(&mut reflector, &asked(10)), tlv(0, 4, &[high, low, 0, 0]));
    assert_eq!(reply_dscp(&mut reflector, &asked(10)), 46);
    assert_eq!(reply_dscp(&mut reflector, &asked(63)), 63);
    assert_eq!(reply_dscp(&mut reflector, &asked(0)), 0);
}

#[test]
fn s4_5_direct_measurement_counts_the_session() {
    let mut reflector = stateful();
    let asked = tlv(0x80, 5, &[0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    for n in 1..4 {
        assert_eq!(
            answer(&mut reflector, &asked),
            tlv(0, 5, &[0, 0, 0, 9, 0, 0, 0, n, 0, 0, 0, n])
        );
    }
    // The counters wrap.
    reflector.sessions.as_mut().unwrap().session(0).received = u32::MAX;
    assert_eq!(answer(&mut reflector, &asked), tlv(0, 5, &[0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 4]));
    // Without a session there is nothing to count.
    let mut want = asked.clone();
    want[0] = 0x80;
    assert_eq!(answer(&mut stateless(), &asked), want);
}

fn cookie(reflector: &mut Reflector, area: &[u8]) -> (u64, Vec<u8>) {
    let mut bytes = frame(SENDER, US, &[], &request(1, 7, area));
    let Verdict::Transmit { cookie } = put(reflector, &mut bytes) else { panic!("no reply") };
    (cookie, bytes[42 + BASE_LEN..].to_vec())
}

#[test]
fn s4_7_follow_up_states_when_the_previous_reply_left() {
    let mut reflector = stateful();
    let asked = tlv(0x80, 7, &[0xff; 16]);
    let unknown = tlv(0, 7, &[0; 16]);
    let (first, reply) = cookie(&mut reflector, &asked);
    assert_eq!(reply, unknown, "there was no reply before");
    assert_ne!(first, 0, "its transmit stamp is wanted");
    let stamp = |source| Stamp { at: time(250_000_000), source };
    reflector.transmitted(TxDone { cookie: first, stamp: stamp(StampSource::Driver) });
    let sent = |sequence: u8, method: u8| {
        let mut value = vec![0, 0, 0, sequence];
        value.extend((NTP_NOW as u32).to_be_bytes());
        value.extend([0x40, 0, 0, 0, method, 0, 0, 0]);
        tlv(0, 7, &value)
    };
    let (second, reply) = cookie(&mut reflector, &asked);
    assert_eq!(reply, sent(0, 2));
    // The stamp of the second reply has not come: nothing is made up.
    let (third, reply) = cookie(&mut reflector, &asked);
    assert_eq!(reply, unknown);
    reflector.transmitted(TxDone { cookie: second, stamp: stamp(StampSource::Kernel) });
    assert_eq!(cookie(&mut reflector, &asked).1, unknown, "a stamp of an older reply");
    let (fifth, _) = cookie(&mut reflector, &asked);
    reflector.transmitted(TxDone { cookie: fifth, stamp: stamp(StampSource::Hardware) });
    reflector.transmitted(TxDone { cookie: third, stamp: stamp(StampSource::Kernel) });
    assert_eq!(cookie(&mut reflector, &asked).1, sent(4, 1));
    // Stamps are asked for only by those who will want them.
    assert_eq!(cookie(&mut reflector, &tlv(0x80, 1, &[])).0, 0);
}

#[test]
fn s4_7_stateless_follow_up_is_zero() {
    let mut reflector = stateless();
    for _ in 0..2 {
        let (cookie, reply) = cookie(&mut reflector, &tlv(0x80, 7, &[0xff; 16]));
        assert_eq!((cookie, reply), (0, tlv(0, 7, &[0; 16])));
    }
}

/// With erratum 8339: it is the TLV's length that is validated.
#[test]
fn s4_7_follow_up_of_a_wrong_length_is_zeroed_and_malformed() {
    for length in [0, 3, 11, 12, 15, 17] {
        let mut value = vec![9; length];
        value[..length.min(12)].fill(0);
        let area = tlv(0x80, 7, &vec![9; length]);
        assert_eq!(answer(&mut stateful(), &area), tlv(0x40, 7, &value));
    }
}
