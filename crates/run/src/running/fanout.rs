//! Several readers of one instrument's records: a store, live views, exports. Each has a bounded
//! queue of its own.
//!
//! One thread takes the records off the instrument and shares each of them. It waits for none of
//! the readers. What finds no room in a queue is lost for that reader alone, and counted.

use std::sync::atomic::Ordering;
use std::sync::mpsc::TrySendError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::{Ended, RecordReceiver, RecordSender, records};
use crate::error::RunError;
use crate::thread;

/// Those who read one instrument's records. A copy is the same.
///
/// Whoever is to get the first record subscribes before [`super::Running::fan_out`]. Later ones
/// get what comes from then on. After the instrument's end a queue ends, too.
///
/// Readers of a capture are not waited for either. Who must have all of it reads
/// [`super::Running::records`] alone.
pub struct Fanout<R>(Arc<Mutex<Subscribers<R>>>);

impl<R> Clone for Fanout<R> {
    fn clone(&self) -> Self {
        Fanout(self.0.clone())
    }
}

/// What one reader was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriberCounts {
    /// As it was called when it subscribed.
    pub name: String,
    /// Records that found room in its queue.
    pub handed: u64,
    /// Records that found none.
    pub lost: u64,
    /// Items that wait in its queue (batches count as one).
    pub queued: u64,
    /// Items that its queue has room for.
    pub room: u64,
}

struct Subscribers<R> {
    /// How many records one item of the queue stands for.
    size: fn(&R) -> u64,
    list: Vec<Subscriber<R>>,
    /// Records lost by readers that have gone.
    lost_by_gone: u64,
    /// Records that came from the instrument.
    received: u64,
    has_ended: bool,
}

struct Subscriber<R> {
    name: String,
    /// `None`: the records have ended.
    sender: Option<RecordSender<Arc<R>>>,
    handed: u64,
    lost: u64,
    /// Items that were put into its queue.
    items: u64,
    room: usize,
}

impl<R> Fanout<R> {
    /// Without readers. `size` gives how many records an item stands for: `|_| 1`, or of batches
    /// their length. It is called for each item while nobody else may subscribe.
    pub fn new(size: fn(&R) -> u64) -> Fanout<R> {
        Fanout(Arc::new(Mutex::new(Subscribers {
            size,
            list: Vec::new(),
            lost_by_gone: 0,
            received: 0,
            has_ended: false,
        })))
    }

    /// A further reader, by a queue with room for `room` items (batches count as one), at least 1.
    /// It unsubscribes by dropping what it gets. `name` is for its counts.
    pub fn subscribe(&self, name: &str, room: usize) -> RecordReceiver<Arc<R>> {
        let room = room.max(1);
        let (sender, receiver) = records(room);
        let mut all = self.lock();
        if !all.has_ended {
            let sender = Some(sender);
            let name = name.into();
            all.list.push(Subscriber { name, sender, handed: 0, lost: 0, items: 0, room });
        }
        receiver
    }

    /// Hands a record to every reader that has room.
    pub fn hand(&self, record: &Arc<R>) {
        self.lock().hand(record);
    }

    /// What each reader was given that is still there, or was at the end.
    pub fn counts(&self) -> Vec<SubscriberCounts> {
        let counts = |s: &Subscriber<R>| SubscriberCounts {
            name: s.name.clone(),
            handed: s.handed,
            lost: s.lost,
            queued: s
                .sender
                .as_ref()
                .map_or(0, |sender| s.items.saturating_sub(sender.taken.load(Ordering::Relaxed))),
            room: s.room as u64,
        };
        self.lock().list.iter().map(counts).collect()
    }

    /// Records that came from the instrument so far. What found no room in the instrument's own
    /// queue is not among them: see [`RecordReceiver::lost`] of [`super::Running::records`].
    pub fn received(&self) -> u64 {
        self.lock().received
    }

    /// Records lost by all readers together, also by those that have gone. One that two readers
    /// lost counts twice.
    pub fn lost(&self) -> u64 {
        let all = self.lock();
        all.lost_by_gone + all.list.iter().map(|s| s.lost).sum::<u64>()
    }

    fn lock(&self) -> MutexGuard<'_, Subscribers<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> Subscribers<R> {
    fn hand(&mut self, record: &Arc<R>) {
        let size = (self.size)(record);
        self.received += size;
        let lost_by_gone = &mut self.lost_by_gone;
        self.list.retain_mut(|subscriber| {
            let Some(sender) = &subscriber.sender else { return true };
            match sender.queue.try_send(record.clone()) {
                Ok(()) => {
                    subscriber.handed += size;
                    subscriber.items += 1;
                }
                Err(TrySendError::Full(_)) => {
                    subscriber.lost += size;
                    sender.lose(size);
                }
                Err(TrySendError::Disconnected(_)) => {
                    *lost_by_gone += subscriber.lost;
                    return false;
                }
            }
            true
        });
    }

    fn end(&mut self) {
        self.has_ended = true;
        self.list.iter_mut().for_each(|subscriber| subscriber.sender = None);
    }
}

/// The thread between an instrument and its readers, from outside.
pub(super) struct FanningOut {
    thread: JoinHandle<()>,
    lost: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl FanningOut {
    /// Hands `records` to `readers` until their end.
    pub fn start<R: Send + Sync + 'static>(
        records: RecordReceiver<R>,
        readers: &Fanout<R>,
    ) -> Result<FanningOut, RunError> {
        let (theirs, counted) = (readers.clone(), readers.clone());
        let work = move || {
            // Whatever happens here, nobody waits for ever.
            let readers = EndOnDrop(theirs);
            records.iter().for_each(|record| readers.0.lock().hand(&Arc::new(record)));
        };
        let thread = thread::spawn("sonde-fan-out", work)?;
        Ok(FanningOut { thread, lost: Box::new(move || counted.lost()) })
    }

    /// After the instrument's end: waits until all is handed on, and adds what readers lost.
    pub fn join(self, ended: &mut Ended) {
        if let Err(panicked) = thread::join(self.thread) {
            ended.failure.get_or_insert(RunError::Host(panicked.into()));
        }
        ended.counters.insert(SUBSCRIBERS_LOST.into(), (self.lost)());
    }
}

struct EndOnDrop<R>(Fanout<R>);

impl<R> Drop for EndOnDrop<R> {
    fn drop(&mut self) {
        self.0.lock().end();
    }
}

/// The counter of what readers lost, in [`Ended::counters`].
const SUBSCRIBERS_LOST: &str = "subscribers_lost";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Latest, Next, Running, Stop};
    use super::*;

    /// An instrument that hands out 1 to `last`, once `begin` says so.
    fn counting(last: u64, begin: std::sync::mpsc::Receiver<()>) -> Running<u64, (), ()> {
        let (sender, receiver) = records(last as usize);
        let work = move || {
            begin.recv().unwrap();
            (1..=last).for_each(|n| sender.push(n));
            Ended::default()
        };
        Running::start("sonde-test", (receiver, Latest::new(()), ()), Stop::default(), work)
            .unwrap()
    }

    fn all(reader: &RecordReceiver<Arc<u64>>) -> Vec<u64> {
        reader.iter().map(|n| *n).collect()
    }

    /// Of a reader whose records have ended.
    fn counts(name: &str, (handed, lost): (u64, u64), room: u64) -> SubscriberCounts {
        SubscriberCounts { name: name.into(), handed, lost, queued: 0, room }
    }

    #[test]
    fn a_slow_reader_loses_records_and_slows_nobody() {
        let (begin, begins) = std::sync::mpsc::channel();
        let mut running = counting(50, begins);
        let fanout = Fanout::new(|_| 1);
        let (store, live) = (fanout.subscribe("store", 50), fanout.subscribe("live", 3));
        running.fan_out(&fanout).unwrap();
        begin.send(()).unwrap();
        assert_eq!(all(&store), (1..=50).collect::<Vec<_>>());
        // Nobody has read this one: it has the first, and ends behind them.
        assert_eq!(all(&live), [1, 2, 3]);
        assert_eq!((store.lost(), live.lost(), running.records.lost()), (0, 47, 0));
        assert_eq!(fanout.counts(), [counts("store", (50, 0), 50), counts("live", (3, 47), 3)]);
        assert_eq!((fanout.received(), fanout.lost()), (50, 47));
        assert_eq!(running.records.next(Duration::ZERO), Next::End);
        let ended = running.join();
        assert!(ended.failure.is_none());
        assert_eq!(ended.counters["subscribers_lost"], 47);
    }

    #[test]
    fn a_reader_that_goes_is_forgotten_and_what_it_lost_is_not() {
        let mut subscribers = Fanout::new(|batch: &Vec<u64>| batch.len() as u64);
        let (stays, goes) = (subscribers.subscribe("stays", 9), subscribers.subscribe("goes", 1));
        let hand = |fanout: &mut Fanout<_>, n| fanout.lock().hand(&Arc::new(vec![0; n]));
        [2, 5].iter().for_each(|&n| hand(&mut subscribers, n));
        assert_eq!(goes.lost(), 5);
        drop(goes);
        hand(&mut subscribers, 3);
        let waiting = SubscriberCounts { queued: 3, ..counts("stays", (10, 0), 9) };
        assert_eq!(subscribers.counts(), [waiting]);
        assert_eq!((subscribers.received(), subscribers.lost()), (10, 5));
        let sizes: Vec<usize> = std::iter::from_fn(|| stays.next_now()).map(|b| b.len()).collect();
        assert_eq!(sizes, [2, 5, 3]);
        assert_eq!(subscribers.counts(), [counts("stays", (10, 0), 9)], "it has taken all");
    }

    #[test]
    fn the_end_reaches_all_and_those_who_come_after_it() {
        let (begin, begins) = std::sync::mpsc::channel();
        let mut running = counting(4, begins);
        let fanout = Fanout::new(|_| 1);
        let readers: Vec<_> = (0..8).map(|_| fanout.subscribe("reader", 4)).collect();
        running.fan_out(&fanout).unwrap();
        let readers: Vec<_> =
            readers.into_iter().map(|r| std::thread::spawn(move || all(&r))).collect();
        begin.send(()).unwrap();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), [1, 2, 3, 4]);
        }
        assert!(running.join().failure.is_none());
        assert_eq!(fanout.subscribe("late", 1).next(Duration::ZERO), Next::End);
        assert_eq!((fanout.counts().len(), fanout.lost()), (8, 0));
    }

    #[test]
    fn records_are_fanned_out_once() {
        let (begin, begins) = std::sync::mpsc::channel();
        let mut running = counting(1, begins);
        let first = Fanout::new(|_| 1);
        running.fan_out(&first).unwrap();
        let refused = running.fan_out(&Fanout::new(|_| 1)).unwrap_err().to_string();
        assert!(refused.contains("subscribe to the first"), "{refused}");
        begin.send(()).unwrap();
        assert!(running.join().failure.is_none());
        assert_eq!(first.received(), 1);
    }

    #[test]
    fn a_thread_that_panics_ends_all_queues_and_is_a_failure() {
        let (begin, begins) = std::sync::mpsc::channel();
        let mut running = counting(1, begins);
        let fanout = Fanout::new(|_| panic!("as this test wants it"));
        let reader = fanout.subscribe("reader", 1);
        running.fan_out(&fanout).unwrap();
        begin.send(()).unwrap();
        assert!(all(&reader).is_empty());
        let failure = running.join().failure.unwrap().to_string();
        assert!(failure.contains("sonde-fan-out"), "{failure}");
    }
}
