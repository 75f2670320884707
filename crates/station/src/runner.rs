//! Does what the supervisor decides. Here alone are threads started and clocks read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use sonde_run::confined::{Uses, beyond};
use sonde_run::error::RunError;
use sonde_run::running::{Invocation, Latest, Stop};
use sonde_run::thread;
use sonde_store::{EventId, Reader, StoreError, StoredEvent};
use sonde_sys::clock::steady_now;
use sonde_wire::time::Time;

use crate::alert::alerting::{AlertInput, Teller};
use crate::alert::delivery::{self, AlertService, AlertStatus};
use crate::alert::settings::AlertSettings;
use crate::alert::silence::Mute;
use crate::config::Config;
use crate::explain::thread::{ExplainService, SharedBook};
use crate::hub::{Hub, Report, Said};
use crate::interfaces::WatchList;
use crate::interfaces::thread::InterfaceService;
use crate::judge::thread::JudgeService;
use crate::judge::{JudgeStatus, Standing};
use crate::keep::settings::StoreSettings;
use crate::keep::thread::{Keeper, KeeperStatus};
use crate::life::Life;
use crate::plan::{Plan, UnitId};
use crate::reload::{ReloadError, Step};
use crate::supervise::{Action, Happened, Instance, PATIENCE, Supervisor, UnitState};
use crate::unit::Unit;

/// A station at work.
pub struct Station {
    /// Where records of all units are subscribed to.
    pub hub: Hub,
    /// What each unit does.
    pub states: Latest<BTreeMap<UnitId, UnitState>>,
    /// How often the supervisor has looked at all units; it stands still where that hangs.
    pub turns: Arc<AtomicU64>,
    orders: Sender<Order>,
    thread: JoinHandle<Vec<UnitId>>,
    kept: Option<Vec<Uses>>,
    keeper: Keeper,
    store: StoreSettings,
    judge: JudgeService,
    explain: ExplainService,
    alerts: Option<Alerts>,
    interfaces: InterfaceService,
    name: String,
}

/// Alerts, and what asks them to end.
struct Alerts {
    service: Arc<AlertService>,
    stop: Stop,
}

/// What is left when a station has ended.
#[derive(Debug, Default)]
pub struct StationEnded {
    /// Units that did not end in time: what they measured last is lost.
    pub stuck: Vec<UnitId>,
    /// What became of the records.
    pub store: KeeperStatus,
    /// What was judged last.
    pub judge: JudgeStatus,
}

/// Why a reload changes nothing.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Units that cannot run side by side.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Conflict(Vec<ReloadError>),
    /// Units need rights that the station gave up when it started.
    #[error(
        "{} needs rights that the station gave up when it started; restart it",
        .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    Rights(Vec<Uses>),
    /// A station keeps its store as long as it runs.
    #[error("store.path cannot change from {} while the station runs; restart it", .0.display())]
    Store(PathBuf),
    /// And the server that it writes to.
    #[error("store.url, password_file and spool cannot change while the station runs; restart it")]
    StoreServer,
    /// Alerts begin and end with the station.
    #[error("[alert] cannot come or go while the station runs; restart it")]
    AlertsCome,
    /// The settings of alerts cannot be, on this host.
    #[error("{0}")]
    Alerts(RunError),
}

struct Order {
    plan: Plan<Unit>,
    /// Only look whether it can be.
    foresee: bool,
    done: SyncSender<Result<Vec<Step>, Vec<ReloadError>>>,
}

/// Runs the units of `config` until `stop` is asked for. Who is to get their first records
/// subscribes to `hub` before. `kept`: what it still has of root's rights; `None`: all.
///
/// # Errors
/// No thread to be had.
pub fn start(
    config: Config,
    hub: Hub,
    stop: Stop,
    kept: Option<Vec<Uses>>,
    invocation: Invocation,
) -> Result<Station, RunError> {
    let station = config.station_name();
    let keeper = Keeper::start(&config.store, &station, &hub)?;
    let (alerts, judge, explain) = match start_judging(&station, &config, &keeper, &hub) {
        Ok(all) => all,
        Err(error) => {
            keeper.end();
            return Err(error);
        }
    };
    let watched = WatchList::of(&config.plan, &config.interfaces);
    let interfaces = match InterfaceService::start(watched, explain.handle().book(), &hub) {
        Ok(interfaces) => interfaces,
        Err(error) => {
            judge.end();
            explain.end();
            alerts.into_iter().for_each(Alerts::end);
            keeper.end();
            return Err(error);
        }
    };
    let (orders, given) = channel();
    let (inbox, happens) = channel();
    // Whoever asks before the first turn finds all units, too.
    let states = config.plan.iter().map(|(id, _)| (id.clone(), UnitState::Starting)).collect();
    let states = Latest::new(states);
    let turns = Arc::new(AtomicU64::new(0));
    let runner = Runner {
        supervisor: Supervisor::new(steady_now().as_nanos() as u64),
        lives: BTreeMap::new(),
        inbox,
        hub: hub.clone(),
        stop,
        states: states.clone(),
        turns: turns.clone(),
        invocation,
        hurried: false,
    };
    let work = move || runner.run(config.plan, &given, &happens);
    let thread = thread::spawn("sonde-station", work)?;
    let (name, store) = (station, config.store);
    Ok(Station {
        hub,
        states,
        turns,
        orders,
        thread,
        kept,
        keeper,
        store,
        judge,
        explain,
        alerts,
        interfaces,
        name,
    })
}

/// Alerts first: the judge tells them what lasts.
fn start_judging(
    station: &str,
    config: &Config,
    keeper: &Keeper,
    hub: &Hub,
) -> Result<(Option<Alerts>, JudgeService, ExplainService), RunError> {
    let alerts = config.alert.as_ref().map(|settings| Alerts::start(settings, station));
    let alerts = alerts.transpose()?;
    let service = alerts.as_ref().map(|alerts| alerts.service.clone());
    let explain = match ExplainService::start(station, keeper.store.clone(), &config.plan) {
        Ok(explain) => explain,
        Err(error) => {
            alerts.into_iter().for_each(Alerts::end);
            return Err(error);
        }
    };
    let told = (service, Some(explain.handle().clone()));
    let (store, units) = (keeper.store.clone(), unit_ids(&config.plan));
    let (folder, settings) = (&config.store.path, config.judge.clone());
    match JudgeService::start(station, folder, settings, units, store, told, hub) {
        Ok(judge) => Ok((alerts, judge, explain)),
        Err(error) => {
            explain.end();
            alerts.into_iter().for_each(Alerts::end);
            Err(error)
        }
    }
}

fn unit_ids(plan: &Plan<Unit>) -> BTreeSet<UnitId> {
    plan.iter().map(|(id, _)| id.clone()).collect()
}

impl Alerts {
    fn start(settings: &AlertSettings, station: &str) -> Result<Alerts, RunError> {
        let stop = Stop::default();
        let service = delivery::start(settings, teller(settings, station), stop.clone())?;
        Ok(Alerts { service: Arc::new(service), stop })
    }

    fn end(self) {
        self.stop.ask();
        // The judge has ended: nobody else holds it.
        Arc::into_inner(self.service).into_iter().for_each(AlertService::join);
    }
}

fn teller(settings: &AlertSettings, station: &str) -> Teller {
    Teller { station: station.to_owned(), link: settings.link.clone() }
}

impl Station {
    /// Goes over to another configuration; what stays the same runs on. Waits until it is
    /// begun, not until all units have ended or started.
    ///
    /// # Errors
    /// Units that cannot run side by side, or need more rights: all goes on as it was.
    pub fn reload(&self, config: Config) -> Result<Vec<Step>, Refused> {
        let beyond = self.kept.as_ref().map(|kept| beyond(kept, &config.uses()));
        if let Some(beyond) = beyond.filter(|beyond| !beyond.is_empty()) {
            return Err(Refused::Rights(beyond));
        }
        if config.store.path != self.store.path {
            return Err(Refused::Store(self.store.path.clone()));
        }
        if !config.store.same_server(&self.store) {
            return Err(Refused::StoreServer);
        }
        if config.alert.is_some() != self.alerts.is_some() {
            return Err(Refused::AlertsCome);
        }
        let units = unit_ids(&config.plan);
        // What can be refused comes first: units are only looked at, and alerts either go over or
        // stay as they were. Whoever reloads is alone, so that units cannot be refused afterwards.
        self.order(config.plan.clone(), true)?;
        if let (Some(alerts), Some(settings)) = (&self.alerts, config.alert) {
            let teller = teller(&settings, &self.name);
            alerts.service.reload(settings, teller).map_err(Refused::Alerts)?;
        }
        self.explain.handle().set_units(&config.plan);
        self.interfaces.watch(WatchList::of(&config.plan, &config.interfaces));
        let steps = self.order(config.plan, false)?;
        self.keeper.set_retention(config.store.retention());
        self.judge.reload(config.judge, units);
        Ok(steps)
    }

    /// Whether the units can go over to `plan`.
    ///
    /// # Errors
    /// Those that cannot run side by side.
    pub(crate) fn can_run(&self, plan: &Plan<Unit>) -> Result<(), Refused> {
        self.order(plan.clone(), true).map(drop)
    }

    /// The units go over to `plan`, which has the same ones; all else stays.
    ///
    /// # Errors
    /// As of [`Station::can_run`]; whoever asked that first, and is alone, meets none.
    pub(crate) fn go_over(&self, plan: &Plan<Unit>) -> Result<Vec<Step>, Refused> {
        self.explain.handle().set_units(plan);
        self.order(plan.clone(), false)
    }

    fn order(&self, plan: Plan<Unit>, foresee: bool) -> Result<Vec<Step>, Refused> {
        let (done, waits) = sync_channel(1);
        let sent = self.orders.send(Order { plan, foresee, done });
        // A station that ends takes no orders.
        let steps = sent.ok().and_then(|()| waits.recv().ok()).unwrap_or(Ok(Vec::new()));
        steps.map_err(Refused::Conflict)
    }

    /// What is judged, and what is wrong.
    pub fn judge(&self) -> JudgeStatus {
        self.judge.status.get()
    }

    /// Who is told of what; `None`: the configuration has no `[alert]`.
    pub fn alerts(&self) -> Option<AlertStatus> {
        self.alerts.as_ref().map(|alerts| alerts.service.status.get())
    }

    /// Carries out what somebody wants of alerts. `None`: the configuration has no `[alert]`.
    ///
    /// # Errors
    /// A restart would forget it.
    pub fn change_alerts(&self, input: AlertInput) -> Option<Result<(), String>> {
        self.alerts.as_ref().map(|alerts| alerts.service.change(input))
    }

    /// How every objective of every subject stands.
    pub fn standings(&self) -> Vec<Standing> {
        self.judge.standings()
    }

    /// Takes maintenance that is entered now.
    ///
    /// # Errors
    /// A restart would forget it.
    pub fn enter_maintenance(&self, maintenance: Mute) -> Result<(), String> {
        self.judge.enter(maintenance)
    }

    /// Sets a field of an event's evidence; `None`: there is no such event.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn note_event(
        &self,
        id: EventId,
        field: &str,
        value: Option<Value>,
    ) -> Result<Option<StoredEvent>, StoreError> {
        self.keeper.store.note_event(id, field, value)
    }

    /// Keeps an event that is none of a unit or of the judge.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(crate) fn add_event(&self, event: &StoredEvent) -> Result<EventId, StoreError> {
        self.keeper.store.add_event(event)
    }

    /// What is known of the ways to targets.
    pub fn paths(&self) -> SharedBook {
        self.explain.handle().book()
    }

    /// How the store does.
    pub fn store(&self) -> KeeperStatus {
        self.keeper.status.get()
    }

    /// What keeps the rows: "embedded", "clickhouse".
    pub fn store_kind(&self) -> &'static str {
        self.keeper.store.kind()
    }

    /// So long after a row is kept queries see it, at most, ns.
    pub fn seen_after(&self) -> i64 {
        self.keeper.store.seen_after_ns()
    }

    /// Reads what is kept.
    pub fn reader(&self) -> Arc<dyn Reader> {
        self.keeper.reader.clone()
    }

    /// Waits for its end.
    pub fn join(self) -> StationEnded {
        let stuck = self.thread.join().unwrap_or_default();
        self.interfaces.end();
        let judge = self.judge.end();
        self.explain.end();
        self.alerts.into_iter().for_each(Alerts::end);
        StationEnded { stuck, store: self.keeper.end(), judge }
    }
}

/// The station's own thread.
struct Runner {
    supervisor: Supervisor<Unit>,
    lives: BTreeMap<Instance, Handle>,
    inbox: Sender<(Instance, Happened)>,
    hub: Hub,
    stop: Stop,
    states: Latest<BTreeMap<UnitId, UnitState>>,
    turns: Arc<AtomicU64>,
    invocation: Invocation,
    hurried: bool,
}

/// A unit that lives, from outside.
struct Handle {
    stop: Stop,
    orders: Sender<Arc<Unit>>,
    /// `None`: there was no thread to be had.
    thread: Option<JoinHandle<()>>,
}

impl Runner {
    fn run(
        mut self,
        plan: Plan<Unit>,
        orders: &Receiver<Order>,
        happens: &Receiver<(Instance, Happened)>,
    ) -> Vec<UnitId> {
        // The configuration was checked.
        let _ = self.reload(plan);
        let mut ends: Option<Time> = None;
        loop {
            let now = steady_now();
            let due = self.supervisor.poll_timeout().map_or(TURN, |due| until(now, due).min(TURN));
            match happens.recv_timeout(due) {
                Ok((instance, happened)) => self.happened(&instance, happened),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if ends.is_none() {
                while let Ok(Order { plan, foresee, done }) = orders.try_recv() {
                    let steps = match foresee {
                        true => self.supervisor.foresee(&plan),
                        false => self.reload(plan),
                    };
                    // Whoever asked may have gone.
                    let _ = done.send(steps);
                }
            }
            self.turn();
            let now = steady_now();
            if self.stop.is_asked() && ends.is_none() {
                ends = Some(now + 2 * PATIENCE.as_nanos() as i64);
                let _ = self.reload(Plan::default());
            }
            let Some(last) = ends else { continue };
            if self.stop.is_urgent() && !std::mem::replace(&mut self.hurried, true) {
                self.lives.values().for_each(|life| life.stop.hurry());
            }
            if self.lives.is_empty() || now >= last {
                return self.lives.into_keys().map(|instance| instance.unit).collect();
            }
        }
    }

    fn reload(&mut self, plan: Plan<Unit>) -> Result<Vec<Step>, Vec<ReloadError>> {
        let mut actions = Vec::new();
        let steps = self.supervisor.reload(steady_now(), plan, &mut actions)?;
        self.perform(actions);
        Ok(steps)
    }

    fn happened(&mut self, instance: &Instance, happened: Happened) {
        if let Happened::Exited(exit) = &happened {
            tracing::debug!("{} ended: {exit:?}", instance.unit);
            let thread = self.lives.remove(instance).and_then(|life| life.thread);
            // It was told as the last thing that the thread did.
            thread.map(JoinHandle::join);
        }
        let mut actions = Vec::new();
        self.supervisor.handle(steady_now(), instance, happened, &mut actions);
        self.perform(actions);
    }

    /// Looks at every life, and does what is due.
    fn turn(&mut self) {
        let mut actions = Vec::new();
        for (instance, life) in &self.lives {
            let progress = Happened::Progress(life.stop.looks());
            self.supervisor.handle(steady_now(), instance, progress, &mut actions);
        }
        self.supervisor.handle_timeout(steady_now(), &mut actions);
        self.perform(actions);
        let states = self.supervisor.states().map(|(id, state)| (id.clone(), state)).collect();
        self.states.update(|all| *all = states);
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    fn perform(&mut self, actions: Vec<Action<Unit>>) {
        for action in actions {
            match action {
                Action::Start(instance, spec) => self.start(instance, spec),
                Action::Adjust(instance, spec) => {
                    if let Some(life) = self.lives.get(&instance) {
                        // It may have ended meanwhile: then it starts with them.
                        let _ = life.orders.send(spec);
                    }
                }
                Action::Stop(instance) => {
                    self.lives.get(&instance).iter().for_each(|life| life.stop.ask());
                }
                Action::Hurry(instance) => {
                    self.lives.get(&instance).iter().for_each(|life| life.stop.hurry());
                }
                Action::RecordGap(gap) => {
                    tracing::warn!(
                        "{} measured nothing for {:.1} s: {}",
                        gap.unit,
                        (gap.to - gap.from) as f64 / 1e9,
                        gap.why
                    );
                    self.say(gap.unit.clone(), Said::Gap(gap));
                }
                Action::Raise(notice) => {
                    tracing::warn!("{notice}");
                    self.say(notice.unit().clone(), Said::Notice(notice));
                }
            }
        }
    }

    fn start(&mut self, instance: Instance, spec: Arc<Unit>) {
        let stop = Stop::default();
        let (orders, given) = channel();
        let life = Life {
            instance: instance.clone(),
            stop: stop.clone(),
            inbox: self.inbox.clone(),
            hub: self.hub.clone(),
            invocation: self.invocation.clone(),
        };
        let thread =
            thread::spawn(format!("sonde-{}", instance.unit), move || life.run(&spec, &given));
        if let Err(error) = &thread {
            let exit = Happened::Exited(crate::supervise::Exit::Failed(error.to_string()));
            let _ = self.inbox.send((instance.clone(), exit));
        }
        self.lives.insert(instance, Handle { stop, orders, thread: thread.ok() });
    }

    fn say(&self, unit: UnitId, said: Said) {
        self.hub.hand(&Arc::new(Report { unit, said }));
    }
}

fn until(now: Time, due: Time) -> Duration {
    Duration::from_nanos(u64::try_from(due - now).unwrap_or(0))
}

/// Between two looks at all units, at most.
const TURN: Duration = Duration::from_millis(100);
