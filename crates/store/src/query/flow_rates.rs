//! Flows of two times, with octets spread over the time in which they were sent.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Run, Scan, TimeRange};
use crate::MINUTE_NS;
use crate::error::StoreError;
use crate::flow::{FlowRow, unmapped};
use crate::series::{SeriesFilter, SeriesId};
use crate::table::Table;

/// Asks which flows are faster than before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowRates {
    /// This time.
    pub during: TimeRange,
    /// Held against this one.
    pub before: TimeRange,
    /// Of these exporters.
    pub filter: SeriesFilter,
    /// Records come so long after their packets, at most, ns.
    pub late_ns: i64,
    /// So many flows of each interface.
    pub most: usize,
}

impl Default for FlowRates {
    fn default() -> Self {
        FlowRates {
            during: TimeRange::default(),
            before: TimeRange::default(),
            filter: SeriesFilter::default(),
            late_ns: 5 * MINUTE_NS,
            most: 5,
        }
    }
}

/// An interface of an exporter, and its flows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowRatePoint {
    /// What exported them.
    pub exporter: SeriesId,
    /// Index of the interface.
    pub point: u8,
    /// Both directions in this time, bit/s.
    pub during_bps: f64,
    /// The same before.
    pub before_bps: f64,
    /// Those that grew most, the first the most.
    pub flows: Vec<FlowRate>,
}

/// Packets between two hosts that have a service in common, one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowRate {
    /// Where they come from.
    pub source: IpAddr,
    /// Where they go.
    pub destination: IpAddr,
    /// IP protocol number.
    pub protocol: u8,
    /// The lower port; of ICMP type * 256 + code.
    pub service_port: u16,
    /// In this time, bit/s.
    pub during_bps: f64,
    /// Before, bit/s.
    pub before_bps: f64,
}

type FlowName = (u32, u8, [u8; 16], [u8; 16], u8, u16);

impl FlowRates {
    pub(super) fn answer(&self, run: &mut Run) -> Result<Vec<FlowRatePoint>, StoreError> {
        let (during, before) = (self.during, self.before);
        if during.from_ns >= during.to_ns || before.from_ns >= before.to_ns {
            let what = "one of the two times is empty".to_owned();
            return Err(StoreError::Query { what, help: "give an end after the begin" });
        }
        let range = TimeRange {
            from_ns: before.from_ns.min(during.from_ns),
            to_ns: before.to_ns.max(during.to_ns).saturating_add(self.late_ns.max(0)),
        };
        // Roll-ups have no hosts.
        (run.level, run.range) = (Some(Table::Flow), range);
        let scan = Scan {
            from_ns: range.from_ns,
            to_ns: range.to_ns,
            series: Some(run.select(&self.filter).iter().map(|s| s.id.0).collect()),
            columns: &[],
        };
        let mut flows: BTreeMap<FlowName, (f64, f64)> = BTreeMap::new();
        let Run { source, limit, scanned, .. } = run;
        source.flows(&scan, &mut |row| {
            Run::count(scanned, limit)?;
            let (now, then) = (share(row, during), share(row, before));
            if now == 0.0 && then == 0.0 {
                return Ok(());
            }
            let mut add = |from, to, octets: u64| {
                let name = (row.exporter.0, row.point, from, to, row.protocol, row.service_port());
                let sums = flows.entry(name).or_default();
                sums.0 += octets as f64 * now;
                sums.1 += octets as f64 * then;
            };
            add(row.source, row.destination, row.forward.bytes);
            if row.reverse.bytes > 0 {
                add(row.destination, row.source, row.reverse.bytes);
            }
            match flows.len() as u64 > MOST_FLOWS {
                true => Err(StoreError::Limit { limit: MOST_FLOWS, of: "groups of flows" }),
                false => Ok(()),
            }
        })?;
        let bps = |octets: f64, of: TimeRange| octets * 8e9 / (of.to_ns - of.from_ns) as f64;
        let mut points: BTreeMap<(u32, u8), FlowRatePoint> = BTreeMap::new();
        for ((exporter, point, from, to, protocol, service_port), (now, then)) in flows {
            let (during_bps, before_bps) = (bps(now, during), bps(then, before));
            let of = points.entry((exporter, point)).or_insert_with(|| FlowRatePoint {
                exporter: SeriesId(exporter),
                point,
                during_bps: 0.0,
                before_bps: 0.0,
                flows: Vec::new(),
            });
            of.during_bps += during_bps;
            of.before_bps += before_bps;
            let (source, destination) = (unmapped(from), unmapped(to));
            of.flows.push(FlowRate {
                source,
                destination,
                protocol,
                service_port,
                during_bps,
                before_bps,
            });
        }
        let growth = |flow: &FlowRate| flow.during_bps - flow.before_bps;
        for point in points.values_mut() {
            point.flows.sort_by(|a, b| growth(b).total_cmp(&growth(a)));
            point.flows.truncate(self.most);
        }
        Ok(points.into_values().collect())
    }
}

/// Share of a flow's packets that fall into a time, as if it had sent evenly.
fn share(row: &FlowRow, range: TimeRange) -> f64 {
    let (first, last) = (row.first_ns(), row.last_ns);
    if first == last {
        return f64::from(u8::from((range.from_ns..range.to_ns).contains(&first)));
    }
    let common = (last.min(range.to_ns) - first.max(range.from_ns)).max(0);
    common as f64 / (last - first) as f64
}

/// Flows that are held in memory.
const MOST_FLOWS: u64 = 2_000_000;
