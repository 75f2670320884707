//! The reflector as its senders see it: frames in, frames out.

mod loops;
mod properties;
mod shared;
mod tlvs;

use super::*;
use sonde_results::units::SECOND;
use sonde_wire::ethernet::{Tag, Tags};
use sonde_wire::stamp::ReflectorRepr;
use sonde_wire::{StampSource, ipv4};

/// 2026-01-01T00:00:00 UTC on the TAI scale.
const NOW: i64 = (1_767_225_600 + 37) * SECOND;
/// The same in NTP seconds.
const NTP_NOW: u64 = 1_767_225_600 + 2_208_988_800;

const SENDER: &str = "192.0.2.1:50000";
const US: &str = "198.51.100.7:862";

fn time(nanos: i64) -> Time {
    Time::from_nanos(NOW + nanos)
}

fn config() -> ReflectorConfig {
    ReflectorConfig {
        clock_synchronised: true,
        clock_error: 1_000_000,
        ..ReflectorConfig::new(vec![862, 863], 37 * SECOND, 42)
    }
}

fn stateful() -> Reflector {
    Reflector::new(&config(), time(0)).unwrap()
}

fn stateless() -> Reflector {
    Reflector::new(&ReflectorConfig { stateful: false, ..config() }, time(0)).unwrap()
}

/// A frame from `source` to `destination`, over IPv4 without a UDP checksum.
fn frame(source: &str, destination: &str, tags: &[Tag], payload: &[u8]) -> Vec<u8> {
    let (source, destination): (SocketAddr, SocketAddr) =
        (source.parse().unwrap(), destination.parse().unwrap());
    let link = ethernet::Repr {
        destination: [2, 0, 0, 0, 0, 1],
        source: [2, 0, 0, 0, 0, 2],
        tags: Tags::new(tags).unwrap(),
        ethertype: if source.is_ipv4() {
            ethernet::ETHERTYPE_IPV4
        } else {
            ethernet::ETHERTYPE_IPV6
        },
    };
    let mut bytes = vec![0; 128];
    let mut at = link.emit(&mut bytes).unwrap();
    at +=
        build::emit_udp_ip(&mut bytes[at..], source, destination, 0xb9, 61, payload.len()).unwrap();
    bytes.truncate(at);
    bytes.extend_from_slice(payload);
    if source.is_ipv6() {
        let mut datagram = udp::Packet::new_checked(&mut bytes[at - 8..]).unwrap();
        datagram.fill_checksum(source.ip(), destination.ip()).unwrap();
    }
    bytes
}

/// A request: sequence number, T1, error estimate, identifier, zeros, `rest`.
fn request(sequence: u32, ssid: u16, rest: &[u8]) -> Vec<u8> {
    let mut payload = sequence.to_be_bytes().to_vec();
    payload.extend([0xe1, 2, 3, 4, 5, 6, 7, 8, 0x8f, 0x10]);
    payload.extend(ssid.to_be_bytes());
    payload.resize(BASE_LEN, 0);
    payload.extend_from_slice(rest);
    payload
}

fn kernel(nanos: i64) -> Stamp {
    Stamp { at: time(nanos), source: StampSource::Kernel }
}

/// Puts a frame in, received at 1 us and handed over at 3 us.
fn put(reflector: &mut Reflector, frame: &mut [u8]) -> Verdict {
    reflector.input(frame, kernel(1_000), time(3_000))
}

/// The reply to a request of `payload` from [`SENDER`], which must be given in place.
fn reply(reflector: &mut Reflector, payload: &[u8]) -> Vec<u8> {
    let mut bytes = frame(SENDER, US, &[], payload);
    assert!(matches!(put(reflector, &mut bytes), Verdict::Transmit { .. }));
    assert_valid_reply(&frame(SENDER, US, &[], payload), &bytes);
    bytes[42..].to_vec()
}

/// What every reply must be, whatever was asked.
fn assert_valid_reply(request: &[u8], reply: &[u8]) {
    let (asked, got) = (parse_udp(request).unwrap(), parse_udp(reply).unwrap());
    assert_eq!((&request[..6], &request[6..12]), (&reply[6..12], &reply[..6]), "MAC addresses");
    assert_eq!(request[12..asked.l3_offset], reply[12..got.l3_offset], "tags and EtherType");
    assert_eq!((asked.source, asked.source_port), (got.destination, got.destination_port));
    assert_eq!((asked.destination, asked.destination_port), (got.source, got.source_port));
    assert_eq!((got.ttl, got.ecn), (255, 0));
    assert_eq!(got.payload.len(), asked.payload.len().max(BASE_LEN));
    let ip = &reply[got.l3_offset..];
    if !got.is_ipv6 {
        assert!(ipv4::Packet::new_checked(ip).unwrap().verify_checksum());
    }
    let datagram = udp::Packet::new_checked(&ip[got.l4_offset - got.l3_offset..]).unwrap();
    assert_ne!(datagram.checksum(), 0);
    assert!(datagram.verify_checksum(got.source, got.destination));
    let (request, reply) = (&request[asked.payload], &reply[got.payload]);
    assert_eq!(request[..14], reply[24..38], "the sender's own fields");
    assert_eq!((reply[38..40].to_vec(), reply[41..44].to_vec()), (vec![0; 2], vec![0; 3]));
    assert_eq!(reply[40], asked.ttl);
}

fn sequence(reply: &[u8]) -> u32 {
    u32::from_be_bytes(reply[..4].try_into().unwrap())
}

/// The counter that is not 0, when a single frame was put in.
fn only_counter(reflector: &Reflector) -> (&'static str, u64) {
    let mut counted = reflector.counters().iter().filter(|(_, n)| *n > 0);
    let first = counted.next().unwrap();
    assert_eq!(counted.next(), None);
    first
}

fn assert_dropped(config: &ReflectorConfig, bytes: &mut [u8], counter: &'static str) {
    let mut reflector = Reflector::new(config, time(0)).unwrap();
    let before = bytes.to_vec();
    assert_eq!(put(&mut reflector, bytes), Verdict::Release, "{counter}");
    assert_eq!(only_counter(&reflector), (counter, 1));
    assert_eq!(bytes, before, "a dropped frame is not changed");
}

/// RFC 8762, section 4.3.1, figure 5: every octet, worked out by hand.
#[test]
fn rfc8762_4_3_1_golden_ipv4() {
    #[rustfmt::skip]
    let mut bytes = [
        // Ethernet: to us, from the sender's side
        0x02, 0, 0, 0, 0, 0x01, 0x02, 0, 0, 0, 0, 0x02, 0x08, 0x00,
        // IPv4: DSCP 46, ECN 1, 72 octets, DF, TTL 61
        0x45, 0xb9, 0x00, 0x48, 0x00, 0x00, 0x40, 0x00, 0x3d, 0x11, 0x50, 0xb0,
        192, 0, 2, 1, 198, 51, 100, 7,
        // UDP: 50000 -> 862, 52 octets, a partial checksum as an offloading sender leaves it
        0xc3, 0x50, 0x03, 0x5e, 0x00, 0x34, 0xec, 0x81,
        // sequence, T1, error estimate, SSID
        0, 0, 0, 9, 0xe1, 2, 3, 4, 5, 6, 7, 8, 0x8f, 0x10, 0x12, 0x34,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    // The header above is valid, or this test would not be about replies.
    assert_eq!(sonde_wire::checksum::sum(&bytes[14..34]), 0xffff);
    let mut reflector = stateless();
    let stamp = Stamp { at: time(250_000_000), source: StampSource::Kernel };
    let verdict = reflector.input(&mut bytes, stamp, time(500_000_000));
    assert_eq!(verdict, Verdict::Transmit { cookie: 0 });
    #[rustfmt::skip]
    let want = [
        0x02, 0, 0, 0, 0, 0x02, 0x02, 0, 0, 0, 0, 0x01, 0x08, 0x00,
        // DSCP 46, ECN 0, TTL 255
        0x45, 0xb8, 0x00, 0x48, 0x00, 0x00, 0x40, 0x00, 0xff, 0x11, 0x8e, 0xb0,
        198, 51, 100, 7, 192, 0, 2, 1,
        0x03, 0x5e, 0xc3, 0x50, 0x00, 0x34, 0xe5, 0xa7,
        // the sender's sequence; T3 = 2026-01-01T00:00:00.5; S=1, 1 ms; SSID
        0, 0, 0, 9, 0xed, 0x00, 0x37, 0x80, 0x80, 0, 0, 0, 0x8f, 0x84, 0x12, 0x34,
        // T2 = 2026-01-01T00:00:00.25
        0xed, 0x00, 0x37, 0x80, 0x40, 0, 0, 0,
        // sender's sequence, T1, error estimate, zeros, TTL, zeros
        0, 0, 0, 9, 0xe1, 2, 3, 4, 5, 6, 7, 8, 0x8f, 0x10, 0, 0, 61, 0, 0, 0,
    ];
    assert_eq!(NTP_NOW, 0xed00_3780);
    assert_eq!(bytes, want);
}

#[test]
fn ipv6_with_two_vlan_tags_goes_back_with_them() {
    let tags = [Tag { tpid: 0x88a8, tci: 100 }, Tag { tpid: 0x8100, tci: 0x2005 }];
    let asked = frame("[2001:db8::1]:50000", "[2001:db8::2]:863", &tags, &request(7, 1, &[]));
    let mut bytes = asked.clone();
    // A flow label, which is to come back.
    bytes[23] |= 0x0a;
    bytes[24..26].copy_from_slice(&[0xbc, 0xde]);
    let mut reflector = stateful();
    assert!(matches!(put(&mut reflector, &mut bytes), Verdict::Transmit { .. }));
    assert_valid_reply(&asked, &bytes);
    // Version 6, traffic class 0xb8, label 0xabcde, hop limit 255.
    assert_eq!(bytes[22..26], [0x6b, 0x8a, 0xbc, 0xde]);
    assert_eq!(bytes[29], 255);
    assert_eq!(sequence(&bytes[22 + 48..]), 0);
}

#[test]
fn ethernet_padding_stays_outside() {
    let mut bytes = frame(SENDER, US, &[], &request(1, 0, &[]));
    let asked = bytes.clone();
    bytes.extend([0x5a; 9]);
    assert!(matches!(put(&mut stateful(), &mut bytes), Verdict::Transmit { .. }));
    assert_eq!(bytes[asked.len()..], [0x5a; 9]);
    bytes.truncate(asked.len());
    assert_valid_reply(&asked, &bytes);
}

#[test]
fn ipv4_options_become_no_operations() {
    let plain = frame(SENDER, US, &[], &request(1, 0, &[]));
    let mut bytes = plain[..34].to_vec();
    // A loose source route.
    bytes.extend([0x83, 7, 4, 10, 9, 8, 7, 0]);
    bytes.extend(&plain[34..]);
    bytes[14] = 0x47;
    bytes[17] += 8;
    ipv4::Packet::new_checked(&mut bytes[14..]).unwrap().fill_checksum();
    let asked = bytes.clone();
    assert!(matches!(put(&mut stateful(), &mut bytes), Verdict::Transmit { .. }));
    assert_valid_reply(&asked, &bytes);
    assert_eq!(bytes[34..42], [1; 8]);
}

/// RFC 8762, section 4.3.1: each session has its own sequence, from 0; RFC 8972, section 3:
/// SSID and 4-tuple make the session.
#[test]
fn rfc8972_3_each_session_counts_for_itself() {
    let mut reflector = stateful();
    let mut ask = |source: &str, destination: &str, ssid| {
        let mut bytes = frame(source, destination, &[], &request(1000, ssid, &[]));
        assert!(matches!(put(&mut reflector, &mut bytes), Verdict::Transmit { .. }));
        sequence(&bytes[42..])
    };
    assert_eq!(ask(SENDER, US, 1), 0);
    assert_eq!(ask(SENDER, US, 1), 1);
    assert_eq!(ask(SENDER, US, 2), 0);
    assert_eq!(ask("192.0.2.1:50001", US, 1), 0);
    assert_eq!(ask("192.0.2.2:50000", US, 1), 0);
    assert_eq!(ask(SENDER, "198.51.100.7:863", 1), 0);
    assert_eq!(ask(SENDER, "198.51.100.8:862", 1), 0);
    assert_eq!(ask(SENDER, US, 1), 2);
    // Those that have asked once count for nothing yet.
    assert_eq!((reflector.sessions(), reflector.counters().sessions_begun), (1, 1));
}

#[test]
fn rfc8762_4_3_1_stateless_copies_the_sequence_and_ssid_always_returns() {
    let mut reflector = stateless();
    for n in [5, 5, u32::MAX] {
        let reply = reply(&mut reflector, &request(n, 0xbeef, &[]));
        assert_eq!(sequence(&reply), n);
        assert_eq!(reply[14..16], [0xbe, 0xef]);
    }
}

#[test]
fn replayed_requests_are_reflected_one_for_one() {
    let mut reflector = stateful();
    let payload = request(77, 0, &[]);
    for n in 0..5 {
        assert_eq!(sequence(&reply(&mut reflector, &payload)), n);
    }
    assert_eq!(reflector.poll_transmit(time(4_000), &mut [0; 2048]), None);
    assert_eq!(reflector.counters().reflected, 5);
}

#[test]
fn sequences_wrap() {
    let mut reflector = stateful();
    reply(&mut reflector, &request(0, 0, &[]));
    reflector.sessions.as_mut().unwrap().session(0).next_sequence = u32::MAX;
    assert_eq!(sequence(&reply(&mut reflector, &request(0, 0, &[]))), u32::MAX);
    assert_eq!(sequence(&reply(&mut reflector, &request(0, 0, &[]))), 0);
}

#[test]
fn a_session_ends_with_its_timeout_and_the_timer_is_kept() {
    let config = ReflectorConfig { session_timeout: 10 * SECOND, max_sessions: 4, ..config() };
    let mut reflector = Reflector::new(&config, time(0)).unwrap();
    reply(&mut reflector, &request(0, 0, &[]));
    reply(&mut reflector, &request(1, 0, &[]));
    let mut now = time(0);
    while reflector.sessions() > 0 {
        let next = reflector.poll_timeout().unwrap();
        assert!(next >= now, "time does not stand still");
        now = next.max(now + 1);
        reflector.handle_timeout(now);
        assert!(now < time(14 * SECOND), "a quarter late at most");
    }
    assert!(now > time(10 * SECOND));
    assert_eq!(reflector.counters().sessions_ended, 1);
    assert_eq!(sequence(&reply(&mut reflector, &request(9, 0, &[]))), 0);
}

#[test]
fn beyond_the_last_session_service_is_stateless_and_counted() {
    let config = ReflectorConfig { max_sessions: 2, ..config() };
    let mut reflector = Reflector::new(&config, time(0)).unwrap();
    for (ssid, want) in [(1, 0), (1, 1), (2, 0), (2, 1), (3, 500), (1, 2), (2, 2), (3, 500)] {
        assert_eq!(sequence(&reply(&mut reflector, &request(500, ssid, &[]))), want);
    }
    assert_eq!(reflector.counters().reflected_stateless, 2);
}

/// RFC 8762, section 4.6: the base packet answers whatever is shorter.
#[test]
fn rfc8762_4_6_short_requests_get_the_base_packet() {
    for (source, us) in [(SENDER, US), ("[2001:db8::1]:50000", "[2001:db8::2]:862")] {
        for len in SENDER_MIN..BASE_LEN {
            let mut reflector = stateful();
            let asked =
                frame(source, us, &[Tag { tpid: 0x8100, tci: 5 }], &request(3, 0, &[])[..len]);
            let mut bytes = asked.clone();
            assert_eq!(put(&mut reflector, &mut bytes), Verdict::Release);
            reflector.handle_timeout(time(3_000));
            assert_eq!(reflector.poll_timeout(), Some(time(3_000)), "due at once");
            let mut out = [0xff; 200];
            let sent = reflector.poll_transmit(time(9_000), &mut out).unwrap();
            assert_eq!(reflector.poll_transmit(time(9_000), &mut [0; 200]), None);
            let reply = &out[..sent.len];
            assert_valid_reply(&asked, reply);
            let found = parse_udp(reply).unwrap();
            assert_eq!(found.dscp, 46);
            let base = ReflectorPacket::new_checked(&reply[found.payload]).unwrap();
            let repr = ReflectorRepr::parse(&base);
            assert_eq!((repr.sequence, repr.ssid), (0, 0));
            assert_eq!(repr.receive_timestamp, time(1_000).to_ntp(37 * SECOND).0);
            assert_eq!(repr.timestamp, time(9_000).to_ntp(37 * SECOND).0, "T3 is when it left");
            let counters = reflector.counters();
            assert_eq!((counters.reflected, counters.reflected_short), (1, 1));
        }
        let mut bytes = frame(source, us, &[], &request(3, 0, &[])[..SENDER_MIN - 1]);
        assert_dropped(&config(), &mut bytes, "dropped_short");
    }
}

/// A turn reads the clock, and then receives: a request may carry a later stamp than that.
#[test]
fn t3_of_a_short_request_is_not_before_its_t2() {
    let mut reflector = stateful();
    let mut bytes = frame(SENDER, US, &[], &request(3, 0, &[])[..SENDER_MIN]);
    assert_eq!(reflector.input(&mut bytes, kernel(5_000), time(3_000)), Verdict::Release);
    let mut out = [0; 200];
    let sent = reflector.poll_transmit(time(3_000), &mut out).unwrap();
    let base = ReflectorPacket::new_checked(&out[42..sent.len]).unwrap();
    let repr = ReflectorRepr::parse(&base);
    assert_eq!(repr.receive_timestamp, time(5_000).to_ntp(37 * SECOND).0);
    assert_eq!(repr.timestamp, repr.receive_timestamp);
}

/// RFC 8762, section 4.6: padding where STAMP has its session identifier is none.
#[test]
fn rfc8762_4_6_random_padding_of_short_requests_begins_no_sessions() {
    let mut reflector = stateful();
    for (n, len) in (SENDER_MIN..BASE_LEN).enumerate() {
        let mut short = request(3, 0, &[]);
        short[SENDER_MIN..].fill(0xA0 + n as u8);
        put(&mut reflector, &mut frame(SENDER, US, &[], &short[..len]));
        let mut out = [0; 200];
        let sent = reflector.poll_transmit(time(9_000), &mut out).unwrap();
        let base = ReflectorPacket::new_checked(&out[42..sent.len]).unwrap();
        let repr = ReflectorRepr::parse(&base);
        assert_eq!((repr.sequence, repr.ssid), (n as u32, 0), "{len} octets");
    }
    assert_eq!(reflector.sessions(), 1);
}

#[test]
fn the_queue_of_short_replies_is_bounded_and_its_overflow_takes_no_sequence_number() {
    let mut reflector = stateful();
    for n in 0..QUEUE as u32 + 10 {
        put(&mut reflector, &mut frame(SENDER, US, &[], &request(n, 0, &[])[..20]));
    }
    assert_eq!(reflector.counters().dropped_queue, 10);
    let mut out = [0; 2048];
    for n in 0..QUEUE as u32 {
        reflector.poll_transmit(time(5_000), &mut out).unwrap();
        assert_eq!(sequence(&out[42..]), n);
    }
    assert_eq!(reflector.poll_transmit(time(5_000), &mut out), None);
    let next = request(QUEUE as u32 + 10, 0, &[]);
    assert_eq!(sequence(&reply(&mut reflector, &next)), QUEUE as u32);
}

/// RFC 8762, section 4.6: TWAMP-Light padding comes back as it was, and random padding where
/// STAMP has its identifier does not make a session of every packet.
#[test]
fn rfc8762_4_6_twamp_light_padding_is_copied() {
    let mut reflector = stateful();
    let zeros = vec![0; 100];
    assert_eq!(reply(&mut reflector, &request(0, 0, &zeros))[BASE_LEN..], zeros);
    for n in 0u8..50 {
        let mut payload = request(1, u16::from(n) * 257, &[]);
        payload.extend((0..77u8).map(|i| (i.wrapping_mul(151) ^ n) & 0x7f));
        payload[20] = 1;
        let reply = reply(&mut reflector, &payload);
        assert_eq!(reply[BASE_LEN..], payload[BASE_LEN..]);
        assert_eq!(sequence(&reply), u32::from(n) + 1);
    }
    assert_eq!(reflector.sessions(), 1);
    assert_eq!(reflector.counters().reflected_tlv, 0);
}

#[test]
fn what_is_not_for_us_is_foreign() {
    let base = request(1, 0, &[]);
    let elsewhere = frame(SENDER, "198.51.100.7:864", &[], &base);
    assert_dropped(&config(), &mut elsewhere.clone(), "dropped_foreign");
    let local = ReflectorConfig { local: vec!["198.51.100.8".parse().unwrap()], ..config() };
    assert_dropped(&local, &mut frame(SENDER, US, &[], &base), "dropped_foreign");
    let mut reflector = Reflector::new(&local, time(0)).unwrap();
    let mut ours = frame(SENDER, "198.51.100.8:862", &[], &base);
    assert!(matches!(put(&mut reflector, &mut ours), Verdict::Transmit { .. }));
    let mut tcp = frame(SENDER, US, &[], &base);
    tcp[23] = 6;
    assert_dropped(&config(), &mut tcp, "dropped_foreign");
    let mut arp = frame(SENDER, US, &[], &base);
    arp[13] = 6;
    assert_dropped(&config(), &mut arp, "dropped_foreign");
}

/// As UDP options are (RFC 9868). A socket hands none of it up, and sends none of it back.
#[test]
fn what_lies_behind_the_datagram_is_not_sent_back() {
    let base = request(1, 0, &[]);
    for (source, destination) in [(SENDER, US), ("[2001:db8::1]:5000", "[2001:db8::2]:862")] {
        let plain = frame(source, destination, &[], &base);
        let mut surplus = plain.clone();
        surplus.extend([7; 8]);
        if parse_udp(&plain).unwrap().is_ipv6 {
            surplus[19] += 8;
        } else {
            surplus[17] += 8;
            surplus[24..26].fill(0);
        }
        assert!(matches!(put(&mut stateful(), &mut surplus), Verdict::Transmit { .. }));
        assert_valid_reply(&plain, &surplus);
        let mut usual = plain.clone();
        put(&mut stateful(), &mut usual);
        assert_eq!(surplus[..plain.len()], usual, "the packet ends with its datagram");
    }
}

#[test]
fn faulty_headers_are_counted_by_their_fault() {
    let base = request(1, 0, &[]);
    let good = frame(SENDER, US, &[], &base);
    assert_dropped(&config(), &mut good[..60].to_vec(), "dropped_malformed");
    let mut fragment = good.clone();
    fragment[20] = 0x20;
    assert_dropped(&config(), &mut fragment, "dropped_fragment");
    let mut checksum = good.clone();
    checksum[24] ^= 1;
    assert_dropped(&config(), &mut checksum, "dropped_checksum");
    let mut damaged = good.clone();
    damaged[40..42].copy_from_slice(&[0x12, 0x34]);
    assert_dropped(&config(), &mut damaged, "dropped_checksum");
    let mut length = good.clone();
    length[39] = 200;
    assert_dropped(&config(), &mut length, "dropped_malformed");

    let plain = frame("[2001:db8::1]:5000", "[2001:db8::2]:862", &[], &base);
    let mut extended = plain[..54].to_vec();
    let mut unsummed = plain.clone();
    unsummed[60..62].fill(0);
    assert_dropped(&config(), &mut unsummed, "dropped_checksum");
    // Destination options: next header UDP, 8 octets, PadN.
    extended.extend([17, 0, 1, 4, 0, 0, 0, 0]);
    extended.extend(&plain[54..]);
    extended[20] = 60;
    extended[19] += 8;
    assert_dropped(&config(), &mut extended, "dropped_extension");
    assert_dropped(&config(), &mut [], "dropped_malformed");
}

#[test]
fn addresses_that_cannot_be_answered_are_refused() {
    for (source, us) in [
        ("224.0.0.1:5000", US),
        ("255.255.255.255:5000", US),
        ("0.0.0.0:5000", US),
        ("127.0.0.1:5000", US),
        (SENDER, "224.0.0.1:862"),
        (SENDER, "127.0.0.1:862"),
        ("192.0.2.1:0", US),
        ("[ff02::1]:5000", "[2001:db8::2]:862"),
        ("[::]:5000", "[2001:db8::2]:862"),
        ("[::1]:5000", "[2001:db8::2]:862"),
        ("[::ffff:192.0.2.1]:5000", "[2001:db8::2]:862"),
        ("[2001:db8::1]:5000", "[ff02::1]:862"),
    ] {
        assert_dropped(
            &config(),
            &mut frame(source, us, &[], &request(0, 0, &[])),
            "dropped_address",
        );
    }
    let mut group = frame(SENDER, US, &[], &request(0, 0, &[]));
    group[0] = 1;
    assert_dropped(&config(), &mut group, "dropped_address");
    let mut local = frame("127.0.0.1:5000", "127.0.0.1:862", &[], &request(0, 0, &[]));
    assert!(matches!(put(&mut stateful(), &mut local), Verdict::Transmit { .. }));
}

#[test]
fn the_allow_list_takes_prefixes_of_its_family_only() {
    let allow = |list: &[(&str, u8)]| ReflectorConfig {
        allow: list.iter().map(|&(a, n)| Prefix { address: a.parse().unwrap(), bits: n }).collect(),
        ..config()
    };
    let v6 = frame("[2001:db8::1]:5000", "[2001:db8::2]:862", &[], &request(0, 0, &[]));
    let v4 = frame(SENDER, US, &[], &request(0, 0, &[]));
    for (list, v4_in, v6_in) in [
        (&[("192.0.2.77", 24)][..], true, false),
        (&[("192.0.2.0", 32)], false, false),
        (&[("0.0.0.0", 0)], true, false),
        (&[("::", 0)], false, true),
        (&[("2001:db8::", 127)], false, true),
        (&[("2001:db8::2", 128), ("192.0.2.1", 32)], true, false),
    ] {
        for (bytes, is_in) in [(&v4, v4_in), (&v6, v6_in)] {
            let mut reflector = Reflector::new(&allow(list), time(0)).unwrap();
            let verdict = put(&mut reflector, &mut bytes.clone());
            assert_eq!(matches!(verdict, Verdict::Transmit { .. }), is_in, "{list:?}");
            assert_eq!(reflector.counters().dropped_not_allowed, u64::from(!is_in));
        }
    }
}

/// RFC 8972, section 3: what was not provisioned is discarded.
#[test]
fn rfc8972_3_only_provisioned_identifiers_are_served() {
    let config = ReflectorConfig { ssids: vec![9, 4], ..config() };
    for (ssid, is_in) in [(4, true), (9, true), (5, false), (0, false)] {
        let mut bytes = frame(SENDER, US, &[], &request(0, ssid, &[]));
        if is_in {
            let mut reflector = Reflector::new(&config, time(0)).unwrap();
            assert!(matches!(put(&mut reflector, &mut bytes), Verdict::Transmit { .. }));
        } else {
            assert_dropped(&config, &mut bytes, "dropped_ssid");
        }
    }
}

#[test]
fn the_rate_limit_is_per_source_in_packet_time() {
    let rate_limit = Some(RateLimit { per_second: 100, burst: 5 });
    let mut reflector =
        Reflector::new(&ReflectorConfig { rate_limit, ..config() }, time(0)).unwrap();
    let mut answered = [0; 2];
    // Two seconds; one source asks 1,000 times a second, the other 50 times.
    for ms in 0..2000 {
        for (i, source) in ["192.0.2.1:5000", "192.0.2.2:5000"].into_iter().enumerate() {
            if i == 1 && ms % 20 != 0 {
                continue;
            }
            let mut bytes = frame(source, US, &[], &request(0, 0, &[]));
            let now = ms * 1_000_000;
            let verdict = reflector.input(&mut bytes, kernel(now), time(now));
            answered[i] += u32::from(matches!(verdict, Verdict::Transmit { .. }));
        }
    }
    assert_eq!(answered, [204, 100]);
    assert_eq!(reflector.counters().dropped_rate, 2000 - 204);
}

#[test]
fn the_clock_may_change_while_it_runs() {
    let mut reflector = stateless();
    assert_eq!(reply(&mut reflector, &request(0, 0, &[]))[12..14], [0x8f, 0x84]);
    reflector.set_clock(36 * SECOND, false, 1_000_000_000);
    let reply = reply(&mut reflector, &request(0, 0, &[]));
    // S = 0, one second; UTC is one second later now.
    assert_eq!(reply[12..14], [0x19, 0x80]);
    assert_eq!(u64::from_be_bytes(reply[16..24].try_into().unwrap()) >> 32, NTP_NOW + 1);
}

#[test]
fn a_packet_never_leaves_before_it_came() {
    let mut bytes = frame(SENDER, US, &[], &request(0, 0, &[]));
    stateless().input(&mut bytes, kernel(5_000), time(4_000));
    assert_eq!(bytes[42 + 4..42 + 12], bytes[42 + 16..42 + 24]);
}

#[test]
fn records_lie_side_by_side_and_lose_nothing() {
    let mut reflector = stateful();
    let mut record = ReflectorInterval::default();
    assert!(!reflector.poll_record(&mut record));
    reply(&mut reflector, &request(0, 0, &[]));
    reflector.handle_timeout(time(SECOND));
    reply(&mut reflector, &request(0, 0, &[]));
    assert!(reflector.poll_record(&mut record));
    assert_eq!((record.start, record.end), (time(0), time(SECOND)));
    assert_eq!((record.counters.reflected, record.sessions), (1, 0));
    assert!(!reflector.poll_record(&mut record));
    // Two ends pass before the record is taken, the second one late.
    reflector.handle_timeout(time(2 * SECOND));
    reply(&mut reflector, &request(0, 0, &[]));
    reflector.handle_timeout(time(4 * SECOND + 5));
    reply(&mut reflector, &request(0, 0, &[]));
    assert!(reflector.poll_record(&mut record));
    assert_eq!((record.start, record.end), (time(SECOND), time(4 * SECOND)));
    assert_eq!(record.counters.reflected, 2);
    reflector.handle_timeout(time(5 * SECOND));
    assert!(reflector.poll_record(&mut record));
    assert_eq!((record.start, record.counters.reflected), (time(4 * SECOND), 1));
    assert_eq!(record.sessions, 1);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let error = |config: ReflectorConfig| Reflector::new(&config, time(0)).err();
    let prefix = Prefix { address: "192.0.2.0".parse().unwrap(), bits: 33 };
    assert_eq!(error(ReflectorConfig { ports: vec![], ..config() }), Some(ReflectorError::NoPort));
    assert_eq!(
        error(ReflectorConfig { allow: vec![prefix], ..config() }),
        Some(ReflectorError::Prefix(prefix))
    );
    assert_eq!(
        error(ReflectorConfig { max_sessions: 1 << 24, ..config() }),
        Some(ReflectorError::Sessions(1 << 24))
    );
    assert!(error(ReflectorConfig { session_timeout: 0, ..config() }).is_some());
    assert!(error(ReflectorConfig { interval: 0, ..config() }).is_some());
    let none = Some(RateLimit { per_second: 0, burst: 1 });
    assert!(error(ReflectorConfig { rate_limit: none, ..config() }).is_some());
    assert!(error(ReflectorConfig { total_limit: none, ..config() }).is_some());
    assert!(error(ReflectorConfig { no_senders: vec![prefix], ..config() }).is_some());
}

#[test]
fn every_request_of_many_sessions_is_answered_again_and_again() {
    const SESSIONS: usize = 20_000;
    for config in [config(), ReflectorConfig { stateful: false, ..config() }] {
        for length in [0, 78] {
            let config = ReflectorConfig { total_limit: None, ..config.clone() };
            let mut reflector = Reflector::new(&config, time(0)).unwrap();
            let mut frames: Vec<_> = (0..SESSIONS)
                .map(|i| {
                    let source = format!("10.1.{}.{}:5000", i >> 8, i & 255);
                    frame(&source, US, &[], &request(0, 0, &vec![0; length]))
                })
                .collect();
            let fresh = frames.clone();
            for _ in 0..20 {
                frames.clone_from(&fresh);
                for bytes in &mut frames {
                    put(&mut reflector, bytes);
                }
            }
            assert_eq!(reflector.counters().reflected, 20 * SESSIONS as u64);
        }
    }
}

const SENDER_MIN: usize = sonde_wire::stamp::SENDER_MIN_LEN;
