//! Beds by who makes them.

use sonde_lab::device::LabBed;

use super::external::External;

/// Who made the bed.
pub enum TestBed {
    /// Sonde made it, in a lab, and removes it.
    Lab(Box<LabBed>),
    /// An external device, which is there already.
    There(External),
}
