//! The kernel reflector: STAMP (RFC 8762) in open mode, answered in XDP.
//!
//! It answers IPv4 without options and IPv6 without extension headers, under at most two VLAN tags.
//! The request must be the base packet alone, with zero padding (TWAMP Light), or with one Extra
//! Padding TLV (RFC 8972, section 4.1). All else goes up to the user-space reflector, counted by
//! reason.
//!
//! A request's UDP checksum must be right, absent (over IPv4), or the sum of the pseudo-header
//! alone. The last is what a local socket leaves to the card, and what arrives over veth. What is
//! not zero where a request is gets no answer here, so that two reflectors cannot be set against
//! each other. What services send goes up by its port, and rates are limited.
//!
//! Limits to know about. A VLAN tag that the card (or a veth whose
//! peer has `txvlan` on) keeps beside the packet is invisible to XDP.
//!
//! On veth ([`KernelReflectorConfig::veth`]) replies leave by a redirect to the interface itself.
//! `XDP_TX` would leave them in the ring of a peer without an XDP program (seen on Linux 6.18). The
//! peer must still run NAPI: GRO on (`ethtool -K PEER gro on`), or an XDP program. Generic mode
//! needs nothing of the peer.

mod sequence;

pub use sequence::SharedSessions;

use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use sonde_sys::random::secret;

use crate::BpfError;
use crate::load::{self, AttachMode, TestRun, XdpLink};
use crate::settings::Settings;
use crate::skel::reflect::ReflectSkelBuilder;

/// What the reflector answers, and whom.
#[derive(Clone, Copy, Debug)]
pub struct KernelReflectorConfig<'a> {
    /// UDP port to answer on; 862 by RFC 8762, section 4.1.
    pub port: u16,
    /// The interface is one end of a veth pair.
    pub veth: bool,
    /// Number the replies of each session from 0, rather than copy the sender's sequence number
    /// (RFC 8762, section 4.3).
    pub stateful: bool,
    /// Our addresses; packets to others are left to the kernel. No broadcast addresses.
    pub local: &'a [(IpAddr, u8)],
    /// Sources that are answered; empty: all.
    pub allow: &'a [(IpAddr, u8)],
    /// Addresses that are not answered for and that no packet comes from: broadcast addresses,
    /// and others of this host. Nor does a packet come from an address in `local`.
    pub others: &'a [(IpAddr, u8)],
    /// Most replies per second to one source address, and the burst at once; `None`: no limit.
    pub rate_limit: Option<(u32, u32)>,
    /// The same for all sources together.
    pub total_limit: Option<(u32, u32)>,
    /// Sessions that are numbered at the same time, at least. To make room those go that have
    /// asked once; a newcomer beyond the others is answered with its own sequence number.
    pub max_sessions: u32,
    /// A session ends after this much silence, s.
    pub session_timeout_s: u32,
}

impl<'a> KernelReflectorConfig<'a> {
    /// Stateful, for all, with limits that 200,000 packets a second from one address pass,
    /// 65,536 sessions of 15 minutes.
    pub fn new(port: u16, local: &'a [(IpAddr, u8)]) -> Self {
        KernelReflectorConfig {
            port,
            veth: false,
            stateful: true,
            local,
            allow: &[],
            others: &[],
            rate_limit: Some((250_000, 62_500)),
            total_limit: Some((1_000_000, 250_000)),
            max_sessions: 65_536,
            session_timeout_s: 900,
        }
    }
}

/// What became of the packets, over all CPUs, since the program was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflectorCounters([u64; COUNTERS.len()]);

/// The reflector. Dropping it detaches, and so does the end of the process.
#[derive(Debug)]
pub struct KernelReflector {
    program: OwnedFd,
    /// Numbers the replies of user space.
    sequence: OwnedFd,
    bench: Option<Bench>,
    settings: Settings,
    local: MapHandle,
    counters: MapHandle,
    veth: bool,
    link: Option<XdpLink>,
}

/// What a packet costs, by [`KernelReflector::measure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Time per packet with all that the measurement adds, ns.
    pub total_ns: u32,
    /// What the measurement adds, ns: the kernel's loop, and making the next request.
    pub wrapper_ns: u32,
}

/// The reflector and nothing, each in the same wrapper.
#[derive(Debug)]
struct Bench {
    reflect: OwnedFd,
    empty: OwnedFd,
}

impl Cost {
    /// The reflector alone, ns per packet.
    pub fn program_ns(&self) -> u32 {
        self.total_ns.saturating_sub(self.wrapper_ns)
    }
}

impl ReflectorCounters {
    /// Name and value of each counter. Names are stable: metrics use them.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        COUNTERS.into_iter().zip(self.0)
    }

    /// The counter of this name; 0 for a name that [`Self::iter`] does not give.
    pub fn get(&self, name: &str) -> u64 {
        self.iter().find(|(n, _)| *n == name).map_or(0, |(_, value)| value)
    }
}

impl KernelReflector {
    /// Loads the program and attaches it to the interface in this network namespace.
    ///
    /// # Errors
    /// As [`KernelReflector::load`]; [`BpfError::Busy`] when another XDP program is
    /// attached; [`BpfError::Mode`] when the driver cannot run it so.
    pub fn attach(
        ifindex: u32,
        config: &KernelReflectorConfig<'_>,
        mode: AttachMode,
    ) -> Result<KernelReflector, BpfError> {
        load::check_interface(ifindex)?;
        let with = |frags| {
            let mut reflector = Self::load_as(config, frags, false)?;
            reflector.attach_to(ifindex, mode)?;
            Ok(reflector)
        };
        // With fragments it also runs at a jumbo MTU, where the driver allows it.
        match with(true) {
            Err(BpfError::Mode { .. } | BpfError::Verifier { .. }) => with(false),
            done => done,
        }
    }

    /// Detaches, with all sessions and counts kept: when this returns, no packet is being
    /// answered any more.
    pub fn detach(&mut self) {
        self.link = None;
    }

    /// Attaches to another interface, or in another mode, with all sessions and counts. It is
    /// attached to nothing else any more, also if this fails.
    ///
    /// # Errors
    /// As [`KernelReflector::attach`].
    pub fn attach_to(&mut self, ifindex: u32, mode: AttachMode) -> Result<(), BpfError> {
        self.detach();
        load::check_interface(ifindex)?;
        let redirect = self.veth && mode == AttachMode::Native;
        self.settings.set_redirect_to(if redirect { ifindex } else { 0 });
        self.link = Some(load::attach(self.program.as_fd(), ifindex, mode)?);
        Ok(())
    }

    /// Loads the program for [`KernelReflector::test_run`], attached to nothing.
    ///
    /// # Errors
    /// [`BpfError::Config`] for a port, rate, burst or table size of 0 and for bad
    /// prefixes; [`BpfError::Verifier`] when the kernel lacks something.
    pub fn load(config: &KernelReflectorConfig<'_>) -> Result<KernelReflector, BpfError> {
        Self::load_as(config, false, true)
    }

    /// Sets the state of the clock in the reflector, while it runs.
    ///
    /// `tai_offset_s` is TAI - UTC as this kernel has it (0 where nothing has set it);
    /// `error_estimate` is the field as sent (RFC 4656, section 4.1.2): S, scale and multiplier. Z
    /// is cleared, since the timestamps are NTP's. Until this is called the offset is 0 and the
    /// estimate "unsynchronised, 2^31 s".
    pub fn set_clock(&self, tai_offset_s: i32, error_estimate: u16) {
        self.settings.set_utc_behind_ns(i64::from(tai_offset_s) * 1_000_000_000);
        self.settings.set_error_estimate(error_estimate & !ERROR_Z);
    }

    /// Replaces [`KernelReflectorConfig::local`] and `others`. Sessions to an address that is
    /// gone end at once.
    pub fn update_local(
        &self,
        local: &[(IpAddr, u8)],
        others: &[(IpAddr, u8)],
    ) -> Result<(), BpfError> {
        let done = set_addresses(&self.local, local, others);
        self.settings.next_generation();
        done
    }

    pub fn counters(&self) -> Result<ReflectorCounters, BpfError> {
        load::sum_counters(&self.counters).map(ReflectorCounters)
    }

    /// The sessions, for a reflector in user space beside this one. They live as long as either.
    ///
    /// # Errors
    /// No descriptor to be had.
    pub fn sessions(&self) -> Result<SharedSessions, BpfError> {
        let program = self.sequence.try_clone().map_err(|e| BpfError::io("keep a program", e))?;
        Ok(SharedSessions::new(program))
    }

    /// Runs the program on one frame, without an interface (`BPF_PROG_TEST_RUN`).
    ///
    /// With `repeat` above 1 it is a benchmark: each IPv4 reply is turned into the request
    /// of the next of `max_sessions` sessions (sources 10.0.0.1 and up), and the time
    /// includes that. Then a reflector made by [`KernelReflector::load`] is needed.
    pub fn test_run(&self, packet: &[u8], repeat: u32) -> Result<TestRun, BpfError> {
        let program = if repeat > 1 { &self.bench()?.reflect } else { &self.program };
        load::test_run(program.as_fd(), packet, repeat)
    }

    /// Measures what one packet costs: as [`KernelReflector::test_run`] with `repeat`, and
    /// the same with a program that does nothing instead of the reflector.
    ///
    /// # Errors
    /// [`BpfError::Config`] for an attached reflector, which has no benchmark, and for a
    /// packet that is not reflected: the figure would be that of something easier.
    pub fn measure(&self, packet: &[u8], repeat: u32) -> Result<Cost, BpfError> {
        let bench = self.bench()?;
        let run = |program: &OwnedFd| load::test_run(program.as_fd(), packet, repeat);
        let before = self.counters()?.get("reflected");
        let total_ns = run(&bench.reflect)?.ns_per_run;
        let reflected = self.counters()?.get("reflected") - before;
        if reflected < repeat.into() {
            return Err(BpfError::Config(format!(
                "of {repeat} packets only {reflected} were reflected; give a plain request"
            )));
        }
        Ok(Cost { total_ns, wrapper_ns: run(&bench.empty)?.ns_per_run })
    }

    fn bench(&self) -> Result<&Bench, BpfError> {
        self.bench.as_ref().ok_or_else(|| {
            BpfError::Config("an attached reflector has no benchmark; load one unattached".into())
        })
    }

    fn load_as(
        config: &KernelReflectorConfig<'_>,
        frags: bool,
        bench: bool,
    ) -> Result<KernelReflector, BpfError> {
        check(config)?;
        let mut storage = MaybeUninit::uninit();
        let mut open = load::loading("open the reflector program", || {
            ReflectSkelBuilder::default().open(&mut storage)
        })?;
        let fixed = open.maps.rodata_data.as_deref_mut().expect("the program has settings");
        fixed.own_port = config.port.to_be();
        fixed.stateful = config.stateful;
        fixed.allow_all = config.allow.is_empty();
        fixed.bench_sessions = config.max_sessions;
        if let Some(limit) = config.rate_limit {
            (fixed.rate_gap_ns, fixed.rate_burst_ns) = gauge(limit, 1);
        }
        if let Some(limit) = config.total_limit {
            let cpus = libbpf_rs::num_possible_cpus().unwrap_or(1) as u32;
            // So little that what the CPUs hold between them is no great part of it.
            let lease = (limit.1 / (8 * cpus)).clamp(1, MAX_LEASE);
            (fixed.total_gap_ns, fixed.total_burst_ns) = gauge(limit, lease);
            fixed.total_lease = lease.into();
        }
        open.progs.sonde_reflect.set_flags(if frags { load::BPF_F_XDP_HAS_FRAGS } else { 0 });
        open.progs.sonde_reflect_bench.set_autoload(bench);
        open.progs.sonde_empty_bench.set_autoload(bench);
        let sessions = session_slots(if config.stateful { config.max_sessions } else { 1 });
        let fixed = open.maps.rodata_data.as_deref_mut().expect("the program has settings");
        fixed.session_mask = sessions - 1;
        // In units of about a second (`USED_SHIFT` in `c/sessions.h`).
        let timeout = (u64::from(config.session_timeout_s) * 1_000_000_000) >> 30;
        fixed.session_timeout = timeout.clamp(1, i32::MAX as u64) as u32;
        fixed.session_seed = secret();
        let sources = if config.rate_limit.is_some() { RATE_SOURCES } else { RATE_WAYS };
        fixed.bucket_mask = sources - 1;
        load::loading("size the reflector's tables", || {
            open.maps.sessions.set_max_entries(sessions)?;
            open.maps.buckets.set_max_entries(sources)
        })?;

        let skel = load::loading("load the reflector program", || open.load())?;
        let settings = Settings::map(skel.maps.data_settings.as_fd())?;
        settings.set_error_estimate(ERROR_UNKNOWN);
        let local = load::handle(&skel.maps.local_addresses)?;
        set_addresses(&local, config.local, config.others)?;
        load::set_prefixes(&load::handle(&skel.maps.allowed_sources)?, config.allow)?;
        let keep = |program: &libbpf_rs::ProgramMut<'_>| {
            program.as_fd().try_clone_to_owned().map_err(|e| BpfError::io("keep a program", e))
        };
        Ok(KernelReflector {
            program: keep(&skel.progs.sonde_reflect)?,
            sequence: keep(&skel.progs.sonde_sequence)?,
            bench: if bench {
                Some(Bench {
                    reflect: keep(&skel.progs.sonde_reflect_bench)?,
                    empty: keep(&skel.progs.sonde_empty_bench)?,
                })
            } else {
                None
            },
            settings,
            local,
            counters: load::handle(&skel.maps.counters)?,
            veth: config.veth,
            link: None,
        })
    }
}

fn check(config: &KernelReflectorConfig<'_>) -> Result<(), BpfError> {
    let refuse = |what: &str| Err(BpfError::Config(format!("kernel reflector: {what}")));
    if config.port == 0 {
        return refuse("the port must not be 0; RFC 8762 gives 862");
    }
    if config.max_sessions == 0 || config.max_sessions > MAX_SESSIONS {
        return refuse(&format!("max_sessions must be 1 to {MAX_SESSIONS}"));
    }
    if [config.rate_limit, config.total_limit]
        .iter()
        .any(|limit| matches!(limit, Some((0, _) | (_, 0))))
    {
        return refuse("rate and burst of a limit must not be 0; leave it out for no limit");
    }
    if config.session_timeout_s == 0 {
        return refuse("the session timeout must be a second at least");
    }
    Ok(())
}

/// The time between two tokens, rounded up, so that the limit is never exceeded; and how much
/// debt a bucket allows to whoever takes `lease` tokens at once.
fn gauge((per_second, burst): (u32, u32), lease: u32) -> (u64, u64) {
    let gap = 1_000_000_000u64.div_ceil(per_second.into());
    (gap, (gap * u64::from(burst - lease)).min(MAX_DEBT_NS))
}

/// Fills the trie of addresses that the program knows.
fn set_addresses(
    map: &MapHandle,
    local: &[(IpAddr, u8)],
    others: &[(IpAddr, u8)],
) -> Result<(), BpfError> {
    let whole =
        |(address, length): &(IpAddr, u8)| *length == if address.is_ipv4() { 32 } else { 128 };
    let mut kinds: Vec<_> = others.iter().map(|&prefix| (prefix, SHARED_ADDRESS)).collect();
    kinds.extend(local.iter().map(|prefix| {
        // A network that is routed to this host may have senders in it.
        (*prefix, if whole(prefix) { OUR_ADDRESS } else { OUR_NETWORK })
    }));
    load::set_kinds(map, &kinds)
}

/// Slots for `wanted` live sessions. At most two in three are taken. So a window (`WINDOW` in
/// `c/sessions.h`) is hardly ever full of live ones, and the second or third slot is the right one
/// on average.
fn session_slots(wanted: u32) -> u32 {
    (wanted * 3 / 2).next_power_of_two().max(256)
}

/// In the order of `enum counter` in `c/reflect.bpf.c`.
const COUNTERS: [&str; 20] = [
    "reflected",
    "reflected_stateless",
    "new_sessions",
    "restarted_sessions",
    "dropped_denied",
    "dropped_rate_limited",
    "dropped_rate_all",
    "passed_other",
    "passed_fragment",
    "passed_extension_header",
    "passed_ip_options",
    "passed_truncated",
    "passed_bad_length",
    "passed_bad_checksum",
    "passed_short",
    "passed_tlv",
    "passed_address",
    "passed_source_port",
    "passed_not_local",
    "passed_padding",
];
/// Z of the error estimate: time stamps are PTP's.
const ERROR_Z: u16 = 0x4000;
/// S = 0, scale 63, multiplier 1: nothing is known.
const ERROR_UNKNOWN: u16 = 0x3f01;
/// 4 Mi sessions take 256 MiB.
const MAX_SESSIONS: u32 = 1 << 22;
/// Entries for sources whose rate is remembered: 1 MiB.
const RATE_SOURCES: u32 = 131_072;
/// `WAYS` in `c/rate.h`.
const RATE_WAYS: u32 = 4;
/// Tokens that a CPU takes at a time.
const MAX_LEASE: u32 = 64;
/// Half of what `TIME_BITS` in `c/rate.h` can distinguish, 73 minutes.
const MAX_DEBT_NS: u64 = 1 << 42;
/// `enum address` in `c/reflect.bpf.c`.
const OUR_ADDRESS: u8 = 1;
const OUR_NETWORK: u8 = 2;
const SHARED_ADDRESS: u8 = 3;
