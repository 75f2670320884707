//! What every kind of device can do.

use std::collections::BTreeMap;

use super::context::DeviceContext;
use super::counter::DeviceCounter;
use crate::LabError;

/// A kind of device: a network function that forwards between two ports.
pub(crate) trait Function: Send {
    /// Configures it, from nothing, until it forwards.
    fn start(&mut self, at: &DeviceContext) -> Result<(), LabError>;

    /// Forgets what was learned from frames, and forwards on.
    fn forget(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        self.restart(at)
    }

    /// Undoes that: nothing is forwarded, no state is left, the ports stay up.
    fn stop(&mut self, at: &DeviceContext) -> Result<(), LabError>;

    /// Restarts what forwards (RFC 6201, section 4.2).
    fn restart(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        self.stop(at)?;
        self.start(at)
    }

    /// Counters of its own, beside those that every host has.
    fn counters(&self, _at: &DeviceContext, _all: &mut Vec<DeviceCounter>) -> Result<(), LabError> {
        Ok(())
    }

    /// Facts of its own, beside those that every host has.
    fn facts(
        &self,
        at: &DeviceContext,
        facts: &mut BTreeMap<String, String>,
    ) -> Result<(), LabError>;

    /// Its processes, whose threads do the forwarding.
    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }
}
