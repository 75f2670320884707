//! The programs without an interface: for tests, and to measure what a packet costs.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;

use libbpf_rs::libbpf_sys as sys;

use super::RttProgram;
use crate::BpfError;
use crate::load;
use crate::skel::rtt::types::__sk_buff;

/// One of the three programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RttSide {
    /// tc at ingress.
    Ingress,
    /// tc at egress.
    Egress,
    /// XDP.
    Xdp,
}

/// A frame as the kernel would hand it to a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct RttTestPacket<'a> {
    /// The frame; with [`Self::l3`] the IP packet. At least 14 octets.
    pub frame: &'a [u8],
    /// The interface's number.
    pub point: u8,
    /// The interface has no Ethernet header.
    pub l3: bool,
    /// Segments of a GSO frame; 0 and 1: a plain one. Not for XDP.
    pub segments: u32,
}

impl RttProgram {
    /// Runs a program on one frame of point 0 at the time `now_ns` (since 1970 TAI, not 0);
    /// from then on this is the time, and idle flows end by [`Self::sweep`] alone.
    /// Returns the program's verdict.
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
            RttSide::Ingress => &self.progs.ingress,
            RttSide::Egress => &self.progs.egress,
            RttSide::Xdp => &self.progs.xdp,
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
        let rc = unsafe { sys::bpf_prog_test_run_opts(program.as_fd().as_raw_fd(), &mut opts) };
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
