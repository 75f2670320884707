//! Latency and its variation in one or more trials, by direction.

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::hist::Hist;
use sonde_results::hist::supports;

use super::values::{add_distribution, labelled};

/// Delays of one direction, or of all together.
#[derive(Clone, Debug, Default)]
pub(super) struct DelayStats {
    /// ns, from the frame's transmit stamp to its receive stamp.
    pub latency: Hist,
    /// Signed, ns (RFC 3393).
    pub ipdv: Hist,
    /// Absolute, in the order of arrival, ns (RFC 4689).
    pub jitter: Hist,
    /// The greatest at the end of a trial, ns (RFC 3550).
    pub rfc3550_ns: f64,
}

impl DelayStats {
    fn merge(&mut self, other: &DelayStats) {
        self.latency.merge(&other.latency);
        self.ipdv.merge(&other.ipdv);
        self.jitter.merge(&other.jitter);
        self.rfc3550_ns = self.rfc3550_ns.max(other.rfc3550_ns);
    }

    /// Packet delay variation (RFC 5481, section 4.2; RFC 8219, section 7.3.1): the 99.9th
    /// percentile above the minimum, ns.
    pub fn pdv_ns(&self) -> Option<f64> {
        Some((self.latency.quantile(0.999)? - self.latency.min()?) as f64)
    }

    /// Adds all of it. `label` distinguishes loads and directions. PDV is of one stream (RFC 5481,
    /// section 4.2): of several together it would count their difference.
    pub fn add_to(&self, finding: &mut Finding, label: &str, one_stream: bool) {
        add_distribution(finding, "latency", label, &self.latency);
        let mut add = |name: &str, value: Option<f64>, samples: u64| {
            if let Some(value) = value {
                let name = labelled(name, label);
                finding.values.push(Quantity::new(name, "ns", value, samples));
            }
        };
        if one_stream && supports(self.latency.count, 0.999) {
            add("pdv", self.pdv_ns(), self.latency.count);
        }
        let ipdv = |q: f64| self.ipdv.quantile(q).map(|v| v as f64);
        add("ipdv_min", self.ipdv.min().map(|v| v as f64), self.ipdv.count);
        add("ipdv_p50", ipdv(0.5), self.ipdv.count);
        add("ipdv_max", self.ipdv.max().map(|v| v as f64), self.ipdv.count);
        add("jitter_rfc4689_mean", self.jitter.mean(), self.jitter.count);
        add("jitter_rfc4689_max", self.jitter.max().map(|v| v as f64), self.jitter.count);
        let several = self.latency.count > 1;
        add("jitter_rfc3550", several.then_some(self.rfc3550_ns), self.latency.count);
    }
}

/// What a load did, in one or more trials.
#[derive(Clone, Debug, Default)]
pub(super) struct TrialDelays {
    /// By direction, in their order.
    pub directions: Vec<(String, DelayStats)>,
    pub sent: u64,
    pub lost: u64,
    /// What each trial offered in truth, frames/s.
    pub offered: Vec<f64>,
}

impl TrialDelays {
    pub fn of(trial: &Trial) -> TrialDelays {
        let delays = |d: &sonde_results::trial::Direction| DelayStats {
            latency: d.latency.clone(),
            ipdv: d.ipdv.clone(),
            jitter: d.jitter.clone(),
            rfc3550_ns: d.rfc3550_jitter_ns,
        };
        let (sent, lost) = trial.sent_and_lost();
        let directions = trial.directions.iter().map(|d| (d.name.clone(), delays(d))).collect();
        TrialDelays { directions, sent, lost, offered: vec![trial.offered_fps()] }
    }

    pub fn merge(&mut self, other: &TrialDelays) {
        self.sent += other.sent;
        self.lost += other.lost;
        self.offered.extend(&other.offered);
        for (name, delays) in &other.directions {
            match self.directions.iter_mut().find(|(n, _)| n == name) {
                Some((_, mine)) => mine.merge(delays),
                None => self.directions.push((name.clone(), delays.clone())),
            }
        }
    }

    pub fn all(&self) -> DelayStats {
        let mut all = DelayStats::default();
        self.directions.iter().for_each(|(_, d)| all.merge(d));
        all
    }

    /// All directions together, and each by its name where there are more.
    pub fn groups(&self) -> Vec<(String, DelayStats)> {
        let mut groups = vec![(String::new(), self.all())];
        if self.directions.len() > 1 {
            groups.extend(self.directions.iter().cloned());
        }
        groups
    }

    /// Adds the delays of all groups, and the loss, which latency must not be without.
    pub fn add_to(&self, finding: &mut Finding, label: &str) {
        for (direction, delays) in self.groups() {
            let one_stream = self.directions.len() < 2 || !direction.is_empty();
            delays.add_to(finding, &joined(label, &direction), one_stream);
        }
        let ratio = if self.sent > 0 { self.lost as f64 / self.sent as f64 } else { 0.0 };
        let name = labelled("loss_ratio", label);
        finding.values.push(Quantity::new(name, "ratio", ratio, self.sent));
    }
}

/// A load's label and a direction: "50/a>b".
pub(super) fn joined(label: &str, direction: &str) -> String {
    match (label, direction) {
        ("", d) => d.into(),
        (l, "") => l.into(),
        (l, d) => format!("{l}/{d}"),
    }
}
