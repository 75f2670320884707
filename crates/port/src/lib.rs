//! Packet I/O: one trait, several engines.
//!
//! A packet enters Sonde at [`Port::rx`].

pub mod af_packet;
pub mod af_xdp;
pub mod burst;
mod errqueue;
pub mod guard;
pub mod headers;
pub mod icmp;
mod lasting;
pub mod mem;
pub mod pcap;
pub mod raw;
mod refusal;
pub mod socket;
pub mod spec;

pub use burst::{FrameDesc, RxBurst, TxBurst, TxDesc};
pub use spec::{Engine, Filter, OpenSpec, PortMode, XdpMode};

use sonde_sys::SysError;
use sonde_wire::prefix::Prefix;
use sonde_wire::{StampSource, Time};

/// What an engine can do, as found by trying it on the open port.
#[derive(Clone, Debug)]
pub struct Caps {
    /// The engine's name, as `--engine` takes it.
    pub engine: &'static str,
    /// How it runs, for people: "copy mode, 1 queue, need-wakeup".
    pub mode: String,
    /// Where receive stamps are taken.
    pub rx_stamp: StampSource,
    /// Where transmit stamps are taken. `User`: no [`sonde_wire::TxDone`] comes,
    /// the time at which the frame was handed over is all there is.
    pub tx_stamp: StampSource,
    /// Largest frame that can be sent, in bytes from the Ethernet header on.
    pub max_frame: usize,
    /// The link-layer header that frames are to be built with matters (`false` for sockets). There
    /// the kernel makes its own, and what the frame holds is ignored.
    pub link_layer: bool,
}

/// What a port has done and lost, since it was opened. Every loss has a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames handed to the instrument.
    pub rx_frames: u64,
    /// Frames given to the kernel or the card.
    pub tx_frames: u64,
    /// Lost on reception because our ring, block or socket buffer was full.
    pub rx_dropped: u64,
    /// Received but unusable by this engine (truncated, in several buffers).
    pub rx_invalid: u64,
    /// Frames that could not be sent (kernel refused: no route, no buffer, link down).
    pub tx_dropped: u64,
    /// No free transmit buffer when one was asked for; the sender was held back.
    pub tx_full: u64,
    /// Transmit stamps that were asked for and never came.
    pub tx_stamp_missing: u64,
    pub tx_stamps: u64,
    /// Stamps of the card's own clock that could not be of the packet, or could not be turned into
    /// TAI. The next best stamp replaced them.
    pub card_stamps_refused: u64,
    /// Times that the interface vanished. Nothing comes or goes until it has returned.
    pub interface_lost: u64,
    /// Times that it was there again and the engine was opened anew.
    pub interface_returned: u64,
    /// ICMP errors that nobody took in time.
    pub icmp_untold: u64,
}

impl PortStats {
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("rx_frames", self.rx_frames),
            ("tx_frames", self.tx_frames),
            ("rx_dropped", self.rx_dropped),
            ("rx_invalid", self.rx_invalid),
            ("tx_dropped", self.tx_dropped),
            ("tx_full", self.tx_full),
            ("tx_stamp_missing", self.tx_stamp_missing),
            ("tx_stamps", self.tx_stamps),
            ("card_stamps_refused", self.card_stamps_refused),
            ("interface_lost", self.interface_lost),
            ("interface_returned", self.interface_returned),
            ("icmp_untold", self.icmp_untold),
        ]
        .into_iter()
    }

    /// The counts of two ports, one after the other.
    #[must_use]
    pub fn plus(&self, other: &PortStats) -> PortStats {
        PortStats {
            rx_frames: self.rx_frames + other.rx_frames,
            tx_frames: self.tx_frames + other.tx_frames,
            rx_dropped: self.rx_dropped + other.rx_dropped,
            rx_invalid: self.rx_invalid + other.rx_invalid,
            tx_dropped: self.tx_dropped + other.tx_dropped,
            tx_full: self.tx_full + other.tx_full,
            tx_stamp_missing: self.tx_stamp_missing + other.tx_stamp_missing,
            tx_stamps: self.tx_stamps + other.tx_stamps,
            card_stamps_refused: self.card_stamps_refused + other.card_stamps_refused,
            interface_lost: self.interface_lost + other.interface_lost,
            interface_returned: self.interface_returned + other.interface_returned,
            icmp_untold: self.icmp_untold + other.icmp_untold,
        }
    }
}

/// A packet engine on one interface. One thread owns it.
///
/// Every frame begins with an Ethernet header, whatever the engine; the socket
/// engine makes one up for reception and skips it on transmission.
pub trait Port: Send {
    /// Takes what has arrived: first transmit completions and refusals, then frames, valid until
    /// the next call. A reply is never in a burst before its request's completion. A frame that
    /// was committed with a cookie and is known not to have left is a refusal.
    fn rx(&mut self) -> Result<RxBurst<'_>, PortError>;

    /// Free transmit buffers to fill. What is committed leaves at [`Port::flush`].
    fn tx(&mut self) -> TxBurst<'_>;

    /// Sends what was committed, and the received frames whose verdict was to transmit.
    fn flush(&mut self) -> Result<(), PortError>;

    /// Sleeps until something may be received or `until` has come (by this port's clock).
    fn wait(&mut self, until: Time) -> Result<(), PortError>;

    /// The time now, on the scale of this port's stamps.
    fn now(&self) -> Time;

    /// Hands out the ICMP errors that came for what was sent, where the engine hears of them
    /// ([`OpenSpec::icmp_errors`]).
    fn take_icmp_errors(&mut self, _each: &mut dyn FnMut(icmp::IcmpError)) {}

    /// What this engine can do.
    fn caps(&self) -> &Caps;

    /// Counts since the port was opened.
    fn stats(&mut self) -> PortStats;

    /// The addresses and prefixes of this host, which have changed. For engines below the IP
    /// stack that take packets to all of them.
    ///
    /// # Errors
    /// More of them than the engine can hold.
    fn set_local(&mut self, _prefixes: &[Prefix]) -> Result<(), PortError> {
        Ok(())
    }
}

/// Opens `engine`, and again whenever its interface is made again.
///
/// # Errors
/// Those of the engine's own `open`.
pub fn open(engine: Engine, spec: &OpenSpec) -> Result<Box<dyn Port>, PortError> {
    match &spec.interface {
        Some(name)
            if spec.mode != PortMode::Watch && (engine != Engine::Socket || spec.bind_device) =>
        {
            Ok(Box::new(lasting::Lasting::open(engine, spec, name)?))
        }
        _ => open_once(engine, spec),
    }
}

/// Opens `engine` on the interface as it is now.
fn open_once(engine: Engine, spec: &OpenSpec) -> Result<Box<dyn Port>, PortError> {
    if spec.mode == PortMode::Watch {
        let mut ports = open_group(engine, spec, 1)?;
        return Ok(ports.swap_remove(0));
    }
    Ok(match engine {
        Engine::Socket => Box::new(socket::SocketPort::open(spec)?),
        Engine::AfPacket => Box::new(af_packet::AfPacket::open(spec)?),
        Engine::AfXdp => Box::new(af_xdp::AfXdp::open(spec)?),
    })
}

/// Opens `engine` to see everything that passes one interface, by as many ports as there are
/// workers, each for a thread of its own. The mode must be [`PortMode::Watch`].
///
/// [`Engine::AfPacket`] gives every packet to the port that its two addresses belong to, whoever of
/// them sends. [`Engine::AfXdp`] gives each port its share of the interface's receive queues, of
/// which there may be fewer: then there are fewer ports. Which queue a packet comes by is the
/// card's choice. Both directions of a flow meet only if its hash is symmetric (`ethtool -X NAME
/// xfrm symmetric-xor`).
///
/// # Errors
/// [`PortError::Config`] for an engine that cannot do this, or may not; those of opening.
pub fn open_group(
    engine: Engine,
    spec: &OpenSpec,
    workers: usize,
) -> Result<Vec<Box<dyn Port>>, PortError> {
    fn boxed<P: Port + 'static>(ports: Vec<P>) -> Vec<Box<dyn Port>> {
        ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect()
    }
    match engine {
        Engine::AfPacket => af_packet::AfPacket::watch(spec, workers).map(boxed),
        Engine::AfXdp if spec.consume => af_xdp::AfXdp::capture(spec, workers).map(boxed),
        _ => Err(PortError::Config(format!(
            "engine {} takes packets away from the host; use af_packet to watch",
            engine.name()
        ))),
    }
}

/// Why a port cannot be opened or go on. Each message names the next step.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The kernel refused it.
    #[error(transparent)]
    Sys(#[from] SysError),
    /// A UDP port that somebody has: another process, or another instrument of this one.
    #[error(
        "UDP port {0} is in use, by this process or another; 'ss -ulpn' names it, or choose \
         another port"
    )]
    InUse(u16),
    /// The settings cannot work with this engine.
    #[error("{0}")]
    Config(String),
}

impl PortError {
    /// What the kernel refused with `cause`; `hint` is empty or begins with "; ".
    fn io(what: impl Into<String>, cause: std::io::Error, hint: &str) -> PortError {
        SysError::Io { what: what.into(), cause, hint: hint.into() }.into()
    }
}
