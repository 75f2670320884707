//! What is tested: the matchers over a list of packets, with the packets' times as clock.

use std::collections::BTreeMap;
use std::time::Duration;

use sonde_bpf::{RttConfig, RttEvents, RttProgram, RttSide, RttTestPacket};
use sonde_meter::rtt::{Config, Matcher};
use sonde_results::rtt::{EndReason, FlowKey, RttFlow, RttSample};
use sonde_wire::Time;
use sonde_wire::flow::{LinkType, parse};

use super::capture::Frame;
use super::oracle::Direction;

/// All that a matcher makes of a capture.
#[derive(Debug)]
pub struct MatcherResult {
    pub samples: Vec<RttSample>,
    pub flows: Vec<RttFlow>,
    pub counters: BTreeMap<String, u64>,
}

impl MatcherResult {
    pub fn counter(&self, name: &str) -> u64 {
        *self.counters.get(name).unwrap_or_else(|| panic!("{name}: {:?}", self.counters))
    }
}

/// The matcher of user space.
pub fn user_space(frames: &[Frame], tunnels: bool) -> MatcherResult {
    let config = Config {
        seed: SEED,
        events: RttEvents::All,
        flows: FLOWS,
        slot_pages: PAGES,
        ..Config::default()
    };
    let mut matcher = Matcher::new(config);
    let (mut samples, mut flows) = (Vec::new(), Vec::new());
    for frame in frames {
        match parse(&frame.data, LinkType::Ethernet, tunnels) {
            Ok(packet) => matcher.input(frame.point, &packet, 1, Time::from_nanos(frame.at_ns)),
            Err(error) => matcher.refused(error),
        }
        samples.extend(std::iter::from_fn(|| matcher.poll_sample()));
        flows.extend(std::iter::from_fn(|| matcher.poll_flow()));
    }
    let counters = matcher.coverage().counters;
    matcher.finish(Time::from_nanos(frames.last().map_or(0, |f| f.at_ns)));
    flows.extend(std::iter::from_fn(|| matcher.poll_flow()));
    MatcherResult { samples, flows, counters }
}

/// The kernel's program, run on each frame. Which hook makes no difference to what it finds.
pub fn kernel(frames: &[Frame], tunnels: bool, side: RttSide) -> MatcherResult {
    let config = RttConfig {
        flows: FLOWS as u32,
        seed: SEED,
        events: RttEvents::All,
        tunnels,
        ..RttConfig::default()
    };
    let mut program = RttProgram::load(&config).unwrap();
    let (mut samples, mut flows) = (Vec::new(), Vec::new());
    let mut fetch = |program: &mut RttProgram| {
        program.poll(Duration::ZERO, &mut |s| samples.push(s), &mut |f| flows.push(f)).unwrap();
    };
    for (n, frame) in frames.iter().enumerate() {
        let packet =
            RttTestPacket { frame: &frame.data, point: frame.point, ..RttTestPacket::default() };
        program.test_run_packet(side, &packet, frame.at_ns).unwrap();
        if n % 1000 == 0 {
            fetch(&mut program);
        }
    }
    fetch(&mut program);
    program.open_flows(&mut |flow| {
        // A closed flow keeps its reason.
        let reason = if flow.reason == EndReason::Open { EndReason::Stopped } else { flow.reason };
        flows.push(RttFlow { reason, ..flow });
    });
    MatcherResult { samples, flows, counters: program.coverage().unwrap().counters }
}

/// Source and destination of a flow.
pub fn direction(flow: &FlowKey) -> Direction {
    (flow.source, flow.source_port, flow.destination, flow.destination_port)
}

/// More than any test has.
const FLOWS: usize = 4096;
/// As many as the kernel's program has for these.
const PAGES: usize = FLOWS / 32;
/// One seed, so that both matchers hash flows to the same slots.
const SEED: [u64; 2] = [0x5eed, 0xbead];
