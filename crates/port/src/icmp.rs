//! What hosts and routers say about packets that they did not deliver (RFC 792, RFC 4443).
//!
//! The socket engine hears of it by its error queue, without privilege. Engines below the
//! kernel's UDP have no socket that the kernel could notify: for them there is [`Listener`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};

use sonde_sys::syscall::{self, SockAddr};
use sonde_wire::ipv4::PROTOCOL_UDP;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// Who says so: the destination, a router, or this host itself.
    pub from: Option<IpAddr>,
    /// Where the packet was to go.
    pub destination: SocketAddr,
    /// Our port; 0: unknown.
    pub source_port: u16,
    /// What happened to it.
    pub kind: IcmpKind,
}

/// Why a packet was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IcmpKind {
    /// No program listens on the destination's port.
    PortClosed,
    /// A filter or a policy forbids it.
    Prohibited,
    /// A router has no route to the destination.
    NoRoute,
    /// The last router, or this host, finds no such neighbour.
    NoNeighbour,
    /// Longer than the path takes: its MTU, 0 where the router does not state it.
    TooBig(u32),
    /// The TTL or hop limit ran out.
    TtlExceeded,
    /// Anything else, by type and code.
    Other(u8, u8),
}

impl IcmpKind {
    /// RFC 792, RFC 1122 (section 3.2.2.1), RFC 1191, RFC 1812 (section 5.2.7.1).
    pub fn of_v4(kind: u8, code: u8, info: u32) -> IcmpKind {
        match (kind, code) {
            (3, 0 | 6 | 11) => IcmpKind::NoRoute,
            (3, 1 | 7 | 12) => IcmpKind::NoNeighbour,
            (3, 3) => IcmpKind::PortClosed,
            (3, 4) => IcmpKind::TooBig(info),
            (3, 9 | 10 | 13..=15) => IcmpKind::Prohibited,
            (11, 0) => IcmpKind::TtlExceeded,
            _ => IcmpKind::Other(kind, code),
        }
    }

    /// RFC 4443, section 3.
    pub fn of_v6(kind: u8, code: u8, info: u32) -> IcmpKind {
        match (kind, code) {
            (1, 0 | 2) => IcmpKind::NoRoute,
            (1, 1 | 5 | 6) => IcmpKind::Prohibited,
            (1, 3) => IcmpKind::NoNeighbour,
            (1, 4) => IcmpKind::PortClosed,
            (2, _) => IcmpKind::TooBig(info),
            (3, 0) => IcmpKind::TtlExceeded,
            _ => IcmpKind::Other(kind, code),
        }
    }
}

/// Hears all ICMP errors that this host gets about UDP packets.
pub struct Listener {
    sockets: Vec<(OwnedFd, bool)>,
    buffer: Box<[u8]>,
}

impl Listener {
    /// # Errors
    /// Without CAP_NET_RAW.
    pub fn open() -> io::Result<Listener> {
        let v4 = syscall::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)?;
        let wanted = 1 << DESTINATION_UNREACHABLE | 1 << TIME_EXCEEDED;
        syscall::set(&v4, libc::SOL_RAW, ICMP_FILTER, !wanted)?;
        let mut sockets = vec![(v4, false)];
        // A host without IPv6 hears no ICMPv6.
        if let Ok(v6) = syscall::socket(libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6) {
            let mut blocked = [u32::MAX; 8];
            // Types 1, 2 and 3.
            blocked[0] = !0b1110;
            syscall::set(&v6, libc::IPPROTO_ICMPV6, ICMP6_FILTER, blocked)?;
            sockets.push((v6, true));
        }
        Ok(Listener { sockets, buffer: vec![0; 2048].into() })
    }

    /// Hands out what has come.
    pub fn poll(&mut self, each: &mut dyn FnMut(IcmpError)) {
        for (socket, v6) in &self.sockets {
            // Bounded, so that a flood does not hold the caller.
            for _ in 0..MOST_AT_ONCE {
                let mut name = SockAddr::zeroed();
                let mut name_len = SockAddr::len(true);
                // SAFETY: the kernel writes at most the lengths given into the buffer and the
                // name, which live through the call.
                let n = unsafe {
                    libc::recvfrom(
                        socket.as_raw_fd(),
                        self.buffer.as_mut_ptr().cast(),
                        self.buffer.len(),
                        libc::MSG_DONTWAIT,
                        (&raw mut name).cast(),
                        &raw mut name_len,
                    )
                };
                if n <= 0 {
                    break;
                }
                let message = &self.buffer[..n as usize];
                let error = if *v6 {
                    let from = name.address(true).ip();
                    parse_v6(message, from)
                } else {
                    parse_v4(message)
                };
                if let Some(error) = error {
                    each(error);
                }
            }
        }
    }
}

/// An IPv4 packet with an ICMP error about a UDP packet.
fn parse_v4(packet: &[u8]) -> Option<IcmpError> {
    let from = Ipv4Addr::from(array::<4>(packet, 12)?);
    let icmp = packet.get(usize::from(packet.first()? & 15) * 4..)?;
    let info = u32::from(u16::from_be_bytes(array(icmp, 6)?));
    let kind = IcmpKind::of_v4(*icmp.first()?, *icmp.get(1)?, info);
    let quoted = icmp.get(8..)?;
    if quoted.first()? >> 4 != 4 || *quoted.get(9)? != PROTOCOL_UDP {
        return None;
    }
    let udp = quoted.get(usize::from(quoted[0] & 15) * 4..)?;
    let to = Ipv4Addr::from(array::<4>(quoted, 16)?);
    error(from.into(), to.into(), udp, kind)
}

/// An ICMPv6 message from `from` with an error about a UDP packet.
fn parse_v6(icmp: &[u8], from: IpAddr) -> Option<IcmpError> {
    let info = u32::from_be_bytes(array(icmp, 4)?);
    let kind = IcmpKind::of_v6(*icmp.first()?, *icmp.get(1)?, info);
    let quoted = icmp.get(8..)?;
    if *quoted.get(6)? != PROTOCOL_UDP {
        return None;
    }
    let to = Ipv6Addr::from(array::<16>(quoted, 24)?);
    error(from, to.into(), quoted.get(40..)?, kind)
}

fn error(from: IpAddr, to: IpAddr, udp: &[u8], kind: IcmpKind) -> Option<IcmpError> {
    Some(IcmpError {
        from: Some(from),
        source_port: u16::from_be_bytes(array(udp, 0)?),
        destination: SocketAddr::new(to, u16::from_be_bytes(array(udp, 2)?)),
        kind,
    })
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

const DESTINATION_UNREACHABLE: u32 = 3;
const TIME_EXCEEDED: u32 = 11;
/// linux/icmp.h: the types of which the bit is set do not come.
const ICMP_FILTER: i32 = 1;
/// linux/icmpv6.h: likewise, 256 bits.
const ICMP6_FILTER: i32 = 1;
/// Messages of one socket in one call.
const MOST_AT_ONCE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// "Fragmentation needed" by 10.0.0.1 about UDP from 10.1.0.1:62000 to 10.2.0.1:862.
    fn too_big() -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 1, 0, 1];
        packet.extend([3, 4, 0, 0, 0, 0, 0x05, 0x78]);
        packet.extend([0x45, 0, 5, 220, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1]);
        packet.extend([0xf2, 0x30, 0x03, 0x5e, 0, 0, 0, 0]);
        packet
    }

    #[test]
    fn a_quoted_packet_names_its_stream() {
        let found = parse_v4(&too_big()).unwrap();
        assert_eq!(found.from, Some("10.0.0.1".parse().unwrap()));
        assert_eq!(found.destination, "10.2.0.1:862".parse().unwrap());
        assert_eq!((found.source_port, found.kind), (62_000, IcmpKind::TooBig(1_400)));
        let mut tcp = too_big();
        tcp[28 + 9] = 6;
        assert_eq!(parse_v4(&tcp), None);
    }

    #[test]
    fn version_6_has_numbers_of_its_own() {
        let mut icmp = vec![1, 4, 0, 0, 0, 0, 0, 0];
        let mut quoted = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
        quoted.extend(Ipv6Addr::LOCALHOST.octets());
        quoted.extend("2001:db8::9".parse::<Ipv6Addr>().unwrap().octets());
        quoted.extend([0xf2, 0x30, 0x03, 0x5e, 0, 8, 0, 0]);
        icmp.extend(&quoted);
        let from: IpAddr = "2001:db8::1".parse().unwrap();
        let found = parse_v6(&icmp, from).unwrap();
        assert_eq!((found.kind, found.from), (IcmpKind::PortClosed, Some(from)));
        assert_eq!(found.destination, "[2001:db8::9]:862".parse().unwrap());
        icmp[..8].copy_from_slice(&[2, 0, 0, 0, 0, 0, 0x05, 0]);
        assert_eq!(parse_v6(&icmp, from).unwrap().kind, IcmpKind::TooBig(1_280));
    }

    proptest! {
        #[test]
        fn no_message_panics(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = (parse_v4(&bytes), parse_v6(&bytes, Ipv6Addr::LOCALHOST.into()));
        }
    }
}
