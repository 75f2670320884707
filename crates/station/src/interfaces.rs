//! What the interfaces of units count, every ten seconds, as records beside those of units.
//!
//! Pure: [`thread`] asks the kernel.

pub(crate) mod thread;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_run::error::SettingsError;
use sonde_store::InterfaceSide;
use sonde_sys::netlink::{DirectionCounters, LinkCounters};
use sonde_wire::time::Time;

use crate::plan::Plan;
use crate::unit::{Instrument, Unit};

/// Interfaces whose counters are kept beside those of units.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InterfaceSettings {
    /// Interfaces of the station's own namespace, by name. Those that units name, and those by which
    /// probes reach their targets, need not be named.
    pub names: Vec<String>,
}

impl InterfaceSettings {
    /// Whether the names can be those of interfaces.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn check(&self) -> Result<(), SettingsError> {
        let fits = |name: &str| {
            (1..=15).contains(&name.len())
                && !name.contains(|c: char| c == '/' || c.is_whitespace())
        };
        match self.names.iter().find(|name| !fits(name)) {
            Some(wrong) => {
                let why = format!("'{wrong}' is no name of an interface; 'ip link' lists them");
                Err(SettingsError::new("names", why))
            }
            None => Ok(()),
        }
    }
}

/// What one interface counted in an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceInterval {
    /// The network namespace, as `ip netns` calls it; `None`: that of the station.
    pub netns: Option<String>,
    /// The interface.
    pub interface: String,
    /// Begin of the interval, ns since 1970 UTC.
    pub start_ns: i64,
    /// Its length, ns.
    pub length_ns: i64,
    /// What came in.
    pub receive: InterfaceSide,
    /// What went out.
    pub transmit: InterfaceSide,
    /// Packets that queueing disciplines dropped.
    pub queue_dropped: u64,
    /// Speed of the link, bit/s; 0: not known, as of virtual interfaces.
    pub speed_bps: u64,
}

/// A namespace: `None`: that of the station.
pub(crate) type Netns = Option<String>;

/// Which interfaces are looked at: names, and addresses to which the route is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WatchList(BTreeMap<Netns, Watched>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Watched {
    names: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
}

impl WatchList {
    /// Those of units and of settings.
    pub(crate) fn of(plan: &Plan<Unit>, settings: &InterfaceSettings) -> WatchList {
        let mut all = WatchList::default();
        all.0.entry(None).or_default().names.extend(settings.names.iter().cloned());
        for (_, unit) in plan.iter() {
            let watched = all.0.entry(unit.netns.clone()).or_default();
            match &unit.instrument {
                Instrument::Probe(settings) => match &settings.engine.iface {
                    Some(name) => drop(watched.names.insert(name.clone())),
                    None => {
                        let hosts =
                            settings.targets.iter().filter_map(|t| t.host.parse::<IpAddr>().ok());
                        let room = MOST_ROUTES.saturating_sub(watched.addresses.len());
                        watched.addresses.extend(hosts.take(room));
                    }
                },
                Instrument::Reflect(settings) => {
                    watched.names.extend(settings.engine.iface.clone())
                }
                // Captures are among them; no interface has such a name.
                Instrument::Rtt(settings) => watched.names.extend(settings.sources.clone()),
                Instrument::Flow(settings) => watched.names.extend(settings.sources.clone()),
                // Clients and controllers name their ports as they come.
                Instrument::Otg(_) | Instrument::Agent(_) => {}
            }
        }
        all
    }
}

/// The last look at interfaces, from which the next one makes intervals.
#[derive(Debug, Default)]
pub(crate) struct Differ {
    last: BTreeMap<(Netns, String), (LinkCounters, Time)>,
}

impl Differ {
    /// What was counted since the last look, which was at another `now`. It is `now_ns` since 1970
    /// UTC. Of an interface that is new, or whose counters ran back, there is nothing.
    pub(crate) fn take(
        &mut self,
        found: Vec<(Netns, LinkCounters, u64)>,
        now: Time,
        now_ns: i64,
    ) -> Vec<InterfaceInterval> {
        let mut last = BTreeMap::new();
        let mut all = Vec::new();
        for (netns, link, speed_bps) in found {
            let key = (netns, link.name.clone());
            if let Some((before, at)) = self.last.get(&key) {
                let length_ns = now - *at;
                all.extend(since(before, &link).map(|(receive, transmit, queue_dropped)| {
                    InterfaceInterval {
                        netns: key.0.clone(),
                        interface: key.1.clone(),
                        start_ns: now_ns - length_ns,
                        length_ns,
                        receive,
                        transmit,
                        queue_dropped,
                        speed_bps,
                    }
                }));
            }
            last.insert(key, (link, now));
        }
        self.last = last;
        all
    }
}

/// What was counted between two looks at an interface; `None`: it is another one, or began anew.
fn since(
    before: &LinkCounters,
    after: &LinkCounters,
) -> Option<(InterfaceSide, InterfaceSide, u64)> {
    if before.ifindex != after.ifindex {
        return None;
    }
    let side = |before: &DirectionCounters, after: &DirectionCounters| {
        Some(InterfaceSide {
            octets: after.octets.checked_sub(before.octets)?,
            packets: after.packets.checked_sub(before.packets)?,
            dropped: after.dropped.checked_sub(before.dropped)?,
            errors: after.errors.checked_sub(before.errors)?,
        })
    };
    let dropped = after.queue_dropped.wrapping_sub(before.queue_dropped);
    // A queueing discipline that was replaced counts from 0 again.
    let dropped = if dropped > u32::MAX / 2 { after.queue_dropped } else { dropped };
    let (receive, transmit) =
        (side(&before.receive, &after.receive)?, side(&before.transmit, &after.transmit)?);
    Some((receive, transmit, dropped.into()))
}

/// Addresses of a namespace whose routes are asked for, at most.
const MOST_ROUTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn link(ifindex: u32, octets: u64, queue_dropped: u32) -> LinkCounters {
        let of =
            |n| DirectionCounters { octets: n, packets: n / 100, dropped: n / 1_000, errors: 0 };
        LinkCounters {
            name: "eth0".into(),
            ifindex,
            is_virtual: false,
            receive: of(octets),
            transmit: of(2 * octets),
            queue_dropped,
        }
    }

    #[test]
    fn an_interval_is_what_was_counted_between_two_looks_at_one_interface() {
        let mut differ = Differ::default();
        let mut take = |at: i64, link: LinkCounters| {
            differ.take(vec![(None, link, 1_000)], Time::from_nanos(at), 5_000 + at)
        };
        assert_eq!(take(0, link(3, 10_000, u32::MAX - 1)), []);
        let side = |octets, packets, dropped| InterfaceSide { octets, packets, dropped, errors: 0 };
        let expected = InterfaceInterval {
            netns: None,
            interface: "eth0".into(),
            start_ns: 5_000,
            length_ns: 10,
            receive: side(5_000, 50, 5),
            transmit: side(10_000, 100, 10),
            // It goes on from 0.
            queue_dropped: 4,
            speed_bps: 1_000,
        };
        assert_eq!(take(10, link(3, 15_000, 2)), [expected]);
        assert_eq!(take(20, link(4, 16_000, 2)), [], "another one of the same name");
        assert_eq!(take(30, link(4, 15_000, 2)), [], "its counters ran back");
        assert_eq!(take(40, link(4, 15_000, 9))[0].queue_dropped, 7);
        assert_eq!(take(50, link(4, 15_000, 1))[0].queue_dropped, 1, "another queue");
    }

    #[test]
    fn units_say_which_interfaces_and_addresses_are_looked_at() {
        let text = "[interfaces]\nnames = [\"wan0\"]\n[netns]\n\"rtt.r\" = \"router\"\n\
                    [probe.a]\n[[probe.a.target]]\nhost = \"192.0.2.1\"\n\
                    [rtt.r]\nsources = [\"r-west\"]\n[reflect.b]\nengine = { iface = \"eth1\" }\n";
        let text = sonde_run::toml_file::TomlText { file: "s.toml".into(), text: text.into() };
        let file = crate::config::ReadFile::parse(text).unwrap();
        let config = crate::config::Config::of(&[file]).unwrap();
        let list = WatchList::of(&config.plan, &config.interfaces);
        let set = |names: &[&str]| names.iter().map(|&n| n.into()).collect::<BTreeSet<String>>();
        let own = Watched {
            names: set(&["wan0", "eth1"]),
            addresses: ["192.0.2.1".parse().unwrap()].into(),
        };
        let router = Watched { names: set(&["r-west"]), addresses: BTreeSet::new() };
        assert_eq!(list.0, [(None, own), (Some("router".to_owned()), router)].into());
        let wrong = InterfaceSettings { names: vec!["eth0/1".into()] }.check().unwrap_err();
        assert!(wrong.to_string().contains("'ip link' lists them"), "{wrong}");
    }
}
