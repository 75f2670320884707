//! Messages of the exporter, read back.

mod apps;
mod formats;
mod garbage;
mod sample;
mod sessions;
