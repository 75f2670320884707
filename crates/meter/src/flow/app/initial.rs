//! QUIC Initial packets. Their protection can be taken off by everyone who sees the client's first
//! one (RFC 9001, sections 5.2 to 5.4; RFC 9369, section 3.3).

use std::ops::Range;

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey, quic};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use sonde_wire::quic::{Long, PacketType, VERSION_1, VERSION_2};

use super::text::ByteReader;

/// What protects the client's Initial packets of one connection.
pub(super) struct InitialKeys {
    packet: LessSafeKey,
    header: quic::HeaderProtectionKey,
    iv: [u8; NONCE_LEN],
}

impl InitialKeys {
    /// From the destination connection identifier of the client's first Initial. `None`
    /// for a version other than 1 and 2.
    pub(super) fn client(version: u32, destination: &[u8]) -> Option<Self> {
        let (salt, labels) = match version {
            VERSION_1 => (&SALT_1, ["tls13 quic key", "tls13 quic iv", "tls13 quic hp"]),
            VERSION_2 => (&SALT_2, ["tls13 quicv2 key", "tls13 quicv2 iv", "tls13 quicv2 hp"]),
            _ => return None,
        };
        let initial = Salt::new(HKDF_SHA256, salt).extract(destination);
        let mut secret = [0; 32];
        expand(&initial, "tls13 client in", &mut secret)?;
        let secret = Prk::new_less_safe(HKDF_SHA256, &secret);
        let (mut key, mut iv, mut header) = ([0; 16], [0; NONCE_LEN], [0; 16]);
        expand(&secret, labels[0], &mut key)?;
        expand(&secret, labels[1], &mut iv)?;
        expand(&secret, labels[2], &mut header)?;
        Some(InitialKeys {
            packet: LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?),
            header: quic::HeaderProtectionKey::new(&quic::AES_128, &header).ok()?,
            iv,
        })
    }

    /// Takes the protection off a packet, which is `datagram` from its start to its end,
    /// and gives its frames. `None`: it is not the client's, or not whole.
    pub(super) fn open<'a>(&self, packet: &'a mut [u8], number_at: usize) -> Option<&'a [u8]> {
        // RFC 9001, section 5.4.2: as if the packet number had four octets.
        let sample =
            packet.get(number_at + 4..number_at + 4 + self.header.algorithm().sample_len())?;
        let mask = self.header.new_mask(sample).ok()?;
        packet[0] ^= mask[0] & 0x0F;
        let number_len = usize::from(packet[0] & 3) + 1;
        let mut nonce = self.iv;
        for i in 0..number_len {
            packet[number_at + i] ^= mask[1 + i];
            // Of the first packets the octets sent are the whole packet number.
            nonce[NONCE_LEN - number_len + i] ^= packet[number_at + i];
        }
        let (head, payload) = packet.split_at_mut(number_at + number_len);
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.packet.open_in_place(nonce, Aad::from(&*head), payload).ok().map(|frames| &*frames)
    }
}

/// Where the packet number of an Initial or 0-RTT packet begins, and where the packet ends, in the
/// datagram that begins with it. RFC 9000, sections 17.2.2 and 17.2.3.
pub(super) fn bounds(datagram: &[u8], long: &Long<'_>) -> Option<Range<usize>> {
    let mut reader = ByteReader(datagram.get(long.buffer_len()..)?);
    if long.kind() == PacketType::Initial {
        let token = varint(&mut reader)?;
        reader.take(usize::try_from(token).ok()?)?;
    }
    let length = usize::try_from(varint(&mut reader)?).ok()?;
    let start = datagram.len() - reader.0.len();
    Some(start..start.checked_add(length)?)
}

/// A variable-length integer (RFC 9000, section 16).
pub(super) fn varint(reader: &mut ByteReader<'_>) -> Option<u64> {
    let first = reader.u8()?;
    let rest = reader.take((1 << (first >> 6)) - 1)?;
    Some(rest.iter().fold(u64::from(first & 0x3F), |sum, octet| sum << 8 | u64::from(*octet)))
}

/// HKDF-Expand-Label (RFC 8446, section 7.1) with an empty context.
fn expand(secret: &Prk, label: &str, out: &mut [u8]) -> Option<()> {
    let lengths = [0, out.len() as u8, label.len() as u8];
    let info = [&lengths[..], label.as_bytes(), &[0]];
    secret.expand(&info, Length(out.len())).ok()?.fill(out).ok()
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// RFC 9001, section 5.2.
const SALT_1: [u8; 20] = [
    0x38, 0x76, 0x2C, 0xF7, 0xF5, 0x59, 0x34, 0xB3, 0x4D, 0x17, 0x9A, 0xE6, 0xA4, 0xC8, 0x0C, 0xAD,
    0xCC, 0xBB, 0x7F, 0x0A,
];
/// RFC 9369, section 3.3.1.
const SALT_2: [u8; 20] = [
    0x0D, 0xED, 0xE3, 0xDE, 0xF7, 0x00, 0xA6, 0xDB, 0x81, 0x93, 0x81, 0xBE, 0x6E, 0x26, 0x9D, 0xCB,
    0xF9, 0xBD, 0x2E, 0xD9,
];
