//! Everything that comes in by an interface, taken off it: for ports that get copies of
//! others' traffic.

use std::sync::Arc;

use sonde_bpf::{FlowInput, FlowInterface, FlowProgram};
use sonde_sys::promiscuous::Promiscuous;

use super::device::XdpDevice;
use super::open::{Mode, OpenError, device_and_queues};
use super::{AfXdp, Tap};
use crate::{OpenSpec, PortError, XdpMode};

impl AfXdp {
    /// At most `workers` ports, and no more than the interface has queues, which are dealt
    /// out in turn. Frames longer than
    /// `spec.snap` are cut by the XDP program, before they are copied anywhere.
    ///
    /// # Errors
    /// As [`AfXdp::open`]; [`PortError::Config`] for fewer bytes than headers take.
    pub fn capture(spec: &OpenSpec, workers: usize) -> Result<Vec<AfXdp>, PortError> {
        let (device, queues) = device_and_queues(spec)?;
        let ports = workers.clamp(1, queues.len());
        in_some_mode(spec, |mode| Self::capture_as(spec, &device, &queues, ports, mode, 0))
    }

    /// As one port that takes everything, and one that sends by the first queue.
    ///
    /// # Errors
    /// As [`AfXdp::capture`].
    pub fn capture_and_send(spec: &OpenSpec) -> Result<(AfXdp, AfXdp), PortError> {
        let (device, queues) = device_and_queues(spec)?;
        in_some_mode(spec, |mode| {
            let ports = Self::capture_as(spec, &device, &queues, 1, mode, SENDER_FRAMES)?;
            let mut receiver = ports.into_iter().next().expect("one port");
            let sender = receiver.split_sender(SENDER_FRAMES, mode)?;
            Ok((receiver, sender))
        })
    }

    fn capture_as(
        spec: &OpenSpec,
        device: &XdpDevice,
        queues: &[u32],
        ports: usize,
        mode: Mode,
        split: u32,
    ) -> Result<Vec<AfXdp>, OpenError> {
        // No frame is longer: nothing to cut.
        let trim = u32::try_from(spec.snap).ok().filter(|&snap| snap < 1 << 16).unwrap_or(0);
        let interface = FlowInterface { ifindex: device.ifindex, raw_ip: false };
        let (program, _) =
            FlowProgram::attach(FlowInput::Frames { trim }, &[interface], &[mode.attach])
                .map_err(|e| OpenError::bpf(device, e))?;
        let program = Arc::new(program);
        let held = Promiscuous::hold(device.ifindex).map_err(OpenError::refused)?;
        let promiscuous = Arc::new(held);
        let share = |port: usize| -> Vec<u32> {
            queues.iter().copied().skip(port).step_by(ports).collect()
        };
        let spec = OpenSpec { tx_stamps: false, ..spec.clone() };
        (0..ports)
            .map(|port| {
                let tap = Tap::Capture {
                    program: program.clone(),
                    _promiscuous: promiscuous.clone(),
                    first: port == 0,
                };
                Self::assemble(&spec, device, &share(port), mode, tap, None, split)
            })
            .collect()
    }
}

fn in_some_mode<T>(
    spec: &OpenSpec,
    mut open: impl FnMut(Mode) -> Result<T, OpenError>,
) -> Result<T, PortError> {
    let mut last = None;
    for mode in modes(spec.xdp_mode) {
        match open(*mode) {
            Ok(opened) => return Ok(opened),
            Err(OpenError::Fatal(error)) => return Err(error),
            Err(OpenError::Mode(error)) => last = Some(error),
        }
    }
    Err(last.expect("there is at least one mode"))
}

/// Zero copy first: nothing is sent with stamps, so none are lost by it.
fn modes(mode: XdpMode) -> &'static [Mode] {
    match mode {
        XdpMode::Auto => &[Mode::ZERO_COPY, Mode::COPY, Mode::GENERIC],
        XdpMode::ZeroCopy => &[Mode::ZERO_COPY],
        XdpMode::Copy => &[Mode::COPY],
        XdpMode::Generic => &[Mode::GENERIC],
    }
}

/// Frames that can wait to leave.
const SENDER_FRAMES: u32 = 4096;

#[cfg(test)]
mod tests;
