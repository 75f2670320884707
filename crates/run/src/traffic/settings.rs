//! What traffic is made.

use std::path::PathBuf;

use sonde_meter::traffic::{Arrival, Config, Length, Protocols, Reorder, Shares, Sizes};
use sonde_port::Engine;

use crate::choice::choice;
use crate::flow::settings::FlowKeys;

/// What traffic is made. Either [`Settings::out`] or [`Settings::iface`] is given.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// A capture file to write.
    pub out: Option<PathBuf>,
    /// The interface to send on.
    pub iface: Option<String>,
    /// Of an interface: how packets are sent.
    pub engine: Engine,
    /// A CSV file of the truth about every flow.
    pub truth: Option<PathBuf>,
    /// Its columns.
    pub truth_form: TruthForm,
    /// Which IP header of a tunnel the truth is told by.
    pub keys: FlowKeys,
    /// The same seed and settings give the same file.
    pub seed: u64,
    /// Flows open at once.
    pub flows: u32,
    /// Packets of a flow.
    pub length: Length,
    /// New flows a second: gives the length the mean that this takes.
    pub new_flows: Option<u64>,
    /// Stop when so many flows have ended.
    pub total_flows: Option<u64>,
    /// Stop after so many packets; a million where nothing else ends the traffic.
    pub packets: Option<u64>,
    /// Stop after this time, ns.
    pub duration: Option<i64>,
    /// Packet i belongs to flow (i * 0x9E3779B1) mod `flows`: IPv4 UDP, one direction, constant
    /// distances, no flow ends.
    pub round_robin: bool,
    /// Packets a second, all flows together.
    pub rate: u64,
    /// How packets follow each other.
    pub arrival: Arrival,
    /// Octets on the wire of packets with data, with the check sequence.
    pub sizes: Sizes,
    /// Share of a flow's packets whose size is drawn anew and is not the flow's own, 0 to 1.
    pub variety: f64,
    /// Transport protocols by flows.
    pub protocols: Protocols,
    /// Share of flows over IPv6, 0 to 1.
    pub ipv6: f64,
    /// Shares of flows in tunnels and behind tags.
    pub encapsulation: Option<Shares>,
    /// Data packets that come late.
    pub reorder: Option<Reorder>,
    /// Share of packets with data that come in fragments, 0 to 1.
    pub fragments: f64,
    /// Share of TCP and UDP flows that speak DNS, HTTP/1 or TLS, 0 to 1.
    pub apps: f64,
    /// IPv4 addresses of 10.0.0.0/8 instead of 198.18.0.0/15; for files only.
    pub private_addresses: bool,
    /// Of a file: unit of its time stamps.
    pub resolution: Resolution,
}

impl Default for Settings {
    fn default() -> Self {
        let usual = Config::default();
        Settings {
            out: None,
            iface: None,
            engine: Engine::AfPacket,
            truth: None,
            truth_form: TruthForm::Full,
            keys: FlowKeys::Outer,
            seed: usual.seed,
            flows: usual.flows,
            length: usual.length,
            new_flows: None,
            total_flows: None,
            packets: None,
            duration: None,
            round_robin: false,
            rate: usual.rate,
            arrival: usual.arrival,
            sizes: usual.sizes,
            variety: usual.variety,
            protocols: usual.protocols,
            ipv6: usual.ipv6,
            encapsulation: None,
            reorder: None,
            fragments: usual.fragments,
            apps: usual.apps,
            private_addresses: false,
            resolution: Resolution::Ns,
        }
    }
}

choice! {
    /// Columns of the truth.
    pub enum TruthForm {
        /// FlowTest's columns, and behind them what `sonde flow verify` checks besides
        Full = "full",
        /// A line a direction, exactly the columns of FlowTest's ft-analyzer
        Uniflow = "uniflow",
        /// A line a flow, the columns of FlowTest's ft-generator
        Biflow = "biflow",
    }
}

choice! {
    /// Unit of a capture file's times.
    pub enum Resolution {
        /// Microseconds
        Us = "us",
        /// Nanoseconds
        Ns = "ns",
    }
}

impl Resolution {
    /// Nanoseconds of the unit.
    pub fn tick_ns(self) -> i64 {
        match self {
            Resolution::Us => 1_000,
            Resolution::Ns => 1,
        }
    }
}
