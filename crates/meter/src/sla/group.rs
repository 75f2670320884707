//! Availability of a group: at least so many of its members are available.
//!
//! By MEF 10.3 an interval counts where at least K_min members are available (recalled; its text was
//! not read). Only final labels are combined. Where members are undecided, the low end counts those
//! that are available for certain, the high end also those that may be.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::sla::AvailabilityLabel;

use super::window::TimeRange;

/// Time with its final label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabelledTime {
    /// Which.
    pub range: TimeRange,
    /// What it is.
    pub label: AvailabilityLabel,
    /// It is left out: maintenance, or the station's doubt.
    pub excluded: bool,
}

/// Combines the labels of a group's members.
///
/// A member whose time is left out takes no part. Where fewer than the least number of members take
/// part, the time of the group is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupAvailability {
    least: usize,
    members: Vec<VecDeque<LabelledTime>>,
    /// Up to here the group is labelled.
    next_ns: i64,
}

impl GroupAvailability {
    /// Of so many members, of which at least `least` must be available.
    pub fn new(members: usize, least: usize) -> Self {
        let members = std::iter::repeat_with(VecDeque::new).take(members).collect();
        GroupAvailability { least, members, next_ns: i64::MIN }
    }

    /// Takes the next time of a member, in order; adds to `out` what that settles for the group.
    /// The group begins where all members have.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn push(&mut self, member: usize, next: LabelledTime, out: &mut Vec<LabelledTime>) {
        self.members[member].push_back(next);
        loop {
            let fronts = self.members.iter().map(|m| m.front().map(|t| t.range));
            let Some(fronts) = fronts.collect::<Option<Vec<TimeRange>>>() else { return };
            let starts = fronts.iter().map(|range| range.start_ns).max();
            let start_ns = self.next_ns.max(starts.unwrap_or(i64::MIN));
            let Some(end_ns) = fronts.iter().map(|range| range.end_ns).min() else { return };
            if start_ns < end_ns {
                let range = TimeRange { start_ns, end_ns };
                let labels = self.members.iter().filter_map(|m| m.front());
                let taking_part: Vec<AvailabilityLabel> =
                    labels.filter(|t| !t.excluded).map(|t| t.label).collect();
                out.push(LabelledTime {
                    range,
                    label: combined(&taking_part, self.least),
                    excluded: taking_part.len() < self.least,
                });
                self.next_ns = end_ns;
            }
            for member in &mut self.members {
                if member.front().is_some_and(|t| t.range.end_ns <= end_ns) {
                    member.pop_front();
                }
            }
        }
    }
}

fn combined(labels: &[AvailabilityLabel], least: usize) -> AvailabilityLabel {
    let count = |wanted| labels.iter().filter(|&&label| label == wanted).count();
    let available = count(AvailabilityLabel::Available);
    let possible = available + count(AvailabilityLabel::Undecided);
    match () {
        () if available >= least => AvailabilityLabel::Available,
        () if possible < least => AvailabilityLabel::Unavailable,
        () => AvailabilityLabel::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn label(letter: char) -> AvailabilityLabel {
        match letter.to_ascii_uppercase() {
            'A' => AvailabilityLabel::Available,
            'U' => AvailabilityLabel::Unavailable,
            _ => AvailabilityLabel::Undecided,
        }
    }

    /// Letters, one a unit of time; small ones are left out.
    fn times(letters: &str) -> Vec<LabelledTime> {
        let at = |(i, letter): (usize, char)| LabelledTime {
            range: TimeRange { start_ns: i as i64, end_ns: i as i64 + 1 },
            label: label(letter),
            excluded: letter.is_lowercase(),
        };
        letters.chars().enumerate().map(at).collect()
    }

    fn group(members: &[&str], least: usize) -> String {
        let mut group = GroupAvailability::new(members.len(), least);
        let mut out = Vec::new();
        for (i, member) in members.iter().enumerate() {
            times(member).into_iter().for_each(|t| group.push(i, t, &mut out));
        }
        let letter = |t: &LabelledTime| match (t.excluded, t.label) {
            (true, _) => '-',
            (_, AvailabilityLabel::Available) => 'A',
            (_, AvailabilityLabel::Unavailable) => 'U',
            (_, AvailabilityLabel::Undecided) => 'X',
        };
        out.iter().map(letter).collect()
    }

    #[test]
    fn so_many_members_must_be_available() {
        let members = ["AAUUXXAu", "AUAUXAAA", "AUUXUUaA"];
        assert_eq!(group(&members, 1), "AAAXXAAA");
        assert_eq!(group(&members, 2), "AUUUXXAA");
        assert_eq!(group(&members, 3), "AUUUUU--");
    }

    #[test]
    fn the_group_begins_with_its_last_member_and_pieces_may_differ() {
        let time = |start_ns, end_ns, letter| LabelledTime {
            range: TimeRange { start_ns, end_ns },
            label: label(letter),
            excluded: false,
        };
        let mut group = GroupAvailability::new(2, 2);
        let mut out = Vec::new();
        group.push(0, time(0, 10, 'A'), &mut out);
        group.push(0, time(10, 12, 'U'), &mut out);
        assert_eq!(out, []);
        group.push(1, time(4, 11, 'A'), &mut out);
        assert_eq!(out, [time(4, 10, 'A'), time(10, 11, 'U')]);
        group.push(1, time(11, 20, 'X'), &mut out);
        assert_eq!(out[2..], [time(11, 12, 'U')]);
    }

    proptest! {
        #[test]
        fn undecided_members_never_make_it_wrong(letters in prop::collection::vec("[AUX]{6}", 1..5), least in 1..5usize, fill in any::<u32>()) {
            let members: Vec<&str> = letters.iter().map(String::as_str).collect();
            let got = group(&members, least.min(members.len()));
            let mut bits = fill;
            let known: Vec<String> = letters.iter().map(|m| m.chars().map(|c| match c {
                'X' => {
                    bits = bits.rotate_right(1);
                    if bits & 1 == 1 { 'A' } else { 'U' }
                }
                c => c,
            }).collect()).collect();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            for (got, truth) in got.chars().zip(group(&known, least.min(members.len())).chars()) {
                prop_assert!(got == 'X' || got == truth);
            }
        }
    }
}
