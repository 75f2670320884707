//! What a receiver is told of a group of alerts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model::{Alert, AlertSeverity, LabelSet, fnv};
use super::route::AlertGroupKey;
use super::silence::Acknowledgement;

/// Why something is told now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotificationReason {
    /// A group of alerts is new to this receiver.
    Opened,
    /// Alerts came to the group or ended in it.
    Changed,
    /// Nothing changed, and it is time to say so again.
    Repeated,
    /// Somebody takes care of them.
    Acknowledged,
    /// All that the receiver was told of has ended.
    Resolved,
}

/// What is new of an alert for this receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlertNews {
    /// It began.
    Began,
    /// It lasts, as was said before.
    Lasts,
    /// It ended.
    Ended,
    /// It began and ended since the last notification.
    BeganAndEnded,
}

/// One of the alerts of a notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifiedAlert {
    /// What it is; it starts where what this receiver is told of as one alert began.
    pub alert: Alert,
    /// What is new of it.
    pub news: AlertNews,
    /// How often it began since then: more than once where it ended and began again before the
    /// receiver was told of the end. At most [`EPISODES_MOST`].
    pub episodes: u32,
    /// Who takes care of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledgement>,
}

impl NotifiedAlert {
    /// What it was before it ended, where its begin and its end are told at once: receivers
    /// ignore the end of what never began for them.
    pub fn as_begun(&self) -> Option<NotifiedAlert> {
        (self.news == AlertNews::BeganAndEnded).then(|| NotifiedAlert {
            alert: Alert { ends_ns: None, ..self.alert.clone() },
            news: AlertNews::Began,
            ..self.clone()
        })
    }
}

/// What one receiver is told of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// Which group.
    pub group: AlertGroupKey,
    /// Why now.
    pub reason: NotificationReason,
    /// When it was decided, ns since 1970 UTC.
    pub at_ns: i64,
    /// Alerts that last, then those that ended; the worst first. At most [`ALERTS_MOST`],
    /// unless the receiver forgets what is not repeated. Those that last unchanged are among them
    /// where the receiver takes whole groups, or where they are repeated.
    pub alerts: Vec<NotifiedAlert>,
    /// Alerts that found no room in it.
    pub truncated: u64,
    /// Alerts of the group that the receiver knows, that last, and that are not in `alerts`.
    #[serde(default)]
    pub unchanged: u64,
    /// Alerts of the group that are held back by a silence or maintenance.
    pub muted: u64,
    /// Whether alerts last that the receiver was told of, also those held back now.
    pub lasts: bool,
    /// The station that tells.
    pub station: String,
    /// Where the station is found: an address of `http` or `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

impl Notification {
    /// 16 hexadecimal digits that are the same for all that this station tells of the group.
    pub fn group_id(&self) -> String {
        let AlertGroupKey { receiver, labels } = &self.group;
        let labels = labels.iter().flat_map(|(name, value)| [name, value]);
        let texts = [&self.station, receiver].into_iter().chain(labels);
        format!("{:016x}", fnv(texts.flat_map(|text| text.bytes().chain([255]))))
    }

    /// Differs between notifications: a receiver that sees it twice was told twice.
    pub fn id(&self) -> String {
        format!("{}-{:x}", self.group_id(), self.at_ns)
    }

    /// What formats without a word for both send first where alerts began and ended at once
    /// ([`NotifiedAlert::as_begun`]); it has an id of its own. `None`: no alert did.
    pub fn as_begun(&self) -> Option<Notification> {
        if !self.alerts.iter().any(|told| told.news == AlertNews::BeganAndEnded) {
            return None;
        }
        let those = self.alerts.iter().filter(|told| told.news != AlertNews::Ended);
        let alerts = those.map(|told| told.as_begun().unwrap_or_else(|| told.clone())).collect();
        let reason = match self.reason {
            NotificationReason::Resolved => NotificationReason::Opened,
            reason => reason,
        };
        // The id depends on the instant.
        let at_ns = self.at_ns.saturating_sub(1);
        Some(Notification { alerts, reason, at_ns, lasts: true, ..self.clone() })
    }

    /// The worst of those that last; without any, of all.
    pub fn severity(&self) -> AlertSeverity {
        let worst = |only: bool| {
            let those = self.alerts.iter().filter(|told| !only || told.alert.lasts());
            those.map(|told| told.alert.severity()).max()
        };
        worst(true).or_else(|| worst(false)).unwrap_or_default()
    }

    /// Those that last, or those that ended.
    pub fn those(&self, last: bool) -> impl Iterator<Item = &NotifiedAlert> {
        self.alerts.iter().filter(move |told| told.alert.lasts() == last)
    }

    /// Labels that all alerts have with the same value.
    pub fn common_labels(&self) -> LabelSet {
        common(self.alerts.iter().map(|told| &told.alert.labels))
    }

    /// Annotations that all alerts have with the same value.
    pub fn common_annotations(&self) -> LabelSet {
        common(self.alerts.iter().map(|told| &told.alert.annotations))
    }
}

fn common<'a>(mut all: impl Iterator<Item = &'a LabelSet>) -> LabelSet {
    let mut common = all.next().cloned().unwrap_or_default();
    all.for_each(|labels| common.retain(|name, value| labels.get(name) == Some(value)));
    common
}

/// Alerts in a notification, at most.
pub const ALERTS_MOST: usize = 200;
/// How far episodes are counted.
pub const EPISODES_MOST: u32 = 64;
