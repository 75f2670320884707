//! What a finished measurement is worth: held against the tester alone, and against the
//! plan's thresholds.

use sonde_results::bench::{BenchRun, Case, Check, Measurement};
use sonde_results::caveat::Caveat;

use super::expand::LOOP;
use super::plan::CheckPlan;
use super::procedures::ProcedurePlan;

/// Adds the doubts that only the rest of the run can tell: whether the tester, by itself, is
/// better than what was found with the device. `ceiling` is the greatest load that could be
/// offered, frames/s.
pub fn doubt(m: &mut Measurement, procedure: &ProcedurePlan, ceiling: f64, run: &BenchRun) {
    let Some(found) = m.finding.values.first() else { return };
    if procedure.finds_rate() && found.value >= ceiling * NEAR {
        m.caveats.insert(Caveat::TesterLimited);
    }
    let alone = run.measurements.iter().find(|l| is_loop_of(&l.case, &m.case));
    if let Some(alone) = alone.filter(|_| m.case.device != LOOP)
        && let Some(loop_value) = alone.finding.values.iter().find(|q| q.name == found.name)
    {
        let limited = match found.unit.as_str() {
            "frames/s" => found.value >= loop_value.value * NEAR,
            "ns" => found.value <= loop_value.value / NEAR,
            _ => false,
        };
        if limited {
            m.caveats.insert(Caveat::TesterLimited);
        }
    }
    if procedure.shorter_than_the_standard() {
        m.caveats.insert(Caveat::ShortTrials);
    }
}

/// Holds the plan's thresholds against it.
pub fn check(m: &mut Measurement, plan: &[CheckPlan]) {
    for CheckPlan { expect, when } in plan {
        let applies = when.iter().all(|(key, wanted)| {
            let have = match key.as_str() {
                "procedure" => &m.case.procedure,
                "device" => &m.case.device,
                "condition" => &m.case.condition,
                "frame" => &m.case.frame,
                "direction" => &m.case.direction,
                "load" => &m.case.load,
                other => m.case.sweep.get(other).unwrap_or(wanted),
            };
            have == wanted
        });
        // The tester alone is only judged by name.
        let alone = m.case.device == LOOP && !when.contains_key("device");
        let value = m.finding.value(&expect.name).map(|q| q.value);
        // A threshold for another procedure says nothing of this one, unless it is named.
        let meant = value.is_some() || when.contains_key("procedure");
        if applies && !alone && meant {
            let pass = value.is_some_and(|v| expect.holds(v));
            m.checks.push(Check { text: expect.text.clone(), value, pass });
        }
    }
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
    use sonde_results::bench::{Finding, Quantity};

    fn measured(device: &str, name: &str, unit: &str, value: f64) -> Measurement {
        Measurement {
            id: format!("{name}/{device}"),
            case: Case { device: device.into(), frame: "64".into(), ..Case::default() },
            finding: Finding {
                values: vec![Quantity::new(name, unit, value, 1)],
                complete: true,
                notes: Vec::new(),
            },
            ..Measurement::default()
        }
    }

    fn doubted(alone: f64, found: f64, unit: &str) -> bool {
        let run = BenchRun {
            measurements: vec![measured(LOOP, "x", unit, alone)],
            ..BenchRun::default()
        };
        let mut m = measured("router", "x", unit, found);
        let table: toml::Table = "kind = 'throughput'".parse().unwrap();
        doubt(&mut m, &ProcedurePlan::read(&table).unwrap(), 1e12, &run);
        m.caveats.contains(Caveat::TesterLimited)
    }

    #[test]
    fn a_tester_that_is_no_better_alone_is_the_limit() {
        assert!(!doubted(4e6, 1e6, "frames/s"));
        assert!(doubted(1e6, 0.99e6, "frames/s"));
        assert!(!doubted(500.0, 1000.0, "ns"));
        assert!(doubted(1000.0, 1001.0, "ns"));
    }

    #[test]
    fn a_load_that_could_not_be_raised_is_the_testers_limit() {
        let mut m = measured("router", "throughput", "frames/s", 0.98e6);
        let table: toml::Table = "kind = 'throughput'".parse().unwrap();
        doubt(&mut m, &ProcedurePlan::read(&table).unwrap(), 1e6, &BenchRun::default());
        assert!(m.caveats.contains(Caveat::TesterLimited));
    }

    #[test]
    fn thresholds_judge_what_they_name() {
        let plan = |expect: &str, when: &[(&str, &str)]| CheckPlan {
            expect: expect.parse().unwrap(),
            when: when.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        };
        let plans = [
            plan("throughput >= 1M", &[]),
            plan("throughput >= 2M", &[("frame", "64")]),
            plan("throughput >= 9M", &[("frame", "1518")]),
            plan("latency_p99 <= 20us", &[]),
        ];
        let mut m = measured("router", "throughput", "frames/s", 1.5e6);
        check(&mut m, &plans);
        let passed: Vec<bool> = m.checks.iter().map(|c| c.pass).collect();
        assert_eq!(passed, [true, false]);
        let mut alone = measured(LOOP, "throughput", "frames/s", 1.0);
        check(&mut alone, &plans);
        assert!(alone.checks.is_empty());
    }
}
