//! STAMP (RFC 8762, RFC 8972) and TWAMP Light (RFC 5357, appendix I).

pub mod spec;

pub use spec::{LinkHeader, ReflectorKind, Schedule, SenderConfig, StreamSpec};
