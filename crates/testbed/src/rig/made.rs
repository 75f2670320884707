//! Beds by who makes them.

use sonde_lab::device::Bed;

use super::external::External;

/// Who made the bed.
pub enum Made {
    /// Made here.
    Lab(Box<Bed>),
    /// It is there.
    There(External),
}
