//! What figures and tables take from trials.

use std::collections::HashMap;

use sonde_results::bench::{BenchRun, Case};
use sonde_results::hist::{BEYOND, supports};
use sonde_results::{Hist, Trial};

/// The share of `hist` up to which quantiles may be printed: at least [`BEYOND`] samples lie
/// beyond. 0: none may.
pub fn reach(hist: &Hist) -> f64 {
    1.0 - (BEYOND as f64 / hist.count.max(1) as f64).min(1.0)
}

/// The quantile `q`, ns, where at least [`BEYOND`] samples lie beyond it on either side that
/// is the farther.
pub fn percentile(hist: &Hist, q: f64) -> Option<i64> {
    supports(hist.count, q.max(1.0 - q)).then(|| hist.quantile(q)).flatten()
}

/// The valid trials with their cases.
pub fn valid(run: &BenchRun) -> impl Iterator<Item = (&Case, &Trial)> {
    let cases: HashMap<&str, &Case> =
        run.measurements.iter().map(|m| (m.id.as_str(), &m.case)).collect();
    let trials = run.trials.iter().filter(|t| t.valid());
    trials.filter_map(move |t| Some((*cases.get(t.measurement.as_str())?, t)))
}

/// A point of a loss curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossPoint {
    /// To be offered in each direction, frames/s: repetitions have this in common.
    pub rate_fps: f64,
    /// Offered in truth, frames/s.
    pub offered_fps: f64,
    /// Frames sent, all directions.
    pub sent: u64,
    /// Frames lost, all directions.
    pub lost: u64,
}

/// The valid trials of each case (repetition 0) that `wanted` picks, by rising rate.
pub fn loss_curve(run: &BenchRun, wanted: impl Fn(&Case) -> bool) -> Vec<(Case, Vec<LossPoint>)> {
    let mut curves: Vec<(Case, Vec<LossPoint>)> = Vec::new();
    for (case, trial) in valid(run).filter(|(case, _)| wanted(case)) {
        let case = Case { repetition: 0, ..case.clone() };
        let (sent, lost) = trial.sent_and_lost();
        let (rate_fps, offered_fps) = (trial.offer.rate_fps, trial.offered_fps());
        let point = LossPoint { rate_fps, offered_fps, sent, lost };
        match curves.iter_mut().find(|(c, _)| *c == case) {
            Some((_, points)) => points.push(point),
            None => curves.push((case, vec![point])),
        }
    }
    curves.iter_mut().for_each(|(_, p)| p.sort_by(|a, b| a.rate_fps.total_cmp(&b.rate_fps)));
    curves
}

/// Distributions of the valid trials of one case (repetition 0) and purpose, all together.
#[derive(Clone, Debug, PartialEq)]
pub struct Pooled {
    pub case: Case,
    pub purpose: String,
    /// Latency, ns.
    pub latency: Hist,
    /// RFC 3393 delay variation, ns.
    pub ipdv: Hist,
    /// RFC 4689 jitter, ns.
    pub jitter: Hist,
    pub trials: usize,
    /// Offered by the first, frames/s.
    pub rate_fps: f64,
}

/// What a trial was run for, without its index: "soak" of "soak, 3 of 24".
pub fn kind_of(purpose: &str) -> &str {
    match purpose.split_once(", ") {
        Some((kind, rest)) if rest.starts_with(|c: char| c.is_ascii_digit()) => kind,
        _ => purpose,
    }
}

/// Pools what was measured for its latency.
pub fn pooled(run: &BenchRun) -> Vec<Pooled> {
    let mut all: Vec<Pooled> = Vec::new();
    for (case, trial) in valid(run).filter(|(_, t)| t.for_latency()) {
        let case = Case { repetition: 0, ..case.clone() };
        let purpose = kind_of(&trial.purpose);
        let index =
            all.iter().position(|p| p.case == case && p.purpose == purpose).unwrap_or_else(|| {
                all.push(Pooled {
                    case,
                    purpose: purpose.to_string(),
                    latency: Hist::default(),
                    ipdv: Hist::default(),
                    jitter: Hist::default(),
                    trials: 0,
                    rate_fps: trial.offered_fps(),
                });
                all.len() - 1
            });
        let pool = &mut all[index];
        pool.trials += 1;
        for d in &trial.directions {
            pool.latency.merge(&d.latency);
            pool.ipdv.merge(&d.ipdv);
            pool.jitter.merge(&d.jitter);
        }
    }
    all.retain(|p| p.latency.count > 0);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_ten_samples_beyond() {
        let mut hist = Hist::default();
        (0..999).for_each(|v| hist.add(v * 100));
        assert!(percentile(&hist, 0.99).is_none());
        hist.add(1);
        assert!(percentile(&hist, 0.99).is_some() && percentile(&hist, 0.01).is_some());
        assert!(percentile(&hist, 0.999).is_none() && percentile(&hist, 0.001).is_none());
        assert_eq!(percentile(&Hist::default(), 0.5), None);
    }

    #[test]
    fn a_purpose_loses_its_number_only() {
        assert_eq!(kind_of("soak, 3 of 24"), "soak");
        assert_eq!(kind_of("latency at 50 %"), "latency at 50 %");
        assert_eq!(kind_of("burst, test 2"), "burst, test 2");
    }
}
