//! Alerts: who is told what, when, and by which way.
//!
//! What decides is pure, and time is an argument of it: [`route`] says who is told, [`silence`]
//! who is not, and [`alerting`] when. A [`sink`] turns a [`notification`] into what one kind of
//! receiver takes. [`delivery`] alone reads a clock and starts threads; it keeps what is not
//! delivered yet in a [`spool`] on disk.

pub mod alerting;
pub mod delivery;
mod group;
pub mod model;
pub mod notification;
pub mod route;
pub mod secret;
pub mod settings;
pub mod silence;
pub mod sink;
pub mod spool;

#[cfg(test)]
pub(crate) mod testing;
