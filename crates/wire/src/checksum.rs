//! The Internet checksum (RFC 1071) as partial sums, so that what does not change
//! from packet to packet is added up once.
//!
//! A partial sum is a `u32` that holds at most 16 bits after [`sum`] or [`combine`]. Plain `+` on a
//! few of them is sound too, and [`finish`] folds whatever there is. Sums combine when every part
//! but the last has an even length.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ones' complement sum of the 16-bit words of `data`; an odd last octet counts as
/// the high half of a word. At most 0xFFFF.
#[inline]
pub fn sum(data: &[u8]) -> u32 {
    // RFC 1071, section 2 (B): the sum may be taken in the machine's byte order and
    // swapped once at the end. Two 32-bit halves of every 64-bit word go into one
    // 64-bit accumulator, which cannot overflow below 2^33 octets.
    let mut total = 0u64;
    let (words, mut rest) = data.as_chunks::<8>();
    for &word in words {
        let word = u64::from_ne_bytes(word);
        total += (word & 0xFFFF_FFFF) + (word >> 32);
    }
    // Step by step: a copy of variable length would cost more than all the rest.
    if let Some((&word, after)) = rest.split_first_chunk::<4>() {
        total += u64::from(u32::from_ne_bytes(word));
        rest = after;
    }
    if let Some((&word, after)) = rest.split_first_chunk::<2>() {
        total += u64::from(u16::from_ne_bytes(word));
        rest = after;
    }
    if let [last] = *rest {
        total += u64::from(u16::from_ne_bytes([last, 0]));
    }
    total = (total & 0xFFFF_FFFF) + (total >> 32);
    total = (total & 0xFFFF_FFFF) + (total >> 32);
    let folded = fold(total as u32);
    u32::from(folded.to_be())
}

/// The sum of two parts, the first of even length. At most 0xFFFF.
#[inline]
pub const fn combine(first: u32, second: u32) -> u32 {
    fold(fold(first) as u32 + fold(second) as u32) as u32
}

/// A partial sum in 16 bits.
#[inline]
pub const fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xFFFF) + (sum >> 16);
    let sum = (sum & 0xFFFF) + (sum >> 16);
    sum as u16
}

/// The checksum field for a partial sum over everything else.
#[inline]
pub const fn finish(sum: u32) -> u16 {
    !fold(sum)
}

/// The UDP checksum field: as [`finish`], but a result of 0 goes out as 0xFFFF, for 0
/// says that there is no checksum (RFC 768).
#[inline]
pub const fn finish_udp(sum: u32) -> u16 {
    match finish(sum) {
        0 => 0xFFFF,
        checksum => checksum,
    }
}

/// Sum of the IPv4 pseudo-header (RFC 768, RFC 9293 section 3.1). `length` is that of
/// the upper-layer header and its data.
#[inline]
pub const fn pseudo_v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, length: u32) -> u32 {
    let source = source.to_bits();
    let destination = destination.to_bits();
    fold(
        (source >> 16)
            + (source & 0xFFFF)
            + (destination >> 16)
            + (destination & 0xFFFF)
            + protocol as u32
            + (length >> 16)
            + (length & 0xFFFF),
    ) as u32
}

/// Sum of the IPv6 pseudo-header (RFC 8200, section 8.1).
#[inline]
pub fn pseudo_v6(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, length: u32) -> u32 {
    combine(
        sum(&source.octets()) + sum(&destination.octets()),
        u32::from(protocol) + (length >> 16) + (length & 0xFFFF),
    )
}

/// Sum of the pseudo-header of either family; `None` where the families differ.
#[inline]
pub fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8, length: u32) -> Option<u32> {
    match (source, destination) {
        (IpAddr::V4(s), IpAddr::V4(d)) => Some(pseudo_v4(s, d, protocol, length)),
        (IpAddr::V6(s), IpAddr::V6(d)) => Some(pseudo_v6(s, d, protocol, length)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    extern crate std;

    /// Word by word, as RFC 1071 defines it.
    fn plain(data: &[u8]) -> u32 {
        let mut total = 0u32;
        for pair in data.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            total = (total & 0xFFFF) + (total >> 16);
        }
        total
    }

    #[test]
    fn rfc_1071_section_3_example() {
        let data = [0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7];
        assert_eq!(sum(&data), 0xDDF2);
        assert_eq!(finish(sum(&data)), 0x220D);
    }

    #[test]
    fn a_udp_checksum_of_zero_is_sent_as_all_ones() {
        assert_eq!(finish(0xFFFF), 0);
        assert_eq!(finish_udp(0xFFFF), 0xFFFF);
        assert_eq!(finish_udp(0x1234), !0x1234);
    }

    #[test]
    fn the_longest_packet_of_ones_does_not_overflow() {
        assert_eq!(sum(&[0xFF; 65_536]), 0xFFFF);
    }

    proptest! {
        #[test]
        fn same_as_word_by_word(data: std::vec::Vec<u8>) {
            // 0 and 0xFFFF are the same value in ones' complement, but only an
            // all-zero input sums to 0 either way.
            prop_assert_eq!(sum(&data), plain(&data));
        }

        #[test]
        fn parts_combine(data: std::vec::Vec<u8>, cut: proptest::sample::Index) {
            let cut = cut.index(data.len() / 2 + 1) * 2;
            let (a, b) = data.split_at(cut.min(data.len()));
            prop_assert_eq!(combine(sum(a), sum(b)), sum(&data));
        }

        #[test]
        fn pseudo_headers_equal_their_octets(s: [u8; 16], d: [u8; 16], protocol: u8, length: u32) {
            let mut v6 = [0; 40];
            v6[..16].copy_from_slice(&s);
            v6[16..32].copy_from_slice(&d);
            v6[32..36].copy_from_slice(&length.to_be_bytes());
            v6[39] = protocol;
            prop_assert_eq!(pseudo_v6(s.into(), d.into(), protocol, length), sum(&v6));
            let (s4, d4): ([u8; 4], [u8; 4]) =
                (s[..4].try_into().unwrap(), d[..4].try_into().unwrap());
            let mut v4 = [0; 12];
            v4[..4].copy_from_slice(&s4);
            v4[4..8].copy_from_slice(&d4);
            v4[9] = protocol;
            v4[10..].copy_from_slice(&(length as u16).to_be_bytes());
            prop_assert_eq!(
                pseudo_v4(s4.into(), d4.into(), protocol, length & 0xFFFF),
                sum(&v4)
            );
        }
    }
}
