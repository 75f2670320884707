//! Traffic out of a port, paced.

use anyhow::{Context as _, Result};
use sonde_meter::Paced;
use sonde_meter::traffic::FlowGenerator;
use sonde_port::{Engine, OpenSpec, Port};
use sonde_sys::clock::clock_state;
use sonde_wire::Time;

use super::truth::TruthFile;
use super::{LOOK_EVERY, TrafficReport};
use crate::error::{RunError, SettingsError};
use crate::pump;
use crate::running::{Latest, Stop};

/// Opens the port for frames of up to `longest_frame` octets.
pub(super) fn open(
    iface: &str,
    engine: Engine,
    longest_frame: usize,
) -> Result<Box<dyn Port>, RunError> {
    let port = sonde_port::open(engine, &OpenSpec::transmit(iface.to_owned()))
        .with_context(|| format!("cannot send on {iface} by {}", engine.name()))?;
    let room = port.caps().max_frame;
    match longest_frame > room {
        true => {
            let why = format!(
                "`sizes`: frames of up to {longest_frame} bytes do not fit the {room} of {iface}; \
                 choose a smaller size"
            );
            Err(SettingsError::of("sizes", why).into())
        }
        false => Ok(port),
    }
}

/// Sends until the traffic is over or the end is asked for. The truth has the times at which
/// packets were handed to the port.
///
/// # Errors
/// The port fails: [`RunError::Host`].
pub(super) fn run(
    mut port: Box<dyn Port>,
    generator: FlowGenerator,
    truth: &mut TruthFile,
    status: &Latest<TrafficReport>,
    stop: &Stop,
) -> Result<TrafficReport, RunError> {
    let tai_offset = i64::from(clock_state().tai_offset_s) * 1_000_000_000;
    let start = port.now() + LEAD_NS;
    let mut made = TrafficReport::default();
    let mut paced = Timed { generator, truth, start, tai_offset, last: start, behind: 0, bytes: 0 };
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
            if sent > 0 {
                // Completions give transmit buffers back.
                port.rx()?;
            }
        }
        Ok(())
    };
    let result = send();
    (made.packets, made.bytes) = (paced.generator.packets(), paced.bytes);
    made.seconds = (paced.last - start) as f64 / 1e9;
    made.behind_s = Some(paced.behind as f64 / 1e9);
    let Timed { generator, truth, .. } = paced;
    generator.finish(&mut |flow| truth.add(flow));
    result?;
    // What is still in the port's hands leaves, or is found to have been dropped.
    for _ in 0..FLUSHES {
        port.flush().context(LAST)?;
        port.rx().context(LAST)?;
    }
    let stats = port.stats();
    made.own_drops = Some(stats.tx_dropped);
    Ok(made)
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
}

/// From opening to the first packet, ns.
const LEAD_NS: i64 = 10_000_000;
/// Longest sleep before the stop is looked at again, ns.
const NAP_NS: i64 = 100_000_000;
const FLUSHES: usize = 16;
const LAST: &str = "cannot send the last frames; is the interface still up ('ip link')?";

#[cfg(test)]
mod tests {
    use sonde_meter::traffic::Config;
    use sonde_port::mem::PathModel;

    use super::super::TruthForm;
    use super::*;
    use crate::virtual_time::ReflectedPort;

    #[test]
    fn a_port_that_fails_is_a_failure_of_the_host_and_not_of_what_is_saved() {
        let begin = Time::from_nanos(1_700_000_000_000_000_000);
        let (mut port, _) = ReflectedPort::new(begin, &PathModel::default());
        port.fails_at = Some(begin + 1_000_000_000);
        let generator = FlowGenerator::new(Config { rate: 1_000, ..Config::default() }).unwrap();
        let mut truth = TruthFile::create(None, TruthForm::Full).unwrap();
        let status = Latest::new(TrafficReport::default());
        let ended = run(Box::new(port), generator, &mut truth, &status, &Stop::default());
        let Err(RunError::Host(error)) = ended else { panic!("{ended:?}") };
        assert!(error.to_string().contains("the cable was cut"), "{error}");
    }
}
