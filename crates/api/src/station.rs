//! The station itself: what it is, its units, how it does, its configuration.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sonde_results::caveat::CaveatSet;

use crate::Asked;
use crate::instant::UtcInstant;
use crate::page::{ListPage, PageRequest};
use crate::problem::ProblemDetails;
use crate::request::{ChangeContext, RouteAnswer};
use crate::role::AccessRole;
use crate::route::{ApiRoute, NoParams, RouteHead, list_params};

/// What the station says of itself.
pub trait StationInfo {
    /// What it is.
    fn about(&self, now: UtcInstant) -> Result<StationAbout, ProblemDetails>;

    /// Its units, by name.
    fn units(
        &self,
        ask: &UnitsParams,
        page: &PageRequest,
    ) -> Result<ListPage<UnitEntry>, ProblemDetails>;

    /// One of them.
    fn unit(&self, name: &str) -> Result<UnitDetail, ProblemDetails>;

    /// How it does.
    fn health(&self, now: UtcInstant) -> Result<StationHealth, ProblemDetails>;

    /// The configuration that it runs; its version can be named in a change.
    fn config(&self) -> Result<RouteAnswer<StationConfig>, ProblemDetails>;

    /// What a reload would do now. Changes nothing.
    fn config_changes(&self) -> Result<ReloadPlan, ProblemDetails>;

    /// Reads the configuration's files, and goes over to them. A file with a fault changes
    /// nothing, and is a 422.
    fn reload(&self, change: &ChangeContext<'_>) -> Result<ReloadPlan, ProblemDetails>;
}

/// What a station is.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StationAbout {
    /// Its name, as it stands in records and alerts.
    pub name: String,
    /// Version of Sonde: "0.1.0".
    pub version: String,
    /// Version of this API.
    pub api_version: String,
    /// When it was started.
    pub started: UtcInstant,
    /// Its present time, for pages whose clock differs.
    pub now: UtcInstant,
    /// Version of the configuration that it runs.
    pub config_version: String,
    /// How many units are in which phase.
    pub units: BTreeMap<UnitPhase, u32>,
    /// What it doubts of itself now; each stands on every page, and breaches of the time are
    /// doubtful.
    pub doubts: Vec<SelfDoubt>,
    /// The parts that it has: `store`, `flows`, `sql`, `alerts`. Others answer 501.
    pub parts: Vec<String>,
    /// What the kernel guards it by: `no_new_privs`, `seccomp`, `landlock 7`; none where it was not
    /// started to give rights up.
    pub guards: Vec<String>,
}

/// What the station doubts of itself.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SelfDoubt {
    /// A short name: `cut_off`, `clock_stepped`, `overloaded`.
    pub name: String,
    /// What happened.
    pub text: String,
    /// What to do about it.
    pub advice: String,
    /// Since when.
    pub from: UtcInstant,
    /// Until when; absent: it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<UtcInstant>,
}

/// What a unit does.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum UnitPhase {
    /// It waits until what it needs is free.
    Blocked,
    /// It was asked to start.
    Starting,
    /// It measures.
    Running,
    /// It was asked to end.
    Stopping,
    /// It failed, and waits for its next try.
    Waiting,
    /// It neither works nor ends.
    Stuck,
    /// It had done what it was to do.
    Done,
    /// Its settings are refused: it waits for others.
    Refused,
}

impl UnitPhase {
    /// As it stands in JSON and in labels.
    pub fn name(self) -> &'static str {
        match self {
            UnitPhase::Blocked => "blocked",
            UnitPhase::Starting => "starting",
            UnitPhase::Running => "running",
            UnitPhase::Stopping => "stopping",
            UnitPhase::Waiting => "waiting",
            UnitPhase::Stuck => "stuck",
            UnitPhase::Done => "done",
            UnitPhase::Refused => "refused",
        }
    }
}

/// A unit in the list.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UnitEntry {
    /// Its name in the configuration: `probe.core`.
    pub name: String,
    /// Its instrument: `probe`, `reflect`, `rtt`, `flow`.
    pub instrument: String,
    /// What it does.
    pub phase: UnitPhase,
    /// Since when.
    pub since: UtcInstant,
    /// Why, where it does not measure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it is tried next, where it waits for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try: Option<UtcInstant>,
    /// How often it was started.
    pub starts: u64,
    /// Records that it gave since the station's start.
    pub records: u64,
    /// Records that found no room on their way out of it.
    pub records_lost: u64,
    /// Its last record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_record: Option<UtcInstant>,
}

/// A unit with all that is known of it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UnitDetail {
    /// As in the list.
    pub unit: UnitEntry,
    /// Its settings, as the instrument understood them; `sonde schema --settings` has their schema.
    pub settings: Value,
    /// Counters of its engine and instrument, by name. Drops included.
    pub counters: BTreeMap<String, u64>,
    /// How late packets were sent.
    pub send_lateness: LengthSummary,
    /// Pauses of its thread longer than the watchdog's threshold.
    pub pauses: LengthSummary,
    /// What casts doubt on all that it measures.
    pub caveats: CaveatSet,
}

/// Lengths of time in short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LengthSummary {
    /// How many.
    pub n: u64,
    /// Median, ns; absent: too few.
    pub p50_ns: Option<i64>,
    /// 99th percentile, ns; absent: fewer than 500.
    pub p99_ns: Option<i64>,
    /// The longest, ns; absent: there was none.
    pub max_ns: Option<i64>,
}

/// How a station does.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StationHealth {
    /// Whether it is well enough to conclude anything from its results: nothing was dropped in the
    /// last five minutes, and it has neither problems nor doubts.
    pub sound: bool,
    /// What does not work now, in sentences.
    pub problems: Vec<String>,
    /// Processor time it takes, in processors (1: one whole).
    pub cpu: f64,
    /// Memory it holds, octets.
    pub memory_octets: u64,
    /// From when on a probe counts as late where its settings do not say, ns.
    pub late_limit_ns: i64,
    /// This host's clock.
    pub clock: StationClock,
    /// Queues between its parts.
    pub queues: Vec<QueueState>,
    /// What was dropped, by whom and why.
    pub drops: Vec<DropCount>,
    /// The store; absent: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreHealth>,
    /// Its exporters, by name.
    pub exports: Vec<ExportHealth>,
    /// What `sonde doctor` finds without load: at the start, and each day.
    pub doctor: Vec<DoctorEntry>,
    /// When that was; absent: it is still to come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub examined: Option<UtcInstant>,
    /// What it doubts of itself, the newest first, also what is over.
    pub doubts: Vec<SelfDoubt>,
}

/// The clock of the station's host.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StationClock {
    /// Whether the kernel believes it synchronised.
    pub synchronised: bool,
    /// The kernel's estimate of its greatest error, ns.
    pub max_error_ns: i64,
    /// When it was last set; absent: never while the station ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_step: Option<UtcInstant>,
    /// When it was set while the station ran: the last 100 times, the newest first.
    pub steps: Vec<ClockStepEntry>,
}

/// The clock was set.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ClockStepEntry {
    /// When, by the clock as it was set.
    pub at: UtcInstant,
    /// By how much forward, ns; negative: back.
    pub by_ns: i64,
    /// Intervals that are marked for it (`clock_stepped`) so far, by unit. They are left out of
    /// objectives.
    pub marked: BTreeMap<String, u64>,
}

/// A queue between two parts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct QueueState {
    /// Who reads it: `store`, `judge`, `live`; of a receiver of alerts `alert.NAME`.
    pub reader: String,
    /// What is in it.
    pub length: u64,
    /// What can be in it.
    pub capacity: u64,
    /// What found no room, since the station's start.
    pub dropped: u64,
}

/// Something that was dropped.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DropCount {
    /// The unit or part that dropped it.
    pub by: String,
    /// Why: a counter's name.
    pub reason: String,
    /// How many, since the station's start.
    pub count: u64,
    /// How many of them in the last five minutes.
    pub recent: u64,
}

/// How the store does.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StoreHealth {
    /// `embedded` or `clickhouse`.
    pub backend: String,
    /// Records a second that it took in the last five minutes.
    pub records_per_s: f64,
    /// Age of the oldest record that is not yet safe, ms; 0: all are.
    pub lag_ms: u64,
    /// Records that are not yet safe.
    pub waiting_rows: u64,
    /// Octets that it holds.
    pub octets: u64,
    /// Octets that its disk has free; absent: it has none of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_octets: Option<u64>,
    /// Octets that wait for a server that is away.
    pub spool_octets: u64,
    /// Its last failure, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// How an exporter does.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ExportHealth {
    /// Its name in the configuration.
    pub name: String,
    /// `otlp`, `influx` or `remote_write`.
    pub kind: String,
    /// Requests that wait.
    pub waiting: u64,
    /// Octets of them.
    pub waiting_octets: u64,
    /// Samples, data points or lines that the receiver has taken.
    pub delivered_points: u64,
    /// When it last took some; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_delivery: Option<UtcInstant>,
    /// Points that it refused for good.
    pub refused_points: u64,
    /// Points that found no room while it was away.
    pub dropped_points: u64,
    /// Tries that failed.
    pub failures: u64,
    /// Since when it takes nothing; absent: the last try went well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<UtcInstant>,
    /// What was wrong last, without secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// Something that was looked at on this host.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DoctorEntry {
    /// What was looked at.
    pub check: String,
    /// Whether it can stay so.
    pub verdict: DoctorGrade,
    /// What was found.
    pub found: String,
    /// What to do about it; absent: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// Whether something can stay as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DoctorGrade {
    /// It can.
    Good,
    /// Results are worse for it.
    Warning,
}

/// The configuration that a station runs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StationConfig {
    /// Its version, also the ETag: of its text.
    pub version: String,
    /// Since when it runs.
    pub since: UtcInstant,
    /// Its files, in the order in which they were read. Secrets stand in files of their own, which
    /// are none of these.
    pub files: Vec<ConfigText>,
    /// Targets that were added by this API, and stand in no file.
    pub added_targets: u32,
}

/// A file of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ConfigText {
    /// Its path.
    pub path: String,
    /// Its text: TOML.
    pub text: String,
}

/// What a reload does.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ReloadPlan {
    /// Version of the configuration in the files.
    pub version: String,
    /// What is done to each unit, in this order.
    pub steps: Vec<ReloadStep>,
    /// What is wrong in the files. With any of these nothing is done.
    pub errors: Vec<ConfigFault>,
}

/// What is done to a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReloadStep {
    /// Its name.
    pub unit: String,
    /// What is done.
    pub action: ReloadAction,
    /// Why it stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it measures besides from now on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// What it does not measure any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<String>,
}

/// What a reload does to a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReloadAction {
    /// It runs on as it is.
    Keep,
    /// It runs on with other settings, and loses nothing.
    Adjust,
    /// It ends.
    Stop,
    /// It begins.
    Start,
}

/// Something that is wrong in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConfigFault {
    /// The file; absent: it is about several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// The key: `probe.core.stream.interval`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What is wrong, and what is allowed.
    pub message: String,
}

/// Parameters of the list of units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnitsParams {
    /// Only units in one of these phases.
    #[serde(default)]
    pub phase: Vec<UnitPhase>,
    /// Only units of these instruments.
    #[serde(default)]
    pub instrument: Vec<String>,
    /// Items of a page, 1 to 1,000; absent: 100.
    pub limit: Option<u32>,
    /// Where the page before ended: its `next`.
    pub cursor: Option<String>,
}

/// Parameters of one unit.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnitParams {
    /// Its name: `probe.core`.
    pub name: String,
}

/// An order to reload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReloadOrder {}

list_params!(UnitsParams);

impl UnitsParams {
    /// Whether it asks for this unit.
    pub fn wants(&self, unit: &UnitEntry) -> bool {
        (self.phase.is_empty() || self.phase.contains(&unit.phase))
            && (self.instrument.is_empty() || self.instrument.contains(&unit.instrument))
    }
}

pub(crate) fn routes() -> Vec<ApiRoute> {
    let head = |path, operation, summary| RouteHead { path, operation, summary };
    vec![
        ApiRoute::get(
            head("/sonde/v1/station", "station_info", "What this station is"),
            |backend, asked: &Asked<'_, NoParams>| Ok(backend.about(asked.now)?.into()),
        ),
        ApiRoute::get(
            head("/sonde/v1/station/health", "station_health", "How this station does"),
            |backend, asked: &Asked<'_, NoParams>| Ok(backend.health(asked.now)?.into()),
        ),
        ApiRoute::list(
            head("/sonde/v1/units", "list_units", "What the station runs, by name"),
            |backend, asked, page| Ok(backend.units(&asked.params, page)?.into()),
        ),
        ApiRoute::get(
            head("/sonde/v1/units/{name}", "get_unit", "A unit, its settings and counters"),
            |backend, asked: &Asked<'_, UnitParams>| Ok(backend.unit(&asked.params.name)?.into()),
        ),
        ApiRoute::get(
            head("/sonde/v1/config", "get_config", "The configuration that is run"),
            |backend, _: &Asked<'_, NoParams>| backend.config(),
        )
        .by(AccessRole::Admin),
        ApiRoute::get(
            head("/sonde/v1/config/changes", "config_changes", "What a reload would do now"),
            |backend, _: &Asked<'_, NoParams>| Ok(backend.config_changes()?.into()),
        )
        .by(AccessRole::Admin),
        ApiRoute::post(
            head(
                "/sonde/v1/config/reload",
                "reload_config",
                "Goes over to the files as they are now",
            ),
            |backend, asked: &Asked<'_, NoParams, ReloadOrder>| {
                Ok(backend.reload(&asked.change())?.into())
            },
        )
        .by(AccessRole::Admin)
        .needs_version(),
    ]
}
