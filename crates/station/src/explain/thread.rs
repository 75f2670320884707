//! The thread that explains events, keeps what it finds with them, and looks at the ways to targets.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sonde_results::StreamInfo;
use sonde_run::error::RunError;
use sonde_run::thread;
use sonde_store::{EventId, Limit, Reader, StoreBackend, StoredEvent};
use sonde_sys::clock::{steady_now, unix_now_ns};
use sonde_sys::netlink::Routes;
use sonde_wire::time::Time;

use super::kept::KeptExplanation;
use super::paths::{LOOK_NS, PathBook, PathWay};
use super::{ExplainError, ExplainInput, explain_event};
use crate::plan::{Plan, UnitId};
use crate::unit::{Instrument, Unit};

/// Explains events until it is asked to end.
pub struct ExplainService {
    handle: ExplainHandle,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// Where it is told what happens.
#[derive(Clone)]
pub struct ExplainHandle {
    orders: SyncSender<ExplainOrder>,
    book: SharedBook,
}

/// What is known of the ways to targets, for all who explain.
#[derive(Clone, Default)]
pub struct SharedBook(Arc<Mutex<PathBook>>);

enum ExplainOrder {
    Begun(EventId),
    Ended(EventId),
    Streams { unit: UnitId, streams: Vec<StreamInfo>, whole: bool },
}

/// An event whose explanations are due.
struct DueEvent {
    id: EventId,
    begun: Time,
    /// How many were made.
    made: usize,
    ended: bool,
    due: Time,
}

impl SharedBook {
    fn lock(&self) -> MutexGuard<'_, PathBook> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of what is known now.
    pub fn get(&self) -> PathBook {
        self.lock().clone()
    }
}

impl ExplainHandle {
    /// An event of a kind that is explained has begun, and is in the store.
    pub fn begun(&self, id: EventId) {
        self.give(ExplainOrder::Begun(id));
    }

    /// It has ended.
    pub fn ended(&self, id: EventId) {
        self.give(ExplainOrder::Ended(id));
    }

    /// A unit measures these streams: beside those that it had, or (`whole`) instead of them.
    pub fn streams(&self, unit: &UnitId, streams: &[StreamInfo], whole: bool) {
        let (unit, streams) = (unit.clone(), streams.to_vec());
        self.give(ExplainOrder::Streams { unit, streams, whole });
    }

    fn give(&self, order: ExplainOrder) {
        // An event that is not explained by itself is explained when somebody asks.
        if let Err(TrySendError::Full(_)) = self.orders.try_send(order) {
            tracing::debug!("explanations are behind; one is left until it is asked for");
        }
    }

    /// Goes over to these units.
    pub fn set_units(&self, plan: &Plan<Unit>) {
        let points = plan.iter().filter_map(|(id, unit)| {
            let sources = match &unit.instrument {
                Instrument::Flow(settings) => &settings.sources,
                Instrument::Rtt(settings) => &settings.sources,
                _ => return None,
            };
            Some((id.to_string(), sources.clone()))
        });
        let units = plan.iter().map(|(id, _)| id.to_string());
        let mut book = self.book.lock();
        book.set_points(points.collect());
        book.set_units(units.collect());
    }

    /// What is known of the ways to targets.
    pub fn book(&self) -> SharedBook {
        self.book.clone()
    }
}

impl ExplainService {
    /// Of the station of that name, from `store`.
    ///
    /// # Errors
    /// No thread to be had.
    pub fn start(
        station: &str,
        store: Arc<dyn StoreBackend>,
        plan: &Plan<Unit>,
    ) -> Result<ExplainService, RunError> {
        let (orders, given) = sync_channel(ORDERS);
        let book = SharedBook::default();
        let handle = ExplainHandle { orders, book: book.clone() };
        handle.set_units(plan);
        let ends = Arc::new(AtomicBool::new(false));
        let explaining = Explaining {
            station: station.to_owned(),
            reader: store.reader(),
            first_ns: AFTER_NS[0].saturating_add(store.seen_after_ns()),
            store,
            book,
            due: Vec::new(),
            look: steady_now(),
            routes: None,
            ends: ends.clone(),
        };
        let thread = thread::spawn("sonde-explain", move || explaining.run(&given))?;
        Ok(ExplainService { handle, ends, thread })
    }

    /// Where it is told what happens.
    pub fn handle(&self) -> &ExplainHandle {
        &self.handle
    }

    /// Ends. What is not explained then is explained when somebody asks.
    pub fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        drop(self.handle);
        sonde_run::thread::join_logged(self.thread);
    }
}

/// Explains an event now, from the store and what the station of that name knows of its ways. `stop`
/// ends it.
///
/// # Errors
/// As of [`explain_event`].
pub fn explain_now(
    reader: &dyn Reader,
    (station, book): (&str, &PathBook),
    event: &StoredEvent,
    stop: Arc<AtomicBool>,
) -> Result<KeptExplanation, ExplainError> {
    let limit = Limit { scanned_rows: MOST_ROWS, stop: Some(stop), ..Limit::default() };
    let series = reader.series()?;
    let now_ns = unix_now_ns();
    let (paths, limit) = (book, &limit);
    let input = ExplainInput { reader, series: &series, station, paths, limit, now_ns };
    explain_event(&input, event)
}

/// The thread.
struct Explaining {
    station: String,
    store: Arc<dyn StoreBackend>,
    reader: Arc<dyn Reader>,
    book: SharedBook,
    due: Vec<DueEvent>,
    /// An event is explained so long after its begin or end, ns: queries see then what was measured.
    first_ns: i64,
    /// When the ways are looked up next.
    look: Time,
    routes: Option<Routes>,
    ends: Arc<AtomicBool>,
}

impl Explaining {
    fn run(mut self, orders: &Receiver<ExplainOrder>) {
        while !self.ends.load(Ordering::Relaxed) {
            match orders.recv_timeout(TURN) {
                Ok(order) => {
                    self.take(order);
                    orders.try_iter().for_each(|order| self.take(order));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = steady_now();
            if now >= self.look {
                self.look_at_ways();
                self.look = steady_now() + LOOK_NS;
            }
            self.explain_one(now);
        }
    }

    fn take(&mut self, order: ExplainOrder) {
        let now = steady_now();
        match order {
            // Of a storm the first ones are explained: they have one cause, or nobody reads them all.
            ExplainOrder::Begun(id) if self.due.len() < MOST_DUE => self.due.push(DueEvent {
                id,
                begun: now,
                made: 0,
                ended: false,
                due: now + self.first_ns,
            }),
            ExplainOrder::Begun(id) => {
                tracing::debug!("event {} is explained when somebody asks", id.0);
            }
            ExplainOrder::Ended(id) => {
                for event in self.due.iter_mut().filter(|event| event.id == id) {
                    event.ended = true;
                    event.due = event.due.min(now + self.first_ns);
                }
            }
            ExplainOrder::Streams { unit, streams, whole } => {
                let whose = (self.station.as_str(), &unit);
                let changed = self.book.lock().streams(whose, &streams, whole, unix_now_ns());
                self.keep(changed);
                // The ways to new targets are wanted before something happens to them.
                self.look = now;
            }
        }
    }

    /// Explains the event that waits longest, if one is due.
    fn explain_one(&mut self, now: Time) {
        let due = self.due.iter().enumerate().filter(|(_, event)| event.due <= now);
        let Some((at, _)) = due.min_by_key(|(_, event)| event.due) else { return };
        let id = self.due[at].id;
        if let Err(why) = self.explain(id) {
            tracing::debug!("event {} is not explained: {why}", id.0);
        }
        let event = &mut self.due[at];
        event.made += 1;
        match AFTER_NS.get(event.made) {
            Some(after) if !event.ended => event.due = event.begun + *after,
            _ => drop(self.due.swap_remove(at)),
        }
    }

    fn explain(&self, id: EventId) -> Result<(), ExplainError> {
        let Some(event) = self.store.event(id)? else { return Ok(()) };
        let known = (self.station.as_str(), &self.book.get());
        let found = explain_now(&*self.reader, known, &event, self.ends.clone())?;
        let value = serde_json::to_value(&found).unwrap_or_default();
        self.store.note_event(id, FIELD, Some(value))?;
        Ok(())
    }

    /// Asks the kernel for the ways to all targets, and keeps what has changed.
    fn look_at_ways(&mut self) {
        let wanted = self.book.lock().wanted();
        if self.routes.is_none() {
            self.routes = Routes::open().ok();
        }
        let Some(routes) = &mut self.routes else { return };
        let ways: BTreeMap<IpAddr, PathWay> = wanted
            .into_iter()
            .filter_map(|address| {
                let route = routes.lookup(address, None).ok()?;
                let way = PathWay { interface: route.interface, next_hop: route.next_hop };
                Some((address, way))
            })
            .collect();
        let mut book = self.book.lock();
        let rate = |name: &str| {
            let text = std::fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
            let mbit: f64 = text.trim().parse().ok()?;
            (mbit > 0.0).then_some(mbit * 1e6)
        };
        let rates = book.interfaces().into_iter().filter_map(|name| {
            let bps = rate(name)?;
            Some((name.to_owned(), bps))
        });
        let rates = rates.collect();
        book.set_rates(rates);
        let now_ns = unix_now_ns();
        let news = book.look(&self.station, &ways, now_ns);
        drop(book);
        self.keep(news.events);
        for id in news.over {
            if let Err(why) = self.store.end_event(id, now_ns) {
                tracing::warn!("the end of event {} is not kept: {why}", id.0);
            }
        }
    }

    fn keep(&self, events: Vec<StoredEvent>) {
        for event in events {
            tracing::info!("{}", event.title);
            match self.store.add_event(&event) {
                Ok(id) => self.book.lock().kept(&event, id),
                Err(why) => tracing::warn!("an event is not kept: {why}"),
            }
        }
    }
}

/// The field of an event's evidence that has its explanation.
pub const FIELD: &str = "explanation";
/// An event is explained so long after its begin, as long as it lasts, and so long after its end,
/// ns: what was measured is in the store then.
const AFTER_NS: [i64; 3] = [3_000_000_000, 60_000_000_000, 330_000_000_000];
/// Between two looks at what is due.
const TURN: Duration = Duration::from_millis(200);
/// Events that wait for their explanation, at most.
const MOST_DUE: usize = 100;
/// What waits between the judge and this thread, at most.
const ORDERS: usize = 10_000;
/// Rows that one question of an explanation may read.
const MOST_ROWS: u64 = 40_000_000;
