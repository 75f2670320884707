//! Keeps UDP ports for an engine that works below the kernel's UDP.
//!
//! Such an engine sees the packets, but the kernel does not know the ports. Another process could
//! take them. Whatever reaches the stack would be answered with an ICMP port unreachable (RFC 1122
//! section 4.1.3.1). A guard is one bound UDP socket per family and port that drops all it gets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use sonde_sys::syscall;

use crate::{Filter, PortError};

/// Holds the ports until it is dropped.
#[derive(Debug)]
pub struct Guard {
    sockets: Vec<OwnedFd>,
}

impl Guard {
    /// Takes every port of `filter.local_ports`, of which there is at least one, for the
    /// families of `filter.local` (both when it is empty).
    ///
    /// Of a few named addresses, just these are taken. The same port on another address, of another
    /// process or of this one's next lane, is no obstacle. Else the wildcard address, and where
    /// another process has the port on an address that the filter does not name, the named ones.
    ///
    /// # Errors
    /// A port that is in use ([`PortError::InUse`]), a port below 1024 without
    /// CAP_NET_BIND_SERVICE, too many open files.
    pub fn reserve(filter: &Filter) -> Result<Guard, PortError> {
        let needs = |v6| filter.local.is_empty() || filter.local.iter().any(|a| a.is_ipv6() == v6);
        syscall::raise_descriptor_limit(2 * filter.local_ports.len())
            .map_err(|e| syscall::error("raise the limit of open files", e, "CAP_SYS_RESOURCE"))?;
        let mut guard = Guard { sockets: Vec::new() };
        for &port in &filter.local_ports {
            for v6 in [false, true] {
                if needs(v6) {
                    guard.take(filter, v6, port)?;
                }
            }
        }
        Ok(guard)
    }

    /// How many sockets it holds.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    fn take(&mut self, filter: &Filter, v6: bool, port: u16) -> Result<(), PortError> {
        let wildcard: IpAddr =
            if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let own = || filter.local.iter().copied().filter(|a| a.is_ipv6() == v6);
        // A link-local address cannot be bound without its interface.
        let scoped = own().any(|a| matches!(a, IpAddr::V6(a) if a.is_unicast_link_local()));
        if scoped || !(1..=FEW_ADDRESSES).contains(&own().count()) {
            let failed = match bound(SocketAddr::new(wildcard, port)) {
                Ok(socket) => {
                    self.sockets.push(socket);
                    return Ok(());
                }
                // A host without IPv6 answers no IPv6 packet either.
                Err(e) if v6 && filter.local.is_empty() && absent(&e) => return Ok(()),
                Err(e) => e,
            };
            if failed.kind() != io::ErrorKind::AddrInUse || own().next().is_none() {
                return Err(refused(SocketAddr::new(wildcard, port), failed));
            }
        }
        for address in own() {
            let address = SocketAddr::new(address, port);
            self.sockets.push(bound(address).map_err(|e| refused(address, e))?);
        }
        Ok(())
    }
}

/// Up to so many addresses, each is bound: one descriptor a port for each of them.
const FEW_ADDRESSES: usize = 4;

/// A bound socket that keeps nothing of what it receives.
fn bound(address: SocketAddr) -> io::Result<OwnedFd> {
    let v6 = address.is_ipv6();
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    let socket = syscall::socket(family, libc::SOCK_DGRAM, 0)?;
    if v6 {
        syscall::set(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    // An address may be routed to this host without being on an interface.
    let (level, name) = free_bind(v6);
    syscall::set(&socket, level, name, 1)?;
    syscall::set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 0)?;
    syscall::set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, 0)?;
    syscall::attach_filter(&socket, &[syscall::op(libc::BPF_RET | libc::BPF_K, 0, 0, 0)])?;
    syscall::bind(&socket, address, 0)?;
    Ok(socket)
}

/// The option that lets a socket use an address that no interface has.
pub(crate) fn free_bind(v6: bool) -> (i32, i32) {
    if v6 {
        (libc::IPPROTO_IPV6, libc::IPV6_FREEBIND)
    } else {
        (libc::IPPROTO_IP, libc::IP_FREEBIND)
    }
}

/// The host does not have this address family.
pub(crate) fn absent(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}

/// Why a port cannot be had, and what to do.
pub(crate) fn refused(address: SocketAddr, e: io::Error) -> PortError {
    match e.raw_os_error() {
        Some(libc::EADDRINUSE) => PortError::InUse(address.port()),
        Some(libc::EADDRNOTAVAIL) => PortError::Config(format!(
            "{} is not an address of this host; 'ip address' lists those it has",
            address.ip()
        )),
        _ => syscall::error(format!("bind UDP {address}"), e, "CAP_NET_BIND_SERVICE").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn free_port() -> u16 {
        UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    #[test]
    fn a_reserved_port_is_taken_and_its_packets_vanish() {
        let port = free_port();
        let filter = Filter { local_ports: vec![port], ..Filter::default() };
        let guard = Guard::reserve(&filter).unwrap();
        assert!(!guard.is_empty() && guard.len() <= 2);
        let taken = UdpSocket::bind(("127.0.0.1", port)).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        // A connected socket would learn of a port unreachable on its second send.
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.connect(("127.0.0.1", port)).unwrap();
        for _ in 0..3 {
            assert_eq!(peer.send(b"probe").unwrap(), 5);
        }
        drop(guard);
        UdpSocket::bind(("127.0.0.1", port)).unwrap();
    }

    #[test]
    fn a_port_in_use_is_named_with_the_next_step() {
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = other.local_addr().unwrap().port();
        let filter = Filter { local_ports: vec![port], ..Filter::default() };
        let message = Guard::reserve(&filter).unwrap_err().to_string();
        assert!(message.contains(&port.to_string()) && message.contains("ss -ulpn"), "{message}");
        // The socket is one of this process.
        assert!(message.contains("by this process or another"), "{message}");
    }

    #[test]
    fn another_process_on_another_address_is_no_obstacle() {
        let other = UdpSocket::bind("127.0.0.2:0").unwrap();
        let port = other.local_addr().unwrap().port();
        let local = vec!["127.0.0.1".parse().unwrap()];
        let filter = Filter { local, local_ports: vec![port], ..Filter::default() };
        assert_eq!(Guard::reserve(&filter).unwrap().len(), 1);
    }

    #[test]
    fn two_lanes_of_one_process_have_the_same_port_on_two_addresses() {
        let port = free_port();
        let on = |address: &str| {
            let local = vec![address.parse().unwrap()];
            Guard::reserve(&Filter { local, local_ports: vec![port], ..Filter::default() })
        };
        let _first = on("127.0.0.1").unwrap();
        assert_eq!(on("127.0.0.2").unwrap().len(), 1);
        assert!(on("127.0.0.1").is_err());
    }

    #[test]
    fn hundreds_of_ports() {
        // From below the ephemeral range, so that no other test's socket is hit.
        let local = vec!["127.0.0.1".parse().unwrap()];
        let filter = Filter { local, local_ports: (21_000..21_600).collect(), ..Filter::default() };
        assert_eq!(Guard::reserve(&filter).unwrap().len(), 600);
    }
}
