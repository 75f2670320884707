//! Hellos made by hand, so that every list in them is known; and the vectors that the
//! authors of JA3 and JA4 publish with their specifications.

use sonde_results::flow::TlsInfo;

use super::super::fingerprint::{ja3, ja4};
use super::super::hello::ClientHello;
use super::*;

/// A ClientHello: version, cipher suites, and extensions with their contents.
#[derive(Clone)]
pub(super) struct Hello {
    pub(super) version: u16,
    pub(super) ciphers: Vec<u16>,
    pub(super) extensions: Vec<(u16, Vec<u8>)>,
}

impl Hello {
    /// The body of the handshake message.
    pub(super) fn body(&self) -> Vec<u8> {
        let mut body = self.version.to_be_bytes().to_vec();
        body.extend([7; 32]);
        body.extend([1, 0xAB]);
        body.extend(vector16(&list(&self.ciphers)));
        body.extend([1, 0]);
        if !self.extensions.is_empty() {
            let mut block = Vec::new();
            for (kind, data) in &self.extensions {
                block.extend(kind.to_be_bytes());
                block.extend(vector16(data));
            }
            body.extend(vector16(&block));
        }
        body
    }

    /// With its type and length.
    pub(super) fn message(&self) -> Vec<u8> {
        message(1, &self.body())
    }
}

pub(super) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_be_bytes();
    [&[kind, length[1], length[2], length[3]], body].concat()
}

pub(super) fn record(fragment: &[u8]) -> Vec<u8> {
    [&[22, 3, 1][..], &vector16(fragment)].concat()
}

fn list(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

fn vector16(data: &[u8]) -> Vec<u8> {
    [&(data.len() as u16).to_be_bytes()[..], data].concat()
}

fn vector8(data: &[u8]) -> Vec<u8> {
    [&[data.len() as u8][..], data].concat()
}

fn server_name(name: &str) -> (u16, Vec<u8>) {
    (0, vector16(&[&[0][..], &vector16(name.as_bytes())].concat()))
}

fn protocols(names: &[&[u8]]) -> (u16, Vec<u8>) {
    (16, vector16(&names.iter().flat_map(|name| vector8(name)).collect::<Vec<_>>()))
}

/// The browser's hello in FoxIO's JA4.md, in its original order, with GREASE put where
/// browsers put it.
pub(super) fn browser(name: &str) -> Hello {
    let grease = 0x8A8A;
    let mut ciphers = vec![grease, 0x1301, 0x1302, 0x1303, 0xC02B, 0xC02F, 0xC02C, 0xC030, 0xCCA9];
    ciphers.extend([0xCCA8, 0xC013, 0xC014, 0x009C, 0x009D, 0x002F, 0x0035]);
    let signatures = [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601];
    let extensions = vec![
        (0x1A1A, vec![]),
        (0x001B, vec![2, 0, 2]),
        server_name(name),
        (0x0033, vector16(&[0; 40])),
        protocols(&[b"h2", b"http/1.1"]),
        (0x4469, vec![0, 3, 2, b'h', b'2']),
        (0x0017, vec![]),
        (0x002D, vec![1, 1]),
        (0x000D, vector16(&list(&signatures))),
        (0x0005, vec![1, 0, 0, 0, 0]),
        (0x0023, vec![]),
        (0x0012, vec![]),
        (0x002B, vector8(&list(&[0xFAFA, 0x0304, 0x0303]))),
        (0xFF01, vec![0]),
        (0x000B, vector8(&[0])),
        (0x000A, vector16(&list(&[grease, 0x001D, 0x0017, 0x0018]))),
        (0x2A2A, vec![0]),
        (0x0015, vec![0; 50]),
    ];
    Hello { version: 0x0303, ciphers, extensions }
}

/// A ServerHello that chooses by the old field, or by the extension.
fn server_hello(version: u16, chosen: Option<u16>) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    body.extend([9; 32]);
    body.extend([0, 0x13, 1, 0]);
    if let Some(chosen) = chosen {
        let extension = [&[0, 43][..], &vector16(&chosen.to_be_bytes())].concat();
        body.extend(vector16(&extension));
    }
    message(2, &body)
}

fn tls(talk: &Talk) -> TlsInfo {
    match talk.app() {
        App::Tls(info) => info,
        other => panic!("{other:?}"),
    }
}

fn fingerprints(hello: &Hello) -> (String, String) {
    let body = hello.body();
    let hello = ClientHello::parse(&body).expect("a hello");
    assert!(hello.whole);
    (ja3(&hello), ja4(&hello, 't'))
}

/// The example of JA4.md, its hashes spelt out there.
#[test]
fn ja4_of_its_specification() {
    let hello = browser("a.example");
    assert_eq!(fingerprints(&hello).1, "t13d1516h2_8daaf6152771_e5627efa2ab1");
    // Neither the order nor the name nor the protocols beyond the first matter.
    let mut other = browser("");
    other.ciphers.rotate_left(5);
    other.extensions.reverse();
    assert_eq!(fingerprints(&other).1, "t13d1516h2_8daaf6152771_e5627efa2ab1");
    // "If there are no signature algorithms": the list ends without an underscore.
    other.extensions.iter_mut().find(|(kind, _)| *kind == 13).unwrap().1 = vec![0, 0];
    assert_eq!(fingerprints(&other).1, "t13d1516h2_8daaf6152771_6d807ffa2a79");
    // Nothing in the lists gives zeros, and no server name an `i`.
    let bare = Hello { version: 0x0301, ciphers: vec![0x0A0A], extensions: vec![] };
    assert_eq!(fingerprints(&bare).1, "t10i000000_000000000000_000000000000");
    let many = Hello { version: 0x0303, ciphers: (0..150).collect(), extensions: vec![] };
    assert!(fingerprints(&many).1.starts_with("t12i990000_"));
    for (version, want) in
        [(0x0300, "s3"), (0x0302, "11"), (0x0303, "12"), (0x0305, "00"), (2, "s2")]
    {
        let hello = Hello { version, ..bare.clone() };
        assert_eq!(&fingerprints(&hello).1[1..3], want);
    }
}

/// The table of JA4.md for names that are no letters or digits.
#[test]
fn ja4_of_odd_protocols() {
    let cases: [(&[u8], &str); 12] = [
        (b"http/1.1", "h1"),
        (b"h", "hh"),
        (b"", "00"),
        (&[0xAB], "ab"),
        (&[0x20], "20"),
        (&[0xAB, 0xCD], "ad"),
        (&[0x20, 0x61], "21"),
        (&[0x30, 0xAB], "3b"),
        (&[0x61, 0x20], "60"),
        (&[0x30, 0x31, 0xAB, 0xCD], "3d"),
        (&[0x30, 0xAB, 0xCD, 0x31], "01"),
        (&[0x0A, 0x0A], "0a"),
    ];
    for (protocol, want) in cases {
        let extensions = vec![protocols(&[protocol])];
        let hello = Hello { version: 0x0303, ciphers: vec![1], extensions };
        assert_eq!(&fingerprints(&hello).1[8..10], want, "{protocol:x?}");
    }
}

/// The two examples in the README of JA3.
#[test]
fn ja3_of_its_authors() {
    let ciphers = vec![47, 53, 5, 10, 49161, 49162, 49171, 49172, 50, 56, 19, 4];
    let extensions =
        vec![server_name("a.example"), (10, vector16(&list(&[23, 24, 25]))), (11, vector8(&[0]))];
    let hello = Hello { version: 769, ciphers, extensions };
    assert_eq!(fingerprints(&hello).0, "ada70206e40642a3e4461f35503241d5");
    let ciphers = vec![4, 5, 10, 9, 100, 98, 3, 6, 19, 18, 99];
    let bare = Hello { version: 769, ciphers, extensions: vec![] };
    assert_eq!(fingerprints(&bare).0, "de350869b8c85de67a350c8d186f11e6");
    // GREASE does not count anywhere.
    let mut greased = hello.clone();
    greased.ciphers.insert(0, 0xDADA);
    greased.extensions.insert(0, (0x3A3A, vec![]));
    greased.extensions[2].1 = vector16(&list(&[0x4A4A, 23, 24, 25]));
    assert_eq!(fingerprints(&greased).0, fingerprints(&hello).0);
}

#[test]
fn both_hellos() {
    let ask = record(&browser("www.example.org").message());
    let talk = Talk::tcp(443).ask(&ask);
    let found = tls(&talk);
    assert_eq!((found.sni.as_str(), found.alpn.as_str()), ("www.example.org", "h2"));
    assert_eq!(found.version, 0x0304, "its highest, while there is no answer");
    for (answer, version) in [
        (server_hello(0x0303, Some(0x0304)), 0x0304),
        (server_hello(0x0303, None), 0x0303),
        (server_hello(0x0301, None), 0x0301),
    ] {
        let talk = talk.clone().answer(record(&answer)).ask([23, 3, 3, 0, 1, 0]);
        assert_eq!(tls(&talk).version, version);
        assert_eq!(talk.run().1, 4, "nothing is read after the server's hello");
        // The server's side alone, from the middle of a connection.
        let mut half = Talk::tcp(443).answer(record(&answer));
        half.packets.drain(..2);
        assert_eq!(tls(&half), TlsInfo { version, ..TlsInfo::default() });
    }
    // The server refuses.
    let refused = talk.answer([21, 3, 3, 0, 2, 2, 70]);
    assert_eq!((tls(&refused).version, refused.run().1), (0x0304, 4));
}

#[test]
fn a_hello_in_many_records_and_segments() {
    let message = browser("www.example.org").message();
    let one = Talk::tcp(443).ask(record(&message));
    let records: Vec<u8> = message.chunks(40).flat_map(record).collect();
    let many = Talk::tcp(443).ask(records);
    assert_eq!(tls(&many), tls(&one));
    for len in [50, 64, 200] {
        assert_eq!(tls(&one.clone().cut(len)), tls(&one), "{len}");
        assert_eq!(tls(&many.clone().cut(len)), tls(&one), "{len}");
    }
    // The last segment comes first; with the start sent again in the middle.
    let mut shuffled = one.clone().cut(100);
    shuffled.packets[2..].reverse();
    let again = shuffled.packets[3].clone();
    shuffled.packets.insert(3, again);
    assert_eq!(tls(&shuffled), tls(&one));
    // A keepalive's octet before the start.
    let mut kept = one.clone();
    let sequence = kept.packets[2].sequence.wrapping_sub(1);
    let alive = Said { sequence, data: vec![0], length: 1, ..kept.packets[2].clone() };
    kept.packets.insert(2, alive);
    assert_eq!(tls(&kept), tls(&one));
}

/// Too long, cut off or odd: what can be read is reported, but no fingerprint of a part.
#[test]
fn hellos_that_are_not_whole() {
    let mut long = browser("www.example.org");
    long.extensions.push((21, vec![0; 9000]));
    let talk = Talk::tcp(443).ask(record(&long.message())).cut(1400);
    let found = tls(&talk);
    assert_eq!((found.sni.as_str(), found.version), ("www.example.org", 0x0304));
    assert_eq!((found.ja3.as_str(), found.ja4.as_str()), ("", ""));

    let found = tls(&Talk::tcp(443).ask(record(&browser("www.example.org").message())).trim(150));
    assert_eq!((found.sni.as_str(), found.ja4.as_str()), ("www.example.org", ""));

    // An extension longer than the rest.
    let mut odd = browser("www.example.org").message();
    let end = odd.len() - 54;
    odd[end + 3] = 200;
    let found = tls(&Talk::tcp(443).ask(record(&odd)));
    assert_eq!((found.sni.as_str(), found.ja3.as_str()), ("www.example.org", ""));
    // A name that is none, and one that would move the cursor.
    let mut hello = browser("x");
    hello.extensions[2].1 = vec![0, 9, 0];
    assert_eq!(tls(&Talk::tcp(443).ask(record(&hello.message()))).sni, "");
    let found = tls(&Talk::tcp(443).ask(record(&browser("a\x1B[2J\u{202E}b").message())));
    assert_eq!(found.sni, "a\u{FFFD}[2J\u{FFFD}b");
}
