//! The few system calls that the socket-based engines share, with errors that say
//! what to do next.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, size_of_val};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::PortError;

/// A socket address as the kernel wants it, of either family.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union SockAddr {
    pub v4: libc::sockaddr_in,
    pub v6: libc::sockaddr_in6,
}

impl SockAddr {
    /// All zero: no address.
    pub const fn zeroed() -> Self {
        // SAFETY: both members are plain integers, for which zero is a value.
        unsafe { std::mem::zeroed() }
    }

    /// `scope` is the interface of a link-local IPv6 address.
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
    pub fn len(v6: bool) -> u32 {
        let len = if v6 { size_of::<libc::sockaddr_in6>() } else { size_of::<libc::sockaddr_in>() };
        len as u32
    }
}

/// A close-on-exec, non-blocking socket.
pub(crate) fn socket(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed; the new descriptor is owned by nobody else.
    unsafe {
        let fd = libc::socket(domain, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, protocol);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// `setsockopt` with any plain value.
pub(crate) fn set<T: Copy>(fd: &impl AsRawFd, level: i32, name: i32, value: T) -> io::Result<()> {
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
pub(crate) fn get<T: Copy>(
    fd: &impl AsRawFd,
    level: i32,
    name: i32,
    mut value: T,
) -> io::Result<T> {
    let mut len = size_of::<T>() as u32;
    // SAFETY: the kernel writes at most `len` bytes, the size of `value`; every caller's
    // T is made of integers.
    let rc = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len)
    };
    check(rc).map(|_| value)
}

/// Binds to an address of either family.
pub(crate) fn bind(fd: &impl AsRawFd, address: SocketAddr, scope: u32) -> io::Result<()> {
    let raw = SockAddr::new(address.ip(), address.port(), scope);
    let len = SockAddr::len(address.is_ipv6());
    // SAFETY: `raw` holds an address of `len` bytes and lives through the call.
    let rc = unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), len) };
    check(rc).map(drop)
}

/// Lets a socket take and send packets on one interface alone.
pub(crate) fn bind_device(fd: &impl AsRawFd, name: &str) -> io::Result<()> {
    let mut value = [0u8; libc::IFNAMSIZ];
    let room = value.len() - 1;
    for (to, from) in value[..room].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    set(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, value)
}

/// Attaches a classic BPF program to a socket.
pub(crate) fn attach_filter(fd: &impl AsRawFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let value = libc::sock_fprog {
        len: program.len() as u16,
        // The kernel only reads it.
        filter: program.as_ptr().cast_mut(),
    };
    set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value)
}

/// One classic BPF instruction.
pub(crate) const fn op(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// A receive or send buffer beyond the system's limit where that is allowed, else up to it.
pub(crate) fn set_buffer(fd: &impl AsRawFd, force: i32, plain: i32, bytes: i32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, force, bytes).or_else(|_| set(fd, libc::SOL_SOCKET, plain, bytes))
}

/// Lets this process have `wanted` more descriptors, as far as the hard limit goes.
pub(crate) fn raise_descriptor_limit(wanted: usize) -> io::Result<()> {
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

/// The index of an interface.
pub(crate) fn interface_index(name: &str) -> Result<u32, PortError> {
    let c = CString::new(name).map_err(|_| PortError::NoInterface(name.into()))?;
    // SAFETY: a string that ends in NUL.
    match unsafe { libc::if_nametoindex(c.as_ptr()) } {
        0 => Err(PortError::NoInterface(name.into())),
        index => Ok(index),
    }
}

/// Turns the -1 of a system call into its error.
pub(crate) fn check(rc: i32) -> io::Result<i32> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

/// Sleeps until the descriptor is ready or `ns` have passed, and returns what is ready.
pub(crate) fn poll_one(fd: RawFd, events: i16, ns: i64) -> io::Result<i16> {
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

/// An error of the kernel in the port's words; `capability` is what EPERM and EACCES ask for.
pub(crate) fn error(
    what: impl Into<String>,
    source: io::Error,
    capability: &'static str,
) -> PortError {
    let what = what.into();
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => PortError::Privilege { what, capability },
        Some(libc::EMFILE | libc::ENFILE) => PortError::Io {
            what,
            source,
            hint: "; raise the limit of open files ('ulimit -n') or use fewer ports".into(),
        },
        _ => PortError::Io { what, source, hint: String::new() },
    }
}

/// Reads a plain value at any alignment out of bytes; `None` past their end.
pub(crate) fn read<T: Copy>(bytes: &[u8], at: usize) -> Option<T> {
    let slice = bytes.get(at..at.checked_add(size_of::<T>())?)?;
    // SAFETY: the slice has the size of T; every caller's T is made of integers, for
    // which any bytes are a value; the read is unaligned.
    Some(unsafe { slice.as_ptr().cast::<T>().read_unaligned() })
}
