//! What can be asked of metering while it runs.

use std::sync::mpsc::{Sender, SyncSender, sync_channel};

use anyhow::anyhow;

use crate::error::RunError;

/// Notified when the outputs have gone on in their next files.
pub(super) type Rotation = SyncSender<()>;

/// A handle that asks the meters of a run to rotate their outputs.
#[derive(Clone)]
pub struct Control {
    rotations: Sender<Rotation>,
}

impl Control {
    pub(super) fn new(rotations: Sender<Rotation>) -> Control {
        Control { rotations }
    }

    /// Ends the files that records are written to, so that they can be read whole. Goes on in the
    /// next, NAME-0002.EXT and so on, and returns when that is done. No record is lost or written
    /// twice. What is no ordinary file goes on. So does a file that cannot be written now or whose
    /// next cannot be made, which is logged. A process that has given up its privileges needs to
    /// keep the right to make these files.
    ///
    /// # Errors
    /// Metering has ended.
    pub fn rotate(&self) -> Result<(), RunError> {
        let (done, waits) = sync_channel(1);
        let ended = || {
            RunError::Host(anyhow!("metering has ended: there is nothing to rotate; start it anew"))
        };
        self.rotations.send(done).map_err(|_| ended())?;
        waits.recv().map_err(|_| ended())
    }
}
