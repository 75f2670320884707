//! pcapng files (draft-ietf-opsawg-pcapng), read only: section header, interface
//! description, enhanced and simple packet blocks, and the obsolete packet block; other
//! blocks are stepped over.

use core::ops::RangeInclusive;

use crate::capture::{CaptureError, CaptureErrorKind, Order, Record, Skipped};

/// Reads a file packet by packet. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    file: &'a [u8],
    offset: usize,
    order: Order,
    /// The interface with number `n` in place `n` modulo [`KEPT`], with `n`: the latest.
    interfaces: [(u32, Interface); KEPT],
    /// Interfaces that the section has described so far.
    count: u32,
    /// Where its blocks begin.
    section: usize,
    /// Blocks that may still be stepped over in search of a description that is not kept.
    steps: usize,
    skipped: Skipped,
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
    /// 10^n.
    Decimal(u8),
    /// 2^n.
    Binary(u8),
}

/// A whole block without its lengths.
struct Block<'a> {
    kind: u32,
    body: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads the first section header. `file` is the whole file.
    pub fn new(file: &'a [u8]) -> Result<Self, CaptureError> {
        let mut reader = Reader {
            file,
            offset: 0,
            order: Order::Little,
            interfaces: [(0, Interface::default()); KEPT],
            count: 0,
            section: 0,
            steps: STEPS,
            skipped: Skipped::default(),
        };
        if Order::Big.u32(file, 0) != Some(SECTION_HEADER) {
            return Err(reader.error(CaptureErrorKind::Magic));
        }
        let block = reader.block()?;
        reader.section(block.body)?;
        reader.offset += block.body.len() + BLOCK_OVERHEAD;
        Ok(reader)
    }

    /// What was stepped over so far.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// Steps from block to block to the next packet.
    fn packet(&mut self) -> Result<Option<Record<'a>>, CaptureError> {
        while self.offset < self.file.len() {
            let block = self.block()?;
            let mut record = None;
            match block.kind {
                SECTION_HEADER => self.section(block.body)?,
                INTERFACE_DESCRIPTION => self.interface(block.body)?,
                ENHANCED_PACKET | OBSOLETE_PACKET => record = self.timed(&block)?,
                SIMPLE_PACKET => record = self.simple(block.body)?,
                NAME_RESOLUTION | INTERFACE_STATISTICS | DECRYPTION_SECRETS => {}
                _ => self.skipped.other_blocks += 1,
            }
            self.offset += block.body.len() + BLOCK_OVERHEAD;
            self.steps = self.steps.saturating_add(STEPS_PER_BLOCK);
            if record.is_some() {
                return Ok(record);
            }
        }
        Ok(None)
    }

    /// The block at the present offset, its lengths checked. A section header sets the
    /// byte order, for its own lengths are in it.
    fn block(&mut self) -> Result<Block<'a>, CaptureError> {
        let rest = &self.file[self.offset..];
        let truncated = self.error(CaptureErrorKind::Truncated);
        let mut kind = self.order.u32(rest, 0).ok_or(truncated)?;
        // The type of a section header reads the same in both byte orders.
        if kind == SECTION_HEADER {
            self.order = match Order::Big.u32(rest, 8).ok_or(truncated)? {
                BYTE_ORDER_MAGIC => Order::Big,
                magic if magic == BYTE_ORDER_MAGIC.swap_bytes() => Order::Little,
                _ => return Err(self.error(CaptureErrorKind::Magic)),
            };
            kind = SECTION_HEADER;
        }
        let len = self.order.u32(rest, 4).ok_or(truncated)?;
        let least = if kind == SECTION_HEADER { 28 } else { BLOCK_OVERHEAD };
        if !len.is_multiple_of(4) || (len as usize) < least {
            return Err(self.error(CaptureErrorKind::Length(len)));
        }
        let block = rest.get(..len as usize).ok_or(truncated)?;
        let (body, trailer) = block[8..].split_at(block.len() - BLOCK_OVERHEAD);
        let last = self.order.u32(trailer, 0).ok_or(truncated)?;
        if last != len {
            return Err(self.error(CaptureErrorKind::Trailer { first: len, last }));
        }
        Ok(Block { kind, body })
    }

    /// A new section: what the one before said is forgotten.
    fn section(&mut self, body: &[u8]) -> Result<(), CaptureError> {
        let truncated = self.error(CaptureErrorKind::Truncated);
        let major = self.order.u16(body, 4).ok_or(truncated)?;
        let minor = self.order.u16(body, 6).ok_or(truncated)?;
        // 1.2 was written by some programs and is the same as 1.0.
        if major != 1 || !matches!(minor, 0 | 2) {
            return Err(self.error(CaptureErrorKind::Version { major, minor }));
        }
        self.count = 0;
        self.section = self.offset + body.len() + BLOCK_OVERHEAD;
        Ok(())
    }

    fn interface(&mut self, body: &[u8]) -> Result<(), CaptureError> {
        let interface = self.description(body)?;
        self.interfaces[self.count as usize % KEPT] = (self.count, interface);
        self.count += 1;
        Ok(())
    }

    fn description(&self, body: &[u8]) -> Result<Interface, CaptureError> {
        if body.len() < 8 {
            return Err(self.error(CaptureErrorKind::Length(body.len() as u32)));
        }
        let truncated = self.error(CaptureErrorKind::Truncated);
        let mut interface = Interface {
            link_type: self.order.u16(body, 0).ok_or(truncated)?,
            snap_len: self.order.u32(body, 4).ok_or(truncated)?,
            ..Interface::default()
        };
        let mut options = &body[8..];
        while !options.is_empty() {
            let code = self.order.u16(options, 0).ok_or(truncated)?;
            let len = usize::from(self.order.u16(options, 2).ok_or(truncated)?);
            if code == OPTION_END {
                break;
            }
            let wrong = self.error(CaptureErrorKind::Option(code));
            let value = options.get(4..4 + len).ok_or(wrong)?;
            match code {
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
        Ok(interface)
    }

    /// A packet with a time stamp; `None`: counted. The obsolete block differs only in its
    /// first field: 16 bits of interface, then 16 of packets that were dropped.
    fn timed(&mut self, block: &Block<'a>) -> Result<Option<Record<'a>>, CaptureError> {
        let body = block.body;
        let short = self.error(CaptureErrorKind::Length(body.len() as u32));
        let order = self.order;
        let field = |at| order.u32(body, at).ok_or(short);
        let (ticks, captured) = (u64::from(field(4)?) << 32 | u64::from(field(8)?), field(12)?);
        let original_len = field(16)?;
        let data = body[20..].get(..captured as usize);
        let data = data.ok_or(self.error(CaptureErrorKind::Length(captured)))?;
        let id = match block.kind {
            OBSOLETE_PACKET => order.u16(body, 0).ok_or(short)?.into(),
            _ => field(0)?,
        };
        let Some(interface) = self.described(id) else {
            self.skipped.no_interface += 1;
            return Ok(None);
        };
        let Some(unix_nanos) = interface.nanos(ticks) else {
            self.skipped.bad_times += 1;
            return Ok(None);
        };
        let link_type = interface.link_type;
        Ok(Some(Record { unix_nanos, data, original_len, link_type, interface: id }))
    }

    /// A simple packet has no time stamp: it is given 0. How much of it was captured
    /// follows from the snap length of interface 0.
    fn simple(&mut self, body: &'a [u8]) -> Result<Option<Record<'a>>, CaptureError> {
        let short = self.error(CaptureErrorKind::Length(body.len() as u32));
        let original_len = self.order.u32(body, 0).ok_or(short)?;
        let Some(interface) = self.described(0) else {
            self.skipped.no_interface += 1;
            return Ok(None);
        };
        let captured = match interface.snap_len {
            0 => original_len,
            snap_len => original_len.min(snap_len),
        };
        let data = body[4..].get(..captured as usize);
        Ok(Some(Record {
            unix_nanos: 0,
            data: data.ok_or(self.error(CaptureErrorKind::Length(captured)))?,
            original_len,
            link_type: interface.link_type,
            interface: 0,
        }))
    }

    /// The section's interface of this number; `None`: it has not described that many, or
    /// the description is so far back among so many that finding it anew for each packet
    /// would take for ever.
    fn described(&mut self, id: u32) -> Option<Interface> {
        if id >= self.count {
            return None;
        }
        let place = id as usize % KEPT;
        let (kept, interface) = self.interfaces[place];
        if kept == id {
            return Some(interface);
        }
        let interface = self.search(id)?;
        self.interfaces[place] = (id, interface);
        Some(interface)
    }

    /// Looks an interface up in the section, whose blocks as far as here are whole.
    fn search(&mut self, id: u32) -> Option<Interface> {
        let (mut at, mut number) = (self.section, 0);
        while at < self.offset {
            self.steps = self.steps.checked_sub(1)?;
            let len = self.order.u32(self.file, at + 4)? as usize;
            if self.order.u32(self.file, at)? == INTERFACE_DESCRIPTION {
                if number == id {
                    let body = self.file.get(at + 8..at + len - 4)?;
                    return self.description(body).ok();
                }
                number += 1;
            }
            at += len;
        }
        None
    }

    fn error(&self, kind: CaptureErrorKind) -> CaptureError {
        CaptureError { offset: self.offset, kind }
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Record<'a>, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        let result = self.packet();
        if result.is_err() {
            self.offset = self.file.len();
        }
        result.transpose()
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
/// Steps of that search: so many at first, and so many more for each block that is read, so
/// that the time for a file grows with its length and no faster.
const STEPS: usize = 1 << 20;
const STEPS_PER_BLOCK: usize = 64;
/// Type and two lengths.
const BLOCK_OVERHEAD: usize = 12;
const BYTE_ORDER_MAGIC: u32 = 0x1A2B_3C4D;
const OPTION_END: u16 = 0;
const OPTION_TSRESOL: u16 = 9;
const OPTION_TSOFFSET: u16 = 14;

#[cfg(test)]
mod tests;
