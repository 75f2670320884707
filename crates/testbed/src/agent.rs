//! This host's ports as sources and sinks of somebody else's benchmark.
//!
//! The order of reading: `protocol` what is said, `serve` the agent, `clock` how their clocks
//! are compared, `link` and `rig` the controller, which is a [`crate::runner::Rig`].

pub mod cert;
pub mod clock;
pub mod link;
pub mod protocol;
pub mod remote;
pub mod rig;
mod serve;

pub use serve::Agent;
