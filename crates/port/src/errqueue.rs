//! Batched system calls for sockets, and the time stamps that come back with them. They come with
//! received packets, and in the error queue for sent ones (Linux
//! `Documentation/networking/timestamping.rst`).

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, RawFd};

use sonde_sys::clock::{clock_state, tai_now};
use sonde_sys::syscall::{self, SockAddr};
use sonde_sys::timescale::{Stamps, Timescale};
use sonde_wire::{Scale, Stamp, StampSource, Time, TxDone};

use crate::icmp::{IcmpError, IcmpKind};

/// Packets of one system call.
pub(crate) const BATCH: usize = 64;

/// Control messages of one packet; 256 bytes hold all that any engine asks for.
const CONTROL: usize = 256;

/// Since Linux 6.13: the caller chooses a packet's id in the error queue.
pub(crate) const SCM_TS_OPT_ID: i32 = 81;

/// The message vectors of `recvmmsg` and `sendmmsg`, allocated once.
pub(crate) struct Batch {
    headers: Box<[libc::mmsghdr; BATCH]>,
    parts: Box<[libc::iovec; BATCH]>,
    names: Box<[SockAddr; BATCH]>,
    control: Box<[Control; BATCH]>,
}

#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

// SAFETY: the raw pointers in `headers` and `parts` are written anew for every system
// call and never followed outside one; the memory is owned.
unsafe impl Send for Batch {}

impl Batch {
    pub fn new() -> Self {
        Batch {
            // SAFETY: null pointers and zero lengths are values of both.
            headers: Box::new(unsafe { zeroed() }),
            parts: Box::new(unsafe { zeroed() }),
            names: Box::new([SockAddr::zeroed(); BATCH]),
            control: Box::new([Control([0; CONTROL]); BATCH]),
        }
    }

    /// Receives up to `count` packets, packet `i` at `offset + i * stride` of `memory`
    /// with room for `len`. Nothing there: 0.
    pub fn receive(
        &mut self,
        fd: RawFd,
        memory: &mut [u8],
        (offset, stride, len): (usize, usize, usize),
        count: usize,
    ) -> io::Result<usize> {
        let count = count.min(BATCH);
        for i in 0..count {
            let room = &mut memory[offset + i * stride..][..len];
            self.parts[i] = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: len };
            self.prepare(i, 1, SockAddr::len(true), CONTROL);
        }
        self.recvmmsg(fd, count, libc::MSG_DONTWAIT)
    }

    /// Takes up to a batch out of the error queue: control messages only.
    pub fn receive_errors(&mut self, fd: RawFd) -> io::Result<usize> {
        for i in 0..BATCH {
            self.prepare(i, 0, SockAddr::len(true), CONTROL);
        }
        self.recvmmsg(fd, BATCH, libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE)
    }

    fn recvmmsg(&mut self, fd: RawFd, count: usize, flags: i32) -> io::Result<usize> {
        // SAFETY: `count` headers point to distinct buffers of the lengths they state,
        // prepared by the caller just now and alive through the call.
        let rc = unsafe {
            libc::recvmmsg(
                fd,
                self.headers.as_mut_ptr(),
                count as u32,
                flags as _,
                std::ptr::null_mut(),
            )
        };
        match syscall::check(rc) {
            Ok(n) => Ok(n as usize),
            Err(e)
                if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
            {
                Ok(0)
            }
            Err(e) => Err(e),
        }
    }

    /// Prepares packet `i` to be sent: its bytes, and where to (`None`: the socket's own
    /// destination). Control messages are then added by [`Batch::add`].
    pub fn outgoing(&mut self, i: usize, bytes: &[u8], to: Option<(SockAddr, bool)>) {
        self.parts[i] =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut name_len = 0;
        if let Some((address, v6)) = to {
            self.names[i] = address;
            name_len = SockAddr::len(v6);
        }
        self.prepare(i, 1, name_len, 0);
    }

    /// Adds a control message to packet `i`.
    #[inline]
    pub fn add<T: Copy>(&mut self, i: usize, level: i32, kind: i32, value: T) {
        let header = &mut self.headers[i].msg_hdr;
        let at = header.msg_controllen;
        // SAFETY: pure arithmetic.
        let (space, len) = unsafe {
            let size = size_of::<T>() as u32;
            (libc::CMSG_SPACE(size) as usize, libc::CMSG_LEN(size) as usize)
        };
        let room = &mut self.control[i].0[at..at + space];
        // SAFETY: `room` has space for a header and the value, and starts at a multiple of
        // 8 within an aligned buffer; the value is written unaligned.
        unsafe {
            let message = room.as_mut_ptr().cast::<libc::cmsghdr>();
            (*message).cmsg_len = len as _;
            (*message).cmsg_level = level;
            (*message).cmsg_type = kind;
            libc::CMSG_DATA(message).cast::<T>().write_unaligned(value);
        }
        header.msg_control = self.control[i].0.as_mut_ptr().cast();
        header.msg_controllen = (at + space) as _;
    }

    /// Sends packets `from..to`; how many the kernel took before it refused one.
    ///
    /// # Safety
    /// The bytes given to [`Batch::outgoing`] for these packets must still be valid.
    pub unsafe fn send(&mut self, fd: RawFd, from: usize, to: usize) -> io::Result<usize> {
        let headers = &mut self.headers[from..to];
        // SAFETY: the headers were prepared by `outgoing`; the names and control messages
        // are ours, and the caller vouches for the bytes. The kernel only reads them.
        let rc = unsafe {
            libc::sendmmsg(fd, headers.as_mut_ptr(), headers.len() as u32, libc::MSG_DONTWAIT as _)
        };
        syscall::check(rc).map(|n| n as usize)
    }

    /// Bytes received as packet `i`; `None` when it was longer than its room.
    pub fn received_len(&self, i: usize) -> Option<usize> {
        let h = &self.headers[i];
        (h.msg_hdr.msg_flags & libc::MSG_TRUNC == 0).then_some(h.msg_len as usize)
    }

    /// Whom packet `i` came from.
    pub fn name(&self, i: usize) -> &SockAddr {
        &self.names[i]
    }

    /// The control messages of received packet `i`: level, type, value.
    pub fn controls(&self, i: usize) -> impl Iterator<Item = (i32, i32, &[u8])> {
        let len = self.headers[i].msg_hdr.msg_controllen.min(CONTROL);
        let bytes = &self.control[i].0[..len];
        let mut at = 0;
        std::iter::from_fn(move || {
            let header = syscall::read::<libc::cmsghdr>(bytes, at)?;
            // SAFETY: pure arithmetic.
            let start = at + unsafe { libc::CMSG_LEN(0) } as usize;
            let end = at.checked_add(header.cmsg_len)?;
            let value = bytes.get(start..end)?;
            at = end.next_multiple_of(size_of::<usize>());
            Some((header.cmsg_level, header.cmsg_type, value))
        })
    }

    fn prepare(&mut self, i: usize, parts: usize, name_len: u32, control_len: usize) {
        let h = &mut self.headers[i].msg_hdr;
        h.msg_iov = &raw mut self.parts[i];
        h.msg_iovlen = parts as _;
        h.msg_name =
            if name_len == 0 { std::ptr::null_mut() } else { (&raw mut self.names[i]).cast() };
        h.msg_namelen = name_len;
        h.msg_control = if control_len == 0 {
            std::ptr::null_mut()
        } else {
            self.control[i].0.as_mut_ptr().cast()
        };
        h.msg_controllen = control_len as _;
        h.msg_flags = 0;
    }
}

/// From the kernel's `CLOCK_REALTIME` stamps to TAI, or to steady time.
#[derive(Clone, Copy)]
pub(crate) struct ToTai {
    offset_ns: i64,
    read_at: Time,
    steady: Option<Timescale>,
}

impl ToTai {
    pub fn new(steady: bool) -> Self {
        ToTai {
            offset_ns: i64::from(clock_state().tai_offset_s) * 1_000_000_000,
            read_at: tai_now(),
            steady: steady.then(|| Timescale::new(Stamps::Realtime)),
        }
    }

    /// The time now, on the scale of the stamps.
    #[inline]
    pub fn now(&self) -> Time {
        self.steady.as_ref().map_or_else(tai_now, Timescale::now)
    }

    /// How steady time stands to UTC and TAI.
    #[inline]
    pub fn scale(&self) -> Option<Scale> {
        self.steady.as_ref().map(Timescale::scale)
    }

    /// To be called in every turn: looks whether somebody has set the clock.
    #[inline]
    pub fn turn(&mut self) {
        if let Some(steady) = &mut self.steady {
            steady.refresh();
        }
    }

    /// Reads the offset again when a second has passed: it changes with leap seconds, and
    /// when a daemon first sets it in the kernel. Not for the packet path.
    pub fn refresh(&mut self, now: Time) {
        if self.steady.is_none() && now - self.read_at > 1_000_000_000 {
            *self = ToTai::new(false);
        }
    }

    /// A kernel stamp of seconds and nanoseconds since 1970 UTC.
    #[inline]
    pub fn stamp(self, seconds: i64, nanos: i64) -> Stamp {
        let at = seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
        let at = match &self.steady {
            Some(steady) => steady.steady(at),
            None => Time::from_nanos(at) + self.offset_ns,
        };
        Stamp { at, source: StampSource::Kernel }
    }

    /// The software stamp of an `SCM_TIMESTAMPING` message, the first of its three.
    #[inline]
    pub fn read_control(self, value: &[u8]) -> Option<Stamp> {
        let ts = syscall::read::<libc::timespec>(value, 0)?;
        (ts.tv_sec != 0).then(|| self.stamp(ts.tv_sec, ts.tv_nsec))
    }
}

/// Has the socket stamp what it receives, and count what it is asked to stamp.
pub(crate) fn enable(fd: &impl AsRawFd, rx: bool, tx: bool) -> io::Result<()> {
    let mut flags = libc::SOF_TIMESTAMPING_SOFTWARE;
    if rx {
        flags |= libc::SOF_TIMESTAMPING_RX_SOFTWARE;
    }
    if tx {
        // Which packets are stamped is said with each of them.
        flags |= libc::SOF_TIMESTAMPING_OPT_ID | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    }
    syscall::set(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags)
}

/// The packets of one socket whose transmit stamp is awaited: id -> cookie.
pub(crate) struct Awaited {
    slots: Box<[(u32, u64)]>,
    next: u32,
    chosen: bool,
    /// How many are awaited.
    pub outstanding: usize,
}

impl Awaited {
    /// `chosen`: the kernel takes the ids from us (see [`SCM_TS_OPT_ID`]), else it
    /// counts by itself and we count along.
    pub fn new(chosen: bool, slots: usize) -> Self {
        let slots = vec![(0, 0); slots.next_power_of_two()].into_boxed_slice();
        Awaited { slots, next: 0, chosen, outstanding: 0 }
    }

    /// Adds to packet `i` of the batch the request for a stamp. `ahead`: stamped packets
    /// before it in the same batch.
    #[inline]
    pub fn ask(&self, batch: &mut Batch, i: usize, ahead: u32) {
        let flags = libc::SOF_TIMESTAMPING_TX_SOFTWARE;
        batch.add(i, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags);
        if self.chosen {
            batch.add(i, libc::SOL_SOCKET, SCM_TS_OPT_ID, self.next.wrapping_add(ahead));
        }
    }

    /// The next asked-for packet was sent. True: an older one's stamp never came.
    #[inline]
    pub fn sent(&mut self, cookie: u64) -> bool {
        let i = self.next as usize & (self.slots.len() - 1);
        let lost = self.slots[i].1 != 0;
        self.slots[i] = (self.next, cookie);
        self.next = self.next.wrapping_add(1);
        self.outstanding += usize::from(!lost);
        lost
    }

    /// The next asked-for packet was refused with this error.
    pub fn refused(&mut self, error: &io::Error) {
        // Routing, address and link errors come before the kernel gives the packet an id. A full
        // queue and a packet filter refuse one that already has its id. An id that we chose is
        // passed over alike: the later packets of the batch carry theirs.
        let numbered = matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EPERM));
        if self.chosen || numbered {
            self.next = self.next.wrapping_add(1);
        }
    }

    /// The cookie of a stamped packet.
    #[inline]
    pub fn take(&mut self, id: u32) -> Option<u64> {
        let slot = &mut self.slots[id as usize & (self.slots.len() - 1)];
        if slot.0 != id || slot.1 == 0 {
            return None;
        }
        self.outstanding -= 1;
        Some(std::mem::take(&mut slot.1))
    }

    /// Empties the socket's error queue into `done`, as far as that has room; ICMP errors
    /// go to `errors`, where there are any.
    pub fn drain(
        &mut self,
        fd: RawFd,
        batch: &mut Batch,
        tai: ToTai,
        done: &mut Vec<TxDone>,
        errors: &mut dyn FnMut(IcmpError),
    ) -> io::Result<()> {
        while done.capacity() - done.len() >= BATCH {
            let n = batch.receive_errors(fd)?;
            for i in 0..n {
                if let Some((id, stamp)) = sent_stamp(batch, i, tai)
                    && let Some(cookie) = self.take(id)
                {
                    done.push(TxDone { cookie, stamp });
                } else if let Some(error) = icmp_error(batch, i) {
                    errors(error);
                }
            }
            if n < BATCH {
                break;
            }
        }
        Ok(())
    }
}

/// Id and stamp of entry `i` of an error queue.
pub(crate) fn sent_stamp(batch: &Batch, i: usize, tai: ToTai) -> Option<(u32, Stamp)> {
    let (mut id, mut stamp) = (None, None);
    for (level, kind, value) in batch.controls(i) {
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) => stamp = tai.read_control(value),
            (libc::SOL_IP, libc::IP_RECVERR)
            | (libc::SOL_IPV6, libc::IPV6_RECVERR)
            | (libc::SOL_PACKET, PACKET_TX_TIMESTAMP) => {
                id = syscall::read::<libc::sock_extended_err>(value, 0)
                    .filter(|e| e.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING)
                    .map(|e| e.ee_data);
            }
            _ => {}
        }
    }
    Some((id?, stamp?))
}

/// The ICMP error in entry `i` of an error queue, if that is what it is.
fn icmp_error(batch: &Batch, i: usize) -> Option<IcmpError> {
    batch.controls(i).find_map(|(level, kind, value)| {
        let v6 = match (level, kind) {
            (libc::SOL_IP, libc::IP_RECVERR) => false,
            (libc::SOL_IPV6, libc::IPV6_RECVERR) => true,
            _ => return None,
        };
        let e = syscall::read::<libc::sock_extended_err>(value, 0)?;
        let kind = match e.ee_origin {
            libc::SO_EE_ORIGIN_ICMP => IcmpKind::of_v4(e.ee_type, e.ee_code, e.ee_info),
            libc::SO_EE_ORIGIN_ICMP6 => IcmpKind::of_v6(e.ee_type, e.ee_code, e.ee_info),
            // This host's own verdict, before the packet left.
            libc::SO_EE_ORIGIN_LOCAL => match e.ee_errno as i32 {
                libc::EMSGSIZE => IcmpKind::TooBig(e.ee_info),
                libc::EHOSTUNREACH => IcmpKind::NoNeighbour,
                libc::ENETUNREACH => IcmpKind::NoRoute,
                libc::EACCES | libc::EPERM => IcmpKind::Prohibited,
                _ => return None,
            },
            _ => return None,
        };
        // SO_EE_OFFENDER: the address after the error, of family 0 where there is none.
        let at = size_of::<libc::sock_extended_err>();
        let family = syscall::read::<u16>(value, at).unwrap_or(0);
        let from = match i32::from(family) {
            libc::AF_INET => syscall::read::<libc::sockaddr_in>(value, at)
                .map(|a| SockAddr { v4: a }.address(false).ip()),
            libc::AF_INET6 => syscall::read::<libc::sockaddr_in6>(value, at)
                .map(|a| SockAddr { v6: a }.address(true).ip()),
            _ => None,
        };
        // The name is where the packet was to go.
        Some(IcmpError { from, destination: batch.name(i).address(v6), source_port: 0, kind })
    })
}

/// A send failed for this packet alone: counted, and the next one is tried.
pub(crate) fn is_drop(e: &io::Error) -> bool {
    !matches!(e.raw_os_error(), Some(libc::EBADF | libc::EFAULT | libc::ENOTSOCK))
}

/// Whether an ICMP error about an earlier packet may be behind this refusal to send. A full
/// queue and a packet filter refuse the packet itself.
pub(crate) fn may_be_earlier(e: &io::Error) -> bool {
    let own = [libc::ENOBUFS, libc::EPERM, libc::EAGAIN, libc::EINVAL];
    is_drop(e) && e.raw_os_error().is_none_or(|code| !own.contains(&code))
}

const PACKET_TX_TIMESTAMP: i32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_find_their_cookies_and_old_ones_are_counted() {
        let mut awaited = Awaited::new(true, 4);
        for cookie in 1..=4 {
            assert!(!awaited.sent(cookie));
        }
        assert_eq!(awaited.take(1), Some(2));
        assert_eq!(awaited.take(1), None, "only once");
        assert_eq!(awaited.take(9), None, "never sent");
        assert!(awaited.sent(5), "the stamp of cookie 1 never came");
        assert!(!awaited.sent(6), "that of cookie 2 did");
        assert_eq!((awaited.take(4), awaited.take(5)), (Some(5), Some(6)));
        assert_eq!(awaited.outstanding, 2);
    }

    #[test]
    fn a_refused_packet_takes_a_number_only_where_the_kernel_gives_it_one() {
        let mut counted = Awaited::new(false, 4);
        counted.refused(&io::Error::from_raw_os_error(libc::ENETUNREACH));
        counted.sent(1);
        counted.refused(&io::Error::from_raw_os_error(libc::ENOBUFS));
        counted.sent(2);
        assert_eq!((counted.take(0), counted.take(2)), (Some(1), Some(2)));
    }
}
