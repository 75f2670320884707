//! Which series of the store an event is about.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sonde_store::series::{MODULE_RTT, MODULE_STAMP};
use sonde_store::{Series, SeriesId, StoreBackend, StoredEvent};

/// The series of each station, unit, target and class, as they were last read: stations that share a
/// ClickHouse may have equal units and targets.
#[derive(Default)]
pub(super) struct EventSeries(BTreeMap<[String; 4], Vec<SeriesId>>);

impl EventSeries {
    /// The event with its series: the one, or all of them in its evidence.
    pub fn of(&mut self, event: &StoredEvent, store: &dyn StoreBackend) -> StoredEvent {
        let mut event = event.clone();
        let label = |name: &str| event.evidence["labels"][name].as_str().unwrap_or_default();
        let names = ["station", "unit", "target", "class"];
        let mut key = names.map(|name| label(name).to_owned());
        if key[1].starts_with("rtt.") {
            // A unit that watches traffic has one series with all groups.
            (key[2], key[3]) = (String::new(), String::new());
        } else if key[2].is_empty() {
            return event;
        }
        if !self.0.contains_key(&key) {
            self.read(&store.reader().series().unwrap_or_default(), &key[0]);
        }
        let ids = self.0.get(&key).map_or(&[][..], Vec::as_slice);
        event.series = match ids {
            [one] => Some(*one),
            _ => None,
        };
        if let (Value::Object(evidence), [_, _, ..]) = (&mut event.evidence, ids) {
            let ids: Vec<u32> = ids.iter().take(MOST).map(|id| id.0).collect();
            evidence.insert("series".into(), json!(ids));
        }
        event
    }

    fn read(&mut self, all: &[Series], station: &str) {
        self.0.clear();
        for Series { id, labels } in all.iter().filter(|series| series.labels.station == station) {
            let station = labels.station.clone();
            let unit = labels.free.get("unit").cloned().unwrap_or_default();
            let key = match &*labels.module {
                MODULE_STAMP => [station, unit, labels.target.clone(), labels.class.clone()],
                MODULE_RTT => [station, unit, String::new(), String::new()],
                _ => continue,
            };
            self.0.entry(key).or_default().push(*id);
        }
    }
}

/// Series that an event names.
const MOST: usize = 200;

#[cfg(test)]
mod tests {
    use sonde_store::{EventSeverity, SeriesLabels, Store, StoreOptions};

    use super::*;
    use crate::alert::testing::Folder;

    #[test]
    fn an_event_names_the_series_of_its_own_station_alone() {
        let folder = Folder::new("event-series");
        let store = Store::open(&folder.0, StoreOptions::default()).unwrap();
        let labels = |station: &str, unit: &str, module: &str| SeriesLabels {
            station: station.into(),
            target: if module == MODULE_STAMP { "gw" } else { unit }.into(),
            class: if module == MODULE_STAMP { "BE" } else { "" }.into(),
            module: module.into(),
            free: BTreeMap::from([("unit".to_owned(), unit.to_owned())]),
            ..SeriesLabels::default()
        };
        let mut numbers = BTreeMap::new();
        for station in ["muc", "ber"] {
            for (unit, module) in [("probe.a", MODULE_STAMP), ("rtt.up", MODULE_RTT)] {
                let id = store.register(&labels(station, unit, module)).unwrap();
                numbers.insert((station, unit), id);
            }
        }
        // One cache, as a station has it, whoever is asked for first.
        let mut all = EventSeries::default();
        for (&(station, unit), &id) in &numbers {
            let event = StoredEvent {
                kind: "breach".into(),
                severity: EventSeverity::Critical,
                series: None,
                begin_ns: 0,
                end_ns: None,
                title: String::new(),
                evidence: json!({"labels": {
                    "station": station, "unit": unit, "target": "gw", "class": "BE",
                }}),
            };
            let found = all.of(&event, &store);
            assert_eq!(found.series, Some(id), "{station} {unit}");
            assert_eq!(found.evidence.get("series"), None, "{station} {unit}");
        }
    }
}
