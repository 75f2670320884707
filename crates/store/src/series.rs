//! Series: who measured what, of whom. Registered once; every row refers to one by its number.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

/// The number of a series in one store. Never used again for another one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct SeriesId(pub u32);

/// Which way a series looks.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum SeriesDirection {
    /// There and back: its rows hold both directions.
    #[default]
    RoundTrip,
    /// From the station to the target.
    Forward,
    /// From the target to the station.
    Backward,
}

impl SeriesDirection {
    /// Its name, as labels have it.
    pub fn name(self) -> &'static str {
        match self {
            SeriesDirection::RoundTrip => "round_trip",
            SeriesDirection::Forward => "forward",
            SeriesDirection::Backward => "backward",
        }
    }
}

/// What a series is known by. Two series with equal labels are one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct SeriesLabels {
    /// The station that measures.
    pub station: String,
    /// Where that is.
    pub site: String,
    /// Target, interface or exporter, as the user named it.
    pub target: String,
    /// Class of service.
    pub class: String,
    /// What measures: [`MODULE_STAMP`], [`MODULE_FLOW`], [`MODULE_RTT`], [`MODULE_INTERFACE`].
    pub module: String,
    /// Which way it looks.
    pub direction: SeriesDirection,
    /// Source port; 0: none, or not fixed.
    pub source_port: u16,
    /// Destination port; 0: none, or not fixed.
    pub destination_port: u16,
    /// The user's own labels.
    pub free: BTreeMap<String, String>,
}

impl SeriesLabels {
    /// The label `name`, a free one too. `None`: there is no such label.
    pub fn get(&self, name: &str) -> Option<String> {
        Some(match name {
            "station" => self.station.clone(),
            "site" => self.site.clone(),
            "target" => self.target.clone(),
            "class" => self.class.clone(),
            "module" => self.module.clone(),
            "direction" => self.direction.name().to_owned(),
            "source_port" => self.source_port.to_string(),
            "destination_port" => self.destination_port.to_string(),
            other => return self.free.get(other).cloned(),
        })
    }
}

/// The label `module` of probes' streams.
pub const MODULE_STAMP: &str = "stamp";
/// The label `module` of exporters of flows.
pub const MODULE_FLOW: &str = "flow";
/// The label `module` of units that measure passive round-trip times.
pub const MODULE_RTT: &str = "rtt";
/// The label `module` of counters of interfaces.
pub const MODULE_INTERFACE: &str = "interface";

/// A registered series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// Its number.
    pub id: SeriesId,
    /// What it is known by.
    pub labels: SeriesLabels,
}

/// Which series: all that have each of these labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeriesFilter {
    /// Only these numbers; empty: any.
    pub ids: Vec<SeriesId>,
    /// Label and value, each of which must be equal.
    pub labels: BTreeMap<String, String>,
    /// Of round trips only these groups, as "192.0.2.0/24"; empty: all.
    pub groups: Vec<String>,
}

impl SeriesFilter {
    /// Those numbers and no others.
    pub fn of(ids: impl IntoIterator<Item = SeriesId>) -> Self {
        SeriesFilter { ids: ids.into_iter().collect(), ..SeriesFilter::default() }
    }

    /// Whether `series` is one of them.
    pub fn matches(&self, series: &Series) -> bool {
        (self.ids.is_empty() || self.ids.contains(&series.id))
            && self
                .labels
                .iter()
                .all(|(name, value)| series.labels.get(name).as_ref() == Some(value))
    }
}

/// All series of a store, in memory.
#[derive(Clone, Debug, Default)]
pub struct SeriesRegistry {
    /// By number; they are dense, from `first` on.
    all: Vec<Series>,
    first: u32,
    by_labels: HashMap<SeriesLabels, SeriesId>,
}

impl SeriesRegistry {
    /// An empty one whose numbers go on after those of `other`.
    pub fn after(other: &SeriesRegistry) -> Self {
        SeriesRegistry { first: other.next().0, ..SeriesRegistry::default() }
    }

    /// An empty one whose first number is `first`.
    pub(crate) fn starting_at(first: u32) -> Self {
        SeriesRegistry { first, ..SeriesRegistry::default() }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of these labels, if they are registered.
    pub fn find(&self, labels: &SeriesLabels) -> Option<SeriesId> {
        self.by_labels.get(labels).copied()
    }

    /// The number that the next new series gets.
    pub fn next(&self) -> SeriesId {
        SeriesId(self.first + self.all.len() as u32)
    }

    /// Adds a series under the next number; one that is there keeps its own.
    pub fn add(&mut self, labels: SeriesLabels) -> SeriesId {
        if let Some(id) = self.find(&labels) {
            return id;
        }
        let id = self.next();
        self.by_labels.insert(labels.clone(), id);
        self.all.push(Series { id, labels });
        id
    }

    /// Adds those of another one.
    pub fn extend(&mut self, other: &SeriesRegistry) {
        for series in other.iter() {
            self.add(series.labels.clone());
        }
    }

    /// The series of that number.
    pub fn get(&self, id: SeriesId) -> Option<&Series> {
        self.all.get(id.0.checked_sub(self.first)? as usize)
    }

    /// All, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Series> {
        self.all.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(target: &str, site: &str) -> SeriesLabels {
        SeriesLabels {
            target: target.into(),
            free: BTreeMap::from([("ring".to_owned(), site.to_owned())]),
            ..SeriesLabels::default()
        }
    }

    #[test]
    fn equal_labels_are_one_series_and_numbers_are_dense() {
        let mut all = SeriesRegistry::default();
        let a = all.add(labels("a", "x"));
        let b = all.add(labels("b", "x"));
        assert_eq!((a, b, all.add(labels("a", "x"))), (SeriesId(0), SeriesId(1), SeriesId(0)));
        assert_eq!(all.next(), SeriesId(2));
        assert_eq!(all.get(b).unwrap().labels.target, "b");
        assert_eq!(all.find(&labels("c", "x")), None);
    }

    #[test]
    fn a_filter_asks_for_each_label_that_it_names() {
        let series = Series { id: SeriesId(4), labels: labels("a", "x") };
        let filter = |name: &str, value: &str| SeriesFilter {
            labels: BTreeMap::from([(name.to_owned(), value.to_owned())]),
            ..SeriesFilter::default()
        };
        assert!(SeriesFilter::default().matches(&series));
        assert!(filter("ring", "x").matches(&series) && !filter("ring", "y").matches(&series));
        assert!(filter("direction", "round_trip").matches(&series));
        assert!(!filter("no-such", "").matches(&series));
        assert!(!SeriesFilter::of([SeriesId(5)]).matches(&series));
    }
}
