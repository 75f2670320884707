//! Which series of the store an event is about.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sonde_store::series::{MODULE_RTT, MODULE_STAMP};
use sonde_store::{Series, SeriesId, StoreBackend, StoredEvent};

/// The series of each unit, target and class, as they were last read.
#[derive(Default)]
pub(super) struct EventSeries(BTreeMap<[String; 3], Vec<SeriesId>>);

impl EventSeries {
    /// The event with its series: the one, or all of them in its evidence.
    pub fn of(&mut self, event: &StoredEvent, store: &dyn StoreBackend) -> StoredEvent {
        let mut event = event.clone();
        let label = |name: &str| event.evidence["labels"][name].as_str().unwrap_or_default();
        let mut key = ["unit", "target", "class"].map(|name| label(name).to_owned());
        if key[0].starts_with("rtt.") {
            // A unit that watches traffic has one series with all groups.
            (key[1], key[2]) = (String::new(), String::new());
        } else if key[1].is_empty() {
            return event;
        }
        if !self.0.contains_key(&key) {
            self.read(&store.reader().series().unwrap_or_default());
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

    fn read(&mut self, all: &[Series]) {
        self.0.clear();
        for Series { id, labels } in all {
            let unit = labels.free.get("unit").cloned().unwrap_or_default();
            let key = match &*labels.module {
                MODULE_STAMP => [unit, labels.target.clone(), labels.class.clone()],
                MODULE_RTT => [unit, String::new(), String::new()],
                _ => continue,
            };
            self.0.entry(key).or_default().push(*id);
        }
    }
}

/// Series that an event names.
const MOST: usize = 200;
