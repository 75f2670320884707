//! Takes batches: collected, written to the journal as one frame, synced, acknowledged.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::journal::Journal;
use super::state::Generation;
use super::{Shared, lock};
use crate::Writer;
use crate::batch::{Batch, Ticket};
use crate::error::StoreError;

/// The writer of a store.
pub struct EmbeddedWriter {
    shared: Arc<Shared>,
    /// Taken and not durable yet; `None`: a repeat, which is when those before it are.
    waiting: Vec<(Ticket, Option<Batch>)>,
    waiting_rows: usize,
    durable: VecDeque<Ticket>,
}

impl EmbeddedWriter {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        EmbeddedWriter { shared, waiting: Vec::new(), waiting_rows: 0, durable: VecDeque::new() }
    }

    /// The greatest number of a batch of `writer` that was taken.
    fn last(&self, writer: &str) -> u64 {
        let own = self.waiting.iter().filter(|(ticket, _)| &*ticket.writer == writer);
        let waiting = own.map(|(ticket, _)| ticket.number).max();
        let durable = lock(&self.shared.state).writers.get(writer).copied();
        waiting.max(durable).unwrap_or(0)
    }
}

impl Writer for EmbeddedWriter {
    /// Refuses batches while the disk has no room, and while more than eight segments' rows wait for
    /// maintenance.
    fn append(&mut self, batch: &Batch) -> Result<Ticket, StoreError> {
        let ticket = Ticket { writer: batch.writer.clone(), number: batch.number };
        if batch.number <= self.last(&batch.writer) {
            // The answer to it was lost. It is here.
            self.waiting.push((ticket.clone(), None));
            return Ok(ticket);
        }
        {
            let state = lock(&self.shared.state);
            if let Some(series) = batch.rows.greatest_series()
                && series >= state.series.next().0
            {
                return Err(StoreError::UnknownSeries(series));
            }
            let most = BACKLOG * self.shared.options.seal_rows;
            if state.uncertain {
                return Err(StoreError::Uncertain { path: self.shared.folder.clone() });
            }
            if state.refusing || state.waiting_rows() + self.waiting_rows > most {
                return Err(StoreError::Full { path: self.shared.folder.clone() });
            }
        }
        self.waiting_rows += batch.rows.len();
        self.waiting.push((ticket.clone(), Some(batch.clone())));
        if self.waiting_rows >= FRAME_ROWS {
            // The batch is taken. Whether it is durable, its ticket says.
            let _ = self.sync();
        }
        Ok(ticket)
    }

    /// After an error all that was taken still waits; the next call tries again.
    fn sync(&mut self) -> Result<(), StoreError> {
        let batches: Vec<Batch> =
            self.waiting.iter().filter_map(|(_, batch)| batch.clone()).collect();
        if !batches.is_empty() {
            self.shared.write(batches)?;
        }
        self.durable.extend(self.waiting.drain(..).map(|(ticket, _)| ticket));
        self.waiting_rows = 0;
        Ok(())
    }

    fn poll_durable(&mut self) -> Option<Ticket> {
        self.durable.pop_front()
    }
}

impl Drop for EmbeddedWriter {
    fn drop(&mut self) {
        let _ = self.sync();
        self.shared.writer_taken.store(false, Ordering::Release);
    }
}

impl Shared {
    /// Makes batches durable and lets readers see them.
    fn write(&self, batches: Vec<Batch>) -> Result<(), StoreError> {
        let mut journal = lock(&self.journal);
        let first = lock(&self.state).next_batch;
        self.with_room(|| journal.write(first, &batches))?;
        let seal = {
            let mut state = lock(&self.state);
            for (number, batch) in (first..).zip(batches) {
                state.writers.insert(batch.writer.clone(), batch.number);
                state.open.push(number, batch);
                state.next_batch = number + 1;
            }
            state.open.rows >= self.options.seal_rows
        };
        if seal {
            // They are durable where they are. Where the next file cannot be made, maintenance tries.
            let _ = self.seal(&mut journal);
        }
        Ok(())
    }

    /// Begins the next file of the journal; what the one before holds is to become segments.
    pub(super) fn seal(&self, journal: &mut Journal) -> Result<(), StoreError> {
        if lock(&self.state).open.batches.is_empty() {
            return Ok(());
        }
        let last = journal.number();
        self.with_room(|| journal.rotate())?;
        let mut state = lock(&self.state);
        let mut sealed = std::mem::take(&mut state.open);
        sealed.journals.1 = last;
        state.open = Generation { journals: (journal.number(), 0), ..Generation::default() };
        state.open_since_ns = None;
        state.sealed.push(Arc::new(sealed));
        Ok(())
    }
}

/// Rows that are written without waiting for more.
const FRAME_ROWS: usize = 20_000;
/// Rows of so many segments may wait.
const BACKLOG: usize = 8;
