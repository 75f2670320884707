//! Integers of capture files, which are in the byte order of the machine that wrote them.

/// The byte order in which a file's integers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(match self {
            ByteOrder::Little => u16::from_le_bytes(*bytes),
            ByteOrder::Big => u16::from_be_bytes(*bytes),
        })
    }

    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(match self {
            ByteOrder::Little => u32::from_le_bytes(*bytes),
            ByteOrder::Big => u32::from_be_bytes(*bytes),
        })
    }

    pub(crate) fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(match self {
            ByteOrder::Little => u64::from_le_bytes(*bytes),
            ByteOrder::Big => u64::from_be_bytes(*bytes),
        })
    }
}
