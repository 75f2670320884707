//! Streams taken together: by DSCP, by target, and the worst of them.

use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::{Interval, StreamInfo};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// Some streams as one.
#[derive(Clone, Debug)]
pub struct StreamGroup<'a> {
    /// The target, or what the group is.
    pub label: Cow<'a, str>,
    /// The DSCP that all of them share.
    pub dscp: Option<u8>,
    /// Of a single stream, where others of its target and class differ from it only by this.
    pub source_port: Option<u16>,
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
            source_port: None,
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

/// What tells the streams of a target and class apart: addresses, source ports, or nothing.
#[derive(Clone, Debug, Default)]
pub struct Distinctions<'a> {
    /// The first address of each target and class, and whether it has others.
    addresses: HashMap<(&'a str, u8), (IpAddr, bool)>,
    /// Streams to each address of a target and class.
    paths: HashMap<(&'a str, u8, IpAddr), usize>,
}

impl<'a> Distinctions<'a> {
    /// Of all streams of a run.
    pub fn of(streams: &'a [StreamInfo]) -> Self {
        let mut all = Distinctions::default();
        for info in streams {
            let (target, address) = (info.target.as_str(), info.destination.ip());
            let (first, several) =
                all.addresses.entry((target, info.dscp)).or_insert((address, false));
            *several |= *first != address;
            *all.paths.entry((target, info.dscp, address)).or_insert(0) += 1;
        }
        all
    }

    /// The stream's target; with its address where others of it go to other addresses.
    pub fn label<'b>(&self, info: &'b StreamInfo) -> Cow<'b, str> {
        let known = self.addresses.get(&(info.target.as_str(), info.dscp));
        match known.is_some_and(|(_, several)| *several) {
            true => format!("{} ({})", info.target, info.destination.ip()).into(),
            false => Cow::Borrowed(&info.target),
        }
    }

    /// The stream's source port, where others differ from it by nothing else.
    pub fn source_port(&self, info: &StreamInfo) -> Option<u16> {
        let path = (info.target.as_str(), info.dscp, info.destination.ip());
        let several = self.paths.get(&path).is_some_and(|n| *n > 1);
        several.then_some(info.source.port())
    }
}

/// The `most` worst streams: by share lost, then by p99 of the round trip. The flows of a target
/// are not added up: one path that is dead would hide among many.
pub fn worst<'a>(
    streams: &'a [StreamInfo],
    intervals: &'a [Interval],
    most: usize,
) -> Vec<StreamGroup<'a>> {
    let of_run = |i: &'a Interval| Some((streams.get(i.stream as usize)?, i));
    let mut ranked: Vec<((f64, i64), &StreamInfo, &Interval)> =
        intervals.iter().filter_map(of_run).map(|(info, i)| (badness(i), info, i)).collect();
    ranked.sort_by(|(a, ..), (b, ..)| b.partial_cmp(a).unwrap_or(Ordering::Equal));
    ranked.truncate(most);
    let distinctions = Distinctions::of(streams);
    let group = |(_, info, interval): (_, &'a StreamInfo, &'a Interval)| StreamGroup {
        label: distinctions.label(info),
        dscp: Some(info.dscp),
        source_port: distinctions.source_port(info),
        members: 1,
        interval: Cow::Borrowed(interval),
    };
    ranked.into_iter().map(group).collect()
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
    fn the_worst_come_first() {
        let mut run = sample::run(20, 1);
        run.totals[7].counters.lost = 50;
        run.totals[9].counters.lost = 20;
        let slow = run.totals[11].rtt.max * 100;
        (0..500).for_each(|_| run.totals[11].rtt.add(slow));
        run.totals.iter_mut().for_each(|t| t.counters.lost = t.counters.lost.saturating_sub(10));
        let worst = worst(&run.streams, &run.totals, 3);
        let names: Vec<_> = worst.iter().map(|g| g.label.to_string()).collect();
        assert_eq!(names, ["10.2.0.8", "10.2.0.10", "10.2.0.12"]);
        assert!(worst.iter().all(|g| g.source_port.is_none()), "nothing else has their targets");
    }

    #[test]
    fn a_dead_path_is_named_by_what_tells_it_from_the_others() {
        let mut run = sample::run(12, 1);
        let alone = run.streams[0].clone();
        for (port, info) in (50_000..).zip(&mut run.streams) {
            *info = StreamInfo { source: (info.source.ip(), port).into(), ..alone.clone() };
        }
        let c = &mut run.totals[7].counters;
        (c.received, c.lost) = (0, c.sent);
        let first = |run: &sonde_results::Run| {
            let worst = worst(&run.streams, &run.totals, 10);
            let (group, many) = (&worst[0], worst.len());
            let c = &group.interval.counters;
            (group.label.to_string(), group.source_port, c.lost == c.sent, many)
        };
        assert_eq!(first(&run), (alone.target.clone(), Some(50_007), true, 10));
        // Addresses of one name are told apart by themselves.
        for (i, info) in (1u8..).zip(&mut run.streams) {
            info.target = "edge.example".into();
            info.destination.set_ip(IpAddr::from([192, 0, 2, i]));
        }
        assert_eq!(first(&run), ("edge.example (192.0.2.8)".into(), None, true, 10));
        // Classes need no port.
        for (i, info) in (0..).zip(&mut run.streams) {
            *info = StreamInfo { dscp: i, ..alone.clone() };
        }
        assert_eq!(first(&run), (alone.target, None, true, 10));
    }
}
