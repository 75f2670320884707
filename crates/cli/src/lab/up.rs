//! `sonde lab up`: a bed, held until Ctrl-C.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use sonde_lab::Lab;
use sonde_lab::device::{BedInfo, BedSpec, LabBed};
use sonde_lab::tune::{self, Layer, LayerScope};
use sonde_run::running::Stop;

use super::args::UpArgs;
use crate::exit::{Exit, Failure};
use crate::signals;

pub(super) fn run(args: &UpArgs) -> Result<Exit, Failure> {
    let stop = signals::stop()?;
    Lab::sweep();
    let mut spec = spec(args)?;
    let (build, later): (Vec<Layer>, Vec<Layer>) =
        args.with.iter().partition(|l| l.scope() == LayerScope::Build);
    for layer in build {
        layer.build(&mut spec).map_err(|why| Failure::Usage(anyhow!("{layer}: {why}")))?;
    }
    let bed = LabBed::build(&spec).map_err(anyhow::Error::from)?;
    let host: Vec<Layer> =
        later.iter().copied().filter(|l| l.scope() == LayerScope::Host).collect();
    let held = hold(&bed, &later, args, &stop);
    // A bed's own settings go with it; the host's do not.
    for layer in host.into_iter().rev() {
        tune::revert(layer, bed.info())
            .with_context(|| format!("cannot revert {layer}: try 'sonde lab tune revert'"))?;
    }
    held?;
    Ok(Exit::Ok)
}

fn hold(bed: &LabBed, layers: &[Layer], args: &UpArgs, stop: &Stop) -> Result<()> {
    for layer in layers {
        tune::apply(*layer, bed.info(), args.host)?;
    }
    let mut out = std::io::stdout().lock();
    // Whoever started this may have gone: that is no reason to take the bed down.
    let _ = if args.json {
        writeln!(out, "{}", serde_json::to_string(bed.info())?)
    } else {
        write!(out, "{}", text(bed.info()))
    };
    let _ = out.flush();
    while !stop.wait(Duration::from_secs(3600)) {}
    Ok(())
}

fn spec(args: &UpArgs) -> Result<BedSpec> {
    let sonde = std::env::current_exe().context("cannot find this program's own file")?;
    let wanted = BedSpec {
        chain: args.chain,
        mtu: args.mtu,
        queues: args.queues,
        sonde: Some(sonde),
        ..BedSpec::new(args.device)
    };
    if args.inline {
        return Ok(wanted);
    }
    let apart = wanted.apart();
    Ok(BedSpec {
        own_cpu: args.cpu.or(apart.own_cpu),
        tester_cpu: args.tester_cpu.or(apart.tester_cpu),
        ..apart
    })
}

/// What somebody needs to use it by hand.
fn text(bed: &BedInfo) -> String {
    let mut text = format!("{}: {}\n", bed.name, super::series(bed));
    bed.diagram().iter().for_each(|wire| text += &format!("  {wire}\n"));
    text += &format!("placement: {}\n", bed.placement.text());
    for port in &bed.ports {
        text +=
            &format!("port {}: ip netns exec {} ... {}\n", port.name, port.netns, port.interface);
        for a in &port.addresses {
            text += &format!("  {} of {}, next hop {}\n", a.address, a.network, a.next_hop);
        }
    }
    for device in &bed.devices {
        let (name, netns) = (&device.name, &device.netns);
        text +=
            &format!("device {name}: ip netns exec {netns} ... {}\n", device.interfaces.join(" "));
    }
    text + "up; Ctrl-C removes it\n"
}
