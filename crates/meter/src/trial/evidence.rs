//! What the trials of a measurement show beside what its procedure asks. There may be a direction
//! in which nothing ever arrives, frames that were damaged, loss that does not depend on the load.
//! It applies to every procedure, and is found in the trials themselves.

use sonde_results::Trial;
use sonde_results::bench::Finding;
use sonde_results::trial::Pattern;

/// Adds it to what a procedure found. `trials` are those by which it was found; invalid ones show
/// the state of the tester and are left out.
pub fn add_evidence<'a>(trials: impl IntoIterator<Item = &'a Trial>, finding: &mut Finding) {
    let trials: Vec<&Trial> = trials.into_iter().filter(|t| t.valid()).collect();
    let counts = counts(&trials);
    finding.failures.extend(dead(&counts));
    finding.notes.extend(counts.iter().filter_map(Count::damaged));
    finding.notes.extend(constant_loss(&trials));
}

/// A direction over all trials.
struct Count<'a> {
    name: &'a str,
    sent: u64,
    received: u64,
    duplicates: u64,
    reordered: u64,
    corrupted: u64,
    /// The greatest share of such frames in a trial, and its load, frames/s.
    worst: (f64, f64),
}

fn counts<'a>(trials: &[&'a Trial]) -> Vec<Count<'a>> {
    let mut counts: Vec<Count<'a>> = Vec::new();
    for trial in trials {
        // Learning frames need not arrive anywhere.
        if trial.offer.pattern == Pattern::Learning {
            continue;
        }
        for d in &trial.directions {
            let index = counts.iter().position(|c| c.name == d.name).unwrap_or_else(|| {
                let (sent, received, duplicates, reordered, corrupted) = (0, 0, 0, 0, 0);
                let worst = (0.0, 0.0);
                let name = d.name.as_str();
                counts.push(Count {
                    name,
                    sent,
                    received,
                    duplicates,
                    reordered,
                    corrupted,
                    worst,
                });
                counts.len() - 1
            });
            let count = &mut counts[index];
            count.sent += d.sent;
            count.received += d.received;
            count.duplicates += d.duplicates;
            count.reordered += d.reordered;
            count.corrupted += d.corrupted;
            let share = (d.duplicates + d.reordered + d.corrupted) as f64 / d.sent.max(1) as f64;
            if share > count.worst.0 {
                count.worst = (share, trial.offered_fps());
            }
        }
    }
    counts
}

/// Directions in which nothing ever arrived.
fn dead(counts: &[Count<'_>]) -> Vec<String> {
    let silent = |c: &&Count<'_>| c.sent > 0 && c.received == 0;
    let alive = counts.iter().find(|c| c.received > 0);
    let message = |c: &Count<'_>| {
        let Count { name, sent, corrupted, .. } = c;
        let damaged = match corrupted {
            0 => String::new(),
            n => format!(", but for {n} damaged ones"),
        };
        let how = match alive {
            Some(alive) => format!("while {} received {}", alive.name, alive.received),
            None => "nothing ever came back".into(),
        };
        format!(
            "Direction {name}: none of {sent} frames arrived in any trial{damaged}, {how}; check \
             that the device forwards between these ports (link, addresses, next hop)."
        )
    };
    counts.iter().filter(silent).map(message).collect()
}

impl Count<'_> {
    /// Frames that neither arrived once and whole nor were lost: no criterion of the standards
    /// counts them, and each is a defect of the device.
    fn damaged(&self) -> Option<String> {
        let counts = [
            (self.duplicates, "duplicated"),
            (self.reordered, "reordered"),
            (self.corrupted, "corrupted"),
        ];
        let defects: Vec<String> =
            counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        let (share, rate) = self.worst;
        (!defects.is_empty()).then(|| {
            format!(
                "Direction {}: of {} frames {}, the most ({:.3} %) at {rate:.0} frames/s.",
                self.name,
                self.sent,
                defects.join(", "),
                share * 100.0
            )
        })
    }
}

/// A share of the frames that is lost at every load: no lack of capacity, which a search would
/// look for in vain. Loads beyond the capacity lose more, and are left out from above.
fn constant_loss(trials: &[&Trial]) -> Option<String> {
    let mut points: Vec<(f64, f64, f64)> = trials
        .iter()
        .filter(|t| t.offer.steps.is_empty() && t.offer.event.is_none())
        .filter(|t| t.offer.pattern == Pattern::Plan)
        .map(|t| {
            let (sent, lost) = t.sent_and_lost();
            (t.offered_fps(), sent as f64, lost as f64)
        })
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    (LEAST_POINTS..=points.len()).rev().find_map(|n| {
        let set = &points[..n];
        let (sent, lost) = set.iter().fold((0.0, 0.0), |(s, l), p| (s + p.1, l + p.2));
        let share = lost / f64::max(sent, 1.0);
        if lost < LEAST_LOST || share > MOST_SHARE {
            return None;
        }
        // Four deviations of a count of events that are independent of each other.
        let fits = |&(_, sent, lost): &(f64, f64, f64)| {
            (lost - share * sent).abs() <= 4.0 * (share * sent).sqrt() + 0.02 * share * sent + 2.0
        };
        let informative: Vec<f64> =
            set.iter().filter(|p| share * p.1 >= LEAST_EXPECTED).map(|p| p.0).collect();
        let (low, high) = (*informative.first()?, *informative.last()?);
        let wide = informative.len() >= LEAST_POINTS && high >= LEAST_SPAN * low;
        (wide && set.iter().all(fits)).then(|| {
            format!(
                "Loss does not depend on the load: {:.3} % from {low:.0} to {high:.0} frames/s. \
                 Look for what drops a share of all frames (a faulty link, a filter), not for a \
                 lack of capacity; with a loss_ratio above it the search finds the capacity.",
                share * 100.0
            )
        })
    })
}

/// Loads that must agree, over this span at least.
const LEAST_POINTS: usize = 3;
const LEAST_SPAN: f64 = 4.0;
/// Frames lost in all, and those expected to be lost in an informative trial.
const LEAST_LOST: f64 = 30.0;
const LEAST_EXPECTED: f64 = 8.0;
/// What loses more is dead, or a policer.
const MOST_SHARE: f64 = 0.5;
