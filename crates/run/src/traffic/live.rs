//! Traffic out of a port, paced.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, anyhow};
use sonde_meter::traffic::Generator;
use sonde_port::{Engine, Filter, OpenSpec};
use sonde_sys::clock::clock_state;
use sonde_wire::Time;

use super::truth::TruthFile;
use super::{LOOK_EVERY, Made};
use crate::error::RunError;
use crate::running::Stop;

/// Sends until the traffic is over or the end is asked for. The truth has the times at which packets were
/// handed to the port.
pub(super) fn run(
    iface: &str,
    engine: Engine,
    longest_frame: usize,
    mut generator: Generator,
    truth: &mut TruthFile,
    stop: &Stop,
) -> Result<Result<Made>, RunError> {
    // An engine wants to know what it is to receive: a port that IANA keeps reserved.
    let filter = Filter {
        local: vec![Ipv4Addr::new(198, 18, 0, 0).into()],
        local_ports: vec![UNUSED_PORT],
        peer_ports: Vec::new(),
    };
    let spec = OpenSpec { tx_stamps: false, ..OpenSpec::new(Some(iface.to_owned()), filter) };
    let mut port = sonde_port::open(engine, &spec).context("cannot open the port")?;
    if longest_frame > port.caps().max_frame {
        return Err(RunError::Settings(anyhow!(
            "frames of up to {} bytes do not fit the port's {}; choose a smaller --size",
            longest_frame,
            port.caps().max_frame
        )));
    }
    // Ports count TAI, the truth UTC.
    let tai_offset = i64::from(clock_state().tai_offset_s) * 1_000_000_000;
    let utc = |at: Time| at.as_nanos() - tai_offset;
    let start = utc(port.now()) + LEAD_NS;
    let mut made = Made::default();
    let (mut behind, mut last, mut looked) = (0, start, 0);
    let mut send = || -> Result<()> {
        while let Some(due) = generator.next_at().map(|at| start + at) {
            let now = utc(port.now()).max(last);
            if due > now {
                if due - now > SPIN_NS {
                    let until = (due - SPIN_NS / 2).min(now + NAP_NS);
                    port.wait(Time::from_nanos(until + tai_offset))?;
                    made.interrupted = stop.is_asked();
                    if made.interrupted {
                        break;
                    }
                }
                continue;
            }
            behind = behind.max(now - due);
            last = now;
            // Completions give transmit buffers back.
            port.rx()?;
            let mut free = port.tx();
            for _ in 0..BURST {
                if generator.next_at().is_none_or(|at| start + at > now) {
                    break;
                }
                let Some(buffer) = free.slot() else { break };
                let len = generator.emit(now, buffer, &mut |flow| truth.add(flow));
                free.commit(len, 0);
                made.packets += 1;
                made.bytes += len as u64;
            }
            port.flush()?;
            if made.packets >= looked {
                looked = made.packets + LOOK_EVERY;
                made.interrupted = stop.is_asked();
                if made.interrupted {
                    break;
                }
            }
        }
        Ok(())
    };
    let result = send();
    generator.finish(&mut |flow| truth.add(flow));
    if let Err(error) = result {
        return Ok(Err(error));
    }
    // What is still in the port's hands leaves, or is found to have been dropped.
    for _ in 0..FLUSHES {
        port.flush().context("sending the last frames")?;
        port.rx().context("sending the last frames")?;
    }
    let stats = port.stats();
    made.seconds = (last - start) as f64 / 1e9;
    made.own_drops = Some(stats.tx_dropped);
    made.behind_s = Some(behind as f64 / 1e9);
    Ok(Ok(made))
}

/// 49151: the last registered port, reserved by IANA.
const UNUSED_PORT: u16 = 49_151;
/// From opening to the first packet, ns.
const LEAD_NS: i64 = 10_000_000;
/// The last stretch before a packet is spun, not slept, ns.
const SPIN_NS: i64 = 150_000;
/// Longest sleep before the stop is looked at again, ns.
const NAP_NS: i64 = 100_000_000;
/// Frames handed over at once.
const BURST: usize = 64;
const FLUSHES: usize = 16;
