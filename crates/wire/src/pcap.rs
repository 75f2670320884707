//! Classic pcap files (draft-ietf-opsawg-pcap): read in both byte orders with
//! microseconds or nanoseconds; written in nanoseconds, little-endian.

use crate::Error;
use crate::byte_order::ByteOrder;
use crate::capture_record::{CaptureErrorKind, Record};

/// What the file header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileHeader {
    order: ByteOrder,
    /// Nanoseconds of one unit of the time stamp's second field.
    unit: i64,
    link_type: u16,
}

impl FileHeader {
    /// Reads the header at the begin of `file`.
    pub(crate) fn of(file: &[u8]) -> Result<Self, CaptureErrorKind> {
        let magic = ByteOrder::Big.u32(file, 0).ok_or(CaptureErrorKind::Magic)?;
        let (order, unit) = match magic {
            MAGIC_MICROS => (ByteOrder::Big, 1000),
            MAGIC_NANOS => (ByteOrder::Big, 1),
            swapped if swapped == MAGIC_MICROS.swap_bytes() => (ByteOrder::Little, 1000),
            swapped if swapped == MAGIC_NANOS.swap_bytes() => (ByteOrder::Little, 1),
            _ => return Err(CaptureErrorKind::Magic),
        };
        let header = file.get(..FILE_HEADER_LEN).ok_or(CaptureErrorKind::Truncated)?;
        let (Some(major), Some(minor), Some(network)) =
            (order.u16(header, 4), order.u16(header, 6), order.u32(header, 20))
        else {
            return Err(CaptureErrorKind::Truncated);
        };
        if major != VERSION_MAJOR {
            return Err(CaptureErrorKind::Version { major, minor });
        }
        // The upper half of the link type field holds FCS information.
        Ok(FileHeader { order, unit, link_type: network as u16 })
    }

    /// The packet at the begin of `rest`, and the octets that it takes there; `None`: there is
    /// nothing more.
    #[inline]
    pub(crate) fn record<'a>(
        &self,
        rest: &'a [u8],
    ) -> Result<Option<(Record<'a>, usize)>, CaptureErrorKind> {
        if rest.is_empty() {
            return Ok(None);
        }
        let field = |at| self.order.u32(rest, at);
        let (Some(seconds), Some(fraction), Some(captured), Some(original_len)) =
            (field(0), field(4), field(8), field(12))
        else {
            return Err(CaptureErrorKind::Truncated);
        };
        if captured > MAX_CAPTURED_LEN {
            return Err(CaptureErrorKind::Length(captured));
        }
        let end = RECORD_HEADER_LEN + captured as usize;
        let data = rest.get(RECORD_HEADER_LEN..end).ok_or(CaptureErrorKind::Truncated)?;
        let record = Record {
            unix_nanos: i64::from(seconds) * 1_000_000_000 + i64::from(fraction) * self.unit,
            is_timed: true,
            data,
            original_len,
            link_type: self.link_type,
            interface: 0,
        };
        Ok(Some((record, end)))
    }
}

/// The header of a file with nanosecond time stamps; `snap_len` is the most that is
/// captured of a packet.
pub fn file_header(link_type: u16, snap_len: u32) -> [u8; FILE_HEADER_LEN] {
    let mut header = [0; FILE_HEADER_LEN];
    header[..4].copy_from_slice(&MAGIC_NANOS.to_le_bytes());
    header[4..6].copy_from_slice(&VERSION_MAJOR.to_le_bytes());
    header[6..8].copy_from_slice(&VERSION_MINOR.to_le_bytes());
    header[16..20].copy_from_slice(&snap_len.to_le_bytes());
    header[20..22].copy_from_slice(&link_type.to_le_bytes());
    header
}

/// The header of a packet of which `captured` octets follow; [`Error::Range`] for a time
/// before 1970 or after 2106, or more than [`MAX_CAPTURED_LEN`] octets.
pub fn record_header(
    unix_nanos: i64,
    captured: usize,
    original_len: u32,
) -> Result<[u8; RECORD_HEADER_LEN], Error> {
    let seconds = u32::try_from(unix_nanos.div_euclid(1_000_000_000)).map_err(|_| Error::Range)?;
    let nanos = unix_nanos.rem_euclid(1_000_000_000) as u32;
    let captured = u32::try_from(captured)
        .ok()
        .filter(|captured| *captured <= MAX_CAPTURED_LEN)
        .ok_or(Error::Range)?;
    let mut header = [0; RECORD_HEADER_LEN];
    header[..4].copy_from_slice(&seconds.to_le_bytes());
    header[4..8].copy_from_slice(&nanos.to_le_bytes());
    header[8..12].copy_from_slice(&captured.to_le_bytes());
    header[12..].copy_from_slice(&original_len.to_le_bytes());
    Ok(header)
}

/// Length of the file header.
pub const FILE_HEADER_LEN: usize = 24;
/// Length of a packet's header.
pub const RECORD_HEADER_LEN: usize = 16;
/// Most octets of one packet: as libpcap, so that a broken length is not believed.
pub const MAX_CAPTURED_LEN: u32 = 262_144;
/// First four octets of a big-endian file with microseconds.
pub const MAGIC_MICROS: u32 = 0xA1B2_C3D4;
/// First four octets of a big-endian file with nanoseconds.
pub const MAGIC_NANOS: u32 = 0xA1B2_3C4D;

const VERSION_MAJOR: u16 = 2;
const VERSION_MINOR: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{CaptureError, LINKTYPE_ETHERNET, LINKTYPE_RAW, Reader};
    use proptest::prelude::*;

    extern crate std;
    use std::vec::Vec;

    /// A file of one packet "abc", 5 octets long on the wire, at 1 s and 7 units.
    fn file(magic: u32, order: ByteOrder) -> Vec<u8> {
        let mut file = Vec::new();
        let u32 = |v: u32| match order {
            ByteOrder::Big => v.to_be_bytes(),
            ByteOrder::Little => v.to_le_bytes(),
        };
        let u16 = |v: u16| match order {
            ByteOrder::Big => v.to_be_bytes(),
            ByteOrder::Little => v.to_le_bytes(),
        };
        file.extend(u32(magic));
        file.extend(u16(2));
        file.extend(u16(4));
        for field in [0, 0, 65_535, 0x1400_0001, 1, 7, 3, 5] {
            file.extend(u32(field));
        }
        file.extend(b"abc");
        file
    }

    #[test]
    fn all_four_kinds() {
        for order in [ByteOrder::Big, ByteOrder::Little] {
            for (magic, nanos) in [(MAGIC_MICROS, 7000), (MAGIC_NANOS, 7)] {
                let file = file(magic, order);
                let mut reader = Reader::new(&file).unwrap();
                let want = Record {
                    unix_nanos: 1_000_000_000 + nanos,
                    is_timed: true,
                    data: b"abc",
                    original_len: 5,
                    link_type: LINKTYPE_ETHERNET,
                    interface: 0,
                };
                assert_eq!(reader.next(), Some(Ok(want)));
                assert_eq!(reader.next(), None);
            }
        }
    }

    #[test]
    fn a_broken_file_is_named_where_it_breaks() {
        let good = file(MAGIC_NANOS, ByteOrder::Little);
        for len in 4..FILE_HEADER_LEN {
            let error = Reader::new(&good[..len]).unwrap_err();
            assert_eq!(error.kind, CaptureErrorKind::Truncated);
        }
        for len in FILE_HEADER_LEN + 1..good.len() {
            let mut reader = Reader::new(&good[..len]).unwrap();
            let error = CaptureError { offset: 24, kind: CaptureErrorKind::Truncated };
            assert_eq!(reader.next(), Some(Err(error)));
            assert_eq!(reader.next(), None);
        }
        let mut bad = good.clone();
        bad[34] = 0xFF;
        let error = CaptureError { offset: 24, kind: CaptureErrorKind::Length(0x00FF_0003) };
        assert_eq!(Reader::new(&bad).unwrap().next(), Some(Err(error)));
        let mut bad = good;
        bad[4] = 3;
        let kind = CaptureErrorKind::Version { major: 3, minor: 4 };
        assert_eq!(Reader::new(&bad).unwrap_err().kind, kind);
    }

    #[test]
    fn what_a_header_cannot_hold_is_refused() {
        assert_eq!(record_header(-1, 0, 0), Err(Error::Range));
        assert_eq!(record_header(i64::MAX, 0, 0), Err(Error::Range));
        assert_eq!(record_header(0, 262_145, 0), Err(Error::Range));
        assert!(record_header(4_294_967_295_999_999_999, 262_144, 0).is_ok());
    }

    proptest! {
        #[test]
        fn read_is_the_inverse_of_write(
            packets in proptest::collection::vec(
                (0i64..4_294_967_296_000_000_000, any::<Vec<u8>>(), any::<u32>()), 0..5),
        ) {
            let mut file = file_header(LINKTYPE_RAW, 262_144).to_vec();
            for (at, data, original_len) in &packets {
                file.extend(record_header(*at, data.len(), *original_len).unwrap());
                file.extend(data);
            }
            let reader = Reader::new(&file).unwrap();
            let read: Vec<_> = reader
                .map(|r| r.unwrap())
                .inspect(|r| assert_eq!(r.link_type, LINKTYPE_RAW))
                .map(|r| (r.unix_nanos, r.data.to_vec(), r.original_len))
                .collect();
            prop_assert_eq!(read, packets);
        }

        #[test]
        fn never_panics(bytes: Vec<u8>, big: bool, nanos: bool, at: usize, value: u8) {
            let _ = Reader::new(&bytes).map(|r| r.for_each(drop));
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let mut good = file(if nanos { MAGIC_NANOS } else { MAGIC_MICROS }, order);
            good.extend(&bytes);
            let at = at % good.len();
            good[at] = value;
            let _ = Reader::new(&good).map(|r| r.for_each(drop));
        }
    }
}
