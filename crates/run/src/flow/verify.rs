//! `sonde flow verify`: what an exporter said, held against the truth, as CESNET's FlowTest
//! does it: by sums (statistical), flow by flow (precise), field by field (validation).
//!
//! Memory: about 150 bytes a flow of the truth, as long as it comes in no more than a record a
//! direction, else about 600, whatever the exporter sends; 96 more where fields are compared;
//! of what differs, counts and a few examples.

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

use anyhow::anyhow;

use self::messages::Exporters;
use self::observed::Observed;
pub use self::report::Report;
pub use self::settings::Settings;
use self::table::{Limits, Table};
use crate::error::RunError;
use crate::running::Context;

/// Reads the truth, then all that was exported: what differs. The end of `context` ends the
/// collecting.
///
/// # Errors
/// Nothing to compare; files that cannot be read.
pub fn verify(settings: &Settings, context: &Context) -> Result<Report, RunError> {
    settings.check().map_err(|why| RunError::Settings(anyhow!(why)))?;
    let mut table = Table::new(limits(settings));
    csv::read_truth(&settings.truth, settings.truth_start, &mut |flow| table.add_truth(&flow))?;
    table.truth_is_complete();
    let mut exporters = Exporters::default();
    for (session, path) in settings.files.iter().enumerate() {
        let mut take = |flow: &Observed| table.add(flow);
        source::read(path, session as u32, &mut exporters, &mut take)?;
    }
    if let Some(listen) = &settings.listen {
        let mut take = |flow: &Observed| table.add(flow);
        listen::collect(listen, settings.until_idle, &context.stop, &mut exporters, &mut take)?;
    }
    Ok(Report::new(table.finish(), exporters.counters(), settings))
}

fn limits(settings: &Settings) -> Limits {
    Limits {
        idle_ns: settings.idle,
        active_ns: settings.active,
        time_tolerance_ns: settings.time_tolerance,
        late_ns: settings.late_limit,
        subnets: settings.subnet.clone(),
        every_ns: settings.every,
        fields: settings.model == settings::Model::Validation,
        show: settings.show,
    }
}
