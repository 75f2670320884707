//! The ways by which this host reaches its targets, and what changes of them.
//!
//! Pure: [`super::thread`] asks the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value, json};
use sonde_results::StreamInfo;
use sonde_results::units::format_elapsed;
use sonde_store::{EventId, EventSeverity, StoredEvent};

use crate::plan::UnitId;

/// What is known of the ways to targets, and of the interfaces of units.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathBook {
    /// Addresses of targets, by unit and name.
    addresses: BTreeMap<(String, String), BTreeSet<IpAddr>>,
    ways: BTreeMap<IpAddr, PathWay>,
    /// All units of the configuration; empty: it is not known.
    units: BTreeSet<String>,
    /// Ways that are gone, each with the event that lasts until all of it are back.
    lost: Vec<LostWays>,
    /// Interfaces of units that watch traffic, by their index in flow records.
    points: BTreeMap<String, Vec<String>>,
    /// Rates of interfaces, bit/s.
    rates: BTreeMap<String, f64>,
    /// When the ways were last looked up, ns since 1970 UTC.
    looked_ns: Option<i64>,
}

/// The first step to an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathWay {
    /// The interface by which packets leave.
    pub interface: String,
    /// The first router, or the address itself where it is on the link.
    pub next_hop: IpAddr,
}

/// Addresses that had a way, and have none.
#[derive(Clone, Debug, PartialEq)]
struct LostWays {
    way: PathWay,
    addresses: BTreeSet<IpAddr>,
    /// ns since 1970 UTC: the last look at which they had it.
    since_ns: i64,
    /// Its event in the store, once that is kept.
    event: Option<EventId>,
}

/// What a look at the ways has found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteNews {
    /// Events to be kept. One without an end is followed by [`PathBook::kept`].
    pub events: Vec<StoredEvent>,
    /// Events that have ended.
    pub over: Vec<EventId>,
}

impl PathBook {
    /// The address of a unit's target, where it has only one.
    pub fn address(&self, unit: &str, target: &str) -> Option<IpAddr> {
        let all = self.addresses.get(&(unit.to_owned(), target.to_owned()))?;
        match all.len() {
            1 => all.first().copied(),
            _ => None,
        }
    }

    /// The first step to an address.
    pub fn way(&self, address: IpAddr) -> Option<&PathWay> {
        self.ways.get(&address)
    }

    /// The interfaces of a unit that watches traffic.
    pub fn points(&self, unit: &str) -> &[String] {
        self.points.get(unit).map_or(&[], Vec::as_slice)
    }

    /// The rate of an interface, bit/s.
    pub fn rate_bps(&self, interface: &str) -> Option<f64> {
        self.rates.get(interface).copied()
    }

    /// All interfaces of units that watch traffic.
    pub fn interfaces(&self) -> BTreeSet<&str> {
        self.points.values().flatten().map(String::as_str).collect()
    }

    /// All addresses whose ways are to be looked up: the first [`MOST_WAYS`].
    pub fn wanted(&self) -> BTreeSet<IpAddr> {
        self.addresses.values().flatten().copied().take(MOST_WAYS).collect()
    }

    /// The units of the configuration.
    pub fn set_units(&mut self, units: BTreeSet<String>) {
        self.units = units;
    }

    /// Whether a unit measures a target, or anything if that is empty. `true` also where nothing is
    /// known.
    pub fn measures(&self, unit: &str, target: &str) -> bool {
        let mut targets = self.addresses.keys().filter(|(of, _)| of == unit).peekable();
        let listed = self.units.is_empty() || self.units.contains(unit);
        let known = targets.peek().is_some() && !target.is_empty();
        listed && (!known || targets.any(|(_, own)| own == target))
    }

    /// The units that watch traffic, with their interfaces.
    pub fn set_points(&mut self, points: BTreeMap<String, Vec<String>>) {
        self.points = points;
    }

    /// The rates of interfaces, as the kernel knows them.
    pub fn set_rates(&mut self, rates: BTreeMap<String, f64>) {
        self.rates = rates;
    }

    /// A unit of the station measures these streams: beside those that it had, or (`whole`) instead of them. The
    /// targets whose address is another one now, as events.
    pub fn streams(
        &mut self,
        (station, unit): (&str, &UnitId),
        streams: &[StreamInfo],
        whole: bool,
        now_ns: i64,
    ) -> Vec<StoredEvent> {
        let mut new: BTreeMap<&str, BTreeSet<IpAddr>> = BTreeMap::new();
        for info in streams {
            new.entry(&info.target).or_default().insert(info.destination.ip());
        }
        let mut changed = Vec::new();
        for (target, addresses) in &new {
            let name = (unit.to_string(), (*target).to_owned());
            let old = self.addresses.get(&name);
            let others = old.filter(|old| !addresses.is_subset(old));
            if let Some(old) = others {
                changed.push(address_change((station, unit), target, old, addresses, now_ns));
            }
            self.addresses.insert(name, addresses.clone());
        }
        if whole {
            let of_unit = |name: &(String, String)| name.0 == unit.as_str();
            self.addresses.retain(|name, _| !of_unit(name) || new.contains_key(name.1.as_str()));
        }
        let kept: BTreeSet<IpAddr> = self.addresses.values().flatten().copied().collect();
        self.ways.retain(|address, _| kept.contains(address));
        changed
    }

    /// The event of ways that are gone since `since_ns` is kept under this number.
    pub fn kept(&mut self, event: &StoredEvent, id: EventId) {
        let of_it = |lost: &&mut LostWays| {
            lost.event.is_none() && lost.since_ns == event.begin_ns && event.end_ns.is_none()
        };
        if let Some(lost) = self.lost.iter_mut().find(of_it) {
            lost.event = Some(id);
        }
    }

    /// The kernel has these ways at `now_ns`; an address without one has none. What has changed since
    /// the last look: one event for all targets that went over from one way to another. That of a way
    /// that is gone lasts until it is back.
    pub fn look(
        &mut self,
        station: &str,
        found: &BTreeMap<IpAddr, PathWay>,
        now_ns: i64,
    ) -> RouteNews {
        let mut moved: BTreeMap<(PathWay, Option<PathWay>), BTreeSet<IpAddr>> = BTreeMap::new();
        for (address, old) in &self.ways {
            let new = found.get(address);
            if new != Some(old) {
                moved.entry((old.clone(), new.cloned())).or_default().insert(*address);
            }
        }
        let before_ns = self.looked_ns.replace(now_ns).unwrap_or(now_ns);
        self.ways.clone_from(found);
        let wanted: BTreeSet<IpAddr> = self.addresses.values().flatten().copied().collect();
        let mut news = RouteNews::default();
        let mut back: BTreeMap<(PathWay, PathWay, i64), BTreeSet<IpAddr>> = BTreeMap::new();
        for lost in &mut self.lost {
            lost.addresses.retain(|address| match found.get(address) {
                Some(new) => {
                    let key = (lost.way.clone(), new.clone(), lost.since_ns);
                    back.entry(key).or_default().insert(*address);
                    false
                }
                None => wanted.contains(address),
            });
        }
        let over = self.lost.extract_if(.., |lost| lost.addresses.is_empty());
        news.over.extend(over.filter_map(|lost| lost.event));
        let event = |((old, new), addresses): (&(PathWay, Option<PathWay>), &BTreeSet<IpAddr>)| {
            let concerned: Vec<&(String, String)> = self
                .addresses
                .iter()
                .filter(|(_, own)| own.iter().any(|address| addresses.contains(address)))
                .map(|(name, _)| name)
                .collect();
            let targets: BTreeSet<&str> = concerned.iter().map(|(_, t)| t.as_str()).collect();
            let units: BTreeSet<&str> = concerned.iter().map(|(unit, _)| unit.as_str()).collect();
            route_change(station, (old, new.as_ref()), &units, &targets, (before_ns, now_ns))
        };
        news.events.extend(moved.iter().map(&event));
        for ((old, new, since_ns), addresses) in back {
            let told = event((&(old, Some(new.clone())), &addresses));
            let whom =
                told.title.strip_prefix("the way to ").and_then(|t| t.split_once(" changed"));
            let whom = whom.map_or("targets", |(whom, _)| whom);
            let gone = format_elapsed(now_ns - since_ns);
            let title = format!(
                "the way to {whom} is back: {} by {}, after {gone} without one",
                new.next_hop, new.interface
            );
            news.events.push(StoredEvent { title, ..told });
        }
        for ((way, new), addresses) in moved {
            if new.is_none() {
                let since_ns = before_ns;
                self.lost.push(LostWays { way, addresses, since_ns, event: None });
            }
        }
        news
    }
}

fn route_change(
    station: &str,
    (old, new): (&PathWay, Option<&PathWay>),
    units: &BTreeSet<&str>,
    targets: &BTreeSet<&str>,
    (before_ns, now_ns): (i64, i64),
) -> StoredEvent {
    let whom = match targets.first() {
        Some(target) if targets.len() == 1 => (*target).to_owned(),
        _ => format!("{} targets", targets.len()),
    };
    let way = |way: &PathWay| format!("{} by {}", way.next_hop, way.interface);
    let to = new.map_or_else(|| "none".to_owned(), way);
    let json = |way: &PathWay| json!({"interface": way.interface, "next_hop": way.next_hop});
    let mut labels = json!({"station": station});
    if let (Some(unit), 1) = (units.first(), units.len()) {
        labels["unit"] = Value::from(*unit);
    }
    if let (Some(target), 1) = (targets.first(), targets.len()) {
        labels["target"] = Value::from(*target);
    }
    StoredEvent {
        kind: "route_change".into(),
        severity: if new.is_some() { EventSeverity::Info } else { EventSeverity::Warning },
        series: None,
        begin_ns: before_ns,
        // What is gone lasts until it is back.
        end_ns: new.map(|_| now_ns),
        title: format!("the way to {whom} changed from {} to {to}", way(old)),
        evidence: json!({
            "labels": labels,
            "text": "as this host's own routes have it",
            "from": json(old),
            "to": new.map(json),
            "targets_concerned": targets.len(),
            "targets": targets.iter().take(TOLD).collect::<Vec<_>>(),
        }),
    }
}

fn address_change(
    (station, unit): (&str, &UnitId),
    target: &str,
    old: &BTreeSet<IpAddr>,
    new: &BTreeSet<IpAddr>,
    now_ns: i64,
) -> StoredEvent {
    let list = |all: &BTreeSet<IpAddr>| {
        all.iter().take(3).map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    StoredEvent {
        kind: "address_change".into(),
        severity: EventSeverity::Info,
        series: None,
        begin_ns: now_ns,
        end_ns: Some(now_ns),
        title: format!("{unit}: {target} is {} now, and was {}", list(new), list(old)),
        evidence: json!({
            "labels": {"station": station, "unit": unit.as_str(), "target": target},
            "text": "as its name resolves",
            "from": old, "to": new,
            "targets": [target],
        }),
    }
}

/// Between two looks at the ways, ns.
pub const LOOK_NS: i64 = 5_000_000_000;
/// Addresses whose ways are looked up, at most.
const MOST_WAYS: usize = 4_096;
/// Targets that an event names.
const TOLD: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn info(target: &str, address: &str) -> StreamInfo {
        StreamInfo {
            target: target.into(),
            source: "192.0.2.1:1".parse().unwrap(),
            destination: format!("{address}:862").parse().unwrap(),
            dscp: 0,
            ssid: 0,
            ip_length: 72,
            period_ns: 1_000_000,
        }
    }

    fn way(interface: &str, next_hop: &str) -> PathWay {
        PathWay { interface: interface.into(), next_hop: next_hop.parse().unwrap() }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_that_is_another_one_is_told_and_one_more_stream_is_not() {
        let (unit, mut book) = (UnitId::new("probe.a"), PathBook::default());
        let both = [info("muc", "192.0.2.9"), info("ber", "192.0.2.8")];
        assert_eq!(book.streams(("s", &unit), &both, true, 5), []);
        assert_eq!(book.streams(("s", &unit), &both[..1], false, 6), []);
        assert_eq!(book.address("probe.a", "muc"), Some(address("192.0.2.9")));
        let told = book.streams(("s", &unit), &[info("muc", "198.51.100.9")], true, 7);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].title, "probe.a: muc is 198.51.100.9 now, and was 192.0.2.9");
        assert_eq!((told[0].begin_ns, &*told[0].kind), (7, "address_change"));
        assert_eq!(book.address("probe.a", "ber"), None, "it is gone");
        let measures = |unit: &str, target: &str| book.measures(unit, target);
        assert_eq!((measures("probe.a", "muc"), measures("probe.a", "ber")), (true, false));
        assert!(measures("probe.a", "") && measures("probe.b", "x"), "nothing is known");
        assert_eq!(book.wanted(), BTreeSet::from([address("198.51.100.9")]));
        book.set_units(BTreeSet::from(["probe.a".to_owned()]));
        assert!(book.measures("probe.a", "muc") && !book.measures("probe.b", "x"));
    }

    #[test]
    fn targets_that_go_over_together_are_one_change() {
        let (unit, mut book) = (UnitId::new("probe.a"), PathBook::default());
        let targets = [info("a", "10.0.0.1"), info("b", "10.0.0.2"), info("c", "10.0.0.3")];
        book.streams(("s", &unit), &targets, true, 0);
        let of = |hops: [&str; 3]| -> BTreeMap<IpAddr, PathWay> {
            let ways = hops.into_iter().map(|hop| way("eth0", hop));
            targets.iter().map(|t| t.destination.ip()).zip(ways).collect()
        };
        let first = of(["10.9.0.1", "10.9.0.1", "10.9.0.2"]);
        assert_eq!(book.look("s", &first, 10).events, [], "nothing was known before");
        assert_eq!(book.look("s", &first, 20).events, []);
        let told = book.look("s", &of(["10.9.0.5", "10.9.0.5", "10.9.0.2"]), 30).events;
        assert_eq!(told.len(), 1);
        assert_eq!(
            told[0].title,
            "the way to 2 targets changed from 10.9.0.1 by eth0 to 10.9.0.5 by eth0"
        );
        assert_eq!((told[0].begin_ns, told[0].end_ns), (20, Some(30)));
        assert_eq!(told[0].evidence["targets"], json!(["a", "b"]));
        let told = book.look("s", &BTreeMap::new(), 40).events;
        let titles: Vec<&str> = told.iter().map(|event| &*event.title).collect();
        assert_eq!(
            titles,
            [
                "the way to c changed from 10.9.0.2 by eth0 to none",
                "the way to 2 targets changed from 10.9.0.5 by eth0 to none",
            ]
        );
        assert_eq!(told[0].severity, EventSeverity::Warning);
        assert_eq!((told[0].begin_ns, told[0].end_ns), (30, None), "it lasts");
        // Both are kept; one target is back after a minute, by another way, then all.
        for (event, id) in told.iter().zip([7, 8]) {
            book.kept(event, EventId(id));
        }
        let s = 1_000_000_000;
        let mut found = of(["10.9.0.5", "10.9.0.5", "10.9.0.6"]);
        let (_, second) = (found.pop_first().unwrap(), found.pop_first().unwrap());
        let news = book.look("s", &found, 30 + 60 * s);
        let [back] = news.events.as_slice() else { panic!("{news:?}") };
        assert_eq!(
            back.title,
            "the way to c is back: 10.9.0.6 by eth0, after 1 m 00 s without one"
        );
        assert_eq!(back.evidence["from"]["next_hop"], "10.9.0.2");
        assert_eq!(news.over, [EventId(7)]);
        found.insert(second.0, second.1);
        assert_eq!(book.look("s", &found, 40 + 60 * s).over, []);
        let news = book.look("s", &of(["10.9.0.5", "10.9.0.5", "10.9.0.6"]), 50 + 60 * s);
        assert_eq!((news.over, news.events.len()), (vec![EventId(8)], 1));
    }
}
