//! Messages of the exporter, read back.

mod formats;
mod sample;
mod sessions;
