//! The interfaces by which this host is reached. A port takes all that comes in at its interface
//! away from the host, so it must not be one of them.

use std::net::IpAddr;

use sonde_server::http::ConnectionAddresses;
use sonde_sys::netlink::{Link, Links, Routes};

/// Interfaces of the server's own namespace that must go on working, each with why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways(Vec<(u32, String)>);

impl Ways {
    /// Those by which a client has come, and those of the default routes. A client by a tunnel
    /// (ssh -L) comes by loopback; the interface that carries the tunnel is unknown.
    pub fn of(client: ConnectionAddresses) -> Ways {
        let (Ok(mut routes), Ok(mut links)) = (Routes::open(), Links::open()) else {
            return Ways::default();
        };
        let links = links.all().unwrap_or_default();
        let mut ends = Vec::new();
        for source in [None, Some(client.local.to_canonical())] {
            if let Ok(route) = routes.lookup(client.peer.to_canonical(), source) {
                ends.push((
                    route.ifindex,
                    format!("its client {} is connected by it", client.peer),
                ));
            }
        }
        for elsewhere in ELSEWHERE {
            if let Ok(route) = routes.lookup(elsewhere, None) {
                ends.push((route.ifindex, "the host's default route leads through it".into()));
            }
        }
        Ways(below(ends, &links))
    }

    /// Why an interface is none for a port, if it is not.
    pub fn refuse(&self, ifindex: u32) -> Option<&str> {
        self.0.iter().find(|(way, _)| *way == ifindex).map(|(_, why)| why.as_str())
    }
}

/// And those that carry them: what is below a VLAN, the ports of a bridge or a bond.
fn below(mut ways: Vec<(u32, String)>, links: &[Link]) -> Vec<(u32, String)> {
    let mut next = 0;
    while let Some((ifindex, why)) = ways.get(next).cloned() {
        next += 1;
        let own = links.iter().find(|l| l.ifindex == ifindex);
        // Of virtual Ethernet it is the other end, which carries nothing of this one.
        let lower = own.filter(|l| l.kind != "veth").and_then(|l| l.link);
        let ports = links.iter().filter(|l| l.master == Some(ifindex)).map(|l| l.ifindex);
        for carrier in lower.into_iter().chain(ports) {
            if ways.iter().all(|(known, _)| *known != carrier) {
                ways.push((carrier, why.clone()));
            }
        }
    }
    ways
}

/// Addresses for documentation (RFC 5737, RFC 3849), to which nothing but a default route leads.
/// Nothing is sent to them.
const ELSEWHERE: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 1)),
    IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_carries_a_way_is_one() {
        let link = |ifindex, kind: &str, link, master| Link {
            name: format!("i{ifindex}"),
            ifindex,
            kind: kind.into(),
            link,
            master,
            ..Link::default()
        };
        // 7: a VLAN on the bridge 5, whose ports are 3 and the virtual 4, whose other end is 6.
        let links = [
            link(3, "", None, Some(5)),
            link(4, "veth", Some(6), Some(5)),
            link(5, "bridge", None, None),
            link(6, "veth", Some(4), None),
            link(7, "vlan", Some(5), None),
            link(8, "", None, None),
        ];
        let ways = Ways(below(vec![(7, "client".into())], &links));
        for (ifindex, refused) in
            [(3, true), (4, true), (5, true), (6, false), (7, true), (8, false)]
        {
            assert_eq!(ways.refuse(ifindex).is_some(), refused, "{ifindex}");
        }
        // One that carries itself ends, too.
        let own = [link(1, "vlan", Some(1), Some(1))];
        assert_eq!(below(vec![(1, String::new())], &own).len(), 1);
    }
}
