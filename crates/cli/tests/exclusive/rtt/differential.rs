//! The two matchers over the same packets and the same clock. They were written apart from
//! each other from one page of rules: each is the other's judge. They must agree in every
//! sample, in their order, in every flow record and in every counter.

use serde::Serialize;

use sonde_bpf::RttSide;
use sonde_results::rtt::RttFlow;

use super::capture::{Frame, golden};
use super::subject::{MatcherResult, kernel, user_space};
use crate::turn;

#[test]
fn both_matchers_agree_on_every_golden_capture() {
    if sonde_lab::skip("both_matchers_agree_on_every_golden_capture") {
        return;
    }
    let _turn = turn::shared();
    // Each capture is an interface of its own, a thousand seconds later than the one before: so
    // one program can take all of them.
    for tunnels in [false, true] {
        let mut frames = Vec::new();
        for (point, case) in (0..).zip(golden()) {
            println!("interface {point}: {}", case.name);
            if case.expected.tunnels == tunnels {
                let later = i64::from(point) * 1_000_000_000_000;
                let moved = |f: Frame| Frame { point, at_ns: f.at_ns + later, ..f };
                frames.extend(case.frames.into_iter().map(moved));
            }
        }
        let sides = [RttSide::Ingress, RttSide::Egress, RttSide::Xdp];
        let wrong = disagreements(&frames, tunnels, &sides);
        assert!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), wrong.join("\n"));
    }
}

/// Where the matchers differ over a capture; empty: nowhere.
pub fn disagreements(frames: &[Frame], tunnels: bool, sides: &[RttSide]) -> Vec<String> {
    let mut wrong = Vec::new();
    for &side in sides {
        let frames: Vec<Frame> = frames.iter().filter(|f| can_run(side, f)).cloned().collect();
        let ours = user_space(&frames, tunnels);
        let theirs = kernel(&frames, tunnels, side);
        let mut say = |what: String| wrong.push(format!("{side:?}: {what}"));
        if let Some(what) = first_difference("sample", &ours.samples, &theirs.samples) {
            say(what);
        }
        if let Some(what) = first_difference("flow", &sorted(&ours), &sorted(&theirs)) {
            say(what);
        }
        for (counter, value) in &ours.counters {
            let found = theirs.counters.get(counter);
            if found != Some(value) {
                say(format!("counter {counter}: user space {value}, kernel {found:?}"));
            }
        }
    }
    wrong
}

/// The first of two lists' records that differ, and in what.
fn first_difference<T: Serialize + PartialEq>(
    what: &str,
    ours: &[T],
    theirs: &[T],
) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let at = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    let counts = format!("{} and {} {what}s, {what} {at}", ours.len(), theirs.len());
    let (Some(ours), Some(theirs)) = (ours.get(at), theirs.get(at)) else {
        return Some(format!("{counts} is only on one side"));
    };
    let [ours, theirs] = [ours, theirs].map(|record| serde_json::to_value(record).unwrap());
    let fields = ours.as_object().unwrap().iter().filter(|(name, v)| theirs[*name] != **v);
    let lines = fields.map(|(name, v)| format!("{name}: user space {v}, kernel {}", theirs[name]));
    Some(format!("{counts}: {} of {}", lines.collect::<Vec<_>>().join("; "), ours["flow"]))
}

/// Flows that are open at the end have no order. The kernel knows times to 2^26 ns.
fn sorted(outcome: &MatcherResult) -> Vec<RttFlow> {
    let mut flows = outcome.flows.clone();
    for flow in &mut flows {
        (flow.start_ns, flow.end_ns) = (flow.start_ns >> 26 << 26, flow.end_ns >> 26 << 26);
    }
    flows.sort_by_key(|f| (f.flow, f.start_ns, f.end_ns, f.forward.packets));
    flows
}

/// Linux runs no program of tc on less than an IP header, nor any on less than Ethernet's.
fn can_run(side: RttSide, frame: &Frame) -> bool {
    let shortest = match (side, frame.data.get(12..14)) {
        (RttSide::Xdp, _) => 14,
        (_, Some([0x08, 0x00])) => 34,
        (_, Some([0x86, 0xdd])) => 54,
        _ => 15,
    };
    frame.data.len() >= shortest
}
