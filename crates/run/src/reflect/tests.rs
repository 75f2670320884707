use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::bail;
use rtrb::Producer;
use sonde_results::units::SECOND;
use sonde_wire::prefix::Prefix;

use super::worker::tests::scripted;
use super::*;
use crate::running::{Next, RecordReceiver};
use crate::virtual_time::VirtualClock;

/// A clock in which the worker says after each wait that it answers 1,000 requests a second. The
/// end is asked for at a time.
struct Script {
    clock: VirtualClock,
    snapshots: Producer<Snapshot>,
    busy: bool,
    stop_at: i64,
}

fn done_by(busy: bool, ns: i64) -> Snapshot {
    let mut snapshot = Snapshot::default();
    if busy {
        snapshot.counters.reflected = (ns / 1_000_000) as u64;
        snapshot.port.tx_frames = snapshot.counters.reflected;
        snapshot.sessions = 7;
    }
    snapshot
}

impl RunClock for Script {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn steps(&mut self) -> u32 {
        0
    }

    fn wait(&mut self, ns: i64, stop: &Stop) -> bool {
        self.clock.wait(ns, stop);
        let now = self.now().as_nanos();
        // If there is no room, the loop does not read it: then the records show that.
        let _ = self.snapshots.push(done_by(self.busy, now));
        if now >= self.stop_at {
            stop.ask();
        }
        stop.is_asked()
    }
}

/// A host of which each look is counted, and whose addresses change with the 5th.
#[derive(Clone, Default)]
struct Host {
    looks: Arc<std::sync::Mutex<(u32, u32)>>,
    fails: bool,
}

impl HostState for Host {
    fn clock(&mut self) -> ClockState {
        self.looks.lock().unwrap().0 += 1;
        ClockState { tai_offset_s: 37, synchronised: true, max_error_ns: 1_000, est_error_ns: 10 }
    }

    fn have_changed(&mut self) -> Result<bool> {
        let looks = self.looks.lock().unwrap().0;
        if self.fails && looks == 5 {
            bail!("the kernel keeps its addresses to itself");
        }
        Ok(looks == 5)
    }

    fn no_senders(&mut self) -> Result<Vec<Prefix>> {
        self.looks.lock().unwrap().1 += 1;
        Ok(Vec::new())
    }
}

/// A program in the kernel that answers 10 requests at each look, of which 1 is lost.
#[derive(Default)]
struct Program {
    looks: u64,
    fails_at: Option<u64>,
    last_fails: bool,
}

impl InKernel for Program {
    fn follow(&mut self) -> Result<()> {
        self.looks += 1;
        if self.fails_at == Some(self.looks) {
            bail!("no reply leaves eth0");
        }
        Ok(())
    }

    fn counts(&mut self) -> Result<KernelCounts> {
        let program = [("reflected", 10 * self.looks), ("new_sessions", 15), ("dropped_rate", 3)];
        Ok(KernelCounts::new(program.into_iter(), self.looks, [0, 0]))
    }

    fn last_counts(&mut self) -> Result<KernelCounts> {
        if self.last_fails {
            bail!("the program was taken away");
        }
        self.counts()
    }
}

/// Until it is stopped, and as much as it says it has done.
fn until_stopped(stop: Arc<AtomicBool>, busy: bool, ns: i64) -> (Snapshot, Result<()>) {
    while !stop.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    (done_by(busy, ns), Ok(()))
}

type Under = Reflect<Program, Host, Script>;

/// A reflector that is stopped after `seconds`, with a record each 10 s.
fn reflecting(busy: bool, seconds: i64, room: usize) -> (Under, RecordReceiver<ReflectorReport>) {
    let stop_at = seconds * SECOND;
    let (worker, snapshots) = scripted(move |stop| until_stopped(stop, busy, stop_at));
    reflecting_by(worker, Script { clock: VirtualClock::default(), snapshots, busy, stop_at }, room)
}

fn reflecting_by(
    worker: ReflectorWorker,
    clock: Script,
    room: usize,
) -> (Under, RecordReceiver<ReflectorReport>) {
    let (sender, records) = records(room);
    let reflect = Reflect {
        report_interval: 10 * SECOND,
        worker,
        kernel: None,
        host: Host::default(),
        interface: Interface::new(None),
        clock,
        recorded: (0, Time::ZERO),
        looked: (0, Time::ZERO),
        sender,
        status: Latest::new(ReflectorReport::default()),
    };
    (reflect, records)
}

fn read(records: &RecordReceiver<ReflectorReport>) -> Vec<ReflectorReport> {
    let next = || match records.next(Duration::ZERO) {
        Next::Record(record) => Some(record),
        _ => None,
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn a_record_each_interval_and_one_at_the_end_with_all_counters() {
    let (mut reflect, records) = reflecting(true, 35, 100);
    let ended = reflect.work(&Stop::default());
    assert!(ended.failure.is_none(), "{:?}", ended.failure);
    let records = read(&records);
    let reflected: Vec<u64> = records.iter().map(|r| r.reflected).collect();
    assert_eq!(reflected, [10_000, 20_000, 30_000, 35_000]);
    for record in &records {
        assert!((record.per_second - 1_000.0).abs() < 1e-6, "{}", record.per_second);
        assert_eq!(record.sessions, 7);
        assert_eq!(record.user["reflected"], record.reflected);
        assert_eq!(record.port["tx_frames"], record.reflected);
        assert_eq!((&record.kernel, record.kernel_sessions), (&None, None));
    }
    assert_eq!(reflect.status.get(), records[3], "the state is the latest record");
    assert_eq!(ended.counters["user_reflected"], 35_000);
    assert_eq!(ended.counters["port_tx_frames"], 35_000);
    assert!(!ended.counters.keys().any(|name| name.starts_with("kernel_")));
}

#[test]
fn the_state_has_all_counters_from_the_start_and_is_new_each_second() {
    let (mut reflect, records) = reflecting(true, 8, 100);
    reflect.kernel = Some(Program::default());
    reflect.show(&Snapshot::default()).unwrap();
    let first = reflect.status.get();
    assert!(first.at_ns > 0 && first.user["reflected"] == 0 && first.port["tx_frames"] == 0);
    assert_eq!(first.kernel.as_ref().unwrap()["reflected"], 0);
    // It is stopped before its first record, without the last look of an end.
    reflect.run(&Stop::default()).unwrap();
    let state = reflect.status.get();
    assert!(read(&records).is_empty());
    assert_eq!(state.reflected, 7_000 + 9 * 34, "the look at 8 s is that at which it ends");
    assert!((state.per_second - 1_045.0).abs() < 1e-6, "{}", state.per_second);
    assert_eq!((state.sessions, state.user["reflected"]), (7, 7_000));
    assert_eq!(state.kernel_sessions, Some(15));
}

#[test]
fn a_stop_while_nothing_was_asked_ends_it_with_a_record_of_zeros() {
    let (mut reflect, records) = reflecting(false, 1, 100);
    let ended = reflect.work(&Stop::default());
    assert!(ended.failure.is_none(), "{:?}", ended.failure);
    let records = read(&records);
    let [last] = &records[..] else { panic!("{records:?}") };
    assert_eq!((last.reflected, last.per_second, last.sessions), (0, 0.0, 0));
    assert!(ended.counters.values().all(|n| *n == 0) && !ended.counters.is_empty());
}

#[test]
fn a_stop_before_the_first_look_is_obeyed() {
    let (mut reflect, records) = reflecting(true, 1_000, 100);
    let stop = Stop::default();
    stop.ask();
    let ended = reflect.work(&stop);
    assert!(ended.failure.is_none());
    assert_eq!(read(&records).len(), 1);
    assert_eq!(reflect.host.looks.lock().unwrap().0, 0);
}

#[test]
fn records_that_nobody_reads_are_counted_and_stop_nothing() {
    let (mut reflect, records) = reflecting(true, 55, 2);
    let ended = reflect.work(&Stop::default());
    let reflected: Vec<u64> = read(&records).iter().map(|r| r.reflected).collect();
    assert_eq!((reflected, records.lost()), (vec![10_000, 20_000], 4));
    assert_eq!(ended.counters["user_reflected"], 55_000);
}

#[test]
fn the_host_is_looked_at_once_a_second_and_its_addresses_when_they_have_changed() {
    let (mut reflect, _records) = reflecting(true, 21, 100);
    let ended = reflect.work(&Stop::default());
    assert!(ended.failure.is_none(), "{:?}", ended.failure);
    // The look at 21 s is that at which it ends.
    assert_eq!(*reflect.host.looks.lock().unwrap(), (20, 1));
}

#[test]
fn a_host_that_cannot_be_followed_ends_it_with_the_reason() {
    let (mut reflect, records) = reflecting(true, 21, 100);
    reflect.host.fails = true;
    let failure = reflect.work(&Stop::default()).failure.unwrap().to_string();
    assert!(failure.contains("the kernel keeps its addresses to itself"), "{failure}");
    assert_eq!(read(&records).len(), 1, "what was counted is handed over");
}

#[test]
fn the_end_of_a_worker_ends_it_with_the_workers_reason() {
    let (worker, snapshots) = scripted(|_| {
        let error = anyhow::anyhow!("the port failed");
        (done_by(true, 4 * SECOND), Err(error))
    });
    while !worker.is_finished() {
        std::thread::yield_now();
    }
    let clock = Script { clock: VirtualClock::default(), snapshots, busy: true, stop_at: i64::MAX };
    let (mut reflect, records) = reflecting_by(worker, clock, 100);
    let ended = reflect.work(&Stop::default());
    let failure = ended.failure.unwrap().to_string();
    assert!(failure.contains("the port failed"), "{failure}");
    let records = read(&records);
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].reflected, ended.counters["user_reflected"]), (4_000, 4_000));
}

#[test]
fn replies_of_the_kernel_that_left_are_added() {
    let (mut reflect, records) = reflecting(true, 15, 100);
    reflect.kernel = Some(Program::default());
    let ended = reflect.work(&Stop::default());
    assert!(ended.failure.is_none(), "{:?}", ended.failure);
    let records = read(&records);
    // 5 looks a second: 9 replies each. The last look is that at which it ends.
    let reflected: Vec<u64> = records.iter().map(|r| r.reflected).collect();
    assert_eq!(reflected, [10_000 + 9 * 50, 15_000 + 9 * 74]);
    assert!((records[0].per_second - 1_045.0).abs() < 1e-6, "{}", records[0].per_second);
    let kernel = records[1].kernel.as_ref().unwrap();
    assert_eq!((kernel["reflected"], kernel["dropped_undelivered"]), (9 * 74, 74));
    assert_eq!(ended.counters["kernel_reflected"], 9 * 74);
    assert_eq!(ended.counters["kernel_dropped_rate"], 3);
    assert_eq!(ended.counters["user_reflected"], 15_000);
}

#[test]
fn a_program_that_fails_ends_it_with_its_counts_so_far() {
    let (mut reflect, records) = reflecting(true, 15, 100);
    reflect.kernel = Some(Program { fails_at: Some(20), ..Program::default() });
    let ended = reflect.work(&Stop::default());
    let failure = ended.failure.unwrap().to_string();
    assert!(failure.contains("no reply leaves eth0"), "{failure}");
    assert_eq!(ended.counters["kernel_reflected"], 9 * 20);
    assert_eq!(read(&records).len(), 1);
}

#[test]
fn a_program_without_last_counts_leaves_those_of_user_space() {
    let (mut reflect, records) = reflecting(true, 5, 100);
    reflect.kernel = Some(Program { last_fails: true, ..Program::default() });
    let ended = reflect.work(&Stop::default());
    let failure = ended.failure.unwrap().to_string();
    assert!(failure.contains("the program was taken away"), "{failure}");
    assert_eq!(ended.counters["user_reflected"], 5_000);
    assert_eq!(read(&records)[0].kernel, None);
}

#[test]
fn replies_that_never_left_are_not_counted_as_reflected() {
    let counts = KernelCounts::new([("reflected", 10)].into_iter(), 3, [2, 1]);
    assert_eq!(counts.reflected(), 7);
    let all: BTreeMap<_, _> = counts.iter().collect();
    let expected = [
        ("dropped_undelivered", 3),
        ("interface_lost", 2),
        ("interface_returned", 1),
        ("reflected", 7),
    ];
    assert_eq!(all, expected.into());
    // The two counts are not read in one moment.
    assert_eq!(KernelCounts::new([("reflected", 10)].into_iter(), 12, [0, 0]).reflected(), 0);
}
