//! A webhook that takes what Alertmanager sends to its own (version "4"), so that hundreds of
//! receivers read it.
//!
//! With a key each request is signed: `X-Sonde-Timestamp` has the seconds since 1970 UTC, and
//! `X-Sonde-Signature` is `sha256=` and HMAC-SHA256 (RFC 2104), in hexadecimal digits, over that
//! text, a full stop, and the body. A receiver refuses what is old, so that nobody sends it again.

use std::path::PathBuf;

use ring::hmac;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::units::format_hex;
use sonde_run::error::SettingsError;

use super::{
    AlertSink, HttpPost, OpenedSink, SinkError, SinkRequest, SinkSettings, SinkWay, check_url,
    json, secret, url_of,
};
use crate::alert::model::LabelSet;
use crate::alert::notification::{Notification, NotificationReason, NotifiedAlert};
use crate::alert::secret::{Redactor, SecretFile, SecretText};
use sonde_results::civil_time;

/// A webhook's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookSettings {
    /// Where to: an address of `http` or `https`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A file that holds the address, where that is a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_file: Option<SecretFile>,
    /// A file that holds the key by which requests are signed; absent: they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hmac_file: Option<SecretFile>,
    /// A file of the authorities that are trusted, in PEM; absent: those of this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

impl SinkSettings for WebhookSettings {
    fn check(&self) -> Result<(), SettingsError> {
        check_url(self.url.as_ref(), self.url_file.as_ref())
    }

    // As the format says: receivers take what is not in it for over.
    fn takes_whole_groups(&self) -> bool {
        true
    }

    fn open(&self) -> Result<OpenedSink, SettingsError> {
        let url = url_of(self.url.as_ref(), self.url_file.as_ref())?;
        let key = self.hmac_file.as_ref().map(|file| secret("hmac_file", file)).transpose()?;
        let hidden = self.url_file.is_some().then_some(&url);
        let redactor = Redactor::of(hidden.into_iter().chain(&key));
        let sink = Box::new(Webhook { url: url.expose().to_owned(), key });
        Ok(OpenedSink { sink, way: SinkWay::Http { ca: self.ca.clone() }, redactor })
    }
}

/// A webhook.
pub struct Webhook {
    /// Where to.
    pub url: String,
    /// By which requests are signed.
    pub key: Option<SecretText>,
}

impl AlertSink for Webhook {
    fn render(&self, notification: &Notification, now_ns: i64) -> Result<SinkRequest, SinkError> {
        // The format has no such state.
        if notification.reason == NotificationReason::Acknowledged {
            return Ok(SinkRequest::Nothing);
        }
        let begun = notification.as_begun();
        let posts = begun.iter().chain([notification]).map(|told| self.post(told, now_ns));
        Ok(SinkRequest::Http(posts.collect::<Result<_, SinkError>>()?))
    }
}

impl Webhook {
    fn post(&self, notification: &Notification, now_ns: i64) -> Result<HttpPost, SinkError> {
        let body = json("a webhook's JSON", &Payload::of(notification))?;
        let mut headers = vec![("X-Sonde-Id", notification.id())];
        if let Some(key) = &self.key {
            let stamp = now_ns.div_euclid(1_000_000_000).to_string();
            headers.push(("X-Sonde-Signature", signature(key, &stamp, &body)));
            headers.push(("X-Sonde-Timestamp", stamp));
        }
        Ok(HttpPost { url: self.url.clone(), headers, body })
    }
}

fn signature(key: &SecretText, stamp: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.expose().as_bytes());
    let mut context = hmac::Context::with_key(&key);
    context.update(stamp.as_bytes());
    context.update(b".");
    context.update(body);
    let tag = context.sign();
    format!("sha256={}", format_hex(tag.as_ref()))
}

/// What Alertmanager sends to a webhook.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Payload<'a> {
    version: &'static str,
    group_key: String,
    truncated_alerts: u64,
    status: &'static str,
    receiver: &'a str,
    group_labels: &'a LabelSet,
    common_labels: LabelSet,
    common_annotations: LabelSet,
    #[serde(rename = "externalURL")]
    external_url: &'a str,
    alerts: Vec<PayloadAlert<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PayloadAlert<'a> {
    status: &'static str,
    labels: &'a LabelSet,
    annotations: LabelSet,
    starts_at: String,
    ends_at: String,
    #[serde(rename = "generatorURL")]
    generator_url: &'a str,
    fingerprint: String,
}

impl Payload<'_> {
    pub(super) fn of(notification: &Notification) -> Payload<'_> {
        Payload {
            version: "4",
            group_key: notification.group_id(),
            truncated_alerts: notification.truncated,
            status: status(notification.lasts),
            receiver: &notification.group.receiver,
            group_labels: &notification.group.labels,
            common_labels: notification.common_labels(),
            common_annotations: notification.common_annotations(),
            external_url: notification.link.as_deref().unwrap_or(""),
            alerts: notification
                .alerts
                .iter()
                .map(|told| PayloadAlert::of(told, notification.at_ns))
                .collect(),
        }
    }
}

impl PayloadAlert<'_> {
    fn of(told: &NotifiedAlert, at_ns: i64) -> PayloadAlert<'_> {
        let alert = &told.alert;
        PayloadAlert {
            status: status(alert.lasts()),
            labels: &alert.labels,
            annotations: annotations(told, at_ns),
            starts_at: civil_time::rfc3339(alert.starts_ns),
            ends_at: alert.ends_ns.map_or(NEVER.into(), civil_time::rfc3339),
            generator_url: alert.link.as_deref().unwrap_or(""),
            fingerprint: alert.fingerprint(),
        }
    }
}

/// Those of an alert, with `evidence`, and of one that ended `duration`.
pub(super) fn annotations(told: &NotifiedAlert, at_ns: i64) -> LabelSet {
    let mut all = told.alert.annotations.clone();
    if !told.alert.evidence.is_empty() {
        all.insert("evidence".into(), told.alert.evidence.clone());
    }
    if told.episodes > 1 {
        all.insert("episodes".into(), told.episodes.to_string());
    }
    if !told.alert.lasts() {
        let lasted = told.alert.duration_ns(at_ns);
        all.insert("duration".into(), sonde_results::units::format_elapsed(lasted));
    }
    all
}

fn status(lasts: bool) -> &'static str {
    if lasts { "firing" } else { "resolved" }
}

/// The end of what lasts: the zero of Go's clock, as Alertmanager writes it.
const NEVER: &str = "0001-01-01T00:00:00Z";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::sink::testing;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn post(webhook: &Webhook, notification: &Notification, now_ns: i64) -> HttpPost {
        match webhook.render(notification, now_ns).unwrap() {
            SinkRequest::Http(mut all) => all.remove(0),
            _ => panic!("no request"),
        }
    }

    fn plain() -> Webhook {
        Webhook { url: "http://127.0.0.1/hook".into(), key: None }
    }

    #[test]
    fn it_is_what_alertmanager_sends() {
        let body: Value =
            serde_json::from_slice(&post(&plain(), &testing::firing(), 0).body).unwrap();
        let wanted = json!({
            "version": "4",
            "groupKey": testing::firing().group_id(),
            "truncatedAlerts": 0,
            "status": "firing",
            "receiver": "ops",
            "groupLabels": { "site": "ber" },
            "commonLabels": {
                "alertname": "loss", "severity": "critical", "site": "ber", "target": "192.0.2.1"
            },
            "commonAnnotations": { "summary": "ber to muc loses packets" },
            "externalURL": "https://sonde.example",
            "alerts": [{
                "status": "firing",
                "labels": {
                    "alertname": "loss", "severity": "critical", "site": "ber",
                    "target": "192.0.2.1"
                },
                "annotations": {
                    "summary": "ber to muc loses packets",
                    "evidence": "loss 2.1 % against 0.1 %, n = 600, forward"
                },
                "startsAt": "2026-11-29T03:11:31.000Z",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "https://sonde.example/events/1",
                "fingerprint": testing::firing().alerts[0].alert.fingerprint(),
            }],
        });
        assert_eq!(body, wanted);
        let resolved: Value =
            serde_json::from_slice(&post(&plain(), &testing::resolved(), 0).body).unwrap();
        assert_eq!(resolved["status"], "resolved");
        assert_eq!(resolved["alerts"][0]["endsAt"], "2026-11-29T03:14:36.000Z");
        assert_eq!(resolved["alerts"][0]["annotations"]["duration"], "3 m 05 s");
    }

    #[test]
    fn what_began_and_ended_at_once_fires_first_and_is_two_notifications() {
        let SinkRequest::Http(posts) = plain().render(&testing::at_once(), 0).unwrap() else {
            panic!("no requests")
        };
        let bodies: Vec<Value> =
            posts.iter().map(|post| serde_json::from_slice(&post.body).unwrap()).collect();
        let said: Vec<_> =
            bodies.iter().map(|b| (&b["status"], &b["alerts"][0]["endsAt"])).collect();
        let (never, end) = (json!(NEVER), json!("2026-11-29T03:14:36.000Z"));
        assert_eq!(said, [(&json!("firing"), &never), (&json!("resolved"), &end)]);
        assert_eq!(bodies[0]["groupKey"], bodies[1]["groupKey"]);
        assert_ne!(posts[0].headers[0], posts[1].headers[0], "two ids");
    }

    #[test]
    fn the_signature_is_that_of_openssl() {
        // printf '1795921891.{}' | openssl dgst -sha256 -hmac Jefe
        let wanted = "sha256=b864750164a47ac463beac13aabafd304dedf3b062de1e6d3e4879f1039f142e";
        assert_eq!(signature(&SecretText::new("Jefe"), "1795921891", b"{}"), wanted);
    }

    #[test]
    fn a_signed_request_says_when() {
        let webhook = Webhook { key: Some(SecretText::new("k")), ..plain() };
        let request = post(&webhook, &testing::firing(), 5_999_999_999);
        let header =
            |name| request.headers.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
        assert_eq!(header("X-Sonde-Timestamp").unwrap(), "5");
        let signed = signature(&SecretText::new("k"), "5", &request.body);
        assert_eq!(header("X-Sonde-Signature").unwrap(), signed);
    }

    proptest! {
        #[test]
        fn whatever_is_told_is_json_and_headers_are_lines(n in testing::any_notification()) {
            let request = post(&plain(), &n, 0);
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            prop_assert_eq!(body["alerts"].as_array().unwrap().len(), n.alerts.len());
            for (_, value) in &request.headers {
                prop_assert!(value.bytes().all(|b| b.is_ascii_graphic()));
            }
        }
    }
}
