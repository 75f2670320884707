//! The station: one daemon that runs every instrument, keeps what they measure and judges it.
//!
//! What decides is pure, and time is an argument of it: [`reload`] says what a changed
//! configuration takes, [`supervise`] what follows when a unit starts, stalls or fails.
//! [`runner`] does it. What units measure goes to the [`hub`]. [`alert`] tells people. [`service`]
//! is a station by its files, with the API that [`serve`] gives it: [`live`] is the present, the
//! store the past.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod added;
pub mod alert;
mod backend;
pub mod backoff;
pub mod client;
pub mod config;
pub mod explain;
pub mod export;
pub mod hub;
pub mod interfaces;
pub mod judge;
pub mod keep;
mod life;
pub mod live;
pub mod plan;
mod recent;
pub mod reload;
pub mod runner;
pub mod runs;
pub mod serve;
pub mod service;
mod state_file;
pub mod supervise;
pub mod unit;
