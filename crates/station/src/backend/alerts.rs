//! Alerts that last, who is told of them, and what holds them back.

use std::collections::BTreeMap;

use sonde_api::alerts::{
    AlertEntry, AlertGrade, AlertGroup, Alerts, AlertsParams, CheckedSilence, ReceiverEntry,
    ReceiverList, SilenceEntry, SilenceKind, SilencesParams,
};
use sonde_api::events::{DeliveryEntry, DeliveryState, EventAcknowledgement};
use sonde_api::instant::UtcInstant;
use sonde_api::page::{ListPage, PageRequest};
use sonde_api::problem::{ProblemDetails, ProblemKind};
use sonde_api::request::ChangeContext;
use sonde_store::StoredEvent;

use super::{StationBackend, ending, unsaved};
use crate::alert::alerting::{AlertInput, AlertView};
use crate::alert::delivery::{AlertStatus, ReceiverStatus};
use crate::alert::model::{AlertSeverity, LabelSet, bounded_labels, fingerprint};
use crate::alert::route::LabelPatterns;
use crate::alert::silence::{Mute, MuteKind};
use crate::judge::maintenance::CONFIGURED;
use crate::judge::settings::LABELS;
use crate::judge::trouble::Trouble;
use crate::keep::station_of;
use crate::runner::Station;

impl Alerts for StationBackend {
    fn alert_groups(
        &self,
        ask: &AlertsParams,
        page: &PageRequest,
    ) -> Result<ListPage<AlertGroup>, ProblemDetails> {
        let status = self.alert_status()?;
        let judge = self.core.station(Station::judge).ok_or_else(ending)?;
        let groups = groups_of(&status, &judge.open);
        let wanted = groups.into_iter().filter(|group| {
            ask.severity.is_none_or(|least| group.severity >= least)
                && (!ask.audible || group.held_back < group.alerts.len() as u64 + group.truncated)
        });
        let key = |group: &AlertGroup| (3 - group.severity as u8, group.since, group.id.clone());
        let mut wanted: Vec<AlertGroup> = wanted.collect();
        wanted.sort_by_key(key);
        page.cut(wanted, |group| {
            let (rank, since, id) = key(group);
            (rank, since.ns(), id)
        })
    }

    fn receivers(&self) -> Result<ReceiverList, ProblemDetails> {
        let receivers = self.alert_status()?.receivers.into_iter().map(receiver_of);
        Ok(ReceiverList { receivers: receivers.collect() })
    }

    fn silences(
        &self,
        ask: &SilencesParams,
        page: &PageRequest,
        now: UtcInstant,
    ) -> Result<ListPage<SilenceEntry>, ProblemDetails> {
        let mut entries: Vec<SilenceEntry> = self
            .mutes()?
            .values()
            .map(silence_of)
            .filter(|entry| ask.kind.is_none_or(|kind| kind == entry.kind))
            .filter(|entry| ask.ended || entry.to > now)
            .collect();
        let key = |entry: &SilenceEntry| (entry.to.ns(), entry.id.clone());
        entries.sort_by_key(key);
        page.cut(entries, key)
    }

    fn add_silence(
        &self,
        order: &CheckedSilence,
        change: &ChangeContext<'_>,
    ) -> Result<SilenceEntry, ProblemDetails> {
        let mute = Mute {
            id: format!("{:016x}", fastrand::u64(..)),
            name: order.name.clone(),
            kind: match order.kind {
                SilenceKind::Silence => MuteKind::Silence,
                SilenceKind::Maintenance => MuteKind::Maintenance,
            },
            labels: LabelPatterns(order.labels.clone()),
            starts_ns: order.from.ns(),
            ends_ns: order.to.ns(),
            author: change.caller.name.clone(),
            comment: order.note.clone(),
        };
        self.set_mute(mute.clone())?;
        tracing::info!("{} ordered a {}: {}", mute.author, kind_name(mute.kind), mute.name);
        Ok(silence_of(&mute))
    }

    fn end_silence(&self, id: &str, change: &ChangeContext<'_>) -> Result<(), ProblemDetails> {
        let mute = self.mutes()?.remove(id);
        let mut mute = mute.ok_or_else(|| ProblemDetails::not_found("silence", id))?;
        if id.starts_with(CONFIGURED) {
            let why = "it stands in the configuration; change that, and reload";
            return Err(ProblemDetails::new(ProblemKind::Conflict, why));
        }
        // One that has not begun never does.
        let ends_ns = mute.ends_ns.min(change.now.ns().max(mute.starts_ns));
        if ends_ns == mute.ends_ns {
            return Ok(());
        }
        mute.ends_ns = ends_ns;
        tracing::info!("{} ended a {}: {}", change.caller.name, kind_name(mute.kind), mute.name);
        self.set_mute(mute)
    }
}

impl StationBackend {
    fn alert_status(&self) -> Result<AlertStatus, ProblemDetails> {
        let status = self.core.station(Station::alerts).ok_or_else(ending)?;
        status.ok_or_else(|| ProblemDetails::not_offered("alerts; its configuration lacks [alert]"))
    }

    /// All silences and maintenance that are known, by id.
    fn mutes(&self) -> Result<BTreeMap<String, Mute>, ProblemDetails> {
        let known = self.core.station(|s| (s.alerts(), s.judge()));
        let (alerts, judge) = known.ok_or_else(ending)?;
        let of_alerts = alerts.into_iter().flat_map(|alerts| alerts.mutes);
        // What was entered is known to alerts from its begin on; the judge has its latest form.
        let all = of_alerts.chain(judge.entered);
        Ok(all.map(|mute| (mute.id.clone(), mute)).collect())
    }

    /// A silence is of alerts alone; maintenance is left out of objectives, too, so that the judge
    /// has it, and tells alerts of it when it begins.
    fn set_mute(&self, mute: Mute) -> Result<(), ProblemDetails> {
        let done = match mute.kind {
            MuteKind::Silence => {
                self.alert_status()?;
                self.core.station(|s| s.change_alerts(AlertInput::Mute(mute))).flatten()
            }
            MuteKind::Maintenance => {
                if let Some(name) = mute.labels.0.keys().find(|n| !LABELS.contains(&n.as_str())) {
                    let why = format!(
                        "maintenance is left out of objectives, which know no label '{name}'; \
                         those are {}",
                        LABELS.join(", ")
                    );
                    let kind = ProblemKind::Unprocessable;
                    return Err(ProblemDetails::of_body(kind, "/labels", why));
                }
                self.core.station(|s| s.enter_maintenance(mute))
            }
        };
        done.ok_or_else(ending)?.map_err(unsaved)
    }

    /// The labels of the alert that an event is about; `None`: there is none of it.
    pub(super) fn alert_of(&self, event: &StoredEvent) -> Option<LabelSet> {
        let status = self.core.station(Station::alerts).flatten()?;
        let found = status.alerts.into_iter().find(|view| is_about(event, &view.alert.labels));
        found.map(|view| view.alert.labels)
    }

    /// Who was told of the alert of an event.
    pub(super) fn deliveries_of(&self, event: &StoredEvent) -> Vec<DeliveryEntry> {
        let status = self.core.station(Station::alerts).flatten().unwrap_or_default();
        let views = status.alerts.iter().filter(|view| is_about(event, &view.alert.labels));
        deliveries(&views.collect::<Vec<_>>(), &status.receivers)
    }
}

/// Whether an alert is about an event: it has the labels that the judge gave it, or those of the
/// unit that failed.
pub(super) fn is_about(event: &StoredEvent, labels: &LabelSet) -> bool {
    let of_event = event.evidence.get("labels").cloned();
    let of_event = of_event.and_then(|labels| serde_json::from_value::<LabelSet>(labels).ok());
    match of_event {
        Some(of_event) => bounded_labels(of_event) == *labels,
        None => {
            let unit = event.evidence.get("unit").and_then(|unit| unit.as_str());
            let station = labels.get("station").map(String::as_str);
            // Another station in the same ClickHouse may have a unit of that name.
            let same_station = station_of(event).is_none_or(|name| Some(name) == station);
            let failed = labels.get("alertname").is_some_and(|name| name == "UnitFailed");
            event.kind.starts_with("unit_")
                && failed
                && same_station
                && labels.get("unit").map(String::as_str) == unit
        }
    }
}

/// Alerts of one cause together; the worst first in each.
pub(super) fn groups_of(status: &AlertStatus, open: &[Trouble]) -> Vec<AlertGroup> {
    let mut by_cause: BTreeMap<&LabelSet, Vec<&AlertView>> = BTreeMap::new();
    for view in &status.alerts {
        by_cause.entry(&view.cause).or_default().push(view);
    }
    let group = |(cause, mut views): (&LabelSet, Vec<&AlertView>)| {
        views.sort_by_key(|v| (std::cmp::Reverse(v.alert.severity()), v.alert.starts_ns));
        let since = views.iter().map(|view| view.alert.starts_ns).min().unwrap_or_default();
        AlertGroup {
            id: format!("{:016x}", fingerprint(cause)),
            labels: cause.clone(),
            severity: views.first().map_or(AlertGrade::Info, |v| grade_of(v.alert.severity())),
            since: UtcInstant::from_ns(since),
            alerts: views.iter().take(LISTED).map(|view| alert_entry(view, open)).collect(),
            truncated: views.len().saturating_sub(LISTED) as u64,
            held_back: views.iter().filter(|view| !view.held_back_by.is_empty()).count() as u64,
            deliveries: deliveries(&views, &status.receivers),
        }
    };
    by_cause.into_iter().map(group).collect()
}

fn alert_entry(view: &AlertView, open: &[Trouble]) -> AlertEntry {
    let alert = &view.alert;
    let same = |trouble: &&Trouble| bounded_labels(trouble.labels.clone()) == alert.labels;
    let event = open.iter().find(same).and_then(|trouble| trouble.event);
    AlertEntry {
        fingerprint: alert.fingerprint(),
        labels: alert.labels.clone(),
        summary: alert.summary().to_owned(),
        evidence: alert.evidence.clone(),
        begin: UtcInstant::from_ns(alert.starts_ns),
        end: alert.ends_ns.map(UtcInstant::from_ns),
        event: event.map(|id| id.to_string()),
        acknowledged: view.acknowledged.as_ref().map(|by| EventAcknowledgement {
            by: by.author.clone(),
            at: UtcInstant::from_ns(by.at_ns),
            note: by.comment.clone(),
        }),
        silences: view.held_back_by.clone(),
    }
}

/// Of each receiver the state of what is furthest behind.
fn deliveries(
    views: &[&AlertView],
    receivers: &BTreeMap<String, ReceiverStatus>,
) -> Vec<DeliveryEntry> {
    let names: std::collections::BTreeSet<&String> =
        views.iter().flat_map(|view| &view.receivers).collect();
    let entry = |name: &String| {
        let status = receivers.get(name).cloned().unwrap_or_default();
        let concerned = || views.iter().filter(|view| view.receivers.contains(name));
        let untold = || concerned().filter(|view| !view.told.contains(name));
        let waits = untold().any(|view| view.held_back_by.is_empty());
        let state = match () {
            () if status.queued > 0 && status.failing_since_ns.is_some() => DeliveryState::Retrying,
            () if waits || status.queued > 0 => DeliveryState::Waiting,
            () if untold().count() == concerned().count() => DeliveryState::HeldBack,
            () => DeliveryState::Delivered,
        };
        DeliveryEntry {
            receiver: name.clone(),
            state,
            last_try: status
                .delivered_ns
                .map(UtcInstant::from_ns)
                .filter(|_| state == DeliveryState::Delivered),
            error: status.last_error.filter(|_| status.failing_since_ns.is_some()),
        }
    };
    names.into_iter().map(entry).collect()
}

fn receiver_of((name, status): (String, ReceiverStatus)) -> ReceiverEntry {
    ReceiverEntry {
        name,
        sink: status.sink,
        waiting: status.queued as u64,
        delivered: status.delivered,
        given_up: status.given_up,
        dropped: status.dropped,
        last_delivery: status.delivered_ns.map(UtcInstant::from_ns),
        failing: status.last_error.filter(|_| status.failing_since_ns.is_some()),
    }
}

fn silence_of(mute: &Mute) -> SilenceEntry {
    SilenceEntry {
        id: mute.id.clone(),
        kind: match mute.kind {
            MuteKind::Silence => SilenceKind::Silence,
            MuteKind::Maintenance => SilenceKind::Maintenance,
        },
        name: if mute.name.is_empty() { mute.id.clone() } else { mute.name.clone() },
        labels: mute.labels.0.clone(),
        from: UtcInstant::from_ns(mute.starts_ns),
        to: UtcInstant::from_ns(mute.ends_ns),
        by: mute.author.clone(),
        note: mute.comment.clone(),
    }
}

fn kind_name(kind: MuteKind) -> &'static str {
    match kind {
        MuteKind::Silence => "silence",
        MuteKind::Maintenance => "maintenance",
    }
}

fn grade_of(severity: AlertSeverity) -> AlertGrade {
    match severity {
        AlertSeverity::Info => AlertGrade::Info,
        AlertSeverity::Warning => AlertGrade::Warning,
        AlertSeverity::Error => AlertGrade::Error,
        AlertSeverity::Critical => AlertGrade::Critical,
    }
}

/// Alerts that a group lists.
const LISTED: usize = 100;
