//! The programs without an interface: for tests, and to measure what a packet costs.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use libbpf_rs::libbpf_sys as sys;

use super::{RttConfig, RttProgram};
use crate::BpfError;
use crate::load;
use crate::reflect::Cost;
use crate::skel::rtt::types::__sk_buff;

/// One of the three programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RttSide {
    /// tc at ingress.
    Ingress,
    /// tc at egress.
    Egress,
    Xdp,
}

/// A frame as the kernel would hand it to a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct RttTestPacket<'a> {
    /// The frame; with [`Self::l3`] the IP packet. At least 14 octets.
    pub frame: &'a [u8],
    /// Index of the capture point.
    pub point: u8,
    /// The interface has no Ethernet header.
    pub l3: bool,
    /// Segments of a GSO frame; 0 and 1: a plain one. Not for XDP.
    pub segments: u32,
}

/// What [`RttProgram::measure`] runs: requests and answers in turn, of flows in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttBench {
    pub ipv6: bool,
    /// What the packets carry.
    pub traffic: RttTraffic,
    /// Flows, a power of two.
    pub flows: u32,
    /// Each answer is a sample, with [`RttTraffic::QuicShort`] each packet; otherwise none is.
    pub samples: bool,
    /// Packets: an even count for each flow at least.
    pub packets: u32,
}

/// What the packets of a measurement carry; the values are those of `enum bench_payload` in
/// `c/rtt_bench.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RttTraffic {
    /// DNS over UDP (RFC 1035).
    Dns = 0,
    /// QUIC's short header, whose spin bit spins (RFC 9000, section 17.4) if there are to be
    /// samples, and stands still if not.
    QuicShort = 1,
    /// QUIC's Initial packets, sent again and again: of one flow they are never a sample but
    /// once.
    QuicInitial = 2,
    /// UDP that is neither: no flow is made of it.
    Udp = 3,
    /// TCP with timestamps: segments of 100 octets, and their acknowledgements.
    Tcp = 4,
}

impl RttTraffic {
    pub(super) fn is_udp(self) -> bool {
        self != RttTraffic::Tcp
    }
}

impl RttProgram {
    /// Measures what a packet costs at tc: with a wrapper that makes the next packet first,
    /// and with the wrapper alone. `rounds` times; the least of each counts, since all that
    /// disturbs only adds.
    ///
    /// # Errors
    /// As [`RttProgram::load`]; [`BpfError::Config`] when the packets were not what they
    /// should be, and the figure would be that of something easier.
    pub fn measure(config: &RttConfig, bench: RttBench, rounds: u32) -> Result<Cost, BpfError> {
        if !bench.flows.is_power_of_two() || bench.packets < 2 * bench.flows {
            return Err(BpfError::Config(
                "measuring needs a power of two of flows, and two packets for each".into(),
            ));
        }
        if bench.samples && matches!(bench.traffic, RttTraffic::QuicInitial | RttTraffic::Udp) {
            return Err(BpfError::Config(format!("{:?} gives no samples", bench.traffic)));
        }
        let (program, twins) = Self::load_with(config, Some(bench))?;
        let Some([whole, empty]) = twins else { unreachable!("asked for") };
        // Test runs happen on the loopback interface.
        program.points.add(LOOPBACK, 0, false)?;
        let page = &program.globals.page;
        page.word(program.globals.bench_flows).store(bench.flows, Ordering::Relaxed);
        page.word(program.globals.bench_samples).store(bench.samples.into(), Ordering::Relaxed);
        page.word(program.globals.bench_payload).store(bench.traffic as u32, Ordering::Relaxed);
        let frame = bench_frame(bench);
        let run = |program: &OwnedFd| load::test_run(program.as_fd(), &frame, bench.packets);
        // Makes the flows, and lets spin bits spin until they are believed.
        for _ in 0..(2 * WARM_UP * bench.flows).div_ceil(bench.packets) {
            run(&whole)?;
        }
        let before = program.coverage()?.counters;
        let mut cost = Cost { total_ns: u32::MAX, wrapper_ns: u32::MAX };
        for _ in 0..rounds.max(1) {
            cost.total_ns = cost.total_ns.min(run(&whole)?.ns_per_run);
            cost.wrapper_ns = cost.wrapper_ns.min(run(&empty)?.ns_per_run);
        }
        let after = program.coverage()?.counters;
        let counted = |name: &str| after[name] - before[name];
        let packets = u64::from(bench.packets) * u64::from(rounds.max(1));
        let samples = counted("samples_clean") + counted("samples_delayed_ack");
        // Between two rounds the twin's packets are missing: the first of each flow may fail.
        // And a bucket may be full: some flows may have no entry, but few.
        let expected = match (bench.samples, bench.traffic) {
            (false, _) => 0,
            (true, RttTraffic::QuicShort) => packets,
            (true, _) => packets / 2,
        };
        let missed = u64::from(2 * bench.flows) * u64::from(rounds.max(1)) + packets / 50;
        let untracked = counted("untracked_full") + counted("untracked_kind");
        let untracked_as_expected = match bench.traffic {
            RttTraffic::Udp => counted("untracked_kind") == packets,
            _ => untracked <= packets / 50,
        };
        if counted("packets") != packets
            || samples > expected
            || samples + missed < expected
            || !untracked_as_expected
        {
            return Err(BpfError::Config(format!(
                "of {packets} packets {} were seen, {untracked} found no flow and {samples} \
                 samples were taken; give a table of several times as many flows",
                counted("packets")
            )));
        }
        Ok(cost)
    }

    /// Runs a program on one frame of point 0 at the time `now_ns` (since 1970 TAI, not 0). From
    /// then on this is the time, and idle flows end by [`Self::sweep`] alone. Returns the program's
    /// verdict.
    ///
    /// # Errors
    /// [`BpfError::Io`] when the kernel refuses the frame.
    pub fn test_run(&self, side: RttSide, frame: &[u8], now_ns: i64) -> Result<u32, BpfError> {
        self.test_run_packet(side, &RttTestPacket { frame, ..RttTestPacket::default() }, now_ns)
    }

    /// As [`Self::test_run`], with what else the kernel knows of a frame.
    ///
    /// # Errors
    /// As [`Self::test_run`].
    pub fn test_run_packet(
        &self,
        side: RttSide,
        packet: &RttTestPacket<'_>,
        now_ns: i64,
    ) -> Result<u32, BpfError> {
        self.set_test_time(packet, now_ns);
        let program = match side {
            RttSide::Ingress => self.progs.ingress.as_fd(),
            RttSide::Egress => self.progs.egress.as_fd(),
            RttSide::Xdp => self.xdp()?,
        };
        // SAFETY: both structures are plain data for which all zeroes is valid.
        let (mut opts, mut context): (sys::bpf_test_run_opts, __sk_buff) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        opts.sz = size_of_val(&opts) as _;
        opts.data_in = packet.frame.as_ptr().cast();
        opts.data_size_in = packet.frame.len() as u32;
        opts.repeat = 1;
        if packet.segments > 1 {
            context.gso_segs = packet.segments;
            context.gso_size = 1;
            opts.ctx_in = (&raw const context).cast();
            opts.ctx_size_in = size_of_val(&context) as u32;
        }
        // SAFETY: frame and context outlive the call and have the lengths given.
        let rc = unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut opts) };
        if rc != 0 {
            return Err(BpfError::io("test-run a program", io::Error::from_raw_os_error(-rc)));
        }
        Ok(opts.retval)
    }

    /// Ends the flows that are idle at `now_ns`, as the running program does every few
    /// seconds by itself.
    ///
    /// # Errors
    /// [`BpfError::Io`].
    pub fn sweep(&self, now_ns: i64) -> Result<(), BpfError> {
        self.set_test_time(&RttTestPacket::default(), now_ns);
        load::test_run(self.progs.sweep.as_fd(), &[0; 64], 1).map(drop)
    }

    fn set_test_time(&self, packet: &RttTestPacket<'_>, now_ns: i64) {
        let globals = &self.globals;
        let point = u32::from(packet.point) | if packet.l3 { 0x100 } else { 0 };
        globals.page.word(globals.test_point).store(point, Ordering::Relaxed);
        globals.page.long(globals.test_now).store(now_ns as u64, Ordering::Relaxed);
    }
}

/// A frame with room for every packet of the benchmark; the program fills in the rest.
fn bench_frame(bench: RttBench) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    let protocol = if bench.traffic.is_udp() { 17 } else { 6 };
    if bench.ipv6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, protocol, 64]);
        for _ in 0..2 {
            frame.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
    } else {
        frame.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol]);
        frame.extend([0; 10]);
    }
    frame.resize(frame.len() + 132, 0);
    let payload = frame.len() - 132 + 8;
    match bench.traffic {
        RttTraffic::Tcp | RttTraffic::Udp => {}
        RttTraffic::Dns => {
            // One question, for the name "a.test"; its id and flags vary.
            frame[payload + 4..payload + 6].copy_from_slice(&[0, 1]);
            frame[payload + 12..payload + 20].copy_from_slice(b"\x01a\x04test\0");
        }
        RttTraffic::QuicShort | RttTraffic::QuicInitial => {
            // The version's last octet, and two connection identifiers of four octets.
            frame[payload + 4..payload + 15].copy_from_slice(&[1, 4, 1, 2, 3, 4, 4, 5, 6, 7, 8]);
        }
    }
    frame
}

/// Pairs of packets of each flow before a measurement: more edges than a spin bit needs.
const WARM_UP: u32 = 24;
/// The index of `lo` in every network namespace.
const LOOPBACK: i32 = 1;
