//! The largest of flows, by what they have in common.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Run, Scan, TimeRange, plan};
use crate::error::StoreError;
use crate::flow::{FlowRow, FlowSum, unmapped};
use crate::hist_blob::HistSum;
use crate::series::SeriesFilter;
use crate::table::Table;

/// What flows may have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowDimension {
    /// What exported them, by the number of its series.
    Exporter,
    /// Index of the interface.
    Point,
    /// IP protocol number.
    Protocol,
    /// The lower port; of ICMP type and code.
    ServicePort,
    /// What the application layer is.
    App,
    /// Source network: /24 or /48.
    SourceNet,
    /// Destination network: /24 or /48.
    DestinationNet,
    /// Source address: only of records at the full rate.
    Source,
    /// Destination address: only of records at the full rate.
    Destination,
}

/// What makes a flow large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowMeasure {
    /// Bytes of IP, both directions.
    #[default]
    Bytes,
    /// Packets, both directions.
    Packets,
    /// Flow records.
    Flows,
}

/// Asks for the largest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Top {
    /// Of this time.
    pub range: TimeRange,
    /// Of these exporters.
    pub filter: SeriesFilter,
    /// What rows have in common; at least one.
    pub by: Vec<FlowDimension>,
    /// What makes one large.
    pub measure: FlowMeasure,
    /// Only flows with these values.
    pub only: Vec<(FlowDimension, String)>,
    /// So many rows; the rest is one.
    pub most: usize,
}

impl Default for Top {
    fn default() -> Self {
        Top {
            range: TimeRange::default(),
            filter: SeriesFilter::default(),
            by: vec![FlowDimension::App],
            measure: FlowMeasure::Bytes,
            only: Vec::new(),
            most: 20,
        }
    }
}

/// The largest, and the rest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TopTable {
    /// Largest first; ties by their values.
    pub rows: Vec<TopRow>,
    /// All others together; its `values` are empty.
    pub other: TopRow,
}

/// Flows that have values in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TopRow {
    /// Of the dimensions that were asked for. Networks and ports that a roll-up did not keep by
    /// name are `*`.
    pub values: Vec<String>,
    /// Flow records.
    pub flows: u64,
    /// Packets from source to destination.
    pub packets: u64,
    /// Bytes from source to destination.
    pub bytes: u64,
    /// Packets from destination to source.
    pub reverse_packets: u64,
    /// Bytes from destination to source.
    pub reverse_bytes: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Handshakes that were seen whole.
    pub handshakes: u64,
    /// Their median, ns.
    pub handshake_median_ns: Option<i64>,
}

/// A group that is being added up.
#[derive(Clone, Debug, Default)]
struct Group {
    row: TopRow,
    handshake: HistSum,
}

impl Group {
    fn add(&mut self, sum: &FlowSum) {
        let row = &mut self.row;
        row.flows += sum.flows;
        row.packets += sum.packets;
        row.bytes += sum.bytes;
        row.reverse_packets += sum.reverse_packets;
        row.reverse_bytes += sum.reverse_bytes;
        row.retransmitted += sum.retransmitted;
        self.handshake.add(&sum.handshake);
    }

    fn merge(&mut self, other: &Group) {
        let (row, more) = (&mut self.row, &other.row);
        row.flows += more.flows;
        row.packets += more.packets;
        row.bytes += more.bytes;
        row.reverse_packets += more.reverse_packets;
        row.reverse_bytes += more.reverse_bytes;
        row.retransmitted += more.retransmitted;
        self.handshake.merge(&other.handshake);
    }

    fn finish(self) -> TopRow {
        TopRow {
            handshakes: self.handshake.head().count,
            handshake_median_ns: self.handshake.quantile(0.5),
            ..self.row
        }
    }
}

impl Top {
    pub(super) fn answer(&self, run: &mut Run) -> Result<TopTable, StoreError> {
        if self.by.is_empty() {
            let what = "flows with nothing in common have no largest".to_owned();
            return Err(StoreError::Query { what, help: "name one dimension at least" });
        }
        let groups = self.groups(run)?;
        let mut groups: Vec<(Vec<String>, Group)> = groups.into_iter().collect();
        // The map's order decides ties.
        groups.sort_by_key(|(_, group)| std::cmp::Reverse(self.size(&group.row)));
        let mut other = Group::default();
        let rest = groups.split_off(self.most.min(groups.len()));
        rest.iter().for_each(|(_, group)| other.merge(group));
        run.check_answer(groups.len())?;
        let rows = groups.into_iter().map(|(values, group)| TopRow { values, ..group.finish() });
        Ok(TopTable { rows: rows.collect(), other: other.finish() })
    }

    fn size(&self, row: &TopRow) -> u64 {
        match self.measure {
            FlowMeasure::Bytes => row.bytes + row.reverse_bytes,
            FlowMeasure::Packets => row.packets + row.reverse_packets,
            FlowMeasure::Flows => row.flows,
        }
    }

    /// All groups.
    fn groups(&self, run: &mut Run) -> Result<BTreeMap<Vec<String>, Group>, StoreError> {
        let named = self.by.iter().chain(self.only.iter().map(|(dimension, _)| dimension));
        let hosts =
            named.clone().any(|d| matches!(d, FlowDimension::Source | FlowDimension::Destination));
        let (level, range) = match hosts {
            // Roll-ups have no hosts.
            true => (Table::Flow, self.range),
            false => plan::pick(run.source, Table::Flow, self.range, 0)?,
        };
        (run.level, run.range) = (Some(level), range);
        let scan = Scan {
            from_ns: range.from_ns,
            to_ns: range.to_ns,
            series: Some(run.select(&self.filter).iter().map(|s| s.id.0).collect()),
            columns: &[],
        };
        let mut groups: BTreeMap<Vec<String>, Group> = BTreeMap::new();
        let Run { source, limit, scanned, .. } = run;
        let mut add = |sum: &FlowSum, value: &dyn Fn(FlowDimension) -> String| {
            Run::count(scanned, limit)?;
            if self.only.iter().all(|(dimension, wanted)| value(*dimension) == *wanted) {
                let values = self.by.iter().map(|&dimension| value(dimension)).collect();
                groups.entry(values).or_default().add(sum);
            }
            match groups.len() as u64 > limit.scanned_rows.min(MOST_GROUPS) {
                true => Err(StoreError::Limit { limit: MOST_GROUPS, of: "groups of flows" }),
                false => Ok(()),
            }
        };
        if level == Table::Flow {
            source.flows(&scan, &mut |row| {
                let sum = row.to_sum(Table::Flow5m.step_ns());
                add(&sum, &|dimension| {
                    host_value(row, dimension).unwrap_or_else(|| value(&sum, dimension))
                })
            })?;
        } else {
            source
                .flow_sums(level, &scan, &mut |sum| add(sum, &|dimension| value(sum, dimension)))?;
        }
        Ok(groups)
    }
}

pub(super) fn host_value(row: &FlowRow, dimension: FlowDimension) -> Option<String> {
    match dimension {
        FlowDimension::Source => Some(unmapped(row.source).to_string()),
        FlowDimension::Destination => Some(unmapped(row.destination).to_string()),
        _ => None,
    }
}

pub(super) fn value(sum: &FlowSum, dimension: FlowDimension) -> String {
    let net = |octets: [u8; 16]| match octets == [0; 16] {
        true => "*".to_owned(),
        false => {
            let address = unmapped(octets);
            format!("{address}/{}", if address.is_ipv4() { 24 } else { 48 })
        }
    };
    let is_other = sum.source_net == [0; 16] && sum.destination_net == [0; 16];
    match dimension {
        FlowDimension::Exporter => sum.exporter.0.to_string(),
        FlowDimension::Point => sum.point.to_string(),
        FlowDimension::Protocol => sum.protocol.to_string(),
        FlowDimension::ServicePort if is_other => "*".to_owned(),
        FlowDimension::ServicePort => sum.service_port.to_string(),
        FlowDimension::App if is_other => "*".to_owned(),
        FlowDimension::App => sum.app.to_string(),
        FlowDimension::SourceNet | FlowDimension::Source => net(sum.source_net),
        FlowDimension::DestinationNet | FlowDimension::Destination => net(sum.destination_net),
    }
}

/// Groups that are held in memory.
const MOST_GROUPS: u64 = 2_000_000;
