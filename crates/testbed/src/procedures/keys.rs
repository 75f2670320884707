//! The keys of a procedure in a plan, and what those that several procedures share mean.

use serde::{Deserialize, Serialize};
use sonde_meter::trial::{RateSearchConfig, Sla};
pub(super) use sonde_results::units::SECOND;

use crate::plan_values::{FrameSizes, IntendedLoad, Ns, Rate};

/// What a case adds to the plan's keys.
#[derive(Clone, Copy)]
pub(super) struct CaseLoad {
    /// Greatest load, frames/s in each direction.
    pub(super) max: f64,
    /// Mean octets of a frame, with the FCS.
    pub(super) frame_bytes: f64,
}

/// Defines [`ProcedureKeys`], each key with its type.
macro_rules! keys {
    ($($key:ident: $Type:ty,)+) => {
        /// What a plan may say of a procedure; which keys mean something is its kind's to say.
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct ProcedureKeys {
            pub(crate) kind: String,
            $(
                #[serde(skip_serializing_if = "Option::is_none")]
                pub(crate) $key: Option<$Type>,
            )+
        }

        impl ProcedureKeys {
            /// The names of those that the plan has, but for its kind.
            pub(super) fn named(&self) -> impl Iterator<Item = &'static str> {
                let all = [$((stringify!($key), self.$key.is_some())),+];
                all.into_iter().filter(|(_, named)| *named).map(|(key, _)| key)
            }
        }
    };
}

keys! {
    frames: Vec<FrameSizes>,
    trial: Ns,
    trials: u32,
    discard: Ns,
    resolution: f64,
    min_rate: Rate,
    loss_ratio: f64,
    attempts: u32,
    goals: Vec<GoalKeys>,
    loads: Vec<IntendedLoad>,
    idle: Rate,
    search: Search,
    search_trial: Ns,
    longest: Ns,
    step: u32,
    after: Ns,
    action: String,
    at: Ns,
    stations: u32,
    learning_rate: Rate,
    groups: Vec<u32>,
    multicast_share: f64,
    cir: IntendedLoad,
    eir: IntendedLoad,
    policing: bool,
    tolerance: f64,
    flr: f64,
    ftd: Ns,
    fdv: Ns,
    availability: f64,
    window: Ns,
    duration: Ns,
}

/// A goal of MLRsearch (RFC 9971).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GoalKeys {
    pub(crate) name: String,
    #[serde(default)]
    pub(super) like: GoalName,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) final_trial: Option<Ns>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) initial_trial: Option<Ns>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) duration_sum: Option<Ns>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) loss_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exceed_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) width: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) preceding_targets: Option<u32>,
}

/// The goal whose attributes stand where a plan leaves them out.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GoalName {
    #[default]
    Ndr,
    Pdr,
    Rfc2544,
    Tst009,
}

/// What finds the rate that shares are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Search {
    Throughput,
    Tst009,
}

impl ProcedureKeys {
    /// How many frame sizes and loads it names, where it does.
    pub fn frames_and_loads(&self) -> [Option<usize>; 2] {
        [self.frames.as_ref().map(Vec::len), self.loads.as_ref().map(Vec::len)]
    }

    pub(super) fn trial_ns(&self, otherwise: i64) -> i64 {
        self.trial.map_or(otherwise, |Ns(ns)| ns)
    }

    pub(super) fn sla(&self) -> Sla {
        let ns = |t: Option<Ns>| t.map(|Ns(ns)| ns as f64);
        Sla {
            flr: self.flr.unwrap_or(0.0),
            ftd_ns: ns(self.ftd),
            fdv_ns: ns(self.fdv),
            availability: self.availability,
        }
    }

    pub(super) fn rate_search(&self, case: &CaseLoad, trial: Option<Ns>) -> RateSearchConfig {
        let standard = RateSearchConfig::default();
        RateSearchConfig {
            min_fps: self.min_rate.map_or(standard.min_fps.min(case.max / 2.0), |Rate(r)| r),
            max_fps: case.max,
            resolution: self.resolution.unwrap_or(standard.resolution),
            duration_ns: trial.map_or(standard.duration_ns, |Ns(ns)| ns),
            loss_ratio: self.loss_ratio.unwrap_or(standard.loss_ratio),
            attempts: self.attempts.unwrap_or(standard.attempts),
            ..standard
        }
    }
}

/// How the values of a load are labelled.
pub(super) fn latency_label(load: &IntendedLoad) -> String {
    match load {
        IntendedLoad::Share(share) => format!("{}", share * 100.0),
        other => other.to_string().replace(' ', ""),
    }
}
