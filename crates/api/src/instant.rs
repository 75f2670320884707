//! Instants and ranges of time, as JavaScript can hold them.
//!
//! Nanoseconds since 1970 are beyond 2^53 today, and a reader whose numbers are floating-point
//! rounds them to 256 ns. So an instant stands here as text (RFC 3339, exact) and as integer
//! milliseconds, and never as a number of nanoseconds.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, SerializeStruct as _, Serializer};
use sonde_results::units::SECOND;

/// An instant in UTC, to the nanosecond; years 1677 to 2262.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcInstant(i64);

/// From `from` (inclusive) to `to` (exclusive).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueryRange {
    /// First instant.
    pub from: UtcInstant,
    /// The first instant after it.
    pub to: UtcInstant,
}

/// An instant as a client gives it: RFC 3339, integer milliseconds since 1970 UTC, or relative to
/// now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenInstant {
    /// A fixed one.
    At(UtcInstant),
    /// So many ns before now.
    Before(i64),
}

/// Why a text is no instant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no instant; write 2026-11-29T12:00:00Z, milliseconds since 1970, or now-6h")]
pub struct InstantError(String);

impl UtcInstant {
    /// From nanoseconds since 1970 UTC.
    pub const fn from_ns(ns: i64) -> UtcInstant {
        UtcInstant(ns)
    }

    /// From milliseconds since 1970 UTC; what is beyond the range is its end.
    pub const fn from_ms(ms: i64) -> UtcInstant {
        UtcInstant(ms.saturating_mul(MILLISECOND_NS))
    }

    /// Nanoseconds since 1970 UTC.
    pub const fn ns(self) -> i64 {
        self.0
    }

    /// Whole milliseconds since 1970 UTC, the earlier where it lies between two.
    pub const fn ms(self) -> i64 {
        self.0.div_euclid(MILLISECOND_NS)
    }

    /// So many ns later.
    pub const fn later(self, ns: i64) -> UtcInstant {
        UtcInstant(self.0.saturating_add(ns))
    }

    /// Reads RFC 3339, with any offset.
    ///
    /// # Errors
    /// Another form, a date that does not exist, a year out of range.
    pub fn parse(text: &str) -> Result<UtcInstant, InstantError> {
        parse_rfc3339(text).ok_or_else(|| InstantError(text.chars().take(40).collect()))
    }
}

impl GivenInstant {
    /// Reads any of its forms.
    ///
    /// # Errors
    /// None of them.
    pub fn parse(text: &str) -> Result<GivenInstant, InstantError> {
        let wrong = || InstantError(text.chars().take(40).collect());
        if let Some(back) = text.strip_prefix("now") {
            return parse_back(back).map(GivenInstant::Before).ok_or_else(wrong);
        }
        match text.parse::<i64>() {
            Ok(ms) => within_range(ms).ok_or_else(wrong),
            Err(_) => UtcInstant::parse(text).map(GivenInstant::At),
        }
    }

    /// What it is at `now`.
    pub fn at(self, now: UtcInstant) -> UtcInstant {
        match self {
            GivenInstant::At(at) => at,
            GivenInstant::Before(ns) => now.later(-ns),
        }
    }
}

impl QueryRange {
    /// Of what a client gave. Without an end it is now, without a begin an hour before the end.
    /// `None`: it does not begin before it ends.
    pub fn of(
        from: Option<GivenInstant>,
        to: Option<GivenInstant>,
        now: UtcInstant,
    ) -> Option<QueryRange> {
        let to = to.map_or(now, |to| to.at(now));
        let from = from.map_or(to.later(-HOUR_NS), |from| from.at(now));
        (from < to).then_some(QueryRange { from, to })
    }

    /// How long it is, ns.
    pub fn length_ns(self) -> i64 {
        self.to.0.saturating_sub(self.from.0)
    }
}

impl fmt::Display for UtcInstant {
    /// RFC 3339, with as many of 0, 3, 6 or 9 decimals as it needs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ns) = (self.0.div_euclid(SECOND), self.0.rem_euclid(SECOND));
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil_of(days);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        match ns {
            0 => {}
            _ if ns % 1_000_000 == 0 => write!(f, ".{:03}", ns / 1_000_000)?,
            _ if ns % 1_000 == 0 => write!(f, ".{:06}", ns / 1_000)?,
            _ => write!(f, ".{ns:09}")?,
        }
        f.write_str("Z")
    }
}

impl Serialize for UtcInstant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut both = serializer.serialize_struct("UtcInstant", 2)?;
        both.serialize_field("utc", &self.to_string())?;
        both.serialize_field("ms", &self.ms())?;
        both.end()
    }
}

impl JsonSchema for UtcInstant {
    fn schema_name() -> Cow<'static, str> {
        "UtcInstant".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An instant, in two forms.",
            "type": "object",
            "properties": {
                "utc": {
                    "description": "RFC 3339 in UTC, exact to the nanosecond.",
                    "type": "string",
                    "format": "date-time",
                },
                "ms": {
                    "description": "Whole milliseconds since 1970 UTC: a number that JavaScript holds exactly.",
                    "type": "integer",
                    "format": "int64",
                },
            },
            "required": ["utc", "ms"],
        })
    }
}

impl<'de> Deserialize<'de> for GivenInstant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Given;
        impl Visitor<'_> for Given {
            type Value = GivenInstant;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an instant: RFC 3339, integer milliseconds since 1970, or now-6h")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<GivenInstant, E> {
                GivenInstant::parse(text).map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, ms: i64) -> Result<GivenInstant, E> {
                within_range(ms).ok_or_else(|| E::custom(InstantError(ms.to_string())))
            }
            fn visit_u64<E: de::Error>(self, ms: u64) -> Result<GivenInstant, E> {
                let small = i64::try_from(ms).ok().and_then(within_range);
                small.ok_or_else(|| E::custom(InstantError(ms.to_string())))
            }
        }
        deserializer.deserialize_any(Given)
    }
}

impl JsonSchema for GivenInstant {
    fn schema_name() -> Cow<'static, str> {
        "GivenInstant".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An instant: RFC 3339, integer milliseconds since 1970 UTC, or `now` less a length of time: `now-6h` (s, m, h, d, w).",
            "anyOf": [
                { "type": "string", "examples": ["2026-11-29T12:00:00Z", "now-6h"] },
                { "type": "integer", "format": "int64" },
            ],
        })
    }
}

/// Of milliseconds. Nanoseconds given by mistake are out of range, and so are noticed.
fn within_range(ms: i64) -> Option<GivenInstant> {
    ms.checked_mul(MILLISECOND_NS).map(|ns| GivenInstant::At(UtcInstant(ns)))
}

/// What follows `now`: nothing, or `-6h`.
fn parse_back(text: &str) -> Option<i64> {
    if text.is_empty() {
        return Some(0);
    }
    let length = text.strip_prefix('-')?;
    let unit = match length.chars().last()? {
        's' => SECOND,
        'm' => 60 * SECOND,
        'h' => HOUR_NS,
        'd' => 24 * HOUR_NS,
        'w' => 7 * 24 * HOUR_NS,
        _ => return None,
    };
    let count = length.get(..length.len() - 1)?;
    digits(count)?.checked_mul(unit)
}

fn parse_rfc3339(text: &str) -> Option<UtcInstant> {
    let part = |range: std::ops::Range<usize>| text.get(range).and_then(digits);
    let sign = |at: usize, allowed: &[u8]| {
        text.as_bytes().get(at).is_some_and(|b| allowed.contains(b)).then_some(())
    };
    sign(4, b"-")?;
    sign(7, b"-")?;
    sign(10, b"Tt ")?;
    sign(13, b":")?;
    sign(16, b":")?;
    let (year, month, day) = (part(0..4)?, part(5..7)?, part(8..10)?);
    let (hour, minute, second) = (part(11..13)?, part(14..16)?, part(17..19)?);
    let days = days_of(year, month, day)?;
    // A leap second (RFC 3339, section 5.6) is the first of the next minute here.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let rest = text.get(19..)?;
    let (ns, zone) = match rest.strip_prefix('.') {
        None => (0, rest),
        Some(fraction) => {
            let end = fraction.find(|c: char| !c.is_ascii_digit())?;
            let (decimals, zone) = fraction.split_at(end);
            if decimals.is_empty() {
                return None;
            }
            let nine: String = decimals.chars().chain("000000000".chars()).take(9).collect();
            (digits(&nine)?, zone)
        }
    };
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - offset_s(zone)?;
    let ns = i128::from(seconds) * i128::from(SECOND) + i128::from(ns);
    i64::try_from(ns).ok().map(UtcInstant)
}

/// Seconds that local time is ahead of UTC.
fn offset_s(zone: &str) -> Option<i64> {
    if zone == "Z" || zone == "z" {
        return Some(0);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    if zone.len() != 6 || zone.as_bytes()[3] != b':' {
        return None;
    }
    let (hours, minutes) = (digits(zone.get(1..3)?)?, digits(zone.get(4..6)?)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

fn digits(text: &str) -> Option<i64> {
    let all = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    all.then(|| text.parse().ok()).flatten()
}

/// Days since 1970-01-01 of a date of the Gregorian calendar; `None`: there is no such date.
fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let days = unchecked_days_of(year, month, day);
    let exists = (1..=12).contains(&month) && civil_of(days) == (year, month, day);
    exists.then_some(days)
}

/// Counted in years that begin in March, so that the leap day is the last of them.
fn unchecked_days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of days since 1970-01-01.
fn civil_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

const MILLISECOND_NS: i64 = 1_000_000;
const HOUR_NS: i64 = 3_600 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn instants_are_text_and_milliseconds_that_javascript_holds() {
        let at = UtcInstant::from_ns(1_796_000_000_123_456_789);
        let json = serde_json::to_value(at).unwrap();
        assert_eq!(json["utc"], "2026-11-30T00:53:20.123456789Z");
        assert_eq!(json["ms"], 1_796_000_000_123_i64);
        assert!(json["ms"].as_i64().unwrap() < 1 << 53);
        assert_eq!(UtcInstant::from_ns(-1).ms(), -1);
        assert_eq!(UtcInstant::from_ns(-1).to_string(), "1969-12-31T23:59:59.999999999Z");
    }

    #[test]
    fn texts_of_rfc_3339_are_read_with_their_offset_and_others_refused() {
        for (text, ns) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01t00:00:00z", 0),
            // The examples of RFC 3339, section 5.8, as seconds since 1970.
            ("1985-04-12T23:20:50.52Z", 482_196_050_520_000_000),
            ("1996-12-19T16:39:57-08:00", 851_042_397_000_000_000),
            ("1990-12-31T23:59:60Z", 662_688_000_000_000_000),
            ("1937-01-01T12:00:27.87+00:20", -1_041_337_172_130_000_000),
            ("2000-02-29T00:00:00Z", 951_782_400_000_000_000),
        ] {
            assert_eq!(UtcInstant::parse(text), Ok(UtcInstant::from_ns(ns)), "{text}");
        }
        for wrong in [
            "",
            "2026-11-29",
            "2026-11-29T12:00:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-11-29T24:00:00Z",
            "2026-11-29T12:00:00.Z",
            "2026-11-29T12:00:00+0100",
            "2026-11-29T12:00:00+24:00",
            "+026-11-29T12:00:00Z",
            "9999-01-01T00:00:00Z",
            "2026-11-29T12:00:00Zü",
        ] {
            assert!(UtcInstant::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_client_gives_milliseconds_or_a_time_before_now_but_no_nanoseconds() {
        let now = UtcInstant::from_ms(10_000_000);
        let given = |text: &str| GivenInstant::parse(text).map(|g| g.at(now).ms());
        assert_eq!(given("1796000000123"), Ok(1_796_000_000_123));
        assert_eq!(given("now"), Ok(10_000_000));
        assert_eq!(given("now-90m"), Ok(10_000_000 - 5_400_000));
        assert_eq!(given("now-1w"), Ok(10_000_000 - 604_800_000));
        for wrong in ["1796000000123456789", "now-", "now-1", "now+1h", "now-1.5h", "now-9ü", "h"]
        {
            assert!(given(wrong).is_err(), "{wrong}");
        }
        let json = |text: &str| serde_json::from_str::<GivenInstant>(text).map_err(drop);
        assert_eq!(json("5"), Ok(GivenInstant::At(UtcInstant::from_ms(5))));
        assert_eq!(json("\"now-1s\""), Ok(GivenInstant::Before(1_000_000_000)));
        assert!(json("1796000000123456789").is_err() && json("1.5").is_err());
    }

    #[test]
    fn a_range_is_the_last_hour_by_default_and_never_backward() {
        let now = UtcInstant::from_ms(10_000_000);
        let range = QueryRange::of(None, None, now).unwrap();
        assert_eq!((range.to, range.length_ns()), (now, HOUR_NS));
        let back = QueryRange::of(Some(GivenInstant::At(now)), Some(GivenInstant::Before(1)), now);
        assert_eq!(back, None);
    }

    proptest! {
        #[test]
        fn every_instant_is_read_back(ns in any::<i64>()) {
            let at = UtcInstant::from_ns(ns);
            prop_assert_eq!(UtcInstant::parse(&at.to_string()), Ok(at));
        }

        #[test]
        fn any_text_is_an_instant_or_an_error(text in ".{0,40}") {
            let _ = GivenInstant::parse(&text);
        }
    }
}
