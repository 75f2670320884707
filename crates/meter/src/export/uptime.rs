//! NetFlow's clock: ms since the exporter started, to which all times of flows relate.
//!
//! A collector takes the start from the header: seconds since 1970 less the uptime. So the
//! two are always given for the same whole second, and no time is off by a fraction of one.

/// When the exporter is said to have started.
#[derive(Debug, Default)]
pub(super) struct Uptime {
    /// ms since 1970 UTC.
    origin_ms: Option<i64>,
    /// The latest end of a flow since.
    latest_ms: i64,
}

impl Uptime {
    /// The times can be expressed, and are noted. False: after the message being filled is gone,
    /// the clock has to be [set anew](Self::restart).
    pub fn admit(&mut self, first_ms: i64, last_ms: i64) -> bool {
        let fits = self.origin_ms.is_some_and(|origin| {
            first_ms >= origin && last_ms >= first_ms && last_ms - origin <= LONGEST_MS
        });
        if fits {
            self.latest_ms = self.latest_ms.max(last_ms);
        }
        fits
    }

    /// Begins anew, a day before the flow: those that come next began before it, perhaps.
    pub fn restart(&mut self, first_ms: i64, last_ms: i64) {
        let second = first_ms.div_euclid(1000) * 1000;
        let early = second - DAY_MS;
        let origin = if last_ms - early <= LONGEST_MS { early } else { second };
        self.origin_ms = Some(origin);
        self.latest_ms = last_ms;
    }

    /// A time as uptime; what lies outside what 32 bits can express is moved to the edge.
    pub fn relative(&self, ms: i64) -> u32 {
        let uptime = ms - self.origin_ms.unwrap_or(ms);
        uptime.clamp(0, i64::from(u32::MAX)) as u32
    }

    /// Seconds since 1970 and uptime at `now_ns` (UTC), not before the end of any flow. Flows that
    /// end after their export look like a wrapped clock to collectors. A clock far from the flows,
    /// as when an old capture is read, gives way to theirs.
    pub fn header(&mut self, now_ns: i64) -> (u32, u32) {
        let now_ms = now_ns.div_euclid(1_000_000);
        // Nothing but options yet: this is the first time heard of.
        let origin = *self.origin_ms.get_or_insert_with(|| {
            self.latest_ms = now_ms;
            now_ms.div_euclid(1000) * 1000 - DAY_MS
        });
        let near = self.latest_ms..=origin + LONGEST_MS;
        let ms = if near.contains(&now_ms) { now_ms } else { self.latest_ms };
        let seconds = ms.div_euclid(1000) + i64::from(ms.rem_euclid(1000) != 0);
        (seconds as u32, self.relative(seconds * 1000))
    }
}

/// A signed 32-bit integer holds it: 24.8 days.
const LONGEST_MS: i64 = i32::MAX as i64 - 1000;
const DAY_MS: i64 = 24 * 3600 * 1000;

#[cfg(test)]
mod tests {
    use super::*;

    const T: i64 = 1_700_000_000_123;

    #[test]
    fn the_header_names_one_whole_second_for_both() {
        let mut uptime = Uptime::default();
        assert!(!uptime.admit(T, T + 5));
        uptime.restart(T, T + 5);
        assert!(uptime.admit(T, T + 5));
        let (seconds, up) = uptime.header((T + 100) * 1_000_000);
        let origin = i64::from(seconds) * 1000 - i64::from(up);
        assert_eq!(origin + i64::from(uptime.relative(T)), T);
        assert!(i64::from(seconds) * 1000 >= T + 5);
    }

    #[test]
    fn a_clock_far_off_gives_way() {
        let mut uptime = Uptime::default();
        uptime.restart(T, T + 5);
        for now in [0, T * 2] {
            let (seconds, _) = uptime.header(now * 1_000_000);
            assert_eq!(i64::from(seconds), T / 1000 + 1);
        }
    }

    #[test]
    fn it_begins_anew_before_a_signed_number_overflows() {
        let mut uptime = Uptime::default();
        uptime.restart(T, T);
        assert!(uptime.admit(T + LONGEST_MS - DAY_MS - 1000, T + LONGEST_MS - DAY_MS - 500));
        assert!(!uptime.admit(T, T + LONGEST_MS));
        assert!(!uptime.admit(T - DAY_MS - 1000, T));
    }
}
