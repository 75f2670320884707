//! A notification in words, as receivers for people have it.

use std::fmt::Write as _;

use sonde_results::units::format_elapsed;

use crate::alert::model::cut;
use crate::alert::notification::{AlertNews, Notification, NotificationReason, NotifiedAlert};
use sonde_results::civil_time;

/// What happened, in one word.
pub fn status_word(notification: &Notification) -> &'static str {
    match notification.reason {
        NotificationReason::Resolved => "RESOLVED",
        NotificationReason::Acknowledged => "ACKNOWLEDGED",
        // Others of the group last, but nothing of them is new.
        NotificationReason::Changed if notification.those(true).next().is_none() => "RESOLVED",
        _ => "FIRING",
    }
}

/// What one alert of a notification is, in one word.
pub fn state_word(told: &NotifiedAlert) -> &'static str {
    match (told.alert.lasts(), &told.acknowledged) {
        (false, _) => "RESOLVED",
        (true, Some(_)) => "ACKNOWLEDGED",
        (true, None) => "FIRING",
    }
}

/// One line of at most `most` bytes: state, severity, how many, and the worst of them.
pub fn title(notification: &Notification, most: usize) -> String {
    let (lasting, ended) = (notification.those(true).count(), notification.those(false).count());
    let count = match (lasting, ended) {
        (0, ended) => format!("{ended}"),
        (lasting, 0) => format!("{lasting}"),
        (lasting, ended) => format!("{lasting}, {ended} resolved"),
    };
    let count = match notification.unchanged {
        0 => count,
        unchanged => format!("{count}, {unchanged} unchanged"),
    };
    let worst = notification.alerts.first().map_or("", |told| told.alert.summary());
    let (status, severity) = (status_word(notification), notification.severity());
    cut(&format!("[{status}:{count}] {severity}: {worst}"), most)
}

/// All of it in lines, at most `most` bytes: each alert with what is known of it.
pub fn body(notification: &Notification, most: usize) -> String {
    let mut text = String::new();
    for told in &notification.alerts {
        alert(&mut text, told, notification.at_ns);
    }
    // Writing to a String cannot fail.
    if notification.truncated > 0 {
        let _ = writeln!(text, "{} more alerts found no room here.", notification.truncated);
    }
    if notification.unchanged > 0 {
        let _ = writeln!(text, "{} more last unchanged, as told before.", notification.unchanged);
    }
    if notification.muted > 0 {
        let _ = writeln!(text, "{} alerts are held back by a silence.", notification.muted);
    }
    let _ = write!(text, "Station: {}", notification.station);
    if let Some(link) = &notification.link {
        let _ = write!(text, ", {link}");
    }
    cut(&text, most)
}

fn alert(text: &mut String, told: &NotifiedAlert, now_ns: i64) {
    let alert = &told.alert;
    let since = civil_time::plain(alert.starts_ns);
    let lasted = format_elapsed(alert.duration_ns(now_ns));
    let state = match told.news {
        AlertNews::Began => format!("since {since}"),
        AlertNews::Lasts => format!("since {since}, for {lasted}"),
        AlertNews::Ended | AlertNews::BeganAndEnded => {
            format!("resolved, lasted {lasted} from {since}")
        }
    };
    let _ = writeln!(text, "{}: {} ({state})", alert.severity(), alert.summary());
    if told.episodes > 1 {
        let _ = writeln!(text, "  It ended and began again: {} times in all.", told.episodes);
    }
    if let Some(by) = &told.acknowledged {
        let _ = writeln!(text, "  {} takes care of it. {}", by.author, by.comment);
    }
    for line in alert.evidence.lines() {
        let _ = writeln!(text, "  {line}");
    }
    let hidden = ["alertname", "severity"];
    let labels = alert.labels.iter().filter(|(name, _)| !hidden.contains(&name.as_str()));
    let labels: Vec<String> = labels.map(|(name, value)| format!("{name}={value}")).collect();
    let _ = writeln!(text, "  {}", labels.join(", "));
    if let Some(link) = &alert.link {
        let _ = writeln!(text, "  {link}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::sink::testing;

    #[test]
    fn people_read_what_since_when_on_what_and_how_long() {
        let firing = testing::firing();
        assert_eq!(title(&firing, 200), "[FIRING:1] critical: ber to muc loses packets");
        let wanted = "\
critical: ber to muc loses packets (since 2026-11-29 03:11:31 UTC)
  loss 2.1 % against 0.1 %, n = 600, forward
  site=ber, target=192.0.2.1
  https://sonde.example/events/1
Station: ber, https://sonde.example";
        assert_eq!(body(&firing, 2000), wanted);
        let resolved = testing::resolved();
        assert!(title(&resolved, 200).starts_with("[RESOLVED:1] "), "{}", title(&resolved, 200));
        assert!(
            body(&resolved, 2000).contains("resolved, lasted 3 m 05 s from 2026-11-29 03:11:31")
        );
        assert_eq!(body(&resolved, 40).len(), 40);
    }

    #[test]
    fn an_end_in_a_group_that_lasts_is_no_alarm() {
        let mut changed = testing::resolved();
        (changed.reason, changed.lasts, changed.unchanged) = (NotificationReason::Changed, true, 4);
        let wanted = "[RESOLVED:1, 4 unchanged] critical: ber to muc loses packets";
        assert_eq!(title(&changed, 200), wanted);
        assert!(body(&changed, 2000).contains("\n4 more last unchanged, as told before.\n"));
    }
}
