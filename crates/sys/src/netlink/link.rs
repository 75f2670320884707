//! Network interfaces, by rtnetlink (RTM_GETLINK and its kin).

use std::io;

use super::message::{Message, Request, attribute, attributes, mac, text, u16_at, u32_at};
use super::socket::Socket;
use super::{Mac, Tag};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub name: String,
    /// The interface's index in its namespace.
    pub ifindex: u32,
    /// Its MAC address; zeros where the link layer has none of six bytes.
    pub mac: Mac,
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// Set up, and with carrier.
    pub running: bool,
    /// Neighbours are resolved on it: neither loopback nor point-to-point nor NOARP.
    pub resolves: bool,
    /// "veth", "vlan", "bond" and so on; empty for hardware and loopback.
    pub kind: String,
    /// The interface below (VLAN), or the peer (veth), if in this namespace.
    pub link: Option<u32>,
    /// The bridge, bond and so on that it is a port of.
    pub master: Option<u32>,
    /// A host's loopback.
    pub loopback: bool,
    /// VLAN tag; priority 0.
    pub vlan: Option<Tag>,
    /// Receive queues allocated by the driver (those in use may be fewer).
    pub rx_queues: u32,
    /// Transmit queues, likewise.
    pub tx_queues: u32,
    /// Identifier of the XDP program attached.
    pub xdp_program: Option<u32>,
}

/// A socket to the kernel that asks for interfaces.
pub struct Links(Socket);

impl Links {
    /// In the network namespace of this thread.
    pub fn open() -> io::Result<Self> {
        Ok(Links(Socket::open(libc::NETLINK_ROUTE, 0)?))
    }

    pub fn all(&mut self) -> io::Result<Vec<Link>> {
        self.0.dump(|| request(0, libc::NLM_F_DUMP), link)
    }

    /// One of them; `None`: there is none of that index.
    pub fn get(&mut self, ifindex: u32) -> io::Result<Option<Link>> {
        let mut found = None;
        match self.0.ask(request(ifindex, libc::NLM_F_ACK), |m| found = link(m)) {
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            result => result.map(|()| found),
        }
    }
}

impl Links {
    /// Has a bridge learn so many stations at most (`IFLA_BR_FDB_MAX_LEARNED`; tools to set it
    /// are younger than the kernels that have it, from 6.7 on).
    ///
    /// # Errors
    /// Not permitted (CAP_NET_ADMIN); no such bridge; an older kernel.
    pub fn limit_learning(&mut self, bridge: u32, most: u32) -> io::Result<()> {
        let mut fixed = [0; IFINFOMSG];
        fixed[4..8].copy_from_slice(&bridge.to_ne_bytes());
        let data = attribute(IFLA_BR_FDB_MAX_LEARNED, &most.to_ne_bytes());
        let info = [
            attribute(libc::IFLA_INFO_KIND, b"bridge\0"),
            attribute(libc::IFLA_INFO_DATA | libc::NLA_F_NESTED as u16, &data),
        ]
        .concat();
        let request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, &fixed)
            .attribute(libc::IFLA_LINKINFO | libc::NLA_F_NESTED as u16, &info);
        self.0.ask(request, |_| ())
    }
}

fn request(ifindex: u32, flags: i32) -> Request {
    let mut fixed = [0; IFINFOMSG];
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    Request::new(libc::RTM_GETLINK, flags, &fixed)
        .attribute(libc::IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes())
}

/// The interface that a message describes.
pub(super) fn link(message: Message<'_>) -> Option<Link> {
    // Bridges announce their ports in messages of the same kind.
    if message.kind != libc::RTM_NEWLINK || *message.body.first()? != libc::AF_UNSPEC as u8 {
        return None;
    }
    let flags = u32_at(message.body, 8)? as i32;
    let unresolved = libc::IFF_LOOPBACK | libc::IFF_POINTOPOINT | libc::IFF_NOARP;
    let mut link = Link {
        ifindex: u32_at(message.body, 4)?,
        running: flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0,
        resolves: flags & unresolved == 0,
        loopback: flags & libc::IFF_LOOPBACK != 0,
        ..Link::default()
    };
    let mut elsewhere = false;
    for (kind, value) in attributes(message.body, IFINFOMSG) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_ADDRESS => link.mac = mac(value).unwrap_or_default(),
            libc::IFLA_MTU => link.mtu = u32_at(value, 0)?,
            libc::IFLA_LINK => link.link = u32_at(value, 0).filter(|&i| i != 0),
            libc::IFLA_LINK_NETNSID => elsewhere = true,
            libc::IFLA_MASTER => link.master = u32_at(value, 0).filter(|&i| i != 0),
            libc::IFLA_NUM_RX_QUEUES => link.rx_queues = u32_at(value, 0)?,
            libc::IFLA_NUM_TX_QUEUES => link.tx_queues = u32_at(value, 0)?,
            libc::IFLA_LINKINFO => link_info(value, &mut link),
            libc::IFLA_XDP => {
                let id = attributes(value, 0).find(|&(kind, _)| kind == IFLA_XDP_PROG_ID);
                link.xdp_program = id.and_then(|(_, id)| u32_at(id, 0)).filter(|&id| id != 0);
            }
            _ => {}
        }
    }
    if elsewhere {
        link.link = None;
    }
    Some(link)
}

fn link_info(info: &[u8], link: &mut Link) {
    let find = |wanted| attributes(info, 0).find(|&(kind, _)| kind == wanted).map(|a| a.1);
    link.kind = find(libc::IFLA_INFO_KIND).map(text).unwrap_or_default();
    if link.kind != "vlan" {
        return;
    }
    let (mut tpid, mut id) = (TPID_8021Q, None);
    for (kind, value) in attributes(find(libc::IFLA_INFO_DATA).unwrap_or_default(), 0) {
        match kind {
            IFLA_VLAN_ID => id = u16_at(value, 0),
            IFLA_VLAN_PROTOCOL => tpid = u16_at(value, 0).map_or(TPID_8021Q, u16::from_be),
            _ => {}
        }
    }
    link.vlan = id.map(|tci| Tag { tpid, tci });
}

/// Length of the fixed part, `struct ifinfomsg`.
pub(super) const IFINFOMSG: usize = 16;
const RTEXT_FILTER_SKIP_STATS: u32 = 8;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_PROTOCOL: u16 = 5;
/// linux/if_link.h, Linux 6.7.
const IFLA_BR_FDB_MAX_LEARNED: u16 = 49;
const TPID_8021Q: u16 = 0x8100;

#[cfg(test)]
mod tests {
    use super::super::message::messages;
    use super::*;

    /// What `attributes` look like nested in another: without the headers.
    fn nested(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let start = Request::new(0, 0, &[]);
        let mut all = attributes.iter().fold(start, |r, (kind, value)| r.attribute(*kind, value));
        all.finish(0)[16..].to_vec()
    }

    fn parse(attributes: &[(u16, &[u8])]) -> Link {
        let mut fixed = [0; IFINFOMSG];
        fixed[4] = 3;
        fixed[8..12].copy_from_slice(&(libc::IFF_UP | libc::IFF_RUNNING).to_ne_bytes());
        let start = Request::new(libc::RTM_NEWLINK, 0, &fixed);
        let mut all = attributes.iter().fold(start, |r, (kind, value)| r.attribute(*kind, value));
        let bytes = all.finish(0);
        link(messages(bytes).next().unwrap()).unwrap()
    }

    // Not every kernel has VLAN devices to try it on.
    #[test]
    fn a_vlan_device_with_its_tag() {
        let data = nested(&[
            (IFLA_VLAN_PROTOCOL, &[0x88, 0xa8]),
            (2, &[0; 8]),
            (IFLA_VLAN_ID, &100u16.to_ne_bytes()),
        ]);
        let info = nested(&[
            (libc::IFLA_INFO_KIND, b"vlan\0"),
            // The kernel marks nested attributes as such.
            (libc::IFLA_INFO_DATA | 0x8000, &data),
        ]);
        let below = 2u32.to_ne_bytes();
        let attributes = [
            (libc::IFLA_IFNAME, &b"outer\0"[..]),
            (libc::IFLA_LINK, &below[..]),
            (libc::IFLA_LINKINFO, &info[..]),
        ];
        let vlan = parse(&attributes);
        assert_eq!((vlan.name.as_str(), vlan.ifindex, vlan.running), ("outer", 3, true));
        assert_eq!((vlan.vlan, vlan.link), (Some(Tag { tpid: 0x88a8, tci: 100 }), Some(2)));
        let mut elsewhere = attributes.to_vec();
        elsewhere.push((libc::IFLA_LINK_NETNSID, &[0; 4]));
        assert_eq!(parse(&elsewhere).link, None, "an index of another namespace");
    }

    #[test]
    fn a_port_of_a_bridge_names_it() {
        let port = parse(&[(libc::IFLA_MASTER, &7u32.to_ne_bytes())]);
        assert_eq!((port.master, port.loopback), (Some(7), false));
    }

    #[test]
    fn an_xdp_program_is_seen() {
        let xdp = nested(&[(2, &[1]), (IFLA_XDP_PROG_ID, &42u32.to_ne_bytes())]);
        assert_eq!(parse(&[(libc::IFLA_XDP, &xdp)]).xdp_program, Some(42));
        let none = nested(&[(2, &[0])]);
        assert_eq!(parse(&[(libc::IFLA_XDP, &none)]).xdp_program, None);
    }
}
