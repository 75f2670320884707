//! Measurements that differ only by their repetition, and what distinguishes groups.

use std::collections::{BTreeSet, HashMap};

use sonde_results::bench::{BenchRun, Case, Measurement};
use sonde_results::caveat::Caveat;
use sonde_results::procedure::{RateResult, procedure_info};
use sonde_results::stats::{self, ConfidenceInterval};

use crate::quantity::{procedure_title, sort_distributions};

/// The repetitions of one case.
#[derive(Clone, Debug)]
pub struct CaseGroup<'a> {
    /// The case, repetition 0.
    pub case: Case,
    /// Its measurements, in the order in which they were made.
    pub measurements: Vec<&'a Measurement>,
}

/// A quantity over the repetitions of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub unit: String,
    /// The values of the complete measurements.
    pub values: Vec<f64>,
    pub median: f64,
    /// Bootstrap interval of the median; `None`: too few repetitions.
    pub interval: Option<ConfidenceInterval>,
    /// Bounds by the procedure itself, where there was but one measurement.
    pub bounds: Option<ConfidenceInterval>,
    /// Samples or trials behind all values together.
    pub samples: u64,
    /// The tester set one of the values at least, not the device.
    pub tester_limited: bool,
}

impl Summary {
    /// What to draw around the median: the interval; with too few repetitions the whole range
    /// of the values; of a single one the procedure's own bounds.
    pub fn spread(&self) -> ConfidenceInterval {
        let range = || ConfidenceInterval {
            low: self.values.iter().copied().fold(f64::INFINITY, f64::min),
            high: self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        };
        self.interval.or(self.bounds).unwrap_or_else(range)
    }
}

/// The groups of a run, in the order of their first measurements.
pub fn groups(run: &BenchRun) -> Vec<CaseGroup<'_>> {
    let mut groups: Vec<CaseGroup<'_>> = Vec::new();
    let mut indexes: HashMap<String, usize> = HashMap::new();
    for measurement in &run.measurements {
        let case = Case { repetition: 0, ..measurement.case.clone() };
        let index = *indexes.entry(key(&case)).or_insert_with(|| {
            groups.push(CaseGroup { case, measurements: Vec::new() });
            groups.len() - 1
        });
        groups[index].measurements.push(measurement);
    }
    groups
}

impl CaseGroup<'_> {
    /// Names of the quantities found, the most important first; those of a distribution from
    /// the least to the greatest.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for value in self.measurements.iter().flat_map(|m| &m.finding.values) {
            if !names.contains(&value.name.as_str()) {
                names.push(&value.name);
            }
        }
        sort_distributions(&mut names, |name| name);
        names
    }

    /// That quantity over the repetitions. Measurements that did not come to their end take no
    /// part: theirs is what was found until then.
    pub fn summary(&self, name: &str, seed: u64) -> Option<Summary> {
        let complete = self.measurements.iter().filter(|m| m.finding.complete);
        let found: Vec<_> = complete.filter_map(|m| m.finding.value(name)).collect();
        let values: Vec<f64> = found.iter().map(|q| q.value).filter(|v| !v.is_nan()).collect();
        let bounds = match found[..] {
            [only] => only.bounds.map(|[low, high]| ConfidenceInterval { low, high }),
            _ => None,
        };
        Some(Summary {
            unit: found.first()?.unit.clone(),
            median: stats::median(&values)?,
            interval: stats::median_interval(&values, seed),
            bounds,
            samples: found.iter().map(|q| q.samples).sum(),
            tester_limited: self.tester_limited(name),
            values,
        })
    }
}

impl CaseGroup<'_> {
    /// Whether the tester, not the device, set that quantity in a repetition. Of older runs the
    /// caveat alone says so, of the rate that was searched.
    fn tester_limited(&self, name: &str) -> bool {
        self.measurements.iter().filter(|m| m.finding.complete).any(|m| {
            let values = &m.finding.values;
            let limited = values.iter().any(|q| q.tester_limited);
            let by_caveat = !limited && m.caveats.contains(Caveat::TesterLimited) && is_rate(name);
            by_caveat || values.iter().any(|q| q.name == name && q.tester_limited)
        })
    }
}

/// Whether a quantity of that name is a rate that a search found: "throughput",
/// "conditional_throughput@NDR".
pub fn is_rate(name: &str) -> bool {
    name.split('@').next().is_some_and(|base| base.ends_with("throughput"))
}

/// Whether a procedure searches a rate for its own sake: of others, a rate found is what their
/// loads are shares of.
pub fn searches_rate(name: &str) -> bool {
    procedure_info(name).is_some_and(|known| known.rate == RateResult::Searched)
}

/// What identifies a case, apart from its repetition.
pub fn key(case: &Case) -> String {
    serde_json::to_string(&Case { repetition: 0, ..case.clone() }).unwrap_or_default()
}

/// Names cases by what differs among them.
#[derive(Clone, Debug)]
pub struct Labels {
    varying: Vec<String>,
    /// Mixes are distinguished by their names alone, without their genomes.
    short_mixes: bool,
}

impl Labels {
    pub fn of<'a>(cases: impl IntoIterator<Item = &'a Case>) -> Labels {
        let cases: Vec<&Case> = cases.into_iter().collect();
        let frames: BTreeSet<&str> = cases.iter().map(|c| c.frame.as_str()).collect();
        let short: BTreeSet<&str> = frames.iter().map(|f| mix_name(f)).collect();
        let short_mixes = short.len() == frames.len();
        let mut seen: Vec<(String, BTreeSet<String>)> = Vec::new();
        for (field, text) in cases.iter().flat_map(|c| fields(c, false)) {
            match seen.iter_mut().find(|(f, _)| *f == field) {
                Some((_, texts)) => drop(texts.insert(text)),
                None => seen.push((field, [text].into())),
            }
        }
        let varying = seen.into_iter().filter(|s| s.1.len() > 1).map(|s| s.0).collect();
        Labels { varying, short_mixes }
    }

    /// The name of `case`; the fields of `without` are shown elsewhere. Never empty.
    pub fn name(&self, case: &Case, without: &[&str]) -> String {
        match self.differing(case, without) {
            name if !name.is_empty() => name,
            _ if without.contains(&"device") => procedure(case),
            _ => case.device.clone(),
        }
    }

    /// The same for a figure, which always shows its procedure: two of one plan have figures
    /// of the same kind.
    pub fn title(&self, case: &Case, without: &[&str]) -> String {
        let rest = match self.differing(case, &[without, &["procedure"]].concat()) {
            rest if rest.is_empty() && !without.contains(&"device") => case.device.clone(),
            rest => rest,
        };
        match rest.as_str() {
            "" => procedure(case),
            rest => format!("{}, {rest}", procedure(case)),
        }
    }

    /// What distinguishes `case` from the others; empty: nothing but the fields of `without`.
    fn differing(&self, case: &Case, without: &[&str]) -> String {
        let varies = |field: &str| self.varying.iter().any(|f| f == field);
        let parts = fields(case, self.short_mixes)
            .into_iter()
            .filter(|(f, text)| varies(f) && !without.contains(&f.as_str()) && !text.is_empty());
        parts.map(|(_, text)| text).collect::<Vec<_>>().join(", ")
    }
}

fn procedure(case: &Case) -> String {
    procedure_title(&case.procedure)
}

/// A mix without its genome, which stands in the tables.
pub(crate) fn mix_name(frame: &str) -> &str {
    frame.split_once(':').map_or(frame, |(name, _)| name)
}

/// The fields of a case as text, in the order in which a name has them.
fn fields(case: &Case, short_mixes: bool) -> Vec<(String, String)> {
    let frame = match case.frame.parse::<u32>() {
        Ok(bytes) => format!("{bytes} B"),
        Err(_) if short_mixes => mix_name(&case.frame).to_string(),
        Err(_) => case.frame.clone(),
    };
    let fixed = [
        ("device", case.device.clone()),
        ("condition", case.condition.clone()),
        ("frame", frame),
        ("direction", case.direction.clone()),
        ("flows", format!("{} flows", case.flows)),
        ("load", case.load.clone()),
        ("procedure", procedure(case)),
    ];
    let sweep = case.sweep.iter().map(|(name, value)| (name.clone(), format!("{name} {value}")));
    fixed.map(|(name, text)| (name.to_string(), text)).into_iter().chain(sweep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::bench::{Finding, Quantity};

    fn run(values: &[(&str, u32, f64, bool)]) -> BenchRun {
        let measurement = |&(frame, repetition, value, complete): &(&str, u32, f64, bool)| {
            let case = Case {
                procedure: "throughput".into(),
                device: "router".into(),
                frame: frame.into(),
                repetition,
                ..Case::default()
            };
            let values = vec![Quantity::new("throughput", "frames/s", value, 4).between(1.0, 9.0)];
            let finding = Finding { values, complete, ..Finding::default() };
            Measurement { case, finding, ..Measurement::default() }
        };
        BenchRun { measurements: values.iter().map(measurement).collect(), ..BenchRun::default() }
    }

    #[test]
    fn repetitions_come_together_and_unfinished_ones_do_not_count() {
        let run = run(&[
            ("64", 1, 10.0, true),
            ("512", 1, 5.0, true),
            ("64", 2, 14.0, true),
            ("64", 3, 0.5, false),
        ]);
        let groups = groups(&run);
        assert_eq!(groups.len(), 2);
        let summary = groups[0].summary("throughput", 1).unwrap();
        assert_eq!((summary.median, summary.samples, summary.interval), (12.0, 8, None));
        assert_eq!(summary.spread(), ConfidenceInterval { low: 10.0, high: 14.0 });
        let single = groups[1].summary("throughput", 1).unwrap();
        assert_eq!(single.spread(), ConfidenceInterval { low: 1.0, high: 9.0 });
        assert_eq!(groups[0].names(), ["throughput"]);
        assert_eq!(groups[0].summary("none", 1), None);
    }

    #[test]
    fn titles_show_the_procedure_and_names_only_what_differs() {
        let run = run(&[("64", 1, 1.0, true), ("512", 1, 1.0, true)]);
        let labels = Labels::of(run.measurements.iter().map(|m| &m.case));
        let case = &run.measurements[0].case;
        assert_eq!(labels.title(case, &[]), "throughput, 64 B");
        assert_eq!(labels.title(case, &["frame"]), "throughput, router");
        assert_eq!(labels.title(case, &["frame", "device"]), "throughput");
    }

    #[test]
    fn names_show_what_differs() {
        let run = run(&[("64", 1, 1.0, true), ("imix:aab", 1, 1.0, true)]);
        let labels = Labels::of(run.measurements.iter().map(|m| &m.case));
        let name = |i: usize, without: &[&str]| labels.name(&run.measurements[i].case, without);
        assert_eq!((name(0, &[]), name(1, &[])), ("64 B".into(), "imix".into()));
        assert_eq!(name(0, &["frame"]), "router");
        let run = self::run(&[("mix:aab", 1, 1.0, true), ("mix:aac", 1, 1.0, true)]);
        let labels = Labels::of(run.measurements.iter().map(|m| &m.case));
        assert_eq!(labels.name(&run.measurements[0].case, &[]), "mix:aab");
    }
}
