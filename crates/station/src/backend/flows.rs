//! The largest flows.

use sonde_api::datum::{Datum, DatumColumn, ReadingUnit};
use sonde_api::flows::{
    FlowField, FlowNotes, FlowPointTable, FlowQueries, FlowQuery, FlowRank, FlowTopTable, FlowUnit,
};
use sonde_api::problem::{ProblemDetails, ProblemKind};
use sonde_store::query::{FlowDimension, FlowMeasure, TimeRange, Top, TopRow, TopTable};
use sonde_store::{Answer, Query};

use super::windows::{aligned, level_of};
use super::{StationBackend, other_answer};
use crate::service::utc_now;

impl FlowQueries for StationBackend {
    fn flow_top(&self, ask: &FlowQuery) -> Result<FlowTopTable, ProblemDetails> {
        let refused = |name, why: &str| {
            Err(ProblemDetails::of_parameter(ProblemKind::Unprocessable, name, why))
        };
        if ask.rank != FlowRank::Avg {
            return refused("limit_by", "this station ranks by avg alone");
        }
        let Some(by) = ask.fields.iter().map(|&f| dimension(f)).collect::<Option<Vec<_>>>() else {
            return refused("dim", "this station knows no autonomous systems");
        };
        let only = ask.only.iter().map(|(f, value)| Some((dimension(*f)?, value.clone())));
        let Some(only) = only.collect::<Option<Vec<_>>>() else {
            return refused("only", "this station knows no autonomous systems");
        };
        let range = aligned(ask.range);
        let top = Top {
            range,
            by,
            only,
            measure: match ask.unit {
                FlowUnit::Bps => FlowMeasure::Bytes,
                FlowUnit::Pps => FlowMeasure::Packets,
                FlowUnit::Fps => FlowMeasure::Flows,
            },
            most: ask.limit as usize,
            ..Top::default()
        };
        let response = self.query(&Query::Top(top))?;
        let computed =
            level_of(&response, response.range.to_ns - response.range.from_ns, utc_now());
        let range = response.range;
        let Answer::Top(TopTable { rows, other }) = response.answer else {
            return Err(other_answer());
        };
        let trimmed: u64 =
            rows.iter().filter(|r| r.values.iter().any(|v| v == "*")).map(octets).sum();
        let all = rows.iter().chain([&other]).map(octets).sum::<u64>();
        let columns = columns(ask.unit, rows.iter().chain([&other]), range);
        Ok(FlowTopTable {
            computed,
            fields: ask.fields.clone(),
            rows: rows.into_iter().chain([other]).map(|row| row.values).collect(),
            columns,
            notes: FlowNotes {
                sampled_share: 0.0,
                trimmed_share: if all == 0 { 0.0 } else { trimmed as f64 / all as f64 },
            },
        })
    }

    fn flow_points(&self, _: &FlowQuery, _: u32) -> Result<FlowPointTable, ProblemDetails> {
        Err(ProblemDetails::not_offered("flows over time"))
    }
}

fn octets(row: &TopRow) -> u64 {
    row.bytes + row.reverse_bytes
}

fn columns<'a>(
    unit: FlowUnit,
    rows: impl Iterator<Item = &'a TopRow>,
    range: TimeRange,
) -> Vec<DatumColumn> {
    let seconds = (range.to_ns - range.from_ns) as f64 / 1e9;
    let total_unit = match unit {
        FlowUnit::Bps => ReadingUnit::Octets,
        FlowUnit::Pps | FlowUnit::Fps => ReadingUnit::Count,
    };
    let mut avg = DatumColumn::new("avg", unit.unit());
    let mut total = DatumColumn::new("total", total_unit);
    for row in rows {
        let (sum, per_second) = match unit {
            FlowUnit::Bps => (octets(row), 8.0),
            FlowUnit::Pps => (row.packets + row.reverse_packets, 1.0),
            FlowUnit::Fps => (row.flows, 1.0),
        };
        avg.push(Datum::sure(sum as f64 * per_second / seconds, row.flows));
        total.push(Datum::sure(sum as f64, row.flows));
    }
    vec![avg, total]
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
