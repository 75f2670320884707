//! Notifications for the tests of sinks.

use proptest::prelude::*;

use crate::alert::model::{Alert, LabelSet};
use crate::alert::notification::{AlertNews, Notification, NotificationReason, NotifiedAlert};
use crate::alert::route::AlertGroupKey;

pub(crate) const AT_NS: i64 = 1_795_921_891_000_000_000;

pub(crate) fn labels(all: &[(&str, &str)]) -> LabelSet {
    all.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

pub(crate) fn firing() -> Notification {
    let alert = Alert {
        labels: labels(&[
            ("alertname", "loss"),
            ("severity", "critical"),
            ("site", "ber"),
            ("target", "192.0.2.1"),
        ]),
        annotations: labels(&[("summary", "ber to muc loses packets")]),
        starts_ns: AT_NS,
        ends_ns: None,
        evidence: "loss 2.1 % against 0.1 %, n = 600, forward".into(),
        link: Some("https://sonde.example/events/1".into()),
    };
    notification(alert, AlertNews::Began, NotificationReason::Opened)
}

pub(crate) fn resolved() -> Notification {
    let mut alert = firing().alerts.remove(0).alert;
    alert.ends_ns = Some(AT_NS + 185_000_000_000);
    notification(alert, AlertNews::Ended, NotificationReason::Resolved)
}

/// It began and ended at once, as a station's own unclean end does.
pub(crate) fn at_once() -> Notification {
    let mut notification = resolved();
    notification.alerts[0].news = AlertNews::BeganAndEnded;
    notification
}

fn notification(alert: Alert, news: AlertNews, reason: NotificationReason) -> Notification {
    let lasts = alert.lasts();
    Notification {
        group: AlertGroupKey { receiver: "ops".into(), labels: labels(&[("site", "ber")]) },
        reason,
        at_ns: AT_NS + 200_000_000_000,
        alerts: vec![NotifiedAlert { alert, news, episodes: 1, acknowledged: None }],
        truncated: 0,
        unchanged: 0,
        muted: 0,
        lasts,
        station: "ber".into(),
        link: Some("https://sonde.example".into()),
    }
}

/// Any notification that can come out of the state machine.
pub(crate) fn any_notification() -> impl Strategy<Value = Notification> {
    let text = prop_oneof![any::<String>(), "[\\PC\r\n\"\\]\\\\<>.|&]{0,40}"];
    let alert = (
        prop::collection::btree_map(text.clone(), text.clone(), 0..4),
        prop::collection::btree_map("summary", text.clone(), 0..2),
        text,
        prop::option::of(0..1_000_000_000_000_i64),
    );
    prop::collection::vec(alert, 1..4).prop_map(|alerts| {
        let told = alerts.into_iter().map(|(labels, annotations, evidence, ends_ns)| {
            let alert = Alert { labels, annotations, evidence, ends_ns, starts_ns: 0, link: None };
            let news = if ends_ns.is_some() { AlertNews::Ended } else { AlertNews::Began };
            NotifiedAlert { alert: alert.bounded(), news, episodes: 1, acknowledged: None }
        });
        let alerts: Vec<NotifiedAlert> = told.collect();
        let lasts = alerts.iter().any(|told| told.alert.lasts());
        let reason = match lasts {
            true => NotificationReason::Opened,
            false => NotificationReason::Resolved,
        };
        Notification { alerts, lasts, reason, ..firing() }
    })
}
