//! What is wrong: an alert, as the judge or the supervisor raises it.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::plain_text::is_steering;

/// How bad it is.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AlertSeverity {
    /// Worth knowing.
    Info,
    /// It may become a fault.
    #[default]
    Warning,
    /// A fault that can wait for the day.
    Error,
    /// A fault that cannot wait.
    Critical,
}

impl AlertSeverity {
    /// As it is written: `warning`.
    pub fn as_str(self) -> &'static str {
        match self {
            AlertSeverity::Info => "info",
            AlertSeverity::Warning => "warning",
            AlertSeverity::Error => "error",
            AlertSeverity::Critical => "critical",
        }
    }
}

impl fmt::Display for AlertSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an alert is about, by name. Two alerts with the same labels are the same alert, so a
/// measured value is no label.
pub type LabelSet = BTreeMap<String, String>;

/// Something that is wrong, or was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Alert {
    /// What it is about. `severity` is one of them ([`Alert::severity`]).
    pub labels: LabelSet,
    /// What else people want to know; `summary` is one line.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// When it began, ns since 1970 UTC.
    pub starts_ns: i64,
    /// When it ended, ns since 1970 UTC; absent: it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_ns: Option<i64>,
    /// What it stands on: value against bound, count of samples, interval, doubts.
    #[serde(default)]
    pub evidence: String,
    /// Where the station shows it: an address of `http` or `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

impl Alert {
    /// How bad it is: the label `severity`; a warning where that is none of the four.
    pub fn severity(&self) -> AlertSeverity {
        severity_of(&self.labels)
    }

    /// Its name: the label `alertname`, or nothing.
    pub fn name(&self) -> &str {
        self.labels.get("alertname").map_or("", String::as_str)
    }

    /// One line about it: the annotation `summary`, else its name.
    pub fn summary(&self) -> &str {
        match self.annotations.get("summary") {
            Some(summary) if !summary.is_empty() => summary,
            _ => self.name(),
        }
    }

    /// Whether it still lasts.
    pub fn lasts(&self) -> bool {
        self.ends_ns.is_none()
    }

    /// How long it lasted, or has lasted at `now_ns`; never negative. ns.
    pub fn duration_ns(&self, now_ns: i64) -> i64 {
        self.ends_ns.unwrap_or(now_ns).saturating_sub(self.starts_ns).max(0)
    }

    /// 16 hexadecimal digits that depend on the labels alone.
    pub fn fingerprint(&self) -> String {
        format!("{:016x}", fingerprint(&self.labels))
    }

    /// The same within the bounds that hold for every alert, so that no receiver is given more
    /// than it takes:
    ///
    /// - labels: [`LABELS_MOST`], by name, `alertname` and `severity` before others; names have up to [`LABEL_NAME_MOST`] of the characters
    ///   `A-Z`, `a-z`, `0-9` and `_`, others become `_`; values up to [`LABEL_VALUE_MOST`] bytes.
    ///   A longer value keeps its begin and ends with a hash of the whole, so that two stay two.
    ///   A label with an empty value is none.
    /// - annotations: [`ANNOTATIONS_MOST`], their names as those of labels, values and the
    ///   evidence up to [`TEXT_MOST`] bytes; what is longer is cut, with `...` at its end.
    /// - control characters become spaces, in all of them; a line feed stays in the evidence.
    /// - a link has up to [`LINK_MOST`] printable ASCII characters without `<`, `>`, `"`, and
    ///   begins with `http://` or `https://`; another one is left out.
    pub fn bounded(self) -> Alert {
        let annotations = self.annotations.into_iter().take(ANNOTATIONS_MOST);
        let noted = annotations.map(|(name, text)| (label_name(&name), clean(&text, false)));
        Alert {
            labels: bounded_labels(self.labels),
            annotations: noted.map(|(name, text)| (name, cut(&text, TEXT_MOST))).collect(),
            evidence: cut(&clean(&self.evidence, true), TEXT_MOST),
            link: self.link.filter(|link| is_link(link)),
            ..self
        }
    }
}

/// Labels within the bounds of [`Alert::bounded`].
pub fn bounded_labels(labels: LabelSet) -> LabelSet {
    let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
    let (first, others): (Vec<_>, Vec<_>) =
        labels.partition(|(name, _)| matches!(name.as_str(), "alertname" | "severity"));
    let labels = first.into_iter().chain(others);
    let named = labels.map(|(name, value)| (label_name(&name), label_value(&value)));
    named.take(LABELS_MOST).collect()
}

/// How bad it is, by its labels: see [`Alert::severity`].
pub fn severity_of(labels: &LabelSet) -> AlertSeverity {
    match labels.get("severity").map(String::as_str) {
        Some("info") => AlertSeverity::Info,
        Some("error") => AlertSeverity::Error,
        Some("critical") => AlertSeverity::Critical,
        _ => AlertSeverity::Warning,
    }
}

/// FNV-1a over names and values in their order, each followed by the octet 255: as Alertmanager
/// computes the fingerprint of a label set.
pub fn fingerprint(labels: &LabelSet) -> u64 {
    let texts = labels.iter().flat_map(|(name, value)| [name, value]);
    fnv(texts.flat_map(|text| text.bytes().chain([255])))
}

/// `text` in at most `most` bytes. What is longer ends with `...`; no character is split.
pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let dots = &"..."[..most.min(3)];
    format!("{}{dots}", before(text, most - dots.len()))
}

/// `text` without what steers whoever shows it: each such character becomes a space. `lines`: line feeds stay.
pub fn clean(text: &str, lines: bool) -> String {
    let kept = |c: char| !is_steering(c) || (lines && c == '\n');
    text.chars().map(|c| if kept(c) { c } else { ' ' }).collect()
}

/// The longest begin of `text` within `most` bytes.
pub(crate) fn before(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

fn label_name(name: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.chars().take(LABEL_NAME_MOST).map(fits).collect();
    match name.as_bytes().first() {
        None => "_".into(),
        Some(first) if first.is_ascii_digit() => format!("_{}", before(&name, LABEL_NAME_MOST - 1)),
        Some(_) => name,
    }
}

fn label_value(value: &str) -> String {
    let value = clean(value, false);
    if value.len() <= LABEL_VALUE_MOST {
        return value;
    }
    let hash = format!("~{:016x}", fnv(value.bytes()));
    format!("{}{hash}", before(&value, LABEL_VALUE_MOST - hash.len()))
}

/// Whether `text` can stand as a link in every format.
pub fn is_link(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_graphic() && !matches!(b, b'<' | b'>' | b'"' | b'|' | b'\\');
    let web = ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme));
    web && text.len() <= LINK_MOST && text.bytes().all(fits)
}

pub(crate) fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// Labels of an alert, at most.
pub const LABELS_MOST: usize = 32;
/// Characters of a label's name, at most.
pub const LABEL_NAME_MOST: usize = 64;
/// Bytes of a label's value, at most.
pub const LABEL_VALUE_MOST: usize = 256;
/// Annotations of an alert, at most.
pub const ANNOTATIONS_MOST: usize = 16;
/// Bytes of an annotation or of the evidence, at most.
pub const TEXT_MOST: usize = 2048;
/// Characters of a link, at most.
pub const LINK_MOST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(all: &[(&str, &str)]) -> LabelSet {
        all.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn the_fingerprint_is_that_of_alertmanager() {
        // FNV-1a, 64 bits, of nothing, and of "a" 255 "b" 255 worked out by hand.
        assert_eq!(fingerprint(&LabelSet::new()), 0xcbf2_9ce4_8422_2325);
        let step = |hash: u64, b: u64| (hash ^ b).wrapping_mul(0x100_0000_01b3);
        let by_hand = [0x61, 0xff, 0x62, 0xff].into_iter().fold(0xcbf2_9ce4_8422_2325, step);
        assert_eq!(fingerprint(&labels(&[("a", "b")])), by_hand);
    }

    #[test]
    fn long_values_stay_different() {
        let long = |end: &str| format!("{}{end}", "x".repeat(400));
        let of = |value: String| {
            Alert { labels: labels(&[("site", &value)]), ..Alert::default() }.bounded().labels
        };
        assert_ne!(of(long("a")), of(long("b")));
        assert_eq!(of(long("a"))["site"].len(), LABEL_VALUE_MOST);
    }

    #[test]
    fn what_would_end_a_line_becomes_a_space() {
        let alert = Alert {
            labels: labels(&[("a b", "x\r\ny"), ("0", "1"), ("empty", "")]),
            annotations: labels(&[("summary", "one\u{2028}two\0")]),
            evidence: "one\ntwo\r\x1b[1m".into(),
            link: Some("https://a/\r\nb".into()),
            ..Alert::default()
        };
        let bounded = alert.bounded();
        assert_eq!(bounded.labels, labels(&[("a_b", "x  y"), ("_0", "1")]));
        assert_eq!(bounded.summary(), "one two ");
        assert_eq!(bounded.evidence, "one\ntwo  [1m");
        assert_eq!(bounded.link, None);
    }

    #[test]
    fn a_cut_says_so_and_splits_no_character() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abc...");
        assert_eq!(cut("äöü", 5), "ä...");
        assert_eq!(cut("abc", 2), "..");
    }

    proptest! {
        #[test]
        fn whatever_is_raised_is_within_the_bounds_and_bounding_again_changes_nothing(
            all in prop::collection::btree_map(any::<String>(), "\\PC{0,300}", 0..40),
            evidence in any::<String>(),
        ) {
            let alert = Alert {
                labels: all.clone(), annotations: all, evidence, ..Alert::default()
            }.bounded();
            prop_assert!(alert.labels.len() <= LABELS_MOST);
            prop_assert!(alert.annotations.len() <= ANNOTATIONS_MOST);
            for (name, value) in &alert.labels {
                prop_assert!((1..=LABEL_NAME_MOST).contains(&name.len()));
                prop_assert!((1..=LABEL_VALUE_MOST).contains(&value.len()));
                prop_assert!(!value.chars().any(is_steering));
            }
            prop_assert_eq!(alert.clone().bounded(), alert);
        }
    }
}
