//! What frames are made of at a bed: addresses, ports and sizes, from the plan and the bed.

use std::net::IpAddr;

use anyhow::{Context as _, Result, bail, ensure};
use sonde_lab::AddressFamily;
use sonde_lab::device::{BedInfo, DeviceSpec};
use sonde_meter::load::{AddressRule, MacRule, PortRule, Traffic, ValueOrder};
use sonde_results::trial::Pattern;
use sonde_wire::ethernet::{ETHERTYPE_QINQ, ETHERTYPE_VLAN, Mac, Tag};
use sonde_wire::prefix::Prefix;

use crate::cases::PlannedCase;
use crate::networks::{NETWORKS, TestNetwork};
use crate::plan::{BenchPlan, MacsName, PortsName};
use crate::tester::{Branch, CopySpec, DirectionSpec, Expects, Mixed};

/// A port of the tester, and what lies behind it as far as the device knows.
#[derive(Clone, Debug)]
pub struct RigPort {
    /// "a" or "b"; "c" monitors.
    pub name: String,
    pub interface: String,
    /// The namespace where it is.
    pub netns: Option<String>,
    /// Its own MAC address.
    pub mac: Mac,
    /// Where its frames are sent.
    pub next_hop: Mac,
    /// The networks that are reached through it.
    pub nets: Vec<TestNetwork>,
    /// Nominal speed, bit/s, where it means something.
    pub speed_bps: Option<u64>,
    /// The device gives what leaves here other addresses: nothing can come back by itself.
    pub translated: bool,
}

impl RigPort {
    /// A port behind which nobody is.
    pub fn monitor(name: &str, interface: &str, netns: Option<String>, mac: Mac) -> RigPort {
        RigPort {
            name: name.into(),
            interface: interface.into(),
            netns,
            mac,
            next_hop: mac,
            nets: Vec::new(),
            speed_bps: None,
            translated: false,
        }
    }

    pub fn networks(&self) -> impl Iterator<Item = &TestNetwork> {
        self.nets.iter()
    }

    fn net(&self, ip: u8) -> Result<&TestNetwork> {
        let fits = |net: &&TestNetwork| net.first.is_ipv4() == (ip == 4);
        self.nets
            .iter()
            .find(fits)
            .with_context(|| format!("port {} has no IPv{ip} address", self.name))
    }
}

/// The ports of a bed that the lab made.
pub fn lab_ports(bed: &BedInfo) -> Result<[RigPort; 2]> {
    let port = |n: usize| -> Result<RigPort> {
        let port = bed.ports.get(n).context("the bed has two ports")?;
        let mut nets = Vec::new();
        for address in &port.addresses {
            let prefix: Prefix = address.network.parse().map_err(anyhow::Error::msg)?;
            // The link itself has the first network of it; test frames come from behind.
            let (first, step) = match (address.family, prefix.address) {
                (AddressFamily::V4, IpAddr::V4(a)) => {
                    (IpAddr::V4((a.to_bits() + 256 + 10).into()), 256)
                }
                (AddressFamily::V6, IpAddr::V6(a)) => {
                    (IpAddr::V6((a.to_bits() + (1 << 64) + 10).into()), 1 << 64)
                }
                _ => bail!("port {}: {} is of another family", port.name, address.network),
            };
            nets.push(TestNetwork { prefix, first, step, count: NETWORKS });
        }
        Ok(RigPort {
            name: port.name.clone(),
            interface: port.interface.clone(),
            netns: Some(port.netns.clone()),
            mac: port.mac,
            next_hop: port.next_hop_mac,
            nets,
            // The nominal 10 Gbit/s of virtual Ethernet is nobody's limit.
            speed_bps: None,
            translated: n == 0 && bed.spec.device == DeviceSpec::Nat,
        })
    };
    Ok([port(0)?, port(1)?])
}

/// The bed's monitoring port, where it has one.
pub fn lab_monitor(bed: &BedInfo) -> Option<RigPort> {
    let port = bed.ports.get(2)?;
    Some(RigPort::monitor(&port.name, &port.interface, Some(port.netns.clone()), port.mac))
}

/// The directions of a case's trials of this pattern, and where copies of the first one's frames
/// are looked for. The monitoring port, if any, is the third of the tester.
pub fn ways(
    ports: &[RigPort; 2],
    monitor: Option<&RigPort>,
    planned: &PlannedCase,
    plan: &BenchPlan,
    pattern: Pattern,
) -> Result<(Vec<DirectionSpec>, CopySpec)> {
    let stations = |seed| MacRule::Random { seed };
    let mut forth = way(ports, 0, planned, plan)?;
    let mut copies = CopySpec::default();
    let mut expects = Expects::All;
    match pattern {
        Pattern::Plan => {
            let mut ways = vec![forth];
            if planned.bidirectional {
                ensure!(
                    !ports[0].translated,
                    "a device that translates addresses is measured from a to b only: nothing \
                     begins at b"
                );
                ways.push(way(ports, 1, planned, plan)?);
            }
            return Ok((ways, copies));
        }
        Pattern::Learning => {
            let mut back = way(ports, 1, planned, plan)?;
            back.traffic.source_mac = stations(plan.seed);
            return Ok((vec![back], copies));
        }
        Pattern::Stations => {
            seen(monitor)?;
            expects = Expects::None;
            forth.traffic.destination_mac = stations(plan.seed);
        }
        Pattern::Unknown => {
            seen(monitor)?;
            forth.traffic.destination_mac = stations(!plan.seed);
        }
        Pattern::Multicast { share } => {
            let unicast = forth.traffic.clone();
            forth.traffic.destination_mac = MacRule::Group;
            // The organisation's own groups (RFC 2365, section 6.2; RFC 7346, section 2).
            let first = match planned.ip {
                4 => IpAddr::from([239, 192, 0, 1]),
                _ => IpAddr::from([0xff18, 0, 0, 0, 0, 0, 0, 1]),
            };
            let (order, count) = (ValueOrder::Increment, 1 << 16);
            forth.traffic.destination = AddressRule { first, count, step: 1, order };
            if share < 1.0 {
                let traffic = std::mem::replace(&mut forth.traffic, unicast);
                copies.mixed = Some(Mixed { traffic, share });
                expects = Expects::Mixed;
            }
        }
    }
    // What is not for the port's own address is expected all the same.
    forth.for_mac = None;
    copies.branches.extend(monitor.map(|_| Branch { to: ports.len(), for_mac: None, expects }));
    Ok((vec![forth], copies))
}

/// What a device floods is seen at a port of which it does not know.
fn seen(monitor: Option<&RigPort>) -> Result<()> {
    ensure!(
        monitor.is_some(),
        "this takes a third port, c, that monitors what is flooded (RFC 2889, section 5.7.3): the \
         lab's bridges and switches have it; for an external device name ports.c"
    );
    Ok(())
}

fn way(
    ports: &[RigPort; 2],
    from: usize,
    planned: &PlannedCase,
    plan: &BenchPlan,
) -> Result<DirectionSpec> {
    let (here, there) = (&ports[from], &ports[1 - from]);
    let w = &plan.workload;
    let flows = planned.case.flows;
    let (source_port, destination_port) = match w.ports {
        PortsName::Rfc4814 => (PortRule::RFC4814_SOURCE, PortRule::RFC4814_DESTINATION),
        PortsName::Increment => {
            let ascending =
                |first| PortRule { first, last: u16::MAX, order: ValueOrder::Increment };
            (ascending(10_000), PortRule::fixed(7))
        }
    };
    let tags = w.vlan.iter().enumerate().map(|(i, &vid)| Tag {
        tpid: if i + 1 < w.vlan.len() { ETHERTYPE_QINQ } else { ETHERTYPE_VLAN },
        tci: vid,
    });
    let seed = plan.seed.wrapping_mul(2).wrapping_add(from as u64);
    let origin = here.net(planned.ip)?;
    ensure!(
        w.sources <= origin.count,
        "port {} has {} addresses that frames may come from, not {}: lower workload.sources",
        here.name,
        origin.count,
        w.sources
    );
    let traffic = Traffic {
        sizes: planned.frames.sizes.iter().map(|&s| u32::from(s)).collect(),
        tags: tags.collect(),
        labels: w.mpls.clone(),
        source_mac: match w.macs {
            MacsName::Port => MacRule::Fixed(here.mac),
            MacsName::Random => MacRule::Random { seed },
        },
        destination_mac: MacRule::Fixed(here.next_hop),
        source: origin.rule(w.sources),
        destination: there.net(planned.ip)?.rule(flows),
        source_port,
        destination_port,
        flows,
        tos: w.dscp.iter().map(|class| class << 2).collect(),
        ttl: 64,
        // The directions are not to use the same ports in the same order.
        seed,
    };
    Ok(DirectionSpec { from, to: 1 - from, traffic, length_change: 0, for_mac: Some(there.mac) })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use sonde_meter::load::headers;

    use super::*;
    use crate::cases::ExpandedPlan;
    use crate::expand::expand;
    use crate::plan::TomlText;

    fn port(name: &str, mac: u8, network: &str, count: u32) -> RigPort {
        let prefix: Prefix = network.parse().unwrap();
        let net = TestNetwork { prefix, first: prefix.address, step: 256, count };
        let mac = [2, 0, 0, 0, 0, mac];
        RigPort { nets: vec![net], next_hop: [2; 6], ..RigPort::monitor(name, "eth0", None, mac) }
    }

    fn expanded(workload: &str) -> ExpandedPlan {
        let text = format!(
            "title = 'x'\n[[device]]\nname = 'r'\nkind = 'router'\n[[procedure]]\n\
             kind = 'throughput'\n[run]\nloop = false\n[workload]\n{workload}"
        );
        expand(&TomlText { file: "p.toml".into(), text }).unwrap()
    }

    /// Where frames of `count` addresses may come from the first.
    fn ports(count: u32) -> [RigPort; 2] {
        [port("a", 1, "198.18.0.0/16", count), port("b", 2, "198.19.0.0/16", 254)]
    }

    #[test]
    fn frames_are_to_whom_the_pattern_says() {
        let expanded = expanded("flows = [4]\n");
        let (planned, plan) = (&expanded.cases[0], &expanded.plan);
        let c = RigPort::monitor("c", "eth2", None, [2, 0, 0, 0, 0, 3]);
        let of = |monitor, pattern| ways(&ports(254), monitor, planned, plan, pattern);
        let one = |pattern| {
            let (mut ways, copies) = of(Some(&c), pattern).unwrap();
            assert_eq!(ways.len(), 1);
            (ways.remove(0), copies)
        };
        // The device learns stations behind b, to which a then sends.
        let (learning, copies) = one(Pattern::Learning);
        assert_eq!((learning.from, learning.to), (1, 0));
        assert!(copies.branches.is_empty() && copies.mixed.is_none());
        let (stations, copies) = one(Pattern::Stations);
        assert_eq!((stations.from, stations.to, stations.for_mac), (0, 1, None));
        assert_eq!(stations.traffic.destination_mac, learning.traffic.source_mac);
        assert_eq!((copies.branches[0].to, copies.branches[0].expects), (2, Expects::None));
        // What it has not learned it floods to all ports.
        let (unknown, copies) = one(Pattern::Unknown);
        assert_ne!(unknown.traffic.destination_mac, stations.traffic.destination_mac);
        assert_eq!(copies.branches[0].expects, Expects::All);
        for pattern in [Pattern::Stations, Pattern::Unknown] {
            let error = of(None, pattern).unwrap_err().to_string();
            assert!(error.contains("ports.c"), "{error}");
        }
    }

    #[test]
    fn groups_share_a_stream_with_stations_or_have_it_alone() {
        let expanded = expanded("flows = [4]\n");
        let (planned, plan) = (&expanded.cases[0], &expanded.plan);
        let c = RigPort::monitor("c", "eth2", None, [2, 0, 0, 0, 0, 3]);
        let of = |share| {
            let pattern = Pattern::Multicast { share };
            let (mut ways, copies) = ways(&ports(254), Some(&c), planned, plan, pattern).unwrap();
            (ways.remove(0).traffic, copies)
        };
        let group: IpAddr = "239.192.0.1".parse().unwrap();
        let (alone, copies) = of(1.0);
        assert_eq!((alone.destination.first, alone.destination_mac), (group, MacRule::Group));
        assert!(copies.mixed.is_none() && copies.branches[0].expects == Expects::All);
        let (first, copies) = of(0.25);
        let second = copies.mixed.unwrap();
        assert_eq!((second.traffic.destination.first, second.share), (group, 0.25));
        assert_eq!(first.destination_mac, MacRule::Fixed([2; 6]));
        assert_eq!(copies.branches[0].expects, Expects::Mixed);
    }

    #[test]
    fn a_device_that_translates_addresses_has_no_way_back() {
        let expanded = expanded("flows = [4]\n");
        let planned = PlannedCase { bidirectional: true, ..expanded.cases[0].clone() };
        let mut ports = ports(254);
        let both =
            |ports: &[RigPort; 2]| ways(ports, None, &planned, &expanded.plan, Pattern::Plan);
        let (there_and_back, _) = both(&ports).unwrap();
        assert_eq!(
            there_and_back.iter().map(|w| (w.from, w.to)).collect::<Vec<_>>(),
            [(0, 1), (1, 0)]
        );
        ports[0].translated = true;
        let error = both(&ports).unwrap_err().to_string();
        assert!(error.contains("from a to b only"), "{error}");
    }

    #[test]
    fn fields_vary_as_the_workload_says() {
        let expanded = expanded("flows = [12]\nsources = 3\ndscp = [0, 46]\nmacs = 'random'\n");
        let (planned, plan) = (&expanded.cases[0], &expanded.plan);
        let (ways, _) = ways(&ports(254), None, planned, plan, Pattern::Plan).unwrap();
        let all: Vec<[u8; 112]> =
            headers(&ways[0].traffic).unwrap().iter().map(|h| h.octets).collect();
        let distinct = |from: usize, to: usize| {
            all.iter().map(|octets| octets[from..to].to_vec()).collect::<HashSet<_>>().len()
        };
        // Source MAC, class, source and destination address.
        assert_eq!((distinct(6, 12), distinct(15, 16)), (12, 2));
        assert_eq!((distinct(26, 30), distinct(30, 34)), (3, 12));
        assert_eq!([all[0][15], all[1][15]], [0, 46 << 2]);
        let error = super::ways(&ports(1), None, planned, plan, Pattern::Plan).unwrap_err();
        assert!(error.to_string().contains("lower workload.sources"), "{error}");
    }
}
