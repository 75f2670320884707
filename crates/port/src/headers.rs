//! The engine "header". An XDP program reads the packets' headers and hands up the unified header
//! alone ([`Feature`]), 64 bytes a packet; no frame reaches this process.
//!
//! It works on a live host, whose packets go on untouched, and on a port that gets copies.
//! The program deals the packets out to the workers by their two addresses, whichever of
//! them sends and whatever queue they come by. It sees what an interface receives, and not
//! what the host sends. Times are steady ([`crate::OpenSpec::steady`]).

use std::sync::Arc;
use std::time::Duration;

use sonde_bpf::flow::{FlowCounters, RECORD_LEN, Refused, RingRecord};
use sonde_bpf::{AttachMode, BpfError, FlowInput, FlowInterface, FlowProgram, FlowRing};
use sonde_sys::clock::{kernel_base, steady_now};
use sonde_sys::promiscuous::Promiscuous;
use sonde_sys::syscall;
use sonde_wire::Time;
use sonde_wire::feature::{Feature, Keys};

use crate::{PortError, XdpMode};

/// What the engine is opened with.
#[derive(Clone, Debug)]
pub struct HeaderSpec {
    /// The interfaces, by name; their indexes in this list are the features' points.
    pub interfaces: Vec<String>,
    /// The first one's point. For an interface that has returned, and whose program went with
    /// it, while others are read further by the program that they have.
    pub first_point: u8,
    /// Which of them have no Ethernet header (tun, WireGuard, PPP).
    pub raw_ip: Vec<bool>,
    /// How many threads will read: one [`HeaderPort`] each.
    pub workers: u32,
    /// Records that a worker's ring holds, at least.
    pub ring: u32,
    /// Which IP header counts.
    pub keys: Keys,
    /// Packets end here. For ports that get copies of others' traffic; on any other the
    /// host would be cut off.
    pub consume: bool,
    /// How to attach. There is nothing to copy: zero copy is native.
    pub xdp_mode: XdpMode,
}

impl HeaderSpec {
    /// With the defaults: one worker, 65,536 records, outer keys, packets go on to the host.
    pub fn new(interface: String) -> Self {
        HeaderSpec {
            interfaces: vec![interface],
            first_point: 0,
            raw_ip: vec![false],
            workers: 1,
            ring: 1 << 16,
            keys: Keys::Outer,
            consume: false,
            xdp_mode: XdpMode::Auto,
        }
    }
}

/// One worker's share of the packets' headers. Dropping the last of them detaches the
/// program, and so does the end of the process.
pub struct HeaderPort {
    ring: FlowRing,
    program: Arc<FlowProgram>,
    /// So that a mirror port's card hands up what is addressed to others.
    _promiscuous: Arc<[Promiscuous]>,
    mode: Arc<str>,
    first_point: u8,
    /// The latest burst, where its points are others than the program's.
    moved: Vec<Feature>,
}

/// Loads and attaches the program; one port for each worker.
///
/// # Errors
/// [`PortError::Sys`]: no such interface, not permitted; [`PortError::Config`] for settings
/// that cannot be, and where XDP cannot be had: the message says why.
pub fn open(spec: &HeaderSpec) -> Result<Vec<HeaderPort>, PortError> {
    let mut interfaces = Vec::with_capacity(spec.interfaces.len());
    for (i, name) in spec.interfaces.iter().enumerate() {
        let raw_ip = spec.raw_ip.get(i).copied().unwrap_or(false);
        interfaces.push(FlowInterface { ifindex: syscall::interface_index(name)?, raw_ip });
    }
    let input = FlowInput::Headers {
        workers: spec.workers,
        ring: spec.ring,
        inner: spec.keys == Keys::Inner,
        consume: spec.consume,
        time_base_ns: kernel_base(),
    };
    let modes: &[AttachMode] = match spec.xdp_mode {
        XdpMode::Auto => &[AttachMode::Native, AttachMode::Generic],
        XdpMode::ZeroCopy | XdpMode::Copy => &[AttachMode::Native],
        XdpMode::Generic => &[AttachMode::Generic],
    };
    let (mut program, modes) = FlowProgram::attach(input, &interfaces, modes).map_err(refused)?;
    let rings: Vec<FlowRing> = (0..spec.workers)
        .map(|worker| program.ring(worker))
        .collect::<Result<_, _>>()
        .map_err(refused)?;
    let program = Arc::new(program);
    let promiscuous: Arc<[Promiscuous]> =
        interfaces.iter().map(|i| Promiscuous::hold(i.ifindex)).collect::<Result<_, _>>()?;
    let each: Vec<String> = spec
        .interfaces
        .iter()
        .zip(modes)
        .map(|(name, mode)| format!("{name} {}", mode.name()))
        .collect();
    let mode: Arc<str> = format!(
        "XDP headers, {}, {}",
        each.join(", "),
        if spec.consume { "packets end here" } else { "packets go on" }
    )
    .into();
    let port = |ring| HeaderPort {
        ring,
        program: program.clone(),
        _promiscuous: promiscuous.clone(),
        mode: mode.clone(),
        first_point: spec.first_point,
        moved: Vec::with_capacity(if spec.first_point > 0 { BURST } else { 0 }),
    };
    Ok(rings.into_iter().map(port).collect())
}

impl HeaderPort {
    /// The next packets, at most [`BURST`]; none when there are none. Those of the call
    /// before are given up. They lie where the kernel wrote them, unless their points must be
    /// others than its own.
    #[inline]
    pub fn burst(&mut self) -> &[Feature] {
        let records = self.ring.take(BURST);
        // SAFETY: a record has the size of a feature and at least its alignment, both
        // asserted below, and every octets are a feature: it has integers only. The borrow
        // is the same.
        let features = unsafe {
            std::slice::from_raw_parts(records.as_ptr().cast::<Feature>(), records.len())
        };
        if self.first_point == 0 {
            return features;
        }
        self.moved.clear();
        let first = self.first_point;
        let moved = |f: &Feature| Feature { point: f.point.saturating_add(first), ..*f };
        self.moved.extend(features.iter().map(moved));
        &self.moved
    }

    /// Takes the program off the interface with this index in [`HeaderSpec::interfaces`], for all
    /// workers. What the rings hold can still be taken.
    pub fn detach(&self, interface: usize) {
        self.program.detach(interface);
    }

    /// Sleeps until there are packets or `until` has come by steady time, in steps of a
    /// millisecond. The program wakes nobody, so receiving packets costs no wake-ups.
    pub fn wait(&mut self, until: Time) {
        loop {
            let left = until - steady_now();
            if left <= 0 || self.ring.ready() {
                return;
            }
            std::thread::sleep(Duration::from_nanos(left.unsigned_abs()).min(STEP));
        }
    }

    /// Packets whose headers were put into this worker's ring so far.
    pub fn received(&self) -> u64 {
        self.ring.received()
    }

    /// Packets that found this worker's ring full, and their bytes by the IP header.
    pub fn lost(&self) -> Refused {
        self.ring.lost()
    }

    /// Packets of which no feature could be made, of all workers together. They stand by the index
    /// of the [`sonde_wire::Error`] that says why, with the bytes of their frames.
    ///
    /// # Errors
    /// [`PortError::Sys`].
    pub fn refused(&self) -> Result<[Refused; sonde_wire::Error::COUNT], PortError> {
        let FlowCounters { refused: counts, .. } = self.program.counters().map_err(refused)?;
        Ok(counts)
    }

    /// How it runs, for people.
    pub fn mode(&self) -> &str {
        &self.mode
    }
}

fn refused(error: BpfError) -> PortError {
    match error {
        BpfError::Io { what, cause } => PortError::io(what, cause, ""),
        other => PortError::Config(other.to_string()),
    }
}

/// Packets of a burst.
pub const BURST: usize = 32;
/// How long a sleep lasts at most. At ten million packets a second 10,000 come meanwhile.
const STEP: Duration = Duration::from_millis(1);

const _: () = assert!(
    RECORD_LEN == size_of::<Feature>()
        && size_of::<RingRecord>() == size_of::<Feature>()
        && align_of::<RingRecord>() >= align_of::<Feature>()
);
// The fields lie where `struct feature` of `bpf/c/flow_feature.h` has them; that they mean
// the same is tested in crate `bpf`.
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Feature, source) == 8 && offset_of!(Feature, destination) == 24);
    assert!(offset_of!(Feature, source_port) == 40 && offset_of!(Feature, ip_len) == 44);
    assert!(offset_of!(Feature, sequence) == 48 && offset_of!(Feature, tcp_flags) == 52);
    assert!(offset_of!(Feature, protocol) == 56 && offset_of!(Feature, shape) == 59);
    assert!(offset_of!(Feature, window) == 60 && offset_of!(Feature, point) == 63);
};

#[cfg(test)]
mod tests;
