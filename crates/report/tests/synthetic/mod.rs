//! Synthetic runs: drawn from a seed, not measured. Their titles say so.

use fastrand::Rng;
use sonde_results::bench::{
    BENCH_SCHEMA_VERSION, Bed, BedPort, BenchConfig, BenchRun, Case, Check, Finding, Measurement,
    Quantity,
};
use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::hist::Hist;
use sonde_results::run::{HostInfo, RunHeader};
use sonde_results::trial::{
    Direction, Invalid, LedgerEntry, Offer, SeriesPoint, Side, Trial, TrialHealth,
};

/// What makes one synthetic run differ from another.
pub struct Recipe {
    pub seed: u64,
    /// Every rate is multiplied by this.
    pub rate_factor: f64,
    pub repetitions: u32,
    pub speed_bps: Option<u64>,
}

impl Default for Recipe {
    fn default() -> Self {
        Recipe { seed: 2544, rate_factor: 1.0, repetitions: 8, speed_bps: Some(10_000_000_000) }
    }
}

pub const FRAMES: [(&str, f64); 5] =
    [("64", 64.0), ("256", 256.0), ("512", 512.0), ("1518", 1518.0), ("imix:aaaaaaaddddg", 340.33)];

struct Maker {
    rng: Rng,
    run: BenchRun,
}

/// A run of throughput, latency, loss and a soak, in two conditions and without the device.
pub fn run(recipe: &Recipe) -> BenchRun {
    let mut maker = maker(recipe);
    for repetition in 1..=recipe.repetitions {
        for (device, condition, capacity, delay) in [
            ("router", "kernel", 1.02e6, 9_000.0),
            ("router", "tuned", 1.31e6, 6_500.0),
            ("loop", "", 3.9e6, 1_100.0),
        ] {
            for (frame, bytes) in FRAMES {
                let case = Case {
                    device: device.into(),
                    condition: condition.into(),
                    frame: frame.into(),
                    frame_bytes: bytes,
                    direction: "bidirectional".into(),
                    flows: 256,
                    sweep: [("ip".to_string(), "4".to_string())].into(),
                    repetition,
                    ..Case::default()
                };
                let line =
                    recipe.speed_bps.map_or(f64::INFINITY, |s| s as f64 / ((bytes + 20.0) * 8.0));
                let noise = 1.0 + 0.02 * maker.normal();
                let rate = (capacity * recipe.rate_factor * noise).min(line);
                maker.throughput(&case, rate);
                if ["64", "1518"].contains(&frame) {
                    maker.latency(&case, rate, delay + bytes);
                }
                if repetition == 1 && device == "router" && condition == "kernel" {
                    maker.loss(&case, rate, if line.is_finite() { line } else { rate * 2.0 });
                }
            }
        }
    }
    maker.soak();
    maker.run
}

/// A run in which every subset of three layers was measured, block by block.
pub fn ablation(seed: u64, blocks: u32) -> BenchRun {
    let mut maker = maker(&Recipe { seed, ..Recipe::default() });
    maker.run.config.title = "Synthetic ablation (drawn from a seed, not measured)".into();
    for repetition in 1..=blocks {
        for subset in 0..8_u32 {
            let on = |i: u32| f64::from(subset >> i & 1);
            let names = ["gro", "napi", "rps"];
            let layers: Vec<String> =
                (0..3).filter(|i| subset >> i & 1 == 1).map(|i| names[i as usize].into()).collect();
            let noise = 10_000.0 * maker.normal();
            let value = 500_000.0 + 200_000.0 * on(0) + 90_000.0 * on(1) - 30_000.0 * on(2)
                + 60_000.0 * on(0) * on(1)
                + noise;
            let condition = if layers.is_empty() { "baseline".into() } else { layers.join("+") };
            let case = Case {
                device: "router".into(),
                condition,
                frame: "64".into(),
                frame_bytes: 64.0,
                direction: "unidirectional".into(),
                flows: 1,
                layers,
                repetition,
                ..Case::default()
            };
            maker.throughput(&case, value);
        }
    }
    maker.run
}

fn maker(recipe: &Recipe) -> Maker {
    let port = |name: &str| BedPort {
        name: name.into(),
        interface: format!("veth-{name}"),
        driver: "veth".into(),
        speed_bps: recipe.speed_bps,
        mode: "xdp native".into(),
    };
    let mut caveats = CaveatSet::default();
    caveats.insert(Caveat::ShortTrials);
    caveats.insert(Caveat::ProcessorsShared);
    let run = BenchRun {
        header: RunHeader {
            schema: BENCH_SCHEMA_VERSION,
            version: "0.0.0-synthetic".into(),
            instrument: "bench".into(),
            start_ns: 1_800_000_000_000_000_000,
            end_ns: 1_800_003_600_000_000_000,
            host: HostInfo {
                name: "synthetic".into(),
                kernel: "0.0.0".into(),
                cpu: "none <&>".into(),
                cpus: 2,
                clock_source: "none".into(),
                tai_offset_s: 37,
                ..HostInfo::default()
            },
        },
        config: BenchConfig {
            title: "Synthetic run (drawn from a seed, not measured)".into(),
            command: vec!["synthetic".into()],
            plan: "title = \"synthetic\"\n# <script>alert(1)</script>\n".into(),
            plan_sha256: "0".repeat(64),
            seed: recipe.seed,
            engine: "none".into(),
            measurements_planned: 500,
            ..BenchConfig::default()
        },
        bed: Bed {
            diagram: vec!["tester a -- router eth0".into(), "router eth1 -- tester b".into()],
            ports: vec![port("a"), port("b")],
            facts: [
                ("net.core.netdev_budget".to_string(), "300".to_string()),
                ("mitigations".to_string(), "=cmd|'/C calc'!A0".to_string()),
            ]
            .into(),
        },
        caveats,
        ..BenchRun::default()
    };
    Maker { rng: Rng::with_seed(recipe.seed), run }
}

impl Maker {
    /// About standard normal: the sum of twelve uniform values.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.rng.f64()).sum::<f64>() - 6.0
    }

    /// Log-normal body and a rare, long tail, as a forwarding host's.
    fn latencies(&mut self, n: u64, middle: f64, load: f64) -> Hist {
        let mut hist = Hist::default();
        for _ in 0..n {
            let stall = match self.rng.f64() {
                x if x < 0.0005 * (1.0 + load) => self.rng.f64() * 800_000.0,
                _ => 0.0,
            };
            let body = middle * (1.0 + load) * (0.12 * (1.0 + load) * self.normal()).exp();
            hist.add((body + stall) as i64);
        }
        hist
    }

    fn trial(&mut self, measurement: &str, purpose: &str, rate: f64, lost_share: f64) -> Trial {
        let offer = Offer::steady(rate, 1_000_000_000);
        let ordinal = self.run.trials.len() as u64 + 1;
        let start_ns = self.run.header.start_ns + ordinal as i64 * 5_000_000_000;
        let direction = |name: &str| {
            let lost = (offer.frames as f64 * lost_share) as u64;
            Direction {
                name: name.into(),
                intended: offer.frames,
                sent: offer.frames,
                received: offer.frames - lost,
                lost,
                sent_ns: [start_ns, start_ns + 1_000_000_000],
                received_ns: [start_ns + 9_000, start_ns + 1_000_009_000],
                ..Direction::default()
            }
        };
        Trial {
            number: ordinal,
            measurement: measurement.into(),
            attempt: 1,
            purpose: purpose.into(),
            start_ns,
            directions: vec![direction("a>b"), direction("b>a")],
            offer,
            ledger: if lost_share > 0.0 {
                vec![LedgerEntry {
                    side: Side::Device,
                    place: "router eth0".into(),
                    counter: "rx_queue_0_drops".into(),
                    frames: 10,
                }]
            } else {
                Vec::new()
            },
            health: TrialHealth::default(),
            invalid: Vec::new(),
        }
    }

    fn add(&mut self, case: &Case, values: Vec<Quantity>, trials: Vec<Trial>) {
        let id = trials[0].measurement.clone();
        let mut caveats = CaveatSet::default();
        if trials.iter().any(|t| !t.valid()) {
            caveats.insert(Caveat::TrialsRepeated);
        }
        let checks = match values.first() {
            Some(v) if v.name == "throughput" && case.frame == "64" => vec![Check {
                text: "throughput >= 1.0e6".into(),
                value: Some(v.value),
                pass: v.value >= 1e6,
            }],
            _ => Vec::new(),
        };
        self.run.measurements.push(Measurement {
            id,
            case: case.clone(),
            time_ns: [trials[0].start_ns, trials[0].start_ns + 1],
            finding: Finding {
                values,
                complete: true,
                notes: vec!["Synthetic: drawn from a seed.".into()],
                ..Finding::default()
            },
            trials: trials.iter().map(|t| t.number).collect(),
            caveats,
            checks,
        });
        self.run.trials.extend(trials);
    }

    fn id(&self, procedure: &str, case: &Case) -> String {
        let Case { device, condition, frame, repetition, .. } = case;
        format!("{procedure}/{device}/{condition}/{frame}/{repetition}")
    }

    pub fn throughput(&mut self, case: &Case, rate: f64) {
        let case = Case { procedure: "throughput".into(), ..case.clone() };
        let id = self.id("throughput", &case);
        let mut trials = vec![self.trial(&id, "search", rate, 0.0)];
        if self.rng.f64() < 0.05 {
            trials[0].invalid.push(Invalid::Starved { ns: 12_000_000 });
            let mut again = self.trial(&id, "search", rate, 0.0);
            again.number += 1;
            again.attempt = 2;
            trials.push(again);
        }
        let found = Quantity::new("throughput", "frames/s", rate, 12);
        self.add(&case, vec![found.between(rate, rate * 1.005)], trials);
    }

    fn latency(&mut self, case: &Case, rate: f64, middle: f64) {
        let case = Case { procedure: "latency".into(), ..case.clone() };
        let id = self.id("latency", &case);
        let (mut values, mut trials) = (Vec::new(), Vec::new());
        let loads = [("0", 0.0001), ("10", 0.1), ("50", 0.5), ("90", 0.9)];
        for (i, (label, load)) in loads.into_iter().enumerate() {
            let mut trial = self.trial(&id, &format!("latency at {label} %"), rate * load, 0.0);
            trial.number += i as u64;
            let frames = if load < 0.001 { 400 } else { 6_000 };
            for d in &mut trial.directions {
                d.latency = self.latencies(frames, middle, load);
                for _ in 0..frames / 4 {
                    let a = middle * 0.1 * self.normal();
                    d.ipdv.add(a as i64);
                    d.jitter.add(a.abs() as i64);
                }
                d.rfc3550_jitter_ns = middle * 0.08;
            }
            let all = trial.latency();
            for (name, q) in [("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999)] {
                if let Some(v) = all.quantile(q).filter(|_| all.count as f64 * (1.0 - q) >= 10.0) {
                    let name = format!("latency_{name}@{label}");
                    values.push(Quantity::new(name, "ns", v as f64, all.count));
                }
            }
            trials.push(trial);
        }
        self.add(&case, values, trials);
    }

    fn loss(&mut self, case: &Case, capacity: f64, line: f64) {
        let case = Case { procedure: "frame_loss_rate".into(), ..case.clone() };
        let id = self.id("frame_loss_rate", &case);
        let mut trials = Vec::new();
        for step in (1..=10).rev() {
            let rate = line * f64::from(step) / 10.0;
            let lost = (1.0 - capacity / rate).max(0.0);
            let mut trial = self.trial(&id, &format!("loss at {} %", step * 10), rate, lost);
            trial.number += trials.len() as u64;
            trials.push(trial);
        }
        let found = Quantity::new("loss_ratio@100", "ratio", (1.0 - capacity / line).max(0.0), 1);
        self.add(&case, vec![found], trials);
    }

    fn soak(&mut self) {
        let case = Case {
            procedure: "soak".into(),
            device: "router".into(),
            condition: "kernel".into(),
            frame: "64".into(),
            frame_bytes: 64.0,
            direction: "bidirectional".into(),
            flows: 256,
            load: "50 %".into(),
            repetition: 1,
            ..Case::default()
        };
        let id = self.id("soak", &case);
        let mut trials = Vec::new();
        for window in 0..24_u64 {
            let mut trial = self.trial(&id, &format!("soak, {} of 24", window + 1), 500_000.0, 0.0);
            trial.number += window;
            trial.start_ns = self.run.header.start_ns + window as i64 * 1_000_000_000;
            for d in &mut trial.directions {
                d.latency = self.latencies(3_000, 9_000.0, (window % 9) as f64 / 9.0);
            }
            trials.push(trial);
        }
        for s in 0..120_i64 {
            let stalled = s % 37 == 30;
            let max = if stalled { 4_000_000 } else { 60_000 + self.rng.i64(0..40_000) };
            trials[0].directions[0].series.push(SeriesPoint {
                at_ns: s * 1_000_000_000,
                length_ns: 1_000_000_000,
                received: 500_000,
                lost: if stalled { 1_200 } else { 0 },
                latency_ns: [7_100, 9_000 + self.rng.i64(0..900), 14_000, max],
            });
        }
        let found = Quantity::new("loss_ratio", "ratio", 1e-6, 24);
        self.add(&case, vec![found], trials);
    }
}
