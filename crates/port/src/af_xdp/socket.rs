//! One AF_XDP socket: system calls and mappings, no policy
//! (Linux `Documentation/networking/af_xdp.rst`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use libc::{c_int, c_void, sockaddr_xdp, xdp_desc};
use sonde_sys::syscall;

use super::ring::{Consumer, Producer, RingMemory};

/// How a socket is made.
#[derive(Clone, Copy, Debug)]
pub struct XskConfig {
    pub ifindex: u32,
    /// The queue to bind.
    pub queue: u32,
    /// Address and length in bytes of the packet memory.
    pub umem: (u64, u64),
    /// Bytes per frame.
    pub frame_size: u32,
    /// Bytes before each transmitted frame that hold its metadata; 0: none.
    pub tx_metadata: u32,
    /// Entries of the receive ring; 0: it has none. All other ring sizes are powers of two.
    pub rx: u32,
    /// Entries of the transmit ring; 0: it has none.
    pub tx: u32,
    /// Entries of the completion ring.
    pub completion: u32,
    /// Entries of the fill ring.
    pub fill: u32,
    /// Bind for zero copy, or fail.
    pub zero_copy: bool,
    /// Take packets in several buffers.
    pub multi_buffer: bool,
    /// Busy polling with this budget.
    pub busy_poll: Option<u32>,
}

/// An AF_XDP socket with its four rings, not bound yet when made.
#[derive(Debug)]
pub struct Xsk {
    pub rx: Consumer<xdp_desc>,
    pub tx: Producer<xdp_desc>,
    pub fill: Producer<u64>,
    pub completion: Consumer<u64>,
    config: XskConfig,
    // After the rings: fields are dropped in order, and the rings point into the maps.
    _maps: [Option<Mapping>; 3],
    completion_map: Option<Mapping>,
    fd: OwnedFd,
}

/// Where in making a socket the kernel refused.
#[derive(Debug)]
pub struct XskError {
    pub what: &'static str,
    pub source: io::Error,
}

#[derive(Debug)]
struct Mapping {
    start: *mut c_void,
    len: usize,
}

// SAFETY: the mapping is not tied to a thread; its one user is the `Xsk` that holds it.
unsafe impl Send for Mapping {}

impl Xsk {
    /// Makes the socket, gives it the memory and maps its rings.
    pub fn new(config: XskConfig) -> Result<Xsk, XskError> {
        let fd = open()?;
        let raw = fd.as_raw_fd();
        let umem = libc::xdp_umem_reg {
            addr: config.umem.0,
            len: config.umem.1,
            chunk_size: config.frame_size,
            headroom: 0,
            flags: if config.tx_metadata > 0 { libc::XDP_UMEM_TX_METADATA_LEN } else { 0 },
            tx_metadata_len: config.tx_metadata,
        };
        syscall::set(&raw, libc::SOL_XDP, libc::XDP_UMEM_REG, umem)
            .map_err(|e| XskError::new("register the packet memory", e))?;
        for (option, entries) in [
            (libc::XDP_RX_RING, config.rx),
            (libc::XDP_TX_RING, config.tx),
            (libc::XDP_UMEM_FILL_RING, config.fill),
            (libc::XDP_UMEM_COMPLETION_RING, config.completion),
        ] {
            size(raw, option, entries)?;
        }
        make_room(raw, &config);
        if let Some(budget) = config.busy_poll {
            let budget = c_int::try_from(budget).unwrap_or(c_int::MAX);
            for (option, value) in [
                (libc::SO_PREFER_BUSY_POLL, 1),
                (libc::SO_BUSY_POLL, BUSY_POLL_US),
                (libc::SO_BUSY_POLL_BUDGET, budget),
            ] {
                syscall::set(&raw, libc::SOL_SOCKET, option, value)
                    .map_err(|e| XskError::new("switch busy polling on", e))?;
            }
        }

        let at = layout(raw)?;
        let rx_map = Mapping::ring(raw, libc::XDP_PGOFF_RX_RING, &at.rx, config.rx, DESC)?;
        let tx_map = Mapping::ring(raw, libc::XDP_PGOFF_TX_RING, &at.tx, config.tx, DESC)?;
        let fill_at = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let fill_map = Mapping::ring(raw, fill_at, &at.fr, config.fill, 8)?;
        let completion_at = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let completion_map = Mapping::ring(raw, completion_at, &at.cr, config.completion, 8)?;
        // SAFETY: the kernel laid the rings out so, with the sizes just set. The maps live as long
        // as the rings, and this process is the other end of each.
        let (rx, tx, fill, completion) = unsafe {
            (
                consumer(rx_map.as_ref(), &at.rx, config.rx),
                producer(tx_map.as_ref(), &at.tx, config.tx),
                producer(fill_map.as_ref(), &at.fr, config.fill),
                consumer(completion_map.as_ref(), &at.cr, config.completion),
            )
        };
        let _maps = [rx_map, tx_map, fill_map];
        Ok(Xsk { rx, tx, fill, completion, config, _maps, completion_map, fd })
    }

    /// A second socket of the same queue and memory, which alone sends. It has a transmit ring of
    /// `entries`, and from now on the completion ring of this one. This one has to be bound and to
    /// have no transmit ring (`Documentation/networking/af_xdp.rst`, XDP_SHARED_UMEM).
    ///
    /// Two sockets, not one that two threads use: poll(2) on a socket with a transmit ring sends.
    pub fn sender(&mut self, entries: u32) -> Result<Xsk, XskError> {
        let fd = open()?;
        let raw = fd.as_raw_fd();
        let config = XskConfig { rx: 0, tx: entries, fill: 0, ..self.config };
        size(raw, libc::XDP_TX_RING, entries)?;
        make_room(raw, &config);
        let at = layout(raw)?;
        let map = Mapping::ring(raw, libc::XDP_PGOFF_TX_RING, &at.tx, entries, DESC)?;
        // SAFETY: as in `new`.
        let tx = unsafe { producer(map.as_ref(), &at.tx, entries) };
        // The flags are those of the first.
        bind(raw, &self.config, libc::XDP_SHARED_UMEM, self.fd.as_raw_fd())
            .map_err(|e| XskError::new("bind a sender to the queue", e))?;
        Ok(Xsk {
            rx: Consumer::none(),
            tx,
            fill: Producer::none(),
            completion: std::mem::replace(&mut self.completion, Consumer::none()),
            config,
            _maps: [None, map, None],
            completion_map: self.completion_map.take(),
            fd,
        })
    }

    /// Binds it to its queue. A queue that is taken is asked for again for a while. The kernel lets
    /// go of one some time after its last user has ended.
    pub fn bind(&self) -> Result<(), XskError> {
        let copy = if self.config.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
        let sg = if self.config.multi_buffer { libc::XDP_USE_SG } else { 0 };
        let deadline = Instant::now() + BIND_PATIENCE;
        loop {
            let flags = copy | sg | libc::XDP_USE_NEED_WAKEUP;
            let Err(error) = bind(self.fd.as_raw_fd(), &self.config, flags, 0) else {
                return Ok(());
            };
            if error.raw_os_error() != Some(libc::EBUSY) || Instant::now() > deadline {
                return Err(XskError::new("bind to the queue", error));
            }
            std::thread::sleep(BIND_PAUSE);
        }
    }

    /// Has the kernel look at the transmit ring.
    #[inline]
    pub fn kick_tx(&self) -> io::Result<()> {
        // SAFETY: no data is passed, so null pointers of length 0 are right.
        let result = unsafe {
            let none = std::ptr::null();
            libc::sendto(self.fd.as_raw_fd(), none, 0, libc::MSG_DONTWAIT, none.cast(), 0)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Has the kernel look at the fill ring, or poll the card where busy polling is on.
    /// A failure shows in the transmit path or in [`Xsk::error`] as well.
    #[inline]
    pub fn kick_rx(&self) {
        let none = std::ptr::null_mut();
        // SAFETY: as in `kick_tx`.
        unsafe {
            let (address, len) = (std::ptr::null_mut(), std::ptr::null_mut());
            libc::recvfrom(self.fd.as_raw_fd(), none, 0, libc::MSG_DONTWAIT, address, len);
        }
    }

    /// The socket's pending error, if any: the kernel leaves ENETDOWN there when the
    /// interface is removed.
    pub fn error(&self) -> Option<io::Error> {
        match syscall::get(&self.fd, libc::SOL_SOCKET, libc::SO_ERROR, 0 as c_int) {
            Ok(0) => None,
            Ok(code) => Some(io::Error::from_raw_os_error(code)),
            Err(error) => Some(error),
        }
    }

    /// The kernel's counters; zeros when it gives none.
    pub fn statistics(&self) -> libc::xdp_statistics {
        // SAFETY: plain data, for which all zeros is a valid value.
        let none: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        syscall::get(&self.fd, libc::SOL_XDP, libc::XDP_STATISTICS, none).unwrap_or(none)
    }

    /// The queue that it is for.
    pub fn queue(&self) -> u32 {
        self.config.queue
    }

    /// For the program's socket map and for polling.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl XskError {
    fn new(what: &'static str, source: io::Error) -> Self {
        XskError { what, source }
    }
}

impl Mapping {
    fn new(fd: RawFd, offset: libc::off_t, len: usize) -> io::Result<Mapping> {
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory
        // of ours.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { start, len })
    }

    /// That of a ring with `entries` of so many bytes; of none, nothing.
    fn ring(
        fd: RawFd,
        offset: libc::off_t,
        at: &libc::xdp_ring_offset,
        entries: u32,
        bytes: usize,
    ) -> Result<Option<Mapping>, XskError> {
        let len = at.desc as usize + entries as usize * bytes;
        let map = (entries > 0).then(|| Mapping::new(fd, offset, len)).transpose();
        map.map_err(|e| XskError::new("map the rings", e))
    }

    fn memory<T>(&self, at: &libc::xdp_ring_offset, entries: u32) -> RingMemory<T> {
        let index = |offset: u64| self.start.wrapping_byte_add(offset as usize) as *const AtomicU32;
        RingMemory {
            producer: index(at.producer),
            consumer: index(at.consumer),
            flags: index(at.flags),
            entries_at: self.start.wrapping_byte_add(at.desc as usize).cast(),
            entries,
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; the rings that point into it end with the
        // `Xsk` that holds it.
        unsafe { libc::munmap(self.start, self.len) };
    }
}

fn open() -> Result<OwnedFd, XskError> {
    syscall::socket(libc::AF_XDP, libc::SOCK_RAW, 0)
        .map_err(|e| XskError::new("open an AF_XDP socket", e))
}

fn size(fd: RawFd, option: c_int, entries: u32) -> Result<(), XskError> {
    if entries == 0 {
        return Ok(());
    }
    syscall::set(&fd, libc::SOL_XDP, option, entries)
        .map_err(|e| XskError::new("size the rings", e))
}

/// Copy mode counts packets under way against the send buffer: it must never be what limits us.
/// Without CAP_NET_ADMIN the default stays, at worst a slower ring.
fn make_room(fd: RawFd, config: &XskConfig) {
    let room = c_int::try_from(config.tx.saturating_mul(config.frame_size)).unwrap_or(c_int::MAX);
    let _ = syscall::set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, room);
}

/// Where the kernel puts the parts of the rings.
fn layout(fd: RawFd) -> Result<libc::xdp_mmap_offsets, XskError> {
    // SAFETY: plain data, for which all zeros is a valid value.
    let none: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    syscall::get(&fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, none)
        .map_err(|e| XskError::new("ask for the layout of the rings", e))
}

/// # Safety
/// As of [`Producer::new`], for the map's ring.
unsafe fn producer<T: Copy>(
    map: Option<&Mapping>,
    at: &libc::xdp_ring_offset,
    entries: u32,
) -> Producer<T> {
    // SAFETY: the caller's.
    map.map_or_else(Producer::none, |map| unsafe { Producer::new(map.memory(at, entries)) })
}

/// # Safety
/// As of [`Consumer::new`], for the map's ring.
unsafe fn consumer<T: Copy>(
    map: Option<&Mapping>,
    at: &libc::xdp_ring_offset,
    entries: u32,
) -> Consumer<T> {
    // SAFETY: the caller's.
    map.map_or_else(Consumer::none, |map| unsafe { Consumer::new(map.memory(at, entries)) })
}

fn bind(fd: RawFd, config: &XskConfig, flags: u16, shared: RawFd) -> io::Result<()> {
    let address = sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: config.ifindex,
        sxdp_queue_id: config.queue,
        sxdp_shared_umem_fd: shared as u32,
    };
    // SAFETY: `address` is a valid address of the length given.
    let result = unsafe {
        let len = size_of::<sockaddr_xdp>() as libc::socklen_t;
        libc::bind(fd, (&raw const address).cast(), len)
    };
    syscall::check(result).map(drop)
}

/// Bytes of an entry of the receive and the transmit ring; the others have addresses.
const DESC: usize = size_of::<xdp_desc>();
/// How long a system call polls the card when nothing is there, microseconds.
const BUSY_POLL_US: c_int = 20;
/// How long a taken queue is asked for.
const BIND_PATIENCE: Duration = Duration::from_secs(2);
/// Between two such attempts.
const BIND_PAUSE: Duration = Duration::from_millis(10);
