//! What a station gives to other people's monitoring, beside its own API and `/metrics`.
//!
//! [`on_demand`] measures for a scrape of `/probe`. An exporter pushes: [`otlp`], [`influx`] and
//! [`remote_write`] are a format each, without a socket. [`thread`] feeds all of them from the hub;
//! each has a bounded queue ([`backlog`]) and a thread that sends. [`settings`] are those of one.

mod backlog;
mod influx;
pub mod on_demand;
pub mod otlp;
mod protobuf;
mod remote_write;
pub mod settings;
pub mod status;
pub mod thread;
