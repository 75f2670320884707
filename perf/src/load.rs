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

/// How closely to look at a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Look {
    /// Only the interval records, as `sonde probe` does.
    Records,
    /// A record of each stream each second, as a station has them.
    Seconds,
    /// Each packet's stamps, against the far end's. Needs the other processor.
    Packets,
    /// And against the near end's. The programs that take those lie in the packets' way.
    NearEnd,
}

/// One engine under one load. Histograms in ns.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EngineResult {
    pub name: String,
    pub sent: u64,
    /// From the first to the last send, s.
    pub seconds: f64,
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
    /// The same time stamps against those of the near end, if [`Look::NearEnd`] asks for them.
    pub near: NearEnd,
}

/// What the stamper at the near end saw of the answered packets. Histograms in ns; see
/// [`sonde_bpf::StampPoint`] for the points. Empty where an engine's packets do not pass.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NearEnd {
    /// Stamp at tc egress less T1: negative, since T1 comes after it.
    pub tc_egress: Hist,
    /// Stamp when the driver handed the probe to its peer less T1: negative, where T1 comes
    /// after it.
    pub handed_over: Hist,
    /// Stamp when the driver let go of the probe less T1.
    pub released: Hist,
    /// T4 less the stamp at tc ingress: negative, where T4 comes before it.
    pub tc_ingress: Hist,
    /// T4 less the stamp when the reply was in the AF_XDP ring: likewise.
    pub redirected: Hist,
    /// From when the driver let go of the probe to the reply's stamp.
    pub rtt: Hist,
    /// Stamps that could not be taken or kept.
    pub missed: u64,
}

impl EngineResult {
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

pub const DESTINATIONS: u64 = 4_000;
/// DSCPs of the classes.
pub const CLASSES: [u8; 5] = [0, 10, 18, 34, 46];
pub const STREAMS: u64 = DESTINATIONS * CLASSES.len() as u64;
/// Length of the IP packet, bytes.
pub const SIZE: u16 = 150;
