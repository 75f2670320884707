//! The flow table: buckets of eight, their tags in half a cache line, no chains. It never
//! grows; what it evicts is what would be missed least.

use super::clock::Clock;
use super::flow::{Flow, Stats};
use super::key::{Key, Seeds};

/// Flows in buckets of [`WAYS`].
pub(super) struct Table {
    /// Upper half of each flow's hash; 0: free.
    tags: Vec<Tags>,
    flows: Vec<Flow>,
    stats: Vec<Stats>,
    seeds: Seeds,
    /// The index at which the sweep goes on.
    next: usize,
}

/// Of one bucket, in one cache line.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Tags([u32; WAYS]);

/// Where a new flow may go.
pub(super) enum Vacancy {
    Free(usize),
    /// It holds a flow that must be ended first.
    Victim(usize),
}

impl Table {
    /// Room for `flows` flows, a power of two and at least 8.
    pub(super) fn new(flows: usize, seeds: Seeds) -> Self {
        let empty = Flow::new(Key::default(), 0, &Clock::new(sonde_wire::Time::ZERO));
        Table {
            tags: vec![Tags([0; WAYS]); flows / WAYS],
            flows: vec![empty; flows],
            stats: vec![Stats::default(); flows],
            seeds,
            next: 0,
        }
    }

    /// Bucket and tag of a key.
    #[inline]
    pub(super) fn locate(&self, key: &Key) -> (usize, u32) {
        let hash = key.hash(self.seeds);
        (hash as usize & (self.tags.len() - 1), ((hash >> 32) as u32).max(1))
    }

    /// The flow of a key.
    #[inline]
    pub(super) fn find(&self, key: &Key, (bucket, tag): (usize, u32)) -> Option<usize> {
        self.tags[bucket].0.iter().enumerate().find_map(|(way, &t)| {
            let index = bucket * WAYS + way;
            (t == tag && self.flows[index].key == *key).then_some(index)
        })
    }

    /// An entry for a new flow: a free one, or that of another flow. Taken is one that is closed,
    /// idle, or has only ever heard one side, in this order. Live two-way flows are not given up.
    pub(super) fn vacancy(&self, bucket: usize, clock: &Clock) -> Option<Vacancy> {
        let ways = bucket * WAYS..(bucket + 1) * WAYS;
        if let Some(way) = self.tags[bucket].0.iter().position(|&tag| tag == 0) {
            return Some(Vacancy::Free(bucket * WAYS + way));
        }
        // The greatest idle time; of equals the first.
        let longest = |wanted: &dyn Fn(&Flow) -> bool| {
            ways.clone()
                .filter(|&i| wanted(&self.flows[i]))
                .rev()
                .max_by_key(|&i| clock.idle(self.flows[i].last))
        };
        ways.clone()
            .find(|&i| self.flows[i].is_closed())
            .or_else(|| longest(&|flow| flow.is_idle(clock)))
            .or_else(|| longest(&|flow| !flow.is_two_way()))
            .map(Vacancy::Victim)
    }

    /// Puts a flow into an entry.
    pub(super) fn insert(&mut self, index: usize, tag: u32, flow: Flow, stats: Stats) {
        self.tags[index / WAYS].0[index % WAYS] = tag;
        self.flows[index] = flow;
        self.stats[index] = stats;
    }

    pub(super) fn remove(&mut self, index: usize) {
        self.tags[index / WAYS].0[index % WAYS] = 0;
    }

    #[inline]
    pub(super) fn get(&mut self, index: usize) -> (&mut Flow, &mut Stats) {
        (&mut self.flows[index], &mut self.stats[index])
    }

    /// Whether an entry holds a flow.
    pub(super) fn is_used(&self, index: usize) -> bool {
        self.tags[index / WAYS].0[index % WAYS] != 0
    }

    /// Where the sweep looks next: the same entry again after [`Table::len`] calls.
    pub(super) fn next(&mut self) -> usize {
        let index = self.next;
        self.next = (index + 1) % self.flows.len();
        index
    }

    /// Entries, used or not.
    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Flow, &Stats)> {
        let tags = self.tags.iter().flat_map(|bucket| &bucket.0);
        tags.zip(self.flows.iter().zip(&self.stats))
            .filter(|(tag, _)| **tag != 0)
            .map(|(_, flow)| flow)
    }
}

const WAYS: usize = 8;
