//! What was said of objectives: verdicts with their evidence, availability, events, months.
//!
//! `sonde_meter::sla` decides; what it decided is stored, shown and printed from these types.
//! Instants are nanoseconds since 1970-01-01 UTC. Ranges of time are half-open.

mod availability;
mod doubt;
mod event;
mod month;
mod report;
mod standard;
mod verdict;

pub use availability::{AvailabilityLabel, AvailabilityTotals, ExcludedTime};
pub use doubt::{OWN_REASONS, loss_doubt, own_doubt};
pub use event::{LossDirection, LossEpisode, SlaEvent, SlaEventKind, StreamLoss};
pub use month::{CaveatIntervals, ObjectiveMonth, SecondTotals, WindowTotals};
pub use report::{GroupObjective, SlaReport};
pub use standard::{Standard, StandardText};
pub use verdict::{
    BoundSense, Evidence, Exclusion, ExclusionKind, MeasuredDirection, ObjectiveUnit,
    ObjectiveVerdict, UndecidedReason,
};
