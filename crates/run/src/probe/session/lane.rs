//! A port, its worker, and the streams that leave there.

use sonde_meter::stamp::{SenderConfig, StreamSpec};
use sonde_port::Filter;

use crate::probe::event::Event;
use crate::probe::outbox::Outbox;
use crate::probe::worker::{ProbeWorker, WorkerStatus};

/// One port, one worker, and the streams that leave there.
pub struct Lane {
    pub worker: ProbeWorker,
    /// What its sender goes by.
    pub config: SenderConfig,
    /// The interface that is its own; 0: none.
    pub ifindex: u32,
    pub filter: Filter,
    /// Identifier of each of its streams, unique in the run.
    pub streams: Vec<u32>,
    pub latest: WorkerStatus,
}

impl Lane {
    /// Hands over what the worker has finished, as far as there is room.
    pub fn drain(&mut self, outbox: &mut Outbox) {
        while outbox.has_room()
            && let Ok(mut record) = self.worker.records.pop()
        {
            record.stream = self.streams[record.stream as usize];
            outbox.push(Event::Record(record.clone()));
            let _ = self.worker.recycled.push(record);
        }
        while outbox.has_room()
            && let Ok(mut sample) = self.worker.samples.pop()
        {
            sample.stream = self.streams[sample.stream as usize];
            outbox.push(Event::Sample(sample));
        }
        while outbox.has_room()
            && let Ok(error) = self.worker.errors.pop()
        {
            outbox.push(Event::Undelivered(error));
        }
    }
}

/// Those of `plan` that a port carries.
pub fn of_lane(plan: &[StreamSpec], streams: &[u32]) -> Vec<StreamSpec> {
    streams.iter().map(|&i| plan[i as usize].clone()).collect()
}
