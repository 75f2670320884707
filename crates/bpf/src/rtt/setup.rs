//! Sizing, settings and loading.

use std::mem::{MaybeUninit, offset_of};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags};

use super::attach::Points;
use super::groups::Groups;
use super::layout::{HIST, RawFlow, RawGroup, RawLoss};
use super::memory::{Mapped, Ring, keep, page_size};
use super::{
    BUCKET, Globals, Maps, Programs, RttBench, RttConfig, RttEvents, RttGroupBy, RttProgram, WAYS,
    load,
};
use crate::BpfError;
use crate::mapping::Access;
use crate::skel::rtt::{RttSkelBuilder, types};

/// Entries of each map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) flows: u32,
    pub(super) losses: u32,
    marks: u32,
    pages: u32,
    groups: u32,
    hists: u32,
    transit: u32,
    requests: u32,
    samples: u32,
    ended: u32,
}

impl Sizes {
    fn of(config: &RttConfig) -> Self {
        let flows = config.flows;
        // Half full at most: a search looks at 16 entries.
        let groups = (2 * config.groups + 1).next_power_of_two();
        Sizes {
            flows,
            losses: (flows / 4).max(64),
            marks: match config.events {
                RttEvents::None | RttEvents::All if !config.weight_by_flow => 1,
                _ => flows,
            },
            pages: (flows / 32).clamp(64, 65_535),
            groups,
            hists: config.groups * 2,
            requests: (flows / 2).clamp(LEAST_REQUESTS, MOST_REQUESTS) / REQUEST_WAYS,
            transit: if config.residence { TRANSIT } else { 1 },
            samples: if config.events == RttEvents::None { 4096 } else { SAMPLES },
            ended: ENDED,
        }
    }

    /// What the kernel takes for the maps, as far as their entries go.
    pub(super) fn memory_bytes(&self, prefixes: usize) -> u64 {
        let page = page_size() as u64;
        let array = |n: u32, size: usize| (u64::from(n) * size as u64).next_multiple_of(page);
        let list = |n: u32| (u64::from(n) + 1) * 4;
        array(self.flows / WAYS as u32, BUCKET)
            + array(self.flows, size_of::<RawFlow>())
            + array(self.losses, size_of::<RawLoss>())
            + array(self.marks, MARKS)
            + array(self.pages, PAGE)
            + array(self.groups, size_of::<RawGroup>())
            + array(self.hists, HIST)
            + array(self.transit, 8)
            + array(self.requests, REQUEST_SET)
            + array(POINTS, 8)
            + list(self.losses)
            + list(self.pages)
            + list(self.hists)
            // Two pages of positions, one of the kernel's own.
            + u64::from(self.samples)
            + u64::from(self.ended)
            + 6 * page
            + prefixes as u64 * TRIE_NODES
    }
}

impl RttProgram {
    /// Loads the programs and makes the table; nothing is attached yet.
    ///
    /// # Errors
    /// [`BpfError::Config`] for settings that cannot be; [`BpfError::Privilege`] when this
    /// process may not; [`BpfError::Verifier`] when the kernel lacks something.
    pub fn load(config: &RttConfig) -> Result<Self, BpfError> {
        Self::load_with(config, None).map(|(program, _)| program)
    }

    /// As [`Self::load`], and one of the programs for measurements with its empty twin.
    pub(super) fn load_with(
        config: &RttConfig,
        bench: Option<RttBench>,
    ) -> Result<(Self, Option<[OwnedFd; 2]>), BpfError> {
        check(config)?;
        let sizes = Sizes::of(config);
        let mut storage = MaybeUninit::uninit();
        let mut open = load::loading("open the programs of passive RTT", || {
            RttSkelBuilder::default().open(&mut storage)
        })?;
        set(
            open.maps.rodata_data.as_deref_mut().expect("the program has settings"),
            config,
            &sizes,
        );
        load::loading("size the tables of passive RTT", || {
            let maps = &mut open.maps;
            maps.rtt_buckets.set_max_entries(sizes.flows / WAYS as u32)?;
            maps.rtt_flows.set_max_entries(sizes.flows)?;
            maps.rtt_losses.set_max_entries(sizes.losses)?;
            maps.rtt_marks.set_max_entries(sizes.marks)?;
            maps.rtt_pages.set_max_entries(sizes.pages)?;
            maps.rtt_groups.set_max_entries(sizes.groups)?;
            maps.rtt_hists.set_max_entries(sizes.hists)?;
            maps.rtt_transit.set_max_entries(sizes.transit)?;
            maps.rtt_requests.set_max_entries(sizes.requests)?;
            maps.free_losses.set_max_entries(sizes.losses)?;
            maps.free_pages.set_max_entries(sizes.pages)?;
            maps.free_hists.set_max_entries(sizes.hists)?;
            maps.rtt_prefixes.set_max_entries(config.prefixes.len().max(1) as u32)?;
            maps.rtt_samples.set_max_entries(sizes.samples)?;
            maps.rtt_ended.set_max_entries(sizes.ended)
        })?;
        let progs = &mut open.progs;
        for (case, whole, empty) in [
            ((false, false), &mut progs.sonde_tcp4, &mut progs.sonde_tcp4_empty),
            ((true, false), &mut progs.sonde_tcp6, &mut progs.sonde_tcp6_empty),
            ((false, true), &mut progs.sonde_udp4, &mut progs.sonde_udp4_empty),
            ((true, true), &mut progs.sonde_udp6, &mut progs.sonde_udp6_empty),
        ] {
            let wanted = bench.is_some_and(|bench| case == (bench.ipv6, bench.traffic.is_udp()));
            whole.set_autoload(wanted);
            empty.set_autoload(wanted);
        }
        progs.sonde_rtt_out.set_autoload(config.residence);
        progs.sonde_rtt_xdp.set_autoload(config.xdp);
        let skel = load::loading("load the programs of passive RTT", || open.load())?;

        let maps = &skel.maps;
        let prefixes = load::handle(&maps.rtt_prefixes)?;
        for &(address, length, asn) in &config.prefixes {
            let key = load::lpm_key(address, length)?;
            let mut value = [0; 8];
            value[..4].copy_from_slice(&key[..4]);
            value[4..].copy_from_slice(&asn.to_ne_bytes());
            prefixes
                .update(&key, &value, MapFlags::ANY)
                .map_err(|e| load::map_error("add a prefix", e))?;
        }
        let map = |map, n: u32, size: usize, access| {
            let len = (n as usize * size).next_multiple_of(page_size());
            Mapped::new(&load::handle(map)?, 0, len, access)
        };
        let groups = Groups::new(
            map(&maps.rtt_groups, sizes.groups, size_of::<RawGroup>(), Access::Write)?,
            map(&maps.rtt_hists, sizes.hists, HIST, Access::Write)?,
            load::handle(&maps.free_hists)?,
            map(&maps.bss, 1, size_of::<types::bss>(), Access::Write)?,
            offset_of!(types::bss, groups_used),
            sizes.groups,
        );
        let program = RttProgram {
            progs: Programs {
                ingress: keep(skel.progs.sonde_rtt_in.as_fd())?,
                egress: match config.residence {
                    true => keep(skel.progs.sonde_rtt_out.as_fd())?,
                    false => keep(skel.progs.sonde_rtt_in.as_fd())?,
                },
                xdp: match config.xdp {
                    true => Some(keep(skel.progs.sonde_rtt_xdp.as_fd())?),
                    false => None,
                },
                sweep: keep(skel.progs.sonde_rtt_sweep.as_fd())?,
            },
            maps: Maps {
                counters: load::handle(&maps.rtt_counters)?,
                all: vec![
                    ("buckets", load::handle(&maps.rtt_buckets)?),
                    ("flows", load::handle(&maps.rtt_flows)?),
                    ("losses", load::handle(&maps.rtt_losses)?),
                    ("groups", load::handle(&maps.rtt_groups)?),
                    ("hists", load::handle(&maps.rtt_hists)?),
                    ("points", load::handle(&maps.rtt_points)?),
                    ("counters", load::handle(&maps.rtt_counters)?),
                    ("samples", load::handle(&maps.rtt_samples)?),
                    ("ended", load::handle(&maps.rtt_ended)?),
                    // The sweeping ends with the last reference from user space.
                    ("ticker", load::handle(&maps.rtt_ticker)?),
                ],
            },
            points: Points::new(load::handle(&maps.rtt_points)?),
            globals: Globals {
                page: map(&maps.bss, 1, size_of::<types::bss>(), Access::Write)?,
                test_now: offset_of!(types::bss, rtt_test_now),
                test_point: offset_of!(types::bss, rtt_test_point),
                bench_flows: offset_of!(types::bss, bench_flows),
                bench_samples: offset_of!(types::bss, bench_samples),
                bench_payload: offset_of!(types::bss, bench_payload),
            },
            buckets: map(&maps.rtt_buckets, sizes.flows / WAYS as u32, BUCKET, Access::Read)?,
            flows: map(&maps.rtt_flows, sizes.flows, size_of::<RawFlow>(), Access::Read)?,
            losses: map(&maps.rtt_losses, sizes.losses, size_of::<RawLoss>(), Access::Read)?,
            groups,
            samples: Ring::new(load::handle(&maps.rtt_samples)?, sizes.samples as usize)?,
            ended: Ring::new(load::handle(&maps.rtt_ended)?, sizes.ended as usize)?,
            config: config.clone(),
            sizes,
        };
        let started = load::test_run(skel.progs.sonde_rtt_start.as_fd(), &[0; 64], 1)?;
        if started.verdict != 0 {
            return Err(BpfError::Io {
                what: "start the sweeping of idle flows",
                cause: std::io::Error::other("the kernel refused the timer; see 'dmesg'"),
            });
        }
        let progs = &skel.progs;
        let twins = match bench.map(|bench| (bench.ipv6, bench.traffic.is_udp())) {
            None => return Ok((program, None)),
            Some((false, false)) => [&progs.sonde_tcp4, &progs.sonde_tcp4_empty],
            Some((true, false)) => [&progs.sonde_tcp6, &progs.sonde_tcp6_empty],
            Some((false, true)) => [&progs.sonde_udp4, &progs.sonde_udp4_empty],
            Some((true, true)) => [&progs.sonde_udp6, &progs.sonde_udp6_empty],
        };
        let [whole, empty] = twins.map(|program| keep(program.as_fd()));
        Ok((program, Some([whole?, empty?])))
    }
}

fn set(fixed: &mut types::rodata, config: &RttConfig, sizes: &Sizes) {
    fixed.bucket_mask = sizes.flows / WAYS as u32 - 1;
    fixed.page_count = sizes.pages;
    fixed.loss_count = sizes.losses;
    fixed.hist_count = sizes.hists;
    fixed.group_mask = sizes.groups - 1;
    fixed.group_limit = config.groups;
    fixed.seed = config.seed;
    fixed.group_by = match config.group_by {
        RttGroupBy::Prefix => 1,
        RttGroupBy::As => 2,
        RttGroupBy::Interface => 3,
        RttGroupBy::Vlan => 4,
        RttGroupBy::Dscp => 5,
        RttGroupBy::Flow => 6,
    };
    fixed.have_prefixes = !config.prefixes.is_empty();
    (fixed.event_mode, fixed.event_limit) = match config.events {
        RttEvents::None => (0, 0),
        RttEvents::All => (1, 0),
        RttEvents::Every(time) => (2, (time.as_nanos() >> 10) as u32),
        RttEvents::RttMultiple(sixteenths) => (3, sixteenths),
    };
    fixed.weigh_flows = config.weight_by_flow;
    fixed.hide_addresses = config.hide_addresses;
    fixed.any_vlan = !config.vlan_in_key;
    fixed.request_mask = sizes.requests - 1;
    fixed.transports = config.protocols.passing().into();
    fixed.net_count = config.nets.len() as u32;
    fixed.port_count = config.ports.len() as u32;
    for (i, &(address, length)) in config.nets.iter().enumerate() {
        let ipv4 = address.is_ipv4();
        let (address, bits) = match address {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped().to_bits(), u32::from(length) + 96),
            IpAddr::V6(v6) => (v6.to_bits(), u32::from(length)),
        };
        let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        let halves = |n: u128| {
            let bytes = n.to_be_bytes();
            let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8"));
            [word(0), word(8)]
        };
        fixed.net_ipv4[i] = ipv4;
        fixed.net_address[i] = halves(address & mask);
        fixed.net_mask[i] = halves(mask);
    }
    for (to, port) in fixed.port_list.iter_mut().zip(&config.ports) {
        *to = port.to_be();
    }
    fixed.residence = config.residence;
    fixed.tunnels = config.tunnels;
    fixed.jiffy_ns = tick_ns();
    fixed.time_base = config.time_base_ns as u64;
    fixed.copy_moments = (tick_ns() as u32).div_ceil(1 << 14).max(60);
}

/// How long a tick of the kernel is, ns: the resolution that its coarse clocks admit to.
fn tick_ns() -> u64 {
    let mut step = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `step` is valid memory for the answer.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut step) };
    step.tv_nsec as u64
}

fn check(config: &RttConfig) -> Result<(), BpfError> {
    let refuse = |what: String| Err(BpfError::Config(format!("passive RTT: {what}")));
    if !config.flows.is_power_of_two() || !(64..=MAX_FLOWS).contains(&config.flows) {
        return refuse(format!(
            "{} flows; give a power of two from 64 to {MAX_FLOWS}, such as 131072",
            config.flows
        ));
    }
    if !(1..=MAX_GROUPS).contains(&config.groups) {
        return refuse(format!("{} groups; give 1 to {MAX_GROUPS}", config.groups));
    }
    if config.nets.len() > FILTER || config.ports.len() > FILTER {
        return refuse(format!("a filter holds at most {FILTER} networks and {FILTER} ports"));
    }
    for &(address, length) in &config.nets {
        load::lpm_key(address, length)?;
    }
    if matches!(config.events, RttEvents::Every(time) if time.as_nanos() >= 1 << 41) {
        return refuse("the time between events must be below 2^41 ns (36 minutes)".into());
    }
    Ok(())
}

/// Octets of a flow's marks (`struct marks`).
const MARKS: usize = 16;
/// Octets of a page of slots (`struct page`).
const PAGE: usize = 1032;
/// Octets of a set of requests (`struct request_set`), and requests in it.
const REQUEST_SET: usize = 64;
const REQUEST_WAYS: u32 = 4;
/// Requests of all flows that may wait: as many in the matcher of user space.
const LEAST_REQUESTS: u32 = 256;
const MOST_REQUESTS: u32 = 1 << 18;
/// `TRANSIT` and `POINTS` in `c/rtt.h`.
const TRANSIT: u32 = 4096;
const POINTS: u32 = 1024;
/// Octets of the ring of samples: 11,000 of them.
const SAMPLES: u32 = 1 << 20;
/// Octets of the ring of flows that end: a tenth of a second of 50,000 a second.
const ENDED: u32 = 2 << 20;
/// What the kernel takes for a prefix of its trie: a node, and at most one that joins two.
const TRIE_NODES: u64 = 2 * 64;
/// `MAX_NETS` and `MAX_PORTS`.
const FILTER: usize = 8;
const MAX_FLOWS: u32 = 1 << 22;
/// A group's index has 16 bits in the flow's entry.
const MAX_GROUPS: u32 = 16_383;
