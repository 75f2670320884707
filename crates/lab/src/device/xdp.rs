//! The router in XDP: the kernel's routes, and the program `sonde` in the device's namespace,
//! which attaches the forwarder to both ports and counts.

use std::collections::BTreeMap;
use std::time::Duration;

use sonde_results::trial::Side;

use super::console::Console;
use super::context::DeviceContext;
use super::counter::{CounterKind, DeviceCounter};
use super::function::Function;
use super::ports::PORTS;
use crate::LabError;

#[derive(Default)]
pub(crate) struct Xdp {
    forwarder: Option<Console>,
}

impl Function for Xdp {
    fn start(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        let Some(sonde) = at.spec.sonde.as_deref().and_then(|p| p.to_str()) else {
            return Err(LabError::Bed(
                "the XDP forwarder is a part of the program sonde, which this bed was not given"
                    .into(),
            ));
        };
        at.route(0)?;
        let mut command = at.host.command(sonde);
        command.args(["lab", "forward"]).args(PORTS);
        self.forwarder = Some(Console::start("the XDP forwarder", command, PATIENCE)?);
        Ok(())
    }

    fn stop(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        self.forwarder = None;
        at.unroute()
    }

    fn counters(&self, at: &DeviceContext, all: &mut Vec<DeviceCounter>) -> Result<(), LabError> {
        let Some(forwarder) = &self.forwarder else { return Ok(()) };
        for line in forwarder.ask("counters", PATIENCE)? {
            let Some((name, value)) = line.split_once(' ') else { continue };
            let kind = match name {
                "malformed" | "refused" => CounterKind::Dropped,
                _ => CounterKind::Passed,
            };
            let value = value.parse().unwrap_or(0);
            let location = format!("{} xdp", at.name);
            all.push(DeviceCounter {
                side: Side::Device,
                location,
                name: name.into(),
                kind,
                value,
            });
        }
        Ok(())
    }

    fn facts(
        &self,
        at: &DeviceContext,
        facts: &mut BTreeMap<String, String>,
    ) -> Result<(), LabError> {
        let text = at.host.run(&["ip", "-d", "link", "show", PORTS[0]])?;
        let tokens: Vec<&str> = text.split_whitespace().collect();
        let mode = tokens.iter().find(|w| w.starts_with("xdp")).unwrap_or(&"none");
        facts.insert(at.fact("XDP program"), format!("fib lookup, {mode}"));
        Ok(())
    }
}

/// For the program to load, on a busy host.
const PATIENCE: Duration = Duration::from_secs(60);
