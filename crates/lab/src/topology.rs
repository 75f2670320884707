//! Ready-made topologies: a probe and a reflector, side by side or with a router
//! between, and thousands of destinations behind the reflector.
//!
//! | | probe | router | reflector |
//! |---|---|---|---|
//! | pair | 10.1.0.1, fd00:1::1 | | 10.1.0.2, fd00:1::2 |
//! | three hosts | 10.1.0.1, fd00:1::1 | 10.1.0.254, fd00:1::254; 10.3.0.254, fd00:3::254 | 10.3.0.1, fd00:3::1 |
//!
//! In both the reflector owns 10.2.0.0/16 and fd00:2::/64 as a whole.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sonde_results::units::format_mac;

use crate::{Host, Impairment, Lab, LabError, LinkOptions, Relay};

/// The address family of the destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressFamily {
    V4,
    V6,
}

/// A probe and a reflector that reach each other, IPv4 and IPv6. Each has one
/// interface, [`Topology::INTERFACE`]. Dropping it removes everything.
#[derive(Debug)]
pub struct Topology {
    /// Where a sender runs.
    pub probe: Host,
    /// The Linux router between, if there is one.
    pub router: Option<Host>,
    /// Where a reflector runs.
    pub reflector: Host,
    /// For more hosts and links beside these.
    pub lab: Lab,
}

/// The router's interface towards the probe.
pub const ROUTER_PROBE_SIDE: &str = "eth0";
/// The router's interface towards the reflector.
pub const ROUTER_REFLECTOR_SIDE: &str = "eth1";

impl Topology {
    /// The interface of the probe and of the reflector.
    pub const INTERFACE: &'static str = "eth0";

    /// Probe and reflector on one link.
    pub fn pair(prefix: &str, options: &LinkOptions) -> Result<Topology, LabError> {
        let mut lab = Lab::new(prefix)?;
        let (probe, reflector) = (lab.host("probe")?, lab.host("reflector")?);
        lab.link(&probe, Self::INTERFACE, &reflector, Self::INTERFACE, options)?;
        for (host, v4, v6) in
            [(&probe, "10.1.0.1/24", "fd00:1::1/64"), (&reflector, "10.1.0.2/24", "fd00:1::2/64")]
        {
            host.add_address(Self::INTERFACE, v4)?;
            host.add_address(Self::INTERFACE, v6)?;
        }
        give_targets(&reflector)?;
        probe.add_route(TARGETS_V4, &["via", "10.1.0.2"])?;
        probe.add_route(TARGETS_V6, &["via", "fd00:1::2"])?;
        Ok(Topology { probe, router: None, reflector, lab })
    }

    /// Probe, Linux router and reflector, on two links.
    pub fn three_hosts(prefix: &str, options: &LinkOptions) -> Result<Topology, LabError> {
        let mut lab = Lab::new(prefix)?;
        let probe = lab.host("probe")?;
        let router = lab.host("router")?;
        let reflector = lab.host("reflector")?;
        lab.link(&probe, Self::INTERFACE, &router, ROUTER_PROBE_SIDE, options)?;
        lab.link(&router, ROUTER_REFLECTOR_SIDE, &reflector, Self::INTERFACE, options)?;
        for (host, interface, v4, v6) in [
            (&probe, Self::INTERFACE, "10.1.0.1/24", "fd00:1::1/64"),
            (&router, ROUTER_PROBE_SIDE, "10.1.0.254/24", "fd00:1::254/64"),
            (&router, ROUTER_REFLECTOR_SIDE, "10.3.0.254/24", "fd00:3::254/64"),
            (&reflector, Self::INTERFACE, "10.3.0.1/24", "fd00:3::1/64"),
        ] {
            host.add_address(interface, v4)?;
            host.add_address(interface, v6)?;
        }
        give_targets(&reflector)?;
        router.sysctl(&["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"])?;
        router.add_route(TARGETS_V4, &["via", "10.3.0.1"])?;
        router.add_route(TARGETS_V6, &["via", "fd00:3::1"])?;
        for (host, v4, v6) in
            [(&probe, "10.1.0.254", "fd00:1::254"), (&reflector, "10.3.0.254", "fd00:3::254")]
        {
            host.add_route("0.0.0.0/0", &["via", v4])?;
            host.add_route("::/0", &["via", v6])?;
        }
        Ok(Topology { probe, router: Some(router), reflector, lab })
    }

    /// The first `count` destinations that the reflector owns; at most 65,534.
    pub fn targets(&self, family: AddressFamily, count: u16) -> Vec<IpAddr> {
        (1..=count.min(65_534)).map(|n| target(family, n)).collect()
    }
}

/// A client and a server on one subnet, 10.1.0.1 and 10.1.0.2 (fd00:1::1 and fd00:1::2),
/// and between them a host without addresses for a [`Relay`]: nothing passes before it
/// runs. No interface joins or cuts segments. Dropping it removes everything.
#[derive(Debug)]
pub struct RelayPath {
    /// Its interface is [`Topology::INTERFACE`].
    pub client: Host,
    /// Its interfaces are [`RelayPath::SIDES`].
    pub middle: Host,
    pub server: Host,
    /// For more beside these.
    pub lab: Lab,
}

impl RelayPath {
    /// The middle's interfaces towards the client and towards the server.
    pub const SIDES: [&'static str; 2] = [ROUTER_PROBE_SIDE, ROUTER_REFLECTOR_SIDE];

    pub fn new(prefix: &str) -> Result<RelayPath, LabError> {
        let mut lab = Lab::new(prefix)?;
        let (client, middle) = (lab.host("client")?, lab.host("middle")?);
        let server = lab.host("server")?;
        let (own, options) = (Topology::INTERFACE, LinkOptions::default());
        // No addresses, no packets of its own.
        middle.sysctl(&["net.ipv6.conf.default.disable_ipv6=1"])?;
        let (client_mac, _) = lab.link(&client, own, &middle, Self::SIDES[0], &options)?;
        let (_, server_mac) = lab.link(&middle, Self::SIDES[1], &server, own, &options)?;
        for (host, host_part, peer, peer_mac) in
            [(&client, 1, 2, server_mac), (&server, 2, 1, client_mac)]
        {
            for (prefix, length) in [("10.1.0.", 24), ("fd00:1::", 64)] {
                host.add_address(own, &format!("{prefix}{host_part}/{length}"))?;
                host.set_neighbour(own, &format!("{prefix}{peer}"), &format_mac(peer_mac))?;
            }
            host.offloads_off(own)?;
        }
        for side in Self::SIDES {
            middle.offloads_off(side)?;
        }
        Ok(RelayPath { client, middle, server, lab })
    }

    /// Lets frames pass, `there` being from the client to the server.
    pub fn relay(&self, there: Impairment, back: Impairment, seed: u64) -> Result<Relay, LabError> {
        Relay::start(&self.middle, Self::SIDES, there, back, seed)
    }
}

/// A probe with several uplinks, each through one Linux router to a reflector of its own. What
/// arrives on one uplink is processed where its sender runs, so each uplink adds a processor's
/// worth of packets. Dropping it removes everything.
///
/// Of uplink *n*: the probe is 10.1.*n*.1 on `eth`*n*, the router 10.1.*n*.254 and
/// 10.3.*n*.254, the reflector 10.3.*n*.1 on [`Topology::INTERFACE`], and it owns
/// 10.2.*64n*.0/18.
#[derive(Debug)]
pub struct Uplinks {
    /// Where a sender runs.
    pub probe: Host,
    /// The Linux router between.
    pub router: Host,
    /// One behind each uplink.
    pub reflectors: Vec<Host>,
    /// For more hosts and links beside these.
    pub lab: Lab,
}

impl Uplinks {
    /// Most uplinks that there are addresses for.
    pub const MOST: u8 = 4;

    /// Builds it, with 1..=[`Uplinks::MOST`] uplinks.
    ///
    /// # Errors
    /// Not root; a tool is missing; the kernel refuses.
    pub fn new(prefix: &str, uplinks: u8, options: &LinkOptions) -> Result<Uplinks, LabError> {
        let mut lab = Lab::new(prefix)?;
        let (probe, router) = (lab.host("probe")?, lab.host("router")?);
        let mut reflectors = Vec::new();
        // A router has no sockets of its own to look for.
        router.sysctl(&["net.ipv4.ip_forward=1", "net.ipv4.ip_early_demux=0"])?;
        for n in 0..uplinks.clamp(1, Self::MOST) {
            let reflector = lab.host(&format!("reflector{n}"))?;
            let (uplink, near, far) = (format!("eth{n}"), format!("near{n}"), format!("far{n}"));
            lab.link(&probe, &uplink, &router, &near, options)?;
            lab.link(&router, &far, &reflector, Topology::INTERFACE, options)?;
            probe.add_address(&uplink, &format!("10.1.{n}.1/24"))?;
            router.add_address(&near, &format!("10.1.{n}.254/24"))?;
            router.add_address(&far, &format!("10.3.{n}.254/24"))?;
            reflector.add_address(Topology::INTERFACE, &format!("10.3.{n}.1/24"))?;
            let targets = format!("10.2.{}.0/18", 64 * n);
            reflector.own_prefix(&targets)?;
            reflector.add_route("0.0.0.0/0", &["via", &format!("10.3.{n}.254")])?;
            router.add_route(&targets, &["via", &format!("10.3.{n}.1")])?;
            probe.add_route(&targets, &["via", &format!("10.1.{n}.254")])?;
            reflectors.push(reflector);
        }
        Ok(Uplinks { probe, router, reflectors, lab })
    }

    /// The range of the first `count` destinations behind uplink `n`, as `sonde probe`
    /// takes it; at most 16,382.
    pub fn target_range(n: u8, count: u16) -> String {
        let first = u16::from(n) << 14;
        let [high, low] = (first + count.clamp(1, 16_382)).to_be_bytes();
        let [begin, _] = first.to_be_bytes();
        format!("10.2.{begin}.1-10.2.{high}.{low}")
    }
}

fn give_targets(reflector: &Host) -> Result<(), LabError> {
    reflector.own_prefix(TARGETS_V4)?;
    reflector.own_prefix(TARGETS_V6)
}

fn target(family: AddressFamily, n: u16) -> IpAddr {
    match family {
        AddressFamily::V4 => {
            let [high, low] = n.to_be_bytes();
            Ipv4Addr::new(10, 2, high, low).into()
        }
        AddressFamily::V6 => Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, n).into(),
    }
}

/// What the reflector owns.
const TARGETS_V4: &str = "10.2.0.0/16";
const TARGETS_V6: &str = "fd00:2::/64";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_uplink_has_a_range_of_its_own() {
        assert_eq!(Uplinks::target_range(0, 2000), "10.2.0.1-10.2.7.208");
        assert_eq!(Uplinks::target_range(1, 2000), "10.2.64.1-10.2.71.208");
        assert_eq!(Uplinks::target_range(3, u16::MAX), "10.2.192.1-10.2.255.254");
    }

    #[test]
    fn targets_are_distinct_and_inside_the_prefix() {
        assert_eq!(target(AddressFamily::V4, 1).to_string(), "10.2.0.1");
        assert_eq!(target(AddressFamily::V4, 4000).to_string(), "10.2.15.160");
        assert_eq!(target(AddressFamily::V4, 65_534).to_string(), "10.2.255.254");
        assert_eq!(target(AddressFamily::V6, 4000).to_string(), "fd00:2::fa0");
    }
}
