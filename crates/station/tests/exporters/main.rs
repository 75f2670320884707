//! What a station gives to other people's monitoring, at the real thing: Debian's Prometheus and
//! InfluxDB, and a decoder of OTLP, each started by its test.

#![expect(clippy::disallowed_methods, reason = "tests are told by the environment")]

// What tests of receivers need is needed here, too.
#[allow(dead_code)]
#[path = "../receivers/bed.rs"]
mod bed;
mod grafana;
mod hanging;
mod influx;
mod network;
mod on_demand;
mod otlp;
mod prometheus;
mod remote_write;
