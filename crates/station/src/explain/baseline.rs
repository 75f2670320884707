//! Which delays count as bad: beyond the objective's limit, of others as much above their usual.

use sonde_store::query::{
    BadSampleKind, Delay, DelayLimit, Overview, OverviewRow, RttOrder, RttTop, TimeRange,
};
use sonde_store::{Answer, Query, SeriesFilter, SeriesId, StoreError};

use super::about::SubjectMeasure;
use super::{ExplainTimes, Gather, other_answer};

/// What is usual of a series.
struct UsualDelay {
    series: SeriesId,
    group: String,
    least_ns: i64,
    median_ns: i64,
    high_ns: i64,
    n: u64,
}

/// What counts against the objective, of the event's own series in all of `range`.
pub(super) fn own_kind(
    gather: &Gather<'_>,
    own: &[SeriesId],
    range: TimeRange,
) -> Result<BadSampleKind, StoreError> {
    let (delay, limit_ns, above_least) = match &gather.subject.measure {
        SubjectMeasure::Loss(direction) => return Ok(BadSampleKind::Lost(*direction)),
        SubjectMeasure::Delay { delay, limit_ns, above_least } => (*delay, *limit_ns, *above_least),
    };
    let filter =
        SeriesFilter { groups: gather.subject.groups(), ..SeriesFilter::of(own.iter().copied()) };
    let limits = usual(gather, range, delay, filter)?.into_iter().map(|u| {
        let limit_ns = match limit_ns {
            Some(limit) if above_least => u.least_ns.saturating_add(limit),
            Some(limit) => limit,
            None => u.high_ns,
        };
        DelayLimit { series: u.series, group: u.group, limit_ns }
    });
    Ok(BadSampleKind::Beyond { delay, limits: limits.collect() })
}

/// Limits of all series. Those of the event have that of its objective. What the objective allows
/// them above their usual, others may have above theirs: a delay that a common part of the path adds
/// is one and the same for all.
pub(super) fn limits(
    gather: &Gather<'_>,
    times: &ExplainTimes,
) -> Result<Vec<BadSampleKind>, StoreError> {
    let SubjectMeasure::Delay { delay, limit_ns, above_least } = gather.subject.measure else {
        return Ok(Vec::new());
    };
    // Without a time before, nothing is usual but what there is.
    let range = if times.windows > 0 { times.before } else { times.during };
    let of_probes = if delay == Delay::Passive { Delay::RttNet } else { delay };
    let all = [
        (of_probes, usual(gather, range, of_probes, gather.all_series())?),
        (Delay::Passive, usual(gather, range, Delay::Passive, gather.all_series())?),
    ];
    let groups = gather.subject.groups();
    let is_own = |usual: &UsualDelay| {
        gather.is_subject(usual.series) && (groups.is_empty() || groups.contains(&usual.group))
    };
    let own: Vec<&UsualDelay> = all.iter().flat_map(|(_, all)| all).filter(|u| is_own(u)).collect();
    let room = own.iter().filter_map(|u| match limit_ns {
        Some(limit) if above_least => Some(u.least_ns + limit - u.median_ns),
        Some(limit) => Some(limit - u.median_ns),
        None => None,
    });
    let room = room.min().unwrap_or(0).max(0);
    let limit = |u: &UsualDelay| {
        let usual = u.median_ns.saturating_add(room).max(u.high_ns);
        let limit_ns = match limit_ns {
            Some(limit) if is_own(u) && above_least => u.least_ns.saturating_add(limit),
            Some(limit) if is_own(u) => limit,
            _ => usual,
        };
        DelayLimit { series: u.series, group: u.group.clone(), limit_ns }
    };
    let kinds = all.iter().map(|(delay, all)| BadSampleKind::Beyond {
        delay: *delay,
        limits: all.iter().filter(|u| u.n >= LEAST_SAMPLES || is_own(u)).map(limit).collect(),
    });
    Ok(kinds.collect())
}

fn usual(
    gather: &Gather<'_>,
    range: TimeRange,
    delay: Delay,
    filter: SeriesFilter,
) -> Result<Vec<UsualDelay>, StoreError> {
    let quantiles = vec![0.5, HIGH];
    if delay == Delay::Passive {
        let top = RttTop {
            range,
            filter,
            order: RttOrder::Samples,
            quantiles,
            most: MOST_GROUPS,
            ..RttTop::default()
        };
        let Answer::RttTop(table) = gather.query(&Query::RttTop(top))? else {
            return Err(other_answer());
        };
        let rows = table.rows.into_iter().filter_map(|row| {
            let f = row.figures;
            Some(UsualDelay {
                series: row.series,
                group: row.group,
                least_ns: f.min_ns?,
                median_ns: f.quantiles_ns.first().copied()??,
                high_ns: f.quantiles_ns.get(1).copied()??,
                n: f.n,
            })
        });
        return Ok(rows.collect());
    }
    let overview = Overview { range, filter, delay, quantiles, ..Overview::default() };
    let Answer::Overview(rows) = gather.query(&Query::Overview(overview))? else {
        return Err(other_answer());
    };
    let of = |row: OverviewRow| {
        let s = row.summary;
        Some(UsualDelay {
            series: row.series?,
            group: String::new(),
            least_ns: s.min_ns?,
            median_ns: s.quantiles_ns.first().copied()??,
            high_ns: s.quantiles_ns.get(1).copied()??,
            n: s.n,
        })
    };
    Ok(rows.into_iter().filter_map(of).collect())
}

/// Up to here a series' own delays are its usual.
const HIGH: f64 = 0.95;
/// With fewer samples nothing is usual.
const LEAST_SAMPLES: u64 = 20;
/// Groups of passive round trips that are looked at: those with most samples.
const MOST_GROUPS: usize = 2_000;
