//! Whatever comes in, what goes out is a valid reply, and every frame is counted once.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// TLVs, most of them of a type and length that mean something.
fn tlv_area() -> impl Strategy<Value = Vec<u8>> {
    let length =
        prop_oneof![Just(0u16), Just(4), Just(8), Just(12), Just(16), 0u16..40, any::<u16>()];
    let one = (prop_oneof![Just(0x80u8), any::<u8>()], 0u8..14, length, vec(any::<u8>(), 0..60));
    vec(one, 0..5).prop_map(|list| {
        let mut area = Vec::new();
        for (flags, kind, length, mut value) in list {
            if length < 60 {
                value.resize(usize::from(length), 0x80);
            }
            area.extend([flags, kind]);
            area.extend(length.to_be_bytes());
            area.extend(value);
        }
        area
    })
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![
        (any::<u32>(), any::<u16>(), tlv_area())
            .prop_map(|(n, ssid, area)| request(n, ssid, &area)),
        vec(any::<u8>(), 0..120),
    ];
    let tags = vec((any::<u16>()).prop_map(|tci| Tag { tpid: 0x8100, tci }), 0..3);
    (any::<bool>(), 0u32..20, tags, payload).prop_map(|(v6, n, tags, payload)| {
        if v6 {
            frame(&format!("[2001:db8::{n:x}]:5000"), "[2001:db8::2]:862", &tags, &payload)
        } else {
            frame(&format!("192.0.2.{n}:5000"), US, &tags, &payload)
        }
    })
}

/// Puts a frame in and checks all that must hold of what comes out.
fn check(reflector: &mut Reflector, asked: &[u8]) {
    let before = *reflector.counters();
    let mut bytes = asked.to_vec();
    let verdict = put(reflector, &mut bytes);
    let mut out = [0; 2048];
    let queued = reflector.poll_transmit(time(5_000), &mut out);
    let counted = reflector.counters().since(&before);
    assert_eq!(counted.reflected + counted.dropped(), 1);
    match (verdict, queued) {
        (Verdict::Transmit { .. }, None) => {
            assert_valid_reply(asked, &bytes);
            // As long as the request, padding and all.
            assert_eq!(asked.len(), bytes.len());
            let end = parse_udp(asked).unwrap().payload.end;
            assert_eq!(asked[end..], bytes[end..]);
        }
        (Verdict::Release, Some(sent)) => {
            assert_eq!(bytes, asked);
            assert_valid_reply(asked, &out[..sent.len]);
        }
        (Verdict::Release, None) => {
            assert_eq!(bytes, asked);
            assert_eq!(counted.dropped(), 1);
        }
        (Verdict::Transmit { .. }, Some(_)) => panic!("two replies to one request"),
    }
}

fn any_reflector() -> impl Strategy<Value = Reflector> {
    (any::<bool>(), 0usize..4, any::<bool>(), any::<u64>()).prop_map(
        |(stateful, max_sessions, location, reply_dscps)| {
            let rate_limit = location.then_some(RateLimit { per_second: 1, burst: u32::MAX });
            let config = ReflectorConfig {
                stateful,
                max_sessions,
                location,
                reply_dscps,
                rate_limit,
                ..config()
            };
            Reflector::new(&config, time(0)).unwrap()
        },
    )
}

impl std::fmt::Debug for Reflector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reflector").field("counters", &self.counters).finish_non_exhaustive()
    }
}

proptest! {
    #[test]
    fn every_request_gets_its_reply(
        mut reflector in any_reflector(),
        frames in vec(any_frame(), 1..20),
    ) {
        for asked in &frames {
            check(&mut reflector, asked);
        }
    }

    #[test]
    fn mutated_requests_are_answered_well_or_not_at_all(
        mut reflector in any_reflector(),
        mut asked in any_frame(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        checksums in any::<bool>(),
    ) {
        for (at, octet) in changes {
            let at = at.index(asked.len());
            asked[at] = octet;
        }
        if let Some(cut) = cut {
            asked.truncate(cut.index(asked.len()));
        }
        if let (true, Ok(found)) = (checksums, parse_udp(&asked))
            && !found.is_ipv6
        {
            ipv4::Packet::new_checked(&mut asked[found.l3_offset..]).unwrap().fill_checksum();
        }
        check(&mut reflector, &asked);
    }

    #[test]
    fn random_octets_never_panic(
        mut reflector in any_reflector(),
        mut bytes in vec(any::<u8>(), 0..300),
        cookie: u64,
        at: i64,
        now: i64,
    ) {
        let stamp = Stamp { at: Time::from_nanos(at), source: StampSource::User };
        reflector.input(&mut bytes, stamp, Time::from_nanos(now));
        reflector.transmitted(TxDone { cookie, stamp });
        reflector.handle_timeout(Time::from_nanos(now));
        let _ = reflector.poll_transmit(Time::from_nanos(now), &mut bytes);
        let _ = reflector.poll_timeout();
        let _ = reflector.poll_record(&mut ReflectorInterval::default());
    }

    #[test]
    fn any_clock_and_any_stamp_will_do(
        at: i64,
        now: i64,
        offset: i64,
        error: i64,
        mut reflector in any_reflector(),
    ) {
        reflector.set_clock(offset, true, error);
        let mut bytes = frame(SENDER, US, &[], &request(1, 1, &[]));
        let stamp = Stamp { at: Time::from_nanos(at), source: StampSource::File };
        let verdict = reflector.input(&mut bytes, stamp, Time::from_nanos(now));
        prop_assert!(matches!(verdict, Verdict::Transmit { .. }), "{:?}", verdict);
        assert_valid_reply(&frame(SENDER, US, &[], &request(1, 1, &[])), &bytes);
        reflector.handle_timeout(Time::from_nanos(now));
    }
}
