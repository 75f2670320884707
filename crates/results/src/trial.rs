//! One trial of a benchmark: a load offered for a time. It says what became of its frames, where
//! they were lost, and whether the tester itself was fit to judge.
//!
//! Terms are those of RFC 1242, RFC 2285 and RFC 2544. The direction of a frame is the path from
//! one of the tester's ports, through the device, to another.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hist::Hist;
use crate::procedure::PROCEDURES;
use crate::units::{format_ns, format_percent};

/// What a trial is to offer, in each direction alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Offer {
    /// Intended load (RFC 2285, section 3.5.1): frames a second in each direction.
    pub rate_fps: f64,
    /// Frames in each direction. With `rate_fps` they give the trial's duration.
    pub frames: u64,
    /// Frames that leave back to back at a time; 1: every frame at its own due time.
    pub burst: u32,
    /// Changes of the load within the trial, in their order: system recovery (RFC 2544,
    /// section 26.5), ramps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<LoadStep>,
    /// Distinct flows, other than the plan's: address caching and learning (RFC 2889,
    /// sections 5.7 and 5.8), scaled groups (RFC 3918, section 4.2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<u32>,
    /// What is done to the device during the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<DeviceEvent>,
    /// To and from whom the frames are.
    #[serde(default, skip_serializing_if = "Pattern::is_plan")]
    pub pattern: Pattern,
    /// Frames due before this time, ns from the first, are sent and forwarded, but neither counted
    /// nor timed. The device is to be in a steady state.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub discard_ns: i64,
}

impl Default for Offer {
    /// A single frame.
    fn default() -> Offer {
        Offer {
            rate_fps: 1.0,
            frames: 1,
            burst: 1,
            steps: Vec::new(),
            flows: None,
            event: None,
            pattern: Pattern::Plan,
            discard_ns: 0,
        }
    }
}

fn is_zero(n: &i64) -> bool {
    *n == 0
}

impl Offer {
    /// An even load for `duration_ns`.
    pub fn steady(rate_fps: f64, duration_ns: i64) -> Offer {
        let frames = (rate_fps * duration_ns as f64 / 1e9).round().max(1.0) as u64;
        Offer { rate_fps, frames, ..Offer::default() }
    }

    /// How long sending takes, ns, as intended.
    pub fn duration_ns(&self) -> i64 {
        let (mut seconds, mut from, mut rate) = (0.0, 0, self.rate_fps);
        for step in &self.steps {
            let until = step.after_frames.clamp(from, self.frames);
            seconds += (until - from) as f64 / rate;
            (from, rate) = (until, step.rate_fps);
        }
        seconds += (self.frames - from) as f64 / rate;
        (seconds * 1e9).round() as i64
    }

    /// The greatest of its loads, frames a second in each direction.
    pub fn peak_fps(&self) -> f64 {
        self.steps.iter().map(|step| step.rate_fps).fold(self.rate_fps, f64::max)
    }

    /// The load at which frame `n` of a direction is offered, frames a second.
    pub fn rate_at(&self, n: u64) -> f64 {
        let changed = self.steps.iter().rev().find(|step| step.after_frames <= n);
        changed.map_or(self.rate_fps, |step| step.rate_fps)
    }
}

/// To and from whom the frames of a trial are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "to")]
pub enum Pattern {
    /// As the plan's flows are.
    #[default]
    Plan,
    /// From each of `flows` stations behind the receiving port in turn, to the sending one:
    /// the device learns where they are (RFC 2889, sections 5.7 and 5.8: learning frames).
    Learning,
    /// To each of these stations in turn (test frames of the same sections). What arrives at
    /// any port but theirs is [`Direction::flooded`].
    Stations,
    /// To stations that the device has never heard. It must send a copy to every other port, and
    /// each of these counts as a direction of its own.
    Unknown,
    /// To `flows` multicast groups that the device sends to every other port (RFC 3918); each
    /// receiving port is a direction of its own.
    Multicast {
        /// Multicast frames of all, 0 to 1, evenly spread; the others are as in the plan.
        share: f64,
    },
}

impl Pattern {
    /// Whether the frames are as the plan says.
    pub fn is_plan(&self) -> bool {
        *self == Pattern::Plan
    }

    /// Whether the device sends one frame to several ports, each of them a direction.
    pub fn has_copies(&self) -> bool {
        matches!(self, Pattern::Unknown | Pattern::Multicast { .. })
    }
}

/// A change of the load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadStep {
    /// Frames of each direction before the change, all of the trial's.
    pub after_frames: u64,
    /// Frames a second after it.
    pub rate_fps: f64,
}

/// Something done to the device while frames are offered (RFC 6201).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceEvent {
    /// The name under which the plan or the lab knows it: "reset".
    pub action: String,
    /// When, ns from the first frame; negative: before it, and the first frame leaves when
    /// the action is done and this time has passed.
    pub at_ns: i64,
}

/// A trial as it was run. Trials are never merged: each try has one of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Ordinal within the run, from 1.
    pub number: u64,
    /// The measurement that it belongs to: [`crate::bench::Measurement::id`].
    pub measurement: String,
    /// Try of the same offer, from 1; every one but the last was invalid.
    pub attempt: u32,
    /// Why it was run: "search", "loss verification", "latency at 50 %", "loop".
    pub purpose: String,
    /// When it began, ns since 1970 TAI.
    pub start_ns: i64,
    /// What was to be offered.
    pub offer: Offer,
    /// What became of it, by direction.
    pub directions: Vec<Direction>,
    /// Every counter on the way that moved.
    pub ledger: Vec<LedgerEntry>,
    /// The tester's own state.
    pub health: TrialHealth,
    /// Why it cannot be used; empty: valid.
    pub invalid: Vec<Invalid>,
}

impl Trial {
    /// Whether the tester was fit to judge.
    pub fn valid(&self) -> bool {
        self.invalid.is_empty()
    }

    /// Frames sent and lost, all directions together.
    pub fn sent_and_lost(&self) -> (u64, u64) {
        self.directions.iter().fold((0, 0), |(s, l), d| (s + d.sent, l + d.lost))
    }

    /// Frames lost of those sent, 0 to 1, all directions together (RFC 1242, section 3.6).
    pub fn loss_ratio(&self) -> f64 {
        let (sent, lost) = self.sent_and_lost();
        if sent == 0 { 0.0 } else { lost as f64 / sent as f64 }
    }

    /// Frames received a second, the least of the directions, over the time of sending.
    pub fn forwarding_rate_fps(&self) -> f64 {
        let rates = self.directions.iter().map(|d| d.forwarding_rate_fps(self.offer.burst));
        rates.fold(f64::INFINITY, f64::min)
    }

    /// Frames sent a second, the least of the directions (offered load, RFC 2285, section 3.5.2).
    /// Of frames that the device copies, each receiving port is a direction that counts those that
    /// are due at it. Together they are one, with what the sending port sent.
    pub fn sent_rate_fps(&self) -> f64 {
        let rate = |d: &Direction| d.sent_rate_fps(self.offer.burst);
        let with_copies = self.offer.pattern.has_copies();
        let of_its_port = |d: &Direction| {
            let beside = self.directions.iter().filter(|o| with_copies && o.from() == d.from());
            beside.map(rate).fold(rate(d), f64::max)
        };
        self.directions.iter().map(of_its_port).fold(f64::INFINITY, f64::min)
    }

    /// What the trial offered in truth: [`Self::sent_rate_fps`]. It is the intended load (RFC 2285,
    /// section 3.5.1) where no time between departures gives it, as for a single burst.
    pub fn offered_fps(&self) -> f64 {
        let burst = u64::from(self.offer.burst.max(1));
        let spans = |d: &Direction| d.sent > burst && d.sent_ns[1] > d.sent_ns[0];
        match self.sent_rate_fps() {
            rate if self.directions.iter().all(spans) && rate.is_finite() => rate,
            _ => self.offer.rate_fps,
        }
    }

    /// Whether it was run to see the latency, not to find a rate: overloads of a search show the
    /// depth of the device's buffer.
    pub fn for_latency(&self) -> bool {
        is_for_latency(&self.purpose)
    }

    /// Latency of all directions together, ns.
    pub fn latency(&self) -> Hist {
        let mut all = Hist::default();
        self.directions.iter().for_each(|d| all.merge(&d.latency));
        all
    }
}

/// Whether trials of that purpose are run to see the latency.
pub fn is_for_latency(purpose: &str) -> bool {
    let mut of_latency = PROCEDURES.iter().filter_map(|known| known.latency_purpose);
    of_latency.any(|part| purpose.contains(part))
}

/// What became of the frames of one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Direction {
    /// From and to which of the tester's ports: "a>b".
    pub name: String,
    /// Frames that were to be sent.
    pub intended: u64,
    /// Frames that left the tester.
    pub sent: u64,
    /// Frames of this trial that arrived, each counted once.
    pub received: u64,
    /// Frames sent that never arrived before the end of the drain.
    pub lost: u64,
    /// Further copies of frames that had arrived.
    pub duplicates: u64,
    /// Frames that arrived after one of their stream that was sent later (RFC 4737,
    /// section 3.3).
    pub reordered: u64,
    /// Frames with the signature's mark whose digest is wrong.
    pub corrupted: u64,
    /// Frames of another trial, or at the wrong port.
    pub stray: u64,
    /// Copies that arrived at a port behind which their station is not: the device flooded
    /// them ([`Pattern::Stations`]; they are no strays).
    #[serde(default)]
    pub flooded: u64,
    /// Octets of the frames sent, with the FCS.
    pub sent_bytes: u64,
    /// Octets of the frames received, with the FCS.
    pub received_bytes: u64,
    /// First and last departure, ns since 1970 TAI.
    pub sent_ns: [i64; 2],
    /// First and last arrival, likewise; 0 where nothing arrived.
    pub received_ns: [i64; 2],
    /// Latency, ns: from the frame's transmit stamp to its receive stamp.
    pub latency: Hist,
    /// Signed difference of the latencies of frames sent one after the other, both of which
    /// arrived, ns (RFC 3393, IPDV).
    pub ipdv: Hist,
    /// Absolute difference of the latencies of frames in the order of arrival, ns (RFC 4689,
    /// section 3.2.5; independent of loss).
    pub jitter: Hist,
    /// Interarrival jitter of RFC 3550, section 6.4.1, at the end of the trial, ns.
    pub rfc3550_jitter_ns: f64,
    /// Time between departures, ns.
    pub gaps: Hist,
    /// How late frames left against their due times, ns.
    pub lateness: Hist,
    /// Runs of lost frames, in the order of sending; the first [`Direction::LOSS_RUNS`].
    pub losses: Vec<LossRun>,
    /// Runs of lost frames beyond those.
    pub losses_omitted: u64,
    /// The last run of lost frames, whether kept in `losses` or not: recovery ends with it
    /// (RFC 2544, section 26.5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_loss: Option<LossRun>,
    /// The longest time between two arrivals, one after the other, ns: an interruption by
    /// the time-stamp method of RFC 6201, section 1.3.
    #[serde(default)]
    pub arrival_gap_ns: i64,
    /// The frames with the greatest latency, greatest first.
    pub worst: Vec<WorstFrame>,
    /// Second by second, or coarser: at most [`Direction::SERIES_POINTS`].
    pub series: Vec<SeriesPoint>,
    /// Frames sent and received of each stream.
    pub streams: Vec<StreamCount>,
}

impl Direction {
    /// Runs of lost frames that are kept, at most.
    pub const LOSS_RUNS: usize = 1000;
    /// Points of a time series, at most.
    pub const SERIES_POINTS: usize = 3600;

    /// Name of the sending port: the part of `name` before `>`.
    pub fn from(&self) -> &str {
        self.name.split('>').next().unwrap_or_default()
    }

    /// Frames received a second over the time of sending, where `burst` leave at a time.
    pub fn forwarding_rate_fps(&self, burst: u32) -> f64 {
        self.received as f64 * 1e9 / self.sending_ns(burst)
    }

    /// Frames sent a second (offered load, RFC 2285, section 3.5.2), likewise.
    pub fn sent_rate_fps(&self, burst: u32) -> f64 {
        self.sent as f64 * 1e9 / self.sending_ns(burst)
    }

    /// How long sending took, where `burst` leave at a time, ns, at least 1. It is from the first
    /// departure to the end of the last burst's own slot.
    pub fn sending_ns(&self, burst: u32) -> f64 {
        let between = (self.sent_ns[1] - self.sent_ns[0]) as f64;
        let burst = u64::from(burst.max(1));
        // A single burst has only its frames.
        let slot = if self.sent > burst { burst } else { 1 };
        match self.sent {
            0 | 1 => between.max(1.0),
            n => (between * n as f64 / (n - slot) as f64).max(1.0),
        }
    }
}

/// Frames lost in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LossRun {
    /// Index of the first, in the order of sending, from 0.
    pub first: u64,
    /// Frames in the run.
    pub frames: u64,
    /// When the first was due, ns from the first departure.
    pub at_ns: i64,
}

/// One of the frames with the greatest latency in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorstFrame {
    /// From departure to arrival, ns; below 0 where the stamping clocks differ by more.
    pub latency_ns: i64,
    /// Departure, ns from the first departure.
    pub at_ns: i64,
    /// Index, in the order of sending, from 0.
    pub sequence: u64,
    /// The frame's stream, as in [`Direction::streams`].
    pub stream: u16,
}

/// Arrivals, losses and latency in one interval of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesPoint {
    /// Begin of the interval, ns from the first departure.
    pub at_ns: i64,
    /// Length of the interval, ns.
    pub length_ns: i64,
    /// Frames that arrived in this time.
    pub received: u64,
    /// Frames sent in it that never arrived, where the engine reports them.
    pub lost: u64,
    /// Least, median, 99th percentile and greatest latency, ns; 0 where nothing arrived.
    pub latency_ns: [i64; 4],
}

/// Counts of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamCount {
    /// The index of the stream, from 0.
    pub stream: u16,
    /// Frames of the stream that left the tester.
    pub sent: u64,
    /// Frames that arrived, each once.
    pub received: u64,
}

/// Who had the frames that a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The tester: they say nothing of the device.
    Tester,
    /// The device under test.
    Device,
    /// Both share it (a host's softnet backlog): they may be either's.
    Shared,
}

/// A counter that moved during the trial, the drain included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerEntry {
    /// Who had the frames.
    pub side: Side,
    /// Where: "router eth0", "tester port a".
    pub place: String,
    /// Its name: "rx_queue_0_drops".
    pub counter: String,
    /// By how much the counter moved, in frames.
    pub frames: u64,
}

/// The state of the tester and its host during a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialHealth {
    /// Processor time of the tester, ns: all of its threads, in user space and in the kernel.
    pub cpu_ns: i64,
    /// Processor time that a hypervisor gave to others, ns, over all processors.
    pub stolen_ns: i64,
    /// Time for which the tester's control group was throttled, ns.
    pub throttled_ns: i64,
    /// How often the kernel took the processor from the tester's threads.
    pub involuntary_switches: u64,
    /// Pauses of an idle watchdog thread longer than its threshold, ns: the host's own jitter.
    pub pauses: Hist,
    /// How far the clock was moved or slewed against the raw monotonic one, ns.
    pub clock_drift_ns: i64,
    /// Offset between the clocks of sender and receiver, ns, before and after; 0 on one clock.
    pub clock_offset_ns: [i64; 2],
    /// Error of these offsets, ns; 0 on one clock.
    pub clock_error_ns: i64,
    /// The same of the device's processors; `None`: they are not this host's, or it has none of
    /// its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Box<DeviceHealth>>,
}

/// What this host did to a device that runs on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceHealth {
    /// The processors that it runs on, by the kernel's indexes.
    pub cpus: Vec<u32>,
    /// Time for which they ran what is not the device's, ns.
    pub foreign_ns: i64,
    /// Time for which the device's threads could have run and had to wait, ns.
    pub waited_ns: i64,
    /// Time for which a hypervisor gave them to others, ns.
    pub stolen_ns: i64,
    /// Pauses of a thread of the least real-time priority there, ns: whatever stopped it stopped
    /// the device as well.
    pub pauses: Hist,
}

impl DeviceHealth {
    /// For how long the device was kept from running, ns. What waits for other work waits no
    /// longer than that runs, and other work does no harm while nothing waits.
    pub fn disturbed_ns(&self) -> i64 {
        let pauses = self.pauses.mean().map_or(0.0, |mean| mean * self.pauses.count as f64);
        self.foreign_work_ns().max(pauses as i64).max(self.stolen_ns)
    }

    /// That part of it which other work on the host did.
    pub fn foreign_work_ns(&self) -> i64 {
        self.foreign_ns.min(self.waited_ns)
    }
}

/// Why a trial cannot be used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum Invalid {
    /// Fewer or more frames left than intended, by more than 0.1 %.
    NotSent {
        /// Name of the direction: "a>b".
        direction: String,
        /// Frames sent of those intended, 0 to 1 or a little above.
        ratio: f64,
    },
    /// The load was not offered in the time that it should have taken.
    Slow {
        /// Name of the direction: "a>b".
        direction: String,
        /// Time taken of the time intended.
        ratio: f64,
    },
    /// Frames left too far from their due times.
    Pacing {
        /// Name of the direction: "a>b".
        direction: String,
        /// 99th percentile of the lateness, ns.
        late_ns: i64,
    },
    /// The tester itself lost frames.
    TesterDrops {
        /// Frames lost by the tester.
        frames: u64,
    },
    /// The hypervisor or the control group took the processor away, or the kernel paused us.
    Starved {
        /// For how long, ns.
        ns: i64,
    },
    /// The clock was moved, or sender and receiver drifted apart.
    Clock {
        /// By how much, ns.
        ns: i64,
    },
    /// The device could not be brought to the state that was asked for, or a port went down.
    Bed {
        /// The error, in a sentence.
        what: String,
    },
    /// Other work held the device's processor: what was measured is the host's.
    Disturbed {
        /// For how long, ns.
        ns: i64,
        /// That of the trial's time, 0 to 1.
        share: f64,
    },
    /// Interrupted before its end.
    Interrupted,
}

impl Invalid {
    /// What happened and what to do, in one line.
    pub fn text(&self) -> String {
        let percent = |r: &f64| format_percent(*r);
        let span = |ns: &i64| format_ns(*ns as f64);
        match self {
            Invalid::NotSent { direction, ratio } => {
                format!("{direction}: sent {} of the frames intended", percent(ratio))
            }
            Invalid::Slow { direction, ratio } => {
                format!("{direction}: sending took {} of its time", percent(ratio))
            }
            Invalid::Pacing { direction, late_ns } => {
                format!("{direction}: 1 % of the frames left {} late or later", span(late_ns))
            }
            Invalid::TesterDrops { frames } => format!("the tester itself lost {frames} frames"),
            Invalid::Starved { ns } => format!("the tester was not run for {}", span(ns)),
            Invalid::Clock { ns } => format!("the clock moved by {}", span(ns)),
            Invalid::Bed { what } => what.clone(),
            Invalid::Disturbed { ns, share } => format!(
                "the device's processor was taken from it for {}, {} of the time",
                span(ns),
                percent(share)
            ),
            Invalid::Interrupted => "interrupted".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_reasons_have_the_unit_that_reads_best() {
        let direction = || "a>b".to_owned();
        for (reason, text) in [
            (Invalid::Starved { ns: 50_000_000 }, "the tester was not run for 50.0 ms"),
            (Invalid::Clock { ns: -2_500 }, "the clock moved by -2.50 us"),
            (
                Invalid::Pacing { direction: direction(), late_ns: 1_250_000 },
                "a>b: 1 % of the frames left 1.25 ms late or later",
            ),
            (
                Invalid::Disturbed { ns: 90_000_000, share: 0.09 },
                "the device's processor was taken from it for 90.0 ms, 9% of the time",
            ),
        ] {
            assert_eq!(reason.text(), text);
        }
    }

    #[test]
    fn an_offer_lasts_as_long_as_its_frames_take() {
        let offer = Offer::steady(1000.0, 2_500_000_000);
        assert_eq!((offer.frames, offer.duration_ns()), (2500, 2_500_000_000));
        let half = LoadStep { after_frames: 1000, rate_fps: 500.0 };
        let offer = Offer { frames: 2000, steps: vec![half], ..offer };
        assert_eq!(offer.duration_ns(), 3_000_000_000);
        let double = LoadStep { after_frames: 1500, rate_fps: 2000.0 };
        let offer = Offer { steps: vec![half, double], ..offer };
        assert_eq!(offer.duration_ns(), 2_250_000_000);
        assert_eq!(offer.peak_fps(), 2000.0);
        assert_eq!([999, 1000, 1499, 1500].map(|n| offer.rate_at(n)), [1e3, 500.0, 500.0, 2e3]);
    }

    #[test]
    fn a_port_that_sends_to_several_offers_what_it_sends() {
        let direction = |name: &str, sent: u64, step_ns: i64| Direction {
            name: name.into(),
            sent,
            sent_ns: [0, (sent as i64 - 1) * step_ns],
            ..Default::default()
        };
        let trial = |pattern, directions| Trial {
            number: 1,
            measurement: String::new(),
            attempt: 1,
            purpose: String::new(),
            start_ns: 0,
            offer: Offer { pattern, ..Offer::steady(2000.0, 1_000_000_000) },
            directions,
            ledger: Vec::new(),
            health: TrialHealth::default(),
            invalid: Vec::new(),
        };
        // One frame in four is for c, too.
        let mixed = || vec![direction("a>b", 2000, 500_000), direction("a>c", 500, 2_000_000)];
        for pattern in [Pattern::Multicast { share: 0.25 }, Pattern::Unknown] {
            assert_eq!(trial(pattern, mixed()).offered_fps(), 2000.0);
        }
        // Where both ports send, it is the slower one; so it is where the flows are the plan's.
        let both = vec![direction("a>b", 2000, 500_000), direction("b>a", 1500, 666_667)];
        let slower = trial(Pattern::Multicast { share: 1.0 }, both).offered_fps();
        assert!((slower - 1500.0).abs() < 0.01, "{slower}");
        assert_eq!(trial(Pattern::Plan, mixed()).offered_fps(), 500.0);
        // A single frame has no time between departures.
        assert_eq!(trial(Pattern::Plan, vec![direction("a>b", 1, 0)]).offered_fps(), 2000.0);
    }

    #[test]
    fn rates_count_the_last_frames_own_slot() {
        // 5 frames, 1 ms apart: 1000 a second, although only 4 ms lie between the ends.
        let d = Direction { sent: 5, received: 4, sent_ns: [0, 4_000_000], ..Default::default() };
        assert_eq!((d.sent_rate_fps(1), d.forwarding_rate_fps(1)), (1000.0, 800.0));
        // 3 bursts of 32, 32 ms apart: 1000 a second, although only 64 ms lie between the ends.
        let d = Direction { sent: 96, received: 48, sent_ns: [0, 64_000_000], ..d };
        assert_eq!((d.sent_rate_fps(32), d.forwarding_rate_fps(32)), (1000.0, 500.0));
        let one = Direction { sent: 5, sent_ns: [0, 4_000_000], ..Default::default() };
        assert_eq!(one.sent_rate_fps(5), 1000.0);
    }
}
