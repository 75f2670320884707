//! A station by its files: read, run, read again, and served by its API.
//!
//! Reload by a signal and reload by the API are one function: [`Service::reload`].

mod refused_reload;
mod targets;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use sonde_api::instant::UtcInstant;
use sonde_api::openmetrics::{
    ExportMetrics, MetricsSnapshot, OwnMetrics, QueueMetrics, StoreMetrics, UnitMetrics,
};
use sonde_api::ring::{LiveRing, RingLimits};
use sonde_api::station::UnitEntry;
use sonde_api::{Backend, etag::EntityTag};
use sonde_results::units::format_hex;
use sonde_run::confined::Uses;
use sonde_run::error::{RunError, SettingsError};
use sonde_run::running::{Invocation, Latest, RecordReceiver, Stop};
use sonde_run::thread::join_logged;
use sonde_server::api::{ApiHooks, TokenStore};
use sonde_store::Reader;
use sonde_sys::clock::{clock_state, steady_now, unix_now_ns};
use sonde_sys::usage::Usage;
use sonde_wire::time::Time;

use self::refused_reload::RefusedReload;
use crate::added::{AddedTargets, JoinedPlan};
use crate::backend::StationBackend;
use crate::backend::deadline::Deadlines;
use crate::backend::health::memory_octets;
use crate::backend::host::{HostFindings, HostWatch};
use crate::backend::news::News;
use crate::config::{Config, ReadFile};
use crate::explain::thread::SharedBook;
use crate::export::on_demand::{Modules, OnDemand};
use crate::export::status::ExporterStatus;
use crate::export::thread::{self as export_thread, ExportThread, Exports};
use crate::hub::{Hub, Report};
use crate::live::LiveState;
use crate::live::thread::{LiveThread, REPORTS};
use crate::plan::{Plan, UnitId};
use crate::recent::RecentCounts;
use crate::reload::{ReloadError, Step, steps};
use crate::runner::{self, Refused, Station, StationEnded};
use crate::serve::{ApiSettings, BoundApi, ServedApi};
use crate::supervise::UnitState;
use crate::unit::Unit;

/// A configuration as its files say it.
pub struct LoadedConfig {
    /// What they say together.
    pub config: Config,
    /// The files, in the order in which they were read.
    pub files: Vec<ReadFile>,
}

impl LoadedConfig {
    /// Reads `path` and what it includes.
    ///
    /// # Errors
    /// All that is wrong in any of them.
    pub fn read(path: &Path) -> Result<LoadedConfig, Vec<SettingsError>> {
        let files = Config::read_files(path)?;
        Ok(LoadedConfig { config: Config::of(&files)?, files })
    }

    /// The version of the text: of all files, and their names.
    fn version(&self) -> String {
        let mut text = Vec::new();
        for ReadFile { text: file, .. } in &self.files {
            let lengths = format!("{} {}\n", file.file.len(), file.text.len());
            [&lengths, &file.file, &file.text].iter().for_each(|t| text.extend(t.as_bytes()));
        }
        let hash = digest(&SHA256, &text);
        format_hex(&hash.as_ref()[..12])
    }
}

/// Why a reload changes nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReloadFailure {
    /// The files have these faults.
    #[error("it has errors")]
    Files(Vec<SettingsError>),
    /// Units that cannot run side by side, or what a station keeps as long as it runs.
    #[error("{0}")]
    Refused(Refused),
    /// The way that the API is reached is another.
    #[error("api cannot change while the station runs; restart it")]
    Api,
    /// The file of tokens cannot be used.
    #[error("{0}")]
    Tokens(String),
    /// An exporter cannot be, on this host.
    #[error("{0}")]
    Exports(RunError),
    /// Targets that were added cannot be kept.
    #[error("targets that are added cannot be kept: {0}")]
    Unsaved(String),
    /// The station ends.
    #[error("the station ends")]
    Ending,
}

/// What a reload would do.
pub(crate) struct Foreseen {
    pub version: String,
    pub steps: Result<Vec<Step>, Vec<ReloadError>>,
}

/// A running station and its API.
pub struct Service {
    core: Arc<ServiceCore>,
    served: Option<ServedApi>,
    live: Option<JoinHandle<()>>,
    live_stop: Stop,
    exporting: Option<JoinHandle<()>>,
    export_stop: Stop,
}

/// What the API sees of the station.
pub(crate) struct ServiceCore {
    pub name: String,
    pub started: UtcInstant,
    pub live: Arc<Mutex<LiveState>>,
    pub ring: Arc<LiveRing>,
    pub reader: Arc<dyn Reader>,
    /// The ways to targets, for explanations.
    pub paths: SharedBook,
    pub hub: Hub,
    /// Locked for as long as a reload takes: there is one at a time.
    running: Mutex<RunConfig>,
    /// `None`: it has ended.
    station: RwLock<Option<Station>>,
    path: PathBuf,
    tokens: Arc<TokenStore>,
    /// Queries that are under way.
    pub deadlines: Arc<Deadlines>,
    pub cpu: Mutex<CpuLook>,
    /// What was dropped, and what the store took, in the last minutes.
    pub recent: Mutex<RecentCounts>,
    /// Measurements of `/probe`.
    pub on_demand: OnDemand,
    pub exports: Exports,
    /// What was found of this host.
    host: Mutex<HostFindings>,
    /// The last reload, if it failed.
    refused: Mutex<Option<RefusedReload>>,
}

/// Processor time as it was last looked at.
pub(crate) struct CpuLook {
    at: Time,
    used: Duration,
    /// Processors that were used before.
    share: f64,
}

/// The configuration that is run.
pub(crate) struct RunConfig {
    pub version: String,
    pub since: UtcInstant,
    pub files: Vec<ReadFile>,
    /// The units as the files have them.
    pub filed: Plan<Unit>,
    /// The targets that the API added.
    pub added: AddedTargets,
    /// Of each of those, why it is not measured; `None`: it is.
    pub rests: Vec<Option<String>>,
    /// The units as they are run: with those targets.
    pub plan: Plan<Unit>,
    pub store: PathBuf,
    pub modules: Modules,
    api: ApiSettings,
}

impl CpuLook {
    fn new() -> CpuLook {
        CpuLook { at: steady_now(), used: Usage::read().cpu, share: 0.0 }
    }

    /// Processors that were used since the last look, which is at least a second ago.
    pub fn share(&mut self) -> f64 {
        let CpuLook { at, used, .. } = CpuLook::new();
        let since = (at - self.at) as f64 / 1e9;
        if since >= 1.0 {
            let share = used.saturating_sub(self.used).as_secs_f64() / since;
            *self = CpuLook { at, used, share };
        }
        self.share
    }
}

impl Service {
    /// Runs the station whose configuration `path` is, until `stop` is asked for, and serves its
    /// API on `bound`. `kept`: what it still has of root's rights; `None`: all.
    ///
    /// # Errors
    /// The store cannot be used; no thread to be had.
    pub fn start(
        path: &Path,
        loaded: LoadedConfig,
        bound: BoundApi,
        hub: Hub,
        stop: Stop,
        (kept, invocation): (Option<Vec<Uses>>, Invocation),
    ) -> Result<Service, RunError> {
        let version = loaded.version();
        let LoadedConfig { mut config, files } = loaded;
        let now = utc_now();
        let added = AddedTargets::read(&config.store.path)?;
        let joined = added.joined(&config.plan);
        added.log_rests(&joined);
        let filed = std::mem::replace(&mut config.plan, joined.plan);
        let running = RunConfig {
            version,
            since: now,
            files,
            filed,
            added,
            rests: joined.rests,
            plan: config.plan.clone(),
            store: config.store.path.clone(),
            modules: config.modules.clone(),
            api: config.api.clone(),
        };
        let name = config.station_name();
        let reports = hub.subscribe("live", REPORTS);
        let exported = hub.subscribe("exports", export_thread::REPORTS);
        let exports = Exports::default();
        exports.apply(exports.prepare(&config.exports)?);
        let station = runner::start(config, hub.clone(), stop.clone(), kept, invocation)?;
        let (states, reader) = (station.states.clone(), station.reader());
        let paths = station.paths();
        let core = Arc::new(ServiceCore {
            started: now,
            live: Arc::new(Mutex::new(LiveState::new(&name))),
            name,
            ring: LiveRing::new(now, RingLimits::default()),
            reader,
            paths,
            hub,
            running: Mutex::new(running),
            station: RwLock::new(Some(station)),
            path: path.to_owned(),
            tokens: bound.tokens().clone(),
            deadlines: Arc::default(),
            cpu: Mutex::new(CpuLook::new()),
            recent: Mutex::default(),
            on_demand: OnDemand::default(),
            exports,
            host: Mutex::default(),
            refused: Mutex::default(),
        });
        let mut service = Service {
            core,
            served: None,
            live: None,
            live_stop: Stop::default(),
            exporting: None,
            export_stop: Stop::default(),
        };
        match service.open(bound, (reports, exported), states) {
            Ok(()) => Ok(service),
            Err(error) => {
                // Units that run already end in order.
                stop.ask();
                service.join();
                Err(error)
            }
        }
    }

    /// Starts what looks at the present, and the API.
    fn open(
        &mut self,
        bound: BoundApi,
        (reports, exported): (RecordReceiver<Arc<Report>>, RecordReceiver<Arc<Report>>),
        states: Latest<BTreeMap<UnitId, UnitState>>,
    ) -> Result<(), RunError> {
        let core = &self.core;
        let (to_push, to_scrape, ready) = (core.clone(), core.clone(), core.clone());
        let exporting = ExportThread {
            exports: core.exports.clone(),
            reports: exported,
            station: core.name.clone(),
            counted: Arc::new(move || to_push.metrics()),
            since_ns: core.started.ns(),
            stop: self.export_stop.clone(),
        };
        self.exporting = Some(exporting.start()?);
        let thread = LiveThread {
            state: core.live.clone(),
            reports,
            states,
            reader: core.reader.clone(),
            ring: core.ring.clone(),
            deadlines: core.deadlines.clone(),
            each_second: Box::new({
                let backend = StationBackend::new(core.clone());
                let (mut news, mut host) = (News::default(), HostWatch::new());
                move |now| {
                    backend.note_counts(steady_now());
                    news.look(&backend, now);
                    host.look(&backend, now);
                }
            }),
            stop: self.live_stop.clone(),
            open: Default::default(),
        };
        self.live = Some(thread.start()?);
        let backend: Arc<dyn Backend> = Arc::new(StationBackend::new(core.clone()));
        let hooks = ApiHooks {
            metrics: Some(Arc::new(move || to_scrape.metrics())),
            ready: Some(Arc::new(move || ready.is_ready())),
        };
        self.served = Some(bound.serve(&backend, &hooks)?);
        Ok(())
    }

    /// How often the supervisor has looked at all units; it stands still where that hangs.
    pub fn turns(&self) -> u64 {
        self.core.station(|station| station.turns.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Reads the files again and goes over to them; what stays the same runs on. Waits until that
    /// is begun, not until all units have ended or started.
    ///
    /// # Errors
    /// All goes on as it was.
    pub fn reload(&self) -> Result<Vec<Step>, ReloadFailure> {
        self.core.reload(|_| Ok(())).map(|(steps, _)| steps)
    }

    /// Waits for the station's end. Its API is there until then.
    pub fn join(mut self) -> StationEnded {
        let station = self.core.station.write().unwrap_or_else(PoisonError::into_inner).take();
        let ended = station.map(Station::join).unwrap_or_default();
        self.live_stop.ask();
        self.live.take().map(join_logged);
        // What counts is pushed once more when all is counted.
        self.export_stop.ask();
        self.exporting.take().map(join_logged);
        self.core.ring.close();
        self.core.on_demand.end();
        self.core.deadlines.end_all();
        drop(self.served.take());
        ended
    }
}

impl ServiceCore {
    pub fn live_state(&self) -> MutexGuard<'_, LiveState> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was found of this host.
    pub fn host(&self) -> MutexGuard<'_, HostFindings> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration that is run.
    pub fn config(&self) -> MutexGuard<'_, RunConfig> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the station; `None`: it has ended.
    pub fn station<T>(&self, ask: impl FnOnce(&Station) -> T) -> Option<T> {
        self.station.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(ask)
    }

    /// What was counted, and how the station itself does.
    fn metrics(&self) -> MetricsSnapshot {
        let own = self.own_metrics();
        MetricsSnapshot { own, ..self.live_state().metrics(utc_now()) }
    }

    /// How the station itself does, as metrics.
    fn own_metrics(&self) -> OwnMetrics {
        let store = self.station(Station::store).unwrap_or_default();
        let units = {
            let live = self.live_state();
            let entries = live.units().filter_map(|(id, _)| live.unit_entry(id));
            entries.map(unit_metrics).collect()
        };
        let queues = self.hub.counts().into_iter().map(|counts| QueueMetrics {
            reader: counts.name,
            handed: counts.handed,
            dropped: counts.lost,
        });
        OwnMetrics {
            started_ns: self.started.ns(),
            cpu_ns: u64::try_from(Usage::read().cpu.as_nanos()).unwrap_or(u64::MAX),
            memory_octets: memory_octets(),
            clock_synchronised: clock_state().synchronised,
            units,
            queues: queues.collect(),
            store: StoreMetrics {
                works: store.error.is_none(),
                rows: store.durable_rows,
                waiting_rows: store.waiting_rows,
                lost_rows: store.lost_rows,
            },
            exports: self.exports.status().into_iter().map(export_metrics).collect(),
        }
    }

    fn is_ready(&self) -> bool {
        self.station(|station| station.store().error.is_none()).unwrap_or(false)
    }

    /// What [`ServiceCore::reload`] would do now.
    ///
    /// # Errors
    /// The faults of the files.
    pub fn foresee(&self) -> Result<Foreseen, Vec<SettingsError>> {
        let loaded = LoadedConfig::read(&self.path)?;
        let running = self.config();
        let joined = running.added.joined(&loaded.config.plan);
        let steps = steps(&running.plan, &joined.plan);
        Ok(Foreseen { version: loaded.version(), steps })
    }

    /// Goes over to the files as they are, if `allowed` for the version that is run; and the
    /// version that is run then.
    pub fn reload<E: From<ReloadFailure>>(
        &self,
        allowed: impl FnOnce(&EntityTag) -> Result<(), E>,
    ) -> Result<(Vec<Step>, String), E> {
        let mut running = self.config();
        allowed(&EntityTag::strong(&running.version))?;
        let done = self.go_over(&mut running);
        self.note_reload(done.as_ref().err());
        Ok(done?)
    }

    /// The last reload, if it failed.
    pub fn refused_reload(&self) -> Option<RefusedReload> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps in mind what came of a reload, and in the store if it failed.
    fn note_reload(&self, failure: Option<&ReloadFailure>) {
        let refused = failure.map(|failure| RefusedReload::new(utc_now().ns(), failure));
        let before = {
            let mut last = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *last, refused.clone())
        };
        let Some(news) = refused.filter(|refused| refused.is_news(before.as_ref())) else { return };
        // `None`: it ends. A store that takes nothing is a problem of its own.
        let kept = self.station(|station| station.add_event(&news.event(&self.name)));
        if let Some(Err(error)) = kept {
            tracing::warn!("the failed reload is not kept as an event: {error}");
        }
    }

    /// Goes over to the files as they are: the steps, and the version that is run then.
    fn go_over(&self, running: &mut RunConfig) -> Result<(Vec<Step>, String), ReloadFailure> {
        let loaded = LoadedConfig::read(&self.path).map_err(ReloadFailure::Files)?;
        let version = loaded.version();
        let LoadedConfig { mut config, files } = loaded;
        if config.api != running.api {
            return Err(ReloadFailure::Api);
        }
        let tokens = running.api.tokens.as_deref().filter(|_| running.api.listen.is_some());
        let tokens = tokens.map(TokenStore::read).transpose();
        let tokens = tokens.map_err(|error| ReloadFailure::Tokens(error.to_string()))?;
        let joined = running.added.joined(&config.plan);
        let filed = std::mem::replace(&mut config.plan, joined.plan.clone());
        let modules = config.modules.clone();
        let exports = self.exports.prepare(&config.exports).map_err(ReloadFailure::Exports)?;
        let steps = self.station(|station| station.reload(config));
        let steps = steps.ok_or(ReloadFailure::Ending)?.map_err(ReloadFailure::Refused)?;
        self.exports.apply(exports);
        if let Some(tokens) = tokens {
            self.tokens.replace(tokens);
        }
        if version != running.version {
            running.since = utc_now();
        }
        running.added.log_rests(&joined);
        let JoinedPlan { plan, rests } = joined;
        (running.version, running.files, running.modules) = (version.clone(), files, modules);
        (running.filed, running.plan, running.rests) = (filed, plan, rests);
        Ok((steps, version))
    }
}

fn unit_metrics(unit: UnitEntry) -> UnitMetrics {
    UnitMetrics {
        phase: unit.phase.name(),
        starts: unit.starts,
        records: unit.records,
        records_lost: unit.records_lost,
        name: unit.name,
    }
}

fn export_metrics(status: ExporterStatus) -> ExportMetrics {
    ExportMetrics {
        delivered: status.delivered,
        refused: status.refused,
        dropped: status.dropped,
        failures: status.failures,
        waiting_octets: status.waiting_octets as u64,
        failing: status.failing_since_ns.is_some(),
        name: status.name,
    }
}

/// When a query that begins now has taken too long.
pub(crate) fn query_end() -> Time {
    steady_now() + QUERY_NS
}

/// The present time by the steady clock.
pub(crate) fn steady() -> Time {
    steady_now()
}

/// The present time.
pub(crate) fn utc_now() -> UtcInstant {
    UtcInstant::from_ns(unix_now_ns())
}

/// For a query of the store, ns: less than a server waits for an answer.
const QUERY_NS: i64 = 50_000_000_000;
