//! A capture's packets in order, in groups during which the clock stands.
//!
//! Time-outs are only handled between two groups, and a group is the same to every thread that
//! reads the file. So a flow's records depend neither on the count of threads nor on which
//! other flows its thread has.

use std::collections::BTreeMap;

use sonde_meter::flow::prefetch::prefetch;
use sonde_wire::capture::{Reader, Record};
use sonde_wire::flow::LinkType;

use super::meter::CapturedFrame;
use super::shard::Shard;
use crate::capture_file::{BatchLimits, CapturePiece, Unread, describe};

/// A way through captures, one piece after the other.
pub struct CaptureReader {
    offset_ns: i64,
    /// Packets from this time on are left out.
    end_ns: i64,
    /// A packet at or after [`CaptureReader::end_ns`] has come.
    is_over: bool,
    pace: Pace,
    /// Time of the latest packet, ns since 1970 TAI; `i64::MIN` before the first.
    pub latest_ns: i64,
    /// What is wrong with captures.
    pub broken: Vec<String>,
    /// What was not read, as far as the piece that was left last.
    pub unread: Unread,
    /// The highest of the interfaces that a pcapng file describes and its packets name.
    pub last_interface: u8,
    /// Names of interfaces in the captures, by index.
    pub names: BTreeMap<u8, String>,
}

/// A piece of a capture on its way.
pub struct Within<'a> {
    piece: &'a CapturePiece,
    bytes: &'a [u8],
    reader: Reader<'a>,
    /// The first packet of the next group.
    held: Option<Record<'a>>,
}

impl<'a> Within<'a> {
    pub fn new(piece: &'a CapturePiece) -> Within<'a> {
        Within { piece, bytes: piece.bytes(), reader: piece.reader(), held: None }
    }
}

impl CaptureReader {
    /// From the beginning to `end_ns`; `offset_ns` is TAI - UTC.
    pub fn new(offset_ns: i64, end_ns: i64) -> CaptureReader {
        CaptureReader {
            offset_ns,
            end_ns,
            is_over: false,
            pace: Pace::default(),
            latest_ns: i64::MIN,
            broken: Vec::new(),
            unread: Unread::default(),
            last_interface: 0,
            names: BTreeMap::new(),
        }
    }

    /// Whether no more packets are wanted.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The next group; false: there is none in this piece. `take` gets what of it may be in
    /// `shard`.
    #[inline(always)]
    pub fn group<'a>(
        &mut self,
        within: &mut Within<'a>,
        shard: &Shard,
        mut take: impl FnMut(CapturedFrame<'a>),
    ) -> bool {
        let (mut begin, mut latest, mut passed) = (0, i64::MIN, 0);
        let mut next = within.held.take().or_else(|| self.read(within));
        while let Some(record) = next {
            let at_ns = record.unix_nanos.saturating_add(self.offset_ns);
            if passed == 0 {
                begin = at_ns;
            } else if passed == GROUP || at_ns.saturating_sub(begin) > LONGEST_NS {
                within.held = Some(record);
                break;
            }
            if at_ns >= self.end_ns {
                self.is_over = true;
                break;
            }
            if let Some(frame) = self.frame(&record, within, at_ns, shard) {
                take(frame);
            }
            latest = latest.max(at_ns);
            passed += 1;
            next = self.read(within);
        }
        if passed > 0 {
            self.latest_ns = self.latest_ns.max(latest);
            self.pace.group(latest);
        }
        passed > 0
    }

    #[inline(always)]
    fn frame<'a>(
        &mut self,
        record: &Record<'a>,
        within: &Within<'a>,
        at_ns: i64,
        shard: &Shard,
    ) -> Option<CapturedFrame<'a>> {
        let Record { data: bytes, original_len, link_type, interface, is_timed, .. } = *record;
        // The processor fetches ahead by itself, but not across pages.
        let at = bytes.as_ptr().addr() - within.bytes.as_ptr().addr();
        prefetch(within.bytes, at + AHEAD);
        self.unread.untimed += u64::from(!is_timed);
        let Some(link) = LinkType::from_capture(link_type) else {
            self.unread.link_type(link_type);
            return None;
        };
        if !self.unread.may_read(link, bytes) {
            return None;
        }
        let point = interface.min(u8::MAX.into()) as u8;
        self.last_interface = self.last_interface.max(point);
        if shard.can_skip(bytes, link) {
            return None;
        }
        let wire_len = original_len as usize;
        Some(CapturedFrame { bytes, wire_len, segment: 0, link, at_ns, point })
    }

    /// The next packet; `None`: the piece ends, or cannot be read further.
    #[inline(always)]
    fn read<'a>(&mut self, within: &mut Within<'a>) -> Option<Record<'a>> {
        match within.reader.next() {
            Some(Ok(record)) => Some(record),
            Some(Err(error)) => {
                self.broken.push(describe(&within.piece.name, error));
                None
            }
            None => None,
        }
    }

    /// After a piece: what its reader stepped over and what its interfaces are called.
    pub fn leave(&mut self, within: &Within<'_>) {
        self.unread.stepped_over(within.piece, within.reader.skipped());
        for point in 0..=self.last_interface {
            if let Some(name) = within.reader.interface_name(point.into()) {
                self.names.entry(point).or_insert_with(|| name.to_owned());
            }
        }
    }

    /// What the clock shows while the latest group passes, ns since 1970 TAI; `None`: it has
    /// not advanced.
    pub fn clock(&self) -> Option<i64> {
        self.pace.advances.then_some(self.pace.now)
    }

    /// The time at the end of the file, ns since 1970 TAI: `i64::MIN` if it was empty.
    pub fn now_ns(&self) -> i64 {
        self.pace.now
    }
}

/// The clock that the packets make.
#[derive(Clone, Copy, Debug)]
struct Pace {
    now: i64,
    /// The cache is to be given the time.
    advances: bool,
    /// Groups in a row that were well behind.
    behind: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { now: i64::MIN, advances: false, behind: 0 }
    }
}

impl Pace {
    /// A group passes, and this is its latest time. A single packet a little behind merely
    /// came out of order.
    #[inline]
    fn group(&mut self, latest: i64) {
        let behind = self.now.saturating_sub(latest);
        let is_behind = behind > BEHIND_NS;
        self.behind = if is_behind { self.behind + 1 } else { 0 };
        self.advances = behind <= 0 || behind > JUMP_NS || self.behind == BEHIND_GROUPS;
        if self.advances {
            (self.now, self.behind) = (latest, 0);
        }
    }
}

/// Packets of a group at most: enough for bursts of several threads, and few enough to stay
/// in the processor's nearest cache.
pub const GROUP: usize = 64;
/// As pieces of captures are to have them.
pub const GROUPS: BatchLimits = BatchLimits { packets: GROUP, longest_ns: LONGEST_NS };
/// How much later than its first a packet of a group may be, ns. It is less than the flow cache
/// gives stragglers: no flow ends before a packet that belongs to it.
const LONGEST_NS: i64 = 250_000_000;
/// Bytes of the file that are fetched ahead.
const AHEAD: usize = 2_048;
/// Packets further behind did not merely come out of order, ns; as in the flow cache.
const BEHIND_NS: i64 = 1_000_000_000;
/// So many groups in a row: the clock was set back.
const BEHIND_GROUPS: u32 = 2;
/// Across such a leap no flow goes on, ns; as in the flow cache.
const JUMP_NS: i64 = 12 * 3600 * 1_000_000_000;
