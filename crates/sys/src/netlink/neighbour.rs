//! The MAC addresses of the hosts on a link (ARP, RFC 826; NDP, RFC 4861).

use std::io;
use std::net::IpAddr;

use super::Mac;
use super::message::{Message, Request, address, attributes, family, mac, u16_at, u32_at};
use super::socket::Socket;

/// What the kernel knows of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// Its MAC address. `fixed`: by configuration, never checked.
    Known {
        mac: Mac,
        /// Set by hand, or by the kind of the link.
        fixed: bool,
    },
    /// It has been asked for.
    Resolving,
    /// It did not answer.
    Failed,
    /// No entry for the address.
    Absent,
}

/// Asks for neighbours, and makes the kernel resolve them.
pub struct Neighbours(Socket);

impl Neighbours {
    /// In the network namespace of this thread.
    pub fn open() -> io::Result<Self> {
        Ok(Neighbours(Socket::open(libc::NETLINK_ROUTE, 0)?))
    }

    /// What the kernel knows of `address` on the interface.
    pub fn get(&mut self, ifindex: u32, address: IpAddr) -> io::Result<Neighbour> {
        let request = request(libc::RTM_GETNEIGH, libc::NLM_F_ACK, ifindex, 0, address);
        let mut found = Neighbour::Absent;
        match self.0.ask(request, |m| found = neighbour(m).map_or(found, |n| n.2)) {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(Neighbour::Absent),
            result => result.map(|()| found),
        }
    }

    /// The MAC address of `address`, if it is known.
    pub fn neighbour(&mut self, ifindex: u32, address: IpAddr) -> io::Result<Option<Mac>> {
        Ok(match self.get(ifindex, address)? {
            Neighbour::Known { mac, .. } => Some(mac),
            _ => None,
        })
    }

    /// Makes the kernel resolve `address`, or check it again when it has not been
    /// confirmed for some time, as a packet through its stack would. Returns at once.
    pub fn solicit(&mut self, ifindex: u32, address: IpAddr) -> io::Result<()> {
        // To the kernel "in use" is a state: saying so of an entry set by hand would
        // make it one that expires.
        if let Neighbour::Known { fixed: true, .. } = self.get(ifindex, address)? {
            return Ok(());
        }
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE;
        let request = request(libc::RTM_NEWNEIGH, flags, ifindex, libc::NTF_USE, address);
        self.0.ask(request, |_| ()).map_err(|e| match e.raw_os_error() {
            Some(libc::ENOBUFS) => io::Error::other(
                "the kernel's neighbour table is full; raise \
                 net.ipv4.neigh.default.gc_thresh3 (IPv6: net.ipv6...) with sysctl",
            ),
            _ => e,
        })
    }
}

fn request(kind: u16, flags: i32, ifindex: u32, use_: u8, address: IpAddr) -> Request {
    let mut fixed = [0; NDMSG];
    fixed[0] = family(address);
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    fixed[10] = use_;
    Request::new(kind, flags, &fixed).address(libc::NDA_DST, address)
}

/// Interface, address and state that a message is about. One that is deleted is absent.
pub(super) fn neighbour(message: Message<'_>) -> Option<(u32, IpAddr, Neighbour)> {
    let body = message.body;
    // The same messages carry the forwarding tables of bridges.
    if !matches!(i32::from(*body.first()?), libc::AF_INET | libc::AF_INET6) {
        return None;
    }
    let ifindex = u32_at(body, 4)?;
    let state = u16_at(body, 8)?;
    let (mut to, mut hardware) = (None, None);
    for (kind, value) in attributes(body, NDMSG) {
        match kind {
            libc::NDA_DST => to = address(value),
            libc::NDA_LLADDR => hardware = mac(value),
            _ => {}
        }
    }
    let what = match (message.kind, hardware) {
        (libc::RTM_DELNEIGH, _) => Neighbour::Absent,
        (libc::RTM_NEWNEIGH, Some(mac)) if state & VALID != 0 => {
            Neighbour::Known { mac, fixed: state & FIXED != 0 }
        }
        (libc::RTM_NEWNEIGH, _) if state & libc::NUD_FAILED != 0 => Neighbour::Failed,
        (libc::RTM_NEWNEIGH, _) if state & libc::NUD_INCOMPLETE != 0 => Neighbour::Resolving,
        (libc::RTM_NEWNEIGH, _) => Neighbour::Absent,
        _ => return None,
    };
    Some((ifindex, to?, what))
}

/// Length of the fixed part, `struct ndmsg`.
const NDMSG: usize = 12;
const FIXED: u16 = libc::NUD_PERMANENT | libc::NUD_NOARP;
const VALID: u16 =
    FIXED | libc::NUD_REACHABLE | libc::NUD_STALE | libc::NUD_DELAY | libc::NUD_PROBE;
