//! Interval records of probes as rows, at the full rate and rolled up.
//!
//! A row at the full rate is one interval of one series. A row of a roll-up is the sum of the
//! intervals that begin in its window; there may be several for one window, which add up.
//!
//! Of the six histograms of a record, `rtt_net` is kept at the full rate, and `forward` and
//! `backward` where nothing says that the clocks differ. `rtt` is a count, minimum, maximum and sum.
//! The two of delay variation are in roll-ups only: all six would take 150 octets a record.

use sonde_results::record::{Counters, Interval, LossSide};
use sonde_results::{Caveat, NotSentCounts};
use sonde_wire::{NotSent, StampSource};

use crate::column::{Column, Kind, On, StoredRow};
use crate::hist_blob::{HistBlob, HistSum};
use crate::series::SeriesId;
use crate::varint;

/// One or more intervals of one series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntervalRow {
    /// Whose they are.
    pub series: SeriesId,
    /// First instant (inclusive) of the interval or window, ns since 1970 UTC.
    pub start_ns: i64,
    /// Time that the intervals last together, ns.
    pub length_ns: i64,
    /// How many intervals; 1 at the full rate.
    pub intervals: u64,
    /// Probes that left.
    pub sent: u64,
    /// Probes that were answered in time.
    pub received: u64,
    /// Probes that were not.
    pub lost: u64,
    /// Further replies to an answered probe.
    pub duplicated: u64,
    /// Replies that were overtaken.
    pub reordered: u64,
    /// Replies after the timeout.
    pub late: u64,
    /// Of the lost ones, those lost on the way there; `None`: not known of any.
    pub lost_forward: Option<u64>,
    /// Of the lost ones, those lost on the way back; `None` likewise.
    pub lost_backward: Option<u64>,
    /// Probes that left too late.
    pub sent_late: u64,
    /// Probes that were due and not sent.
    pub skipped: u64,
    /// Those, by reason: pairs of a reason's place in [`NotSent::ALL`] and its count.
    pub not_sent: Box<[u8]>,
    /// Round trip with the reflector's dwell: no buckets.
    pub rtt: HistBlob,
    /// Round trip without the dwell.
    pub rtt_net: HistBlob,
    /// One-way delay there; without buckets where the clocks differ.
    pub forward: HistBlob,
    /// One-way delay back, likewise.
    pub backward: HistBlob,
    /// Delay variation there; empty in segments at the full rate.
    pub ipdv_forward: HistBlob,
    /// Delay variation back, likewise.
    pub ipdv_backward: HistBlob,
    /// Smoothed forward jitter, ns, to 0.012 %; of a roll-up the greatest.
    pub jitter_forward_ns: f32,
    /// Smoothed backward jitter, ns, likewise.
    pub jitter_backward_ns: f32,
    /// The worst source of T1.
    pub t1_source: Option<StampSource>,
    /// The worst source of T4.
    pub t4_source: Option<StampSource>,
    /// The peer's clock error, ns, by its own word; of a roll-up the greatest.
    pub peer_error_ns: Option<i64>,
    /// Caveats of any interval: bit n is [`Caveat::ALL`]`[n]`.
    pub caveats: u64,
    /// Of a roll-up: pairs of a caveat's bit and the number of intervals in which it is true.
    pub caveat_counts: Box<[u8]>,
    /// Time of intervals that lost nothing, ns.
    pub clear_ns: i64,
    /// Time of intervals that lost some, not all, ns.
    pub lossy_ns: i64,
    /// Time of intervals that sent and got no answer at all, ns.
    pub down_ns: i64,
}

impl IntervalRow {
    /// A record at the full rate. Its times are UTC.
    pub fn new(series: SeriesId, record: &Interval) -> Self {
        let c = &record.counters;
        let length_ns = record.end_ns.saturating_sub(record.start_ns).max(0);
        let when = |holds: bool| if holds { length_ns } else { 0 };
        let clocks_differ = CLOCKS_DIFFER.iter().any(|&caveat| record.caveats.contains(caveat));
        let one_way = if clocks_differ { HistBlob::summary } else { HistBlob::new };
        IntervalRow {
            series,
            start_ns: record.start_ns,
            length_ns,
            intervals: 1,
            sent: c.sent,
            received: c.received,
            lost: c.lost,
            duplicated: c.duplicated,
            reordered: c.reordered,
            late: c.late,
            lost_forward: c.lost_forward,
            lost_backward: c.lost_backward,
            sent_late: c.sent_late,
            skipped: c.skipped,
            not_sent: pairs(c.not_sent.iter().map(|(why, n)| (why as u64, n))),
            rtt: HistBlob::summary(&record.rtt),
            rtt_net: HistBlob::new(&record.rtt_net),
            forward: one_way(&record.forward),
            backward: one_way(&record.backward),
            ipdv_forward: HistBlob::new(&record.ipdv_forward),
            ipdv_backward: HistBlob::new(&record.ipdv_backward),
            jitter_forward_ns: rounded(record.jitter_forward_ns),
            jitter_backward_ns: rounded(record.jitter_backward_ns),
            t1_source: record.t1_source,
            t4_source: record.t4_source,
            peer_error_ns: record.peer_error_ns.map(|ns| ns as i64),
            caveats: record.caveats.iter().fold(0, |mask, c| mask | 1 << c as u8),
            caveat_counts: Box::default(),
            clear_ns: when(c.sent > 0 && c.lost == 0),
            lossy_ns: when(c.lost > 0 && c.received > 0),
            down_ns: when(c.sent > 0 && c.received == 0 && c.lost > 0),
        }
    }

    /// The counts, as records have them.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters {
            sent: self.sent,
            received: self.received,
            lost: self.lost,
            duplicated: self.duplicated,
            reordered: self.reordered,
            late: self.late,
            lost_forward: self.lost_forward,
            lost_backward: self.lost_backward,
            lost_unknown: 0,
            sent_late: self.sent_late,
            skipped: self.skipped,
            not_sent: NotSentCounts::default(),
        };
        for (why, n) in from_pairs(&self.not_sent) {
            // A reason of a later version is none of those known here.
            let why = NotSent::ALL.get(why as usize).copied().unwrap_or(NotSent::Other);
            counters.not_sent.add(why, n);
        }
        counters.settle_sides();
        counters
    }

    /// Whether the losses can be split by direction.
    pub fn loss_side(&self) -> LossSide {
        self.counters().loss_side()
    }

    /// Bits of caveats, and of how many intervals each is true.
    pub fn caveat_counts(&self) -> impl Iterator<Item = (u8, u64)> {
        // At the full rate the bits say it all.
        let alone = if self.caveat_counts.is_empty() { self.caveats } else { 0 };
        let alone = (0..64).filter(move |bit| alone >> bit & 1 == 1).map(|bit| (bit, 1));
        alone.chain(from_pairs(&self.caveat_counts).map(|(bit, n)| (bit as u8, n)))
    }
}

/// Adds rows up, of one series or of several. The result does not depend on their order, nor on
/// how they were grouped.
#[derive(Clone, Debug, Default)]
pub struct IntervalSum {
    /// The counts and extremes; its histograms are not used.
    row: IntervalRow,
    counters: Counters,
    caveats: Vec<u64>,
    /// Least and greatest start of a row, ns since 1970 UTC.
    starts: Option<(i64, i64)>,
    /// Round trip with the dwell: no buckets.
    pub rtt: HistSum,
    /// Round trip without the dwell.
    pub rtt_net: HistSum,
    /// One-way delay there.
    pub forward: HistSum,
    /// One-way delay back.
    pub backward: HistSum,
    /// Delay variation there.
    pub ipdv_forward: HistSum,
    /// Delay variation back.
    pub ipdv_backward: HistSum,
}

impl IntervalSum {
    /// Adds a row.
    pub fn add(&mut self, other: &IntervalRow) {
        let row = &mut self.row;
        self.starts = Some(match self.starts {
            None => (other.start_ns, other.start_ns),
            Some((least, greatest)) => (least.min(other.start_ns), greatest.max(other.start_ns)),
        });
        row.length_ns += other.length_ns;
        row.intervals += other.intervals;
        self.counters.merge(&other.counters());
        row.jitter_forward_ns = row.jitter_forward_ns.max(other.jitter_forward_ns);
        row.jitter_backward_ns = row.jitter_backward_ns.max(other.jitter_backward_ns);
        row.t1_source = row.t1_source.max(other.t1_source);
        row.t4_source = row.t4_source.max(other.t4_source);
        row.peer_error_ns = row.peer_error_ns.max(other.peer_error_ns);
        row.caveats |= other.caveats;
        for (bit, n) in other.caveat_counts() {
            self.caveats.resize(64, 0);
            if let Some(count) = self.caveats.get_mut(usize::from(bit)) {
                *count += n;
            }
        }
        row.clear_ns += other.clear_ns;
        row.lossy_ns += other.lossy_ns;
        row.down_ns += other.down_ns;
        self.rtt.add(&other.rtt);
        self.rtt_net.add(&other.rtt_net);
        self.forward.add(&other.forward);
        self.backward.add(&other.backward);
        self.ipdv_forward.add(&other.ipdv_forward);
        self.ipdv_backward.add(&other.ipdv_backward);
    }

    /// The counts.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many intervals it holds.
    pub fn intervals(&self) -> u64 {
        self.row.intervals
    }

    /// Times of intervals that lost nothing, some, and all; and of all intervals, ns.
    pub fn times_ns(&self) -> (i64, i64, i64, i64) {
        (self.row.clear_ns, self.row.lossy_ns, self.row.down_ns, self.row.length_ns)
    }

    /// Least and greatest start of its rows, ns since 1970 UTC.
    pub fn starts_ns(&self) -> Option<(i64, i64)> {
        self.starts
    }

    /// The worst sources of T1 and T4.
    pub fn sources(&self) -> (Option<StampSource>, Option<StampSource>) {
        (self.row.t1_source, self.row.t4_source)
    }

    /// Caveats, and of how many of [`IntervalSum::intervals`] each is true. Those of later versions
    /// are left out.
    pub fn caveats(&self) -> Vec<(Caveat, u64)> {
        let all = Caveat::ALL.into_iter().zip(self.caveats.iter().copied());
        all.filter(|&(_, n)| n > 0).collect()
    }

    /// The greatest smoothed jitter there and back, ns.
    pub fn jitter_ns(&self) -> (f32, f32) {
        (self.row.jitter_forward_ns, self.row.jitter_backward_ns)
    }

    /// As a row of a roll-up, of the window that begins at `start_ns`.
    pub fn to_row(&self, series: SeriesId, start_ns: i64) -> IntervalRow {
        let c = &self.counters;
        let caveats = self.caveats.iter().enumerate().map(|(bit, &n)| (bit as u64, n));
        IntervalRow {
            series,
            start_ns,
            sent: c.sent,
            received: c.received,
            lost: c.lost,
            duplicated: c.duplicated,
            reordered: c.reordered,
            late: c.late,
            lost_forward: c.lost_forward,
            lost_backward: c.lost_backward,
            sent_late: c.sent_late,
            skipped: c.skipped,
            not_sent: pairs(c.not_sent.iter().map(|(why, n)| (why as u64, n))),
            rtt: self.rtt.to_blob(),
            rtt_net: self.rtt_net.to_blob(),
            forward: self.forward.to_blob(),
            backward: self.backward.to_blob(),
            ipdv_forward: self.ipdv_forward.to_blob(),
            ipdv_backward: self.ipdv_backward.to_blob(),
            caveat_counts: pairs(caveats.filter(|&(_, n)| n > 0)),
            ..self.row.clone()
        }
    }

    /// Empties it; the memory of histograms is kept.
    pub fn clear(&mut self) {
        self.row = IntervalRow::default();
        self.counters = Counters::default();
        self.caveats.clear();
        self.starts = None;
        let Self { rtt, rtt_net, forward, backward, ipdv_forward, ipdv_backward, .. } = self;
        let all = [rtt, rtt_net, forward, backward, ipdv_forward, ipdv_backward];
        all.into_iter().for_each(HistSum::clear);
    }
}

impl StoredRow for IntervalRow {
    type Key = (u32, i64);

    const COLUMNS: &'static [Column<Self>] = &[
        every("series", Kind::Close(|r| r.series.0.into(), |r, v| r.series = SeriesId(v as u32))),
        every("start", Kind::Instant(|r| r.start_ns, |r, v| r.start_ns = v)),
        every("length_ns", Kind::Few(|r| r.length_ns, |r, v| r.length_ns = v)),
        every("intervals", Kind::Few(|r| r.intervals as i64, |r, v| r.intervals = v as u64)),
        every("sent", Kind::Few(|r| r.sent as i64, |r, v| r.sent = v as u64)),
        every("received", Kind::Few(|r| r.received as i64, |r, v| r.received = v as u64)),
        every("lost", Kind::Few(|r| r.lost as i64, |r, v| r.lost = v as u64)),
        every("duplicated", Kind::Few(|r| r.duplicated as i64, |r, v| r.duplicated = v as u64)),
        every("reordered", Kind::Few(|r| r.reordered as i64, |r, v| r.reordered = v as u64)),
        every("late", Kind::Few(|r| r.late as i64, |r, v| r.late = v as u64)),
        every(
            "lost_forward",
            Kind::Maybe(
                |r| r.lost_forward.map(|n| n as i64),
                |r, v| r.lost_forward = v.map(|n| n as u64),
            ),
        ),
        every(
            "lost_backward",
            Kind::Maybe(
                |r| r.lost_backward.map(|n| n as i64),
                |r, v| r.lost_backward = v.map(|n| n as u64),
            ),
        ),
        every("sent_late", Kind::Few(|r| r.sent_late as i64, |r, v| r.sent_late = v as u64)),
        every("skipped", Kind::Few(|r| r.skipped as i64, |r, v| r.skipped = v as u64)),
        every("not_sent", Kind::Octets(|r| &r.not_sent, |r, v| r.not_sent = v.into())),
        every("rtt", Kind::Summary(|r| &r.rtt, |r, v| r.rtt = v)),
        every("rtt_net", Kind::Hist(|r| &r.rtt_net, |r, v| r.rtt_net = v)),
        every("forward", Kind::Hist(|r| &r.forward, |r, v| r.forward = v)),
        every("backward", Kind::Hist(|r| &r.backward, |r, v| r.backward = v)),
        rolled("ipdv_forward", Kind::Hist(|r| &r.ipdv_forward, |r, v| r.ipdv_forward = v)),
        rolled("ipdv_backward", Kind::Hist(|r| &r.ipdv_backward, |r, v| r.ipdv_backward = v)),
        every(
            "jitter_forward_ns",
            Kind::Real(|r| r.jitter_forward_ns, |r, v| r.jitter_forward_ns = v),
        ),
        every(
            "jitter_backward_ns",
            Kind::Real(|r| r.jitter_backward_ns, |r, v| r.jitter_backward_ns = v),
        ),
        every(
            "t1_source",
            Kind::Few(|r| source_code(r.t1_source), |r, v| r.t1_source = source_of(v)),
        ),
        every(
            "t4_source",
            Kind::Few(|r| source_code(r.t4_source), |r, v| r.t4_source = source_of(v)),
        ),
        every("peer_error_ns", Kind::Maybe(|r| r.peer_error_ns, |r, v| r.peer_error_ns = v)),
        every("caveats", Kind::Few(|r| r.caveats as i64, |r, v| r.caveats = v as u64)),
        rolled(
            "caveat_counts",
            Kind::Octets(|r| &r.caveat_counts, |r, v| r.caveat_counts = v.into()),
        ),
        every("clear_ns", Kind::Few(|r| r.clear_ns, |r, v| r.clear_ns = v)),
        every("lossy_ns", Kind::Few(|r| r.lossy_ns, |r, v| r.lossy_ns = v)),
        every("down_ns", Kind::Few(|r| r.down_ns, |r, v| r.down_ns = v)),
    ];

    fn key(&self) -> (u32, i64) {
        (self.series.0, self.start_ns)
    }

    fn time_ns(&self) -> i64 {
        self.start_ns
    }

    fn series(&self) -> u32 {
        self.series.0
    }

    fn merged(rows: &[Self]) -> Self {
        let mut sum = IntervalSum::default();
        rows.iter().for_each(|row| sum.add(row));
        let first = rows.first().cloned().unwrap_or_default();
        sum.to_row(first.series, first.start_ns)
    }
}

const fn every(name: &'static str, kind: Kind<IntervalRow>) -> Column<IntervalRow> {
    Column { name, on: On::Every, kind }
}

const fn rolled(name: &'static str, kind: Kind<IntervalRow>) -> Column<IntervalRow> {
    Column { name, on: On::RollUp, kind }
}

/// To 12 bits after the point, 0.012 %: a smoothed estimate has no more, and the others cost 1.5
/// octets a record.
fn rounded(value: f64) -> f32 {
    let bits = (value as f32).to_bits();
    f32::from_bits(bits.saturating_add(1 << 10) & !((1 << 11) - 1))
}

/// 0: no stamp; else 1 for the best source and up.
fn source_code(source: Option<StampSource>) -> i64 {
    source.map_or(0, |s| 1 + s as i64)
}

fn source_of(code: i64) -> Option<StampSource> {
    use StampSource::*;
    let all = [Hardware, Driver, Kernel, File, User];
    (code > 0).then(|| all.get(code as usize - 1).copied().unwrap_or(User))
}

pub(crate) fn pairs(of: impl Iterator<Item = (u64, u64)>) -> Box<[u8]> {
    let mut out = Vec::new();
    for (what, n) in of {
        varint::put(&mut out, what.into());
        varint::put(&mut out, n.into());
    }
    out.into()
}

pub(crate) fn from_pairs(mut octets: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    std::iter::from_fn(move || {
        Some((varint::take_u64(&mut octets)?, varint::take_u64(&mut octets)?))
    })
}

/// With one of these, buckets of one-way delays say nothing that their sum and extremes do not.
const CLOCKS_DIFFER: [Caveat; 5] = [
    Caveat::LocalClockUnsynchronised,
    Caveat::PeerClockUnsynchronised,
    Caveat::NegativeOneWayDelay,
    Caveat::PeerClockStepped,
    Caveat::OneWayImplausible,
];

#[cfg(test)]
mod tests;
