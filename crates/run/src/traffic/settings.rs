//! What traffic is made.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_meter::traffic::{
    ArrivalProcess, Config, Length, Net, PacketOrder, ProtocolWeights, Reorder, Shares, Sizes,
    TrafficError, TruthKeys,
};
use sonde_port::Engine;
use sonde_results::choice;

use crate::bounds::{bounded, longer_than_zero};
use crate::change::{Change, restart};
use crate::error::SettingsError;
use crate::files::RunFiles;
use crate::flow::settings::TunnelKeys;
use crate::{duration, text};

/// What traffic is made. Either [`Settings::out`] or [`Settings::iface`] is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// A capture file to write; `-` is standard output.
    pub out: Option<PathBuf>,
    /// The interface to send on.
    pub iface: Option<String>,
    /// Of an interface: how packets are sent.
    #[serde(with = "text")]
    #[schemars(schema_with = "crate::engine::engine_names")]
    pub engine: Engine,
    /// A CSV file of the truth about every flow; `-` is standard output.
    pub truth: Option<PathBuf>,
    /// Columns of the truth file.
    pub truth_form: TruthForm,
    /// Which IP header of a tunnel gives the addresses of the truth.
    pub keys: TunnelKeys,
    /// The same seed and settings give the same file.
    pub seed: u64,
    /// Flows open at once.
    pub flows: u32,
    /// Packets of a flow.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub length: Length,
    /// New flows a second: gives the length the mean that this takes.
    pub new_flows: Option<u64>,
    /// Stop when so many flows have ended.
    pub total_flows: Option<u64>,
    /// Stop after so many packets; a million where nothing else ends the traffic.
    pub packets: Option<u64>,
    /// Stop after this time of the traffic, ns, more than 0. `None`: what else ends it.
    #[serde(with = "duration::option")]
    #[schemars(with = "Option<String>", description = "Stop after this time, ns.")]
    pub duration: Option<i64>,
    /// Packet i belongs to flow (i * 0x9E3779B1) mod `flows`: IPv4 UDP, one direction, constant
    /// distances, no flow ends.
    pub round_robin: bool,
    /// Packets a second, all flows together.
    pub rate: u64,
    /// How packets follow each other.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub arrival: ArrivalProcess,
    /// Octets on the wire of packets with data, with the check sequence.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub sizes: Sizes,
    /// Share of a flow's packets whose size is drawn anew and is not the flow's own, 0 to 1.
    pub variety: f64,
    /// Transport protocols by flows.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub protocols: ProtocolWeights,
    /// Share of flows over IPv6, 0 to 1.
    pub ipv6: f64,
    /// Shares of flows in tunnels and behind tags.
    #[serde(with = "text::option")]
    #[schemars(with = "Option<String>")]
    pub encapsulation: Option<Shares>,
    /// Data packets that come late.
    #[serde(with = "text::option")]
    #[schemars(with = "Option<String>")]
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
            keys: TunnelKeys::Outer,
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

impl Settings {
    /// What a reload of this takes: whoever makes or compares begins anew.
    pub fn change(&self, new: &Settings) -> Change {
        restart(self, new)
    }

    /// Whether such traffic can be made; the message begins with the key that is wrong.
    ///
    /// # Errors
    /// A value out of its range, two that do not go together, no output or two.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.out.is_some() == self.iface.is_some() {
            return Err(SettingsError::new("out", "name a file or an interface, one of both"));
        }
        longer_than_zero("duration", self.duration)?;
        if let Some(new_flows) = self.new_flows {
            bounded("new_flows", new_flows, 1..)?;
        }
        if self.private_addresses && self.iface.is_some() {
            return Err(SettingsError::new(
                "private_addresses",
                "they are for files; traffic on a link keeps to \
                        198.18.0.0/15 and 2001:2::/48, which belong to nobody",
            ));
        }
        let (file, port) = (self.out.is_some(), self.iface.is_some());
        for (key, is_set, other) in [
            ("engine", file && self.engine != Engine::AfPacket, "`iface`, not for `out`"),
            ("resolution", port && self.resolution != Resolution::Ns, "`out`, not for `iface`"),
            (
                "truth_form",
                self.truth.is_none() && self.truth_form != TruthForm::Full,
                "`truth`, and there is none",
            ),
            (
                "keys",
                self.truth.is_none() && self.keys != TunnelKeys::Outer,
                "`truth`, and there is none",
            ),
        ] {
            if is_set {
                return Err(SettingsError::new(key, format!("it is for {other}; leave it out")));
            }
        }
        let beside = [
            ("new_flows", self.new_flows.is_some()),
            ("total_flows", self.total_flows.is_some()),
            ("encapsulation", self.encapsulation.is_some()),
            ("reorder", self.reorder.is_some()),
        ];
        if let (true, Some((key, _))) = (self.round_robin, beside.iter().find(|(_, said)| *said)) {
            return Err(SettingsError::new(key, "`round_robin` is without; leave one out"));
        }
        self.length().map_err(|why| SettingsError::new("length", why))?;
        self.config().check().map_err(wrong_config)?;
        self.files().check()
    }

    /// The files that are written.
    pub fn files(&self) -> RunFiles<'_> {
        RunFiles::default().writes("out", &self.out).writes("truth", &self.truth)
    }

    /// The mean count of packets of a flow, if `new_flows` sets it.
    fn length(&self) -> Result<Length, TrafficError> {
        match self.new_flows {
            _ if self.round_robin => Ok(Length::Constant(1)),
            Some(new) => self.length.with_mean(self.rate as f64 / new as f64),
            None => Ok(self.length),
        }
    }

    /// The same for the generator.
    pub(super) fn config(&self) -> Config {
        let defaults = Config::default();
        let endless =
            self.packets.is_none() && self.duration.is_none() && self.total_flows.is_none();
        Config {
            seed: self.seed,
            flows: self.flows,
            total_flows: self.total_flows,
            packets: if endless { Some(DEFAULT_PACKETS) } else { self.packets },
            duration_ns: self.duration,
            rate: self.rate,
            // Of a port: since the sending began.
            start_ns: if self.out.is_some() { FILE_START_NS } else { 0 },
            tick_ns: if self.out.is_some() { self.resolution.tick_ns() } else { 1 },
            arrival: if self.round_robin { ArrivalProcess::Constant } else { self.arrival },
            order: if self.round_robin { PacketOrder::RoundRobin } else { PacketOrder::Random },
            length: self.length().unwrap_or(self.length),
            sizes: self.sizes.clone(),
            variety: self.variety,
            protocols: self.protocols,
            ipv6: self.ipv6,
            encapsulation: self.encapsulation.unwrap_or(defaults.encapsulation),
            keys: match self.keys {
                TunnelKeys::Outer => TruthKeys::Outer,
                TunnelKeys::Inner => TruthKeys::Inner,
            },
            reorder: self.reorder.unwrap_or(defaults.reorder),
            fragments: self.fragments,
            apps: self.apps,
            net: if self.private_addresses { Net::Private } else { Net::Benchmark },
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

fn wrong_config(error: TrafficError) -> SettingsError {
    let key = match error {
        TrafficError::Share { what, .. } => Some(what),
        TrafficError::Protocols => Some("protocols"),
        TrafficError::Flows(_) => Some("flows"),
        TrafficError::Rate => Some("rate"),
        TrafficError::Law(_) => None,
    };
    match (key, error) {
        // Its text begins with the key.
        (Some(key), TrafficError::Share { .. }) => SettingsError::of(key, error.to_string()),
        (Some(key), _) => SettingsError::new(key, error),
        (None, _) => error.to_string().into(),
    }
}

/// Without any end given.
const DEFAULT_PACKETS: u64 = 1_000_000;
/// Files begin here (2023-11-14 22:13:20 UTC): the same seed gives the same bytes.
const FILE_START_NS: i64 = 1_700_000_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_the_same_after_they_were_written() {
        let settings = Settings {
            out: Some("t.pcap".into()),
            duration: Some(10_000_000_000),
            arrival: ArrivalProcess::Bursts { packets: 100.0, peak: 10.0 },
            sizes: Sizes::mix(&[(64, 1.0), (1518, 2.5)]),
            encapsulation: Some(Shares { vlan: 0.2, ..Shares::default() }),
            reorder: Some(Reorder { share: 0.01, distance: 3 }),
            ..Settings::default()
        };
        let text = serde_json::to_string(&settings).unwrap();
        assert!(text.contains(r#""arrival":"bursts:100:10""#), "{text}");
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings);
        assert_eq!(settings.check(), Ok(()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let file = || Settings { out: Some("t.pcap".into()), ..Settings::default() };
        let wrong = |change: fn(&mut Settings)| {
            let mut settings = file();
            change(&mut settings);
            settings.check().unwrap_err().message
        };
        assert!(wrong(|s| s.iface = Some("eth0".into())).starts_with("out: "));
        assert!(wrong(|s| s.duration = Some(0)).starts_with("duration: "));
        assert!(wrong(|s| s.new_flows = Some(0)).starts_with("new_flows: "));
        assert!(wrong(|s| s.engine = Engine::AfXdp).starts_with("engine: it is for `iface`"));
        assert!(wrong(|s| s.keys = TunnelKeys::Inner).starts_with("keys: it is for `truth`"));
        assert!(wrong(|s| s.truth_form = TruthForm::Biflow).starts_with("truth_form: "));
        let us = |s: &mut Settings| {
            (s.iface, s.out, s.resolution) = (Some("eth0".into()), None, Resolution::Us);
        };
        assert!(wrong(us).starts_with("resolution: it is for `out`"));
        assert!(wrong(|s| s.truth = Some("t.pcap".into())).contains("`out`, too"));
        assert!(wrong(|s| s.ipv6 = 2.0).starts_with("ipv6: "));
        assert!(wrong(|s| s.rate = 0).contains("rate"));
        let on_a_link = |s: &mut Settings| {
            (s.iface, s.out, s.private_addresses) = (Some("eth0".into()), None, true);
        };
        assert!(wrong(on_a_link).starts_with("private_addresses: "));
        let both = |s: &mut Settings| (s.round_robin, s.total_flows) = (true, Some(1));
        assert!(wrong(both).starts_with("total_flows: "));
    }
}
