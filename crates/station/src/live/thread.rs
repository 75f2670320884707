//! The thread between the hub and whoever looks at the present.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sonde_api::instant::UtcInstant;
use sonde_api::live::{LiveData, LiveTopic};
use sonde_api::readings::StateCounts;
use sonde_api::ring::LiveRing;
use sonde_results::units::SECOND;
use sonde_run::error::RunError;
use sonde_run::running::{Latest, Next, RecordReceiver, Stop};
use sonde_run::thread;
use sonde_store::query::{EventList, EventRow, TimeRange};
use sonde_store::{Answer, EventFilter, Limit, Query, Reader};
use sonde_sys::clock::{steady_now, steady_scale, unix_now_ns};

use super::{LiveState, count_states};
use crate::backend::deadline::Deadlines;
use crate::hub::Report;
use crate::plan::UnitId;
use crate::supervise::UnitState;

/// What it is given.
pub(crate) struct LiveThread {
    pub state: Arc<Mutex<LiveState>>,
    pub reports: RecordReceiver<Arc<Report>>,
    pub states: Latest<BTreeMap<UnitId, UnitState>>,
    pub reader: Arc<dyn Reader>,
    pub ring: Arc<LiveRing>,
    pub deadlines: Arc<Deadlines>,
    /// What else is done each second.
    pub each_second: Box<dyn FnMut(UtcInstant) + Send>,
    pub stop: Stop,
    /// Events that last, and what the store said of its events then.
    pub open: (Option<u64>, Vec<EventRow>),
}

impl LiveThread {
    /// Runs it until it is asked to end.
    pub fn start(self) -> Result<JoinHandle<()>, RunError> {
        self.lock().phases(&self.states.get(), unix_now_ns());
        thread::spawn("sonde-live", move || self.run())
    }

    fn run(mut self) {
        let (mut next_ns, mut counts) = (0, None);
        while !self.stop.is_asked() {
            self.collect(PATIENCE);
            let now_ns = unix_now_ns();
            // The clock may have been set back.
            if now_ns >= next_ns || now_ns < next_ns - EVERY_NS {
                next_ns = now_ns + EVERY_NS;
                self.deadlines.look(steady_now());
                self.publish(UtcInstant::from_ns(now_ns), &mut counts);
                (self.each_second)(UtcInstant::from_ns(now_ns));
            }
        }
        // Units have ended: what they gave is still counted.
        while self.collect(Duration::ZERO) {}
    }

    /// Takes what has come, or waits for it for a moment. Whether there may be more.
    fn collect(&self, patience: Duration) -> bool {
        let mut next = self.reports.next(patience);
        let mut state = self.lock();
        for _ in 0..TAKEN {
            let Next::Record(report) = next else { return false };
            state.take(&report, (steady_scale().utc_offset, unix_now_ns()));
            next = match self.reports.next_now() {
                Some(report) => Next::Record(report),
                None => return false,
            };
        }
        if let Next::Record(report) = next {
            state.take(&report, (steady_scale().utc_offset, unix_now_ns()));
        }
        true
    }

    fn publish(&mut self, now: UtcInstant, counts: &mut Option<StateCounts>) {
        let lacks = self.lock().lacks_numbers();
        let numbers = lacks.then(|| self.reader.series().unwrap_or_default());
        // The store may have years of events: it is asked where there is something new.
        let changes = self.reader.event_changes();
        if changes.is_none() || changes != self.open.0 {
            // One that cannot be read now is asked again in a second.
            self.open = match self.open_events(now) {
                Some(rows) => (changes, rows),
                None => (None, Vec::new()),
            };
        }
        let followed: BTreeSet<u32> =
            self.ring.followed(now).iter().filter_map(|id| id.parse().ok()).collect();
        let (mut units, mut readings) = (Vec::new(), Vec::new());
        let counts_now = {
            let mut state = self.lock();
            numbers.into_iter().for_each(|all| state.number(all));
            state.judge(&self.open.1);
            for id in state.phases(&self.states.get(), now.ns()) {
                units.extend(state.unit_entry(&id));
            }
            let offset = steady_scale().utc_offset;
            readings.extend(state.readings(&followed, offset));
            count_states(state.series_states(now).into_values())
        };
        for unit in units {
            self.ring.publish(now, LiveTopic::Units, &LiveData::Unit { unit: Box::new(unit) });
        }
        if *counts != Some(counts_now) {
            *counts = Some(counts_now);
            self.ring.publish(now, LiveTopic::State, &LiveData::State { counts: counts_now });
        }
        for reading in readings {
            let topic = LiveTopic::Series(reading.id.to_string());
            self.ring.publish(now, topic, &LiveData::Reading { reading });
        }
    }

    fn open_events(&self, now: UtcInstant) -> Option<Vec<EventRow>> {
        let range = TimeRange { from_ns: now.ns(), to_ns: now.ns().saturating_add(1) };
        let filter = EventFilter { open: true, ..EventFilter::default() };
        let list = EventList { range, filter, ..EventList::default() };
        let answer = self.reader.query(&Query::Events(list), &Limit::default());
        match answer.map(|response| response.answer) {
            Ok(Answer::Events(rows)) => Some(rows),
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports between the hub and this.
pub(crate) const REPORTS: usize = 1 << 16;
/// Reports that are taken under one lock.
const TAKEN: usize = 1_000;
/// For a report, before it is looked whether something is due.
const PATIENCE: Duration = Duration::from_millis(100);
/// Between two looks at states and readings, ns.
const EVERY_NS: i64 = SECOND;
