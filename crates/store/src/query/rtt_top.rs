//! The groups of passive round-trip times that stand out: the slowest, or those with most samples.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sonde_results::Caveat;

use super::summary::quantiles_of;
use super::{Run, Scan, TimeRange, plan};
use crate::error::StoreError;
use crate::rtt::RttSum;
use crate::series::{SeriesFilter, SeriesId};
use crate::table::Table;

/// What makes a group stand out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RttOrder {
    /// The quantile [`RttTop::slow_at`] of its clean samples.
    #[default]
    Slowest,
    /// Clean samples.
    Samples,
}

/// Asks for the groups that stand out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RttTop {
    /// Of this time.
    pub range: TimeRange,
    /// Of these units and groups.
    pub filter: SeriesFilter,
    /// What makes a group stand out.
    pub order: RttOrder,
    /// Which quantile says how slow a group is, 0..=1.
    pub slow_at: f64,
    /// Groups with fewer clean samples count to the rest.
    pub least_samples: u64,
    /// Which quantiles are given, 0..=1.
    pub quantiles: Vec<f64>,
    /// So many rows; the rest is one.
    pub most: usize,
}

impl Default for RttTop {
    fn default() -> Self {
        RttTop {
            range: TimeRange::default(),
            filter: SeriesFilter::default(),
            order: RttOrder::Slowest,
            slow_at: 0.99,
            least_samples: 1,
            quantiles: vec![0.5, 0.99],
            most: 20,
        }
    }
}

/// The groups that stand out, and the rest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RttTopTable {
    /// First what stands out most; ties by unit and name.
    pub rows: Vec<RttTopRow>,
    /// Groups that are not among them.
    pub other_groups: u64,
    /// Those together.
    pub other: RttFigures,
}

/// A group of one unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RttTopRow {
    /// The unit.
    pub series: SeriesId,
    /// What its hosts have in common: "192.0.2.0/24".
    pub group: String,
    /// Its samples.
    pub figures: RttFigures,
}

/// Samples of one or more groups in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RttFigures {
    /// Intervals with a sample, of each group.
    pub intervals: u64,
    /// Clean samples.
    pub n: u64,
    /// Their mean, ns.
    pub mean_ns: Option<f64>,
    /// The least, ns.
    pub min_ns: Option<i64>,
    /// The greatest, ns.
    pub max_ns: Option<i64>,
    /// The quantiles that were asked for, ns.
    pub quantiles_ns: Vec<Option<i64>>,
    /// Samples in loss recovery.
    pub recovery: u64,
    /// Samples with an acknowledgement that was held back.
    pub delayed_ack: u64,
    /// Caveats, and of how many of the intervals each is true.
    pub caveats: Vec<(Caveat, u64)>,
}

impl RttFigures {
    fn new(sum: &RttSum, quantiles: &[f64]) -> Self {
        let head = sum.clean.head();
        let some = head.count > 0;
        RttFigures {
            intervals: sum.intervals,
            n: head.count,
            mean_ns: sum.clean.mean(),
            min_ns: some.then_some(head.min),
            max_ns: some.then_some(head.max),
            quantiles_ns: quantiles_of(&sum.clean, quantiles),
            recovery: sum.recovery.head().count,
            delayed_ack: sum.delayed_ack.head().count,
            caveats: sum.caveats(),
        }
    }
}

impl RttTop {
    pub(super) fn answer(&self, run: &mut Run) -> Result<RttTopTable, StoreError> {
        let (level, range) = plan::pick(run.source, Table::Rtt, self.range, 0)?;
        (run.level, run.range) = (Some(level), range);
        let scan = Scan {
            from_ns: range.from_ns,
            to_ns: range.to_ns,
            series: Some(run.select(&self.filter).iter().map(|s| s.id.0).collect()),
            columns: &[],
        };
        let mut groups: BTreeMap<(u32, Box<str>), RttSum> = BTreeMap::new();
        run.rtt(&scan, |row| {
            groups.entry((row.series.0, row.group.clone())).or_default().add(row);
            match groups.len() > MOST_GROUPS {
                true => Err(StoreError::Limit {
                    limit: MOST_GROUPS as u64,
                    of: "groups of round trips",
                }),
                false => Ok(()),
            }
        })?;
        let standing = |sum: &RttSum| match self.order {
            RttOrder::Slowest => sum.clean.quantile(self.slow_at).unwrap_or(i64::MIN),
            RttOrder::Samples => sum.clean.head().count as i64,
        };
        let enough = |sum: &RttSum| sum.clean.head().count >= self.least_samples;
        let mut groups: Vec<((u32, Box<str>), RttSum)> = groups.into_iter().collect();
        // The map's order decides ties.
        groups.sort_by_cached_key(|(_, sum)| std::cmp::Reverse((enough(sum), standing(sum))));
        let kept = groups.iter().take(self.most).take_while(|(_, sum)| enough(sum)).count();
        let rest = groups.split_off(kept);
        run.check_answer(groups.len())?;
        let mut other = RttSum::default();
        rest.iter().for_each(|(_, sum)| other.merge(sum));
        let rows = groups.into_iter().map(|((series, group), sum)| RttTopRow {
            series: SeriesId(series),
            group: group.into(),
            figures: RttFigures::new(&sum, &self.quantiles),
        });
        Ok(RttTopTable {
            rows: rows.collect(),
            other_groups: rest.len() as u64,
            other: RttFigures::new(&other, &self.quantiles),
        })
    }
}

/// Groups that are held in memory: about 1 kB each.
const MOST_GROUPS: usize = 200_000;
