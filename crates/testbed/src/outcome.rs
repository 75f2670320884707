//! What a finished measurement is worth, held against the tester alone.

use sonde_results::bench::{BenchRun, Case, Finding, Measurement, Quantity};
use sonde_results::caveat::Caveat;

use super::cases::LOOP;
use super::procedures::ProcedurePlan;

/// Adds the doubts that only the rest of the run shows: whether the tester, by itself, is better
/// than what was found with the device. `ceiling` is the greatest load that could be
/// offered, frames/s; late frames were waited for for `drain_ns`.
pub fn doubt(
    m: &mut Measurement,
    procedure: &ProcedurePlan,
    ceiling: f64,
    drain_ns: i64,
    run: &BenchRun,
) {
    if m.finding.values.is_empty() {
        return;
    }
    if procedure.shorter_than_the_standard(drain_ns) {
        m.caveats.insert(Caveat::ShortTrials);
    }
    // Without a device the tester is what is measured.
    if m.case.device == LOOP {
        m.finding.values.iter_mut().for_each(|q| q.tester_limited = false);
        return;
    }
    // A bound that a search says is the tester's.
    if m.finding.values.iter().any(|q| q.tester_limited) {
        m.caveats.insert(Caveat::TesterLimited);
    }
    let Some(found) = distinguishing(procedure, &m.finding) else { return };
    let with_device = found.value;
    let alone = run.measurements.iter().find(|l| is_loop_of(&l.case, &m.case));
    let alone = alone.and_then(|l| l.finding.value(&found.name)).map(|q| q.value);
    let limited = if procedure.finds_rate() {
        with_device >= ceiling * NEAR || alone.is_some_and(|alone| with_device >= alone * NEAR)
    } else {
        // A device adds delay. Variation of delay has a sign, and grows to both sides.
        alone.is_some_and(|alone| with_device.abs() <= alone.abs() / NEAR)
    };
    if limited {
        m.caveats.insert(Caveat::TesterLimited);
        let name = found.name.clone();
        let of_it = |q: &&mut Quantity| q.name == name;
        m.finding.values.iter_mut().find(of_it).into_iter().for_each(|q| q.tester_limited = true);
    }
}

/// The value that distinguishes a device from the bare tester: the rate of a procedure that
/// searches one, else the first delay. The rate of a fixed load is only what was asked for.
fn distinguishing<'a>(procedure: &ProcedurePlan, finding: &'a Finding) -> Option<&'a Quantity> {
    let unit = if procedure.finds_rate() { "frames/s" } else { "ns" };
    finding.values.iter().find(|q| q.unit == unit)
}

/// The same measurement without the device.
fn is_loop_of(alone: &Case, case: &Case) -> bool {
    alone.device == LOOP
        && alone.procedure == case.procedure
        && alone.frame == case.frame
        && alone.direction == case.direction
        && alone.flows == case.flows
        && alone.load == case.load
        && alone.sweep == case.sweep
        && alone.repetition == case.repetition
}

/// The tester must be better than what it measures by this, or it may be the limit.
const NEAR: f64 = 0.97;

#[cfg(test)]
mod tests {
    use super::*;

    const DRAIN_NS: i64 = 2_000_000_000;

    fn measured(device: &str, name: &str, unit: &str, value: f64) -> Measurement {
        Measurement {
            id: format!("{name}/{device}"),
            case: Case { device: device.into(), frame: "64".into(), ..Case::default() },
            finding: Finding {
                values: vec![Quantity::new(name, unit, value, 1)],
                complete: true,
                ..Finding::default()
            },
            ..Measurement::default()
        }
    }

    fn plan(text: &str) -> ProcedurePlan {
        ProcedurePlan::of_text(text).unwrap()
    }

    /// Whether the tester is taken for the limit, where the first values are these without and
    /// with the device.
    fn limited(procedure: &str, values: &[(&str, &str, f64, f64)]) -> bool {
        let with = |device: &str, pick: fn(&(&str, &str, f64, f64)) -> f64| {
            let mut m = measured(device, "", "", 0.0);
            let quantity = |v: &(&str, &str, f64, f64)| Quantity::new(v.0, v.1, pick(v), 1);
            m.finding.values = values.iter().map(quantity).collect();
            m
        };
        let run = BenchRun { measurements: vec![with(LOOP, |v| v.2)], ..BenchRun::default() };
        let mut m = with("router", |v| v.3);
        doubt(&mut m, &plan(procedure), 1e12, DRAIN_NS, &run);
        m.caveats.contains(Caveat::TesterLimited)
    }

    #[test]
    fn a_tester_that_is_no_better_alone_is_the_limit() {
        let rate = |alone, found| {
            limited("kind = 'throughput'", &[("throughput", "frames/s", alone, found)])
        };
        assert!(!rate(4e6, 1e6));
        assert!(rate(1e6, 0.99e6) && rate(1e6, 2e6));
        let delay =
            |alone, found| limited("kind = 'latency'", &[("latency@0", "ns", alone, found)]);
        assert!(!delay(500.0, 1000.0) && !delay(1000.0, 1040.0));
        assert!(delay(1000.0, 1001.0) && delay(1000.0, 900.0));
    }

    #[test]
    fn a_fixed_load_is_compared_by_its_delay_not_by_its_rate() {
        let fixed = |alone, found| {
            limited(
                "kind = 'fixed_load'\nloads = ['5k']",
                &[
                    ("forwarding_rate", "frames/s", 5e3, 5e3),
                    ("offered_load", "frames/s", 5e3, 5e3),
                    ("latency_min", "ns", alone, found),
                ],
            )
        };
        assert!(!fixed(2000.0, 5000.0));
        assert!(fixed(2000.0, 2010.0) && fixed(2000.0, 1990.0));
        let rates = [("forwarding_rate", "frames/s", 5e3, 5e3)];
        assert!(!limited("kind = 'fixed_load'\nloads = ['5k']", &rates), "no delay, no verdict");
    }

    #[test]
    fn a_variation_is_compared_by_its_size() {
        let ipdv = |alone, found| limited("kind = 'ipdv'", &[("ipdv_min", "ns", alone, found)]);
        assert!(!ipdv(-500.0, -5000.0));
        assert!(ipdv(-5000.0, -5050.0) && ipdv(-5000.0, -100.0));
    }

    #[test]
    fn short_trials_are_doubted_whatever_was_found() {
        let mut m = measured("router", "loss_ratio", "ratio", 0.0);
        let short = plan("kind = 'throughput'\ntrial = '1s'");
        doubt(&mut m, &short, 1e6, DRAIN_NS, &BenchRun::default());
        assert!(m.caveats.contains(Caveat::ShortTrials));
        assert!(!m.caveats.contains(Caveat::TesterLimited));
        // Late frames were not waited for as long as RFC 2544, section 23, wants.
        let mut hasty = measured("router", "loss_ratio", "ratio", 0.0);
        doubt(&mut hasty, &plan("kind = 'throughput'"), 1e6, DRAIN_NS - 1, &BenchRun::default());
        assert!(hasty.caveats.contains(Caveat::ShortTrials));
        let mut nothing = Measurement::default();
        doubt(&mut nothing, &short, 1e6, DRAIN_NS, &BenchRun::default());
        assert!(!nothing.caveats.contains(Caveat::ShortTrials));
    }

    #[test]
    fn a_load_that_could_not_be_raised_is_the_testers_limit() {
        let mut m = measured("router", "throughput", "frames/s", 0.98e6);
        doubt(&mut m, &plan("kind = 'throughput'"), 1e6, DRAIN_NS, &BenchRun::default());
        assert!(m.caveats.contains(Caveat::TesterLimited));
        // Of the bare tester that is no doubt: it is what is measured.
        let mut alone = measured(LOOP, "throughput", "frames/s", 0.98e6);
        doubt(&mut alone, &plan("kind = 'throughput'"), 1e6, DRAIN_NS, &BenchRun::default());
        assert!(!alone.caveats.contains(Caveat::TesterLimited));
    }
}
