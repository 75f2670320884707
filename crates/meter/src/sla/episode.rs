//! Located loss: which losses belong together, on which side they were, and whose they were.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::Interval;
use sonde_results::sla::{LossDirection, LossEpisode, StreamLoss};

use super::window::TimeRange;

/// Puts records with losses together into episodes. The order in which the streams' records come
/// does not matter.
///
/// Records belong to one episode where less than `quiet_ns` without loss lies between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LossEpisodes {
    quiet_ns: i64,
    open: Vec<OpenEpisode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct OpenEpisode {
    range: TimeRange,
    lost_forward: u64,
    lost_backward: u64,
    streams: BTreeMap<u32, StreamCounts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct StreamCounts {
    sent: u64,
    lost: u64,
}

impl LossEpisodes {
    /// Episodes that so much time without loss ends, ns: one record's length or more.
    pub fn new(quiet_ns: i64) -> Self {
        LossEpisodes { quiet_ns: quiet_ns.max(1), open: Vec::new() }
    }

    /// Takes a record of one stream. One without loss changes nothing, unless it proves the side of
    /// losses of the record before.
    pub fn observe(&mut self, record: &Interval) {
        let c = &record.counters;
        let sides = (c.lost_forward.unwrap_or(0), c.lost_backward.unwrap_or(0));
        let range = TimeRange { start_ns: record.start_ns, end_ns: record.end_ns };
        if c.lost == 0 {
            if sides != (0, 0) {
                self.add_sides(record.stream, range, sides);
            }
            return;
        }
        let streams =
            BTreeMap::from([(record.stream, StreamCounts { sent: c.sent, lost: c.lost })]);
        let mut episode =
            OpenEpisode { range, lost_forward: sides.0, lost_backward: sides.1, streams };
        // All that it touches become one, which may touch no further ones.
        let quiet_ns = self.quiet_ns;
        for near in self.open.extract_if(.., |e| near(e.range, range, quiet_ns)) {
            episode.merge(near);
        }
        self.open.push(episode);
        self.open.sort_by_key(|e| e.range);
    }

    /// All records that begin before `until_ns` were given. Returns the episodes that are over.
    pub fn advance(&mut self, until_ns: i64) -> Vec<LossEpisode> {
        let quiet_ns = self.quiet_ns;
        let over =
            self.open.extract_if(.., |e| e.range.end_ns.saturating_add(quiet_ns) <= until_ns);
        over.map(|e| e.report()).collect()
    }

    /// Episodes that may go on, as they look now.
    pub fn open(&self) -> impl Iterator<Item = LossEpisode> {
        self.open.iter().map(OpenEpisode::report)
    }

    fn add_sides(&mut self, stream: u32, range: TimeRange, (forward, backward): (u64, u64)) {
        let quiet_ns = self.quiet_ns;
        let of_stream = |e: &&mut OpenEpisode| {
            e.streams.contains_key(&stream) && near(e.range, range, quiet_ns)
        };
        if let Some(episode) = self.open.iter_mut().rfind(of_stream) {
            episode.lost_forward += forward;
            episode.lost_backward += backward;
        }
    }
}

impl OpenEpisode {
    fn merge(&mut self, other: OpenEpisode) {
        self.range.start_ns = self.range.start_ns.min(other.range.start_ns);
        self.range.end_ns = self.range.end_ns.max(other.range.end_ns);
        self.lost_forward += other.lost_forward;
        self.lost_backward += other.lost_backward;
        for (stream, counts) in other.streams {
            let sum = self.streams.entry(stream).or_default();
            sum.sent += counts.sent;
            sum.lost += counts.lost;
        }
    }

    fn report(&self) -> LossEpisode {
        let lost: u64 = self.streams.values().map(|c| c.lost).sum();
        let lost_forward = self.lost_forward.min(lost);
        let lost_backward = self.lost_backward.min(lost - lost_forward);
        let lost_unknown = lost - lost_forward - lost_backward;
        let direction = match (lost_forward, lost_backward) {
            // Most have no side: those that have one may be others than these.
            (forward, backward) if lost_unknown > forward + backward => LossDirection::Unknown,
            (_, 0) => LossDirection::Forward,
            (0, _) => LossDirection::Backward,
            _ => LossDirection::Both,
        };
        let streams = self.streams.iter();
        LossEpisode {
            start_ns: self.range.start_ns,
            end_ns: self.range.end_ns,
            direction,
            sent: self.streams.values().map(|c| c.sent).sum(),
            lost,
            lost_forward,
            lost_backward,
            lost_unknown,
            streams: streams
                .map(|(&stream, c)| StreamLoss { stream, sent: c.sent, lost: c.lost })
                .collect(),
        }
    }
}

fn near(a: TimeRange, b: TimeRange, quiet_ns: i64) -> bool {
    a.start_ns < b.end_ns.saturating_add(quiet_ns) && b.start_ns < a.end_ns.saturating_add(quiet_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(stream: u32, start_ns: i64, lost: u64, sides: Option<(u64, u64)>) -> Interval {
        let mut record = Interval { stream, start_ns, end_ns: start_ns + 10, ..Interval::empty(0) };
        record.counters.sent = 10;
        record.counters.lost = lost;
        record.counters.lost_forward = sides.map(|s| s.0);
        record.counters.lost_backward = sides.map(|s| s.1);
        record
    }

    #[test]
    fn an_episode_has_its_begin_length_side_and_streams() {
        let mut episodes = LossEpisodes::new(20);
        for r in [
            record(4, 0, 0, None),
            record(4, 10, 3, Some((3, 0))),
            record(9, 10, 0, None),
            record(9, 20, 4, Some((4, 0))),
            record(4, 40, 1, Some((0, 0))),
            // After 20 ns of quiet another one begins.
            record(4, 70, 2, Some((0, 2))),
        ] {
            episodes.observe(&r);
        }
        let over = episodes.advance(70);
        let [first] = &over[..] else { panic!("{over:?}") };
        assert_eq!((first.start_ns, first.end_ns, first.length_ns()), (10, 50, 40));
        assert_eq!(first.direction, LossDirection::Forward);
        assert_eq!((first.sent, first.lost), (30, 8));
        assert_eq!((first.lost_forward, first.lost_backward, first.lost_unknown), (7, 0, 1));
        let streams: Vec<_> = first.streams.iter().map(|s| (s.stream, s.sent, s.lost)).collect();
        assert_eq!(streams, [(4, 20, 4), (9, 10, 4)]);
        assert_eq!(
            episodes.open().map(|e| e.direction).collect::<Vec<_>>(),
            [LossDirection::Backward]
        );
        assert_eq!(episodes.advance(99), []);
        assert_eq!(episodes.advance(100).len(), 1);
    }

    #[test]
    fn a_side_that_the_next_record_proves_is_taken() {
        let mut episodes = LossEpisodes::new(20);
        episodes.observe(&record(1, 0, 5, None));
        assert_eq!(episodes.open().next().unwrap().direction, LossDirection::Unknown);
        episodes.observe(&record(2, 10, 0, Some((9, 0))));
        episodes.observe(&record(1, 10, 0, Some((0, 5))));
        let over = episodes.advance(1_000);
        assert_eq!((over[0].direction, over[0].lost_backward), (LossDirection::Backward, 5));
        assert_eq!(over[0].end_ns, 10, "it does not last longer for that");
    }

    #[test]
    fn losses_on_either_side_are_both() {
        let mut episodes = LossEpisodes::new(20);
        episodes.observe(&record(1, 0, 5, Some((2, 3))));
        episodes.observe(&record(2, 0, 4, None));
        assert_eq!(episodes.open().next().unwrap().direction, LossDirection::Both);
    }

    proptest! {
        #[test]
        fn the_order_of_records_does_not_matter(
            records in prop::collection::vec((0..4u32, 0..60i64, 1..9u64, 0..5u64), 1..40),
            seed in any::<u64>(),
        ) {
            let mut records: Vec<Interval> = records
                .into_iter()
                .map(|(s, at, lost, forward)| record(s, at * 10, lost, Some((forward.min(lost), 0))))
                .collect();
            let of = |records: &[Interval]| {
                let mut episodes = LossEpisodes::new(20);
                records.iter().for_each(|r| episodes.observe(r));
                episodes.advance(10_000)
            };
            let first = of(&records);
            fastrand::Rng::with_seed(seed).shuffle(&mut records);
            prop_assert_eq!(&of(&records), &first);
            // Nothing is lost, and what is apart is far apart.
            let lost: u64 = records.iter().map(|r| r.counters.lost).sum();
            prop_assert_eq!(first.iter().map(|e| e.lost).sum::<u64>(), lost);
            prop_assert!(first.windows(2).all(|w| w[1].start_ns - w[0].end_ns >= 20));
        }
    }
}
