//! Flows over time: the largest groups as series of windows, and all others as one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::top::{FlowDimension, FlowMeasure, host_value, value};
use super::{Run, Scan, TimeRange, plan};
use crate::MINUTE_NS;
use crate::error::StoreError;
use crate::flow::FlowRow;
use crate::series::SeriesFilter;
use crate::table::Table;

/// Asks how the largest groups of flows went over time.
///
/// Where single records answer (windows that are none of a roll-up, or hosts), the packets of a
/// record are spread evenly over the time in which they were sent. Of roll-ups a record belongs to
/// the window in which its last packet was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowPoints {
    /// Of this time.
    pub range: TimeRange,
    /// Length of a window, ns.
    pub step_ns: i64,
    /// Of these exporters.
    pub filter: SeriesFilter,
    /// What rows have in common.
    pub by: Vec<FlowDimension>,
    /// Only flows with these values.
    pub only: Vec<(FlowDimension, String)>,
    /// What makes a group large.
    pub measure: FlowMeasure,
    /// Of which time it is to be large.
    pub rank: FlowPointRank,
    /// So many groups, the largest; the rest is one row.
    pub most: usize,
    /// Records come so long after their packets, at most, ns.
    pub late_ns: i64,
}

/// By which of its windows a group is large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowPointRank {
    /// By all of them together.
    #[default]
    Mean,
    /// By the greatest.
    Max,
    /// By the last.
    Last,
}

/// The largest groups over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowPointTable {
    /// First instant of each window, ns since 1970 UTC.
    pub starts_ns: Vec<i64>,
    /// Groups, the largest first.
    pub rows: Vec<FlowPointRow>,
    /// All others together; its `values` are empty.
    pub other: FlowPointRow,
}

/// A group over time: each list has a number for each window, of both directions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowPointRow {
    /// Of the dimensions that were asked for, as in [`super::TopRow`].
    pub values: Vec<String>,
    /// Records that have a part in the window.
    pub records: Vec<u64>,
    /// Records whose last packet was seen in the window.
    pub flows: Vec<u64>,
    /// Packets.
    pub packets: Vec<u64>,
    /// Bytes of IP.
    pub bytes: Vec<u64>,
}

impl Default for FlowPoints {
    fn default() -> Self {
        FlowPoints {
            range: TimeRange::default(),
            step_ns: 5 * MINUTE_NS,
            filter: SeriesFilter::default(),
            by: vec![FlowDimension::App],
            only: vec![],
            measure: FlowMeasure::default(),
            rank: FlowPointRank::default(),
            most: 10,
            late_ns: 5 * MINUTE_NS,
        }
    }
}

/// What a record, or a sum of them, has in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct FlowPart {
    window: usize,
    records: u64,
    flows: u64,
    packets: u64,
    bytes: u64,
}

impl FlowPart {
    fn size(&self, measure: FlowMeasure) -> u64 {
        match measure {
            FlowMeasure::Bytes => self.bytes,
            FlowMeasure::Packets => self.packets,
            FlowMeasure::Flows => self.flows,
        }
    }
}

/// How large a group is.
#[derive(Default)]
struct GroupSize {
    total: u64,
    last: u64,
    /// By window, where the greatest is looked for.
    windows: HashMap<usize, u64>,
}

/// The value of a dimension of what is read.
type ValueOf<'a> = dyn Fn(FlowDimension) -> String + 'a;

impl FlowPointRow {
    fn new(values: Vec<String>, windows: usize) -> FlowPointRow {
        let zeros = || vec![0; windows];
        let (records, flows, packets, bytes) = (zeros(), zeros(), zeros(), zeros());
        FlowPointRow { values, records, flows, packets, bytes }
    }

    fn add(&mut self, part: &FlowPart) {
        self.records[part.window] += part.records;
        self.flows[part.window] += part.flows;
        self.packets[part.window] += part.packets;
        self.bytes[part.window] += part.bytes;
    }
}

/// Takes values and what stands in which window.
type PartSink<'a> = dyn FnMut(&ValueOf, &[FlowPart]) -> Result<(), StoreError> + 'a;

impl FlowPoints {
    pub(super) fn answer(&self, run: &mut Run) -> Result<FlowPointTable, StoreError> {
        if self.by.is_empty() {
            let what = "flows with nothing in common have no largest".to_owned();
            return Err(StoreError::Query { what, help: "name one dimension at least" });
        }
        let named = self.by.iter().chain(self.only.iter().map(|(dimension, _)| dimension));
        let hosts =
            named.clone().any(|d| matches!(d, FlowDimension::Source | FlowDimension::Destination));
        let (level, range) = plan::pick(run.source, Table::Flow, self.range, self.step_ns)?;
        // Roll-ups have no hosts.
        (run.level, run.range) =
            if hosts { (Some(Table::Flow), self.range) } else { (Some(level), range) };
        let windows = run.windows(run.range, self.step_ns)?;
        run.check_answer(windows.saturating_mul(self.most.saturating_add(1)))?;

        // First which groups are large, then their windows: those of all would fill the memory.
        let mut sizes: BTreeMap<Vec<String>, GroupSize> = BTreeMap::new();
        let mut held = 0;
        self.scan(run, &mut |value, parts| {
            let size = sizes.entry(self.values(value)).or_default();
            for part in parts {
                let own = part.size(self.measure);
                size.total += own;
                if part.window + 1 == windows {
                    size.last += own;
                }
                if self.rank == FlowPointRank::Max {
                    let window = size.windows.entry(part.window).or_insert_with(|| {
                        held += 1;
                        0
                    });
                    *window += own;
                }
            }
            match sizes.len() as u64 + held > MOST_HELD {
                true => Err(StoreError::Limit { limit: MOST_HELD, of: "groups of flows" }),
                false => Ok(()),
            }
        })?;
        let mut sizes: Vec<(Vec<String>, (u64, u64))> = sizes
            .into_iter()
            .map(|(values, size)| {
                let first = match self.rank {
                    FlowPointRank::Mean => size.total,
                    FlowPointRank::Max => size.windows.into_values().max().unwrap_or(0),
                    FlowPointRank::Last => size.last,
                };
                (values, (first, size.total))
            })
            .collect();
        // The map's order decides ties.
        sizes.sort_by_key(|(_, size)| Reverse(*size));
        sizes.truncate(self.most);
        let places: HashMap<Vec<String>, usize> =
            sizes.iter().enumerate().map(|(at, (values, _))| (values.clone(), at)).collect();
        let mut rows: Vec<FlowPointRow> =
            sizes.into_iter().map(|(values, _)| FlowPointRow::new(values, windows)).collect();
        let mut other = FlowPointRow::new(Vec::new(), windows);
        self.scan(run, &mut |value, parts| {
            let row = match places.get(&self.values(value)) {
                Some(&at) => &mut rows[at],
                None => &mut other,
            };
            parts.iter().for_each(|part| row.add(part));
            Ok(())
        })?;
        let start = |window: usize| run.range.from_ns + window as i64 * self.step_ns;
        Ok(FlowPointTable { starts_ns: (0..windows).map(start).collect(), rows, other })
    }

    fn values(&self, value: &ValueOf) -> Vec<String> {
        self.by.iter().map(|&dimension| value(dimension)).collect()
    }

    /// Reads all that is asked for; `sink` gets values and what stands in which window.
    fn scan(&self, run: &mut Run, sink: &mut PartSink<'_>) -> Result<(), StoreError> {
        let (level, range) = (run.level.unwrap_or(Table::Flow), run.range);
        let late = if level == Table::Flow { self.late_ns.max(0) } else { 0 };
        let scan = Scan {
            from_ns: range.from_ns,
            to_ns: range.to_ns.saturating_add(late),
            series: Some(run.select(&self.filter).iter().map(|s| s.id.0).collect()),
            columns: &[],
        };
        let is_asked = |value: &ValueOf| {
            self.only.iter().all(|(dimension, wanted)| value(*dimension) == *wanted)
        };
        let Run { source, limit, scanned, .. } = run;
        if level != Table::Flow {
            return source.flow_sums(level, &scan, &mut |sum| {
                Run::count(scanned, limit)?;
                let value = |dimension| value(sum, dimension);
                if !is_asked(&value) {
                    return Ok(());
                }
                let window = (sum.start_ns - range.from_ns) / self.step_ns;
                let part = FlowPart {
                    window: usize::try_from(window).unwrap_or(0),
                    records: sum.flows,
                    flows: sum.flows,
                    packets: sum.packets + sum.reverse_packets,
                    bytes: sum.bytes + sum.reverse_bytes,
                };
                sink(&value, &[part])
            });
        }
        let mut parts = Vec::new();
        source.flows(&scan, &mut |row| {
            Run::count(scanned, limit)?;
            self.spread(row, range, &mut parts);
            if parts.is_empty() {
                return Ok(());
            }
            let sum = row.to_sum(Table::Flow5m.step_ns());
            let value =
                |dimension| host_value(row, dimension).unwrap_or_else(|| value(&sum, dimension));
            match is_asked(&value) {
                true => sink(&value, &parts),
                false => Ok(()),
            }
        })
    }

    /// What a record has in each window of `range`, as if it had sent evenly. No packet and no
    /// octet is lost by rounding: what is counted up to a window's end is.
    fn spread(&self, row: &FlowRow, range: TimeRange, parts: &mut Vec<FlowPart>) {
        parts.clear();
        let (first, last, step) = (row.first_ns(), row.last_ns, self.step_ns);
        let (begin, end) = (first.max(range.from_ns), last.min(range.to_ns - 1));
        if begin > end {
            return;
        }
        let packets = row.forward.packets + row.reverse.packets;
        let bytes = row.forward.bytes + row.reverse.bytes;
        let length = i128::from(last) - i128::from(first);
        // All of what was sent before an instant.
        let before = |all: u64, at: i64| {
            if at > last {
                return all;
            }
            if length == 0 {
                return 0;
            }
            let sent = (i128::from(at) - i128::from(first)).max(0);
            (i128::from(all) * sent / length) as u64
        };
        let window_of = |at: i64| (at - range.from_ns) / step;
        for window in window_of(begin)..=window_of(end) {
            let from = range.from_ns + window * step;
            let to = from.saturating_add(step).min(range.to_ns);
            parts.push(FlowPart {
                window: usize::try_from(window).unwrap_or(0),
                records: 1,
                flows: u64::from((from..to).contains(&last)),
                packets: before(packets, to) - before(packets, from),
                bytes: before(bytes, to) - before(bytes, from),
            });
        }
    }
}

/// Groups, and windows of them, that are held in memory.
const MOST_HELD: u64 = 2_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(first: i64, last: i64, bytes: u64) -> FlowRow {
        let mut row = FlowRow { last_ns: last, duration_ns: last - first, ..FlowRow::default() };
        (row.forward.bytes, row.forward.packets) = (bytes, 3);
        row
    }

    fn spread(row: &FlowRow, from_ns: i64, to_ns: i64, step_ns: i64) -> Vec<(usize, u64, u64)> {
        let query = FlowPoints { step_ns, ..FlowPoints::default() };
        let mut parts = Vec::new();
        query.spread(row, TimeRange { from_ns, to_ns }, &mut parts);
        parts.iter().map(|part| (part.window, part.bytes, part.flows)).collect()
    }

    #[test]
    fn octets_belong_to_the_time_in_which_they_were_sent_and_none_is_lost() {
        let even = row(5, 25, 100);
        assert_eq!(spread(&even, 0, 30, 10), [(0, 25, 0), (1, 50, 0), (2, 25, 1)]);
        assert_eq!(spread(&even, 10, 20, 10), [(0, 50, 0)]);
        assert_eq!(spread(&even, 0, 5, 5), []);
        assert_eq!(spread(&even, 25, 30, 5), [(0, 0, 1)], "its last packet");
        assert_eq!(spread(&row(7, 7, 9), 0, 30, 10), [(0, 9, 1)]);
        assert_eq!(spread(&row(10, 10, 9), 0, 30, 10), [(1, 9, 1)]);
        let odd = spread(&row(1, 29, 1_000), 0, 30, 4);
        assert_eq!(odd.iter().map(|(_, bytes, _)| bytes).sum::<u64>(), 1_000);
        assert_eq!(odd.iter().map(|(.., flows)| flows).sum::<u64>(), 1);
        // A last window that is cut.
        assert_eq!(spread(&row(0, 40, 400), 0, 25, 10), [(0, 100, 0), (1, 100, 0), (2, 50, 0)]);
    }
}
