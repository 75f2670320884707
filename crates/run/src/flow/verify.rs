//! `sonde flow verify`: what an exporter said, held against the truth, as CESNET's FlowTest does
//! it. It compares by sums (statistical), flow by flow (precise), field by field (validation).
//!
//! Memory: about 150 bytes a flow of the truth with at most one record a direction, else about
//! 600, whatever the exporter sends. 96 more where fields are compared. Of what differs, counts
//! and a few examples are kept.

mod csv;
mod entries;
mod examples;
mod listen;
mod messages;
mod observed;
mod report;
mod segments;
pub mod settings;
mod source;
mod table;
#[cfg(test)]
mod tests;

use std::cell::Cell;

use serde::Serialize;

use self::csv::TruthReader;
use self::listen::Bound;
use self::messages::Exporters;
use self::observed::ObservedFlow;
pub use self::report::Report;
pub use self::settings::Settings;
use self::table::{CompareOptions, ComparisonTable};
use crate::error::RunError;
use crate::running::{Context, Ended, Latest, Running, Stop, records};

/// A comparison at work. Its one record is what it comes to.
pub type Verifying = Running<Report, Status, ()>;

/// Progress of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Flows of the truth read so far.
    pub truth_flows: u64,
    /// Exported flow records read so far.
    pub records: u64,
}

/// Opens the truth and the address to listen on, then reads the truth and all that was exported.
/// The end of `context` ends the collecting; an urgent one gives files up, and then there is no
/// report.
///
/// # Errors
/// Nothing to compare; a truth that cannot be read; an address that cannot be listened on.
pub fn start(settings: Settings, context: &Context) -> Result<Verifying, RunError> {
    settings.check()?;
    let truth = TruthReader::open(&settings.truth, settings.truth_start)?;
    let bound = settings.listen.as_ref().map(Bound::to).transpose()?;
    let (sender, receiver) = records(1);
    let status = Latest::new(Status::default());
    let (stop, theirs) = (context.stop.clone(), status.clone());
    let asked = stop.clone();
    let work = move || {
        let compared = compare(&settings, truth, bound, &theirs, &asked);
        let Status { truth_flows, records } = theirs.get();
        let counters = [("truth_flows", truth_flows), ("records", records)];
        let counters = counters.map(|(name, n)| (name.to_owned(), n)).into();
        let failure = match compared {
            Ok(report) => {
                report.into_iter().for_each(|report| sender.push(report));
                None
            }
            Err(error) => Some(error),
        };
        Ended { counters, failure, ..Ended::default() }
    };
    Running::start("sonde-verify", (receiver, status, ()), stop, work)
}

/// Reads everything: what differs, unless it was given up.
fn compare(
    settings: &Settings,
    mut truth: TruthReader,
    bound: Option<Bound>,
    status: &Latest<Status>,
    stop: &Stop,
) -> Result<Option<Report>, RunError> {
    let mut table = ComparisonTable::new(limits(settings));
    let mut flows = 0u64;
    while let Some(flow) = truth.next()? {
        table.add_truth(&flow);
        flows += 1;
        if flows.is_multiple_of(REPORT_EVERY) {
            status.update(|s| s.truth_flows = flows);
            if stop.is_urgent() {
                return Ok(None);
            }
        }
    }
    status.update(|s| s.truth_flows = flows);
    table.truth_is_complete();
    let mut exporters = Exporters::default();
    let records = Cell::new(0);
    let report = || status.update(|s| s.records = records.get());
    let mut take = |flow: &ObservedFlow| {
        table.add(flow);
        records.set(records.get() + 1);
        if records.get().is_multiple_of(REPORT_EVERY) {
            report();
        }
    };
    for (session, path) in settings.files.iter().enumerate() {
        source::read(path, session as u32, &mut exporters, &mut take, stop)?;
        report();
        if stop.is_urgent() {
            return Ok(None);
        }
    }
    if let Some(bound) = bound {
        bound.collect(settings.until_idle, stop, &mut exporters, &mut take)?;
    }
    report();
    Ok(Some(Report::new(table.finish(), exporters.counters(), settings)))
}

/// Flows between two updates of the status.
const REPORT_EVERY: u64 = 1 << 12;

fn limits(settings: &Settings) -> CompareOptions {
    CompareOptions {
        idle_ns: settings.idle,
        active_ns: settings.active,
        time_tolerance_ns: settings.time_tolerance,
        late_ns: settings.late_limit,
        subnets: settings.subnet.clone(),
        every_ns: settings.every,
        fields: settings.model == settings::EvaluationModel::Validation,
        show: settings.show,
    }
}
