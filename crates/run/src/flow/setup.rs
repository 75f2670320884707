//! From what was asked for to meters.

use std::thread;

use anyhow::Result;
use sonde_meter::flow::{Config, FlowCache, features};
use sonde_results::flow_run::FlowRunConfig;
use sonde_wire::feature::Keys;

use super::meter::Meter;
use super::selection;
use super::settings::{Field, Settings, TunnelKeys};
use super::shard::Shard;
use crate::error::RunError;
use crate::thread::{join_scoped, pin, spawn_scoped};

/// The meter of one of as many threads as there are workers. `secret` seeds the cache's hash,
/// and random sampling. `shard` says which packets are this thread's, and `points` which
/// interfaces are one observation point.
fn meter(settings: &Settings, secret: [u64; 2], shard: Shard, points: Vec<u8>) -> Result<Meter> {
    let metering = &settings.metering;
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
        flows: (metering.flows as usize).div_ceil(usize::from(settings.input.workers)),
        idle_ns: metering.idle,
        active_ns: metering.active,
        biflow: !metering.uniflow,
        vlan_in_key: !metering.no_vlan_in_key,
        observation_points: points,
        secret,
        features: fields,
    };
    config.check()?;
    let cache = FlowCache::new(config);
    let sequence = selection::sequence(&settings.selection, secret[0])?;
    Ok(Meter::new(cache, keys(settings), sequence, shard))
}

/// The meter of metering thread `worker`, in memory of the NUMA node that will use it. The
/// kernel takes memory from the node of the processor that writes it first.
pub fn meter_at(
    worker: usize,
    settings: &Settings,
    secret: [u64; 2],
    shard: Shard,
    points: &[u8],
) -> Result<Meter, RunError> {
    let make = || -> Result<Meter, RunError> {
        if let Some(&cpu) = settings.input.cpus.get(worker) {
            pin("input.cpus", cpu)?;
        }
        meter(settings, secret, shard, points.to_vec()).map_err(RunError::settings)
    };
    let made = thread::scope(|scope| join_scoped(spawn_scoped(scope, "sonde-meter", make)));
    made.map_err(anyhow::Error::from)?
}

/// Which IP header gives a flow's key.
pub fn keys(settings: &Settings) -> Keys {
    match settings.metering.keys {
        TunnelKeys::Outer => Keys::Outer,
        TunnelKeys::Inner => Keys::Inner,
    }
}

/// What was asked for, for the run file.
pub fn run_config(settings: &Settings, engine: String) -> FlowRunConfig {
    let metering = &settings.metering;
    FlowRunConfig {
        command: Vec::new(),
        // Of types whose keys are strings: this cannot fail.
        settings: serde_json::to_value(settings).unwrap_or_default(),
        engine,
        workers: settings.input.workers.into(),
        flows_max: metering.flows.into(),
        idle_ns: metering.idle,
        active_ns: metering.active,
        biflow: !metering.uniflow,
        selection: selection::describe(&settings.selection),
    }
}
