//! RFC 9001, appendix A, and RFC 9369, appendix A: their packets, made and read. Then
//! hellos cut and spread as browsers do it.

use ring::aead::quic::HeaderProtectionKey;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey, quic::AES_128};
use sonde_results::flow::TlsInfo;
use sonde_wire::quic::{VERSION_1, VERSION_2};

use super::super::initial::InitialKeys;
use super::tls::browser;
use super::*;

const IDENTIFIER: [u8; 8] = [0x83, 0x94, 0xC8, 0xF0, 0x3E, 0x51, 0x57, 0x08];

/// Key, initialisation vector and header key of the client (appendix A.1 of both).
const KEYS_1: [&str; 3] = [
    "1f369613dd76d5467730efcbe3b1a22d",
    "fa044b2f42a3fd3b46fb255c",
    "9f50449e04a0e810283a1e9933adedd2",
];
const KEYS_2: [&str; 3] = [
    "8b1a0bc121284290a29e0971b5cd045d",
    "91f73e2351d8fa91660e909f",
    "45b95e15235d6f45a6b19cbcb0294ba9",
];

/// The CRYPTO frame of appendix A.2, the same in both.
const HELLO_FRAME: &str = "
    060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e868
    04fe3a47f06a2b69484c00000413011302010000c000000010000e00000b6578
    616d706c652e636f6dff01000100000a00080006001d00170018001000070005
    04616c706e000500050100000000003300260024001d00209370b2c9caa47fba
    baf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b000302030400
    0d0010000e0403050306030203080408050806002d00020101001c0002400100
    3900320408ffffffffffffffff05048000ffff07048000ffff08011001048000
    75300901100f088394c8f03e51570806048000ffff";

/// Protects a packet as a client does: `header` ends with a packet number of 4 octets.
fn protect(keys: [&str; 3], header: &[u8], frames: &[u8]) -> Vec<u8> {
    let [key, iv, header_key] = keys.map(hex);
    let number_at = header.len() - 4;
    let mut nonce: [u8; 12] = iv.try_into().unwrap();
    for i in 0..4 {
        nonce[8 + i] ^= header[number_at + i];
    }
    let seal = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
    let mut payload = frames.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    seal.seal_in_place_append_tag(nonce, Aad::from(header), &mut payload).unwrap();
    let header_key = HeaderProtectionKey::new(&AES_128, &header_key).unwrap();
    let mask = header_key.new_mask(&payload[..16]).unwrap();
    let mut packet = [header, &payload].concat();
    packet[0] ^= mask[0] & 0x0F;
    for i in 0..4 {
        packet[number_at + i] ^= mask[1 + i];
    }
    packet
}

/// A client's Initial of these frames, padded to `len` octets.
fn initial(version: u32, packet_number: u32, frames: &[u8], len: usize) -> Vec<u8> {
    let (keys, first) = match version {
        VERSION_1 => (KEYS_1, 0xC3),
        _ => (KEYS_2, 0xD3),
    };
    let mut header = vec![first];
    header.extend(version.to_be_bytes());
    header.push(8);
    header.extend(IDENTIFIER);
    header.extend([0, 0]);
    let rest = len - header.len() - 2;
    header.extend((0x4000 | rest as u16).to_be_bytes());
    header.extend(packet_number.to_be_bytes());
    let mut padded = frames.to_vec();
    padded.resize(len - header.len() - 16, 0);
    protect(keys, &header, &padded)
}

fn crypto(offset: usize, data: &[u8]) -> Vec<u8> {
    let varints = [offset, data.len()].map(|n| (0x8000_0000 | n as u32).to_be_bytes());
    [&[6][..], &varints[0], &varints[1], data].concat()
}

fn quic(talk: &Talk) -> (u32, TlsInfo) {
    match talk.app() {
        App::Quic { version, tls } => (version, tls),
        other => panic!("{other:?}"),
    }
}

#[test]
fn packets_of_the_standards() {
    // The first 64 octets and the last 32 stand for the packet: its tag covers all of it.
    let cases = [
        (
            VERSION_1,
            "c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11
             d242b123dc9bd8bab936b47d92ec356c0bab7df5976d27cd449f63300099f399",
            "7e78bfe706ca4cf5e9c5453e9f7cfd2b8b4c8d169a44e55c88d4a9a7f9474241
             e221af44860018ab0856972e194cd934",
        ),
        (
            VERSION_2,
            "d76b3343cf088394c8f03e5157080000449ea0c95e82ffe67b6abcdb4298b485
             dd04de806071bf03dceebfa162e75d6c96058bdbfb127cdfcbf903388e99ad04",
            "9a37ddec600545473cfb5a05e08d0b209973b2172b4d21fb69745a262ccde96b
             a18b2faa745b6fe189cf772a9f84cbfc",
        ),
    ];
    for (version, start, end) in cases {
        let packet = initial(version, 2, &hex(HELLO_FRAME), 1200);
        assert_eq!(packet[..64], hex(start));
        assert_eq!(packet[1152..], hex(end));
        let talk = Talk::udp(443).ask(&packet);
        let (found, tls) = quic(&talk);
        assert_eq!((found, tls.sni.as_str(), tls.alpn.as_str()), (version, "example.com", "alpn"));
        assert_eq!((tls.version, talk.run().1), (0x0304, 1));
        assert!(tls.ja4.starts_with("q13d0211an_"), "{}", tls.ja4);
        // One bit anywhere, and nothing of it is believed but the version.
        for at in [20, 30, 600, 1199] {
            let mut forged = packet.clone();
            forged[at] ^= 1;
            assert_eq!(quic(&Talk::udp(443).ask(&forged)), (version, TlsInfo::default()));
        }
    }
}

/// RFC 9001, appendix A.2 and A.3: a server's packet is not opened with the client's keys.
#[test]
fn keys_of_the_client_only() {
    let keys = InitialKeys::client(VERSION_1, &IDENTIFIER).unwrap();
    let mut server = hex("cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a
         5816b6394100f37a1c69797554780bb38cc5a99f5ede4cf73c3ec2493a1839b3
         dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84
         022f8ef4cdd93795d77d06edbb7aaf2f58891850abbdca3d20398c276456cbc4
         2158407dd074ee");
    assert_eq!(keys.open(&mut server, 18), None);
    let mut client = initial(VERSION_1, 2, &hex(HELLO_FRAME), 1200);
    assert_eq!(keys.open(&mut client, 18).unwrap()[..245], hex(HELLO_FRAME));
    assert_eq!(keys.open(&mut [0; 30], 18), None);
    assert!(InitialKeys::client(0xFF00_001D, &IDENTIFIER).is_none());
}

/// As browsers with large key shares send it: pieces out of order among PING and PADDING,
/// over two packets that may come in either order.
#[test]
fn a_hello_in_pieces() {
    let mut hello = browser("www.example.org");
    hello.extensions[3].1 = vec![0; 1216];
    let message = hello.message();
    let (one, two) = message.split_at(900);
    let frames = |base: usize, data: &[u8]| {
        let mut frames = Vec::new();
        for (i, piece) in data.chunks(70).enumerate().rev() {
            frames.extend(crypto(base + i * 70, piece));
            frames.extend([1, 0, 0]);
        }
        frames
    };
    let first = initial(VERSION_1, 0, &frames(0, one), 1250);
    let second = initial(VERSION_1, 1, &frames(900, two), 1250);
    let want = Talk::tcp(443).ask(super::tls::record(&message)).app();
    let App::Tls(want) = want else { panic!("{want:?}") };
    for packets in [[&first, &second], [&second, &first]] {
        let talk = Talk::udp(443).ask(packets[0]).ask(packets[1]);
        let (version, tls) = quic(&talk);
        assert_eq!((version, &tls.sni, &tls.ja3), (1, &want.sni, &want.ja3));
        assert_eq!(tls.ja4, want.ja4.replacen('t', "q", 1));
    }
    // The second is missing: the name is in the first, a fingerprint is not.
    let (_, tls) = quic(&Talk::udp(443).ask(&first));
    assert_eq!((tls.sni.as_str(), tls.ja4.as_str()), ("www.example.org", ""));
    // Both in one datagram are found as well.
    let (one, two) = message.split_at(300);
    let first = initial(VERSION_1, 0, &crypto(0, one), 700);
    let second = initial(VERSION_1, 1, &crypto(300, two), 1500);
    assert_eq!(quic(&Talk::udp(443).ask([first, second].concat())).1.ja3, want.ja3);
}

#[test]
fn an_acknowledgement_before_the_hello() {
    // ACK with ECN: two ranges, three counts.
    let mut frames = vec![3, 5, 0, 1, 0, 1, 1, 0, 0, 0];
    frames.extend(hex(HELLO_FRAME));
    let talk = Talk::udp(443).ask(initial(VERSION_1, 3, &frames, 1200));
    assert_eq!(quic(&talk).1.sni, "example.com");
    // Frames that do not belong there end the reading.
    let mut frames = vec![0x1C, 0, 0, 0];
    frames.extend(hex(HELLO_FRAME));
    let talk = Talk::udp(443).ask(initial(VERSION_1, 3, &frames, 1200));
    assert_eq!(quic(&talk).1, TlsInfo::default());
}

/// After a Retry, or another version asked for, the client begins anew with other keys.
#[test]
fn beginning_anew() {
    let (start, _) = (crypto(0, &hex(HELLO_FRAME)[4..100]), ());
    let first = initial(VERSION_1, 0, &start, 1200);
    let whole = initial(VERSION_2, 0, &hex(HELLO_FRAME), 1200);
    let retry = [&hex("ff000000010008f067a5502a4262b5746f6b656e")[..], &[0; 16]].concat();
    let versions = hex("80000000000008f067a5502a4262b56b3343cf");
    for answer in [retry, versions] {
        let talk = Talk::udp(443).ask(&first).answer(answer).ask(&whole);
        let (version, tls) = quic(&talk);
        assert_eq!((version, tls.sni.as_str()), (VERSION_2, "example.com"));
    }
    // Where the answer was not seen, the client's other version shows it.
    let (version, tls) = quic(&Talk::udp(443).ask(&first).ask(&whole));
    assert_eq!((version, tls.sni.as_str()), (VERSION_2, "example.com"));
}

/// A client may begin with a version that nobody knows (RFC 9000, section 15): one packet or
/// two, the server's list of versions, whose first octet may be anything, then its Initial.
#[test]
fn after_version_negotiation() {
    let mut unknown = initial(VERSION_1, 0, &hex(HELLO_FRAME), 1200);
    unknown[1..5].copy_from_slice(&[0x1A, 0x2A, 0x3A, 0x4A]);
    let versions = hex("80000000000008f067a5502a4262b500000001");
    let whole = initial(VERSION_1, 0, &hex(HELLO_FRAME), 1200);
    for times in [1, 2] {
        let talk = (0..times).fold(Talk::udp(443), |talk, _| talk.ask(&unknown));
        let talk = talk.answer(&versions).ask(&whole);
        let (version, tls) = quic(&talk);
        assert_eq!((version, tls.sni.as_str()), (VERSION_1, "example.com"), "{times}");
    }
    // Without an Initial nothing is known, and the reading ends.
    let talk = (0..30).fold(Talk::udp(443), |talk, _| talk.ask(&unknown));
    assert_eq!(talk.run(), (None, usize::from(MAX_PACKETS)));
}

/// RFC 9287: the fixed bit is protected like the rest of the octet, so a greased packet is
/// made as it is sent.
#[test]
fn a_greased_fixed_bit() {
    let mut header = initial(VERSION_1, 2, &[], 1200)[..18].to_vec();
    header[0] = 0x83;
    header.extend(2u32.to_be_bytes());
    let mut frames = hex(HELLO_FRAME);
    frames.resize(1200 - header.len() - 16, 0);
    let packet = protect(KEYS_1, &header, &frames);
    assert_eq!(packet[0] & 0xC0, 0x80);
    let (version, tls) = quic(&Talk::udp(443).ask(&packet));
    assert_eq!((version, tls.sni.as_str()), (VERSION_1, "example.com"));
}

/// Data of 0-RTT in a datagram of its own that came first, or in front of the Initial.
#[test]
fn early_data_before_the_initial() {
    let mut early = vec![0xD0, 0, 0, 0, 1, 8];
    early.extend(IDENTIFIER);
    early.extend([0, 0x40, 60]);
    early.extend([0x5A; 60]);
    let whole = initial(VERSION_1, 2, &hex(HELLO_FRAME), 1200);
    for talk in [
        Talk::udp(443).ask(&early).ask(&early).ask(&whole),
        Talk::udp(443).ask([&early[..], &whole].concat()),
    ] {
        let (version, tls) = quic(&talk);
        assert_eq!((version, tls.sni.as_str()), (VERSION_1, "example.com"));
    }
    assert_eq!(quic(&Talk::udp(443).ask(&early)), (VERSION_1, TlsInfo::default()));
    early[5] = 7;
    assert_eq!(Talk::udp(443).ask(&early).run().0, None);
}

#[test]
fn what_is_no_client_s_first_packet() {
    let packet = initial(VERSION_1, 2, &hex(HELLO_FRAME), 1200);
    // Cut by the capture: the version is known, as the length is known.
    let cut = Talk::udp(443).ask(&packet).trim(128);
    assert_eq!(quic(&cut), (1, TlsInfo::default()));
    let mut short = Talk::udp(443).ask(&packet);
    short.packets[0].length = 1199;
    assert_eq!(short.run().0, None);
    for (at, value) in [(0, 0x40), (0, 0xE0), (4, 9), (5, 7), (5, 21)] {
        let mut other = packet.clone();
        other[at] = value;
        assert_eq!(Talk::udp(443).ask(&other).run().0, None, "{at}");
    }
}
