//! Fingerprints of TLS clients: JA3 (the MD5 of five lists) and JA4. JA4 is the client's part of
//! the JA4+ suite, and alone of it under a free licence.

use md5::{Digest, Md5};
use ring::digest::{SHA256, digest};

use super::hello::{ClientHello, PROTOCOLS, SERVER_NAME, extensions, is_grease};
use super::text::u16s;

/// JA3: version, cipher suites, extensions, groups and point formats in decimal, in the
/// order of the hello and without GREASE.
pub(super) fn ja3(hello: &ClientHello<'_>) -> String {
    let mut ja3 = String::with_capacity(32);
    push_digits(&mut ja3, &Md5::digest(ja3_text(hello)));
    ja3
}

fn ja3_text(hello: &ClientHello<'_>) -> Vec<u8> {
    let mut text = Vec::with_capacity(512);
    decimal(&mut text, hello.version);
    let kinds = extensions(hello.extensions).map(|(kind, _)| kind);
    list(&mut text, u16s(hello.ciphers));
    list(&mut text, kinds);
    list(&mut text, u16s(hello.groups));
    list(&mut text, hello.point_formats.iter().map(|format| u16::from(*format)));
    text
}

fn list(text: &mut Vec<u8>, values: impl Iterator<Item = u16>) {
    let mut separator = b',';
    for value in values.filter(|value| !is_grease(*value)) {
        text.push(separator);
        decimal(text, value);
        separator = b'-';
    }
    if separator == b',' {
        text.push(b',');
    }
}

fn decimal(text: &mut Vec<u8>, mut value: u16) {
    let mut digits = [0; 5];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[start..]);
}

/// JA4. `transport`: `t` for TCP, `q` for QUIC.
pub(super) fn ja4(hello: &ClientHello<'_>, transport: char) -> String {
    let mut ciphers: Vec<u16> = u16s(hello.ciphers).filter(|cipher| !is_grease(*cipher)).collect();
    ciphers.sort_unstable();
    let mut kinds: Vec<u16> = extensions(hello.extensions)
        .map(|(kind, _)| kind)
        .filter(|kind| !is_grease(*kind))
        .collect();
    let extensions = kinds.len();
    kinds.retain(|kind| ![SERVER_NAME, PROTOCOLS].contains(kind));
    kinds.sort_unstable();

    let mut ja4 = String::with_capacity(36);
    ja4.push(transport);
    ja4.push_str(match hello.highest_version() {
        0x0304 => "13",
        0x0303 => "12",
        0x0302 => "11",
        0x0301 => "10",
        0x0300 => "s3",
        0x0002 => "s2",
        _ => "00",
    });
    ja4.push(if hello.server_name.is_some() { 'd' } else { 'i' });
    for count in [ciphers.len(), extensions] {
        let count = count.min(99) as u8;
        ja4.push(char::from(b'0' + count / 10));
        ja4.push(char::from(b'0' + count % 10));
    }
    ja4.extend(ends(hello.protocol));
    ja4.push('_');
    let mut text = Vec::with_capacity(256);
    push_hex(&mut text, ciphers.iter().copied());
    push_short_hash(&mut ja4, &text);
    ja4.push('_');
    text.clear();
    push_hex(&mut text, kinds.iter().copied());
    if !text.is_empty() {
        let before = text.len();
        text.push(b'_');
        push_hex(&mut text, u16s(hello.signatures).filter(|value| !is_grease(*value)));
        if text.len() == before + 1 {
            text.pop();
        }
    }
    push_short_hash(&mut ja4, &text);
    ja4
}

/// First and last character of a protocol's name; of its hexadecimal digits where these
/// are no letters or digits.
fn ends(protocol: &[u8]) -> [char; 2] {
    match (protocol.first(), protocol.last()) {
        (Some(first), Some(last))
            if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() =>
        {
            [char::from(*first), char::from(*last)]
        }
        (Some(first), Some(last)) => {
            [char::from(HEX[usize::from(first >> 4)]), char::from(HEX[usize::from(last & 15)])]
        }
        _ => ['0', '0'],
    }
}

/// Four digits each, with commas.
fn push_hex(text: &mut Vec<u8>, values: impl Iterator<Item = u16>) {
    for (i, value) in values.enumerate() {
        if i > 0 {
            text.push(b',');
        }
        for shift in [12, 8, 4, 0] {
            text.push(HEX[usize::from(value >> shift & 15)]);
        }
    }
}

/// The first 12 digits of the SHA-256, zeros for nothing.
fn push_short_hash(ja4: &mut String, text: &[u8]) {
    match text.is_empty() {
        true => ja4.push_str("000000000000"),
        false => push_digits(ja4, &digest(&SHA256, text).as_ref()[..6]),
    }
}

fn push_digits(to: &mut String, octets: &[u8]) {
    for octet in octets {
        to.extend([octet >> 4, octet & 15].map(|digit| char::from(HEX[usize::from(digit)])));
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";
