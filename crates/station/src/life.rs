//! One life of a unit: its instrument is started, followed and joined on a thread of its own.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use sonde_run::error::RunError;
use sonde_run::running::{Context, Ended, Invocation, Next, Running, Stop};
use sonde_run::{flow, probe, reflect, rtt};
use sonde_testbed::{agent, otg};

use crate::hub::{Hub, Report, Said};
use crate::supervise::{Exit, Happened, Instance};
use crate::unit::{Instrument, Unit};

/// What a life is given.
pub(crate) struct Life {
    /// Whose it is.
    pub instance: Instance,
    /// Asks it to end.
    pub stop: Stop,
    /// Where it tells what happens to it.
    pub inbox: Sender<(Instance, Happened)>,
    /// Where its records go.
    pub hub: Hub,
    /// How the program was started.
    pub invocation: Invocation,
}

impl Life {
    /// Runs the instrument until its end, and tells of that, also after a panic. `orders`:
    /// settings to go over to while it runs.
    pub fn run(self, unit: &Unit, orders: &Receiver<Arc<Unit>>) {
        let mut last = LastWords { life: &self, exit: None };
        last.exit = Some(match self.enter(unit).and_then(|()| self.follow(unit, orders)) {
            Ok(()) => Exit::Done,
            Err(RunError::Settings(error)) => Exit::Refused(error.to_string()),
            Err(error) => Exit::Failed(error.to_string()),
        });
    }

    /// The instrument's threads stay where they are started. A namespace may come later.
    fn enter(&self, unit: &Unit) -> Result<(), RunError> {
        let Some(netns) = &unit.netns else { return Ok(()) };
        Ok(sonde_sys::netns::enter(netns).map_err(anyhow::Error::from)?)
    }

    fn follow(&self, unit: &Unit, orders: &Receiver<Arc<Unit>>) -> Result<(), RunError> {
        let context = Context {
            stop: self.stop.clone(),
            invocation: self.invocation.clone(),
            ..Context::default()
        };
        match &unit.instrument {
            Instrument::Probe(settings) => {
                let (about, running) = probe::start(Self::filled(settings), &context)?;
                self.began(Said::Probe(Box::new(about)));
                self.read(running, orders, Said::ProbeEvent, |control, new| match new {
                    Instrument::Probe(new) => control.reload(Self::filled(new)).map(drop),
                    _ => Ok(()),
                })
            }
            Instrument::Reflect(settings) => {
                let (about, running) = reflect::start((**settings).clone(), &context)?;
                self.began(Said::Reflector(about));
                self.read(running, orders, Said::Reflected, |(), _| Ok(()))
            }
            Instrument::Rtt(settings) => {
                let (about, running) = rtt::start((**settings).clone(), &context)?;
                self.began(Said::Rtt(Box::new(about)));
                self.read(running, orders, Said::RttEvents, |_, _| Ok(()))
            }
            Instrument::Flow(settings) => {
                let settings = flow::Settings { records: true, ..(**settings).clone() };
                let sources = settings.sources.clone();
                let running = flow::start(settings, &context)?;
                self.began(Said::Flow);
                self.say(Said::FlowSources(sources));
                self.read(running, orders, Said::Flows, |_, _| Ok(()))
            }
            Instrument::Otg(settings) => {
                let (about, running) = otg::start((**settings).clone(), &context)?;
                self.began(Said::Serves(about.url));
                self.read(running, orders, |never| match never {}, |(), _| Ok(()))
            }
            Instrument::Agent(settings) => {
                let (about, running) = agent::start((**settings).clone(), &context)?;
                if about.ends_soon {
                    tracing::warn!(
                        "{}: {} is out of date within a month; 'sonde agent cert --renew' where it \
                         was made",
                        self.instance.unit,
                        settings.cert.display()
                    );
                }
                self.began(Said::Serves(about.address.to_string()));
                self.read(running, orders, Said::Controller, |(), _| Ok(()))
            }
        }
    }

    /// With what holds in a station where the configuration does not say it.
    fn filled(settings: &probe::Settings) -> probe::Settings {
        let mut settings = settings.clone();
        settings.run.late_limit.get_or_insert(LATE_LIMIT_NS);
        settings
    }

    fn began(&self, said: Said) {
        self.say(said);
        self.tell(Happened::Started);
    }

    /// Hands records on until the instrument's end, and gives it what it is to go over to.
    fn read<R, S, C: Sync>(
        &self,
        running: Running<R, S, C>,
        orders: &Receiver<Arc<Unit>>,
        as_said: impl Fn(R) -> Said,
        adjust: impl Fn(&C, &Instrument) -> Result<(), RunError> + Sync,
    ) -> Result<(), RunError> {
        let mut lost = 0;
        std::thread::scope(|scope| {
            loop {
                match running.records.next(PATIENCE) {
                    Next::Record(record) => self.say(as_said(record)),
                    Next::Nothing => {}
                    Next::End => break,
                }
                let lost_now = running.records.lost();
                if lost_now > lost {
                    self.say(Said::Lost(lost_now - lost));
                    lost = lost_now;
                }
                if let Ok(new) = orders.try_recv() {
                    let (control, adjust) = (&running.control, &adjust);
                    // Names may be looked up for seconds. Records do not wait for it.
                    scope.spawn(move || {
                        if let Err(error) = adjust(control, &new.instrument) {
                            self.tell(Happened::NotAdjusted(error.to_string()));
                        }
                    });
                }
            }
        });
        let Ended { counters, health, caveats, failure } = running.join();
        self.say(Said::Ended { counters, health, caveats });
        failure.map_or(Ok(()), Err)
    }

    fn say(&self, said: Said) {
        self.hub.hand(&Arc::new(Report { unit: self.instance.unit.clone(), said }));
    }

    fn tell(&self, happened: Happened) {
        // The station's own thread may have gone: then nobody is interested.
        let _ = self.inbox.send((self.instance.clone(), happened));
    }
}

/// Tells of a life's end, however it comes.
struct LastWords<'a> {
    life: &'a Life,
    exit: Option<Exit>,
}

impl Drop for LastWords<'_> {
    fn drop(&mut self) {
        let panicked = || Exit::Failed("its thread panicked; the message above says where".into());
        self.life.tell(Happened::Exited(self.exit.take().unwrap_or_else(panicked)));
    }
}

/// From when on a probe of a station counts as late where its settings do not say, ns. The same on
/// every host and at every start: a virtual machine that is well wakes a thread within 1 ms or two, and
/// 10 ms harm no schedule of probes that judge others.
pub(crate) const LATE_LIMIT_NS: i64 = 10_000_000;
/// For a record, before orders are looked at.
const PATIENCE: Duration = Duration::from_millis(50);
