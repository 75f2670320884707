//! Which way a packet would take.

use std::io;
use std::net::IpAddr;

use sonde_wire::prefix::Prefix;

use super::link::{Link, Links};
use super::message::{Message, Request, address, attributes, family, u32_at};
use super::socket::Socket;
use super::{Mac, Tag};
use crate::SysError;

/// What the kernel would do with a packet to one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The interface it leaves by.
    pub interface: String,
    /// Kernel index of `interface` in this network namespace.
    pub ifindex: u32,
    /// The device below any VLAN devices; else the interface itself.
    pub lower: String,
    /// The index of the interface below the VLAN device.
    pub lower_ifindex: u32,
    /// VLAN tags that the frame carries on the lower device, outermost first; priority 0.
    pub tags: Vec<Tag>,
    /// The source address that the kernel would choose, or the one asked with.
    pub source: IpAddr,
    /// The gateway, or the destination itself when it is on the link.
    pub next_hop: IpAddr,
    /// The interface's MAC address; zeros where it has none.
    pub source_mac: Mac,
    /// Largest IP packet, bytes: of the route if it says so, else of the interface.
    pub mtu: u32,
    /// The destination is this host.
    pub local: bool,
}

/// Why there is no way to a destination.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    #[error("no route to {0}; see 'ip route get {0}', and add one with 'ip route add'")]
    NoRoute(IpAddr),
    /// A route says: unreachable.
    #[error("{0} is unreachable by a route that says so; see 'ip route get {0}'")]
    Unreachable(IpAddr),
    /// A route says: blackhole.
    #[error("packets to {0} end in a blackhole route; see 'ip route get {0}'")]
    Blackhole(IpAddr),
    /// A route says: prohibited.
    #[error("a route prohibits packets to {0}; see 'ip route get {0}'")]
    Prohibited(IpAddr),
    /// The source address asked with is not one of this host.
    #[error("{0} is not an address of this host; 'ip address' lists those that are")]
    Source(IpAddr),
    /// Broadcast, multicast or anycast.
    #[error("{0} is not a unicast address; measure to a single host")]
    NotUnicast(IpAddr),
    /// A VLAN device whose lower device lies in another network namespace.
    #[error(
        "{interface}, the way to {destination}, is a VLAN device over a device of another \
         network namespace; run in that one, or use --engine socket"
    )]
    Lower { destination: IpAddr, interface: String },
    /// There is no such interface.
    #[error(transparent)]
    Interface(#[from] SysError),
    /// The kernel could not be asked.
    #[error(
        "asking the kernel for the route to {destination}: {source}; try 'ip route get {destination}'"
    )]
    Io { destination: IpAddr, source: io::Error },
}

/// A socket to the kernel that asks for routes.
pub struct Routes {
    socket: Socket,
    links: Links,
}

impl Routes {
    /// In the network namespace of this thread.
    pub fn open() -> io::Result<Self> {
        Ok(Routes { socket: Socket::open(libc::NETLINK_ROUTE, 0)?, links: Links::open()? })
    }

    /// The way to `destination`, for packets from `source` if that is given.
    pub fn lookup(
        &mut self,
        destination: IpAddr,
        source: Option<IpAddr>,
    ) -> Result<Route, RouteError> {
        self.lookup_by(destination, source, None)
    }

    /// The same, by the interface of this index only, as a socket that is bound to it goes.
    pub fn lookup_by(
        &mut self,
        destination: IpAddr,
        source: Option<IpAddr>,
        ifindex: Option<u32>,
    ) -> Result<Route, RouteError> {
        let failed = |source| RouteError::Io { destination, source };
        let found = match self.query(destination, source, ifindex) {
            Ok(found) => found.ok_or(RouteError::NoRoute(destination))?,
            Err(error) => return Err(self.explain(destination, source, error)),
        };
        let local = match found.kind {
            libc::RTN_UNICAST => false,
            libc::RTN_LOCAL => true,
            libc::RTN_BLACKHOLE => return Err(RouteError::Blackhole(destination)),
            libc::RTN_UNREACHABLE => return Err(RouteError::Unreachable(destination)),
            libc::RTN_PROHIBIT => return Err(RouteError::Prohibited(destination)),
            _ => return Err(RouteError::NotUnicast(destination)),
        };
        let link = self.links.get(found.ifindex).map_err(failed)?;
        let link = link.ok_or(RouteError::NoRoute(destination))?;
        let below = below(&link, |ifindex| self.links.get(ifindex)).map_err(failed)?;
        let (lower, tags) =
            below.ok_or_else(|| RouteError::Lower { destination, interface: link.name.clone() })?;
        Ok(Route {
            ifindex: link.ifindex,
            lower: lower.name,
            lower_ifindex: lower.ifindex,
            tags,
            source: source.or(found.source).unwrap_or(destination),
            next_hop: found.gateway.unwrap_or(destination),
            source_mac: link.mac,
            mtu: found.mtu.unwrap_or(link.mtu),
            local,
            interface: link.name,
        })
    }

    /// Addresses and prefixes for which this host answers: the routes of type local
    /// in the kernel's local table, IPv4 before IPv6, sorted.
    pub fn local_prefixes(&mut self) -> io::Result<Vec<Prefix>> {
        self.local_table(|kind| kind == libc::RTN_LOCAL)
    }

    /// Addresses that belong to many hosts, so that no packet can come from one of them:
    /// broadcast and anycast addresses of this host's subnets, sorted.
    pub fn shared_addresses(&mut self) -> io::Result<Vec<Prefix>> {
        self.local_table(|kind| matches!(kind, libc::RTN_BROADCAST | libc::RTN_ANYCAST))
    }

    fn local_table(&mut self, wanted: fn(u8) -> bool) -> io::Result<Vec<Prefix>> {
        let mut all = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut fixed = [0; RTMSG];
            fixed[0] = family as u8;
            fixed[4] = libc::RT_TABLE_LOCAL;
            let request = || Request::new(libc::RTM_GETROUTE, libc::NLM_F_DUMP, &fixed);
            match self.socket.dump(request, |m| local_prefix(m, wanted)) {
                Ok(some) => all.extend(some),
                // A namespace in which nothing ever had an address has no such table,
                // a kernel without IPv6 no such family.
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => {}
                Err(e) => return Err(e),
            }
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    fn query(
        &mut self,
        destination: IpAddr,
        source: Option<IpAddr>,
        ifindex: Option<u32>,
    ) -> io::Result<Option<Found>> {
        let length = if destination.is_ipv4() { 32 } else { 128 };
        let mut fixed = [0; RTMSG];
        fixed[0] = family(destination);
        fixed[1] = length;
        fixed[2] = if source.is_some() { length } else { 0 };
        let mut request = Request::new(libc::RTM_GETROUTE, libc::NLM_F_ACK, &fixed)
            .address(libc::RTA_DST, destination);
        if let Some(source) = source {
            request = request.address(libc::RTA_SRC, source);
        }
        if let Some(ifindex) = ifindex {
            request = request.attribute(libc::RTA_OIF, &ifindex.to_ne_bytes());
        }
        let mut answer = None;
        self.socket.ask(request, |m| answer = found(m))?;
        Ok(answer)
    }

    /// The kernel answers for some types of routes with the error that a sender
    /// would get.
    fn explain(
        &mut self,
        destination: IpAddr,
        source: Option<IpAddr>,
        error: io::Error,
    ) -> RouteError {
        // A source address that is not ours gives errors that blame the destination.
        if let Some(source) = source
            && !matches!(self.query(source, None, None), Ok(Some(f)) if f.kind == libc::RTN_LOCAL)
        {
            return RouteError::Source(source);
        }
        match error.raw_os_error() {
            Some(libc::ENETUNREACH | libc::ESRCH) => RouteError::NoRoute(destination),
            Some(libc::EHOSTUNREACH) => RouteError::Unreachable(destination),
            Some(libc::EACCES) => RouteError::Prohibited(destination),
            Some(libc::EINVAL) => RouteError::Blackhole(destination),
            _ => RouteError::Io { destination, source: error },
        }
    }
}

/// The device below any VLAN devices, and their tags, outermost first. `None`: one of
/// the devices is not to be seen from here.
fn below(
    link: &Link,
    mut get: impl FnMut(u32) -> io::Result<Option<Link>>,
) -> io::Result<Option<(Link, Vec<Tag>)>> {
    let mut tags = Vec::new();
    let mut lower = link.clone();
    while let Some(tag) = lower.vlan {
        // Going down, each device adds its tag outside of those before it.
        tags.insert(0, tag);
        let below = match lower.link {
            Some(ifindex) if tags.len() <= MAX_TAGS => get(ifindex)?,
            _ => None,
        };
        let Some(below) = below else { return Ok(None) };
        lower = below;
    }
    Ok(Some((lower, tags)))
}

/// What a message says of a route.
#[derive(Debug)]
struct Found {
    kind: u8,
    ifindex: u32,
    gateway: Option<IpAddr>,
    source: Option<IpAddr>,
    mtu: Option<u32>,
}

fn found(message: Message<'_>) -> Option<Found> {
    if message.kind != libc::RTM_NEWROUTE {
        return None;
    }
    let kind = *message.body.get(7)?;
    let mut found = Found { kind, ifindex: 0, gateway: None, source: None, mtu: None };
    for (kind, value) in attributes(message.body, RTMSG) {
        match kind {
            libc::RTA_OIF => found.ifindex = u32_at(value, 0)?,
            libc::RTA_GATEWAY => found.gateway = address(value),
            // The gateway of an IPv4 route may be an IPv6 address: family, then address.
            libc::RTA_VIA => found.gateway = value.get(2..).and_then(address),
            libc::RTA_PREFSRC => found.source = address(value),
            libc::RTA_METRICS => {
                let mtu = attributes(value, 0).find(|&(kind, _)| kind == RTAX_MTU);
                found.mtu = mtu.and_then(|(_, mtu)| u32_at(mtu, 0)).filter(|&mtu| mtu != 0);
            }
            _ => {}
        }
    }
    Some(found)
}

/// Of a route in the local table whose type is `wanted`.
fn local_prefix(message: Message<'_>, wanted: fn(u8) -> bool) -> Option<Prefix> {
    let &[family, length, _, _, table, _, _, kind, ..] = message.body else { return None };
    if message.kind != libc::RTM_NEWROUTE || table != libc::RT_TABLE_LOCAL || !wanted(kind) {
        return None;
    }
    let (_, value) = attributes(message.body, RTMSG).find(|&(kind, _)| kind == libc::RTA_DST)?;
    let prefix = Prefix { address: address(value)?, bits: length };
    (family == super::message::family(prefix.address) && prefix.is_valid()).then_some(prefix)
}

/// Length of the fixed part, `struct rtmsg`.
const RTMSG: usize = 12;
const RTAX_MTU: u16 = 2;
/// More tags than any sane frame: a chain of devices cannot be a ring, but let no
/// kernel make us spin.
const MAX_TAGS: usize = 8;

#[cfg(test)]
pub(super) fn parse_anything(message: Message<'_>) {
    let _ = (found(message), local_prefix(message, |_| true));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(ifindex: u32, vlan: Option<Tag>, link: Option<u32>) -> Link {
        Link { name: format!("d{ifindex}"), ifindex, vlan, link, ..Link::default() }
    }

    #[test]
    fn tags_are_collected_from_the_outermost_in() {
        let devices = [
            device(0, None, Some(77)), // The peer of a veth is not below it.
            device(1, Some(Tag { tpid: 0x88a8, tci: 100 }), Some(0)),
            device(2, Some(Tag { tpid: 0x8100, tci: 7 }), Some(1)),
        ];
        let get = |i: u32| Ok(devices.get(i as usize).cloned());
        let (lower, tags) = below(&devices[2], get).unwrap().unwrap();
        assert_eq!(
            (lower.ifindex, tags),
            (0, vec![Tag { tpid: 0x88a8, tci: 100 }, Tag { tpid: 0x8100, tci: 7 }])
        );
        let (lower, tags) = below(&devices[0], get).unwrap().unwrap();
        assert_eq!((lower.ifindex, tags), (0, vec![]));
    }

    #[test]
    fn a_lower_device_out_of_sight_or_a_ring_of_devices_is_none() {
        let elsewhere = device(1, Some(Tag { tpid: 0x8100, tci: 1 }), None);
        assert!(below(&elsewhere, |_| unreachable!()).unwrap().is_none());
        let ring = device(1, Some(Tag { tpid: 0x8100, tci: 1 }), Some(1));
        assert!(below(&ring, |_| Ok(Some(ring.clone()))).unwrap().is_none());
    }
}
