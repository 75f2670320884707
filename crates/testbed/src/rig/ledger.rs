//! The loss ledger: every counter on the way that moved during a trial.

use anyhow::Result;
use sonde_lab::device::DeviceCounter;
use sonde_results::trial::LedgerEntry;

use super::made::TestBed;
use crate::counters::dropped;

/// Counters as they stood when a trial began.
pub(super) struct Ledger {
    before: Vec<DeviceCounter>,
}

impl Ledger {
    /// Reads the counters before the trial.
    pub(super) fn begin(made: &TestBed) -> Result<Ledger> {
        Ok(Ledger { before: read(made)? })
    }

    /// Reads them again, after the drain: what was dropped in between, and where.
    pub(super) fn end(self, made: &TestBed) -> Result<Vec<LedgerEntry>> {
        Ok(dropped(&self.before, read(made)?))
    }
}

fn read(made: &TestBed) -> Result<Vec<DeviceCounter>> {
    Ok(match made {
        TestBed::Lab(bed) => bed.counters()?,
        TestBed::There(there) => there.counters(),
    })
}
