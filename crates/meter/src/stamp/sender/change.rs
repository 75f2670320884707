//! Streams that come and go while others run on.

use std::collections::HashSet;

use sonde_wire::Time;

use super::{Sender, UNUSED, lay_out, mean_gap, templates, twin};
use crate::stamp::check::{SpecError, check};
use crate::stamp::spec::StreamSpec;

impl Sender {
    /// Adds streams, which are numbered behind those that are there: these go on as if nothing had
    /// happened. Their first probes leave after `now`, each by its phase. `pages` more pages of
    /// histograms are there for them. Allocates memory: for changes, not for packets.
    ///
    /// # Errors
    /// As [`Sender::new`]; nothing is changed then.
    pub fn add(&mut self, specs: &[StreamSpec], now: Time, pages: usize) -> Result<(), SpecError> {
        check(&self.config, specs, self.ways.len())?;
        let probes = templates(specs)?;
        let first = self.streams.len();
        let (streams, end) = lay_out(&self.config, specs, self.slots.len() as u32, now.as_nanos())?;
        let is_forgotten = |i: usize| self.probes[i].is_ended() && self.streams[i].open() == 0;
        let added = specs.iter().map(|s| (s.destination, s.source.port()));
        self.demux = self.demux.with(is_forgotten, added).map_err(|i| twin(i - first))?;
        self.slots.resize(end as usize, UNUSED);
        self.pages.grow(pages);
        self.closed.reserve(specs.len());
        self.streams.extend(streams);
        self.probes.extend(probes);
        for (i, spec) in specs.iter().enumerate() {
            let due = now.as_nanos().saturating_add(spec.phase);
            self.queue.insert(due, (first + i) as u32, spec.schedule, spec.period);
        }
        self.pace();
        Ok(())
    }

    /// Sends no more probes of these streams from `now` on; what is in flight may still be answered,
    /// and their last records come. What was due and has not been sent is counted as skipped. Whoever
    /// is not there is passed over.
    pub fn end(&mut self, streams: &[u32], now: Time) {
        let ends: HashSet<u32> = streams.iter().copied().collect();
        self.leave_out(now, |stream| ends.contains(&stream));
        for &stream in streams {
            if let Some(probe) = self.probes.get_mut(stream as usize) {
                probe.end();
            }
        }
        self.queue.retain(|stream| !self.probes[stream as usize].is_ended());
        self.pace();
    }

    /// At what distance a backlog leaves, by the streams that are there now.
    fn pace(&mut self) {
        let at_work = self.probes.iter().filter(|probe| !probe.is_ended());
        self.catch_up_gap = mean_gap(at_work.map(|probe| probe.timing().0)) / 2;
    }
}
