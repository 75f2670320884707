//! The keys of a procedure in a plan, and what those that several procedures share mean.

use serde::Deserialize;
use sonde_meter::trial::{RateSearchConfig, Sla};

use crate::plan::{Frames, Load, Ns, Rate};

/// What a case adds to the plan's keys.
#[derive(Clone, Copy)]
pub(super) struct CaseLoad {
    /// Greatest load, frames/s in each direction.
    pub(super) max: f64,
    /// Mean octets of a frame, with the FCS.
    pub(super) frame_bytes: f64,
}

/// What a plan may say of a procedure; which keys mean something is its kind's to say.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Keys {
    pub(super) kind: String,
    pub(super) frames: Option<Vec<Frames>>,
    pub(super) trial: Option<Ns>,
    pub(super) trials: Option<u32>,
    pub(super) discard: Option<Ns>,
    pub(super) resolution: Option<f64>,
    pub(super) min_rate: Option<Rate>,
    pub(super) loss_ratio: Option<f64>,
    pub(super) attempts: Option<u32>,
    pub(super) goals: Option<Vec<GoalKeys>>,
    pub(super) loads: Option<Vec<Load>>,
    pub(super) idle: Option<Rate>,
    pub(super) search: Option<Search>,
    pub(super) search_trial: Option<Ns>,
    pub(super) longest: Option<Ns>,
    pub(super) step: Option<u32>,
    pub(super) after: Option<Ns>,
    pub(super) action: Option<String>,
    pub(super) at: Option<Ns>,
    pub(super) stations: Option<u32>,
    pub(super) learning_rate: Option<Rate>,
    pub(super) groups: Option<Vec<u32>>,
    pub(super) multicast_share: Option<f64>,
    pub(super) cir: Option<Load>,
    pub(super) eir: Option<Load>,
    pub(super) policing: Option<bool>,
    pub(super) tolerance: Option<f64>,
    pub(super) flr: Option<f64>,
    pub(super) ftd: Option<Ns>,
    pub(super) fdv: Option<Ns>,
    pub(super) availability: Option<f64>,
    pub(super) window: Option<Ns>,
    pub(super) duration: Option<Ns>,
}

/// A goal of MLRsearch (RFC 9971).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GoalKeys {
    pub(super) name: String,
    #[serde(default)]
    pub(super) like: GoalName,
    pub(super) final_trial: Option<Ns>,
    pub(super) initial_trial: Option<Ns>,
    pub(super) duration_sum: Option<Ns>,
    pub(super) loss_ratio: Option<f64>,
    pub(super) exceed_ratio: Option<f64>,
    pub(super) width: Option<f64>,
    pub(super) preceding_targets: Option<u32>,
}

/// The goal whose attributes stand where a plan leaves them out.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum GoalName {
    #[default]
    Ndr,
    Pdr,
    Rfc2544,
    Tst009,
}

/// What finds the rate that shares are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Search {
    Throughput,
    Tst009,
}

impl Keys {
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
pub(super) fn latency_label(load: &Load) -> String {
    match load {
        Load::Share(share) => format!("{}", share * 100.0),
        other => other.to_string().replace(' ', ""),
    }
}

pub(super) const SECOND: i64 = 1_000_000_000;
