//! What finds round-trip times on interfaces.

use sonde_results::rtt::{Coverage, RttFlow, RttGroup};
use sonde_sys::netlink::Link;

use super::out::RttOutput;

/// What watches interfaces and finds round-trip times.
pub trait InterfaceWatcher: Send {
    /// Begins to watch an interface as point `i`, and says how it does.
    fn attach(&mut self, link: &Link, i: u8) -> anyhow::Result<String>;

    /// Ends that; what has passed until now is still counted.
    fn detach(&mut self, i: u8);

    /// Hands on samples and flows that have ended; may wait `patience_ns` for the first.
    /// Whether it is worth while to let more gather before the next call.
    fn fetch(&mut self, patience_ns: i64, out: &mut RttOutput) -> anyhow::Result<bool>;

    /// The groups with samples since the last call, which was at `start_ns`; now is `end_ns`.
    fn take_groups(&mut self, start_ns: i64, end_ns: i64) -> anyhow::Result<Vec<RttGroup>>;

    /// All counters since the start.
    fn coverage(&mut self) -> anyhow::Result<Coverage>;

    /// The flows that have not been handed on as ended.
    fn open_flows(&self, each: &mut dyn FnMut(RttFlow));
}
