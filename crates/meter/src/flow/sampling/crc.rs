//! CRC-32 for hash-based selection (RFC 5475, section 6.2.4.2): the one of Ethernet (IEEE
//! 802.3; polynomial 0x04C11DB7, least significant bit first, inverted at both ends).

/// The checksum of `key`. `initialiser` is the checksum of what is thought to stand before
/// it; 0: nothing does.
pub(super) fn crc32(key: &[u8], initialiser: u32) -> u32 {
    let step = |crc: u32, octet: &u8| TABLE[usize::from(crc as u8 ^ octet)] ^ crc >> 8;
    !key.iter().fold(!initialiser, step)
}

/// What an octet does to the checksum behind it.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut octet = 0;
    while octet < 256 {
        let mut crc = octet as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 };
            bit += 1;
        }
        table[octet] = crc;
        octet += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// By Python's `zlib.crc32`, but the check value, which is in the catalogues.
    #[test]
    fn known_values() {
        assert_eq!(crc32(b"123456789", 0), 0xCBF4_3926);
        let octets: Vec<u8> = (0..64).map(|i| ((i * 7 + 3) & 127) as u8).collect();
        for (len, plain, keyed) in [
            (0, 0, 9),
            (1, 0x4B0B_BE37, 0x32D7_0693),
            (4, 0x7ED3_4E62, 0x03DB_01E8),
            (12, 0xC911_E29D, 0x54B8_D80C),
            (13, 0xA97A_D5C1, 0x2EEF_DF29),
            (37, 0xBF6C_9BB4, 0xE33A_21D5),
            (64, 0x75C5_4800, 0x587F_1CBB),
        ] {
            assert_eq!(crc32(&octets[..len], 0), plain, "{len}");
            assert_eq!(crc32(&octets[..len], 9), keyed, "{len}");
        }
    }
}
