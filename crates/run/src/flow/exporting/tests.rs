//! The export thread's loop, in the time of packets and on the test's own thread.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{Sender, sync_channel};

use sonde_results::flow::{FlowKey, FlowSide};
use sonde_results::units::SECOND;

use super::*;
use crate::flow::input::tests::{datagram, meter};
use crate::flow::meter::CapturedFrame;
use crate::flow::settings::Settings;
use crate::flow::setup;
use crate::flow::shard::Shard;

/// What an output was called for.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::flow) enum Call {
    Records(usize),
    Interfaces(usize),
    Tick { now_ns: i64, ignored: u64, not_sent: u64 },
    Rotate,
    Finish,
    Close,
}

pub(in crate::flow) type Calls = Arc<Mutex<Vec<Call>>>;

/// An output that notes what it is called for.
pub(in crate::flow) struct Scripted {
    calls: Calls,
    /// Called each turn, also after the end as long as it returns true.
    turn: Box<dyn FnMut() -> bool + Send>,
    lost: u64,
    is_unread: bool,
}

impl Scripted {
    pub fn new(turn: impl FnMut() -> bool + Send + 'static) -> (Box<Scripted>, Calls) {
        let calls = Calls::default();
        let theirs = calls.clone();
        (
            Box::new(Scripted { calls: theirs, turn: Box::new(turn), lost: 0, is_unread: false }),
            calls,
        )
    }

    fn note(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }
}

impl Output for Scripted {
    fn records(&mut self, records: &[FlowRecord], _: i64) {
        self.note(Call::Records(records.len()));
    }

    fn interfaces(&mut self, interfaces: &[ExportInterface]) {
        self.note(Call::Interfaces(interfaces.len()));
    }

    fn set_utc_offset(&mut self, _: i64) {}

    fn tick(&mut self, now_ns: i64, stats: &ExportStats) {
        let (ignored, not_sent) = (stats.ignored_packets, stats.not_sent_flows);
        self.note(Call::Tick { now_ns, ignored, not_sent });
    }

    fn rotate(&mut self, _: i64, _: &ExportStats) {
        self.note(Call::Rotate);
    }

    fn send_due(&mut self) -> bool {
        (self.turn)()
    }

    fn finish(&mut self, _: i64, _: &ExportStats) {
        self.note(Call::Finish);
    }

    fn close(&mut self) {
        self.note(Call::Close);
    }

    fn total(&self) -> ExportTotal {
        let counters = BTreeMap::from([("lost".to_string(), self.lost)]);
        ExportTotal { to: "here".into(), form: "calls".into(), records: 0, counters }
    }

    fn lost(&self) -> u64 {
        self.lost
    }

    fn is_unread(&self) -> bool {
        self.is_unread
    }
}

/// A flow of `bytes`.
fn record(bytes: u64, end: FlowEnd) -> FlowRecord {
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    FlowRecord {
        key: FlowKey {
            point: 0,
            vlan: 0,
            protocol: 17,
            source: address,
            destination: address,
            source_port: 1,
            destination_port: 2,
        },
        forward: FlowSide { packets: 1, bytes, ..FlowSide::default() },
        reverse: FlowSide::default(),
        end,
        extra: None,
    }
}

/// What the thread owns, with queues for `workers`, at a packets' time of 1 s. It ends when the
/// metering threads have: at once, unless a turn takes that back.
fn thread(
    outputs: Vec<Box<dyn Output>>,
    workers: usize,
) -> (Inner, Vec<RecordQueue>, Arc<MeteringState>, Sender<Rotation>) {
    let shared = Arc::new(MeteringState::default());
    shared.packet_time_ns.store(SECOND, Ordering::Relaxed);
    shared.metered.store(true, Ordering::Relaxed);
    let (records, ends) = (0..workers).map(|_| queue(2 * BATCH, &shared)).unzip();
    let (rotations, asked) = channel();
    (Inner::new(outputs, ends, shared.clone(), asked), records, shared, rotations)
}

fn calls(calls: &Calls) -> Vec<Call> {
    calls.lock().unwrap().clone()
}

#[test]
fn every_output_gets_all_records_and_they_add_up() {
    let (mut first, a) = Scripted::new(|| false);
    let (mut second, b) = Scripted::new(|| false);
    (first.lost, second.lost) = (3, 4);
    let (inner, mut queues, shared, _) = thread(vec![first, second], 2);
    for n in 0..300 {
        queues[0].push(record(n, FlowEnd::Idle));
    }
    queues[1].push(record(1_000, FlowEnd::Forced));
    assert!(queues.iter_mut().all(RecordQueue::flush));
    let exported = inner.run();
    let batches = [BATCH, 300 - BATCH, 1].map(Call::Records);
    for calls in [calls(&a), calls(&b)] {
        assert_eq!(calls[..3], batches);
        assert_eq!(calls[calls.len() - 2..], [Call::Finish, Call::Close]);
    }
    let ends = [(FlowEnd::Idle.name(), 300), (FlowEnd::Forced.name(), 1)];
    assert_eq!(exported.ends, BTreeMap::from(ends));
    let top: Vec<u64> = exported.top.iter().map(|r| r.forward.bytes).collect();
    assert_eq!((top.len(), &top[..3]), (TOP, &[1_000, 299, 298][..]));
    assert_eq!((exported.lost, exported.exports.len()), (7, 2));
    assert_eq!(shared.records.load(Ordering::Relaxed), 301);
}

#[test]
fn what_finds_no_room_is_counted_and_reported_to_collectors() {
    let (output, log) = Scripted::new(|| false);
    let (inner, mut queues, ..) = thread(vec![output], 1);
    // Two batches in the queue, and one that the thread is filling.
    for n in 0..3 * BATCH as u64 + 10 {
        queues[0].push(record(n, FlowEnd::Idle));
    }
    assert!(!queues[0].flush());
    let exported = inner.run();
    assert_eq!(exported.lost, 10);
    assert_eq!(calls(&log)[..2], [BATCH, BATCH].map(Call::Records));
    assert_eq!(calls(&log)[2], Call::Tick { now_ns: SECOND, ignored: 0, not_sent: 10 });
}

#[test]
fn a_reader_of_captures_waits_for_room_but_not_for_a_thread_that_has_gone() {
    let many = 10 * BATCH as u64;
    let push_all = |queue: &mut RecordQueue| {
        (0..many).for_each(|n| queue.push_waiting(record(n, FlowEnd::Idle)));
        queue.flush_waiting();
    };
    let (output, log) = Scripted::new(|| false);
    let (exporting, mut queues) = Exporting::start(vec![output], 1, 2 * BATCH).unwrap();
    push_all(&mut queues[0]);
    let exported = exporting.finish().unwrap();
    assert_eq!((exported.ends[&FlowEnd::Idle.name()], exported.lost), (many, 0));
    let batches = calls(&log).into_iter().filter(|call| *call == Call::Records(BATCH));
    assert_eq!(batches.count(), 10);

    let (inner, mut queues, ..) = thread(Vec::new(), 1);
    drop(inner);
    push_all(&mut queues[0]);
    assert!(queues[0].batch.is_empty(), "it was given up");
}

/// Each turn `step` passes; the metering threads end after 20 turns.
fn passing(step: impl Fn(u32) -> i64 + Send + 'static) -> Vec<i64> {
    let slot = Arc::<Mutex<Option<Arc<MeteringState>>>>::default();
    let (theirs, mut turns) = (slot.clone(), 0);
    let (output, log) = Scripted::new(move || {
        let shared = theirs.lock().unwrap();
        let shared: &MeteringState = shared.as_ref().unwrap();
        turns += 1;
        shared.packet_time_ns.fetch_add(step(turns), Ordering::Relaxed);
        shared.metered.store(turns >= 20, Ordering::Release);
        false
    });
    let (inner, _queues, shared, _) = thread(vec![output], 1);
    shared.metered.store(false, Ordering::Relaxed);
    *slot.lock().unwrap() = Some(shared);
    assert_eq!(inner.run().utc_offset, None, "times of captures are what they were at first");
    let ticks = calls(&log).into_iter().filter_map(|call| match call {
        Call::Tick { now_ns, .. } => Some((now_ns - SECOND) / MS),
        _ => None,
    });
    ticks.collect()
}

#[test]
fn outputs_are_looked_after_each_tenth_of_a_second_of_the_packets_time() {
    assert_eq!(passing(|_| 30 * MS), [0, 120, 240, 360, 480, 600]);
    // A capture whose times jump back does not wait until they have caught up.
    let back = |turn| if turn == 8 { -5 * SECOND } else { 30 * MS };
    assert_eq!(passing(back)[..4], [0, 120, 210 - 5_000, 330 - 5_000]);
}

#[test]
fn interfaces_go_before_the_records_and_a_rotation_after_them() {
    let (output, log) = Scripted::new(|| false);
    let (inner, mut queues, shared, rotations) = thread(vec![output], 1);
    let (done, waits) = sync_channel(1);
    rotations.send(done).unwrap();
    shared.set_interfaces(vec![ExportInterface::default(); 2]);
    queues[0].push(record(1, FlowEnd::Idle));
    assert!(queues[0].flush());
    inner.run();
    let tick = Call::Tick { now_ns: SECOND, ignored: 0, not_sent: 0 };
    let all =
        [Call::Interfaces(2), Call::Records(1), Call::Rotate, tick, Call::Finish, Call::Close];
    assert_eq!(calls(&log), all);
    assert_eq!(waits.try_recv(), Ok(()));
    let ended = Control::new(rotations).rotate().unwrap_err().to_string();
    assert!(ended.contains("has ended"), "{ended}");
}

#[test]
fn an_output_is_closed_when_nothing_waits_in_it_any_more() {
    let mut left = 3;
    let turns = Arc::new(AtomicU64::new(0));
    let counted = turns.clone();
    let (output, log) = Scripted::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        left -= i32::from(left > 0);
        left > 0
    });
    let (inner, ..) = thread(vec![output], 0);
    inner.run();
    assert_eq!(turns.load(Ordering::Relaxed), 3, "twice more waited, then nothing");
    assert_eq!(calls(&log).last(), Some(&Call::Close));
}

#[test]
fn readers_that_have_gone_are_reported_to_the_run_once_nobody_else_gets_records() {
    for (unread, reported) in
        [(&[][..], false), (&[true][..], true), (&[true, false], false), (&[true, true], true)]
    {
        let output = |&is_unread: &bool| {
            let (mut output, _) = Scripted::new(|| false);
            output.is_unread = is_unread;
            output as Box<dyn Output>
        };
        let (inner, _queues, shared, _) = thread(unread.iter().map(output).collect(), 1);
        inner.run();
        assert_eq!(shared.unread.load(Ordering::Relaxed), reported, "{unread:?}");
    }
}

#[test]
fn a_run_that_fails_still_exports_what_has_come_and_ends_its_files() {
    let (output, log) = Scripted::new(|| false);
    let (exporting, mut queues) = Exporting::start(vec![output], 1, 1).unwrap();
    queues[0].push(record(7, FlowEnd::Idle));
    assert!(queues[0].flush());
    drop(exporting);
    let all = calls(&log);
    assert!(all.contains(&Call::Records(1)), "{all:?}");
    assert_eq!(all[all.len() - 2..], [Call::Finish, Call::Close]);
}

#[test]
fn reports_of_the_threads_add_up_and_a_later_one_replaces_the_one_before() {
    let mut settings = Settings::default();
    settings.selection.sample = Some("1/2".parse().unwrap());
    let mut sampling = setup::meter_at(0, &settings, [1, 2], Shard::whole(), &[]).unwrap();
    let frame = datagram(9);
    let frames = (0..10).map(|at_ns| CapturedFrame {
        bytes: &frame,
        wire_len: frame.len(),
        segment: 0,
        link: sonde_wire::flow::LinkType::Ethernet,
        at_ns,
        point: 0,
    });
    sampling.frames(frames, &mut |_| ());
    let shared = MeteringState::default();
    shared.report(0, &sampling, 5);
    shared.report(0, &sampling, 7);
    shared.report(1, &sampling, 2);
    let sum = shared.sum_of_reports();
    assert_eq!(sum.ignored, 9);
    let counts: Vec<_> = sum.selectors.iter().map(|s| (s.observed, s.selected)).collect();
    assert_eq!(counts, [(20, 10)], "of two threads");
    shared.report(2, &meter(&[]), 0);
    assert_eq!(shared.sum_of_reports().selectors.len(), 1, "one that selects nothing");
}

const MS: i64 = 1_000_000;
