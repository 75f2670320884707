//! Sonde over HTTP: a station's API, and the Open Traffic Generator model with runs of plans.
//!
//! This is the only asynchronous crate: hyper keeps slow and hostile clients from holding up
//! the others, and everything behind [`http::Service`] is ordinary blocking code. It knows no
//! packets and no engine; `sonde otg` puts those behind [`otg::OtgBackend`] and, for
//! whole plans, [`runs::Runs`]; what a station is stands behind `sonde_api::Backend`.
#![forbid(unsafe_code)]

mod accept;
pub mod admission;
pub mod api;
pub mod http;
mod listener;
pub mod otg;
pub mod runs;
mod unread;
