//! Traffic out of a port, paced.
//!
//! It is finite and cannot wait. Where its interface goes down, loses its carrier or is deleted, it
//! ends with that failure, and the truth has what left until then.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use sonde_meter::Paced;
use sonde_meter::traffic::{Config, FlowGenerator};
use sonde_port::{Engine, OpenSpec, Port, RxBurst};
use sonde_sys::clock::clock_state;
use sonde_sys::link_settings::mtu;
use sonde_sys::netlink::{Link, Links};
use sonde_wire::ethernet::{FCS_LEN, HEADER_LEN as ETHERNET};
use sonde_wire::{NotSent, Time};

use super::truth::TruthFile;
use super::{LOOK_EVERY, TrafficReport};
use crate::error::{RunError, SettingsError};
use crate::pump;
use crate::running::{Latest, Stop};

/// A port, and the interface that it sends by.
pub(super) struct Outlet {
    port: Box<dyn Port>,
    interface: String,
}

/// Opens the port for the frames of `config`.
pub(super) fn open(iface: &str, engine: Engine, config: &Config) -> Result<Outlet, RunError> {
    let port = sonde_port::open(engine, &OpenSpec::transmit(iface.to_owned()))
        .with_context(|| format!("cannot send on {iface} by {}", engine.name()))?;
    let (longest, room) = (config.longest_frame(), port.caps().max_frame);
    if longest > room {
        let why = format!(
            "`sizes`: frames of up to {longest} bytes do not fit the {room} of {iface}; choose a \
             smaller size"
        );
        return Err(SettingsError::of("sizes", why).into());
    }
    let longest = config.sizes.longest() - FCS_LEN;
    let mtu = mtu(iface).with_context(|| format!("cannot ask for the MTU of {iface}"))?;
    if longest > mtu + HEADERS {
        return Err(RunError::Host(anyhow!(
            "`sizes`: {iface} with its MTU of {mtu} does not take frames of {longest} bytes; choose a \
             smaller size, or 'ip link set {iface} mtu {}'",
            longest - ETHERNET
        )));
    }
    Ok(Outlet { port, interface: iface.to_owned() })
}

/// Sends until the traffic is over or the end is asked for. The truth has the times at which
/// packets were handed to the port. With a failure comes what was made until then.
pub(super) fn run(
    Outlet { mut port, interface }: Outlet,
    mut generator: FlowGenerator,
    truth: &mut TruthFile,
    status: &Latest<TrafficReport>,
    stop: &Stop,
) -> (TrafficReport, Option<RunError>) {
    let tai_offset = i64::from(clock_state().tai_offset_s) * 1_000_000_000;
    let start = port.now() + LEAD_NS;
    generator.keep_recent(RECENT);
    let mut made = TrafficReport::default();
    let mut paced = Timed { generator, truth, start, tai_offset, last: start, behind: 0, bytes: 0 };
    let mut refused = Refused::default();
    let mut looked = 0;
    let mut send = || -> Result<()> {
        while paced.due().is_some() {
            let sent = pump::send(port.as_mut(), &mut paced, NAP_NS)?;
            let packets = paced.generator.packets();
            if sent == 0 || packets >= looked {
                looked = packets + LOOK_EVERY;
                status.update(|s| (s.packets, s.bytes) = (packets, paced.bytes));
                made.interrupted = stop.is_asked();
                if made.interrupted {
                    break;
                }
            }
            // Completions give transmit buffers back, and what was refused is shown.
            if sent > 0 && refused.has_lost_link(&port.rx()?, packets, &interface) {
                return Ok(());
            }
        }
        // What is still in the port's hands leaves, or is found to have been dropped.
        for _ in 0..FLUSHES {
            port.flush().context(LAST)?;
            if refused.has_lost_link(&port.rx()?, paced.generator.packets(), &interface) {
                return Ok(());
            }
        }
        Ok(())
    };
    let failed = send().err();
    let Timed { mut generator, truth, bytes, last, behind, .. } = paced;
    // From the first of them on nothing has left.
    let unsent = refused.lost_from.map_or(0, |first| generator.packets() + 1 - first);
    let (taken, octets) = generator.take_back(unsent);
    (made.packets, made.bytes) = (generator.packets(), bytes - octets);
    made.seconds = (last - start) as f64 / 1e9;
    made.behind_s = Some(behind as f64 / 1e9);
    generator.finish(&mut |flow| truth.add(flow));
    made.own_drops = Some(port.stats().tx_dropped.saturating_sub(taken));
    made.too_long = refused.too_long;
    made.filtered = refused.filtered;
    let failure = match failed {
        Some(error) => Some(error),
        None if refused.lost_from.is_some() => {
            Some(anyhow!(lost_link(&interface, made.packets, unsent - taken)))
        }
        None => None,
    };
    (made, failure.map(RunError::Host))
}

/// What the port refused.
#[derive(Default)]
struct Refused {
    /// The first packet that did not leave because the link was gone, counted from 1.
    lost_from: Option<u64>,
    /// The first of the latest packets of which none left, for want of room.
    stretch: Option<u64>,
    /// When that was last found to have another reason than a link without a carrier.
    looked: Option<Instant>,
    /// Packets that were longer than the interface takes.
    too_long: u64,
    /// Packets that this host's packet filter refused.
    filtered: u64,
}

impl Refused {
    /// Takes what `burst` shows, after `packets` were handed over. Whether the link is gone.
    fn has_lost_link(&mut self, burst: &RxBurst<'_>, packets: u64, interface: &str) -> bool {
        let all = burst.refused();
        if all.is_empty() {
            self.stretch = None;
            return false;
        }
        let of = |why| all.iter().filter(move |r| r.why == why).map(|r| r.cookie);
        self.too_long += of(NotSent::TooLong).count() as u64;
        self.filtered += of(NotSent::Refused).count() as u64;
        self.lost_from = of(NotSent::LinkDown).min();
        // A link without a carrier takes nothing, and the kernel calls that a lack of room.
        let first = of(NotSent::NoBuffer).min().filter(|first| {
            packets + 1 - first == all.len() as u64 || self.stretch.is_some_and(|s| s < *first)
        });
        self.stretch = first.map(|first| self.stretch.map_or(first, |begun| begun.min(first)));
        // One that is being deleted refuses its last frames for want of room first.
        if let (Some(down), Some(begun)) = (self.lost_from, self.stretch) {
            self.lost_from = Some(down.min(begun));
        }
        if self.lost_from.is_none()
            && self.stretch.is_some()
            && self.looked.is_none_or(|at| at.elapsed() >= CARRIER)
        {
            self.looked = Some(Instant::now());
            if link(interface).is_some_and(|link| !link.running) {
                self.lost_from = self.stretch;
            }
        }
        self.lost_from.is_some()
    }
}

fn link(name: &str) -> Option<Link> {
    Links::open().and_then(|mut links| links.all()).ok()?.into_iter().find(|l| l.name == name)
}

/// What happened to an interface that takes nothing any more. `more` did not leave either, and are
/// in the truth.
fn lost_link(interface: &str, left: u64, more: u64) -> String {
    // One that is being deleted goes down first.
    let begun = Instant::now();
    let mut now = link(interface);
    while now.as_ref().is_some_and(|link| !link.running) && begun.elapsed() < DELETING {
        std::thread::sleep(CARRIER);
        now = link(interface);
    }
    let what = match now {
        None => format!("{interface} has vanished"),
        Some(link) if link.running => format!("{interface} was down or away for a moment"),
        Some(_) => format!("{interface} is down or has no carrier"),
    };
    let truth = match more {
        0 => "these, and no others, are in the truth".to_owned(),
        _ => format!("the truth has them, and {more} that did not leave"),
    };
    format!(
        "{what}: {left} packets had left by then; {truth}. See 'ip link show {interface}', and run \
         again"
    )
}

/// A generator at the time of a port.
struct Timed<'a> {
    generator: FlowGenerator,
    truth: &'a mut TruthFile,
    start: Time,
    /// Ports count TAI, the truth UTC.
    tai_offset: i64,
    last: Time,
    /// The longest delay of a packet behind its time, ns.
    behind: i64,
    bytes: u64,
}

impl Paced for Timed<'_> {
    fn due(&self) -> Option<Time> {
        self.generator.next_at().map(|at| self.start + at)
    }

    fn write(&mut self, now: Time, buffer: &mut [u8]) -> Option<usize> {
        let due = self.due().filter(|&due| due <= now)?;
        self.behind = self.behind.max(now - due);
        // A clock that is set back does not make packets go back in time.
        self.last = self.last.max(now);
        let truth = &mut *self.truth;
        let at = self.last.as_nanos() - self.tai_offset;
        let len = self.generator.emit(at, buffer, &mut |flow| truth.add(flow));
        self.bytes += len as u64;
        Some(len)
    }

    /// How many there are with it.
    fn cookie(&self) -> u64 {
        self.generator.packets()
    }
}

/// From opening to the first packet, ns.
const LEAD_NS: i64 = 10_000_000;
/// Longest sleep before the stop is looked at again, ns.
const NAP_NS: i64 = 100_000_000;
const FLUSHES: usize = 16;
/// Packets that may be found not to have left: more than wait in a port.
const RECENT: usize = 1 << 14;
/// Between two looks whether there is a carrier, while nothing leaves.
const CARRIER: Duration = Duration::from_millis(10);
/// How long an interface that is down is given to vanish.
const DELETING: Duration = Duration::from_millis(300);
/// Before the IP packet: Ethernet, with a tag that the kernel does not count.
const HEADERS: usize = ETHERNET + 4;
const LAST: &str = "cannot send the last frames; is the interface still up ('ip link')?";

#[cfg(test)]
mod tests;
