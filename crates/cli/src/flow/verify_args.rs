//! What can be typed after `sonde flow verify`.

use std::path::PathBuf;

use clap::Args;
use sonde_results::units::{parse_duration, parse_positive_duration, parse_share};
use sonde_run::flow::verify::Settings;
use sonde_run::flow::verify::settings::{EvaluationModel, Listen};
use sonde_wire::prefix::Prefix;

use crate::choice::choice;
use crate::number::whole;

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct VerifyArgs {
    /// What was exported: IPFIX files (RFC 5655), captures of NetFlow v5, v9 or IPFIX over UDP, or
    /// CSV. CSV has FlowTest's columns, or is of 'nfdump -o csv' (its times in UTC). Also gzip or
    /// zstd; - is standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The truth: CSV of 'sonde gen flows --truth' or of FlowTest, uniflow or biflow
    #[arg(long, value_name = "FILE", required = true)]
    pub truth: PathBuf,
    /// Collect live: udp://ADDR:PORT or tcp://ADDR:PORT, after FILEs
    #[arg(long, value_name = "URL")]
    pub listen: Option<Listen>,
    /// --listen: the exporter has ended when nothing came for this time, once something came
    #[arg(long, value_name = "TIME", default_value = "5s", requires = "listen",
          value_parser = parse_positive_duration)]
    pub until_idle: i64,
    /// What must agree
    #[arg(long, value_parser = choice::<EvaluationModel>(), value_name = "MODEL", default_value = "precise")]
    pub model: EvaluationModel,
    /// The exporter's idle time-out: records so far apart are one flow, rightly split
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub idle: Option<i64>,
    /// The exporter's active time-out: records of longer flows are rightly split
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub active: Option<i64>,
    /// Times may be so far off; of sources with times in seconds only, a second
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse_duration)]
    pub time_tolerance: i64,
    /// Records exported later than this after their last packet are late (message headers have
    /// seconds only, so allow one more) [default: shown, not judged]
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub late_limit: Option<i64>,
    /// statistical: relative difference that is allowed, 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0",
          value_parser = |t: &str| parse_share(t, 1.0))]
    pub tolerance: f64,
    /// Sums of this prefix, too; may be given more than once
    #[arg(long, value_name = "PREFIX")]
    pub subnet: Vec<Prefix>,
    /// Sums of each such interval of the flows' beginnings, too
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub every: Option<i64>,
    /// The truth's times count from this time, ms since 1970 UTC
    #[arg(long, value_name = "MS", default_value = "0", value_parser = whole(0..=i64::MAX))]
    pub truth_start: i64,
    /// Examples to show of each kind of difference
    #[arg(long, value_name = "N", default_value = "5",
          value_parser = whole(0..=10_000_u16))]
    pub show: u16,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

impl VerifyArgs {
    /// What is held against the truth, and how.
    pub fn settings(&self) -> Settings {
        Settings {
            files: self.files.clone(),
            truth: self.truth.clone(),
            listen: self.listen,
            until_idle: self.until_idle,
            model: self.model,
            idle: self.idle,
            active: self.active,
            time_tolerance: self.time_tolerance,
            late_limit: self.late_limit,
            tolerance: self.tolerance,
            subnet: self.subnet.clone(),
            every: self.every,
            truth_start: self.truth_start,
            show: self.show,
        }
    }
}

const HELP: &str = "\
Example:
  sonde flow verify --truth t.csv flows.ipfix
  sonde flow verify --truth t.csv --idle 15s --active 60s --model validation flows.ipfix
  sonde flow verify --truth t.csv --listen udp://127.0.0.1:4739 --json
Truth and exporter may each have uniflows or biflows. docs/traffic.md explains the models.
Exit codes: 0 nothing differs, 1 something does, 2 usage, 3 cannot run.";
