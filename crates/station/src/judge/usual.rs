//! What is usual in an hour: which hours are wanted, and what the store says of them.

use std::sync::Arc;

use sonde_meter::sla::{Objective, Usual, same_hours};
use sonde_results::Interval;
use sonde_store::query::{Delay, Merged, TimeRange};
use sonde_store::{Answer, Limit, Query, Reader, SeriesFilter, StoreError};

use super::StationJudge;
use super::subject::Subject;
use crate::alert::model::LabelSet;

/// An hour whose usual is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct UsualWanted {
    /// Whose: station, unit, target, class.
    pub labels: LabelSet,
    /// By which objective.
    pub objective: Arc<Objective>,
    /// Begin of the hour, ns since 1970 UTC.
    pub hour_ns: i64,
}

impl StationJudge {
    /// The hours whose usual is wanted at `now_ns` or soon, so many at most.
    pub fn wanted_usuals(&self, now_ns: i64, most: usize) -> Vec<UsualWanted> {
        let asks = |o: &super::settings::JudgedObjective| {
            o.objective.metric.limit().is_some_and(|limit| limit.is_usual())
        };
        if !self.settings.objectives.iter().any(asks) {
            return Vec::new();
        }
        let wanted = self.subjects.iter().flat_map(|(labels, subject)| {
            let hours = subject.wanted_usuals([now_ns, now_ns + AHEAD_NS]);
            hours.into_iter().map(|(objective, hour_ns)| UsualWanted {
                labels: labels.clone(),
                objective,
                hour_ns,
            })
        });
        wanted.take(most).collect()
    }

    /// Says what is usual in an hour; `None`: it is not known.
    pub fn set_usual(&mut self, wanted: &UsualWanted, usual: Option<Usual>) {
        if let Some(subject) = self.subjects.get_mut(&wanted.labels) {
            subject.set_usual(&wanted.objective.name, wanted.hour_ns, usual);
        }
    }
}

impl Subject {
    fn wanted_usuals(&self, times_ns: [i64; 2]) -> Vec<(Arc<Objective>, i64)> {
        let mut wanted = Vec::new();
        for (judge, next_ns) in self.judges_and_times() {
            for at_ns in next_ns.into_iter().chain(times_ns) {
                let Some(hour_ns) = judge.wants_usual(at_ns) else { continue };
                let known = |(objective, hour): &(Arc<Objective>, i64)| {
                    *hour == hour_ns && objective.name == judge.objective().name
                };
                if !wanted.iter().any(known) {
                    wanted.push((Arc::new(judge.objective().clone()), hour_ns));
                }
            }
        }
        wanted
    }
}

/// What is usual in the hour that is wanted, from the same hour of the four weeks before. `None`: the
/// store knows too little of it.
///
/// # Errors
/// The store cannot be asked.
pub(super) fn read_usual(
    reader: &dyn Reader,
    wanted: &UsualWanted,
) -> Result<Option<Usual>, StoreError> {
    let label = |name: &str| wanted.labels.get(name).cloned().unwrap_or_default();
    let traffic = label("unit").starts_with("rtt.");
    let mut filter = SeriesFilter::default();
    // Other stations may keep units and targets of these names in the same ClickHouse.
    let mut names = vec!["station", "unit"];
    if traffic {
        filter.groups.push(label("target"));
    } else {
        names.extend(["target", "class"]);
    }
    filter.labels.extend(names.into_iter().map(|name| (name.to_owned(), label(name))));
    let delay = if traffic { Delay::Passive } else { Delay::default() };
    let mut hours = Vec::new();
    for hour in same_hours(wanted.hour_ns) {
        let range = TimeRange { from_ns: hour.start_ns, to_ns: hour.end_ns };
        let query = Query::Merged(Merged { range, filter: filter.clone(), delay });
        let Answer::Merged(record) = reader.query(&query, &Limit::default())?.answer else {
            continue;
        };
        hours.push(record.map(|mut record| {
            if traffic {
                record.rtt = record.rtt_net.clone();
            }
            *record
        }));
    }
    let hours: Vec<Option<&Interval>> = hours.iter().map(Option::as_ref).collect();
    Ok(Usual::of(&wanted.objective, &hours))
}

/// So long before an hour begins its usual is asked for, ns.
const AHEAD_NS: i64 = 600 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sonde_results::Hist;
    use sonde_store::series::{MODULE_RTT, MODULE_STAMP};
    use sonde_store::{
        Batch, HistBlob, IntervalRow, Rows, RttRow, SeriesLabels, Store, StoreOptions, Writer as _,
    };

    use super::*;
    use crate::alert::testing::Folder;
    use crate::judge::settings::ObjectiveSettings;

    const SECOND: i64 = 1_000_000_000;
    /// 2026-11-29 14:00 UTC, ns since 1970.
    const HOUR: i64 = 1_795_960_800 * SECOND;

    fn labels(station: &str, unit: &str, target: &str, module: &str) -> SeriesLabels {
        SeriesLabels {
            station: station.into(),
            target: target.into(),
            class: if module == MODULE_STAMP { "BE" } else { "" }.into(),
            module: module.into(),
            free: BTreeMap::from([("unit".to_owned(), unit.to_owned())]),
            ..SeriesLabels::default()
        }
    }

    fn wanted(station: &str, unit: &str, target: &str, class: &str, text: &str) -> UsualWanted {
        let settings: ObjectiveSettings = toml::from_str(text).unwrap();
        let objective = settings.objectives("twice").unwrap().remove(0).objective;
        let labels = [("station", station), ("unit", unit), ("target", target), ("class", class)];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        UsualWanted { labels: LabelSet::from(labels), objective, hour_ns: HOUR }
    }

    #[test]
    fn each_station_has_its_own_usual_where_units_and_targets_are_equal() {
        let folder = Folder::new("usual");
        let store = Store::open(&folder.0, StoreOptions::default()).unwrap();
        let (mut intervals, mut rtt) = (Vec::new(), Vec::new());
        // Of 1,000 probes in an hour so many are lost; a round trip takes so long.
        for (station, lost, rtt_ns) in [("muc", 400, 50_000_000), ("ber", 100, 5_000_000)] {
            let probe = labels(station, "probe.a", "gw", MODULE_STAMP);
            let traffic = labels(station, "rtt.up", "rtt.up", MODULE_RTT);
            let probe = store.register(&probe).unwrap();
            let traffic = store.register(&traffic).unwrap();
            for hour in same_hours(HOUR) {
                let mut record = Interval::empty(0);
                (record.start_ns, record.end_ns) = (hour.start_ns, hour.start_ns + SECOND);
                (record.counters.sent, record.counters.lost) = (1_000, lost);
                record.counters.received = 1_000 - lost;
                intervals.push(IntervalRow::new(probe, &record));
                let mut clean = Hist::default();
                (0..100).for_each(|_| clean.add(rtt_ns));
                rtt.push(RttRow {
                    series: traffic,
                    group: "192.0.2.0/24".into(),
                    start_ns: hour.start_ns,
                    length_ns: SECOND,
                    intervals: 1,
                    clean: HistBlob::new(&clean),
                    ..RttRow::default()
                });
            }
        }
        let mut writer = store.writer().unwrap();
        for (number, rows) in (1..).zip([Rows::Intervals(intervals), Rows::Rtt(rtt)]) {
            let batch = Batch { writer: "test".into(), number, rows: rows.into() };
            writer.append(&batch).unwrap();
        }
        writer.sync().unwrap();
        let reader = store.reader();
        let of = |wanted: &UsualWanted| read_usual(&reader, wanted).unwrap();

        let loss = "metric = 'loss_ratio'\ntimes_usual = 2\nlimit = '1%'\nwindow = '10s'\n\
                    least_samples = 10";
        for (station, share) in [("ber", 0.1), ("muc", 0.4)] {
            let usual = of(&wanted(station, "probe.a", "gw", "BE", loss)).unwrap();
            assert_eq!((usual.low, usual.high), (share, share), "{station}");
            assert_eq!((usual.weeks, usual.samples), (4, 4_000), "{station}");
        }
        let slow = "match = { unit = 'rtt.*' }\nmetric = 'delay_percentile'\npercent = 90\n\
                    times_usual = 2\nlimit = '1ms'\nwindow = '10s'\nleast_samples = 10";
        for (station, rtt_ns) in [("ber", 5e6), ("muc", 50e6)] {
            let usual = of(&wanted(station, "rtt.up", "192.0.2.0/24", "", slow)).unwrap();
            assert!(usual.low <= rtt_ns && rtt_ns <= usual.high, "{station}: {usual:?}");
            assert!(usual.high < 2.0 * usual.low, "{station}: {usual:?}");
            assert_eq!(usual.samples, 400, "{station}");
        }
        assert_eq!(of(&wanted("ham", "probe.a", "gw", "BE", loss)), None, "a third station");
    }
}
