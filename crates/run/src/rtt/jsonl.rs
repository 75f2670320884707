//! JSON Lines: first the run, then records as they come, distinguished by their `type`:
//! `point`, `sample`, `flow`, `group`, `coverage`. The last line is a coverage.
//!
//! A group line holds all fields of [`RttGroup`] (histograms as bucket and count) and
//! derived figures in nanoseconds for those who want no histograms.

use serde::Serialize;
use sonde_results::caveat::CaveatSet;
use sonde_results::rtt::{Coverage, RttFlow, RttGroup, RttSample};
use sonde_results::rtt_run::{RttPoint, RttRunConfig};
use sonde_results::{HostInfo, RttRun, RunHeader};

use crate::figures::Figures;

/// The first line: the run as far as it is known when it begins.
pub fn run(out: &mut Vec<u8>, run: &RttRun) {
    let RttRun { header, config, points, .. } = run;
    let RunHeader { version, start_ns, host, .. } = header;
    line(out, &RunLine { r#type: "run", version, start_ns: *start_ns, host, config, points });
}

/// An observation point that was found later.
pub fn point(out: &mut Vec<u8>, index: usize, point: &RttPoint) {
    line(out, &PointLine { r#type: "point", index, point });
}

/// Writes a sample, as a line of type "sample".
pub fn sample(out: &mut Vec<u8>, sample: &RttSample) {
    line(out, &Tagged { r#type: "sample", record: sample });
}

/// One flow that ended.
pub fn flow(out: &mut Vec<u8>, flow: &RttFlow) {
    line(out, &Tagged { r#type: "flow", record: flow });
}

/// One group over one interval.
pub fn group(out: &mut Vec<u8>, group: &RttGroup) {
    let derived = Derived {
        clean: Figures::of(&group.clean),
        recovery: Figures::of(&group.recovery),
        delayed_ack: Figures::of(&group.delayed_ack),
    };
    line(out, &GroupLine { r#type: "group", derived, group });
}

/// What was seen and left out since the start, at `at_ns`.
pub fn coverage(out: &mut Vec<u8>, at_ns: i64, coverage: &Coverage, caveats: CaveatSet) {
    line(out, &CoverageLine { r#type: "coverage", at_ns, coverage, caveats });
}

#[derive(Serialize)]
struct RunLine<'a> {
    r#type: &'static str,
    version: &'a str,
    start_ns: i64,
    host: &'a HostInfo,
    config: &'a RttRunConfig,
    points: &'a [RttPoint],
}

#[derive(Serialize)]
struct PointLine<'a> {
    r#type: &'static str,
    index: usize,
    #[serde(flatten)]
    point: &'a RttPoint,
}

#[derive(Serialize)]
struct Tagged<'a, T> {
    r#type: &'static str,
    #[serde(flatten)]
    record: &'a T,
}

#[derive(Serialize)]
struct GroupLine<'a> {
    r#type: &'static str,
    derived: Derived,
    #[serde(flatten)]
    group: &'a RttGroup,
}

#[derive(Serialize)]
struct Derived {
    clean: Option<Figures>,
    recovery: Option<Figures>,
    delayed_ack: Option<Figures>,
}

#[derive(Serialize)]
struct CoverageLine<'a> {
    r#type: &'static str,
    at_ns: i64,
    #[serde(flatten)]
    coverage: &'a Coverage,
    caveats: CaveatSet,
}

fn line(out: &mut Vec<u8>, value: &impl Serialize) {
    // Into memory, of types whose keys are strings: this cannot fail.
    if serde_json::to_writer(&mut *out, value).is_ok() {
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use sonde_results::testing::{golden, rtt as made};

    fn text() -> String {
        let mut out = Vec::new();
        let whole = made::run();
        run(&mut out, &whole);
        made::samples().iter().for_each(|s| sample(&mut out, s));
        made::flows().iter().for_each(|f| flow(&mut out, f));
        whole.groups.iter().for_each(|g| group(&mut out, g));
        coverage(&mut out, whole.header.end_ns, &whole.coverage, whole.caveats);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_lines() {
        golden(concat!(env!("CARGO_MANIFEST_DIR"), "/src/rtt/golden/records.jsonl"), &text());
    }

    #[test]
    fn what_is_written_reads_back() {
        let whole = made::run();
        let text = text();
        let of = |kind: &str| -> Vec<&str> {
            text.lines()
                .filter(|l| serde_json::from_str::<Value>(l).unwrap()["type"] == kind)
                .collect()
        };
        let samples: Vec<RttSample> =
            of("sample").iter().map(|l| serde_json::from_str(l).unwrap()).collect();
        let flows: Vec<RttFlow> =
            of("flow").iter().map(|l| serde_json::from_str(l).unwrap()).collect();
        let groups: Vec<RttGroup> =
            of("group").iter().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!((samples, flows, groups), (made::samples(), made::flows(), whole.groups));
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["counters"]["packets"], whole.coverage.counters["packets"]);
        let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(first["points"][0]["name"], "eth0");
        let figures: Value = serde_json::from_str(of("group")[0]).unwrap();
        assert!(figures["derived"]["clean"]["p99"].is_i64());
    }
}
