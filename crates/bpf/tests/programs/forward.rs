//! The router in XDP as a function: a frame in, a verdict and the frame out, by the routes of
//! a namespace made for it.

use crate::common;
use crate::common::packet::Request;
use crate::common::{in_namespace, index, ip, privileged, veth_pair};
use sonde_bpf::{ForwardCounters, ForwardPort, Forwarder};

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
/// A test run arrives at the loopback interface; `Request` is addressed to this.
const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const NEXT_HOP: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// Runs `work` with a router that reaches the requests' destinations by `vb`.
fn with_router(work: impl FnOnce(&Forwarder) + Send + 'static) {
    in_namespace(|| {
        let (_, out) = veth_pair(1500);
        ip(&["link", "set", "lo", "up"]);
        std::fs::write("/proc/sys/net/ipv6/conf/vb/disable_ipv6", "0").unwrap();
        for (file, value) in [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")] {
            std::fs::write(format!("/proc/sys/net/{file}"), value).unwrap();
        }
        let lladdr = "02:00:00:00:00:09";
        for (address, hop, network, refused) in [
            ("203.0.113.1/24", "203.0.113.2", "198.51.100.0/24", "198.18.0.0/24"),
            ("2001:db8:9::1/64", "2001:db8:9::2", "2001:db8:2::/48", "2001:2::/64"),
        ] {
            ip(&["addr", "add", address, "dev", "vb"]);
            ip(&["neigh", "add", hop, "lladdr", lladdr, "dev", "vb", "nud", "permanent"]);
            ip(&["route", "add", network, "via", hop]);
            ip(&["route", "add", "blackhole", refused]);
        }
        let ports =
            [ForwardPort { ifindex: 1, mac: OUR_MAC }, ForwardPort { ifindex: out, mac: [2; 6] }];
        work(&Forwarder::load(ports).unwrap());
    });
}

#[test]
fn a_frame_is_sent_to_the_next_hop_with_one_hop_less() {
    if !privileged("a_frame_is_sent_to_the_next_hop_with_one_hop_less") {
        return;
    }
    with_router(|router| {
        for (request, ttl_at) in [(Request::v4(), 22), (Request::v6(), 21)] {
            let frame = request.frame();
            let run = router.test_run(&frame).unwrap();
            assert_eq!(run.verdict, XDP_REDIRECT);
            let mut expected = frame.clone();
            expected[..6].copy_from_slice(&NEXT_HOP);
            expected[6..12].copy_from_slice(&run.packet[6..12]);
            assert_eq!(mac_of("vb"), run.packet[6..12]);
            expected[ttl_at] -= 1;
            if request.source.is_ipv4() {
                expected[24..26].fill(0);
                let sum = checksum(&expected[14..34]);
                expected[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            assert_eq!(run.packet, expected);
        }
        let counters = router.counters().unwrap();
        assert_eq!(counters, ForwardCounters { forwarded: 2, ..Default::default() });
    });
}

#[test]
fn every_header_checksum_stays_right() {
    if !privileged("every_header_checksum_stays_right") {
        return;
    }
    // The sum wraps where its high octet is 0xff: identifications reach all of them.
    with_router(|router| {
        for id in (0..=u16::MAX).step_by(97) {
            let mut frame = Request::v4().frame();
            frame[18..20].copy_from_slice(&id.to_be_bytes());
            frame[24..26].fill(0);
            let sum = checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            let run = router.test_run(&frame).unwrap();
            assert_eq!(run.verdict, XDP_REDIRECT);
            assert_eq!(checksum(&run.packet[14..34]), 0, "identification {id}");
        }
    });
}

#[test]
fn the_kernel_gets_what_a_fast_path_cannot_do_and_the_rest_is_dropped() {
    if !privileged("the_kernel_gets_what_a_fast_path_cannot_do_and_the_rest_is_dropped") {
        return;
    }
    with_router(|router| {
        let mut cases: Vec<(&str, Vec<u8>, u32)> = Vec::new();
        for request in [Request::v4(), Request::v6()] {
            let to = |text: &str| Request { destination: text.parse().unwrap(), ..request.clone() };
            let [own, unresolved, refused, nowhere] = match request.source.is_ipv4() {
                true => ["203.0.113.1", "203.0.113.77", "198.18.0.1", "192.88.99.1"],
                false => ["2001:db8:9::1", "2001:db8:9::77", "2001:2::1", "2001:db8:77::1"],
            };
            cases.push(("for this host", to(own).frame(), XDP_PASS));
            cases.push(("next hop unresolved", to(unresolved).frame(), XDP_PASS));
            cases.push(("refused", to(refused).frame(), XDP_DROP));
            cases.push(("no route", to(nowhere).frame(), XDP_PASS));
            cases.push(("no hop left", Request { ttl: 1, ..request.clone() }.frame(), XDP_PASS));
            let tags = vec![(0x8100, 5)];
            cases.push(("a tag", Request { tags, ..request.clone() }.frame(), XDP_PASS));
            let mut other = request.frame();
            other[5] ^= 1;
            cases.push(("another's MAC address", other, XDP_PASS));
            let mut version = request.frame();
            version[14] = 0x75;
            cases.push(("another version", version, XDP_DROP));
        }
        let mut sum = Request::v4().frame();
        sum[24] ^= 1;
        cases.push(("a wrong header checksum", sum, XDP_DROP));
        let mut options = Request::v4().frame();
        options[14] = 0x46;
        cases.push(("options", options, XDP_PASS));
        let mut length = Request::v4().frame();
        length[16..18].fill(0);
        cases.push(("a length of 0", length, XDP_DROP));
        cases.push(("not IP", [&OUR_MAC[..], &[0; 60]].concat(), XDP_PASS));
        for (what, frame, verdict) in &cases {
            let run = router.test_run(frame).unwrap();
            assert_eq!(run.verdict, *verdict, "{what}");
            assert_eq!(&run.packet, frame, "{what}: changed");
        }
        let count = |verdict| cases.iter().filter(|c| c.2 == verdict).count() as u64;
        let counters = router.counters().unwrap();
        assert_eq!(counters.to_kernel, count(XDP_PASS));
        assert_eq!(counters.malformed + counters.refused, count(XDP_DROP));
        assert_eq!(counters.refused, 2);
    });
}

/// A router must not forward what is shorter than its header says (RFC 1812, section 5.2.2).
#[test]
fn a_frame_cut_short_anywhere_is_dropped_and_a_padded_one_is_not() {
    if !privileged("a_frame_cut_short_anywhere_is_dropped_and_a_padded_one_is_not") {
        return;
    }
    with_router(|router| {
        for frame in [Request::v4().frame(), Request::v6().frame()] {
            for length in 14..frame.len() {
                let run = router.test_run(&frame[..length]).unwrap();
                assert_eq!(run.verdict, XDP_DROP, "{length} octets");
            }
            let padded = [&frame[..], &[0; 9]].concat();
            for whole in [&frame, &padded] {
                assert_eq!(router.test_run(whole).unwrap().verdict, XDP_REDIRECT);
            }
        }
    });
}

#[test]
fn it_is_attached_to_both_ports_and_gone_when_dropped() {
    if !privileged("it_is_attached_to_both_ports_and_gone_when_dropped") {
        return;
    }
    in_namespace(|| {
        let (a, b) = veth_pair(1500);
        let port = |ifindex| ForwardPort { ifindex, mac: OUR_MAC };
        let router = Forwarder::attach([port(a), port(b)]).unwrap();
        assert!(common::xdp_attached("va") && common::xdp_attached("vb"));
        drop(router);
        common::assert_detached("va");
        common::assert_detached("vb");
        let none = Forwarder::attach([port(a), port(9999)]).unwrap_err();
        assert!(matches!(none, sonde_bpf::BpfError::NoInterface(9999)), "{none}");
        common::assert_detached("va");
        assert_eq!(index("va"), a);
    });
}

fn mac_of(interface: &str) -> [u8; 6] {
    let text = ip(&["link", "show", "dev", interface]);
    let mac = text.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap();
    let bytes: Vec<u8> = mac.split(':').map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

/// RFC 1071.
fn checksum(header: &[u8]) -> u16 {
    let words = header.as_chunks::<2>().0;
    let sum: u32 = words.iter().map(|w| u32::from(u16::from_be_bytes(*w))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !(((sum & 0xffff) + (sum >> 16)) as u16)
}
