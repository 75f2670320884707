use serde_json::json;
use sonde_wire::{checksum, parse_udp};

use super::*;

fn allowed() -> Allowed {
    Allowed { prefixes: BENCHMARK_PREFIXES.to_vec(), types: Vec::new() }
}

fn flow(packet: serde_json::Value, metrics: bool) -> Flow {
    let flow = json!({
        "name": "f", "tx_rx": { "port": { "tx_name": "a" } },
        "packet": packet, "metrics": { "enable": metrics },
    });
    serde_json::from_value(flow).unwrap()
}

fn frames(packet: serde_json::Value, octets: usize) -> Result<FrameTemplate, Vec<String>> {
    FrameTemplate::new(&flow(packet, true), octets, octets, &allowed(), None)
}

fn nth(frames: &FrameTemplate, n: u64, octets: usize) -> Vec<u8> {
    let secret = Secret([1, 2]);
    let signature = signature::Repr { trial: 1, stream: 2, sequence: n as u32, sent: 4 };
    let mut frame = vec![0xee; octets];
    frames.write(n, &mut frame, Some((&signature, &secret)));
    assert_eq!(signature::Repr::parse(&frame, octets, &secret), Ok(signature));
    frame
}

fn v4(choice: serde_json::Value) -> serde_json::Value {
    let mut ip = json!({
        "src": { "value": "198.18.0.1" }, "dst": { "value": "198.19.0.1" },
    });
    ip.as_object_mut().unwrap().extend(choice.as_object().unwrap().clone());
    json!({ "choice": "ipv4", "ipv4": ip })
}

fn ethernet() -> serde_json::Value {
    json!({ "choice": "ethernet", "ethernet": {
        "src": { "value": "02:00:00:00:00:01" }, "dst": { "value": "02:00:00:00:00:02" } } })
}

fn typed(value: u16) -> serde_json::Value {
    json!({ "choice": "ethernet", "ethernet": { "ether_type": { "value": value } } })
}

#[test]
fn a_type_that_the_user_names_is_sent() {
    let allowed = Allowed { types: vec![0x0806, ethertype::MPLS], ..allowed() };
    let labels = json!([ethernet(), { "choice": "mpls" }]);
    for packet in [json!([typed(0x0806)]), labels] {
        let frames = FrameTemplate::new(&flow(packet, true), 60, 60, &allowed, None).unwrap();
        assert_ne!(nth(&frames, 0, 60)[12..14], [255, 255]);
    }
}

#[test]
fn a_frame_in_vxlan_has_lengths_and_checksums_of_its_own() {
    let packet = json!([
        ethernet(),
        { "choice": "ipv6", "ipv6": {
            "src": { "value": "2001:2::1" }, "dst": { "value": "2001:2::2" } } },
        { "choice": "udp", "udp": { "dst_port": { "value": 4789 } } },
        { "choice": "vxlan", "vxlan": { "vni": { "choice": "values", "values": [1000, 1001] } } },
        ethernet(), v4(json!({})), { "choice": "tcp" },
    ]);
    let frames = frames(packet, 252).unwrap();
    for n in 0..3 {
        let frame = nth(&frames, n, 252);
        assert_eq!((&frame[18..20], &frame[58..60]), (&[0, 198][..], &[0, 198][..]));
        assert_eq!(frame[62..70], [8, 0, 0, 0, 0, 3, 0xe8 + (n % 2) as u8, 0]);
        assert_eq!((&frame[82..84], &frame[86..88]), (&[8, 0][..], &[0, 168][..]));
        let outer = parse_udp(&frame).unwrap();
        let pseudo = checksum::pseudo(outer.source, outer.destination, 17, 198).unwrap();
        assert_eq!(checksum::combine(pseudo, checksum::sum(&frame[54..])), 0xffff);
        let (s, d) = ("198.18.0.1".parse().unwrap(), "198.19.0.1".parse().unwrap());
        let pseudo = checksum::pseudo(s, d, 6, 148).unwrap();
        assert_eq!(checksum::combine(pseudo, checksum::sum(&frame[104..])), 0xffff);
    }
}

#[test]
fn a_udp_frame_is_one_that_another_parser_reads() {
    let src = json!({ "src": { "choice": "increment", "increment": { "start": "198.18.0.1", "count": 3 } } });
    let packet = json!([
        ethernet(), v4(src),
        { "choice": "udp", "udp": { "src_port": { "choice": "values", "values": [7, 8] }, "dst_port": { "value": 9 } } },
    ]);
    let frames = frames(packet, 60).unwrap();
    for n in 0..6 {
        let frame = nth(&frames, n, 60);
        let udp = parse_udp(&frame).unwrap();
        assert_eq!(udp.source.to_string(), format!("198.18.0.{}", 1 + n % 3));
        assert_eq!((udp.source_port, udp.destination_port), (7 + (n % 2) as u16, 9));
        assert_eq!(checksum::finish(checksum::sum(&frame[14..34])), 0);
        // Over pseudo-header and datagram, the checksum included, the sum is all ones.
        let pseudo = checksum::pseudo(udp.source, udp.destination, 17, 26).unwrap();
        assert_eq!(checksum::combine(pseudo, checksum::sum(&frame[34..])), 0xffff);
        assert_eq!((&frame[16..18], &frame[38..40]), (&[0, 46][..], &[0, 26][..]));
    }
}

#[test]
fn tags_labels_tcp_and_ipv6_announce_each_other() {
    let packet = json!([
        ethernet(),
        { "choice": "vlan", "vlan": { "id": { "value": 5 }, "priority": { "value": 3 } } },
        { "choice": "vlan", "vlan": { "id": { "value": 4094 } } },
        { "choice": "ipv6", "ipv6": {
            "src": { "value": "2001:2::1" }, "dst": { "value": "2001:2::2" }, "flow_label": { "value": 0xabcde } } },
        { "choice": "tcp", "tcp": { "ctl_syn": { "value": 1 }, "seq_num": { "value": 0x01020304 } } },
    ]);
    let frame = nth(&frames(packet, 120).unwrap(), 0, 120);
    assert_eq!(frame[12..22], [0x81, 0, 0x60, 5, 0x81, 0, 0x0f, 0xfe, 0x86, 0xdd]);
    assert_eq!(frame[22..30], [0x60, 0x0a, 0xbc, 0xde, 0, 58, 6, 64]);
    let tcp = &frame[62..];
    assert_eq!((&tcp[4..8], tcp[12], tcp[13]), (&[1, 2, 3, 4][..], 0x50, 2));
    let (s, d) = ("2001:2::1".parse().unwrap(), "2001:2::2".parse().unwrap());
    let pseudo = checksum::pseudo(s, d, 6, 58).unwrap();
    assert_eq!(checksum::combine(pseudo, checksum::sum(tcp)), 0xffff);

    let label = |label: u32| json!({ "choice": "mpls", "mpls": { "label": { "value": label } } });
    let packet = json!([ethernet(), label(16), label(17), v4(json!({}))]);
    let frame = nth(&frames(packet, 80).unwrap(), 0, 80);
    assert_eq!(frame[12..22], [0x88, 0x47, 0, 1, 0, 64, 0, 1, 0x11, 64]);
    assert_eq!(frame[22 + 9], 61);
}

#[test]
fn what_the_client_sets_stays_and_what_is_to_be_wrong_is_wrong() {
    let packet = json!([
        ethernet(),
        v4(json!({
            "priority": { "choice": "dscp", "dscp": { "phb": { "value": 46 }, "ecn": { "value": 1 } } },
            "total_length": { "choice": "value", "value": 99 },
            "header_checksum": { "choice": "generated", "generated": "bad" },
        })),
        { "choice": "udp", "udp": {
            "length": { "value": 5 }, "checksum": { "choice": "custom", "custom": 0 } } },
        { "choice": "custom", "custom": { "bytes": "0xde:ad be ef" } },
    ]);
    let frame = nth(&frames(packet, 80).unwrap(), 0, 80);
    assert_eq!((frame[15], &frame[16..18]), (46 << 2 | 1, &[0, 99][..]));
    assert_ne!(checksum::finish(checksum::sum(&frame[14..34])), 0);
    assert_eq!(
        (&frame[38..42], &frame[42..46]),
        (&[0, 5, 0, 0][..], &[0xde, 0xad, 0xbe, 0xef][..])
    );
}

#[test]
fn payloads_fill_what_is_left() {
    for (payload, want) in [
        (json!({ "choice": "increment_byte" }), [0, 1, 2, 3]),
        (json!({ "choice": "decrement_byte" }), [255, 254, 253, 252]),
        (json!({ "choice": "increment_word" }), [0, 0, 0, 1]),
        (json!({ "choice": "decrement_word" }), [255, 255, 255, 254]),
        (json!({ "fixed": { "pattern": "abc0" } }), [0xab, 0xc0, 0xab, 0xc0]),
        (json!({ "fixed": { "pattern": "ab", "repeat": false } }), [0xab, 0, 0, 0]),
    ] {
        let mut flow = flow(json!([ethernet()]), false);
        flow.payload = serde_json::from_value(payload).unwrap();
        let frames = FrameTemplate::new(&flow, 60, 1514, &allowed(), None).unwrap();
        let mut frame = [0; 60];
        frames.write(0, &mut frame, None);
        assert_eq!((&frame[12..14], &frame[14..18]), (&[255, 255][..], &want[..]));
    }
}

#[test]
fn what_cannot_be_sent_is_named_with_its_path() {
    let address = |a: &str| v4(json!({ "dst": { "value": a } }));
    let udp = json!({ "choice": "udp" });
    for (packet, octets, part) in [
        (json!([v4(json!({}))]), 60, "packet[0]: the first header"),
        (json!([ethernet(), ethernet()]), 60, "packet[1]: the first header"),
        (json!([ethernet(), address("10.0.0.1")]), 60, "packet[1].ipv4.dst: outside 198.18.0.0/15"),
        (json!([ethernet(), { "choice": "ipv4" }]), 60, "packet[1].ipv4.src: outside"),
        (json!([ethernet(), { "choice": "ipv6" }]), 90, "packet[1].ipv6.dst: outside 2001:2::/48"),
        (
            json!([ethernet(), v4(json!({ "time_to_live": { "value": 256 } }))]),
            60,
            "ipv4.time_to_live: 256",
        ),
        (
            json!([ethernet(), v4(json!({})), { "choice": "tcp" }]),
            60,
            "size: 64 octets with the FCS are too few",
        ),
        (
            json!([ethernet(), { "choice": "vxlan" }, ethernet()]),
            60,
            "packet[1]: vxlan stands behind udp",
        ),
        (
            json!([ethernet(), v4(json!({})), { "choice": "udp" }, { "choice": "vxlan" },
                   ethernet(), address("10.0.0.1")]),
            120,
            "packet[5].ipv4.dst: outside",
        ),
        (json!([typed(0x0806)]), 60, "packet[0].ethernet.ether_type: 0x0806 announces"),
        // An IP packet of the client's own, as the payload; a header under another's name.
        (json!([typed(0x0800)]), 60, "ether_type: 0x0800"),
        (json!([typed(0x86dd), v4(json!({}))]), 60, "--allow-ethertype ipv6"),
        (
            json!([ethernet(), { "choice": "vlan", "vlan": { "tpid": { "value": 0x88cc } } }]),
            60,
            "packet[1].vlan.tpid: 0x88cc",
        ),
        (json!([ethernet(), { "choice": "mpls" }]), 60, "packet[1].mpls: behind the last label"),
        (
            json!([ethernet(), { "choice": "mpls", "mpls": { "bottom_of_stack": { "value": 0 } } },
                   v4(json!({}))]),
            60,
            "packet[1].mpls.bottom_of_stack: is 1 here",
        ),
        (json!([ethernet(), udp]), 60, "packet[1].udp.checksum: there is no IP header"),
        (
            json!([ethernet(), { "choice": "custom", "custom": { "bytes": "00" } }]),
            60,
            "behind an IP header",
        ),
        (
            json!([ethernet(), v4(json!({})), { "choice": "custom", "custom": { "bytes": "0g" } }]),
            80,
            "hexadecimal",
        ),
    ] {
        let errors = frames(packet.clone(), octets).unwrap_err();
        assert!(errors.iter().any(|e| e.contains(part)), "{packet}: {errors:?}");
    }
    // Without metrics there is no signature that needs room.
    let flow = flow(json!([ethernet(), v4(json!({})), { "choice": "tcp" }]), false);
    assert!(FrameTemplate::new(&flow, 60, 60, &allowed(), None).is_ok());
}

#[test]
fn flows_between_devices_have_their_addresses_and_the_gateways_mac_once_it_is_known() {
    let next_hop = Arc::new(FlowNextHop::default());
    let ends = FlowEndpoints {
        mac: [2, 0, 0, 0, 0, 7],
        source: [198, 18, 0, 2].into(),
        destination: [198, 19, 0, 2].into(),
        next_hop: Arc::clone(&next_hop),
    };
    let of = |ethernet: serde_json::Value, ipv4: serde_json::Value| {
        let packet = json!([
            { "choice": "ethernet", "ethernet": ethernet }, { "choice": "ipv4", "ipv4": ipv4 }
        ]);
        FrameTemplate::new(&flow(packet, true), 60, 60, &allowed(), Some(&ends)).unwrap()
    };
    let auto = of(json!({ "dst": { "choice": "auto" } }), json!({}));
    assert!(auto.unresolved() && nth(&auto, 0, 60)[..6] == [0; 6]);
    next_hop.learn([2, 0, 0, 0, 0, 9]);
    let frame = nth(&auto, 0, 60);
    assert!(!auto.unresolved());
    assert_eq!(frame[..12], [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 7]);
    assert_eq!(frame[26..34], [198, 18, 0, 2, 198, 19, 0, 2]);
    // What the client says holds.
    let given = of(
        json!({ "dst": { "value": "02:00:00:00:00:01" } }),
        json!({ "dst": { "value": "198.19.0.99" } }),
    );
    let frame = nth(&given, 0, 60);
    assert_eq!((frame[5], &frame[26..34]), (1, &[198, 18, 0, 2, 198, 19, 0, 99][..]));
}
