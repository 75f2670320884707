//! Captures whose answers are known by construction, through the matcher.

use serde_json::{Map, Value};

use super::capture::{ExpectedSample, Golden, golden};
use super::subject::{MatcherResult, user_space};
use crate::turn;

#[test]
fn golden_captures_give_what_they_were_made_to_give() {
    let _turn = turn::shared();
    let cases = golden();
    let wrong: Vec<String> = cases
        .iter()
        .flat_map(|case| differences(case, &user_space(&case.frames, case.expected.tunnels)))
        .collect();
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

/// Every way in which an outcome is not as the capture was made.
pub fn differences(case: &Golden, outcome: &MatcherResult) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut say =
        |what: String| wrong.push(format!("{} ({}): {what}", case.name, case.expected.why));
    let expected: Vec<String> = case.expected.samples.iter().map(line).collect();
    let found: Vec<String> = outcome
        .samples
        .iter()
        .map(|s| {
            let answer = case.frames.iter().position(|f| f.at_ns == s.at_ns);
            let timed = case.frames.iter().position(|f| f.at_ns == s.at_ns - s.rtt_ns as i64);
            line(&ExpectedSample {
                packet: answer.unwrap_or(usize::MAX),
                timed: timed.unwrap_or(usize::MAX),
                at_ns: s.at_ns,
                rtt_ns: s.rtt_ns,
                kind: s.kind,
                class: s.class,
                source: s.flow.source,
                source_port: s.flow.source_port,
                destination: s.flow.destination,
                destination_port: s.flow.destination_port,
                protocol: s.flow.protocol,
                vlan: s.flow.vlan,
            })
        })
        .collect();
    for sample in expected.iter().filter(|s| !found.contains(s)) {
        say(format!("missing sample: {sample}"));
    }
    for sample in found.iter().filter(|s| !expected.contains(s)) {
        say(format!("unexpected sample: {sample}"));
    }
    if wrong.is_empty() && found != expected {
        wrong.push(format!("{}: the samples come in another order", case.name));
    }
    for (name, value) in &case.expected.counters {
        let found = outcome.counters.get(name);
        if found.copied() != value.as_u64() {
            wrong.push(format!("{}: counter {name} is {found:?}, not {value}", case.name));
        }
    }
    let flows: Vec<Value> =
        outcome.flows.iter().map(|flow| serde_json::to_value(flow).unwrap()).collect();
    for flow in &case.expected.flows {
        if !flows.iter().any(|found| is_flow(flow, found)) {
            let near: Vec<_> = flows.iter().filter(|f| names(flow, f)).collect();
            wrong.push(format!("{}: no flow is {flow:?}, but: {near:?}", case.name));
        }
    }
    wrong
}

/// Two samples are the same if these are.
fn line(s: &ExpectedSample) -> String {
    format!(
        "packet {} answers {} after {} ns, {:?}, {:?}, {}:{} to {}:{}, protocol {}, vlan {}",
        s.packet,
        s.timed,
        s.rtt_ns,
        s.kind,
        s.class,
        s.source,
        s.source_port,
        s.destination,
        s.destination_port,
        s.protocol,
        s.vlan
    )
}

/// Whether a record is about the client that an expectation names.
fn names(expected: &Map<String, Value>, found: &Value) -> bool {
    ["source", "source_port"].iter().all(|name| expected[*name] == found["flow"][*name])
}

/// Whether a record has all the fields of an expectation.
fn is_flow(expected: &Map<String, Value>, found: &Value) -> bool {
    let same = |(name, value): (&String, &Value)| match value {
        Value::Object(fields) => fields.iter().all(|(field, value)| found[name][field] == *value),
        value => found[name] == *value,
    };
    let fields = expected.iter().filter(|(name, _)| !name.starts_with("source"));
    names(expected, found) && fields.into_iter().all(same)
}
