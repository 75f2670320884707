//! Probes: sends STAMP, receives the replies, and settles what became of each (RFC 8762).
//!
//! Names are resolved to targets, targets to streams (`targets`), streams to workers by the
//! port they leave by (`session`, `worker`). What leaves here are [`Event`]s.

mod collected;
mod control;
mod csv;
mod event;
mod jsonl;
pub mod names;
mod outbox;
mod session;
pub mod settings;
pub mod target_file;
mod targets;
mod unreachable;
mod worker;
mod writers;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc::Receiver;
use std::time::Duration;

pub use sonde_meter::stamp::{Delays, Fate, Sample};
pub use sonde_port::icmp::{IcmpError, IcmpKind};
use sonde_results::run::Health;

pub use self::collected::Collected;
use self::control::ReloadRequest;
pub use self::control::{Control, Reloaded};
use self::event::Changed;
pub use self::event::{About, Event, Status};
pub use self::names::resolve as look_up;
use self::outbox::Outbox;
use self::session::ProbeSession;
pub use self::settings::{Family, Settings, TargetEntry};
use self::targets::{Expanded, Target};
pub use self::unreachable::text as icmp_text;
pub use self::writers::{WriterSettings, Writers};
use crate::error::RunError;
use crate::running::{Context, Ended, Latest, Running, Stop, records};
use crate::thread::can_pin;

/// A running probe.
pub type Probe = Running<Event, Status, Control>;

/// Finds the way to every target and starts sending. A target without a way, or a name without
/// an address, is left out and reported in [`About`], unless it is the only one.
///
/// # Errors
/// Settings that cannot be; no target that can be measured; an engine that cannot be opened.
pub fn start(settings: Settings, context: &Context) -> Result<(About, Probe), RunError> {
    settings.check()?;
    can_pin("engine.cpu", settings.engine.cpu)?;
    let run = settings.run.clone().resolve();
    let Settings { targets: entries, stream, family, all_addresses, engine, .. } = &settings;
    let Expanded { targets, mut left_out } =
        targets::expand(entries, stream, *family, *all_addresses)?;
    let names = names_of(&targets, &left_out);
    let options =
        session::SessionOptions { samples: settings.samples, fragment: settings.fragment };
    let mut session = ProbeSession::open(targets, &run, engine, options)?;
    left_out.append(&mut session.left_out);
    let watch = match names.is_empty() {
        true => None,
        false => Some(names::NameWatch::start(names, *family, LOOK_UP_EVERY)?),
    };
    let caps = &session.caps[0];
    let about = About {
        streams: session.infos.clone(),
        engine: format!("{} ({})", caps.engine, caps.mode),
        start: session.start,
        clock: session.clock(),
        left_out,
        run,
        settings,
    };
    // Two records of each stream, so that a reader may be late by an interval.
    let samples = if about.settings.samples { SAMPLES } else { 0 };
    let (sender, receiver) = records(2 * about.streams.len() + samples + 4_096);
    let status = Latest::new(Status {
        sent: 0,
        received: 0,
        delays: Delays::default(),
        health: Health::default(),
        clock: about.clock,
    });
    let patience = if about.settings.samples { PATIENCE_FOR_SAMPLES } else { PATIENCE };
    let (stop, theirs) = (context.stop.clone(), status.clone());
    let asked = stop.clone();
    let (control, orders) = Control::new(about.settings.clone());
    let outbox = Outbox::new(sender);
    let work = move || drive(session, watch, (outbox, &theirs, &orders), &asked, patience);
    let running = Running::start("sonde-probe", (receiver, status, control), stop, work)?;
    Ok((about, running))
}

/// Follows a session until its end.
fn drive(
    mut session: ProbeSession,
    watch: Option<names::NameWatch>,
    (mut outbox, status, orders): (Outbox, &Latest<Status>, &Receiver<ReloadRequest>),
    stop: &Stop,
    patience: Duration,
) -> Ended {
    while !session.is_finished() {
        while let Ok(ReloadRequest { targets, done }) = orders.try_recv() {
            let changed = session.change(targets);
            if let Ok(Changed { added, ended, .. }) = &changed {
                outbox.push(Event::Added(added.clone()));
                outbox.push(Event::Ended(ended.clone()));
            }
            // Whoever asked may have gone.
            let _ = done.send(changed);
        }
        let progress = session.poll(&mut outbox);
        watch.iter().flat_map(names::NameWatch::notices).for_each(|text| tracing::warn!("{text}"));
        let (health, clock) = (session.health(), session.clock());
        status.update(|s| {
            (s.sent, s.received, s.delays) = (progress.sent, progress.received, progress.delays);
            (s.health, s.clock) = (health, clock);
        });
        if stop.is_asked() {
            session.stop();
            if stop.is_urgent() {
                session.hurry();
                // A reader who takes nothing would hold the workers up.
                break;
            }
            std::thread::sleep(PATIENCE_FOR_SAMPLES);
        } else {
            stop.wait(patience);
        }
    }
    let clock = session.clock();
    status.update(|s| s.clock = clock);
    session.close(&mut outbox, stop)
}

/// The names that are used, with their addresses, to be looked up again now and then.
fn names_of(targets: &[Target], left_out: &[(String, String)]) -> Vec<names::Watched> {
    let mut used: BTreeMap<&str, Vec<IpAddr>> =
        left_out.iter().map(|(name, _)| (name.as_str(), Vec::new())).collect();
    for target in targets {
        if let Some(name) = &target.looked_up {
            let addresses = used.entry(name).or_default();
            addresses.push(target.address);
            addresses.extend(&target.others);
        }
    }
    let watched = |(host, addresses): (&str, Vec<IpAddr>)| names::Watched {
        host: host.to_string(),
        addresses,
    };
    used.into_iter().map(watched).collect()
}

/// Between two look-ups of the names in use.
const LOOK_UP_EVERY: Duration = Duration::from_secs(60);
/// Between two looks at the workers.
const PATIENCE: Duration = Duration::from_millis(20);
/// The same where each packet is reported.
const PATIENCE_FOR_SAMPLES: Duration = Duration::from_millis(5);
/// Capacity of the queue of fates.
const SAMPLES: usize = 1 << 17;
