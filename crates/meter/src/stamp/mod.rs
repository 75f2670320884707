//! STAMP (RFC 8762, RFC 8972) and TWAMP Light (RFC 5357, appendix I).

mod demux;
mod pages;
mod probe;
pub mod reflector;
mod schedule;
pub mod sender;
pub mod spec;
mod stream;

pub use reflector::{
    RateLimit, Reflector, ReflectorConfig, ReflectorCounters, ReflectorError, ReflectorRecord,
};
pub use sender::{Fate, Sample, Sender, SenderCounters, SpecError};
pub use spec::{LinkHeader, ReflectorKind, Schedule, SenderConfig, StreamSpec};
