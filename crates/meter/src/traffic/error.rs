//! Why traffic cannot be made.

use thiserror::Error;

/// Why traffic cannot be made as it was asked for.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum TrafficError {
    #[error("{what}: {share} is not a share; write 0 to 1, all shares together at most 1")]
    Share { what: &'static str, share: f64 },
    /// No protocol is left.
    #[error("the protocols' weights must not be negative, and one must be above 0")]
    Protocols,
    /// Too many or none.
    #[error("{0} flows at once cannot be made; ask for 1 to {MAX_FLOWS}")]
    Flows(u32),
    /// No rate or no tick.
    #[error("the rate and the resolution of time must be above 0")]
    Rate,
    /// A law with impossible parameters.
    #[error("{0}")]
    Law(&'static str),
}

/// Most flows at once.
pub const MAX_FLOWS: u32 = 1 << 24;
