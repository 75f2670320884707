//! The station: one daemon that runs every instrument, keeps what they measure and judges it.
//!
//! What decides is pure, and time is an argument of it: [`reload`] says what a changed
//! configuration takes, [`supervise`] what follows when a unit starts, stalls or fails.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod backoff;
pub mod config;
pub mod plan;
pub mod reload;
pub mod supervise;
pub mod unit;
