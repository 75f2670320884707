//! Everything that comes in by an interface, taken off it: for ports that get copies of
//! others' traffic.

use std::sync::Arc;

use sonde_bpf::{AttachMode, FlowInput, FlowInterface, FlowProgram};
use sonde_sys::promiscuous::Promiscuous;

use super::device::Device;
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
        let mut last = None;
        for mode in modes(spec.xdp_mode) {
            match Self::capture_as(spec, &device, &queues, ports, *mode) {
                Ok(ports) => return Ok(ports),
                Err(OpenError::Fatal(error)) => return Err(error),
                Err(OpenError::Mode(error)) => last = Some(error),
            }
        }
        Err(last.expect("there is at least one mode"))
    }

    fn capture_as(
        spec: &OpenSpec,
        device: &Device,
        queues: &[u32],
        ports: usize,
        mode: Mode,
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
                Self::assemble(&spec, device, &share(port), mode, tap, None)
            })
            .collect()
    }
}

/// Zero copy first: nothing is sent, so nothing is lost of the stamps by it.
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

#[cfg(test)]
mod tests;
