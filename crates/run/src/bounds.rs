//! Bounds of settings: all instruments report a value beyond them in one wording.

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};

use sonde_results::units::{SECOND, format_duration};

use crate::error::SettingsError;

/// Whether the setting `key` is within its range, which includes its ends.
///
/// # Errors
/// It is not: `KEY: 0 must be between 1 and 255`.
pub(crate) fn bounded<T: PartialOrd + Display>(
    key: &str,
    value: T,
    range: impl RangeBounds<T>,
) -> Result<(), SettingsError> {
    within(key, &value, &range, T::to_string)
}

/// The same of a time, ns: `KEY: 5m must be between 1ms and 60s`.
///
/// # Errors
/// As [`bounded`].
pub(crate) fn bounded_time(
    key: &str,
    ns: i64,
    range: impl RangeBounds<i64>,
) -> Result<(), SettingsError> {
    within(key, &ns, &range, |ns| time(*ns))
}

/// Whether the time `key`, ns, is longer than nothing, if it is given.
///
/// # Errors
/// It is not.
pub(crate) fn longer_than_zero(key: &str, ns: impl Into<Option<i64>>) -> Result<(), SettingsError> {
    match ns.into() {
        Some(ns) if ns <= 0 => {
            Err(SettingsError::new(key, format!("{} must be longer than zero", time(ns))))
        }
        _ => Ok(()),
    }
}

fn within<T: PartialOrd>(
    key: &str,
    value: &T,
    range: &impl RangeBounds<T>,
    text: impl Fn(&T) -> String,
) -> Result<(), SettingsError> {
    if range.contains(value) {
        return Ok(());
    }
    let value = text(value);
    let end = |bound: Bound<&T>| match bound {
        Bound::Included(end) | Bound::Excluded(end) => Some(text(end)),
        Bound::Unbounded => None,
    };
    let why = match (end(range.start_bound()), end(range.end_bound())) {
        (Some(low), Some(high)) => format!("{value} must be between {low} and {high}"),
        (Some(low), None) => format!("{value} must be at least {low}"),
        (None, high) => format!("{value} must be at most {}", high.unwrap_or_default()),
    };
    Err(SettingsError::new(key, why))
}

/// In hours where these are whole, else as [`format_duration`] does.
fn time(ns: i64) -> String {
    match ns {
        0 => "0s".into(),
        ns if ns % HOUR == 0 => format!("{}h", ns / HOUR),
        ns => format_duration(ns),
    }
}

const HOUR: i64 = 3_600 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(of: Result<(), SettingsError>) -> String {
        of.err().map_or(String::new(), |wrong| wrong.message)
    }

    #[test]
    fn what_is_beyond_is_named_with_its_bounds_and_units() {
        assert_eq!(text(bounded("a.ttl", 0, 1..=255)), "a.ttl: 0 must be between 1 and 255");
        assert_eq!(text(bounded("n", 0, 1..)), "n: 0 must be at least 1");
        assert_eq!(text(bounded("n", 9, ..=8)), "n: 9 must be at most 8");
        let timeout = |ns| text(bounded_time("timeout", ns, 1_000_000..=60 * SECOND));
        assert_eq!(timeout(0), "timeout: 0s must be between 1ms and 60s");
        assert_eq!(timeout(61 * SECOND), "timeout: 61s must be between 1ms and 60s");
        assert_eq!((timeout(1_000_000), timeout(60 * SECOND)), (String::new(), String::new()));
        let day = text(bounded_time("interval", 1_500, SECOND / 10..=24 * HOUR));
        assert_eq!(day, "interval: 1500ns must be between 100ms and 24h");
        assert_eq!(text(longer_than_zero("d", 0)), "d: 0s must be longer than zero");
        assert_eq!(text(longer_than_zero("d", Some(1))) + &text(longer_than_zero("d", None)), "");
    }
}
