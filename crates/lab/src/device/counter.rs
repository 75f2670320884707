//! What counters on the way are made known as.

use sonde_results::trial::Side;

/// A counter as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCounter {
    /// Whose loss, if it is one.
    pub side: Side,
    /// Where: "dut eth0", "tester a".
    pub location: String,
    /// Its name, as the kernel or the program has it.
    pub name: String,
    /// Whether the frames went on or ended here.
    pub kind: CounterKind,
    /// Frames since what counts them was made.
    pub value: u64,
}

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// Frames that went on.
    Passed,
    /// Frames that ended here.
    Dropped,
}
