//! Which finished measurements are measured again when a run is taken up: those that a tester, not
//! the device, brought to their end. What of their trials was sound is kept.

use sonde_results::bench::{BenchRun, Measurement};
use sonde_results::trial::{Invalid, Trial};

use super::judge::hopeless;

/// Whether a finished measurement is to be tried again. It is if there were too few valid trials,
/// an agent or a port was lost, or a disturbed tester set the bound. A load that the
/// tester is simply too slow for would be so again.
pub fn again(m: &Measurement, run: &BenchRun) -> bool {
    let trials: Vec<&Trial> = of(m, run).collect();
    let bed = |t: &Trial| t.invalid.iter().any(|i| matches!(i, Invalid::Bed { .. }));
    let nothing = !m.finding.complete || m.finding.values.is_empty();
    let limited = m.finding.values.iter().any(|q| q.tester_limited);
    given_up(&trials).map(|i| trials[i]).any(|t| bed(t) || nothing || (limited && !hopeless(t)))
}

/// The trials by which a measurement is to be taken up, in their order: all of its own. Where it
/// was finished and is measured again, only those before the first load that was given up, and
/// those added since.
pub fn present<'a>(id: &str, run: &'a BenchRun) -> Vec<&'a Trial> {
    let own = run.trials.iter().filter(|t| t.measurement == id);
    let Some(before) = run.measurements.iter().find(|m| m.id == id) else {
        return own.collect();
    };
    let kept: Vec<&Trial> = of(before, run).collect();
    let nothing = !before.finding.complete || before.finding.values.is_empty();
    let cut = given_up(&kept).find(|&i| nothing || !hopeless(kept[i]));
    // The first try of that load.
    let cut = cut.map_or(kept.len(), |i| i + 1 - kept[i].attempt as usize);
    let last = before.trials.iter().max().copied().unwrap_or(0);
    kept[..cut.min(kept.len())].iter().copied().chain(own.filter(|t| t.number > last)).collect()
}

fn of<'a>(m: &'a Measurement, run: &'a BenchRun) -> impl Iterator<Item = &'a Trial> {
    let own = move |t: &&Trial| t.measurement == m.id && m.trials.contains(&t.number);
    // Interrupted ones were no tries.
    run.trials.iter().filter(own).filter(|t| t.invalid != [Invalid::Interrupted])
}

/// The last tries of loads that had no valid one.
fn given_up<'a>(trials: &'a [&Trial]) -> impl Iterator<Item = usize> + 'a {
    let settled = |i: usize| trials.get(i + 1).is_none_or(|next| next.attempt == 1);
    (0..trials.len()).filter(move |&i| !trials[i].valid() && settled(i))
}
