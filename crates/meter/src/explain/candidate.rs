//! The sets of series that may explain an excess.

use std::collections::BTreeMap;

use super::{LabelKind, Question};

/// A set of series that can be named.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    /// All its shortest names, each a list of labels; of all series also its names of one label.
    pub names: Vec<Vec<usize>>,
    /// Indices of series, in order.
    pub series: Vec<u32>,
}

impl Candidate {
    /// Labels of its names beyond one.
    pub fn extra(&self) -> usize {
        self.names[0].len().saturating_sub(1)
    }
}

/// The series of each label, in order.
pub(super) fn series_of_labels(question: &Question) -> Vec<Vec<u32>> {
    let mut of_label: Vec<Vec<u32>> = vec![Vec::new(); question.labels.len()];
    for (i, series) in question.series.iter().enumerate() {
        for &label in &series.labels {
            if of_label[label].last() != Some(&(i as u32)) {
                of_label[label].push(i as u32);
            }
        }
    }
    of_label
}

/// Every label, the pairs that have a meaning, and all series. Those with the same series are one.
pub(super) fn candidates(question: &Question, of_label: &[Vec<u32>]) -> Vec<Candidate> {
    let mut sets: BTreeMap<Vec<u32>, Vec<Vec<usize>>> = BTreeMap::new();
    let mut add = |series: Vec<u32>, name: Vec<usize>| {
        if !series.is_empty() {
            sets.entry(series).or_default().push(name);
        }
    };
    add((0..question.series.len() as u32).collect(), Vec::new());
    for (label, series) in of_label.iter().enumerate() {
        add(series.clone(), vec![label]);
    }
    for (first, second) in PAIRS {
        for a in labels(question, first) {
            for b in labels(question, second) {
                add(common(&of_label[a], &of_label[b]), vec![a, b]);
            }
        }
    }
    let shortest = |(series, mut names): (Vec<u32>, Vec<Vec<usize>>)| {
        let least = names.iter().map(Vec::len).min().unwrap_or(0);
        names.retain(|name| name.len() <= least.max(1));
        Candidate { names, series }
    };
    sets.into_iter().map(shortest).collect()
}

fn labels(question: &Question, kind: LabelKind) -> impl Iterator<Item = usize> {
    (0..question.labels.len()).filter(move |&i| question.labels[i].kind == kind)
}

/// What is in both of two lists in order.
fn common(a: &[u32], b: &[u32]) -> Vec<u32> {
    let (a, b) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    a.iter().copied().filter(|i| b.binary_search(i).is_ok()).collect()
}

/// Pairs of labels that faults have: more of them would only add chances to be wrong.
const PAIRS: [(LabelKind, LabelKind); 7] = [
    (LabelKind::Class, LabelKind::Target),
    (LabelKind::Class, LabelKind::Link),
    (LabelKind::Class, LabelKind::Region),
    (LabelKind::Class, LabelKind::Interface),
    (LabelKind::Protocol, LabelKind::Target),
    (LabelKind::Station, LabelKind::Target),
    (LabelKind::FirstHop, LabelKind::Region),
];
