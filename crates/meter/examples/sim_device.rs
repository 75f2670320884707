//! The simulated device of the benchmarking procedures behind standard input and output. So another
//! implementation of a search can be compared with ours on the same device
//! (tests/golden/make_mlrsearch.py).
//!
//! Arguments: seed, capacity in frames/s, buffer in frames, stalls a second, mean stall in
//! ns. Each line of input, `RATE DURATION_NS`, is a trial; its answer is `SENT LOST`.

use std::io::{BufRead as _, Write as _};

use sonde_meter::trial::NextTrial;
use sonde_meter::trial::sim::{DeviceConfig, SimulatedDevice};
use sonde_results::trial::Offer;

#[expect(clippy::disallowed_methods, reason = "an example is a program")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<f64> = std::env::args().skip(1).map(|a| a.parse()).collect::<Result<_, _>>()?;
    let [seed, capacity_fps, buffer_frames, stalls_per_s, stall_ns] = args[..] else {
        return Err("usage: sim_device SEED CAPACITY BUFFER STALLS_PER_S STALL_NS".into());
    };
    let config = DeviceConfig {
        capacity_fps,
        buffer_frames,
        stalls_per_s,
        stall_ns,
        ..DeviceConfig::default()
    };
    let mut device = SimulatedDevice::new(config, seed as u64);
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (rate, duration) = line.split_once(' ').ok_or("RATE DURATION_NS expected")?;
        let offer = Offer::steady(rate.parse()?, duration.parse()?);
        let (sent, lost) = device.run(&NextTrial { offer, purpose: String::new() }).sent_and_lost();
        writeln!(out, "{sent} {lost}")?;
        out.flush()?;
    }
    Ok(())
}
