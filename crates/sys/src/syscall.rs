//! The few system calls that sockets share, with errors that say what to do next.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, size_of_val};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::SysError;

/// A socket address as the kernel wants it, of either family.
#[derive(Clone, Copy)]
#[repr(C)]
pub union SockAddr {
    /// As `AF_INET` has it.
    pub v4: libc::sockaddr_in,
    /// As `AF_INET6` has it.
    pub v6: libc::sockaddr_in6,
}

impl SockAddr {
    /// All zero: no address.
    #[inline]
    pub const fn zeroed() -> Self {
        // SAFETY: both members are plain integers, for which zero is a value.
        unsafe { std::mem::zeroed() }
    }

    /// `scope` is the interface of a link-local IPv6 address.
    #[inline]
    pub fn new(address: IpAddr, port: u16, scope: u32) -> Self {
        let mut raw = SockAddr::zeroed();
        match address {
            IpAddr::V4(a) => {
                raw.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: port.to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(a.octets()) },
                    sin_zero: [0; 8],
                }
            }
            IpAddr::V6(a) => {
                raw.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: port.to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: a.octets() },
                    sin6_scope_id: if a.is_unicast_link_local() { scope } else { 0 },
                }
            }
        }
        raw
    }

    /// Address and port, of the family that the kernel wrote.
    #[inline]
    pub fn address(&self, v6: bool) -> SocketAddr {
        // SAFETY: both members are plain integers.
        unsafe {
            if v6 {
                let ip = Ipv6Addr::from(self.v6.sin6_addr.s6_addr);
                SocketAddr::from((ip, u16::from_be(self.v6.sin6_port)))
            } else {
                let ip = Ipv4Addr::from(self.v4.sin_addr.s_addr.to_ne_bytes());
                SocketAddr::from((ip, u16::from_be(self.v4.sin_port)))
            }
        }
    }

    /// Bytes that the kernel is to read for this family.
    #[inline]
    pub fn len(v6: bool) -> u32 {
        let len = if v6 { size_of::<libc::sockaddr_in6>() } else { size_of::<libc::sockaddr_in>() };
        len as u32
    }
}

/// What any bytes are a value of.
///
/// # Safety
/// Made of integers alone, in which every pattern of bits is a value.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($kind:ty),+ $(,)?) => {
        // SAFETY: integers, or structures of them.
        $(unsafe impl Plain for $kind {})+
    };
}

plain!(
    u8,
    u16,
    u32,
    u64,
    i32,
    i64,
    libc::cmsghdr,
    libc::in_pktinfo,
    libc::in6_pktinfo,
    libc::sock_extended_err,
    libc::sockaddr_in,
    libc::sockaddr_in6,
    libc::timespec,
    libc::xdp_mmap_offsets,
    libc::xdp_statistics,
);
// SAFETY: as each of its elements.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// A close-on-exec, non-blocking socket.
pub fn socket(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed; the new descriptor is owned by nobody else.
    unsafe {
        let fd = libc::socket(domain, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, protocol);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// `setsockopt` with any plain value.
pub fn set<T: Copy>(fd: &impl AsRawFd, level: i32, name: i32, value: T) -> io::Result<()> {
    // SAFETY: the kernel reads size_of::<T>() bytes of `value`, which lives through the call.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as u32,
        )
    };
    check(rc).map(drop)
}

/// `getsockopt` into a plain value; the kernel may fill less than all of it.
pub fn get<T: Plain>(fd: &impl AsRawFd, level: i32, name: i32, mut value: T) -> io::Result<T> {
    let mut len = size_of::<T>() as u32;
    // SAFETY: the kernel writes at most `len` bytes, the size of `value`, which may be any.
    let rc = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len)
    };
    check(rc).map(|_| value)
}

/// Binds to an address of either family.
pub fn bind(fd: &impl AsRawFd, address: SocketAddr, scope: u32) -> io::Result<()> {
    let raw = SockAddr::new(address.ip(), address.port(), scope);
    let len = SockAddr::len(address.is_ipv6());
    // SAFETY: `raw` holds an address of `len` bytes and lives through the call.
    let rc = unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), len) };
    check(rc).map(drop)
}

/// Binds a packet socket to one interface, for packets of one protocol (an EtherType, or libc's
/// `ETH_P_ALL`; 0: none).
pub fn bind_link(fd: &impl AsRawFd, index: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: made of integers, for which zero is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index as i32;
    let len = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: an address of `len` bytes that lives through the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}

/// Has an interface let in more than what is addressed to it, for as long as the packet socket is
/// open: `kind` is one of libc's `PACKET_MR_*`.
pub fn join_link(fd: &impl AsRawFd, index: u32, kind: i32) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: index as i32,
        mr_type: kind as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, membership)
}

/// Lets a socket take and send packets on one interface alone.
pub fn bind_device(fd: &impl AsRawFd, name: &str) -> io::Result<()> {
    let mut value = [0u8; libc::IFNAMSIZ];
    let room = value.len() - 1;
    for (to, from) in value[..room].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    set(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, value)
}

/// Attaches a classic BPF program to a socket.
pub fn attach_filter(fd: &impl AsRawFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let value = libc::sock_fprog {
        len: program.len() as u16,
        // The kernel only reads it.
        filter: program.as_ptr().cast_mut(),
    };
    set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value)
}

/// One classic BPF instruction.
pub const fn op(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// A receive or send buffer beyond the system's limit where that is allowed, else up to it.
pub fn set_buffer(fd: &impl AsRawFd, force: i32, plain: i32, bytes: i32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, force, bytes).or_else(|_| set(fd, libc::SOL_SOCKET, plain, bytes))
}

/// Lets this process have `wanted` more descriptors, as far as the hard limit goes.
pub fn raise_descriptor_limit(wanted: usize) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    // Half is left for what the process has open and will open.
    if limit.rlim_cur / 2 < wanted as u64 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the kernel reads one rlimit.
        check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    }
    Ok(())
}

/// The index of the interface of that name, in the network namespace of this thread.
///
/// # Errors
/// There is none.
pub fn interface_index(name: &str) -> Result<u32, SysError> {
    let c = CString::new(name).map_err(|_| SysError::NoInterface(name.into()))?;
    // SAFETY: a string that ends in NUL.
    match unsafe { libc::if_nametoindex(c.as_ptr()) } {
        0 => Err(SysError::NoInterface(name.into())),
        index => Ok(index),
    }
}

/// What an ioctl is to ask of the interface of that name (netdevice(7)), with nothing but the name.
///
/// # Errors
/// A name longer than any interface's.
pub(crate) fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an ifreq is made of integers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // It ends in a zero octet.
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// Turns the -1 of a system call into its error.
#[inline]
pub fn check(rc: i32) -> io::Result<i32> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

/// Sleeps until the descriptor is ready or `ns` have passed, and returns what is ready.
pub fn poll_one(fd: RawFd, events: i16, ns: i64) -> io::Result<i16> {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    let ns = ns.max(0);
    let timeout = libc::timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 };
    // SAFETY: one pollfd and one timespec that live through the call; no signal mask.
    let rc = unsafe { libc::ppoll(&raw mut entry, 1, &raw const timeout, std::ptr::null()) };
    match check(rc) {
        Ok(_) => Ok(entry.revents),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(e) => Err(e),
    }
}

/// What the kernel refused, as an error for people; `capability` is what EPERM and EACCES ask for.
pub fn error(what: impl Into<String>, cause: io::Error, capability: &'static str) -> SysError {
    let what = what.into();
    match cause.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => SysError::Privilege { what, capability },
        Some(libc::EMFILE | libc::ENFILE) => SysError::Io {
            what,
            cause,
            hint: "; raise the limit of open files ('ulimit -n') or use fewer ports".into(),
        },
        _ => SysError::Io { what, cause, hint: String::new() },
    }
}

/// Reads a plain value at any alignment out of bytes; `None` past their end.
#[inline]
pub fn read<T: Plain>(bytes: &[u8], at: usize) -> Option<T> {
    let slice = bytes.get(at..at.checked_add(size_of::<T>())?)?;
    // SAFETY: the slice has the size of T, which any bytes are a value of; the read is unaligned.
    Some(unsafe { slice.as_ptr().cast::<T>().read_unaligned() })
}

/// linux/sockios.h
pub(crate) const SIOCETHTOOL: libc::Ioctl = 0x8946;
