//! The thread of the judge: it takes what comes, keeps what is found, and tells it.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use sonde_run::error::RunError;
use sonde_run::probe::Event;
use sonde_run::running::{Latest, Next, RecordReceiver, Stop};
use sonde_run::thread;
use sonde_store::query::{EventList, TimeRange};
use sonde_store::{Answer, EventFilter, EventId, Limit, Query, StoreBackend};
use sonde_sys::clock::{steady_now, steady_scale, unix_now_ns};

use super::series::EventSeries;
use super::settings::JudgeSettings;
use super::trouble::{JudgeFinding, TroubleKind};
use super::usual::read_usual;
use super::{JudgeState, JudgeStatus, Standing, StationJudge};
use crate::alert::alerting::AlertInput;
use crate::alert::delivery::AlertService;
use crate::alert::silence::Mute;
use crate::alert::spool::write_whole;
use crate::explain::EXPLAINED;
use crate::explain::thread::ExplainHandle;
use crate::hub::{Hub, Report, Said};
use crate::plan::UnitId;

/// Judges until it is asked to end.
pub struct JudgeService {
    /// How it goes.
    pub status: Latest<JudgeStatus>,
    stop: Stop,
    orders: Sender<JudgeOrder>,
    thread: JoinHandle<()>,
}

enum JudgeOrder {
    Reload(JudgeSettings, BTreeSet<UnitId>),
    /// Answered once it is on the disk.
    Enter(Mute, SyncSender<Result<(), String>>),
    Ask(SyncSender<Vec<Standing>>),
}

impl JudgeService {
    /// Goes on from the state in `folder`, which is that of the store, and subscribes to `hub`.
    ///
    /// # Errors
    /// The state or the store's events cannot be read; no thread to be had.
    pub fn start(
        station: &str,
        folder: &Path,
        settings: JudgeSettings,
        units: BTreeSet<UnitId>,
        store: Arc<dyn StoreBackend>,
        (alerts, explain): (Option<Arc<AlertService>>, Option<ExplainHandle>),
        hub: &Hub,
    ) -> Result<JudgeService, RunError> {
        let file = folder.join(STATE_FILE);
        let saved = read_state(&file)?;
        let now_ns = unix_now_ns();
        let judge = StationJudge::new(station, settings, &units, saved, now_ns);
        end_orphans(&*store, &judge, now_ns)?;
        let (status, stop) = (Latest::new(judge.status()), Stop::default());
        let (orders, given) = channel();
        let judging = Judging {
            reports: hub.subscribe("judge", REPORTS),
            judge,
            store,
            alerts,
            explain,
            file,
            series: EventSeries::default(),
            pending: VecDeque::new(),
            lost: 0,
            looked_ns: now_ns,
            timeout_ns: 0,
            save_after: 0,
            error: None,
            status: status.clone(),
        };
        let asked = stop.clone();
        let thread = thread::spawn("sonde-judge", move || judging.run(&given, &asked))?;
        Ok(JudgeService { status, stop, orders, thread })
    }

    /// Goes over to other settings and units, soon.
    pub fn reload(&self, settings: JudgeSettings, units: BTreeSet<UnitId>) {
        // A judge that has ended judges by none.
        let _ = self.orders.send(JudgeOrder::Reload(settings, units));
    }

    /// Takes maintenance that is entered now, and returns once a restart would not forget it.
    ///
    /// # Errors
    /// The judge has ended, or its state cannot be saved; then it counts until a restart.
    pub fn enter(&self, maintenance: Mute) -> Result<(), String> {
        let (done, waits) = sync_channel(1);
        let sent = self.orders.send(JudgeOrder::Enter(maintenance, done));
        let answered = sent.ok().and_then(|()| waits.recv().ok());
        answered.unwrap_or_else(|| Err("the station ends".into()))
    }

    /// How every objective of every subject stands, in at most about a second.
    pub fn standings(&self) -> Vec<Standing> {
        let (done, waits) = sync_channel(1);
        let sent = self.orders.send(JudgeOrder::Ask(done));
        // A judge that has ended knows of none.
        sent.ok().and_then(|()| waits.recv().ok()).unwrap_or_default()
    }

    /// Judges what has come, saves, and ends. To be called when no unit says anything more.
    pub fn end(self) -> JudgeStatus {
        self.stop.ask();
        sonde_run::thread::join_logged(self.thread);
        self.status.get()
    }
}

fn read_state(file: &Path) -> Result<Option<JudgeState>, RunError> {
    match crate::state_file::read(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(RunError::Host(anyhow::anyhow!("{} cannot be read: {e}", file.display()))),
        Ok(text) => match serde_json::from_slice(&text) {
            Ok(state) => Ok(Some(state)),
            Err(e) => {
                let aside = file.with_extension("damaged");
                let moved = fs::rename(file, &aside);
                tracing::error!(
                    "{} cannot be read ({e}); it is set aside, and all is judged anew",
                    file.display()
                );
                moved.with_context(|| format!("cannot rename {}", file.display()))?;
                Ok(None)
            }
        },
    }
}

/// Ends events that last in the store, and of which the judge knows nothing: they were kept, and
/// the state that says so was not saved any more. Those of other stations in the same ClickHouse the
/// store leaves as they are.
fn end_orphans(
    store: &dyn StoreBackend,
    judge: &StationJudge,
    now_ns: i64,
) -> Result<(), RunError> {
    let known: BTreeSet<u64> = judge.open().filter_map(|trouble| trouble.event).collect();
    // A way that was gone is looked for anew.
    for kind in TroubleKind::KEPT.map(TroubleKind::name).into_iter().chain(["route_change"]) {
        let filter = EventFilter { kind: Some(kind.into()), open: true, ..EventFilter::default() };
        let range = TimeRange { from_ns: i64::MIN, to_ns: i64::MAX };
        let query = Query::Events(EventList { range, filter, ..EventList::default() });
        let response = store.reader().query(&query, &Limit::default());
        let Answer::Events(rows) = response.map_err(anyhow::Error::from)?.answer else { continue };
        for row in rows.into_iter().filter(|row| !known.contains(&row.id.0)) {
            store.end_event(row.id, now_ns).map_err(anyhow::Error::from)?;
        }
    }
    Ok(())
}

/// The thread.
struct Judging {
    reports: RecordReceiver<Arc<Report>>,
    judge: StationJudge,
    store: Arc<dyn StoreBackend>,
    alerts: Option<Arc<AlertService>>,
    /// Who explains what begins.
    explain: Option<ExplainHandle>,
    file: PathBuf,
    /// The series of each unit, target and class.
    series: EventSeries,
    /// What was found and is not kept yet, oldest first.
    pending: VecDeque<JudgeFinding>,
    /// Records that found no room, so far.
    lost: u64,
    /// When it last looked at them, ns since 1970 UTC.
    looked_ns: i64,
    /// Steady time at which it is looked what did not come, ns.
    timeout_ns: i64,
    /// Steady time before which it is not saved again, ns.
    save_after: i64,
    error: Option<String>,
    status: Latest<JudgeStatus>,
}

impl Judging {
    fn run(mut self, orders: &Receiver<JudgeOrder>, stop: &Stop) {
        loop {
            let ends = stop.is_asked();
            self.collect(if ends { Duration::ZERO } else { TURN });
            let mut entered = Vec::new();
            for order in orders.try_iter() {
                match order {
                    JudgeOrder::Reload(settings, units) => {
                        self.judge.reload(settings, &units, unix_now_ns());
                    }
                    JudgeOrder::Enter(maintenance, done) => {
                        self.judge.enter(maintenance);
                        entered.push(done);
                    }
                    // Whoever asked may have gone.
                    JudgeOrder::Ask(done) => drop(done.send(self.judge.standings())),
                }
            }
            let now_ns = unix_now_ns();
            let lost = self.reports.lost();
            if lost > self.lost {
                self.judge.lost(self.looked_ns, now_ns);
                self.lost = lost;
            }
            self.looked_ns = now_ns;
            let steady_ns = steady_now().as_nanos();
            let timeout = ends || !entered.is_empty() || steady_ns >= self.timeout_ns;
            if timeout {
                self.judge.handle_timeout(now_ns);
                self.timeout_ns = steady_ns + TIMEOUT_NS;
            }
            self.find_usuals(now_ns);
            let found = self.judge.take_findings();
            let news = !found.is_empty();
            self.pending.extend(found);
            // A store that takes nothing for hours: what is oldest is given up.
            let over = self.pending.len().saturating_sub(PENDING);
            self.pending.drain(..over);
            let kept = self.keep();
            let saved = self.save(news, ends || !entered.is_empty(), ends, now_ns);
            if timeout || news {
                self.report(kept.and(saved.clone()));
            }
            // Whoever asked may have gone.
            entered.iter().for_each(|done| drop(done.send(saved.clone())));
            if ends {
                return;
            }
        }
    }

    fn collect(&mut self, patience: Duration) {
        let end = steady_now() + patience.as_nanos() as i64;
        loop {
            let left = Duration::from_nanos((end - steady_now()).max(0).unsigned_abs());
            let Next::Record(report) = self.reports.next(left) else { return };
            self.tell_streams(&report);
            self.judge.take(&report, (steady_scale().utc_offset, unix_now_ns()));
            if steady_now() > end && !patience.is_zero() {
                return;
            }
        }
    }

    /// Reads what is usual in hours that are wanted: some in each turn.
    fn find_usuals(&mut self, now_ns: i64) {
        for wanted in self.judge.wanted_usuals(now_ns, USUALS) {
            let found = read_usual(&*self.store.reader(), &wanted);
            let usual = found.unwrap_or_else(|why| {
                tracing::warn!("what is usual of {:?} cannot be read: {why}", wanted.labels);
                None
            });
            self.judge.set_usual(&wanted, usual);
        }
    }

    /// Who explains has to know the ways of all streams.
    fn tell_streams(&self, report: &Report) {
        let Some(explain) = &self.explain else { return };
        match &report.said {
            Said::Probe(about) => explain.streams(&report.unit, &about.streams, true),
            Said::ProbeEvent(Event::Added(streams)) => {
                explain.streams(&report.unit, streams, false);
            }
            _ => {}
        }
    }

    /// Gives store and alerts what was found, in order. What fails is tried again.
    fn keep(&mut self) -> Result<(), String> {
        while let Some(finding) = self.pending.front() {
            let mut begun = None;
            match finding {
                JudgeFinding::Warning(why) => tracing::warn!("{why}"),
                JudgeFinding::Muted(mute) => self.tell(AlertInput::Mute(mute.clone()))?,
                JudgeFinding::Happened { event, alert } => {
                    if let Some(alert) = alert {
                        self.tell(AlertInput::Alert(alert.clone()))?;
                    }
                    let event = self.series.of(event, &*self.store);
                    self.store.add_event(&event).map_err(|e| e.to_string())?;
                }
                JudgeFinding::Begins(trouble) => {
                    self.tell(AlertInput::Alert(trouble.to_alert(None)))?;
                    if trouble.event.is_none() && trouble.kind.is_kept() {
                        tracing::warn!("{} ({})", trouble.title, trouble.text);
                        let event = self.series.of(&trouble.to_event(), &*self.store);
                        let id = self.store.add_event(&event);
                        begun = Some((trouble.clone(), id.map_err(|e| e.to_string())?));
                    }
                }
                JudgeFinding::Ends(trouble, ends_ns) => {
                    self.tell(AlertInput::Alert(trouble.to_alert(Some(*ends_ns))))?;
                    if let Some(id) = trouble.event {
                        let ends_ns = (*ends_ns).max(trouble.starts_ns);
                        let ended = self.store.end_event(EventId(id), ends_ns);
                        ended.map_err(|e| e.to_string())?;
                        self.explain.iter().for_each(|explain| explain.ended(EventId(id)));
                        tracing::info!("over: {}", trouble.title);
                    }
                }
            }
            self.pending.pop_front();
            let Some((trouble, id)) = begun else { continue };
            self.judge.kept(&trouble, id.0);
            if let Some(explain) =
                self.explain.as_ref().filter(|_| EXPLAINED.contains(&trouble.kind.name()))
            {
                explain.begun(id);
            }
            // It may have ended before it was kept.
            for later in &mut self.pending {
                match later {
                    JudgeFinding::Ends(other, _)
                        if other.labels == trouble.labels
                            && other.starts_ns == trouble.starts_ns =>
                    {
                        other.event = Some(id.0);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn tell(&self, input: AlertInput) -> Result<(), String> {
        match &self.alerts {
            Some(alerts) if !alerts.give(input) => Err("alerts take nothing more".into()),
            _ => Ok(()),
        }
    }

    /// Saves what a restart must not forget: at once where something was found, and every while.
    /// It takes a twentieth of the time at most.
    fn save(&mut self, news: bool, must: bool, ends: bool, now_ns: i64) -> Result<(), String> {
        let before = steady_now();
        let due = if news { self.save_after } else { self.save_after + SAVE_EVERY_NS };
        if !must && before.as_nanos() < due {
            return Ok(());
        }
        // What is not kept yet is found again after a restart, or told again.
        let state = self.judge.state(now_ns, ends);
        let text = serde_json::to_vec(&state).map_err(|e| e.to_string())?;
        let written = write_whole(&self.file, &text);
        let after = steady_now();
        self.save_after = after.as_nanos() + 20 * (after - before);
        written.map_err(|e| format!("{}: {e}", self.file.display()))
    }

    fn report(&mut self, done: Result<(), String>) {
        let failed = done.err();
        match (&self.error, &failed) {
            (None, Some(why)) => tracing::error!("what is judged is not kept: {why}"),
            (Some(_), None) => tracing::warn!("what is judged is kept again"),
            _ => {}
        }
        self.error = failed;
        let status = JudgeStatus {
            lost_records: self.lost,
            error: self.error.clone(),
            ..self.judge.status()
        };
        self.status.update(|old| *old = status);
    }
}

/// Where the folder of the store keeps what a restart must not forget.
const STATE_FILE: &str = "judge.json";
/// Reports are taken for so long before findings are kept.
const TURN: Duration = Duration::from_millis(200);
/// Between two looks at what did not come.
const TIMEOUT_NS: i64 = 1_000_000_000;
/// Between two saved states when nothing is found.
const SAVE_EVERY_NS: i64 = 5_000_000_000;
/// Findings that wait for a store that takes none, at most.
const PENDING: usize = 100_000;
/// Usuals that are read in one turn, at most.
const USUALS: usize = 10;
/// Reports between hub and judge: two seconds of 20,000 records.
const REPORTS: usize = 1 << 16;

#[cfg(test)]
mod tests;
