//! Own interfaces that were full, dropped packets or counted damaged ones, by their counters.

use std::collections::BTreeMap;

use sonde_meter::explain::EvidenceKind;
use sonde_store::query::{InterfaceSums, TimeRange};
use sonde_store::series::MODULE_INTERFACE;
use sonde_store::{Answer, InterfaceRow, Query, StoreError};

use super::{ExplainTimes, Gather, find_labels, other_answer};

/// What the counters of an interface say of the time of the fault, held against those before.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InterfaceChange {
    pub interface: String,
    pub kind: EvidenceKind,
}

/// What changed on the interfaces of the event's station.
pub(super) fn changed(
    gather: &Gather<'_>,
    times: &ExplainTimes,
) -> Result<Vec<InterfaceChange>, StoreError> {
    let sampled = gather.input.series.iter().any(|s| s.labels.module == MODULE_INTERFACE);
    if times.windows == 0 || !sampled {
        return Ok(Vec::new());
    }
    let range = TimeRange {
        from_ns: times.before.from_ns - LONGEST_SAMPLE_NS,
        to_ns: times.during.to_ns.max(times.before.from_ns + STEP_NS),
    };
    let ask = InterfaceSums { range, step_ns: STEP_NS, ..InterfaceSums::default() };
    let Answer::Interfaces(tables) = gather.query(&Query::Interfaces(ask))? else {
        return Err(other_answer());
    };
    let mut found: BTreeMap<String, (bool, Vec<EvidenceKind>)> = BTreeMap::new();
    for table in tables {
        let Some(labels) = find_labels(gather.input.series, table.series) else { continue };
        if labels.station != gather.subject.station {
            continue;
        }
        // Interfaces of other namespaces may have names of this one's.
        let elsewhere = labels.free.contains_key("netns");
        if elsewhere && found.get(&labels.target).is_some_and(|known| !known.0) {
            continue;
        }
        found.insert(labels.target.clone(), (elsewhere, changes(&table.sums, times)));
    }
    let of = |(interface, (_, kinds)): (String, (bool, Vec<EvidenceKind>))| {
        kinds.into_iter().map(move |kind| InterfaceChange { interface: interface.clone(), kind })
    };
    Ok(found.into_iter().flat_map(of).collect())
}

/// What the samples of one interface say.
fn changes(samples: &[InterfaceRow], times: &ExplainTimes) -> Vec<EvidenceKind> {
    let (mut now, mut before) = (InterfaceRow::default(), InterfaceRow::default());
    for sample in samples {
        let (from_ns, to_ns) = (sample.start_ns, sample.start_ns + sample.length_ns);
        let common = to_ns.min(times.during.to_ns) - from_ns.max(times.during.from_ns);
        let shorter = sample.length_ns.min(times.during.to_ns - times.during.from_ns);
        // A sample is of the fault where it has half of it, or is half in it.
        if common * 2 >= shorter {
            now.add(sample);
        } else if to_ns <= times.during.from_ns + STEP_NS {
            before.add(sample);
        }
    }
    if now.length_ns <= 0 || before.length_ns <= 0 {
        return Vec::new();
    }
    let mut kinds = Vec::new();
    let used = |row: &InterfaceRow| {
        let octets = row.receive.octets.max(row.transmit.octets) as f64;
        octets * 8e9 / (row.length_ns as f64 * row.speed_bps as f64)
    };
    if now.speed_bps > 0 && before.speed_bps > 0 {
        let (before, now) = (used(&before), used(&now));
        if now > FULL && now > before + LEAST_RISE {
            kinds.push(EvidenceKind::Filled { before, now });
        }
    }
    let rate = |count: u64, row: &InterfaceRow| count as f64 * 1e9 / row.length_ns as f64;
    let rose = |count: fn(&InterfaceRow) -> u64| {
        let (of_before, of_now) = (rate(count(&before), &before), rate(count(&now), &now));
        let much = count(&now) >= LEAST_COUNT && of_now > of_before * TIMES;
        much.then_some((of_before, of_now))
    };
    let dropped =
        |row: &InterfaceRow| row.queue_dropped + row.transmit.dropped + row.receive.dropped;
    if let Some((before, now)) = rose(dropped) {
        kinds.push(EvidenceKind::Drops { before, now });
    }
    if rose(|row| row.receive.errors + row.transmit.errors).is_some() {
        kinds.push(EvidenceKind::Errors);
    }
    kinds
}

/// Samples are told apart by so much, ns.
const STEP_NS: i64 = 1_000_000_000;
/// A sample that begins so long before a time may be of it, ns.
const LONGEST_SAMPLE_NS: i64 = 60_000_000_000;
/// A link is filled above this share of its rate.
pub(super) const FULL: f64 = 0.9;
/// By so much of its rate a link is fuller than before.
const LEAST_RISE: f64 = 0.1;
/// Drops and errors that are too few say nothing.
const LEAST_COUNT: u64 = 10;
/// So many times as often as before.
const TIMES: f64 = 4.0;

#[cfg(test)]
mod tests {
    use sonde_store::InterfaceSide;

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// A fault of 5 s, 25 s after a sample began, and 5 min before.
    fn times() -> ExplainTimes {
        let range = |from: i64, to: i64| TimeRange { from_ns: from * SECOND, to_ns: to * SECOND };
        let (during, before) = (range(1_004, 1_009), range(700, 1_003));
        ExplainTimes { during, before, windows: 60, interval_ns: SECOND }
    }

    /// Samples of 10 s from 700 s on; the last one, of the fault, is `now`.
    fn samples(now: InterfaceRow) -> Vec<InterfaceRow> {
        let usual = |at: i64| InterfaceRow {
            start_ns: at * SECOND,
            length_ns: 10 * SECOND,
            intervals: 1,
            speed_bps: 1_000_000,
            transmit: InterfaceSide { octets: 500_000, packets: 500, ..InterfaceSide::default() },
            ..InterfaceRow::default()
        };
        let mut all: Vec<InterfaceRow> = (700..1_000).step_by(10).map(usual).collect();
        all.push(InterfaceRow { start_ns: 1_000 * SECOND, ..now });
        all
    }

    fn usual() -> InterfaceRow {
        samples(InterfaceRow::default()).swap_remove(0)
    }

    #[test]
    fn what_is_as_before_says_nothing() {
        assert_eq!(changes(&samples(usual()), &times()), []);
        assert_eq!(changes(&[], &times()), []);
        assert_eq!(changes(&[usual()], &times()), [], "nothing is known of the fault");
    }

    #[test]
    fn a_link_is_full_at_over_nine_tenths_of_its_speed() {
        let mut now = usual();
        now.transmit.octets = 1_200_000;
        let filled = EvidenceKind::Filled { before: 0.4, now: 0.96 };
        assert_eq!(changes(&samples(now.clone()), &times()), [filled]);
        now.speed_bps = 0;
        assert_eq!(changes(&samples(now.clone()), &times()), [], "its speed is not known");
        (now.speed_bps, now.transmit.octets) = (1_000_000, 1_100_000);
        assert_eq!(changes(&samples(now), &times()), [], "88 %");
    }

    #[test]
    fn drops_and_errors_count_where_they_are_more_than_before() {
        let drops = |queue_dropped| InterfaceRow { queue_dropped, ..usual() };
        let rose = EvidenceKind::Drops { before: 0.0, now: 5.0 };
        assert_eq!(changes(&samples(drops(50)), &times()), [rose]);
        assert_eq!(changes(&samples(drops(9)), &times()), []);
        let mut always = samples(drops(50));
        always.iter_mut().for_each(|sample| sample.queue_dropped = 50);
        assert_eq!(changes(&always, &times()), []);
        let mut damaged = usual();
        damaged.receive.errors = 20;
        assert_eq!(changes(&samples(damaged), &times()), [EvidenceKind::Errors]);
    }
}
