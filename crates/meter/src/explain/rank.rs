//! The ranking of sets of series.

use std::collections::BTreeSet;

use super::candidate::{Candidate, candidates, series_of_labels};
use super::kind::kind;
use super::{
    Answer, Cause, CauseKind, EvidenceKind, ExplainEvidence, ExplainGrade, LabelKind, OwnTime,
    Question, SampleCounts,
};

/// What explains the excess of the question's series over the windows before.
///
/// # Panics
/// A label of a series, of a station or of evidence is none of the question's, or series have
/// unlike numbers of windows before.
pub fn explain(question: &Question) -> Answer {
    let windows = question.series.first().map_or(0, |s| s.before.len());
    assert!(question.series.iter().all(|s| s.before.len() == windows), "the same windows in each");
    let ranking = Ranking::new(question, windows);
    let now: Vec<SampleCounts> = question.series.iter().map(|s| s.now).collect();
    let usual = ranking.usual(None);
    let threshold = ranking.threshold(windows);
    let seen = ranking.evidence_in_time();
    let (mut causes, mut next) = ranking.greedy(&now, &usual, threshold, &seen, false);
    if causes.first().is_some_and(|first| !is_pure(first.purity)) {
        // Most of what it names is as before: some paths of a group may fit better together.
        let smaller = ranking.greedy(&now, &usual, threshold, &seen, true);
        let score = |of: &[Cause]| of.iter().map(|cause| cause.score).sum::<f64>();
        let covered: f64 = smaller.0.iter().map(|cause| cause.coverage).sum();
        if covered > MOST_OF_IT && score(&smaller.0) > score(&causes) {
            (causes, next) = smaller;
        }
    }
    let excess = ranking.excess(&now, &usual);
    let grade = ranking.grade(&causes, windows, &now, &usual);
    let acquitted = causes.first().map_or_else(Vec::new, |c| ranking.acquitted(c, &now, &usual));
    let dispersion = ranking.dispersion;
    Answer { grade, causes, next, acquitted, excess, dispersion, threshold }
}

struct Ranking<'a> {
    question: &'a Question,
    candidates: Vec<Candidate>,
    /// The series of each label, in order.
    of_label: Vec<Vec<u32>>,
    dispersion: f64,
}

/// A candidate that fits, with the rise of its share of bad samples.
#[derive(Clone, Copy)]
struct Fit {
    candidate: usize,
    rise: f64,
    score: f64,
}

impl<'a> Ranking<'a> {
    fn new(question: &'a Question, windows: usize) -> Ranking<'a> {
        let of_label = series_of_labels(question);
        let candidates = candidates(question, &of_label);
        let mut ranking = Ranking { question, candidates, of_label, dispersion: 1.0 };
        ranking.dispersion = ranking.dispersion_before(windows);
        ranking
    }

    /// The usual share of bad samples of each series, from all windows before but `without`.
    fn usual(&self, without: Option<usize>) -> Vec<f64> {
        let of = |series: &super::ExplainSeries| {
            let kept = series.before.iter().enumerate().filter(|&(k, _)| Some(k) != without);
            let sum: SampleCounts = kept.map(|(_, &counts)| counts).sum();
            (sum.bad as f64 + 0.5) / (sum.n as f64 + 1.0)
        };
        self.question.series.iter().map(of).collect()
    }

    /// How far bad samples come in bursts: their variance over that of independent ones. Of the
    /// windows before alone, since a fault would raise it by itself.
    fn dispersion_before(&self, windows: usize) -> f64 {
        let usual = self.usual(None);
        let (mut sum, mut terms) = (0.0, 0usize);
        for (series, &p) in self.question.series.iter().zip(&usual) {
            for counts in series.before.iter().filter(|c| c.n > 0) {
                let mean = counts.n as f64 * p;
                sum += (counts.bad as f64 - mean).powi(2) / (mean * (1.0 - p));
                terms += 1;
            }
        }
        // One window of each series is spent on its usual share.
        let free = terms as f64 * (1.0 - 1.0 / windows.max(1) as f64);
        if free > 0.0 { (sum / free).max(1.0) } else { 1.0 }
    }

    /// How a candidate fits; `None`: it has no excess.
    fn fit(&self, candidate: usize, counts: &[SampleCounts], rates: &[f64]) -> Option<Fit> {
        let of = &self.candidates[candidate];
        let (mut n, mut excess) = (0.0, 0.0);
        for &i in &of.series {
            let (c, rate) = (counts[i as usize], rates[i as usize]);
            n += c.n as f64;
            excess += c.bad as f64 - c.n as f64 * rate;
        }
        if n == 0.0 || excess <= 0.0 {
            return None;
        }
        let rise = excess / n;
        let mut gain = 0.0;
        for &i in &of.series {
            let (c, rate) = (counts[i as usize], rates[i as usize]);
            if c.n > 0 {
                gain += likelihood(c, rate + rise) - likelihood(c, rate);
            }
        }
        let choice =
            (self.candidates.len() as f64).ln() + 0.5 * (n / self.dispersion).ln().max(0.0);
        let score = gain / self.dispersion - choice - 1.5 * of.extra() as f64;
        Some(Fit { candidate, rise, score })
    }

    fn fits(&self, counts: &[SampleCounts], rates: &[f64]) -> Vec<Fit> {
        (0..self.candidates.len()).filter_map(|c| self.fit(c, counts, rates)).collect()
    }

    /// The score that chance has once in a hundred times, by the best scores of the windows before.
    ///
    /// The greatest third of them has a tail that falls off by `e` for each mean excess over the
    /// others. How long that is, few windows say but roughly: what is drawn next exceeds `t` of m
    /// means with the probability `(1 + t / m)^-m`. So a short history demands more.
    fn threshold(&self, windows: usize) -> f64 {
        let mut scores: Vec<f64> = (0..windows).map(|k| self.chance(k)).collect();
        scores.sort_by(|a, b| b.total_cmp(a));
        let tail = windows.div_ceil(TAIL);
        let Some(&greatest) = scores.first() else { return LEAST_SCORE };
        let begin = scores.get(tail).copied().unwrap_or_else(|| self.no_gain());
        let mean = scores[..tail].iter().map(|score| score - begin).sum::<f64>() / tail as f64;
        let m = tail as f64;
        let beyond = m * ((windows as f64 / (m * SELDOM)).powf(-1.0 / m) - 1.0);
        // Scores of independent samples fall off by one: no luck makes that less.
        greatest.max(begin + beyond * mean.max(1.0)).max(LEAST_SCORE)
    }

    /// The best score of the window `k` before, in which there was no fault.
    fn chance(&self, k: usize) -> f64 {
        let counts: Vec<SampleCounts> = self.question.series.iter().map(|s| s.before[k]).collect();
        let fits = self.fits(&counts, &self.usual(Some(k)));
        fits.iter().map(|fit| fit.score).fold(self.no_gain(), f64::max)
    }

    /// The score of a set that fits as well as no change does, but for its size.
    fn no_gain(&self) -> f64 {
        -(self.candidates.len().max(1) as f64).ln()
    }

    /// Evidence that lies at the onset, with that of stations that were late themselves.
    fn evidence_in_time(&self) -> Vec<ExplainEvidence> {
        let (onset, interval) = (self.question.onset_ns, self.question.interval_ns);
        let in_time = |e: &&ExplainEvidence| {
            (onset.saturating_sub(2 * interval)..=onset.saturating_add(interval)).contains(&e.at_ns)
        };
        let late = self.question.own.iter().filter(|own| self.is_late(own)).map(|own| {
            ExplainEvidence { name: vec![own.label], at_ns: onset, kind: EvidenceKind::Late }
        });
        self.question.evidence.iter().filter(in_time).cloned().chain(late).collect()
    }

    /// Whether a station's bad samples are those of its own late intervals.
    fn is_late(&self, own: &OwnTime) -> bool {
        let all: SampleCounts = self
            .question
            .series
            .iter()
            .filter(|s| s.labels.contains(&own.label))
            .map(|s| s.now)
            .sum();
        if all.bad == 0 || own.late.n == 0 {
            return false;
        }
        let among_bad = own.late.bad as f64 / all.bad as f64;
        let among_all = own.late.n as f64 / all.n as f64;
        let chance = (among_all * (1.0 - among_all) / all.bad as f64).sqrt();
        among_bad > 0.7 && among_bad - among_all > 4.0 * chance
    }

    /// The causes, the best first, and what fits next best instead of the first. `members`: only of
    /// members of groups of paths, most of whose series are affected.
    fn greedy(
        &self,
        now: &[SampleCounts],
        usual: &[f64],
        threshold: f64,
        seen: &[ExplainEvidence],
        members: bool,
    ) -> (Vec<Cause>, Vec<Cause>) {
        let mut rates = usual.to_vec();
        let (mut causes, mut next, mut total): (Vec<Cause>, Vec<Cause>, f64) =
            (Vec::new(), Vec::new(), 0.0);
        while causes.len() < MOST_CAUSES && total <= 0.97 {
            let mut ranked: Vec<(Fit, f64, Vec<ExplainEvidence>)> = self
                .fits(now, &rates)
                .into_iter()
                .filter(|fit| fit.score >= threshold)
                .filter(|fit| !members || self.is_bad_member(fit, now, &rates))
                .map(|fit| {
                    let evidence = self.evidence_of(fit.candidate, seen);
                    let bonus: f64 = evidence.iter().map(|e| e.kind.bonus()).sum();
                    (fit, fit.score + bonus.min(MOST_BONUS), evidence)
                })
                .collect();
            ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
            let mut ranked = ranked
                .into_iter()
                .map(|(fit, _, evidence)| (fit, self.cause(fit, now, usual, &rates, evidence)));
            let Some((fit, best)) = ranked.next() else { break };
            if !causes.is_empty() && best.coverage < 0.05 {
                break;
            }
            if causes.is_empty() {
                next = ranked.take(MOST_CAUSES).map(|(_, cause)| cause).collect();
            }
            total += best.coverage;
            causes.push(best);
            for &i in &self.candidates[fit.candidate].series {
                rates[i as usize] = (rates[i as usize] + fit.rise).min(1.0);
            }
        }
        (causes, next)
    }

    /// The evidence that is about a candidate by one of its names.
    fn evidence_of(&self, candidate: usize, seen: &[ExplainEvidence]) -> Vec<ExplainEvidence> {
        let names = &self.candidates[candidate].names;
        let same = |name: &Vec<usize>, other: &Vec<usize>| {
            name.len() == other.len() && name.iter().all(|label| other.contains(label))
        };
        let is_about = |e: &&ExplainEvidence| names.iter().any(|name| same(name, &e.name));
        seen.iter().filter(is_about).cloned().collect()
    }

    fn cause(
        &self,
        fit: Fit,
        now: &[SampleCounts],
        usual: &[f64],
        rates: &[f64],
        evidence: Vec<ExplainEvidence>,
    ) -> Cause {
        let of = &self.candidates[fit.candidate];
        let is_inside = |i: usize| of.series.binary_search(&(i as u32)).is_ok();
        let (inside, outside): (Vec<usize>, Vec<usize>) =
            (0..now.len()).partition(|&i| is_inside(i));
        let sum = |of: &[usize]| of.iter().map(|&i| now[i]).sum();
        let excess: f64 = inside.iter().map(|&i| beyond(now[i], rates[i])).sum();
        Cause {
            names: of.names.clone(),
            score: fit.score,
            coverage: excess / self.excess(now, usual),
            purity: self.purity(&inside, now, rates, fit.rise),
            inside: sum(&inside),
            outside: sum(&outside),
            before: inside
                .iter()
                .flat_map(|&i| self.question.series[i].before.iter().copied())
                .sum(),
            series: of.series.len(),
            kind: kind(self.question, &of.names, &evidence),
            evidence,
        }
    }

    /// The whole excess: what all series have, or those that are surely worse if others got better.
    fn excess(&self, now: &[SampleCounts], usual: &[f64]) -> f64 {
        let (mut all, mut worse) = (0.0, 0.0);
        for (&counts, &rate) in now.iter().zip(usual) {
            let excess = beyond(counts, rate);
            all += excess;
            if excess > 3.0 * self.deviation(counts, rate) {
                worse += excess;
            }
        }
        f64::max(all, worse).max(f64::MIN_POSITIVE)
    }

    /// Standard deviation of the bad samples of a series.
    fn deviation(&self, counts: SampleCounts, rate: f64) -> f64 {
        (self.dispersion * counts.n as f64 * rate * (1.0 - rate)).sqrt()
    }

    fn is_bad_member(&self, fit: &Fit, now: &[SampleCounts], rates: &[f64]) -> bool {
        let of = &self.candidates[fit.candidate];
        let kind = |label: &usize| self.question.labels[*label].kind == LabelKind::Member;
        let inside: Vec<usize> = of.series.iter().map(|&i| i as usize).collect();
        of.names.iter().any(|name| name.len() == 1 && name.iter().all(kind))
            && is_pure(self.purity(&inside, now, rates, fit.rise))
    }

    /// Share of series that are worse, of those with samples enough to show a rise.
    fn purity(
        &self,
        inside: &[usize],
        now: &[SampleCounts],
        rates: &[f64],
        rise: f64,
    ) -> Option<f64> {
        let shows = |&&i: &&usize| rise * now[i].n as f64 > 2.5 * self.deviation(now[i], rates[i]);
        let shown: Vec<usize> = inside.iter().filter(shows).copied().collect();
        // A series that rose by much less than the others is affected by something else.
        let worse = |&&i: &&usize| {
            let chance = 1.5 * self.deviation(now[i], rates[i]);
            beyond(now[i], rates[i]) > chance.max(LEAST_PART * rise * now[i].n as f64)
        };
        let count = shown.iter().filter(worse).count();
        (!shown.is_empty()).then(|| count as f64 / shown.len() as f64)
    }

    /// How far the causes can be relied on.
    fn grade(
        &self,
        causes: &[Cause],
        windows: usize,
        now: &[SampleCounts],
        usual: &[f64],
    ) -> ExplainGrade {
        let suspect = |own: &&OwnTime| own.suspect && !self.others_see_it(own.label, now, usual);
        let starved = causes.first().is_some_and(|c| c.kind == Some(CauseKind::StarvedStation));
        if starved || self.question.own.iter().any(|own| suspect(&own)) {
            return ExplainGrade::CannotJudge;
        }
        let covered: f64 = causes.iter().map(|c| c.coverage).sum();
        match causes {
            [] => ExplainGrade::Silent,
            causes
                if windows >= LEAST_WINDOWS
                    && covered > MOST_OF_IT
                    && causes.iter().all(|c| is_pure(c.purity)) =>
            {
                ExplainGrade::Strong
            }
            _ => ExplainGrade::Leaning,
        }
    }

    /// Whether the series of other stations are worse, too.
    fn others_see_it(&self, station: usize, now: &[SampleCounts], usual: &[f64]) -> bool {
        let (mut excess, mut variance) = (0.0, 0.0);
        for (i, series) in self.question.series.iter().enumerate() {
            if !series.labels.contains(&station) {
                excess += beyond(now[i], usual[i]);
                variance += self.deviation(now[i], usual[i]).powi(2);
            }
        }
        excess > 3.0 * f64::sqrt(variance)
    }

    /// Labels of a kind that the cause names, beside it, and as before.
    fn acquitted(
        &self,
        cause: &Cause,
        now: &[SampleCounts],
        usual: &[f64],
    ) -> Vec<(usize, SampleCounts)> {
        let labels = &self.question.labels;
        let mut clean = Vec::new();
        let Some(name) = cause.names.first() else { return clean };
        for &own in name {
            let is_target = |l: &usize| labels[*l].kind == LabelKind::Target;
            let of_own = self.of_label[own].iter().map(|&i| &self.question.series[i as usize]);
            let targets: BTreeSet<usize> = match labels[own].kind {
                LabelKind::Member => {
                    let labels = of_own.flat_map(|series| series.labels.iter().copied());
                    labels.filter(is_target).collect()
                }
                _ => BTreeSet::new(),
            };
            let beside =
                (0..labels.len()).filter(|&l| labels[l].kind == labels[own].kind && l != own);
            for other in beside {
                let is_there = |i: &usize| {
                    let has = &self.question.series[*i].labels;
                    let rest = name.iter().filter(|&&l| l != own).all(|l| has.contains(l));
                    // Members of another group say nothing of this one.
                    let group = targets.is_empty() || has.iter().any(|l| targets.contains(l));
                    !has.contains(&own) && rest && group
                };
                let there: Vec<usize> =
                    self.of_label[other].iter().map(|&i| i as usize).filter(is_there).collect();
                let counts: SampleCounts = there.iter().map(|&i| now[i]).sum();
                let excess: f64 = there.iter().map(|&i| beyond(now[i], usual[i])).sum();
                let variance: f64 =
                    there.iter().map(|&i| self.deviation(now[i], usual[i]).powi(2)).sum();
                if counts.n > 0 && excess < 1.5 * variance.sqrt() {
                    clean.push((other, counts));
                }
            }
        }
        clean
    }
}

/// Whether most of a set's series are affected.
fn is_pure(purity: Option<f64>) -> bool {
    purity.is_some_and(|purity| purity >= PURE)
}

/// Bad samples beyond the usual.
fn beyond(counts: SampleCounts, rate: f64) -> f64 {
    counts.bad as f64 - counts.n as f64 * rate
}

/// Logarithm of the likelihood of counts at a share of bad samples, but for a term that does not
/// depend on it.
fn likelihood(counts: SampleCounts, share: f64) -> f64 {
    let p = share.clamp(1e-9, 1.0 - 1e-9);
    let (n, bad) = (counts.n as f64, counts.bad as f64);
    bad * p.ln() + (n - bad) * (-p).ln_1p()
}

/// Below it, the next cause is none.
const LEAST_SCORE: f64 = 6.0;
/// Evidence orders what fits; it never outweighs the counts.
const MOST_BONUS: f64 = 10.0;
const MOST_CAUSES: usize = 3;
/// Causes that cover more than this share of an excess explain it.
const MOST_OF_IT: f64 = 0.6;
/// Without a fault, something is named once in so many times.
const SELDOM: f64 = 100.0;
/// The greatest of the scores before, one of so many, are the tail of what chance does.
const TAIL: usize = 3;
/// An affected series has at least this part of the rise of its set.
const LEAST_PART: f64 = 0.25;
/// A set of which so many series are affected is no chance of its name.
const PURE: f64 = 0.6;
/// Fewer windows before say too little of what chance does.
const LEAST_WINDOWS: usize = 6;
