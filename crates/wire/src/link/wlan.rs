//! IEEE 802.11 frames, bare or behind the header that a driver adds. What stations say to each
//! other in data frames that are not encrypted is looked through to LLC and SNAP.

use super::link_type::LinkType;
use super::tags::step_over_llc;
use crate::Error;

/// What has no packet that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WlanKind {
    /// Management, control and data frames without data.
    NoData,
    /// The frame's body is encrypted.
    Encrypted,
    /// The driver says that the frame check sequence is wrong.
    Damaged,
}

/// Offset of the 802.11 header, and the flags that radiotap has of the frame.
fn begin(link: LinkType, frame: &[u8]) -> Result<(usize, u8), Error> {
    match link {
        LinkType::Radiotap => radiotap(frame),
        LinkType::Ppi => {
            // Version, flags, length, link type; the integers are little-endian.
            let head = frame.first_chunk::<8>().ok_or(Error::Truncated)?;
            match *head {
                [0, _, low, high, DLT_IEEE802_11, 0, 0, 0] => {
                    Ok((u16::from_le_bytes([low, high]).into(), 0))
                }
                _ => Err(Error::EtherType),
            }
        }
        LinkType::Prism => Ok((prism(frame)?, 0)),
        _ => Ok((0, 0)),
    }
}

/// The length of the header of AVS, whose integers are big-endian, or of Prism, whose are in the
/// byte order of the machine that captured. A length far below 2^16 shows which.
fn prism(frame: &[u8]) -> Result<usize, Error> {
    let [magic @ .., a, b, c, d] = *frame.first_chunk::<8>().ok_or(Error::Truncated)?;
    let big = u32::from_be_bytes([a, b, c, d]);
    let is_avs = magic[..3] == AVS_MAGIC;
    let len = if is_avs { big } else { big.min(u32::from_le_bytes([a, b, c, d])) };
    if (8..1 << 16).contains(&len) { Ok(len as usize) } else { Err(Error::EtherType) }
}

/// The header's length and the field `Flags` (radiotap.org). The flags are the second field, behind
/// a clock of eight octets, which are aligned, and as many words of a mask as its highest bits
/// state.
fn radiotap(frame: &[u8]) -> Result<(usize, u8), Error> {
    let head = frame.first_chunk::<8>().ok_or(Error::Truncated)?;
    let [version, _, low, high, ..] = *head;
    let len = usize::from(u16::from_le_bytes([low, high]));
    if version != 0 || len < 8 {
        return Err(Error::EtherType);
    }
    let mask = |at: usize| {
        let word = frame.get(at..at + 4)?.first_chunk().copied()?;
        Some(u32::from_le_bytes(word))
    };
    let present = mask(4).ok_or(Error::Truncated)?;
    let (mut at, mut word) = (8, present);
    while word & MORE_MASKS != 0 && at < len {
        word = mask(at).ok_or(Error::Truncated)?;
        at += 4;
    }
    if present & HAS_CLOCK != 0 {
        at = at.next_multiple_of(8) + 8;
    }
    let has_flags = present & HAS_FLAGS != 0 && at < len;
    let flags = if has_flags { frame.get(at).copied().ok_or(Error::Truncated)? } else { 0 };
    Ok((len, flags))
}

/// EtherType and offset of what a data frame carries (IEEE 802.11-2020, section 9.3.2).
///
/// Of an A-MSDU it is the first part. Of a fragmented frame only the first fragment has it.
pub(super) fn header(link: LinkType, frame: &[u8]) -> Result<(u16, usize), Error> {
    let (body, is_aggregate) = body(link, frame)?;
    // A part begins with two addresses and its length. No EtherType stands before LLC: any length
    // below the least one says so.
    step_over_llc(frame, 1, body + if is_aggregate { PART } else { 0 })
}

/// Parts of an A-MSDU behind the first one, as far as they were captured (IEEE 802.11-2020,
/// section 9.3.2.2).
pub(super) fn further_parts(link: LinkType, frame: &[u8]) -> u64 {
    let Ok((mut at, true)) = body(link, frame) else { return 0 };
    let mut parts: u64 = 0;
    while let Some(&[high, low]) = frame.get(at + 12..).and_then(|rest| rest.first_chunk()) {
        let len = usize::from(u16::from_be_bytes([high, low]));
        if len == 0 {
            break;
        }
        parts += 1;
        // Each but the last is filled up to a multiple of four octets.
        at += (PART + len).next_multiple_of(4);
    }
    parts.saturating_sub(1)
}

/// Where the body of a data frame is, and whether it is an A-MSDU.
fn body(link: LinkType, frame: &[u8]) -> Result<(usize, bool), Error> {
    let (start, flags) = begin(link, frame)?;
    let mac = frame.get(start..).ok_or(Error::Truncated)?;
    let (control, more) = control(mac)?;
    if unreadable_frame(control, more, flags).is_some() {
        return Err(Error::EtherType);
    }
    let sequence = mac.get(22..24).ok_or(Error::Truncated)?;
    if sequence[0] & 0x0F != 0 {
        return Err(Error::Fragment);
    }
    let mut len = 24;
    if more & (TO_DS | FROM_DS) == TO_DS | FROM_DS {
        len += 6;
    }
    let mut is_aggregate = false;
    if control & QOS != 0 {
        is_aggregate = mac.get(len).ok_or(Error::Truncated)? & A_MSDU != 0;
        len += 2;
        // HT Control.
        len += if more & ORDER != 0 { 4 } else { 0 };
    }
    if flags & PADDED != 0 {
        len = len.next_multiple_of(4);
    }
    Ok((start + len, is_aggregate))
}

pub(super) fn unreadable(link: LinkType, frame: &[u8]) -> Option<WlanKind> {
    let (start, flags) = begin(link, frame).ok()?;
    let (kind, more) = control(frame.get(start..)?).ok()?;
    unreadable_frame(kind, more, flags)
}

fn unreadable_frame(control: u8, more: u8, flags: u8) -> Option<WlanKind> {
    if flags & BAD_FCS != 0 {
        Some(WlanKind::Damaged)
    } else if control & TYPE != DATA || control & NULL != 0 {
        Some(WlanKind::NoData)
    } else if more & PROTECTED != 0 {
        Some(WlanKind::Encrypted)
    } else {
        None
    }
}

/// The two octets of Frame Control.
fn control(mac: &[u8]) -> Result<(u8, u8), Error> {
    mac.first_chunk().map(|&[a, b]| (a, b)).ok_or(Error::Truncated)
}

/// Frame Control, first octet: type and subtype.
const TYPE: u8 = 0x0C;
const DATA: u8 = 0x08;
const NULL: u8 = 0x40;
const QOS: u8 = 0x80;
/// Second octet.
const TO_DS: u8 = 0x01;
const FROM_DS: u8 = 0x02;
const PROTECTED: u8 = 0x40;
const ORDER: u8 = 0x80;
/// QoS Control, first octet.
const A_MSDU: u8 = 0x80;
/// Radiotap: bits of the mask and of the flags.
const HAS_CLOCK: u32 = 1;
const HAS_FLAGS: u32 = 2;
const MORE_MASKS: u32 = 1 << 31;
const PADDED: u8 = 0x20;
const BAD_FCS: u8 = 0x40;
/// A part's two addresses and length.
const PART: usize = 14;
/// Behind it stands the version.
const AVS_MAGIC: [u8; 3] = [0x80, 0x21, 0x10];
/// PPI's link type.
const DLT_IEEE802_11: u8 = 105;
