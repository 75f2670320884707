//! The system calls of this crate: entering a namespace, packet sockets (packet(7)), netlink,
//! and waiting to the microsecond. The only place in it where `unsafe` is allowed.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Moves the calling thread into a network namespace, for the rest of its life.
pub(crate) fn enter_namespace(file: &File) -> io::Result<()> {
    // SAFETY: integers only; the descriptor is open.
    check(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// Lets the calling thread, which is to sleep between its work, run before all ordinary ones
/// (SCHED_FIFO, the least priority).
///
/// # Errors
/// Not permitted (CAP_SYS_NICE).
pub fn prefer_this_thread() -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads one sched_param.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) }).map(drop)
}

/// Sets a TCP socket's congestion control (tcp(7)), "cubic" for one. On a listener it is
/// that of the connections it accepts. (A namespace's default can only be one of those
/// that the machine's administrator has released to everybody.)
///
/// # Errors
/// The kernel does not have it, or does not let this user have it.
pub fn set_congestion_control(socket: &impl AsRawFd, name: &str) -> io::Result<()> {
    let (fd, value) = (socket.as_raw_fd(), name.as_ptr().cast());
    let len = name.len() as u32;
    // SAFETY: the kernel reads `len` bytes of `name`, which lives through the call.
    let rc = unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, value, len) };
    check(rc).map(drop)
}

/// CLOCK_REALTIME, ns since 1970: the clock of a packet socket's receive stamps.
pub(crate) fn now() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec. This clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    nanoseconds(time)
}

/// Sleeps until one of the sockets has something, or `ns` have passed.
pub(crate) fn wait(sockets: [&PacketSocket; 2], ns: i64) -> io::Result<()> {
    let mut entries =
        sockets.map(|s| libc::pollfd { fd: s.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let timeout = libc::timespec { tv_sec: ns / SECOND, tv_nsec: ns % SECOND };
    // SAFETY: two pollfd and one timespec that live through the call; no signal mask.
    let rc = unsafe { libc::ppoll(entries.as_mut_ptr(), 2, &raw const timeout, std::ptr::null()) };
    match check(rc) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(()),
    }
}

/// A packet socket on one interface: all frames that arrive there, none that leave.
pub(crate) struct PacketSocket {
    fd: OwnedFd,
}

impl PacketSocket {
    /// Opens it in the calling thread's namespace.
    pub(crate) fn open(interface: &str) -> io::Result<PacketSocket> {
        let index = interface_index(interface).ok_or_else(io::Error::last_os_error)?;
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is passed; the new descriptor is owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_PACKET, kind, 0))?) };
        let socket = PacketSocket { fd };
        socket.set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1i32)?;
        socket.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1i32)?;
        socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER)?;
        socket.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER)?;
        // SAFETY: made of integers, for which zero is a value.
        let mut membership: libc::packet_mreq = unsafe { zeroed() };
        membership.mr_ifindex = index as i32;
        membership.mr_type = libc::PACKET_MR_PROMISC as u16;
        socket.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, membership)?;
        // SAFETY: made of integers, for which zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as i32;
        let (len, fd) = (size_of::<libc::sockaddr_ll>() as u32, socket.fd.as_raw_fd());
        // SAFETY: an address of `len` bytes that lives through the call.
        check(unsafe { libc::bind(fd, (&raw const address).cast(), len) })?;
        Ok(socket)
    }

    /// The next frame: its length on the wire, which may be beyond the buffer's, and when
    /// the kernel received it. `None`: there is none now.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, i64)>> {
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut control = [0u64; 8]; // u64: a control message must be aligned
        // SAFETY: made of integers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let fd = self.fd.as_raw_fd();
        // SAFETY: `message` names `buffer` and `control`, which live through the call.
        let len = unsafe { libc::recvmsg(fd, &raw mut message, libc::MSG_TRUNC) };
        if len < 0 {
            let error = io::Error::last_os_error();
            // A link that went down reports it once; it may come back.
            let nothing = error.kind() == io::ErrorKind::WouldBlock
                || error.raw_os_error() == Some(libc::ENETDOWN);
            return if nothing { Ok(None) } else { Err(error) };
        }
        let mut at = now();
        // SAFETY: `message` was filled by the kernel, and its control messages are walked
        // by the macros made for it; the payload is read unaligned.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(&raw const message);
            while !header.is_null() {
                if ((*header).cmsg_level, (*header).cmsg_type)
                    == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS)
                {
                    at = nanoseconds(
                        libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned(),
                    );
                }
                header = libc::CMSG_NXTHDR(&raw const message, header);
            }
        }
        Ok(Some((len as usize, at)))
    }

    /// Sends a frame; `false`: the kernel has no room for it, or the link is down.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<bool> {
        // SAFETY: the kernel reads `frame`, which lives through the call.
        let rc = unsafe {
            libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), libc::MSG_NOSIGNAL)
        };
        if rc >= 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENETDOWN) => Ok(false),
            _ => Err(error),
        }
    }

    /// Frames that found the socket's buffer full since the last call.
    pub(crate) fn missed(&self) -> io::Result<u64> {
        let mut counts = [0u32; 2]; // struct tpacket_stats: packets, drops
        let mut len = size_of_val(&counts) as u32;
        let (level, fd) = (libc::SOL_PACKET, self.fd.as_raw_fd());
        let (value, size) = (counts.as_mut_ptr().cast(), &raw mut len);
        // SAFETY: the kernel writes at most `len` bytes, the size of `counts`.
        check(unsafe { libc::getsockopt(fd, level, libc::PACKET_STATISTICS, value, size) })?;
        Ok(counts[1].into())
    }

    fn set<T: Copy>(&self, level: i32, name: i32, value: T) -> io::Result<()> {
        let (fd, len) = (self.fd.as_raw_fd(), size_of::<T>() as u32);
        // SAFETY: the kernel reads size_of::<T>() bytes of `value`, which lives through the call.
        let rc = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) };
        check(rc).map(drop)
    }
}

/// A netlink socket (netlink(7)) of the calling thread's namespace.
pub(crate) struct Netlink {
    fd: OwnedFd,
}

impl Netlink {
    /// Opens it; `protocol` is one of libc's NETLINK_*.
    pub(crate) fn open(protocol: i32) -> io::Result<Netlink> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is passed; the new descriptor is owned by nobody else.
        let fd =
            unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_NETLINK, kind, protocol))?) };
        Ok(Netlink { fd })
    }

    /// Sends a request and returns the messages of its answer, one after the other.
    pub(crate) fn ask(&self, request: &[u8]) -> io::Result<Vec<u8>> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: the kernel reads `request`, which lives through the call.
        let sent = unsafe { libc::send(fd, request.as_ptr().cast(), request.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut all = Vec::new();
        let mut buffer = vec![0u8; 64 << 10];
        loop {
            // SAFETY: the kernel writes at most the buffer's length.
            let got = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
            let Ok(got) = usize::try_from(got) else { return Err(io::Error::last_os_error()) };
            let mut rest = &buffer[..got];
            let mut more = false;
            while let Some((length, kind)) = netlink_head(rest) {
                match i32::from(kind) {
                    // linux/netlink.h, struct nlmsgerr: 0 is a confirmation.
                    libc::NLMSG_ERROR => {
                        let code = rest.get(16..20).and_then(|c| c.try_into().ok());
                        return match code.map_or(-libc::EBADMSG, i32::from_ne_bytes) {
                            0 => Ok(all),
                            code => Err(io::Error::from_raw_os_error(-code)),
                        };
                    }
                    libc::NLMSG_DONE => return Ok(all),
                    _ => {
                        more = i32::from(u16::from_ne_bytes([rest[6], rest[7]])) & libc::NLM_F_MULTI
                            != 0
                    }
                }
                all.extend_from_slice(&rest[..length]);
                all.resize(all.len().next_multiple_of(4), 0);
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
            if !more {
                return Ok(all);
            }
        }
    }
}

/// Length and type of the netlink message that `bytes` begins with, if it is whole.
pub(crate) fn netlink_head(bytes: &[u8]) -> Option<(usize, u16)> {
    let head: &[u8; 16] = bytes.first_chunk()?;
    let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
    (16..=bytes.len()).contains(&length).then(|| (length, u16::from_ne_bytes([head[4], head[5]])))
}

/// The kernel's number of an interface of the calling thread's namespace.
pub(crate) fn interface_index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: a string that ends in NUL.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

fn check(rc: i32) -> io::Result<i32> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

fn nanoseconds(time: libc::timespec) -> i64 {
    time.tv_sec * SECOND + time.tv_nsec
}

const SECOND: i64 = 1_000_000_000;
/// Bytes that may wait in a socket: more than any test has on its way.
const BUFFER: i32 = 16 << 20;
/// linux/if_packet.h; without it a relay would relay what it has sent itself.
const PACKET_IGNORE_OUTGOING: i32 = 23;
