//! Targets that the API adds, changes and removes while the station runs.

use sonde_api::etag::EntityTag;

use super::{ReloadFailure, RunConfig, ServiceCore};
use crate::added::{AddedTargets, JoinedPlan};

impl RunConfig {
    /// The version of all targets: of the files, and of what was added.
    pub fn targets_version(&self) -> EntityTag {
        EntityTag::strong(format!("{}-{}", self.version, self.added.version()))
    }
}

impl ServiceCore {
    /// Goes over to other added targets, which `change` makes of those that there are. They are kept
    /// beside the store before a unit goes over to them; no other target loses a probe.
    ///
    /// # Errors
    /// Those of `change`; units that cannot run so, a file that cannot be written, a station that
    /// ends: then all goes on as it was.
    pub fn change_added<E: From<ReloadFailure>>(
        &self,
        change: impl FnOnce(&RunConfig) -> Result<AddedTargets, E>,
    ) -> Result<(), E> {
        // Locked until it is done: a reload waits.
        let mut running = self.config();
        let added = change(&running)?;
        let JoinedPlan { plan, rests } = added.joined(&running.filed);
        let can = self.station(|station| station.can_run(&plan)).ok_or(ReloadFailure::Ending)?;
        can.map_err(ReloadFailure::Refused)?;
        added.write(&running.store).map_err(ReloadFailure::Unsaved)?;
        let done = self.station(|station| station.go_over(&plan)).ok_or(ReloadFailure::Ending)?;
        done.map_err(ReloadFailure::Refused)?;
        (running.plan, running.added, running.rests) = (plan, added, rests);
        Ok(())
    }
}
