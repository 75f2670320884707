//! Maps of the running program as memory: arrays, global variables, ring buffers.

use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use libbpf_rs::MapHandle;

use crate::BpfError;
use crate::mapping::{Access, Mapping};

/// A mapping out of which structures are copied.
#[derive(Debug)]
pub(super) struct Mapped(Mapping);

impl Deref for Mapped {
    type Target = Mapping;
    fn deref(&self) -> &Mapping {
        &self.0
    }
}

impl Mapped {
    /// `len` octets of the map from `offset`, a multiple of the page size.
    pub(super) fn new(
        map: &MapHandle,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<Self, BpfError> {
        Mapping::new(map, offset, len, access).map(Mapped)
    }

    /// Copies a plain value out, double word by double word; it may be torn.
    pub(super) fn read<T: Plain>(&self, offset: usize) -> T {
        let mut value = std::mem::MaybeUninit::<T>::uninit();
        let words = value.as_mut_ptr().cast::<u64>();
        for i in 0..size_of::<T>() / 8 {
            let word = self.long(offset + 8 * i).load(Ordering::Relaxed);
            // SAFETY: within `value`; unaligned writes need no alignment.
            unsafe { words.add(i).write_unaligned(word) };
        }
        // SAFETY: every octet was written, and `Plain` types are valid for any.
        unsafe { value.assume_init() }
    }
}

/// A structure of `c/rtt.h`.
///
/// # Safety
/// `repr(C)`, valid for any bits, no padding, a multiple of eight octets long.
pub(super) unsafe trait Plain: Copy {}

/// The reading side of a BPF ring buffer.
#[derive(Debug)]
pub(super) struct Ring {
    map: MapHandle,
    consumer: Mapped,
    producer: Mapped,
    mask: u64,
}

impl Ring {
    /// `size`: octets of data, a power of two and a multiple of the page size.
    pub(super) fn new(map: MapHandle, size: usize) -> Result<Self, BpfError> {
        let page = page_size();
        let consumer = Mapped::new(&map, 0, page, Access::Write)?;
        // The kernel maps the data twice in a row, so that no record is cut in two.
        let producer = Mapped::new(&map, page, page + 2 * size, Access::Read)?;
        Ok(Ring { map, consumer, producer, mask: size as u64 - 1 })
    }

    /// For `poll`.
    pub(super) fn fd(&self) -> i32 {
        self.map.as_fd().as_raw_fd()
    }

    /// Hands over each record that is complete, if it has the length of `T`.
    pub(super) fn consume<T: Plain>(&self, mut take: impl FnMut(T)) {
        let (page, position) = (page_size(), self.consumer.long(0));
        let mut at = position.load(Ordering::Relaxed);
        let end = self.producer.long(0).load(Ordering::Acquire);
        while at < end {
            let header = page + (at & self.mask) as usize;
            let length = self.producer.word(header).load(Ordering::Acquire);
            if length & RING_BUSY != 0 {
                break;
            }
            let octets = (length & !RING_DISCARD) as usize;
            if length & RING_DISCARD == 0 && octets == size_of::<T>() {
                take(self.producer.read(header + RING_HEADER));
            }
            at += (octets + RING_HEADER).next_multiple_of(8) as u64;
            position.store(at, Ordering::Release);
        }
    }
}

pub(super) fn page_size() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Keeps a descriptor of a program or link.
pub(super) fn keep(fd: impl AsFd) -> Result<OwnedFd, BpfError> {
    fd.as_fd().try_clone_to_owned().map_err(|e| BpfError::io("keep a program", e))
}

/// `BPF_RINGBUF_BUSY_BIT`: still being written.
const RING_BUSY: u32 = 1 << 31;
/// `BPF_RINGBUF_DISCARD_BIT`: given up by its writer.
const RING_DISCARD: u32 = 1 << 30;
/// `BPF_RINGBUF_HDR_SZ`.
const RING_HEADER: usize = 8;
