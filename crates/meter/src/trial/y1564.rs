//! Service activation (ITU-T Y.1564): does a device keep the service level agreed upon? First its
//! configuration, in steps up to the committed and the excess information rate and beyond (section
//! 8.1). Then its performance over time (section 8.2).
//!
//! Rates are frames a second here: whoever reads the plan turns bits into frames.

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::hist::supports;
use sonde_results::procedure::purpose::SERVICE_PERFORMANCE;
use sonde_results::trial::{Direction, Offer};

use super::delays::TrialDelays;
use super::script::{Script, scripted};
use super::values::{SECOND, labelled};
use super::{NextTrial, Procedure};

/// Service acceptance criteria; `None`: not agreed upon.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sla {
    /// Greatest frame loss ratio, 0 to 1.
    pub flr: f64,
    /// Greatest mean frame transfer delay, ns.
    pub ftd_ns: Option<f64>,
    /// Greatest frame delay variation, ns.
    pub fdv_ns: Option<f64>,
    /// Least availability, 0 to 1.
    pub availability: Option<f64>,
}

/// Rates of the configuration test.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigurationTestConfig {
    /// Committed information rate, frames/s in each direction.
    pub cir_fps: f64,
    /// Excess information rate, frames/s; 0: none.
    pub eir_fps: f64,
    /// Steps on the way to the committed rate, percent of it.
    pub steps_percent: Vec<u32>,
    /// Whether the device polices: then it is also offered more than both rates.
    pub policing: bool,
    /// How far above both rates a policer may let pass, in units of them (burst sizes).
    pub tolerance: f64,
    /// Duration of a step, ns (1 to 60 s).
    pub step_ns: i64,
    pub sla: Sla,
}

impl Default for ConfigurationTestConfig {
    fn default() -> Self {
        ConfigurationTestConfig {
            cir_fps: 1000.0,
            eir_fps: 0.0,
            steps_percent: vec![25, 50, 75, 100],
            policing: false,
            tolerance: 0.01,
            step_ns: 60 * SECOND,
            sla: Sla::default(),
        }
    }
}

/// What a trial showed of a service.
#[derive(Clone, Debug)]
struct Service {
    rate_fps: f64,
    /// What was offered in truth, as a share of what was to be offered, at most 1.
    pace: f64,
    flr: f64,
    ftd_ns: Option<f64>,
    fdv_ns: Option<f64>,
    samples: u64,
}

impl Service {
    fn of(trial: &Trial) -> Service {
        let all = TrialDelays::of(trial).all();
        let enough = supports(all.latency.count, 0.999);
        let range = all.latency.max().zip(all.latency.min()).map(|(a, b)| (a - b) as f64);
        Service {
            rate_fps: trial.forwarding_rate_fps(),
            pace: (trial.offered_fps() / trial.offer.rate_fps).min(1.0),
            flr: trial.loss_ratio(),
            ftd_ns: all.latency.mean(),
            fdv_ns: if enough { all.pdv_ns() } else { range },
            samples: all.latency.count,
        }
    }

    fn add_to(&self, finding: &mut Finding, label: &str) {
        let mut add = |name: &str, unit: &str, value: Option<f64>| {
            if let Some(value) = value {
                let name = labelled(name, label);
                finding.values.push(Quantity::new(name, unit, value, self.samples));
            }
        };
        add("information_rate", "frames/s", Some(self.rate_fps));
        add("frame_loss_ratio", "ratio", Some(self.flr));
        add("frame_transfer_delay", "ns", self.ftd_ns);
        add("frame_delay_variation", "ns", self.fdv_ns);
    }

    /// What breaks the agreement, but for the loss.
    fn late(&self, sla: &Sla) -> Option<String> {
        let beyond = |value: Option<f64>, limit: Option<f64>, what: &str| match limit {
            Some(limit) if value.is_none_or(|v| v > limit) => Some(format!(
                "{what} {} ns, above {limit:.0} ns",
                value.map_or("unknown".into(), |v| format!("{v:.0}"))
            )),
            _ => None,
        };
        beyond(self.ftd_ns, sla.ftd_ns, "frame transfer delay")
            .or_else(|| beyond(self.fdv_ns, sla.fdv_ns, "frame delay variation"))
    }

    fn breach(&self, sla: &Sla) -> Option<String> {
        (self.flr > sla.flr)
            .then(|| format!("frame loss ratio {:.3e}, above {:.3e}", self.flr, sla.flr))
            .or_else(|| self.late(sla))
    }
}

/// What a step asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// Up to the committed rate: the agreement holds for every frame.
    Committed(u32),
    /// Both rates: the committed one has to pass, the rest may.
    Excess,
    /// More than both: no more than both may pass.
    Policing,
}

/// The service configuration test under way.
#[derive(Clone, Debug)]
pub struct ConfigurationTest {
    config: ConfigurationTestConfig,
    steps: Vec<Step>,
    script: Script<Service>,
}

impl ConfigurationTest {
    /// All steps are run, whichever fail: what fails is what the reader wants to know.
    pub fn new(config: ConfigurationTestConfig) -> ConfigurationTest {
        let mut steps: Vec<Step> =
            config.steps_percent.iter().map(|&p| Step::Committed(p.clamp(1, 100))).collect();
        let (cir, eir) = (config.cir_fps, config.eir_fps.max(0.0));
        if eir > 0.0 {
            steps.push(Step::Excess);
        }
        if config.policing {
            steps.push(Step::Policing);
        }
        let next = |step: &Step| {
            let (rate, purpose) = match step {
                Step::Committed(p) => (cir * f64::from(*p) / 100.0, format!("{p} % of the CIR")),
                Step::Excess => (cir + eir, "CIR and EIR".into()),
                // A quarter above the larger part of both, so that it is above the total.
                Step::Policing if eir >= 0.2 * cir => (cir + 1.25 * eir, "policing".into()),
                Step::Policing => (1.25 * cir + eir, "policing".into()),
            };
            NextTrial { offer: Offer::steady(rate, config.step_ns), purpose }
        };
        let script = Script::new(steps.iter().map(next).collect());
        ConfigurationTest { config, steps, script }
    }

    fn verdict(&self, step: Step, service: &Service) -> Option<String> {
        let config = &self.config;
        if let Step::Committed(_) = step {
            return service.breach(&config.sla);
        }
        // What the tester did not offer the device could not let pass.
        let committed = config.cir_fps * service.pace * (1.0 - config.sla.flr);
        let most = (config.cir_fps + config.eir_fps.max(0.0)) * (1.0 + config.tolerance);
        // Frame rates over a trial are exact to about a frame in so many.
        if service.rate_fps < committed * (1.0 - 1e-4) {
            return Some(format!("{:.0} frames/s passed, less than the CIR", service.rate_fps));
        }
        (step == Step::Policing && service.rate_fps > most)
            .then(|| format!("{:.0} frames/s passed, more than CIR and EIR", service.rate_fps))
    }
}

impl Step {
    fn label(self) -> String {
        match self {
            Step::Committed(percent) => percent.to_string(),
            Step::Excess => "eir".into(),
            Step::Policing => "policing".into(),
        }
    }
}

impl Procedure for ConfigurationTest {
    scripted!();

    fn observe(&mut self, trial: &Trial) {
        self.script.observe(trial, Service::of);
    }

    fn finding(&self) -> Finding {
        let mut finding = self.script.finding();
        let mut passed = 0u32;
        let mut breaches = Vec::new();
        for (i, service) in self.script.seen() {
            let step = self.steps[i];
            match self.verdict(step, service) {
                Some(breach) => breaches.push(format!("Step {}: {breach}.", step.label())),
                None => passed += 1,
            }
            service.add_to(&mut finding, &step.label());
        }
        let all = self.steps.len() as u32;
        if self.script.seen().next().is_some() {
            let share = f64::from(passed) / f64::from(all.max(1));
            finding.values.insert(0, Quantity::new("steps_passed", "ratio", share, all.into()));
        }
        finding.failures.extend(breaches);
        // A step that could not be tried is neither kept nor broken.
        finding.complete &= self.script.outcomes().iter().all(Option::is_some);
        finding
    }
}

/// The service performance test.
#[derive(Clone, Debug, PartialEq)]
pub struct PerformanceTestConfig {
    /// Committed information rate, frames/s in each direction.
    pub cir_fps: f64,
    /// Duration, ns (15 min, 2 h or 24 h).
    pub duration_ns: i64,
    pub sla: Sla,
}

impl Default for PerformanceTestConfig {
    fn default() -> Self {
        let duration_ns = 15 * 60 * SECOND;
        PerformanceTestConfig { cir_fps: 1000.0, duration_ns, sla: Sla::default() }
    }
}

/// The service performance test under way.
#[derive(Clone, Debug)]
pub struct PerformanceTest {
    config: PerformanceTestConfig,
    /// The service, and its availability.
    script: Script<(Service, Option<f64>)>,
}

impl PerformanceTest {
    pub fn new(config: PerformanceTestConfig) -> PerformanceTest {
        let offer = Offer::steady(config.cir_fps, config.duration_ns);
        let next = NextTrial { offer, purpose: SERVICE_PERFORMANCE.into() };
        PerformanceTest { config, script: Script::new(vec![next]) }
    }
}

/// A point of a series that has lost more than this share is severely errored (Y.1563).
const SEVERE_LOSS: f64 = 0.5;
/// So long severely errored, and the service is unavailable from its first point on; so
/// long not, and it is available again.
const UNAVAILABLE_AFTER_NS: i64 = 10 * SECOND;

/// The share of the time for which a direction was available (Y.1563).
fn availability(direction: &Direction) -> Option<f64> {
    let severe = |p: &sonde_results::trial::SeriesPoint| {
        let frames = p.received + p.lost;
        // Where nothing arrived and no loss is reported, the frames are lost all the same.
        frames == 0 || p.lost as f64 > SEVERE_LOSS * frames as f64
    };
    let (mut available, mut since) = (true, 0usize);
    let mut states: Vec<bool> = Vec::new();
    for point in &direction.series {
        states.push(available);
        if severe(point) != available {
            since = 0;
            continue;
        }
        since += 1;
        let needed = (UNAVAILABLE_AFTER_NS + point.length_ns - 1) / point.length_ns.max(1);
        if since as i64 >= needed {
            // The change counts from the first of these points on.
            available = !available;
            let from = states.len() - since;
            states[from..].fill(available);
            since = 0;
        }
    }
    let up = states.iter().filter(|&&up| up).count();
    (!states.is_empty()).then(|| up as f64 / states.len() as f64)
}

impl Procedure for PerformanceTest {
    scripted!();

    fn observe(&mut self, trial: &Trial) {
        self.script.observe(trial, |trial| {
            let least = trial.directions.iter().filter_map(availability).reduce(f64::min);
            (Service::of(trial), least)
        });
    }

    fn finding(&self) -> Finding {
        let mut finding = self.script.finding();
        for (_, (service, available)) in self.script.seen() {
            service.add_to(&mut finding, "");
            let mut breaches: Vec<String> = service.breach(&self.config.sla).into_iter().collect();
            match available {
                Some(share) => {
                    let quantity = Quantity::new("availability", "ratio", *share, service.samples);
                    finding.values.push(quantity);
                }
                None => finding.notes.push("Without a time series no availability.".into()),
            }
            if let Some(limit) = self.config.sla.availability
                && available.is_none_or(|share| share < limit)
            {
                breaches.push(format!("availability below {limit}"));
            }
            let passed = if breaches.is_empty() { 1.0 } else { 0.0 };
            finding.values.insert(0, Quantity::new("sla_kept", "ratio", passed, 1));
            finding.failures.extend(breaches.iter().map(|b| format!("Not as agreed: {b}.")));
        }
        finding
    }
}
