//! Passive round-trip times in the kernel (`c/rtt.bpf.c`): programs that watch the packets
//! of interfaces, one flow table for all of them, and what user space reads of it.
//!
//! The table has a fixed size that neither traffic nor the number of CPUs moves: see
//! [`RttProgram::memory_bytes`]. Samples and flows that have ended come through ring
//! buffers; open flows and histograms are read from the memory that both share.
//!
//! Where the kernel has tcx links (Linux 6.6), nothing stays attached when the process ends,
//! however it ends. An older one keeps filters of a killed process until they are removed with
//! `tc`. [`RttProgram::pin`] keeps everything on purpose.

mod attach;
mod counters;
mod groups;
mod layout;
mod memory;
mod run;
mod setup;

use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use libbpf_rs::MapHandle;
use sonde_results::rtt::{Coverage, RttFlow, RttSample};
pub use sonde_results::rtt::{RttEvents, RttGroupBy, RttProtocols};

pub use attach::{RttAttached, RttAttachment};
pub use run::{RttBench, RttSide, RttTestPacket, RttTraffic};

use crate::BpfError;
use crate::load;
use layout::{FlowEvent, RawFlow, RawLoss, Reading, SampleEvent};
use memory::{Mapped, Ring};

/// What the program is configured with at its start; what is off costs nothing.
#[derive(Clone, Debug)]
pub struct RttConfig {
    /// Flows tracked at once: a power of two, 64 to 2^22.
    pub flows: u32,
    /// Secrets of the hashes, random per run: nobody outside can aim at one bucket.
    pub seed: [u64; 2],
    /// What the samples of one histogram have in common.
    pub group_by: RttGroupBy,
    /// Groups at once, 1 to 16,383; samples beyond go to
    /// [`sonde_results::rtt::GroupKey::Other`].
    pub groups: u32,
    /// Prefixes and their autonomous systems (0: unknown); the longest that holds an
    /// address decides. Addresses in none belong to their /24 or /48.
    pub prefixes: Vec<(IpAddr, u8, u32)>,
    /// Which samples become events.
    pub events: RttEvents,
    /// At most one clean sample a second and direction of a flow enters the histograms.
    pub weight_by_flow: bool,
    /// Keep only prefixes (/24, /48) of addresses, and a keyed hash to distinguish hosts.
    pub hide_addresses: bool,
    /// The VLAN is part of a flow's key; else both directions may have their own.
    pub vlan_in_key: bool,
    /// The observation point of each interface, by its index; beyond the end it is one of its own.
    /// Interfaces with one observation point are one.
    pub observation_points: Vec<u8>,
    /// Which protocols are looked at; none: all.
    pub protocols: RttProtocols,
    /// Networks, at most 8: either address lies in any of them; empty: all.
    pub nets: Vec<(IpAddr, u8)>,
    /// Ports, at most 8: either port is any of them; empty: all.
    pub ports: Vec<u16>,
    /// Look into tunnels (`c/tunnel.h`): the inner packet is measured instead.
    pub tunnels: bool,
    /// Time packets from the ingress of one interface to the egress of another.
    pub residence: bool,
    /// Load the XDP program too, for [`RttHook::Xdp`]: the kernel takes a second or two to
    /// prove each program.
    pub xdp: bool,
    /// What is added to the kernel's monotonic clock, which nobody can set, for the times of
    /// records, ns.
    pub time_base_ns: i64,
    /// What `CLOCK_MONOTONIC` is ahead of that clock, ns: 0 but in a time namespace.
    pub namespace_offset_ns: i64,
}

/// Where a program meets the packets of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RttHook {
    /// tc at ingress and egress: both directions of a host or router.
    Tc,
    /// XDP at ingress, before the kernel spends anything on the packet; tc at egress.
    Xdp,
    /// tc at ingress alone: a mirror port, whose ingress has both directions.
    TcIngress,
}

/// The programs, their table, and what they are attached to. Dropping it detaches all.
#[derive(Debug)]
pub struct RttProgram {
    progs: Programs,
    maps: Maps,
    points: attach::Points,
    globals: Globals,
    buckets: Mapped,
    flows: Mapped,
    losses: Mapped,
    groups: groups::Groups,
    samples: Ring,
    ended: Ring,
    config: RttConfig,
    sizes: setup::Sizes,
}

#[derive(Debug)]
struct Programs {
    ingress: OwnedFd,
    /// The one for ingress, unless residence distinguishes them.
    egress: OwnedFd,
    xdp: Option<OwnedFd>,
    sweep: OwnedFd,
}

#[derive(Debug)]
struct Maps {
    counters: MapHandle,
    all: Vec<(&'static str, MapHandle)>,
}

/// The global variables that change while the program runs.
#[derive(Debug)]
struct Globals {
    page: Mapped,
    test_now: usize,
    test_point: usize,
    bench_flows: usize,
    bench_samples: usize,
    bench_payload: usize,
}

impl Default for RttConfig {
    /// 131,072 flows, /24 and /48, 4,096 groups, no events; seeds 0, which the caller
    /// should replace.
    fn default() -> Self {
        RttConfig {
            flows: 131_072,
            seed: [0; 2],
            group_by: RttGroupBy::Prefix,
            groups: 4_096,
            prefixes: Vec::new(),
            events: RttEvents::None,
            weight_by_flow: false,
            hide_addresses: false,
            vlan_in_key: true,
            observation_points: Vec::new(),
            protocols: RttProtocols::default(),
            nets: Vec::new(),
            ports: Vec::new(),
            tunnels: false,
            residence: false,
            xdp: true,
            time_base_ns: 0,
            namespace_offset_ns: 0,
        }
    }
}

impl RttProgram {
    /// Octets of memory that the program's maps take, whatever the traffic. Their count depends on
    /// [`RttConfig`] alone, but for the counters of each CPU and the list of prefixes.
    pub fn memory_bytes(&self) -> u64 {
        self.sizes.memory_bytes(self.config.prefixes.len())
    }

    /// Waits up to `timeout` for samples and flows that have ended, and hands them over.
    /// They come within the time-out; sooner only when the ring of samples fills up.
    ///
    /// # Errors
    /// [`BpfError::Io`] when waiting fails.
    pub fn poll(
        &mut self,
        timeout: Duration,
        on_sample: &mut dyn FnMut(RttSample),
        on_flow: &mut dyn FnMut(RttFlow),
    ) -> Result<(), BpfError> {
        let millis = timeout.as_millis().min(i32::MAX as u128) as i32;
        let mut fds = [&self.samples, &self.ended].map(|ring| libc::pollfd {
            fd: ring.fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        // SAFETY: the array is valid for its length.
        if unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, millis) } < 0 {
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(BpfError::io("wait for round-trip times", error));
            }
        }
        let reading = self.reading();
        self.samples.consume(|event: SampleEvent| on_sample(event.sample(reading)));
        self.ended.consume(|event: FlowEvent| {
            let reason = layout::reason_of(event.reason);
            on_flow(event.flow.record(&event.loss, reason, reading));
        });
        Ok(())
    }

    /// The flows that are in the table now. One whose entry changes all the while it is
    /// read is left out.
    pub fn open_flows(&self, visit: &mut dyn FnMut(RttFlow)) {
        let reading = self.reading();
        for bucket in 0..self.sizes.flows as usize / WAYS {
            for way in 0..WAYS {
                if let Some((flow, loss)) = self.read_flow(bucket, way) {
                    visit(flow.record(&loss.side, flow.reason(), reading));
                }
            }
        }
    }

    /// The groups' histograms since the last call; they begin anew. `start_ns` and
    /// `end_ns` go into the records.
    ///
    /// # Errors
    /// [`BpfError::Io`] when a histogram cannot be given back.
    pub fn take_groups(
        &mut self,
        start_ns: i64,
        end_ns: i64,
    ) -> Result<Vec<sonde_results::rtt::RttGroup>, BpfError> {
        self.groups.take(start_ns, end_ns, self.config.hide_addresses)
    }

    /// What was seen and what was left out, since the start, over all CPUs.
    ///
    /// # Errors
    /// [`BpfError::Io`] when the counters cannot be read.
    pub fn coverage(&self) -> Result<Coverage, BpfError> {
        load::sum_counters(&self.maps.counters).map(counters::coverage)
    }

    /// An entry and its losses, untorn: between the two readings of the lock's word nobody
    /// has held it.
    fn read_flow(&self, bucket: usize, way: usize) -> Option<(RawFlow, RawLoss)> {
        let at = bucket * BUCKET;
        let tag = self.buckets.word(at + 4 * way);
        let lock = self.buckets.word(at + 4 * WAYS);
        for _ in 0..READ_TRIES {
            let before = lock.load(Ordering::Acquire);
            if tag.load(Ordering::Relaxed) == 0 {
                return None;
            }
            if before & 1 == 0 {
                let flow: RawFlow = self.flows.read((bucket * WAYS + way) * size_of::<RawFlow>());
                let loss = match flow.loss {
                    0 => RawLoss::default(),
                    n if n <= self.sizes.losses => {
                        self.losses.read((n as usize - 1) * size_of::<RawLoss>())
                    }
                    _ => RawLoss::default(), // torn: the next line finds out
                };
                if unchanged(lock, before) {
                    return Some((flow, loss));
                }
            }
            std::hint::spin_loop();
        }
        None
    }

    fn xdp(&self) -> Result<BorrowedFd<'_>, BpfError> {
        let none = || BpfError::Config("passive RTT was loaded without its XDP program".into());
        self.progs.xdp.as_ref().map(|program| program.as_fd()).ok_or_else(none)
    }

    fn reading(&self) -> Reading {
        let test_now = self.globals.page.long(self.globals.test_now).load(Ordering::Relaxed);
        let hidden = self.config.hide_addresses;
        if test_now != 0 {
            return Reading { base_ns: 0, now_ns: test_now as i64, hidden };
        }
        let base_ns = self.config.time_base_ns;
        let now_ns = monotonic_ns() - self.config.namespace_offset_ns + base_ns;
        Reading { base_ns, now_ns, hidden }
    }
}

fn unchanged(lock: &AtomicU32, before: u32) -> bool {
    fence(Ordering::Acquire);
    lock.load(Ordering::Relaxed) == before
}

fn monotonic_ns() -> i64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is valid memory for the answer; there always is this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut at) };
    at.tv_sec * 1_000_000_000 + at.tv_nsec
}

/// `WAYS` in `c/rtt.h`.
const WAYS: usize = 8;
/// Octets of a bucket.
const BUCKET: usize = 64;
/// A holder of a lock is done within a microsecond.
const READ_TRIES: u32 = 10_000;
