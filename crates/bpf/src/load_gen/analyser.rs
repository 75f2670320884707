//! The analyser: the XDP program at the port where test frames arrive.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use sonde_results::trial::{Direction, SeriesPoint, StreamCount, WorstFrame};
use sonde_wire::ethernet::FCS_LEN;

use super::hist::SharedHist;
use crate::BpfError;
use crate::load::{self, AttachMode, TestRun, XdpLink};
use crate::mapping::{Plain, Shared};
use crate::skel::load_rx::LoadRxSkelBuilder;

/// Frames that the bitmap holds: those no further apart from each other are distinguished.
pub const WINDOW: u64 = 1 << 26;

/// What an analyser looks for.
#[derive(Clone, Debug, Default)]
pub struct XdpAnalyserConfig {
    /// Receive queues of the interface.
    pub queues: u32,
    /// Of the tester, in the signature's digest.
    pub secret: [u64; 2],
    /// Frames for other MAC addresses are stray; `None`: any is right.
    pub mac: Option<[u8; 6]>,
    /// A frame may be longer than a page.
    pub long_frames: bool,
    /// Frames arrive with VLAN tags, one of which the kernel may have taken out.
    pub tagged: bool,
}

/// The frames of one direction, in one trial.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Of trial and direction.
    pub tag: u8,
    /// How many are sent.
    pub frames: u64,
    /// Those before this one are in none of the counts.
    pub counted_from: u64,
    /// How many streams it counts; they are numbered from 0.
    pub streams: usize,
    /// When the first counted one is due, ns TAI.
    pub start_ns: i64,
    /// Length of a point of the time series, ns.
    pub slot_ns: i64,
    /// Octets by which they arrive longer than they left.
    pub length_change: i32,
}

/// A program that analyses test frames. It is detached when this is dropped, and when the
/// process ends.
#[derive(Debug)]
pub struct XdpAnalyser {
    program: OwnedFd,
    link: Option<XdpLink>,
    queues: Shared<Queue>,
    trial: Shared<TrialWords>,
    slots: Shared<Slot>,
    seen: Shared<AtomicU64>,
    streams: Shared<Stream>,
    recent: Shared<Recent>,
    stream_count: usize,
}

impl XdpAnalyser {
    /// Loads the program.
    ///
    /// # Errors
    /// [`BpfError::Config`] for more queues than it has states for;
    /// [`BpfError::Privilege`], [`BpfError::Verifier`], [`BpfError::Memory`].
    pub fn load(config: &XdpAnalyserConfig) -> Result<XdpAnalyser, BpfError> {
        if config.queues == 0 || config.queues as usize > QUEUES {
            return Err(BpfError::Config(format!(
                "the analyser counts for 1 to {QUEUES} receive queues, not {}; see 'ethtool -L'",
                config.queues
            )));
        }
        let mut storage = MaybeUninit::uninit();
        let mut open =
            load::loading("open the analyser", || LoadRxSkelBuilder::default().open(&mut storage))?;
        let fixed = open.maps.rodata_data.as_deref_mut().expect("the program has settings");
        [fixed.secret0, fixed.secret1] = config.secret;
        fixed.queues = config.queues;
        fixed.long_frames = u32::from(config.long_frames);
        fixed.tagged = u32::from(config.tagged);
        if let Some([a, b, c, d, e, f]) = config.mac {
            fixed.check_mac = 1;
            fixed.mac_high = u32::from_ne_bytes([a, b, c, d]);
            fixed.mac_low = u16::from_ne_bytes([e, f]);
        }
        let skel = load::loading("load the analyser", || open.load())?;
        let (maps, queues) = (&skel.maps, QUEUES);
        let program = skel.progs.sonde_load_rx.as_fd().try_clone_to_owned();
        let analyser = XdpAnalyser {
            program: program.map_err(|e| BpfError::io("keep a program", e))?,
            link: None,
            queues: Shared::map(&load::handle(&maps.load_rx)?, queues)?,
            trial: Shared::map(&load::handle(&maps.load_trial)?, 1)?,
            slots: Shared::map(&load::handle(&maps.load_slots)?, queues * SLOTS)?,
            seen: Shared::map(&load::handle(&maps.load_seen)?, (WINDOW / 64) as usize)?,
            streams: Shared::map(&load::handle(&maps.load_streams)?, STREAMS)?,
            recent: Shared::map(&load::handle(&maps.load_recent)?, RECENT)?,
            stream_count: 0,
        };
        analyser.end();
        Ok(analyser)
    }

    /// Has it see what arrives at an interface, of the network namespace of this thread.
    ///
    /// # Errors
    /// [`BpfError::NoInterface`], [`BpfError::Busy`], [`BpfError::Mode`].
    pub fn attach(&mut self, ifindex: u32, mode: AttachMode) -> Result<(), BpfError> {
        load::check_interface(ifindex)?;
        self.link = Some(load::attach(self.program.as_fd(), ifindex, mode)?);
        Ok(())
    }

    /// By how much the clock that stamps the frames is behind this host's, ns (negative: ahead),
    /// in the trials that begin from now on. 0 unless this is called.
    pub fn set_clock_offset(&self, ns: i64) {
        self.end();
        self.trial[0].clock_offset.store(ns, Ordering::Relaxed);
    }

    /// Counts from now on the frames of this trial, and forgets those of before.
    pub fn begin(&mut self, expected: &Expected) {
        self.end();
        self.clear();
        self.stream_count = expected.streams.min(STREAMS);
        let trial = &self.trial[0];
        trial.frames.store(expected.frames, Ordering::Relaxed);
        trial.counted_from.store(expected.counted_from, Ordering::Relaxed);
        trial.start.store(expected.start_ns as u64, Ordering::Relaxed);
        trial.slot_length.store(expected.slot_ns.max(1) as u64, Ordering::Relaxed);
        trial.floor.store(expected.counted_from & !63, Ordering::Relaxed);
        trial.length_change.store(expected.length_change.into(), Ordering::Relaxed);
        // Release: all else is there before a frame can match.
        trial.tag.store(expected.tag.into(), Ordering::Release);
    }

    /// Frames that arrive from now on are stray.
    pub fn end(&self) {
        self.trial[0].tag.store(NO_TAG, Ordering::Release);
    }

    /// One more than the greatest sequence number that has arrived.
    pub fn after(&self) -> u64 {
        self.queues.iter().map(|q| q.after.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// Frames that have arrived, each once.
    pub fn received(&self) -> u64 {
        self.queues.iter().map(|q| q.received.load(Ordering::Relaxed)).sum()
    }

    /// Takes out of the bitmap what is known of the frames from where the last call ended up to
    /// `end`. `end` is a multiple of 64 except in the last call. For each 64 frames: the sequence
    /// number of the first, and a bit for each that has arrived. What arrives of these afterwards
    /// is counted as too late for the bitmap.
    pub fn harvest(&mut self, end: u64, mut take: impl FnMut(u64, u64)) {
        let floor = &self.trial[0].floor;
        let first = floor.load(Ordering::Relaxed);
        if end <= first {
            return;
        }
        for word in first / 64..end.div_ceil(64) {
            let held = &self.seen[(word % (WINDOW / 64)) as usize];
            take(word * 64, held.swap(0, Ordering::Relaxed));
        }
        floor.store(end, Ordering::Release);
    }

    /// Latencies so far: those of a second are the difference from all.
    pub fn latency(&self) -> sonde_results::hist::Hist {
        self.merged(|q| &q.latency)
    }

    /// Fills in what is known of the arrivals; the times of worst frames and time series are
    /// relative to the trial's start. `lost`, `losses` and what was sent are not known here.
    pub fn read(&self, direction: &mut Direction) {
        let sum = |f: fn(&Queue) -> &AtomicU64| {
            self.queues.iter().map(|q| f(q).load(Ordering::Relaxed)).sum::<u64>()
        };
        let d = direction;
        d.received = sum(|q| &q.received);
        d.received_bytes = sum(|q| &q.bytes) + FCS * d.received;
        d.duplicates = sum(|q| &q.duplicates) + sum(|q| &q.overrun);
        d.reordered = sum(|q| &q.reordered);
        d.corrupted = sum(|q| &q.corrupted);
        d.stray = sum(|q| &q.stray);
        let used = || self.queues.iter().filter(|q| q.received.load(Ordering::Relaxed) > 0);
        d.received_ns = [
            used().map(|q| q.first.load(Ordering::Relaxed) as i64).min().unwrap_or(0),
            used().map(|q| q.last.load(Ordering::Relaxed) as i64).max().unwrap_or(0),
        ];
        d.arrival_gap_ns = used().map(|q| q.gap.load(Ordering::Relaxed) as i64).max().unwrap_or(0);
        d.latency = self.latency();
        d.ipdv = self.merged(|q| &q.ipdv);
        d.jitter = self.merged(|q| &q.jitter);
        d.rfc3550_jitter_ns =
            used().map(|q| q.jitter16.load(Ordering::Relaxed) as f64 / 16.0).fold(0.0, f64::max);
        d.worst = self.worst();
        d.series = self.series();
        let received = |i: usize| self.streams[i].received.load(Ordering::Relaxed);
        d.streams = (0..self.stream_count)
            .map(|i| StreamCount { stream: i as u16, sent: 0, received: received(i) })
            .collect();
    }

    /// Runs the program on one frame, as if it had come by the first queue.
    ///
    /// # Errors
    /// [`BpfError::Io`].
    pub fn test_run(&self, frame: &[u8]) -> Result<TestRun, BpfError> {
        load::test_run(self.program.as_fd(), frame, 1)
    }

    fn merged(&self, of: impl Fn(&Queue) -> &SharedHist) -> sonde_results::hist::Hist {
        let mut all = sonde_results::hist::Hist::default();
        self.queues.iter().for_each(|q| all.merge(&of(q).read()));
        all
    }

    fn worst(&self) -> Vec<WorstFrame> {
        let start = self.trial[0].start.load(Ordering::Relaxed) as i64;
        let mut all = Vec::new();
        for queue in self.queues.iter() {
            let count = queue.worst_count.load(Ordering::Relaxed) as usize;
            for worst in &queue.worst[..count.min(WORST)] {
                let latency_ns = worst.latency.load(Ordering::Relaxed);
                all.push(WorstFrame {
                    latency_ns,
                    at_ns: worst.received_ns.load(Ordering::Relaxed) as i64 - latency_ns - start,
                    sequence: worst.sequence.load(Ordering::Relaxed),
                    stream: worst.stream.load(Ordering::Relaxed) as u16,
                });
            }
        }
        all.sort_by_key(|w| (-w.latency_ns, w.sequence));
        all.truncate(WORST);
        all
    }

    /// Points without quantiles, which only differences of the histogram give.
    fn series(&self) -> Vec<SeriesPoint> {
        let length_ns = self.trial[0].slot_length.load(Ordering::Relaxed) as i64;
        let mut points = Vec::new();
        for slot in 0..SLOTS {
            let mut point =
                SeriesPoint { at_ns: slot as i64 * length_ns, length_ns, ..SeriesPoint::default() };
            for queue in 0..QUEUES {
                let s = &self.slots[queue * SLOTS + slot];
                let received = s.received.load(Ordering::Relaxed);
                if received == 0 {
                    continue;
                }
                let (min, max) = (s.min.load(Ordering::Relaxed), s.max.load(Ordering::Relaxed));
                let [least, .., greatest] = &mut point.latency_ns;
                *least = if point.received == 0 { min } else { min.min(*least) };
                *greatest = if point.received == 0 { max } else { max.max(*greatest) };
                point.received += received;
            }
            points.push(point);
        }
        while points.last().is_some_and(|p| p.received == 0) {
            points.pop();
        }
        points
    }

    fn clear(&self) {
        let zero = |words: &[&AtomicU64]| words.iter().for_each(|w| w.store(0, Ordering::Relaxed));
        for q in self.queues.iter() {
            let frames = q.received.load(Ordering::Relaxed) + q.stray.load(Ordering::Relaxed);
            let seen = [&q.corrupted, &q.passed, &q.overrun].map(|w| w.load(Ordering::Relaxed));
            if frames + seen.iter().sum::<u64>() == 0 {
                continue; // never used: nothing to write to
            }
            zero(&[&q.received, &q.bytes, &q.duplicates, &q.reordered, &q.corrupted, &q.stray]);
            zero(&[&q.overrun, &q.passed, &q.first, &q.last, &q.after, &q.jitter16, &q.slot]);
            zero(&[&q.slot_end, &q.worst_count, &q.gap]);
            q.before.store(0, Ordering::Relaxed);
            q.worst_least.store(0, Ordering::Relaxed);
            [&q.latency, &q.ipdv, &q.jitter].into_iter().for_each(SharedHist::clear);
        }
        self.slots.iter().for_each(|s| s.received.store(0, Ordering::Relaxed));
        for s in &self.streams[..self.stream_count] {
            zero(&[&s.received, &s.after]);
        }
        self.recent.iter().for_each(|r| zero(&[&r.after]));
        // Only what a trial that was broken off has left; the rest was harvested.
        for word in self.seen.iter().filter(|w| w.load(Ordering::Relaxed) != 0) {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// `struct load_rx` of `c/load_rx.bpf.c`.
#[derive(Debug)]
#[repr(C)]
struct Queue {
    received: AtomicU64,
    bytes: AtomicU64,
    duplicates: AtomicU64,
    reordered: AtomicU64,
    corrupted: AtomicU64,
    stray: AtomicU64,
    overrun: AtomicU64,
    passed: AtomicU64,
    first: AtomicU64,
    last: AtomicU64,
    gap: AtomicU64,
    after: AtomicU64,
    jitter16: AtomicU64,
    before: AtomicI64,
    slot: AtomicU64,
    slot_end: AtomicU64,
    worst_count: AtomicU64,
    worst_least: AtomicI64,
    worst: [Worst; WORST],
    latency: SharedHist,
    ipdv: SharedHist,
    jitter: SharedHist,
}

#[derive(Debug)]
#[repr(C)]
struct Worst {
    latency: AtomicI64,
    sequence: AtomicU64,
    received_ns: AtomicU64,
    stream: AtomicU64,
}

/// `struct load_trial`.
#[derive(Debug)]
#[repr(C)]
struct TrialWords {
    tag: AtomicU64,
    frames: AtomicU64,
    counted_from: AtomicU64,
    start: AtomicU64,
    slot_length: AtomicU64,
    floor: AtomicU64,
    length_change: AtomicI64,
    clock_offset: AtomicI64,
}

/// `struct load_slot`.
#[derive(Debug)]
#[repr(C)]
struct Slot {
    received: AtomicU64,
    min: AtomicI64,
    max: AtomicI64,
}

/// `struct load_stream`.
#[derive(Debug)]
#[repr(C)]
struct Stream {
    received: AtomicU64,
    after: AtomicU64,
}

/// `struct load_recent`.
#[derive(Debug)]
#[repr(C)]
struct Recent {
    after: AtomicU64,
    latency: AtomicI64,
}

// SAFETY: these are laid out as the C structures, and of 64-bit atomics only.
unsafe impl Plain for Queue {}
// SAFETY: as above.
unsafe impl Plain for TrialWords {}
// SAFETY: as above.
unsafe impl Plain for Slot {}
// SAFETY: as above.
unsafe impl Plain for Stream {}
// SAFETY: as above.
unsafe impl Plain for Recent {}

// As in `c/load_rx.bpf.c`.
const QUEUES: usize = 16;
const WORST: usize = 16;
const SLOTS: usize = Direction::SERIES_POINTS;
const STREAMS: usize = 65_536;
const RECENT: usize = 256;
/// Of no frame: tags have 8 bits.
const NO_TAG: u64 = 256;
const FCS: u64 = FCS_LEN as u64;
