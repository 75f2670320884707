//! `sonde bench --dry-run`: what a plan comes to, and how long it takes at most.

use serde::Serialize;
use sonde_results::bench::Case;
use sonde_results::units::format_elapsed;
use sonde_testbed::cases::{ExpandedPlan, PlannedCase};

use crate::exit::{Exit, Failure};

#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    case: &'a Case,
    /// Longest time, ns.
    time_ns: i64,
    trials_max: u32,
}

/// Prints the list; each search is taken to need as many trials as it can.
pub fn print(expanded: &ExpandedPlan, json: bool) -> Result<Exit, Failure> {
    let mut text = String::new();
    let mut total: i64 = 0;
    for planned in &expanded.cases {
        let (time_ns, trials_max) = longest(expanded, planned);
        total = total.saturating_add(time_ns);
        if json {
            let line = Line { id: &planned.id, case: &planned.case, time_ns, trials_max };
            let line = serde_json::to_string(&line).map_err(anyhow::Error::from)?;
            text += &format!("{line}\n");
        } else {
            let time = format_elapsed(time_ns);
            text += &format!("{:<60} {time:>12}  {trials_max:>4} trials\n", planned.id);
        }
    }
    if !json {
        text += &format!(
            "{} measurements, at most {} when no trial has to be repeated\n",
            expanded.cases.len(),
            format_elapsed(total)
        );
    }
    crate::console::print(&text);
    Ok(Exit::Ok)
}

/// How long a measurement takes at most, ns, and in how many trials.
fn longest(expanded: &ExpandedPlan, planned: &PlannedCase) -> (i64, u32) {
    let run = &expanded.plan.run;
    let around = run.rest.0 + run.warm_up.0 + expanded.plan.bed.drain.0 + AROUND_NS;
    let max = expanded.greatest_load().unwrap_or(ASSUMED_FPS);
    let procedure = planned.procedure.make(max, planned.case.frame_bytes);
    let trials = procedure.remaining_trials();
    let rests = i64::from(trials).saturating_mul(around);
    (procedure.remaining_ns().saturating_add(rests), trials)
}

/// Learning frames, and starting and ending the engines, ns.
const AROUND_NS: i64 = 500_000_000;
/// What a tester can offer at most, where it is only found by trying, frames/s.
const ASSUMED_FPS: f64 = 10e6;

#[cfg(test)]
mod tests {
    use sonde_testbed::expand::expand;
    use sonde_testbed::plan::TomlText;

    use super::*;

    #[test]
    fn every_example_names_the_time_that_it_takes() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/bench");
        let mut plans = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let source = TomlText::read(&path, "").unwrap();
            let expanded = expand(&source).unwrap();
            let total = expanded.cases.iter().map(|case| longest(&expanded, case).0).sum();
            let wanted = format!("# At most {} by --dry-run", format_elapsed(total));
            let named: Vec<&str> =
                source.text.lines().filter(|line| line.contains("by --dry-run")).collect();
            assert!(
                named.len() == 1 && named[0].starts_with(&wanted),
                "{}: {wanted}, but it says {named:?}",
                path.display()
            );
            plans += 1;
        }
        assert!(plans > 0);
    }
}
