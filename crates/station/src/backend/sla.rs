//! Objectives, their months, and the report of a month.

use std::collections::BTreeMap;

use sonde_api::events::VerdictEvidence;
use sonde_api::instant::UtcInstant;
use sonde_api::page::{ListPage, PageRequest};
use sonde_api::problem::{ProblemDetails, ProblemKind};
use sonde_api::sla::{
    CalendarMonth, MonthsQuery, ObjectiveEntry, ObjectivesParams, ReportQuery, Sla, SlaGrouping,
    SlaMonth, SlaTable,
};
use sonde_report::sla::{SlaMonthReport, SlaSheet};
use sonde_results::sla::{Evidence, ObjectiveMonth, SlaReport};
use sonde_store::query::{EventList, TimeRange};
use sonde_store::{Answer, EventFilter, Query, StoredEvent};

use super::{StationBackend, ending, other_answer};
use crate::alert::model::LabelSet;
use crate::judge::conclude::SLA_MONTH;
use crate::judge::trouble::{Trouble, TroubleKind};
use crate::keep::station_of;
use crate::runner::Station;
use crate::service::utc_now;

impl Sla for StationBackend {
    fn objectives(
        &self,
        ask: &ObjectivesParams,
        page: &PageRequest,
    ) -> Result<ListPage<ObjectiveEntry>, ProblemDetails> {
        let known = self.core.station(|s| (s.standings(), s.judge()));
        let (standings, judge) = known.ok_or_else(ending)?;
        let mut entries: Vec<ObjectiveEntry> = standings
            .into_iter()
            .map(|standing| ObjectiveEntry {
                last: last_window(&judge.open, &standing.labels, &standing.objective.name),
                objective: standing.objective.name.clone(),
                subject: standing.subject,
                labels: standing.labels,
                customer: some(&standing.customer),
                direction: standing.objective.direction,
                text: standing.objective.to_string(),
                standard: standing.objective.standard.clone(),
                breached_since: standing.breach_ns.map(UtcInstant::from_ns),
            })
            .filter(|entry| {
                ask.objective.as_ref().is_none_or(|name| *name == entry.objective)
                    && ask.subject.as_ref().is_none_or(|subject| *subject == entry.subject)
                    && (!ask.breached || entry.breached_since.is_some())
            })
            .collect();
        let key = |entry: &ObjectiveEntry| (entry.objective.clone(), entry.subject.clone());
        entries.sort_by_key(key);
        page.cut(entries, key)
    }

    fn months(
        &self,
        ask: &MonthsQuery,
        page: &PageRequest,
    ) -> Result<ListPage<SlaMonth>, ProblemDetails> {
        let mut months: Vec<SlaMonth> = self
            .all_months(ask.month, ask.revisions)?
            .iter()
            .map(|known| SlaMonth::of(known.name(), &known.month, &known.labels, &known.customer))
            .filter(|month| {
                ask.objective.as_ref().is_none_or(|name| *name == month.objective)
                    && ask.subject.as_ref().is_none_or(|subject| *subject == month.subject)
                    && ask.customer.as_ref().is_none_or(|c| Some(c) == month.customer.as_ref())
                    && ask.class.as_ref().is_none_or(|c| Some(c) == month.labels.get("class"))
            })
            .collect();
        let key = |month: &SlaMonth| {
            let names = (month.objective.clone(), month.subject.clone());
            (month.month.clone(), names, month.from.ns(), month.revision)
        };
        months.sort_by_key(key);
        page.cut(months, key)
    }

    fn sla_page(&self, ask: &ReportQuery) -> Result<Vec<u8>, ProblemDetails> {
        self.report(ask, |report| Ok(report.html().into_bytes()))
    }

    fn sla_table(&self, ask: &ReportQuery, table: SlaTable) -> Result<Vec<u8>, ProblemDetails> {
        let sheet = match table {
            SlaTable::Objectives => SlaSheet::Objectives,
            SlaTable::Groups => SlaSheet::Groups,
            SlaTable::Exclusions => SlaSheet::Exclusions,
        };
        self.report(ask, |report| {
            let failed =
                |error| ProblemDetails::new(ProblemKind::Internal, format!("no table: {error}"));
            report.csv(sheet).map_err(failed)
        })
    }
}

/// A month, and whom it is about.
struct KnownMonth {
    labels: LabelSet,
    customer: String,
    month: ObjectiveMonth,
}

impl KnownMonth {
    /// Of an event that keeps one.
    fn of_event(event: &StoredEvent) -> Option<KnownMonth> {
        let of = |name: &str| event.evidence.get(name).cloned();
        let mut labels: LabelSet = serde_json::from_value(of("labels")?).ok()?;
        labels.remove("objective");
        let customer = of("customer").and_then(|c| c.as_str().map(str::to_owned));
        let month = serde_json::from_value(of("month")?).ok()?;
        Some(KnownMonth { labels, customer: customer.unwrap_or_default(), month })
    }

    /// Which calendar month: its middle lies in it, wherever on Earth it begins.
    fn name(&self) -> CalendarMonth {
        let ObjectiveMonth { start_ns, end_ns, .. } = self.month;
        CalendarMonth::at(UtcInstant::from_ns(start_ns / 2 + end_ns / 2))
    }
}

impl StationBackend {
    /// Months of this station that have closed, of which the store has events, and those that fill. Without
    /// `revisions` the last figures of each.
    fn all_months(
        &self,
        wanted: Option<CalendarMonth>,
        revisions: bool,
    ) -> Result<Vec<KnownMonth>, ProblemDetails> {
        let filter = EventFilter { kind: Some(SLA_MONTH.into()), ..EventFilter::default() };
        let range = TimeRange { from_ns: i64::MIN, to_ns: i64::MAX };
        let ask = Query::Events(EventList { range, filter, ..EventList::default() });
        let Answer::Events(rows) = self.query(&ask)?.answer else { return Err(other_answer()) };
        // Those that fill are known of this station alone, and its report is of itself.
        let own = |event: &StoredEvent| station_of(event).is_none_or(|name| name == self.core.name);
        let closed = rows.iter().filter(|row| own(&row.event));
        let closed = closed.filter_map(|row| KnownMonth::of_event(&row.event));
        let standings = self.core.station(Station::standings).ok_or_else(ending)?;
        let filling = standings.into_iter().filter_map(|standing| {
            Some(KnownMonth {
                labels: standing.labels,
                customer: standing.customer,
                month: standing.month?,
            })
        });
        let mut latest: BTreeMap<(LabelSet, String, i64, u32), KnownMonth> = BTreeMap::new();
        for known in filling.chain(closed) {
            if wanted.is_some_and(|month| month != known.name()) {
                continue;
            }
            let revision = if revisions { known.month.revision } else { 0 };
            let key = (
                known.labels.clone(),
                known.month.objective.clone(),
                known.month.start_ns,
                revision,
            );
            let newer = |old: &KnownMonth| {
                let rank = |m: &ObjectiveMonth| (!m.provisional, m.revision);
                rank(&known.month) >= rank(&old.month)
            };
            if latest.get(&key).is_none_or(newer) {
                latest.insert(key, known);
            }
        }
        Ok(latest.into_values().collect())
    }

    fn report(
        &self,
        ask: &ReportQuery,
        render: impl FnOnce(&SlaMonthReport<'_>) -> Result<Vec<u8>, ProblemDetails>,
    ) -> Result<Vec<u8>, ProblemDetails> {
        // By begin, too: a month begins elsewhere where the contract has another time zone.
        let mut by_group: BTreeMap<(String, i64), Vec<ObjectiveMonth>> = BTreeMap::new();
        for known in self.all_months(Some(ask.month), false)? {
            let of_label = |name: &str| known.labels.get(name).cloned().unwrap_or_default();
            let group = match ask.by {
                SlaGrouping::Customer => known.customer.clone(),
                SlaGrouping::Class => of_label("class"),
                SlaGrouping::Target => of_label("target"),
            };
            let group = if group.is_empty() { "(none)".to_owned() } else { group };
            by_group.entry((group, known.month.start_ns)).or_default().push(known.month);
        }
        let groups: Vec<SlaReport> = by_group
            .into_iter()
            .filter_map(|((group, _), months)| SlaReport::of(group, &months))
            .collect();
        render(&SlaMonthReport {
            station: &self.core.name,
            month: &ask.month.to_string(),
            by: match ask.by {
                SlaGrouping::Customer => "customer",
                SlaGrouping::Class => "class",
                SlaGrouping::Target => "target",
            },
            at_ns: utc_now().ns(),
            groups: &groups,
        })
    }
}

/// The window that an open breach was concluded from last.
fn last_window(open: &[Trouble], labels: &LabelSet, objective: &str) -> Option<VerdictEvidence> {
    let of_it = |trouble: &&Trouble| {
        trouble.kind == TroubleKind::Breach
            && trouble.labels.get("objective").is_some_and(|name| name == objective)
            && labels.iter().all(|(name, value)| trouble.labels.get(name) == Some(value))
    };
    let window = open.iter().find(of_it)?.evidence.get("window")?.clone();
    let evidence: Evidence = serde_json::from_value(window).ok()?;
    Some(VerdictEvidence::from(&evidence))
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
