//! Application protocols over UDP.

use super::*;

/// A query with one question.
pub(super) fn query(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        message.push(label.len() as u8);
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend(kind.to_be_bytes());
    message.extend([0, 1]);
    message
}

/// Its answer, with a code and a number of records.
fn answer(query: &[u8], rcode: u8, records: u8) -> Vec<u8> {
    let mut message = query.to_vec();
    message[2] |= 0x80;
    message[3] |= rcode;
    message[7] = records;
    message
}

fn dns(name: &str, qtype: u16, rcode: Option<u8>, answers: u16, latency_ns: u64) -> App {
    App::Dns { name: name.into(), qtype, rcode, answers, latency_ns }
}

#[test]
fn dns_query_and_answer() {
    let asked = query(9, "www.Example.org", 1);
    let talk = Talk::udp(53).ask(&asked).answer(answer(&asked, 0, 3));
    let want = dns("www.Example.org", 1, Some(0), 3, MS as u64);
    assert_eq!(talk.run(), (Some(want.clone()), 2));
    // By content at another port, with EDNS too.
    let mut other = talk.clone();
    other.ports = [40_000, 5300];
    assert_eq!(other.app(), want);
    let mut edns = asked.clone();
    edns[11] = 1;
    edns.extend([0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0]);
    let talk = Talk::udp(5300).ask(&edns).answer(answer(&edns, 3, 0));
    assert_eq!(talk.app(), dns("www.Example.org", 1, Some(3), 0, MS as u64));
    // Answers to other queries, or from the same side, do not count.
    let wrong = answer(&query(8, "x", 1), 2, 0);
    let talk = Talk::udp(53).ask(&asked).answer(wrong).ask(answer(&asked, 5, 0));
    assert_eq!(talk.app(), dns("www.Example.org", 1, None, 0, 0));
    let talk = talk.answer(answer(&asked, 0, 1));
    assert_eq!(talk.app(), dns("www.Example.org", 1, Some(0), 1, 3 * MS as u64));
    // The answer alone; the root.
    assert_eq!(
        Talk::udp(53).answer(answer(&query(1, "", 2), 0, 13)).app(),
        dns("", 2, Some(0), 13, 0)
    );
}

#[test]
fn multicast_dns() {
    // An announcement: no question, one answer whose name is compressed.
    let mut message = vec![0, 0, 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    message.extend([4, b'_', b'i', b'p', b'p', 0xC0, 19, 5, b'l', b'o', b'c', b'a', b'l', 0]);
    let pointer_at = 12 + 5;
    message[pointer_at + 1] = 12;
    // It may lead back only: to the label before, which would go round for ever.
    message.extend([0, 12, 0x80, 1, 0, 0, 0, 120, 0, 0]);
    assert_eq!(Talk::udp(5353).ask(&message).run().0, None);
    let mut message = vec![0, 0, 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    message.extend([4, b'h', b'o', b's', b't', 5, b'l', b'o', b'c', b'a', b'l', 0]);
    message.extend([0, 1, 0x80, 1, 0, 0, 0, 120, 0, 4, 10, 0, 0, 1]);
    assert_eq!(Talk::udp(5353).ask(&message).app(), dns("host.local", 1, Some(0), 1, 0));
}

#[test]
fn dns_names_are_bounded_and_harmless() {
    let label = "l".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", &label[..61]);
    assert_eq!(longest.len(), 253);
    assert_eq!(Talk::udp(53).ask(query(1, &longest, 1)).app(), dns(&longest, 1, None, 0, 0));
    let longer = format!("{longest}l");
    assert_eq!(Talk::udp(53).ask(query(1, &longer, 1)).run().0, None);
    let odd = dns("a\u{FFFD}[1m", 1, None, 0, 0);
    assert_eq!(Talk::udp(53).ask(query(1, "a\x1B[1m", 1)).app(), odd);
    // Reserved label types, pointers to themselves and forward, a name without an end.
    for bytes in [&[0x40, 0][..], &[0x80, 0], &[0xC0, 12], &[0xC0, 20], &[3, b'a', b'b']] {
        let mut message = query(1, "", 1)[..12].to_vec();
        message.extend(bytes);
        assert_eq!(Talk::udp(53).ask(&message).run().0, None, "{bytes:x?}");
    }
    // Opcodes that nobody has defined, and random octets, are none.
    let mut odd = query(1, "a", 1);
    odd[2] = 7 << 3;
    assert_eq!(Talk::udp(53).ask(&odd).run().0, None);
    assert_eq!(Talk::udp(4000).ask([0x5A; 100]).run().0, None);
}

/// RFC 1996 and RFC 2136: the zone stands where a query has its question.
#[test]
fn dns_notifications_and_updates() {
    const SOA: u16 = 6;
    for opcode in [4, 5] {
        let mut asked = query(0x1234, "example.org", SOA);
        asked[2] = opcode << 3;
        let mut response = asked.clone();
        response[2] |= 0x80;
        let talk = Talk::udp(53).ask(&asked);
        assert_eq!(talk.app(), dns("example.org", SOA, None, 0, 0), "{opcode}");
        let whole = talk.clone().answer(&response);
        assert_eq!(whole.run(), (Some(dns("example.org", SOA, Some(0), 0, MS as u64)), 2));
        // The answer to an update may be a header alone (RFC 2136, section 3.8).
        let mut header = response[..12].to_vec();
        header[3] = 5;
        header[4..].fill(0);
        assert_eq!(talk.answer(&header).app(), dns("example.org", SOA, Some(5), 0, MS as u64));
        let framed = [&[0, asked.len() as u8][..], &asked].concat();
        assert_eq!(Talk::tcp(53).ask(&framed).app(), dns("example.org", SOA, None, 0, 0));
        // Elsewhere than at a port of DNS its form says too little.
        assert_eq!(Talk::udp(5300).ask(&asked).run().0, None);
    }
}

/// A question is not repeated in some errors, and not asked by who wants a cookie only
/// (RFC 7873, section 5.4).
#[test]
fn dns_without_a_question() {
    let mut refused = vec![0, 9, 0x81, 0x85, 0, 0, 0, 0, 0, 0, 0, 0];
    let talk = Talk::udp(53).ask(query(9, "www.example.org", 28)).answer(&refused);
    assert_eq!(talk.app(), dns("www.example.org", 28, Some(5), 0, MS as u64));
    assert_eq!(Talk::udp(53).answer(&refused).app(), dns("", 0, Some(5), 0, 0));
    let mut cookie = vec![0, 9, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    cookie.extend([0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 12, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
    let mut answer = cookie.clone();
    answer[2] = 0x81;
    let talk = Talk::udp(53).ask(&cookie).answer(&answer);
    assert_eq!(talk.app(), dns("", 0, Some(0), 0, MS as u64));
    // Something else that begins with such octets is none.
    refused.extend([1, 2, 3, 4]);
    assert_eq!(Talk::udp(53).ask(&refused).run().0, None);
}

/// RFC 1002, section 4.2: the same form, other names, types and meanings.
#[test]
fn netbios_is_not_dns() {
    const NAME: &str = "CKAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let status = query(0x8001, NAME, 33);
    let mut broadcast = query(0x8002, NAME, 32);
    broadcast[3] = 0x10;
    for message in [&status, &broadcast] {
        for port in [137, 4000] {
            assert_eq!(Talk::udp(port).ask(message).run().0, None, "{port}");
            assert_eq!(Talk::udp(port).answer(answer(message, 0, 1)).run().0, None, "{port}");
        }
    }
    // A service of DNS (RFC 2782) has the same type.
    let service = query(1, "_sip._udp.example.org", 33);
    let want = dns("_sip._udp.example.org", 33, None, 0, 0);
    assert_eq!(Talk::udp(5300).ask(&service).app(), want);
}

/// A packet of NTP: version, mode, stratum.
fn ntp(version: u8, mode: u8, stratum: u8) -> Vec<u8> {
    let mut packet = vec![0; 48];
    packet[0] = version << 3 | mode;
    packet[1] = stratum;
    packet[40] = 0xE9;
    packet
}

#[test]
fn ntp_request_and_answer() {
    let want = |mode, stratum| App::Ntp { version: 4, mode, stratum };
    let talk = Talk::udp(123).ask(ntp(4, 3, 0)).answer(ntp(4, 4, 2)).ask(ntp(4, 3, 0));
    assert_eq!(talk.run(), (Some(want(3, 2)), 2));
    assert_eq!(Talk::udp(123).ask(ntp(4, 3, 0)).app(), want(3, 0));
    assert_eq!(Talk::udp(123).ask(ntp(4, 5, 1)).run(), (Some(want(5, 1)), 1));
    // At another port only a plain client's; and nothing that makes no sense.
    assert_eq!(Talk::udp(1230).ask(ntp(4, 3, 0)).app(), want(3, 0));
    assert_eq!(Talk::udp(1230).ask(ntp(4, 4, 2)).run().0, None);
    for packet in [ntp(0, 3, 0), ntp(5, 3, 0), ntp(4, 0, 0), ntp(4, 7, 0), ntp(4, 4, 17)] {
        assert_eq!(Talk::udp(123).ask(packet).run().0, None);
    }
    assert_eq!(Talk::udp(123).ask(&ntp(4, 3, 0)[..47]).run().0, None);
}

pub(super) const INVITE: &str = "INVITE sip:bob@biloxi.example SIP/2.0\r\n\
    Via: SIP/2.0/UDP pc33.example;branch=z9\r\n\
    f: \"Alice \\\"<x>\" <sip:alice@atlanta.example>;tag=19\r\n\
    To: sip:bob@biloxi.example;user=phone\r\n\
    i: a84b4c76e66710@pc33\r\n\
    CSeq: 314159 INVITE\r\n\
    Content-Length: 0\r\n\r\n";
pub(super) const BUSY: &str = "SIP/2.0 486 Busy Here\r\n\
    Call-ID: a84b4c76e66710@pc33\r\n\
    From: <sip:alice@atlanta.example>;tag=19\r\n\
    To: <sip:bob@biloxi.example>;tag=a6\r\n\
    CSeq: 314159 INVITE\r\n\r\n";

fn sip(status: u16) -> App {
    App::Sip {
        method: "INVITE".into(),
        call_id: "a84b4c76e66710@pc33".into(),
        from: "sip:alice@atlanta.example".into(),
        to: "sip:bob@biloxi.example".into(),
        status,
    }
}

#[test]
fn sip_request_and_answers() {
    let trying = BUSY.replace("486 Busy Here", "100 Trying");
    let talk = Talk::udp(5060).ask(INVITE);
    assert_eq!(talk.app(), sip(0));
    let talk = talk.answer(&trying).answer(BUSY).ask("ACK sip:bob@biloxi.example SIP/2.0\r\n\r\n");
    assert_eq!(talk.run(), (Some(sip(486)), 3));
    assert_eq!(Talk::udp(5060).ask(INVITE).answer(&trying).app(), sip(100));
    // The answer alone repeats what was asked; cut off, the fields before.
    assert_eq!(Talk::udp(5060).answer(BUSY).app(), sip(486));
    let App::Sip { call_id, from, to, .. } = Talk::udp(9).ask(INVITE).trim(150).app() else {
        panic!()
    };
    assert_eq!(
        (from.as_str(), to.as_str(), call_id.as_str()),
        ("sip:alice@atlanta.example", "", "")
    );
    for other in ["OPTIONS * HTTP/1.1\r\n\r\n", "INVITE\r\n", "invite sip:x SIP/2.0\r\n\r\n", ""] {
        assert_eq!(Talk::udp(5060).ask(other).run().0, None, "{other}");
    }
}

/// A DHCP message with options.
fn dhcp(op: u8, options: &[(u8, &[u8])]) -> Vec<u8> {
    let mut message = vec![0; 236];
    message[..3].copy_from_slice(&[op, 1, 6]);
    message[28..34].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    message.extend([0x63, 0x82, 0x53, 0x63]);
    for (option, value) in options {
        message.extend([*option, value.len() as u8]);
        message.extend(*value);
    }
    message.push(255);
    message
}

#[test]
fn dhcp_exchange() {
    let want = |message| App::Dhcp {
        message,
        client_mac: [2, 0, 0, 0, 0, 9],
        host_name: "laptop".into(),
        vendor: "MSFT 5.0".into(),
    };
    let options = |kind: &'static [u8]| -> [(u8, &'static [u8]); 3] {
        [(53, kind), (12, b"laptop"), (60, b"MSFT 5.0")]
    };
    let mut talk = Talk::udp(67).ask(dhcp(1, &options(&[1])));
    assert_eq!(talk.app(), want(1));
    talk = talk.answer(dhcp(2, &[(53, &[2])])).ask(dhcp(1, &options(&[3])));
    assert_eq!(talk.app(), want(3));
    talk = talk.answer(dhcp(2, &[(53, &[5])])).ask("x");
    assert_eq!(talk.run(), (Some(want(5)), 4));
    // Padding, an option that is longer than the rest, and a message without the cookie.
    let mut odd = dhcp(1, &[(53, &[1])]);
    odd.pop();
    odd.extend([0, 0, 12, 200, b'x']);
    let found = Talk::udp(67).ask(&odd).app();
    assert!(matches!(&found, App::Dhcp { message: 1, host_name, .. } if host_name.is_empty()));
    odd[236] = 0;
    assert_eq!(Talk::udp(67).ask(&odd).run().0, None);
}

#[test]
fn unknown_datagrams_are_given_up() {
    let mut talk = Talk::udp(9999);
    for _ in 0..10 {
        talk = talk.ask([0x80; 40]);
    }
    assert_eq!(talk.run(), (None, 2));
}
