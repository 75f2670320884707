//! TCP segments (RFC 9293): header, and the options for segment size, window scale and
//! timestamps (RFC 7323) and selective acknowledgement (RFC 2018).

use core::net::IpAddr;

use crate::field::{put_u16, put_u32, u16_at, u32_at};
use crate::ipv4::PROTOCOL_TCP;
use crate::{Error, checksum};

/// A checked view of a segment. TCP has no length of its own: the buffer ends where the
/// IP packet does.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks the data offset; not the checksum, and not the options.
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let data = buffer.as_ref();
        if data.len() < HEADER_LEN {
            return Err(Error::Truncated);
        }
        match usize::from(data[12] >> 4) * 4 {
            len if len < HEADER_LEN => Err(Error::Length),
            len if len > data.len() => Err(Error::Truncated),
            _ => Ok(Packet { buffer }),
        }
    }

    pub fn source_port(&self) -> u16 {
        u16_at(self.buffer.as_ref(), 0)
    }

    pub fn destination_port(&self) -> u16 {
        u16_at(self.buffer.as_ref(), 2)
    }

    pub fn seq(&self) -> u32 {
        u32_at(self.buffer.as_ref(), 4)
    }

    /// Acknowledgement number; means nothing without [`ACK`].
    pub fn ack(&self) -> u32 {
        u32_at(self.buffer.as_ref(), 8)
    }

    /// Header with options, 20..=60.
    pub fn header_len(&self) -> usize {
        usize::from(self.buffer.as_ref()[12] >> 4) * 4
    }

    /// The flags, [`FIN`] to [`CWR`], as bits.
    pub fn flags(&self) -> u8 {
        self.buffer.as_ref()[13]
    }

    /// Window as it stands there, not scaled.
    pub fn window(&self) -> u16 {
        u16_at(self.buffer.as_ref(), 14)
    }

    pub fn checksum(&self) -> u16 {
        u16_at(self.buffer.as_ref(), 16)
    }

    /// Urgent pointer; means nothing without [`URG`].
    pub fn urgent(&self) -> u16 {
        u16_at(self.buffer.as_ref(), 18)
    }

    pub fn options(&self) -> OptionIter<'_> {
        OptionIter { rest: &self.buffer.as_ref()[HEADER_LEN..self.header_len()] }
    }

    /// What follows the header.
    pub fn payload(&self) -> &[u8] {
        &self.buffer.as_ref()[self.header_len()..]
    }

    /// The checksum is right.
    pub fn verify_checksum(&self, source: IpAddr, destination: IpAddr) -> bool {
        let data = self.buffer.as_ref();
        checksum::pseudo(source, destination, PROTOCOL_TCP, data.len() as u32)
            .is_some_and(|pseudo| checksum::finish(pseudo + checksum::sum(data)) == 0)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Computes the checksum anew; [`Error::AddressFamily`] if the addresses differ in it.
    pub fn fill_checksum(&mut self, source: IpAddr, destination: IpAddr) -> Result<(), Error> {
        let data = self.buffer.as_mut();
        let pseudo = checksum::pseudo(source, destination, PROTOCOL_TCP, data.len() as u32)
            .ok_or(Error::AddressFamily)?;
        put_u16(data, 16, 0);
        let checksum = checksum::finish(pseudo + checksum::sum(data));
        put_u16(data, 16, checksum);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// No operation: padding.
    Nop,
    /// Maximum segment size, octets.
    MaximumSegmentSize(u16),
    /// Window scale: a shift.
    WindowScale(u8),
    /// The sender takes SACK blocks.
    SackPermitted,
    /// SACK blocks, 8 octets each: at least one.
    Sack(&'a [u8]),
    /// TSval and TSecr.
    Timestamps(u32, u32),
    /// Another kind, or one of these with a length that it cannot have.
    Other {
        kind: u8,
        /// Its data without kind and length.
        data: &'a [u8],
    },
}

/// Walks options up to the end-of-list option. Ends after the first error.
#[derive(Clone, Debug)]
pub struct OptionIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for OptionIter<'a> {
    type Item = Result<TcpOption<'a>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match *core::mem::take(&mut self.rest) {
            [] | [END, ..] => None,
            [NOP, ref rest @ ..] => {
                self.rest = rest;
                Some(Ok(TcpOption::Nop))
            }
            [_] => Some(Err(Error::Truncated)),
            // The length counts the kind and itself.
            ref option @ [kind, len, ..] => Some(match usize::from(len) {
                len if len < 2 => Err(Error::Length),
                len if len > option.len() => Err(Error::Truncated),
                len => {
                    self.rest = &option[len..];
                    Ok(read_option(kind, &option[2..len]))
                }
            }),
        }
    }
}

/// The first octet and the one past the last of up to four blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SackBlocks {
    blocks: [(u32, u32); MAX_SACK_BLOCKS],
    count: u8,
}

impl SackBlocks {
    /// These; [`Error::Range`] when more than four.
    pub fn new(blocks: &[(u32, u32)]) -> Result<Self, Error> {
        let mut out = SackBlocks::default();
        out.blocks.get_mut(..blocks.len()).ok_or(Error::Range)?.copy_from_slice(blocks);
        out.count = blocks.len() as u8;
        Ok(out)
    }

    /// The blocks there are.
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.count)]
    }
}

/// The options as values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// Maximum segment size, octets.
    pub maximum_segment_size: Option<u16>,
    /// Window scale: a shift.
    pub window_scale: Option<u8>,
    /// The sender takes SACK blocks.
    pub sack_permitted: bool,
    /// TSval and TSecr.
    pub timestamps: Option<(u32, u32)>,
    pub sack: SackBlocks,
}

/// The header as a value, without its checksum: [`Packet::fill_checksum`] computes that
/// once the payload is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Repr {
    pub source_port: u16,
    pub destination_port: u16,
    pub seq: u32,
    pub ack: u32,
    /// The flags, [`FIN`] to [`CWR`], as bits.
    pub flags: u8,
    /// Window, not scaled.
    pub window: u16,
    pub urgent: u16,
    pub options: Options,
}

impl Repr {
    /// Reads the header. Options of other kinds are left out; malformed ones are an error.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self, Error> {
        let mut options = Options::default();
        for option in packet.options() {
            match option? {
                TcpOption::MaximumSegmentSize(size) => options.maximum_segment_size = Some(size),
                TcpOption::WindowScale(shift) => options.window_scale = Some(shift),
                TcpOption::SackPermitted => options.sack_permitted = true,
                TcpOption::Timestamps(value, echo) => options.timestamps = Some((value, echo)),
                TcpOption::Sack(blocks) => {
                    let mut sack = SackBlocks::default();
                    for (to, from) in sack.blocks.iter_mut().zip(blocks.chunks_exact(8)) {
                        *to = (u32_at(from, 0), u32_at(from, 4));
                        sack.count += 1;
                    }
                    options.sack = sack;
                }
                TcpOption::Nop | TcpOption::Other { .. } => {}
            }
        }
        Ok(Repr {
            source_port: packet.source_port(),
            destination_port: packet.destination_port(),
            seq: packet.seq(),
            ack: packet.ack(),
            flags: packet.flags(),
            window: packet.window(),
            urgent: packet.urgent(),
            options,
        })
    }

    /// Length of the header, a multiple of 4 from 20; above 60 [`Repr::emit`] refuses.
    pub fn buffer_len(&self) -> usize {
        let options = &self.options;
        let blocks = options.sack.as_slice().len();
        let timestamps = options.timestamps.is_some();
        HEADER_LEN
            + 4 * usize::from(options.maximum_segment_size.is_some())
            // It replaces the padding before the timestamps, if there are any.
            + 4 * usize::from(options.sack_permitted && !timestamps)
            + 12 * usize::from(timestamps)
            + 4 * usize::from(options.window_scale.is_some())
            + if blocks == 0 { 0 } else { 4 + 8 * blocks }
    }

    /// Writes the header, its checksum 0, at the start of `buffer`; returns its length.
    /// The options stand as common stacks write them (RFC 7323, appendix A).
    /// [`Error::Range`] if they take more than 40 octets.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let len = self.buffer_len();
        if len > MAX_HEADER_LEN {
            return Err(Error::Range);
        }
        let header = buffer.get_mut(..len).ok_or(Error::NoRoom)?;
        put_u16(header, 0, self.source_port);
        put_u16(header, 2, self.destination_port);
        put_u32(header, 4, self.seq);
        put_u32(header, 8, self.ack);
        header[12] = (len / 4) as u8 * 16;
        header[13] = self.flags;
        put_u16(header, 14, self.window);
        put_u16(header, 16, 0);
        put_u16(header, 18, self.urgent);
        let options = &self.options;
        let mut at = HEADER_LEN;
        if let Some(size) = options.maximum_segment_size {
            header[at..at + 2].copy_from_slice(&[MAXIMUM_SEGMENT_SIZE, 4]);
            put_u16(header, at + 2, size);
            at += 4;
        }
        if options.sack_permitted {
            let permitted = [NOP, NOP, SACK_PERMITTED, 2];
            match options.timestamps {
                None => {
                    header[at..at + 4].copy_from_slice(&permitted);
                    at += 4;
                }
                Some(_) => header[at..at + 2].copy_from_slice(&permitted[2..]),
            }
        }
        if let Some((value, echo)) = options.timestamps {
            if !options.sack_permitted {
                header[at..at + 2].fill(NOP);
            }
            header[at + 2..at + 4].copy_from_slice(&[TIMESTAMPS, 10]);
            put_u32(header, at + 4, value);
            put_u32(header, at + 8, echo);
            at += 12;
        }
        if let Some(shift) = options.window_scale {
            header[at..at + 4].copy_from_slice(&[NOP, WINDOW_SCALE, 3, shift]);
            at += 4;
        }
        let blocks = options.sack.as_slice();
        if !blocks.is_empty() {
            let length = 2 + 8 * blocks.len() as u8;
            header[at..at + 4].copy_from_slice(&[NOP, NOP, SACK, length]);
            at += 4;
            for (first, end) in blocks {
                put_u32(header, at, *first);
                put_u32(header, at + 4, *end);
                at += 8;
            }
        }
        Ok(len)
    }
}

/// What a flow meter needs of the options: TSval and TSecr, and whether there are SACK
/// blocks. Looks at [`MAX_OPTIONS`] options, padding included, and leaves the others.
/// Of an option that comes twice the last one counts.
#[inline]
pub(crate) fn scan(options: &[u8]) -> Result<(Option<(u32, u32)>, bool), Error> {
    let mut timestamps = None;
    let mut sack = false;
    let mut walk = OptionIter { rest: options };
    let mut left = MAX_OPTIONS;
    // Nearly every segment of a connection with timestamps begins so, and most end there.
    if let Some((first, rest)) = options.split_first_chunk::<12>()
        && first[..4] == [NOP, NOP, TIMESTAMPS, 10]
    {
        timestamps = Some((u32_at(first, 4), u32_at(first, 8)));
        if rest.is_empty() {
            return Ok((timestamps, false));
        }
        walk.rest = rest;
        left -= 3;
    }
    for option in walk.take(left) {
        match option? {
            TcpOption::Timestamps(value, echo) => timestamps = Some((value, echo)),
            TcpOption::Sack(_) => sack = true,
            _ => {}
        }
    }
    Ok((timestamps, sack))
}

/// An option of which kind and data are known.
#[inline]
fn read_option(kind: u8, data: &[u8]) -> TcpOption<'_> {
    match (kind, data.len()) {
        (MAXIMUM_SEGMENT_SIZE, 2) => TcpOption::MaximumSegmentSize(u16_at(data, 0)),
        (WINDOW_SCALE, 1) => TcpOption::WindowScale(data[0]),
        (SACK_PERMITTED, 0) => TcpOption::SackPermitted,
        (SACK, 8 | 16 | 24 | 32) => TcpOption::Sack(data),
        (TIMESTAMPS, 8) => TcpOption::Timestamps(u32_at(data, 0), u32_at(data, 4)),
        _ => TcpOption::Other { kind, data },
    }
}

/// Header length without options.
pub const HEADER_LEN: usize = 20;
/// Header length with all the options that fit.
pub const MAX_HEADER_LEN: usize = 60;
/// Most options of a segment that a flow meter looks at, padding included.
pub const MAX_OPTIONS: usize = 10;
/// Most blocks of a SACK option: what 40 octets of options hold.
pub const MAX_SACK_BLOCKS: usize = 4;
/// The sender has no more data.
pub const FIN: u8 = 1;
/// Synchronise: the sequence number is the initial one.
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
/// The acknowledgement number counts.
pub const ACK: u8 = 16;
/// The urgent pointer counts.
pub const URG: u8 = 32;
/// ECN echo (RFC 3168).
pub const ECE: u8 = 64;
/// Congestion window reduced (RFC 3168).
pub const CWR: u8 = 128;

const END: u8 = 0;
const NOP: u8 = 1;
const MAXIMUM_SEGMENT_SIZE: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

#[cfg(test)]
mod tests;
