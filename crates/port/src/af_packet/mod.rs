//! The engine "af_packet": a TPACKET_V3 ring to receive, batches on a packet socket to
//! transmit. For interfaces and kernels on which AF_XDP does not work.
//!
//! The ring gets copies: the kernel's own stack sees every packet too, and a [`Guard`] keeps it
//! from answering. The ring hands over a block when it is full or one millisecond old, so a packet
//! may wait that long. Its stamp is not touched by that.
//!
//! A port that transmits ([`PortMode::Transmit`]) has the transmit socket alone. One that watches
//! ([`PortMode::Watch`]) has the ring alone: no guard's sockets, no
//! transmit socket, outgoing packets too. On the loopback, where every packet goes out and
//! comes in again, only what comes in. Outgoing packets are stamped behind the queueing
//! discipline, as they are handed to the driver.

mod fanout;
mod filter;
mod ring;

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use sonde_sys::netlink::Routes;
use sonde_sys::packet_socket::PACKET_IGNORE_OUTGOING;
use sonde_sys::syscall;
use sonde_wire::prefix::Prefix;
use sonde_wire::{StampSource, Time, TxDone, Verdict};

use crate::errqueue::{Awaited, BATCH, Batch, ToTai, enable, is_drop};
use crate::guard::Guard;
use crate::refusal::{Refusals, why};
use crate::{
    Caps, FrameDesc, OpenSpec, Port, PortError, PortMode, PortStats, RxBurst, TxBurst, TxDesc,
};
use filter::Wanted;
use ring::Ring;

/// A packet socket to receive and one to transmit, on one interface.
pub struct AfPacket {
    /// `None`: it takes nothing in.
    input: Option<Input>,
    /// `None`: it watches and sends nothing.
    tx: Option<OwnedFd>,
    _guard: Option<Guard>,
    /// What is let through; `None`: every frame.
    wanted: Option<Wanted>,
    batch: Batch,
    awaited: Awaited,
    memory: Box<[u8]>,
    free: Box<[TxDesc]>,
    used: usize,
    frames: Vec<FrameDesc>,
    done: Vec<TxDone>,
    refusals: Refusals,
    tx_stamps: bool,
    tai: ToTai,
    caps: Caps,
    stats: PortStats,
}
struct Input {
    // Before the socket: the mapping goes first.
    ring: Ring,
    socket: OwnedFd,
}

impl AfPacket {
    /// Opens the sockets on `spec.interface` and takes the filter's ports.
    ///
    /// # Errors
    /// No interface given or none of that name, no CAP_NET_RAW, a filter without ports, a port
    /// in use.
    pub fn open(spec: &OpenSpec) -> Result<AfPacket, PortError> {
        spec.check()?;
        match spec.mode {
            PortMode::Exchange => Self::open_with(spec, &filter::program(&spec.filter)),
            PortMode::Watch => Self::open_with(spec, &everything(spec)),
            PortMode::Transmit => Self::open_with(spec, &[]),
        }
    }

    /// `count` ports that see everything between them: a packet goes to the port that its
    /// two addresses belong to, whoever of them sends ([`PortMode::Watch`]).
    ///
    /// # Errors
    /// As [`AfPacket::open`]; [`PortError::Config`] for no port at all.
    pub fn watch(spec: &OpenSpec, count: usize) -> Result<Vec<AfPacket>, PortError> {
        if spec.mode != PortMode::Watch {
            let why = "only ports that watch everything can share an interface's packets";
            return Err(PortError::Config(why.into()));
        }
        if count == 0 || count > fanout::MAX {
            return Err(PortError::Config(format!(
                "1 to {} ports can watch an interface together, not {count}",
                fanout::MAX
            )));
        }
        if count == 1 {
            return Ok(vec![Self::open(spec)?]);
        }
        let io = |e| syscall::error("share an interface's packets", e, "CAP_NET_RAW");
        // Until all are there a packet would go to one that has nothing to do with it.
        let nothing = [filter::ret(0)];
        let ports: Vec<AfPacket> =
            (0..count).map(|_| Self::open_with(spec, &nothing)).collect::<Result<_, _>>()?;
        let sockets = || ports.iter().filter_map(|port| Some(&port.input.as_ref()?.socket));
        fanout::join(sockets()).map_err(io)?;
        for socket in sockets() {
            syscall::attach_filter(socket, &everything(spec)).map_err(io)?;
        }
        Ok(ports)
    }

    fn open_with(spec: &OpenSpec, filter: &[libc::sock_filter]) -> Result<AfPacket, PortError> {
        let io = |what: &'static str| move |e| syscall::error(what, e, "CAP_NET_RAW");
        let name = spec.interface.as_deref().ok_or_else(|| {
            PortError::Config(
                "engine af_packet needs an interface; name one or use engine socket".into(),
            )
        })?;
        let index = syscall::interface_index(name)?;
        let (guard, wanted) = if spec.mode == PortMode::Exchange {
            let guard = Guard::reserve(&spec.filter)?;
            let host = Routes::open().and_then(|mut r| r.local_prefixes());
            let host = host.map_err(io("read this host's addresses"))?;
            (Some(guard), Some(Wanted::new(&spec.filter, host)))
        } else {
            (None, None)
        };
        let outgoing = spec.mode == PortMode::Watch && name != "lo";
        let input = (spec.mode != PortMode::Transmit)
            .then(|| Input::open(spec, filter, index, outgoing))
            .transpose()?;

        let transmit = || {
            let tx = syscall::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
            syscall::set_buffer(&tx, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, BUFFER)?;
            syscall::set_buffer(&tx, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, BUFFER)?;
            syscall::set(&tx, libc::SOL_PACKET, PACKET_QDISC_BYPASS, 1)?;
            enable(&tx, false, spec.tx_stamps)?;
            syscall::bind_link(&tx, index, 0)?;
            Ok(tx)
        };
        let sends = spec.mode != PortMode::Watch;
        let tx = sends.then(transmit).transpose().map_err(io("set up the transmit socket"))?;
        let slots = if sends { TX_SLOTS } else { 0 };

        let free = (0..slots)
            .map(|i| TxDesc { offset: i * STRIDE, capacity: MAX_FRAME, ..TxDesc::default() })
            .collect();
        let tx_stamp = if spec.tx_stamps { StampSource::Kernel } else { StampSource::User };
        Ok(AfPacket {
            input,
            tx,
            _guard: guard,
            wanted,
            batch: Batch::new(),
            awaited: Awaited::new(false, AWAITED),
            memory: vec![0; slots * STRIDE].into(),
            free,
            used: 0,
            frames: Vec::with_capacity(BURST),
            done: Vec::with_capacity(AWAITED),
            refusals: Refusals::new(2 * TX_SLOTS + BURST),
            tx_stamps: spec.tx_stamps,
            tai: ToTai::new(spec.steady),
            caps: Caps {
                engine: "af_packet",
                mode: match (spec.mode, outgoing) {
                    (PortMode::Exchange, _) => {
                        format!("TPACKET_V3 ring, blocks of at most 1 ms, batches of {BATCH}")
                    }
                    (PortMode::Watch, false) => "TPACKET_V3 ring, incoming only".into(),
                    (PortMode::Watch, true) => "TPACKET_V3 ring, incoming and outgoing".into(),
                    (PortMode::Transmit, _) => format!("transmit only, batches of {BATCH}"),
                },
                rx_stamp: StampSource::Kernel,
                tx_stamp,
                max_frame: if sends { MAX_FRAME } else { 0 },
                link_layer: true,
            },
            stats: PortStats::default(),
        })
    }

    /// Sends descriptors out of `memory`, a batch at a time.
    fn send(
        &mut self,
        from_ring: bool,
        count: usize,
        describe: impl Fn(&Self, usize) -> (usize, usize, u64),
    ) -> Result<(), PortError> {
        let Some(tx) = self.tx.as_ref().map(AsRawFd::as_raw_fd) else {
            self.stats.tx_dropped += count as u64;
            return Ok(());
        };
        let (mut first, mut end) = (0, 0);
        while first < count {
            if first == end {
                end = count.min(first + BATCH);
            }
            let mut asked = 0;
            for i in first..end {
                let (offset, len, cookie) = describe(self, i);
                let memory = match &mut self.input {
                    Some(input) if from_ring => input.ring.memory(),
                    _ => &mut self.memory,
                };
                self.batch.outgoing(i - first, &memory[offset..offset + len], None);
                if cookie != 0 && self.tx_stamps {
                    self.awaited.ask(&mut self.batch, i - first, asked);
                    asked += 1;
                }
            }
            // SAFETY: the frames lie in `self.memory` or in the held block of the ring,
            // neither of which changes meanwhile.
            let result = unsafe { self.batch.send(tx, 0, end - first) };
            let sent = *result.as_ref().unwrap_or(&0);
            self.stats.tx_frames += sent as u64;
            for i in first..first + sent {
                let cookie = describe(self, i).2;
                if cookie != 0 && self.tx_stamps {
                    self.stats.tx_stamp_missing += u64::from(self.awaited.sent(cookie));
                }
            }
            first += sent;
            match result {
                Err(e) if is_drop(&e) => {
                    let cookie = describe(self, first).2;
                    if cookie != 0 && self.tx_stamps {
                        self.awaited.refused(&e);
                    }
                    self.refusals.add(cookie, why(&e, false));
                    self.stats.tx_dropped += 1;
                    first += 1;
                }
                Err(e) => return Err(syscall::error("send", e, "CAP_NET_RAW").into()),
                Ok(_) => {}
            }
        }
        Ok(())
    }
}

impl Input {
    fn open(
        spec: &OpenSpec,
        filter: &[libc::sock_filter],
        index: u32,
        outgoing: bool,
    ) -> Result<Input, PortError> {
        let io = |what: &'static str| move |e| syscall::error(what, e, "CAP_NET_RAW");
        let watch = spec.mode == PortMode::Watch;
        // Protocol 0: nothing arrives before the filter and the ring are installed.
        let socket = syscall::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)
            .map_err(io("open a packet socket"))?;
        let level = libc::SOL_PACKET;
        let ring = || {
            syscall::set(&socket, level, PACKET_VERSION, TPACKET_V3)?;
            syscall::set(&socket, level, PACKET_RESERVE, ring::RESERVE)?;
            syscall::set(&socket, level, PACKET_TIMESTAMP, libc::SOF_TIMESTAMPING_SOFTWARE)?;
            if !outgoing {
                syscall::set(&socket, level, PACKET_IGNORE_OUTGOING, 1)?;
            }
            syscall::attach_filter(&socket, filter)?;
            // Has the kernel stamp packets as they come in, not as they enter the ring.
            enable(&socket, true, false)?;
            let segments = watch && tells_segments();
            if segments {
                syscall::set(&socket, level, PACKET_VNET_HDR, 1)?;
            }
            let ring = Ring::new(&socket, spec.ring, watch, segments)?;
            syscall::bind_link(&socket, index, libc::ETH_P_ALL as u16)?;
            if watch {
                // A mirror port gets what is addressed to others. Ends with the socket.
                syscall::join_link(&socket, index, libc::PACKET_MR_PROMISC)?;
            }
            Ok(ring)
        };
        let ring = ring().map_err(io("set up the receive ring"))?;
        Ok(Input { ring, socket })
    }
}

impl Port for AfPacket {
    fn rx(&mut self) -> Result<RxBurst<'_>, PortError> {
        if self.frames.iter().any(|f| f.verdict != Verdict::Release) {
            self.flush()?;
        }
        self.refusals.begin();
        self.tai.turn();
        let AfPacket { input, frames, wanted, tai, .. } = self;
        if let Some(Input { ring, .. }) = input {
            let takes = |frame: &[u8]| wanted.as_ref().is_none_or(|wanted| wanted.takes(frame));
            self.stats.rx_invalid += ring.take(frames, *tai, takes);
        }
        self.stats.rx_frames += self.frames.len() as u64;
        self.done.clear();
        if self.awaited.outstanding > 0
            && let Some(tx) = &self.tx
        {
            self.awaited
                .drain(tx.as_raw_fd(), &mut self.batch, self.tai, &mut self.done, &mut |_| {})
                .map_err(|e| syscall::error("read transmit stamps", e, "CAP_NET_RAW"))?;
            self.stats.tx_stamps += self.done.len() as u64;
        }
        let memory = self.input.as_mut().map_or(&mut [][..], |input| input.ring.memory());
        let burst = RxBurst::new(memory, &mut self.frames, &self.done);
        Ok(burst.with_refused(self.refusals.show()).with_scale(self.tai.scale()))
    }

    fn tx(&mut self) -> TxBurst<'_> {
        self.stats.tx_full += u64::from(self.used == self.free.len());
        TxBurst::new(&mut self.memory, &mut self.free, &mut self.used)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        // The frames to be turned round come together at the front; the burst is over, and
        // their order is kept.
        self.frames.retain(|f| f.verdict != Verdict::Release);
        self.send(true, self.frames.len(), |port, i| {
            let f = &port.frames[i];
            let Verdict::Transmit { cookie } = f.verdict else { return (f.offset, f.len, 0) };
            (f.offset, f.len, cookie)
        })?;
        self.frames.clear();
        let used = std::mem::take(&mut self.used);
        self.send(false, used, |port, i| {
            let d = &port.free[i];
            (d.offset, d.len, d.cookie)
        })
    }

    fn wait(&mut self, until: Time) -> Result<(), PortError> {
        let now = self.tai.now();
        self.tai.refresh(now);
        if until <= now {
            return Ok(());
        }
        let Some(Input { socket, .. }) = &self.input else {
            std::thread::sleep(Duration::from_nanos((until - now) as u64));
            return Ok(());
        };
        let io = |e| syscall::error("wait for packets", e, "CAP_NET_RAW");
        let ready = syscall::poll_one(socket.as_raw_fd(), libc::POLLIN, until - now).map_err(io)?;
        if ready & libc::POLLERR != 0 {
            // The link went down. Reading the error clears it, and waiting works again.
            syscall::get(socket, libc::SOL_SOCKET, libc::SO_ERROR, 0i32).map_err(io)?;
        }
        Ok(())
    }

    fn now(&self) -> Time {
        self.tai.now()
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn stats(&mut self) -> PortStats {
        self.tai.refresh(self.tai.now());
        // Packets, drops, freezes; reading sets them to 0.
        let counts = |input: &Input| {
            syscall::get(&input.socket, libc::SOL_PACKET, PACKET_STATISTICS, [0u32; 3]).ok()
        };
        if let Some(counts) = self.input.as_ref().and_then(counts) {
            self.stats.rx_dropped += u64::from(counts[1]);
        }
        self.stats
    }

    fn set_local(&mut self, prefixes: &[Prefix]) -> Result<(), PortError> {
        if let Some(wanted) = &mut self.wanted {
            wanted.set_host(prefixes);
        }
        Ok(())
    }
}

/// The filter that cuts.
fn everything(spec: &OpenSpec) -> [libc::sock_filter; 1] {
    [filter::ret(u32::try_from(spec.snap).unwrap_or(u32::MAX))]
}

/// Whether the kernel reports how long the packets on the wire are, for each that it has joined or
/// has not cut up yet. A kernel before 6.2 refuses to for UDP, and the packet is lost.
fn tells_segments() -> bool {
    sonde_sys::host::kernel_is_at_least(6, 2)
}

/// Frames of one burst.
const BURST: usize = 64;
const TX_SLOTS: usize = 256;
/// Octets of a frame without its FCS, at most: a jumbo frame with two VLAN tags.
pub const MAX_FRAME: usize = 9022;
/// Between transmit buffers: an odd number of cache lines.
const STRIDE: usize = 143 * 64;
/// Packets awaiting their stamps.
const AWAITED: usize = 8192;
const BUFFER: i32 = 8 << 20;

// linux/if_packet.h
const PACKET_STATISTICS: i32 = 6;
const PACKET_VERSION: i32 = 10;
const PACKET_RESERVE: i32 = 12;
const PACKET_VNET_HDR: i32 = 15;
const PACKET_TIMESTAMP: i32 = 17;
const PACKET_QDISC_BYPASS: i32 = 20;
const TPACKET_V3: i32 = 2;

#[cfg(test)]
mod tests;
