//! One bound UDP socket: how it is set up, and what its control messages say.

use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use sonde_sys::{syscall, udp as udp_socket};
use sonde_wire::{Stamp, checksum, ipv4, udp};

use crate::errqueue::{Awaited, Batch, ToTai, enable};
use crate::guard::{absent, free_bind, refused};
use crate::{Filter, PortError};

/// How sockets differ from what is usual.
#[derive(Clone, Copy, Default)]
pub(super) struct Options<'a> {
    /// What is longer than the MTU goes in pieces.
    pub fragment: bool,
    /// The error queue reports ICMP errors.
    pub icmp_errors: bool,
    /// The one interface to send and receive by.
    pub device: Option<&'a str>,
}

pub(super) struct Endpoint {
    pub fd: OwnedFd,
    pub v6: bool,
    pub port: u16,
    /// In the list of sockets whose error queue is to be read.
    pub listed: bool,
    pub awaited: Awaited,
    /// The one address it is bound to, if not the wildcard.
    address: Option<IpAddr>,
    drops: u32,
}

/// What came with a datagram.
pub(super) struct Received {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub len: usize,
    pub stamp: Option<Stamp>,
    ttl: u8,
    tos: u8,
    /// The interface that a link-local address belongs to; else 0.
    scope: u32,
}

impl Endpoint {
    pub fn open_all(
        filter: &Filter,
        scope: u32,
        (tx_stamps, chosen_ids): (bool, bool),
        options: Options<'_>,
    ) -> Result<Vec<Endpoint>, PortError> {
        let mut all = Vec::new();
        for v6 in [false, true] {
            let own: Vec<IpAddr> =
                filter.local.iter().copied().filter(|a| a.is_ipv6() == v6).collect();
            if own.is_empty() && !filter.local.is_empty() {
                continue;
            }
            let address = if let [one] = own[..] { Some(one) } else { None };
            for &port in &filter.local_ports {
                let slots = AWAITED / filter.local_ports.len().next_power_of_two();
                let awaited = Awaited::new(chosen_ids, slots.max(AWAITED_LEAST));
                match Self::open(v6, address, port, scope, tx_stamps, options) {
                    Ok(fd) => all.push(Endpoint {
                        fd,
                        v6,
                        port,
                        listed: false,
                        awaited,
                        address,
                        drops: 0,
                    }),
                    // A host without IPv6.
                    Err(e) if v6 && own.is_empty() && absent(&e) => {}
                    Err(e) => return Err(refused(bind_address(v6, address, port), e)),
                }
            }
        }
        Ok(all)
    }

    fn open(
        v6: bool,
        address: Option<IpAddr>,
        port: u16,
        scope: u32,
        tx_stamps: bool,
        options: Options<'_>,
    ) -> std::io::Result<OwnedFd> {
        let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
        let fd = syscall::socket(family, libc::SOCK_DGRAM, 0)?;
        let level = if v6 { libc::IPPROTO_IPV6 } else { libc::IPPROTO_IP };
        let wanted: &[i32] = if v6 {
            &[
                libc::IPV6_V6ONLY,
                libc::IPV6_RECVPKTINFO,
                libc::IPV6_RECVHOPLIMIT,
                libc::IPV6_RECVTCLASS,
            ]
        } else {
            &[libc::IP_PKTINFO, libc::IP_RECVTTL, libc::IP_RECVTOS]
        };
        for &name in wanted {
            syscall::set(&fd, level, name, 1)?;
        }
        if address.is_none() {
            // Replies may come from addresses that are only routed to this host.
            let (level, name) = free_bind(v6);
            syscall::set(&fd, level, name, 1)?;
        }
        // "Don't fragment", as the frames of the other engines have it: a probe in pieces
        // measures something else, and the kernel need not count the packets.
        let (level, name, probe, pieces) = if v6 {
            let name = libc::IPV6_MTU_DISCOVER;
            (libc::SOL_IPV6, name, libc::IPV6_PMTUDISC_PROBE, libc::IPV6_PMTUDISC_DONT)
        } else {
            let name = libc::IP_MTU_DISCOVER;
            (libc::SOL_IP, name, libc::IP_PMTUDISC_PROBE, libc::IP_PMTUDISC_DONT)
        };
        syscall::set(&fd, level, name, if options.fragment { pieces } else { probe })?;
        if options.icmp_errors {
            let name = if v6 { libc::IPV6_RECVERR } else { libc::IP_RECVERR };
            syscall::set(&fd, level, name, 1)?;
        }
        syscall::set_buffer(&fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, BUFFER)?;
        syscall::set_buffer(&fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, BUFFER)?;
        enable(&fd, true, tx_stamps)?;
        if let Some(name) = options.device {
            syscall::bind_device(&fd, name)?;
        }
        syscall::bind(&fd, bind_address(v6, address, port), scope)?;
        Ok(fd)
    }

    /// Ethernet, IP and UDP headers of this family.
    pub fn header_len(&self) -> usize {
        if self.v6 { 14 + 40 + 8 } else { 14 + 20 + 8 }
    }

    /// What is known about received packet `i`; `None` if it was cut.
    pub fn received(&self, batch: &Batch, i: usize, tai: ToTai) -> Option<Received> {
        let len = batch.received_len(i)?;
        let source = batch.name(i).address(self.v6);
        // SAFETY: both members are plain integers.
        let scope = if self.v6 { unsafe { batch.name(i).v6.sin6_scope_id } } else { 0 };
        let any = bind_address(self.v6, self.address, self.port);
        let mut found =
            Received { source, destination: any, len, stamp: None, ttl: 0, tos: 0, scope };
        let byte = |value: &[u8]| syscall::read::<i32>(value, 0).map_or(0, |v| v as u8);
        for (level, kind, value) in batch.controls(i) {
            match (level, kind) {
                (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) => {
                    found.stamp = tai.read_control(value);
                }
                (libc::SOL_IP, libc::IP_TTL) | (libc::SOL_IPV6, libc::IPV6_HOPLIMIT) => {
                    found.ttl = byte(value);
                }
                // One octet, unlike all others.
                (libc::SOL_IP, libc::IP_TOS) => found.tos = value.first().copied().unwrap_or(0),
                (libc::SOL_IPV6, libc::IPV6_TCLASS) => found.tos = byte(value),
                (libc::SOL_IP, libc::IP_PKTINFO) => {
                    if let Some(info) = syscall::read::<libc::in_pktinfo>(value, 0) {
                        let ip = Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes());
                        found.destination.set_ip(ip.into());
                    }
                }
                (libc::SOL_IPV6, libc::IPV6_PKTINFO) => {
                    if let Some(info) = syscall::read::<libc::in6_pktinfo>(value, 0) {
                        found.destination.set_ip(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                    }
                }
                _ => {}
            }
        }
        Some(found)
    }

    /// Adds to outgoing packet `i` the header fields that the kernel is to write. `scope`: the
    /// interface that a link-local source address belongs to.
    #[inline]
    pub fn describe(
        &self,
        batch: &mut Batch,
        i: usize,
        (source, scope): (IpAddr, u32),
        tos: u8,
        ttl: u8,
    ) {
        let (tos, ttl) = (i32::from(tos), i32::from(ttl.max(1)));
        let level = if self.v6 { libc::SOL_IPV6 } else { libc::SOL_IP };
        let (tos_kind, ttl_kind) = if self.v6 {
            (libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT)
        } else {
            (libc::IP_TOS, libc::IP_TTL)
        };
        batch.add(i, level, tos_kind, tos);
        batch.add(i, level, ttl_kind, ttl);
        if self.address.is_some() || source.is_unspecified() {
            return;
        }
        match source {
            IpAddr::V4(a) => {
                let s_addr = u32::from_ne_bytes(a.octets());
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr { s_addr },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                batch.add(i, level, libc::IP_PKTINFO, info);
            }
            IpAddr::V6(a) => {
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: a.octets() },
                    ipi6_ifindex: if a.is_unicast_link_local() { scope } else { 0 },
                };
                batch.add(i, level, libc::IPV6_PKTINFO, info);
            }
        }
    }

    /// Datagrams that the kernel has dropped for want of room since the last call.
    pub fn new_drops(&mut self) -> u64 {
        let now = udp_socket::dropped(&self.fd).unwrap_or(self.drops);
        let new = now.wrapping_sub(self.drops);
        self.drops = now;
        u64::from(new)
    }
}

impl Received {
    /// Writes the headers into `frame`, which ends with the payload; the frame's length.
    #[inline]
    pub fn write_headers(&self, frame: &mut [u8]) -> Option<usize> {
        frame[..12].fill(0);
        frame[..6].copy_from_slice(&scope_as_mac(self.scope));
        let ethertype: u16 = if self.source.is_ipv6() { 0x86DD } else { 0x0800 };
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        sonde_wire::build::emit_udp_ip(
            &mut frame[14..],
            self.source,
            self.destination,
            self.tos,
            self.ttl,
            self.len,
        )
        .ok()?;
        if let (IpAddr::V6(_), Some(at)) =
            (self.source.ip(), frame.len().checked_sub(self.len + udp::HEADER_LEN))
        {
            // IPv6 wants one (RFC 8200, section 8.1). The kernel has verified the true one and
            // does not report it: this is the form of one that is still to be completed.
            let (source, destination) = (self.source.ip(), self.destination.ip());
            let length = (self.len + udp::HEADER_LEN) as u32;
            let sum = checksum::pseudo(source, destination, ipv4::PROTOCOL_UDP, length)?;
            frame[at + 6..at + 8].copy_from_slice(&checksum::fold(sum).to_be_bytes());
        }
        Some(frame.len())
    }
}

/// The interface of a link-local packet, as the destination of the link header that is made up
/// for it. Whoever turns the packet round sends it from there, and [`mac_as_scope`] finds it.
fn scope_as_mac(scope: u32) -> [u8; 6] {
    let [a, b, c, d] = scope.to_be_bytes();
    if scope == 0 { [0; 6] } else { [SCOPE_MARK[0], SCOPE_MARK[1], a, b, c, d] }
}

/// The interface that the source of a link header of ours names.
pub(super) fn mac_as_scope(source: [u8; 6]) -> Option<u32> {
    let [mark @ .., a, b, c, d] = source;
    (mark == SCOPE_MARK).then(|| u32::from_be_bytes([a, b, c, d]))
}

fn bind_address(v6: bool, address: Option<IpAddr>, port: u16) -> SocketAddr {
    let wildcard: IpAddr =
        if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    SocketAddr::new(address.unwrap_or(wildcard), port)
}

/// Bytes of a socket's receive and of its send buffer. They hold 40 ms of 150-byte packets at
/// 200,000 a second, each of which the kernel counts as about 800.
const BUFFER: i32 = 8 << 20;
/// Packets awaiting their stamps, all sockets together.
const AWAITED: usize = 1 << 16;
/// And of one socket at least.
const AWAITED_LEAST: usize = 512;

/// A locally administered address of no vendor.
const SCOPE_MARK: [u8; 2] = [0x02, 0x53];

const _: () = assert!(size_of::<libc::in6_pktinfo>() == 20);
