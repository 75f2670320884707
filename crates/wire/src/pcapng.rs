//! pcapng files (draft-ietf-opsawg-pcapng), read only: section header, interface
//! description, enhanced and simple packet blocks, and the obsolete packet block; other
//! blocks are stepped over.

use core::ops::RangeInclusive;

use crate::byte_order::ByteOrder;
use crate::capture_record::{CaptureError, CaptureErrorKind, Record, Skipped};

/// What the blocks so far have said.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    order: ByteOrder,
    /// The interface with id `n` at index `n` modulo [`KEPT`], with `n`: the latest.
    interfaces: [(u32, Interface); KEPT],
    /// Their names, at the same indexes.
    names: [Name; KEPT],
    /// Interfaces that the section has described so far.
    count: u32,
    /// Where its blocks begin, from the begin of the file.
    begin: usize,
    /// Blocks that may still be stepped over in search of a description that is not kept.
    steps: usize,
    /// Time of the latest packet that has one.
    latest: i64,
    skipped: Skipped,
    /// After an error: nothing more is read.
    is_over: bool,
}

/// An interface's name, or the begin of a long one.
#[derive(Clone, Copy, Debug, Default)]
struct Name {
    len: u8,
    text: [u8; MOST_OF_NAME],
}

/// What an interface description block says of its packets.
#[derive(Clone, Copy, Debug, Default)]
struct Interface {
    link_type: u16,
    snap_len: u32,
    resolution: Resolution,
    /// Seconds that are added to every time stamp.
    offset: i64,
}

/// Units of a time stamp in a second.
#[derive(Clone, Copy, Debug)]
enum Resolution {
    /// 10^n units in a second.
    Decimal(u8),
    /// 2^n units in a second.
    Binary(u8),
}

/// A whole block without its lengths.
struct Block<'a> {
    kind: u32,
    body: &'a [u8],
}

impl Default for Section {
    fn default() -> Self {
        Section {
            order: ByteOrder::Little,
            interfaces: [(0, Interface::default()); KEPT],
            names: [Name::default(); KEPT],
            count: 0,
            begin: 0,
            steps: STEPS,
            latest: 0,
            skipped: Skipped::default(),
            is_over: false,
        }
    }
}

impl Section {
    /// Reads the first section header, at the begin of the file.
    pub(crate) fn begin(&mut self, bytes: &[u8], at: &mut usize) -> Result<(), CaptureError> {
        let position = Position { bytes, at: 0, base: 0 };
        let block = self.block(position)?;
        self.section(block.body, position)?;
        *at = block.body.len() + BLOCK_OVERHEAD;
        Ok(())
    }

    pub(crate) fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// Nothing more is read.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    pub(crate) fn interface_name(&self, id: u32) -> Option<&str> {
        let kept = id as usize % KEPT;
        let is_kept = id < self.count && self.interfaces[kept].0 == id;
        let Name { len, text } = &self.names[kept];
        let name = core::str::from_utf8(&text[..usize::from(*len)]).ok()?;
        (is_kept && !name.is_empty()).then_some(name)
    }

    /// Steps from block to block to the next packet, from `at` on, which is left behind the
    /// last whole block. `base`: octets of the file before `bytes`.
    #[inline]
    pub(crate) fn packet<'a>(
        &mut self,
        bytes: &'a [u8],
        at: &mut usize,
        base: usize,
    ) -> Result<Option<Record<'a>>, CaptureError> {
        while *at < bytes.len() && !self.is_over {
            let position = Position { bytes, at: *at, base };
            let block = self.block(position)?;
            let mut record = None;
            match block.kind {
                SECTION_HEADER => self.section(block.body, position)?,
                INTERFACE_DESCRIPTION => self.interface(block.body, position)?,
                ENHANCED_PACKET | OBSOLETE_PACKET => record = self.timed(&block, position)?,
                SIMPLE_PACKET => record = self.simple(block.body, position)?,
                NAME_RESOLUTION | INTERFACE_STATISTICS | DECRYPTION_SECRETS => {}
                _ => self.skipped.other_blocks += 1,
            }
            *at += block.body.len() + BLOCK_OVERHEAD;
            self.steps = self.steps.saturating_add(STEPS_PER_BLOCK);
            if record.is_some() {
                return Ok(record);
            }
        }
        Ok(None)
    }

    /// The block at a position, its lengths checked. A section header sets the byte order, for
    /// its own lengths are in it.
    fn block<'a>(&mut self, position: Position<'a>) -> Result<Block<'a>, CaptureError> {
        let rest = &position.bytes[position.at..];
        let truncated = position.error(CaptureErrorKind::Truncated);
        let mut kind = self.order.u32(rest, 0).ok_or(truncated)?;
        // The type of a section header reads the same in both byte orders.
        if kind == SECTION_HEADER {
            self.order = match ByteOrder::Big.u32(rest, 8).ok_or(truncated)? {
                BYTE_ORDER_MAGIC => ByteOrder::Big,
                magic if magic == BYTE_ORDER_MAGIC.swap_bytes() => ByteOrder::Little,
                _ => return Err(position.error(CaptureErrorKind::Magic)),
            };
            kind = SECTION_HEADER;
        }
        let len = self.order.u32(rest, 4).ok_or(truncated)?;
        let least = if kind == SECTION_HEADER { 28 } else { BLOCK_OVERHEAD };
        if !len.is_multiple_of(4) || (len as usize) < least || len > MAX_BLOCK_LEN {
            return Err(position.error(CaptureErrorKind::Length(len)));
        }
        let block = rest.get(..len as usize).ok_or(truncated)?;
        let (body, trailer) = block[8..].split_at(block.len() - BLOCK_OVERHEAD);
        let last = self.order.u32(trailer, 0).ok_or(truncated)?;
        if last != len {
            return Err(position.error(CaptureErrorKind::Trailer { first: len, last }));
        }
        Ok(Block { kind, body })
    }

    /// A new section: what the one before said is forgotten.
    fn section(&mut self, body: &[u8], position: Position<'_>) -> Result<(), CaptureError> {
        let truncated = position.error(CaptureErrorKind::Truncated);
        let major = self.order.u16(body, 4).ok_or(truncated)?;
        let minor = self.order.u16(body, 6).ok_or(truncated)?;
        // 1.2 was written by some programs and is the same as 1.0.
        if major != 1 || !matches!(minor, 0 | 2) {
            return Err(position.error(CaptureErrorKind::Version { major, minor }));
        }
        self.count = 0;
        self.begin = position.base + position.at + body.len() + BLOCK_OVERHEAD;
        Ok(())
    }

    fn interface(&mut self, body: &[u8], position: Position<'_>) -> Result<(), CaptureError> {
        let (interface, name) = self.description(body, position)?;
        let kept = self.count as usize % KEPT;
        (self.interfaces[kept], self.names[kept]) = ((self.count, interface), name);
        self.count += 1;
        Ok(())
    }

    fn description(
        &self,
        body: &[u8],
        position: Position<'_>,
    ) -> Result<(Interface, Name), CaptureError> {
        if body.len() < 8 {
            return Err(position.error(CaptureErrorKind::Length(body.len() as u32)));
        }
        let truncated = position.error(CaptureErrorKind::Truncated);
        let mut interface = Interface {
            link_type: self.order.u16(body, 0).ok_or(truncated)?,
            snap_len: self.order.u32(body, 4).ok_or(truncated)?,
            ..Interface::default()
        };
        let mut name = Name::default();
        let mut options = &body[8..];
        while !options.is_empty() {
            let code = self.order.u16(options, 0).ok_or(truncated)?;
            let len = usize::from(self.order.u16(options, 2).ok_or(truncated)?);
            if code == OPTION_END {
                break;
            }
            let wrong = position.error(CaptureErrorKind::Option(code));
            let value = options.get(4..4 + len).ok_or(wrong)?;
            match code {
                OPTION_NAME => name = Name::of(value),
                OPTION_TSRESOL => match *value {
                    [n] if n & 0x80 == 0 => interface.resolution = Resolution::Decimal(n),
                    [n] => interface.resolution = Resolution::Binary(n & 0x7F),
                    _ => return Err(wrong),
                },
                OPTION_TSOFFSET if len == 8 => {
                    interface.offset = self.order.u64(value, 0).ok_or(wrong)? as i64;
                }
                OPTION_TSOFFSET => return Err(wrong),
                _ => {}
            }
            options = options.get(4 + len.next_multiple_of(4)..).unwrap_or(&[]);
        }
        Ok((interface, name))
    }

    /// A packet with a time stamp; `None`: counted. The obsolete block differs only in its
    /// first field: 16 bits of interface, then 16 of packets that were dropped.
    #[inline]
    fn timed<'a>(
        &mut self,
        block: &Block<'a>,
        position: Position<'a>,
    ) -> Result<Option<Record<'a>>, CaptureError> {
        let body = block.body;
        let short = position.error(CaptureErrorKind::Length(body.len() as u32));
        let order = self.order;
        let field = |at| order.u32(body, at).ok_or(short);
        let (ticks, captured) = (u64::from(field(4)?) << 32 | u64::from(field(8)?), field(12)?);
        let original_len = field(16)?;
        let data = body[20..].get(..captured as usize);
        let data = data.ok_or(position.error(CaptureErrorKind::Length(captured)))?;
        let id = match block.kind {
            OBSOLETE_PACKET => order.u16(body, 0).ok_or(short)?.into(),
            _ => field(0)?,
        };
        let Some(interface) = self.described(id, position) else {
            self.skipped.no_interface += 1;
            return Ok(None);
        };
        let Some(unix_nanos) = interface.nanos(ticks) else {
            self.skipped.bad_times += 1;
            return Ok(None);
        };
        self.latest = unix_nanos;
        let link_type = interface.link_type;
        let is_timed = true;
        Ok(Some(Record { unix_nanos, is_timed, data, original_len, link_type, interface: id }))
    }

    /// A simple packet has no time stamp. How much of it was captured follows from the snap
    /// length of interface 0.
    fn simple<'a>(
        &mut self,
        body: &'a [u8],
        position: Position<'a>,
    ) -> Result<Option<Record<'a>>, CaptureError> {
        let short = position.error(CaptureErrorKind::Length(body.len() as u32));
        let original_len = self.order.u32(body, 0).ok_or(short)?;
        let Some(interface) = self.described(0, position) else {
            self.skipped.no_interface += 1;
            return Ok(None);
        };
        let captured = match interface.snap_len {
            0 => original_len,
            snap_len => original_len.min(snap_len),
        };
        let data = body[4..].get(..captured as usize);
        Ok(Some(Record {
            unix_nanos: self.latest,
            is_timed: false,
            data: data.ok_or(position.error(CaptureErrorKind::Length(captured)))?,
            original_len,
            link_type: interface.link_type,
            interface: 0,
        }))
    }

    /// The section's interface of this id. `None`: it has not described that many, or the
    /// description is too far back to be found anew for each packet in bounded time.
    #[inline]
    fn described(&mut self, id: u32, position: Position<'_>) -> Option<Interface> {
        if id >= self.count {
            return None;
        }
        let kept = id as usize % KEPT;
        let (index, interface) = self.interfaces[kept];
        if index == id {
            return Some(interface);
        }
        let (interface, name) = self.search(id, position)?;
        (self.interfaces[kept], self.names[kept]) = ((id, interface), name);
        Some(interface)
    }

    /// Looks an interface up in the section, whose blocks as far as here are whole. Of a file that
    /// comes piece by piece they may be gone.
    fn search(&mut self, id: u32, position: Position<'_>) -> Option<(Interface, Name)> {
        let (mut at, mut index) = (self.begin.checked_sub(position.base)?, 0);
        while at < position.at {
            self.steps = self.steps.checked_sub(1)?;
            let len = self.order.u32(position.bytes, at + 4)? as usize;
            if self.order.u32(position.bytes, at)? == INTERFACE_DESCRIPTION {
                if index == id {
                    let body = position.bytes.get(at + 8..at + len - 4)?;
                    return self.description(body, position).ok();
                }
                index += 1;
            }
            at += len;
        }
        None
    }
}

/// Where a block begins: at `at` of `bytes`, before which the file had `base` octets.
#[derive(Clone, Copy)]
struct Position<'a> {
    bytes: &'a [u8],
    at: usize,
    base: usize,
}

impl Position<'_> {
    fn error(&self, kind: CaptureErrorKind) -> CaptureError {
        CaptureError { offset: self.base + self.at, kind }
    }
}

impl Name {
    /// As much as there is room for, up to a whole character. It is shown to people, so it ends
    /// before what could do something to their terminal, as before NUL.
    fn of(value: &[u8]) -> Name {
        let value = value.split(|&octet| octet == 0).next().unwrap_or_default();
        let mut len = value.len().min(MOST_OF_NAME);
        while len > 0 && core::str::from_utf8(&value[..len]).is_err() {
            len -= 1;
        }
        let text = core::str::from_utf8(&value[..len]).unwrap_or_default();
        let len = text.find(char::is_control).unwrap_or(len);
        let mut name = Name { len: len as u8, ..Name::default() };
        name.text[..len].copy_from_slice(&value[..len]);
        name
    }
}

impl Default for Resolution {
    /// Microseconds, where the file says nothing.
    fn default() -> Self {
        Resolution::Decimal(6)
    }
}

impl Interface {
    /// A time stamp in nanoseconds since 1970, rounded down; `None`: beyond [`TIMES`].
    fn nanos(&self, ticks: u64) -> Option<i64> {
        let ticks = u128::from(ticks);
        let nanos = match self.resolution {
            Resolution::Decimal(n @ 0..=9) => ticks * 10u128.pow(u32::from(9 - n)),
            // 64 bits of ticks finer than 10^-38 s are less than a nanosecond.
            Resolution::Decimal(n) => {
                10u128.checked_pow(u32::from(n) - 9).map_or(0, |unit| ticks / unit)
            }
            // ticks * 10^9 has at most 94 bits.
            Resolution::Binary(n) => (ticks * 1_000_000_000) >> n,
        };
        let offset = i128::from(self.offset) * 1_000_000_000;
        i64::try_from(nanos as i128 + offset).ok().filter(|nanos| TIMES.contains(nanos))
    }
}

/// Block type of a section header: the first four octets of a file.
pub const SECTION_HEADER: u32 = 0x0A0D_0D0A;
/// Block type of an interface description.
pub const INTERFACE_DESCRIPTION: u32 = 1;
/// Block type of a packet in files written before 2008.
pub const OBSOLETE_PACKET: u32 = 2;
/// Block type of a packet without time stamp.
pub const SIMPLE_PACKET: u32 = 3;
/// Block type of a packet.
pub const ENHANCED_PACKET: u32 = 6;

/// Blocks that hold no packet.
const NAME_RESOLUTION: u32 = 4;
const INTERFACE_STATISTICS: u32 = 5;
const DECRYPTION_SECRETS: u32 = 10;
/// From 1897 to 2116: the difference of any two, and what is added to one, fit an `i64`.
const TIMES: RangeInclusive<i64> = -(1 << 61)..=1 << 62;
/// Interface descriptions that are at hand; those of a section with more are searched for.
const KEPT: usize = 128;
/// Steps of that search: so many at first, and so many more for each block that is read. So the
/// time for a file grows with its length and no faster.
const STEPS: usize = 1 << 20;
const STEPS_PER_BLOCK: usize = 64;
/// Type and two lengths.
const BLOCK_OVERHEAD: usize = 12;
const BYTE_ORDER_MAGIC: u32 = 0x1A2B_3C4D;
/// Of a block's length: as Wireshark has it four times over, so that a broken length is not
/// waited for.
const MAX_BLOCK_LEN: u32 = 1 << 26;
/// Octets of a name.
const MOST_OF_NAME: usize = 31;
const OPTION_END: u16 = 0;
const OPTION_NAME: u16 = 2;
const OPTION_TSRESOL: u16 = 9;
const OPTION_TSOFFSET: u16 = 14;

#[cfg(test)]
mod tests;
