//! Who is told of an alert: routes by labels and severity.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model::{AlertSeverity, LabelSet, severity_of};

/// What labels have to be, each by a pattern: a text in which `*` stands for any characters, and a
/// `!` before it for anything else. A label that an alert does not have is an empty text.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct LabelPatterns(pub BTreeMap<String, String>);

impl LabelPatterns {
    /// Of these names and patterns.
    pub fn of(all: &[(&str, &str)]) -> LabelPatterns {
        LabelPatterns(all.iter().map(|(name, p)| ((*name).into(), (*p).into())).collect())
    }

    /// Whether all of them match.
    pub fn matches(&self, labels: &LabelSet) -> bool {
        self.0.iter().all(|(name, pattern)| {
            let value = labels.get(name).map_or("", String::as_str);
            match pattern.strip_prefix('!') {
                Some(pattern) => !matches(pattern, value),
                None => matches(pattern, value),
            }
        })
    }
}

/// When a group of alerts is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupTiming {
    /// From the first alert to the notification, so that others of the same cause come in, ns.
    pub wait_ns: i64,
    /// Between two notifications of a group when something changed, at least, ns.
    pub interval_ns: i64,
    /// Between two notifications of what has not changed, ns.
    pub repeat_ns: i64,
    /// The receiver forgets what is not repeated: acknowledgements and silences do not end that.
    pub refresh: bool,
    /// Each notification has all alerts of the group, as Alertmanager's do; otherwise only what is
    /// new, what ended and what is due to be repeated.
    #[serde(default)]
    pub whole: bool,
}

/// One way to a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertRoute {
    /// What it is for.
    pub labels: LabelPatterns,
    /// The least severity.
    pub severity: AlertSeverity,
    /// Who is told, by name, and when; none: nobody, which is a way to say so.
    pub receivers: Vec<(String, GroupTiming)>,
    /// Which labels are a cause: alerts that agree in them are one group.
    pub group_by: BTreeSet<String>,
    /// Whether the routes after it are looked at, too.
    pub goes_on: bool,
}

/// Which group an alert belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AlertGroupKey {
    /// Who is told.
    pub receiver: String,
    /// The cause: what all alerts of the group agree in.
    pub labels: LabelSet,
}

/// Where an alert goes: each receiver once, by the first route that names it. No entry: nobody is
/// told.
pub fn groups_of(routes: &[AlertRoute], labels: &LabelSet) -> Vec<(AlertGroupKey, GroupTiming)> {
    let mut groups: Vec<(AlertGroupKey, GroupTiming)> = Vec::new();
    let severity = severity_of(labels);
    for route in routes.iter().filter(|r| severity >= r.severity && r.labels.matches(labels)) {
        for (receiver, timing) in &route.receivers {
            if groups.iter().any(|(key, _)| key.receiver == *receiver) {
                continue;
            }
            let cause = labels.iter().filter(|(name, _)| route.group_by.contains(*name));
            let labels = cause.map(|(name, value)| (name.clone(), value.clone())).collect();
            groups.push((AlertGroupKey { receiver: receiver.clone(), labels }, *timing));
        }
        if !route.goes_on {
            break;
        }
    }
    groups
}

/// Whether a text matches a pattern in which `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    // The earliest place of each part leaves the most for those after it.
    for part in parts {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIMING: GroupTiming =
        GroupTiming { wait_ns: 1, interval_ns: 2, repeat_ns: 3, refresh: false, whole: false };

    fn route(patterns: &[(&str, &str)], to: &[&str], goes_on: bool) -> AlertRoute {
        AlertRoute {
            labels: LabelPatterns::of(patterns),
            severity: AlertSeverity::Info,
            receivers: to.iter().map(|to| ((*to).to_owned(), TIMING)).collect(),
            group_by: BTreeSet::from(["site".to_owned()]),
            goes_on,
        }
    }

    fn labels(all: &[(&str, &str)]) -> LabelSet {
        all.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    fn receivers(routes: &[AlertRoute], of: &[(&str, &str)]) -> Vec<String> {
        groups_of(routes, &labels(of)).into_iter().map(|(key, _)| key.receiver).collect()
    }

    #[test]
    fn the_first_route_that_matches_counts_unless_it_goes_on() {
        let routes = [
            route(&[("site", "ber-*")], &["log", "berlin"], true),
            route(&[("class", "!voice")], &["log", "noc"], false),
            route(&[], &["all"], false),
        ];
        let both = [("site", "ber-1"), ("class", "bulk")];
        assert_eq!(receivers(&routes, &both), ["log", "berlin", "noc"]);
        let voice = [("site", "ber-1"), ("class", "voice")];
        assert_eq!(receivers(&routes, &voice), ["log", "berlin", "all"]);
        assert_eq!(receivers(&routes, &[("site", "muc")]), ["log", "noc"]);
        assert_eq!(receivers(&routes[..1], &[("site", "muc")]), [""; 0]);
    }

    #[test]
    fn a_group_is_what_agrees_in_the_labels_of_the_cause() {
        let routes = [route(&[], &["all"], false)];
        let key = |of: &[(&str, &str)]| groups_of(&routes, &labels(of)).remove(0).0;
        let one = key(&[("site", "ber"), ("target", "a")]);
        assert_eq!(one, key(&[("site", "ber"), ("target", "b")]));
        assert_ne!(one, key(&[("site", "muc"), ("target", "a")]));
        assert_eq!(one.labels, labels(&[("site", "ber")]));
    }

    #[test]
    fn the_severity_is_the_least_that_a_route_takes() {
        let mut only = route(&[], &["pager"], false);
        only.severity = AlertSeverity::Error;
        let told =
            |severity: &str| !receivers(&[only.clone()], &[("severity", severity)]).is_empty();
        assert!(told("error") && told("critical") && !told("warning") && !told("nonsense"));
    }

    /// By trying every length that a star can stand for.
    fn by_trying(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|n| by_trying(rest, &text[n..])),
            Some((first, rest)) => {
                text.split_first().is_some_and(|(t, more)| t == first && by_trying(rest, more))
            }
        }
    }

    proptest! {
        #[test]
        fn a_star_stands_for_any_characters(pattern in "[ab*]{0,7}", text in "[ab]{0,9}") {
            let wanted = by_trying(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(&pattern, &text), wanted);
        }
    }
}
