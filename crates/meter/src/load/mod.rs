//! Load for a device under test: what the frames look like, when each is due, and what became
//! of them. Whatever engine sends and receives, it is described and judged by what is here.
//!
//! [`Traffic`] says what one direction carries; [`headers`] makes the flows' headers from it.
//! [`LoadSchedule`] says when each frame is due. [`LossLog`] reads who arrived. [`LoadGenerator`] and
//! [`LoadAnalyser`] do in user space what the programs of `sonde-bpf` do in the kernel.

mod analyser;
mod arrival_window;
mod arrivals;
mod delays;
mod generator;
mod header;
mod hist;
mod losses;
mod neighbours;
mod questions;
mod schedule;
mod streams;
#[cfg(test)]
mod tests;
mod traffic;

pub use analyser::{LoadAnalyser, LoadAnalyserConfig};
pub use arrival_window::ArrivalWindow;
pub use arrivals::{SequenceArrivals, SequenceVerdict};
pub use delays::ArrivalDelays;
pub use generator::{CATCH_UP_MOST_NS, LoadGenerator};
pub use header::{HEADER_MAX, HeaderTemplate, headers};
pub use hist::FastHist;
pub use losses::LossLog;
pub use neighbours::NeighbourAnswers;
pub use questions::{answered, question};
pub use schedule::{LoadSchedule, PutOff, catch_up_ns};
pub use sonde_wire::ethernet::FCS_LEN;
pub use streams::{STREAMS_KEPT, fill_streams};
pub use traffic::{AddressRule, LoadError, MacRule, PortRule, Traffic, ValueOrder};
