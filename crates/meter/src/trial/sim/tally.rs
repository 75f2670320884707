//! Turns the fluid of a simulated direction into the counts and distributions of a trial.

use sonde_results::hist::{Hist, bucket_of, buckets_in_row};
use sonde_results::trial::{Direction, LossRun, Offer, SeriesPoint, StreamCount};

use super::super::values::SECOND;
use super::{DeviceConfig, Faults};

/// Values drawn of a piece in which latencies differ, at most: each stands for an equal share.
const DRAWS: u64 = 256;

/// A time in which everything follows straight lines.
pub(super) struct Piece {
    /// Begin and end, ns from the first frame.
    pub from: f64,
    pub until: f64,
    /// Frames a nanosecond.
    pub arrives: f64,
    /// Share that is lost.
    pub loss: f64,
    /// Waiting time of the first and the last frame, ns.
    pub wait: [f64; 2],
}

impl Piece {
    pub fn lost(from: f64, until: f64, arrives: f64) -> Piece {
        Piece { from, until, arrives, loss: 1.0, wait: [0.0; 2] }
    }
}

/// A direction in the making.
pub(super) struct Tally {
    d: Direction,
    faults: Faults,
    start_ns: i64,
    base_ns: f64,
    jitter_ns: f64,
    discard_ns: f64,
    length_ns: i64,
    /// Fluid so far: frames that arrived at the device, all and counted ones, and lost ones.
    offered: f64,
    counted: f64,
    lost: f64,
    last_arrival: f64,
    point: SeriesPoint,
    point_latency: Hist,
}

impl Tally {
    pub fn new(name: String, offer: &Offer, start_ns: i64, config: &DeviceConfig) -> Tally {
        let duration = offer.duration_ns();
        // Whole seconds, as many as it takes to have no more points than are kept.
        let points = Direction::SERIES_POINTS as i64;
        let length_ns = SECOND * ((duration / SECOND + points) / points).max(1);
        let last = offer.rate_at(offer.frames);
        let d = Direction {
            name,
            sent_ns: [
                start_ns + offer.discard_ns,
                start_ns + duration - (SECOND as f64 / last) as i64,
            ],
            ..Direction::default()
        };
        Tally {
            d,
            faults: config.faults.clone(),
            start_ns,
            base_ns: config.base_ns as f64,
            jitter_ns: config.jitter_ns,
            discard_ns: offer.discard_ns as f64,
            length_ns,
            offered: 0.0,
            counted: 0.0,
            lost: 0.0,
            last_arrival: 0.0,
            point: SeriesPoint { length_ns, ..SeriesPoint::default() },
            point_latency: Hist::default(),
        }
    }

    /// Where the next piece has to end: the counting begins, or a point of the series ends.
    pub fn next_boundary(&self, t: f64) -> f64 {
        let point = (self.point.at_ns + self.length_ns) as f64;
        if t < self.discard_ns { point.min(self.discard_ns) } else { point }
    }

    /// Frames that waited are lost.
    pub fn lose_waiting(&mut self, frames: f64) {
        let frames = frames.round() as u64;
        let frames = frames.min(self.d.received);
        self.d.received -= frames;
        self.d.lost += frames;
    }

    pub fn add(&mut self, piece: Piece, random: &mut fastrand::Rng) {
        let fluid = (piece.until - piece.from) * piece.arrives;
        let first = self.offered.round() as u64;
        self.offered += fluid;
        if piece.from >= self.discard_ns {
            let before = self.counted.round() as u64;
            self.counted += fluid;
            let frames = self.counted.round() as u64 - before;
            let lost_before = self.lost.round() as u64;
            self.lost += fluid * piece.loss;
            let lost = (self.lost.round() as u64 - lost_before).min(frames);
            self.count(&piece, first, before, frames, lost, random);
        }
        if piece.until >= (self.point.at_ns + self.length_ns) as f64 {
            self.end_point();
        }
    }

    fn count(
        &mut self,
        piece: &Piece,
        first: u64,
        before: u64,
        frames: u64,
        mut lost: u64,
        random: &mut fastrand::Rng,
    ) {
        let reached = |n: u64, frames: u64| frames.checked_div(n).unwrap_or(0);
        let every = |n| reached(n, before + frames) - reached(n, before);
        self.lose(piece, first, frames, lost);
        let single = every(self.faults.drops_one_in).min(frames - lost);
        self.lose(piece, first, frames, single);
        lost += single;
        let arrived = frames - lost;
        self.d.sent += frames;
        self.d.lost += lost;
        self.d.received += arrived;
        self.d.duplicates += every(self.faults.duplicates_one_in).min(arrived);
        self.d.reordered += every(self.faults.reorders_one_in).min(arrived);
        self.point.received += arrived;
        self.point.lost += lost;
        if arrived == 0 {
            return;
        }
        let reaches = |i: usize| [piece.from, piece.until][i] + self.base_ns + piece.wait[i];
        let gap = (reaches(0) - self.last_arrival).max(1.0 / piece.arrives);
        if self.d.received > arrived {
            self.d.arrival_gap_ns = self.d.arrival_gap_ns.max(gap as i64);
        } else {
            self.d.received_ns[0] = self.start_ns + reaches(0) as i64;
        }
        self.last_arrival = reaches(1);
        self.d.received_ns[1] = self.start_ns + reaches(1) as i64;
        self.delays(piece, arrived, random);
    }

    /// Latencies and their differences, from the line on which the waiting time lies.
    fn delays(&mut self, piece: &Piece, arrived: u64, random: &mut fastrand::Rng) {
        let slope = (piece.wait[1] - piece.wait[0]) / arrived as f64;
        let level = slope == 0.0 && self.jitter_ns == 0.0;
        let draws = if level { 1 } else { arrived.min(8 + arrived / 64).min(DRAWS) };
        let mut jitter = || match self.jitter_ns {
            0.0 => 0.0,
            mean => -mean * (1.0 - random.f64()).ln(),
        };
        let (mut latencies, mut differences) = (Vec::new(), Vec::new());
        for i in 0..draws {
            let share = arrived / draws + u64::from(i < arrived % draws);
            let at = (i as f64 + 0.5) / draws as f64;
            let (now, then) = (jitter(), jitter());
            let value = self.base_ns + piece.wait[0] + at * (piece.wait[1] - piece.wait[0]) + now;
            latencies.push((value as i64, share));
            differences.push(((slope + now - then) as i64, share));
        }
        let latency = weighted(&mut latencies);
        self.d.latency.merge(&latency);
        self.point_latency.merge(&latency);
        self.d.ipdv.merge(&weighted(&mut differences));
        differences.iter_mut().for_each(|d| d.0 = d.0.abs());
        self.d.jitter.merge(&weighted(&mut differences));
    }

    /// Runs of `lost` of the `frames` from index `first`, evenly spread.
    fn lose(&mut self, piece: &Piece, first: u64, frames: u64, lost: u64) {
        if lost == 0 {
            return;
        }
        let arrived = frames - lost;
        let runs = if lost <= arrived { lost } else { arrived + 1 };
        let room = (Direction::LOSS_RUNS - self.d.losses.len()) as u64;
        let run = |i: u64| {
            let begin = first + (i as f64 * frames as f64 / runs as f64) as u64;
            let length = (lost / runs + u64::from(i < lost % runs)).max(1);
            let at_ns = piece.from + (begin - first) as f64 / piece.arrives;
            LossRun { first: begin, frames: length, at_ns: at_ns as i64 }
        };
        // A run that goes on where the last one ended is the same one.
        let joins = self
            .d
            .losses
            .last()
            .is_some_and(|l| runs == 1 && l.first + l.frames == first && arrived == 0);
        if joins {
            let last = self.d.losses.last_mut().expect("there is one");
            last.frames += lost;
            self.d.last_loss = Some(*last);
            return;
        }
        self.d.losses.extend((0..runs.min(room)).map(run));
        self.d.losses_omitted += runs.saturating_sub(room);
        self.d.last_loss = Some(run(runs - 1));
    }

    fn end_point(&mut self) {
        let next = self.point.at_ns + self.length_ns;
        let latency = &self.point_latency;
        let quantile = |q| latency.quantile(q).unwrap_or(0);
        self.point.latency_ns = [latency.min, quantile(0.5), quantile(0.99), latency.max];
        self.d.series.push(self.point);
        self.point =
            SeriesPoint { at_ns: next, length_ns: self.length_ns, ..SeriesPoint::default() };
        self.point_latency.clear();
    }

    pub fn finish(mut self) -> Direction {
        if self.point.received + self.point.lost > 0 {
            self.end_point();
        }
        self.d.intended = self.d.sent;
        let streams = StreamCount { stream: 0, sent: self.d.sent, received: self.d.received };
        self.d.streams = vec![streams];
        self.d
    }
}

/// A histogram of values that stand for so many each.
fn weighted(values: &mut [(i64, u64)]) -> Hist {
    values.sort_unstable();
    let mut hist = Hist::default();
    let mut buckets: Vec<(i16, u64)> = Vec::new();
    for &(value, count) in values.iter() {
        hist.count += count;
        hist.sum += i128::from(value) * i128::from(count);
        match buckets.last_mut() {
            Some(last) if last.0 == bucket_of(value) => last.1 += count,
            _ => buckets.push((bucket_of(value), count)),
        }
    }
    hist.min = values.first().map_or(0, |v| v.0);
    hist.max = values.last().map_or(0, |v| v.0);
    let whole = buckets.into_iter().flat_map(|(bucket, n)| buckets_in_row(bucket, [n]));
    hist.buckets = whole.collect();
    hist
}
