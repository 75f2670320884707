//! From the header of the link to IP: tags, LLC and SNAP, PPPoE, MPLS and pseudowires. The eBPF
//! programs step over the same (`bpf/c/link.h`).

use super::link_type::LinkType;
use super::tags::{step_over_llc, step_over_tags};
use crate::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MPLS};
use crate::field::u16_at;
use crate::{Error, ethernet, ipv6, mpls, tunnel};

/// What there is below an IP header.
#[derive(Default)]
pub(crate) struct Below {
    /// EtherType of what follows.
    pub ethertype: u16,
    /// Offset of what follows, in octets from the start of the frame.
    pub at: usize,
    /// VLAN identifier of the outermost tag that names a VLAN; 0: none.
    pub vlan: u16,
    /// Start of the first MPLS label stack entry; 0: none.
    pub mpls: usize,
}

impl Below {
    /// What stands below IP in a frame of `wire_len` octets, of which `frame` was captured.
    #[inline]
    pub fn read(&mut self, link: LinkType, frame: &[u8], wire_len: usize) -> Result<(), Error> {
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

    /// Skips tags, LLC and SNAP, then a PPPoE header or an MPLS stack. In a pseudowire also an
    /// Ethernet header with its own tags.
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

/// What an MPLS stack carries, by its first octets (RFC 4928): IP if they are its header and the
/// packet fits. An Ethernet pseudowire behind a control word (RFC 4448, section 4.6), or without
/// one if IP stands where a frame would have it. If neither, IP if they say so: a capture may have
/// cut it short. EtherType, offset and VLAN identifier.
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

const ETHERTYPE_MPLS_MULTICAST: u16 = 0x8848;
/// Length of a pseudowire's control word.
const CONTROL_WORD_LEN: usize = 4;
