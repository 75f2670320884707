//! A router in XDP, by the kernel's own routes and neighbours (`c/forward.bpf.c`): a device
//! under test for `sonde lab` and `sonde bench`.
//!
//! On virtual Ethernet what it redirects reaches a peer that runs NAPI only: GRO on there, or
//! an XDP program.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::BpfError;
use crate::load::{self, AttachMode, TestRun, XdpLink};
use crate::skel::forward::ForwardSkelBuilder;

/// The router, attached to two interfaces. Dropping it detaches it, and so does the end of
/// the process, however it ends.
#[derive(Debug)]
pub struct Forwarder {
    program: OwnedFd,
    counters: MapHandle,
    _links: Vec<XdpLink>,
}

/// A port of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardPort {
    /// Index of the interface in the namespace of the program.
    pub ifindex: u32,
    /// Its MAC address: frames to others are left to the kernel.
    pub mac: [u8; 6],
}

/// What became of the frames that arrived at its ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardCounters {
    /// Redirected to another port. What that port had no room for is counted there.
    pub forwarded: u64,
    /// Left to the kernel.
    pub to_kernel: u64,
    /// Dropped: shorter than it says, or with a wrong header checksum.
    pub malformed: u64,
    /// Dropped: the route says so (blackhole, unreachable, prohibit).
    pub refused: u64,
}

impl Forwarder {
    /// Loads it for two ports of this network namespace and attaches it there, in the
    /// drivers.
    ///
    /// # Errors
    /// [`BpfError::NoInterface`], [`BpfError::Busy`] where a program is attached already,
    /// [`BpfError::Mode`] where the driver has no XDP.
    pub fn attach(ports: [ForwardPort; 2]) -> Result<Forwarder, BpfError> {
        let mut forwarder = Self::load(ports)?;
        for port in ports {
            load::check_interface(port.ifindex)?;
            let link = load::attach(forwarder.program.as_fd(), port.ifindex, AttachMode::Native)?;
            forwarder._links.push(link);
        }
        Ok(forwarder)
    }

    /// Loads it and attaches it nowhere: for [`Forwarder::test_run`].
    pub fn load(ports: [ForwardPort; 2]) -> Result<Forwarder, BpfError> {
        let mut storage = MaybeUninit::uninit();
        let mut open = load::loading("open the forwarder", || {
            ForwardSkelBuilder::default().open(&mut storage)
        })?;
        let fixed = open.maps.rodata_data.as_deref_mut().expect("the program has settings");
        for (slot, port) in fixed.ports.iter_mut().zip(ports) {
            slot.ifindex = port.ifindex;
            slot.mac[..6].copy_from_slice(&port.mac);
        }
        let skel = load::loading("load the forwarder", || open.load())?;
        let program = skel.progs.sonde_forward.as_fd().try_clone_to_owned();
        Ok(Forwarder {
            program: program.map_err(|e| BpfError::io("keep a program", e))?,
            counters: load::handle(&skel.maps.counters)?,
            _links: Vec::new(),
        })
    }

    /// The counters since it was loaded.
    pub fn counters(&self) -> Result<ForwardCounters, BpfError> {
        let [forwarded, to_kernel, malformed, refused] = load::sum_counters(&self.counters)?;
        Ok(ForwardCounters { forwarded, to_kernel, malformed, refused })
    }

    /// Runs the program on a frame that arrives nowhere (at the namespace's loopback).
    pub fn test_run(&self, frame: &[u8]) -> Result<TestRun, BpfError> {
        load::test_run(self.program.as_fd(), frame, 1)
    }
}
