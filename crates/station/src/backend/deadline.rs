//! Queries that take too long, or longer than their station lasts, are ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sonde_wire::time::Time;

/// Queries under way, each with the time at which it ends. A query looks at its flag.
#[derive(Default)]
pub(crate) struct Deadlines(Mutex<Pending>);

#[derive(Default)]
struct Pending {
    queries: Vec<(Time, Weak<AtomicBool>)>,
    ending: bool,
}

impl Deadlines {
    /// A query that may last until `end`. It is forgotten with its flag.
    pub fn begin(&self, end: Time) -> Arc<AtomicBool> {
        let mut pending = self.lock();
        let flag = Arc::new(AtomicBool::new(pending.ending));
        pending.queries.push((end, Arc::downgrade(&flag)));
        flag
    }

    /// Ends those whose time is over. To be called about every second.
    pub fn look(&self, now: Time) {
        self.lock().queries.retain(|(end, flag)| {
            let Some(flag) = flag.upgrade() else { return false };
            if now >= *end {
                flag.store(true, Ordering::Relaxed);
            }
            now < *end
        });
    }

    /// Ends all, also those that begin later.
    pub fn end_all(&self) {
        let mut pending = self.lock();
        pending.ending = true;
        for flag in pending.queries.drain(..).filter_map(|(_, flag)| flag.upgrade()) {
            flag.store(true, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_ends_at_its_time_and_all_end_with_the_station() {
        let (all, at) = (Deadlines::default(), Time::from_nanos);
        let (short, long) = (all.begin(at(10)), all.begin(at(20)));
        drop(all.begin(at(5)));
        let ended = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        all.look(at(9));
        assert!(!ended(&short) && !ended(&long));
        all.look(at(10));
        assert!(ended(&short) && !ended(&long));
        assert_eq!(all.lock().queries.len(), 1, "what has ended is forgotten");
        all.end_all();
        assert!(ended(&long) && ended(&all.begin(at(30))));
    }
}
