//! STAMP (RFC 8762, RFC 8972) and TWAMP Light (RFC 5357, appendix I).

mod check;
mod delays;
mod demux;
mod doubts;
mod pages;
mod probe;
pub mod reflector;
pub mod sample;
mod schedule;
pub mod sender;
pub mod sender_counters;
mod side;
pub mod spec;
mod stream;

pub use check::SpecError;
pub use delays::Delays;
pub use reflector::{
    RateLimit, Reflector, ReflectorConfig, ReflectorCounters, ReflectorError, ReflectorInterval,
    ReplyCounter,
};
pub use sample::{Fate, Sample};
pub use sender::Sender;
pub use sender_counters::SenderCounters;
pub use spec::{LinkHeader, NextHopLink, ReflectorKind, Schedule, SenderConfig, StreamSpec};
