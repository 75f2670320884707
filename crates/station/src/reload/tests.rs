//! The laws of a reload.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A unit that holds UDP ports; what is in `live` can change while it runs.
#[derive(Clone, Debug, PartialEq)]
struct Fake {
    ports: Vec<u16>,
    live: u8,
    fixed: u8,
}

impl UnitSpec for Fake {
    fn change(&self, new: &Fake) -> Change {
        match () {
            () if self == new => Change::Same,
            () if self.fixed != new.fixed => Change::Restart("fixed".into()),
            () => Change::Live { added: vec![new.live.to_string()], ended: vec![] },
        }
    }

    fn holds(&self) -> Vec<Resource> {
        self.ports.iter().map(|&port| Resource::UdpPort { address: None, port }).collect()
    }
}

fn unit(name: &str, ports: &[u16], live: u8, fixed: u8) -> (UnitId, Fake) {
    (UnitId::new(name), Fake { ports: ports.to_vec(), live, fixed })
}

/// Plans of up to six units over eight ports; many of them cannot be run.
fn plans() -> impl Strategy<Value = Plan<Fake>> {
    let fake = (proptest::collection::vec(1_u16..9, 0..3), 0_u8..2, 0_u8..2)
        .prop_map(|(ports, live, fixed)| Fake { ports, live, fixed });
    proptest::collection::btree_map("[a-f]", fake, 0..6)
        .prop_map(|units| Plan::of(units.into_iter().map(|(name, f)| (UnitId::new(&name), f))))
}

/// Those of them that can.
fn fit_plans() -> impl Strategy<Value = Plan<Fake>> {
    plans().prop_filter("units meet", |plan| conflicts(plan).is_empty())
}

/// Does the steps one by one on what runs, and looks after each that nothing is held twice.
fn apply(old: &Plan<Fake>, new: &Plan<Fake>, steps: &[Step]) -> BTreeMap<UnitId, Fake> {
    let spec = |plan: &Plan<Fake>, id: &UnitId| Fake::clone(plan.get(id).unwrap());
    let mut running: BTreeMap<UnitId, Fake> =
        old.iter().map(|(id, _)| (id.clone(), spec(old, id))).collect();
    for step in steps {
        match step {
            Step::Keep(id) => assert_eq!(running[id], spec(new, id)),
            Step::Adjust { unit, .. } => {
                let before = running.insert(unit.clone(), spec(new, unit));
                assert_eq!(before.expect("it runs").fixed, spec(new, unit).fixed);
            }
            Step::Stop { unit, .. } => drop(running.remove(unit).expect("it runs")),
            Step::Start(unit) => {
                let twice = running.insert(unit.clone(), spec(new, unit));
                assert!(twice.is_none(), "{unit} runs twice");
            }
        }
        let all = Plan::of(running.clone());
        assert!(conflicts(&all).is_empty(), "{:?} after {step:?}", conflicts(&all));
    }
    running
}

proptest! {
    #[test]
    fn the_same_plan_keeps_every_unit(plan in fit_plans()) {
        let kept = plan.iter().map(|(id, _)| Step::Keep(id.clone())).collect();
        let copy = Plan::of(plan.iter().map(|(id, spec)| (id.clone(), Fake::clone(spec))));
        prop_assert_eq!(steps(&plan, &copy), Ok(kept));
    }

    #[test]
    fn the_steps_lead_to_the_new_plan_and_nothing_is_held_twice(old in fit_plans(), new in fit_plans()) {
        let steps = steps(&old, &new).unwrap();
        let wanted = new.iter().map(|(id, spec)| (id.clone(), Fake::clone(spec))).collect();
        prop_assert_eq!(apply(&old, &new, &steps), wanted);
    }

    #[test]
    fn a_plan_that_cannot_be_run_is_refused_from_everywhere(old in fit_plans(), new in plans()) {
        prop_assert_eq!(steps(&old, &new).is_err(), !conflicts(&new).is_empty());
    }

    /// Only a unit in the way of another, or a changed one, stops before the last start.
    #[test]
    fn nothing_stops_early_without_need(old in fit_plans(), new in fit_plans()) {
        let steps = steps(&old, &new).unwrap();
        let last_start = steps.iter().rposition(|step| matches!(step, Step::Start(_)));
        for step in &steps[..last_start.unwrap_or(0)] {
            let Step::Stop { unit, why: StopReason::Removed } = step else { continue };
            let theirs = old.get(unit).unwrap().holds();
            let met = new.iter().any(|(_, spec)| {
                spec.holds().iter().any(|mine| theirs.iter().any(|t| mine.meets(t)))
            });
            prop_assert!(met, "{} stops early in {:?}", unit, steps);
        }
    }
}

#[test]
fn what_two_need_is_named() {
    let plan = Plan::of([unit("a", &[862], 0, 0), unit("b", &[863, 862], 0, 0)]);
    let errors = steps(&Plan::default(), &plan).unwrap_err();
    let [error] = errors.as_slice() else { panic!("{errors:?}") };
    assert_eq!(error.to_string(), "a and b both need UDP port 862; change one of them");
}

#[test]
fn a_new_unit_starts_before_another_stops_unless_they_meet() {
    let stop = |name| Step::Stop { unit: UnitId::new(name), why: StopReason::Removed };
    let start = |name| Step::Start(UnitId::new(name));
    let old = Plan::of([unit("a", &[1], 0, 0)]);
    let apart = Plan::of([unit("b", &[2], 0, 0)]);
    assert_eq!(steps(&old, &apart), Ok(vec![start("b"), stop("a")]));
    let meet = Plan::of([unit("b", &[1], 0, 0)]);
    assert_eq!(steps(&old, &meet), Ok(vec![stop("a"), start("b")]));
}

#[test]
fn two_that_exchange_their_ports_while_they_run_are_possible() {
    let old = Plan::of([unit("a", &[1], 0, 0), unit("b", &[2], 0, 0)]);
    let new = Plan::of([unit("a", &[2], 1, 0), unit("b", &[1], 1, 0)]);
    let steps = steps(&old, &new).unwrap();
    let names: Vec<&str> = steps
        .iter()
        .map(|step| match step {
            Step::Keep(_) => "keep",
            Step::Adjust { .. } => "adjust",
            Step::Stop { .. } => "stop",
            Step::Start(_) => "start",
        })
        .collect();
    assert_eq!(names, ["stop", "adjust", "start"], "{steps:?}");
}
