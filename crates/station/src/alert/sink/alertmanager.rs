//! Alertmanager's API, version 2: `POST /api/v2/alerts`, as Prometheus uses it.
//!
//! Alertmanager groups, silences and tells people itself, and resolves what is not said again
//! before the `endsAt` that came with it. So each alert that lasts is sent again every `resend`,
//! with an end that lies four times as far ahead, also while a silence of the station holds.

use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::civil_time;
use sonde_results::units::SECOND;
use sonde_run::error::SettingsError;

use super::webhook::annotations;
use super::{
    AlertSink, HttpPost, OpenedSink, SinkError, SinkRequest, SinkSettings, SinkWay, check_url,
    json, secret, url_of,
};
use crate::alert::model::LabelSet;
use crate::alert::notification::{AlertNews, Notification, NotifiedAlert};
use crate::alert::route::GroupTiming;
use crate::alert::secret::{Redactor, SecretFile, SecretText};

/// An Alertmanager's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AlertmanagerSettings {
    /// Where it is, without `/api/v2/alerts`: an address of `http` or `https`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A file that holds the address, where that is a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_file: Option<SecretFile>,
    /// Who sends, where the server asks for a name and a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// A file that holds the password of `user`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<SecretFile>,
    /// A file that holds a bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<SecretFile>,
    /// What lasts is sent again so often, 10 s to 1 h. It ends there by itself after four times
    /// as long.
    #[serde(with = "sonde_run::duration")]
    #[schemars(with = "String")]
    pub resend: i64,
    /// A file of the authorities that are trusted, in PEM; absent: those of this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

impl Default for AlertmanagerSettings {
    fn default() -> Self {
        AlertmanagerSettings {
            url: None,
            url_file: None,
            user: None,
            password_file: None,
            token_file: None,
            resend: 60 * SECOND,
            ca: None,
        }
    }
}

impl SinkSettings for AlertmanagerSettings {
    fn check(&self) -> Result<(), SettingsError> {
        check_url(self.url.as_ref(), self.url_file.as_ref())?;
        if !(10 * SECOND..=3_600 * SECOND).contains(&self.resend) {
            return Err(SettingsError::new("resend", "give \"10s\" to \"1h\""));
        }
        if self.user.is_some() != self.password_file.is_some() {
            return Err(SettingsError::new("user", "give both `user` and `password_file`"));
        }
        if self.user.as_ref().is_some_and(|user| user.contains(':')) {
            return Err(SettingsError::new(
                "user",
                "a colon ends the name (RFC 7617); leave it out",
            ));
        }
        if self.user.is_some() && self.token_file.is_some() {
            return Err(SettingsError::new("token_file", "give either it or `user`"));
        }
        Ok(())
    }

    fn open(&self) -> Result<OpenedSink, SettingsError> {
        let url = url_of(self.url.as_ref(), self.url_file.as_ref())?;
        let password =
            self.password_file.as_ref().map(|file| secret("password_file", file)).transpose()?;
        let token = self.token_file.as_ref().map(|file| secret("token_file", file)).transpose()?;
        let basic = self.user.as_ref().zip(password.as_ref()).map(|(user, password)| {
            SecretText::new(&BASE64_STANDARD.encode(format!("{user}:{}", password.expose())))
        });
        let authorization = match (&basic, &token) {
            (Some(basic), _) => Some(SecretText::new(&format!("Basic {}", basic.expose()))),
            (None, Some(token)) => Some(SecretText::new(&format!("Bearer {}", token.expose()))),
            (None, None) => None,
        };
        let hidden = self.url_file.is_some().then_some(&url);
        let redactor =
            Redactor::of(hidden.into_iter().chain(&password).chain(&token).chain(&basic));
        let sink = Box::new(Alertmanager {
            url: format!("{}{PATH}", url.expose().trim_end_matches('/')),
            authorization,
            resend_ns: self.resend,
        });
        Ok(OpenedSink { sink, way: SinkWay::Http { ca: self.ca.clone() }, redactor })
    }

    fn timing(&self) -> Option<GroupTiming> {
        let (wait_ns, interval_ns) = (0, SECOND);
        Some(GroupTiming {
            wait_ns,
            interval_ns,
            repeat_ns: self.resend,
            refresh: true,
            whole: true,
        })
    }
}

/// An Alertmanager.
pub struct Alertmanager {
    /// Where to.
    pub url: String,
    /// The header `Authorization`.
    pub authorization: Option<SecretText>,
    /// What lasts is sent again so often, ns.
    pub resend_ns: i64,
}

impl AlertSink for Alertmanager {
    fn render(&self, notification: &Notification, now_ns: i64) -> Result<SinkRequest, SinkError> {
        let until_ns = now_ns.saturating_add(4 * self.resend_ns);
        // An alert without labels has no identity there, and is refused.
        let told: Vec<_> =
            notification.alerts.iter().filter(|told| !told.alert.labels.is_empty()).collect();
        let posts = told.chunks(ALERTS_A_POST).map(|some| {
            let alerts: Vec<_> = some
                .iter()
                .map(|told| PostedAlert::of(told, notification.at_ns, until_ns))
                .collect();
            let body = json("Alertmanager's JSON", &alerts)?;
            let authorization = self.authorization.as_ref();
            let headers =
                authorization.map(|text| ("Authorization", text.expose().to_owned())).into_iter();
            Ok(HttpPost { url: self.url.clone(), headers: headers.collect(), body })
        });
        Ok(SinkRequest::Http(posts.collect::<Result<_, SinkError>>()?))
    }
}

/// `postableAlert` of its document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PostedAlert<'a> {
    labels: &'a LabelSet,
    annotations: LabelSet,
    starts_at: String,
    ends_at: String,
    #[serde(rename = "generatorURL", skip_serializing_if = "Option::is_none")]
    generator_url: Option<&'a str>,
}

impl PostedAlert<'_> {
    fn of(told: &NotifiedAlert, at_ns: i64, until_ns: i64) -> PostedAlert<'_> {
        let alert = &told.alert;
        // It tells nobody of an end without a begin: what was over at once ends there later.
        let ends_ns = alert.ends_ns.filter(|_| told.news != AlertNews::BeganAndEnded);
        // An end before the begin is refused.
        let ends_ns = ends_ns.unwrap_or(until_ns).max(alert.starts_ns);
        PostedAlert {
            labels: &alert.labels,
            annotations: annotations(told, at_ns),
            starts_at: civil_time::rfc3339(alert.starts_ns),
            ends_at: civil_time::rfc3339(ends_ns),
            generator_url: alert.link.as_deref(),
        }
    }
}

const PATH: &str = "/api/v2/alerts";
/// Alerts in a request, at most.
const ALERTS_A_POST: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::sink::testing;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn plain() -> Alertmanager {
        let url = format!("http://127.0.0.1:9093{PATH}");
        Alertmanager { url, authorization: None, resend_ns: 60 * SECOND }
    }

    fn posts(notification: &Notification) -> Vec<HttpPost> {
        match plain().render(notification, testing::AT_NS + 1_000 * SECOND).unwrap() {
            SinkRequest::Http(posts) => posts,
            _ => panic!("no requests"),
        }
    }

    fn alerts(notification: &Notification) -> Value {
        let posts = posts(notification);
        assert_eq!(
            (posts.len(), posts[0].url.as_str()),
            (1, "http://127.0.0.1:9093/api/v2/alerts")
        );
        serde_json::from_slice(&posts[0].body).unwrap()
    }

    #[test]
    fn what_began_and_ended_at_once_ends_there_after_it_was_told() {
        let posts = posts(&testing::at_once());
        let body: Value = serde_json::from_slice(&posts[0].body).unwrap();
        // Four times `resend` after it is sent.
        let until = civil_time::rfc3339(testing::AT_NS + 1_240 * SECOND);
        assert_eq!((posts.len(), &body[0]["endsAt"]), (1, &json!(until)));
        assert_eq!(body[0]["annotations"]["duration"], "3 m 05 s");
    }

    #[test]
    fn what_lasts_ends_by_itself_and_what_ended_says_when() {
        let wanted = json!([{
            "labels": {
                "alertname": "loss", "severity": "critical", "site": "ber", "target": "192.0.2.1"
            },
            "annotations": {
                "summary": "ber to muc loses packets",
                "evidence": "loss 2.1 % against 0.1 %, n = 600, forward"
            },
            "startsAt": "2026-11-29T03:11:31.000Z",
            // 1000 s after the begin it was sent, and holds for four times 60 s.
            "endsAt": "2026-11-29T03:32:11.000Z",
            "generatorURL": "https://sonde.example/events/1",
        }]);
        assert_eq!(alerts(&testing::firing()), wanted);
        let resolved = alerts(&testing::resolved());
        assert_eq!(resolved[0]["endsAt"], "2026-11-29T03:14:36.000Z");
        assert_eq!(resolved[0]["labels"], wanted[0]["labels"]);
        assert_eq!(resolved[0]["annotations"]["duration"], "3 m 05 s");
    }

    #[test]
    fn many_alerts_are_several_requests_and_one_without_labels_is_none() {
        let one = testing::firing().alerts.remove(0);
        let mut many = testing::firing();
        many.alerts = vec![one.clone(); 501];
        many.alerts[3].alert.labels.clear();
        many.alerts.push(one);
        let lengths = |posts: Vec<HttpPost>| -> Vec<usize> {
            let of =
                |post: &HttpPost| serde_json::from_slice::<Vec<Value>>(&post.body).unwrap().len();
            posts.iter().map(of).collect()
        };
        assert_eq!(lengths(posts(&many)), [500, 1]);
    }

    #[test]
    fn an_end_is_never_before_the_begin() {
        let mut odd = testing::resolved();
        odd.alerts[0].alert.ends_ns = Some(0);
        assert_eq!(alerts(&odd)[0]["endsAt"], "2026-11-29T03:11:31.000Z");
    }

    #[test]
    fn settings_name_what_is_wrong() {
        let key = |text: &str| {
            let settings: AlertmanagerSettings = toml::from_str(text).unwrap();
            settings.check().err().map(|error| error.key.unwrap())
        };
        let key = |text: &str| key(&format!("url = 'http://a:9093/'\n{text}"));
        assert_eq!(key(""), None);
        assert_eq!(key("resend = '9s'").as_deref(), Some("resend"));
        assert_eq!(key("user = 'a'").as_deref(), Some("user"));
        assert_eq!(key("user = 'a:b'\npassword_file = '/p'").as_deref(), Some("user"));
        let both = "user = 'a'\npassword_file = '/p'\ntoken_file = '/t'";
        assert_eq!(key(both).as_deref(), Some("token_file"));
    }

    #[test]
    fn a_name_and_a_password_are_one_header_and_never_said() {
        let folder = crate::alert::testing::Folder::new("alertmanager");
        let file = folder.secret("password", "open sesame");
        let text = format!(
            "url = 'http://a:9093/am/'\nuser = 'Aladdin'\npassword_file = '{}'",
            file.display()
        );
        let settings: AlertmanagerSettings = toml::from_str(&text).unwrap();
        let opened = settings.open().unwrap();
        let request = opened.sink.render(&testing::firing(), 0).unwrap();
        let SinkRequest::Http(posts) = request else { panic!("no requests") };
        assert_eq!(posts[0].url, "http://a:9093/am/api/v2/alerts");
        // The example of RFC 7617, section 2.
        let header = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
        assert_eq!(posts[0].headers, [("Authorization", header.to_owned())]);
        assert_eq!(opened.redactor.redact(header), "Basic [secret]");
    }

    proptest! {
        #[test]
        fn whatever_is_told_is_json_whose_ends_are_not_before_their_begins(
            n in testing::any_notification()
        ) {
            for post in posts(&n) {
                for alert in serde_json::from_slice::<Vec<Value>>(&post.body).unwrap() {
                    prop_assert!(alert["endsAt"].as_str() >= alert["startsAt"].as_str());
                }
            }
        }
    }
}
