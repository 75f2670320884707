//! Test frames for a device: generated and analysed in the kernel, by `c/load_tx.bpf.c` and
//! `c/load_rx.bpf.c`. See docs/load.md.

mod analyser;
mod generator;
mod hist;
mod sink;

pub use analyser::{Expected, WINDOW, XdpAnalyser, XdpAnalyserConfig};
pub use generator::{FlowHeader, HEADER_MAX, XdpGenerator, XdpGeneratorConfig, XdpPace};
pub use sink::XdpDropper;
