//! Who is told of what: groups of alerts, silences and maintenance, receivers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Asked;
use crate::events::{DeliveryEntry, EventAcknowledgement, check_note};
use crate::instant::{GivenInstant, UtcInstant};
use crate::page::{ListPage, PageRequest};
use crate::problem::{ProblemDetails, ProblemKind};
use crate::request::{ChangeContext, RouteAnswer};
use crate::route::{ApiRoute, NoParams, RouteHead, list_params};

/// Alerts and what holds them back.
pub trait Alerts {
    /// Groups of alerts, the worst first.
    fn alert_groups(
        &self,
        ask: &AlertsParams,
        page: &PageRequest,
    ) -> Result<ListPage<AlertGroup>, ProblemDetails>;

    /// Receivers and how they do, by name.
    fn receivers(&self) -> Result<ReceiverList, ProblemDetails>;

    /// Silences and maintenance, those that end first first.
    fn silences(
        &self,
        ask: &SilencesParams,
        page: &PageRequest,
        now: UtcInstant,
    ) -> Result<ListPage<SilenceEntry>, ProblemDetails>;

    /// Holds alerts back for a time.
    fn add_silence(
        &self,
        order: &CheckedSilence,
        change: &ChangeContext<'_>,
    ) -> Result<SilenceEntry, ProblemDetails>;

    /// Ends one now.
    fn end_silence(&self, id: &str, change: &ChangeContext<'_>) -> Result<(), ProblemDetails>;
}

/// Alerts of one cause.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AlertGroup {
    /// Its id: the same for as long as it lasts.
    pub id: String,
    /// The labels in which its alerts agree.
    pub labels: BTreeMap<String, String>,
    /// The worst of its alerts.
    pub severity: AlertGrade,
    /// Since when.
    pub since: UtcInstant,
    /// Its alerts, the worst first; at most 100.
    pub alerts: Vec<AlertEntry>,
    /// Alerts that are not among these.
    pub truncated: u64,
    /// Alerts that a silence or maintenance holds back.
    pub held_back: u64,
    /// Who was told, and whether it arrived.
    pub deliveries: Vec<DeliveryEntry>,
}

/// How bad an alert is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AlertGrade {
    /// Worth knowing.
    Info,
    /// It may become a fault.
    Warning,
    /// A fault that can wait for the day.
    Error,
    /// A fault that cannot wait.
    Critical,
}

/// An alert.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AlertEntry {
    /// Made of its labels: the same for the same alert.
    pub fingerprint: String,
    /// What it is about.
    pub labels: BTreeMap<String, String>,
    /// One line for people.
    pub summary: String,
    /// What it stands on.
    pub evidence: String,
    /// When it began.
    pub begin: UtcInstant,
    /// When it ended; absent: it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<UtcInstant>,
    /// The event behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Who takes care of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<EventAcknowledgement>,
    /// Ids of the silences that hold it back.
    pub silences: Vec<String>,
}

/// Receivers.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ReceiverList {
    /// Each, by name.
    pub receivers: Vec<ReceiverEntry>,
}

/// A receiver, and how it does.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ReceiverEntry {
    /// Its name in the configuration.
    pub name: String,
    /// How it is told: `webhook`, `email`.
    pub sink: String,
    /// Notifications that wait for it.
    pub waiting: u64,
    /// Notifications that it has, since the station's start.
    pub delivered: u64,
    /// Notifications that it refused.
    pub given_up: u64,
    /// Notifications that found no room in its queue.
    pub dropped: u64,
    /// When it last took one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_delivery: Option<UtcInstant>,
    /// Its last failure, without secrets; absent: it works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<String>,
}

/// Why alerts are held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SilenceKind {
    /// Somebody does not want to hear of them for a time.
    #[default]
    Silence,
    /// Work was announced: the time is left out of objectives, too.
    Maintenance,
}

/// A time in which alerts are held back.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SilenceEntry {
    /// Its id.
    pub id: String,
    /// Why.
    pub kind: SilenceKind,
    /// Its name on charts and reports.
    pub name: String,
    /// What labels have to be: `*` stands for any characters, `!` before a pattern for anything else.
    pub labels: BTreeMap<String, String>,
    /// From when on.
    pub from: UtcInstant,
    /// Until when. There is none without an end.
    pub to: UtcInstant,
    /// Who wants it: the name of a token.
    pub by: String,
    /// Why, in that one's words.
    pub note: String,
}

/// A time in which alerts are to be held back.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SilenceOrder {
    /// Why; absent: a silence.
    #[serde(default)]
    pub kind: SilenceKind,
    /// Its name on charts and reports, 1 to 100 characters.
    pub name: String,
    /// What labels have to be, 1 to 16: `*` stands for any characters, `!` before a pattern for
    /// anything else.
    pub labels: BTreeMap<String, String>,
    /// From when on; absent: now. Maintenance is entered before it begins.
    #[serde(default)]
    pub from: Option<GivenInstant>,
    /// Until when.
    pub to: GivenInstant,
    /// Why, up to 1,000 characters.
    #[serde(default)]
    pub note: String,
}

/// The same with fixed times, and found possible.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedSilence {
    /// Why.
    pub kind: SilenceKind,
    /// Its name on charts and reports.
    pub name: String,
    /// What labels have to be.
    pub labels: BTreeMap<String, String>,
    /// From when on.
    pub from: UtcInstant,
    /// Until when; later than `from` and now.
    pub to: UtcInstant,
    /// Why, in words.
    pub note: String,
}

/// Parameters of the list of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AlertsParams {
    /// Only at least as bad.
    pub severity: Option<AlertGrade>,
    /// Only groups with alerts that nothing holds back.
    #[serde(default)]
    pub audible: bool,
    /// Items of a page, 1 to 1,000; absent: 100.
    pub limit: Option<u32>,
    /// Where the page before ended: its `next`.
    pub cursor: Option<String>,
}

/// Parameters of the list of silences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SilencesParams {
    /// Only of this kind.
    pub kind: Option<SilenceKind>,
    /// Also those that have ended.
    #[serde(default)]
    pub ended: bool,
    /// Items of a page, 1 to 1,000; absent: 100.
    pub limit: Option<u32>,
    /// Where the page before ended: its `next`.
    pub cursor: Option<String>,
}

/// Parameters of one silence.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SilenceParams {
    /// Its id.
    pub id: String,
}

list_params!(AlertsParams, SilencesParams);

impl SilenceOrder {
    /// With fixed times.
    ///
    /// # Errors
    /// 422 with the part that cannot be.
    pub fn check(&self, now: UtcInstant) -> Result<CheckedSilence, ProblemDetails> {
        let wrong = |pointer: &str, why: &str| {
            Err(ProblemDetails::of_body(ProblemKind::Unprocessable, pointer, why))
        };
        let (from, to) = (self.from.map_or(now, |from| from.at(now)), self.to.at(now));
        check_note("/note", &self.note)?;
        let texts = self.labels.iter().flat_map(|(name, pattern)| [name, pattern]);
        let long = texts.into_iter().any(|text| text.len() > 255);
        match () {
            () if !(1..=100).contains(&self.name.chars().count()) => {
                wrong("/name", "it has 1 to 100 characters")
            }
            () if !(1..=16).contains(&self.labels.len()) => {
                wrong("/labels", "there are 1 to 16; without any it would silence everything")
            }
            () if long => wrong("/labels", "names and patterns have at most 255 characters"),
            () if to <= from => wrong("/to", "it is not after `from`"),
            () if to <= now => wrong("/to", "it is over"),
            () if self.kind == SilenceKind::Maintenance && from < now => wrong(
                "/from",
                "maintenance is entered before it begins; leave `from` out, or use now",
            ),
            () => Ok(CheckedSilence {
                kind: self.kind,
                name: self.name.clone(),
                labels: self.labels.clone(),
                from,
                to,
                note: self.note.clone(),
            }),
        }
    }
}

pub(crate) fn routes() -> Vec<ApiRoute> {
    let head = |path, operation, summary| RouteHead { path, operation, summary };
    vec![
        ApiRoute::list(
            head("/sonde/v1/alerts", "list_alerts", "Groups of alerts, the worst first"),
            |backend, asked, page| Ok(backend.alert_groups(&asked.params, page)?.into()),
        ),
        ApiRoute::get(
            head("/sonde/v1/receivers", "list_receivers", "Who is told, and whether it arrives"),
            |backend, _: &Asked<'_, NoParams>| Ok(backend.receivers()?.into()),
        ),
        ApiRoute::list(
            head("/sonde/v1/silences", "list_silences", "Silences and maintenance"),
            |backend, asked: &Asked<'_, SilencesParams>, page| {
                Ok(backend.silences(&asked.params, page, asked.now)?.into())
            },
        ),
        ApiRoute::create(
            head("/sonde/v1/silences", "add_silence", "Holds alerts back for a time"),
            |backend, asked: &Asked<'_, NoParams, SilenceOrder>| {
                let order = asked.body.check(asked.now)?;
                let made = backend.add_silence(&order, &asked.change())?;
                let id = crate::params::encode_percent(&made.id);
                let location = Some(format!("/sonde/v1/silences/{id}"));
                Ok(RouteAnswer { location, ..RouteAnswer::from(made) })
            },
        ),
        ApiRoute::delete(
            head("/sonde/v1/silences/{id}", "end_silence", "Ends a silence or maintenance now"),
            |backend, asked: &Asked<'_, SilenceParams>| {
                backend.end_silence(&asked.params.id, &asked.change())
            },
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_has_labels_and_an_end_that_is_to_come() {
        let now = UtcInstant::from_ms(1_000_000);
        let at = |ms| GivenInstant::At(UtcInstant::from_ms(ms));
        let good = SilenceOrder {
            kind: SilenceKind::Maintenance,
            name: "night work".into(),
            labels: BTreeMap::from([("site".into(), "BER".into())]),
            from: Some(at(1_000_001)),
            to: at(1_000_002),
            note: String::new(),
        };
        assert_eq!(good.check(now).unwrap().to.ms(), 1_000_002);
        let pointer =
            |order: &SilenceOrder| order.check(now).unwrap_err().errors[0].pointer.clone().unwrap();
        let of = |change: fn(&mut SilenceOrder)| {
            let mut order = good.clone();
            change(&mut order);
            pointer(&order)
        };
        assert_eq!(of(|o| o.labels.clear()), "/labels");
        assert_eq!(of(|o| o.name.clear()), "/name");
        assert_eq!(of(|o| o.note = "x".repeat(1_001)), "/note");
        assert_eq!(of(|o| o.to = GivenInstant::Before(0)), "/to");
        assert_eq!(of(|o| o.from = Some(GivenInstant::Before(1))), "/from");
        // A silence may begin before it was asked for; what was told stays told.
        let silence = SilenceOrder { kind: SilenceKind::Silence, ..good };
        let early = SilenceOrder { from: Some(GivenInstant::Before(1)), ..silence };
        assert_eq!(early.check(now).unwrap().from, now.later(-1));
    }
}
