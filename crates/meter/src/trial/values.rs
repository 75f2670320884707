//! Quantities of trials under their standards' names.

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::hist::{BEYOND, Hist, supports};
pub(super) use sonde_results::units::SECOND;

/// A time to be discarded, kept within a trial. Where it would leave nothing, the first half goes,
/// as 60 of the 120 s of RFC 2544, section 26.2.
pub(super) fn discard_within(discard_ns: i64, duration_ns: i64) -> i64 {
    if discard_ns < duration_ns { discard_ns.max(0) } else { duration_ns / 2 }
}

/// The percentiles that are reported, where there are enough frames beyond them.
const PERCENTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999), ("p99_99", 0.9999), ("p99_999", 0.99999)];

/// `name@label`; `name` where there is no label.
pub(super) fn labelled(name: &str, label: &str) -> String {
    if label.is_empty() { name.into() } else { format!("{name}@{label}") }
}

/// Adds least, mean, percentiles and greatest of `hist`, in ns, as `NAME_p99_9@LABEL`.
pub(super) fn add_distribution(finding: &mut Finding, name: &str, label: &str, hist: &Hist) {
    let Some(mean) = hist.mean() else {
        finding.notes.push(format!("{}: nothing arrived.", labelled(name, label)));
        return;
    };
    let mut add = |what: &str, value: f64| {
        let name = labelled(&format!("{name}_{what}"), label);
        finding.values.push(Quantity::new(name, "ns", value, hist.count));
    };
    add("min", hist.min as f64);
    add("mean", mean);
    let mut left_out = Vec::new();
    for (what, q) in PERCENTILES {
        match hist.quantile(q) {
            Some(value) if supports(hist.count, q) => add(what, value as f64),
            _ => left_out.push(what.replace('_', ".")),
        }
    }
    add("max", hist.max as f64);
    if !left_out.is_empty() {
        finding.notes.push(format!(
            "{}: {} left out, fewer than {BEYOND} of the {} values would lie beyond.",
            labelled(name, label),
            left_out.join(", "),
            hist.count
        ));
    }
}

/// A sentence where the trial that decided was offered at another pace than asked for. It says how
/// well a load is known, beside what a search cuts down to (`resolution`, a share of the load).
pub(super) fn off_pace(pace: f64, resolution: f64) -> Option<String> {
    let off = (pace - 1.0).abs();
    (off >= LEAST_OFF_PACE).then(|| {
        format!(
            "The load is reported as it was offered, {:.2} % of what the trial was to offer: it is \
             known to {:.2} % ({:.2} % of the search, {:.2} % of the trial's pace).",
            pace * 100.0,
            (resolution + off) * 100.0,
            resolution * 100.0,
            off * 100.0
        )
    })
}

/// Below this share a trial's pace is as asked for.
const LEAST_OFF_PACE: f64 = 0.0005;

/// Nearest rank: the least value below or at which the share `q` of the values lies.
pub(super) fn percentile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let rank = ((q * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len().max(1));
    sorted.get(rank - 1).copied()
}

/// The middle value; the mean of the middle two of an even count.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[n / 2]),
        n => Some((sorted[n / 2 - 1] + sorted[n / 2]) / 2.0),
    }
}

pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The least and the greatest value; infinite where there is none.
pub(super) fn extremes(values: &[f64]) -> (f64, f64) {
    values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &v| (v.min(least), v.max(most)))
}

/// Standard deviation of a sample; `None` of fewer than two values.
pub(super) fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

/// The median of what repeated trials found, between their 1st and 99th percentile. It is the
/// summary of at least 20 trials (RFC 8219, section 7.2 and others).
pub(super) fn add_spread(finding: &mut Finding, name: &str, unit: &str, values: &[f64]) {
    let (Some(median), Some(p1), Some(p99)) =
        (median(values), percentile(values, 0.01), percentile(values, 0.99))
    else {
        return;
    };
    finding.values.push(Quantity::new(name, unit, median, values.len() as u64).between(p1, p99));
}

/// Why the last try of an offer could not be used.
pub(super) fn reasons(trial: &Trial) -> String {
    trial.invalid.iter().map(|i| i.text()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_ten_values_beyond_it() {
        let mut hist = Hist::default();
        (0..9_999).for_each(|_| hist.add(640));
        let mut finding = Finding::default();
        add_distribution(&mut finding, "latency", "50", &hist);
        assert!(finding.value("latency_p99@50").is_some());
        assert!(finding.value("latency_p99_9@50").is_none());
        assert!(finding.notes[0].contains("p99.9, p99.99, p99.999 left out"), "{finding:?}");
        hist.add(640);
        let mut finding = Finding::default();
        add_distribution(&mut finding, "latency", "", &hist);
        assert_eq!(finding.value("latency_p99_9").unwrap().samples, 10_000);
        assert!(finding.value("latency_p99_99").is_none());
    }

    #[test]
    fn order_statistics_are_the_usual_ones() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!((median(&values), mean(&values)), (Some(2.5), Some(2.5)));
        assert_eq!((percentile(&values, 0.01), percentile(&values, 0.99)), (Some(1.0), Some(4.0)));
        assert_eq!(deviation(&[1.0, 3.0]), Some(std::f64::consts::SQRT_2));
        assert_eq!((median(&[]), deviation(&[1.0])), (None, None));
    }
}
