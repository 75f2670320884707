//! Names of the files that the store makes. It takes away and renames no file of another name.

use std::path::{Component, Path};

use crate::table::Table;

/// A file below `seg` whose name has the form of a segment's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentName {
    pub(super) table: Table,
    pub(super) number: u64,
    /// It was written to its end, and renamed. Else a crash left it.
    pub(super) is_whole: bool,
}

impl SegmentName {
    /// Of a path relative to the store; `None`: the store gives no such name.
    pub(super) fn of(path: &Path) -> Option<SegmentName> {
        let parts = normal_parts(path)?;
        let [SEGMENTS, table, day, name] = parts[..] else { return None };
        if !is_day(day) {
            return None;
        }
        let (stem, extension) = name.split_once('.')?;
        let (hour, number) = stem.split_once('-')?;
        let is_whole = match extension {
            WHOLE => true,
            PARTIAL => false,
            _ => return None,
        };
        let hour = (hour.len() == 2).then(|| digits(hour))??;
        let parsed = digits(number)?;
        (hour < 24 && number == format!("{parsed:010}")).then_some(())?;
        Some(SegmentName { table: Table::from_name(table)?, number: parsed, is_whole })
    }
}

/// Whether the store names the folders of days so.
pub(super) fn is_day(name: &str) -> bool {
    let octets = name.as_bytes();
    octets.len() == 10
        && octets.iter().enumerate().all(|(i, octet)| match i {
            4 | 7 => *octet == b'-',
            _ => octet.is_ascii_digit(),
        })
}

/// The number of a file of the journal; `None`: it is none.
pub(crate) fn journal_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".journal")?;
    let parsed = digits(number)?;
    (number == format!("{parsed:010}")).then_some(parsed)
}

/// Whether the store makes a file of that name, so that it may take it away. Relative to the store.
pub(super) fn is_own(path: &Path) -> bool {
    match normal_parts(path).as_deref() {
        Some([RESERVE]) => true,
        Some([JOURNAL, name]) => journal_number(name).is_some(),
        Some([DAMAGED, name]) => name.ends_with(FOUND),
        _ => SegmentName::of(path).is_some(),
    }
}

/// The name of a segment in the folder `damaged`, of its path in the store.
pub(super) fn aside_name(path: &str) -> String {
    path.replace('/', "-")
}

fn normal_parts(path: &Path) -> Option<Vec<&str>> {
    let part = |c| match c {
        Component::Normal(name) => name.to_str(),
        _ => None,
    };
    path.components().map(part).collect()
}

/// Digits and nothing else: `parse` alone takes a sign, too.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|octet| octet.is_ascii_digit()).then(|| text.parse().ok())?
}

/// `seg/iv/2026-11-25/23-0000000042.parquet`: table, day and hour of a row in it, number.
pub(super) fn segment_path(table: Table, at_ns: i64, id: u64) -> String {
    let hours = at_ns.div_euclid(crate::HOUR_NS);
    let (year, month, day) = civil(hours.div_euclid(24));
    let hour = hours.rem_euclid(24);
    let folder = format!("{year:04}-{month:02}-{day:02}");
    format!("{SEGMENTS}/{}/{folder}/{hour:02}-{id:010}.{WHOLE}", table.name())
}

/// Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    // Years begin in March here, so that the leap day is the last; 400 of them have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) =
        (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (era * 400 + year + i64::from(month <= 2), month, day)
}

pub(super) const SEGMENTS: &str = "seg";
pub(crate) const JOURNAL: &str = "journal";
pub(super) const RESERVE: &str = "reserve";
pub(super) const DAMAGED: &str = "damaged";
/// What the name of a note ends with, by which a reader tells the process that writes of damage.
pub(super) const FOUND: &str = ".found";
const WHOLE: &str = "parquet";
const PARTIAL: &str = "tmp";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_when() {
        let path = |ns| segment_path(Table::Interval1m, ns, 42);
        assert_eq!(path(crate::testing::START), "seg/iv1m/2026-11-25/23-0000000042.parquet");
        assert_eq!(path(0), "seg/iv1m/1970-01-01/00-0000000042.parquet");
        assert_eq!(path(-1), "seg/iv1m/1969-12-31/23-0000000042.parquet");
        let leap = 951_782_400 * 1_000_000_000;
        assert_eq!(path(leap), "seg/iv1m/2000-02-29/00-0000000042.parquet");
        assert_eq!(path(i64::MAX), "seg/iv1m/2262-04-11/23-0000000042.parquet");
    }

    #[test]
    fn only_names_that_the_store_gives_are_its_own() {
        let name = |path: &str| SegmentName::of(Path::new(path));
        let whole = SegmentName { table: Table::Interval1m, number: 42, is_whole: true };
        assert_eq!(name("seg/iv1m/2026-11-25/23-0000000042.parquet"), Some(whole));
        let partial = SegmentName { is_whole: false, ..whole };
        assert_eq!(name("seg/iv1m/2026-11-25/23-0000000042.tmp"), Some(partial));
        let large = segment_path(Table::Flow, 0, u64::MAX);
        assert_eq!(name(&large).unwrap().number, u64::MAX);
        for other in [
            "seg/iv1m/2026-11-25/23-0000000042.parquet.old",
            "seg/iv1m/2026-11-25/23-42.parquet",
            "seg/iv1m/2026-11-25/24-0000000042.parquet",
            "seg/iv1m/2026-11-25/+3-0000000042.parquet",
            "seg/iv1m/2026-11-25/23-+000000042.parquet",
            "seg/iv1m/2026_11-25/23-0000000042.parquet",
            "seg/other/2026-11-25/23-0000000042.parquet",
            "seg/iv1m/23-0000000042.parquet",
            "seg/iv1m/2026-11-25/x/23-0000000042.parquet",
            "../seg/iv1m/2026-11-25/23-0000000042.parquet",
            "/seg/iv1m/2026-11-25/23-0000000042.parquet",
            "passwd",
            "",
        ] {
            assert_eq!(name(other), None, "{other}");
            assert!(!is_own(Path::new(other)), "{other}");
        }
        for own in ["reserve", "journal/0000000007.journal", "damaged/x.found"] {
            assert!(is_own(Path::new(own)), "{own}");
        }
        for other in ["journal/7.journal", "journal/notes.txt", "damaged/x.parquet", "lock"] {
            assert!(!is_own(Path::new(other)), "{other}");
        }
    }
}
