//! Requests that wait for their answers, of all flows: a table of fixed size, whose entries are
//! found by the flow and the identifier. So any number may be in flight, and one without an answer
//! blocks no other. What became of them is counted by flow and side.

use super::clock::{Clock, MAX_RTT, TICK_MASK, ns_to_ticks};
use super::counters::RttCounters;
use super::key::{Key, Seeds};

/// The requests that wait.
pub(super) struct Requests {
    sets: Vec<Set>,
    seeds: Seeds,
}

/// Entries for requests with one hash, in a cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Set([Entry; WAYS]);

#[derive(Clone, Copy, Default)]
struct Entry {
    /// The upper 48 bits of the hash, the highest set; then the lower 16 of the coarse time.
    /// 0: free.
    word: u64,
    /// Ticks, and [`AMBIGUOUS`].
    time: u32,
    /// Of DNS: stands for the name. 0: none, which fits all.
    name: u16,
}

/// Which request: whose, and what the answer repeats of it.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) key: &'a Key,
    /// The side that asked.
    pub(super) side: usize,
    pub(super) id: u32,
    pub(super) name: u16,
}

/// What became of the requests of one side of a flow.
#[derive(Clone, Copy, Default)]
pub(super) struct RequestCounts {
    /// All that were noted; = `answered` + `unanswered` + `waiting`.
    pub(super) requests: u32,
    pub(super) answered: u32,
    unanswered: u32,
    /// Of this turn and of the one before it.
    waiting: [u32; 2],
    /// The turn, in units of 2^[`TURN_BITS`] coarse ones.
    turn: u32,
}

impl Requests {
    /// Of a table of `flows` flows.
    pub(super) fn new(flows: usize, seeds: Seeds) -> Self {
        let sets = (flows / 2).clamp(LEAST, MOST) / WAYS;
        Requests { sets: vec![Set::default(); sets], seeds }
    }

    pub(super) fn ask(
        &mut self,
        request: Request<'_>,
        counts: &mut RequestCounts,
        clock: &Clock,
        counters: &mut RttCounters,
    ) {
        counts.settle(clock.coarse);
        let (set, word) = self.find(request);
        let mut at = None;
        for (i, entry) in set.iter_mut().enumerate() {
            let same = entry.is(word) && entry.name == request.name;
            if entry.waits(clock) {
                if same {
                    // Within a millisecond it is a copy that a mirror port made; later it was
                    // sent again, and either may be answered (Karn's rule).
                    if clock.age(entry.time & TICK_MASK) >= COPY {
                        entry.time |= AMBIGUOUS;
                    }
                    counters.duplicate_ids += 1;
                    return;
                }
            } else if same || at.is_none() {
                at = Some(i);
            }
        }
        let Some(at) = at else {
            counters.slots_full += 1;
            return;
        };
        let word = word | u64::from(clock.coarse as u16);
        set[at] = Entry { word, time: clock.tick, name: request.name };
        counts.requests = counts.requests.wrapping_add(1);
        *counts.waiting_since(clock.coarse) += 1;
        counters.requests += 1;
    }

    /// The age, ticks, of the request with this answer.
    pub(super) fn answer(
        &mut self,
        request: Request<'_>,
        counts: &mut RequestCounts,
        clock: &Clock,
        counters: &mut RttCounters,
    ) -> Option<u32> {
        counts.settle(clock.coarse);
        let (set, word) = self.find(request);
        let exact = set.iter().position(|entry| entry.is(word) && entry.name == request.name);
        let at = exact.or_else(|| {
            let fits = |entry: &Entry| entry.is(word) && (entry.name == 0 || request.name == 0);
            let mut fitting = (0..WAYS).filter(|&i| fits(&set[i]));
            fitting.next().filter(|_| fitting.next().is_none())
        })?;
        let Entry { word, time, .. } = std::mem::take(&mut set[at]);
        let then = word as u16;
        if !clock.is_recent_short(then) {
            counters.stale += 1;
            return None;
        }
        let ago = (clock.coarse as u16).wrapping_sub(then) as i16;
        let waiting = counts.waiting_since(clock.coarse.wrapping_sub(i32::from(ago) as u32));
        // Else it is that of an earlier flow with the same key.
        *waiting = waiting.checked_sub(1)?;
        counts.answered = counts.answered.wrapping_add(1);
        counters.answered += 1;
        let age = clock.age(time & TICK_MASK);
        if time & AMBIGUOUS != 0 || age > MAX_RTT {
            counters.stale += u64::from(time & AMBIGUOUS == 0);
            return None;
        }
        // 0 stands for "none" in the statistics.
        Some(age.max(1))
    }

    /// The set of a request, and its word without the time.
    fn find(&mut self, request: Request<'_>) -> (&mut [Entry; WAYS], u64) {
        let hash = request.key.request(request.id, request.side, self.seeds);
        let set = hash as usize & (self.sets.len() - 1);
        (&mut self.sets[set].0, (hash | 1 << 63) & !0xFFFF)
    }
}

impl Entry {
    fn is(&self, word: u64) -> bool {
        (self.word ^ word) >> 16 == 0
    }

    /// Its entry is not free for another.
    fn waits(&self, clock: &Clock) -> bool {
        let ago = (clock.coarse as u16).wrapping_sub(self.word as u16) as i16;
        self.word != 0 && (-1..=LIFE).contains(&ago)
    }
}

impl RequestCounts {
    /// Of all that were noted, those that have gone without an answer for the whole turn after
    /// their own. Of a flow that is idle, all.
    pub(super) fn unanswered(&self, is_idle: bool) -> u32 {
        self.unanswered + if is_idle { self.waiting[0] + self.waiting[1] } else { 0 }
    }

    /// What waits since before the last turn waits in vain. A clock one unit behind, as
    /// those of two processors may be, changes nothing.
    fn settle(&mut self, coarse: u32) {
        let turn = coarse >> TURN_BITS;
        match turn.wrapping_sub(self.turn) {
            0 | u32::MAX => return,
            1 => {
                self.unanswered += self.waiting[1];
                self.waiting = [0, self.waiting[0]];
            }
            _ => {
                self.unanswered += self.waiting[0] + self.waiting[1];
                self.waiting = [0; 2];
            }
        }
        self.turn = turn;
    }

    /// Where a request of this time is counted that has no answer yet. One that was given up
    /// may still be answered.
    fn waiting_since(&mut self, coarse: u32) -> &mut u32 {
        match self.turn.wrapping_sub(coarse >> TURN_BITS) {
            0 => &mut self.waiting[0],
            1 => &mut self.waiting[1],
            _ => &mut self.unanswered,
        }
    }
}

const WAYS: usize = 4;
/// Capacity in requests, of the smallest table and of the greatest.
const LEAST: usize = 256;
const MOST: usize = 1 << 18;
/// Coarse units, 4.3 s: then a request gives its entry to another that needs it.
const LIFE: i16 = 1 << TURN_BITS;
/// A turn is 64 coarse units, 4.3 s.
const TURN_BITS: u32 = 6;
/// The same request twice within this is a copy.
const COPY: u32 = ns_to_ticks(1_000_000);
/// It was sent again: an answer says nothing about the time.
const AMBIGUOUS: u32 = 1 << 31;
