//! From what was typed to meters and outputs.

use std::thread;

use anyhow::{Context as _, Result, anyhow};
use sonde_meter::flow::{Config, FlowCache, features};
use sonde_results::flow_run::FlowRunConfig;
use sonde_sys::schedule::pin_to_cpu;
use sonde_wire::feature::Keys;

use super::args::{Field, FlowArgs, KeysArg};
use super::meter::Meter;
use super::selection;
use super::share::Share;

/// The meter of one of as many threads as there are workers. `secret` seeds the cache's hash,
/// and chance where packets are sampled by it; `share` says which packets are this thread's,
/// and `places` which interfaces are one place.
fn meter(args: &FlowArgs, secret: [u64; 2], share: Share, places: Vec<u8>) -> Result<Meter> {
    let metering = &args.metering;
    let mut fields = features::Config::default();
    for field in &metering.fields {
        match *field {
            Field::Link => fields.link = true,
            Field::Packets(n) => fields.packets = n,
            Field::Spread => fields.spread = true,
            Field::Tcp => fields.tcp = true,
            Field::Apps => fields.apps = true,
        }
    }
    let config = Config {
        flows: (metering.flows as usize).div_ceil(usize::from(args.input.workers)),
        idle_ns: metering.idle,
        active_ns: metering.active,
        biflow: !metering.uniflow,
        vlan_in_key: !metering.no_vlan_in_key,
        places,
        secret,
        features: fields,
    };
    config.check()?;
    let cache = FlowCache::new(config);
    let sequence = selection::sequence(&args.selection, secret[0])?;
    Ok(Meter::new(cache, keys(args), sequence, share))
}

/// The meter of a thread, by its number, whose memory lies by the processor that will use it:
/// the kernel takes memory from the NUMA node of the processor that writes it first.
pub fn meter_at(
    number: usize,
    args: &FlowArgs,
    secret: [u64; 2],
    share: Share,
    places: &[u8],
) -> Result<Meter> {
    let make = || {
        if let Some(&cpu) = args.input.cpus.get(number) {
            pin_to_cpu(cpu).with_context(|| format!("--cpus: cannot run on processor {cpu}"))?;
        }
        meter(args, secret, share, places.to_vec())
    };
    thread::scope(|scope| scope.spawn(make).join()).unwrap_or_else(|_| {
        Err(anyhow!("a meter could not be made; please report what it printed"))
    })
}

/// Which IP header gives a flow's key.
pub fn keys(args: &FlowArgs) -> Keys {
    match args.metering.keys {
        KeysArg::Outer => Keys::Outer,
        KeysArg::Inner => Keys::Inner,
    }
}

/// What was asked for, for the run file.
pub fn run_config(args: &FlowArgs, engine: String) -> FlowRunConfig {
    let metering = &args.metering;
    FlowRunConfig {
        command: std::env::args().collect(),
        engine,
        workers: args.input.workers.into(),
        flows_max: metering.flows.into(),
        idle_ns: metering.idle,
        active_ns: metering.active,
        biflow: !metering.uniflow,
        selection: selection::words(&args.selection),
    }
}
