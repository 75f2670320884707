//! The procedures as a plan names them, and what each key means to them. What they do is in
//! `sonde_meter::trial`, and for people in docs/procedures.md.

use serde::Deserialize;
use sonde_meter::trial::{
    AddressConfig, AddressGoal, AddressSearch, BackToBack, BackToBackConfig, Chain,
    ConfigurationTest, ConfigurationTestConfig, DelayConfig, DelayKind, DelaySummary, FixedLoad,
    FixedLoadConfig, ForwardingConfig, ForwardingRate, Goal, GroupMatrix, GroupMatrixConfig,
    LabelledLoad, Latency, LatencyConfig, LossRate, LossRateConfig, MlrConfig, MlrSearch,
    PerformanceTest, PerformanceTestConfig, Procedure, RateSearch, RateSearchConfig, Recovery,
    RecoveryConfig, Reset, ResetConfig, Sla, Soak, SoakConfig,
};

use super::plan::{Frames, Load, Ns, Rate};

/// A procedure with its settings.
#[derive(Clone, Debug)]
pub struct ProcedurePlan {
    kind: &'static Kind,
    keys: Keys,
}

/// What the table of a kind of procedure holds.
struct Kind {
    name: &'static str,
    /// Its keys besides `kind` and `frames`.
    keys: &'static [&'static str],
    /// Its first value is a rate that the device carries.
    finds_rate: bool,
    /// It also tells something of the tester without a device.
    of_the_loop: bool,
    /// Each of its loads is a measurement of its own.
    by_load: bool,
    /// Shortest trials by the standard, ns; 0: it says nothing.
    standard_ns: i64,
    make: fn(&Keys, &Whole) -> Box<dyn Procedure + Send>,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// What a case adds to the plan's keys.
#[derive(Clone, Copy)]
struct Whole {
    /// Greatest load, frames/s in each direction.
    max: f64,
    /// Mean octets of a frame, with the FCS.
    frame_bytes: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Keys {
    kind: String,
    frames: Option<Vec<Frames>>,
    trial: Option<Ns>,
    trials: Option<u32>,
    discard: Option<Ns>,
    resolution: Option<f64>,
    min_rate: Option<Rate>,
    loss_ratio: Option<f64>,
    attempts: Option<u32>,
    goals: Option<Vec<GoalKeys>>,
    loads: Option<Vec<Load>>,
    idle: Option<Rate>,
    search: Option<Search>,
    search_trial: Option<Ns>,
    longest: Option<Ns>,
    step: Option<u32>,
    after: Option<Ns>,
    action: Option<String>,
    at: Option<Ns>,
    stations: Option<u32>,
    learning_rate: Option<Rate>,
    groups: Option<Vec<u32>>,
    multicast_share: Option<f64>,
    cir: Option<Load>,
    eir: Option<Load>,
    policing: Option<bool>,
    tolerance: Option<f64>,
    flr: Option<f64>,
    ftd: Option<Ns>,
    fdv: Option<Ns>,
    availability: Option<f64>,
    window: Option<Ns>,
    duration: Option<Ns>,
}

/// A goal of MLRsearch (RFC 9971).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GoalKeys {
    name: String,
    #[serde(default)]
    like: GoalName,
    final_trial: Option<Ns>,
    initial_trial: Option<Ns>,
    duration_sum: Option<Ns>,
    loss_ratio: Option<f64>,
    exceed_ratio: Option<f64>,
    width: Option<f64>,
    preceding_targets: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GoalName {
    #[default]
    Ndr,
    Pdr,
    Rfc2544,
    Tst009,
}

/// What finds the rate that shares are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Search {
    Throughput,
    Tst009,
}

impl ProcedurePlan {
    /// From its table.
    ///
    /// # Errors
    /// A kind that is none, a key that means nothing to it, a value that cannot be.
    pub fn read(table: &toml::Table) -> Result<ProcedurePlan, String> {
        let names = || KINDS.iter().map(|k| k.name).collect::<Vec<_>>().join(", ");
        let Some(name) = table.get("kind").and_then(toml::Value::as_str) else {
            return Err(format!("a procedure needs kind = '...': {}", names()));
        };
        let kind = KINDS.iter().find(|k| k.name == name);
        let kind =
            kind.ok_or_else(|| format!("'{name}' is no procedure; there are {}", names()))?;
        let known = |key: &str| ["kind", "frames"].contains(&key) || kind.keys.contains(&key);
        if let Some(key) = table.keys().find(|key| !known(key)) {
            let keys = kind.keys.join(", ");
            return Err(format!("'{key}' means nothing to {name}; it takes frames, {keys}"));
        }
        let keys = Keys::deserialize(table.clone())
            .map_err(|e| format!("{name}: {}", e.message().trim().replace('\n', ", ")))?;
        let plan = ProcedurePlan { kind, keys };
        plan.check()?;
        Ok(plan)
    }

    /// As in the plan.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// Frame sizes of its own, in place of the workload's.
    pub fn frames(&self) -> Option<&[Frames]> {
        self.keys.frames.as_deref()
    }

    /// Whether the first value found is a rate that the device carries.
    pub fn finds_rate(&self) -> bool {
        self.kind.finds_rate
    }

    /// Whether it also tells something of the tester without a device.
    pub fn of_the_loop(&self) -> bool {
        self.kind.of_the_loop
    }

    /// Whether it looks at what the device sends to ports other than the receiving one.
    pub fn monitored(&self) -> bool {
        [
            "address_caching_capacity",
            "address_learning_rate",
            "flooding",
            "mixed_class_throughput",
            "aggregated_multicast",
            "scaled_group_matrix",
            "multicast_latency",
        ]
        .contains(&self.name())
    }

    /// Whether its trials, or those of the search inside it, are shorter than the standard
    /// wants them.
    pub fn shorter_than_the_standard(&self) -> bool {
        let short = |ns: Option<Ns>, standard: i64| ns.is_some_and(|Ns(ns)| ns < standard);
        short(self.keys.trial, self.kind.standard_ns)
            || short(self.keys.duration, self.kind.standard_ns)
            || (self.needs_search() && short(self.keys.search_trial, 60 * SECOND))
    }

    /// One for each of its loads, where these are cases of their own.
    pub fn by_load(&self) -> Vec<ProcedurePlan> {
        match &self.keys.loads {
            Some(loads) if self.kind.by_load => {
                let one = |&load| {
                    let keys = Keys { loads: Some(vec![load]), ..self.keys.clone() };
                    ProcedurePlan { kind: self.kind, keys }
                };
                loads.iter().map(one).collect()
            }
            _ => vec![self.clone()],
        }
    }

    /// The load that makes it a case of its own; else empty.
    pub fn load_label(&self) -> String {
        match &self.keys.loads {
            Some(loads) if self.kind.by_load => loads[0].to_string(),
            _ => String::new(),
        }
    }

    /// The procedure, for a greatest load in frames/s a direction and a mean frame size.
    pub fn make(&self, max: f64, frame_bytes: f64) -> Box<dyn Procedure + Send> {
        (self.kind.make)(&self.keys, &Whole { max, frame_bytes })
    }

    /// Whether anything depends on the greatest load that can be offered: not where all loads
    /// are given as rates.
    pub fn needs_greatest_load(&self) -> bool {
        let has = |key| self.kind.keys.contains(&key);
        match (has("loads"), has("cir") || has("learning_rate")) {
            (true, _) => self.needs_search(),
            (false, rated) => !rated,
        }
    }

    fn needs_search(&self) -> bool {
        let share = |load: &Load| matches!(load, Load::Share(_));
        let loads = self.keys.loads.as_deref();
        self.kind.keys.contains(&"search_trial") && loads.is_none_or(|l| l.iter().any(share))
    }

    fn check(&self) -> Result<(), String> {
        let Keys { loads, frames, resolution, goals, step, groups, .. } = &self.keys;
        let name = self.name();
        let empty = |list: Option<usize>, key: &str| match list {
            Some(0) => Err(format!("{name}: {key} is empty; leave it out for its default")),
            _ => Ok(()),
        };
        empty(loads.as_ref().map(Vec::len), "loads")?;
        empty(frames.as_ref().map(Vec::len), "frames")?;
        empty(goals.as_ref().map(Vec::len), "goals")?;
        empty(groups.as_ref().map(Vec::len), "groups")?;
        if resolution.is_some_and(|r| !(1e-6..1.0).contains(&r)) {
            return Err(format!("{name}: resolution is a share of the rate, as 0.005"));
        }
        if step.is_some_and(|s| !(1..=50).contains(&s)) {
            return Err(format!("{name}: step is in per cent of the greatest load, 1 to 50"));
        }
        for (key, value) in [
            ("loss_ratio", self.keys.loss_ratio),
            ("flr", self.keys.flr),
            ("availability", self.keys.availability),
            ("multicast_share", self.keys.multicast_share),
        ] {
            if value.is_some_and(|v| !(0.0..=1.0).contains(&v)) {
                return Err(format!("{name}: {key} is from 0 to 1"));
            }
        }
        let times = [
            ("trial", self.keys.trial),
            ("longest", self.keys.longest),
            ("after", self.keys.after),
            ("search_trial", self.keys.search_trial),
            ("window", self.keys.window),
            ("duration", self.keys.duration),
        ];
        if let Some((key, _)) = times.iter().find(|(_, t)| t.is_some_and(|Ns(ns)| ns < MILLISECOND))
        {
            return Err(format!("{name}: {key} must be 1ms or longer"));
        }
        let whole = self.keys.trial.or(self.keys.duration);
        if let (Some(Ns(discard)), Some(Ns(whole))) = (self.keys.discard, whole)
            && discard >= whole
        {
            return Err(format!("{name}: discard leaves nothing of the trial"));
        }
        if self.kind.keys.contains(&"cir") && self.keys.cir.is_none() {
            return Err(format!("{name}: name the committed rate, as cir = '100 Mbit/s'"));
        }
        for load in [self.keys.cir, self.keys.eir].into_iter().flatten() {
            if matches!(load, Load::Share(_)) {
                return Err(format!("{name}: cir and eir are rates, as '100 Mbit/s'"));
            }
        }
        if self.kind.by_load && loads.is_none() {
            return Err(format!("{name}: name its loads, as loads = ['25 Mbit/s', '50 %']"));
        }
        if let Some(problem) = goals.as_ref().and_then(|_| mlr_config(&self.keys, 1e7).problem()) {
            return Err(format!("{name}: {problem}"));
        }
        Ok(())
    }
}

impl Keys {
    fn trial_ns(&self, otherwise: i64) -> i64 {
        self.trial.map_or(otherwise, |Ns(ns)| ns)
    }

    fn sla(&self) -> Sla {
        let ns = |t: Option<Ns>| t.map(|Ns(ns)| ns as f64);
        Sla {
            flr: self.flr.unwrap_or(0.0),
            ftd_ns: ns(self.ftd),
            fdv_ns: ns(self.fdv),
            availability: self.availability,
        }
    }

    fn rate_search(&self, whole: &Whole, trial: Option<Ns>) -> RateSearchConfig {
        let standard = RateSearchConfig::default();
        RateSearchConfig {
            min_fps: self.min_rate.map_or(standard.min_fps.min(whole.max / 2.0), |Rate(r)| r),
            max_fps: whole.max,
            resolution: self.resolution.unwrap_or(standard.resolution),
            duration_ns: trial.map_or(standard.duration_ns, |Ns(ns)| ns),
            loss_ratio: self.loss_ratio.unwrap_or(standard.loss_ratio),
            attempts: self.attempts.unwrap_or(standard.attempts),
            ..standard
        }
    }
}

/// What `make` makes of the throughput, which is searched first unless no load is a share of
/// it.
fn after_search(
    keys: &Keys,
    whole: &Whole,
    searched: bool,
    make: impl Fn(f64) -> Box<dyn Procedure + Send> + Send + 'static,
) -> Box<dyn Procedure + Send> {
    if !searched {
        return make(whole.max);
    }
    let config = keys.rate_search(whole, keys.search_trial);
    let first = match keys.search.unwrap_or(Search::Throughput) {
        Search::Throughput => RateSearch::throughput(config),
        Search::Tst009 => RateSearch::with_loss_verification(config),
    };
    Box::new(Chain::new(Box::new(first), "throughput", whole.max, make))
}

/// The only load, as frames/s of what was found.
fn at_load(
    keys: &Keys,
    whole: &Whole,
    make: impl Fn(f64) -> Box<dyn Procedure + Send> + Send + 'static,
) -> Box<dyn Procedure + Send> {
    let load = keys.loads.as_ref().and_then(|l| l.first().copied()).unwrap_or(Load::Share(1.0));
    let searched = matches!(load, Load::Share(_));
    let bytes = whole.frame_bytes;
    after_search(keys, whole, searched, move |found| make(load.fps(bytes, found)))
}

fn throughput(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    Box::new(RateSearch::throughput(keys.rate_search(whole, keys.trial)))
}

fn tst009(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    Box::new(RateSearch::with_loss_verification(keys.rate_search(whole, keys.trial)))
}

fn mlr_config(keys: &Keys, max: f64) -> MlrConfig {
    let standard = MlrConfig::default();
    let ns = |t: Option<Ns>, otherwise: i64| t.map_or(otherwise, |Ns(ns)| ns);
    let goal = |g: &GoalKeys| {
        let like = match g.like {
            GoalName::Ndr => Goal::ndr(),
            GoalName::Pdr => Goal::pdr(),
            GoalName::Rfc2544 => Goal::rfc2544(),
            GoalName::Tst009 => Goal::tst009(),
        };
        Goal {
            name: g.name.clone(),
            final_trial_ns: ns(g.final_trial, like.final_trial_ns),
            initial_trial_ns: ns(g.initial_trial, like.initial_trial_ns),
            duration_sum_ns: ns(g.duration_sum, like.duration_sum_ns),
            loss_ratio: g.loss_ratio.unwrap_or(like.loss_ratio),
            exceed_ratio: g.exceed_ratio.unwrap_or(like.exceed_ratio),
            width: g.width.unwrap_or(like.width),
            preceding_targets: g.preceding_targets.unwrap_or(like.preceding_targets),
        }
    };
    MlrConfig {
        goals: keys.goals.as_ref().map_or(standard.goals, |g| g.iter().map(goal).collect()),
        min_fps: keys.min_rate.map_or(standard.min_fps.min(max / 2.0), |Rate(r)| r),
        max_fps: max,
        longest_ns: ns(keys.longest, standard.longest_ns),
        ..MlrConfig { goals: Vec::new(), ..MlrConfig::default() }
    }
}

fn mlrsearch(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    Box::new(MlrSearch::new(mlr_config(keys, whole.max)))
}

/// At no load, 10, 50 and 90 % of the throughput, or at the plan's loads.
fn latency(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    let standard = LatencyConfig::default();
    let config = LatencyConfig {
        duration_ns: keys.trial_ns(standard.duration_ns),
        discard_ns: keys.discard.map_or(0, |Ns(ns)| ns),
        trials: keys.trials.unwrap_or(standard.trials),
        ..standard
    };
    let (loads, bytes) = (keys.loads.clone(), whole.frame_bytes);
    let idle = keys.idle.map_or(IDLE_FPS, |Rate(r)| r);
    let share = |l: &Load| matches!(l, Load::Share(_));
    let searched = loads.as_ref().is_none_or(|l| l.iter().any(share));
    after_search(keys, whole, searched, move |found| {
        let loads = match &loads {
            None => LatencyConfig::profile(found, idle).loads,
            Some(loads) => (loads.iter())
                .map(|load| {
                    let label = match load {
                        Load::Share(share) => format!("{}", share * 100.0),
                        other => other.to_string().replace(' ', ""),
                    };
                    LabelledLoad { label, rate_fps: load.fps(bytes, found) }
                })
                .collect(),
        };
        Box::new(Latency::new(LatencyConfig { loads, ..config.clone() }))
    })
}

fn delay(keys: &Keys, whole: &Whole, kind: DelayKind) -> Box<dyn Procedure + Send> {
    let keys_ = keys.clone();
    at_load(keys, whole, move |rate| {
        let standard = DelayConfig::new(kind, rate);
        Box::new(DelaySummary::new(DelayConfig {
            duration_ns: keys_.trial_ns(standard.duration_ns),
            discard_ns: keys_.discard.map_or(standard.discard_ns, |Ns(ns)| ns),
            trials: keys_.trials.unwrap_or(standard.trials),
            ..standard
        }))
    })
}

fn frame_loss_rate(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    let standard = LossRateConfig::default();
    Box::new(LossRate::new(LossRateConfig {
        max_fps: whole.max,
        step_percent: keys.step.unwrap_or(standard.step_percent),
        duration_ns: keys.trial_ns(standard.duration_ns),
    }))
}

fn back_to_back(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    let standard = BackToBackConfig::default();
    let config = BackToBackConfig {
        rate_fps: whole.max,
        longest_ns: keys.longest.map_or(standard.longest_ns, |Ns(ns)| ns),
        attempts: keys.attempts.unwrap_or(standard.attempts),
        tests: keys.trials.unwrap_or(standard.tests),
        ..standard
    };
    after_search(keys, whole, true, move |found| {
        Box::new(BackToBack::new(BackToBackConfig { throughput_fps: found, ..config.clone() }))
    })
}

fn system_recovery(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    let standard = RecoveryConfig::default();
    let config = RecoveryConfig {
        max_fps: whole.max,
        overload_ns: keys.trial_ns(standard.overload_ns),
        after_ns: keys.after.map_or(standard.after_ns, |Ns(ns)| ns),
        trials: keys.trials.unwrap_or(standard.trials),
        ..standard
    };
    after_search(keys, whole, true, move |found| {
        Box::new(Recovery::new(RecoveryConfig { throughput_fps: found, ..config.clone() }))
    })
}

fn reset(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    let standard = ResetConfig::default();
    let config = ResetConfig {
        action: keys.action.clone().unwrap_or(standard.action),
        at_ns: keys.at.map_or(standard.at_ns, |Ns(ns)| ns),
        duration_ns: keys.trial_ns(standard.duration_ns),
        trials: keys.trials.unwrap_or(standard.trials),
        ..standard
    };
    at_load(keys, whole, move |rate_fps| {
        Box::new(Reset::new(ResetConfig { rate_fps, ..config.clone() }))
    })
}

fn forwarding_rate(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    let standard = ForwardingConfig::default();
    Box::new(ForwardingRate::new(ForwardingConfig {
        max_fps: whole.max,
        step_percent: keys.step.unwrap_or(standard.step_percent),
        duration_ns: keys.trial_ns(standard.duration_ns),
    }))
}

fn address_caching_capacity(keys: &Keys, _: &Whole) -> Box<dyn Procedure + Send> {
    let learning_fps = keys.learning_rate.map_or(LEARNING_FPS, |Rate(r)| r);
    let max_stations = keys.stations.unwrap_or(STATIONS_MAX);
    let goal = AddressGoal::Capacity { max_stations, learning_fps };
    Box::new(AddressSearch::new(AddressConfig { goal, test_fps: learning_fps }))
}

fn address_learning_rate(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    let search = keys.rate_search(whole, None);
    let goal = AddressGoal::LearningRate {
        stations: keys.stations.unwrap_or(STATIONS),
        min_fps: search.min_fps,
        max_fps: search.max_fps,
        resolution: search.resolution,
    };
    Box::new(AddressSearch::new(AddressConfig { goal, test_fps: LEARNING_FPS }))
}

fn flooding(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    Box::new(RateSearch::flooding(keys.rate_search(whole, keys.trial)))
}

fn groups(keys: &Keys) -> u32 {
    keys.groups.as_ref().and_then(|g| g.first().copied()).unwrap_or(1).max(1)
}

fn mixed_class_throughput(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    let share = keys.multicast_share.unwrap_or(0.5);
    let config = keys.rate_search(whole, keys.trial);
    Box::new(RateSearch::mixed_class(config, share, groups(keys)))
}

fn aggregated_multicast(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    let config = keys.rate_search(whole, keys.trial);
    Box::new(RateSearch::aggregated_multicast(config, groups(keys)))
}

fn scaled_group_matrix(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    let standard = GroupMatrixConfig::default();
    let config = GroupMatrixConfig {
        groups: keys.groups.clone().unwrap_or(standard.groups),
        duration_ns: keys.trial_ns(standard.duration_ns),
        ..standard
    };
    at_load(keys, whole, move |rate_fps| {
        Box::new(GroupMatrix::new(GroupMatrixConfig { rate_fps, ..config.clone() }))
    })
}

fn multicast_latency(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    let keys_ = keys.clone();
    at_load(keys, whole, move |rate_fps| {
        let standard = LatencyConfig::multicast(rate_fps, groups(&keys_));
        Box::new(Latency::new(LatencyConfig {
            duration_ns: keys_.trial_ns(standard.duration_ns),
            discard_ns: keys_.discard.map_or(0, |Ns(ns)| ns),
            trials: keys_.trials.unwrap_or(standard.trials),
            ..standard
        }))
    })
}

fn rate_of(load: Option<Load>, whole: &Whole) -> f64 {
    load.map_or(0.0, |load| load.fps(whole.frame_bytes, whole.max))
}

fn y1564_configuration(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    let standard = ConfigurationTestConfig::default();
    Box::new(ConfigurationTest::new(ConfigurationTestConfig {
        cir_fps: rate_of(keys.cir, whole),
        eir_fps: rate_of(keys.eir, whole),
        policing: keys.policing.unwrap_or(standard.policing),
        tolerance: keys.tolerance.unwrap_or(standard.tolerance),
        step_ns: keys.trial_ns(standard.step_ns),
        sla: keys.sla(),
        ..standard
    }))
}

fn y1564_performance(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    let standard = PerformanceTestConfig::default();
    Box::new(PerformanceTest::new(PerformanceTestConfig {
        cir_fps: rate_of(keys.cir, whole),
        duration_ns: keys.duration.map_or(standard.duration_ns, |Ns(ns)| ns),
        sla: keys.sla(),
    }))
}

fn fixed_load(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    let standard = FixedLoadConfig::default();
    let config = FixedLoadConfig {
        duration_ns: keys.trial_ns(standard.duration_ns),
        discard_ns: keys.discard.map_or(standard.discard_ns, |Ns(ns)| ns),
        ..standard
    };
    at_load(keys, whole, move |rate_fps| {
        Box::new(FixedLoad::new(FixedLoadConfig { rate_fps, ..config.clone() }))
    })
}

fn soak(keys: &Keys, whole: &Whole) -> Box<dyn Procedure + Send> {
    let standard = SoakConfig::default();
    let config = SoakConfig {
        window_ns: keys.window.map_or(standard.window_ns, |Ns(ns)| ns),
        total_ns: keys.duration.map_or(standard.total_ns, |Ns(ns)| ns),
        ..standard
    };
    at_load(keys, whole, move |rate_fps| {
        Box::new(Soak::new(SoakConfig { rate_fps, ..config.clone() }))
    })
}

/// Of a kind: name, whether it finds a rate, whether it is of the loop, whether its loads are
/// cases, the standard's duration, its maker, its keys.
macro_rules! kinds {
    ($($name:literal $rate:literal $alone:literal $by_load:literal $seconds:literal $make:expr,
       $($key:literal)*;)*) => {
        &[ $( Kind {
            name: $name,
            keys: &[$($key),*],
            finds_rate: $rate,
            of_the_loop: $alone,
            by_load: $by_load,
            standard_ns: $seconds * SECOND,
            make: $make,
        } ),* ]
    };
}

/// Every kind of procedure. Durations: RFC 2544, section 24 and 26; RFC 8219, section 7;
/// RFC 2889, section 5; RFC 3918, section 4; ITU-T Y.1564 leaves them to its user.
const KINDS: &[Kind] = kinds! {
    "throughput" true true false 60 throughput,
        "trial" "resolution" "min_rate" "loss_ratio";
    "tst009" true true false 60 tst009,
        "trial" "resolution" "min_rate" "loss_ratio" "attempts";
    "mlrsearch" true true false 0 mlrsearch,
        "goals" "min_rate" "longest";
    "latency" false true false 120 latency,
        "trial" "trials" "discard" "loads" "idle" "search" "search_trial" "resolution" "min_rate";
    "latency_rfc8219" false true false 120 |k, w| delay(k, w, DelayKind::Latency),
        "trial" "trials" "discard" "loads" "search" "search_trial" "resolution" "min_rate";
    "pdv" false true false 60 |k, w| delay(k, w, DelayKind::Pdv),
        "trial" "trials" "discard" "loads" "search" "search_trial" "resolution" "min_rate";
    "ipdv" false true false 60 |k, w| delay(k, w, DelayKind::Ipdv),
        "trial" "trials" "discard" "loads" "search" "search_trial" "resolution" "min_rate";
    "frame_loss_rate" false false false 60 frame_loss_rate,
        "trial" "step";
    "back_to_back" false false false 0 back_to_back,
        "longest" "attempts" "trials" "search" "search_trial" "resolution" "min_rate";
    "system_recovery" false false false 60 system_recovery,
        "trial" "after" "trials" "search" "search_trial" "resolution" "min_rate";
    "reset" false false true 0 reset,
        "loads" "trial" "trials" "action" "at" "search" "search_trial" "resolution" "min_rate";
    "forwarding_rate" true true false 30 forwarding_rate,
        "trial" "step";
    "address_caching_capacity" false false false 0 address_caching_capacity,
        "stations" "learning_rate";
    "address_learning_rate" false false false 0 address_learning_rate,
        "stations" "resolution" "min_rate";
    "flooding" true false false 30 flooding,
        "trial" "resolution" "min_rate" "loss_ratio";
    "mixed_class_throughput" true false false 60 mixed_class_throughput,
        "trial" "resolution" "min_rate" "loss_ratio" "groups" "multicast_share";
    "aggregated_multicast" true false false 60 aggregated_multicast,
        "trial" "resolution" "min_rate" "loss_ratio" "groups";
    "scaled_group_matrix" false false true 60 scaled_group_matrix,
        "loads" "trial" "groups" "search" "search_trial" "resolution" "min_rate";
    "multicast_latency" false false true 120 multicast_latency,
        "loads" "trial" "trials" "discard" "groups" "search" "search_trial" "resolution" "min_rate";
    "y1564_configuration" false false false 0 y1564_configuration,
        "cir" "eir" "policing" "tolerance" "trial" "flr" "ftd" "fdv" "availability";
    "y1564_performance" false false false 0 y1564_performance,
        "cir" "duration" "flr" "ftd" "fdv" "availability";
    "fixed_load" false true true 0 fixed_load,
        "loads" "trial" "discard" "search" "search_trial" "resolution" "min_rate";
    "soak" false false true 0 soak,
        "loads" "window" "duration" "search" "search_trial" "resolution" "min_rate";
};

const MILLISECOND: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;
/// "No load": one frame in a millisecond.
const IDLE_FPS: f64 = 1000.0;
/// Learning frames a second that any bridge can follow (RFC 2889, section 5.7.2).
const LEARNING_FPS: f64 = 1000.0;
/// Stations that are learned where the rate is searched.
const STATIONS: u32 = 1024;
/// Stations tried at most.
const STATIONS_MAX: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ProcedurePlan, String> {
        ProcedurePlan::read(&text.parse().unwrap())
    }

    #[test]
    fn every_kind_makes_a_procedure_that_wants_a_trial() {
        for kind in KINDS {
            let mut text = format!("kind = '{}'\n", kind.name);
            if kind.by_load {
                text += "loads = ['1000']\n";
            }
            if kind.keys.contains(&"cir") {
                text += "cir = '1 Mbit/s'\n";
            }
            let plan = read(&text).unwrap();
            let mut made = plan.make(1e6, 64.0);
            let first = made.next().expect(kind.name);
            assert!(first.offer.rate_fps <= 1e6 && first.offer.rate_fps > 0.0, "{}", kind.name);
            assert!(made.remaining_ns() > 0 && made.remaining_trials() > 0, "{}", kind.name);
        }
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for (text, word) in [
            ("trial = '5s'", "kind"),
            ("kind = 'through'", "throughput"),
            ("kind = 'throughput'\ngoals = []", "means nothing"),
            ("kind = 'throughput'\ntrial = 'soon'", "soon"),
            ("kind = 'throughput'\nresolution = 5", "0.005"),
            ("kind = 'fixed_load'", "loads"),
            ("kind = 'fixed_load'\nloads = []", "empty"),
            ("kind = 'fixed_load'\nloads = ['1k']\ntrial = '5s'\ndiscard = '5s'", "discard"),
            ("kind = 'y1564_performance'", "cir"),
            ("kind = 'y1564_performance'\ncir = '50 %'", "rates"),
            ("kind = 'frame_loss_rate'\nstep = 0", "per cent"),
            ("kind = 'mlrsearch'\n[[goals]]\nname = 'x'\nwidth = 2.0", "width"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn shares_need_a_search_and_rates_do_not() {
        let purpose = |text: &str| read(text).unwrap().make(1e6, 64.0).next().unwrap().purpose;
        assert_eq!(purpose("kind = 'latency'"), "search");
        assert_ne!(purpose("kind = 'latency'\nloads = ['1000']"), "search");
        let plans = read("kind = 'fixed_load'\nloads = ['25 Mbit/s', '50 %']").unwrap().by_load();
        assert_eq!(
            plans.iter().map(ProcedurePlan::load_label).collect::<Vec<_>>(),
            ["25 Mbit/s", "50 %"]
        );
        let offer = plans[0].make(1e6, 64.0).next().unwrap().offer;
        assert_eq!(offer.rate_fps, 25e6 / 8.0 / 64.0);
        assert_eq!(plans[1].make(1e6, 64.0).next().unwrap().purpose, "search");
    }

    #[test]
    fn short_trials_are_known_for_what_they_are() {
        assert!(!read("kind = 'throughput'").unwrap().shorter_than_the_standard());
        assert!(read("kind = 'throughput'\ntrial = '2s'").unwrap().shorter_than_the_standard());
        assert!(read("kind = 'pdv'\nsearch_trial = '2s'").unwrap().shorter_than_the_standard());
    }
}
