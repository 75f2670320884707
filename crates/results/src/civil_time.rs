//! Instants as receivers read them.

/// RFC 3339 with milliseconds: `2026-11-29T03:11:31.123Z`.
pub fn rfc3339(ns: i64) -> String {
    let t = Civil::of(ns);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        t.year, t.month, t.day, t.hour, t.minute, t.second, t.millisecond
    )
}

/// For people: `2026-11-29 03:11:31 UTC`.
pub fn plain(ns: i64) -> String {
    let t = Civil::of(ns);
    let (date, time) = ((t.year, t.month, t.day), (t.hour, t.minute, t.second));
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC",
        date.0, date.1, date.2, time.0, time.1, time.2
    )
}

/// The instant that RFC 3339 writes with `Z`: `2026-11-29T03:11:31Z`, with a fraction of a second
/// if there is one, in ns since 1970 UTC. `None`: it is none, or has an offset.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let digits = |part: &str, places: usize| {
        let all = part.len() == places && part.bytes().all(|b| b.is_ascii_digit());
        all.then(|| part.parse::<i64>().ok()).flatten()
    };
    let mut date = date.split('-');
    let (year, month, day) =
        (digits(date.next()?, 4)?, digits(date.next()?, 2)?, digits(date.next()?, 2)?);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut time = time.split(':');
    let (hour, minute, second) =
        (digits(time.next()?, 2)?, digits(time.next()?, 2)?, digits(time.next()?, 2)?);
    let fraction = digits(&format!("{fraction:0<9}"), 9)?;
    if date.next().is_some() || time.next().is_some() || !(1..=12).contains(&month) {
        return None;
    }
    // Days since 0000-03-01, as in `Civil`.
    let (from_march, year) = if month > 2 { (month - 3, year) } else { (month + 9, year - 1) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    let seconds = days.checked_mul(86_400)? + hour * 3_600 + minute * 60 + second;
    let ns = seconds.checked_mul(1_000_000_000)?.checked_add(fraction)?;
    // A day that the month does not have, or an hour that the day does not have, is another one.
    let t = Civil::of(ns);
    let same = (t.month, t.day, t.hour, t.minute, t.second) == (month, day, hour, minute, second);
    same.then_some(ns)
}

/// A date and time of the proleptic Gregorian calendar.
struct Civil {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    millisecond: i64,
}

impl Civil {
    fn of(ns: i64) -> Civil {
        let (day, ns) = (ns.div_euclid(DAY), ns.rem_euclid(DAY));
        let second = ns / 1_000_000_000;
        // Days since 0000-03-01: a year then ends with the day that leap years have besides.
        let since = day + 719_468;
        let (era, of_era) = (since.div_euclid(146_097), since.rem_euclid(146_097));
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        Civil {
            year: year + era * 400 + i64::from(month >= 10),
            month: if month < 10 { month + 3 } else { month - 9 },
            day: of_year - (153 * month + 2) / 5 + 1,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
            millisecond: ns / 1_000_000 % 1_000,
        }
    }
}

const DAY: i64 = 86_400 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_date_1() {
        // By `date -u -d @SECONDS`.
        let s = 1_000_000_000;
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_400 * s), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(4_107_542_399 * s + 999_999_999), "2100-02-28T23:59:59.999Z");
        assert_eq!(rfc3339(4_107_542_400 * s), "2100-03-01T00:00:00.000Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(plain(1_795_921_891 * s), "2026-11-29 03:11:31 UTC");
    }

    #[test]
    fn an_instant_reads_back_and_others_are_none() {
        for ns in [0, -1_000_000, 951_782_400_000_000_000, 1_795_921_891_123_000_000] {
            assert_eq!(parse_rfc3339(&rfc3339(ns)), Some(ns));
        }
        assert_eq!(parse_rfc3339("2026-11-29T03:11:31Z"), Some(1_795_921_891_000_000_000));
        for none in [
            "",
            "2026-11-29",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-29T24:00:00Z",
            "2026-11-29T03:11:31",
            "2026-11-29T03:11:31+01:00",
            "2026-11-29T03:11Z",
            "2026-11-29T03:11:31.1234567890Z",
            "9999-11-29T03:11:31Z",
        ] {
            assert_eq!(parse_rfc3339(none), None, "{none}");
        }
    }
}
