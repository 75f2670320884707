//! Other people's traffic: passive round trips by group, flows by interface and application, and
//! what interfaces counted.
//!
//! Addresses and ports of flows are no labels. Of groups and applications there are the largest
//! ones; each counts since the station's start, so that a series which comes later or goes for a
//! while is right all the same.

use sonde_results::Hist;

use super::{MetricLabel, MetricsPage, with};

/// What was seen of other people's traffic since the start.
#[derive(Clone, Debug, Default)]
pub struct TrafficMetrics {
    /// The groups of round trips with the most samples.
    pub groups: Vec<PassiveGroupMetrics>,
    /// Samples of each unit that watches round trips, of all its groups.
    pub samples: Vec<PassiveSampleMetrics>,
    /// Flows of each unit by interface: all of them.
    pub flows: Vec<FlowMetrics>,
    /// The largest applications of each unit.
    pub applications: Vec<FlowMetrics>,
    /// What interfaces counted.
    pub interfaces: Vec<InterfaceMetrics>,
}

/// A group of hosts to which round trips are measured.
#[derive(Clone, Debug, Default)]
pub struct PassiveGroupMetrics {
    /// What measures.
    pub unit: String,
    /// What its hosts have in common: "192.0.2.0/24".
    pub group: String,
    /// Round trips of the path and the host alone, ns.
    pub clean: Hist,
}

/// Samples of a unit that watches round trips.
#[derive(Clone, Debug, Default)]
pub struct PassiveSampleMetrics {
    /// What measures.
    pub unit: String,
    /// Of the path and the host alone.
    pub clean: u64,
    /// Taken in loss recovery.
    pub recovery: u64,
    /// With an acknowledgement that was held back.
    pub delayed_ack: u64,
}

/// Flows that have ended.
#[derive(Clone, Debug, Default)]
pub struct FlowMetrics {
    /// What meters.
    pub unit: String,
    /// The interface, or the application: "tls", "udp/53".
    pub name: String,
    /// Records.
    pub records: u64,
    /// Packets of both directions.
    pub packets: u64,
    /// Octets of IP packets of both directions.
    pub octets: u64,
}

/// What an interface counted while the station looked.
#[derive(Clone, Debug, Default)]
pub struct InterfaceMetrics {
    /// Its network namespace; empty: that of the station.
    pub netns: String,
    /// Its name.
    pub interface: String,
    /// What came in, and what went out.
    pub sides: [InterfaceSideMetrics; 2],
    /// Packets that its queueing disciplines dropped.
    pub queue_dropped: u64,
}

/// What an interface counted in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct InterfaceSideMetrics {
    /// Octets of frames.
    pub octets: u64,
    /// Packets.
    pub packets: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Packets that were damaged or could not be sent.
    pub errors: u64,
}

/// The two directions of an interface, as their label has them.
pub const INTERFACE_DIRECTIONS: [&str; 2] = ["receive", "transmit"];

impl PassiveSampleMetrics {
    /// How many samples of each kind.
    pub fn by_kind(&self) -> [(&'static str, u64); 3] {
        [("clean", self.clean), ("recovery", self.recovery), ("delayed_ack", self.delayed_ack)]
    }
}

impl MetricsPage<'_> {
    pub(super) fn traffic(&mut self, all: &TrafficMetrics) {
        if !all.samples.is_empty() {
            self.round_trips(all);
        }
        if !all.flows.is_empty() {
            self.flows(all);
        }
        if !all.interfaces.is_empty() {
            self.interfaces(&all.interfaces);
        }
    }

    fn round_trips(&mut self, all: &TrafficMetrics) {
        let name = "sonde_passive_rtt_seconds";
        self.family(name, "histogram", Some("seconds"), PASSIVE_HELP);
        for PassiveGroupMetrics { unit, group, clean } in &all.groups {
            self.histogram(name, &[("unit", unit), ("group", group)], clean, true);
        }
        let help = "Samples of passive round trips, of all groups";
        self.family("sonde_passive_samples", "counter", None, help);
        for samples in &all.samples {
            for (kind, n) in samples.by_kind() {
                let labels = [("unit", samples.unit.as_str()), ("kind", kind)];
                self.sample("sonde_passive_samples_total", &labels, &n.to_string());
            }
        }
    }

    fn flows(&mut self, all: &TrafficMetrics) {
        type Of = fn(&FlowMetrics) -> u64;
        let counts: [(&str, Option<&'static str>, &str, Of); 3] = [
            ("records", None, "Records of flows that have ended", |f| f.records),
            ("packets", None, "Packets of flows that have ended", |f| f.packets),
            ("bytes", Some("bytes"), "IP octets of flows that have ended", |f| f.octets),
        ];
        for (part, label, list) in
            [("", "interface", &all.flows), ("application_", "application", &all.applications)]
        {
            for (suffix, unit, help, of) in counts {
                let name = format!("sonde_flow_{part}{suffix}");
                self.family(&name, "counter", unit, &format!("{help}, by {label}"));
                for flows in list {
                    let labels = [("unit", flows.unit.as_str()), (label, flows.name.as_str())];
                    self.sample(&format!("{name}_total"), &labels, &of(flows).to_string());
                }
            }
        }
    }

    fn interfaces(&mut self, all: &[InterfaceMetrics]) {
        type Of = fn(&InterfaceSideMetrics) -> u64;
        let counts: [(&str, Option<&'static str>, &str, Of); 4] = [
            ("sonde_interface_bytes", Some("bytes"), "Octets of frames", |s| s.octets),
            ("sonde_interface_packets", None, "Packets", |s| s.packets),
            ("sonde_interface_dropped", None, "Packets that were dropped", |s| s.dropped),
            (
                "sonde_interface_errors",
                None,
                "Packets that were damaged or could not be sent",
                |s| s.errors,
            ),
        ];
        for (name, unit, help, of) in counts {
            self.family(name, "counter", unit, help);
            for interface in all {
                for (direction, side) in INTERFACE_DIRECTIONS.into_iter().zip(&interface.sides) {
                    let labels = with(&of_interface(interface), ("direction", direction));
                    self.sample(&format!("{name}_total"), &labels, &of(side).to_string());
                }
            }
        }
        let name = "sonde_interface_queue_dropped";
        self.family(name, "counter", None, "Packets that queueing disciplines dropped");
        for interface in all {
            let value = interface.queue_dropped.to_string();
            self.sample(&format!("{name}_total"), &of_interface(interface), &value);
        }
    }
}

fn of_interface(of: &InterfaceMetrics) -> [MetricLabel<'_>; 2] {
    [("interface", &of.interface), ("netns", &of.netns)]
}

const PASSIVE_HELP: &str = "Round trips of other people's traffic, of the path and the host alone";
