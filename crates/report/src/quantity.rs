//! Quantities as people read them, and which way is better.

use sonde_results::procedure::procedure_info;
use sonde_results::units::{format_ns, format_number, format_percent};

/// Which way a quantity is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sense {
    /// Throughput: more is better.
    More,
    /// Latency: less is better.
    Less,
}

/// Which way the quantity of that name (as in [`sonde_results::bench::Quantity`]) and unit is
/// better; `None`: a difference is only a difference.
pub fn sense(name: &str, unit: &str) -> Option<Sense> {
    let starts = |list: &[&str]| list.iter().any(|start| name.starts_with(start));
    if starts(LESS) {
        return Some(Sense::Less);
    }
    if starts(MORE) {
        return Some(Sense::More);
    }
    match unit {
        _ if name.contains("throughput") => Some(Sense::More),
        "frames/s" | "bit/s" => Some(Sense::More),
        "ns" => Some(Sense::Less),
        _ => None,
    }
}

/// `value` of `unit` with a fitting prefix: 1234567 frames/s are "1.235 M", 1234 ns "1.23 us", a
/// ratio of 0.01 "1%". The unit itself is left to the heading, except where it is a time or a
/// ratio.
pub fn show(value: f64, unit: &str) -> String {
    match unit {
        _ if !value.is_finite() => "-".into(),
        "ns" => format_ns(value),
        "ratio" => format_percent(value),
        "frames/s" | "bit/s" => {
            let (divisor, prefix) = prefix(value.abs());
            let gap = if prefix.is_empty() { "" } else { " " };
            format!("{}{gap}{prefix}", format_number(value / divisor))
        }
        _ => format_number(value),
    }
}

/// The name of a quantity as people read it: "latency_p99_9@50" is "latency p99.9 at 50 %". What
/// follows the `@` is a share of the rate found where it is numeric, else a goal or a direction.
pub fn quantity_title(name: &str) -> String {
    let (base, at) = name.split_once('@').unwrap_or((name, ""));
    let base = base.replace("p99_99", "p99.99").replace("p99_9", "p99.9").replace('_', " ");
    match at {
        "" => base,
        at if at.parse::<f64>().is_ok() => format!("{base} at {at} %"),
        at => format!("{base}, {at}"),
    }
}

/// The name of a procedure as people read it: "fixed load", "TST 009".
pub fn procedure_title(name: &str) -> String {
    procedure_info(name).map_or_else(|| name.replace('_', " "), |known| known.title.into())
}

/// Sorts the quantities of each distribution, from minimum to maximum. One that was found later,
/// where there were samples enough, may be behind the maximum. Each distribution stays where its
/// first quantity is.
pub(crate) fn sort_distributions<T>(items: &mut [T], name: impl Fn(&T) -> &str) {
    let mut seen: Vec<String> = Vec::new();
    for (distribution, _) in items.iter().map(|item| rank(name(item))) {
        if !seen.contains(&distribution) {
            seen.push(distribution);
        }
    }
    items.sort_by_cached_key(|item| {
        let (distribution, rank) = rank(name(item));
        (seen.iter().position(|s| *s == distribution), rank)
    });
}

/// The distribution that a quantity is of, and its quantile, in millionths of a per cent:
/// "latency_p99_9@50" is 99.9 of "latency@50". What names the whole comes first.
fn rank(name: &str) -> (String, i64) {
    let (base, at) = name.split_once('@').unwrap_or((name, ""));
    let percentile = base.rsplit_once("_p").and_then(|(of, digits)| {
        let share: f64 = digits.replacen('_', ".", 1).parse().ok()?;
        Some((of, (share * 1e6) as i64))
    });
    let ends = [("_min", -2), ("_mean", -1), ("_max", i64::MAX)];
    let end = ends.iter().find_map(|(end, rank)| Some((base.strip_suffix(end)?, *rank)));
    let (of, rank) = percentile.or(end).unwrap_or((base, -3));
    (format!("{of}@{at}"), rank)
}

/// Divisor and prefix for a value of that size.
pub(crate) fn prefix(value: f64) -> (f64, &'static str) {
    match value {
        v if v < 1e3 => (1.0, ""),
        v if v < 1e6 => (1e3, "k"),
        v if v < 1e9 => (1e6, "M"),
        _ => (1e9, "G"),
    }
}

/// TAI ns since 1970 as a UTC time to the second, by RFC 3339. `tai_offset_s`: TAI - UTC as
/// the host had it; a host that was not given it counts UTC.
pub fn show_time(tai_ns: i64, tai_offset_s: i32) -> String {
    let seconds = tai_ns.div_euclid(1_000_000_000) - i64::from(tai_offset_s);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // The civil calendar from the day count, counted from 0000-03-01 so that the leap day
    // ends a year, an era being 400 years.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

const LESS: &[&str] = &[
    "latency",
    "typical_latency",
    "worst_case_latency",
    "jitter",
    "ipdv",
    "pdv",
    "loss",
    "lost",
    "frame_loss",
    "recovery",
    "reset",
    "duplicate",
    "reorder",
    "corrupt",
    "ftd",
    "fdv",
    "flr",
    "plr",
    "tl",
    "wcl",
];

const MORE: &[&str] = &[
    "throughput",
    "conditional_throughput",
    "forwarding",
    "frmol",
    "mfr",
    "ndr",
    "pdr",
    "back_to_back",
    "burst",
    "buffer",
    "corrected_buffer",
    "implied_buffer",
    "capacity",
    "address",
    "steps_passed",
    "sla_kept",
    "availability",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_goes_from_its_minimum_to_its_maximum() {
        let mut names = vec![
            "throughput",
            "latency@10",
            "latency_min@10",
            "latency_max@10",
            "latency_p50@50",
            "loss_ratio@10",
            "latency_p99_99@10",
            "latency_p99_9@10",
            "latency_mean@10",
            "latency_p50@10",
        ];
        sort_distributions(&mut names, |n| n);
        let sorted = [
            "throughput",
            "latency@10",
            "latency_min@10",
            "latency_mean@10",
            "latency_p50@10",
            "latency_p99_9@10",
            "latency_p99_99@10",
            "latency_max@10",
            "latency_p50@50",
            "loss_ratio@10",
        ];
        assert_eq!(names, sorted);
    }

    #[test]
    fn numbers_are_short_and_keep_their_format_number() {
        for (value, unit, text) in [
            (1_234_567.0, "frames/s", "1.235 M"),
            (999.0, "frames/s", "999"),
            (1_500.0, "frames/s", "1.5 k"),
            (1_234.0, "ns", "1.23 us"),
            (-20.0, "ns", "-20 ns"),
            (2.5e9, "ns", "2.50 s"),
            (0.01, "ratio", "1%"),
            (0.000_001_5, "ratio", "0.00015%"),
            (1e-9, "ratio", "1e-7%"),
            (0.0, "ratio", "0%"),
            (12_345.678, "frames", "12346"),
            (f64::NAN, "ns", "-"),
        ] {
            assert_eq!(show(value, unit), text, "{value}");
        }
    }

    #[test]
    fn names_say_which_way_is_better() {
        assert_eq!(sense("latency_p99_9@50", "ns"), Some(Sense::Less));
        assert_eq!(sense("throughput", "frames/s"), Some(Sense::More));
        assert_eq!(sense("loss_ratio", "ratio"), Some(Sense::Less));
        assert_eq!(sense("something", "frames/s"), Some(Sense::More));
        assert_eq!(sense("trials", ""), None);
    }

    #[test]
    fn names_become_text() {
        assert_eq!(quantity_title("latency_p99_999@50"), "latency p99.999 at 50 %");
        assert_eq!(quantity_title("conditional_throughput@NDR"), "conditional throughput, NDR");
    }

    #[test]
    fn times_are_utc() {
        // date -u -d @1709251199: 2024-02-29T23:59:59Z, 37 s before in UTC than in TAI.
        assert_eq!(show_time(1_709_251_236_000_000_000, 37), "2024-02-29T23:59:59Z");
        assert_eq!(show_time(0, 0), "1970-01-01T00:00:00Z");
        assert_eq!(show_time(-1, 0), "1969-12-31T23:59:59Z");
    }
}
