//! Probes: sends STAMP, receives the replies, and settles what became of each (RFC 8762).
//!
//! Names are resolved to targets, targets to streams (`targets`), streams to workers by the
//! port they leave by (`session`, `worker`). What leaves here are [`Event`]s.

mod collected;
mod control;
mod csv;
mod event;
mod jsonl;
mod name_watch;
pub mod names;
mod outbox;
mod pace;
mod session;
pub mod settings;
pub mod target_file;
mod targets;
mod unreachable;
mod worker;
mod writers;

use std::collections::BTreeMap;
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
use self::name_watch::NameWatch;
pub use self::names::resolve as look_up;
use self::outbox::Outbox;
use self::session::ProbeSession;
pub use self::settings::{Family, Settings, TargetEntry};
use self::targets::Expanded;
pub use self::unreachable::text as icmp_text;
pub use self::writers::{WriterSettings, Writers};
use crate::error::RunError;
use crate::running::{Context, Ended, Latest, Running, Stop, records};
use crate::thread::can_pin;

/// A running probe.
pub type Probe = Running<Event, Status, Control>;

/// Finds the way to every target and starts sending. A target without a way, or a name without
/// an address, is left out and reported in [`About`], unless it is the only one. It is tried again
/// as long as the probe runs, and a name that moves is followed.
///
/// # Errors
/// Settings that cannot be; no target that can be measured; an engine that cannot be opened.
pub fn start(settings: Settings, context: &Context) -> Result<(About, Probe), RunError> {
    settings.check()?;
    can_pin("engine.cpu", settings.engine.cpu)?;
    let run = settings.run.clone().resolve();
    let Settings { targets: entries, stream, family, all_addresses, engine, .. } = &settings;
    let Expanded { targets, left_out, .. } =
        targets::expand(entries, stream, *family, *all_addresses)?;
    let options =
        session::SessionOptions { samples: settings.samples, fragment: settings.fragment };
    let session = ProbeSession::open(targets, &run, engine, options)?;
    let missing = Missing::new(&settings, left_out)?;
    let caps = &session.caps[0];
    let about = About {
        streams: session.infos.clone(),
        engine: format!("{} ({})", caps.engine, caps.mode),
        start: session.start,
        clock: session.clock(),
        left_out: missing.all(&session),
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
    let work = move || drive(session, missing, (outbox, &theirs, &orders), &asked, patience);
    let running = Running::start("sonde-probe", (receiver, status, control), stop, work)?;
    Ok((about, running))
}

/// Targets whose names do not resolve, and who looks names up again.
struct Missing {
    watch: Option<NameWatch>,
    /// With the reason.
    unresolved: BTreeMap<String, String>,
}

impl Missing {
    fn new(settings: &Settings, left_out: Vec<(String, String)>) -> Result<Missing, RunError> {
        let watch = NameWatch::start(settings, &left_out)?;
        Ok(Missing { watch, unresolved: left_out.into_iter().collect() })
    }

    /// All targets that are not measured, with the reason.
    fn all(&self, session: &ProbeSession) -> Vec<(String, String)> {
        let unresolved = self.unresolved.iter().map(|(name, why)| (name.as_str(), why.as_str()));
        let all = unresolved.chain(session.without_way());
        all.map(|(name, why)| (name.to_owned(), why.to_owned())).collect()
    }

    /// Follows names that have moved, and tries to measure what was not; `None`: nothing is new.
    fn look(&mut self, session: &mut ProbeSession) -> Option<Changed> {
        let found: Vec<_> = self.watch.iter().flat_map(NameWatch::found).collect();
        let mut sum: Option<Changed> = None;
        let mut add = |changed: Changed| {
            let sum = sum.get_or_insert_default();
            sum.added.extend(changed.added);
            sum.ended.extend(changed.ended);
        };
        for found in found {
            self.unresolved = found.left_out;
            match session.follow_names(found.targets, &found.names) {
                Ok(changed) => add(changed),
                // The names are looked up again.
                Err(why) => session.complain(Err(anyhow::anyhow!("{why}"))),
            }
        }
        session.try_again().into_iter().for_each(add);
        sum
    }
}

/// Follows a session until its end.
fn drive(
    mut session: ProbeSession,
    mut missing: Missing,
    (mut outbox, status, orders): (Outbox, &Latest<Status>, &Receiver<ReloadRequest>),
    stop: &Stop,
    patience: Duration,
) -> Ended {
    let mut left_out = missing.all(&session);
    while !session.is_finished() {
        let mut changes = Vec::new();
        while let Ok(request) = orders.try_recv() {
            let changed = session.change(request.targets, &request.unresolved);
            if let Ok(changed) = &changed {
                changes.push(changed.clone());
                match Missing::new(&request.settings, request.left_out) {
                    Ok(new) => missing = new,
                    Err(why) => session.complain(Err(anyhow::anyhow!("{why}"))),
                }
            }
            // Whoever asked may have gone.
            let _ = request.done.send(changed);
        }
        if !stop.is_asked() {
            changes.extend(missing.look(&mut session));
        }
        if !changes.is_empty() {
            for Changed { added, ended, .. } in changes {
                if !added.is_empty() {
                    outbox.push(Event::Added(added));
                }
                if !ended.is_empty() {
                    outbox.push(Event::Ended(ended));
                }
            }
            let now = missing.all(&session);
            if now != left_out {
                outbox.push(Event::LeftOut(now.clone()));
                left_out = now;
            }
        }
        let progress = session.poll(&mut outbox);
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

/// Between two looks at the workers.
const PATIENCE: Duration = Duration::from_millis(20);
/// The same where each packet is reported.
const PATIENCE_FOR_SAMPLES: Duration = Duration::from_millis(5);
/// Capacity of the queue of fates.
const SAMPLES: usize = 1 << 17;
