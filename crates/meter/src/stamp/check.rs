//! Whether a plan can be carried out.

use super::spec::{Schedule, SenderConfig, StreamSpec};

/// Why a sender cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("there is nothing to send to: name a host or a targets file")]
    NoStreams,
    /// A value is out of its range.
    #[error("stream {stream}: {what}")]
    Stream {
        /// Index of the stream.
        stream: usize,
        /// Which value, and its range.
        what: String,
    },
    /// A duration of the configuration is not positive.
    #[error("{0} must be longer than zero")]
    Duration(&'static str),
}

/// Checks every value that a sender relies on.
pub(crate) fn check(
    config: &SenderConfig,
    specs: &[StreamSpec],
    next_hops: usize,
) -> Result<(), SpecError> {
    for (value, name) in [(config.timeout, "the timeout"), (config.interval, "the record interval")]
    {
        if value <= 0 {
            return Err(SpecError::Duration(name));
        }
    }
    if specs.is_empty() {
        return Err(SpecError::NoStreams);
    }
    for (stream, s) in specs.iter().enumerate() {
        let same_family = s.source.is_ipv4() == s.destination.is_ipv4();
        let least = if s.destination.is_ipv4() { 72 } else { 92 };
        let what = if !same_family {
            "source and destination are of different IP versions".into()
        } else if s.dscp > 63 {
            format!("DSCP {} is not in 0..=63", s.dscp)
        } else if s.ttl == 0 {
            "TTL 0 would not leave this host; use 1..=255".into()
        } else if s.ip_length < least {
            format!("{} bytes are too short for a STAMP packet; use at least {least}", s.ip_length)
        } else if s.period <= 0 {
            "the time between probes must be longer than zero".into()
        } else if config.interval / s.period > i64::from(u32::MAX / 2) {
            "a record interval of 2 billion probes is too long to count; shorten it".into()
        } else if usize::from(s.next_hop) >= next_hops {
            format!("next hop {} does not exist", s.next_hop)
        } else {
            continue;
        };
        return Err(SpecError::Stream { stream, what });
    }
    Ok(())
}

/// Room for the probes in flight: those of one timeout, and a few more so that a closed interval
/// may wait to be fetched. For Poisson gaps also the crowding that chance brings.
pub(crate) fn window(config: &SenderConfig, spec: &StreamSpec) -> u32 {
    let flight = config.timeout / spec.period + 1;
    let room = match spec.schedule {
        Schedule::Periodic => flight + 2 + flight / 8,
        Schedule::Poisson => 2 * flight + 16,
    };
    u32::try_from(room).unwrap_or(u32::MAX / 4).min(1 << 24).next_power_of_two()
}
