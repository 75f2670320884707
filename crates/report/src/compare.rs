//! Two runs, or two conditions of one, compared case by case.

use serde::Serialize;
use sonde_results::bench::{BenchRun, Case};
use sonde_results::stats::{self, ConfidenceInterval};

use crate::LOOP;
use crate::group::{CaseGroup, Labels, Summary, groups, key};
use crate::quantity::{Sense, sense};

/// What a comparison shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ComparisonVerdict {
    /// The second is better.
    Better,
    /// The second is worse.
    Worse,
    /// They differ; which is better is not known for this quantity.
    Differs,
    /// The repetitions do not show a difference; there may be one.
    NoDifferenceShown,
    /// No outcome of so few repetitions could have shown a difference.
    TooFewRepetitions,
    /// The tester, not the device, set a value: which is better it does not say.
    TesterLimited,
}

impl ComparisonVerdict {
    pub fn text(self) -> &'static str {
        match self {
            ComparisonVerdict::Better => "better",
            ComparisonVerdict::Worse => "worse",
            ComparisonVerdict::Differs => "differs",
            ComparisonVerdict::NoDifferenceShown => "no difference shown",
            ComparisonVerdict::TooFewRepetitions => "too few repetitions",
            ComparisonVerdict::TesterLimited => "tester-limited",
        }
    }

    /// Whether the evidence does not decide which is better.
    pub fn undecided(self) -> bool {
        matches!(self, ComparisonVerdict::TooFewRepetitions | ComparisonVerdict::TesterLimited)
    }
}

/// One of the two.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideSummary {
    /// Complete repetitions.
    pub repetitions: usize,
    pub median: f64,
    /// Bootstrap interval of the median at 95 %.
    pub interval: Option<ConfidenceInterval>,
    /// Samples or trials behind all repetitions together.
    pub samples: u64,
    /// The tester set it, not the device, in a repetition at least: a rate is no less than this.
    pub tester_limited: bool,
}

/// A case and a quantity of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparisonRow {
    /// The case, repetition 0.
    pub case: Case,
    /// The case by what distinguishes it from the others.
    pub name: String,
    pub metric: String,
    pub unit: String,
    /// Which way it is better.
    pub sense: Option<Sense>,
    pub a: SideSummary,
    pub b: SideSummary,
    /// Hodges-Lehmann estimate of how far the second lies from the first, in the unit.
    pub difference: f64,
    /// Its interval at 95 %, by inversion of the rank-sum test.
    pub difference_interval: Option<ConfidenceInterval>,
    /// The difference as a share of the first's median; `None`: that is 0.
    pub relative: Option<f64>,
    /// Its interval, the first's median taken as known.
    pub relative_interval: Option<ConfidenceInterval>,
    /// Cliff's delta: how much more often a value of the second is the greater, -1 to 1.
    pub effect: f64,
    /// Two-sided probability by Mann and Whitney.
    pub p: f64,
    /// Whether that was counted out, not approximated.
    pub p_exact: bool,
    pub verdict: ComparisonVerdict,
}

impl ComparisonRow {
    /// Whether the second is worse by more than `threshold`, a share of the first's median.
    /// From 0 every change for the worse is beyond any threshold.
    pub fn worse_beyond(&self, threshold: f64) -> bool {
        self.verdict == ComparisonVerdict::Worse
            && self.relative.is_none_or(|r| r.abs() > threshold)
    }
}

/// All that can be compared, and what cannot.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    pub rows: Vec<ComparisonRow>,
    /// Cases that only the first has.
    pub only_a: Vec<String>,
    /// Cases that only the second has.
    pub only_b: Vec<String>,
    /// Cases and quantities that only one of the two has found, though both have measured the case.
    pub one_sided: Vec<String>,
    /// Cases in which neither has found anything, by their procedure.
    pub neither: Vec<String>,
    /// In what the beds differ: name, first, second.
    pub bed: Vec<(String, String, String)>,
    /// Both are runs of one plan: what one of them lacks was to be compared.
    pub same_plan: bool,
}

impl Comparison {
    /// What was to be compared and could not be, as text: where there is any, it is not known
    /// that nothing is worse.
    pub fn undecided(&self) -> Vec<String> {
        let of_row = |r: &&ComparisonRow| r.verdict.undecided();
        let rows = self.rows.iter().filter(of_row);
        let rows = rows.map(|r| format!("{}: {} ({})", r.name, r.metric, r.verdict.text()));
        let sided = self.one_sided.iter().map(|name| format!("{name} (found in one run only)"));
        let neither = self.neither.iter().map(|name| format!("{name} (found in neither run)"));
        let missing = self.only_a.iter().filter(|_| self.same_plan);
        let missing = missing.map(|name| format!("{name} (not measured in the second run)"));
        rows.chain(sided).chain(neither).chain(missing).collect()
    }

    /// How many differences chance alone is expected to show, each test erring in 5 % of the
    /// cases. 0 where there were too few repetitions for any.
    pub fn expected_by_chance(&self) -> f64 {
        let tests =
            self.rows.iter().filter(|r| r.verdict != ComparisonVerdict::TooFewRepetitions).count();
        tests as f64 * ALPHA
    }
}

/// Which quantities are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Metrics {
    /// The first, most important one of each procedure.
    #[default]
    First,
    /// Those whose name is this, or begins with this and goes on with `_` or `@`.
    Named(String),
    All,
}

impl Metrics {
    fn of<'g>(&self, group: &'g CaseGroup<'_>) -> Vec<&'g str> {
        let mut names = group.names();
        match self {
            Metrics::First => names.truncate(1),
            Metrics::Named(wanted) => names.retain(|name| {
                name.strip_prefix(wanted.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '@']))
            }),
            Metrics::All => {}
        }
        names
    }
}

/// Compares run `b` with run `a`. The seed of `a` draws the bootstrap.
pub fn compare(a: &BenchRun, b: &BenchRun, metrics: &Metrics) -> Comparison {
    let (in_a, in_b) = (groups(a), groups(b));
    let labels = Labels::of(in_a.iter().chain(&in_b).map(|g| &g.case));
    let full = |g: &CaseGroup<'_>| named(&labels, &g.case, &[]);
    let same_plan = a.config.plan_sha256 == b.config.plan_sha256;
    let bed = bed_differences(a, b);
    let mut comparison = Comparison { bed, same_plan, ..Comparison::default() };
    for group in &in_a {
        match in_b.iter().find(|g| key(&g.case) == key(&group.case)) {
            Some(other) => {
                let name = full(group);
                comparison.rows.extend(rows(group, other, metrics, &name, a.config.seed));
                comparison.one_sided.extend(one_sided(group, other, metrics, &name));
                if found_nothing(group, other, metrics) {
                    let case = labels.name(&group.case, &["procedure"]);
                    comparison.neither.push(format!("{case}: {}", group.case.procedure));
                }
            }
            None => comparison.only_a.push(full(group)),
        }
    }
    let unpaired = in_b.iter().filter(|g| !in_a.iter().any(|o| key(&o.case) == key(&g.case)));
    comparison.only_b.extend(unpaired.map(full));
    comparison
}

/// Compares the conditions of a run with its plainest one: that with the fewest layers, of
/// several the one that the plan names first. That one, another, and their cases; empty where
/// there is but one condition.
pub fn conditions(run: &BenchRun, metrics: &Metrics) -> Vec<(String, String, Comparison)> {
    let mut groups = groups(run);
    groups.retain(|g| g.case.device != LOOP);
    let position = |name: &str| run.config.plan.find(&format!("\"{name}\"")).unwrap_or(usize::MAX);
    let mut names: Vec<(usize, usize, String)> = Vec::new();
    for CaseGroup { case, .. } in &groups {
        let entry = (case.layers.len(), position(&case.condition), case.condition.clone());
        if !names.contains(&entry) {
            names.push(entry);
        }
    }
    names.sort();
    let names: Vec<String> = names.into_iter().map(|n| n.2).collect();
    let Some((base, others)) = names.split_first() else { return Vec::new() };
    let labels = Labels::of(groups.iter().map(|g| &g.case));
    let under = |case: &Case, condition: &String| Case {
        condition: condition.clone(),
        layers: Vec::new(),
        ..case.clone()
    };
    let against = |other: &String| {
        let mut comparison = Comparison::default();
        for group in groups.iter().filter(|g| g.case.condition == *base) {
            let wanted = under(&group.case, other);
            let name = named(&labels, &group.case, &["condition"]);
            let pair = groups
                .iter()
                .find(|g| g.case.condition == *other && under(&g.case, other) == wanted);
            match pair {
                Some(pair) => {
                    comparison.rows.extend(rows(group, pair, metrics, &name, run.config.seed))
                }
                None => comparison.only_a.push(name),
            }
        }
        (base.clone(), other.clone(), comparison)
    };
    others.iter().map(against).collect()
}

/// The case; its procedure only where that is not the name of what it finds.
fn named(labels: &Labels, case: &Case, without: &[&str]) -> String {
    match case.procedure.as_str() {
        "throughput" | "latency" => labels.name(case, &[without, &["procedure"]].concat()),
        _ => labels.name(case, without),
    }
}

fn rows(
    a: &CaseGroup<'_>,
    b: &CaseGroup<'_>,
    metrics: &Metrics,
    name: &str,
    seed: u64,
) -> Vec<ComparisonRow> {
    let names = metrics.of(a).into_iter();
    names
        .filter_map(|metric| {
            let (x, y) = (a.summary(metric, seed)?, b.summary(metric, seed)?);
            row(&a.case, name, metric, &x, &y)
        })
        .collect()
}

/// Quantities that one of the two has found in a finished measurement, and the other has not.
fn one_sided(a: &CaseGroup<'_>, b: &CaseGroup<'_>, metrics: &Metrics, name: &str) -> Vec<String> {
    let found = |g: &CaseGroup<'_>, metric: &str| g.summary(metric, 0).is_some();
    let mut names = metrics.of(a);
    // What comes first where a procedure found nothing else is not what was asked for.
    names.extend(metrics.of(b).into_iter().filter(|n| !metrics.of(a).contains(n)));
    let sided = names.into_iter().filter(|metric| found(a, metric) != found(b, metric));
    sided.map(|metric| format!("{name}: {metric}")).collect()
}

/// Whether what comes first was asked for, and neither has anything.
fn found_nothing(a: &CaseGroup<'_>, b: &CaseGroup<'_>, metrics: &Metrics) -> bool {
    *metrics == Metrics::First && a.names().is_empty() && b.names().is_empty()
}

fn row(case: &Case, name: &str, metric: &str, a: &Summary, b: &Summary) -> Option<ComparisonRow> {
    let test = stats::mann_whitney(&a.values, &b.values)?;
    let shift = stats::hodges_lehmann(&a.values, &b.values)?;
    let effect = stats::cliffs_delta(&a.values, &b.values)?;
    let sense = sense(metric, &a.unit);
    // A rate that the tester set may be any greater one of the device.
    let of_rate = a.unit == "frames/s";
    let verdict = match sense {
        _ if stats::least_p(a.values.len(), b.values.len()) > ALPHA => {
            ComparisonVerdict::TooFewRepetitions
        }
        // The test is of order, not of distance: where the two point in opposite ways, there
        // is a change of shape but none for better or worse.
        _ if test.p > ALPHA || effect == 0.0 || effect * shift.shift < 0.0 => {
            ComparisonVerdict::NoDifferenceShown
        }
        None => ComparisonVerdict::Differs,
        Some(Sense::More) if effect > 0.0 => ComparisonVerdict::Better,
        Some(Sense::Less) if effect < 0.0 => ComparisonVerdict::Better,
        Some(_) => ComparisonVerdict::Worse,
    };
    let verdict = match verdict {
        ComparisonVerdict::Worse if of_rate && b.tester_limited => ComparisonVerdict::TesterLimited,
        ComparisonVerdict::Better if of_rate && a.tester_limited => {
            ComparisonVerdict::TesterLimited
        }
        ComparisonVerdict::NoDifferenceShown
            if of_rate && (a.tester_limited || b.tester_limited) =>
        {
            ComparisonVerdict::TesterLimited
        }
        verdict => verdict,
    };
    let scale = a.median.abs();
    let share = |v: f64| v / scale;
    let side = |s: &Summary| SideSummary {
        repetitions: s.values.len(),
        median: s.median,
        interval: s.interval,
        samples: s.samples,
        tester_limited: s.tester_limited,
    };
    Some(ComparisonRow {
        case: case.clone(),
        name: name.to_string(),
        metric: metric.to_string(),
        unit: a.unit.clone(),
        sense,
        a: side(a),
        b: side(b),
        difference: shift.shift,
        difference_interval: shift.interval,
        relative: (scale > 0.0).then(|| share(shift.shift)),
        relative_interval: shift
            .interval
            .filter(|_| scale > 0.0)
            .map(|i| ConfidenceInterval { low: share(i.low), high: share(i.high) }),
        effect,
        p: test.p,
        p_exact: test.exact,
        verdict,
    })
}

fn bed_differences(a: &BenchRun, b: &BenchRun) -> Vec<(String, String, String)> {
    let facts = |run: &BenchRun| {
        let mut facts = run.bed.facts.clone();
        let host = &run.header.host;
        facts.extend([
            ("host".to_string(), host.name.clone()),
            ("kernel".to_string(), host.kernel.clone()),
            ("processor".to_string(), format!("{} x {}", host.cpus, host.cpu)),
            ("clock source".to_string(), host.clock_source.clone()),
            ("sonde".to_string(), run.header.version.clone()),
            ("engine".to_string(), run.config.engine.clone()),
            ("plan SHA-256".to_string(), run.config.plan_sha256.clone()),
            ("bed".to_string(), run.bed.diagram.join("; ")),
        ]);
        facts
    };
    let (a, b) = (facts(a), facts(b));
    let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let text = |facts: &std::collections::BTreeMap<String, String>, name: &String| {
        facts.get(name).cloned().unwrap_or_default()
    };
    let both = names.into_iter().map(|n| (n.clone(), text(&a, n), text(&b, n)));
    both.filter(|(_, x, y)| x != y).collect()
}

/// Level of the tests.
const ALPHA: f64 = 1.0 - stats::LEVEL;
