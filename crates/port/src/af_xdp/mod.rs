//! The AF_XDP engine: packets pass the kernel's network stack by, in memory shared with
//! the kernel, beside all other traffic of the interface.
//!
//! An XDP program ([`sonde_bpf::XskProgram`]) takes the packets of one filter, stamps
//! them and hands them to the socket of their queue; all others go on to the kernel.
//! The kernel stamps transmitted frames when it lets go of them (AF_XDP TX metadata,
//! Linux `Documentation/networking/xsk-tx-metadata.rst`).
//!
//! What the sender commits leaves on the first queue, so that this engine never
//! reorders it; a frame that is reflected leaves on the queue it came by.

mod device;
mod queue;
mod ring;
mod socket;
mod umem;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::IpAddr;

use sonde_bpf::{AttachMode, BpfError, XskFilter, XskProgram};
use sonde_wire::{StampSource, Time, TxDone, Verdict};

use self::device::Device;
use self::queue::{Queue, TX_METADATA_LEN};
use self::socket::{XskConfig, XskError};
use self::umem::Region;
use crate::clock::tai_now;
use crate::netlink::Routes;
use crate::{
    Caps, FrameDesc, OpenSpec, Port, PortError, PortStats, RxBurst, TxBurst, TxDesc, XdpMode,
};

/// An interface opened by AF_XDP. Dropping it, or the end of the process however it
/// comes, detaches the program and gives the queues back.
pub struct AfXdp {
    // Dropped in this order: no packet is redirected to a socket that is closing, and
    // the memory goes last.
    program: XskProgram,
    queues: Vec<Queue>,
    region: Region,
    device: Device,
    caps: Caps,
    busy_poll: bool,
    zero_copy: bool,
    /// The last burst and the queue (by position) of each frame.
    burst: Vec<FrameDesc>,
    burst_queues: Vec<u16>,
    /// The queue that is served first next time.
    turn: usize,
    done: Vec<TxDone>,
    /// How many of `done` the last burst showed.
    shown: usize,
    offered: Box<[TxDesc; BURST]>,
    committed: usize,
    tx_full: u64,
    /// Matching packets on queues without a socket before ours were registered.
    no_socket_before: u64,
}

/// One way to attach and bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mode {
    attach: AttachMode,
    zero_copy: bool,
}

impl AfXdp {
    /// Opens `spec.interface` for the packets of `spec.filter`, in the calling thread's
    /// network namespace.
    ///
    /// # Errors
    /// [`PortError::NoInterface`], [`PortError::Privilege`]; [`PortError::Config`] for
    /// settings that cannot work, and when another XDP program holds the interface;
    /// [`PortError::Io`] when no mode that `spec.xdp_mode` allows works: it names the
    /// last one tried.
    pub fn open(spec: &OpenSpec) -> Result<AfXdp, PortError> {
        let name = spec.interface.as_deref().ok_or_else(|| {
            PortError::Config("the af_xdp engine needs an interface; add --iface NAME".into())
        })?;
        let device = Device::find(name)?;
        let queues = chosen_queues(spec, &device)?;
        if !spec.ring.is_power_of_two() || !(64..=MAX_RING).contains(&spec.ring) {
            return Err(PortError::Config(format!(
                "a ring of {} frames cannot be made; use a power of two from 64 to {MAX_RING}",
                spec.ring
            )));
        }
        let local = local_prefixes(spec)?;
        let mut last = None;
        for mode in modes(spec.xdp_mode) {
            match Self::open_as(spec, &device, &queues, &local, *mode) {
                Ok(port) => return Ok(port),
                Err(OpenError::Fatal(error)) => return Err(error),
                Err(OpenError::Mode(error)) => last = Some(error),
            }
        }
        Err(last.expect("there is at least one mode"))
    }

    fn open_as(
        spec: &OpenSpec,
        device: &Device,
        queue_ids: &[u32],
        local: &[(IpAddr, u8)],
        mode: Mode,
    ) -> Result<AfXdp, OpenError> {
        let filter = XskFilter {
            local_ports: &spec.filter.local_ports,
            peer_ports: &spec.filter.peer_ports,
            local,
        };
        let program = XskProgram::attach(device.ifindex, &filter, mode.attach, false)
            .map_err(|e| OpenError::bpf(device, e))?;

        let frame_size = frame_size(device.mtu);
        let ring = spec.ring as u32;
        // The sender's frames belong to the first queue alone.
        let frames = |position: usize| if position == 0 { 2 * spec.ring } else { spec.ring };
        let total: usize = (0..queue_ids.len()).map(frames).sum();
        let region = Region::new(total * frame_size).map_err(|source| {
            OpenError::Fatal(PortError::Io {
                what: format!("map {} MiB of packet memory", (total * frame_size) >> 20),
                source,
                hint: "; open fewer queues or a smaller ring".into(),
            })
        })?;
        // Zero copy stamps by the card's own clock, which nothing ties to TAI here.
        let mut tx_metadata = spec.tx_stamps && !mode.zero_copy;
        let mut queues = Vec::with_capacity(queue_ids.len());
        let mut base = 0;
        for (position, &id) in queue_ids.iter().enumerate() {
            let tx_frames = if position == 0 { ring } else { 0 };
            let mut config = XskConfig {
                ifindex: device.ifindex,
                queue: id,
                umem: (region.address() + base as u64, (frames(position) * frame_size) as u64),
                frame_size: frame_size as u32,
                tx_metadata: if tx_metadata { TX_METADATA_LEN as u32 } else { 0 },
                rx: ring,
                tx: frames(position) as u32,
                // Above the number of frames: the kernel says late what it has taken.
                fill: 2 * ring,
                zero_copy: mode.zero_copy,
                multi_buffer: device.mtu > SINGLE_BUFFER_MTU && program.multi_buffer(),
                busy_poll: spec.busy_poll,
            };
            let mut made = Queue::new(config, base, ring, tx_frames);
            if tx_metadata && position == 0 && matches!(&made, Err(e) if e.is_invalid()) {
                // A kernel before 6.8 knows no transmit metadata.
                tx_metadata = false;
                config.tx_metadata = 0;
                made = Queue::new(config, base, ring, tx_frames);
            }
            let queue = made.map_err(|e| OpenError::xsk(device, id, mode, e))?;
            queue.xsk.bind().map_err(|e| OpenError::xsk(device, id, mode, e))?;
            program.register_socket(id, queue.xsk.fd()).map_err(|e| OpenError::bpf(device, e))?;
            queues.push(queue);
            base += frames(position) * frame_size;
        }
        let no_socket_before = program.counters().map_or(0, |c| c.no_socket);
        let tx_stamp = if tx_metadata { StampSource::Driver } else { StampSource::User };
        let caps = Caps {
            engine: "af_xdp",
            mode: format!(
                "{mode}, {} queue{}, need-wakeup{}",
                queues.len(),
                if queues.len() == 1 { "" } else { "s" },
                if spec.busy_poll.is_some() { ", busy polling" } else { "" },
            ),
            rx_stamp: StampSource::Driver,
            tx_stamp,
            max_frame: (device.mtu + LINK_HEADERS).min(frame_size - HEADROOM),
            link_layer: true,
        };
        // Twice: once for what `tx` takes back, once for what `rx` does.
        let completions = 2 * queues.iter().map(Queue::frames).sum::<usize>();
        Ok(AfXdp {
            program,
            queues,
            region,
            device: device.clone(),
            caps,
            busy_poll: spec.busy_poll.is_some(),
            zero_copy: mode.zero_copy,
            burst: Vec::with_capacity(BURST),
            burst_queues: Vec::with_capacity(BURST),
            turn: 0,
            done: Vec::with_capacity(completions),
            shown: 0,
            offered: Box::new([TxDesc::default(); BURST]),
            committed: 0,
            tx_full: 0,
            no_socket_before,
        })
    }

    /// Acts upon the verdicts of the last burst; whether any frame is to go out.
    fn settle_rx(&mut self) -> bool {
        if self.burst.is_empty() {
            return false;
        }
        let mut reflected = false;
        let region = self.region.bytes();
        for (frame, position) in self.burst.iter().zip(&self.burst_queues) {
            reflected |= matches!(frame.verdict, Verdict::Transmit { .. });
            self.queues[usize::from(*position)].settle(region, frame);
        }
        self.burst.clear();
        self.burst_queues.clear();
        for queue in &mut self.queues {
            queue.xsk.fill.submit();
        }
        reflected
    }

    /// Takes what was committed into the transmit ring.
    fn settle_tx(&mut self) {
        let committed = std::mem::take(&mut self.committed);
        if committed > 0 {
            self.queues[0].accept(self.region.bytes(), &self.offered[..committed]);
        }
    }

    fn kick(&mut self) -> Result<(), PortError> {
        for queue in &mut self.queues {
            // A link that is down takes completions back, which must find room.
            if self.done.capacity() - self.done.len() < queue.frames() {
                self.done.drain(..std::mem::take(&mut self.shown));
            }
            queue
                .kick(self.region.bytes(), &mut self.done)
                .map_err(|source| gone(&self.device, source))?;
        }
        Ok(())
    }

    /// Fills the burst from the queues in turn: an equal share each, then the rest.
    fn receive(&mut self) {
        let count = self.queues.len();
        let region = self.region.bytes();
        let mut now = None;
        for share in [(BURST / count).max(1), BURST] {
            for i in 0..count {
                let position = (self.turn + i) % count;
                let limit = share.min(BURST - self.burst.len());
                self.queues[position].receive(region, limit, &mut self.burst, &mut now);
                self.burst_queues.resize(self.burst.len(), position as u16);
            }
        }
        self.turn = (self.turn + 1) % count;
    }

    /// Whether something can be taken at once.
    fn ready(&mut self) -> bool {
        self.queues.iter_mut().any(|q| q.xsk.rx.refresh() > 0 || q.xsk.completion.refresh() > 0)
    }

    fn check_alive(&self) -> Result<(), PortError> {
        match self.queues.iter().find_map(|q| q.xsk.error()) {
            Some(source) if !self.device.exists() => Err(gone(&self.device, source)),
            _ => Ok(()),
        }
    }
}

impl Port for AfXdp {
    fn rx(&mut self) -> Result<RxBurst<'_>, PortError> {
        self.settle_tx();
        if self.settle_rx() {
            self.kick()?;
        }
        self.done.drain(..self.shown);
        // The receive rings first, the completions after: whatever answers a frame seen
        // now was sent before, so its completion is found too, and is shown first.
        let mut waiting = 0;
        for queue in &mut self.queues {
            waiting += queue.xsk.rx.refresh();
        }
        let region = self.region.bytes();
        for queue in &mut self.queues {
            queue.harvest(region, &mut self.done);
        }
        if waiting > 0 {
            self.receive();
        } else if self.busy_poll || self.zero_copy {
            for queue in &self.queues {
                if self.busy_poll || queue.xsk.fill.needs_wakeup() {
                    queue.xsk.kick_rx();
                }
            }
        }
        self.shown = self.done.len();
        Ok(RxBurst::new(self.region.bytes(), &mut self.burst, &self.done))
    }

    fn tx(&mut self) -> TxBurst<'_> {
        self.settle_tx();
        let first = &mut self.queues[0];
        // Completions belong to the next burst; here they are looked for only when the
        // frames run out, and only as far as `rx` will still have room for its own.
        if first.free() < BURST && self.done.len() + first.frames() <= self.done.capacity() / 2 {
            first.harvest(self.region.bytes(), &mut self.done);
        }
        let capacity = self.caps.max_frame;
        let count = first.offer(&mut self.offered[..], HEADROOM, capacity);
        if count == 0 {
            self.tx_full += 1;
        }
        TxBurst::new(self.region.bytes(), &mut self.offered[..count], &mut self.committed)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.settle_tx();
        self.settle_rx();
        self.kick()
    }

    fn wait(&mut self, until: Time) -> Result<(), PortError> {
        loop {
            let left = until - self.now();
            if left <= 0 || self.ready() {
                return Ok(());
            }
            // A removed interface wakes nobody: look up from time to time.
            if self.poll(left.min(MAX_SLEEP_NS))? {
                return Ok(());
            }
            self.check_alive()?;
        }
    }

    fn now(&self) -> Time {
        tai_now()
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn stats(&mut self) -> PortStats {
        let mut stats = PortStats { tx_full: self.tx_full, ..PortStats::default() };
        for queue in &self.queues {
            let (ours, kernels) = (&queue.counts, queue.xsk.statistics());
            stats.rx_frames += ours.rx_frames;
            // No frame in the fill ring, and no place in the receive ring, are counted
            // apart; the kernel's count of failed looks at the fill ring is about the
            // same packets as the former.
            stats.rx_dropped += kernels.rx_dropped + kernels.rx_ring_full;
            stats.rx_invalid += ours.rx_invalid + kernels.rx_invalid_descs;
            stats.tx_frames += ours.tx_frames;
            stats.tx_dropped +=
                ours.tx_dropped + kernels.tx_invalid_descs.saturating_sub(ours.voided);
            stats.tx_stamps += ours.tx_stamps;
            stats.tx_stamp_missing += ours.tx_stamp_missing;
        }
        // Ours by the filter, but on a queue that was not opened.
        let no_socket = self.program.counters().map_or(0, |c| c.no_socket);
        stats.rx_dropped += no_socket.saturating_sub(self.no_socket_before);
        stats
    }
}

impl AfXdp {
    /// Sleeps at most `nanos`; whether there was an event or a signal.
    fn poll(&self, nanos: i64) -> Result<bool, PortError> {
        let mut fds = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; MAX_QUEUES];
        for (entry, queue) in fds.iter_mut().zip(&self.queues) {
            entry.fd = queue.xsk.fd();
        }
        let timeout =
            libc::timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
        // SAFETY: `fds` has at least as many entries as there are queues, and both
        // structures outlive the call; no signal mask is passed.
        let events = unsafe {
            let count = self.queues.len() as libc::nfds_t;
            libc::ppoll(fds.as_mut_ptr(), count, &timeout, std::ptr::null())
        };
        if events >= 0 {
            return Ok(events > 0);
        }
        match io::Error::last_os_error() {
            // The caller may have been told to stop.
            error if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            source => Err(PortError::Io {
                what: format!("wait for packets on {}", self.device.name),
                source,
                hint: String::new(),
            }),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copy = if self.zero_copy { "zero copy" } else { "copy mode" };
        write!(f, "{} {copy}", self.attach.name())
    }
}

/// Why one mode does not work, and whether another may.
enum OpenError {
    Mode(PortError),
    Fatal(PortError),
}

impl OpenError {
    fn bpf(device: &Device, error: BpfError) -> Self {
        match error {
            BpfError::Privilege { what } => OpenError::Fatal(PortError::Privilege {
                what: what.to_owned(),
                capability: "CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW and CAP_PERFMON",
            }),
            BpfError::NoInterface(_) => {
                OpenError::Fatal(PortError::NoInterface(device.name.clone()))
            }
            BpfError::Mode { .. } | BpfError::Verifier { .. } => {
                OpenError::Mode(PortError::Config(error.to_string()))
            }
            BpfError::Io { what, source } => OpenError::Fatal(PortError::Io {
                what: what.to_owned(),
                source,
                hint: String::new(),
            }),
            other => OpenError::Fatal(PortError::Config(other.to_string())),
        }
    }

    fn xsk(device: &Device, queue: u32, mode: Mode, XskError { what, source }: XskError) -> Self {
        let what = format!("AF_XDP on {} queue {queue}, {mode}: {what}", device.name);
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                OpenError::Fatal(PortError::Privilege { what, capability: "CAP_NET_RAW" })
            }
            Some(libc::EBUSY) => OpenError::Fatal(PortError::Io {
                what,
                source,
                hint: "; another AF_XDP socket has this queue: stop its owner".into(),
            }),
            Some(libc::ENOBUFS | libc::ENOMEM) => OpenError::Fatal(PortError::Io {
                what,
                source,
                hint: "; raise 'ulimit -l', open fewer queues or a smaller ring".into(),
            }),
            Some(libc::EAFNOSUPPORT) => OpenError::Fatal(PortError::Io {
                what,
                source,
                hint: "; this kernel lacks CONFIG_XDP_SOCKETS: use --engine af_packet".into(),
            }),
            _ => OpenError::Mode(PortError::Io {
                what,
                source,
                hint: "; try --xdp-mode auto, or --engine af_packet".into(),
            }),
        }
    }
}

impl XskError {
    fn is_invalid(&self) -> bool {
        self.source.raw_os_error() == Some(libc::EINVAL)
    }
}

/// The socket has lost its queue, and nothing gives it back.
fn gone(device: &Device, source: io::Error) -> PortError {
    if !device.exists() {
        return PortError::NoInterface(device.name.clone());
    }
    PortError::Io {
        what: format!("send on {}", device.name),
        source,
        hint: "; the kernel took the queue away (were the queues changed?): start anew".into(),
    }
}

fn chosen_queues(spec: &OpenSpec, device: &Device) -> Result<Vec<u32>, PortError> {
    let mut queues = spec.queues.clone();
    if queues.is_empty() {
        queues = (0..device.queues).collect();
    }
    queues.sort_unstable();
    queues.dedup();
    match queues.last() {
        Some(&last) if last >= device.queues => Err(PortError::Config(format!(
            "{} has no receive queue {last}; it has {}, counted from 0 ('ethtool -l {}')",
            device.name, device.queues, device.name
        ))),
        _ if queues.len() > MAX_QUEUES => Err(PortError::Config(format!(
            "{} has {} queues; choose at most {MAX_QUEUES} with --queues",
            device.name,
            queues.len()
        ))),
        _ => Ok(queues),
    }
}

/// The filter's addresses; without any, all those that the kernel answers for.
fn local_prefixes(spec: &OpenSpec) -> Result<Vec<(IpAddr, u8)>, PortError> {
    if !spec.filter.local.is_empty() {
        let whole = |a: &IpAddr| (*a, if a.is_ipv4() { 32 } else { 128 });
        return Ok(spec.filter.local.iter().map(whole).collect());
    }
    let prefixes = Routes::open().and_then(|mut routes| routes.local_prefixes());
    prefixes.map_err(|source| PortError::Io {
        what: "read this host's own addresses".into(),
        source,
        hint: "; name them in the configuration instead".into(),
    })
}

fn modes(mode: XdpMode) -> &'static [Mode] {
    const ZERO_COPY: Mode = Mode { attach: AttachMode::Native, zero_copy: true };
    const COPY: Mode = Mode { attach: AttachMode::Native, zero_copy: false };
    const GENERIC: Mode = Mode { attach: AttachMode::Generic, zero_copy: false };
    match mode {
        XdpMode::Auto => &[ZERO_COPY, COPY, GENERIC],
        XdpMode::ZeroCopy => &[ZERO_COPY],
        XdpMode::Copy => &[COPY],
        XdpMode::Generic => &[GENERIC],
    }
}

/// The kernel takes one page at most; above an MTU of some 3,800 bytes a packet that
/// fills the link does not fit, and is counted when it comes.
fn frame_size(mtu: usize) -> usize {
    if mtu + LINK_HEADERS + HEADROOM <= 2048 { 2048 } else { 4096 }
}

/// Frames in a burst of reception or transmission.
const BURST: usize = 64;
/// Before each packet in its frame: what the kernel leaves on reception
/// (`XDP_PACKET_HEADROOM`), so that reflected and own frames look alike. Both kinds of
/// metadata lie in it.
const HEADROOM: usize = 256;
/// Ethernet with one VLAN tag: what drivers take on top of the MTU.
const LINK_HEADERS: usize = 18;
/// Above, a packet may come in several buffers.
const SINGLE_BUFFER_MTU: usize = 3400;
const MAX_RING: usize = 1 << 16;
const MAX_QUEUES: usize = 128;
/// Longest sleep before a look at whether the interface is still there.
const MAX_SLEEP_NS: i64 = 500_000_000;
