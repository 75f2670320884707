//! What must not be answered, lest the answer be answered; and who must be all the same.

use super::*;

/// Whether the reflector answers this frame in place at `nanos`.
fn answers(reflector: &mut Reflector, bytes: &mut [u8], nanos: i64) -> bool {
    matches!(reflector.input(bytes, kernel(nanos), time(nanos)), Verdict::Transmit { .. })
}

/// twping asks from port P to port P by default, and so do many routers.
#[test]
fn requests_from_the_reflectors_own_port_are_answered() {
    for port in [862, 863] {
        let source = format!("192.0.2.1:{port}");
        for payload in [request(0, 0, &[]), request(0, 0, &[0; 100])] {
            let mut bytes = frame(&source, US, &[], &payload);
            assert!(matches!(put(&mut stateful(), &mut bytes), Verdict::Transmit { .. }), "{port}");
            assert_valid_reply(&frame(&source, US, &[], &payload), &bytes);
        }
    }
}

/// One spoofed datagram, two reflectors: of each kind, with clocks that agree or do not.
#[test]
fn two_reflectors_do_not_answer_each_other() {
    let shifts = [0, 3600 * SECOND, -1_000_000_000 * SECOND];
    for shift in shifts {
        for stateful in [true, false] {
            let config = ReflectorConfig { stateful, ..config() };
            let mut here = Reflector::new(&config, time(0)).unwrap();
            let mut there = Reflector::new(&config, time(shift)).unwrap();
            let mut spoofed = frame("192.0.2.1:862", US, &[], &request(0, 0, &[]));
            assert!(answers(&mut here, &mut spoofed, 1000));
            // It goes on to the other as it is.
            assert!(!answers(&mut there, &mut spoofed, shift + 2000));
            assert_eq!(only_counter(&there), ("dropped_reply", 1));
        }
    }
}

/// The other end sends back what it gets, or a reply of its own to it. Its port and the form of the
/// first datagram are arbitrary.
#[test]
fn own_replies_that_come_back_are_not_answered() {
    let mut random = request(7, 0, &[]);
    random[16..].iter_mut().enumerate().for_each(|(i, octet)| *octet = (i * 151 + 7) as u8);
    for first in [request(0, 0, &[]), request(5, 9, &[0; 60]), random] {
        let mut reflector = stateful();
        let mut spoofed = frame("192.0.2.1:7007", US, &[], &first);
        assert!(answers(&mut reflector, &mut spoofed, 1000));
        let payload = spoofed[42..].to_vec();
        let mut echoed = frame("192.0.2.1:7007", US, &[], &payload);
        assert!(!answers(&mut reflector, &mut echoed, 40_000_000));
        assert_eq!(reflector.counters().dropped_reply, 1, "an echo");

        // A reflector whose clock is of no use: times of 1900, our own one echoed.
        let mut blind = vec![0; BASE_LEN];
        blind[24..38].copy_from_slice(&payload[..14]);
        blind[40] = 64;
        let mut reply = frame("192.0.2.1:7007", US, &[], &blind);
        assert!(!answers(&mut reflector, &mut reply, 2 * SECOND));
        assert_eq!(reflector.counters().dropped_reply, 2, "a reply without a clock");
    }
}

/// Replies of 38 octets, of an old responder: nothing after the sender's error estimate.
#[test]
fn the_shortest_replies_are_known_too() {
    let mut reflector = stateful();
    let mut bytes = frame(SENDER, US, &[], &request(0, 0, &[]));
    assert!(answers(&mut reflector, &mut bytes, 1000));
    let mut old = frame("192.0.2.1:862", US, &[], &bytes[42..80]);
    assert_eq!(reflector.input(&mut old, kernel(2000), time(2000)), Verdict::Release);
    assert_eq!(reflector.counters().dropped_reply, 1);
    assert_eq!(reflector.poll_transmit(time(2000), &mut [0; 200]), None);
}

#[test]
fn services_are_not_answered_but_for_those_of_measurement() {
    for port in [7, 19, 53, 123, 1023] {
        let source = format!("192.0.2.1:{port}");
        let mut bytes = frame(&source, US, &[], &request(0, 0, &[]));
        assert_dropped(&config(), &mut bytes, "dropped_service_port");
    }
    for port in [861, 1024, 50_000] {
        let mut bytes = frame(&format!("192.0.2.1:{port}"), US, &[], &request(0, 0, &[]));
        assert!(answers(&mut stateful(), &mut bytes, 1000), "{port}");
    }
    // Whoever listens on such a port may be asked from it.
    let own = ReflectorConfig { ports: vec![500], ..config() };
    let mut bytes = frame("192.0.2.1:500", "198.51.100.7:500", &[], &request(0, 0, &[]));
    assert!(answers(&mut Reflector::new(&own, time(0)).unwrap(), &mut bytes, 1000));
}

/// A service on a port of no name, whose answer to anything is its error. Nothing in it is ours, so
/// its answers are known by their sequence numbers alone.
#[test]
fn a_service_that_always_complains_is_soon_left_alone() {
    for complaint in [&b"ERROR: no such command\r\n"[..], &[0x45; 120]] {
        let mut reflector = stateful();
        let mut answered = 0;
        for round in 0..10_000 {
            let mut bytes = frame("192.0.2.1:27015", US, &[], complaint);
            let now = round * 100_000;
            let in_place = answers(&mut reflector, &mut bytes, now);
            let queued = reflector.poll_transmit(time(now), &mut [0; 200]).is_some();
            if !in_place && !queued {
                break;
            }
            answered += 1;
        }
        assert!((100..1000).contains(&answered), "{answered}");
        assert_eq!(reflector.counters().dropped_stray, 1);
    }
}

/// 200,000 a second in 20,000 streams from one address pass the limits that are on by default,
/// as one stream does; so do four such senders.
#[test]
fn the_default_limits_let_measurements_pass() {
    let of = |streams: usize| -> Vec<Vec<u8>> {
        (0..streams)
            .map(|i| frame(&format!("192.0.2.1:{}", 30_000 + i), US, &[], &request(0, 0, &[])))
            .collect()
    };
    for frames in [of(20_000), of(1)] {
        let mut reflector = stateful();
        for i in 0..100_000usize {
            let mut bytes = frames[i % frames.len()].clone();
            assert!(answers(&mut reflector, &mut bytes, i as i64 * 5000), "{i}");
        }
    }
    let mut reflector = stateful();
    for i in 0..200_000 {
        let mut bytes = frame(SENDER, US, &[], &request(0, 0, &[]));
        bytes[29] = 1 + (i % 4) as u8;
        ipv4::Packet::new_checked(&mut bytes[14..]).unwrap().fill_checksum();
        assert!(answers(&mut reflector, &mut bytes, i * 1250), "{i}");
    }
}

/// Above them, what is too much is dropped and counted: of one source, and of all together.
#[test]
fn the_default_limits_hold() {
    let mut reflector = stateful();
    let asked = 300_000;
    let answered = (0..asked)
        .filter(|i| {
            let mut bytes = frame(SENDER, US, &[], &request(0, 0, &[]));
            answers(&mut reflector, &mut bytes, i * 1000)
        })
        .count() as u64;
    assert!((75_000..=137_501).contains(&answered), "{answered}");
    assert_eq!(reflector.counters().dropped_rate, asked as u64 - answered);

    let mut reflector = stateful();
    let mut bytes = frame(SENDER, US, &[], &request(0, 0, &[]));
    let fresh = bytes.clone();
    let mut answered = 0;
    for i in 0..600_000u32 {
        bytes.copy_from_slice(&fresh);
        bytes[26..30].copy_from_slice(&(0x0a00_0000 + i % 65_536).to_be_bytes());
        ipv4::Packet::new_checked(&mut bytes[14..]).unwrap().fill_checksum();
        // Two millions a second.
        answered += u64::from(answers(&mut reflector, &mut bytes, i64::from(i) * 500));
    }
    assert!((300_000..=550_001).contains(&answered), "{answered}");
    assert_eq!(reflector.counters().dropped_rate_all, 600_000 - answered);
}

/// RFC 8762, section 4.3: a sender that begins anew from the same port is answered from 0.
#[test]
fn rfc8762_4_3_numbers_begin_anew_with_the_sender() {
    let mut reflector = stateful();
    let mut ask = |n: u32, ms: u64| {
        let mut payload = request(n, 3, &[]);
        let t1 = (NTP_NOW << 32) + ms * ((1 << 32) / 1000);
        payload[4..12].copy_from_slice(&t1.to_be_bytes());
        sequence(&reply(&mut reflector, &payload))
    };
    for n in 0..10 {
        assert_eq!(ask(n, u64::from(n) * 10), n);
    }
    assert_eq!(ask(9, 90), 10, "doubled in the network");
    assert_eq!(ask(0, 0), 11, "late, or played back");
    for n in 0..10 {
        assert_eq!(ask(n, 1000 + u64::from(n) * 10), n, "another run from the same port");
    }
    assert_eq!(ask(2, 3000), 0, "a third one, whose first two were lost");
    assert_eq!(reflector.counters().sessions_restarted, 2);
    assert_eq!(reflector.counters().sessions_begun, 1);
}

/// 65,536 spoofed packets do not take the sessions away, from those that are there or those
/// that come.
#[test]
fn spoofed_packets_do_not_fill_the_session_table() {
    let config = ReflectorConfig { max_sessions: 1000, total_limit: None, ..config() };
    let mut reflector = Reflector::new(&config, time(0)).unwrap();
    let ask = |reflector: &mut Reflector, source: &str| {
        let mut bytes = frame(source, US, &[], &request(500, 0, &[]));
        assert!(answers(reflector, &mut bytes, 0));
        sequence(&bytes[42..])
    };
    assert_eq!([ask(&mut reflector, SENDER), ask(&mut reflector, SENDER)], [0, 1]);
    for i in 0..65_536 {
        ask(&mut reflector, &format!("10.0.{}.{}:5000", i >> 8, i & 255));
    }
    assert_eq!(ask(&mut reflector, SENDER), 2);
    let newcomer = "203.0.113.5:5000";
    assert_eq!([ask(&mut reflector, newcomer), ask(&mut reflector, newcomer)], [0, 1]);
    assert_eq!((reflector.sessions(), reflector.counters().reflected_stateless), (2, 0));
}

/// On an interface nobody but ourselves has our address, and nobody has a broadcast one.
#[test]
fn own_and_broadcast_addresses_are_no_senders() {
    let mut reflector = stateful();
    let list = ["198.51.100.7/32", "198.51.100.255/32", "2001:db8::2/128"]
        .map(|text| text.parse().unwrap());
    reflector.set_no_senders(&list).unwrap();
    for (source, us) in [
        ("198.51.100.7:5000", US),
        ("198.51.100.255:5000", US),
        ("[2001:db8::2]:5000", "[2001:db8::2]:862"),
    ] {
        let mut bytes = frame(source, us, &[], &request(0, 0, &[]));
        assert!(!answers(&mut reflector, &mut bytes, 0), "{source}");
    }
    assert_eq!(reflector.counters().dropped_address, 3);
    assert!(answers(&mut reflector, &mut frame(SENDER, US, &[], &request(0, 0, &[])), 0));
}
