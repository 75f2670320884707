//! Flow metering (RFC 7011, RFC 5103): packets' headers go in, flow records come out.
//!
//! [`FlowCache`] is the hot path; `docs/design/flow-cache.md` explains its design and has its
//! figures. One thread owns a cache; caches share nothing.

mod app;
mod cache;
mod clock;
mod config;
mod counters;
pub mod features;
mod fragments;
mod hash;
mod key;
pub mod prefetch;
mod record;
pub mod sampling;
mod scope;
mod slots;
mod table;
#[cfg(test)]
mod tests;
mod wheel;

pub use cache::{BURST, FlowCache, Glimpse};
pub use config::{Config, ConfigError};
pub use counters::{Counters, Occupancy};
