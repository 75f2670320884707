//! The last minutes of events, which every client of the stream reads at its own pace.
//!
//! A client is a position in the ring. So a slow one costs no memory, and slows nobody: what it
//! cannot take is left out, and it is told so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::instant::UtcInstant;
use crate::live::{
    EventStream, GapReason, LiveData, LiveEvent, LiveEventId, LiveGap, LiveTopic, StreamItem,
};

/// How much a ring holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLimits {
    /// Events, at most.
    pub events: usize,
    /// Octets of their data, at most.
    pub octets: usize,
    /// How old they get, ns.
    pub age_ns: i64,
    /// How many a client that is connected may be behind before it is taken to the newest.
    pub behind: u64,
    /// Series whose readings may be followed at a time, by all clients together.
    pub series: usize,
}

/// Events, the newest last.
pub struct LiveRing {
    epoch: u64,
    limits: RingLimits,
    inner: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    events: VecDeque<(UtcInstant, Arc<LiveEvent>)>,
    octets: usize,
    /// Sequence of the newest event; 0: there was none.
    newest: u64,
    now: UtcInstant,
    closed: bool,
    wakers: BTreeMap<u64, Waker>,
    readers: u64,
    /// Series whose readings are wanted.
    followed: BTreeMap<String, Followed>,
}

/// A series that clients follow, or did.
#[derive(Clone, Copy, Default)]
struct Followed {
    readers: u64,
    /// When the last of them left.
    left: UtcInstant,
}

/// One client's position.
struct RingReader {
    ring: Arc<LiveRing>,
    id: u64,
    /// The sequence that is looked at next.
    next: u64,
    /// Up to here it is what it missed while it was away: it may be as far behind as that.
    resumes_to: u64,
    topics: Vec<LiveTopic>,
    /// What it is told first.
    first: Option<LiveGap>,
}

impl Default for RingLimits {
    fn default() -> RingLimits {
        RingLimits {
            events: 4_096,
            octets: 16 << 20,
            age_ns: 300_000_000_000,
            behind: 256,
            series: 512,
        }
    }
}

impl LiveRing {
    /// An empty one of a station that was started at `start`.
    pub fn new(start: UtcInstant, limits: RingLimits) -> Arc<LiveRing> {
        let epoch = u64::try_from(start.ms()).unwrap_or(0);
        let inner = Mutex::new(Held { now: start, ..Held::default() });
        Arc::new(LiveRing { epoch, limits, inner })
    }

    /// Adds an event, and wakes who waits. What the limits do not allow any more is dropped.
    pub fn publish(&self, now: UtcInstant, topic: LiveTopic, data: &LiveData) {
        let data = serde_json::to_string(data).unwrap_or_default();
        let wakers = {
            let mut held = self.held();
            held.newest += 1;
            held.now = held.now.max(now);
            held.octets += data.len();
            let id = LiveEventId { epoch: self.epoch, sequence: held.newest };
            held.events.push_back((now, Arc::new(LiveEvent { id, topic, data: data.into() })));
            held.trim(&self.limits);
            std::mem::take(&mut held.wakers)
        };
        wakers.into_values().for_each(Waker::wake);
    }

    /// No more events come: every client's stream ends.
    pub fn close(&self) {
        let wakers = {
            let mut held = self.held();
            held.closed = true;
            std::mem::take(&mut held.wakers)
        };
        wakers.into_values().for_each(Waker::wake);
    }

    /// Clients that follow.
    pub fn readers(self: &Arc<LiveRing>) -> usize {
        Arc::strong_count(self).saturating_sub(1)
    }

    /// Ids of the series whose readings are to be published: those that a client follows, or
    /// followed so lately that it may come back for what it missed.
    pub fn followed(&self, now: UtcInstant) -> Vec<String> {
        let mut held = self.held();
        held.now = held.now.max(now);
        let (now, age) = (held.now, self.limits.age_ns);
        held.followed
            .retain(|_, of| of.readers > 0 || now.ns().saturating_sub(of.left.ns()) <= age);
        held.followed.keys().cloned().collect()
    }

    /// Whether a client may follow these, too.
    pub fn has_room_for(&self, topics: &[LiveTopic]) -> bool {
        let held = self.held();
        let more: BTreeSet<&String> =
            series_of(topics).filter(|id| !held.followed.contains_key(*id)).collect();
        held.followed.len() + more.len() <= self.limits.series
    }

    /// Events for one client, from the newest on, or after the one that it has had.
    pub fn follow(
        ring: &Arc<LiveRing>,
        after: Option<&str>,
        topics: Vec<LiveTopic>,
        now: UtcInstant,
    ) -> impl EventStream + use<> {
        let mut held = ring.held();
        held.readers += 1;
        let (id, newest) = (held.readers, held.newest);
        let oldest = held.oldest();
        // What nobody followed was not published.
        let unheard = series_of(&topics).any(|id| !held.followed.contains_key(id));
        for id in series_of(&topics) {
            held.followed.entry(id.clone()).or_default().readers += 1;
        }
        drop(held);
        let told = |reason, missed| Some(LiveGap { reason, missed, at: now });
        let (next, first) = match after.map(LiveEventId::parse) {
            None => (newest + 1, None),
            Some(None) => (newest + 1, told(GapReason::UnknownId, None)),
            Some(Some(id)) if id.epoch != ring.epoch => {
                (newest + 1, told(GapReason::StationRestarted, None))
            }
            Some(Some(id)) if id.sequence > newest => {
                (newest + 1, told(GapReason::UnknownId, None))
            }
            Some(Some(id)) if id.sequence + 1 < oldest => {
                (oldest, told(GapReason::TooLongAway, Some(oldest - id.sequence - 1)))
            }
            Some(Some(id)) if unheard => (id.sequence + 1, told(GapReason::TooLongAway, None)),
            Some(Some(id)) => (id.sequence + 1, None),
        };
        RingReader { ring: ring.clone(), id, next, resumes_to: newest, topics, first }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Sequence of the oldest event that is held; that of the next one where there is none.
    fn oldest(&self) -> u64 {
        self.newest + 1 - self.events.len() as u64
    }

    fn trim(&mut self, limits: &RingLimits) {
        let now = self.now;
        while let Some((at, event)) = self.events.front() {
            let old = now.ns().saturating_sub(at.ns()) > limits.age_ns;
            let many = self.events.len() > limits.events || self.octets > limits.octets;
            if !old && !many {
                break;
            }
            self.octets -= event.data.len();
            self.events.pop_front();
        }
    }
}

impl EventStream for RingReader {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<StreamItem>> {
        if let Some(gap) = self.first.take() {
            return Poll::Ready(Some(StreamItem::Gap(gap)));
        }
        let mut held = self.ring.held();
        let (oldest, newest) = (held.oldest(), held.newest);
        let behind = newest + 1 - self.next;
        let too_far = self.next > self.resumes_to && behind > self.ring.limits.behind;
        if self.next < oldest || too_far {
            let next = if too_far { newest } else { oldest };
            let missed = Some(next - self.next);
            self.next = next;
            let gap = LiveGap { reason: GapReason::SlowClient, missed, at: held.now };
            return Poll::Ready(Some(StreamItem::Gap(gap)));
        }
        while self.next <= newest {
            let (_, event) = &held.events[(self.next - oldest) as usize];
            self.next += 1;
            if self.topics.contains(&event.topic) {
                return Poll::Ready(Some(StreamItem::Event(event.clone())));
            }
        }
        if held.closed {
            return Poll::Ready(None);
        }
        held.wakers.insert(self.id, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for RingReader {
    fn drop(&mut self) {
        let mut held = self.ring.held();
        held.wakers.remove(&self.id);
        let now = held.now;
        for id in series_of(&self.topics) {
            if let Some(of) = held.followed.get_mut(id) {
                (of.readers, of.left) = (of.readers.saturating_sub(1), now);
            }
        }
    }
}

/// Series that are among these, each as often as it is there.
fn series_of(topics: &[LiveTopic]) -> impl Iterator<Item = &String> {
    topics.iter().filter_map(|topic| match topic {
        LiveTopic::Series(id) => Some(id),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readings::StateCounts;
    use proptest::prelude::*;

    const LIMITS: RingLimits =
        RingLimits { events: 10, octets: 1 << 20, age_ns: 300_000_000_000, behind: 4, series: 2 };

    fn at(seconds: i64) -> UtcInstant {
        UtcInstant::from_ms(1_000_000 + seconds * 1_000)
    }

    fn publish(ring: &LiveRing, n: u64) {
        let counts = StateCounts { ok: n, ..StateCounts::default() };
        ring.publish(at(n as i64), LiveTopic::State, &LiveData::State { counts });
    }

    fn poll(reader: &mut impl EventStream) -> Option<StreamItem> {
        match reader.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(item) => item,
            Poll::Pending => None,
        }
    }

    /// Sequences, and 0 for each gap, until there is nothing more.
    fn rest(reader: &mut impl EventStream) -> Vec<u64> {
        let of = |item| match item {
            StreamItem::Event(event) => event.id.sequence,
            StreamItem::Gap(_) => 0,
        };
        std::iter::from_fn(|| poll(reader).map(of)).collect()
    }

    #[test]
    fn readings_are_wanted_while_a_client_follows_and_as_long_as_it_may_resume() {
        let ring = LiveRing::new(at(0), LIMITS);
        publish(&ring, 1);
        let of = |id: &str| vec![LiveTopic::Series(id.to_owned())];
        let reader = LiveRing::follow(&ring, None, of("7"), at(1));
        assert_eq!(ring.followed(at(1_000)), ["7"]);
        assert!(ring.has_room_for(&of("8")) && ring.has_room_for(&of("7")));
        assert!(!ring.has_room_for(&[of("8"), of("9")].concat()));
        drop(reader);
        assert_eq!(ring.followed(at(1_300)), ["7"]);
        let mut back = LiveRing::follow(&ring, Some("1000000-1"), of("7"), at(1_300));
        assert_eq!(rest(&mut back), [0; 0], "nothing was missed");
        drop(back);
        assert!(ring.followed(at(1_601)).is_empty());
        // Nobody published it meanwhile: that is no silence.
        let mut late = LiveRing::follow(&ring, Some("1000000-1"), of("7"), at(1_602));
        assert_eq!(rest(&mut late), [0]);
    }

    fn state() -> Vec<LiveTopic> {
        vec![LiveTopic::State]
    }

    #[test]
    fn a_client_gets_what_comes_and_one_that_was_away_what_it_missed() {
        let ring = LiveRing::new(at(0), LIMITS);
        (1..=3).for_each(|n| publish(&ring, n));
        let mut new = LiveRing::follow(&ring, None, state(), at(3));
        assert_eq!(rest(&mut new), [0; 0]);
        publish(&ring, 4);
        let Some(StreamItem::Event(event)) = poll(&mut new) else { panic!() };
        assert_eq!(event.id.to_string(), "1000000-4");
        let mut away = LiveRing::follow(&ring, Some("1000000-2"), state(), at(4));
        assert_eq!(rest(&mut away), [3, 4]);
        assert_eq!(ring.readers(), 2);
        drop((new, away));
        assert_eq!(ring.readers(), 0);
    }

    #[test]
    fn what_cannot_be_resumed_is_a_gap_with_its_reason() {
        let ring = LiveRing::new(at(0), LIMITS);
        (1..=25).for_each(|n| publish(&ring, n));
        for (after, reason, missed, then) in [
            ("1000000-10", GapReason::TooLongAway, Some(5), 10),
            ("999-25", GapReason::StationRestarted, None, 0),
            ("1000000-26", GapReason::UnknownId, None, 0),
            ("x", GapReason::UnknownId, None, 0),
            ("-", GapReason::UnknownId, None, 0),
        ] {
            let mut reader = LiveRing::follow(&ring, Some(after), state(), at(25));
            let gap = LiveGap { reason, missed, at: at(25) };
            assert_eq!(poll(&mut reader), Some(StreamItem::Gap(gap)), "{after}");
            assert_eq!(rest(&mut reader).len(), then, "{after}");
        }
    }

    #[test]
    fn a_slow_client_skips_to_the_newest_and_is_told() {
        let ring = LiveRing::new(at(0), LIMITS);
        let mut slow = LiveRing::follow(&ring, None, state(), at(0));
        (1..=5).for_each(|n| publish(&ring, n));
        let Some(StreamItem::Gap(gap)) = poll(&mut slow) else { panic!() };
        assert_eq!((gap.reason, gap.missed), (GapReason::SlowClient, Some(4)));
        assert_eq!(rest(&mut slow), [5]);
        // Far behind: what it has not had is not even held any more.
        (6..=40).for_each(|n| publish(&ring, n));
        assert_eq!(rest(&mut slow), [0, 40]);
    }

    #[test]
    fn events_of_other_topics_are_passed_over() {
        let ring = LiveRing::new(at(0), LIMITS);
        let mut reader = LiveRing::follow(&ring, None, vec![LiveTopic::Series("7".into())], at(0));
        publish(&ring, 1);
        assert_eq!(rest(&mut reader), [0; 0]);
        let gap = LiveGap { reason: GapReason::UnknownId, missed: None, at: at(1) };
        ring.publish(at(1), LiveTopic::Series("7".into()), &LiveData::Gap(gap));
        ring.publish(at(1), LiveTopic::Series("8".into()), &LiveData::Gap(gap));
        assert_eq!(rest(&mut reader), [2]);
    }

    #[test]
    fn old_events_and_too_many_octets_go() {
        let ring = LiveRing::new(at(0), RingLimits { age_ns: 5_000_000_000, ..LIMITS });
        publish(&ring, 1);
        publish(&ring, 7);
        let mut reader = LiveRing::follow(&ring, Some("1000000-0"), state(), at(7));
        assert_eq!(rest(&mut reader), [0, 2]);
        let ring = LiveRing::new(at(0), RingLimits { octets: 1, ..LIMITS });
        publish(&ring, 1);
        assert_eq!(ring.held().events.len(), 0);
    }

    #[test]
    fn who_waits_is_woken_and_the_end_is_told() {
        struct Woken(std::sync::atomic::AtomicU32);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let woken = Arc::new(Woken(0.into()));
        let waker = Waker::from(woken.clone());
        let ring = LiveRing::new(at(0), LIMITS);
        let mut reader = LiveRing::follow(&ring, None, state(), at(0));
        let mut context = Context::from_waker(&waker);
        assert!(reader.poll_next(&mut context).is_pending());
        publish(&ring, 1);
        assert!(reader.poll_next(&mut context).is_ready());
        assert!(reader.poll_next(&mut context).is_pending());
        ring.close();
        assert_eq!(reader.poll_next(&mut context), Poll::Ready(None));
        assert_eq!(woken.0.load(std::sync::atomic::Ordering::Relaxed), 2);
    }

    proptest! {
        /// Whatever the order of publishing and polling: sequences ascend, and between two that
        /// follow each other without a gap none is missing.
        #[test]
        fn nothing_is_left_out_without_a_gap(steps in prop::collection::vec(any::<bool>(), 1..200), behind in 1..12u64) {
            let ring = LiveRing::new(at(0), RingLimits { behind, ..LIMITS });
            let mut reader = LiveRing::follow(&ring, None, state(), at(0));
            let (mut published, mut seen) = (0, 0);
            for publishes in steps {
                if publishes {
                    published += 1;
                    publish(&ring, published);
                    continue;
                }
                match poll(&mut reader) {
                    Some(StreamItem::Event(event)) => {
                        prop_assert_eq!(event.id.sequence, seen + 1);
                        seen += 1;
                    }
                    Some(StreamItem::Gap(gap)) => seen += gap.missed.unwrap(),
                    None => prop_assert_eq!(seen, published),
                }
            }
        }
    }
}
