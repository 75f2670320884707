//! A message of Slack's incoming webhooks, which Mattermost, Rocket.Chat and others take, too.
//!
//! Slack shows `blocks`; what knows no blocks shows `text`, which so says everything. One message
//! a second is taken; what comes faster is answered by 429 and sent again.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sonde_run::error::SettingsError;

use super::{
    AlertSink, HttpPost, OpenedSink, SinkError, SinkRequest, SinkSettings, SinkWay, check_url,
    json as to_json, text, url_of,
};
use crate::alert::notification::Notification;
use crate::alert::secret::{Redactor, SecretFile};

/// A channel's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SlackSettings {
    /// A file that holds the address of the incoming webhook: who has it can write to the channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_file: Option<SecretFile>,
    /// The address itself, where it is no secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A file of the authorities that are trusted, in PEM; absent: those of this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

impl SinkSettings for SlackSettings {
    fn check(&self) -> Result<(), SettingsError> {
        check_url(self.url.as_ref(), self.url_file.as_ref())
    }

    fn open(&self) -> Result<OpenedSink, SettingsError> {
        let url = url_of(self.url.as_ref(), self.url_file.as_ref())?;
        let redactor = Redactor::of([&url]);
        let sink = Box::new(Slack { url: url.expose().to_owned() });
        Ok(OpenedSink { sink, way: SinkWay::Http { ca: self.ca.clone() }, redactor })
    }
}

/// A channel.
pub struct Slack {
    /// Where to.
    pub url: String,
}

impl AlertSink for Slack {
    fn render(&self, notification: &Notification, _now_ns: i64) -> Result<SinkRequest, SinkError> {
        let body = to_json("a message of Slack", &message(notification))?;
        let post = HttpPost { url: self.url.clone(), headers: Vec::new(), body };
        Ok(SinkRequest::Http(vec![post]))
    }
}

fn message(notification: &Notification) -> Value {
    let title = quiet(&text::title(notification, TITLE_MOST));
    let title: String = title.chars().take(TITLE_MOST).collect();
    let body = quiet(&text::body(notification, SECTION_MOST));
    let whole = escaped(&format!("{title}\n{body}"), SECTION_MOST + TITLE_MOST);
    let section =
        json!({ "type": "mrkdwn", "text": escaped(&body, SECTION_MOST), "verbatim": true });
    json!({
        "text": whole,
        "blocks": [
            // Plain text knows no references: nothing is escaped in it.
            { "type": "header", "text": { "type": "plain_text", "text": title, "emoji": false } },
            { "type": "section", "text": section },
        ],
    })
}

/// No text of an alert calls everybody of a channel: a space of no width comes after the `@`.
fn quiet(text: &str) -> String {
    let everybody = ["all", "channel", "everyone", "here"];
    let mut quiet = text.to_owned();
    for name in everybody {
        quiet = quiet.replace(&format!("@{name}"), &format!("@\u{200b}{name}"));
    }
    quiet
}

/// `text` with `&`, `<` and `>` as Slack wants them, so that it holds no link and no mention; at
/// most `most` bytes, and no escape is split.
fn escaped(text: &str, most: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let mut own = [0; 4];
        let piece = match c {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            c => c.encode_utf8(&mut own),
        };
        if out.len() + piece.len() + CUT.len() > most {
            out.push_str(CUT);
            break;
        }
        out.push_str(piece);
    }
    out
}

const CUT: &str = "...";
/// Of a header: 150 characters are taken.
const TITLE_MOST: usize = 150;
/// Of a section, bytes: 3000 characters are taken.
const SECTION_MOST: usize = 2_900;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::sink::testing;
    use proptest::prelude::*;

    fn sent(notification: &Notification) -> Value {
        match (Slack { url: "https://a".into() }).render(notification, 0).unwrap() {
            SinkRequest::Http(posts) => serde_json::from_slice(&posts[0].body).unwrap(),
            _ => panic!("no request"),
        }
    }

    #[test]
    fn a_message_says_all_in_its_text_and_in_its_blocks() {
        let lines = "\
critical: ber to muc loses packets (since 2026-11-29 03:11:31 UTC)
  loss 2.1 % against 0.1 %, n = 600, forward
  site=ber, target=192.0.2.1
  https://sonde.example/events/1
Station: ber, https://sonde.example";
        let title = "[FIRING:1] critical: ber to muc loses packets";
        let wanted = json!({
            "text": format!("{title}\n{lines}"),
            "blocks": [
                { "type": "header", "text": { "type": "plain_text", "text": title, "emoji": false }},
                { "type": "section", "text": { "type": "mrkdwn", "text": lines, "verbatim": true }},
            ],
        });
        assert_eq!(sent(&testing::firing()), wanted);
        let resolved = sent(&testing::resolved());
        assert!(resolved["text"].as_str().unwrap().starts_with("[RESOLVED:1] "));
        assert!(resolved["text"].as_str().unwrap().contains("lasted 3 m 05 s"));
    }

    #[test]
    fn no_alert_calls_everybody_or_makes_a_link() {
        let mut loud = testing::firing();
        loud.alerts[0].alert.evidence = "<!channel> <http://a|b> @channel & @here".into();
        let text = sent(&loud)["text"].as_str().unwrap().to_owned();
        let wanted = "&lt;!channel&gt; &lt;http://a|b&gt; @\u{200b}channel &amp; @\u{200b}here";
        assert!(text.contains(wanted), "{text}");
        assert_eq!(escaped("a<bc", 7), "a...");
        assert_eq!(escaped("a<bc", 8), "a&lt;...");
        let mut many = testing::firing();
        many.alerts[0].alert.annotations.insert("summary".into(), "@all".repeat(60));
        let header = sent(&many)["blocks"][0]["text"]["text"].as_str().unwrap().chars().count();
        assert_eq!(header, 150);
    }

    proptest! {
        #[test]
        fn whatever_is_told_fits_and_is_escaped(n in testing::any_notification()) {
            let message = sent(&n);
            let of = |at: usize| message["blocks"][at]["text"]["text"].as_str().unwrap();
            let length = of(0).chars().count();
            prop_assert!((1..=150).contains(&length), "{length}");
            prop_assert!((1..=3_000).contains(&of(1).chars().count()));
            for text in [of(1), message["text"].as_str().unwrap()] {
                prop_assert!(!text.contains(['<', '>']));
            }
        }
    }
}
