use std::sync::atomic::Ordering;

use anyhow::bail;
use sonde_results::Caveat;
use sonde_results::rtt::{RttFlow, RttGroup};
use sonde_results::testing::rtt as results;
use sonde_results::units::SECOND;

use super::*;
use crate::rtt::event::{Event, RttInterval};
use crate::running::{Next, RecordReceiver};
use crate::virtual_time::VirtualClock;

/// Finds one group in each interval, and an open flow at the end.
struct Scripted {
    clock: VirtualClock,
    /// At this time, ns, something happens before it goes on.
    at: Option<(i64, What)>,
    control: Control,
    stop: Stop,
    packets: u64,
}

#[derive(Clone, Copy)]
enum What {
    SetClock,
    Snapshot,
    Fail,
    /// From then on.
    Break,
    Stop,
}

impl InterfaceWatcher for Scripted {
    fn attach(&mut self, _: &Link, _: u8) -> anyhow::Result<String> {
        unreachable!("no interface is watched here")
    }

    fn detach(&mut self, _: u8) {}

    /// Waits as long as it may: nothing comes.
    fn fetch(&mut self, patience_ns: i64, _: &mut RttOutput) -> anyhow::Result<bool> {
        self.packets += 1;
        let now = self.clock.ns.fetch_add(patience_ns, Ordering::Relaxed) + patience_ns;
        let due = self.at.take_if(|(at, _)| now >= *at);
        let Some((_, what)) = due else { return Ok(false) };
        match what {
            What::SetClock => _ = self.clock.set.fetch_add(1, Ordering::Relaxed),
            What::Snapshot => self.control.snapshot(),
            What::Fail => bail!("the program was taken away"),
            What::Break => {
                self.at = Some((0, What::Break));
                bail!("the port is broken");
            }
            What::Stop => self.stop.ask(),
        }
        Ok(false)
    }

    fn take_groups(&mut self, start_ns: i64, end_ns: i64) -> anyhow::Result<Vec<RttGroup>> {
        Ok(vec![RttGroup { start_ns, end_ns, ..results::run().groups[0].clone() }])
    }

    fn coverage(&mut self) -> anyhow::Result<Coverage> {
        Ok(Coverage { counters: [("packets".to_string(), self.packets)].into() })
    }

    fn open_flows(&self, each: &mut dyn FnMut(RttFlow)) {
        let flow = results::flows()[0].clone();
        each(RttFlow { reason: EndReason::Open, ..flow });
    }
}

/// A run of 10.5 s with intervals of 3 s, from time 0 on; what its reader gets.
fn run(at: Option<(i64, What)>) -> (Ended, Vec<Event>) {
    let settings = Settings { flow_records: true, ..Settings::default() };
    let (out, records, _) = RttOutput::new(&settings, Vec::new(), None);
    let (clock, control, stop) = (VirtualClock::default(), Control::default(), Stop::default());
    let source = Scripted {
        clock: clock.clone(),
        at,
        control: control.clone(),
        stop: stop.clone(),
        packets: 0,
    };
    let points = WatchedInterfaces::open(&[], Vec::new()).unwrap();
    let begun = Time::ZERO;
    let mut watch = Watch { source, points, out, losses: None, control, clock, begun };
    let end = Time::from_nanos(10 * SECOND + SECOND / 2);
    let failure = watch.run(Some(end), 3 * SECOND, &stop).err();
    let ended = watch.finish(false, &stop);
    let ended = Ended { failure: failure.map(RunError::Host).or(ended.failure), ..ended };
    (ended, read(&records))
}

fn read(records: &RecordReceiver<Vec<Event>>) -> Vec<Event> {
    let next = || match records.next(Duration::ZERO) {
        Next::Record(batch) => Some(batch),
        _ => None,
    };
    std::iter::from_fn(next).flatten().collect()
}

fn intervals(events: &[Event]) -> Vec<&RttInterval> {
    let all = events.iter().filter_map(|event| match event {
        Event::Interval(interval) => Some(interval),
        _ => None,
    });
    all.collect()
}

fn spans(events: &[Event]) -> Vec<(i64, i64)> {
    intervals(events).iter().map(|i| (i.start_ns, i.end_ns)).collect()
}

#[test]
fn intervals_follow_each_other_and_the_last_ends_with_the_run() {
    let (ended, events) = run(None);
    assert!(ended.failure.is_none(), "{:?}", ended.failure);
    let s = |seconds: f64| (seconds * 1e9) as i64;
    let all = [(0.0, 3.0), (3.0, 6.0), (6.0, 9.0), (9.0, 10.5)].map(|(a, b)| (s(a), s(b)));
    assert_eq!(spans(&events), all);
    for interval in intervals(&events) {
        let [group] = &interval.groups[..] else { panic!("{interval:?}") };
        assert_eq!((group.start_ns, group.end_ns), (interval.start_ns, interval.end_ns));
        assert!(interval.caveats.is_empty(), "{:?}", interval.caveats);
    }
    // Counters are those since the start, at the end of each.
    let packets: Vec<u64> =
        intervals(&events).iter().map(|i| i.coverage.counters["packets"]).collect();
    assert!(packets.is_sorted_by(|a, b| a < b), "{packets:?}");
    assert_eq!(ended.counters["packets"], *packets.last().unwrap());
    // A flow that is open at the end was stopped by it.
    let flows: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Flow(flow) => Some(flow.reason),
            _ => None,
        })
        .collect();
    assert_eq!(flows, [EndReason::Stopped]);
}

#[test]
fn a_snapshot_ends_the_interval_and_the_next_has_its_whole_length() {
    let (_, events) = run(Some((4 * SECOND, What::Snapshot)));
    let at = 4 * SECOND;
    let expected = [
        (0, 3 * SECOND),
        (3 * SECOND, at),
        (at, at + 3 * SECOND),
        (at + 3 * SECOND, at + 6 * SECOND),
        (at + 6 * SECOND, 10 * SECOND + SECOND / 2),
    ];
    assert_eq!(spans(&events), expected);
}

#[test]
fn a_clock_that_was_set_is_reported_and_doubted_from_then_on() {
    let (ended, events) = run(Some((4 * SECOND, What::SetClock)));
    let doubted: Vec<bool> =
        intervals(&events).iter().map(|i| i.caveats.contains(Caveat::ClockStepped)).collect();
    assert_eq!(doubted, [false, true, true, true]);
    assert!(ended.caveats.contains(Caveat::ClockStepped));
    let offsets = events.iter().filter(|event| matches!(event, Event::UtcOffset(_))).count();
    assert_eq!(offsets, 1);
}

#[test]
fn a_stop_ends_it_with_what_there_is() {
    let (ended, events) = run(Some((4 * SECOND, What::Stop)));
    assert!(ended.failure.is_none());
    assert_eq!(spans(&events), [(0, 3 * SECOND), (3 * SECOND, 4 * SECOND)]);
}

#[test]
fn what_was_found_until_a_source_failed_is_handed_over() {
    let (ended, events) = run(Some((4 * SECOND, What::Fail)));
    let failure = ended.failure.expect("it failed").to_string();
    assert!(failure.contains("the program was taken away"), "{failure}");
    assert_eq!(spans(&events), [(0, 3 * SECOND), (3 * SECOND, 4 * SECOND)]);
    assert!(ended.counters["packets"] > 0);
}

#[test]
fn a_source_that_stays_broken_still_gives_what_it_has_found() {
    let (ended, events) = run(Some((4 * SECOND, What::Break)));
    let failure = ended.failure.expect("it failed").to_string();
    assert!(failure.contains("the port is broken"), "{failure}");
    assert_eq!(spans(&events), [(0, 3 * SECOND), (3 * SECOND, 4 * SECOND)]);
    assert!(ended.counters["packets"] > 0);
    assert!(events.iter().any(|event| matches!(event, Event::Flow(_))), "the open flow");
}
