//! Messages of the exporter, read back.

mod apps;
pub(super) mod formats;
mod garbage;
pub(super) mod sample;
mod sessions;
