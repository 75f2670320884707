//! The plan's thresholds: whether each fits something that is measured, and whether it holds.
//!
//! A threshold that nothing is held against would pass by itself, so none is let by. A name, a key
//! or a value that fits no case is an error of the plan. A threshold whose quantity was not found
//! fails the run.

use sonde_results::bench::{Case, Check as Held, Measurement};
use sonde_run::nearest::{did_you_mean, nearest};

use super::cases::{LOOP, PlannedCase};
use super::plan::{CheckPlan, FrameSizes, IntendedLoad, PlanError, Threshold, TomlText};
use super::procedures::{ProcedurePlan, unit_of};

/// What `when` may name.
pub const KEYS: [&str; 10] = [
    "procedure",
    "device",
    "condition",
    "frame",
    "direction",
    "flows",
    "load",
    "ip",
    "burst",
    "action",
];

/// Whether every threshold can be held against something.
///
/// # Errors
/// One that cannot, with its line and what may have been meant.
pub fn sound(
    source: &TomlText,
    checks: &[CheckPlan],
    cases: &[PlannedCase],
) -> Result<(), PlanError> {
    checks.iter().try_for_each(|check| one(source, check, cases))
}

fn one(source: &TomlText, check: &CheckPlan, cases: &[PlannedCase]) -> Result<(), PlanError> {
    let wrong = |at: std::ops::Range<usize>, message: String| Err(source.error(at, message));
    for (key, wanted) in &check.when {
        if !KEYS.contains(&key.as_str()) {
            let message = format!(
                "check: when.{key} is no key of a case{}; there are {}",
                did_you_mean(nearest(key, KEYS)),
                KEYS.join(", ")
            );
            return wrong(wanted.span(), message);
        }
        if cases.iter().any(|c| fits(&c.case, key, wanted.get_ref())) {
            continue;
        }
        let mut there: Vec<String> = Vec::new();
        for value in cases.iter().filter_map(|c| value(&c.case, key)).filter(|v| !v.is_empty()) {
            if !there.contains(&value) {
                there.push(value);
            }
        }
        let message = match &there[..] {
            [] => format!("check: when.{key}: no case of this plan has a {key}; take it out"),
            _ => format!(
                "check: when.{key} = '{}' fits no case of this plan{}; there are {}",
                wanted.get_ref(),
                did_you_mean(nearest(wanted.get_ref(), there.iter().map(String::as_str))),
                there.join(", ")
            ),
        };
        return wrong(wanted.span(), message);
    }
    let meant: Vec<&PlannedCase> = cases.iter().filter(|c| meant(check, &c.case)).collect();
    if meant.is_empty() {
        let keys: Vec<String> =
            check.when.iter().map(|(k, v)| format!("{k} = '{}'", v.get_ref())).collect();
        let message = match keys.is_empty() {
            true => "check: only the tester alone is measured here; name device = 'loop' in when"
                .to_owned(),
            false => format!(
                "check: no case of this plan has {} at once; take one out",
                keys.join(" and ")
            ),
        };
        return wrong(check.expect.span(), message);
    }
    let Threshold { name, limit, text, .. } = check.expect.get_ref();
    if meant.iter().any(|c| c.procedure.can_find(name)) {
        let unit = unit_of(name);
        if limit.in_unit(unit).is_none() {
            let message = format!("check: '{text}': {name} is in {unit}, which does not compare");
            return wrong(check.expect.span(), message);
        }
        return Ok(());
    }
    let mut known: Vec<String> = Vec::new();
    let mut procedures: Vec<&str> = Vec::new();
    for case in &meant {
        if !procedures.contains(&case.procedure.name()) {
            procedures.push(case.procedure.name());
        }
        for name in case.procedure.quantity_names() {
            if !known.contains(&name) {
                known.push(name);
            }
        }
    }
    let near = nearest(name, known.iter().map(String::as_str));
    let hint = match near {
        Some(near) => did_you_mean(Some(near)),
        None => format!("; there are {}", known.join(", ")),
    };
    let message = format!("check: '{name}' is measured by none of {}{hint}", procedures.join(", "));
    wrong(check.expect.span(), message)
}

/// Holds the plan's thresholds against a measurement. Where its procedure can find the quantity
/// and did not, the threshold is there without a value.
pub fn hold(m: &mut Measurement, procedure: &ProcedurePlan, plan: &[CheckPlan]) {
    for check in plan.iter().filter(|check| meant(check, &m.case)) {
        let expect = check.expect.get_ref();
        if !procedure.can_find(&expect.name) {
            continue;
        }
        let found = m.finding.value(&expect.name).filter(|q| q.value.is_finite());
        let held = found.and_then(|q| Some((q.value, expect.holds(q.value, &q.unit)?)));
        let (value, pass) = (held.map(|(value, _)| value), held.is_some_and(|(_, pass)| pass));
        m.checks.push(Held { text: expect.text.clone(), value, pass });
    }
}

/// The plan's thresholds that no finished measurement was held against.
pub fn never_applied<'a>(plan: &'a [CheckPlan], done: &[Measurement]) -> Vec<&'a str> {
    let applied = |check: &&CheckPlan| {
        let text = &check.expect.get_ref().text;
        done.iter().any(|m| meant(check, &m.case) && m.checks.iter().any(|c| c.text == *text))
    };
    let never = plan.iter().filter(|check| !applied(check));
    never.map(|check| check.expect.get_ref().text.as_str()).collect()
}

/// Whether a threshold is meant for a case. The tester alone is only judged by name.
fn meant(check: &CheckPlan, case: &Case) -> bool {
    let alone = case.device == LOOP && !check.when.contains_key("device");
    !alone && check.when.iter().all(|(key, wanted)| fits(case, key, wanted.get_ref()))
}

fn value(case: &Case, key: &str) -> Option<String> {
    Some(match key {
        "procedure" => case.procedure.clone(),
        "device" => case.device.clone(),
        "condition" => case.condition.clone(),
        "frame" => case.frame.clone(),
        "direction" => case.direction.clone(),
        "flows" => case.flows.to_string(),
        "load" => case.load.clone(),
        other => return case.sweep.get(other).cloned(),
    })
}

/// As the report has it, or as the plan may write it: "50%" is "50 %", "imix" the simple mix.
fn fits(case: &Case, key: &str, wanted: &str) -> bool {
    let Some(have) = value(case, key) else { return false };
    have == wanted
        || match key {
            "frame" => wanted.parse::<FrameSizes>().is_ok_and(|f| f.label == have),
            "load" => wanted.parse::<IntendedLoad>().is_ok_and(|l| l.to_string() == have),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use sonde_results::bench::{Finding, Quantity};
    use toml::Spanned;

    use super::super::expand::expand;
    use super::*;

    fn check_plan(expect: &str, when: &[(&str, &str)]) -> CheckPlan {
        let when = when.iter();
        let when = when.map(|(k, v)| ((*k).to_owned(), Spanned::new(0..0, (*v).to_owned())));
        CheckPlan { expect: Spanned::new(0..0, expect.parse().unwrap()), when: when.collect() }
    }

    /// The tester alone is measured as well.
    const PLAN: &str = "title = 'x'\n[workload]\nframes = [64, 512, 'imix']\n\
        [[device]]\nname = 'router'\nkind = 'router'\n[[device]]\nname = 'bridge'\nkind = 'bridge'\n\
        [[procedure]]\nkind = 'throughput'\n\
        [[procedure]]\nkind = 'latency'\nframes = [64]\nloads = ['50 %', '10k']\n";

    fn refused(check: &str) -> PlanError {
        let text = format!("{PLAN}[[check]]\n{check}");
        let source = TomlText { file: "p.toml".into(), text };
        expand(&source).err().unwrap_or_else(|| panic!("accepted: {check}"))
    }

    #[test]
    fn a_threshold_that_fits_nothing_is_refused_with_its_line_and_what_was_meant() {
        for (check, line, parts) in [
            ("expect = 'troughput >= 1M'", 17, ["'troughput'", "did you mean 'throughput'"]),
            ("expect = 'latency_p98@50 <= 20us'", 17, ["latency_p98@50", "'latency_p99@50'"]),
            ("expect = 'latency_p99@90 <= 20us'", 17, ["latency_p99@90", "'latency_p99@50'"]),
            ("expect = 'jitter <= 20us'", 17, ["jitter", "throughput, latency"]),
            (
                "expect = 'throughput >= 1M'\nwhen = { fram = '64' }",
                18,
                ["when.fram", "did you mean 'frame'"],
            ),
            (
                "expect = 'throughput >= 1M'\nwhen = { device = 'ruter' }",
                18,
                ["'ruter' fits no case", "did you mean 'router'"],
            ),
            (
                "expect = 'throughput >= 1M'\nwhen = { frame = '1518' }",
                18,
                ["'1518' fits no case", "there are 64, 512, imix"],
            ),
            (
                "expect = 'throughput >= 1M'\nwhen = { condition = 'tuned' }",
                18,
                ["no case of this plan has a condition", "take it out"],
            ),
            (
                "expect = 'latency@50 <= 1ms'\nwhen = { procedure = 'latency', frame = '512' }",
                17,
                ["procedure = 'latency'", "at once"],
            ),
            (
                "expect = 'latency_p99@50 <= 1ms'\nwhen = { procedure = 'throughput' }",
                17,
                ["latency_p99@50", "none of throughput"],
            ),
            ("expect = 'throughput >= 1M'\nwen = { frame = '64' }", 18, ["wen", "when"]),
        ] {
            let error = refused(check);
            assert_eq!(error.line, Some(line), "{check}: {error}");
            for part in parts {
                assert!(error.message.contains(part), "{check}: {error}");
            }
        }
    }

    #[test]
    fn what_fits_is_accepted_as_the_plan_writes_it() {
        for check in [
            "expect = 'throughput >= 1M'",
            "expect = 'throughput >= 1M'\nwhen = { frame = 'imix', device = 'loop' }",
            "expect = 'latency_p99@50 <= 1ms'\nwhen = { frame = '64', ip = '4' }",
            "expect = 'latency_p99@10000frames/s/a>b <= 1ms'",
            "expect = 'loss_ratio@upper_bound <= 0.1'\nwhen = { flows = '1' }",
        ] {
            let text = format!("{PLAN}[[check]]\n{check}");
            let made = expand(&TomlText { file: "p.toml".into(), text });
            assert!(made.is_ok(), "{check}: {}", made.err().unwrap());
        }
    }

    fn measured(device: &str, frame: &str, value: Option<f64>) -> Measurement {
        let quantity = |v| Quantity::new("throughput", "frames/s", v, 1);
        Measurement {
            case: Case {
                procedure: "throughput".into(),
                device: device.into(),
                frame: frame.into(),
                ..Case::default()
            },
            finding: Finding {
                values: value.map(quantity).into_iter().collect(),
                complete: true,
                ..Finding::default()
            },
            ..Measurement::default()
        }
    }

    #[test]
    fn thresholds_judge_what_they_name_and_are_undecided_without_a_value() {
        let procedure = ProcedurePlan::of_text("kind = 'throughput'").unwrap();
        let plans = [
            check_plan("throughput >= 1M", &[]),
            check_plan("throughput >= 2M", &[("frame", "64")]),
            check_plan("throughput >= 9M", &[("frame", "1518")]),
            check_plan("latency_p99 <= 20us", &[]),
        ];
        let mut m = measured("router", "64", Some(1.5e6));
        hold(&mut m, &procedure, &plans);
        assert_eq!(m.checks.iter().map(|c| c.pass).collect::<Vec<_>>(), [true, false]);
        assert!(m.failed() && !m.undecided());
        assert_eq!(never_applied(&plans, &[m]), ["throughput >= 9M", "latency_p99 <= 20us"]);
        let mut alone = measured(LOOP, "64", Some(1.0));
        hold(&mut alone, &procedure, &plans);
        assert!(alone.checks.is_empty());
        let mut nothing = measured("router", "64", None);
        hold(&mut nothing, &procedure, &plans);
        assert_eq!(nothing.checks.len(), 2);
        assert!(nothing.undecided() && !nothing.failed());
    }
}
