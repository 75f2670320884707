//! Windows of objectives on a fixed grid of UTC, and calendar months.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub(super) use sonde_results::units::SECOND;

/// Over which time an objective is judged. Windows follow each other without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ObjectiveWindow {
    /// So long, from `offset_s` after 1970-01-01 UTC on: 900 s are aligned to the hour.
    Fixed {
        /// Length, s (1 to 2,678,400).
        length_s: u32,
        /// How far the grid lies after that of UTC, s; less than `length_s`.
        #[serde(default)]
        offset_s: u32,
    },
    /// A calendar month.
    Month,
}

/// A half-open range of time, ns since 1970 UTC.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct TimeRange {
    /// First instant.
    pub start_ns: i64,
    /// The instant after the last one.
    pub end_ns: i64,
}

impl TimeRange {
    /// Its length, ns.
    pub fn length_ns(&self) -> i64 {
        self.end_ns - self.start_ns
    }

    /// Whether `at_ns` lies in it.
    pub fn contains(&self, at_ns: i64) -> bool {
        (self.start_ns..self.end_ns).contains(&at_ns)
    }

    /// Whether both share an instant.
    pub fn overlaps(&self, other: &TimeRange) -> bool {
        self.start_ns < other.end_ns && other.start_ns < self.end_ns
    }
}

impl ObjectiveWindow {
    /// The window in which `at_ns` lies. Months begin where local time is `utc_offset_s` ahead of
    /// UTC.
    pub fn at(&self, at_ns: i64, utc_offset_s: i32) -> TimeRange {
        match *self {
            ObjectiveWindow::Fixed { length_s, offset_s } => {
                let (length, offset) =
                    (i64::from(length_s.max(1)) * SECOND, i64::from(offset_s) * SECOND);
                let start_ns = (at_ns - offset).div_euclid(length) * length + offset;
                TimeRange { start_ns, end_ns: start_ns + length }
            }
            ObjectiveWindow::Month => month_at(at_ns, utc_offset_s),
        }
    }
}

/// The calendar month in which `at_ns` lies, where local time is `utc_offset_s` ahead of UTC.
pub fn month_at(at_ns: i64, utc_offset_s: i32) -> TimeRange {
    let offset = i64::from(utc_offset_s) * SECOND;
    let (year, month) = month_of_day((at_ns + offset).div_euclid(DAY));
    let (next_year, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    TimeRange {
        start_ns: first_day(year, month) * DAY - offset,
        end_ns: first_day(next_year, next) * DAY - offset,
    }
}

/// Year and month (1..=12) of a day counted from 1970-01-01, in the Gregorian calendar. Years are
/// taken to begin in March, so that the leap day is the last one.
fn month_of_day(day: i64) -> (i64, i64) {
    let day = day + DAYS_TO_1970;
    let era = day.div_euclid(ERA_DAYS);
    let of_era = day.rem_euclid(ERA_DAYS);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + i64::from(month <= 2), month)
}

/// The first day of a month, counted from 1970-01-01.
fn first_day(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day = of_era * 365 + of_era / 4 - of_era / 100 + (153 * from_march + 2) / 5;
    era * ERA_DAYS + day - DAYS_TO_1970
}

/// A day, ns.
pub(super) const DAY: i64 = 86_400 * SECOND;
/// Days of 400 years.
const ERA_DAYS: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_are_those_of_the_calendar() {
        // GNU date -u -d 2024-02-29T12:00 +%s and so on.
        let feb = month_at(1_709_208_000 * SECOND, 0);
        assert_eq!((feb.start_ns, feb.end_ns), (1_706_745_600 * SECOND, 1_709_251_200 * SECOND));
        let dec = month_at(1_703_980_800 * SECOND, 0);
        assert_eq!((dec.start_ns, dec.end_ns), (1_701_388_800 * SECOND, 1_704_067_200 * SECOND));
        // Local time two hours ahead: the month begins two hours earlier.
        let local = month_at(1_706_745_600 * SECOND - 1, 7_200);
        assert_eq!(local.start_ns, (1_706_745_600 - 7_200) * SECOND);
    }

    #[test]
    fn months_follow_each_other_for_500_years() {
        let mut at = month_at(-250 * 365 * DAY, 0);
        for _ in 0..6_000 {
            let next = month_at(at.end_ns, 0);
            assert_eq!((next.start_ns, month_at(at.end_ns - 1, 0)), (at.end_ns, at));
            assert!((28..=31).contains(&(next.length_ns() / DAY)));
            at = next;
        }
    }

    #[test]
    fn a_window_begins_on_its_grid() {
        let quarter = ObjectiveWindow::Fixed { length_s: 900, offset_s: 0 };
        let at = quarter.at(1_709_208_123 * SECOND, 0);
        assert_eq!((at.start_ns, at.length_ns()), (1_709_208_000 * SECOND, 900 * SECOND));
        assert_eq!(quarter.at(at.end_ns - 1, 0), at);
        assert_eq!(quarter.at(at.end_ns, 0).start_ns, at.end_ns);
        let shifted = ObjectiveWindow::Fixed { length_s: 900, offset_s: 300 };
        assert_eq!(shifted.at(1_709_208_123 * SECOND, 0).start_ns, 1_709_207_400 * SECOND);
        assert_eq!(quarter.at(-1, 0).start_ns, -900 * SECOND);
    }
}
