//! `sonde flow verify`: what an exporter said, held against the truth, as CESNET's FlowTest
//! does it: by sums (statistical), flow by flow (precise), field by field (validation).
//!
//! Memory: about 150 bytes a flow of the truth, as long as it comes in no more than a record a
//! direction, else about 600, whatever the exporter sends; 96 more where fields are compared;
//! of what differs, counts and a few examples.

pub mod args;
mod csv;
mod entries;
mod examples;
mod listen;
mod messages;
mod observed;
mod report;
mod segments;
mod source;
mod table;
#[cfg(test)]
mod tests;

use anyhow::anyhow;

use self::args::VerifyArgs;
use self::messages::Exporters;
use self::observed::Observed;
use self::report::Report;
use self::table::{Limits, Table};
use crate::exit::{Exit, Failure};

/// Reads the truth, then all that was exported; prints what differs.
pub fn run(args: &VerifyArgs) -> Result<Exit, Failure> {
    if args.files.is_empty() && args.listen.is_none() {
        return Err(Failure::Usage(anyhow!("name files, or where to listen with --listen")));
    }
    let mut table = Table::new(limits(args));
    csv::read_truth(&args.truth, args.truth_start, &mut |flow| table.add_truth(&flow))?;
    table.truth_is_complete();
    let mut exporters = Exporters::default();
    for (session, path) in args.files.iter().enumerate() {
        let mut take = |flow: &Observed| table.add(flow);
        source::read(path, session as u32, &mut exporters, &mut take)?;
    }
    if let Some(listen) = &args.listen {
        listen::collect(listen, args.until_idle, &mut exporters, &mut |flow| table.add(flow))?;
    }
    let report = Report::new(table.finish(), exporters.counters(), args);
    if args.json {
        let text = serde_json::to_string_pretty(&report).map_err(anyhow::Error::from)?;
        outln!("{text}");
    } else {
        crate::console::print(&report.to_string());
    }
    // Code 1: it ran, and the answer is no.
    Ok(if report.exact { Exit::Ok } else { Exit::NoReply })
}

fn limits(args: &VerifyArgs) -> Limits {
    Limits {
        idle_ns: args.idle,
        active_ns: args.active,
        time_tolerance_ns: args.time_tolerance,
        late_ns: args.late_limit,
        subnets: args.subnet.clone(),
        every_ns: args.every,
        fields: args.model == args::Model::Validation,
        show: args.show,
    }
}
