//! Streams taken together: by DSCP, by target, and the worst of them.

use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::{Interval, StreamInfo};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

/// Some streams as one.
#[derive(Clone, Debug)]
pub struct StreamGroup<'a> {
    /// The target, or what the group is.
    pub label: Cow<'a, str>,
    /// The DSCP that all of them share.
    pub dscp: Option<u8>,
    /// How many they are. What refers to one stream's own minimum or history (PDV, RFC
    /// 3550 jitter) has no meaning for several.
    pub members: usize,
    pub interval: Cow<'a, Interval>,
}

/// One group for each DSCP, in order.
pub fn by_dscp<'a>(streams: &[StreamInfo], intervals: &'a [Interval]) -> Vec<StreamGroup<'a>> {
    let mut groups: BTreeMap<u8, (usize, Cow<'a, Interval>)> = BTreeMap::new();
    for interval in intervals {
        let Some(info) = streams.get(interval.stream as usize) else { continue };
        match groups.get_mut(&info.dscp) {
            Some((members, sum)) => {
                *members += 1;
                sum.to_mut().merge(interval);
            }
            None => {
                groups.insert(info.dscp, (1, Cow::Borrowed(interval)));
            }
        }
    }
    groups
        .into_iter()
        .map(|(dscp, (members, interval))| StreamGroup {
            label: match members {
                1 => "1 stream".into(),
                n => format!("{n} streams").into(),
            },
            dscp: Some(dscp),
            members,
            interval,
        })
        .collect()
}

/// All groups as one.
pub fn all(groups: &[StreamGroup<'_>]) -> Interval {
    let mut sum = Interval::empty(0);
    for group in groups {
        sum.merge(&group.interval);
    }
    sum
}

/// The `most` worst targets and classes: by share lost, then by p99 of the round trip.
/// The flows of one target and class count as one.
pub fn worst<'a>(
    streams: &'a [StreamInfo],
    intervals: &'a [Interval],
    most: usize,
) -> Vec<StreamGroup<'a>> {
    let mut index_of: HashMap<(&str, u8), usize> = HashMap::new();
    let mut groups: Vec<StreamGroup<'a>> = Vec::new();
    for interval in intervals {
        let Some(info) = streams.get(interval.stream as usize) else { continue };
        let index = *index_of.entry((&info.target, info.dscp)).or_insert(groups.len());
        match groups.get_mut(index) {
            Some(group) => {
                group.members += 1;
                group.interval.to_mut().merge(interval);
            }
            None => groups.push(StreamGroup {
                label: Cow::Borrowed(&info.target),
                dscp: Some(info.dscp),
                members: 1,
                interval: Cow::Borrowed(interval),
            }),
        }
    }
    let mut ranked: Vec<((f64, i64), StreamGroup<'a>)> =
        groups.into_iter().map(|g| (badness(&g.interval), g)).collect();
    ranked.sort_by(|(a, _), (b, _)| b.partial_cmp(a).unwrap_or(Ordering::Equal));
    ranked.truncate(most);
    ranked.into_iter().map(|(_, group)| group).collect()
}

/// Whether the one-way delays mean what they say: nothing speaks against either clock.
pub fn clocks_compare(caveats: CaveatSet) -> bool {
    ![
        Caveat::LocalClockUnsynchronised,
        Caveat::PeerClockUnsynchronised,
        Caveat::NegativeOneWayDelay,
    ]
    .into_iter()
    .any(|c| caveats.contains(c))
}

fn badness(interval: &Interval) -> (f64, i64) {
    let loss = interval.counters.loss_ratio().unwrap_or(0.0);
    (loss, interval.rtt.quantile(0.99).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::testing::probe as sample;

    #[test]
    fn grouping_keeps_every_packet() {
        let run = sample::run(50, 2);
        let sent: u64 = run.totals.iter().map(|t| t.counters.sent).sum();
        let groups = by_dscp(&run.streams, &run.totals);
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0].label, "50 streams");
        assert_eq!(all(&groups).counters.sent, sent);
        assert_eq!(all(&groups).rtt, run.overall.rtt);
    }

    #[test]
    fn the_worst_come_first_and_flows_count_as_one() {
        let mut run = sample::run(20, 1);
        run.totals[7].counters.lost = 50;
        run.totals[9].counters.lost = 20;
        let slow = run.totals[11].rtt.max * 100;
        (0..500).for_each(|_| run.totals[11].rtt.add(slow));
        run.totals.iter_mut().for_each(|t| t.counters.lost = t.counters.lost.saturating_sub(10));
        let names: Vec<_> =
            worst(&run.streams, &run.totals, 3).iter().map(|g| g.label.to_string()).collect();
        assert_eq!(names, ["10.2.0.8", "10.2.0.10", "10.2.0.12"]);
        run.streams.iter_mut().for_each(|s| s.target = "one".into());
        let one = worst(&run.streams, &run.totals, 3);
        assert_eq!((one.len(), one[0].interval.counters.sent), (1, run.overall.counters.sent));
    }
}
