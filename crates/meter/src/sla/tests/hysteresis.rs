//! n of m against a model that keeps every window.

use proptest::prelude::*;
use sonde_results::sla::ObjectiveVerdict;

use super::super::{Crossing, Hysteresis, OutOf};
use super::range;

fn verdicts() -> impl Strategy<Value = Vec<ObjectiveVerdict>> {
    let verdict = prop_oneof![
        3 => Just(ObjectiveVerdict::Met),
        3 => Just(ObjectiveVerdict::Missed),
        2 => Just(ObjectiveVerdict::Undecided),
    ];
    prop::collection::vec(verdict, 0..80)
}

fn out_of() -> impl Strategy<Value = OutOf> {
    (1..6u32, 0..6u32).prop_map(|(n, more)| OutOf { n, m: n + more })
}

/// All crossings, each with the index of its window.
fn crossings(
    verdicts: &[ObjectiveVerdict],
    breach: OutOf,
    recovery: OutOf,
) -> Vec<(usize, Crossing)> {
    let mut state = Hysteresis::default();
    let step = |(i, &verdict): (usize, &ObjectiveVerdict)| {
        let window = range(i as i64, i as i64 + 1);
        state
            .step(window, verdict, breach, recovery)
            .into_iter()
            .flatten()
            .map(move |c| (i, c))
            .collect::<Vec<_>>()
    };
    verdicts.iter().enumerate().flat_map(step).collect()
}

/// The same from the whole history: the last m windows since the last crossing.
fn model(verdicts: &[ObjectiveVerdict], breach: OutOf, recovery: OutOf) -> Vec<(usize, bool, i64)> {
    let (mut found, mut from, mut breached) = (Vec::new(), 0, false);
    for end in 1..=verdicts.len() {
        if verdicts[end - 1] == ObjectiveVerdict::Undecided {
            continue;
        }
        let (rule, wanted) = match breached {
            false => (breach, ObjectiveVerdict::Missed),
            true => (recovery, ObjectiveVerdict::Met),
        };
        let first = from.max(end.saturating_sub(rule.m as usize));
        let those: Vec<usize> = (first..end).filter(|&i| verdicts[i] == wanted).collect();
        if those.len() >= rule.n as usize {
            let at = match breached {
                false => those[0],
                true => (0..end).rfind(|&i| verdicts[i] == ObjectiveVerdict::Missed).unwrap() + 1,
            };
            breached = !breached;
            from = end;
            found.push((end - 1, breached, at as i64 * super::SECOND));
        }
    }
    found
}

proptest! {
    #[test]
    fn breaches_and_recoveries_are_the_models(v in verdicts(), breach in out_of(), recovery in out_of()) {
        let got: Vec<_> = crossings(&v, breach, recovery).into_iter().filter_map(|(i, c)| match c {
            Crossing::Breach { at_ns, .. } => Some((i, true, at_ns)),
            Crossing::Recovery { at_ns, .. } => Some((i, false, at_ns)),
            _ => None,
        }).collect();
        prop_assert_eq!(got, model(&v, breach, recovery));
    }

    #[test]
    fn undecided_windows_cross_nothing(v in verdicts(), breach in out_of(), recovery in out_of()) {
        for (i, crossing) in crossings(&v, breach, recovery) {
            let undecided = v[i] == ObjectiveVerdict::Undecided;
            prop_assert_eq!(undecided, crossing == Crossing::Unknown);
        }
    }

    #[test]
    fn unknown_and_known_take_turns(v in verdicts(), breach in out_of(), recovery in out_of()) {
        let mut unknown = false;
        for (i, crossing) in crossings(&v, breach, recovery) {
            match crossing {
                Crossing::Unknown => {
                    let last = i + 1 - breach.m as usize;
                    prop_assert!(v[last..=i].iter().all(|&v| v == ObjectiveVerdict::Undecided));
                    prop_assert!(!unknown);
                    unknown = true;
                }
                Crossing::Known => {
                    prop_assert!(unknown);
                    unknown = false;
                }
                _ => prop_assert!(!unknown),
            }
        }
    }

    #[test]
    fn one_of_one_is_the_verdict_itself(v in verdicts()) {
        let one = OutOf::default();
        let mut state = Hysteresis::default();
        let mut breached = false;
        for (i, &verdict) in v.iter().enumerate() {
            state.step(range(i as i64, i as i64 + 1), verdict, one, one);
            breached = match verdict {
                ObjectiveVerdict::Undecided => breached,
                other => other == ObjectiveVerdict::Missed,
            };
            prop_assert_eq!(state.breach_ns().is_some(), breached);
        }
    }

    #[test]
    fn a_higher_n_never_breaches_earlier(v in verdicts(), breach in out_of()) {
        let first = |breach: OutOf| {
            let all = crossings(&v, breach, OutOf::default());
            all.into_iter().find(|(_, c)| matches!(c, Crossing::Breach { .. })).map(|(i, _)| i)
        };
        let harder = first(OutOf { n: breach.n + 1, m: breach.m + 1 });
        let same_m = first(OutOf { n: breach.n, m: breach.m + 1 });
        if let Some(later) = harder {
            prop_assert!(same_m.is_some_and(|earlier| earlier <= later));
        }
    }
}
