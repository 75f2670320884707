//! PagerDuty's Events API, version 2: one incident for each group of alerts.
//!
//! `dedup_key` is the group's id, so that whatever is told of the group later comes to the same
//! incident, and telling it twice changes nothing.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::civil_time;
use sonde_run::error::SettingsError;

use super::{
    AlertSink, HttpPost, OpenedSink, SinkError, SinkRequest, SinkSettings, SinkWay, check_url,
    json, secret, text,
};
use crate::alert::notification::{Notification, NotificationReason};
use crate::alert::secret::{Redactor, SecretFile, SecretText};

/// The settings of a service of PagerDuty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PagerdutySettings {
    /// A file that holds the integration key of the service: 32 letters and digits.
    pub key_file: SecretFile,
    /// Where to: another address of `https` for accounts of the European region.
    pub url: String,
    /// A file of the authorities that are trusted, in PEM; absent: those of this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

impl Default for PagerdutySettings {
    fn default() -> Self {
        PagerdutySettings {
            key_file: SecretFile(PathBuf::new()),
            url: "https://events.pagerduty.com/v2/enqueue".into(),
            ca: None,
        }
    }
}

impl SinkSettings for PagerdutySettings {
    fn check(&self) -> Result<(), SettingsError> {
        if self.key_file.path().as_os_str().is_empty() {
            return Err(SettingsError::new("key_file", "name the file of the integration key"));
        }
        check_url(Some(&self.url), None)
    }

    fn open(&self) -> Result<OpenedSink, SettingsError> {
        let key = secret("key_file", &self.key_file)?;
        let text = key.expose();
        if text.len() != KEY_LENGTH || !text.bytes().all(|b| b.is_ascii_alphanumeric()) {
            let file = self.key_file.path().display();
            let why = format!("{file} holds no integration key: {KEY_LENGTH} letters and digits");
            return Err(SettingsError::new("key_file", why));
        }
        let redactor = Redactor::of([&key]);
        let sink = Box::new(Pagerduty { url: self.url.clone(), key });
        Ok(OpenedSink { sink, way: SinkWay::Http { ca: self.ca.clone() }, redactor })
    }
}

/// A service of PagerDuty.
pub struct Pagerduty {
    /// Where to.
    pub url: String,
    /// Which service.
    pub key: SecretText,
}

impl AlertSink for Pagerduty {
    fn render(&self, notification: &Notification, _now_ns: i64) -> Result<SinkRequest, SinkError> {
        let begun = notification.as_begun();
        // An event would call somebody again who closed the incident, because it got better.
        let only_ends = notification.reason == NotificationReason::Changed
            && notification.those(true).next().is_none();
        let own = (!only_ends).then_some(notification);
        let posts = begun.iter().chain(own).map(|told| {
            let event = PagerdutyEvent::of(told, self.key.expose());
            let body = json("an event of PagerDuty", &event)?;
            Ok(HttpPost { url: self.url.clone(), headers: Vec::new(), body })
        });
        let posts = posts.collect::<Result<Vec<_>, SinkError>>()?;
        Ok(if posts.is_empty() { SinkRequest::Nothing } else { SinkRequest::Http(posts) })
    }
}

#[derive(Serialize)]
struct PagerdutyEvent<'a> {
    routing_key: &'a str,
    event_action: &'static str,
    dedup_key: String,
    /// Only a trigger has what follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<PagerdutyPayload<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    links: Vec<PagerdutyLink<'a>>,
}

#[derive(Serialize)]
struct PagerdutyPayload<'a> {
    summary: String,
    source: &'a str,
    severity: &'static str,
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    component: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    custom_details: PagerdutyDetails,
}

#[derive(Serialize)]
struct PagerdutyDetails {
    firing: usize,
    resolved: usize,
    text: String,
}

#[derive(Serialize)]
struct PagerdutyLink<'a> {
    href: &'a str,
    text: &'a str,
}

impl PagerdutyEvent<'_> {
    fn of<'a>(notification: &'a Notification, routing_key: &'a str) -> PagerdutyEvent<'a> {
        let event_action = match notification.reason {
            NotificationReason::Resolved => "resolve",
            NotificationReason::Acknowledged => "acknowledge",
            _ => "trigger",
        };
        let triggers = event_action == "trigger";
        let linked = notification.alerts.iter().filter_map(|told| {
            Some(PagerdutyLink { href: told.alert.link.as_deref()?, text: told.alert.summary() })
        });
        PagerdutyEvent {
            routing_key,
            event_action,
            dedup_key: notification.group_id(),
            payload: triggers.then(|| PagerdutyPayload::of(notification)),
            client: triggers.then_some("Sonde"),
            client_url: notification.link.as_deref().filter(|_| triggers),
            links: linked.take(if triggers { LINKS_MOST } else { 0 }).collect(),
        }
    }
}

impl PagerdutyPayload<'_> {
    fn of(notification: &Notification) -> PagerdutyPayload<'_> {
        let mut common = notification.common_labels();
        let cause: Vec<String> = notification
            .group
            .labels
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let began = notification.alerts.iter().map(|told| told.alert.starts_ns).min();
        let station = notification.station.as_str();
        PagerdutyPayload {
            summary: text::title(notification, SUMMARY_MOST),
            // An event without a source is refused.
            source: if station.is_empty() { "sonde" } else { station },
            // Of the same four names.
            severity: notification.severity().as_str(),
            timestamp: civil_time::rfc3339(began.unwrap_or(notification.at_ns)),
            component: common.remove("target"),
            group: (!cause.is_empty()).then(|| cause.join(", ")),
            class: common.remove("alertname"),
            custom_details: PagerdutyDetails {
                firing: notification.those(true).count() + notification.unchanged as usize,
                resolved: notification.those(false).count(),
                text: text::body(notification, DETAILS_MOST),
            },
        }
    }
}

/// Of an integration key, characters.
const KEY_LENGTH: usize = 32;
/// Of a summary, bytes: the API takes 1024 characters.
const SUMMARY_MOST: usize = 1024;
/// Of the details, bytes: an event may have 512 KiB in all.
const DETAILS_MOST: usize = 32_768;
/// Links to alerts, at most.
const LINKS_MOST: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::sink::testing;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    const KEY: &str = "0123456789abcdef0123456789ABCDEF";

    fn event(notification: &Notification) -> Value {
        let sink = Pagerduty { url: "https://a".into(), key: SecretText::new(KEY) };
        match sink.render(notification, 0).unwrap() {
            SinkRequest::Http(posts) => {
                assert_eq!((posts.len(), posts[0].headers.len()), (1, 0));
                serde_json::from_slice(&posts[0].body).unwrap()
            }
            _ => panic!("no request"),
        }
    }

    #[test]
    fn what_only_ends_in_a_group_that_lasts_calls_nobody_and_what_was_short_is_an_incident() {
        let sink = Pagerduty { url: "https://a".into(), key: SecretText::new(KEY) };
        let actions = |notification: &Notification| match sink.render(notification, 0).unwrap() {
            SinkRequest::Http(posts) => {
                let action = |post: &HttpPost| {
                    let event: Value = serde_json::from_slice(&post.body).unwrap();
                    event["event_action"].as_str().unwrap().to_owned()
                };
                posts.iter().map(action).collect::<Vec<_>>()
            }
            _ => Vec::new(),
        };
        let reason = NotificationReason::Changed;
        let changed = |of: Notification| Notification { reason, lasts: true, unchanged: 4, ..of };
        assert_eq!(actions(&changed(testing::resolved())), [""; 0]);
        assert_eq!(actions(&changed(testing::firing())), ["trigger"]);
        assert_eq!(actions(&changed(testing::at_once())), ["trigger"]);
        assert_eq!(actions(&testing::at_once()), ["trigger", "resolve"]);
    }

    #[test]
    fn a_group_is_one_incident_from_its_begin_to_its_end() {
        let firing = testing::firing();
        let wanted = json!({
            "routing_key": KEY,
            "event_action": "trigger",
            "dedup_key": firing.group_id(),
            "payload": {
                "summary": "[FIRING:1] critical: ber to muc loses packets",
                "source": "ber",
                "severity": "critical",
                "timestamp": "2026-11-29T03:11:31.000Z",
                "component": "192.0.2.1",
                "group": "site=ber",
                "class": "loss",
                "custom_details": {
                    "firing": 1, "resolved": 0, "text": text::body(&firing, 10_000)
                },
            },
            "client": "Sonde",
            "client_url": "https://sonde.example",
            "links": [{
                "href": "https://sonde.example/events/1", "text": "ber to muc loses packets"
            }],
        });
        assert_eq!(event(&firing), wanted);
        let short = |action: &str| json!({"routing_key": KEY, "event_action": action, "dedup_key": firing.group_id()});
        assert_eq!(event(&testing::resolved()), short("resolve"));
        let acknowledged =
            Notification { reason: NotificationReason::Acknowledged, ..testing::firing() };
        assert_eq!(event(&acknowledged), short("acknowledge"));
    }

    #[test]
    fn a_key_of_another_form_is_refused_and_not_said() {
        let folder = crate::alert::testing::Folder::new("pagerduty");
        let open = |key: &str| {
            let key_file = SecretFile(folder.secret("key", key));
            PagerdutySettings { key_file, ..PagerdutySettings::default() }.open()
        };
        assert!(open(KEY).is_ok());
        let refused = open("hunter22").err().unwrap();
        assert_eq!(refused.key.as_deref(), Some("key_file"));
        assert!(!refused.to_string().contains("hunter22"), "{refused}");
        let none = PagerdutySettings::default().check().unwrap_err();
        assert_eq!(none.key.as_deref(), Some("key_file"));
    }

    proptest! {
        #[test]
        fn whatever_is_told_has_what_the_api_requires(n in testing::any_notification()) {
            let event = event(&n);
            if event["event_action"] == "trigger" {
                let payload = &event["payload"];
                prop_assert!(payload["summary"].as_str().unwrap().chars().count() <= 1024);
                prop_assert!(!payload["source"].as_str().unwrap().is_empty());
            }
            prop_assert!(event["dedup_key"].as_str().unwrap().len() <= 255);
        }
    }
}
