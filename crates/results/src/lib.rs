//! The numbers: histograms, interval records, runs and caveats.
//!
//! Everything Sonde prints, saves or serves is rendered from these types. Times
//! are nanoseconds; instants are nanoseconds since 1970-01-01, TAI within a run and UTC in
//! what it writes ([`ToUtc`]).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod advice;
pub mod bench;
pub mod caveat;
pub mod choice;
pub mod civil_time;
pub mod flow;
pub mod flow_run;
pub mod hist;
pub mod not_sent;
pub mod plain_text;
pub mod procedure;
pub mod record;
pub mod rtt;
mod rtt_buckets;
mod rtt_choices;
pub mod rtt_run;
pub mod run;
pub mod schema;
pub mod sla;
pub mod stats;
#[cfg(feature = "testing")]
pub mod testing;
pub mod trial;
pub mod units;
mod utc;

pub use bench::BenchRun;
pub use caveat::Caveat;
pub use flow_run::FlowRun;
pub use hist::Hist;
pub use not_sent::NotSentCounts;
pub use record::{Counters, Interval, LossSide, StreamInfo};
pub use rtt_run::RttRun;
pub use run::{HostInfo, Run, RunConfig, RunHeader};
pub use trial::Trial;
pub use utc::ToUtc;
