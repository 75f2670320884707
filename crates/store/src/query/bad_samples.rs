//! How many samples of each series count against an objective, in windows of one length.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sonde_results::Caveat;
use sonde_results::caveat::CaveatSet;
use sonde_results::hist::bounds_of;
use sonde_results::record::Counters;
use sonde_results::sla::own_doubt;
use sonde_wire::NotSent;

use super::{Delay, Run, Scan, TimeRange};
use crate::error::StoreError;
use crate::hist_blob::HistBlob;
use crate::interval::IntervalRow;
use crate::rtt::RttRow;
use crate::series::{SeriesDirection, SeriesFilter, SeriesId};

/// Asks how many samples of each series, and of each group of passive round trips, are bad.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BadSamples {
    /// Of this time.
    pub range: TimeRange,
    /// Length of a window, ns; rows count where they begin.
    pub step_ns: i64,
    /// Of these series and groups.
    pub filter: SeriesFilter,
    /// What is bad.
    pub bad: BadSampleKind,
}

/// Which samples are bad.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BadSampleKind {
    /// Probes that were lost, of those sent that way. Losses without a known side are none of one
    /// way.
    Lost(SeriesDirection),
    /// Delays beyond a limit. A bucket counts where it begins beyond it.
    Beyond {
        /// Which delay.
        delay: Delay,
        /// The limits. Series and groups without one are left out.
        limits: Vec<DelayLimit>,
    },
    /// Passive round trips that were taken in loss recovery.
    Recovery,
}

/// The limit of one series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DelayLimit {
    /// Which series.
    pub series: SeriesId,
    /// Of passive round trips which group; else empty.
    pub group: String,
    /// The greatest delay that is not bad, ns.
    pub limit_ns: i64,
}

/// Samples of all series and groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BadSampleTable {
    /// Begin of window 0, ns since 1970 UTC.
    pub from_ns: i64,
    /// The longest interval among the rows at the full rate, ns; 0: there was none.
    pub interval_ns: i64,
    /// Those with a sample, by series and group.
    pub rows: Vec<BadSampleRow>,
}

/// Samples of a series or a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BadSampleRow {
    /// Which series.
    pub series: SeriesId,
    /// Of passive round trips which group; else empty.
    pub group: String,
    /// The windows that have rows, by their number.
    pub windows: Vec<BadSampleWindow>,
}

/// Samples of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadSampleWindow {
    /// Its number.
    pub window: u32,
    /// Samples.
    pub n: u64,
    /// Bad ones.
    pub bad: u64,
    /// Samples of intervals that say more of the station than of the network.
    pub doubtful_n: u64,
    /// Bad ones among those.
    pub doubtful_bad: u64,
    /// Why, if there are any: the first caveat.
    pub doubt: Option<Caveat>,
    /// Probes that were lost on the way there.
    pub lost_forward: u64,
    /// Probes that were lost on the way back.
    pub lost_backward: u64,
    /// Probes that were lost, on whatever way.
    pub lost: u64,
    /// Probes that were due and not sent.
    pub skipped: u64,
    /// Those of them that this host refused or could not send; the others were late.
    pub refused: u64,
    /// Intervals at the full rate that its rows are made of.
    pub intervals: u64,
    /// Time that its rows cover, each from its own begin: it may reach beyond the window, ns.
    pub length_ns: i64,
}

impl Default for BadSamples {
    fn default() -> Self {
        BadSamples {
            range: TimeRange::default(),
            step_ns: 0,
            filter: SeriesFilter::default(),
            bad: BadSampleKind::Lost(SeriesDirection::RoundTrip),
        }
    }
}

type Windows = BTreeMap<(u32, Box<str>), BTreeMap<u32, BadSampleWindow>>;

impl BadSamples {
    pub(super) fn answer(&self, run: &mut Run) -> Result<BadSampleTable, StoreError> {
        run.windows(self.range, self.step_ns)?;
        let delay = self.delay();
        let range = run.plan(delay, self.range, self.step_ns)?;
        let selected = run.select_of(&self.filter, delay);
        let mut columns = vec!["series", "start", "length_ns", "intervals", "caveats"];
        columns.extend(match self.bad {
            BadSampleKind::Recovery => vec!["group", "clean", "recovery"],
            BadSampleKind::Beyond { delay: Delay::Passive, .. } => vec!["group", "clean"],
            _ => COUNTS.to_vec(),
        });
        if let BadSampleKind::Beyond { delay, .. } = self.bad
            && delay != Delay::Passive
        {
            columns.push(delay.column());
        }
        let scan = Scan {
            from_ns: range.from_ns,
            to_ns: range.to_ns,
            series: Some(selected.iter().map(|s| s.id.0).collect()),
            columns: &columns,
        };
        let limits = self.limits();
        let (mut windows, mut interval_ns, mut cells) = (Windows::new(), 0, 0usize);
        let most = usize::try_from(run.limit.answer_rows).unwrap_or(usize::MAX);
        let step_ns = self.step_ns.max(1);
        let mut add = |series: SeriesId, group: &str, start_ns: i64, found: BadSampleWindow| {
            let number = (start_ns - range.from_ns).div_euclid(step_ns);
            let Ok(window) = u32::try_from(number) else { return Ok(()) };
            let row = windows.entry((series.0, group.into())).or_default();
            let cell = row.entry(window).or_insert_with(|| {
                cells += 1;
                BadSampleWindow { window, ..BadSampleWindow::default() }
            });
            cell.add(&found);
            match cells > most {
                true => Err(StoreError::Limit { limit: most as u64, of: "rows of the answer" }),
                false => Ok(()),
            }
        };
        if delay == Delay::Passive {
            run.rtt(&scan, |row| {
                interval_ns = interval_ns.max(row.length_ns / row.intervals.max(1) as i64);
                match self.of_group(row, &limits) {
                    Some(found) => add(
                        row.series,
                        &row.group,
                        row.start_ns,
                        found.lasting(row.intervals, row.length_ns),
                    ),
                    None => Ok(()),
                }
            })?;
        } else {
            run.intervals(&scan, |row| {
                interval_ns = interval_ns.max(row.length_ns / row.intervals.max(1) as i64);
                match self.of_probe(row, &limits) {
                    Some(found) => add(
                        row.series,
                        "",
                        row.start_ns,
                        found.lasting(row.intervals, row.length_ns),
                    ),
                    None => Ok(()),
                }
            })?;
        }
        let rows = windows.into_iter().map(|((series, group), windows)| BadSampleRow {
            series: SeriesId(series),
            group: group.into(),
            windows: windows.into_values().collect(),
        });
        Ok(BadSampleTable { from_ns: range.from_ns, interval_ns, rows: rows.collect() })
    }

    fn delay(&self) -> Delay {
        match self.bad {
            BadSampleKind::Lost(_) => Delay::RttNet,
            BadSampleKind::Beyond { delay, .. } => delay,
            BadSampleKind::Recovery => Delay::Passive,
        }
    }

    fn limits(&self) -> BTreeMap<(u32, &str), i64> {
        let BadSampleKind::Beyond { limits, .. } = &self.bad else { return BTreeMap::new() };
        limits.iter().map(|l| ((l.series.0, l.group.as_str()), l.limit_ns)).collect()
    }

    fn of_probe(
        &self,
        row: &IntervalRow,
        limits: &BTreeMap<(u32, &str), i64>,
    ) -> Option<BadSampleWindow> {
        let counters = row.counters();
        let (forward, backward) = sides(&counters);
        let (n, bad) = match &self.bad {
            BadSampleKind::Lost(SeriesDirection::RoundTrip) => (counters.sent, counters.lost),
            BadSampleKind::Lost(SeriesDirection::Forward) => (counters.sent, forward),
            BadSampleKind::Lost(SeriesDirection::Backward) => {
                (counters.received + backward, backward)
            }
            BadSampleKind::Beyond { delay, .. } => {
                let limit = *limits.get(&(row.series.0, ""))?;
                beyond(blob(row, *delay), limit)
            }
            BadSampleKind::Recovery => return None,
        };
        let doubt = own_doubt(&counters, caveats(row.caveats));
        let lost = (forward, backward, counters.lost);
        let found = BadSampleWindow::of((n, bad), doubt, lost);
        let refused = counters.not_sent.total() - counters.not_sent.of(NotSent::Late);
        Some(BadSampleWindow { skipped: counters.skipped, refused, ..found })
    }

    fn of_group(
        &self,
        row: &RttRow,
        limits: &BTreeMap<(u32, &str), i64>,
    ) -> Option<BadSampleWindow> {
        let (n, bad) = match &self.bad {
            BadSampleKind::Recovery => {
                let recovery = row.recovery.head().count;
                (row.clean.head().count + recovery, recovery)
            }
            _ => beyond(&row.clean, *limits.get(&(row.series.0, &*row.group))?),
        };
        Some(BadSampleWindow::of((n, bad), None, (0, 0, 0)))
    }
}

impl BadSampleWindow {
    fn of(
        (n, bad): (u64, u64),
        doubt: Option<Caveat>,
        (lost_forward, lost_backward, lost): (u64, u64, u64),
    ) -> BadSampleWindow {
        let (doubtful_n, doubtful_bad) = if doubt.is_some() { (n, bad) } else { (0, 0) };
        BadSampleWindow {
            window: 0,
            n,
            bad,
            doubtful_n,
            doubtful_bad,
            doubt,
            lost_forward,
            lost_backward,
            lost,
            skipped: 0,
            refused: 0,
            intervals: 0,
            length_ns: 0,
        }
    }

    fn lasting(self, intervals: u64, length_ns: i64) -> BadSampleWindow {
        BadSampleWindow { intervals, length_ns, ..self }
    }

    /// Adds what another one counted, of whatever window.
    pub fn add(&mut self, other: &BadSampleWindow) {
        self.n += other.n;
        self.bad += other.bad;
        self.doubtful_n += other.doubtful_n;
        self.doubtful_bad += other.doubtful_bad;
        self.doubt = self.doubt.into_iter().chain(other.doubt).min();
        self.lost_forward += other.lost_forward;
        self.lost_backward += other.lost_backward;
        self.lost += other.lost;
        self.skipped += other.skipped;
        self.refused += other.refused;
        self.intervals += other.intervals;
        self.length_ns += other.length_ns;
    }
}

fn sides(counters: &Counters) -> (u64, u64) {
    (counters.lost_forward.unwrap_or(0), counters.lost_backward.unwrap_or(0))
}

fn caveats(mask: u64) -> CaveatSet {
    let mut set = CaveatSet::default();
    let has = |caveat: &Caveat| mask >> (*caveat as u8) & 1 == 1;
    Caveat::ALL.into_iter().filter(has).for_each(|caveat| set.insert(caveat));
    set
}

fn blob(row: &IntervalRow, delay: Delay) -> &HistBlob {
    match delay {
        Delay::RttNet | Delay::Passive => &row.rtt_net,
        Delay::Rtt => &row.rtt,
        Delay::Forward => &row.forward,
        Delay::Backward => &row.backward,
        Delay::IpdvForward => &row.ipdv_forward,
        Delay::IpdvBackward => &row.ipdv_backward,
    }
}

/// Values that have a bucket, and those of them whose bucket begins beyond the limit.
fn beyond(hist: &HistBlob, limit_ns: i64) -> (u64, u64) {
    hist.buckets().fold((0, 0), |(n, bad), (bucket, count)| {
        let is_bad = bounds_of(bucket).0 > limit_ns;
        (n + count, bad + if is_bad { count } else { 0 })
    })
}

/// Columns of counts.
const COUNTS: [&str; 8] = [
    "sent",
    "received",
    "lost",
    "lost_forward",
    "lost_backward",
    "sent_late",
    "skipped",
    "not_sent",
];
