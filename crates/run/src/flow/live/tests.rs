//! Metering threads on modelled ports, and the thread that follows them in virtual time.

use std::sync::atomic::AtomicI64;

use anyhow::anyhow;
use sonde_port::Port;
use sonde_results::flow::FlowEnd;
use sonde_results::units::SECOND;

use super::*;
use crate::flow::exporting::tests::{Call, Calls, Scripted};
use crate::flow::input::tests::{Wire, datagram, meter, single, wire};
use crate::virtual_time::VirtualClock;

const MS: i64 = 1_000_000;
/// The idle time-out that nobody has set otherwise.
const IDLE: i64 = 30 * SECOND;

/// A metering thread's state on `port`, and the export of what it meters.
fn metering(port: Box<dyn Port>) -> (Inner, Exporting, Calls) {
    let (output, calls) = Scripted::new(|| false);
    let (exporting, mut queues) = Exporting::start(vec![output], 1, ROOM).unwrap();
    let inner = Inner {
        meter: meter(&[]),
        input: single(port),
        queue: queues.pop().unwrap(),
        report: Arc::default(),
        shared: exporting.shared(),
        worker: 0,
        talkers: Some(TopTalkers::default()),
    };
    (inner, exporting, calls)
}

fn send(wire: &mut Wire, hosts: &[u8]) -> i64 {
    let begin = wire.clock.now();
    hosts.iter().for_each(|host| wire.send(datagram(*host), begin));
    begin.as_nanos()
}

fn records(calls: &Calls) -> usize {
    let calls = calls.lock().unwrap();
    let each = calls.iter().map(|call| if let Call::Records(n) = call { *n } else { 0 });
    each.sum()
}

#[test]
fn a_flow_ends_once_no_packet_of_it_can_still_wait_in_a_ring() {
    let (port, mut to_port, _) = wire(5);
    let (mut inner, exporting, calls) = metering(port);
    let begin = send(&mut to_port, &[11, 12]);
    assert!(inner.input.turn(&mut inner.meter, &mut |_| panic!("no flow is over")));
    inner.sweep(Time::from_nanos(begin + IDLE + IN_RINGS_NS - 100 * MS));
    {
        let report = inner.report.lock().unwrap();
        assert_eq!((report.held, report.created, report.lost), (2, 2, 5));
        assert_eq!(report.protocols[17].packets, 2);
    }
    inner.sweep(Time::from_nanos(begin + IDLE + IN_RINGS_NS + SECOND));
    assert_eq!(inner.report.lock().unwrap().held, 0);
    let ended = inner.end();
    assert_eq!((ended.lost, ended.meter.cache().counters().flows), (5, 2));
    let exported = exporting.finish().unwrap();
    assert_eq!(exported.ends[&FlowEnd::Idle.name()], 2);
    assert_eq!(records(&calls), 2);
}

#[test]
fn what_the_rings_hold_at_the_end_is_metered_and_exported() {
    let (port, mut to_port, _) = wire(0);
    let (inner, exporting, calls) = metering(port);
    send(&mut to_port, &[11, 11, 12]);
    let worker = inner.start(None, Arc::new(AtomicBool::new(true))).unwrap();
    assert!(worker.failure().is_none());
    let ended = worker.join().unwrap();
    assert_eq!(ended.meter.by_protocol()[17].packets, 3);
    let exported = exporting.finish().unwrap();
    assert_eq!(exported.ends[&FlowEnd::Forced.name()], 2);
    assert_eq!(records(&calls), 2);
}

#[test]
fn a_thread_that_fails_says_why_and_what_it_metered_is_kept() {
    let (port, mut to_port, gone) = wire(0);
    let (inner, exporting, _) = metering(port);
    send(&mut to_port, &[11]);
    gone.store(2, Ordering::Relaxed);
    let worker = inner.start(None, Arc::default()).unwrap();
    let report = worker.report.clone();
    let ended = worker.join().unwrap();
    let failure = report.lock().unwrap().failure.take().unwrap();
    assert!(failure.to_string().contains("the interface is gone"), "{failure}");
    assert_eq!(ended.meter.by_protocol()[17].packets, 1);
    assert_eq!(exporting.finish().unwrap().ends[&FlowEnd::Forced.name()], 1);
}

/// A clock at which something happens when its time comes.
struct ScriptedClock {
    clock: VirtualClock,
    at: i64,
    then: Option<Box<dyn FnOnce()>>,
}

impl RunClock for ScriptedClock {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn steps(&mut self) -> u32 {
        self.clock.steps()
    }

    fn wait(&mut self, ns: i64, stop: &Stop) -> bool {
        self.clock.wait(ns, stop);
        if self.clock.now().as_nanos() >= self.at
            && let Some(then) = self.then.take()
        {
            then();
        }
        stop.is_asked()
    }
}

/// A thread that has ended with `report`, `lost` packets and one that could not be read.
fn thread(report: Report, lost: u64) -> Worker {
    let refused = BTreeMap::from([("refused_not_ip".to_string(), 1)]);
    let ended = Ended { meter: meter(&[]), lost, refused };
    Worker { thread: thread::spawn(move || ended), report: Arc::new(Mutex::new(report)) }
}

fn following(threads: Vec<Worker>) -> Following {
    let run = empty_run(&Settings::default(), "modelled".into());
    let status = Latest::new(Status::new(run.clone()));
    let follow = Follow::open(&[]).unwrap();
    Following { run, follow, threads, shared: Arc::default(), status }
}

/// When the run of `following` was over, ns, with `then` at `at`.
fn followed(
    following: &mut Following,
    stop: &Stop,
    (at, then): (i64, impl FnOnce() + 'static),
) -> (i64, Result<()>) {
    let clock = VirtualClock { ns: Arc::new(AtomicI64::new(0)), ..VirtualClock::default() };
    let mut clock = ScriptedClock { clock, at, then: Some(Box::new(then)) };
    let result = following.run(&mut clock, Some(2 * SECOND + 50 * MS), stop);
    (clock.now().as_nanos(), result)
}

#[test]
fn a_run_ends_with_its_duration_to_the_moment() {
    let (end, result) = followed(&mut following(Vec::new()), &Stop::default(), (0, || ()));
    result.unwrap();
    assert_eq!(end, 2 * SECOND + 50 * MS, "the last look around is a short one");
}

#[test]
fn a_run_ends_when_it_is_asked_to_or_its_reader_has_gone() {
    let stop = Stop::default();
    let asked = stop.clone();
    let (end, result) = followed(&mut following(Vec::new()), &stop, (SECOND, move || asked.ask()));
    result.unwrap();
    assert_eq!(end, SECOND);
    let mut unread = following(Vec::new());
    let shared = unread.shared.clone();
    let gone = move || shared.unread.store(true, Ordering::Relaxed);
    let (end, result) = followed(&mut unread, &Stop::default(), (SECOND, gone));
    result.unwrap();
    assert_eq!(end, SECOND);
}

#[test]
fn a_thread_that_has_failed_ends_the_run_with_its_failure() {
    let mut following = following(vec![thread(Report::default(), 0), thread(Report::default(), 0)]);
    let report = following.threads[1].report.clone();
    let fail = move || report.lock().unwrap().failure = Some(anyhow!("no processor 9"));
    let (end, result) = followed(&mut following, &Stop::default(), (SECOND, fail));
    assert_eq!(result.unwrap_err().to_string(), "no processor 9");
    assert_eq!(end, SECOND);
}

#[test]
fn a_clock_that_was_set_casts_doubt_on_the_run() {
    for (at, doubted) in [(SECOND, true), (i64::MAX, false)] {
        let mut following = following(Vec::new());
        let clock = VirtualClock::default();
        let set = clock.set.clone();
        let then = move || _ = set.fetch_add(1, Ordering::Relaxed);
        let mut clock = ScriptedClock { clock, at, then: Some(Box::new(then)) };
        following.run(&mut clock, Some(2 * SECOND), &Stop::default()).unwrap();
        assert_eq!(following.run.caveats.contains(Caveat::ClockStepped), doubted);
        assert_eq!(following.status.get().run.caveats.contains(Caveat::ClockStepped), doubted);
    }
}

#[test]
fn the_status_adds_up_what_the_threads_report() {
    let report = |packets, held| {
        let mut report = Report { held, created: 2 * held, lost: 3, ..Report::default() };
        report.protocols = meter(&[]).by_protocol().to_vec();
        report.protocols[6].packets = packets;
        report
    };
    let mut following = following(vec![thread(report(10, 4), 3), thread(report(5, 1), 3)]);
    following.shared.records.store(7, Ordering::Relaxed);
    following.shared.queue_lost.store(9, Ordering::Relaxed);
    followed(&mut following, &Stop::default(), (0, || ())).1.unwrap();
    let status = following.status.get();
    assert_eq!((status.held, status.created, status.records), (5, 10, 7));
    assert_eq!((status.packets_lost, status.records_lost), (6, 9));
    assert_eq!((status.protocols[6].packets, status.protocols[17].packets), (15, 0));
    assert!(status.run.caveats.contains(Caveat::OwnDrops));
    assert!(following.run.caveats.is_empty(), "the run itself counts at its end");
}

#[test]
fn the_end_adds_up_what_the_threads_lost() {
    let (output, _) = Scripted::new(|| false);
    let (exporting, queues) = Exporting::start(vec![output], 2, ROOM).unwrap();
    drop(queues);
    let threads = vec![thread(Report::default(), 3), thread(Report::default(), 4)];
    // One has failed since they were last looked at: what all have metered counts nevertheless.
    let report = threads[1].report.clone();
    report.lock().unwrap().failure = Some(anyhow!("no processor 9"));
    let (run, failure) = following(threads).finish(exporting);
    assert_eq!(failure.unwrap().to_string(), "no processor 9");
    let run = run.unwrap();
    assert_eq!((run.counters["packets_lost"], run.counters["refused_not_ip"]), (7, 2));
    assert!(run.caveats.contains(Caveat::OwnDrops));
    assert_eq!(run.exports.len(), 1);
}
