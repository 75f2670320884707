//! A flow meter's input in the kernel: `c/flow.bpf.c`.
//!
//! Either the program reads the packets' headers and hands up 64 octets a packet, the *unified
//! header* ([`FlowInput::Headers`]). Then each worker has one [`FlowRing`], found by a hash of the
//! two addresses, whoever sends. Or it takes the frames away, cut or whole, to the AF_XDP sockets
//! of the queues ([`FlowInput::Frames`]).
//!
//! XDP sees what an interface receives. What the host itself sends does not pass here.

mod live;
mod ring;
mod run;

use std::mem::MaybeUninit;
use std::ops::AddAssign;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sonde_sys::random::secret;

pub use live::LiveFrames;
pub use ring::{FlowRing, RECORD_LEN, RingRecord};

use crate::BpfError;
use crate::load::{self, AttachMode, XdpLink};
use crate::skel::flow::FlowSkelBuilder;
use crate::xsk::MAX_QUEUES;

/// What the program hands up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowInput {
    /// The unified header of each packet.
    Headers {
        workers: u32,
        /// Records that a ring holds, at least: 64 octets each.
        ring: u32,
        /// Of a packet in a tunnel, the headers inside.
        inner: bool,
        /// Packets end here. For ports that get copies of others' traffic: their kernel
        /// would drop the packets, too, but only after more work. Otherwise each goes on
        /// to the host, untouched.
        consume: bool,
        /// What is added to the kernel's monotonic clock for a header's time, ns: nobody can set that
        /// clock.
        time_base_ns: i64,
    },
    /// The frames. They do not reach the host: only for ports that get copies.
    Frames {
        /// Octets that are left of each; 0: all.
        trim: u32,
    },
}

/// An interface to meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowInterface {
    /// Its index in this network namespace.
    pub ifindex: u32,
    /// Its packets begin with the IP header (tun, WireGuard, PPP).
    pub raw_ip: bool,
}

/// Packets that came to no worker, over all CPUs, since the program was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// Headers: packets of which no record could be made, by the index of the
    /// `wire::Error` that says why.
    pub refused: [Refused; REASONS],
    /// Frames: packets on a queue without a socket; they went on to the host.
    pub no_socket: u64,
    /// Frames: packets without a stamp, for the driver has no room in front of them.
    pub no_meta: u64,
    /// Frames: packets handed up whole, for the driver cannot shorten them.
    pub not_cut: u64,
}

/// Packets without a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    pub packets: u64,
    /// Octets of their frames.
    pub bytes: u64,
}

impl AddAssign for Refused {
    fn add_assign(&mut self, other: Refused) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// The program. Dropping it detaches, and so does the end of the process, however it ends.
#[derive(Debug)]
pub struct FlowProgram {
    // First: no packet is handled by half of what follows.
    links: Vec<XdpLink>,
    program: OwnedFd,
    input: FlowInput,
    rings: MapHandle,
    records: MapHandle,
    order: u32,
    xsks: MapHandle,
    counters: MapHandle,
    frags: bool,
    /// Which rings have a reader.
    taken: Vec<bool>,
}

impl FlowProgram {
    /// Loads the program for these interfaces, whose indexes in the list are the points in
    /// the records; nothing is attached yet.
    ///
    /// # Errors
    /// [`BpfError::Config`] for settings that cannot be; [`BpfError::Privilege`] when this
    /// process may not; [`BpfError::Verifier`] when the kernel lacks something.
    pub fn load(input: FlowInput, interfaces: &[FlowInterface]) -> Result<Self, BpfError> {
        Self::load_as(input, interfaces, true)
    }

    /// Loads the program and attaches it to all the interfaces in this network namespace. It goes
    /// into the driver, or where that cannot be had and `generic` is allowed, into the generic
    /// hook. Returns the mode of each.
    ///
    /// # Errors
    /// As [`Self::load`]; [`BpfError::NoInterface`]; [`BpfError::Busy`] when another XDP
    /// program is attached; [`BpfError::Mode`] when the driver cannot run it.
    pub fn attach(
        input: FlowInput,
        interfaces: &[FlowInterface],
        modes: &[AttachMode],
    ) -> Result<(Self, Vec<AttachMode>), BpfError> {
        for interface in interfaces {
            load::check_interface(interface.ifindex)?;
        }
        // With fragments the program also runs where a packet fills several buffers
        // (jumbo MTU); drivers that know none of it refuse, or refuse to load it.
        match Self::attach_as(input, interfaces, modes, true) {
            Err(BpfError::Mode { .. } | BpfError::Verifier { .. }) => {
                Self::attach_as(input, interfaces, modes, false)
            }
            done => done,
        }
    }

    /// The reading side of a worker's ring, once each.
    ///
    /// # Errors
    /// [`BpfError::Config`] for a worker that is not there or has its ring;
    /// [`BpfError::Io`].
    pub fn ring(&mut self, worker: u32) -> Result<FlowRing, BpfError> {
        match self.taken.get_mut(worker as usize) {
            Some(taken) if !*taken => {
                let ring = FlowRing::map(&self.rings, &self.records, worker, self.order)?;
                *taken = true;
                Ok(ring)
            }
            Some(_) => Err(BpfError::Config(format!("the ring of worker {worker} is in use"))),
            None => Err(BpfError::Config(format!("there is no ring for worker {worker}"))),
        }
    }

    /// Takes the program off the interface with this index in the list that it was attached to. What
    /// its rings hold stays there.
    pub fn detach(&self, interface: usize) {
        if let Some(link) = self.links.get(interface) {
            link.detach();
        }
    }

    /// Sends the packets of a queue to the AF_XDP socket `fd`, which must be bound to it.
    ///
    /// # Errors
    /// [`BpfError::Io`].
    pub fn register_socket(&self, queue: u32, fd: RawFd) -> Result<(), BpfError> {
        self.xsks
            .update(&queue.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| load::map_error("register an AF_XDP socket", e))
    }

    /// Counts so far.
    ///
    /// # Errors
    /// [`BpfError::Io`].
    pub fn counters(&self) -> Result<FlowCounters, BpfError> {
        let counts: [u64; 2 * REASONS + 3] = load::sum_counters(&self.counters)?;
        let [.., no_socket, no_meta, not_cut] = counts;
        Ok(FlowCounters {
            refused: std::array::from_fn(|i| Refused {
                packets: counts[i],
                bytes: counts[REASONS + i],
            }),
            no_socket,
            no_meta,
            not_cut,
        })
    }

    /// Whether packets in several buffers (`XDP_USE_SG`) can arrive.
    pub fn multi_buffer(&self) -> bool {
        self.frags
    }

    /// What it was loaded for.
    pub fn input(&self) -> FlowInput {
        self.input
    }

    fn attach_as(
        input: FlowInput,
        interfaces: &[FlowInterface],
        modes: &[AttachMode],
        frags: bool,
    ) -> Result<(Self, Vec<AttachMode>), BpfError> {
        let mut this = Self::load_as(input, interfaces, frags)?;
        let mut used = Vec::with_capacity(interfaces.len());
        for interface in interfaces {
            let mut last = None;
            for &mode in modes {
                match load::attach(this.program.as_fd(), interface.ifindex, mode) {
                    Ok(link) => {
                        this.links.push(link);
                        used.push(mode);
                        last = None;
                        break;
                    }
                    Err(e @ BpfError::Mode { .. }) => last = Some(e),
                    Err(e) => return Err(e),
                }
            }
            if let Some(error) = last {
                return Err(error);
            }
        }
        Ok((this, used))
    }

    fn load_as(
        input: FlowInput,
        interfaces: &[FlowInterface],
        frags: bool,
    ) -> Result<Self, BpfError> {
        check(input, interfaces)?;
        let mut storage = MaybeUninit::uninit();
        let mut open = load::loading("open the flow program", || {
            FlowSkelBuilder::default().open(&mut storage)
        })?;
        let fixed = open.maps.rodata_data.as_deref_mut().expect("the program has settings");
        fixed.points = interfaces.len() as u32;
        for (i, interface) in interfaces.iter().enumerate() {
            fixed.interface_of[i] = interface.ifindex;
            fixed.raw_ip[i] = interface.raw_ip;
        }
        let (mut workers, mut order) = (0, 0);
        match input {
            FlowInput::Headers { workers: wanted, ring, inner, consume, time_base_ns } => {
                let cpus = libbpf_rs::num_possible_cpus()
                    .map_err(|e| load::map_error("count the processors", e))?
                    as u32;
                workers = wanted;
                // Room for as many records as were asked for, and one for each processor.
                order = (ring + cpus).next_power_of_two().trailing_zeros();
                fixed.workers = workers;
                fixed.ring_order = order;
                fixed.ring_room = (1 << order) - cpus;
                fixed.inner = inner;
                fixed.consume = consume;
                fixed.time_base = time_base_ns as u64;
                // Secret, or packets could be made up that all meet at one worker.
                // The same for an interface that has returned and gets a program of its own.
                static SEED: OnceLock<[u64; 4]> = OnceLock::new();
                fixed.seed = *SEED.get_or_init(secret);
                fixed.seed[2] |= 1;
                fixed.seed[3] |= 1;
            }
            FlowInput::Frames { trim } => fixed.trim = trim,
        }
        let headers = workers > 0;
        let (chosen, other) = match headers {
            true => (&mut open.progs.sonde_flow_headers, &mut open.progs.sonde_flow_frames),
            false => (&mut open.progs.sonde_flow_frames, &mut open.progs.sonde_flow_headers),
        };
        other.set_autoload(false);
        chosen.set_flags(if frags { load::BPF_F_XDP_HAS_FRAGS } else { 0 });
        load::loading("size the flow program's maps", || {
            open.maps.flow_rings.set_max_entries(workers.max(1))?;
            open.maps.flow_records.set_max_entries(workers.max(1) << order)?;
            open.maps.xsks.set_max_entries(if headers { 1 } else { MAX_QUEUES })
        })?;
        let skel = load::loading("load the flow program", || open.load())?;
        let progs = &skel.progs;
        let program = if headers { &progs.sonde_flow_headers } else { &progs.sonde_flow_frames };
        Ok(FlowProgram {
            links: Vec::new(),
            program: program
                .as_fd()
                .try_clone_to_owned()
                .map_err(|e| BpfError::io("keep a program", e))?,
            input,
            rings: load::handle(&skel.maps.flow_rings)?,
            records: load::handle(&skel.maps.flow_records)?,
            order,
            xsks: load::handle(&skel.maps.xsks)?,
            counters: load::handle(&skel.maps.counters)?,
            frags,
            taken: vec![false; workers as usize],
        })
    }
}

fn check(input: FlowInput, interfaces: &[FlowInterface]) -> Result<(), BpfError> {
    let refuse = |what: String| Err(BpfError::Config(what));
    if interfaces.is_empty() || interfaces.len() > MAX_INTERFACES {
        return refuse(format!("1 to {MAX_INTERFACES} interfaces can be metered by one program"));
    }
    match input {
        FlowInput::Headers { workers, ring, .. } => {
            if workers == 0 || workers > MAX_WORKERS {
                return refuse(format!("1 to {MAX_WORKERS} workers can be had, not {workers}"));
            }
            if !(MIN_RING..=MAX_RING).contains(&ring) {
                return refuse(format!("a ring holds {MIN_RING} to {MAX_RING} records"));
            }
        }
        FlowInput::Frames { trim } => {
            if interfaces.len() > 1 {
                return refuse("each interface needs a program of its own to take frames".into());
            }
            if trim != 0 && trim < MIN_TRIM {
                return refuse(format!("frames cannot be cut to fewer than {MIN_TRIM} octets"));
            }
        }
    }
    Ok(())
}

/// `REASONS` in `c/flow.bpf.c`.
pub const REASONS: usize = 13;
/// `POINTS` in `c/flow.bpf.c`.
pub const MAX_INTERFACES: usize = 64;
/// More workers than a machine of today has processors for.
pub const MAX_WORKERS: u32 = 256;
const MIN_RING: u32 = 64;
/// A ring of 1 Mi records takes 64 MiB.
const MAX_RING: u32 = 1 << 20;
/// Ethernet, two tags, IPv6, TCP: less cannot be metered.
pub const MIN_TRIM: u32 = 14 + 8 + 40 + 20;
