//! The loop between a port and an instrument: a packet enters at [`Port::rx`], a
//! record leaves at [`Instrument::poll_record`]. And the one between a port and what only sends.

use sonde_meter::{Instrument, Paced};
use sonde_port::{Port, PortError};
use sonde_sys::schedule::WAKE_UP_NS;
use sonde_wire::{Time, Verdict};

/// The result of one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// The time that everything in it was given.
    pub now: Time,
    /// Frames that the port handed over.
    pub received: usize,
    /// Frames sent, reflected ones included.
    pub sent: usize,
}

impl Turn {
    /// Nothing came and nothing was due.
    pub fn is_idle(self) -> bool {
        self.received == 0 && self.sent == 0
    }
}

/// One turn: completions, received frames, sends that are due, time-outs. One clock
/// read, one receive, at most one flush; nothing is allocated.
///
/// # Errors
/// The port's.
pub fn turn<I: Instrument>(port: &mut dyn Port, instrument: &mut I) -> Result<Turn, PortError> {
    let now = port.now();
    let mut burst = port.rx()?;
    if let Some(scale) = burst.scale() {
        instrument.set_scale(scale, now);
    }
    for &done in burst.done() {
        instrument.transmitted(done);
    }
    for &refused in burst.refused() {
        instrument.refused(refused);
    }
    let (received, mut sent) = (burst.len(), 0);
    for i in 0..received {
        let (frame, stamp) = burst.frame(i);
        let verdict = instrument.input(frame, stamp, now);
        if verdict != Verdict::Release {
            burst.set_verdict(i, verdict);
            sent += 1;
        }
    }
    let mut free = port.tx();
    for _ in 0..SEND_BURST {
        let Some(buffer) = free.slot() else { break };
        let Some(packet) = instrument.poll_transmit(now, buffer) else { break };
        free.commit(packet.len, packet.cookie);
        sent += 1;
    }
    if sent > 0 {
        port.flush()?;
    }
    instrument.handle_timeout(now);
    Ok(Turn { now, received, sent })
}

/// After an idle turn: sleeps if nothing is due for long enough. Otherwise it returns at once,
/// and the caller spins the last stretch and sends on time. Returns until when it meant to
/// sleep, if it slept.
///
/// # Errors
/// The port's.
pub fn rest<I: Instrument>(
    port: &mut dyn Port,
    instrument: &I,
    now: Time,
    until: Time,
) -> Result<Option<Time>, PortError> {
    let due = instrument.poll_timeout().map_or(until, |t| t.min(until));
    Ok(doze(port, now, due)?.then_some(due))
}

/// One turn of what only sends: what is due, as one burst of `PACED_BURST` frames at most, or the
/// wait for it. Of that no more than `longest` ns are slept; with 0 it is spun all the time. How
/// many frames were handed over is returned.
///
/// One reading of the clock a turn: the frames of a burst that is late share it.
///
/// # Errors
/// The port's.
#[inline]
pub fn send(port: &mut dyn Port, load: &mut impl Paced, longest: i64) -> Result<usize, PortError> {
    let Some(due) = load.due() else { return Ok(0) };
    let now = port.now();
    if now < due {
        if !doze(port, now, due.min(now + longest))? {
            std::hint::spin_loop();
        }
        return Ok(0);
    }
    let mut free = port.tx();
    let mut sent = 0;
    while sent < PACED_BURST
        && let Some(buffer) = free.slot()
        && let Some(len) = load.write(now, buffer)
    {
        free.commit(len, load.cookie());
        sent += 1;
    }
    port.flush()?;
    Ok(sent)
}

/// Sleeps until shortly before `due`, unless that is too soon. Returns whether it slept.
fn doze(port: &mut dyn Port, now: Time, due: Time) -> Result<bool, PortError> {
    if due - now <= 2 * WAKE_UP_NS {
        return Ok(false);
    }
    port.wait(due - WAKE_UP_NS)?;
    Ok(true)
}

/// Sends in one turn: few, so that replies are fetched between them.
const SEND_BURST: usize = 16;
/// Where nothing is fetched.
const PACED_BURST: usize = 64;
