use sonde_meter::load::LoadSchedule;
use sonde_port::mem::{MemClock, MemLink, MemPort, PathModel, PathStats};
use sonde_port::{Caps, PortError, RxBurst, TxBurst};
use sonde_results::trial::Offer;

use super::*;
use crate::tester::test_load::load;

/// A port in virtual time, which passes while it is used: 100 ns each time that it is asked.
struct Ticking {
    port: MemPort,
    clock: MemClock,
    /// From this on nothing can be sent.
    fails_at: Option<Time>,
}

impl Port for Ticking {
    fn rx(&mut self) -> Result<RxBurst<'_>, PortError> {
        self.port.rx()
    }

    fn tx(&mut self) -> TxBurst<'_> {
        self.port.tx()
    }

    fn flush(&mut self) -> Result<(), PortError> {
        if self.fails_at.is_some_and(|at| self.clock.now() >= at) {
            return Err(PortError::Config("the cable was cut".into()));
        }
        self.port.flush()
    }

    fn wait(&mut self, until: Time) -> Result<(), PortError> {
        self.clock.advance_to(until);
        Ok(())
    }

    fn now(&self) -> Time {
        self.clock.advance_to(self.clock.now() + 100);
        self.clock.now()
    }

    fn caps(&self) -> &Caps {
        self.port.caps()
    }

    fn stats(&mut self) -> PortStats {
        self.port.stats()
    }
}

const START: Time = Time::from_nanos(1_000_000);
const SECRET: Secret = Secret([1, 2]);

/// What a direction is found to have done over a path, and what the path says of itself. `enough`:
/// a stop is asked for before it begins.
fn over(path: PathModel, offer: &Offer, enough: bool) -> (Direction, PathStats) {
    let load = load(offer);
    let schedule: LoadSchedule = load.schedule.clone();
    let (near, far, clock) = MemLink::new(3, path, PathModel::default());
    let near = Ticking { port: near, clock: clock.clone(), fails_at: None };
    let sizes = &load.traffic.sizes;
    let headers = load.headers().unwrap();
    let generator = LoadGenerator::new(headers, sizes, schedule.clone(), START, load.tag, SECRET);
    let analyser = LoadAnalyser::new(LoadAnalyserConfig {
        tag: load.tag,
        secret: SECRET,
        schedule,
        streams: load.flows() as usize,
        start: START + load.schedule.counted_ns(),
        slot_ns: load.slot_ns(),
        length_change: 0,
        tagged: false,
        mac: None,
    });
    let shared = Shared::default();
    let sent = send(Box::new(near), generator, &shared, &AtomicBool::new(enough)).unwrap();
    assert_eq!(shared.sent.load(Ordering::Relaxed), sent.generator.sent());
    // Everything has arrived by now.
    clock.advance_to(clock.now() + SECOND);
    let far = Ticking { port: far, clock, fails_at: None };
    let link = far.clock.clone();
    let counts = (&shared.sent, &shared.received);
    let share = load.share(Expects::All);
    let finish = AtomicBool::new(true);
    let received = receive(Box::new(far), analyser, &load, share, START, counts, &finish).unwrap();
    assert_eq!(shared.received.load(Ordering::Relaxed), received.analyser.received());
    (received.with(&sent), link.stats().forward)
}

/// Ten milliseconds, 1,000 frames.
fn offer() -> Offer {
    Offer::steady(100_000.0, 10_000_000)
}

#[test]
fn a_clean_path_loses_nothing_and_has_its_own_delay() {
    let path = PathModel { delay_ns: 2_500, ..PathModel::default() };
    let (direction, path) = over(path, &offer(), false);
    assert_eq!((direction.intended, direction.sent), (1_000, 1_000));
    assert_eq!((direction.received, direction.lost, direction.duplicates), (1_000, 0, 0));
    assert_eq!((direction.reordered, direction.corrupted, direction.stray), (0, 0, 0));
    assert_eq!(path.delivered, 1_000);
    // From the clock that the generator read: the frame leaves at most one reading later.
    let (least, most) = (direction.latency.min, direction.latency.max);
    assert!((2_500..2_700).contains(&least) && most < 2_700, "{least} to {most}");
    assert!(direction.lateness.max <= 200, "{}", direction.lateness.max);
}

#[test]
fn losses_and_copies_are_those_of_the_path() {
    let path = PathModel { delay_ns: 1_000, loss: 0.05, duplicate: 0.03, ..PathModel::default() };
    let (direction, path) = over(path, &offer(), false);
    assert!(path.lost > 10 && path.duplicated > 5, "seed 3: {path:?}");
    assert_eq!((direction.sent, direction.lost), (path.sent, path.lost));
    assert_eq!(direction.duplicates, path.duplicated);
    assert_eq!(direction.received, path.sent - path.lost);
    assert_eq!(direction.losses.iter().map(|run| run.frames).sum::<u64>(), path.lost);
}

#[test]
fn changed_frames_are_corrupted_and_lost_and_never_timed() {
    let path = PathModel { corrupt: 0.05, ..PathModel::default() };
    let (direction, path) = over(path, &offer(), false);
    assert_eq!(direction.sent, path.sent);
    // A changed bit may be one of those that say whose frame it is.
    let changed = direction.sent - direction.received;
    assert!(changed > 10, "seed 3");
    assert_eq!(direction.lost, changed);
    assert!(direction.corrupted + direction.stray <= changed && direction.corrupted > 0);
    assert_eq!(direction.latency.count, direction.received);
}

#[test]
fn a_sender_that_is_stopped_has_sent_less_than_was_intended() {
    let (direction, path) = over(PathModel::default(), &offer(), true);
    assert_eq!(direction.intended, 1_000);
    assert!(direction.sent < 1_000, "{}", direction.sent);
    assert_eq!((direction.sent, direction.lost), (path.sent, 0));
}

#[test]
fn what_is_due_before_the_count_begins_is_sent_and_not_counted() {
    let offer = Offer { discard_ns: 5_000_000, ..offer() };
    let (direction, path) = over(PathModel { loss: 0.05, ..PathModel::default() }, &offer, false);
    assert_eq!(path.sent, 1_000);
    assert_eq!((direction.intended, direction.sent), (500, 500));
    assert_eq!(direction.received + direction.lost, 500);
    assert!(direction.lost > 5 && direction.lost < path.lost, "seed 3: {path:?}");
}

#[test]
fn a_port_that_cannot_send_ends_the_trial_with_its_reason() {
    let offer = offer();
    let load = load(&offer);
    let (near, _far, clock) = MemLink::new(3, PathModel::default(), PathModel::default());
    let near = Ticking { port: near, clock, fails_at: Some(START + 1_000_000) };
    let (sizes, schedule) = (&load.traffic.sizes, load.schedule.clone());
    let generator =
        LoadGenerator::new(load.headers().unwrap(), sizes, schedule, START, load.tag, SECRET);
    let sent = send(Box::new(near), generator, &Shared::default(), &AtomicBool::new(false));
    let error = sent.err().expect("it fails").to_string();
    assert!(error.contains("the cable was cut"), "{error}");
}
