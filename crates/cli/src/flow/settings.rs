//! From what was typed to meters and outputs.

use anyhow::Result;
use sonde_meter::flow::{Config, FlowCache, features};
use sonde_results::flow_run::FlowRunConfig;
use sonde_wire::feature::Keys;

use super::args::{Field, FlowArgs, KeysArg};
use super::meter::Meter;
use super::selection;
use crate::settings::secrets;

/// The meter of one of `workers` threads.
pub fn meter(args: &FlowArgs, workers: usize) -> Result<Meter> {
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
        flows: (metering.flows as usize).div_ceil(workers),
        idle_ns: metering.idle,
        active_ns: metering.active,
        biflow: !metering.uniflow,
        secret: secrets(metering.seed),
        features: fields,
    };
    config.check()?;
    let cache = FlowCache::new(config);
    let sequence = selection::sequence(&args.selection, secrets(metering.seed)[0])?;
    Ok(Meter::new(cache, keys(args), sequence))
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
