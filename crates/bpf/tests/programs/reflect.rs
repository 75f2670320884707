//! The kernel reflector as a function: a frame in, a verdict and a frame out, each reply
//! held against one built from the RFCs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::packet::{OUR_PORT, Request, base, padding_tlv, udp_checksum};
use crate::common::{RawSocket, in_namespace, ip, privileged, veth_pair};
use sonde_bpf::{
    AttachMode, BpfError, KernelReflector, KernelReflectorConfig, XskFilter, XskProgram,
};
use sonde_wire::packet::SessionRequest;

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
const ERROR: u16 = 0x8a05;

const LOCAL: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2)), 32),
    (IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0)), 64),
];

fn load<'a>(change: impl FnOnce(&mut KernelReflectorConfig<'a>)) -> KernelReflector {
    let mut config = KernelReflectorConfig {
        max_sessions: 1000,
        ..KernelReflectorConfig::new(OUR_PORT, &LOCAL)
    };
    change(&mut config);
    let reflector = KernelReflector::load(&config).unwrap();
    reflector.set_clock(0, ERROR);
    reflector
}

/// NTP time now, as seconds and fraction in 64 bits, by CLOCK_TAI.
fn ntp_now() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is valid memory for the answer.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_TAI, &mut t) }, 0);
    let fraction = ((t.tv_nsec as u128) << 32) / 1_000_000_000;
    (t.tv_sec as u64 + 2_208_988_800) << 32 | fraction as u64
}

fn field<const N: usize>(frame: &[u8], at: usize) -> [u8; N] {
    frame[at..at + N].try_into().unwrap()
}

/// Runs `request` and checks the reply octet by octet, the two time stamps by the clock.
fn assert_reflected(reflector: &KernelReflector, request: &Request, seq: u32, what: &str) {
    let before = ntp_now();
    let run = reflector.test_run(&request.frame(), 1).unwrap();
    let after = ntp_now();
    assert_eq!(run.verdict, XDP_TX, "{what}: {:?}", reflector.counters());
    let at = request.payload_offset();
    let (t3, t2) = (field(&run.packet, at + 4), field(&run.packet, at + 16));
    assert_eq!(run.packet, request.reply(seq, ERROR, t2, t3), "{what}");
    let (t2, t3) = (u64::from_be_bytes(t2), u64::from_be_bytes(t3));
    // One unit is 0.23 ns: the conversion may round by a few.
    assert!(before <= t2 + 8 && t2 <= t3 && t3 <= after + 8, "{what}: {before} {t2} {t3} {after}");
}

fn assert_verdict(r: &KernelReflector, frame: &[u8], verdict: u32, counter: &str, what: &str) {
    let before = r.counters().unwrap();
    let run = r.test_run(frame, 1).unwrap();
    let after = r.counters().unwrap();
    let changed: Vec<_> =
        after.iter().zip(before.iter()).filter(|(a, b)| a != b).map(|(a, _)| a.0).collect();
    assert_eq!((run.verdict, &changed[..]), (verdict, &[counter][..]), "{what}");
    if verdict == XDP_PASS {
        assert_eq!(run.packet, frame, "{what}: passed up, but not as it came");
    }
}

#[test]
fn replies_are_exact() {
    if !privileged("replies_are_exact") {
        return;
    }
    let reflector = load(|c| c.stateful = false);
    let zeroes = |n: usize| [base(9, 5), vec![0; n]].concat();
    let mut noisy_padding = zeroes(78);
    noisy_padding[60] = 0x5a;
    let mut payloads = vec![("base", base(9, 5)), ("padding with content", noisy_padding)];
    for n in [4, 5, 27, 64, 65, 127, 1000, 1427] {
        payloads.push(("zero padding", zeroes(n)));
        payloads.push(("padding TLV", [base(9, 5), padding_tlv(n)].concat()));
    }
    let tags: [&[(u16, u16)]; 3] =
        [&[], &[(0x8100, 0x6064)], &[(0x88a8, 0x2065), (0x8100, 0xa066)]];
    for family in [Request::v4(), Request::v6()] {
        for tags in tags {
            for (name, payload) in &payloads {
                for traffic_class in [0, 0xff, 46 << 2 | 2] {
                    let request = Request {
                        tags: tags.to_vec(),
                        payload: payload.clone(),
                        traffic_class,
                        ..family.clone()
                    };
                    let what = format!("{} {tags:x?} {name} {}", request.source, payload.len());
                    assert_reflected(&reflector, &request, 9, &what);
                }
            }
        }
    }
}

#[test]
fn a_damaged_request_is_distinguished_from_a_partial_checksum() {
    if !privileged("a_damaged_request_is_distinguished_from_a_partial_checksum") {
        return;
    }
    let reflector = load(|c| c.stateful = false);
    for family in [Request::v4(), Request::v6()] {
        for len in [44, 48, 122, 123, 1001] {
            let mut request = family.clone();
            request.payload.resize(len, 0);
            request.payload[43.max(len - 3)..].fill(if len > 51 { 0x5a } else { 0 });
            let whole = request.frame();
            let udp = request.payload_offset() - 8;
            // Any octet that the datagram's checksum covers, one bit of it or more.
            let step = if len > 200 { 13 } else { 1 };
            for at in (udp..whole.len()).step_by(step).chain(26..udp.min(34)) {
                for bits in [0x01, 0xff] {
                    let mut damaged = whole.clone();
                    damaged[at] ^= bits;
                    let run = reflector.test_run(&damaged, 1).unwrap();
                    assert_eq!(run.verdict, XDP_PASS, "{len}: octet {at}, {bits:#x}");
                    assert_eq!(run.packet, damaged);
                }
            }
            assert_reflected(&reflector, &request, 7, "whole checksum");
            request.partial_checksum = true;
            assert_reflected(&reflector, &request, 7, "partial checksum");
            let mut near = request.frame();
            near[udp + 7] ^= 1;
            let what = "neither whole nor partial";
            assert_verdict(&reflector, &near, XDP_PASS, "passed_bad_checksum", what);
        }
    }
    // IPv4 allows none; IPv6 does not (RFC 8200, section 8.1).
    let request = Request::v4();
    let at = request.payload_offset();
    let mut frame = request.frame();
    frame[at - 2..at].fill(0);
    let reply = reflector.test_run(&frame, 1).unwrap();
    assert_eq!(reply.verdict, XDP_TX);
    let mut udp = reply.packet[at - 8..].to_vec();
    let sent = std::mem::replace(&mut udp[6], 0);
    let sent = u16::from_be_bytes([sent, std::mem::replace(&mut udp[7], 0)]);
    assert_eq!(sent, udp_checksum(request.destination, request.source, &udp));
}

#[test]
fn sessions_are_numbered_from_zero_each() {
    if !privileged("sessions_are_numbered_from_zero_each") {
        return;
    }
    let reflector = load(|_| ());
    for family in [Request::v4(), Request::v6()] {
        let other_source = match family.source {
            IpAddr::V4(_) => "192.0.2.9".parse().unwrap(),
            IpAddr::V6(_) => "2001:db8:1::9".parse().unwrap(),
        };
        let mut sessions = vec![
            family.clone(),
            Request { source: other_source, ..family.clone() },
            Request { source_port: 40_001, ..family.clone() },
            Request { payload: base(7, 0x1235), ..family.clone() },
        ];
        if family.source.is_ipv6() {
            sessions
                .push(Request { destination: "2001:db8:2::3".parse().unwrap(), ..family.clone() });
        }
        for seq in 0..3 {
            for (i, request) in sessions.iter().enumerate() {
                assert_reflected(&reflector, request, seq, &format!("session {i}"));
            }
        }
    }
    assert_eq!(reflector.counters().unwrap().get("new_sessions"), 9);
    assert_eq!(reflector.counters().unwrap().get("reflected"), 27);
}

/// `request` as user space hands it over.
fn in_user_space(request: &Request, sequence: u32) -> SessionRequest {
    SessionRequest {
        source: request.source,
        destination: request.destination,
        source_port: request.source_port,
        ssid: u16::from_be_bytes(request.payload[14..16].try_into().unwrap()),
        sequence,
        timestamp: u64::from_be_bytes(request.payload[4..12].try_into().unwrap()),
    }
}

#[test]
fn user_space_and_kernel_number_the_replies_of_a_session_together() {
    if !privileged("user_space_and_kernel_number_the_replies_of_a_session_together") {
        return;
    }
    for family in [Request::v4(), Request::v6()] {
        let reflector = load(|_| {});
        let sessions = reflector.sessions().unwrap();
        let request = |seq| Request { payload: base(seq, 5), ..family.clone() };
        let what = family.source.to_string();
        for seq in 0..3 {
            assert_reflected(&reflector, &request(seq), seq, &what);
        }
        // 3 and 4 are lost on the way there.
        for (seq, reply) in [(5, 3), (6, 4)] {
            let asked = in_user_space(&request(seq), seq);
            assert_eq!(sessions.next_sequence(&asked).unwrap(), Some(reply), "{what}");
        }
        assert_reflected(&reflector, &request(7), 5, &what);
        // A session that begins in user space goes on in the kernel, which admits its sender.
        let other = |seq| Request { payload: base(seq, 6), ..family.clone() };
        assert_eq!(sessions.next_sequence(&in_user_space(&other(0), 0)).unwrap(), Some(0));
        assert_reflected(&reflector, &other(1), 1, &what);
        // A reflector whose addresses are others meanwhile admits nobody to the old ones.
        let third = Request { payload: base(0, 7), ..family.clone() };
        assert_eq!(sessions.next_sequence(&in_user_space(&third, 0)).unwrap(), Some(0));
        reflector.update_local(&[], &[]).unwrap();
        assert_verdict(&reflector, &third.frame(), XDP_PASS, "passed_not_local", &what);
    }
}

#[test]
fn a_full_table_of_sessions_is_kept() {
    if !privileged("a_full_table_of_sessions_is_kept") {
        return;
    }
    let reflector = load(|c| c.max_sessions = 2000);
    let mut request = Request::v4();
    for seq in 0..2 {
        for port in 0..2000 {
            request.source_port = 10_000 + port;
            assert_reflected(&reflector, &request, seq, "full table");
        }
    }
    // More sessions than there are slots: the later ones are answered with their own sequence
    // number.
    let reflector = load(|c| c.max_sessions = 1);
    let mut numbered = 0;
    for port in 0..2000 {
        request.source_port = 10_000 + port;
        let sequence = |seq: u32| {
            let mut request = request.clone();
            request.payload[..4].copy_from_slice(&(1000 + seq).to_be_bytes());
            let run = reflector.test_run(&request.frame(), 1).unwrap();
            assert_eq!(run.verdict, XDP_TX);
            u32::from_be_bytes(field(&run.packet, request.payload_offset()))
        };
        match [sequence(0), sequence(1)] {
            [0, 1] => numbered += 1,
            own => assert_eq!(own, [1000, 1001]),
        }
    }
    let c = reflector.counters().unwrap();
    assert_eq!((numbered, c.get("new_sessions")), (256, 256), "all slots, and no more");
    assert_eq!(c.get("reflected_stateless"), 2 * (2000 - 256));
}

/// Invented sources replace each other, never those of sessions.
#[test]
fn a_flood_of_sources_takes_no_session_away() {
    if !privileged("a_flood_of_sources_takes_no_session_away") {
        return;
    }
    let reflector = load(|c| (c.max_sessions, c.total_limit) = (100, None));
    let sessions: Vec<Request> =
        (0..100).map(|i| Request { source_port: 20_000 + i, ..Request::v4() }).collect();
    for seq in 0..2 {
        for request in &sessions {
            assert_reflected(&reflector, request, seq, "before");
        }
    }
    for seq in 2..5 {
        for i in 0..3000u32 {
            let source = IpAddr::from(Ipv4Addr::from_bits(0x0b00_0000 + seq * 3000 + i));
            let spoofed = Request { source, ..Request::v4() }.frame();
            assert_eq!(reflector.test_run(&spoofed, 1).unwrap().verdict, XDP_TX);
        }
        for request in &sessions {
            assert_reflected(&reflector, request, seq, "after the flood");
        }
        // Nor can it keep newcomers out.
        let newcomer = Request { source_port: 30_000 + seq as u16, ..Request::v4() };
        assert_reflected(&reflector, &newcomer, 0, "newcomer");
        assert_reflected(&reflector, &newcomer, 1, "newcomer");
    }
    assert_eq!(reflector.counters().unwrap().get("new_sessions"), 103);
}

#[test]
fn whatever_is_unusual_goes_up_and_is_counted() {
    if !privileged("whatever_is_unusual_goes_up_and_is_counted") {
        return;
    }
    let others = [("198.51.100.255".parse().unwrap(), 32)];
    let local = [&LOCAL[..], &[("2001:db8:2::7".parse().unwrap(), 128)]].concat();
    let r = load(|c| (c.local, c.others) = (&local, &others));
    let expect = |frame: &[u8], counter: &str, what: &str| {
        assert_verdict(&r, frame, XDP_PASS, counter, what);
    };
    for family in [Request::v4(), Request::v6()] {
        let with = |change: &dyn Fn(&mut Request)| {
            let mut request = family.clone();
            change(&mut request);
            request.frame()
        };
        let tlv = |tlv: &[u8]| with(&|q| q.payload.extend(tlv));
        expect(&with(&|q| q.port = 863), "passed_other", "another port");
        for port in [7, 19, 53, 123, 1023] {
            expect(&with(&|q| q.source_port = port), "passed_source_port", "a service's port");
        }
        expect(&with(&|q| q.source_port = 0), "passed_source_port", "port 0");
        expect(&with(&|q| q.payload.truncate(43)), "passed_short", "43 octets");
        expect(&with(&|q| q.payload.clear()), "passed_short", "no payload");
        expect(&with(&|q| q.tags = vec![(0x8100, 1); 3]), "passed_other", "three tags");
        for n in 1..4 {
            expect(&tlv(&[0; 4][..n]), "passed_tlv", "less than a TLV header");
        }
        expect(&tlv(&[0x80, 3, 0, 4, 0, 0, 0, 0]), "passed_tlv", "timestamp information");
        expect(&tlv(&[0x80, 1, 0, 4, 0, 0, 0]), "passed_tlv", "TLV longer than the rest");
        expect(&tlv(&[0x80, 1, 0, 0, 0, 0, 0, 0]), "passed_tlv", "a second TLV");
        expect(&tlv(&[0xc0, 1, 0, 0]), "passed_tlv", "M flag from a sender");
        for at in 16..44 {
            let mut random = tlv(&[]);
            let payload = random.len() - 44;
            random[payload + at] = 1;
            expect(&random, "passed_padding", "random padding of TWAMP Light");
        }
        let mut multicast = family.frame();
        multicast[0] |= 1;
        expect(&multicast, "passed_address", "to a multicast MAC");
        let mut multicast = family.frame();
        multicast[6] |= 1;
        expect(&multicast, "passed_address", "from a multicast MAC");
        let udp = family.payload_offset() - 8;
        for wrong in [-1i16, 1, 100, -44] {
            let mut frame = family.frame();
            let len = u16::from_be_bytes([frame[udp + 4], frame[udp + 5]]);
            frame[udp + 4..udp + 6].copy_from_slice(&len.wrapping_add_signed(wrong).to_be_bytes());
            expect(&frame, "passed_bad_length", "UDP length");
        }
        let mut arp = family.frame();
        arp[12..14].copy_from_slice(&[8, 6]);
        expect(&arp, "passed_other", "ARP");
    }

    let v4 = |source: &str, destination: &str| {
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        Request { source, destination, ..Request::v4() }.frame()
    };
    let ours = "198.51.100.2";
    for source in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", ours] {
        expect(&v4(source, ours), "passed_address", source);
    }
    for destination in ["0.0.0.0", "127.0.0.1", "239.1.2.3", "255.255.255.255"] {
        expect(&v4("192.0.2.1", destination), "passed_address", destination);
    }
    expect(&v4("192.0.2.1", "198.51.100.3"), "passed_not_local", "a forwarded packet");
    expect(&v4("198.51.100.255", ours), "passed_address", "from a broadcast address");
    expect(&v4("192.0.2.1", "198.51.100.255"), "passed_not_local", "to a broadcast address");
    let v6 = |source: &str, destination: &str| {
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        Request { source, destination, ..Request::v6() }.frame()
    };
    let ours = "2001:db8:2::2";
    for source in ["::", "::1", "ff02::1", "::ffff:192.0.2.1", ours] {
        expect(&v6(source, ours), "passed_address", source);
    }
    for destination in ["::", "::1", "ff02::1", "::ffff:198.51.100.2"] {
        expect(&v6("2001:db8:1::1", destination), "passed_address", destination);
    }
    expect(&v6("2001:db8:1::1", "2001:db8:3::1"), "passed_not_local", "a forwarded packet");
    expect(&v6("2001:db8:2::7", ours), "passed_address", "from another address of ours");

    let ip4 = |change: &dyn Fn(&mut [u8])| {
        let mut frame = Request::v4().frame();
        change(&mut frame[14..34]);
        frame[24..26].fill(0);
        let check = common::packet::internet_checksum(&[&frame[14..34]]);
        frame[24..26].copy_from_slice(&check.to_be_bytes());
        frame
    };
    expect(&ip4(&|h| h[6] = 0x20), "passed_fragment", "first fragment");
    expect(&ip4(&|h| h[7] = 5), "passed_fragment", "later fragment");
    expect(&ip4(&|h| h[9] = 6), "passed_other", "TCP");
    expect(&ip4(&|h| h[3] += 1), "passed_bad_length", "IPv4 length");
    expect(&ip4(&|h| h[2..4].fill(0)), "passed_bad_length", "IPv4 length 0");
    expect(&ip4(&|h| h[0] = 0x44), "passed_other", "header length 4");
    let mut bad = Request::v4().frame();
    bad[22] ^= 1;
    expect(&bad, "passed_bad_checksum", "IPv4 header checksum");
    let mut options = Request::v4().frame();
    options[14] = 0x46;
    options.splice(34..34, [1, 1, 1, 1]);
    expect(&options, "passed_ip_options", "IPv4 options");
    let mut none = Request::v6().frame();
    none[60..62].fill(0);
    expect(&none, "passed_bad_checksum", "IPv6 without UDP checksum");
    for next in [0, 43, 44, 60] {
        let mut extension = Request::v6().frame();
        extension[20] = next;
        expect(&extension, "passed_extension_header", "extension header");
    }
}

#[test]
fn truncated_frames_are_never_reflected() {
    if !privileged("truncated_frames_are_never_reflected") {
        return;
    }
    let r = load(|_| ());
    for family in [Request::v4(), Request::v6()] {
        for tags in [vec![], vec![(0x8100, 5)], vec![(0x88a8, 5), (0x8100, 6)]] {
            let mut request = Request { tags, ..family.clone() };
            request.payload.resize(104, 0);
            let frame = request.frame();
            assert!(frame.len() >= 146);
            // The kernel runs no program on less than an Ethernet header.
            for len in 14..frame.len() {
                let run = r.test_run(&frame[..len], 1).unwrap();
                assert_eq!(run.verdict, XDP_PASS, "{len} octets");
                assert_eq!(run.packet, frame[..len], "{len} octets");
            }
            let run = r.test_run(&frame, 1).unwrap();
            assert_eq!(run.verdict, XDP_TX);
            // What Ethernet adds after a short packet is none of ours.
            let run = r.test_run(&[&frame[..], &[0x77; 9]].concat(), 1).unwrap();
            assert_eq!((run.verdict, run.packet.len()), (XDP_TX, frame.len() + 9));
        }
    }
    assert_eq!(r.counters().unwrap().get("reflected"), 12);
}

#[test]
fn any_length_is_reflected_whole_or_not_at_all() {
    if !privileged("any_length_is_reflected_whole_or_not_at_all") {
        return;
    }
    let r = load(|c| c.stateful = false);
    for len in 0..=160 {
        let mut request = Request::v4();
        request.payload.resize(len, 0);
        if len == 44 || len >= 48 {
            assert_reflected(&r, &request, 7, &format!("{len} octets"));
        } else {
            let counter = if len < 44 { "passed_short" } else { "passed_tlv" };
            assert_verdict(&r, &request.frame(), XDP_PASS, counter, &format!("{len} octets"));
        }
    }
}

#[test]
fn only_allowed_sources_are_answered() {
    if !privileged("only_allowed_sources_are_answered") {
        return;
    }
    let allow = [("192.0.2.0".parse().unwrap(), 31), ("2001:db8:1::".parse().unwrap(), 48)];
    for stateful in [true, false] {
        let r = load(|c| (c.allow, c.stateful) = (&allow, stateful));
        let from = |source: &str| {
            let source: IpAddr = source.parse().unwrap();
            let family = if source.is_ipv4() { Request::v4() } else { Request::v6() };
            Request { source, ..family }.frame()
        };
        for source in ["192.0.2.1", "2001:db8:1::1"] {
            assert_eq!(r.test_run(&from(source), 1).unwrap().verdict, XDP_TX, "{source}");
        }
        for source in ["192.0.2.2", "2001:db8:2::7"] {
            assert_verdict(&r, &from(source), XDP_DROP, "dropped_denied", source);
        }
    }
}

#[test]
fn a_bucket_gives_its_burst_and_no_more() {
    if !privileged("a_bucket_gives_its_burst_and_no_more") {
        return;
    }
    // One token a second: what a slow run earns beyond the burst is counted in.
    for stateful in [true, false] {
        let r = load(|c| (c.rate_limit, c.stateful) = (Some((1, 5)), stateful));
        for family in [Request::v4(), Request::v6()] {
            let mut reflected = 0;
            let start = Instant::now();
            for port in 0..40 {
                // By source address: other ports share the bucket.
                let frame = Request { source_port: 2000 + port, ..family.clone() }.frame();
                reflected += u32::from(r.test_run(&frame, 1).unwrap().verdict == XDP_TX);
            }
            let earned = start.elapsed().as_secs() as u32 + 1;
            assert!((5..=5 + earned).contains(&reflected), "{reflected}");
        }
        let c = r.counters().unwrap();
        assert_eq!(c.get("reflected") + c.get("dropped_rate_limited"), 80);
    }
    // A fast bucket fills again.
    let r = load(|c| c.rate_limit = Some((10_000, 1)));
    let frame = Request::v4().frame();
    assert!(common::eventually(Duration::from_secs(5), || {
        r.test_run(&frame, 1).unwrap();
        r.counters().unwrap().get("reflected") >= 10
    }));
}

/// Whoever they are, so many requests pass, and no more.
#[test]
fn all_together_have_a_limit_of_their_own() {
    if !privileged("all_together_have_a_limit_of_their_own") {
        return;
    }
    // Slower than the test: a token takes a second to come.
    let r = load(|c| (c.rate_limit, c.total_limit) = (Some((1, 5)), Some((1, 12))));
    let start = Instant::now();
    for host in 0..10 {
        let source = IpAddr::from(Ipv4Addr::new(203, 0, 113, 1 + host));
        for _ in 0..5 {
            r.test_run(&Request { source, ..Request::v4() }.frame(), 1).unwrap();
        }
    }
    let earned = start.elapsed().as_secs() + 1;
    let c = r.counters().unwrap();
    assert!((12..=12 + earned).contains(&c.get("reflected")), "{c:?}");
    assert_eq!(c.get("reflected") + c.get("dropped_rate_all"), 50, "{c:?}");
}

/// Sources do not share a bucket: more of them than there is room for gain, and none loses.
#[test]
fn a_flood_of_sources_locks_nobody_out() {
    if !privileged("a_flood_of_sources_locks_nobody_out") {
        return;
    }
    let r = load(|c| (c.rate_limit, c.total_limit, c.stateful) = (Some((1, 2)), None, false));
    for i in 0..20_000u32 {
        let source = IpAddr::from(Ipv4Addr::from_bits(0x0b00_0000 + i));
        let run = r.test_run(&Request { source, ..Request::v4() }.frame(), 1).unwrap();
        assert_eq!(run.verdict, XDP_TX, "source {i}");
    }
}

/// twping and many routers ask from the reflector's own port.
#[test]
fn requests_from_the_reflectors_own_port_are_answered() {
    if !privileged("requests_from_the_reflectors_own_port_are_answered") {
        return;
    }
    let r = load(|_| ());
    for family in [Request::v4(), Request::v6()] {
        let request = Request { source_port: OUR_PORT, ..family };
        assert_reflected(&r, &request, 0, "equal ports");
        // Its reply, come back or from another reflector, goes up, where it is refused.
        let reply = r.test_run(&request.frame(), 1).unwrap().packet;
        let at = request.payload_offset();
        let back = Request { payload: reply[at..].to_vec(), ..request };
        assert_verdict(&r, &back.frame(), XDP_PASS, "passed_padding", "a reply");
    }
}

/// RFC 8762, section 4.3: a sender that begins anew from the same port is answered from 0.
#[test]
fn rfc8762_4_3_numbers_begin_anew_with_the_sender() {
    if !privileged("rfc8762_4_3_numbers_begin_anew_with_the_sender") {
        return;
    }
    let r = load(|_| ());
    for family in [Request::v4(), Request::v6()] {
        let ask = |n: u32, ms: u64, want: u32| {
            let mut request = family.clone();
            let t1 = (0xed00_3780u64 << 32) + ms * ((1 << 32) / 1000);
            request.payload[..4].copy_from_slice(&n.to_be_bytes());
            request.payload[4..12].copy_from_slice(&t1.to_be_bytes());
            assert_reflected(&r, &request, want, &format!("{n} at {ms} ms"));
        };
        for n in 0..10 {
            ask(n, u64::from(n) * 10, n);
        }
        ask(9, 90, 10);
        ask(0, 0, 11);
        for n in 0..10 {
            ask(n, 1000 + u64::from(n) * 10, n);
        }
        ask(2, 3000, 0);
    }
    assert_eq!(r.counters().unwrap().get("restarted_sessions"), 4);
}

#[test]
fn an_address_that_is_gone_is_not_answered() {
    if !privileged("an_address_that_is_gone_is_not_answered") {
        return;
    }
    let r = load(|_| ());
    assert_reflected(&r, &Request::v4(), 0, "before");
    r.update_local(&[("2001:db8:2::".parse().unwrap(), 64)], &[]).unwrap();
    assert_verdict(&r, &Request::v4().frame(), XDP_PASS, "passed_not_local", "gone");
    r.update_local(&LOCAL, &[]).unwrap();
    assert_reflected(&r, &Request::v4(), 1, "the session goes on");
    assert_reflected(&r, &Request::v4(), 2, "the session goes on");
}

#[test]
fn the_clock_setting_is_obeyed_at_once() {
    if !privileged("the_clock_setting_is_obeyed_at_once") {
        return;
    }
    let r = load(|_| ());
    let request = Request::v4();
    let at = request.payload_offset();
    for (offset, estimate, sent) in [(37, 0xffff, 0xbfff), (0, 0x0001, 0x0001), (-5, 0, 0)] {
        r.set_clock(offset, estimate);
        let before = ntp_now();
        let reply = r.test_run(&request.frame(), 1).unwrap().packet;
        assert_eq!(u16::from_be_bytes(field(&reply, at + 12)), sent);
        let t2 = u64::from_be_bytes(field(&reply, at + 16)) >> 32;
        let behind = (before >> 32) as i64 - t2 as i64;
        assert!((offset.into()..=i64::from(offset) + 1).contains(&(behind + 1)), "{behind}");
    }
}

#[test]
fn bad_settings_are_refused() {
    if !privileged("bad_settings_are_refused") {
        return;
    }
    let good =
        KernelReflectorConfig { max_sessions: 10, ..KernelReflectorConfig::new(OUR_PORT, &LOCAL) };
    for bad in [
        KernelReflectorConfig { port: 0, ..good },
        KernelReflectorConfig { max_sessions: 0, ..good },
        KernelReflectorConfig { rate_limit: Some((0, 1)), ..good },
        KernelReflectorConfig { rate_limit: Some((1, 0)), ..good },
        KernelReflectorConfig { total_limit: Some((0, 1)), ..good },
        KernelReflectorConfig { session_timeout_s: 0, ..good },
        KernelReflectorConfig { local: &[("1.2.3.4".parse().unwrap(), 40)], ..good },
    ] {
        assert!(matches!(KernelReflector::load(&bad), Err(BpfError::Config(_))), "{bad:?}");
    }
    let none = KernelReflector::attach(4_000_000, &good, AttachMode::Native);
    assert!(matches!(none, Err(BpfError::NoInterface(_))));
}

#[test]
fn reflects_on_a_real_device() {
    if !privileged("reflects_on_a_real_device") {
        return;
    }
    for (mode, mtu) in
        [(AttachMode::Native, 1500), (AttachMode::Native, 9000), (AttachMode::Generic, 1500)]
    {
        in_namespace(move || {
            let (a, b) = veth_pair(mtu);
            // What XDP_TX sends over veth is delivered at once only to a peer that runs
            // XDP itself: this tap matches nothing here.
            let tap = XskFilter { local_ports: &[1], peer_ports: &[], local: &[] };
            let _tap = XskProgram::attach(a, &tap, AttachMode::Native, false).unwrap();
            let config = KernelReflectorConfig {
                max_sessions: 100,
                ..KernelReflectorConfig::new(OUR_PORT, &LOCAL)
            };
            let reflector = KernelReflector::attach(b, &config, mode).unwrap();
            reflector.set_clock(0, ERROR);
            let socket = RawSocket::open(a);
            for family in [Request::v4(), Request::v6()] {
                let mut request = family;
                request.payload.resize(mtu as usize / 4, 0);
                let at = request.payload_offset();
                for seq in 0..3 {
                    socket.send(&request.frame());
                    let reply = socket
                        .receive(Duration::from_secs(5), |f| f.len() == request.frame().len())
                        .unwrap_or_else(|| panic!("{mode:?} {mtu}: {:?}", reflector.counters()));
                    let (t3, t2) = (field(&reply, at + 4), field(&reply, at + 16));
                    assert_eq!(reply, request.reply(seq, ERROR, t2, t3));
                }
            }
            drop(reflector);
            assert!(!ip(&["-j", "link", "show", "dev", "vb"]).contains("\"xdp\""));
        });
    }
}
