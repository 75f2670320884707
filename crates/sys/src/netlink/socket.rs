//! A netlink socket: requests and their answers, and notifications.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::message::{Message, Request, messages, u32_at};
use crate::syscall::{check, set};

/// An open netlink socket.
pub(super) struct Socket {
    fd: OwnedFd,
    sequence: u32,
    buffer: Box<[u8]>,
}

impl Socket {
    /// A socket of a protocol (NETLINK_...) that also receives the notifications of `groups`
    /// (RTMGRP_...).
    pub fn open(protocol: i32, groups: i32) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers; the result is checked.
        let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) })?;
        // SAFETY: `fd` was just opened and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let socket = Socket { fd, sequence: 0, buffer: vec![0; BUFFER].into() };
        if protocol == libc::NETLINK_ROUTE {
            // Lets a dump be limited to one table: without it the kernel sends them all.
            set(&socket.fd, libc::SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1i32)?;
        }
        // An answer that never comes must not hang the program.
        let timeout = libc::timeval { tv_sec: ANSWER_SECONDS, tv_usec: 0 };
        set(&socket.fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, timeout)?;
        if groups != 0 {
            // Room for a burst of notifications. Refused without CAP_NET_ADMIN: then
            // an overrun comes earlier and is reported like any other.
            let _ = set(&socket.fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, NOTIFY_BUFFER);
        }
        // SAFETY: sockaddr_nl is plain data, for which all zeros is valid.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = groups as u32;
        // SAFETY: `address` is a valid sockaddr_nl of the given size.
        check(unsafe {
            libc::bind(socket.fd.as_raw_fd(), (&raw const address).cast(), ADDRESS_SIZE)
        })?;
        Ok(socket)
    }

    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Sends a request and gives every message of the answer to `each`. Returns when the kernel
    /// says that it is complete, or why it refused.
    pub fn ask(&mut self, request: Request, each: impl FnMut(Message<'_>)) -> io::Result<()> {
        self.ask_once(request, each).map(|_| ())
    }

    /// Collects what `pick` makes of the messages of a dump; anew when the kernel's
    /// tables changed under way.
    pub fn dump<T>(
        &mut self,
        request: impl Fn() -> Request,
        pick: impl Fn(Message<'_>) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        for _ in 0..DUMP_TRIES {
            let mut all = Vec::new();
            if self.ask_once(request(), |m| all.extend(pick(m)))? {
                return Ok(all);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::Interrupted,
            "the kernel's tables change faster than they can be read; try again",
        ))
    }

    /// Gives notifications that have come to `each`; returns whether some were lost.
    pub fn notifications(&mut self, mut each: impl FnMut(Message<'_>)) -> io::Result<bool> {
        let mut overrun = false;
        loop {
            match self.receive(libc::MSG_DONTWAIT) {
                Ok(len) => messages(&self.buffer[..len]).for_each(&mut each),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(overrun),
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => overrun = true,
                Err(e) => return Err(e),
            }
        }
    }

    /// Whether the answer is consistent.
    fn ask_once(
        &mut self,
        mut request: Request,
        mut each: impl FnMut(Message<'_>),
    ) -> io::Result<bool> {
        self.sequence = self.sequence.wrapping_add(1);
        debug_assert!(request.flags() & (libc::NLM_F_ACK | libc::NLM_F_DUMP) != 0, "no end");
        let bytes = request.finish(self.sequence);
        // SAFETY: `bytes` is valid for its length. The socket is not connected, and
        // without a destination netlink sends to the kernel.
        let sent =
            unsafe { libc::send(self.fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut consistent = true;
        loop {
            let len = self.receive(0).map_err(|e| match e.kind() {
                io::ErrorKind::WouldBlock => io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the kernel did not answer over netlink",
                ),
                _ => e,
            })?;
            for message in messages(&self.buffer[..len]) {
                if message.sequence != self.sequence {
                    continue; // Of an earlier request that was given up.
                }
                consistent &= i32::from(message.flags) & NLM_F_DUMP_INTR == 0;
                match i32::from(message.kind) {
                    // Both begin with the error, 0 for success; an old kernel's end
                    // of a dump may be empty.
                    libc::NLMSG_ERROR | libc::NLMSG_DONE => {
                        return match u32_at(message.body, 0).unwrap_or(0) as i32 {
                            0 => Ok(consistent),
                            e => Err(io::Error::from_raw_os_error(e.wrapping_neg())),
                        };
                    }
                    _ => each(message),
                }
            }
        }
    }

    /// One datagram from the kernel into the buffer.
    fn receive(&mut self, flags: i32) -> io::Result<usize> {
        loop {
            // SAFETY: sockaddr_nl is plain data, for which all zeros is valid.
            let mut from: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
            let mut from_len = ADDRESS_SIZE;
            // SAFETY: buffer and address are valid for writing for the lengths given.
            let len = unsafe {
                libc::recvfrom(
                    self.fd.as_raw_fd(),
                    self.buffer.as_mut_ptr().cast(),
                    self.buffer.len(),
                    flags | libc::MSG_TRUNC,
                    (&raw mut from).cast(),
                    &mut from_len,
                )
            };
            if len < 0 {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(error);
            }
            // Port 0 is the kernel; other processes may write to us, unasked.
            if from.nl_pid != 0 {
                continue;
            }
            if len as usize > self.buffer.len() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a netlink message is larger than any known kernel sends",
                ));
            }
            return Ok(len as usize);
        }
    }
}

const ADDRESS_SIZE: libc::socklen_t = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
/// Dumps come in datagrams of at most 32 KiB.
const BUFFER: usize = 1 << 16;
const NOTIFY_BUFFER: i32 = 1 << 20;
const ANSWER_SECONDS: libc::time_t = 5;
const DUMP_TRIES: usize = 8;
const NETLINK_GET_STRICT_CHK: i32 = 12;
const NLM_F_DUMP_INTR: i32 = 16;
