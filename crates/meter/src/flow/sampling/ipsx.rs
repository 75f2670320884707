//! The IPSX hash function of RFC 5475, appendix A.1: shifts and exclusive or over 16 octets
//! of an IPv4 packet. It is linear and has no secret: who knows the limits can choose packets
//! that are selected, or not.

/// The hash of f1 to f4, 16 bits: identification, flags and fragment offset; source address;
/// destination address; octets 4 to 7 of the IP payload.
pub(super) fn ipsx(input: &[u8; 16]) -> u16 {
    let [f1, f2, f3, f4] = [0, 4, 8, 12]
        .map(|at| u32::from_be_bytes([input[at], input[at + 1], input[at + 2], input[at + 3]]));
    let (v1, v2) = (f1 ^ f2, f3 ^ f4);
    let h1 = v1 << 8 ^ v1 >> 4 ^ v1 >> 12 ^ v1 >> 16;
    (h1 ^ v2 << 6 ^ v2 << 10 ^ v2 << 14 ^ v2 >> 7) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by a Python program and by one in C, both written from the appendix.
    #[test]
    fn known_values() {
        for (input_words, expected) in [
            ([0, 0, 0, 0], 0),
            ([1, 0, 0, 0], 0x0100),
            ([0, 0, 0, 1], 0x4440),
            ([0x8000_0000, 0, 0, 0], 0x8000),
            ([0xFFFF_FFFF, 0, 0xFFFF_FFFF, 0], 0x3CC0),
            ([0x0102_4000, 0xC000_0201, 0xC633_6402, 0x0012_00FF], 0x3D8F),
            ([0xDEAD_BEEF, 0x0A00_0001, 0xAC10_FF02, 0x1234_5678], 0xD44A),
        ] {
            let mut input = [0; 16];
            for (octets, word) in input.chunks_mut(4).zip(input_words) {
                octets.copy_from_slice(&u32::to_be_bytes(word));
            }
            assert_eq!(ipsx(&input), expected, "{input_words:x?}");
        }
    }
}
