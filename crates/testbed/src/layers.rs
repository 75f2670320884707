//! Layers of optimisation, as conditions and ablations apply them: those of the lab, and
//! "batch", which is the tester's own.

use anyhow::{Context as _, Result};
use sonde_lab::device::{BedSpec, LabBed};
use sonde_lab::tune::{Layer, LayerScope, apply, revert};
use sonde_meter::trial::{NextTrial, Procedure};
use sonde_results::Trial;
use sonde_results::bench::Finding;

/// The names of all layers.
pub fn names() -> Vec<&'static str> {
    Layer::ALL.iter().map(|l| l.name()).chain([BATCH]).collect()
}

/// Those of the lab among them, in the order in which they can be applied: a thread must be
/// there before it can be pinned.
fn of_lab(names: &[String]) -> Vec<Layer> {
    let mut layers: Vec<Layer> = names.iter().filter_map(|name| name.parse().ok()).collect();
    layers.sort();
    layers
}

/// What the bed itself is to be for these layers.
///
/// # Errors
/// A layer that this device cannot have.
pub fn build(spec: &mut BedSpec, names: &[String]) -> Result<()> {
    for layer in of_lab(names).into_iter().filter(|l| l.scope() == LayerScope::Build) {
        layer.build(spec).map_err(anyhow::Error::msg).with_context(|| format!("layer {layer}"))?;
    }
    Ok(())
}

/// Layers that are applied to a bed.
pub struct Applied(Vec<Layer>);

impl Applied {
    /// Applies them. A layer that changes nothing here is left out, and named in `idle`: what it
    /// wants is so already, or there is no thread to pin. An ablation measures it all the same,
    /// and finds no share.
    pub fn apply(bed: &LabBed, names: &[String], host: bool) -> Result<(Applied, Vec<String>)> {
        let (mut applied, mut idle) = (Applied(Vec::new()), Vec::new());
        for layer in of_lab(names).into_iter().filter(|l| l.scope() != LayerScope::Build) {
            if let Err(why) = layer.applies(bed.info()) {
                idle.push(format!("layer {layer} changes nothing: {why}"));
                continue;
            }
            if let Err(e) = apply(layer, bed.info(), host) {
                applied.revert(bed)?;
                return Err(e).with_context(|| format!("layer {layer}"));
            }
            applied.0.push(layer);
        }
        Ok((applied, idle))
    }

    /// Takes them back, the last first.
    pub fn revert(&mut self, bed: &LabBed) -> Result<()> {
        while let Some(layer) = self.0.pop() {
            revert(layer, bed.info()).with_context(|| format!("layer {layer}"))?;
        }
        Ok(())
    }
}

/// A procedure whose frames leave so many at a time where they would leave one by one.
struct Batched(Box<dyn Procedure + Send>, u32);

/// `procedure` with bursts of the plan's, and batched if that is among the layers.
pub fn batched(
    procedure: Box<dyn Procedure + Send>,
    burst: u32,
    names: &[String],
) -> Box<dyn Procedure + Send> {
    let batch = if names.iter().any(|name| name == BATCH) { BATCH_FRAMES } else { 1 };
    match burst.max(batch) {
        1 => procedure,
        frames => Box::new(Batched(procedure, frames)),
    }
}

impl Procedure for Batched {
    fn next(&mut self) -> Option<NextTrial> {
        let mut next = self.0.next()?;
        next.offer.burst = next.offer.burst.max(self.1);
        Some(next)
    }

    fn observe(&mut self, trial: &Trial) {
        self.0.observe(trial);
    }

    fn finding(&self) -> Finding {
        self.0.finding()
    }

    fn remaining_ns(&self) -> i64 {
        self.0.remaining_ns()
    }

    fn remaining_trials(&self) -> u32 {
        self.0.remaining_trials()
    }
}

/// The layer of the tester: frames leave in batches.
const BATCH: &str = "batch";
/// Frames of a batch, as DPDK and most drivers have it.
const BATCH_FRAMES: u32 = 32;
