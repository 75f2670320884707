//! What traffic is wanted.

use super::error::{MAX_FLOWS, TrafficError};

use super::law::{ArrivalProcess, Length, Sizes};

/// The wanted traffic. [`Config::default`] is a mix as a campus link carries it.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The same seed and settings give the same bytes.
    pub seed: u64,
    /// Flows open at once, 1..=2^24. A flow that ends makes room for the next one.
    pub flows: u32,
    /// Stop when so many flows have begun and ended.
    pub total_flows: Option<u64>,
    /// Stop after so many packets, fragments counted one by one.
    pub packets: Option<u64>,
    /// Stop after this time, ns.
    pub duration_ns: Option<i64>,
    /// Packets a second on average, all flows together.
    pub rate: u64,
    /// Time of the first packet, ns since 1970 on the caller's scale.
    pub start_ns: i64,
    /// Times are multiples of this, ns: what the output can express.
    pub tick_ns: i64,
    /// How packets follow each other in time.
    pub arrival: ArrivalProcess,
    /// Which flow sends next.
    pub order: PacketOrder,
    /// Packets of a flow, both directions together.
    pub length: Length,
    /// Lengths of packets with data.
    pub sizes: Sizes,
    /// Share of a flow's packets whose length is drawn anew instead of being the flow's own,
    /// 0..=1. 0: all of a flow's data packets are equally long.
    pub variety: f64,
    /// Which protocols, by flows.
    pub protocols: ProtocolWeights,
    /// Share of flows over IPv6, 0..=1.
    pub ipv6: f64,
    /// Shares of flows in each encapsulation; the rest has none.
    pub encapsulation: Shares,
    /// Which IP header of a tunnel the truth counts by.
    pub keys: TruthKeys,
    /// Packets that come late within their flow.
    pub reorder: Reorder,
    /// Share of packets with 64 bytes of payload or more that are cut into fragments, 0..=1.
    pub fragments: f64,
    /// Share of TCP and UDP flows that speak an application protocol, 0..=1: DNS over UDP;
    /// HTTP/1 and TLS, half each, over TCP.
    pub apps: f64,
    /// Where addresses are taken from.
    pub net: Net,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            seed: 1,
            flows: 10_000,
            total_flows: None,
            packets: None,
            duration_ns: None,
            rate: 1_000_000,
            start_ns: 0,
            tick_ns: 1,
            arrival: ArrivalProcess::Poisson,
            order: PacketOrder::Random,
            length: Length::Pareto { alpha: 1.2, min: 5, max: 100_000 },
            sizes: Sizes::imix(),
            variety: 1.0,
            protocols: ProtocolWeights { tcp: 0.7, udp: 0.28, icmp: 0.02 },
            ipv6: 0.2,
            encapsulation: Shares::default(),
            keys: TruthKeys::Outer,
            reorder: Reorder { share: 0.0, distance: 1 },
            fragments: 0.0,
            apps: 0.5,
            net: Net::Benchmark,
        }
    }
}

impl Config {
    /// Longest frame that these settings can ask for, bytes from the Ethernet header on.
    pub fn longest_frame(&self) -> usize {
        // What is drawn counts the frame check sequence. An application's message is as long
        // as it is, behind the longest headers: Ethernet, VXLAN, IPv6, TCP with options.
        (self.sizes.longest() - 4).max(14 + 50 + 40 + 32 + super::app::LONGEST)
    }

    /// Whether such traffic can be made.
    ///
    /// # Errors
    /// What cannot be.
    pub fn check(&self) -> Result<(), TrafficError> {
        let shares = [
            ("variety", self.variety),
            ("ipv6", self.ipv6),
            ("encapsulation", self.encapsulation.all().iter().map(|(_, s)| s).sum()),
            ("reorder", self.reorder.share),
            ("fragments", self.fragments),
            ("apps", self.apps),
        ];
        let single = self.encapsulation.all().map(|(_, share)| ("encapsulation", share));
        for (what, share) in shares.into_iter().chain(single) {
            if !(0.0..=1.0 + 1e-9).contains(&share) {
                return Err(TrafficError::Share { what, share });
            }
        }
        let ProtocolWeights { tcp, udp, icmp } = self.protocols;
        if ![tcp, udp, icmp].iter().all(|s| *s >= 0.0) || !(tcp + udp + icmp).is_normal() {
            return Err(TrafficError::Protocols);
        }
        if !(1..=MAX_FLOWS).contains(&self.flows) {
            return Err(TrafficError::Flows(self.flows));
        }
        if self.rate == 0 || self.tick_ns < 1 {
            return Err(TrafficError::Rate);
        }
        self.arrival.check()?;
        self.length.check()?;
        self.sizes.check()
    }
}

/// Which flow sends the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketOrder {
    /// Any of the open ones, each as likely.
    Random,
    /// Packet i belongs to flow (i * 0x9E3779B1) mod F; the flows are IPv4 UDP in one
    /// direction and do not end. What probes are compared by: every flow has the same
    /// packets, and neighbours in time are strangers in memory.
    RoundRobin,
}

/// Weights of the transport protocols.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProtocolWeights {
    /// TCP: handshake, data, FIN or RST.
    pub tcp: f64,
    pub udp: f64,
    /// ICMP and ICMPv6 echo.
    pub icmp: f64,
}

/// What lies around a flow's IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encapsulation {
    /// Ethernet alone.
    #[default]
    None,
    Vlan,
    /// An 802.1ad tag and an 802.1Q tag.
    Qinq,
    /// Two labels (RFC 3032).
    Mpls,
    /// RFC 2784, over IPv4.
    Gre,
    /// RFC 7348, over IPv4.
    Vxlan,
    /// 3GPP TS 29.281, over IPv4.
    GtpU,
    /// RFC 8926, over IPv4.
    Geneve,
}

impl Encapsulation {
    /// There is an outer IP header.
    pub const fn is_tunnel(self) -> bool {
        use Encapsulation::*;
        matches!(self, Gre | Vxlan | GtpU | Geneve)
    }
}

/// Shares of flows in each encapsulation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// [`Encapsulation::Vlan`].
    pub vlan: f64,
    /// [`Encapsulation::Qinq`].
    pub qinq: f64,
    /// [`Encapsulation::Mpls`].
    pub mpls: f64,
    /// [`Encapsulation::Gre`].
    pub gre: f64,
    /// [`Encapsulation::Vxlan`].
    pub vxlan: f64,
    /// [`Encapsulation::GtpU`].
    pub gtpu: f64,
    /// [`Encapsulation::Geneve`].
    pub geneve: f64,
}

impl Shares {
    /// All, with what they are of.
    pub fn all(&self) -> [(Encapsulation, f64); 7] {
        [
            (Encapsulation::Vlan, self.vlan),
            (Encapsulation::Qinq, self.qinq),
            (Encapsulation::Mpls, self.mpls),
            (Encapsulation::Gre, self.gre),
            (Encapsulation::Vxlan, self.vxlan),
            (Encapsulation::GtpU, self.gtpu),
            (Encapsulation::Geneve, self.geneve),
        ]
    }
}

/// Which IP header of a tunnel the truth counts by: as the meter under test is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TruthKeys {
    #[default]
    Outer,
    Inner,
}

/// Packets that come late within their flow. Handshakes, applications' messages and
/// fragments keep their position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// Share of data packets held back, 0..=1.
    pub share: f64,
    /// How many later packets of the flow overtake it, 1..=255.
    pub distance: u8,
}

/// Where addresses are taken from. Clients and servers are apart, so no flow's key is
/// another's turned round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Net {
    /// 198.18.0.0/15 (RFC 2544) and 2001:2::/48 (RFC 5180): on no real network.
    #[default]
    Benchmark,
    /// 10.0.0.0/8 for IPv4. For files that are compared with others' only.
    Private,
}
