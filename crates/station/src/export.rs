//! What a station gives to other people's monitoring, beside its own API and `/metrics`.
//!
//! [`on_demand`] measures for a scrape of `/probe`.

pub mod on_demand;
