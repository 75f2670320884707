//! The analyser of the engines in user space: the same counts and distributions as those of
//! `sonde-bpf`'s (`c/load_rx.bpf.c`), from frames that a port hands up.

use sonde_results::hist::Hist;
use sonde_results::trial::{Direction, SeriesPoint, StreamCount, WorstFrame};
use sonde_wire::signature::{self, Repr, Secret};
use sonde_wire::{Error, Time, parse};

use super::{FCS_LEN, FastHist, LoadSchedule, SequenceArrivals, SequenceVerdict};

/// What an analyser looks for in one trial.
#[derive(Clone, Debug)]
pub struct LoadAnalyserConfig {
    /// Of trial and direction.
    pub tag: u8,
    /// The tester's: what marks its frames as its own.
    pub secret: Secret,
    /// When frames are due; those that are not to be counted are not.
    pub schedule: LoadSchedule,
    /// Streams, from 0: at most 2^16.
    pub streams: usize,
    /// When the first counted frame is due.
    pub start: Time,
    /// Length of a point of the time series, ns.
    pub slot_ns: i64,
    /// Octets by which a frame arrives longer than it left.
    pub length_change: i32,
    /// Frames may have lost a VLAN tag to the kernel on arrival.
    pub tagged: bool,
    /// Destination MAC address of what arrives; others are stray.
    pub mac: Option<[u8; 6]>,
}

/// Analyses the frames of one direction, in one trial.
#[derive(Debug)]
pub struct LoadAnalyser {
    config: LoadAnalyserConfig,
    /// Of all streams together, which share their numbers.
    arrivals: SequenceArrivals<{ (LoadAnalyser::WINDOW / 64) as usize }>,
    reordered: u64,
    corrupted: u64,
    stray: u64,
    passed: u64,
    arrival_gap: i64,
    worst: Vec<WorstFrame>,
    slots: Vec<SeriesPoint>,
    streams: Vec<(u64, u64)>,
    recent: Vec<(u64, i64)>,
    ipdv: FastHist,
}

impl LoadAnalyser {
    /// Frames that are distinguished: those no further from each other.
    pub const WINDOW: u64 = 1 << 26;

    /// Ready for the first frame.
    pub fn new(config: LoadAnalyserConfig) -> LoadAnalyser {
        let streams = config.streams.min(1 << 16);
        let slots = (config.schedule.duration_ns() / config.slot_ns.max(1)) as usize + 120;
        LoadAnalyser {
            arrivals: SequenceArrivals::new(config.schedule.counted_from),
            reordered: 0,
            corrupted: 0,
            stray: 0,
            passed: 0,
            arrival_gap: 0,
            worst: Vec::with_capacity(WORST),
            slots: vec![SeriesPoint::default(); slots.min(Direction::SERIES_POINTS)],
            streams: vec![(0, 0); streams],
            recent: vec![(0, 0); RECENT as usize],
            ipdv: FastHist::default(),
            config,
        }
    }

    /// A frame that arrived at `now`, from its Ethernet header on and without the FCS.
    #[inline]
    pub fn input(&mut self, frame: &[u8], now: Time) {
        if !Repr::marked(frame) {
            self.passed += 1;
            return;
        }
        let sent_len = (frame.len() as i64 - i64::from(self.config.length_change)) as usize;
        let mut read = Repr::parse(frame, sent_len, &self.config.secret);
        if read.is_err() && self.config.tagged {
            read = Repr::parse(frame, sent_len + 4, &self.config.secret);
        }
        let Ok(signature) = read else {
            // One in 256 of all other frames has that octet, too.
            match looks_like_ours(frame) {
                true => self.corrupted += 1,
                false => self.passed += 1,
            }
            return;
        };
        let for_us = self.config.mac.is_none_or(|mac| frame.starts_with(&mac));
        if signature.trial != self.config.tag || !for_us {
            self.stray += 1;
            return;
        }
        self.arrived(&signature, frame.len(), now);
    }

    #[inline]
    fn arrived(&mut self, signature: &Repr, len: usize, now: Time) {
        let sequence = self.arrivals.extend(signature.sequence);
        if sequence >= self.config.schedule.frames {
            self.stray += 1;
            return;
        }
        if sequence < self.config.schedule.counted_from {
            return;
        }
        let (at, before) = (now.as_nanos(), self.arrivals.times[1]);
        let latency = signature::latency(at as u64, signature.sent);
        let octets = (len + FCS_LEN) as u64;
        if self.arrivals.take(sequence, octets, latency, at) == SequenceVerdict::Duplicate {
            return;
        }
        if self.arrivals.received > 1 {
            self.arrival_gap = self.arrival_gap.max(at - before);
        }
        if let Some((received, after)) = self.streams.get_mut(usize::from(signature.stream)) {
            *received += 1;
            // RFC 4737, section 3.3, of each stream by itself.
            match sequence >= *after {
                true => *after = sequence + 1,
                false => self.reordered += 1,
            }
        }
        self.note_delays(sequence, latency, now, signature.stream);
    }

    #[inline]
    fn note_delays(&mut self, sequence: u64, latency: i64, now: Time, stream: u16) {
        // RFC 3393 in the order of sending.
        let (after, before) = self.recent[(sequence.wrapping_sub(1) % RECENT) as usize];
        if sequence > 0 && after == sequence {
            self.ipdv.add(latency - before);
        }
        if sequence + 1 < self.arrivals.after() {
            let (after, next) = self.recent[((sequence + 1) % RECENT) as usize];
            if after == sequence + 2 {
                self.ipdv.add(next - latency);
            }
        }
        self.recent[(sequence % RECENT) as usize] = (sequence + 1, latency);

        let slot = (now - self.config.start).max(0) / self.config.slot_ns;
        let slot = (slot as usize).min(self.slots.len() - 1);
        let point = &mut self.slots[slot];
        let [min, _, _, max] = &mut point.latency_ns;
        *min = if point.received == 0 { latency } else { latency.min(*min) };
        *max = if point.received == 0 { latency } else { latency.max(*max) };
        point.received += 1;

        if self.worst.len() < WORST || self.worst.last().is_some_and(|w| latency > w.latency_ns) {
            let at_ns = now - self.config.start - latency;
            let frame = WorstFrame { latency_ns: latency, at_ns, sequence, stream };
            let index = self.worst.partition_point(|w| w.latency_ns >= latency);
            self.worst.truncate(WORST - 1);
            self.worst.insert(index.min(self.worst.len()), frame);
        }
    }

    /// Frames that have arrived, each once.
    pub fn received(&self) -> u64 {
        self.arrivals.received
    }

    /// As [`super::LossLog::read`] wants it: for each 64 frames the sequence number of the first,
    /// and a bit for each that has arrived. The frames are those from where the last call ended up
    /// to `end`, a multiple of 64 except in the last call.
    pub fn harvest(&mut self, end: u64, take: impl FnMut(u64, u64)) {
        self.arrivals.seen.harvest(end, take);
    }

    pub fn latency(&self) -> Hist {
        self.arrivals.delays.latency()
    }

    /// Fills in what is known of the arrivals; `lost`, `losses` and what was sent are not
    /// known here.
    pub fn read(&self, direction: &mut Direction) {
        let d = direction;
        let SequenceArrivals { received, octets, duplicates, times, delays, .. } = &self.arrivals;
        (d.received, d.received_bytes, d.duplicates) = (*received, *octets, *duplicates);
        d.reordered = self.reordered;
        d.corrupted = self.corrupted;
        d.stray = self.stray;
        d.received_ns = *times;
        d.arrival_gap_ns = self.arrival_gap;
        d.latency = delays.latency();
        d.ipdv = self.ipdv.read();
        d.jitter = delays.jitter();
        d.rfc3550_jitter_ns = delays.rfc3550_jitter_ns();
        d.worst = self.worst.clone();
        let length_ns = self.config.slot_ns;
        d.series = self.slots.clone();
        for (i, point) in d.series.iter_mut().enumerate() {
            (point.at_ns, point.length_ns) = (i as i64 * length_ns, length_ns);
        }
        while d.series.last().is_some_and(|p| p.received == 0) {
            d.series.pop();
        }
        let count = |(i, &(received, _)): (usize, &(u64, u64))| StreamCount {
            stream: i as u16,
            sent: 0,
            received,
        };
        d.streams = self.streams.iter().enumerate().map(count).collect();
    }
}

/// A frame with the mark and a wrong digest is one of ours that was changed if it carries UDP.
fn looks_like_ours(frame: &[u8]) -> bool {
    let mpls = frame.get(12..14) == Some(&[0x88, 0x47]);
    mpls || !matches!(
        parse::parse_udp(frame),
        Err(Error::EtherType | Error::Protocol | Error::Version | Error::Fragment)
    )
}

/// As in `c/load_rx.bpf.c`.
const WORST: usize = 16;
const RECENT: u64 = 256;
