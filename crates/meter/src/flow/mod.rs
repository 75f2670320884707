//! Flow metering (RFC 7011, RFC 5103).

pub mod features;
