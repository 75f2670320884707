//! How much one caller may ask: requests a second, requests at a time, streams.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a server does for one caller, and for all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Requests a second of one caller, on average.
    pub per_second: u32,
    /// Requests of one caller at once, after a pause.
    pub burst: u32,
    /// Requests of one caller that are worked on at a time.
    pub at_once: usize,
    /// Streams of events of one caller.
    pub streams: usize,
    /// Streams of events of all callers.
    pub streams_all: usize,
}

impl Default for CallLimits {
    fn default() -> CallLimits {
        CallLimits { per_second: 50, burst: 200, at_once: 4, streams: 1_000, streams_all: 1_024 }
    }
}

/// Counts what callers do. Callers are names of tokens: few, so none is forgotten.
#[derive(Clone)]
pub(super) struct CallCounts(Arc<Inner>);

struct Inner {
    limits: CallLimits,
    callers: Mutex<BTreeMap<String, CallerCount>>,
}

#[derive(Clone, Copy, Default)]
struct CallerCount {
    /// Requests that may still come, in nanoseconds of their share; none at first use.
    credit_ns: Option<u64>,
    /// When that was so.
    at: Duration,
    working: usize,
    streams: usize,
}

/// Why a request is not taken now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    /// Too many a second. Another may come after so many seconds.
    Rate(u32),
    /// Too many at a time.
    AtOnce,
    /// Too many streams of events.
    Streams,
}

/// Counts until it is dropped.
pub(super) struct Counted {
    counts: CallCounts,
    caller: String,
    stream: bool,
}

impl CallCounts {
    pub fn new(limits: CallLimits) -> CallCounts {
        CallCounts(Arc::new(Inner { limits, callers: Mutex::default() }))
    }

    /// A request of `caller`; `now` is any clock that does not go back.
    pub fn request(&self, caller: &str, now: Duration) -> Result<Counted, Excess> {
        let CallLimits { per_second, burst, at_once, .. } = self.0.limits;
        let share_ns = 1_000_000_000 / u64::from(per_second.max(1));
        let full_ns = share_ns * u64::from(burst.max(1));
        let mut callers = self.callers();
        let count = callers.entry(caller.to_owned()).or_default();
        let gained = u64::try_from(now.saturating_sub(count.at).as_nanos()).unwrap_or(full_ns);
        let credit = count.credit_ns.map_or(full_ns, |had| had.saturating_add(gained).min(full_ns));
        (count.credit_ns, count.at) = (Some(credit), now.max(count.at));
        if credit < share_ns {
            return Err(Excess::Rate((share_ns - credit).div_ceil(1_000_000_000) as u32));
        }
        if count.working >= at_once {
            return Err(Excess::AtOnce);
        }
        count.credit_ns = Some(credit - share_ns);
        count.working += 1;
        Ok(Counted { counts: self.clone(), caller: caller.to_owned(), stream: false })
    }

    /// A stream of `caller`.
    pub fn stream(&self, caller: &str) -> Result<Counted, Excess> {
        let CallLimits { streams, streams_all, .. } = self.0.limits;
        let mut callers = self.callers();
        let all: usize = callers.values().map(|count| count.streams).sum();
        let count = callers.entry(caller.to_owned()).or_default();
        if count.streams >= streams || all >= streams_all {
            return Err(Excess::Streams);
        }
        count.streams += 1;
        Ok(Counted { counts: self.clone(), caller: caller.to_owned(), stream: true })
    }

    fn callers(&self) -> MutexGuard<'_, BTreeMap<String, CallerCount>> {
        self.0.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(count) = self.counts.callers().get_mut(&self.caller) {
            let which = if self.stream { &mut count.streams } else { &mut count.working };
            *which = which.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: CallLimits =
        CallLimits { per_second: 2, burst: 3, at_once: 2, streams: 2, streams_all: 3 };

    #[test]
    fn a_caller_has_a_burst_and_then_a_rate_of_its_own() {
        let counts = CallCounts::new(LIMITS);
        let ask = |caller: &str, ms| counts.request(caller, Duration::from_millis(ms)).map(drop);
        let all: Vec<_> = (0..4).map(|_| ask("a", 10)).collect();
        assert_eq!(all, [Ok(()), Ok(()), Ok(()), Err(Excess::Rate(1))]);
        assert_eq!(ask("b", 10), Ok(()));
        // Half a second is one request.
        assert_eq!(ask("a", 509), Err(Excess::Rate(1)));
        assert_eq!((ask("a", 510), ask("a", 510)), (Ok(()), Err(Excess::Rate(1))));
        // A long pause is a burst, not more.
        let all = (0..9).filter(|_| ask("a", 1 << 40).is_ok()).count();
        assert_eq!(all, 3);
        // A clock that goes back gives nothing.
        assert_eq!(ask("a", 0), Err(Excess::Rate(1)));
    }

    #[test]
    fn what_is_worked_on_counts_until_it_is_done() {
        let counts = CallCounts::new(LIMITS);
        let ask = |caller| counts.request(caller, Duration::ZERO);
        let (one, _two) = (ask("a").unwrap(), ask("a").unwrap());
        assert_eq!(ask("a").err(), Some(Excess::AtOnce));
        drop(one);
        assert!(ask("a").is_ok());
    }

    #[test]
    fn streams_are_counted_by_caller_and_together() {
        let counts = CallCounts::new(LIMITS);
        let mut held = vec![counts.stream("a").unwrap(), counts.stream("a").unwrap()];
        assert_eq!(counts.stream("a").err(), Some(Excess::Streams));
        held.push(counts.stream("b").unwrap());
        assert_eq!(counts.stream("b").err(), Some(Excess::Streams));
        held.clear();
        assert!(counts.stream("b").is_ok());
    }
}
