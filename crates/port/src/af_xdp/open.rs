//! Opening the engine: the mode that works, memory, sockets, and what to say when none does.

use std::fmt;
use std::net::IpAddr;

use sonde_bpf::{AttachMode, BpfError, XskFilter, XskProgram};
use sonde_sys::SysError;
use sonde_sys::card_clock::CardClock;
use sonde_sys::host;
use sonde_sys::netlink::Routes;
use sonde_sys::timescale::{Stamps, Timescale};
use sonde_wire::StampSource;
use sonde_wire::prefix::Prefix;

use super::device::XdpDevice;
use super::queue::{Queue, TX_METADATA_LEN};
use super::socket::{XskConfig, XskError};
use super::umem::Region;
use super::{AfXdp, BURST, HEADROOM, MAX_QUEUES, Tap};
use crate::guard::Guard;
use crate::{Caps, FrameDesc, OpenSpec, PortError, PortMode, TxDesc, XdpMode};

/// One way to attach and bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mode {
    pub attach: AttachMode,
    pub zero_copy: bool,
}

impl Mode {
    pub(super) const ZERO_COPY: Mode = Mode { attach: AttachMode::Native, zero_copy: true };
    pub(super) const COPY: Mode = Mode { attach: AttachMode::Native, zero_copy: false };
    pub(super) const GENERIC: Mode = Mode { attach: AttachMode::Generic, zero_copy: false };
}

impl AfXdp {
    /// Opens `spec.interface` for the packets of `spec.filter`, or to transmit, in the calling
    /// thread's network namespace.
    ///
    /// # Errors
    /// [`PortError::Sys`]: no such interface, not permitted; [`PortError::Config`] for settings
    /// that cannot work, and when another XDP program holds the interface. [`PortError::Sys`] when
    /// no mode that `spec.xdp_mode` allows works: it names the last one tried.
    pub fn open(spec: &OpenSpec) -> Result<AfXdp, PortError> {
        spec.check()?;
        let (device, queues) = device_and_queues(spec)?;
        if spec.mode == PortMode::Transmit {
            return Self::open_to_transmit(spec, &device, queues[0]);
        }
        let local: Vec<_> = local_prefixes(spec)?.into_iter().map(Into::into).collect();
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
        device: &XdpDevice,
        queue_ids: &[u32],
        local: &[(IpAddr, u8)],
        mode: Mode,
    ) -> Result<AfXdp, OpenError> {
        let filter = XskFilter {
            local_ports: &spec.filter.local_ports,
            peer_ports: &spec.filter.peer_ports,
            local,
        };
        let mut card = card_clock(device).filter(|_| mode.attach == AttachMode::Native);
        let attach = |hw_stamps| {
            XskProgram::attach(device.ifindex, &filter, mode.attach, hw_stamps)
                .map_err(|e| OpenError::bpf(device, e))
        };
        let program = match attach(card.is_some()) {
            // A card with a clock, but a driver that does not show its stamps to XDP.
            Err(OpenError::Mode(_)) if card.is_some() => {
                card = None;
                attach(false)?
            }
            done => done?,
        };

        Self::assemble(spec, device, queue_ids, mode, Tap::Filter(program), card, 0)
    }

    /// Without a program: in copy mode none is needed, and other programs may hold the interface.
    /// Drivers send by zero copy only while one is attached, and their queue's packets would
    /// reach the host only by our frames: see [`AfXdp::capture_and_send`].
    fn open_to_transmit(
        spec: &OpenSpec,
        device: &XdpDevice,
        queue: u32,
    ) -> Result<AfXdp, PortError> {
        if spec.xdp_mode == XdpMode::ZeroCopy {
            let why = "a port that only transmits does so in copy mode; use --xdp-mode auto";
            return Err(PortError::Config(why.into()));
        }
        let mode = Mode { attach: AttachMode::Native, zero_copy: false };
        match Self::assemble(spec, device, &[queue], mode, Tap::Nothing, None, 0) {
            Ok(port) => Ok(port),
            Err(OpenError::Fatal(error) | OpenError::Mode(error)) => Err(error),
        }
    }

    /// Memory, sockets and the rest, for a program that is attached. `split`: frames that are
    /// there to be another half's, which sends.
    pub(super) fn assemble(
        spec: &OpenSpec,
        device: &XdpDevice,
        queue_ids: &[u32],
        mode: Mode,
        tap: Tap,
        card: Option<CardClock>,
        split: u32,
    ) -> Result<AfXdp, OpenError> {
        let sends = !matches!(tap, Tap::Capture { .. });
        let receives = !matches!(tap, Tap::Nothing);
        let frame_size = frame_size(device.mtu);
        let ring = spec.ring as u32;
        let rx_frames = if receives { ring } else { 0 };
        // The sender's frames belong to the first queue alone.
        let tx_frames = |position: usize| match position {
            0 if sends => ring,
            0 => split,
            _ => 0,
        };
        let frames = |position: usize| (rx_frames + tx_frames(position)) as usize;
        let total: usize = (0..queue_ids.len()).map(frames).sum();
        let region = Region::new(total * frame_size).map_err(|source| {
            OpenError::Fatal(PortError::io(
                format!("map {} MiB of packet memory", (total * frame_size) >> 20),
                source,
                "; open fewer queues or a smaller ring",
            ))
        })?;
        // Zero copy stamps by the card's own clock: of use only where that can be read.
        let mut tx_metadata = spec.tx_stamps && (!mode.zero_copy || card.is_some());
        let mut queues = Vec::with_capacity(queue_ids.len());
        // The first queue's memory is the last: so the sender's part can be cut off.
        let mut base = (total - frames(0)) * frame_size;
        for (position, &id) in queue_ids.iter().enumerate() {
            if position > 0 {
                base = (position - 1) * frames(position) * frame_size;
            }
            let of_sender = tx_frames(position);
            let mut config = XskConfig {
                ifindex: device.ifindex,
                queue: id,
                umem: (region.address() + base as u64, (frames(position) * frame_size) as u64),
                frame_size: frame_size as u32,
                tx_metadata: if tx_metadata { TX_METADATA_LEN as u32 } else { 0 },
                rx: rx_frames,
                tx: if sends { frames(position).next_power_of_two() as u32 } else { 0 },
                completion: frames(position).next_power_of_two() as u32,
                // Above the number of frames: the kernel says late what it has taken.
                fill: 2 * ring,
                zero_copy: mode.zero_copy,
                multi_buffer: device.mtu > SINGLE_BUFFER_MTU && tap.multi_buffer(),
                busy_poll: spec.busy_poll,
            };
            let mut made = Queue::new(config, base, rx_frames, of_sender);
            if tx_metadata && position == 0 && matches!(&made, Err(e) if e.is_invalid()) {
                // A kernel before 6.8 knows no transmit metadata.
                tx_metadata = false;
                config.tx_metadata = 0;
                made = Queue::new(config, base, rx_frames, of_sender);
            }
            let queue = made.map_err(|e| OpenError::xsk(device, id, mode, e))?;
            queue.xsk.bind().map_err(|e| OpenError::xsk(device, id, mode, e))?;
            tap.register_socket(id, queue.xsk.fd()).map_err(|e| OpenError::bpf(device, e))?;
            queues.push(queue);
        }
        // After the program: whoever has the interface is the better thing to name.
        let guard = match spec.mode {
            PortMode::Exchange => Some(Guard::reserve(&spec.filter).map_err(OpenError::Fatal)?),
            PortMode::Watch | PortMode::Transmit => None,
        };
        let no_socket_before = tap.no_socket();
        let tx_stamp = match (tx_metadata, mode.zero_copy) {
            (true, true) => StampSource::Hardware,
            (true, false) => StampSource::Driver,
            (false, _) => StampSource::User,
        };
        let caps = Caps {
            engine: "af_xdp",
            mode: match receives {
                true => format!(
                    "{mode}, {} queue{}, need-wakeup{}",
                    queues.len(),
                    if queues.len() == 1 { "" } else { "s" },
                    if spec.busy_poll.is_some() { ", busy polling" } else { "" },
                ),
                // No program is attached by whatever hook.
                false => "copy mode, transmit only, need-wakeup".into(),
            },
            rx_stamp: if card.is_some() { StampSource::Hardware } else { StampSource::Driver },
            tx_stamp,
            max_frame: if sends { longest(device) } else { 0 },
            link_layer: true,
        };
        Ok(AfXdp {
            _guard: guard,
            busy_poll: spec.busy_poll.is_some(),
            zero_copy: mode.zero_copy,
            card,
            steady: spec.steady.then(|| Timescale::new(Stamps::Tai)),
            no_socket_before,
            ..Self::with(tap, queues, region, device.clone(), caps)
        })
    }

    /// A second half of a port that takes everything, for a thread of its own. It sends, and has
    /// the `frames` that were kept for it. Drop it first: drivers send by zero copy only while the
    /// program is attached.
    pub(super) fn split_sender(&mut self, frames: u32, mode: Mode) -> Result<AfXdp, OpenError> {
        let first = &mut self.queues[0];
        let at = first.sender_at();
        let id = first.xsk.queue();
        let queue = first.split_sender(frames);
        let queue = queue.map_err(|e| OpenError::xsk(&self.device, id, mode, e))?;
        let region = self.region.split_off(at);
        let caps = Caps {
            mode: format!("{mode}, transmit only, need-wakeup"),
            tx_stamp: StampSource::User,
            max_frame: longest(&self.device),
            ..self.caps.clone()
        };
        let half = Self::with(Tap::Nothing, vec![queue], region, self.device.clone(), caps);
        Ok(AfXdp { zero_copy: self.zero_copy, ..half })
    }

    fn with(tap: Tap, queues: Vec<Queue>, region: Region, device: XdpDevice, caps: Caps) -> AfXdp {
        // Twice: once for what `tx` takes back, once for what `rx` does.
        let completions = 2 * queues.iter().map(Queue::frames).sum::<usize>();
        AfXdp {
            tap,
            queues,
            region,
            _guard: None,
            device,
            caps,
            busy_poll: false,
            zero_copy: false,
            card: None,
            burst: Vec::<FrameDesc>::with_capacity(BURST),
            burst_queues: Vec::with_capacity(BURST),
            turn: 0,
            done: Vec::with_capacity(completions),
            refusals: crate::refusal::Refusals::new(completions),
            steady: None,
            shown: 0,
            offered: Box::new([TxDesc::default(); BURST]),
            committed: 0,
            tx_full: 0,
            no_socket_before: 0,
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
pub(super) enum OpenError {
    Mode(PortError),
    Fatal(PortError),
}

impl OpenError {
    pub fn refused(error: SysError) -> Self {
        OpenError::Fatal(error.into())
    }

    pub fn bpf(device: &XdpDevice, error: BpfError) -> Self {
        match error {
            BpfError::Privilege { what, .. } => OpenError::refused(SysError::Privilege {
                what: what.to_owned(),
                capability: "CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW and CAP_PERFMON",
            }),
            BpfError::NoInterface(_) => {
                OpenError::refused(SysError::NoInterface(device.name.clone()))
            }
            BpfError::Mode { .. } | BpfError::Verifier { .. } => {
                OpenError::Mode(PortError::Config(error.to_string()))
            }
            BpfError::Io { what, cause } => OpenError::Fatal(PortError::io(what, cause, "")),
            other => OpenError::Fatal(PortError::Config(other.to_string())),
        }
    }

    fn xsk(
        device: &XdpDevice,
        queue: u32,
        mode: Mode,
        XskError { what, source }: XskError,
    ) -> Self {
        let what = format!("AF_XDP on {} queue {queue}, {mode}: {what}", device.name);
        let hint = match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                return OpenError::refused(SysError::Privilege { what, capability: "CAP_NET_RAW" });
            }
            Some(libc::EBUSY) => "; another AF_XDP socket has this queue: stop its owner",
            Some(libc::ENOBUFS | libc::ENOMEM) => {
                "; raise 'ulimit -l', open fewer queues or a smaller ring"
            }
            Some(libc::EAFNOSUPPORT) => {
                "; this kernel lacks CONFIG_XDP_SOCKETS: use --engine af_packet"
            }
            _ => {
                let hint = "; try --xdp-mode auto, or --engine af_packet";
                return OpenError::Mode(PortError::io(what, source, hint));
            }
        };
        OpenError::Fatal(PortError::io(what, source, hint))
    }
}

impl XskError {
    fn is_invalid(&self) -> bool {
        self.source.raw_os_error() == Some(libc::EINVAL)
    }
}

/// The interface, and which of its queues to open.
pub(super) fn device_and_queues(spec: &OpenSpec) -> Result<(XdpDevice, Vec<u32>), PortError> {
    let name = spec.interface.as_deref().ok_or_else(|| {
        PortError::Config("the af_xdp engine needs an interface; add --iface NAME".into())
    })?;
    let device = XdpDevice::find(name)?;
    let queues = chosen_queues(spec, &device)?;
    if !spec.ring.is_power_of_two() || !(64..=MAX_RING).contains(&spec.ring) {
        return Err(PortError::Config(format!(
            "a ring of {} frames cannot be made; use a power of two from 64 to {MAX_RING}",
            spec.ring
        )));
    }
    Ok((device, queues))
}

fn chosen_queues(spec: &OpenSpec, device: &XdpDevice) -> Result<Vec<u32>, PortError> {
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
fn local_prefixes(spec: &OpenSpec) -> Result<Vec<Prefix>, PortError> {
    if !spec.filter.local.is_empty() {
        return Ok(spec.filter.local.iter().copied().map(Prefix::of).collect());
    }
    let prefixes = Routes::open().and_then(|mut routes| routes.local_prefixes());
    prefixes.map_err(|e| {
        let hint = "; name them in the configuration instead";
        PortError::io("read this host's own addresses", e, hint)
    })
}

/// The clock of a card that can stamp what it receives. Whether it does is up to its
/// settings (`hwstamp_ctl`), which belong to whoever keeps its clock.
fn card_clock(device: &XdpDevice) -> Option<CardClock> {
    let stamps = host::InterfaceFacts::read(&device.name).ok()?.stamps;
    CardClock::open(stamps.phc?).ok()
}

fn modes(mode: XdpMode) -> &'static [Mode] {
    match mode {
        // Not zero copy: where the card's clock cannot be read it gives no transmit
        // stamps, and those are worth more here than the last million packets.
        XdpMode::Auto => &[Mode::COPY, Mode::GENERIC],
        XdpMode::ZeroCopy => &[Mode::ZERO_COPY],
        XdpMode::Copy => &[Mode::COPY],
        XdpMode::Generic => &[Mode::GENERIC],
    }
}

/// The kernel takes one page at most. Above an MTU of some 3,800 bytes a packet that fills the link
/// does not fit, and is counted when it comes.
fn frame_size(mtu: usize) -> usize {
    if mtu + LINK_HEADERS + HEADROOM <= 2048 { 2048 } else { 4096 }
}

/// Octets of a frame that can be sent.
pub(super) fn longest(device: &XdpDevice) -> usize {
    (device.mtu + LINK_HEADERS).min(frame_size(device.mtu) - HEADROOM)
}

/// Ethernet with one VLAN tag: what drivers take on top of the MTU.
const LINK_HEADERS: usize = 18;
/// Above, a packet may come in several buffers.
const SINGLE_BUFFER_MTU: usize = 3400;
const MAX_RING: usize = 1 << 16;
