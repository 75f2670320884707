//! Independent stamps of STAMP packets at one interface, to hold an engine's own against.
//!
//! The programs (`c/stamper.bpf.c`) read the clock at up to five points that a packet passes. They
//! write the stamps into a log of fixed size in shared memory. There is no wake-up, no system call,
//! and nothing for user space to do until the measurement is over.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use sonde_sys::syscall;

use crate::BpfError;
use crate::load;
use crate::mapping::{Access, Mapping};
use crate::skel::stamper::StamperSkelBuilder;

/// Where a packet was stamped. No single point sees the packets of every engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StampPoint {
    /// A probe at tc egress, shortly before the driver gets it. Senders that bypass the
    /// queueing layer (`af_packet`) or the stack (AF_XDP) do not pass here.
    TcEgress,
    /// A probe when virtual Ethernet has put it into its peer's queue and asks for the queue to be
    /// emptied. It is the tracepoint `softirq_raise`, the last time on that processor before
    /// [`Self::Released`]. A packet that finds the emptying under way has no such stamp, or that of
    /// whatever else had it raised: rare, and wrong.
    HandedOver,
    /// A probe when the driver lets go of it: the tracepoint `consume_skb`. All senders. Where
    /// somebody has been given a copy (tcpdump, or the receiver's stack), its end is stamped too,
    /// later. The first stamp of a packet is the right one.
    Released,
    /// A reply at tc ingress, after packet sockets have seen it and before IP does. What
    /// XDP redirects does not pass here.
    TcIngress,
    /// A reply that has just been put into an AF_XDP socket's ring: the tracepoint
    /// `xdp_redirect`. In copy mode only.
    Redirected,
}

/// One packet at one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketStamp {
    pub point: StampPoint,
    /// When, CLOCK_TAI, ns since 1970.
    pub ns: u64,
    pub far: IpAddr,
    /// The sender's UDP port.
    pub near_port: u16,
    /// The sender's sequence number.
    pub sequence: u32,
}

/// The programs, attached to one interface. Dropping it detaches them, and so does the end
/// of the process, however it ends.
#[derive(Debug)]
pub struct Stamper {
    log: Log,
    taken: MapHandle,
    tracers: [OwnedFd; 3],
    _tc: [OwnedFd; 2],
    _traces: [Link; 3],
}

impl Stamper {
    /// Attaches to the interface in this network namespace. Stamped are probes to the UDP
    /// port `port` and replies from it: untagged IPv4 without options, and IPv6 without
    /// extension headers.
    ///
    /// The log holds `capacity` stamps of 32 bytes; later ones are lost and counted.
    ///
    /// # Errors
    /// [`BpfError::Config`] for a port or capacity of 0; [`BpfError::Verifier`] when the
    /// kernel lacks what the programs need (tcx: Linux 6.6; a tracepoint; BTF).
    pub fn attach(ifindex: u32, port: u16, capacity: u32) -> Result<Stamper, BpfError> {
        if port == 0 || capacity == 0 {
            return Err(BpfError::Config("the stamper needs a port and room for stamps".into()));
        }
        load::check_interface(ifindex)?;
        let mut storage = MaybeUninit::uninit();
        let mut open =
            load::loading("open the stamper", || StamperSkelBuilder::default().open(&mut storage))?;
        let fixed = open.maps.rodata_data.as_deref_mut().expect("the program has settings");
        fixed.port = port.to_be();
        fixed.ifindex = ifindex;
        fixed.netns = netns_cookie()?;
        load::loading("size the log", || open.maps.events.set_max_entries(capacity))?;
        let skel = load::loading("load the stamper", || open.load())?;

        let keep = |program: &libbpf_rs::ProgramMut<'_>| {
            program.as_fd().try_clone_to_owned().map_err(|e| BpfError::io("keep a program", e))
        };
        let progs = &skel.progs;
        let traced = [&progs.sonde_raised, &progs.sonde_released, &progs.sonde_redirected];
        let trace = |program: &libbpf_rs::ProgramMut<'_>| {
            load::loading("attach to a tracepoint", || program.attach_trace())
        };
        Ok(Stamper {
            log: Log::map(&load::handle(&skel.maps.events)?, capacity)?,
            taken: load::handle(&skel.maps.bss)?,
            tracers: [keep(traced[0])?, keep(traced[1])?, keep(traced[2])?],
            _tc: [
                attach_tcx(&keep(&progs.sonde_tc_egress)?, ifindex, sys::BPF_TCX_EGRESS)?,
                attach_tcx(&keep(&progs.sonde_tc_ingress)?, ifindex, sys::BPF_TCX_INGRESS)?,
            ],
            _traces: [trace(traced[0])?, trace(traced[1])?, trace(traced[2])?],
        })
    }

    /// The stamps so far, in about the order in which they were taken.
    pub fn stamps(&self) -> impl Iterator<Item = PacketStamp> + '_ {
        self.log.entries().iter().filter_map(read)
    }

    /// Stamps lost so far: the log was full, or a tracepoint was hit while its program was running
    /// on the same processor (by any packet, not only ours).
    pub fn missed(&self) -> Result<u64, BpfError> {
        let bytes = self
            .taken
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| load::map_error("read the number of stamps", e))?
            .unwrap_or_default();
        let taken = bytes.first_chunk().map_or(0, |b| u64::from_ne_bytes(*b));
        let mut missed = taken.saturating_sub(u64::from(self.log.capacity));
        for program in &self.tracers {
            missed += recursion_misses(program)?;
        }
        Ok(missed)
    }
}

/// The array `events` of `c/stamper.bpf.c`, mapped for reading.
#[derive(Debug)]
struct Log {
    mapping: Mapping,
    capacity: u32,
}

/// `struct event` in `c/stamper.bpf.c`, by 64-bit words: the programs write while we read.
type Entry = [AtomicU64; 4];

impl Log {
    fn map(map: &MapHandle, capacity: u32) -> Result<Log, BpfError> {
        let length = capacity as usize * size_of::<Entry>();
        let mapping = Mapping::new(map, 0, length, Access::Read)?;
        Ok(Log { mapping, capacity })
    }

    fn entries(&self) -> &[Entry] {
        // SAFETY: mapped until drop, page-aligned, of this length, and atomics only.
        unsafe { std::slice::from_raw_parts(self.mapping.bytes().cast(), self.capacity as usize) }
    }
}

/// `None` for an entry that is empty, or not yet written in full.
fn read(entry: &Entry) -> Option<PacketStamp> {
    let ns = entry[0].load(Ordering::Acquire);
    if ns == 0 {
        return None;
    }
    let mut bytes = [0; 24];
    for (to, from) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&entry[1..]) {
        *to = from.load(Ordering::Relaxed).to_ne_bytes();
    }
    let (far, rest) = bytes.split_first_chunk::<16>().expect("24 bytes");
    let &[s0, s1, s2, s3, p0, p1, point, _] = rest else { unreachable!("8 bytes are left") };
    Some(PacketStamp {
        point: POINTS[usize::from(point)],
        ns,
        far: Ipv6Addr::from(*far).to_canonical(),
        near_port: u16::from_be_bytes([p0, p1]),
        sequence: u32::from_be_bytes([s0, s1, s2, s3]),
    })
}

/// Attaches by link, behind whatever is there. Closing the descriptor detaches.
fn attach_tcx(program: &OwnedFd, ifindex: u32, attach_type: u32) -> Result<OwnedFd, BpfError> {
    // SAFETY: the structure is plain data for which all zeroes is valid ("no option").
    let mut opts: sys::bpf_link_create_opts = unsafe { std::mem::zeroed() };
    opts.sz = size_of_val(&opts) as _;
    // SAFETY: `opts` outlives the call and carries its own size; the descriptor is open.
    let fd =
        unsafe { sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, attach_type, &opts) };
    if fd < 0 {
        return Err(BpfError::io("attach at tcx", io::Error::from_raw_os_error(-fd)));
    }
    // SAFETY: the kernel has just made this descriptor for us and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The kernel's cookie of this network namespace, which no other ever has.
fn netns_cookie() -> Result<u64, BpfError> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .map_err(|e| BpfError::io("open a socket to learn the network namespace", e))?;
    syscall::get(&socket, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, 0)
        .map_err(|e| BpfError::io("learn the network namespace", e))
}

/// Hits of a tracepoint that came while the program was running on that processor.
fn recursion_misses(program: &OwnedFd) -> Result<u64, BpfError> {
    // SAFETY: the structure is plain data for which all zeroes is valid ("not asked for").
    let mut info: sys::bpf_prog_info = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&info) as u32;
    // SAFETY: `info` is valid for `length` bytes.
    let rc = unsafe { sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut length) };
    if rc != 0 {
        return Err(BpfError::io("ask about a program", io::Error::from_raw_os_error(-rc)));
    }
    Ok(info.recursion_misses)
}

/// In the order of `enum point` in `c/stamper.bpf.c`.
const POINTS: [StampPoint; 5] = [
    StampPoint::TcEgress,
    StampPoint::HandedOver,
    StampPoint::Released,
    StampPoint::TcIngress,
    StampPoint::Redirected,
];
