//! From the header of the link to IP: tags, LLC and SNAP, PPPoE, MPLS and pseudowires. The eBPF
//! programs step over the same (`bpf/c/link.h`).

use super::Link;
use crate::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MPLS, is_tpid};
use crate::field::u16_at;
use crate::{Error, ethernet, ipv6, mpls, tunnel};

/// What there is below an IP header.
#[derive(Default)]
pub(crate) struct Below {
    /// EtherType of what follows.
    pub ethertype: u16,
    /// Where it begins.
    pub at: usize,
    /// VLAN identifier of the outermost tag that names a VLAN; 0: none.
    pub vlan: u16,
    /// Start of the first MPLS label stack entry; 0: none.
    pub mpls: usize,
}

impl Below {
    /// What stands below IP in a frame of `wire_len` octets, of which `frame` was captured.
    #[inline]
    pub fn read(&mut self, link: Link, frame: &[u8], wire_len: usize) -> Result<(), Error> {
        (self.ethertype, self.at) = link.header(frame)?;
        self.look_through(frame, wire_len)
    }

    /// Goes on from an EtherType to IP, or to what is none of these.
    #[inline]
    pub fn look_through(&mut self, frame: &[u8], wire_len: usize) -> Result<(), Error> {
        match self.ethertype {
            ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => Ok(()),
            _ => self.step_over(frame, wire_len),
        }
    }

    /// Steps over tags, then LLC and SNAP, then a PPPoE header, or an MPLS stack and, in a
    /// pseudowire, an Ethernet header with its own tags.
    #[inline]
    fn step_over(&mut self, frame: &[u8], wire_len: usize) -> Result<(), Error> {
        (self.ethertype, self.at, self.vlan) = step_over_tags(frame, self.ethertype, self.at)?;
        (self.ethertype, self.at) = step_over_llc(frame, self.ethertype, self.at)?;
        let rest = frame.get(self.at..).unwrap_or(&[]);
        match self.ethertype {
            tunnel::ETHERTYPE_PPPOE => {
                let header = tunnel::Pppoe::parse(rest)?;
                self.at += header.buffer_len();
                self.ethertype = match header.protocol {
                    tunnel::PPP_IPV4 => ETHERTYPE_IPV4,
                    tunnel::PPP_IPV6 => ETHERTYPE_IPV6,
                    _ => return Err(Error::EtherType),
                };
            }
            ETHERTYPE_MPLS | ETHERTYPE_MPLS_MULTICAST => {
                let stack = mpls::Stack::new_checked(rest)?;
                self.mpls = self.at;
                self.at += stack.depth() * mpls::ENTRY_LEN;
                let (ethertype, at, vlan) = labelled(frame, wire_len, self.at)?;
                (self.ethertype, self.at) = (ethertype, at);
                if self.vlan == 0 {
                    self.vlan = vlan;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Steps over tags alone: those of VLANs, of HSR (IEC 62439-3), of virtual interfaces (VN-Tag,
/// proposed for IEEE 802.1Qbh), the service instance tag of provider backbone bridges (IEEE
/// 802.1ah) and that of FabricPath with the customer's addresses; at most [`TAGS`].
#[inline]
fn step_over_tags(
    frame: &[u8],
    mut ethertype: u16,
    mut at: usize,
) -> Result<(u16, usize, u16), Error> {
    let mut vlan = 0;
    let mut tags = 0;
    loop {
        let len = match ethertype {
            kind if is_tpid(kind) => 4,
            // Path and size, sequence number, EtherType.
            ETHERTYPE_HSR => 6,
            // Direction, virtual interfaces, EtherType.
            ETHERTYPE_VNTAG => 6,
            // Forwarding tag and time to live, two addresses, EtherType.
            ETHERTYPE_FABRIC_PATH => 16,
            // Flags and instance, two addresses, EtherType.
            ETHERTYPE_BACKBONE => 18,
            _ => break,
        };
        if tags == TAGS {
            return Err(Error::VlanDepth);
        }
        let tag = frame.get(at..at + len).ok_or(Error::Truncated)?;
        if vlan == 0 && len == 4 {
            vlan = u16_at(tag, 0) & 0x0FFF;
        }
        ethertype = u16_at(tag, len - 2);
        tags += 1;
        at += len;
    }
    Ok((ethertype, at, vlan))
}

/// Steps over an IEEE 802.2 header, where the length of IEEE 802.3 stands in the EtherType's
/// place: that of SNAP (RFC 1042; IEEE 802.1H for its second identifier), or IP's own.
#[inline]
pub(super) fn step_over_llc(
    frame: &[u8],
    ethertype: u16,
    at: usize,
) -> Result<(u16, usize), Error> {
    if ethertype == 0 || ethertype >= ethernet::LEAST_ETHERTYPE {
        return Ok((ethertype, at));
    }
    let header =
        frame.get(at..).and_then(|rest| rest.first_chunk::<8>()).ok_or(Error::Truncated)?;
    match *header {
        [0xAA, 0xAA, 3, 0, 0, 0 | 0xF8, high, low] => Ok((u16::from_be_bytes([high, low]), at + 8)),
        [6, 6, 3, ..] => Ok((ETHERTYPE_IPV4, at + 3)),
        _ => Err(Error::EtherType),
    }
}

/// What an MPLS stack carries, which only its first octets tell (RFC 4928): IP if they
/// are its header and the packet fits, an Ethernet pseudowire behind a control word
/// (RFC 4448, section 4.6) or without one if IP stands where a frame would have it; if
/// neither, IP if they say so: a capture may have cut it short. EtherType, place and VLAN
/// identifier.
fn labelled(frame: &[u8], wire_len: usize, at: usize) -> Result<(u16, usize, u16), Error> {
    let data = frame.get(at..).unwrap_or(&[]);
    let room = wire_len.saturating_sub(at);
    let ip = tunnel::ip_ethertype(data);
    let fits = match ip {
        // A total length of 0 is that of segmentation offload.
        Ok(ETHERTYPE_IPV4) => data
            .first_chunk::<4>()
            .is_some_and(|start| start[0] & 0x0F >= 5 && usize::from(u16_at(start, 2)) <= room),
        Ok(_) => data
            .first_chunk::<6>()
            .is_some_and(|start| ipv6::HEADER_LEN + usize::from(u16_at(start, 4)) <= room),
        Err(_) => false,
    };
    if fits {
        return Ok((ip?, at, 0));
    }
    // A control word begins with four bits of 0, and so do many MAC addresses. A frame with
    // a tag looks like one without that stands behind a control word, but not the reverse.
    let control_word = data.first().is_some_and(|first| first >> 4 == 0);
    for skip in [Some(0), control_word.then_some(CONTROL_WORD_LEN)].into_iter().flatten() {
        let (ethertype, at) =
            (at + skip + ethernet::HEADER_LEN - 2, at + skip + ethernet::HEADER_LEN);
        let Some(ethertype) = frame.get(ethertype..at) else { break };
        if let Ok((ethertype, at, vlan)) = step_over_tags(frame, u16_at(ethertype, 0), at)
            && matches!(ethertype, ETHERTYPE_IPV4 | ETHERTYPE_IPV6)
            && tunnel::ip_ethertype(frame.get(at..).unwrap_or(&[])) == Ok(ethertype)
        {
            return Ok((ethertype, at, vlan));
        }
    }
    Ok((ip?, at, 0))
}

/// Most VLAN tags that are looked through.
pub(crate) const TAGS: usize = 4;
/// High-availability Seamless Redundancy (IEC 62439-3).
const ETHERTYPE_HSR: u16 = 0x892F;
/// Cisco's FabricPath: the frame of the switches begins with it, the customer's follows.
const ETHERTYPE_FABRIC_PATH: u16 = 0x8903;
/// VN-Tag, between fabric extenders and their switch.
const ETHERTYPE_VNTAG: u16 = 0x8926;
/// Service instance tag (IEEE 802.1ah).
const ETHERTYPE_BACKBONE: u16 = 0x88E7;
/// MPLS, multicast.
const ETHERTYPE_MPLS_MULTICAST: u16 = 0x8848;
/// Length of a pseudowire's control word.
const CONTROL_WORD_LEN: usize = 4;
