//! From a procedure to a finished measurement: each trial is offered, judged, repeated when
//! the tester was not fit, and saved, whatever it was.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
pub use sonde_meter::trial::NextTrial;
use sonde_meter::trial::{Procedure, add_evidence};
use sonde_results::bench::{BenchRun, Case, Measurement};
use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::trial::{Direction, Invalid, LedgerEntry, Offer, Trial, TrialHealth};
use sonde_run::error::RunError;
use sonde_sys::clock::tai_now;

use super::judge::{disturbed, disturbed_share, hopeless, judge};
use super::plan::RunPlan;
use super::resume;
use super::store::{NotSaved, Store};

/// Whatever offers a load to a device and returns what became of it.
pub trait Rig {
    /// Offers it, and waits for the last frames. Ends early when `stop` is set: then the
    /// outcome is what was done until then.
    ///
    /// # Errors
    /// What no further try can mend: no such port, no privilege.
    fn offer(&mut self, offer: &Offer, stop: &AtomicBool) -> Result<TrialOutcome, RunError>;

    /// What casts doubt on all that this rig measures.
    fn caveats(&self) -> CaveatSet;
}

/// What became of an offer.
#[derive(Clone, Debug, Default)]
pub struct TrialOutcome {
    pub directions: Vec<Direction>,
    /// Every counter that moved.
    pub ledger: Vec<LedgerEntry>,
    /// State of the tester and its host during the trial.
    pub health: TrialHealth,
    /// What the device or its ports did that makes the trial worthless.
    pub failed: Option<String>,
}

/// Is called as trials begin and end.
pub trait ProgressListener {
    fn trial(&mut self, measurement: &str, next: &NextTrial, attempt: u32);
    /// It has ended, and is saved.
    fn ended(&mut self, trial: &Trial);
}

/// The run so far, and where it is saved.
pub struct Book {
    /// What has been measured.
    pub run: BenchRun,
    store: Store,
}

impl Book {
    /// Of a store that was just opened, and what it held.
    pub fn new(store: Store, run: BenchRun) -> Book {
        Book { run, store }
    }

    /// Whether this measurement is finished: not where the tester ended it ([`resume::again`]).
    pub fn has(&self, id: &str) -> bool {
        let run = &self.run;
        run.measurements.iter().any(|m| m.id == id && !resume::again(m, run))
    }

    /// Saves and keeps a finished measurement, instead of one that was tried again.
    pub fn finish(&mut self, measurement: Measurement) -> Result<(), NotSaved> {
        self.store.add_measurement(&measurement)?;
        super::store::keep(&mut self.run.measurements, measurement);
        Ok(())
    }

    /// Saves the run's head.
    pub fn save_head(&self) -> Result<(), NotSaved> {
        self.store.save_head(&self.run)
    }

    /// Saves and keeps a trial.
    pub fn add_trial(&mut self, trial: Trial) -> Result<(), NotSaved> {
        self.store.add_trial(&trial)?;
        self.run.trials.push(trial);
        Ok(())
    }
}

/// How trials are run.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Tries of an invalid trial, the first included; at least 1.
    pub attempts: u32,
    /// Rest before the second try, doubled before each further one.
    pub back_off: Duration,
    /// Rest before each other trial.
    pub rest: Duration,
}

impl From<&RunPlan> for Rules {
    fn from(plan: &RunPlan) -> Rules {
        Rules {
            attempts: plan.attempts.max(1),
            back_off: Duration::from_nanos(plan.back_off.0 as u64),
            rest: Duration::from_nanos(plan.rest.0 as u64),
        }
    }
}

/// Runs `procedure` to its end, or until `stop`. Trials that were run before, in this run
/// or in one that was interrupted, are not run again. The measurement that is returned is
/// not yet saved; its finding is incomplete where `stop` was set.
///
/// # Errors
/// A load that cannot be offered; a run of before that went otherwise; a trial that is not saved.
#[allow(clippy::too_many_arguments)]
pub fn measure(
    id: &str,
    case: Case,
    procedure: &mut dyn Procedure,
    rig: &mut dyn Rig,
    book: &mut Book,
    rules: Rules,
    stop: &AtomicBool,
    progress: &mut dyn ProgressListener,
) -> Result<Measurement, RunError> {
    let start = tai_now().as_nanos();
    let mut doubts = rig.caveats();
    let before = resume::present(id, &book.run);
    replay(id, procedure, &before, rules.attempts)?;
    let mut attempt = 1 + unsettled(&before, rules.attempts);
    let mut numbers: Vec<u64> = before.iter().map(|t| t.number).collect();
    let mut rest = rules.rest;
    while let Some(next) = procedure.next() {
        if stopped_while_waiting(rest, stop) {
            break;
        }
        progress.trial(id, &next, attempt);
        let begin = tai_now().as_nanos();
        let outcome = rig.offer(&next.offer, stop)?;
        let mut invalid = judge(&next.offer, &outcome.directions, &outcome.ledger, &outcome.health);
        if let Some(what) = outcome.failed {
            invalid.insert(0, Invalid::Bed { what });
        }
        // At the last try it is taken as it is, and marked below.
        if invalid.is_empty() && attempt < rules.attempts {
            let (directions, health) = (&outcome.directions, &outcome.health);
            invalid.extend(disturbed(&next.offer, &next.purpose, directions, health));
        }
        if stop.load(Ordering::Relaxed) {
            invalid = vec![Invalid::Interrupted];
        }
        let trial = Trial {
            number: book.run.trials.len() as u64 + 1,
            measurement: id.into(),
            attempt,
            purpose: next.purpose,
            start_ns: begin,
            offer: next.offer,
            directions: outcome.directions,
            ledger: outcome.ledger,
            health: outcome.health,
            invalid,
        };
        progress.ended(&trial);
        let interrupted = is_interrupted(&trial);
        if settles(&trial, rules.attempts) {
            procedure.observe(&trial);
            (attempt, rest) = (1, rules.rest);
        } else {
            attempt += 1;
            rest = rules.rest + rules.back_off * 2u32.saturating_pow(attempt - 2).min(64);
        }
        numbers.push(trial.number);
        book.add_trial(trial)?;
        if interrupted {
            break;
        }
    }
    let own: Vec<&Trial> = book.run.trials.iter().filter(|t| numbers.contains(&t.number)).collect();
    if own.iter().any(|t| !t.valid() && !is_interrupted(t)) {
        doubts.insert(Caveat::TrialsRepeated);
    }
    if own.iter().any(|t| !t.valid() && settles(t, rules.attempts)) {
        doubts.insert(Caveat::TrialsInvalid);
    }
    if own.iter().any(|t| t.offer.burst > 1) {
        doubts.insert(Caveat::BatchedSends);
    }
    if own.iter().any(|t| t.health.clock_error_ns > 0) {
        doubts.insert(Caveat::ClocksDiffer);
    }
    let mut finding = procedure.finding();
    add_evidence(own.iter().copied(), &mut finding);
    let of_delays = own.iter().filter(|t| t.valid() && t.for_latency());
    let share = of_delays.map(|t| disturbed_share(t)).fold(0.0, f64::max);
    if share >= DISTURBED {
        doubts.insert(Caveat::DeviceDisturbed);
        finding.notes.push(format!(
            "For {:.2} % of the time other work, or the host, held the device's processor: \
             percentiles above p{:.1} are the host's as much as the device's.",
            share * 100.0,
            (1.0 - share).max(0.0) * 100.0
        ));
    }
    Ok(Measurement {
        id: id.into(),
        case,
        time_ns: [own.first().map_or(start, |t| t.start_ns), tai_now().as_nanos()],
        finding,
        trials: own.iter().map(|t| t.number).collect(),
        caveats: doubts,
        checks: Vec::new(),
    })
}

/// Whether the procedure gets this try: a valid one, the last one that is allowed, or
/// one that shows that further tries are of no use. A first try may have been disturbed by
/// something that nobody saw.
fn settles(trial: &Trial, attempts: u32) -> bool {
    let useless = trial.attempt > 1 && hopeless(trial);
    !is_interrupted(trial) && (trial.valid() || trial.attempt >= attempts || useless)
}

fn is_interrupted(trial: &Trial) -> bool {
    trial.invalid == [Invalid::Interrupted]
}

/// Gives the procedure the settled trials of before.
fn replay(id: &str, procedure: &mut dyn Procedure, trials: &[&Trial], attempts: u32) -> Result<()> {
    for trial in trials.iter().filter(|t| settles(t, attempts)) {
        match procedure.next() {
            Some(next) if next.offer == trial.offer => procedure.observe(trial),
            _ => bail!(
                "trial {} of {id} is not what this version of Sonde would have asked for; \
                 finish the run with the version that began it, or choose another folder",
                trial.number
            ),
        }
    }
    Ok(())
}

/// Tries of the last offer that did not settle it. An interrupted one does not count.
fn unsettled(trials: &[&Trial], attempts: u32) -> u32 {
    let failed = trials.iter().rev().take_while(|t| !settles(t, attempts));
    failed.filter(|t| !is_interrupted(t)).count() as u32
}

/// Rests in short steps, so that Ctrl-C is heard.
fn stopped_while_waiting(rest: Duration, stop: &AtomicBool) -> bool {
    let end = Instant::now() + rest;
    while !stop.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    true
}

/// A device that is kept from running for more than this share of the time has percentiles of the
/// host's that are read: the 99.9th.
const DISTURBED: f64 = 0.001;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::test_folder::TestFolder;

    use sonde_meter::trial::sim::{DeviceConfig, SimulatedDevice};
    use sonde_meter::trial::{RateSearch, RateSearchConfig};

    /// A simulated device of known capacity, and a tester that can fail.
    pub(crate) struct Simulated {
        device: SimulatedDevice,
        /// Trials, counted from 1, in which the tester drops frames of its own.
        unfit: Vec<u32>,
        /// Trials so far.
        pub(crate) offered: u32,
        /// Frames/s that the tester can offer at most.
        pub(crate) fastest: f64,
        /// Sets `stop` in the middle of this one.
        stop_at: Option<u32>,
        pub(crate) stop: &'static AtomicBool,
    }

    impl Rig for Simulated {
        fn offer(&mut self, offer: &Offer, _: &AtomicBool) -> Result<TrialOutcome, RunError> {
            self.offered += 1;
            if self.stop_at == Some(self.offered) {
                self.stop.store(true, Ordering::Relaxed);
            }
            let next = NextTrial { offer: offer.clone(), purpose: String::new() };
            let trial = self.device.run(&next);
            let own = LedgerEntry {
                side: sonde_results::trial::Side::Tester,
                place: "port a".into(),
                counter: "tx_dropped".into(),
                frames: 5,
            };
            let ledger = self.unfit.contains(&self.offered).then_some(own);
            let mut directions = trial.directions;
            if offer.rate_fps > self.fastest {
                for d in &mut directions {
                    d.sent = (d.sent as f64 * self.fastest / offer.rate_fps) as u64;
                }
            }
            Ok(TrialOutcome {
                directions,
                ledger: ledger.into_iter().collect(),
                health: TrialHealth::default(),
                failed: None,
            })
        }

        fn caveats(&self) -> CaveatSet {
            CaveatSet::default()
        }
    }

    pub(crate) struct Silent;
    impl ProgressListener for Silent {
        fn trial(&mut self, _: &str, _: &NextTrial, _: u32) {}
        fn ended(&mut self, _: &Trial) {}
    }

    pub(crate) fn book_in(folder: &TestFolder) -> Book {
        let mut head = BenchRun::default();
        head.header.schema = sonde_results::bench::BENCH_SCHEMA_VERSION;
        let (store, run) = Store::open(&folder.0, head).unwrap();
        Book::new(store, run)
    }

    const CAPACITY: f64 = 400_000.0;

    fn search() -> RateSearch {
        RateSearch::throughput(RateSearchConfig {
            max_fps: 2e6,
            duration_ns: 1_000_000_000,
            ..RateSearchConfig::default()
        })
    }

    pub(crate) fn simulated(unfit: &[u32], stop_at: Option<u32>) -> Simulated {
        let config = DeviceConfig { capacity_fps: CAPACITY, ..DeviceConfig::default() };
        Simulated {
            device: SimulatedDevice::new(config, 7),
            unfit: unfit.into(),
            offered: 0,
            fastest: f64::INFINITY,
            stop_at,
            stop: Box::leak(Box::default()),
        }
    }

    fn run(folder: &TestFolder, rig: &mut Simulated) -> (Measurement, Book) {
        let mut book = book_in(folder);
        let (back_off, rest) = (Duration::ZERO, Duration::ZERO);
        let rules = Rules { attempts: 3, back_off, rest };
        let (case, stop) = (Case::default(), rig.stop);
        let measurement =
            measure("m", case, &mut search(), rig, &mut book, rules, stop, &mut Silent).unwrap();
        (measurement, book)
    }

    fn throughput(m: &Measurement) -> f64 {
        m.finding.value("throughput").unwrap().value
    }

    #[test]
    fn what_a_tester_lost_is_measured_again_and_kept_apart() {
        let folder = TestFolder::new("runner-repeat");
        let (clean, _) = run(&folder, &mut simulated(&[], None));
        let folder = TestFolder::new("runner-repeat-unfit");
        let (found, book) = run(&folder, &mut simulated(&[1, 4, 5], None));
        assert!((throughput(&found) / CAPACITY - 1.0).abs() < 0.01, "{found:?}");
        assert_eq!(throughput(&found), throughput(&clean));
        assert!(found.caveats.contains(Caveat::TrialsRepeated));
        assert!(!found.caveats.contains(Caveat::TrialsInvalid));
        assert_eq!(found.trials.len(), clean.trials.len() + 3);
        let attempts: Vec<u32> = book.run.trials.iter().take(6).map(|t| t.attempt).collect();
        assert_eq!(attempts, [1, 2, 1, 1, 2, 3]);
    }

    #[test]
    fn a_load_that_is_far_too_great_for_the_tester_is_tried_twice() {
        let folder = TestFolder::new("runner-hopeless");
        let mut rig = Simulated { fastest: 1e6, ..simulated(&[], None) };
        let (found, book) = run(&folder, &mut rig);
        let failed: Vec<&Trial> = book.run.trials.iter().filter(|t| !t.valid()).collect();
        assert!(!failed.is_empty(), "{found:?}");
        assert!(failed.iter().zip([1, 2].iter().cycle()).all(|(t, n)| t.attempt == *n));
        assert!((throughput(&found) / CAPACITY - 1.0).abs() < 0.01, "{found:?}");
        assert!(found.caveats.contains(Caveat::TrialsInvalid));
        // A second start takes it for settled, too.
        drop(book);
        let mut rig = Simulated { fastest: 1e6, ..simulated(&[], None) };
        let (again, _) = run(&folder, &mut rig);
        assert_eq!((rig.offered, throughput(&again)), (0, throughput(&found)));
    }

    #[test]
    fn a_load_without_a_valid_trial_is_said_so() {
        let folder = TestFolder::new("runner-invalid");
        let (found, _) = run(&folder, &mut simulated(&[1, 2, 3], None));
        assert!(found.caveats.contains(Caveat::TrialsInvalid));
    }

    /// What the tester ended is tried again at the next start, and sound trials are kept. What the
    /// device decided is not tried again, nor what a tester is too slow for.
    #[test]
    fn what_an_unfit_tester_ended_is_tried_again_at_the_next_start() {
        let every: Vec<u32> = (1..200).collect();
        let late: Vec<u32> = (3..200).collect();
        for (unfit, found_nothing) in [(every, true), (late, true), (vec![5, 6, 7], false)] {
            let folder = TestFolder::new("runner-again");
            let (found, mut book) = run(&folder, &mut simulated(&unfit, None));
            assert_eq!(found.finding.values.iter().all(|q| q.name != "throughput"), found_nothing);
            book.finish(found.clone()).unwrap();
            assert!(!book.has("m"), "{found:?}");
            drop(book);
            // The next start, at which all is well, and interrupted once.
            let mut rig = simulated(&[], Some(2));
            let (_, book) = run(&folder, &mut rig);
            assert!(!book.has("m"));
            drop(book);
            let (again, mut book) = run(&folder, &mut simulated(&[], None));
            assert!((throughput(&again) / CAPACITY - 1.0).abs() < 0.01, "{again:?}");
            assert!(!again.finding.value("throughput").unwrap().tester_limited, "{again:?}");
            // The sound trials before the first that was given up.
            let kept = unfit[0] as usize - 1;
            assert_eq!(again.trials[..kept], found.trials[..kept]);
            assert!(again.trials[kept..].iter().all(|n| !found.trials.contains(n)));
            book.finish(again.clone()).unwrap();
            assert!(book.has("m") && book.run.measurements.len() == 1);
            drop(book);
            let book = book_in(&folder);
            assert!(book.has("m"));
            assert_eq!(book.run.measurements, [again]);
        }
        let folder = TestFolder::new("runner-not-again");
        for mut rig in [simulated(&[], None), Simulated { fastest: 1e6, ..simulated(&[], None) }] {
            let (found, mut book) = run(&folder, &mut rig);
            book.finish(found).unwrap();
            assert!(book.has("m"));
            drop(book);
            let _ = std::fs::remove_dir_all(&folder.0);
        }
    }

    #[test]
    fn an_agent_that_was_lost_is_waited_for_at_the_next_start() {
        struct Lost(Simulated, u32);
        impl Rig for Lost {
            fn offer(
                &mut self,
                offer: &Offer,
                stop: &AtomicBool,
            ) -> Result<TrialOutcome, RunError> {
                let outcome = self.0.offer(offer, stop)?;
                let failed = (self.0.offered > self.1).then(|| "agent x is lost".to_owned());
                Ok(TrialOutcome { failed, ..outcome })
            }
            fn caveats(&self) -> CaveatSet {
                CaveatSet::default()
            }
        }
        let folder = TestFolder::new("runner-agent");
        let mut book = book_in(&folder);
        let rules = Rules { attempts: 2, back_off: Duration::ZERO, rest: Duration::ZERO };
        let (mut lost, case) = (Lost(simulated(&[], None), 6), Case::default());
        let stop = lost.0.stop;
        let found =
            measure("m", case, &mut search(), &mut lost, &mut book, rules, stop, &mut Silent);
        let found = found.unwrap();
        book.finish(found).unwrap();
        assert!(!book.has("m"));
        drop(book);
        let (again, _) = run(&folder, &mut simulated(&[], None));
        assert!((throughput(&again) / CAPACITY - 1.0).abs() < 0.01, "{again:?}");
    }

    #[test]
    fn an_interrupted_run_goes_on_and_finds_the_same() {
        let folder = TestFolder::new("runner-whole");
        let (whole, book) = run(&folder, &mut simulated(&[2], None));
        let offers: Vec<Offer> = book.run.trials.iter().map(|t| t.offer.clone()).collect();
        for stop_at in 1..=whole.trials.len() as u32 {
            let folder = TestFolder::new("runner-stopped");
            let (partial, book) = run(&folder, &mut simulated(&[2], Some(stop_at)));
            assert!(!partial.finding.complete);
            assert_eq!(book.run.trials.last().unwrap().invalid, [Invalid::Interrupted]);
            drop(book);
            // Its second trial was the unfit one, if it came to that.
            let unfit = if stop_at > 2 { vec![] } else { vec![3 - stop_at] };
            let (found, book) = run(&folder, &mut simulated(&unfit, None));
            assert_eq!(throughput(&found), throughput(&whole), "stopped at {stop_at}");
            let again = book.run.trials.iter().filter(|t| t.invalid != [Invalid::Interrupted]);
            assert_eq!(again.map(|t| t.offer.clone()).collect::<Vec<_>>(), offers);
        }
    }
}
