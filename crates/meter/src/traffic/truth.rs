//! The truth about a flow.

use std::net::{IpAddr, Ipv4Addr};

use super::address;
use super::app::TrafficApp;
use super::config::{Config, TruthKeys};
use super::flow::{Flow, FlowSideTruth, Transport};
use super::frame::{self, OUTER_TTL};

/// A flow as it was sent: what an exact meter without time-outs would report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowTruth {
    /// Who sent the first packet.
    pub source: IpAddr,
    /// Who received the first packet.
    pub destination: IpAddr,
    /// Source port; 0 without ports.
    pub source_port: u16,
    /// Destination port; 0 without ports.
    pub destination_port: u16,
    pub protocol: u8,
    /// From source to destination.
    pub forward: FlowSideTruth,
    /// From destination to source; no packets: nothing went that way.
    pub reverse: FlowSideTruth,
    /// Type of service or traffic class, in both directions.
    pub tos: u8,
    /// Time to live or hop limit, forward and reverse.
    pub ttl: [u8; 2],
    /// VLAN identifier of the outermost tag; 0: untagged.
    pub vlan: u16,
    /// ICMP type * 256 + code, forward and reverse; `None`: not ICMP.
    pub icmp: Option<[u16; 2]>,
    /// What it speaks, if that was said.
    pub app: TrafficApp,
    /// The flow's index: [`super::write_name`] makes the application's name of it.
    pub index: u64,
}

/// Reports `flow` as the keys ask for; one that sent nothing is not reported.
pub(super) fn report(config: &Config, flow: &Flow, truth: &mut impl FnMut(&FlowTruth)) {
    let [client, server] = flow.sides;
    if client.packets == 0 {
        return;
    }
    let tunnel = flow.encapsulation.is_tunnel() && config.keys == TruthKeys::Outer;
    if !tunnel {
        return truth(&innermost(config, flow));
    }
    let end = |side| Ipv4Addr::from(address::v4(config.net, side, flow.outer[side])).into();
    let ports = frame::tunnel_ports(flow, 0);
    let [source_port, destination_port] = ports.unwrap_or_default();
    let plain = |side: FlowSideTruth| FlowSideTruth { tcp_flags: 0, ..side };
    let mut outer = FlowTruth {
        source: end(0),
        destination: end(1),
        source_port,
        destination_port,
        protocol: if ports.is_some() { 17 } else { 47 },
        forward: plain(client),
        reverse: plain(server),
        tos: 0,
        ttl: [OUTER_TTL; 2],
        vlan: 0,
        icmp: None,
        app: TrafficApp::None,
        index: flow.index,
    };
    let back = frame::tunnel_ports(flow, 1);
    if back == ports.map(|[a, b]| [b, a]) || server.packets == 0 {
        return truth(&outer);
    }
    // Both ends send to the well-known port: two flows, each in one direction.
    outer.reverse = FlowSideTruth::default();
    truth(&outer);
    let [source_port, destination_port] = back.unwrap_or_default();
    let (source, destination, forward) = (end(1), end(0), plain(server));
    truth(&FlowTruth { source, destination, source_port, destination_port, forward, ..outer });
}

fn innermost(config: &Config, flow: &Flow) -> FlowTruth {
    let is_icmp = flow.transport == Transport::Icmp;
    let icmp = |side| u16::from(frame::icmp_type(flow.is_v6, side)) << 8;
    let host = |side| address::ip(config.net, flow.is_v6, side, flow.tuple.hosts[side]);
    FlowTruth {
        source: host(0),
        destination: host(1),
        source_port: if is_icmp { 0 } else { flow.tuple.client_port },
        destination_port: if is_icmp { 0 } else { flow.server_port },
        protocol: frame::protocol(flow),
        forward: flow.sides[0],
        reverse: flow.sides[1],
        tos: flow.tos,
        ttl: flow.ttl,
        vlan: frame::vlan(flow),
        icmp: is_icmp.then(|| [icmp(0), icmp(1)]),
        app: if flow.spoke() { flow.app } else { TrafficApp::None },
        index: flow.index,
    }
}
