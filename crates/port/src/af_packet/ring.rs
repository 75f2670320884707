//! The TPACKET_V3 receive ring: blocks of packets that the kernel fills and hands over
//! (Linux `Documentation/networking/packet_mmap.rst`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use sonde_sys::syscall::{self, Plain};
use sonde_wire::{Stamp, Verdict};

use crate::FrameDesc;
use crate::errqueue::ToTai;

/// The mapped ring and our position in it.
pub(super) struct Ring {
    map: *mut u8,
    len: usize,
    block: usize,
    /// Packets of the current block not yet taken, and where the next one lies.
    left: u32,
    next: usize,
    /// The current block is ours.
    held: bool,
    /// Frames may be cut short.
    cut: bool,
    /// Before each frame is a [`NetHeader`].
    segments: bool,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Gives the socket a ring for about `frames` small packets. `cut`: frames that the
    /// socket's filter cuts short are usable. `segments`: the socket has PACKET_VNET_HDR.
    pub fn new(fd: &OwnedFd, frames: usize, cut: bool, segments: bool) -> io::Result<Ring> {
        let blocks = (frames / 8).clamp(8, 1024);
        let request = Request {
            block_size: BLOCK as u32,
            block_count: blocks as u32,
            frame_size: FRAME as u32,
            frame_count: (blocks * BLOCK / FRAME) as u32,
            retire_ms: 1,
            private: 0,
            features: 0,
        };
        syscall::set(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, request)?;
        let len = blocks * BLOCK;
        // SAFETY: a new mapping of the ring just made, of exactly its length.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Ring { map: map.cast(), len, block: 0, left: 0, next: 0, held: false, cut, segments })
    }

    /// The whole ring. What lies in blocks that are not ours changes under our hands, so
    /// nothing outside the held block is to be looked at.
    pub fn memory(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `len` bytes, lives as long as `self` and is borrowed exclusively.
        // Descriptors lead only into the held block, which the kernel leaves alone until it is
        // given back.
        unsafe { std::slice::from_raw_parts_mut(self.map, self.len) }
    }

    /// Takes packets of one block, at most `frames` has room for; `wanted` judges a frame.
    /// Packets taken by the call before are given up: their block may go back.
    /// Returns how many were unusable.
    pub fn take(
        &mut self,
        frames: &mut Vec<FrameDesc>,
        tai: ToTai,
        mut wanted: impl FnMut(&[u8]) -> bool,
    ) -> u64 {
        frames.clear();
        let mut invalid = 0;
        // A block may hold nothing that is wanted; the next may.
        while frames.is_empty() {
            if self.left == 0 && !self.advance() {
                break;
            }
            while self.left > 0 && frames.len() < frames.capacity() {
                let at = self.next;
                let end = (self.block + 1) * BLOCK;
                let Some(header) = syscall::read::<TpacketHeader>(&self.memory()[..end], at) else {
                    self.left = 0;
                    break;
                };
                self.left -= 1;
                self.next = at + header.next_offset as usize;
                match self.frame(at, end, &header, tai) {
                    Some(f) if wanted(&self.memory()[f.offset..f.offset + f.len]) => frames.push(f),
                    Some(_) => {}
                    None => invalid += 1,
                }
            }
        }
        invalid
    }

    /// Gives the finished block back and takes the next, if it is full or timed out.
    fn advance(&mut self) -> bool {
        if self.held {
            self.status().store(TP_STATUS_KERNEL, Ordering::Release);
            self.block = (self.block + 1) % (self.len / BLOCK);
            self.held = false;
        }
        if self.status().load(Ordering::Acquire) & TP_STATUS_USER == 0 {
            return false;
        }
        self.held = true;
        let at = self.block * BLOCK;
        let memory = self.memory();
        self.left = syscall::read(memory, at + 12).unwrap_or(0);
        self.next = at + syscall::read::<u32>(&self.memory()[..], at + 16).unwrap_or(0) as usize;
        true
    }

    /// The frame behind a packet header, its VLAN tag back in place.
    fn frame(&mut self, at: usize, end: usize, h: &TpacketHeader, tai: ToTai) -> Option<FrameDesc> {
        let mut offset = at + usize::from(h.mac);
        let (mut len, mut wire_len) = (h.snaplen as usize, h.len as usize);
        if (h.snaplen < h.len && !self.cut) || len < 14 || offset + len > end {
            return None;
        }
        // Before the tag is put back: it overwrites that header.
        let net = self.segments.then(|| offset.checked_sub(size_of::<NetHeader>())).flatten();
        let net = net.and_then(|at| syscall::read::<NetHeader>(self.memory(), at));
        let segment = net.map_or(0, |net| net.segment());
        if h.status & TP_STATUS_VLAN_VALID != 0 {
            // The kernel took the tag out; PACKET_RESERVE has left room to put it back.
            let tpid = if h.status & TP_STATUS_VLAN_TPID_VALID != 0 { h.vlan_tpid } else { 0x8100 };
            offset -= TAG;
            len += TAG;
            wire_len += TAG;
            let frame = &mut self.memory()[offset..offset + len];
            frame.copy_within(TAG..TAG + 12, 0);
            frame[12..14].copy_from_slice(&tpid.to_be_bytes());
            frame[14..16].copy_from_slice(&(h.vlan_tci as u16).to_be_bytes());
        }
        let stamp: Stamp = tai.stamp(i64::from(h.sec), i64::from(h.nsec));
        Some(FrameDesc { offset, len, wire_len, segment, stamp, verdict: Verdict::Release })
    }

    /// The word by which the current block changes hands.
    fn status(&self) -> &AtomicU32 {
        // SAFETY: `block` is below the number of blocks, blocks are page-aligned, and the
        // word is only ever accessed atomically, on both sides.
        unsafe { AtomicU32::from_ptr(self.map.add(self.block * BLOCK + 8).cast()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; no borrow of it is left.
        unsafe { libc::munmap(self.map.cast(), self.len) };
    }
}

/// `struct tpacket_req3`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Request {
    block_size: u32,
    block_count: u32,
    frame_size: u32,
    frame_count: u32,
    retire_ms: u32,
    private: u32,
    features: u32,
}

/// `struct tpacket3_hdr` without its padding.
#[derive(Clone, Copy)]
#[repr(C)]
struct TpacketHeader {
    next_offset: u32,
    sec: u32,
    nsec: u32,
    snaplen: u32,
    len: u32,
    status: u32,
    mac: u16,
    net: u16,
    rxhash: u32,
    vlan_tci: u32,
    vlan_tpid: u16,
    padding: u16,
}

/// `struct virtio_net_hdr`, in this machine's byte order (virtio 1.2, section 5.1.6).
#[derive(Clone, Copy)]
#[repr(C)]
struct NetHeader {
    flags: u8,
    gso_type: u8,
    header_len: u16,
    gso_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

// SAFETY: integers alone.
unsafe impl Plain for TpacketHeader {}
// SAFETY: integers alone.
unsafe impl Plain for NetHeader {}

impl NetHeader {
    /// Octets of payload that each packet has on the wire, but for the last; 0: it is one.
    fn segment(self) -> u16 {
        match self.gso_type & !GSO_ECN {
            GSO_TCPV4 | GSO_TCPV6 | GSO_UDP_L4 => self.gso_size,
            // None, and IP fragments.
            _ => 0,
        }
    }
}

const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;
/// Bytes reserved before each frame: a VLAN tag, aligned.
pub(super) const RESERVE: u32 = 16;
const TAG: usize = 4;
/// Bytes of a block: a hundred small packets or more, and room for the largest. Where few packets
/// come, each takes a block of its own: the kernel hands it over after 1 ms. So the number of
/// blocks is the milliseconds that the reader may pause without loss.
const BLOCK: usize = 1 << 15;
/// What a packet is reckoned to take; the kernel packs them as they come.
const FRAME: usize = 2048;
const TP_STATUS_KERNEL: u32 = 0;
const TP_STATUS_USER: u32 = 1;
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
