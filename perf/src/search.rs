//! The searches for a device's rate, held against each other on the simulated device of
//! `sonde_meter::trial::sim`: what they find, how much that varies, and how long they offer
//! load. All in virtual time: the figures do not depend on the machine.

use anyhow::{Context as _, Result};
use sonde_meter::trial::sim::{DeviceConfig, SimulatedDevice};
use sonde_meter::trial::{
    Goal, MlrConfig, MlrSearch, NextTrial, Procedure, RateSearch, RateSearchConfig,
};
use sonde_results::trial::Offer;
use sonde_results::units::SECOND;

const SEEDS: u64 = 15;
const MIN_FPS: f64 = 9001.0;
const MAX_FPS: f64 = 2e6;
/// Trials of 60 s at the rate that a search found, for each seed.
const MINUTES: u64 = 4;

/// A search, and the name of what it finds.
type Search = (&'static str, &'static str, fn() -> Box<dyn Procedure>);

fn rate_search(duration_ns: i64) -> RateSearchConfig {
    RateSearchConfig {
        min_fps: MIN_FPS,
        max_fps: MAX_FPS,
        duration_ns,
        ..RateSearchConfig::default()
    }
}

fn mlr(goals: Vec<Goal>) -> Box<dyn Procedure> {
    let config = MlrConfig { min_fps: MIN_FPS, max_fps: MAX_FPS, goals, ..MlrConfig::default() };
    Box::new(MlrSearch::new(config))
}

const SEARCHES: [Search; 6] = [
    ("RFC 2544, 60 s", "throughput", || Box::new(RateSearch::throughput(rate_search(60 * SECOND)))),
    ("TST 009, 60 s", "throughput", || {
        Box::new(RateSearch::with_loss_verification(rate_search(60 * SECOND)))
    }),
    ("binary, 3 s", "throughput", || Box::new(RateSearch::throughput(rate_search(3 * SECOND)))),
    ("MLRsearch, NDR", "conditional_throughput@ndr", || mlr(vec![Goal::ndr(), Goal::pdr()])),
    ("MLRsearch, RFC 2544", "conditional_throughput", || mlr(vec![Goal::rfc2544()])),
    ("MLRsearch, TST 009", "conditional_throughput", || mlr(vec![Goal::tst009()])),
];

pub fn bench() -> Result<()> {
    println!("\n## Searches on a simulated device\n");
    println!(
        "1 M frames/s, a buffer of 1000 frames, exponential stalls of 1 ms; {SEEDS} seeds, \
         bounds within 0.5 %. Rates are means, with their coefficient of variation; time is \
         the load offered; *lossless* is the share of trials of 60 s at the rate found that \
         lose nothing.\n"
    );
    println!("| search | stalls/s | rate, frames/s | cv | time | lossless |");
    println!("|---|---|---|---|---|---|");
    for (name, value, make) in SEARCHES {
        for stalls_per_s in [0.0, 0.05, 0.5, 2.0] {
            let config = DeviceConfig { stalls_per_s, ..DeviceConfig::default() };
            let (mut rates, mut seconds, mut lossless) = (Vec::new(), 0.0, 0);
            for seed in 1..=SEEDS {
                let mut device = SimulatedDevice::new(config.clone(), seed);
                let mut search = make();
                while let Some(next) = search.next() {
                    seconds += next.offer.duration_ns() as f64 / 1e9;
                    search.observe(&device.run(&next));
                }
                let finding = search.finding();
                let rate = finding.value(value).context("the search found nothing")?.value;
                for _ in 0..MINUTES {
                    let offer = Offer::steady(rate, 60 * SECOND);
                    let trial = device.run(&NextTrial { offer, purpose: String::new() });
                    lossless += u64::from(trial.sent_and_lost().1 == 0);
                }
                rates.push(rate);
            }
            let n = SEEDS as f64;
            let mean = rates.iter().sum::<f64>() / n;
            let variance = rates.iter().map(|r| (r - mean) * (r - mean)).sum::<f64>() / (n - 1.0);
            println!(
                "| {name} | {stalls_per_s} | {:.0} k | {:.1} % | {:.0} s | {:.0} % |",
                mean / 1e3,
                variance.sqrt() / mean * 100.0,
                seconds / n,
                lossless as f64 / (SEEDS * MINUTES) as f64 * 100.0
            );
        }
    }
    Ok(())
}
