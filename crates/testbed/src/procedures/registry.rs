//! The registry of procedures, and how each is made of its keys.

use sonde_meter::trial::{
    AddressConfig, AddressGoal, AddressSearch, BackToBack, BackToBackConfig, Chain,
    ConfigurationTest, ConfigurationTestConfig, DelayConfig, DelayKind, DelaySummary, FixedLoad,
    FixedLoadConfig, ForwardingConfig, ForwardingRate, Goal, GroupMatrix, GroupMatrixConfig,
    LabelledLoad, Latency, LatencyConfig, LossRate, LossRateConfig, MlrConfig, MlrSearch,
    PerformanceTest, PerformanceTestConfig, Procedure, Ramp, RampConfig, RateSearch, Recovery,
    RecoveryConfig, Reset, ResetConfig, Soak, SoakConfig,
};
use sonde_results::procedure::{ProcedureInfo, known_procedure};

use super::keys::{CaseLoad, GoalKeys, GoalName, ProcedureKeys, SECOND, Search, latency_label};
use crate::plan_values::{IntendedLoad, Ns, Rate};

/// What the table of a kind of procedure holds.
pub(super) struct ProcedureKind {
    pub(super) info: &'static ProcedureInfo,
    /// Its keys besides `kind` and `frames`.
    pub(super) keys: &'static [&'static str],
    traits: &'static [ProcedureTrait],
    /// Shortest trials by the standard, ns; 0: it says nothing.
    pub(super) standard_ns: i64,
    pub(super) make: fn(&ProcedureKeys, &CaseLoad) -> Box<dyn Procedure + Send>,
}

/// What distinguishes a procedure from others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcedureTrait {
    /// It also measures the tester without a device.
    OfTheLoop,
    /// Each of its loads is a measurement of its own.
    ByLoad,
    /// It takes frames of one size, no mix.
    OneFrameSize,
    /// Two of its loads may be the same: a ramp may end where it begins.
    LoadsRepeat,
    /// It looks at what the device sends to ports other than the receiving one.
    Monitors,
    /// It looks at what the device floods to ports where no station is.
    LooksAtFloods,
    /// It has the device forget its stations.
    Forgets,
}

impl ProcedureKind {
    /// As in the plan.
    pub(super) fn name(&self) -> &'static str {
        self.info.name
    }

    pub(super) fn has(&self, one: ProcedureTrait) -> bool {
        self.traits.contains(&one)
    }
}

impl std::fmt::Debug for ProcedureKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What `make` makes of the throughput, which is searched first unless no load is a share of
/// it.
fn after_search(
    keys: &ProcedureKeys,
    case: &CaseLoad,
    searched: bool,
    make: impl Fn(f64) -> Box<dyn Procedure + Send> + Send + 'static,
) -> Box<dyn Procedure + Send> {
    if !searched {
        return make(case.max);
    }
    let config = keys.rate_search(case, keys.search_trial);
    let first = match keys.search.unwrap_or(Search::Throughput) {
        Search::Throughput => RateSearch::throughput(config),
        Search::Tst009 => RateSearch::with_loss_verification(config),
    };
    Box::new(Chain::new(Box::new(first), "throughput", case.max, make))
}

/// The only load, as frames/s of what was found.
fn at_load(
    keys: &ProcedureKeys,
    case: &CaseLoad,
    make: impl Fn(f64) -> Box<dyn Procedure + Send> + Send + 'static,
) -> Box<dyn Procedure + Send> {
    let load =
        keys.loads.as_ref().and_then(|l| l.first().copied()).unwrap_or(IntendedLoad::Share(1.0));
    let searched = matches!(load, IntendedLoad::Share(_));
    let bytes = case.frame_bytes;
    after_search(keys, case, searched, move |found| make(load.fps(bytes, found)))
}

fn throughput(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    Box::new(RateSearch::throughput(keys.rate_search(case, keys.trial)))
}

fn tst009(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    Box::new(RateSearch::with_loss_verification(keys.rate_search(case, keys.trial)))
}

pub(super) fn mlr_config(keys: &ProcedureKeys, max: f64) -> MlrConfig {
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

fn mlrsearch(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    Box::new(MlrSearch::new(mlr_config(keys, case.max)))
}

/// At no load, 10, 50, 90 and 100 % of the throughput, or at the plan's loads.
fn latency(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    let standard = LatencyConfig::default();
    let config = LatencyConfig {
        duration_ns: keys.trial_ns(standard.duration_ns),
        discard_ns: keys.discard.map_or(standard.discard_ns, |Ns(ns)| ns),
        trials: keys.trials.unwrap_or(standard.trials),
        ..standard
    };
    let (loads, bytes) = (keys.loads.clone(), case.frame_bytes);
    let idle = keys.idle.map_or(IDLE_FPS, |Rate(r)| r);
    let share = |l: &IntendedLoad| matches!(l, IntendedLoad::Share(_));
    let searched = loads.as_ref().is_none_or(|l| l.iter().any(share));
    after_search(keys, case, searched, move |found| {
        let loads = match &loads {
            None => LatencyConfig::profile(found, idle).loads,
            Some(loads) => (loads.iter())
                .map(|load| LabelledLoad {
                    label: latency_label(load),
                    rate_fps: load.fps(bytes, found),
                })
                .collect(),
        };
        Box::new(Latency::new(LatencyConfig { loads, ..config.clone() }))
    })
}

fn delay(keys: &ProcedureKeys, case: &CaseLoad, kind: DelayKind) -> Box<dyn Procedure + Send> {
    let keys_ = keys.clone();
    at_load(keys, case, move |rate| {
        let standard = DelayConfig::new(kind, rate);
        Box::new(DelaySummary::new(DelayConfig {
            duration_ns: keys_.trial_ns(standard.duration_ns),
            discard_ns: keys_.discard.map_or(standard.discard_ns, |Ns(ns)| ns),
            trials: keys_.trials.unwrap_or(standard.trials),
            ..standard
        }))
    })
}

fn frame_loss_rate(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    let standard = LossRateConfig::default();
    Box::new(LossRate::new(LossRateConfig {
        max_fps: case.max,
        step_percent: keys.step.unwrap_or(standard.step_percent),
        duration_ns: keys.trial_ns(standard.duration_ns),
    }))
}

fn back_to_back(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    let standard = BackToBackConfig::default();
    let config = BackToBackConfig {
        rate_fps: case.max,
        longest_ns: keys.longest.map_or(standard.longest_ns, |Ns(ns)| ns),
        attempts: keys.attempts.unwrap_or(standard.attempts),
        tests: keys.trials.unwrap_or(standard.tests),
        ..standard
    };
    after_search(keys, case, true, move |found| {
        Box::new(BackToBack::new(BackToBackConfig { throughput_fps: found, ..config.clone() }))
    })
}

fn system_recovery(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    let standard = RecoveryConfig::default();
    let config = RecoveryConfig {
        max_fps: case.max,
        overload_ns: keys.trial_ns(standard.overload_ns),
        after_ns: keys.after.map_or(standard.after_ns, |Ns(ns)| ns),
        trials: keys.trials.unwrap_or(standard.trials),
        ..standard
    };
    after_search(keys, case, true, move |found| {
        Box::new(Recovery::new(RecoveryConfig { throughput_fps: found, ..config.clone() }))
    })
}

fn reset(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    let standard = ResetConfig::default();
    let config = ResetConfig {
        action: keys.action.clone().unwrap_or(standard.action),
        at_ns: keys.at.map_or(standard.at_ns, |Ns(ns)| ns),
        duration_ns: keys.trial_ns(standard.duration_ns),
        trials: keys.trials.unwrap_or(standard.trials),
        ..standard
    };
    at_load(keys, case, move |rate_fps| {
        Box::new(Reset::new(ResetConfig { rate_fps, ..config.clone() }))
    })
}

fn forwarding_rate(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    let standard = ForwardingConfig::default();
    Box::new(ForwardingRate::new(ForwardingConfig {
        max_fps: case.max,
        step_percent: keys.step.unwrap_or(standard.step_percent),
        duration_ns: keys.trial_ns(standard.duration_ns),
    }))
}

fn address_caching_capacity(keys: &ProcedureKeys, _: &CaseLoad) -> Box<dyn Procedure + Send> {
    let learning_fps = keys.learning_rate.map_or(LEARNING_FPS, |Rate(r)| r);
    let max_stations = keys.stations.unwrap_or(STATIONS_MAX);
    let goal = AddressGoal::Capacity { max_stations, learning_fps };
    Box::new(AddressSearch::new(AddressConfig { goal, test_fps: learning_fps }))
}

fn address_learning_rate(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    let search = keys.rate_search(case, None);
    let goal = AddressGoal::LearningRate {
        stations: keys.stations.unwrap_or(STATIONS),
        min_fps: search.min_fps,
        max_fps: search.max_fps,
        resolution: search.resolution,
    };
    Box::new(AddressSearch::new(AddressConfig { goal, test_fps: LEARNING_FPS }))
}

fn flooding(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    let trial = keys.trial.unwrap_or(Ns(30 * SECOND));
    Box::new(RateSearch::flooding(keys.rate_search(case, Some(trial))))
}

fn groups(keys: &ProcedureKeys) -> u32 {
    keys.groups.as_ref().and_then(|g| g.first().copied()).unwrap_or(1).max(1)
}

fn mixed_class_throughput(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    let share = keys.multicast_share.unwrap_or(0.5);
    let config = keys.rate_search(case, keys.trial);
    Box::new(RateSearch::mixed_class(config, share, groups(keys)))
}

fn aggregated_multicast(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    let config = keys.rate_search(case, keys.trial);
    Box::new(RateSearch::aggregated_multicast(config, groups(keys)))
}

fn scaled_group_matrix(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    let standard = GroupMatrixConfig::default();
    let config = GroupMatrixConfig {
        groups: keys.groups.clone().unwrap_or(standard.groups),
        duration_ns: keys.trial_ns(standard.duration_ns),
        ..standard
    };
    at_load(keys, case, move |rate_fps| {
        Box::new(GroupMatrix::new(GroupMatrixConfig { rate_fps, ..config.clone() }))
    })
}

fn multicast_latency(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    let keys_ = keys.clone();
    at_load(keys, case, move |rate_fps| {
        let standard = LatencyConfig::multicast(rate_fps, groups(&keys_));
        Box::new(Latency::new(LatencyConfig {
            duration_ns: keys_.trial_ns(standard.duration_ns),
            discard_ns: keys_.discard.map_or(standard.discard_ns, |Ns(ns)| ns),
            trials: keys_.trials.unwrap_or(standard.trials),
            ..standard
        }))
    })
}

fn rate_of(load: Option<IntendedLoad>, case: &CaseLoad) -> f64 {
    load.map_or(0.0, |load| load.fps(case.frame_bytes, case.max))
}

fn y1564_configuration(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    let standard = ConfigurationTestConfig::default();
    Box::new(ConfigurationTest::new(ConfigurationTestConfig {
        cir_fps: rate_of(keys.cir, case),
        eir_fps: rate_of(keys.eir, case),
        policing: keys.policing.unwrap_or(standard.policing),
        tolerance: keys.tolerance.unwrap_or(standard.tolerance),
        step_ns: keys.trial_ns(standard.step_ns),
        sla: keys.sla(),
        ..standard
    }))
}

fn y1564_performance(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    let standard = PerformanceTestConfig::default();
    Box::new(PerformanceTest::new(PerformanceTestConfig {
        cir_fps: rate_of(keys.cir, case),
        duration_ns: keys.duration.map_or(standard.duration_ns, |Ns(ns)| ns),
        sla: keys.sla(),
    }))
}

fn fixed_load(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    let standard = FixedLoadConfig::default();
    let config = FixedLoadConfig {
        duration_ns: keys.trial_ns(standard.duration_ns),
        discard_ns: keys.discard.map_or(standard.discard_ns, |Ns(ns)| ns),
        ..standard
    };
    at_load(keys, case, move |rate_fps| {
        Box::new(FixedLoad::new(FixedLoadConfig { rate_fps, ..config.clone() }))
    })
}

/// From the first of its loads to the second; else from a hundredth of the greatest load to it.
fn ramp(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    let standard = RampConfig::default();
    let load = |n: usize, otherwise: f64| {
        let load = keys.loads.as_ref().map_or(IntendedLoad::Share(otherwise), |loads| loads[n]);
        load.fps(case.frame_bytes, case.max)
    };
    Box::new(Ramp::new(RampConfig {
        from_fps: load(0, 0.01),
        to_fps: load(1, 1.0),
        duration_ns: keys.trial_ns(standard.duration_ns),
        trials: keys.trials.unwrap_or(standard.trials),
    }))
}

fn soak(keys: &ProcedureKeys, case: &CaseLoad) -> Box<dyn Procedure + Send> {
    let standard = SoakConfig::default();
    let config = SoakConfig {
        window_ns: keys.window.map_or(standard.window_ns, |Ns(ns)| ns),
        total_ns: keys.duration.map_or(standard.total_ns, |Ns(ns)| ns),
        ..standard
    };
    at_load(keys, case, move |rate_fps| {
        Box::new(Soak::new(SoakConfig { rate_fps, ..config.clone() }))
    })
}

/// Of a kind: its name, which must be in the table of `sonde_results::procedure`, its traits, the
/// standard's duration, its maker, its keys.
macro_rules! registry {
    ($($name:literal [$($trait:ident)*] $seconds:literal $make:expr, $($key:literal)*;)*) => {
        &[ $( ProcedureKind {
            info: known_procedure($name),
            keys: &[$($key),*],
            traits: &[$(ProcedureTrait::$trait),*],
            standard_ns: $seconds * SECOND,
            make: $make,
        } ),* ]
    };
}

/// Every kind of procedure. Durations: RFC 2544, section 24 and 26; RFC 8219, section 7;
/// RFC 2889, section 5; RFC 3918, section 3.1.5; ITU-T Y.1564 leaves them to its user.
pub(super) const REGISTRY: &[ProcedureKind] = registry! {
    "throughput" [OfTheLoop] 60 throughput,
        "trial" "resolution" "min_rate" "loss_ratio";
    "tst009" [OfTheLoop] 60 tst009,
        "trial" "resolution" "min_rate" "loss_ratio" "attempts";
    "mlrsearch" [OfTheLoop] 0 mlrsearch,
        "goals" "min_rate" "longest";
    "latency" [OfTheLoop] 120 latency,
        "trial" "trials" "discard" "loads" "idle" "search" "search_trial" "resolution" "min_rate";
    "latency_rfc8219" [OfTheLoop] 120 |k, w| delay(k, w, DelayKind::Latency),
        "trial" "trials" "discard" "loads" "search" "search_trial" "resolution" "min_rate";
    "pdv" [OfTheLoop] 60 |k, w| delay(k, w, DelayKind::Pdv),
        "trial" "trials" "discard" "loads" "search" "search_trial" "resolution" "min_rate";
    "ipdv" [OfTheLoop] 60 |k, w| delay(k, w, DelayKind::Ipdv),
        "trial" "trials" "discard" "loads" "search" "search_trial" "resolution" "min_rate";
    "frame_loss_rate" [OfTheLoop] 60 frame_loss_rate,
        "trial" "step";
    "back_to_back" [OneFrameSize] 0 back_to_back,
        "longest" "attempts" "trials" "search" "search_trial" "resolution" "min_rate";
    "system_recovery" [] 60 system_recovery,
        "trial" "after" "trials" "search" "search_trial" "resolution" "min_rate";
    "reset" [ByLoad] 0 reset,
        "loads" "trial" "trials" "action" "at" "search" "search_trial" "resolution" "min_rate";
    "forwarding_rate" [OfTheLoop] 30 forwarding_rate,
        "trial" "step";
    "address_caching_capacity" [Monitors LooksAtFloods Forgets] 0 address_caching_capacity,
        "stations" "learning_rate";
    "address_learning_rate" [Monitors LooksAtFloods Forgets] 0 address_learning_rate,
        "stations" "resolution" "min_rate";
    "flooding" [Monitors LooksAtFloods] 30 flooding,
        "trial" "resolution" "min_rate" "loss_ratio";
    "mixed_class_throughput" [Monitors] 30 mixed_class_throughput,
        "trial" "resolution" "min_rate" "loss_ratio" "groups" "multicast_share";
    "aggregated_multicast" [Monitors] 30 aggregated_multicast,
        "trial" "resolution" "min_rate" "loss_ratio" "groups";
    "scaled_group_matrix" [ByLoad Monitors] 30 scaled_group_matrix,
        "loads" "trial" "groups" "search" "search_trial" "resolution" "min_rate";
    "multicast_latency" [ByLoad Monitors] 120 multicast_latency,
        "loads" "trial" "trials" "discard" "groups" "search" "search_trial" "resolution" "min_rate";
    "y1564_configuration" [] 0 y1564_configuration,
        "cir" "eir" "policing" "tolerance" "trial" "flr" "ftd" "fdv" "availability";
    "y1564_performance" [] 0 y1564_performance,
        "cir" "duration" "flr" "ftd" "fdv" "availability";
    "fixed_load" [OfTheLoop ByLoad] 0 fixed_load,
        "loads" "trial" "discard" "search" "search_trial" "resolution" "min_rate";
    "ramp" [LoadsRepeat] 0 ramp,
        "loads" "trial" "trials";
    "soak" [ByLoad] 0 soak,
        "loads" "window" "duration" "search" "search_trial" "resolution" "min_rate";
};

/// "No load": one frame in a millisecond.
const IDLE_FPS: f64 = 1000.0;
/// Learning frames a second; some devices follow 50 and no more (RFC 2889, section 5.7.2).
const LEARNING_FPS: f64 = 1000.0;
/// Stations that are learned where the rate is searched.
const STATIONS: u32 = 1024;
/// Stations tried at most.
const STATIONS_MAX: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use sonde_results::procedure::PROCEDURES;

    use super::*;

    #[test]
    fn every_procedure_that_is_known_can_be_planned() {
        let planned: Vec<&str> = REGISTRY.iter().map(ProcedureKind::name).collect();
        let known: Vec<&str> = PROCEDURES.iter().map(|known| known.name).collect();
        assert_eq!(planned, known);
    }
}
