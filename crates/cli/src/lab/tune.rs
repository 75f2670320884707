//! `sonde lab tune`: layers of optimisation, applied and reverted one by one.

use anyhow::anyhow;
use serde::Serialize;
use sonde_lab::device::BedInfo;
use sonde_lab::tune::{self, Layer, LayerScope, SettingChange};

use super::args::{ApplyArgs, RevertArgs, TuneAction, TuneCommand, TuneListArgs};
use crate::exit::{Exit, Failure};

pub(super) fn run(command: &TuneCommand) -> Result<Exit, Failure> {
    match &command.action {
        TuneAction::List(args) => list(args),
        TuneAction::Apply(args) => apply(args),
        TuneAction::Revert(args) => revert(args),
    }
}

/// A layer, and how it stands with a bed.
#[derive(Serialize)]
struct Row {
    layer: Layer,
    about: &'static str,
    scope: LayerScope,
    /// Whether it is applied; `None` without a bed.
    applied: Option<bool>,
    /// Why it cannot be applied now; `None` if it can.
    why_not: Option<String>,
}

fn list(args: &TuneListArgs) -> Result<Exit, Failure> {
    let bed = match (&args.bed, BedInfo::all().map_err(anyhow::Error::from)?) {
        (None, beds) if beds.is_empty() => None,
        (name, beds) => Some(choose(name.as_deref(), beds)?),
    };
    let applied = match &bed {
        Some(bed) => Some(tune::applied(bed).map_err(anyhow::Error::from)?),
        None => None,
    };
    let row = |layer: Layer| Row {
        layer,
        about: layer.about(),
        scope: layer.scope(),
        applied: applied.as_ref().map(|all| all.contains(&layer)),
        why_not: bed.as_ref().and_then(|bed| layer.applies(bed).err()),
    };
    let rows = Layer::ALL.map(row);
    if args.json {
        return super::print_json(&rows);
    }
    match &bed {
        Some(bed) => outln!("{}: {}", bed.name, super::series(bed)),
        None => outln!("No bed is up: what applies depends on it ('sonde lab up')."),
    }
    for row in rows {
        let state = match (row.applied, &row.why_not) {
            (Some(true), _) => "applied".to_owned(),
            (Some(false), None) => "can be applied".to_owned(),
            (Some(false), Some(why)) => why.clone(),
            (None, _) => String::new(),
        };
        let whole_host = if row.scope == LayerScope::Host { " (the whole host)" } else { "" };
        outln!("  {:<14} {}{whole_host}", row.layer.name(), row.about);
        if !state.is_empty() {
            outln!("  {:<14}   {state}", "");
        }
    }
    Ok(Exit::Ok)
}

/// A change, as JSON has it.
#[derive(Serialize)]
struct Done {
    layer: Layer,
    #[serde(flatten)]
    change: SettingChange,
}

fn apply(args: &ApplyArgs) -> Result<Exit, Failure> {
    let bed = choose(args.bed.as_deref(), BedInfo::all().map_err(anyhow::Error::from)?)?;
    let mut done = Vec::new();
    for &layer in &args.layers {
        let changes = tune::apply(layer, &bed, args.host).map_err(anyhow::Error::from)?;
        if !args.json {
            for c in &changes {
                outln!("{layer}: {} {} -> {}", c.setting, shown(&c.former), shown(&c.value));
            }
        }
        done.extend(changes.into_iter().map(|change| Done { layer, change }));
    }
    if args.json { super::print_json(&done) } else { Ok(Exit::Ok) }
}

fn revert(args: &RevertArgs) -> Result<Exit, Failure> {
    let mut beds = BedInfo::all().map_err(anyhow::Error::from)?;
    if args.bed.is_some() {
        beds = vec![choose(args.bed.as_deref(), beds)?];
    }
    let mut done = Vec::new();
    if args.layers.is_empty() {
        for bed in &beds {
            done.extend(tune::revert_all(bed).map_err(anyhow::Error::from)?);
        }
        if args.bed.is_none() {
            done.extend(tune::revert_host().map_err(anyhow::Error::from)?);
        }
    } else {
        for &layer in args.layers.iter().rev() {
            for bed in &beds {
                let changes = tune::revert(layer, bed).map_err(anyhow::Error::from)?;
                done.extend(changes.into_iter().map(|change| (layer, change)));
            }
        }
    }
    if args.json {
        let done: Vec<Done> =
            done.into_iter().map(|(layer, change)| Done { layer, change }).collect();
        return super::print_json(&done);
    }
    for (layer, change) in &done {
        outln!("{layer}: {} restored to {}", change.setting, shown(&change.former));
    }
    if done.is_empty() {
        outln!("nothing was applied");
    }
    Ok(Exit::Ok)
}

/// The bed of that name, or the only one.
fn choose(name: Option<&str>, mut beds: Vec<BedInfo>) -> Result<BedInfo, Failure> {
    let names: Vec<String> = beds.iter().map(|b| b.name.clone()).collect();
    let names = names.join(", ");
    if let Some(name) = name {
        let found = beds.into_iter().find(|b| b.name == name);
        return found
            .ok_or_else(|| Failure::Usage(anyhow!("no bed '{name}' is up; there is: {names}")));
    }
    match beds.len() {
        1 => Ok(beds.remove(0)),
        0 => Err(Failure::Usage(anyhow!("no bed is up: 'sonde lab up DEVICE' makes one"))),
        _ => Err(Failure::Usage(anyhow!("several beds are up, name one with --bed: {names}"))),
    }
}

/// A value for a line of text: rules are long.
fn shown(value: &str) -> String {
    match value.lines().count() {
        0 => "(none)".into(),
        1 => value.into(),
        n => format!("({n} lines)"),
    }
}
