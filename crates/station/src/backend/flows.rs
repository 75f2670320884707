//! The largest flows, and how they went over time.

use sonde_api::datum::{Datum, DatumColumn, ReadingUnit};
use sonde_api::flows::{
    FlowField, FlowNotes, FlowPointTable, FlowQueries, FlowQuery, FlowRank, FlowTopTable, FlowUnit,
};
use sonde_api::instant::UtcInstant;
use sonde_api::problem::{ProblemDetails, ProblemKind};
use sonde_api::readings::AnswerLevel;
use sonde_store::query::{
    FlowDimension, FlowMeasure, FlowPointRank, FlowPointRow, FlowPointTable as StoredPoints,
    FlowPoints, TimeRange,
};
use sonde_store::{Answer, Query};

use super::windows::{level_of, step_for, widened};
use super::{SLACK_NS, StationBackend, other_answer};
use crate::service::utc_now;
use crate::unit::Instrument;

impl FlowQueries for StationBackend {
    fn flow_top(&self, ask: &FlowQuery) -> Result<FlowTopTable, ProblemDetails> {
        let found = self.flows_over_time(ask, TOP_WINDOWS)?;
        let columns = columns(ask.unit, &found);
        Ok(FlowTopTable {
            computed: found.computed,
            fields: ask.fields.clone(),
            rows: found.rows.iter().map(|row| row.values.clone()).collect(),
            columns,
            notes: found.notes,
        })
    }

    fn flow_points(&self, ask: &FlowQuery, points: u32) -> Result<FlowPointTable, ProblemDetails> {
        let found = self.flows_over_time(ask, points)?;
        let column = |row: &FlowPointRow| {
            let mut column = DatumColumn::new(name_of(ask.unit), ask.unit.unit());
            (0..found.starts_ns.len()).for_each(|at| column.push(found.datum(ask.unit, row, at)));
            column
        };
        Ok(FlowPointTable {
            at_ms: found.starts_ns.iter().map(|ns| ns.div_euclid(1_000_000)).collect(),
            points: found.rows.iter().map(column).collect(),
            fields: ask.fields.clone(),
            rows: found.rows.into_iter().map(|row| row.values).collect(),
            computed: found.computed,
            notes: found.notes,
        })
    }
}

/// What the store answered, and what is known of its windows.
struct FlowsOverTime {
    computed: AnswerLevel,
    starts_ns: Vec<i64>,
    range: TimeRange,
    step_ns: i64,
    /// The last is the rest.
    rows: Vec<FlowPointRow>,
    /// Of each window, whether any record has a part in it.
    known: Vec<bool>,
    final_to: UtcInstant,
    notes: FlowNotes,
}

impl StationBackend {
    fn flows_over_time(
        &self,
        ask: &FlowQuery,
        points: u32,
    ) -> Result<FlowsOverTime, ProblemDetails> {
        let refused = |name| {
            let why = "this station knows no autonomous systems";
            ProblemDetails::of_parameter(ProblemKind::Unprocessable, name, why)
        };
        let by: Option<Vec<_>> = ask.fields.iter().map(|&field| dimension(field)).collect();
        let only = ask.only.iter().map(|(f, value)| Some((dimension(*f)?, value.clone())));
        let only: Option<Vec<_>> = only.collect();
        let step_ns = step_for(ask.range, points);
        let late_ns = self.flows_late_ns();
        let query = FlowPoints {
            range: widened(ask.range, step_ns),
            step_ns,
            by: by.ok_or_else(|| refused("dim"))?,
            only: only.ok_or_else(|| refused("only"))?,
            measure: match ask.unit {
                FlowUnit::Bps => FlowMeasure::Bytes,
                FlowUnit::Pps => FlowMeasure::Packets,
                FlowUnit::Fps => FlowMeasure::Flows,
            },
            rank: match ask.rank {
                FlowRank::Avg => FlowPointRank::Mean,
                FlowRank::Max => FlowPointRank::Max,
                FlowRank::Last => FlowPointRank::Last,
            },
            most: ask.limit as usize,
            late_ns,
            ..FlowPoints::default()
        };
        let response = self.query(&Query::FlowPoints(query))?;
        let final_to = utc_now().later(-late_ns);
        let computed = level_of(&response, step_ns, final_to);
        let range = response.range;
        let Answer::FlowPoints(StoredPoints { starts_ns, mut rows, other }) = response.answer
        else {
            return Err(other_answer());
        };
        let octets = |row: &FlowPointRow| row.bytes.iter().sum::<u64>();
        let trimmed = rows.iter().filter(|row| row.values.iter().any(|value| value == "*"));
        let trimmed: u64 = trimmed.map(octets).sum();
        rows.push(other);
        let all: u64 = rows.iter().map(octets).sum();
        let known = |at: usize| rows.iter().any(|row| row.records[at] > 0);
        Ok(FlowsOverTime {
            known: (0..starts_ns.len()).map(known).collect(),
            notes: FlowNotes {
                sampled_share: 0.0,
                trimmed_share: if all == 0 { 0.0 } else { trimmed as f64 / all as f64 },
            },
            computed,
            starts_ns,
            range,
            step_ns,
            rows,
            final_to,
        })
    }

    /// So long after a packet its record comes, at most, ns.
    fn flows_late_ns(&self) -> i64 {
        let config = self.core.config();
        let meters = config.plan.iter().filter_map(|(_, unit)| match &unit.instrument {
            Instrument::Flow(settings) => {
                Some(settings.metering.active.max(settings.metering.idle))
            }
            _ => None,
        });
        meters.max().unwrap_or(0).saturating_add(SLACK_NS)
    }
}

impl FlowsOverTime {
    /// How long a window is, s: the last may be cut.
    fn seconds(&self, at: usize) -> f64 {
        let start = self.starts_ns[at];
        let end = start.saturating_add(self.step_ns).min(self.range.to_ns);
        (end - start) as f64 / 1e9
    }

    fn datum(&self, unit: FlowUnit, row: &FlowPointRow, at: usize) -> Datum<f64> {
        let end = UtcInstant::from_ns(self.starts_ns[at].saturating_add(self.step_ns));
        match () {
            () if end > self.final_to => {
                Datum::Pending("records of flows that last are still to come".to_owned())
            }
            () if !self.known[at] => Datum::NoData("no flow was recorded in this time".to_owned()),
            () => {
                let (sum, per_second) = sum_at(unit, row, at);
                Datum::sure(sum as f64 * per_second / self.seconds(at), row.records[at])
            }
        }
    }
}

/// What a row has in a window, and what one of it is in the unit of a second.
fn sum_at(unit: FlowUnit, row: &FlowPointRow, at: usize) -> (u64, f64) {
    match unit {
        FlowUnit::Bps => (row.bytes[at], 8.0),
        FlowUnit::Pps => (row.packets[at], 1.0),
        FlowUnit::Fps => (row.flows[at], 1.0),
    }
}

fn name_of(unit: FlowUnit) -> &'static str {
    match unit {
        FlowUnit::Bps => "bps",
        FlowUnit::Pps => "pps",
        FlowUnit::Fps => "fps",
    }
}

/// Of each row what its points come to: mean and total of the whole time, the others of points
/// that are final.
fn columns(unit: FlowUnit, found: &FlowsOverTime) -> Vec<DatumColumn> {
    let total_unit = match unit {
        FlowUnit::Bps => ReadingUnit::Octets,
        FlowUnit::Pps | FlowUnit::Fps => ReadingUnit::Count,
    };
    let mut columns: Vec<DatumColumn> = ["avg", "min", "max", "last", "p95"]
        .map(|name| DatumColumn::new(name, unit.unit()))
        .into_iter()
        .chain([DatumColumn::new("total", total_unit)])
        .collect();
    let seconds = (found.range.to_ns - found.range.from_ns) as f64 / 1e9;
    for row in &found.rows {
        let windows = 0..found.starts_ns.len();
        let total: u64 = windows.clone().map(|at| sum_at(unit, row, at).0).sum();
        let per_second = if unit == FlowUnit::Bps { 8.0 } else { 1.0 };
        // A record with a part in several windows is one.
        let ended: u64 = row.flows.iter().sum();
        let n = ended.max(row.records.iter().copied().max().unwrap_or(0));
        let mut points: Vec<f64> = windows
            .filter_map(|at| match found.datum(unit, row, at) {
                Datum::Value { value, .. } => Some(value),
                _ => None,
            })
            .collect();
        let last = points.last().copied();
        points.sort_by(f64::total_cmp);
        // The least of which 95 % are no greater.
        let p95 = (points.len() * 95).div_ceil(100).checked_sub(1);
        let of = |value: Option<f64>| match value {
            Some(value) => Datum::sure(value, n),
            None => Datum::NoData("no point is final, or no flow was recorded".to_owned()),
        };
        let data = [
            Datum::sure(total as f64 * per_second / seconds, n),
            of(points.first().copied()),
            of(points.last().copied()),
            of(last),
            of(p95.and_then(|at| points.get(at).copied())),
            Datum::sure(total as f64, n),
        ];
        columns.iter_mut().zip(data).for_each(|(column, datum)| column.push(datum));
    }
    columns
}

fn dimension(field: FlowField) -> Option<FlowDimension> {
    Some(match field {
        FlowField::Exporter => FlowDimension::Exporter,
        FlowField::Interface => FlowDimension::Point,
        FlowField::Protocol => FlowDimension::Protocol,
        FlowField::Port => FlowDimension::ServicePort,
        FlowField::App => FlowDimension::App,
        FlowField::SrcAs | FlowField::DstAs => return None,
        FlowField::SrcNet => FlowDimension::SourceNet,
        FlowField::DstNet => FlowDimension::DestinationNet,
        FlowField::Src => FlowDimension::Source,
        FlowField::Dst => FlowDimension::Destination,
    })
}

/// Windows that the largest are computed of, at most.
const TOP_WINDOWS: u32 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_have_states_and_a_row_has_what_they_come_to() {
        let second = 1_000_000_000;
        let row = |bytes: [u64; 4], records: [u64; 4]| FlowPointRow {
            values: vec!["tls".into()],
            records: records.to_vec(),
            flows: records.to_vec(),
            packets: vec![1; 4],
            bytes: bytes.to_vec(),
        };
        let range = TimeRange { from_ns: 0, to_ns: 40 * second };
        let found = FlowsOverTime {
            computed: AnswerLevel {
                level: "raw".into(),
                step_ms: 10_000,
                from: UtcInstant::from_ms(0),
                to: UtcInstant::from_ms(40_000),
                final_to: UtcInstant::from_ms(30_000),
            },
            starts_ns: (0..4).map(|n| n * 10 * second).collect(),
            range,
            step_ns: 10 * second,
            rows: vec![row([1_000, 0, 0, 9_000], [2, 0, 0, 1]), row([0, 0, 500, 0], [0, 0, 1, 0])],
            known: vec![true, false, true, true],
            final_to: UtcInstant::from_ms(30_000),
            notes: FlowNotes::default(),
        };
        let at = |row: usize, at: usize| found.datum(FlowUnit::Bps, &found.rows[row], at);
        assert_eq!(at(0, 0), Datum::sure(800.0, 2));
        assert!(matches!(at(0, 1), Datum::NoData(_)));
        assert_eq!(at(0, 2), Datum::sure(0.0, 0), "others sent something");
        assert!(matches!(at(0, 3), Datum::Pending(_)));
        let columns = columns(FlowUnit::Bps, &found);
        let values: Vec<_> = columns.iter().map(|c| (&*c.name, c.values[0].unwrap())).collect();
        assert_eq!(
            values,
            [
                ("avg", 2_000.0),
                ("min", 0.0),
                ("max", 800.0),
                ("last", 0.0),
                ("p95", 800.0),
                ("total", 10_000.0)
            ]
        );
        assert_eq!(columns[0].n[0], 3);
    }
}
