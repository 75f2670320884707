//! Messages of the exporter, read back.

mod formats;
mod garbage;
mod sample;
mod sessions;
