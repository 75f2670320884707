//! Changes of links, neighbours, addresses and routes, as they happen.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

use super::Mac;
use super::link::link;
use super::message::{Message, u32_at};
use super::neighbour::{Neighbour, neighbour};
use super::socket::Socket;

/// A change that the kernel reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetlinkEvent {
    /// A neighbour was resolved, changed, failed, or was forgotten.
    Neighbour {
        ifindex: u32,
        address: IpAddr,
        /// Its MAC address, if it is known now.
        mac: Option<Mac>,
    },
    /// An interface changed, appeared or (not `up`) vanished.
    Link {
        ifindex: u32,
        /// Set up, and with carrier.
        up: bool,
        mac: Mac,
    },
    /// Some route was added, changed or removed.
    Route,
    /// Some address was added or removed.
    Address,
    /// Events were lost: whoever follows them has to look at everything anew.
    Overrun,
}

/// A socket on which the kernel reports changes of interfaces, addresses and routes.
pub struct NetlinkWatch(Socket);

impl NetlinkWatch {
    /// In the network namespace of this thread. Reports what happens from now on.
    pub fn open() -> io::Result<Self> {
        Ok(NetlinkWatch(Socket::open(libc::NETLINK_ROUTE, GROUPS)?))
    }

    /// What has happened since the last call. Does not block.
    pub fn poll(&mut self) -> io::Result<Vec<NetlinkEvent>> {
        let mut events = Vec::new();
        if self.0.notifications(|m| events.extend(event(m)))? {
            events.push(NetlinkEvent::Overrun);
        }
        Ok(events)
    }

    /// Becomes readable when there is something to poll.
    pub fn fd(&self) -> RawFd {
        self.0.fd()
    }
}

pub(super) fn event(message: Message<'_>) -> Option<NetlinkEvent> {
    match message.kind {
        libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => {
            let (ifindex, address, what) = neighbour(message)?;
            let mac = match what {
                Neighbour::Known { mac, .. } => Some(mac),
                _ => None,
            };
            Some(NetlinkEvent::Neighbour { ifindex, address, mac })
        }
        libc::RTM_NEWLINK => {
            let link = link(message)?;
            Some(NetlinkEvent::Link { ifindex: link.ifindex, up: link.running, mac: link.mac })
        }
        // A bridge that loses a port sends the same message, with its own family.
        libc::RTM_DELLINK if *message.body.first()? == libc::AF_UNSPEC as u8 => {
            Some(NetlinkEvent::Link { ifindex: u32_at(message.body, 4)?, up: false, mac: [0; 6] })
        }
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => Some(NetlinkEvent::Route),
        libc::RTM_NEWADDR | libc::RTM_DELADDR => Some(NetlinkEvent::Address),
        _ => None,
    }
}

const GROUPS: i32 = libc::RTMGRP_LINK
    | libc::RTMGRP_NEIGH
    | libc::RTMGRP_IPV4_IFADDR
    | libc::RTMGRP_IPV6_IFADDR
    | libc::RTMGRP_IPV4_ROUTE
    | libc::RTMGRP_IPV6_ROUTE;
