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
}
