//! A backend in memory, for tests: its data are made up, its answers follow the rules.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use sonde_results::caveat::{Caveat, CaveatSet};

use crate::alerts::{
    AlertGroup, Alerts, AlertsParams, CheckedSilence, ReceiverEntry, ReceiverList, SilenceEntry,
    SilencesParams,
};
use crate::datum::{Datum, DatumColumn, DatumState, ReadingUnit};
use crate::etag::EntityTag;
use crate::events::{
    AcknowledgeOrder, EventAcknowledgement, EventDetail, EventEntry, EventExplanation, EventGrade,
    Events, EventsQuery,
};
use crate::flows::{FlowPointTable, FlowQueries, FlowQuery, FlowTopTable};
use crate::instant::{QueryRange, UtcInstant};
use crate::live::{Live, LiveData, LiveTopic};
use crate::on_demand::{OnDemandFailure, OnDemandParams, OnDemandProbes, OnDemandResult};
use crate::page::{ListPage, PageRequest};
use crate::problem::{ProblemDetails, ProblemKind};
use crate::readings::{
    AnswerLevel, BandTable, BandsQuery, HeatQuery, HeatTable, LiveReading, OverviewQuery,
    OverviewTable, PointTable, PointsQuery, ReadingMetric, ReadingState, Readings, SeriesChoice,
    SeriesEntry, SeriesPointTable, StateCounts, StateTable,
};
use crate::request::{ChangeContext, RouteAnswer};
use crate::ring::{LiveRing, RingLimits};
use crate::runs::{BenchRuns, RunDetail, RunEntry, RunsParams};
use crate::sla::{
    MonthsQuery, ObjectiveEntry, ObjectivesParams, ReportQuery, Sla, SlaMonth, SlaTable,
};
use crate::sql::{SqlCatalogue, SqlQueries, SqlQuery, SqlTable};
use crate::station::{
    ReloadPlan, StationAbout, StationClock, StationConfig, StationHealth, StationInfo, UnitDetail,
    UnitEntry, UnitPhase, UnitsParams,
};
use crate::targets::{MeasuredTarget, TargetOrder, TargetOrigin, Targets, TargetsParams};

/// A station with a few units, series and events. It has no flows, runs and SQL.
pub struct FakeBackend {
    /// The ring of its events.
    pub ring: Arc<LiveRing>,
    /// The units, by name.
    pub units: Vec<UnitEntry>,
    kept: Mutex<Kept>,
    held: Mutex<bool>,
    released: Condvar,
}

#[derive(Default)]
struct Kept {
    version: u64,
    targets: BTreeMap<String, MeasuredTarget>,
    silences: BTreeMap<String, SilenceEntry>,
    acknowledged: BTreeMap<String, EventAcknowledgement>,
}

/// When the fake was started.
pub const FAKE_START: UtcInstant = UtcInstant::from_ms(1_796_000_000_000);
/// The unit that answers once [`FakeBackend::release`] was called.
pub const HELD_UNIT: &str = "probe.held";
/// The unit that panics.
pub const PANICKING_UNIT: &str = "probe.panics";

impl Default for FakeBackend {
    fn default() -> FakeBackend {
        FakeBackend::with_units(3)
    }
}

impl FakeBackend {
    /// With another ring of events.
    pub fn with_ring(limits: RingLimits) -> FakeBackend {
        FakeBackend { ring: LiveRing::new(FAKE_START, limits), ..FakeBackend::default() }
    }

    /// With so many units: `probe.0000` and so on.
    pub fn with_units(count: usize) -> FakeBackend {
        let unit = |i| UnitEntry {
            name: format!("probe.{i:04}"),
            instrument: "probe".into(),
            phase: if i == 1 { UnitPhase::Waiting } else { UnitPhase::Running },
            since: FAKE_START,
            reason: (i == 1).then(|| "interface eth9 is not there".into()),
            next_try: (i == 1).then(|| FAKE_START.later(2_000_000_000)),
            starts: 1,
            records: 10,
            records_lost: 0,
            last_record: Some(FAKE_START),
        };
        FakeBackend {
            ring: LiveRing::new(FAKE_START, RingLimits::default()),
            units: (0..count).map(unit).collect(),
            kept: Mutex::default(),
            held: Mutex::new(true),
            released: Condvar::new(),
        }
    }

    /// Lets requests for [`HELD_UNIT`] go on.
    pub fn release(&self) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.released.notify_all();
    }

    /// Publishes how many streams are well.
    pub fn publish_state(&self, now: UtcInstant, ok: u64) {
        let counts = StateCounts { ok, ..StateCounts::default() };
        self.ring.publish(now, LiveTopic::State, &LiveData::State { counts });
    }

    /// Publishes a reading of the series `id` of at least so many octets.
    pub fn publish_reading(&self, now: UtcInstant, id: u32, octets: usize) {
        let mut column = DatumColumn::new("x".repeat(octets), ReadingUnit::Ns);
        column.push(Datum::sure(1.0, 1));
        let reading = LiveReading { id, from: now, to: now, columns: vec![column] };
        let topic = LiveTopic::Series(id.to_string());
        self.ring.publish(now, topic, &LiveData::Reading { reading });
    }

    /// Targets that were added.
    pub fn added_targets(&self) -> usize {
        self.kept().targets.len()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn series_entries(&self) -> Vec<SeriesEntry> {
        let of = |id: u32| SeriesEntry {
            id,
            labels: BTreeMap::from([
                ("site".into(), if id < 2 { "BER" } else { "MUC" }.into()),
                ("target".into(), format!("core-{id}")),
            ]),
            unit: "probe.0000".into(),
            metrics: vec![ReadingMetric::P50, ReadingMetric::P99, ReadingMetric::LossRatio],
            clocks_known: Some(false),
        };
        (0..3).map(of).collect()
    }

    fn event_entry(&self) -> EventEntry {
        EventEntry {
            id: "e1".into(),
            kind: "breach".into(),
            grade: EventGrade::Critical,
            subject: "core-1".into(),
            objective: Some("loss".into()),
            title: "core-1: loss 3 %, at most 0.1 %".into(),
            begin: FAKE_START,
            known: FAKE_START.later(10_000_000_000),
            end: None,
            last_good: Some(FAKE_START.later(-1_000_000_000)),
            series: vec![1],
            acknowledged: self.kept().acknowledged.get("e1").cloned(),
            doubtful: false,
        }
    }
}

fn computed(range: QueryRange, step_ms: i64) -> AnswerLevel {
    let (from, to) = (range.from, range.to);
    AnswerLevel { level: "1m".into(), step_ms, from, to, final_to: to }
}

/// One datum of each state, in turn.
fn sample_datum(metric: ReadingMetric, at: usize) -> Datum<f64> {
    let mut caveats = CaveatSet::default();
    caveats.insert(Caveat::SenderLate);
    let value = if metric == ReadingMetric::LossRatio { 0.25 } else { 1_000_000.0 };
    match at % 6 {
        0 => Datum::sure(value, 600),
        1 => Datum::Value { value, n: 600, caveats },
        2 => Datum::NoData("station down".into()),
        3 => Datum::NotMeasured("nothing is configured".into()),
        4 => Datum::Excluded("night work".into()),
        _ => Datum::Pending("final in 3 s".into()),
    }
}

fn sample_column(metric: ReadingMetric, length: usize) -> DatumColumn {
    let mut column = DatumColumn::new(metric.name(), metric.unit());
    (0..length).for_each(|at| column.push(sample_datum(metric, at)));
    column
}

impl StationInfo for FakeBackend {
    fn about(&self, now: UtcInstant) -> Result<StationAbout, ProblemDetails> {
        let mut units = BTreeMap::new();
        for unit in &self.units {
            *units.entry(unit.phase).or_default() += 1;
        }
        Ok(StationAbout {
            name: "fake".into(),
            version: "0.1.0".into(),
            api_version: crate::API_VERSION.into(),
            started: FAKE_START,
            now,
            config_version: "c1".into(),
            units,
            doubts: Vec::new(),
            parts: vec!["store".into(), "alerts".into()],
            guards: vec!["no_new_privs".into()],
        })
    }

    fn units(
        &self,
        ask: &UnitsParams,
        page: &PageRequest,
    ) -> Result<ListPage<UnitEntry>, ProblemDetails> {
        let wanted = self.units.iter().filter(|unit| ask.wants(unit)).cloned();
        page.cut(wanted, |unit| unit.name.clone())
    }

    fn unit(&self, name: &str) -> Result<UnitDetail, ProblemDetails> {
        assert_ne!(name, PANICKING_UNIT);
        if name == HELD_UNIT {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            while *held {
                held = self.released.wait(held).unwrap_or_else(PoisonError::into_inner);
            }
        }
        let unit = self.units.iter().find(|unit| unit.name == name);
        let unit = unit.ok_or_else(|| ProblemDetails::not_found("unit", name))?;
        Ok(UnitDetail {
            unit: unit.clone(),
            settings: serde_json::json!({ "stream": { "interval": "100ms" } }),
            counters: BTreeMap::from([("ring_full".into(), 0)]),
            send_lateness: Default::default(),
            pauses: Default::default(),
            caveats: CaveatSet::default(),
        })
    }

    fn health(&self, _: UtcInstant) -> Result<StationHealth, ProblemDetails> {
        let clock = StationClock {
            synchronised: true,
            max_error_ns: 40_000,
            last_step: None,
            steps: Vec::new(),
        };
        Ok(StationHealth {
            sound: true,
            problems: Vec::new(),
            cpu: 0.25,
            memory_octets: 100 << 20,
            late_limit_ns: 1_000_000,
            clock,
            queues: Vec::new(),
            drops: Vec::new(),
            store: None,
            exports: Vec::new(),
            doctor: Vec::new(),
            examined: None,
            doubts: Vec::new(),
        })
    }

    fn config(&self) -> Result<RouteAnswer<StationConfig>, ProblemDetails> {
        let config = StationConfig {
            version: "c1".into(),
            since: FAKE_START,
            files: Vec::new(),
            added_targets: self.added_targets() as u32,
        };
        Ok(RouteAnswer::of_version(config, EntityTag::strong("c1")))
    }

    fn config_changes(&self) -> Result<ReloadPlan, ProblemDetails> {
        Ok(ReloadPlan { version: "c1".into(), steps: Vec::new(), errors: Vec::new() })
    }

    fn reload(&self, change: &ChangeContext<'_>) -> Result<ReloadPlan, ProblemDetails> {
        change.check(&EntityTag::strong("c1"))?;
        self.config_changes()
    }
}

impl Targets for FakeBackend {
    fn targets(
        &self,
        ask: &TargetsParams,
        page: &PageRequest,
    ) -> Result<RouteAnswer<ListPage<MeasuredTarget>>, ProblemDetails> {
        let kept = self.kept();
        let wanted = kept.targets.values().filter(|target| ask.wants(target)).cloned();
        let page = page.cut(wanted, |target| target.id.clone())?;
        Ok(RouteAnswer::of_version(page, EntityTag::strong(kept.version)))
    }

    fn target(&self, id: &str) -> Result<RouteAnswer<MeasuredTarget>, ProblemDetails> {
        let kept = self.kept();
        let target = kept.targets.get(id).ok_or_else(|| ProblemDetails::not_found("target", id))?;
        Ok(RouteAnswer::of_version(target.clone(), EntityTag::strong(kept.version)))
    }

    fn add_target(
        &self,
        order: &TargetOrder,
        change: &ChangeContext<'_>,
    ) -> Result<RouteAnswer<MeasuredTarget>, ProblemDetails> {
        let mut kept = self.kept();
        change.check(&EntityTag::strong(kept.version))?;
        if !self.units.iter().any(|unit| unit.name == order.unit) {
            let why = format!("there is no unit '{}'", order.unit);
            return Err(ProblemDetails::of_body(ProblemKind::Unprocessable, "/unit", why));
        }
        kept.version += 1;
        let target = MeasuredTarget {
            id: format!("t{}", kept.version),
            unit: order.unit.clone(),
            name: order.name.clone().unwrap_or_else(|| order.host.clone()),
            host: order.host.clone(),
            addresses: Vec::new(),
            unresolved: Some("it was not looked up yet".into()),
            labels: order.labels.clone(),
            origin: TargetOrigin::Api,
            series: Vec::new(),
            state: ReadingState::NoData,
            since: change.now,
        };
        kept.targets.insert(target.id.clone(), target.clone());
        Ok(RouteAnswer::of_version(target, EntityTag::strong(kept.version)))
    }

    fn change_target(
        &self,
        id: &str,
        order: &TargetOrder,
        change: &ChangeContext<'_>,
    ) -> Result<RouteAnswer<MeasuredTarget>, ProblemDetails> {
        let mut kept = self.kept();
        change.check(&EntityTag::strong(kept.version))?;
        let target =
            kept.targets.get_mut(id).ok_or_else(|| ProblemDetails::not_found("target", id))?;
        (target.host, target.labels) = (order.host.clone(), order.labels.clone());
        target.since = change.now;
        let target = target.clone();
        kept.version += 1;
        Ok(RouteAnswer::of_version(target, EntityTag::strong(kept.version)))
    }

    fn remove_target(&self, id: &str, change: &ChangeContext<'_>) -> Result<(), ProblemDetails> {
        let mut kept = self.kept();
        change.check(&EntityTag::strong(kept.version))?;
        kept.targets.remove(id).ok_or_else(|| ProblemDetails::not_found("target", id))?;
        kept.version += 1;
        Ok(())
    }
}

impl Readings for FakeBackend {
    fn series(
        &self,
        filter: &SeriesChoice,
        page: &PageRequest,
    ) -> Result<ListPage<SeriesEntry>, ProblemDetails> {
        let wanted = self.series_entries().into_iter().filter(|series| filter.has(series));
        page.cut(wanted, |series| series.id)
    }

    fn overview(
        &self,
        ask: &OverviewQuery,
        page: &PageRequest,
    ) -> Result<OverviewTable, ProblemDetails> {
        let all = self.series_entries().into_iter().filter(|series| ask.choice.has(series));
        let rows = page.cut(all, |series| series.id)?;
        let count = rows.items.len();
        let group = |s: &SeriesEntry| {
            ask.by.iter().map(|name| s.labels.get(name).cloned().unwrap_or_default()).collect()
        };
        Ok(OverviewTable {
            computed: computed(ask.range, 60_000),
            counts: StateCounts { ok: 3, ..StateCounts::default() },
            by: ask.by.clone(),
            groups: rows.items.iter().map(group).collect(),
            series: rows.items.iter().map(|s| Some(s.id)).collect(),
            members: vec![1; count],
            states: vec![ReadingState::Ok; count],
            columns: ask.metrics.iter().map(|&m| sample_column(m, count)).collect(),
            next: rows.next,
        })
    }

    fn states(&self, filter: &SeriesChoice, now: UtcInstant) -> Result<StateTable, ProblemDetails> {
        let all = self.series_entries().into_iter().filter(|series| filter.has(series));
        let series: Vec<u32> = all.map(|series| series.id).collect();
        let states = vec![ReadingState::Ok; series.len()];
        let counts = StateCounts { ok: series.len() as u64, ..StateCounts::default() };
        Ok(StateTable { at: now, counts, series, states, doubtful: Vec::new() })
    }

    fn points(&self, ask: &PointsQuery) -> Result<PointTable, ProblemDetails> {
        let step_ms = (ask.range.length_ns() / 1_000_000 / i64::from(ask.points)).max(1);
        let columns =
            || ask.metrics.iter().map(|&m| sample_column(m, ask.points as usize)).collect();
        Ok(PointTable {
            computed: computed(ask.range, step_ms),
            at_ms: (0..i64::from(ask.points)).map(|i| ask.range.from.ms() + i * step_ms).collect(),
            series: ask.ids.iter().map(|&id| SeriesPointTable { id, columns: columns() }).collect(),
        })
    }

    fn bands(&self, ask: &BandsQuery) -> Result<BandTable, ProblemDetails> {
        let quantiles = [ReadingMetric::Min, ReadingMetric::P50, ReadingMetric::Max];
        Ok(BandTable {
            computed: computed(ask.range, 60_000),
            members: 3,
            at_ms: vec![ask.range.from.ms()],
            quantiles: quantiles.map(|m| sample_column(m, 1)).into(),
            loss: vec![sample_column(ReadingMetric::Sent, 1)],
            usual: None,
        })
    }

    fn heat(&self, ask: &HeatQuery) -> Result<HeatTable, ProblemDetails> {
        Ok(HeatTable {
            computed: computed(ask.range, 60_000),
            at_ms: vec![ask.range.from.ms()],
            states: vec![DatumState::Value],
            row_low_ns: vec![1_024],
            row_high_ns: vec![2_047],
            cell_column: vec![0],
            cell_row: vec![0],
            cell_count: vec![7],
            column_n: vec![7],
            column_lost: vec![0],
            without_bucket: 0,
        })
    }
}

impl Events for FakeBackend {
    fn events(
        &self,
        ask: &EventsQuery,
        page: &PageRequest,
    ) -> Result<ListPage<EventEntry>, ProblemDetails> {
        let wanted = Some(self.event_entry()).filter(|event| ask.wants(event));
        page.cut(wanted, |event| event.id.clone())
    }

    fn event(&self, id: &str) -> Result<EventDetail, ProblemDetails> {
        let event = Some(self.event_entry()).filter(|event| event.id == id);
        let event = event.ok_or_else(|| ProblemDetails::not_found("event", id))?;
        let (evidence, deliveries, details) = Default::default();
        Ok(EventDetail { event, evidence, deliveries, details })
    }

    fn acknowledge(
        &self,
        id: &str,
        order: &AcknowledgeOrder,
        change: &ChangeContext<'_>,
    ) -> Result<EventDetail, ProblemDetails> {
        self.event(id)?;
        let (by, note) = (change.caller.name.clone(), order.note.clone());
        let acknowledgement = EventAcknowledgement { by, at: change.now, note };
        self.kept().acknowledged.insert(id.to_owned(), acknowledgement);
        self.event(id)
    }

    fn unacknowledge(&self, id: &str, _: &ChangeContext<'_>) -> Result<(), ProblemDetails> {
        self.event(id)?;
        self.kept().acknowledged.remove(id);
        Ok(())
    }

    fn explain(&self, id: &str) -> Result<EventExplanation, ProblemDetails> {
        self.event(id)?;
        Err(ProblemDetails::not_offered("explanations"))
    }
}

impl Alerts for FakeBackend {
    fn alert_groups(
        &self,
        _: &AlertsParams,
        page: &PageRequest,
    ) -> Result<ListPage<AlertGroup>, ProblemDetails> {
        page.cut([], |group: &AlertGroup| group.id.clone())
    }

    fn receivers(&self) -> Result<ReceiverList, ProblemDetails> {
        let receiver = ReceiverEntry {
            name: "desk".into(),
            sink: "webhook".into(),
            waiting: 0,
            delivered: 3,
            given_up: 0,
            dropped: 0,
            last_delivery: Some(FAKE_START),
            failing: None,
        };
        Ok(ReceiverList { receivers: vec![receiver] })
    }

    fn silences(
        &self,
        ask: &SilencesParams,
        page: &PageRequest,
        now: UtcInstant,
    ) -> Result<ListPage<SilenceEntry>, ProblemDetails> {
        let kept = self.kept();
        let wanted = kept.silences.values().filter(|silence| {
            ask.kind.is_none_or(|kind| kind == silence.kind) && (ask.ended || silence.to > now)
        });
        page.cut(wanted.cloned(), |silence| (silence.to.ns(), silence.id.clone()))
    }

    fn add_silence(
        &self,
        order: &CheckedSilence,
        change: &ChangeContext<'_>,
    ) -> Result<SilenceEntry, ProblemDetails> {
        let mut kept = self.kept();
        let CheckedSilence { kind, name, labels, from, to, note } = order.clone();
        let (id, by) = (format!("s{}", kept.silences.len() + 1), change.caller.name.clone());
        let silence = SilenceEntry { id, kind, name, labels, from, to, by, note };
        kept.silences.insert(silence.id.clone(), silence.clone());
        Ok(silence)
    }

    fn end_silence(&self, id: &str, _: &ChangeContext<'_>) -> Result<(), ProblemDetails> {
        let ended = self.kept().silences.remove(id);
        ended.map(drop).ok_or_else(|| ProblemDetails::not_found("silence", id))
    }
}

impl Sla for FakeBackend {
    fn objectives(
        &self,
        _: &ObjectivesParams,
        page: &PageRequest,
    ) -> Result<ListPage<ObjectiveEntry>, ProblemDetails> {
        page.cut([], |entry: &ObjectiveEntry| entry.objective.clone())
    }

    fn months(
        &self,
        _: &MonthsQuery,
        page: &PageRequest,
    ) -> Result<ListPage<SlaMonth>, ProblemDetails> {
        page.cut([], |month: &SlaMonth| month.objective.clone())
    }

    fn sla_page(&self, ask: &ReportQuery) -> Result<Vec<u8>, ProblemDetails> {
        Ok(format!("<!doctype html><title>{}</title>", ask.month).into_bytes())
    }

    fn sla_table(&self, _: &ReportQuery, _: SlaTable) -> Result<Vec<u8>, ProblemDetails> {
        Ok(b"group\n".to_vec())
    }
}

impl FlowQueries for FakeBackend {
    fn flow_top(&self, _: &FlowQuery) -> Result<FlowTopTable, ProblemDetails> {
        Err(ProblemDetails::not_offered("flows"))
    }

    fn flow_points(&self, _: &FlowQuery, _: u32) -> Result<FlowPointTable, ProblemDetails> {
        Err(ProblemDetails::not_offered("flows"))
    }
}

impl BenchRuns for FakeBackend {
    fn runs(
        &self,
        _: &RunsParams,
        page: &PageRequest,
    ) -> Result<ListPage<RunEntry>, ProblemDetails> {
        page.cut([], |run: &RunEntry| run.id.clone())
    }

    fn run(&self, id: &str) -> Result<RunDetail, ProblemDetails> {
        Err(ProblemDetails::not_found("run", id))
    }

    fn run_report(&self, _: &str) -> Result<Vec<u8>, ProblemDetails> {
        Ok(b"<!doctype html><title>run</title>".to_vec())
    }
}

impl SqlQueries for FakeBackend {
    fn sql(&self, _: &SqlQuery, _: QueryRange) -> Result<SqlTable, ProblemDetails> {
        Err(ProblemDetails::not_offered("SQL"))
    }

    fn sql_tables(&self) -> Result<SqlCatalogue, ProblemDetails> {
        Err(ProblemDetails::not_offered("SQL"))
    }
}

impl OnDemandProbes for FakeBackend {
    /// Whoever is called `silent` does not answer.
    fn probe_now(&self, ask: &OnDemandParams) -> Result<OnDemandResult, ProblemDetails> {
        let failure = (ask.target == "silent").then_some(OnDemandFailure::NoAnswer);
        Ok(OnDemandResult { failure, ..OnDemandResult::default() })
    }
}

impl Live for FakeBackend {
    fn live(&self) -> &Arc<LiveRing> {
        &self.ring
    }
}
