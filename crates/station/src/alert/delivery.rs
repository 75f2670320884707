//! Tells people: runs the state machine, and brings what it decides to the receivers.
//!
//! One thread decides. Each receiver has a thread and a [`Spool`] of its own, so that one that is
//! slow or away holds up no other. A notification is on the disk before the state that says so:
//! after a kill something may be told twice, and nothing is lost but what came in the last second
//! ([`SAVE_EVERY`]).

mod courier;
mod datagram;
mod exec;
pub(crate) mod http;
mod mail;
mod snmp;
mod syslog;
mod way;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use sonde_run::error::{RunError, SettingsError};
use sonde_run::running::{Latest, Stop};
use sonde_run::thread;
use sonde_sys::clock::{steady_now, unix_now_ns};
use sonde_wire::time::Time;

use self::courier::{Courier, Opened, SharedSpool, open_spool};
use super::alerting::{
    AlertCounters, AlertInput, AlertState, AlertStateError, AlertView, Alerting, Teller,
};
use super::settings::AlertSettings;
use super::silence::Mute;
use super::spool::write_whole;

/// Alerts at work.
pub struct AlertService {
    /// What lasts, and how deliveries go.
    pub status: Latest<AlertStatus>,
    orders: SyncSender<AlertOrder>,
    thread: JoinHandle<()>,
}

/// What lasts, and how deliveries go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct AlertStatus {
    /// Alerts that last, by their labels.
    pub alerts: Vec<AlertView>,
    /// Silences and maintenance: of now, of the future, and of the last day.
    pub mutes: Vec<Mute>,
    /// What was counted.
    pub counters: AlertCounters,
    /// Receivers, by name.
    pub receivers: BTreeMap<String, ReceiverStatus>,
    /// Why the state cannot be saved, if it cannot: a restart would forget what came since.
    pub unsaved: Option<String>,
}

/// How deliveries to a receiver go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReceiverStatus {
    /// Its kind, as the configuration calls it.
    pub sink: String,
    /// Notifications that wait.
    pub queued: usize,
    /// Notifications that its queue has room for.
    pub room: usize,
    /// When the oldest of them was decided, ns since 1970 UTC.
    pub oldest_ns: Option<i64>,
    /// Notifications that the receiver has taken.
    pub delivered: u64,
    /// When it last did, ns since 1970 UTC.
    pub delivered_ns: Option<i64>,
    /// Tries that failed.
    pub failures: u64,
    /// Since when it takes nothing, ns since 1970 UTC; absent: the last try went well.
    pub failing_since_ns: Option<i64>,
    /// What was wrong last, without secrets.
    pub last_error: Option<String>,
    /// Notifications that it refused for good, or that became too old.
    pub given_up: u64,
    /// Notifications that found no room in the queue.
    pub dropped: u64,
    /// Repetitions that a later one took the place of while they waited.
    pub superseded: u64,
    /// Files of the queue that could not be read.
    pub damaged: u64,
    /// Notifications that were never on the disk.
    pub unsaved: u64,
}

enum AlertOrder {
    Input(AlertInput),
    /// Answered once it is on the disk.
    Change(AlertInput, SyncSender<Result<(), String>>),
    Reload(Box<AlertSettings>, Teller, SyncSender<Result<(), RunError>>),
}

/// Starts alerts, and goes on from what the folder of the settings holds.
///
/// # Errors
/// The settings cannot be, a secret cannot be read, the folder cannot be used, or another station
/// uses it or has used it.
pub fn start(
    settings: &AlertSettings,
    teller: Teller,
    stop: Stop,
) -> Result<AlertService, RunError> {
    settings.check()?;
    if settings.folder.as_os_str().is_empty() {
        return Err(SettingsError::new("alert.folder", "name a folder").into());
    }
    // Before anything that waits in the folder is sent: it may be another station's.
    let alerting = restored(settings, teller)?;
    let mut receivers = BTreeMap::new();
    for name in settings.receiver.keys() {
        receivers.insert(name.clone(), Courier::start(name, settings)?);
    }
    let (orders, given) = sync_channel(ORDERS_MOST);
    let status = Latest::new(AlertStatus::default());
    let manager = Manager {
        file: settings.folder.join(STATE_FILE),
        settings: settings.clone(),
        alerting,
        couriers: receivers,
        status: status.clone(),
        saved: steady_now(),
        changed: true,
        unsaved: None,
    };
    let thread = thread::spawn("sonde-alert", move || manager.run(&given, &stop))?;
    Ok(AlertService { status, orders, thread })
}

impl AlertService {
    /// Hands on what happens; `false`: it found no room, or alerts have ended.
    pub fn give(&self, input: AlertInput) -> bool {
        self.orders.try_send(AlertOrder::Input(input)).is_ok()
    }

    /// Carries out what somebody wants, and returns once a restart would not forget it.
    ///
    /// # Errors
    /// Alerts have ended, or the state cannot be saved; then it counts until a restart.
    pub fn change(&self, input: AlertInput) -> Result<(), String> {
        let (done, waits) = sync_channel(1);
        let sent = self.orders.send(AlertOrder::Change(input, done));
        let answered = sent.ok().and_then(|()| waits.recv().ok());
        answered.unwrap_or_else(|| Err("the station ends".into()))
    }

    /// Goes over to other settings. What lasts and what waits stays.
    ///
    /// # Errors
    /// As [`start`]; all goes on as it was. The folder cannot be another one.
    pub fn reload(&self, settings: AlertSettings, teller: Teller) -> Result<(), RunError> {
        let (done, waits) = sync_channel(1);
        let sent = self.orders.send(AlertOrder::Reload(Box::new(settings), teller, done));
        // Alerts that end take no orders.
        sent.ok().and_then(|()| waits.recv().ok()).unwrap_or(Ok(()))
    }

    /// Waits for the end, which `stop` asks for. What is not delivered waits on the disk.
    pub fn join(self) {
        drop(self.orders);
        sonde_run::thread::join_logged(self.thread);
    }
}

fn restored(settings: &AlertSettings, teller: Teller) -> Result<Alerting, RunError> {
    let file = settings.folder.join(STATE_FILE);
    let text = match crate::state_file::read(&file) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Alerting::new(settings.routes(), teller));
        }
        Err(e) => return Err(host(format!("{} cannot be read: {e}", file.display()))),
    };
    let state: AlertState = serde_json::from_slice(&text).map_err(|e| {
        host(format!(
            "{} is damaged: {e}; move it away, and what lasts is told of again",
            file.display()
        ))
    })?;
    Alerting::restore(settings.routes(), teller, state, utc_now_ns()).map_err(|e| match e {
        AlertStateError::Version(_) => host(format!("{}: {e}", file.display())),
        AlertStateError::OtherStation { .. } => {
            let why = format!("{}: {e}", settings.folder.display());
            SettingsError::new("alert.folder", why).into()
        }
    })
}

/// The thread that decides.
struct Manager {
    file: PathBuf,
    settings: AlertSettings,
    alerting: Alerting,
    couriers: BTreeMap<String, Courier>,
    status: Latest<AlertStatus>,
    saved: Time,
    changed: bool,
    unsaved: Option<String>,
}

impl Manager {
    fn run(mut self, orders: &Receiver<AlertOrder>, stop: &Stop) {
        let mut last = utc_now_ns();
        loop {
            let now = utc_now_ns();
            if now < last - CLOCK_SLACK_NS {
                self.alerting.clock_was_set_back(now);
            }
            last = now;
            self.turn(now);
            let due = self.alerting.poll_timeout(now);
            let due = due.map_or(TURN, |due| nanoseconds(due.saturating_sub(now)).min(TURN));
            match orders.recv_timeout(due) {
                Ok(order) => {
                    self.order(order);
                    // A burst is one turn.
                    orders.try_iter().take(ORDERS_MOST).for_each(|order| self.order(order));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if stop.is_asked() => break,
                Err(RecvTimeoutError::Disconnected) => drop(stop.wait(due)),
            }
            if stop.is_asked() {
                orders.try_iter().for_each(|order| self.order(order));
                break;
            }
        }
        self.turn(utc_now_ns());
        self.save();
        let couriers = std::mem::take(&mut self.couriers);
        couriers.into_values().for_each(|courier| drop(courier.end()));
    }

    fn order(&mut self, order: AlertOrder) {
        self.changed = true;
        match order {
            AlertOrder::Input(input) => self.alerting.handle(utc_now_ns(), input),
            AlertOrder::Change(input, done) => {
                self.alerting.handle(utc_now_ns(), input);
                self.save();
                self.tell();
                // Whoever asked may have gone.
                let _ = done.send(self.unsaved.clone().map_or(Ok(()), Err));
            }
            AlertOrder::Reload(settings, teller, done) => {
                // Whoever asked may have gone.
                let _ = done.send(self.reload(*settings, teller));
            }
        }
    }

    /// Does what is due, saves, and says how things are.
    fn turn(&mut self, now_ns: i64) {
        let mut told = Vec::new();
        self.alerting.handle_timeout(now_ns, &mut told);
        self.changed |= !told.is_empty();
        for notification in &told {
            if let Some(courier) = self.couriers.get(&notification.group.receiver) {
                courier.give(notification);
            }
        }
        let since = steady_now() - self.saved;
        if self.changed && (!told.is_empty() || since >= SAVE_EVERY.as_nanos() as i64) {
            self.save();
        }
        self.tell();
    }

    /// Says how things are.
    fn tell(&self) {
        let now_ns = utc_now_ns();
        let receivers = self.couriers.iter().map(|(name, courier)| {
            let room = self.settings.queue.entries;
            let config = self.settings.receiver.get(name);
            let sink = config.map(|config| config.kind().to_owned()).unwrap_or_default();
            (name.clone(), ReceiverStatus { sink, room, ..courier.status() })
        });
        let receivers = receivers.collect();
        let status = AlertStatus {
            alerts: self.alerting.alerts(now_ns),
            mutes: self.alerting.mutes().cloned().collect(),
            counters: self.alerting.counters(),
            receivers,
            unsaved: self.unsaved.clone(),
        };
        self.status.update(|old| *old = status);
    }

    fn save(&mut self) {
        self.saved = steady_now();
        let text = serde_json::to_vec(&self.alerting.state()).map_err(std::io::Error::from);
        match text.and_then(|text| write_whole(&self.file, &text)) {
            Ok(()) => {
                (self.changed, self.unsaved) = (false, None);
            }
            Err(error) => {
                let why = format!("{}: {error}", self.file.display());
                if self.unsaved.as_ref() != Some(&why) {
                    tracing::warn!("the state of alerts cannot be saved: {why}; free space");
                }
                self.unsaved = Some(why);
            }
        }
    }

    fn reload(&mut self, settings: AlertSettings, teller: Teller) -> Result<(), RunError> {
        settings.check()?;
        if settings.folder != self.settings.folder {
            let why = "it cannot be another one while the station runs; restart it";
            return Err(SettingsError::new("alert.folder", why).into());
        }
        let limits = settings.queue != self.settings.queue;
        let same = |name: &String| {
            !limits && settings.receiver.get(name) == self.settings.receiver.get(name)
        };
        // All new ones are opened before the first old one ends.
        let opened = settings.receiver.iter().filter(|(name, _)| !same(name));
        let opened: Vec<(String, Opened)> = opened
            .map(|(name, _)| Ok((name.clone(), Opened::new(name, &settings)?)))
            .collect::<Result<_, RunError>>()?;
        // Those of receivers that are new; those of others are taken over.
        let mut spools: BTreeMap<String, SharedSpool> = BTreeMap::new();
        for (name, _) in opened.iter().filter(|(name, _)| !self.couriers.contains_key(name)) {
            spools.insert(name.clone(), open_spool(name, &settings)?);
        }
        let (stay, end): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.couriers).into_iter().partition(|(name, _)| same(name));
        self.couriers = stay;
        for (name, courier) in end {
            spools.insert(name, courier.end());
        }
        for (name, opened) in opened {
            let spool = match spools.remove(&name) {
                Some(spool) => spool,
                None => open_spool(&name, &settings)?,
            };
            let courier = Courier::with(&name, opened, spool, settings.limits())?;
            self.couriers.insert(name, courier);
        }
        self.alerting.reload(utc_now_ns(), settings.routes(), teller);
        self.settings = settings;
        Ok(())
    }
}

/// Nanoseconds since 1970 UTC.
fn utc_now_ns() -> i64 {
    unix_now_ns()
}

fn nanoseconds(ns: i64) -> Duration {
    Duration::from_nanos(u64::try_from(ns).unwrap_or(0))
}

fn host(why: String) -> RunError {
    RunError::Host(anyhow::Error::msg(why))
}

/// An instant by which something ends.
#[derive(Clone, Copy)]
struct Deadline(Time);

impl Deadline {
    fn after(time: Duration) -> Deadline {
        Deadline(steady_now() + time.as_nanos() as i64)
    }

    /// What is left; `None`: it is over.
    fn left(self) -> Option<Duration> {
        let rest = self.0 - steady_now();
        (rest > 0).then(|| nanoseconds(rest))
    }
}

/// How long something goes on.
struct Stopwatch(Time);

impl Stopwatch {
    fn start() -> Stopwatch {
        Stopwatch(steady_now())
    }

    fn ns(&self) -> i64 {
        steady_now() - self.0
    }
}

/// Where the folder of the settings keeps what lasts.
const STATE_FILE: &str = "state.json";
/// What came is on the disk after so long, at the latest.
pub const SAVE_EVERY: Duration = Duration::from_secs(1);
/// One try takes so long at most.
const SEND_WITHIN: Duration = Duration::from_secs(30);
/// Between two looks at everything, at most.
const TURN: Duration = Duration::from_millis(500);
/// What clocks may go back by adjustment.
const CLOCK_SLACK_NS: i64 = 1_000_000_000;
/// What waits to be taken in, at most.
const ORDERS_MOST: usize = 65_536;

#[cfg(test)]
mod tests;
