//! A load of millions of packets a second from one processor: `c/flow_live.bpf.c`.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::BpfError;
use crate::load::{self, BPF_F_TEST_XDP_LIVE_FRAMES};
use crate::skel::flow_live::FlowLiveSkelBuilder;

/// Sends frames out by an interface from within the kernel, without socket buffers. On
/// virtual Ethernet the other end must run an XDP program, or have GRO switched on.
///
/// For measurements and tests: it changes addresses and ports and mends no checksum.
#[derive(Debug)]
pub struct LiveFrames {
    program: OwnedFd,
}

impl LiveFrames {
    /// To this interface, with packets of `flows` flows in turn, each there and back.
    ///
    /// # Errors
    /// [`BpfError::Config`] unless `flows` is a power of two up to 2^24;
    /// [`BpfError::Privilege`], [`BpfError::Verifier`].
    pub fn load(ifindex: u32, flows: u32) -> Result<Self, BpfError> {
        if !flows.is_power_of_two() || flows > 1 << 24 {
            return Err(BpfError::Config("flows must be a power of two up to 2^24".into()));
        }
        load::check_interface(ifindex)?;
        let mut storage = MaybeUninit::uninit();
        let mut open = load::loading("open the load generator", || {
            FlowLiveSkelBuilder::default().open(&mut storage)
        })?;
        let fixed = open.maps.rodata_data.as_deref_mut().expect("the program has settings");
        fixed.target = ifindex;
        fixed.flow_mask = flows - 1;
        let skel = load::loading("load the load generator", || open.load())?;
        let program = skel.progs.sonde_flow_live.as_fd().try_clone_to_owned();
        Ok(LiveFrames { program: program.map_err(|e| BpfError::io("keep a program", e))? })
    }

    /// Sends `count` packets like `frame` (Ethernet, IPv4 without options, TCP or UDP),
    /// 64 at a time, on this thread. What the other end has no room for is lost, and
    /// counted there.
    ///
    /// # Errors
    /// [`BpfError::Io`]: also when a signal ended it early.
    pub fn send(&self, frame: &[u8], count: u32) -> Result<(), BpfError> {
        // SAFETY: the structure is plain data for which all zeroes is valid ("not given").
        let mut opts: sys::bpf_test_run_opts = unsafe { std::mem::zeroed() };
        opts.sz = size_of_val(&opts) as _;
        opts.data_in = frame.as_ptr().cast();
        opts.data_size_in = frame.len() as u32;
        opts.repeat = count as i32;
        opts.flags = BPF_F_TEST_XDP_LIVE_FRAMES;
        opts.batch_size = BATCH;
        // SAFETY: the frame outlives the call and has the length given.
        let rc = unsafe { sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &mut opts) };
        if rc != 0 {
            return Err(BpfError::io("send live frames", io::Error::from_raw_os_error(-rc)));
        }
        Ok(())
    }
}

/// As the kernel does by itself, and a driver in one NAPI poll.
const BATCH: u32 = 64;
