//! Maintenance windows: announced work, whose time is left out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::sla::Exclusion;

use super::objective::ObjectiveError;
use super::window::{DAY, SECOND, TimeRange};

/// Time in which announced work is done (Maintenance Interval of MEF).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaintenanceWindow {
    /// Its name in reports.
    pub name: String,
    /// When.
    pub when: MaintenanceTime,
    /// When it was entered, ns since 1970 UTC. `None`: with the configuration.
    #[serde(default)]
    pub entered_ns: Option<i64>,
}

/// When work is done. The begin is part of it, the end is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum MaintenanceTime {
    /// Once.
    Once {
        /// Begin, ns since 1970 UTC.
        start_ns: i64,
        /// End, ns.
        end_ns: i64,
    },
    /// In each week.
    Weekly {
        /// The day on which it begins, in local time.
        day: Weekday,
        /// Begin after midnight of local time, s (0 to 86,399).
        start_s: u32,
        /// Length, s (1 to 604,800). It may reach into the next days.
        length_s: u32,
        /// What local time is ahead of UTC, s (-50,400 to 50,400). It stays the same when clocks
        /// are changed.
        #[serde(default)]
        utc_offset_s: i32,
    },
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Weekday {
    /// 1970-01-05 was one.
    Monday,
    /// The day after.
    Tuesday,
    /// The day after.
    Wednesday,
    /// The day after.
    Thursday,
    /// The day after.
    Friday,
    /// The day after.
    Saturday,
    /// The day after.
    Sunday,
}

impl MaintenanceTime {
    /// Whether `at_ns` lies in it.
    pub fn covers(&self, at_ns: i64) -> bool {
        self.last_before(at_ns).is_some_and(|range| range.contains(at_ns))
    }

    /// Whether it shares an instant with `range`.
    pub fn overlaps(&self, range: TimeRange) -> bool {
        // The last one that begins before the end is the only one that can still last.
        let last = self.last_before(range.end_ns.saturating_sub(1));
        range.length_ns() > 0 && last.is_some_and(|m| m.overlaps(&range))
    }

    /// The last one that has begun at `at_ns`, over or not. `None`: none has.
    pub fn last_before(&self, at_ns: i64) -> Option<TimeRange> {
        let range = match *self {
            MaintenanceTime::Once { start_ns, end_ns } => TimeRange { start_ns, end_ns },
            MaintenanceTime::Weekly { day, start_s, length_s, utc_offset_s } => {
                // Day 0 of 1970 was a Thursday: the first Monday was day 4.
                let first = (4 + day as i64) * DAY
                    + (i64::from(start_s) - i64::from(utc_offset_s)) * SECOND;
                let start_ns = (at_ns - first).div_euclid(WEEK) * WEEK + first;
                TimeRange { start_ns, end_ns: start_ns + i64::from(length_s) * SECOND }
            }
        };
        (range.start_ns <= at_ns).then_some(range)
    }
}

impl MaintenanceWindow {
    /// Whether `at_ns` lies in it.
    pub fn covers(&self, at_ns: i64) -> bool {
        self.when.covers(at_ns)
    }

    /// Whether it was entered after it had begun, by the one around `at_ns`. Then it is a
    /// correction: the figures of before are kept beside those with it.
    pub fn entered_late(&self, at_ns: i64) -> bool {
        let begun = self.when.last_before(at_ns);
        self.entered_ns.zip(begun).is_some_and(|(entered, range)| entered > range.start_ns)
    }

    /// Why `range` is left out: the first of `windows` that shares an instant with it.
    pub fn exclusion(windows: &[MaintenanceWindow], range: TimeRange) -> Option<Exclusion> {
        let found = windows.iter().find(|w| w.when.overlaps(range));
        found.map(|w| Exclusion::maintenance(w.name.clone()))
    }

    /// All that is wrong with it, by key.
    pub fn diagnose(&self) -> Vec<ObjectiveError> {
        let mut errors = Vec::new();
        let mut refuse = |key: &str, why: String| errors.push(ObjectiveError::new(key, why));
        if self.name.is_empty() {
            refuse("name", "it is empty; reports list what was left out by name".into());
        }
        match self.when {
            MaintenanceTime::Once { start_ns, end_ns } if end_ns <= start_ns => {
                refuse(
                    "when.end_ns",
                    format!("{end_ns} is not after start_ns, which is {start_ns}"),
                );
            }
            MaintenanceTime::Once { .. } => {}
            MaintenanceTime::Weekly { start_s, length_s, utc_offset_s, .. } => {
                if start_s >= 86_400 {
                    refuse("when.start_s", format!("{start_s} is not within 0 and 86,399"));
                }
                if !(1..=604_800).contains(&length_s) {
                    refuse(
                        "when.length_s",
                        format!("{length_s} is not within 1 and 604,800 (a week)"),
                    );
                }
                if !(-50_400..=50_400).contains(&utc_offset_s) {
                    refuse(
                        "when.utc_offset_s",
                        format!("{utc_offset_s} is not within -50,400 and 50,400 (14 hours)"),
                    );
                }
            }
        }
        errors
    }
}

/// A week, ns.
const WEEK: i64 = 7 * DAY;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn weekly(day: Weekday, start_s: u32, length_s: u32, utc_offset_s: i32) -> MaintenanceWindow {
        let when = MaintenanceTime::Weekly { day, start_s, length_s, utc_offset_s };
        MaintenanceWindow { name: "night".into(), when, entered_ns: None }
    }

    #[test]
    fn a_weekly_window_is_in_local_time() {
        // Sunday 2023-11-19 02:00 to 04:00 in a zone an hour ahead: 01:00 to 03:00 UTC.
        let night = weekly(Weekday::Sunday, 7_200, 7_200, 3_600);
        let start = 1_700_355_600;
        let covers = |at: i64| night.covers(at * SECOND);
        assert_eq!(
            [start - 1, start, start + 7_199, start + 7_200].map(covers),
            [false, true, true, false]
        );
        assert!(covers(start + 7 * 86_400) && covers(start - 52 * 7 * 86_400));
        assert!(!covers(start + 86_400));
        // Past midnight into Monday.
        let long = weekly(Weekday::Sunday, 82_800, 7_200, 0);
        assert!(long.when.covers((1_700_438_400 - 3_600) * SECOND));
        assert!(long.when.covers((1_700_438_400 + 3_599) * SECOND));
        assert!(!long.when.covers((1_700_438_400 + 3_600) * SECOND));
    }

    #[test]
    fn an_interval_that_touches_it_is_left_out_by_name() {
        let when = MaintenanceTime::Once { start_ns: 100, end_ns: 200 };
        let windows = [MaintenanceWindow { name: "swap".into(), when, entered_ns: Some(120) }];
        let of = |start_ns, end_ns| {
            MaintenanceWindow::exclusion(&windows, TimeRange { start_ns, end_ns })
        };
        assert_eq!((of(50, 100), of(200, 300)), (None, None));
        for (start, end) in [(50, 101), (120, 130), (199, 300), (0, 900)] {
            assert_eq!(of(start, end), Some(Exclusion::maintenance("swap")));
        }
        assert!(windows[0].entered_late(150));
        assert!(
            !MaintenanceWindow { entered_ns: Some(99), ..windows[0].clone() }.entered_late(150)
        );
    }

    #[test]
    fn each_error_names_its_key() {
        let keys =
            |w: MaintenanceWindow| w.diagnose().into_iter().map(|e| e.key).collect::<Vec<_>>();
        assert_eq!(keys(weekly(Weekday::Monday, 0, 1, 0)), Vec::<String>::new());
        assert_eq!(
            keys(weekly(Weekday::Monday, 86_400, 0, 60_000)),
            ["when.start_s", "when.length_s", "when.utc_offset_s"]
        );
        let when = MaintenanceTime::Once { start_ns: 5, end_ns: 5 };
        assert_eq!(
            keys(MaintenanceWindow { name: String::new(), when, entered_ns: None }),
            ["name", "when.end_ns"]
        );
    }

    proptest! {
        #[test]
        fn overlapping_is_covering_an_instant(
            day in 0..7usize, start_s in 0..86_400u32, length_s in 1..604_800u32,
            offset in -50_400..50_400i32, from in -2_000_000..2_000_000i64, length in 1..900i64,
        ) {
            use Weekday::*;
            let days = [Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday];
            let when = weekly(days[day], start_s, length_s, offset).when;
            let range = TimeRange { start_ns: from * SECOND, end_ns: (from + length) * SECOND };
            let covers = (from..from + length).any(|at| when.covers(at * SECOND));
            prop_assert_eq!(when.overlaps(range), covers);
        }
    }
}
