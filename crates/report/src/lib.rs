//! Benchmark runs as tables, figures and files: pure functions of a [`BenchRun`].
//!
//! A run becomes [`Sheet`]s (tables) and [`Chart`]s (figures); each output format renders
//! those. The reporting formats are those of RFC 2544, section 26, and of the standards that
//! follow it. Nothing here reads a clock, a file or the network: the same run gives the same
//! octets.
#![forbid(unsafe_code)]

pub mod chart;
pub mod compare;
pub mod figure;
pub mod file;
pub mod group;
mod latex_text;
pub mod quantity;
pub mod sheet;
pub mod sla;
pub mod trials;

pub use chart::Chart;
pub use compare::{Comparison, ComparisonVerdict, Metrics, compare};
pub use file::{Page, RenderError, ReportFormat, render};
pub use sheet::{Cell, Sheet, sheets};

use sonde_results::bench::BenchRun;
use sonde_results::units::WIRE_OCTETS;

/// The device's name in cases that were measured with the tester's ports joined directly.
pub const LOOP: &str = "loop";

/// The theoretical rate of frames of `bytes` octets (with FCS), frames/s: that of the slowest
/// of the tester's ports. `None`: a port has no nominal speed.
pub fn line_rate_fps(run: &BenchRun, bytes: f64) -> Option<f64> {
    let speeds: Option<Vec<u64>> = run.bed.ports.iter().map(|p| p.speed_bps).collect();
    let slowest = speeds?.into_iter().min().filter(|s| *s > 0)?;
    (bytes > 0.0).then(|| slowest as f64 / ((bytes + WIRE_OCTETS as f64) * 8.0))
}
