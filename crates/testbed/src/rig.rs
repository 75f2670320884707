//! A bed with a device, and a tester at its ports: what the runner offers loads to.

mod events;
mod external;
mod host_facts;
mod ledger;
mod made;
mod traffic;
mod warm_up;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use sonde_lab::device::{BedSpec, LabBed, Placement};
use sonde_meter::trial::{NextTrial, TesterCeiling};
use sonde_results::bench::{BedPort, BenchRun};
use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::trial::{Offer, Pattern, Trial, TrialHealth};
use sonde_results::units::WIRE_OCTETS;
use sonde_run::error::RunError;
use sonde_run::thread::{join_scoped, spawn_scoped};
use sonde_sys::clock::tai_now;
use sonde_sys::host::InterfaceFacts;
use sonde_wire::Time;

use self::events::Events;
use self::external::External;
use self::host_facts::host_facts;
use self::ledger::Ledger;
use self::made::TestBed;
use self::traffic::{RigPort, ways};
use self::warm_up::Warmed;
use super::cases::{DeviceKind, ExpandedPlan, PlannedCase, free_cpus};
use super::device_health::DeviceWatch;
use super::health::HealthWatch;
use super::layers::{self, Applied};
use super::networks::refuse_others_addresses;
use super::plan::{BenchPlan, EngineName};
use super::runner::{Book, ProgressListener, Rig, Rules, TrialOutcome, measure};
use super::tester::{LoadEngine, Tester, TesterPort, TesterSpec};
use crate::agent::remote::Remote;
use crate::agent::rig::AgentRig;

/// A device, in the state that was asked for, between two ports.
pub struct Bench {
    made: TestBed,
    ports: [RigPort; 2],
    /// The tester's third port, which sees what the device floods.
    monitor: Option<RigPort>,
    applied: Option<Applied>,
    /// How the last tester sent and received.
    mode: String,
    /// What a reader of its measurements must know.
    pub notes: Vec<String>,
}

impl Bench {
    /// Makes the bed of a case and brings the device to its state. `sonde` is the binary of that
    /// name, which is a device of some laboratories.
    pub fn build(
        expanded: &ExpandedPlan,
        planned: &PlannedCase,
        sonde: Option<PathBuf>,
    ) -> Result<Bench> {
        let device = &expanded.devices[planned.device];
        let condition = &expanded.conditions[planned.condition];
        let (made, ports, monitor) = match expanded.bed_spec(device) {
            Some(mut spec) => {
                layers::build(&mut spec, &planned.case.layers)?;
                let bed = LabBed::build(&BedSpec { sonde, ..spec })?;
                let ports = traffic::lab_ports(bed.info())?;
                let monitor = traffic::lab_monitor(bed.info());
                (TestBed::Lab(Box::new(bed)), ports, monitor)
            }
            None => {
                let remote = Remote::of(&expanded.plan, &device.plan)?;
                let there = External::start(device, condition, remote)?;
                let ports = there.ports(&device.plan)?;
                let monitor = there.monitor(&device.plan)?;
                (TestBed::There(there), ports, monitor)
            }
        };
        let host = expanded.plan.bed.host_layers;
        let (applied, notes) = match (&made, &planned.case.layers[..]) {
            (_, []) => (None, Vec::new()),
            (TestBed::Lab(bed), layers) => {
                let (applied, idle) = Applied::apply(bed, layers, host)?;
                (Some(applied), idle)
            }
            (TestBed::There(_), _) => {
                bail!("layers are for devices of the lab; give the condition a command")
            }
        };
        if device.kind == DeviceKind::External {
            let allowed = &expanded.plan.bed.outside_benchmark_range.0;
            refuse_others_addresses(ports.iter().flat_map(RigPort::networks), allowed)
                .map_err(anyhow::Error::msg)?;
        }
        Ok(Bench { made, ports, monitor, applied, mode: String::new(), notes })
    }

    /// Adds what the bed is to the run.
    pub fn describe(&self, run: &mut BenchRun) {
        let (diagram, facts) = match &self.made {
            TestBed::Lab(bed) => (bed.info().diagram(), bed.facts().unwrap_or_default()),
            TestBed::There(there) => (there.diagram(), there.facts()),
        };
        for line in diagram {
            if !run.bed.diagram.contains(&line) {
                run.bed.diagram.push(line);
            }
        }
        run.bed.facts.extend(facts);
        run.bed.facts.extend(host_facts());
        if run.bed.ports.is_empty() {
            run.bed.ports = self.ports.iter().chain(&self.monitor).map(|p| self.port(p)).collect();
        }
    }

    /// Adds how frames were sent and received, once a tester was there.
    pub fn describe_mode(&self, run: &mut BenchRun) {
        for port in run.bed.ports.iter_mut().filter(|p| p.mode.is_empty()) {
            port.mode.clone_from(&self.mode);
        }
    }

    /// A tester for a case at this bed's ports.
    pub fn rig<'a>(
        &'a mut self,
        expanded: &ExpandedPlan,
        planned: &PlannedCase,
    ) -> Result<DeviceRig<'a>> {
        let engine = match expanded.plan.bed.engine {
            EngineName::Xdp => LoadEngine::Xdp,
            EngineName::AfXdp => LoadEngine::AfXdp,
            EngineName::AfPacket => LoadEngine::AfPacket,
        };
        let cpus = generator_cpus(expanded, planned);
        let port = |(i, port): (usize, &RigPort)| TesterPort {
            name: port.name.clone(),
            interface: port.interface.clone(),
            netns: port.netns.clone(),
            cpu: cpus.get(i).copied(),
        };
        let ports = self.ports.iter().chain(&self.monitor);
        let spec = TesterSpec {
            engine,
            ports: ports.enumerate().map(port).collect(),
            ways: Vec::new(),
            drain: Duration::from_nanos(expanded.plan.bed.drain.0.max(0) as u64),
        };
        let mut rig = DeviceRig {
            tester: None,
            pattern: Pattern::Plan,
            spec,
            planned: planned.clone(),
            plan: expanded.plan.clone(),
            bench: self,
        };
        rig.aim(Pattern::Plan)?;
        rig.bench.learn()?;
        Ok(rig)
    }

    /// Takes the device's state back and the bed down. Dropping does so, too, but only logs
    /// what went wrong.
    pub fn end(mut self) -> Result<()> {
        self.revert()
    }

    fn revert(&mut self) -> Result<()> {
        match (self.applied.take(), &self.made) {
            (Some(mut applied), TestBed::Lab(bed)) => applied
                .revert(bed)
                .context("cannot take back a layer; 'sonde lab tune revert' tries again"),
            _ => Ok(()),
        }
    }

    /// Learning frames (RFC 2544, section 23): each side is heard once by all in between.
    fn learn(&self) -> Result<()> {
        let TestBed::Lab(bed) = &self.made else { return Ok(()) };
        events::learn(bed)
    }

    fn port(&self, port: &RigPort) -> BedPort {
        let facts = sonde_sys::netns::inside(port.netns.as_deref(), || {
            InterfaceFacts::read(&port.interface)
        });
        let driver = facts.ok().and_then(Result::ok).and_then(|f| f.driver).unwrap_or_default();
        BedPort {
            name: port.name.clone(),
            interface: port.interface.clone(),
            driver,
            speed_bps: port.speed_bps,
            mode: self.mode.clone(),
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Err(e) = self.revert() {
            tracing::warn!("{e:#}");
        }
    }
}

/// A tester on this host, or one whose ports are on others.
enum AnyTester {
    Here(Box<Tester>),
    Apart(Box<AgentRig>),
}

/// A tester at a bed.
pub struct DeviceRig<'a> {
    bench: &'a mut Bench,
    tester: Option<AnyTester>,
    /// To whom its frames go at present.
    pattern: Pattern,
    spec: TesterSpec,
    planned: PlannedCase,
    plan: BenchPlan,
}

impl DeviceRig<'_> {
    /// Has frames go to others than before: a tester is opened with its directions.
    fn aim(&mut self, pattern: Pattern) -> Result<()> {
        if self.tester.is_some() && self.pattern == pattern {
            return Ok(());
        }
        self.tester = None;
        let monitor = self.bench.monitor.as_ref();
        let (ways, copies) = ways(&self.bench.ports, monitor, &self.planned, &self.plan, pattern)?;
        self.spec.ways = ways;
        let tester = match &self.bench.made {
            TestBed::There(External { remote: Some(remote), .. }) => {
                let device = self.plan.devices.iter().map(toml::Spanned::get_ref);
                let device = device.into_iter().find(|d| d.name == self.planned.case.device);
                let device = device.context("the device is the plan's")?;
                let names: Vec<String> = self.spec.ports.iter().map(|p| p.name.clone()).collect();
                self.bench.mode = remote.mode();
                let ways = self.spec.ways.clone();
                let drain = self.spec.drain;
                AnyTester::Apart(Box::new(remote.rig(device, &names, ways, copies, drain)?))
            }
            _ => {
                let tester = Tester::open_with(&self.spec, &copies)?;
                self.bench.mode = tester.mode().to_owned();
                AnyTester::Here(Box::new(tester))
            }
        };
        if let TestBed::Lab(bed) = &mut self.bench.made {
            // The kernel replaced its receive threads when the tester attached its programs.
            bed.settle()?;
        }
        (self.tester, self.pattern) = (Some(tester), pattern);
        Ok(())
    }
}

impl Rig for DeviceRig<'_> {
    fn offer(&mut self, offer: &Offer, stop: &AtomicBool) -> Result<TrialOutcome, RunError> {
        self.aim(offer.pattern)?;
        let flows = offer.flows.unwrap_or(self.planned.case.flows);
        let warmed = Warmed::new(offer, self.plan.run.warm_up.0, flows);
        let offer = &warmed.offer;
        let mut events = Events::of(offer);
        events.before(&mut self.bench.made)?;
        if let TestBed::Lab(bed) = &self.bench.made
            && bed.info().spec.device.is_bridge()
            && matches!(offer.pattern, Pattern::Plan | Pattern::Multicast { .. })
        {
            // Before each trial (RFC 2889, section 3): what a bridge knows grows old.
            events::learn(bed)?;
        }
        let ledger = Ledger::begin(&self.bench.made)?;
        let watch = HealthWatch::start();
        let device = match &self.bench.made {
            TestBed::Lab(bed) => DeviceWatch::start(bed.info()),
            TestBed::There(_) => None,
        };
        let tester = self.tester.as_mut().context("a tester was opened")?;
        let (outcome, done) = std::thread::scope(|scope| {
            let made = &mut self.bench.made;
            let (begin, begins) = mpsc::channel();
            let events =
                spawn_scoped(scope, "sonde-event", move || events.during(made, &begins, stop));
            // Nobody listens any more where nothing is to be done.
            let announce = move |start: Time| _ = begin.send(start);
            let outcome = match tester {
                AnyTester::Here(tester) => {
                    announce(tai_now());
                    tester.run(offer, stop, &mut |_| {}).map(|o| TrialOutcome {
                        directions: o.directions,
                        ledger: o.counters,
                        health: TrialHealth::default(),
                        failed: o.down,
                    })
                }
                AnyTester::Apart(rig) => {
                    Ok(rig.offer_from(offer, stop, |ns| announce(Time::from_nanos(ns))))
                }
            };
            (outcome, join_scoped(events).map_err(anyhow::Error::from).and_then(|done| done))
        });
        let own = TrialHealth { device: device.map(|d| Box::new(d.end())), ..watch.end() };
        let mut outcome = outcome?;
        outcome.directions.iter_mut().for_each(|d| warmed.renumber(d));
        // What this host does is of no weight where it only controls.
        let health = match self.tester {
            Some(AnyTester::Apart(_)) => outcome.health,
            _ => own,
        };
        let mut entries = ledger.end(&self.bench.made)?;
        entries.extend(outcome.ledger);
        Ok(TrialOutcome {
            directions: outcome.directions,
            ledger: entries,
            health,
            failed: outcome.failed.or(done.err().map(|e| format!("{e:#}"))),
        })
    }

    fn caveats(&self) -> CaveatSet {
        let mut caveats = match &self.tester {
            Some(AnyTester::Apart(rig)) => rig.caveats(),
            _ => CaveatSet::default(),
        };
        if let TestBed::Lab(bed) = &self.bench.made {
            match bed.info().placement {
                Placement::None => {}
                Placement::Inline => caveats.insert(Caveat::DeviceInline),
                Placement::OwnCpu { shared, .. } if !shared => {}
                _ => caveats.insert(Caveat::ProcessorsShared),
            }
        }
        caveats
    }
}

/// The greatest load of each case: the plan's, or the line's, or what the tester can offer at
/// most through this very device, found by trying.
#[derive(Default)]
pub struct Ceilings {
    known: Vec<(String, f64)>,
}

impl Ceilings {
    /// Frames/s in each direction, at most what the `line` carries. The trials that find it are
    /// kept with the others.
    ///
    /// # Errors
    /// Those of [`measure`]; a tester that cannot send.
    #[allow(clippy::too_many_arguments)]
    pub fn of(
        &mut self,
        expanded: &ExpandedPlan,
        planned: &PlannedCase,
        line: f64,
        rig: &mut dyn Rig,
        book: &mut Book,
        stop: &AtomicBool,
        progress: &mut dyn ProgressListener,
    ) -> Result<f64, RunError> {
        if let Some(max) = expanded.greatest_load() {
            return Ok(max);
        }
        if !planned.procedure.needs_greatest_load() {
            return Ok(line.min(ANY_FPS));
        }
        let case = &planned.case;
        let ip = &case.sweep["ip"];
        let parts = ["ceiling", &case.device, &case.condition, &case.frame, &case.direction, ip];
        let id = format!("{}/{}", parts.join("/"), case.flows);
        if let Some((_, max)) = self.known.iter().find(|(known, _)| *known == id) {
            return Ok(max.min(line));
        }
        let mut procedure = TesterCeiling::new(line);
        // It repeats its trials itself.
        let rules = Rules { attempts: 1, back_off: Duration::ZERO, rest: Duration::ZERO };
        let case = planned.case.clone();
        let mut quietly = Quietly(progress);
        measure(&id, case, &mut procedure, rig, book, rules, stop, &mut quietly)?;
        let max = procedure.load();
        if stop.load(Ordering::Relaxed) {
            return Ok(line.min(ANY_FPS));
        }
        if max <= 0.0 {
            return Err(RunError::Host(anyhow!(
                "the tester cannot send a frame; 'sonde doctor' may show why"
            )));
        }
        self.known.push((id, max));
        Ok(max)
    }
}

/// Passes on what is tried, and not what of it was invalid: that is how this search ends.
struct Quietly<'a>(&'a mut dyn ProgressListener);

impl ProgressListener for Quietly<'_> {
    fn trial(&mut self, measurement: &str, next: &NextTrial, attempt: u32) {
        self.0.trial(measurement, next, attempt);
    }

    fn ended(&mut self, _: &Trial) {}
}

impl DeviceRig<'_> {
    /// What the slower of the ports can carry, frames/s; infinite without a nominal speed.
    pub fn line_rate(&self, frame_bytes: f64) -> f64 {
        let speeds = self.bench.ports.iter().filter_map(|p| p.speed_bps);
        let on_wire = frame_bytes + WIRE_OCTETS as f64;
        speeds.map(|bps| bps as f64 / 8.0 / on_wire).fold(f64::INFINITY, f64::min)
    }
}

/// The plan's, or one for each generator that is not the device's; where there are too few,
/// the kernel's choice.
fn generator_cpus(expanded: &ExpandedPlan, planned: &PlannedCase) -> Vec<usize> {
    let own = expanded.devices[planned.device].plan.cpu;
    let generators = 1 + usize::from(planned.bidirectional);
    pick_cpus(&expanded.plan.bed.cpus, own.map(free_cpus), generators)
}

/// `free` are the processors beside the device's own, where it has one.
fn pick_cpus(
    named: &[usize],
    free: Option<impl Iterator<Item = usize>>,
    generators: usize,
) -> Vec<usize> {
    let (true, Some(free)) = (named.is_empty(), free) else { return named.to_vec() };
    let free: Vec<usize> = free.take(generators).collect();
    if free.len() == generators { free } else { Vec::new() }
}

/// A greatest load that nothing depends on: 10 Gbit/s in frames of 64 octets.
const ANY_FPS: f64 = 14_880_952.0;

#[cfg(test)]
mod tests {
    use super::super::expand::expand;
    use super::super::plan::TomlText;
    use super::super::runner::tests::{Silent, Simulated, book_in, simulated};
    use super::*;
    use crate::test_folder::TestFolder;

    const HEAD: &str =
        "title = 'x'\n[[device]]\nname = 'r'\nkind = 'router'\n[run]\nloop = false\n";

    fn plan(rest: &str) -> ExpandedPlan {
        let text = format!("{HEAD}{rest}");
        expand(&TomlText { file: "p.toml".into(), text }).unwrap()
    }

    /// The greatest load of the case of this index.
    fn of(
        ceilings: &mut Ceilings,
        expanded: &ExpandedPlan,
        case: usize,
        line: f64,
        rig: &mut Simulated,
        book: &mut Book,
    ) -> Result<f64, RunError> {
        let stop = rig.stop;
        ceilings.of(expanded, &expanded.cases[case], line, rig, book, stop, &mut Silent)
    }

    #[test]
    fn the_greatest_load_is_searched_once_for_each_frame_size() {
        let expanded = plan("[workload]\nframes = [64, 512]\n[[procedure]]\nkind = 'throughput'\n");
        let folder = TestFolder::new("rig-ceilings");
        let mut book = book_in(&folder);
        let mut rig = simulated(&[], None);
        rig.fastest = 1e6;
        let mut ceilings = Ceilings::default();
        let mut of = |case, line| {
            let before = rig.offered;
            let load = of(&mut ceilings, &expanded, case, line, &mut rig, &mut book).unwrap();
            (load, rig.offered > before)
        };
        let (first, searched) = of(0, f64::INFINITY);
        assert!(searched && first > 0.5e6 && first < 1e6, "{first}");
        assert_eq!(of(0, f64::INFINITY), (first, false));
        assert!(of(1, f64::INFINITY).1);
        // What the line carries is never exceeded, and not forgotten for another one.
        assert_eq!((of(0, 1e5), of(0, f64::INFINITY)), ((1e5, false), (first, false)));
        let kept = book.run.trials.len();
        assert_eq!(kept, rig.offered as usize);
    }

    #[test]
    fn what_the_plan_or_the_procedure_settles_is_not_searched() {
        let folder = TestFolder::new("rig-ceilings-known");
        let (mut book, mut rig) = (book_in(&folder), simulated(&[], None));
        let mut of = |expanded: &ExpandedPlan, line| {
            let load =
                of(&mut Ceilings::default(), expanded, 0, line, &mut rig, &mut book).unwrap();
            assert_eq!(rig.offered, 0);
            load
        };
        let given = plan("[bed]\nmax_rate = '2M'\n[[procedure]]\nkind = 'throughput'\n");
        assert_eq!(of(&given, f64::INFINITY), 2e6);
        let fixed = plan("[[procedure]]\nkind = 'fixed_load'\nloads = ['5k']\n");
        assert_eq!([of(&fixed, f64::INFINITY), of(&fixed, 1e6)], [ANY_FPS, 1e6]);
    }

    #[test]
    fn a_tester_that_cannot_send_is_an_error_with_the_next_step() {
        let expanded = plan("[[procedure]]\nkind = 'throughput'\n");
        let folder = TestFolder::new("rig-ceilings-none");
        let mut rig = simulated(&[], None);
        rig.fastest = 0.0;
        let (mut ceilings, mut book) = (Ceilings::default(), book_in(&folder));
        let error = of(&mut ceilings, &expanded, 0, 1e6, &mut rig, &mut book).unwrap_err();
        assert!(error.to_string().contains("sonde doctor"), "{error}");
    }

    #[test]
    fn generators_run_beside_the_device_or_anywhere() {
        let free = |cpus: &'static [usize]| Some(cpus.iter().copied());
        assert_eq!(pick_cpus(&[], free(&[0, 2, 3]), 2), [0, 2]);
        // Too few: one of two generators on the device's processor would slow the device.
        assert_eq!(pick_cpus(&[], free(&[0]), 2), [0; 0]);
        assert_eq!(pick_cpus(&[5], free(&[0, 2, 3]), 2), [5]);
        assert_eq!(pick_cpus(&[], None::<std::iter::Empty<usize>>, 1), [0; 0]);
    }
}
