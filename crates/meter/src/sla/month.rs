//! A month adds up its windows.

use sonde_results::sla::{BoundSense, Evidence, ObjectiveMonth, ObjectiveVerdict};

use super::open_window::OpenWindow;

/// Adds a window with its verdict; `None`: no time of it counted.
pub(super) fn add_closed(
    month: &mut ObjectiveMonth,
    window: &OpenWindow,
    evidence: Option<&Evidence>,
) {
    add_open(month, window);
    match evidence {
        Some(evidence) => month.windows.add(evidence.verdict),
        None => month.windows.excluded += 1,
    }
    let missed = evidence.filter(|e| e.verdict == ObjectiveVerdict::Missed);
    if let Some(missed) = missed
        && month.worst.as_ref().is_none_or(|worst| further(missed, worst))
    {
        month.worst = Some(missed.clone());
    }
}

/// Adds what a window has counted so far.
pub(super) fn add_open(month: &mut ObjectiveMonth, window: &OpenWindow) {
    month.availability.merge(&window.availability);
    month.seconds.merge(&window.seconds);
    for more in &window.caveats {
        match month.caveats.binary_search_by_key(&more.caveat, |c| c.caveat) {
            Ok(i) => month.caveats[i].intervals += more.intervals,
            Err(i) => month.caveats.insert(i, *more),
        }
    }
}

/// Whether `a` is further from the objective than `b`. Numbers that were saved as text may read back
/// with another last digit; it decides nothing.
fn further(a: &Evidence, b: &Evidence) -> bool {
    let (a, b) = (distance(a), distance(b));
    a - b > 1e-9 * b.abs()
}

/// How far a window is beyond its bound, for certain.
fn distance(evidence: &Evidence) -> f64 {
    let beyond = match evidence.sense {
        BoundSense::AtMost => evidence.low.zip(evidence.bound).map(|(value, bound)| value - bound),
        BoundSense::AtLeast => {
            evidence.high.zip(evidence.bound).map(|(value, bound)| bound - value)
        }
    };
    beyond.unwrap_or(0.0)
}
