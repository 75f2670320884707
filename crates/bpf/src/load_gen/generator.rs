//! The generator: frames out by an interface, from one processor.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use sonde_results::trial::Direction;
use sonde_wire::ethernet::FCS_LEN;
use sonde_wire::signature;

use super::hist::SharedHist;
use crate::BpfError;
use crate::load::{self, BPF_F_TEST_XDP_LIVE_FRAMES};
use crate::mapping::{Plain, Shared};
use crate::skel::load_tx::LoadTxSkelBuilder;

/// Octets of headers, at most.
pub const HEADER_MAX: usize = 112;

/// The headers of a flow, and what its checksums are made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowHeader {
    /// From the Ethernet header to the UDP header, of the shortest of the frames; zeros
    /// behind.
    pub header: [u8; HEADER_MAX],
    /// Sum of the 16-bit words of the IPv4 header without its length and checksum.
    pub ip_sum: u32,
    /// Sum of pseudo-header and UDP header without the lengths and the checksum.
    pub udp_sum: u32,
    /// By which its frames are counted.
    pub stream: u16,
}

/// What a generator sends.
#[derive(Clone, Debug)]
pub struct XdpGeneratorConfig {
    /// Out by this interface, of the network namespace of the thread that runs it. On virtual
    /// Ethernet the other end must run an XDP program, or have GRO switched on.
    pub ifindex: u32,
    /// Slots after which the kernel hands over what has left: 1 for the lowest latency, 64 for
    /// the highest rate. Frames wait for the end of their batch.
    pub batch: u32,
    /// Read the clock once a batch: its frames share a stamp, and none waits to be due.
    pub batch_stamps: bool,
    /// Octets of frame after frame, without the FCS.
    pub sizes: Vec<u32>,
    /// Octets up to the end of the UDP header.
    pub header_len: usize,
    /// Offset of the IP header.
    pub l3_at: usize,
    /// Offset of the UDP header.
    pub l4_at: usize,
    /// IPv6, whose UDP checksums are made; IPv4 has none.
    pub ipv6: bool,
    /// Of trial and direction, in the signature.
    pub tag: u8,
    /// Of the tester, in the signature's digest.
    pub secret: [u64; 2],
}

/// When frames are due.
#[derive(Clone, Debug, PartialEq)]
pub struct XdpPace {
    pub frames: u64,
    /// Frames before this one are sent, but are in none of the counts.
    pub counted_from: u64,
    /// Frames that are due together.
    pub burst: u64,
    /// Frames a second.
    pub rate_fps: f64,
    /// Behind each of these frames, all of them boundaries of bursts, so many a second.
    pub changes: Vec<(u64, f64)>,
    /// A frame that leaves later than this after its due time, ns, puts off all behind it by as
    /// much. They make up for it by following each other a 64th sooner.
    pub catch_up_ns: u64,
}

/// A generator, ready to run. One thread runs it, others may watch and stop it.
#[derive(Debug)]
pub struct XdpGenerator {
    program: OwnedFd,
    state: Shared<State>,
    /// What a slot finds in new memory.
    template: Vec<u8>,
    batch: u32,
    sizes: Vec<u32>,
    /// The thread that runs it; 0: none does.
    runner: AtomicI32,
}

impl XdpGenerator {
    /// Loads the program for this load.
    ///
    /// # Errors
    /// [`BpfError::Config`] for frames that live frames cannot carry;
    /// [`BpfError::Privilege`], [`BpfError::Verifier`].
    pub fn load(
        config: &XdpGeneratorConfig,
        flows: &[FlowHeader],
        pace: &XdpPace,
    ) -> Result<XdpGenerator, BpfError> {
        config.check(flows, pace)?;
        load::check_interface(config.ifindex)?;
        let mut storage = MaybeUninit::uninit();
        let mut open = load::loading("open the load generator", || {
            LoadTxSkelBuilder::default().open(&mut storage)
        })?;
        let shortest = config.shortest();
        let fixed = open.maps.rodata_data.as_deref_mut().expect("the program has settings");
        fixed.target = config.ifindex;
        fixed.batch = config.batch;
        fixed.batch_stamps = u32::from(config.batch_stamps);
        fixed.burst = pace.burst;
        fixed.catch_up = pace.catch_up_ns;
        fixed.flow_count = flows.len() as u32;
        fixed.size_count = config.sizes.len() as u32;
        fixed.header_words = config.header_len.div_ceil(8) as u32;
        fixed.shortest = shortest;
        fixed.l3_at = config.l3_at as u32;
        fixed.l4_at = config.l4_at as u32;
        fixed.ipv6 = u32::from(config.ipv6);
        fixed.tag = u32::from(config.tag);
        [fixed.secret0, fixed.secret1] = config.secret;
        let (flow_count, size_count) = (flows.len() as u32, config.sizes.len() as u32);
        load::loading("size the flows", || open.maps.load_flows.set_max_entries(flow_count))?;
        load::loading("size the sizes", || open.maps.load_sizes.set_max_entries(size_count))?;
        let change_count = pace.changes.len() + 1;
        load::loading("size the changes", || {
            open.maps.load_changes.set_max_entries(change_count as u32)
        })?;
        let skel = load::loading("load the load generator", || open.load())?;

        let table = Shared::<FlowEntry>::map(&load::handle(&skel.maps.load_flows)?, flows.len())?;
        flows.iter().zip(table.iter()).for_each(|(flow, entry)| entry.set(flow));
        let sizes =
            Shared::<AtomicU64>::map(&load::handle(&skel.maps.load_sizes)?, config.sizes.len())?;
        for (&octets, entry) in config.sizes.iter().zip(sizes.iter()) {
            entry.store(octets.into(), Ordering::Relaxed);
        }
        let changes = Shared::<Change>::map(&load::handle(&skel.maps.load_changes)?, change_count)?;
        let ending = [(u64::MAX, pace.rate_fps)];
        for (&(at, rate), entry) in pace.changes.iter().chain(&ending).zip(changes.iter()) {
            entry.at.store(at, Ordering::Relaxed);
            put(&entry.step, step(pace.burst, rate));
        }
        let state = Shared::<State>::map(&load::handle(&skel.maps.load_gen)?, 1)?;
        state[0].set(pace);
        let mut template = vec![0; shortest as usize];
        template[..config.header_len].copy_from_slice(&flows[0].header[..config.header_len]);
        let program = skel.progs.sonde_load_tx.as_fd().try_clone_to_owned();
        Ok(XdpGenerator {
            program: program.map_err(|e| BpfError::io("keep a program", e))?,
            state,
            template,
            batch: config.batch,
            sizes: config.sizes.clone(),
            runner: AtomicI32::new(0),
        })
    }

    /// Says when the first frame is due, ns TAI: before the generator runs.
    pub fn start_at(&self, start_ns: i64) {
        self.state[0].due[0].store(start_ns as u64, Ordering::Relaxed);
    }

    /// Sends on this thread, until all frames have left or [`XdpGenerator::stop`] is called.
    /// Somebody must call [`XdpGenerator::end_if_done`] now and then, for the kernel goes on with
    /// empty slots otherwise.
    ///
    /// # Errors
    /// [`BpfError::Io`].
    pub fn run(&self) -> Result<(), BpfError> {
        handle_kicks();
        // SAFETY: no preconditions.
        self.runner.store(unsafe { libc::gettid() }, Ordering::Release);
        let result = self.run_slots();
        self.runner.store(0, Ordering::Release);
        result
    }

    fn run_slots(&self) -> Result<(), BpfError> {
        let state = &self.state[0];
        while !self.done() {
            // SAFETY: the structure is plain data for which all zeroes is valid ("not given").
            let mut opts: sys::bpf_test_run_opts = unsafe { std::mem::zeroed() };
            opts.sz = size_of_val(&opts) as _;
            opts.data_in = self.template.as_ptr().cast();
            opts.data_size_in = self.template.len() as u32;
            opts.repeat = i32::MAX;
            opts.flags = BPF_F_TEST_XDP_LIVE_FRAMES;
            opts.batch_size = self.batch;
            state.slot.store(0, Ordering::Relaxed);
            // SAFETY: the frame outlives the call and has the length given.
            let rc = unsafe { sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &mut opts) };
            if rc != 0 && rc != -libc::EINTR {
                return Err(BpfError::io("send live frames", io::Error::from_raw_os_error(-rc)));
            }
        }
        Ok(())
    }

    /// Ends [`XdpGenerator::run`] when all has been sent, or it was stopped. To be called
    /// again and again, from another thread: the thread may just be between two calls to the
    /// kernel.
    pub fn end_if_done(&self) {
        let runner = self.runner.load(Ordering::Acquire);
        if runner != 0 && self.done() {
            // SAFETY: integers only; at worst the thread has just ended.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), runner, KICK) };
        }
    }

    /// No further frame leaves.
    pub fn stop(&self) {
        self.state[0].stop.store(1, Ordering::Relaxed);
    }

    /// Whether all frames have left, or it was stopped.
    pub fn done(&self) -> bool {
        let s = &self.state[0];
        s.stop.load(Ordering::Relaxed) != 0
            || s.next.load(Ordering::Relaxed) >= s.frames.load(Ordering::Relaxed)
    }

    /// Frames that have left.
    pub fn sent(&self) -> u64 {
        self.state[0].next.load(Ordering::Relaxed)
    }

    /// Fills in what is known of the departures.
    pub fn read(&self, direction: &mut Direction) {
        let state = &self.state[0];
        let ns = |word: &AtomicU64| word.load(Ordering::Relaxed) as i64;
        let from = state.counted_from.load(Ordering::Relaxed);
        let (sent, frames) = (self.sent(), state.frames.load(Ordering::Relaxed));
        direction.intended = frames.saturating_sub(from);
        direction.sent = sent.saturating_sub(from);
        direction.sent_ns = [ns(&state.first), ns(&state.last)];
        direction.gaps = state.gaps.read();
        direction.lateness = state.late.read();
        let octets = |frames: u64| {
            let sum = |sizes: &[u32]| sizes.iter().map(|&s| u64::from(s) + FCS).sum::<u64>();
            let count = self.sizes.len() as u64;
            frames / count * sum(&self.sizes) + sum(&self.sizes[..(frames % count) as usize])
        };
        direction.sent_bytes = octets(sent).saturating_sub(octets(from));
    }

    /// Runs the program on one frame without sending it.
    ///
    /// # Errors
    /// [`BpfError::Io`].
    pub fn test_run(&self) -> Result<load::TestRun, BpfError> {
        load::test_run(self.program.as_fd(), &self.template, 1)
    }
}

impl XdpGeneratorConfig {
    fn shortest(&self) -> u32 {
        self.sizes.iter().copied().min().unwrap_or(0)
    }

    fn check(&self, flows: &[FlowHeader], pace: &XdpPace) -> Result<(), BpfError> {
        let wrong = |what: String| Err(BpfError::Config(what));
        let longest = self.sizes.iter().copied().max().unwrap_or(0) as usize;
        // The header is copied in words of eight octets, the signature after it.
        let least = self.header_len.next_multiple_of(8).max(self.header_len + signature::LEN);
        if longest > XdpGenerator::FRAME_MAX {
            return wrong(format!(
                "frames of {} octets are longer than live frames carry ({} with the FCS); choose \
                 engine af_packet or af_xdp",
                longest + FCS_LEN,
                XdpGenerator::FRAME_MAX + FCS_LEN,
            ));
        }
        if self.header_len > HEADER_MAX || (self.shortest() as usize) < least {
            return wrong(format!("headers of {} octets do not fit the frame", self.header_len));
        }
        if self.l3_at + 20 > self.l4_at || self.l4_at + 8 > self.header_len {
            return wrong("the headers' offsets do not fit each other".into());
        }
        if flows.is_empty() || flows.len() > XdpGenerator::FLOWS_MAX {
            return wrong(format!("1 to {} flows, not {}", XdpGenerator::FLOWS_MAX, flows.len()));
        }
        if self.sizes.len() > XdpGenerator::SIZES_MAX {
            return wrong(format!("at most {} frames make a pattern", XdpGenerator::SIZES_MAX));
        }
        if self.batch == 0 || self.batch > BATCH_MAX {
            return wrong(format!("a batch has 1 to {BATCH_MAX} slots"));
        }
        let changes = || pace.changes.iter();
        let mut rates = changes().map(|(_, rate)| *rate).chain([pace.rate_fps]);
        if pace.burst == 0 || rates.any(|r| r.is_nan() || r <= 0.0) {
            return wrong("bursts of no frames, or no frames a second".into());
        }
        if pace.changes.len() > XdpGenerator::CHANGES_MAX || !changes().is_sorted_by_key(|c| c.0) {
            return wrong(format!(
                "the load changes at most {} times, at one frame after the other",
                XdpGenerator::CHANGES_MAX
            ));
        }
        Ok(())
    }
}

impl XdpGenerator {
    /// Octets of a frame without its FCS, at most: a page, without what the kernel keeps in it.
    pub const FRAME_MAX: usize = 3200;
    pub const FLOWS_MAX: usize = 1 << 20;
    /// Changes of the load, at most.
    pub const CHANGES_MAX: usize = 1 << 12;
    /// Frames after which the sizes repeat, at most.
    pub const SIZES_MAX: usize = 1 << 16;
}

/// `struct load_gen` of `c/load_tx.bpf.c`.
#[derive(Debug)]
#[repr(C)]
struct State {
    stop: AtomicU64,
    frames: AtomicU64,
    counted_from: AtomicU64,
    next: AtomicU64,
    due: [AtomicU64; 2],
    step: [AtomicU64; 2],
    change_at: AtomicU64,
    change: AtomicU64,
    first: AtomicU64,
    last: AtomicU64,
    slots: AtomicU64,
    in_burst: AtomicU64,
    slot: AtomicU64,
    over: AtomicU64,
    flow: AtomicU64,
    size: AtomicU64,
    behind: AtomicU64,
    gaps: SharedHist,
    late: SharedHist,
}

// SAFETY: laid out as the C structure, and of 64-bit atomics only.
unsafe impl Plain for State {}

impl State {
    fn set(&self, pace: &XdpPace) {
        self.frames.store(pace.frames, Ordering::Relaxed);
        self.counted_from.store(pace.counted_from, Ordering::Relaxed);
        put(&self.due, [u64::MAX, 0]);
        put(&self.step, step(pace.burst, pace.rate_fps));
        let first = pace.changes.first().map_or(u64::MAX, |(at, _)| *at);
        self.change_at.store(first, Ordering::Relaxed);
    }
}

/// `struct load_change` of `c/load_tx.bpf.c`.
#[derive(Debug)]
#[repr(C)]
struct Change {
    at: AtomicU64,
    step: [AtomicU64; 2],
}

// SAFETY: laid out as the C structure, and of 64-bit atomics only.
unsafe impl Plain for Change {}

fn put(to: &[AtomicU64; 2], value: [u64; 2]) {
    to.iter().zip(value).for_each(|(p, v)| p.store(v, Ordering::Relaxed));
}

/// Between bursts: ns, and in 2^-32 ns.
fn step(burst: u64, rate_fps: f64) -> [u64; 2] {
    let ns = (burst as f64 * 1e9 / rate_fps).min(STEP_MAX);
    [ns.trunc() as u64, (ns.fract() * 2f64.powi(32)) as u64]
}

/// `struct load_flow` of `c/load_tx.bpf.c`.
#[derive(Debug)]
#[repr(C)]
struct FlowEntry {
    header: [AtomicU64; HEADER_MAX / 8],
    sums: AtomicU64,
    stream: AtomicU64,
}

// SAFETY: laid out as the C structure, and of 64-bit atomics only.
unsafe impl Plain for FlowEntry {}

impl FlowEntry {
    fn set(&self, flow: &FlowHeader) {
        for (word, octets) in self.header.iter().zip(flow.header.as_chunks::<8>().0) {
            word.store(u64::from_ne_bytes(*octets), Ordering::Relaxed);
        }
        let mut sums = [0; 8];
        sums[..4].copy_from_slice(&flow.ip_sum.to_ne_bytes());
        sums[4..].copy_from_slice(&flow.udp_sum.to_ne_bytes());
        self.sums.store(u64::from_ne_bytes(sums), Ordering::Relaxed);
        let mut stream = [0; 8];
        stream[..2].copy_from_slice(&flow.stream.to_ne_bytes());
        self.stream.store(u64::from_ne_bytes(stream), Ordering::Relaxed);
    }
}

/// Has the signal that ends a call to the kernel do nothing else. One that the program handles
/// otherwise is left as it is: it ends the call all the same.
///
/// Nothing but a signal ends `BPF_PROG_TEST_RUN` with live frames before its repetitions are over:
/// the kernel drops what a run refuses, and goes on. Fewer repetitions a call would do without, but
/// each call makes its memory anew, which is a gap in what is sent.
fn handle_kicks() {
    static ONCE: Once = Once::new();
    extern "C" fn nothing(_: libc::c_int) {}
    ONCE.call_once(|| {
        // SAFETY: plain data, for which zero is a value (no flags: calls are not restarted).
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: reads the present action into valid memory.
        unsafe { libc::sigaction(KICK, std::ptr::null(), &raw mut action) };
        if action.sa_sigaction == libc::SIG_DFL || action.sa_sigaction == libc::SIG_IGN {
            action.sa_sigaction = nothing as *const () as usize;
            action.sa_flags = 0;
            // SAFETY: the handler does nothing, which is safe at any time.
            unsafe { libc::sigaction(KICK, &raw const action, std::ptr::null_mut()) };
        }
    });
}

/// Ignored unless somebody handles it, so that a late one does no harm.
const KICK: libc::c_int = libc::SIGURG;
/// The kernel takes at most 256 (TEST_XDP_MAX_BATCH).
const BATCH_MAX: u32 = 256;
const FCS: u64 = FCS_LEN as u64;
/// An hour between bursts, and more than anybody waits.
const STEP_MAX: f64 = 3.6e12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_keeps_its_fraction() {
        assert_eq!(step(1, 20_000.0), [50_000, 0]);
        assert_eq!(step(1, 3e9), [0, 1431655765]);
        assert_eq!(step(16, 1e6), [16_000, 0]);
        assert_eq!(step(1, 1e-9)[0], 3_600_000_000_000);
    }
}
