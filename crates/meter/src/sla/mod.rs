//! Service-level objectives: what was promised, whether it was kept, and on what evidence.
//!
//! Pure logic. Intervals of a subject go in, in the order of time; verdicts, events and the figures
//! of months come out (`sonde_results::sla`). Time is an argument: instants are ns since 1970 UTC.
//! The whole state can be saved, so that a station that is started anew goes on as if it had run.
//!
//! - [`Objective`] says what is promised, [`Objective::diagnose`] what is wrong with it, and
//!   [`Preset`] gives those of the standards.
//! - [`Judge`] judges one objective of one subject. It stands on [`SlidingAvailability`] or blocks,
//!   on counts at the edges of the histogram's buckets, and on [`Hysteresis`].
//! - [`GroupAvailability`] is that of a group, by the labels of its members.
//! - [`BurnAlert`] watches how fast an error budget is spent.
//! - [`MaintenanceWindow`] and [`sonde_results::sla::own_doubt`] say which time is left out.
//! - [`SideSettler`] gives losses the side that later answers prove.
//! - [`LossEpisodes`] and [`worse_members`] say where and between whom packets were lost.
//!
//! What users read of it stands in docs/sla.md.

mod burn;
mod digits;
mod episode;
mod group;
mod hysteresis;
mod judge;
mod maintenance;
mod members;
mod month;
mod objective;
mod open_window;
mod preset;
mod rule;
mod runs;
mod share;
mod sides;
mod sliding;
mod slot;
mod tally;
#[cfg(test)]
mod tests;
mod usual;
mod window;

pub use burn::{BurnAlert, BurnRule, BurnSample, BurnSeverity, BurnState};
pub use episode::LossEpisodes;
pub use group::{GroupAvailability, LabelledTime};
pub use hysteresis::{Crossing, Hysteresis};
pub use judge::{InputRefused, Judge, JudgeInput, JudgeOutput};
pub use maintenance::{MaintenanceTime, MaintenanceWindow, Weekday};
pub use members::{MemberCounts, WorseMember, dispersion, worse_members};
pub use objective::{Objective, ObjectiveError, ObjectiveLimit, ObjectiveMetric, OutOf};
pub use preset::Preset;
pub use rule::{AvailabilityRule, LEAST_PACKETS, SecondRule};
pub use runs::{AvailabilityRuns, LabelledIntervals};
pub use sides::SideSettler;
pub use sliding::{IntervalClass, SlidingAvailability};
pub use usual::{LEAST_WEEKS, Usual, WEEKS, same_hours};
pub use window::{ObjectiveWindow, TimeRange, month_at};
