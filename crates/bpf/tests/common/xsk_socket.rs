//! The least AF_XDP socket that can receive a handful of frames on queue 0: everything
//! it has is leaked, the test's process is short.
#![allow(dead_code)] // each test binary uses its part

use sonde_bpf::xsk::META_LEN;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::eventually;

const FRAMES: u32 = 8;
const FRAME_SIZE: usize = 4096;

pub struct XskSocket {
    pub fd: RawFd,
    memory: *const u8,
    ring: *const u8,
    offsets: libc::xdp_mmap_offsets,
    taken: u32,
}

impl XskSocket {
    pub fn open(ifindex: u32) -> Self {
        // SAFETY: system calls on our own descriptor and mappings, each result checked;
        // the rings are written at the offsets that the kernel gave for them.
        unsafe {
            let fd = check(libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0));
            let memory = map(-1, FRAMES as usize * FRAME_SIZE, libc::MAP_ANONYMOUS, 0);
            let mut umem: libc::xdp_umem_reg = std::mem::zeroed();
            umem.addr = memory as u64;
            umem.len = u64::from(FRAMES) * FRAME_SIZE as u64;
            umem.chunk_size = FRAME_SIZE as u32;
            set(fd, libc::XDP_UMEM_REG, &umem);
            for ring in
                [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING]
            {
                set(fd, ring, &FRAMES);
            }
            let mut offsets: libc::xdp_mmap_offsets = std::mem::zeroed();
            let mut len = size_of_val(&offsets) as libc::socklen_t;
            check(libc::getsockopt(
                fd,
                libc::SOL_XDP,
                libc::XDP_MMAP_OFFSETS,
                (&raw mut offsets).cast(),
                &mut len,
            ));
            let size = |desc: u64, each: usize| desc as usize + FRAMES as usize * each;
            let fill = map(
                fd,
                size(offsets.fr.desc, 8),
                libc::MAP_POPULATE,
                libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t,
            );
            for i in 0..FRAMES as usize {
                fill.add(offsets.fr.desc as usize)
                    .cast::<u64>()
                    .add(i)
                    .write((i * FRAME_SIZE) as u64);
            }
            let producer = &*fill.add(offsets.fr.producer as usize).cast::<AtomicU32>();
            producer.store(FRAMES, Ordering::Release);
            let rx = size(offsets.rx.desc, size_of::<libc::xdp_desc>());
            let ring = map(fd, rx, libc::MAP_POPULATE, libc::XDP_PGOFF_RX_RING);
            let mut addr: libc::sockaddr_xdp = std::mem::zeroed();
            addr.sxdp_family = libc::AF_XDP as u16;
            addr.sxdp_ifindex = ifindex;
            addr.sxdp_flags = libc::XDP_COPY;
            check(libc::bind(fd, (&raw const addr).cast(), size_of_val(&addr) as u32));
            XskSocket { fd, memory, ring, offsets, taken: 0 }
        }
    }

    /// The next frame and the 16 bytes before it.
    pub fn receive(&mut self, limit: Duration) -> Option<([u8; META_LEN], Vec<u8>)> {
        // SAFETY: the kernel owns nothing below its producer index, and each descriptor
        // there points into our memory, behind at least XDP_PACKET_HEADROOM bytes.
        unsafe {
            let producer = &*self.ring.add(self.offsets.rx.producer as usize).cast::<AtomicU32>();
            if !eventually(limit, || producer.load(Ordering::Acquire) != self.taken) {
                return None;
            }
            let slot = (self.taken % FRAMES) as usize;
            let desc = self.ring.add(self.offsets.rx.desc as usize);
            let desc = desc.cast::<libc::xdp_desc>().add(slot).read();
            self.taken += 1;
            let frame = self.memory.add(desc.addr as usize);
            let before = frame.sub(META_LEN).cast::<[u8; META_LEN]>().read();
            Some((before, std::slice::from_raw_parts(frame, desc.len as usize).to_vec()))
        }
    }
}

unsafe fn set<T>(fd: RawFd, option: i32, value: &T) {
    // SAFETY: `value` is valid for its own size.
    check(unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_XDP,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    });
}

unsafe fn map(fd: RawFd, len: usize, flags: i32, offset: libc::off_t) -> *mut u8 {
    let kind = if fd < 0 { libc::MAP_PRIVATE } else { libc::MAP_SHARED };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind | flags, fd, offset) };
    assert_ne!(at, libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
    at.cast()
}

fn check(rc: i32) -> i32 {
    assert!(rc >= 0, "AF_XDP: {}", io::Error::last_os_error());
    rc
}
