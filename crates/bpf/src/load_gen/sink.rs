//! An end that drops everything: `c/load_sink.bpf.c`.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::BpfError;
use crate::load::{self, AttachMode, XdpLink};
use crate::skel::load_sink::LoadSinkSkelBuilder;

/// Drops what arrives at an interface, in the driver, until it is dropped itself. The
/// interface's own counters show how much that was.
#[derive(Debug)]
pub struct XdpDropper {
    _link: XdpLink,
}

impl XdpDropper {
    /// At an interface of this thread's network namespace.
    ///
    /// # Errors
    /// [`BpfError::NoInterface`], [`BpfError::Busy`], [`BpfError::Mode`];
    /// [`BpfError::Privilege`], [`BpfError::Verifier`].
    pub fn attach(ifindex: u32) -> Result<XdpDropper, BpfError> {
        load::check_interface(ifindex)?;
        let mut storage = MaybeUninit::uninit();
        let open =
            load::loading("open the sink", || LoadSinkSkelBuilder::default().open(&mut storage))?;
        let skel = load::loading("load the sink", || open.load())?;
        let program = skel.progs.sonde_load_sink.as_fd();
        Ok(XdpDropper { _link: load::attach(program, ifindex, AttachMode::Native)? })
    }
}
