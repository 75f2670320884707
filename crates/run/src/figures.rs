//! Figures of a histogram, for those who want no buckets.

use serde::Serialize;
use sonde_results::Hist;

/// Figures of one histogram, ns. Absent where it is empty.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Least value, ns.
    pub min: i64,
    /// Arithmetic mean, ns.
    pub mean: f64,
    /// Median, ns; the quantiles below likewise.
    pub p50: i64,
    /// 90 %.
    pub p90: i64,
    /// 99 %.
    pub p99: i64,
    /// 99.9 %.
    pub p999: i64,
    /// Greatest value, ns.
    pub max: i64,
}

impl Figures {
    /// Figures of `hist`; `None`: it is empty.
    pub fn of(hist: &Hist) -> Option<Figures> {
        Some(Figures {
            min: hist.min()?,
            mean: hist.mean()?,
            p50: hist.quantile(0.5)?,
            p90: hist.quantile(0.9)?,
            p99: hist.quantile(0.99)?,
            p999: hist.quantile(0.999)?,
            max: hist.max()?,
        })
    }
}
