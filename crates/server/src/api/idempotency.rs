//! Tries of one change: a client that lost an answer asks again with the same key, and gets the
//! first answer instead of a second change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sonde_api::etag::IdempotencyKey;
use sonde_api::{ApiReply, ProblemDetails};

/// What is remembered of changes that had a key.
#[derive(Clone, Default)]
pub(super) struct KeyedChanges(Arc<Mutex<BTreeMap<ChangeKey, Remembered>>>);

type ChangeKey = (String, IdempotencyKey);
pub(super) type ChangeOutcome = Result<ApiReply, ProblemDetails>;

struct Remembered {
    /// Of method, path and body.
    print: [u8; 32],
    since: Duration,
    /// `None`: it is under way.
    outcome: Option<ChangeOutcome>,
}

/// What a key says of a request.
pub(super) enum Keyed {
    /// It is the first: to be carried out.
    First(FirstTry),
    /// It was carried out, and this came of it.
    Done(ChangeOutcome),
    /// It is under way.
    UnderWay,
    /// The key was another request's.
    Other,
    /// There are too many under way.
    Full,
}

/// Remembers what comes of a change. Where nothing does, the key is free again.
pub(super) struct FirstTry {
    all: KeyedChanges,
    key: Option<ChangeKey>,
}

impl KeyedChanges {
    /// `now` is any clock that does not go back.
    pub fn begin(
        &self,
        caller: &str,
        key: &IdempotencyKey,
        print: [u8; 32],
        now: Duration,
    ) -> Keyed {
        let mut all = self.all();
        all.retain(|_, one| one.outcome.is_none() || now.saturating_sub(one.since) < KEPT);
        let key = (caller.to_owned(), key.clone());
        match all.get(&key) {
            Some(one) if one.print != print => return Keyed::Other,
            Some(Remembered { outcome: None, .. }) => return Keyed::UnderWay,
            Some(Remembered { outcome: Some(outcome), .. }) => return Keyed::Done(outcome.clone()),
            None => {}
        }
        if all.len() >= KEYS_MAX {
            let done = all.iter().filter(|(_, one)| one.outcome.is_some());
            let Some(oldest) = done.min_by_key(|(_, one)| one.since).map(|(key, _)| key.clone())
            else {
                return Keyed::Full;
            };
            all.remove(&oldest);
        }
        all.insert(key.clone(), Remembered { print, since: now, outcome: None });
        Keyed::First(FirstTry { all: self.clone(), key: Some(key) })
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<ChangeKey, Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FirstTry {
    /// What came of it. A failure of the server is none of the change: it can be tried again.
    pub fn end(mut self, outcome: &ChangeOutcome) {
        if outcome.as_ref().is_err_and(|problem| problem.status >= 500) {
            return;
        }
        if let Some(key) = self.key.take()
            && let Some(one) = self.all.all().get_mut(&key)
        {
            one.outcome = Some(outcome.clone());
        }
    }
}

impl Drop for FirstTry {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.all.all().remove(&key);
        }
    }
}

/// How long an outcome is remembered.
const KEPT: Duration = Duration::from_secs(24 * 3_600);
/// Keys that are remembered, at most. Their answers are small: what was made.
const KEYS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_api::ProblemKind;

    fn key(text: &str) -> IdempotencyKey {
        IdempotencyKey::parse(text).unwrap()
    }

    fn hours(hours: u64) -> Duration {
        Duration::from_secs(hours * 3_600)
    }

    #[test]
    fn another_try_gets_the_first_answer_for_a_day() {
        let all = KeyedChanges::default();
        let Keyed::First(first) = all.begin("a", &key("k"), [1; 32], hours(0)) else { panic!() };
        assert!(matches!(all.begin("a", &key("k"), [1; 32], hours(0)), Keyed::UnderWay));
        let reply = Ok(ApiReply::of(201, b"made".to_vec()));
        first.end(&reply);
        let Keyed::Done(again) = all.begin("a", &key("k"), [1; 32], hours(23)) else { panic!() };
        assert_eq!(again, reply);
        assert!(matches!(all.begin("a", &key("k"), [2; 32], hours(23)), Keyed::Other));
        assert!(matches!(all.begin("b", &key("k"), [2; 32], hours(23)), Keyed::First(_)));
        assert!(matches!(all.begin("a", &key("k"), [1; 32], hours(24)), Keyed::First(_)));
    }

    #[test]
    fn what_failed_here_can_be_tried_again_and_what_was_refused_is_refused() {
        let all = KeyedChanges::default();
        let begin = |text: &str| match all.begin("a", &key(text), [1; 32], hours(0)) {
            Keyed::First(first) => Some(first),
            _ => None,
        };
        let problem = |kind| Err(ProblemDetails::new(kind, "x"));
        begin("k").unwrap().end(&problem(ProblemKind::Internal));
        drop(begin("k").unwrap());
        begin("k").unwrap().end(&problem(ProblemKind::Conflict));
        assert!(begin("k").is_none());
    }

    #[test]
    fn the_oldest_outcome_makes_room() {
        let all = KeyedChanges::default();
        for i in 0..KEYS_MAX as u64 + 1 {
            let now = Duration::from_millis(i);
            let Keyed::First(first) = all.begin("a", &key(&i.to_string()), [1; 32], now) else {
                panic!()
            };
            first.end(&Ok(ApiReply::of(204, Vec::new())));
        }
        assert_eq!(all.all().len(), KEYS_MAX);
        let now = hours(1);
        assert!(matches!(all.begin("a", &key("1"), [1; 32], now), Keyed::Done(_)));
        assert!(matches!(all.begin("a", &key("0"), [1; 32], now), Keyed::First(_)));
    }
}
