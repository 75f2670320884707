//! Routes, links and neighbours as the kernel sees them, over rtnetlink, and what else only
//! netlink reports or does.
//!
//! A sender below the IP stack has to know what the stack would have filled in:
//! source address, VLAN tags and MAC addresses. All of it is asked of the kernel,
//! and [`NextHops`] follows the changes. Sockets belong to the network namespace of
//! the thread that opens them. Blocking calls; not for the packet path.

mod conntrack;
mod counters;
mod generic;
mod link;
mod message;
mod neighbour;
mod next_hops;
mod route;
mod socket;
#[cfg(test)]
mod tests;
mod watch;

pub use crate::syscall::interface_index;
pub use conntrack::flush_connections;
pub use counters::{DirectionCounters, LinkCounters, link_counters};
pub use generic::Generic;
pub use link::{Link, Links};
pub use neighbour::{Neighbour, Neighbours};
pub use next_hops::{Changes, Macs, NextHop, NextHops};
pub use route::{Route, RouteError, Routes};
pub use watch::{NetlinkEvent, NetlinkWatch};

pub use sonde_wire::ethernet::{Mac, Tag};
