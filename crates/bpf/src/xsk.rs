//! The AF_XDP tap: which packets reach the sockets, and the stamp in front of each.
//!
//! A packet that matches the filter is redirected to the AF_XDP socket registered for
//! its queue, with a [`RxMeta`] in the [`META_LEN`] bytes before it. All others, and
//! matching ones on a queue without a socket, go on to the kernel untouched.

use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd, RawFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::BpfError;
use crate::load::{self, AttachMode, XdpLink};
use crate::skel::xsk::XskSkelBuilder;

/// Which packets the sockets get: UDP over IPv4 or IPv6 with at most two VLAN tags,
/// not fragmented, no IPv6 extension header.
#[derive(Clone, Copy, Debug)]
pub struct XskFilter<'a> {
    /// Destination ports; never empty.
    pub local_ports: &'a [u16],
    /// Source ports; empty: any.
    pub peer_ports: &'a [u16],
    /// Destination addresses as prefixes; empty: any.
    pub local: &'a [(IpAddr, u8)],
}

/// Counts since the program was attached, over all CPUs and queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XskCounters {
    /// Redirected to a socket.
    pub matched: u64,
    /// Not ours: left to the kernel.
    pub passed: u64,
    /// Matching, but the driver has no room for the stamp: [`RxMeta::read`] finds none.
    pub no_meta: u64,
    /// Matching, but no socket is registered for the queue: left to the kernel.
    pub no_socket: u64,
}

/// What lies in front of a received frame: `struct stamp` of `c/meta.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxMeta {
    /// When the program saw the frame, ns of CLOCK_TAI.
    pub ns: u64,
    /// When the card did, ns of its own clock, which nothing need keep equal to TAI.
    /// `None`: it gave no stamp, or was not asked.
    pub card: Option<NonZeroU64>,
    /// The frame's length before it was cut, bytes; 0: it is whole.
    pub wire_len: u32,
}

/// The program, attached to one interface. Dropping it detaches, and so does the end of
/// the process, however it ends.
#[derive(Debug)]
pub struct XskProgram {
    xsks: MapHandle,
    local: MapHandle,
    counters: MapHandle,
    filters_local: bool,
    frags: bool,
    _link: Option<XdpLink>,
}

impl RxMeta {
    /// From the [`META_LEN`] bytes that end where the frame begins. `None` when they hold
    /// no stamp of ours.
    #[inline]
    pub fn read(before_frame: &[u8; META_LEN]) -> Option<RxMeta> {
        let magic = u32::from_ne_bytes(before_frame[..4].try_into().unwrap());
        let wire_len = u32::from_ne_bytes(before_frame[4..8].try_into().unwrap());
        let ns = u64::from_ne_bytes(before_frame[8..16].try_into().unwrap());
        let card = u64::from_ne_bytes(before_frame[16..].try_into().unwrap());
        (magic == META_MAGIC).then_some(RxMeta { ns, card: NonZeroU64::new(card), wire_len })
    }
}

impl XskProgram {
    /// Loads the program and attaches it to the interface in this network namespace.
    ///
    /// `hw_stamps` asks the driver for the card's stamp of each packet beside the clock's;
    /// the kernel allows it in native mode only.
    ///
    /// # Errors
    /// [`BpfError::Busy`] when another XDP program is attached; [`BpfError::Mode`] when the driver
    /// cannot run it so; [`BpfError::Config`] for a filter without local ports or hardware stamps
    /// in generic mode. [`BpfError::Verifier`] when the kernel (with `hw_stamps`: or the driver)
    /// lacks what the program needs.
    pub fn attach(
        ifindex: u32,
        filter: &XskFilter<'_>,
        mode: AttachMode,
        hw_stamps: bool,
    ) -> Result<XskProgram, BpfError> {
        if filter.local_ports.is_empty() {
            return Err(BpfError::Config("an AF_XDP filter needs at least one local port".into()));
        }
        if hw_stamps && mode == AttachMode::Generic {
            return Err(BpfError::Config(
                "hardware receive stamps need native XDP; leave them off in generic mode".into(),
            ));
        }
        load::check_interface(ifindex)?;
        // With fragments the program also runs where a packet fills several buffers
        // (jumbo MTU); drivers that know none of it refuse, or refuse to load it.
        match Self::attach_as(ifindex, filter, mode, hw_stamps, true) {
            Err(BpfError::Mode { .. } | BpfError::Verifier { .. }) => {
                Self::attach_as(ifindex, filter, mode, hw_stamps, false)
            }
            done => done,
        }
    }

    /// Sends the packets of a queue to the AF_XDP socket `fd`, which must be bound to it.
    pub fn register_socket(&self, queue: u32, fd: RawFd) -> Result<(), BpfError> {
        self.xsks
            .update(&queue.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| load::map_error("register an AF_XDP socket", e))
    }

    pub fn counters(&self) -> Result<XskCounters, BpfError> {
        let [matched, passed, no_meta, no_socket] = load::sum_counters(&self.counters)?;
        Ok(XskCounters { matched, passed, no_meta, no_socket })
    }

    /// Replaces the destination addresses; those in both the old and the new list are
    /// matched all the while.
    pub fn update_local(&self, local: &[(IpAddr, u8)]) -> Result<(), BpfError> {
        if !self.filters_local {
            return Err(BpfError::Config(
                "this filter was opened for any local address; open it with a list to change it"
                    .into(),
            ));
        }
        load::set_prefixes(&self.local, local)
    }

    /// Whether packets in several buffers (`XDP_USE_SG`) can arrive.
    pub fn multi_buffer(&self) -> bool {
        self.frags
    }

    /// Whether this kernel's verifier takes the program (without hardware stamps).
    pub(crate) fn check() -> Result<(), BpfError> {
        let any = XskFilter { local_ports: &[1], peer_ports: &[], local: &[] };
        Self::load(0, &any, false, true).map(drop)
    }

    fn attach_as(
        ifindex: u32,
        filter: &XskFilter<'_>,
        mode: AttachMode,
        hw_stamps: bool,
        frags: bool,
    ) -> Result<XskProgram, BpfError> {
        let (program, mut this) = Self::load(ifindex, filter, hw_stamps, frags)?;
        this._link = Some(load::attach(program.as_fd(), ifindex, mode)?);
        Ok(this)
    }

    fn load(
        ifindex: u32,
        filter: &XskFilter<'_>,
        hw_stamps: bool,
        frags: bool,
    ) -> Result<(OwnedFd, XskProgram), BpfError> {
        let mut storage = MaybeUninit::uninit();
        let mut open = load::loading("open the AF_XDP program", || {
            XskSkelBuilder::default().open(&mut storage)
        })?;
        let settings = open.maps.rodata_data.as_deref_mut().expect("the program has settings");
        set_ports(&mut settings.local_ports, filter.local_ports);
        set_ports(&mut settings.peer_ports, filter.peer_ports);
        settings.any_peer_port = filter.peer_ports.is_empty();
        settings.any_local_address = filter.local.is_empty();

        let (chosen, other) = match hw_stamps {
            true => (&mut open.progs.sonde_xsk_hw, &mut open.progs.sonde_xsk),
            false => (&mut open.progs.sonde_xsk, &mut open.progs.sonde_xsk_hw),
        };
        other.set_autoload(false);
        let mut flags = if frags { load::BPF_F_XDP_HAS_FRAGS } else { 0 };
        if hw_stamps {
            chosen.set_ifindex(ifindex);
            flags |= BPF_F_XDP_DEV_BOUND_ONLY;
        }
        chosen.set_flags(flags);
        load::loading("size the socket map", || open.maps.xsks.set_max_entries(MAX_QUEUES))?;

        let skel = load::loading("load the AF_XDP program", || open.load())?;
        let local = load::handle(&skel.maps.local_addresses)?;
        load::set_prefixes(&local, filter.local)?;
        let program = if hw_stamps { &skel.progs.sonde_xsk_hw } else { &skel.progs.sonde_xsk };
        let program =
            program.as_fd().try_clone_to_owned().map_err(|e| BpfError::io("keep a program", e))?;
        let this = XskProgram {
            xsks: load::handle(&skel.maps.xsks)?,
            local,
            counters: load::handle(&skel.maps.counters)?,
            filters_local: !filter.local.is_empty(),
            frags,
            _link: None,
        };
        Ok((program, this))
    }
}

fn set_ports(set: &mut [u64; 1024], ports: &[u16]) {
    for &port in ports {
        set[usize::from(port >> 6)] |= 1 << (port & 63);
    }
}

/// Bytes of [`RxMeta`] before a frame.
pub const META_LEN: usize = 24;
/// `META_MAGIC` in `c/meta.h`; another layout gets another value.
const META_MAGIC: u32 = 0x534f_4e45;
/// Entries of the socket map: more queues than any card has today.
pub(crate) const MAX_QUEUES: u32 = 1024;
/// The program is bound to one device (for its metadata functions), not offloaded to it.
const BPF_F_XDP_DEV_BOUND_ONLY: u32 = 1 << 6;
