//! What series have in common: the labels by which a fault can be named.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sonde_meter::explain::{EvidenceKind, ExplainEvidence, Label, LabelKind};
use sonde_store::query::BadSampleRow;
use sonde_store::series::MODULE_RTT;
use sonde_store::{Series, SeriesId, SeriesLabels, StoredEvent};
use sonde_wire::prefix::Prefix;

use super::counters::{FULL, InterfaceChange};
use super::flows::GrownFlow;
use super::paths::{LOOK_NS, PathBook};
use super::{ExplainTimes, find_labels};

/// The labels of a question, as they are met.
pub(super) struct QuestionLabels<'a> {
    series: &'a [Series],
    paths: &'a PathBook,
    /// Groups of passive round trips that are prefixes.
    prefixes: Vec<Prefix>,
    /// Targets of probes, by their address.
    targets: BTreeMap<IpAddr, BTreeSet<String>>,
    all: Vec<Label>,
    index: BTreeMap<Label, usize>,
}

impl<'a> QuestionLabels<'a> {
    /// Of the series and groups of `rows`.
    pub fn new(
        series: &'a [Series],
        paths: &'a PathBook,
        rows: &[BadSampleRow],
    ) -> QuestionLabels<'a> {
        let prefixes: BTreeSet<&str> = rows.iter().map(|row| row.group.as_str()).collect();
        let mut targets: BTreeMap<IpAddr, BTreeSet<String>> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.group.is_empty()) {
            let Some(labels) = find_labels(series, row.series) else { continue };
            if let Some(address) = address_of(labels, paths) {
                targets.entry(address).or_default().insert(labels.target.clone());
            }
        }
        QuestionLabels {
            series,
            paths,
            prefixes: prefixes.into_iter().filter_map(prefix).collect(),
            targets,
            all: Vec::new(),
            index: BTreeMap::new(),
        }
    }

    fn add(&mut self, kind: LabelKind, value: impl Into<String>) -> usize {
        let label = Label { kind, value: value.into() };
        let next = self.all.len();
        *self.index.entry(label.clone()).or_insert_with(|| {
            self.all.push(label);
            next
        })
    }

    fn known(&self, kind: LabelKind, value: &str) -> Option<usize> {
        self.index.get(&Label { kind, value: value.to_owned() }).copied()
    }

    /// The labels of a series or a group.
    pub fn of(&mut self, row: &BadSampleRow) -> Vec<usize> {
        let Some(labels) = find_labels(self.series, row.series) else {
            return Vec::new();
        };
        let mut all = vec![self.add(LabelKind::Station, &labels.station)];
        if !labels.site.is_empty() {
            all.push(self.add(LabelKind::Region, &labels.site));
        }
        for (name, value) in &labels.free {
            let kind = match name.as_str() {
                "unit" | "address" => continue,
                "link" => LabelKind::Link,
                "region" => LabelKind::Region,
                "as" => LabelKind::Asn,
                "first_hop" => LabelKind::FirstHop,
                "interface" => LabelKind::Interface,
                "resolver" => LabelKind::Resolver,
                "member" => LabelKind::Member,
                _ => LabelKind::Free,
            };
            let value = match kind {
                LabelKind::Free => format!("{name}={value}"),
                _ => value.clone(),
            };
            all.push(self.add(kind, value));
        }
        match labels.module == MODULE_RTT {
            true => self.of_group(labels, &row.group, &mut all),
            false => self.of_probe(labels, &mut all),
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    fn of_probe(&mut self, labels: &SeriesLabels, all: &mut Vec<usize>) {
        all.push(self.add(LabelKind::Protocol, "probes"));
        all.push(self.add(LabelKind::Target, &labels.target));
        all.push(self.add(LabelKind::Class, &labels.class));
        if labels.source_port != 0 || labels.destination_port != 0 {
            let path =
                format!("{} {}>{}", labels.target, labels.source_port, labels.destination_port);
            all.push(self.add(LabelKind::Member, path));
        }
        let Some(address) = address_of(labels, self.paths) else { return };
        let covering: Vec<String> = self
            .prefixes
            .iter()
            .filter(|prefix| prefix.contains(address))
            .map(ToString::to_string)
            .collect();
        for prefix in covering {
            all.push(self.add(LabelKind::Prefix, prefix));
        }
        self.way(address, all);
    }

    /// The interface and the first router on the way to an address.
    fn way(&mut self, address: IpAddr, all: &mut Vec<usize>) {
        let Some(way) = self.paths.way(address) else { return };
        all.push(self.add(LabelKind::Interface, &way.interface));
        if way.next_hop != address {
            all.push(self.add(LabelKind::FirstHop, way.next_hop.to_string()));
        }
    }

    fn of_group(&mut self, labels: &SeriesLabels, group: &str, all: &mut Vec<usize>) {
        all.push(self.add(LabelKind::Protocol, "traffic"));
        let unit = labels.free.get("unit").map_or("", String::as_str);
        if let [interface] = self.paths.points(unit) {
            all.push(self.add(LabelKind::Interface, interface));
        }
        if let Some(prefix) = prefix(group) {
            all.push(self.add(LabelKind::Prefix, group));
            let inside = self.targets.iter().filter(|(address, _)| prefix.contains(**address));
            let targets: BTreeSet<String> =
                inside.flat_map(|(_, targets)| targets.iter().cloned()).collect();
            for target in targets {
                all.push(self.add(LabelKind::Target, target));
            }
            return;
        }
        let label = match group.split_once(' ') {
            None if group.starts_with("AS") => (LabelKind::Asn, &group[2..]),
            Some(("interface", name)) => (LabelKind::Interface, name),
            Some(("dscp", class)) => (LabelKind::Class, class),
            _ => (LabelKind::Free, group),
        };
        all.push(self.add(label.0, label.1));
    }

    /// The label of the station that measures a series.
    pub fn station_of(&self, series: SeriesId) -> Option<usize> {
        let labels = find_labels(self.series, series)?;
        self.known(LabelKind::Station, &labels.station)
    }

    /// What other instruments saw, of the labels that series have.
    pub fn evidence(
        &self,
        events: &[StoredEvent],
        flows: &[GrownFlow],
        interfaces: &[InterfaceChange],
        times: &ExplainTimes,
    ) -> Vec<ExplainEvidence> {
        let mut all = Vec::new();
        let onset_ns = times.during.from_ns;
        for event in events {
            let (kind, late_ns) = match event.kind.as_str() {
                // A look at the routes comes some time after the change: the event has both.
                "route_change" => (EvidenceKind::Route, LOOK_NS),
                "address_change" => (EvidenceKind::Address, times.interval_ns),
                _ => continue,
            };
            let (from, to) = (event.begin_ns, event.end_ns.unwrap_or(event.begin_ns));
            let near = from - times.interval_ns <= onset_ns && onset_ns <= to + late_ns;
            let at_ns = if near { onset_ns } else { to };
            let targets = event.evidence["targets"].as_array();
            let targets = targets.into_iter().flatten().filter_map(|target| target.as_str());
            let targets = targets.filter_map(|target| self.known(LabelKind::Target, target));
            let hop = event.evidence["to"]["next_hop"].as_str();
            let hop = hop.and_then(|hop| self.known(LabelKind::FirstHop, hop));
            all.extend(targets.chain(hop).map(|label| ExplainEvidence {
                name: vec![label],
                at_ns,
                kind: kind.clone(),
            }));
        }
        for change in interfaces {
            if let Some(label) = self.known(LabelKind::Interface, &change.interface) {
                let (name, kind) = (vec![label], change.kind.clone());
                all.push(ExplainEvidence { name, at_ns: onset_ns, kind });
            }
        }
        for flow in flows {
            let interface = flow.interface.as_deref();
            let Some(label) = interface.and_then(|name| self.known(LabelKind::Interface, name))
            else {
                continue;
            };
            let of = |kind| ExplainEvidence { name: vec![label], at_ns: onset_ns, kind };
            all.push(of(EvidenceKind::GrownFlow {
                flow: flow.name.clone(),
                before_bps: flow.before_bps,
                now_bps: flow.now_bps,
            }));
            // The interface's own counters know it better.
            let counted = |change: &InterfaceChange| {
                Some(&*change.interface) == interface
                    && matches!(change.kind, EvidenceKind::Filled { .. })
            };
            let used = flow.used.filter(|(_, now)| *now > FULL);
            if let Some((before, now)) = used.filter(|_| !interfaces.iter().any(counted)) {
                all.push(of(EvidenceKind::Filled { before, now }));
            }
        }
        all
    }

    /// All of them.
    pub fn finish(self) -> Vec<Label> {
        self.all
    }
}

/// The address of a probe's target, if it is known.
fn address_of(labels: &SeriesLabels, paths: &PathBook) -> Option<IpAddr> {
    if let Some(address) = labels.free.get("address") {
        return address.parse().ok();
    }
    let unit = labels.free.get("unit")?;
    paths.address(unit, &labels.target).or_else(|| labels.target.parse().ok())
}

fn prefix(group: &str) -> Option<Prefix> {
    // A flow has addresses and a protocol: "host:port>peer:port/6".
    group.contains('/').then(|| group.parse().ok()).flatten()
}
