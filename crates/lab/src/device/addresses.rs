//! Who has which address on a bed.

use crate::{AddressFamily, Mac};

/// Port a's network and port b's, by family (RFC 6815, section 4.2; RFC 2544, appendix C.2.2).
pub(crate) fn network(port: usize, family: AddressFamily) -> &'static str {
    match (port, family) {
        (0, AddressFamily::V4) => "198.18.0.0/16",
        (_, AddressFamily::V4) => "198.19.0.0/16",
        (0, AddressFamily::V6) => "2001:2::/49",
        (_, AddressFamily::V6) => "2001:2:0:8000::/49",
    }
}

/// All addresses of a bed.
pub(crate) fn everything(family: AddressFamily) -> &'static str {
    match family {
        AddressFamily::V4 => "198.18.0.0/15",
        AddressFamily::V6 => "2001:2::/48",
    }
}

/// The address of the tester's port itself.
pub(crate) fn tester(port: usize, family: AddressFamily) -> &'static str {
    match (port, family) {
        (0, AddressFamily::V4) => "198.18.0.2",
        (_, AddressFamily::V4) => "198.19.0.2",
        (0, AddressFamily::V6) => "2001:2::2",
        (_, AddressFamily::V6) => "2001:2:0:8000::2",
    }
}

/// The address of a routing device towards that port.
pub(crate) fn gateway(port: usize, family: AddressFamily) -> &'static str {
    match (port, family) {
        (0, AddressFamily::V4) => "198.18.0.1",
        (_, AddressFamily::V4) => "198.19.0.1",
        (0, AddressFamily::V6) => "2001:2::1",
        (_, AddressFamily::V6) => "2001:2:0:8000::1",
    }
}

/// Length of the prefix on the link between a port and a routing device.
pub(crate) fn link_prefix(family: AddressFamily) -> u8 {
    match family {
        AddressFamily::V4 => 24,
        AddressFamily::V6 => 64,
    }
}

/// One side of a device: side 0 is towards port a.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceSide {
    /// The MAC address of the device's interface.
    pub(crate) mac: Mac,
    /// That of the other end of the wire.
    pub(crate) peer_mac: Mac,
    /// One for each family that the bed has.
    pub(crate) routes: Vec<SideRoute>,
}

/// The addresses of one family at a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SideRoute {
    pub(crate) family: AddressFamily,
    /// The device's own address and the length of the link's prefix.
    pub(crate) own: &'static str,
    pub(crate) prefix: u8,
    /// The next hop on this side.
    pub(crate) next_hop: &'static str,
    /// What lies behind it.
    pub(crate) network: &'static str,
}

/// The sides of device `i` of `count`. `macs`: by side, its own and the wire's other end.
pub(crate) fn sides(
    i: usize,
    count: usize,
    macs: [[Mac; 2]; 2],
    families: &[AddressFamily],
) -> [DeviceSide; 2] {
    let side = |n: usize| {
        let at_tester = if n == 0 { i == 0 } else { i + 1 == count };
        let route = |&family: &AddressFamily| {
            let network = network(n, family);
            if at_tester {
                let (own, next_hop) = (gateway(n, family), tester(n, family));
                SideRoute { family, own, prefix: link_prefix(family), next_hop, network }
            } else {
                // Between two devices: addresses that take nothing from the test's. IPv6's
                // are unique local ones, which a translator may forward from.
                let (ends, prefix) = match family {
                    AddressFamily::V4 => (["169.254.0.1", "169.254.0.2"], 30),
                    AddressFamily::V6 => (["fd00:5::1", "fd00:5::2"], 64),
                };
                let (own, next_hop) = (ends[1 - n], ends[n]);
                SideRoute { family, own, prefix, next_hop, network }
            }
        };
        let [mac, peer_mac] = macs[n];
        DeviceSide { mac, peer_mac, routes: families.iter().map(route).collect() }
    };
    [side(0), side(1)]
}

/// `count` prefixes of equal length that lie in `network` and together cover at most it: the
/// shortest ones of which there are so many; 0 counts as 1.
pub(crate) fn split(network: &str, count: u32) -> Vec<String> {
    let (address, length) = network.split_once('/').expect("a prefix");
    let length: u32 = length.parse().expect("a length");
    let count = count.max(1);
    let bits = count.next_power_of_two().trailing_zeros();
    let longer = length + bits;
    match address.parse().expect("an address") {
        std::net::IpAddr::V4(base) => (0..count)
            .map(|i| {
                let address = u32::from(base) | i.checked_shl(32 - longer).unwrap_or(0);
                format!("{}/{longer}", std::net::Ipv4Addr::from(address))
            })
            .collect(),
        std::net::IpAddr::V6(base) => (0..count)
            .map(|i| {
                let address = u128::from(base) | u128::from(i) << (128 - longer);
                format!("{}/{longer}", std::net::Ipv6Addr::from(address))
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAMILIES: [AddressFamily; 2] = [AddressFamily::V4, AddressFamily::V6];

    #[test]
    fn two_devices_in_series_point_at_each_other_and_at_the_ports() {
        let macs = [[[1; 6], [2; 6]], [[3; 6], [4; 6]]];
        let [first, second] = [0, 1].map(|i| sides(i, 2, macs, &FAMILIES));
        for (n, family) in FAMILIES.into_iter().enumerate() {
            assert_eq!(first[0].routes[n].next_hop, tester(0, family));
            assert_eq!(second[1].routes[n].next_hop, tester(1, family));
            assert_eq!(first[1].routes[n].next_hop, second[0].routes[n].own);
            assert_eq!(second[0].routes[n].next_hop, first[1].routes[n].own);
            assert_eq!(second[0].routes[n].network, network(0, family));
        }
        let [side_a, side_b] = sides(0, 1, macs, &FAMILIES[..1]);
        assert_eq!((side_a.routes.len(), side_a.routes[0].own), (1, "198.18.0.1"));
        assert_eq!((side_b.mac, side_b.peer_mac), ([3; 6], [4; 6]));
    }

    #[test]
    fn a_network_splits_into_distinct_prefixes_inside_it() {
        let nets = split("198.19.0.0/16", 256);
        assert_eq!((nets.len(), &nets[255][..]), (256, "198.19.255.0/24"));
        assert_eq!(split("198.19.0.0/16", 65_536)[65_535], "198.19.255.255/32");
        for all in [0, 1] {
            assert_eq!(split("198.19.0.0/16", all), ["198.19.0.0/16"]);
        }
        assert_eq!(split("198.19.0.0/16", 3)[2], "198.19.128.0/18");
        assert_eq!(split("2001:2:0:8000::/49", 4)[3], "2001:2:0:e000::/51");
        let mut many = split("2001:2::/49", 1000);
        many.sort();
        many.dedup();
        assert_eq!(many.len(), 1000);
    }
}
