//! The loads, and what one measurement of one engine yields.

use serde::{Deserialize, Serialize};
use sonde_results::Hist;

/// 4,000 destinations, five classes, 150-byte packets.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Packets a second, all streams together.
    pub rate: u64,
    /// How long, seconds.
    pub seconds: u64,
}

impl Load {
    /// Time between two packets of one stream, ns.
    pub fn stream_interval(self) -> i64 {
        (STREAMS * 1_000_000_000 / self.rate) as i64
    }
}

/// One engine under one load. Histograms in ns.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// What was measured.
    pub name: String,
    /// Packets sent.
    pub sent: u64,
    /// From the first to the last send, s.
    pub seconds: f64,
    /// Packets answered.
    pub received: u64,
    /// Sends that were left out.
    pub skipped: u64,
    /// Packets lost in our own rings and sockets, by the engine's counters.
    pub own_drops: u64,
    /// How late packets were sent.
    pub lateness: Hist,
    /// The far end's arrival stamp less T1.
    pub t1: Hist,
    /// T4 less the far end's departure stamp.
    pub t4: Hist,
    /// T4-T1, as reported.
    pub rtt: Hist,
    /// (T4-T1)-(T3-T2): all that is not the far end. The wire takes some of it, so the
    /// reported round trip is at most this far from the truth.
    pub rtt_net: Hist,
    /// Pauses of the sending loop above 50 us: what the machine did meanwhile.
    pub pauses: Hist,
    /// Resident memory of the process at its greatest, bytes.
    pub peak_memory: u64,
    /// How the engine ran.
    pub mode: String,
}

impl Outcome {
    /// Packets a second reached.
    pub fn rate(&self) -> f64 {
        self.sent as f64 / self.seconds.max(1e-9)
    }

    /// Packets that were neither answered nor dropped by ourselves are lost on the way.
    pub fn lost(&self) -> u64 {
        self.sent - self.received.min(self.sent)
    }
}

/// The process's greatest resident memory so far, bytes.
pub fn peak_memory() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|s| s.lines().find_map(|l| l.strip_prefix("VmHWM:").map(str::to_owned)))
        .and_then(|l| l.trim().trim_end_matches(" kB").trim().parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

/// Destinations.
pub const DESTINATIONS: u64 = 4_000;
/// DSCPs of the classes.
pub const CLASSES: [u8; 5] = [0, 10, 18, 34, 46];
/// Streams.
pub const STREAMS: u64 = DESTINATIONS * CLASSES.len() as u64;
/// Length of the IP packet, bytes.
pub const SIZE: u16 = 150;
