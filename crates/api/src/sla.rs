//! Objectives and their months.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::caveat::Caveat;
use sonde_results::sla::{
    AvailabilityTotals, ExclusionKind, MeasuredDirection, ObjectiveMonth, SecondTotals, Standard,
    WindowTotals,
};

use crate::Asked;
use crate::events::VerdictEvidence;
use crate::instant::UtcInstant;
use crate::page::{ListPage, PageRequest};
use crate::problem::{ProblemDetails, ProblemKind};
use crate::route::{ApiRoute, RouteHead, list_params};

/// What was promised, and what became of it.
pub trait Sla {
    /// Objectives and how they stand now, by name and subject.
    fn objectives(
        &self,
        ask: &ObjectivesParams,
        page: &PageRequest,
    ) -> Result<ListPage<ObjectiveEntry>, ProblemDetails>;

    /// A month of each objective and subject, by these.
    fn months(
        &self,
        ask: &MonthsQuery,
        page: &PageRequest,
    ) -> Result<ListPage<SlaMonth>, ProblemDetails>;

    /// The report of a month, as a page of HTML.
    fn sla_page(&self, ask: &ReportQuery) -> Result<Vec<u8>, ProblemDetails>;

    /// A table of it, as CSV.
    fn sla_table(&self, ask: &ReportQuery, table: SlaTable) -> Result<Vec<u8>, ProblemDetails>;
}

/// An objective of a subject, and how it stands.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ObjectiveEntry {
    /// Its name.
    pub objective: String,
    /// Whom it is about: a target, class, group, or ordered pair.
    pub subject: String,
    /// What the subject is: station, unit, target, class.
    pub labels: BTreeMap<String, String>,
    /// For whom it was promised; absent: the configuration does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// Which way.
    pub direction: MeasuredDirection,
    /// It in words, with its figures and units.
    pub text: String,
    /// By which standard; absent: the user's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard: Option<Standard>,
    /// Since when it is breached; absent: it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breached_since: Option<UtcInstant>,
    /// The last window that was judged; absent: none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<VerdictEvidence>,
}

/// The figures of one objective and subject over one calendar month.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SlaMonth {
    /// The month: `2026-11`.
    pub month: String,
    /// The objective's name.
    pub objective: String,
    /// Whom it is about: a target, class, group, or ordered pair.
    pub subject: String,
    /// What the subject is: station, unit, target, class.
    pub labels: BTreeMap<String, String>,
    /// For whom it was promised; absent: the configuration does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// Which way.
    pub direction: MeasuredDirection,
    /// The objective in words, with its figures and units.
    pub text: String,
    /// By which standard; absent: the user's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard: Option<Standard>,
    /// Begin of the month in the contract's time zone.
    pub from: UtcInstant,
    /// Its end.
    pub to: UtcInstant,
    /// Later intervals can still change it.
    pub provisional: bool,
    /// How often it was changed after it had been final.
    pub revision: u32,
    /// Windows, by verdict.
    pub windows: WindowTotals,
    /// The least share (0..=1) of windows that met the objective; null: there was none.
    pub compliance_low: Option<f64>,
    /// The greatest share that can have met it: undecided windows make the difference.
    pub compliance_high: Option<f64>,
    /// The window that was furthest from the objective; absent: none missed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<VerdictEvidence>,
    /// Availability; absent: the objective has no rule for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability: Option<MonthAvailability>,
    /// Errored seconds, where that is the objective.
    pub seconds: SecondTotals,
    /// Of how many intervals each caveat is true.
    pub caveats: Vec<CaveatCount>,
}

/// Availability over a month, in intervals.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MonthAvailability {
    /// Length of an interval, ms.
    pub interval_ms: f64,
    /// The least share (0..=1) that was available; null: everything was excluded.
    pub low: Option<f64>,
    /// The greatest share that can have been: unknown intervals make the difference.
    pub high: Option<f64>,
    /// Share of the known intervals that was available: PIA of Y.1540.
    pub of_known: Option<f64>,
    /// Intervals that were available.
    pub available: u64,
    /// Intervals that were unavailable.
    pub unavailable: u64,
    /// Intervals of which unknown ones leave it open.
    pub undecided: u64,
    /// High loss intervals (HLI).
    pub high_loss: u64,
    /// Further intervals that may have been.
    pub high_loss_possible: u64,
    /// Runs of high loss intervals (CHLI, in runs).
    pub chli_runs: u64,
    /// Intervals in such runs (CHLI, in intervals).
    pub chli_intervals: u64,
    /// Runs of unavailable intervals that began in the month.
    pub outages: u64,
    /// The longest of them, intervals.
    pub longest_outage: u64,
    /// What was left out, by name.
    pub excluded: Vec<ExcludedIntervals>,
}

/// Time that was left out under one name.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ExcludedIntervals {
    /// Why.
    pub kind: ExclusionKind,
    /// The maintenance window's name, or what the station doubted.
    pub name: String,
    /// Intervals.
    pub intervals: u64,
    /// Their length together, ms.
    pub length_ms: i64,
}

/// Of how many intervals a caveat is true.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CaveatCount {
    /// The caveat.
    pub caveat: Caveat,
    /// Intervals that count and have it.
    pub intervals: u64,
}

/// A calendar month.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CalendarMonth {
    /// 1970 to 2261.
    pub year: u16,
    /// 1 to 12.
    pub month: u8,
}

/// A question for months.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonthsQuery {
    /// Which month; `None`: all that are kept.
    pub month: Option<CalendarMonth>,
    /// Only this objective.
    pub objective: Option<String>,
    /// Only this subject.
    pub subject: Option<String>,
    /// Only for this customer.
    pub customer: Option<String>,
    /// Only of this class.
    pub class: Option<String>,
    /// Also figures that were revised since: each revision is a row.
    pub revisions: bool,
}

/// A question for the report of a month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportQuery {
    /// Which month.
    pub month: CalendarMonth,
    /// What its chapters are.
    pub by: SlaGrouping,
}

/// What the chapters of a report are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SlaGrouping {
    /// Customers, as objectives name them.
    #[default]
    Customer,
    /// Classes of service.
    Class,
    /// Targets.
    Target,
}

/// A table of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SlaTable {
    /// Each objective of each subject.
    #[default]
    Objectives,
    /// Each chapter and objective, by its worst subject.
    Groups,
    /// Time that was left out, by name.
    Exclusions,
}

/// Parameters of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportParams {
    /// The month: `2026-11`; absent: the present one.
    pub month: Option<String>,
    /// What its chapters are.
    #[serde(default)]
    pub by: SlaGrouping,
}

/// Parameters of a table of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportTableParams {
    /// The month: `2026-11`; absent: the present one.
    pub month: Option<String>,
    /// What the chapters are.
    #[serde(default)]
    pub by: SlaGrouping,
    /// Which table.
    #[serde(default)]
    pub table: SlaTable,
}

/// Parameters of the list of objectives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectivesParams {
    /// Only of this name.
    pub objective: Option<String>,
    /// Only about this.
    pub subject: Option<String>,
    /// Only those that are breached.
    #[serde(default)]
    pub breached: bool,
    /// Items of a page, 1 to 1,000; absent: 100.
    pub limit: Option<u32>,
    /// Where the page before ended: its `next`.
    pub cursor: Option<String>,
}

/// Parameters of the list of months.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MonthsParams {
    /// The month: `2026-11`; absent: all that are kept.
    pub month: Option<String>,
    /// Only this objective.
    pub objective: Option<String>,
    /// Only this subject.
    pub subject: Option<String>,
    /// Only for this customer.
    pub customer: Option<String>,
    /// Only of this class.
    pub class: Option<String>,
    /// Also figures that were revised since.
    #[serde(default)]
    pub revisions: bool,
    /// Items of a page, 1 to 1,000; absent: 100.
    pub limit: Option<u32>,
    /// Where the page before ended: its `next`.
    pub cursor: Option<String>,
}

list_params!(ObjectivesParams, MonthsParams);

impl CalendarMonth {
    /// That of an instant, in UTC.
    pub fn at(instant: UtcInstant) -> CalendarMonth {
        // "2026-11-29T12:00:00Z"; instants of this type lie in the years that a month can have.
        let text = instant.to_string();
        text.get(..7)
            .and_then(CalendarMonth::parse)
            .unwrap_or(CalendarMonth { year: 1970, month: 1 })
    }

    fn given(text: &str) -> Result<CalendarMonth, ProblemDetails> {
        CalendarMonth::parse(text).ok_or_else(|| {
            let why = format!("'{text}' is no month; write 2026-11");
            ProblemDetails::of_parameter(ProblemKind::Malformed, "month", why)
        })
    }

    /// Reads `2026-11`.
    pub fn parse(text: &str) -> Option<CalendarMonth> {
        let (year, month) = text.split_once('-')?;
        let plain = |text: &str, length| {
            let digits = text.len() == length && text.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| text.parse::<u16>().ok()).flatten()
        };
        let (year, month) = (plain(year, 4)?, plain(month, 2)?);
        let exists = (1970..=2261).contains(&year) && (1..=12).contains(&month);
        exists.then_some(CalendarMonth { year, month: month as u8 })
    }
}

impl std::fmt::Display for CalendarMonth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

impl SlaMonth {
    /// Of the figures of `month`, of a subject with these labels.
    pub fn of(
        month: CalendarMonth,
        of: &ObjectiveMonth,
        labels: &BTreeMap<String, String>,
        customer: &str,
    ) -> SlaMonth {
        let compliance = of.windows.compliance();
        let counted = of.availability.interval_ns > 0;
        SlaMonth {
            month: month.to_string(),
            objective: of.objective.clone(),
            subject: of.subject.clone(),
            labels: labels.clone(),
            customer: (!customer.is_empty()).then(|| customer.to_owned()),
            direction: of.direction,
            text: of.text.clone(),
            standard: of.standard.clone(),
            from: UtcInstant::from_ns(of.start_ns),
            to: UtcInstant::from_ns(of.end_ns),
            provisional: of.provisional,
            revision: of.revision,
            windows: of.windows,
            compliance_low: compliance.map(|(low, _)| low),
            compliance_high: compliance.map(|(_, high)| high),
            worst: of.worst.as_ref().map(VerdictEvidence::from),
            availability: counted.then(|| MonthAvailability::from(&of.availability)),
            seconds: of.seconds,
            caveats: of
                .caveats
                .iter()
                .map(|c| CaveatCount { caveat: c.caveat, intervals: c.intervals })
                .collect(),
        }
    }
}

impl From<&AvailabilityTotals> for MonthAvailability {
    fn from(of: &AvailabilityTotals) -> MonthAvailability {
        let excluded = of.excluded.iter().map(|e| ExcludedIntervals {
            kind: e.kind,
            name: e.name.clone(),
            intervals: e.intervals,
            length_ms: e.length_ns / 1_000_000,
        });
        MonthAvailability {
            interval_ms: of.interval_ns as f64 / 1e6,
            low: of.low(),
            high: of.high(),
            of_known: of.of_known(),
            available: of.available,
            unavailable: of.unavailable,
            undecided: of.undecided,
            high_loss: of.high_loss,
            high_loss_possible: of.high_loss_possible,
            chli_runs: of.chli_runs,
            chli_intervals: of.chli_intervals,
            outages: of.outages,
            longest_outage: of.longest_outage,
            excluded: excluded.collect(),
        }
    }
}

pub(crate) fn routes() -> Vec<ApiRoute> {
    let head = |path, operation, summary| RouteHead { path, operation, summary };
    vec![
        ApiRoute::list(
            head("/sonde/v1/sla/objectives", "list_objectives", "Objectives and how they stand"),
            |backend, asked, page| Ok(backend.objectives(&asked.params, page)?.into()),
        ),
        ApiRoute::list(
            head("/sonde/v1/sla/months", "list_months", "Objectives over calendar months"),
            |backend, asked: &Asked<'_, MonthsParams>, page| {
                let params = &asked.params;
                let month = params.month.as_deref().map(CalendarMonth::given);
                let query = MonthsQuery {
                    month: month.transpose()?,
                    objective: params.objective.clone(),
                    subject: params.subject.clone(),
                    customer: params.customer.clone(),
                    class: params.class.clone(),
                    revisions: params.revisions,
                };
                Ok(backend.months(&query, page)?.into())
            },
        ),
        ApiRoute::get_other(
            head("/sonde/v1/sla/report", "sla_report", "The report of a month: a page of HTML"),
            "text/html; charset=utf-8",
            |backend, asked: &Asked<'_, ReportParams>| {
                let month = asked.params.month.as_deref().map(CalendarMonth::given);
                let month = month.unwrap_or(Ok(CalendarMonth::at(asked.now)))?;
                Ok(backend.sla_page(&ReportQuery { month, by: asked.params.by })?.into())
            },
        ),
        ApiRoute::get_other(
            head("/sonde/v1/sla/report.csv", "sla_report_table", "A table of a month's report"),
            "text/csv; charset=utf-8",
            |backend, asked: &Asked<'_, ReportTableParams>| {
                let params = &asked.params;
                let month = params.month.as_deref().map(CalendarMonth::given);
                let month = month.unwrap_or(Ok(CalendarMonth::at(asked.now)))?;
                let query = ReportQuery { month, by: params.by };
                Ok(backend.sla_table(&query, params.table)?.into())
            },
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_of_an_objective_has_its_ranges() {
        let mut availability = AvailabilityTotals {
            interval_ns: 1_000_000_000,
            available: 8,
            unavailable: 1,
            undecided: 1,
            ..AvailabilityTotals::default()
        };
        availability.exclude(ExclusionKind::Maintenance, "night", 2, 2_000_000_000);
        let windows = WindowTotals { met: 3, missed: 0, undecided: 1, excluded: 0 };
        let of = ObjectiveMonth {
            objective: "loss".into(),
            subject: "BER".into(),
            direction: MeasuredDirection::RoundTrip,
            text: "loss at most 0.1 %".into(),
            standard: None,
            start_ns: 1_793_491_200_000_000_000,
            end_ns: 1_796_083_200_000_000_000,
            provisional: true,
            revision: 0,
            windows,
            worst: None,
            availability,
            seconds: SecondTotals::default(),
            caveats: Vec::new(),
        };
        let month = CalendarMonth::parse("2026-11").unwrap();
        let json =
            serde_json::to_value(SlaMonth::of(month, &of, &BTreeMap::new(), "acme")).unwrap();
        assert_eq!(json["customer"], "acme");
        assert_eq!(
            (&json["compliance_low"], &json["compliance_high"]),
            (&0.75.into(), &1.0.into())
        );
        assert_eq!(json["from"]["utc"], "2026-11-01T00:00:00Z");
        assert_eq!(json["availability"]["low"], 0.8);
        assert_eq!(json["availability"]["high"], 0.9);
        assert_eq!(json["availability"]["excluded"][0]["length_ms"], 2_000);
        let none = ObjectiveMonth { availability: AvailabilityTotals::default(), ..of };
        let none = SlaMonth::of(month, &none, &BTreeMap::new(), "");
        assert_eq!((none.availability, none.customer), (None, None));
    }

    #[test]
    fn months_are_those_of_the_calendar() {
        assert_eq!(CalendarMonth::parse("2026-11").unwrap().to_string(), "2026-11");
        let late = UtcInstant::from_ms(1_796_083_199_999);
        assert_eq!(CalendarMonth::at(late).to_string(), "2026-11");
        assert_eq!(CalendarMonth::at(late.later(1_000_000)).to_string(), "2026-12");
        for wrong in
            ["", "2026", "2026-1", "2026-13", "2026-00", "+026-01", "2026-11-01", "1969-12"]
        {
            assert_eq!(CalendarMonth::parse(wrong), None, "{wrong}");
        }
    }
}
