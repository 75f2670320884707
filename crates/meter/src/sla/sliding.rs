//! Availability by a sliding window, as in MEF 10.x and 35. With intervals of a second and a window
//! of ten it gives the unavailable seconds of ITU-T G.826 and RFC 4805, section 3.
//!
//! Definition, looking ahead: before the first interval the state is available. Where it is
//! available before interval k, and the n intervals from k on are all bad, k is unavailable. Where
//! it is unavailable, and they are all good, k is available. Else k is as the one before. So a
//! transition is known n - 1 intervals late, and dates back to the first of the n.
//!
//! Intervals without data are neither good nor bad. Two machines run: one takes them as bad, one
//! as good. No bad interval ever improves a label, so whatever they were lies between.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::sla::AvailabilityLabel;

/// How an interval looks by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IntervalClass {
    /// Its loss is within the limit.
    Good,
    /// Its loss is beyond it.
    Bad,
    /// There is no data, or it does not decide.
    Unknown,
}

/// Labels intervals as available or not, as far as that is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlidingAvailability<T> {
    window: u64,
    /// Takes unknown intervals as bad.
    low: RunMachine,
    /// Takes them as good.
    high: RunMachine,
    waiting: VecDeque<WaitingInterval<T>>,
}

/// The state, and how many intervals in a row speak for the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct RunMachine {
    available: bool,
    pending: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct WaitingInterval<T> {
    payload: T,
    low: Option<bool>,
    high: Option<bool>,
}

impl RunMachine {
    /// Takes `count` intervals alike. `Some`: they and all that wait are as it says.
    fn step(&mut self, bad: bool, count: u64, window: u64) -> Option<bool> {
        if bad != self.available {
            self.pending = 0;
            return Some(self.available);
        }
        self.pending += count;
        if self.pending < window {
            return None;
        }
        self.available = !self.available;
        self.pending = 0;
        Some(self.available)
    }
}

impl<T> SlidingAvailability<T> {
    /// In the state available, before the first interval. `window` is n, 1 or more.
    pub fn new(window: u32) -> Self {
        let start = RunMachine { available: true, pending: 0 };
        SlidingAvailability {
            window: u64::from(window.max(1)),
            low: start,
            high: start,
            waiting: VecDeque::new(),
        }
    }

    /// The same state without the intervals that wait.
    pub fn forget(self) -> Self {
        let settled = |machine: RunMachine| RunMachine { pending: 0, ..machine };
        SlidingAvailability {
            low: settled(self.low),
            high: settled(self.high),
            waiting: VecDeque::new(),
            ..self
        }
    }

    /// Takes the next `count` intervals, which are all of `class`, with what goes with them.
    /// Adds to `decided` those whose label is final now, in order.
    pub fn push(
        &mut self,
        class: IntervalClass,
        count: u64,
        payload: T,
        decided: &mut Vec<(T, AvailabilityLabel)>,
    ) {
        let low = self.low.step(class != IntervalClass::Good, count, self.window);
        let high = self.high.step(class == IntervalClass::Bad, count, self.window);
        self.waiting.push_back(WaitingInterval { payload, low: None, high: None });
        if low.is_some() {
            self.waiting.iter_mut().rev().take_while(|w| w.low.is_none()).for_each(|w| w.low = low);
        }
        if high.is_some() {
            let open = self.waiting.iter_mut().rev().take_while(|w| w.high.is_none());
            open.for_each(|w| w.high = high);
        }
        while let Some(WaitingInterval { low: Some(low), high: Some(high), .. }) =
            self.waiting.front()
        {
            let label = label(*low, *high);
            decided.extend(self.waiting.pop_front().map(|w| (w.payload, label)));
        }
    }

    /// Those that wait for a label, with the one that they have until then: the old state.
    pub fn waiting(&self) -> impl Iterator<Item = (&T, AvailabilityLabel)> {
        self.waiting.iter().map(|w| {
            let low = w.low.unwrap_or(self.low.available);
            (&w.payload, label(low, w.high.unwrap_or(self.high.available)))
        })
    }
}

fn label(low: bool, high: bool) -> AvailabilityLabel {
    match (low, high) {
        (true, true) => AvailabilityLabel::Available,
        (false, false) => AvailabilityLabel::Unavailable,
        _ => AvailabilityLabel::Undecided,
    }
}
