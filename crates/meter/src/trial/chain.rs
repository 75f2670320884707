//! A procedure that needs what another one finds: latency at the throughput, the loss and
//! recovery at 110 % of it.

use sonde_results::Trial;
use sonde_results::bench::Finding;

use super::{NextTrial, Procedure};

/// Makes the second procedure from the value that the first one found.
type Make = Box<dyn Fn(f64) -> Box<dyn Procedure + Send> + Send>;

/// A procedure, and another one with its result.
pub struct Chain {
    first: Box<dyn Procedure + Send>,
    /// The name of the value in the first one's finding.
    value: String,
    /// The greatest that it can be: how long the second one takes at most.
    greatest: f64,
    make: Make,
    second: Option<Box<dyn Procedure + Send>>,
    /// The first one found nothing to go on with.
    broken: bool,
}

impl Chain {
    /// After `first`, what `make` makes of the value of the name `value` in its finding,
    /// `greatest` at most. Where that is missing or 0, the first one's finding is all.
    pub fn new(
        first: Box<dyn Procedure + Send>,
        value: impl Into<String>,
        greatest: f64,
        make: impl Fn(f64) -> Box<dyn Procedure + Send> + Send + 'static,
    ) -> Chain {
        let (value, make) = (value.into(), Box::new(make));
        Chain { first, value, greatest, make, second: None, broken: false }
    }

    /// Goes on to the second when the first has ended.
    fn advance(&mut self) {
        if self.second.is_some() || self.broken || self.first.next().is_some() {
            return;
        }
        match self.first.finding().value(&self.value).map(|q| q.value) {
            Some(found) if found > 0.0 => self.second = Some((self.make)(found)),
            _ => self.broken = true,
        }
    }
}

impl Procedure for Chain {
    fn next(&mut self) -> Option<NextTrial> {
        self.advance();
        match &mut self.second {
            Some(second) => second.next(),
            None => self.first.next(),
        }
    }

    fn observe(&mut self, trial: &Trial) {
        self.advance();
        match &mut self.second {
            Some(second) => second.observe(trial),
            None => self.first.observe(trial),
        }
        self.advance();
    }

    /// The second one's values come first: they are what was asked for.
    fn finding(&self) -> Finding {
        let first = self.first.finding();
        let Some(second) = &self.second else {
            let mut finding = Finding { complete: self.broken && first.complete, ..first };
            if self.broken {
                finding.notes.push(format!("No {}: what depends on it was left out.", self.value));
            }
            return finding;
        };
        let mut finding = second.finding();
        for quantity in first.values {
            if finding.value(&quantity.name).is_none() {
                finding.values.push(quantity);
            }
        }
        let own = std::mem::replace(&mut finding.notes, first.notes);
        finding.notes.extend(own);
        finding
    }

    fn remaining_ns(&self) -> i64 {
        match &self.second {
            Some(second) => second.remaining_ns(),
            None if self.broken => 0,
            None => {
                let second = (self.make)(self.greatest).remaining_ns();
                self.first.remaining_ns().saturating_add(second)
            }
        }
    }

    fn remaining_trials(&self) -> u32 {
        match &self.second {
            Some(second) => second.remaining_trials(),
            None if self.broken => 0,
            None => {
                let second = (self.make)(self.greatest).remaining_trials();
                self.first.remaining_trials().saturating_add(second)
            }
        }
    }
}
