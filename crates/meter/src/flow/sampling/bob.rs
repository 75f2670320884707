//! The BOB hash function of RFC 5475, appendix A.2: the one that Bob Jenkins published in
//! 1996, known as lookup2.

/// The hash of `key`, begun with `initialiser`. Observation points that use the same one
/// come to the same values.
pub(super) fn bob(key: &[u8], initialiser: u32) -> u32 {
    let (mut a, mut b, mut c) = (GOLDEN, GOLDEN, initialiser);
    let (blocks, rest) = key.as_chunks::<12>();
    for block in blocks {
        a = a.wrapping_add(word(&block[0..4]));
        b = b.wrapping_add(word(&block[4..8]));
        c = c.wrapping_add(word(&block[8..12]));
        (a, b, c) = mix(a, b, c);
    }
    // The lowest octet of the last word is left to the length.
    a = a.wrapping_add(word(&rest[..rest.len().min(4)]));
    b = b.wrapping_add(word(&rest[rest.len().min(4)..rest.len().min(8)]));
    c = c.wrapping_add(word(&rest[rest.len().min(8)..]) << 8).wrapping_add(key.len() as u32);
    mix(a, b, c).2
}

/// At most 4 octets, the first one lowest.
fn word(octets: &[u8]) -> u32 {
    octets.iter().rev().fold(0, |word, &octet| word << 8 | u32::from(octet))
}

/// Reversible, and every bit of the three has a say in every bit of the last.
fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    for (x, y, z) in [(13, 8, 13), (12, 16, 5), (3, 10, 15)] {
        a = a.wrapping_sub(b).wrapping_sub(c) ^ c >> x;
        b = b.wrapping_sub(c).wrapping_sub(a) ^ a << y;
        c = c.wrapping_sub(a).wrapping_sub(b) ^ b >> z;
    }
    (a, b, c)
}

/// The golden ratio: any value without a pattern would do.
const GOLDEN: u32 = 0x9E37_79B9;

#[cfg(test)]
mod tests {
    use super::*;

    /// By Perl's `Digest::JHash` 0.10, with initialiser 0; octets below 128, for that takes
    /// the others for negative values, where the standard's are unsigned.
    #[test]
    fn known_values() {
        assert_eq!(bob(b"hello world", 0), 447_289_830);
        let octets: Vec<u8> = (0..64).map(|i| ((i * 7 + 3) & 127) as u8).collect();
        for (len, expected) in [
            (1, 0x4E67_E405),
            (4, 0x6243_F830),
            (8, 0x2C17_0DC5),
            (11, 0x523E_32EA),
            (12, 0x7220_CE6B),
            (13, 0xA0BE_1BDF),
            (23, 0xE2CD_42E7),
            (24, 0x6964_AD7A),
            (40, 0x1A62_9EC3),
            (64, 0x3956_1E1C),
        ] {
            assert_eq!(bob(&octets[..len], 0), expected, "{len}");
        }
    }
}
