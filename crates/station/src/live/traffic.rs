//! Counts of other people's traffic since the start: what `/metrics` and exporters show of it.

use std::collections::BTreeMap;

use sonde_api::openmetrics::{
    FlowMetrics, InterfaceMetrics, InterfaceSideMetrics, PassiveGroupMetrics, PassiveSampleMetrics,
    TrafficMetrics,
};
use sonde_results::Hist;
use sonde_results::flow::FlowRecord;
use sonde_results::rtt::{GroupKey, RttGroup};
use sonde_results::rtt_run::RttPoint;
use sonde_run::rtt;
use sonde_store::InterfaceSide;
use sonde_store::flow::app_name;
use sonde_store::rtt::group_name;
use sonde_wire::protocol;

use crate::hub::{Report, Said};
use crate::interfaces::InterfaceInterval;
use crate::plan::UnitId;

/// What was seen since the start.
#[derive(Default)]
pub(crate) struct TrafficCounts {
    /// The interfaces of units that watch round trips, by their indices.
    points: BTreeMap<UnitId, Vec<RttPoint>>,
    /// Those of units that meter flows.
    sources: BTreeMap<UnitId, Vec<String>>,
    groups: BTreeMap<(UnitId, String), Hist>,
    samples: BTreeMap<UnitId, PassiveSampleMetrics>,
    flows: BTreeMap<(UnitId, u8), Sums>,
    applications: BTreeMap<(UnitId, String), Sums>,
    interfaces: BTreeMap<(String, String), InterfaceMetrics>,
}

/// Sums of flows.
#[derive(Clone, Copy, Default)]
struct Sums {
    records: u64,
    packets: u64,
    octets: u64,
}

impl Sums {
    fn add(&mut self, flow: &FlowRecord) {
        self.records += 1;
        self.packets += flow.forward.packets + flow.reverse.packets;
        self.octets += flow.forward.bytes + flow.reverse.bytes;
    }

    fn to_metrics(self, unit: &UnitId, name: String) -> FlowMetrics {
        let Sums { records, packets, octets } = self;
        FlowMetrics { unit: unit.to_string(), name, records, packets, octets }
    }
}

impl TrafficCounts {
    /// Takes a report; those of probes and reflectors say nothing here.
    pub fn take(&mut self, report: &Report) {
        let unit = &report.unit;
        self.note_points(report);
        match &report.said {
            Said::RttEvents(events) => {
                events.iter().for_each(|event| self.round_trips(unit, event))
            }
            Said::Flows(flows) => self.add_flows(unit, flows),
            Said::Interfaces(all) => all.iter().for_each(|interval| self.interface(interval)),
            _ => {}
        }
    }

    /// Takes of a report only by which names interfaces have.
    pub fn note_points(&mut self, report: &Report) {
        let unit = &report.unit;
        match &report.said {
            Said::Rtt(about) => drop(self.points.insert(unit.clone(), about.run.points.clone())),
            Said::FlowSources(sources) => drop(self.sources.insert(unit.clone(), sources.clone())),
            Said::RttEvents(events) => {
                let known = self.points.entry(unit.clone()).or_default();
                for event in events {
                    match event {
                        rtt::Event::Point(point) => known.push(point.clone()),
                        rtt::Event::PointChanged(index, point) => {
                            if let Some(known) = known.get_mut(*index) {
                                known.clone_from(point);
                            }
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// What the group of a unit's samples is called. `None`: its name would be a flow's addresses
    /// and ports.
    pub fn group_name(&self, unit: &UnitId, key: &GroupKey) -> Option<String> {
        if matches!(key, GroupKey::Flow(_)) {
            return None;
        }
        let points = self.points.get(unit).map_or(&[][..], Vec::as_slice);
        Some(group_name(key, &|index: u8| match points.get(usize::from(index)) {
            Some(point) => point.name.clone(),
            None => index.to_string(),
        }))
    }

    fn round_trips(&mut self, unit: &UnitId, event: &rtt::Event) {
        let rtt::Event::Interval(interval) = event else { return };
        for group in &interval.groups {
            let samples = self.samples.entry(unit.clone()).or_default();
            add_samples(samples, group);
            if let Some(name) = self.group_name(unit, &group.key) {
                self.groups.entry((unit.clone(), name)).or_default().merge(&group.clean);
            }
        }
        keep_largest(&mut self.groups, |hist| hist.count);
    }

    fn add_flows(&mut self, unit: &UnitId, flows: &[FlowRecord]) {
        for flow in flows {
            self.flows.entry((unit.clone(), flow.key.point)).or_default().add(flow);
            let application = application(flow);
            self.applications.entry((unit.clone(), application)).or_default().add(flow);
        }
        keep_largest(&mut self.applications, |sums| sums.octets);
    }

    fn interface(&mut self, interval: &InterfaceInterval) {
        let netns = interval.netns.clone().unwrap_or_default();
        let key = (netns, interval.interface.clone());
        let sum = self.interfaces.entry(key).or_insert_with_key(|(netns, interface)| {
            let (netns, interface) = (netns.clone(), interface.clone());
            InterfaceMetrics { netns, interface, ..InterfaceMetrics::default() }
        });
        for (sum, side) in sum.sides.iter_mut().zip([&interval.receive, &interval.transmit]) {
            let InterfaceSide { octets, packets, dropped, errors } = *side;
            *sum = InterfaceSideMetrics {
                octets: sum.octets + octets,
                packets: sum.packets + packets,
                dropped: sum.dropped + dropped,
                errors: sum.errors + errors,
            };
        }
        sum.queue_dropped += interval.queue_dropped;
    }

    /// As metrics: of groups and applications the largest of each unit.
    pub fn metrics(&self) -> TrafficMetrics {
        let groups = largest(&self.groups, SHOWN_GROUPS, |hist| hist.count);
        let applications = largest(&self.applications, SHOWN_APPLICATIONS, |sums| sums.octets);
        let interface = |unit: &UnitId, point: u8| {
            let known = self.sources.get(unit).and_then(|all| all.get(usize::from(point)));
            known.cloned().unwrap_or_else(|| point.to_string())
        };
        let flows = self.flows.iter();
        TrafficMetrics {
            groups: groups
                .into_iter()
                .map(|((unit, group), clean)| PassiveGroupMetrics {
                    unit: unit.to_string(),
                    group: group.clone(),
                    clean: clean.clone(),
                })
                .collect(),
            samples: self
                .samples
                .iter()
                .map(|(unit, of)| PassiveSampleMetrics { unit: unit.to_string(), ..of.clone() })
                .collect(),
            flows: flows
                .map(|((unit, point), sums)| sums.to_metrics(unit, interface(unit, *point)))
                .collect(),
            applications: applications
                .into_iter()
                .map(|((unit, name), sums)| sums.to_metrics(unit, name.clone()))
                .collect(),
            interfaces: self.interfaces.values().cloned().collect(),
        }
    }
}

fn add_samples(samples: &mut PassiveSampleMetrics, group: &RttGroup) {
    samples.clean += group.clean.count;
    samples.recovery += group.recovery.count;
    samples.delayed_ack += group.delayed_ack.count;
}

/// What was recognised, or else protocol and the lower port: "udp/53".
fn application(flow: &FlowRecord) -> String {
    let app = flow.extra.as_ref().and_then(|extra| extra.app.as_ref());
    if let Some(app) = app {
        return app_name(app).to_owned();
    }
    let key = &flow.key;
    let protocol =
        protocol::name(key.protocol).map_or_else(|| key.protocol.to_string(), str::to_lowercase);
    match key.source_port.min(key.destination_port) {
        // ICMP has no ports, and its type says too little to be worth a series.
        _ if protocol.contains("icmp") => protocol,
        0 => protocol,
        port => format!("{protocol}/{port}"),
    }
}

/// Of more than [`MOST_KEPT`] the larger half stays: somebody who scans ports makes as many as he
/// likes.
fn keep_largest<V>(all: &mut BTreeMap<(UnitId, String), V>, size: impl Fn(&V) -> u64) {
    if all.len() <= MOST_KEPT {
        return;
    }
    let mut sizes: Vec<u64> = all.values().map(&size).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let least = sizes[MOST_KEPT / 2];
    all.retain(|_, value| size(value) > least);
}

/// The `most` largest of each unit, by name.
fn largest<V>(
    all: &BTreeMap<(UnitId, String), V>,
    most: usize,
    size: impl Fn(&V) -> u64,
) -> Vec<(&(UnitId, String), &V)> {
    let mut shown = Vec::new();
    let all: Vec<(&(UnitId, String), &V)> = all.iter().collect();
    for of_unit in all.chunk_by(|((a, _), _), ((b, _), _)| a == b) {
        let mut of_unit = of_unit.to_vec();
        // Those of one size by name, so that the same ones are shown each time.
        of_unit.sort_by_key(|(_, value)| std::cmp::Reverse(size(value)));
        of_unit.truncate(most);
        of_unit.sort_by_key(|(key, _)| *key);
        shown.extend(of_unit);
    }
    shown
}

/// Groups of a unit that are shown: each is a histogram of 25 series.
const SHOWN_GROUPS: usize = 30;
/// Applications of a unit that are shown.
const SHOWN_APPLICATIONS: usize = 20;
/// Groups, and applications, that are counted.
const MOST_KEPT: usize = 2_048;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use sonde_results::flow::{FlowEnd, FlowSide};
    use sonde_results::rtt::FlowKey;

    use super::*;

    fn flow(point: u8, protocol: u8, port: u16, bytes: u64) -> FlowRecord {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let side = |bytes, packets| FlowSide { bytes, packets, ..FlowSide::default() };
        FlowRecord {
            key: FlowKey {
                point,
                vlan: 0,
                protocol,
                source: address,
                destination: address,
                source_port: 50_000,
                destination_port: port,
            },
            forward: side(bytes, 2),
            reverse: side(1, 1),
            end: FlowEnd::Idle,
            extra: None,
        }
    }

    fn say(counts: &mut TrafficCounts, said: Said) {
        counts.take(&Report { unit: UnitId::new("flow.up"), said });
    }

    #[test]
    fn flows_are_counted_by_interface_and_the_largest_applications_are_shown() {
        let mut counts = TrafficCounts::default();
        say(&mut counts, Said::FlowSources(vec!["eth0".into(), "eth1".into()]));
        // Somebody scans all ports.
        let scanned: Vec<FlowRecord> = (1..5_000).map(|port| flow(0, 6, port, 10)).collect();
        say(&mut counts, Said::Flows(vec![flow(1, 17, 53, 100), flow(0, 6, 443, 5_000)]));
        say(&mut counts, Said::Flows(scanned));
        say(&mut counts, Said::Flows(vec![flow(1, 17, 53, 200)]));
        assert!(counts.applications.len() <= MOST_KEPT);
        let metrics = counts.metrics();
        assert!(metrics.applications.len() <= SHOWN_APPLICATIONS);
        let of = |list: &[FlowMetrics], name: &str| {
            let found = list.iter().find(|flows| flows.name == name).unwrap();
            assert_eq!(found.unit, "flow.up");
            (found.records, found.packets, found.octets)
        };
        assert_eq!(of(&metrics.applications, "udp/53"), (2, 6, 302));
        assert_eq!(of(&metrics.applications, "tcp/443"), (2, 6, 5_012));
        assert_eq!(of(&metrics.flows, "eth0"), (5_000, 15_000, 5_001 + 4_999 * 11));
        assert_eq!(of(&metrics.flows, "eth1"), (2, 6, 302));
        assert_eq!(application(&flow(0, 1, 2_048, 1)), "icmp");
    }

    #[test]
    fn what_an_interface_counted_adds_up() {
        let mut counts = TrafficCounts::default();
        let side = |octets| InterfaceSide { octets, packets: 2, dropped: 1, errors: 0 };
        let interval = InterfaceInterval {
            netns: None,
            interface: "eth0".into(),
            start_ns: 0,
            length_ns: 10,
            receive: side(100),
            transmit: side(1),
            queue_dropped: 4,
            speed_bps: 0,
        };
        say(&mut counts, Said::Interfaces(vec![interval.clone()]));
        say(&mut counts, Said::Interfaces(vec![interval]));
        let metrics = counts.metrics();
        let [interface] = &metrics.interfaces[..] else { panic!("{metrics:?}") };
        assert_eq!((interface.interface.as_str(), interface.netns.as_str()), ("eth0", ""));
        let [receive, transmit] = interface.sides;
        assert_eq!((receive.octets, receive.packets, receive.dropped), (200, 4, 2));
        assert_eq!((transmit.octets, interface.queue_dropped), (2, 8));
    }
}
