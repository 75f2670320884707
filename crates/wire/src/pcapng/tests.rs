//! Files built by hand in both byte orders, and broken ones.

use super::*;
use crate::capture::{LINKTYPE_ETHERNET, LINKTYPE_RAW, Reader, ReaderState};
use crate::pcap;
use proptest::prelude::*;

extern crate std;
use std::vec::Vec;

/// Builds a file block by block.
struct Builder {
    order: ByteOrder,
    file: Vec<u8>,
}

impl Builder {
    fn new(order: ByteOrder) -> Self {
        Builder { order, file: Vec::new() }.section(1, 0)
    }

    fn u16(&self, v: u16) -> [u8; 2] {
        if self.order == ByteOrder::Big { v.to_be_bytes() } else { v.to_le_bytes() }
    }

    fn u32(&self, v: u32) -> [u8; 4] {
        if self.order == ByteOrder::Big { v.to_be_bytes() } else { v.to_le_bytes() }
    }

    fn u64(&self, v: u64) -> [u8; 8] {
        if self.order == ByteOrder::Big { v.to_be_bytes() } else { v.to_le_bytes() }
    }

    fn block(mut self, kind: u32, mut body: Vec<u8>) -> Self {
        body.resize(body.len().next_multiple_of(4), 0);
        let len = self.u32(body.len() as u32 + 12);
        self.file.extend(self.u32(kind));
        self.file.extend(len);
        self.file.extend(body);
        self.file.extend(len);
        self
    }

    fn section(self, major: u16, minor: u16) -> Self {
        let mut body = self.u32(BYTE_ORDER_MAGIC).to_vec();
        body.extend(self.u16(major));
        body.extend(self.u16(minor));
        body.extend(self.u64(u64::MAX));
        self.block(SECTION_HEADER, body)
    }

    fn interface(self, link_type: u16, snap_len: u32, options: &[(u16, &[u8])]) -> Self {
        let mut body = self.u16(link_type).to_vec();
        body.extend([0; 2]);
        body.extend(self.u32(snap_len));
        for (code, value) in options {
            body.extend(self.u16(*code));
            body.extend(self.u16(value.len() as u16));
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        body.extend([0; 4]);
        self.block(INTERFACE_DESCRIPTION, body)
    }

    fn packet(self, interface: u32, ticks: u64, data: &[u8], original_len: u32) -> Self {
        let mut body = Vec::new();
        let halves = [(ticks >> 32) as u32, ticks as u32];
        for v in [interface, halves[0], halves[1], data.len() as u32, original_len] {
            body.extend(self.u32(v));
        }
        body.extend(data);
        self.block(ENHANCED_PACKET, body)
    }

    fn simple(self, data: &[u8], original_len: u32) -> Self {
        let mut body = self.u32(original_len).to_vec();
        body.extend(data);
        self.block(SIMPLE_PACKET, body)
    }
}

fn kind(file: &[u8]) -> CaptureErrorKind {
    match Reader::new(file) {
        Err(error) => error.kind,
        Ok(reader) => reader.last().expect("an error").expect_err("an error").kind,
    }
}

#[test]
fn sections_interfaces_and_resolutions() {
    for order in [ByteOrder::Big, ByteOrder::Little] {
        let mut b = Builder::new(order)
            .interface(LINKTYPE_ETHERNET, 0, &[(2, b"eth0")])
            .interface(LINKTYPE_RAW, 4, &[(9, &[9])])
            .block(5, std::vec![0; 12]) // interface statistics: stepped over
            .packet(0, 1_000_007, b"abc", 5)
            .packet(1, 1_000_000_007, b"", 0)
            .simple(b"simple", 6);
        // A section of the other byte order, whose interface 0 is another one.
        b.order = if order == ByteOrder::Big { ByteOrder::Little } else { ByteOrder::Big };
        let offset = b.u64((-2i64) as u64);
        let b = b
            .section(1, 0)
            .interface(LINKTYPE_RAW, 4, &[(9, &[0x80 | 1]), (14, &offset)])
            .packet(0, 7, b"x", 1)
            .simple(b"cut!", 9);
        let records: Vec<_> = Reader::new(&b.file).unwrap().map(|r| r.unwrap()).collect();
        let want = |unix_nanos, data: &'static [u8], original_len, link_type, interface| Record {
            unix_nanos,
            is_timed: !matches!(data, b"simple" | b"cut!"),
            data,
            original_len,
            link_type,
            interface,
        };
        assert_eq!(
            records,
            [
                want(1_000_007_000, b"abc", 5, LINKTYPE_ETHERNET, 0),
                want(1_000_000_007, b"", 0, LINKTYPE_RAW, 1),
                want(1_000_000_007, b"simple", 6, LINKTYPE_ETHERNET, 0),
                want(1_500_000_000, b"x", 1, LINKTYPE_RAW, 0),
                want(1_500_000_000, b"cut!", 9, LINKTYPE_RAW, 0),
            ]
        );
    }
}

#[test]
fn resolutions_at_their_ends() {
    let nanos = |resolution, offset, ticks| {
        Interface { resolution, offset, ..Interface::default() }.nanos(ticks)
    };
    assert_eq!(nanos(Resolution::Decimal(0), 0, 3), Some(3_000_000_000));
    assert_eq!(nanos(Resolution::Decimal(12), 0, 1999), Some(1));
    assert_eq!(nanos(Resolution::Decimal(127), 0, u64::MAX), Some(0));
    assert_eq!(nanos(Resolution::Binary(32), 0, 1 << 31), Some(500_000_000));
    assert_eq!(nanos(Resolution::Binary(127), 0, u64::MAX), Some(0));
    assert_eq!(nanos(Resolution::Decimal(0), i64::MAX, u64::MAX), None);
    assert_eq!(nanos(Resolution::Decimal(9), i64::MIN, 0), None);
    assert_eq!(nanos(Resolution::Decimal(9), 0, 1 << 62), Some(1 << 62));
    assert_eq!(nanos(Resolution::Decimal(9), 0, (1 << 62) + 1), None);
}

#[test]
fn a_broken_file_is_named() {
    let good = || Builder::new(ByteOrder::Little).interface(LINKTYPE_ETHERNET, 0, &[]);
    let with = |at: usize, value: u8| {
        let mut file = good().packet(0, 1, b"abcd", 4).file;
        let at = if at >= 100 { file.len() - (at - 100) } else { at };
        file[at] = value;
        kind(&file)
    };
    assert_eq!(with(8, 0), CaptureErrorKind::Magic);
    assert_eq!(with(4, 24), CaptureErrorKind::Length(24));
    assert_eq!(with(4, 29), CaptureErrorKind::Length(29));
    assert_eq!(with(12, 9), CaptureErrorKind::Version { major: 9, minor: 0 });
    assert_eq!(with(104, 40), CaptureErrorKind::Trailer { first: 36, last: 40 });
    // Captured length of the packet: 12 octets from the end of block are 8 of data + trailer.
    assert_eq!(with(116, 5), CaptureErrorKind::Length(5));
    assert_eq!(
        kind(&good().block(ENHANCED_PACKET, std::vec![0; 16]).file),
        CaptureErrorKind::Length(16)
    );
    assert_eq!(
        kind(&good().block(INTERFACE_DESCRIPTION, std::vec![0; 4]).file),
        CaptureErrorKind::Length(4)
    );
    for (code, value) in [(9, &[1, 2][..]), (14, &[0; 4])] {
        let file = good().interface(1, 0, &[(code, value)]).file;
        assert_eq!(kind(&file), CaptureErrorKind::Option(code));
    }
}

#[test]
fn what_cannot_be_read_is_counted_and_the_file_goes_on() {
    for order in [ByteOrder::Big, ByteOrder::Little] {
        let file = Builder::new(order)
            .simple(b"before any description", 22)
            .interface(LINKTYPE_ETHERNET, 0, &[])
            .packet(0, 1, b"a", 1)
            .packet(1, 2, b"of no interface", 15)
            .packet(0, u64::MAX, b"of no time", 10)
            .block(4, std::vec![0; 4]) // Name resolution.
            .block(0xBAD, std::vec![0; 8])
            .block(0x4000_0BAD, std::vec![0; 8])
            .packet(0, 3, b"b", 1)
            .file;
        let mut reader = Reader::new(&file).unwrap();
        let read: Vec<_> = reader.by_ref().map(|r| r.unwrap()).map(|r| r.unix_nanos).collect();
        assert_eq!(read, [1_000, 3_000]);
        let skipped = Skipped { bad_times: 1, no_interface: 2, other_blocks: 2 };
        assert_eq!(reader.skipped(), skipped);
    }
}

#[test]
fn obsolete_packet_blocks() {
    for order in [ByteOrder::Big, ByteOrder::Little] {
        let b = Builder::new(order).interface(LINKTYPE_ETHERNET, 0, &[]).interface(
            LINKTYPE_RAW,
            0,
            &[(9, &[9])],
        );
        let mut body = [b.u16(1), b.u16(7)].concat(); // Interface; seven were dropped.
        for v in [1, 5, 3, 9] {
            body.extend(b.u32(v));
        }
        body.extend(b"abc");
        let file = b.block(OBSOLETE_PACKET, body).file;
        let record = Record {
            unix_nanos: (1 << 32) + 5,
            is_timed: true,
            data: b"abc",
            original_len: 9,
            link_type: LINKTYPE_RAW,
            interface: 1,
        };
        assert_eq!(Reader::new(&file).unwrap().collect::<Vec<_>>(), [Ok(record)]);
        let short = Builder::new(order).block(OBSOLETE_PACKET, std::vec![0; 16]).file;
        assert_eq!(kind(&short), CaptureErrorKind::Length(16));
    }
}

/// Each with a link type and a resolution of its own: those that are not at hand any more
/// are found again.
#[test]
fn any_number_of_interfaces() {
    const MANY: u16 = 3 * KEPT as u16 + 1;
    let mut b = Builder::new(ByteOrder::Little).interface(1, 0, &[]);
    b = b.packet(0, 1, b"of a section before", 19).section(1, 0);
    for i in 0..MANY {
        b = b.interface(i, 0, &[(9, &[if i % 2 == 0 { 6 } else { 9 }])]);
        b = b.packet(i.into(), 5, b"at once", 7);
    }
    for i in (0..MANY).rev() {
        b = b.packet(i.into(), 5, b"later", 5);
    }
    let mut reader = Reader::new(&b.file).unwrap();
    let records: Vec<_> = reader.by_ref().skip(1).map(|r| r.unwrap()).collect();
    assert_eq!(reader.skipped(), Skipped::default());
    let order = (0..MANY).chain((0..MANY).rev());
    assert_eq!(records.len(), 2 * usize::from(MANY));
    for (i, record) in order.zip(records) {
        let unix_nanos = if i % 2 == 0 { 5_000 } else { 5 };
        assert_eq!((record.interface, record.link_type), (i.into(), i));
        assert_eq!(record.unix_nanos, unix_nanos);
    }
}

/// A file may be made so that each packet's interface must be searched for far back. It is read in
/// bounded time, and the reader says what it left out.
#[test]
fn a_search_that_would_take_for_ever_is_given_up() {
    let mut b = Builder::new(ByteOrder::Little).interface(1, 0, &[]);
    for _ in 0..4_000 {
        b = b.block(4, Vec::new());
    }
    for i in 1..=KEPT as u16 {
        b = b.interface(i, 0, &[]);
    }
    // In the same position, and the one is before and the other behind those blocks.
    for _ in 0..1_000 {
        b = b.packet(0, 1, b"", 0).packet(KEPT as u32, 1, b"", 0);
    }
    let mut reader = Reader::new(&b.file).unwrap();
    let read = reader.by_ref().inspect(|r| assert!(r.is_ok())).count() as u64;
    assert!(read >= 1_000, "{read}");
    let skipped = reader.skipped().no_interface;
    assert_eq!(read + skipped, 2_000);
    assert!(skipped > 0);
}

#[test]
fn a_file_cut_short_gives_the_packets_before_the_cut() {
    let one =
        Builder::new(ByteOrder::Little).interface(LINKTYPE_ETHERNET, 0, &[]).packet(0, 1, b"a", 1);
    let whole = one.file.len();
    let file = one.packet(0, 2, b"b", 1).file;
    for len in whole + 1..file.len() {
        let mut reader = Reader::new(&file[..len]).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().data, b"a");
        let error = CaptureError { offset: whole, kind: CaptureErrorKind::Truncated };
        assert_eq!(reader.next(), Some(Err(error)));
        assert_eq!(reader.next(), None);
    }
}

#[test]
fn interfaces_have_names() {
    let long = "a name longer than there is room for";
    let file = Builder::new(ByteOrder::Big)
        .interface(1, 0, &[(2, b"eth0")])
        .interface(1, 0, &[])
        .interface(1, 0, &[(9, &[6]), (2, long.as_bytes())])
        .interface(1, 0, &[(2, &[b'a', 0xFF])])
        .interface(1, 0, &[(2, "b\u{1b}[2J".as_bytes())])
        .interface(1, 0, &[(2, "c\u{9b}2J".as_bytes())])
        .packet(0, 1, b"", 0)
        .file;
    let mut reader = Reader::new(&file).unwrap();
    assert_eq!(reader.interface_name(0), None, "not read yet");
    assert!(reader.next().unwrap().is_ok());
    let names: Vec<_> = (0..7).map(|i| reader.interface_name(i)).collect();
    let long = Some(&long[..MOST_OF_NAME]);
    assert_eq!(names, [Some("eth0"), None, long, Some("a"), Some("b"), Some("c"), None]);
}

/// What a packet is, for comparison.
type Seen = Result<(i64, bool, Vec<u8>, u32, u16, u32), CaptureError>;

fn seen(record: Result<Record<'_>, CaptureError>) -> Seen {
    record.map(|r| {
        (r.unix_nanos, r.is_timed, r.data.to_vec(), r.original_len, r.link_type, r.interface)
    })
}

/// Reads a file that comes in pieces of these lengths, over and over; each packet as soon as it
/// is whole.
fn in_pieces(file: &[u8], lengths: &[usize]) -> (Vec<Seen>, Skipped) {
    let (mut all, mut state, mut window, mut rest) =
        (Vec::new(), ReaderState::default(), Vec::new(), file);
    for i in 0.. {
        let (piece, behind) = rest.split_at(rest.len().min(lengths[i % lengths.len()].max(1)));
        window.extend(piece);
        rest = behind;
        let mut reader = Reader::resume(state, &window, rest.is_empty());
        all.extend(reader.by_ref().map(seen));
        let (consumed, skipped) = (reader.consumed(), reader.skipped());
        state = reader.into_state();
        window.drain(..consumed);
        if rest.is_empty() {
            return (all, skipped);
        }
    }
    unreachable!()
}

proptest! {
    /// Whole or in pieces: the same packets, counters and error.
    #[test]
    fn pieces_make_the_whole(
        big: bool,
        classic: bool,
        lengths in proptest::collection::vec(1usize..200, 1..5),
        packets in proptest::collection::vec((0u32..3, any::<u32>(), any::<Vec<u8>>()), 0..9),
        cut in proptest::option::of(any::<proptest::sample::Index>()),
        change in proptest::option::of((any::<proptest::sample::Index>(), any::<u8>())),
    ) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let mut b = Builder::new(order)
            .interface(LINKTYPE_ETHERNET, 0, &[])
            .interface(LINKTYPE_RAW, 0, &[(9, &[9])]);
        let mut old = pcap::file_header(LINKTYPE_RAW, 262_144).to_vec();
        for (kind, ticks, data) in &packets {
            b = match kind {
                0 => b.packet(ticks & 1, (*ticks).into(), data, *ticks),
                1 => b.simple(data, data.len() as u32),
                _ => b.section(1, 0).interface(LINKTYPE_ETHERNET, 0, &[]).block(9, data.clone()),
            };
            old.extend(pcap::record_header((*ticks).into(), data.len(), *ticks).unwrap());
            old.extend(data);
        }
        let mut file = if classic { old } else { b.file };
        if let Some((at, value)) = change {
            let at = at.index(file.len());
            file[at] = value;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        let whole = match Reader::new(&file) {
            Ok(mut reader) => {
                let all: Vec<_> = reader.by_ref().map(seen).collect();
                (all, reader.skipped())
            }
            Err(error) => (std::vec![Err(error)], Skipped::default()),
        };
        prop_assert_eq!(in_pieces(&file, &lengths), whole);
    }

    #[test]
    fn never_panics(
        bytes: Vec<u8>,
        big: bool,
        resolution: u8,
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let _ = Reader::new(&bytes).map(|r| r.for_each(drop));
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let mut file = Builder::new(order)
            .interface(LINKTYPE_ETHERNET, 0, &[(9, &[resolution]), (14, &[0xFF; 8])])
            .packet(0, u64::MAX, &bytes, 0)
            .simple(&bytes, bytes.len() as u32)
            .block(bytes.len() as u32, bytes.clone())
            .file;
        for (at, value) in changes {
            let at = at.index(file.len());
            file[at] = value;
        }
        let _ = Reader::new(&file).map(|r| r.for_each(drop));
    }
}
