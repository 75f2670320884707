//! The frame check sequence of Ethernet (IEEE 802.3, clause 3.2.9).

/// That of a frame without it, in the order of the wire.
pub fn fcs(frame: &[u8]) -> [u8; 4] {
    let sum =
        frame.iter().fold(u32::MAX, |sum, &octet| sum >> 8 ^ TABLE[usize::from(sum as u8 ^ octet)]);
    (!sum).to_le_bytes()
}

/// What one octet does to the sum.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut octet = 0;
    while octet < 256 {
        let mut sum = octet as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        table[octet] = sum;
        octet += 1;
    }
    table
};
/// Bits in the order in which they are sent.
const POLYNOMIAL: u32 = 0xedb8_8320;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogues() {
        assert_eq!(fcs(b"123456789"), 0xcbf4_3926u32.to_le_bytes());
        assert_eq!(fcs(b""), [0; 4]);
        // Over a frame with its sequence what is left is always the same (IEEE 802.3).
        let frame = b"any frame at all";
        let whole = [&frame[..], &fcs(frame)].concat();
        assert_eq!(fcs(&whole), 0x2144_df1cu32.to_le_bytes());
    }
}
