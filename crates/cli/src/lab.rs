//! `sonde lab`: devices under test made on the spot, and what tunes them.

mod args;
mod forward;
mod tune;
mod up;

pub use self::args::LabCommand;

use serde::Serialize;
use sonde_lab::Lab;
use sonde_lab::device::{BedInfo, DeviceSpec};

use self::args::{LabAction, PrintArgs};
use crate::exit::{Exit, Failure};

pub fn run(command: &LabCommand) -> Result<Exit, Failure> {
    match &command.action {
        LabAction::Up(args) => up::run(args),
        LabAction::List(args) => list(args),
        LabAction::Tune(command) => tune::run(command),
        LabAction::Down(args) => down(args),
        LabAction::Forward(args) => forward::run(args),
    }
}

/// A kind of device.
#[derive(Serialize)]
struct Kind {
    device: DeviceSpec,
    about: &'static str,
}

fn list(args: &PrintArgs) -> Result<Exit, Failure> {
    let kinds = DeviceSpec::ALL.map(|device| Kind { device, about: device.about() });
    let beds = BedInfo::all().map_err(anyhow::Error::from)?;
    if args.json {
        #[derive(Serialize)]
        struct All {
            devices: Vec<Kind>,
            beds: Vec<BedInfo>,
        }
        return print_json(&All { devices: kinds.into(), beds });
    }
    outln!("Devices:");
    for kind in kinds {
        outln!("  {:<14} {}", kind.device.to_string(), kind.about);
    }
    match beds.is_empty() {
        true => outln!("No beds."),
        false => outln!("Beds:"),
    }
    for bed in beds {
        outln!("  {:<24} {}, {}", bed.name, series(&bed), bed.placement.text());
    }
    Ok(Exit::Ok)
}

fn down(args: &PrintArgs) -> Result<Exit, Failure> {
    let removed = Lab::sweep();
    let left = sonde_lab::tune::applied_to_host().map_err(anyhow::Error::from)?;
    if args.json {
        #[derive(Serialize)]
        struct Removed {
            removed: Vec<String>,
            host_layers: Vec<sonde_lab::tune::Layer>,
        }
        return print_json(&Removed { removed, host_layers: left });
    }
    for name in &removed {
        outln!("removed {name}");
    }
    if removed.is_empty() {
        outln!("nothing was left behind; a bed that is up ends with the process that holds it");
    }
    for layer in left {
        outln!("{layer} still changes the host: 'sonde lab tune revert' restores it");
    }
    Ok(Exit::Ok)
}

/// "router", "2 x router".
fn series(bed: &BedInfo) -> String {
    match bed.devices.len() {
        0 | 1 => bed.spec.device.to_string(),
        n => format!("{n} x {}", bed.spec.device),
    }
}

fn print_json(value: &impl Serialize) -> Result<Exit, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(anyhow::Error::from)?;
    outln!("{text}");
    Ok(Exit::Ok)
}
