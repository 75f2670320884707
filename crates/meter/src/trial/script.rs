//! Trials that are known beforehand, one after the other.

use sonde_results::Trial;
use sonde_results::bench::Finding;

use super::NextTrial;
use super::values::reasons;

/// A list of trials, and what was read from each.
#[derive(Clone, Debug)]
pub(super) struct Script<T> {
    steps: Vec<NextTrial>,
    /// `None`: no try was valid.
    seen: Vec<Option<T>>,
    /// Why the invalid ones were.
    unfit: Vec<String>,
}

impl<T> Script<T> {
    pub fn new(steps: Vec<NextTrial>) -> Script<T> {
        Script { steps, seen: Vec::new(), unfit: Vec::new() }
    }

    pub fn next(&self) -> Option<NextTrial> {
        self.steps.get(self.seen.len()).cloned()
    }

    /// Notes a trial's outcome; `read` is asked for valid ones only.
    pub fn observe(&mut self, trial: &Trial, read: impl FnOnce(&Trial) -> T) {
        if self.seen.len() >= self.steps.len() {
            return;
        }
        if trial.valid() {
            self.seen.push(Some(read(trial)));
        } else {
            self.seen.push(None);
            self.unfit.push(reasons(trial));
        }
    }

    /// Leaves out the trials that are still to come.
    pub fn end(&mut self) {
        self.steps.truncate(self.seen.len());
    }

    /// What was read, with the step's index.
    pub fn seen(&self) -> impl Iterator<Item = (usize, &T)> {
        self.seen.iter().enumerate().filter_map(|(i, seen)| Some((i, seen.as_ref()?)))
    }

    /// Outcomes in their order, `None` where the tester was not fit.
    pub fn outcomes(&self) -> &[Option<T>] {
        &self.seen
    }

    /// A finding without values: whether it is complete, and what was left out.
    pub fn finding(&self) -> Finding {
        let ended = self.seen.len() == self.steps.len();
        let mut finding =
            Finding { complete: ended && self.seen().next().is_some(), ..Finding::default() };
        if let Some(why) = self.unfit.last() {
            finding.notes.push(format!(
                "{} of {} trials could not be used, the tester was not fit: {why}.",
                self.unfit.len(),
                self.seen.len()
            ));
        }
        finding
    }

    pub fn remaining_ns(&self) -> i64 {
        let left = self.steps[self.seen.len()..].iter().map(|n| n.offer.duration_ns());
        left.fold(0, i64::saturating_add)
    }

    pub fn remaining_trials(&self) -> u32 {
        (self.steps.len() - self.seen.len()) as u32
    }
}

/// What every procedure that is a script does alike: all but `observe` and `finding`.
macro_rules! scripted {
    () => {
        fn next(&mut self) -> Option<$crate::trial::NextTrial> {
            self.script.next()
        }

        fn remaining_ns(&self) -> i64 {
            self.script.remaining_ns()
        }

        fn remaining_trials(&self) -> u32 {
            self.script.remaining_trials()
        }
    };
}
pub(super) use scripted;
