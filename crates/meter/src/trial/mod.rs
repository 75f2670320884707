//! Procedures of benchmarking: which trial comes next, and what the trials so far have found.
//!
//! A procedure is pure logic. Whoever runs the trials asks [`Procedure::next`], offers what
//! it says to the device, repeats what was invalid, and tells the outcome by
//! [`Procedure::observe`]. A run that is taken up again tells the trials of before in their
//! order, and the procedure goes on from there.

use sonde_results::Trial;
use sonde_results::bench::Finding;
use sonde_results::trial::Offer;

/// A trial that a procedure wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// What to offer.
    pub offer: Offer,
    /// Why, in a few words: "search", "loss verification", "latency at 50 %".
    pub purpose: String,
}

/// A procedure under way.
pub trait Procedure {
    /// The next trial; `None` when it has come to its end. The same until `observe` is called.
    fn next(&mut self) -> Option<Next>;

    /// The outcome of what `next` asked for. Where no try was valid, the last one: the
    /// procedure sees that by [`Trial::valid`] and ends, or goes on without it.
    fn observe(&mut self, trial: &Trial);

    /// What was found so far.
    fn finding(&self) -> Finding;

    /// The longest that sending may still take, ns, as far as it can be known: for
    /// `--dry-run`. What goes before and after each trial (learning frames, drain, rest) is
    /// added by whoever runs them, [`Procedure::remaining_trials`] times.
    fn remaining_ns(&self) -> i64;

    /// The most trials that may still be asked for, as far as it can be known.
    fn remaining_trials(&self) -> u32;
}
