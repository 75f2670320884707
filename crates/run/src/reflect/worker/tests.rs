use std::sync::Mutex;

use sonde_meter::stamp::{
    LinkHeader, ReflectorConfig, ReflectorKind, Schedule, Sender, SenderConfig, StreamSpec,
};
use sonde_port::mem::PathModel;
use sonde_results::Interval;
use sonde_results::units::SECOND;
use sonde_wire::Time;

use super::*;
use crate::virtual_time::{ModelledPort, ProbedPort, Seen};

const MS: i64 = 1_000_000;
const BEGIN: Time = Time::ZERO;

/// A worker without a thread; what it says about itself is put into the queue by a test.
pub fn scripted(
    work: impl FnOnce(Arc<AtomicBool>) -> (Snapshot, Result<()>) + Send + 'static,
) -> (ReflectorWorker, Producer<Snapshot>) {
    let (mut worker, inner) = ReflectorWorker::new(reflector(&[862]));
    let stop = inner.stop.clone();
    worker.thread = Some(std::thread::spawn(move || work(stop)));
    (worker, inner.snapshots)
}

fn reflector(ports: &[u16]) -> Reflector {
    Reflector::new(&ReflectorConfig::new(ports.to_vec(), 0, 1), BEGIN).unwrap()
}

/// A probe to each destination in each `period`, each a twentieth of it after the other.
fn sender(destinations: &[&str], period: i64) -> Sender {
    let streams = destinations.iter().enumerate().map(|(i, destination)| {
        let v6 = destination.starts_with('[');
        StreamSpec {
            source: format!("{}:{}", if v6 { "[2001:db8::1]" } else { "10.0.0.1" }, 62_000 + i)
                .parse()
                .unwrap(),
            destination: destination.parse().unwrap(),
            dscp: 0,
            ttl: 64,
            next_hop: 0,
            ssid: 1 + i as u16,
            ip_length: 150,
            period,
            phase: period / 20 * (1 + i as i64),
            schedule: Schedule::Periodic,
            count: None,
            reflector: ReflectorKind::Stateful,
        }
    });
    let config = SenderConfig {
        start: BEGIN,
        timeout: SECOND,
        interval: 100 * SECOND,
        late_limit: 50_000,
        tai_offset: 0,
        clock_synchronised: true,
        clock_error: 100,
        tx_stamps: true,
        kernel_resolves: false,
        histogram_pages: 1_000,
        samples: false,
        seed: 1,
    };
    let way = Ok(LinkHeader::new([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], &[]));
    Sender::new(config, &streams.collect::<Vec<_>>(), vec![way]).unwrap()
}

type Probed = (ProbedPort, Arc<Mutex<Sender>>, Arc<Mutex<Seen>>);

/// 50 probes a second from 1 ms on; they take 5 ms.
fn probed(destinations: &[&str]) -> Probed {
    let path = PathModel { delay_ns: 5 * MS, ..PathModel::default() };
    ModelledPort::to(sender(destinations, 20 * MS), BEGIN, &path)
}

/// The first probe would leave after more than a minute.
fn idle() -> Probed {
    let sender = sender(&["10.2.0.1:862"], 2_000 * SECOND);
    ModelledPort::to(sender, BEGIN, &PathModel::default())
}

/// What a sender got, by stream.
fn received(sender: &Mutex<Sender>, streams: usize) -> Vec<(u64, u64)> {
    let mut sender = sender.lock().unwrap();
    sender.finish(BEGIN + 1_000 * SECOND);
    let mut totals: Vec<Interval> = (0..streams as u32).map(Interval::empty).collect();
    let mut record = Interval::empty(0);
    while sender.poll_record(&mut record) {
        totals[record.stream as usize].merge(&record);
    }
    totals.iter().map(|total| (total.counters.sent, total.counters.received)).collect()
}

/// It is asked to end when its port is used at that time.
fn stop_at(port: &mut ProbedPort, at: Time, inner: &Inner) {
    let stop = inner.stop.clone();
    port.at = Some((at, Box::new(move || stop.store(true, Ordering::Relaxed))));
}

#[test]
fn each_address_and_port_that_is_asked_answers_until_the_stop() {
    let destinations = ["10.2.0.1:862", "10.2.0.2:862", "[2001:db8::2]:862", "10.2.0.1:863"];
    let (mut port, sender, seen) = probed(&destinations);
    let (mut worker, inner) = ReflectorWorker::new(reflector(&[862, 863]));
    stop_at(&mut port, BEGIN + 10 * SECOND, &inner);
    let (counted, outcome) = inner.serve(Box::new(port), None);
    outcome.unwrap();
    // The last requests arrived after 9.989 s; their replies were back before the end.
    assert_eq!(received(&sender, 4), [(500, 500); 4]);
    assert_eq!(counted.counters.reflected, 4 * 500);
    assert_eq!(counted.counters.dropped(), 0);
    assert_eq!((counted.sessions, counted.counters.sessions_begun), (4, 4));
    assert_eq!((counted.port.rx_frames, counted.port.tx_frames), (2_000, 2_000));
    let seen = *seen.lock().unwrap();
    assert_eq!((seen.path.forward.sent, seen.path.backward.sent), (2_000, 2_000));
    // Nobody took its reports meanwhile: the first are kept, and it did not wait.
    let latest = worker.latest().counters.reflected;
    assert!((1_200..1_400).contains(&latest), "{latest}: 64 reports, one each 100 ms");
}

#[test]
fn a_port_that_is_not_its_own_gets_no_answer() {
    let (mut port, sender, _) = probed(&["10.2.0.1:862", "10.2.0.1:863"]);
    let (_worker, inner) = ReflectorWorker::new(reflector(&[862]));
    stop_at(&mut port, BEGIN + SECOND, &inner);
    let (counted, outcome) = inner.serve(Box::new(port), None);
    outcome.unwrap();
    assert_eq!((counted.counters.reflected, counted.counters.dropped_foreign), (50, 50));
    assert_eq!(received(&sender, 2), [(50, 50), (50, 0)]);
}

#[test]
fn a_stop_while_nothing_comes_is_seen_at_the_next_look() {
    let (mut port, _, seen) = idle();
    let (mut worker, inner) = ReflectorWorker::new(reflector(&[862]));
    let at = BEGIN + 3 * SECOND + 50 * MS;
    stop_at(&mut port, at, &inner);
    let (counted, outcome) = inner.serve(Box::new(port), None);
    outcome.unwrap();
    assert_eq!(counted.counters, ReflectorCounters::default());
    assert_eq!(counted.port, PortStats::default());
    let after = seen.lock().unwrap().last - at;
    assert!((0..HOUSEKEEPING).contains(&after), "it ended {after} ns later");
    let mut reports = 0;
    while worker.snapshots.pop().is_ok() {
        reports += 1;
    }
    assert!((30..=31).contains(&reports), "{reports} reports in 3.05 s");
}

#[test]
fn what_was_done_until_the_port_failed_is_counted() {
    let (mut port, _, _) = probed(&["10.2.0.1:862"]);
    port.fails_at = Some(BEGIN + SECOND);
    let (_worker, inner) = ReflectorWorker::new(reflector(&[862]));
    let (counted, outcome) = inner.serve(Box::new(port), None);
    let error = format!("{:#}", outcome.unwrap_err());
    assert!(error.contains("the cable was cut"), "{error}");
    assert_eq!(counted.counters.reflected, 50);
}

#[test]
fn it_ends_by_itself_when_its_port_fails_and_is_joined_with_the_reason() {
    let (mut port, _, _) = probed(&["10.2.0.1:862"]);
    port.fails_at = Some(BEGIN + SECOND);
    let mut worker = ReflectorWorker::start(Box::new(port), reflector(&[862]), None).unwrap();
    while !worker.is_finished() {
        std::thread::yield_now();
    }
    let (counted, outcome) = worker.end();
    assert!(outcome.unwrap_err().to_string().contains("the cable was cut"));
    assert_eq!(counted.counters.reflected, 50);
    // The end of what has ended: what it said last.
    let (again, outcome) = worker.end();
    outcome.unwrap();
    assert!(again.counters.reflected <= 50);
}

#[test]
fn a_processor_that_is_not_there_is_refused_by_name() {
    let (port, _, _) = idle();
    let (_worker, inner) = ReflectorWorker::new(reflector(&[862]));
    let (_, outcome) = inner.serve(Box::new(port), Some(1_000_000));
    let error = format!("{:#}", outcome.unwrap_err());
    assert!(error.starts_with("`cpu`: cannot run on processor 1000000"), "{error}");
}

/// A host that gets the sender's address.
struct Host {
    changed: bool,
}

impl HostState for Host {
    fn clock(&mut self) -> ClockState {
        ClockState { tai_offset_s: 0, synchronised: true, max_error_ns: 0, est_error_ns: 0 }
    }

    fn have_changed(&mut self) -> Result<bool> {
        Ok(std::mem::take(&mut self.changed))
    }

    fn no_senders(&mut self) -> Result<Vec<Prefix>> {
        Ok(vec!["10.0.0.1/32".parse().unwrap()])
    }
}

#[test]
fn an_address_that_becomes_the_hosts_own_is_answered_no_more() {
    let (mut port, _, _) = probed(&["10.2.0.1:862", "[2001:db8::2]:862"]);
    let (mut worker, inner) = ReflectorWorker::new(reflector(&[862]));
    worker.follow(&mut Host { changed: false }).unwrap();
    port.at = Some((
        BEGIN + SECOND,
        Box::new(move || {
            worker.follow(&mut Host { changed: true }).unwrap();
        }),
    ));
    port.fails_at = Some(BEGIN + 2 * SECOND);
    let (counted, _) = inner.serve(Box::new(port), None);
    let c = counted.counters;
    assert_eq!(c.reflected + c.dropped_address, 200);
    // Seen within 100 ms: 5 requests.
    assert!((45..=50).contains(&c.dropped_address), "{}", c.dropped_address);
}
