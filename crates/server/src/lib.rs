//! Sonde over HTTP: a small server, and the Open Traffic Generator model that it speaks.
//!
//! This is the only asynchronous crate: hyper keeps slow and hostile clients from holding up
//! the others, and everything behind [`http::Service`] is ordinary blocking code. It knows no
//! packets and no engine; `sonde otg` puts those behind [`otg::OtgBackend`] and, for
//! whole plans, [`runs::Runs`].
#![forbid(unsafe_code)]

pub mod admission;
pub mod http;
pub mod otg;
pub mod runs;
