//! The AF_XDP engine: packets pass the kernel's network stack by, in memory shared with
//! the kernel, beside all other traffic of the interface.
//!
//! An XDP program ([`sonde_bpf::XskProgram`]) takes the packets of one filter, stamps them and
//! hands them to the socket of their queue. All others go on to the kernel. The kernel stamps
//! transmitted frames when it lets go of them (AF_XDP TX metadata, Linux
//! `Documentation/networking/xsk-tx-metadata.rst`).
//!
//! What the sender commits leaves on the first queue, so that this engine never reorders it. A
//! frame that is reflected leaves on the queue it came by. A port that takes everything can have a
//! second half that sends, for a thread of its own ([`AfXdp::capture_and_send`]).

mod capture;
mod device;
mod open;
mod queue;
mod ring;
mod socket;
mod umem;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use sonde_bpf::{BpfError, FlowProgram, XskProgram};
use sonde_wire::prefix::Prefix;
use sonde_wire::{StampSource, Time, TxDone, Verdict};

use sonde_sys::SysError;
use sonde_sys::card_clock::CardClock;
use sonde_sys::clock::tai_now;
use sonde_sys::promiscuous::Promiscuous;
use sonde_sys::timescale::Timescale;

use self::device::XdpDevice;
use self::queue::Queue;
use self::umem::Region;
use crate::guard::Guard;
use crate::refusal::Refusals;
use crate::{Caps, FrameDesc, Port, PortError, PortStats, RxBurst, TxBurst, TxDesc};

/// An interface opened by AF_XDP. Dropping it, or the end of the process however it
/// comes, detaches the program and gives the queues back.
pub struct AfXdp {
    // Dropped in this order: no packet is redirected to a socket that is closing, and
    // the memory goes last.
    tap: Tap,
    queues: Vec<Queue>,
    region: Region,
    /// No other process takes the ports, and the kernel answers for none of them. `None`: it
    /// has no filter.
    _guard: Option<Guard>,
    device: XdpDevice,
    caps: Caps,
    busy_poll: bool,
    zero_copy: bool,
    /// Of a card that stamps frames and lets its clock be read.
    card: Option<CardClock>,
    /// The last burst and the queue (by position) of each frame.
    burst: Vec<FrameDesc>,
    burst_queues: Vec<u16>,
    /// The queue that is served first next time.
    turn: usize,
    done: Vec<TxDone>,
    refusals: Refusals,
    /// Where its time is to be steady.
    steady: Option<Timescale>,
    /// How many of `done` the last burst showed.
    shown: usize,
    offered: Box<[TxDesc; BURST]>,
    committed: usize,
    tx_full: u64,
    /// Matching packets on queues without a socket before ours were registered.
    no_socket_before: u64,
}

/// The program that fills the sockets.
enum Tap {
    /// For the packets of one filter.
    Filter(XskProgram),
    /// For all, the program of several ports at once.
    Capture {
        program: Arc<FlowProgram>,
        /// So that a mirror port's card hands up what is addressed to others.
        _promiscuous: Arc<Promiscuous>,
        /// One of them answers for what belongs to none.
        first: bool,
    },
    /// For none: it transmits.
    Nothing,
}

impl Tap {
    fn register_socket(&self, queue: u32, fd: RawFd) -> Result<(), BpfError> {
        match self {
            Tap::Filter(program) => program.register_socket(queue, fd),
            Tap::Capture { program, .. } => program.register_socket(queue, fd),
            Tap::Nothing => Ok(()),
        }
    }

    fn multi_buffer(&self) -> bool {
        match self {
            Tap::Filter(program) => program.multi_buffer(),
            Tap::Capture { program, .. } => program.multi_buffer(),
            Tap::Nothing => false,
        }
    }

    /// Packets that were ours, but came by a queue without a socket.
    fn no_socket(&self) -> u64 {
        match self {
            Tap::Filter(program) => program.counters().map_or(0, |c| c.no_socket),
            Tap::Capture { program, first: true, .. } => {
                program.counters().map_or(0, |c| c.no_socket)
            }
            Tap::Capture { first: false, .. } | Tap::Nothing => 0,
        }
    }
}

impl AfXdp {
    /// Acts upon the verdicts of the last burst; whether any frame is to go out.
    fn settle_rx(&mut self) -> bool {
        if self.burst.is_empty() {
            return false;
        }
        let mut reflected = false;
        let region = self.region.bytes();
        for (frame, position) in self.burst.iter().zip(&self.burst_queues) {
            reflected |= matches!(frame.verdict, Verdict::Transmit { .. });
            self.queues[usize::from(*position)].settle(region, frame, &mut self.refusals);
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
            let offered = &self.offered[..committed];
            self.queues[0].accept(self.region.bytes(), offered, &mut self.refusals);
        }
    }

    fn kick(&mut self) -> Result<(), PortError> {
        for queue in &mut self.queues {
            // A link that is down takes completions back, which must find room.
            if self.done.capacity() - self.done.len() < queue.frames() {
                self.done.drain(..std::mem::take(&mut self.shown));
            }
            queue
                .kick(self.region.bytes(), &mut self.done, &mut self.refusals)
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
                let card = self.card.as_ref();
                self.queues[position].receive(region, limit, &mut self.burst, card, &mut now);
                self.burst_queues.resize(self.burst.len(), position as u16);
            }
        }
        self.turn = (self.turn + 1) % count;
    }

    /// Whether something can be taken at once. Completions of a port that transmits are of no
    /// use to anybody but its next frames, unless they bring stamps.
    fn ready(&mut self) -> bool {
        if matches!(self.tap, Tap::Nothing) && self.caps.tx_stamp == StampSource::User {
            return false;
        }
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
        self.refusals.begin();
        if let Some(steady) = &mut self.steady {
            steady.refresh();
        }
        self.settle_tx();
        if self.settle_rx() {
            self.kick()?;
        }
        self.done.drain(..self.shown);
        if let Some(card) = &mut self.card {
            card.refresh(tai_now());
        }
        // The receive rings first, the completions after: whatever answers a frame seen
        // now was sent before, so its completion is found too, and is shown first.
        let mut waiting = 0;
        for queue in &mut self.queues {
            waiting += queue.xsk.rx.refresh();
        }
        let region = self.region.bytes();
        for queue in &mut self.queues {
            queue.harvest(region, self.card.as_ref(), &mut self.done, &mut self.refusals);
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
        if let Some(steady) = self.steady.as_ref().filter(|steady| !steady.is_plain()) {
            let stamps = self.burst.iter_mut().map(|frame| &mut frame.stamp);
            for stamp in stamps.chain(self.done.iter_mut().map(|done| &mut done.stamp)) {
                stamp.at = steady.steady(stamp.at.as_nanos());
            }
        }
        let burst = RxBurst::new(self.region.bytes(), &mut self.burst, &self.done);
        let scale = self.steady.as_ref().map(Timescale::scale);
        Ok(burst.with_refused(self.refusals.show()).with_scale(scale))
    }

    fn tx(&mut self) -> TxBurst<'_> {
        self.settle_tx();
        let first = &mut self.queues[0];
        // Completions belong to the next burst. Here they are looked for only when the frames run
        // out, and only as far as `rx` will still have room for its own.
        if first.free() < BURST && self.done.len() + first.frames() <= self.done.capacity() / 2 {
            let card = self.card.as_ref();
            first.harvest(self.region.bytes(), card, &mut self.done, &mut self.refusals);
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
        self.steady.as_ref().map_or_else(tai_now, Timescale::now)
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn stats(&mut self) -> PortStats {
        let mut stats = PortStats { tx_full: self.tx_full, ..PortStats::default() };
        for queue in &self.queues {
            let (ours, kernels) = (&queue.counts, queue.xsk.statistics());
            stats.rx_frames += ours.rx_frames;
            // No frame in the fill ring, and no room in the receive ring, are counted apart. The
            // kernel's count of failed looks at the fill ring is about the same packets as the
            // former.
            stats.rx_dropped += kernels.rx_dropped + kernels.rx_ring_full;
            stats.rx_invalid += ours.rx_invalid + kernels.rx_invalid_descs;
            stats.tx_frames += ours.tx_frames;
            stats.tx_dropped +=
                ours.tx_dropped + kernels.tx_invalid_descs.saturating_sub(ours.voided);
            stats.tx_stamps += ours.tx_stamps;
            stats.tx_stamp_missing += ours.tx_stamp_missing;
            stats.card_stamps_refused += ours.card_stamps_refused;
        }
        // Ours by the filter, but on a queue that was not opened.
        stats.rx_dropped += self.tap.no_socket().saturating_sub(self.no_socket_before);
        stats
    }

    fn set_local(&mut self, prefixes: &[Prefix]) -> Result<(), PortError> {
        let Tap::Filter(program) = &self.tap else { return Ok(()) };
        let prefixes: Vec<_> = prefixes.iter().map(|&prefix| prefix.into()).collect();
        program.update_local(&prefixes).map_err(|error| PortError::Config(error.to_string()))
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
            // The caller may have been stopped.
            error if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            error => {
                Err(PortError::io(format!("wait for packets on {}", self.device.name), error, ""))
            }
        }
    }
}

/// The socket has lost its queue, and nothing gives it back.
fn gone(device: &XdpDevice, source: io::Error) -> PortError {
    if !device.exists() {
        return SysError::NoInterface(device.name.clone()).into();
    }
    PortError::io(
        format!("send on {}", device.name),
        source,
        "; the kernel took the queue away (were the queues changed?): start anew",
    )
}

/// Frames in a burst of reception or transmission.
const BURST: usize = 64;
/// Before each packet in its frame: what the kernel leaves on reception
/// (`XDP_PACKET_HEADROOM`), so that reflected and own frames look alike. Both kinds of
/// metadata lie in it.
const HEADROOM: usize = 256;
/// Octets of a frame without its FCS, at most: of the larger of the two sizes of buffers.
pub const FRAME_MAX: usize = 4096 - HEADROOM;
const MAX_QUEUES: usize = 128;
/// Longest sleep before a look at whether the interface is still there.
const MAX_SLEEP_NS: i64 = 500_000_000;
