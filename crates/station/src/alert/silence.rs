//! Times in which nobody is told: silences and maintenance.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model::LabelSet;
use super::route::LabelPatterns;

/// Why alerts are held back.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum MuteKind {
    /// Somebody does not want to hear of them for a time.
    #[default]
    Silence,
    /// Work was announced.
    Maintenance,
}

/// A time in which alerts that match are held back.
///
/// They are kept: what still lasts at the end comes out then. What was notified before is still
/// resolved when it ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mute {
    /// Its id, unique: a second one takes the place of the first.
    pub id: String,
    /// What people call it; empty: as its id.
    #[serde(default)]
    pub name: String,
    /// Why.
    pub kind: MuteKind,
    /// What it holds back: alerts whose labels match all of these. One without any matches all.
    #[serde(default)]
    pub labels: LabelPatterns,
    /// From when on, ns since 1970 UTC (inclusive).
    pub starts_ns: i64,
    /// Until when, ns since 1970 UTC (exclusive). There is none without an end.
    pub ends_ns: i64,
    /// Who wants it.
    pub author: String,
    /// Why, in that one's words.
    #[serde(default)]
    pub comment: String,
}

impl Mute {
    /// Whether it holds back an alert with these labels at this instant.
    pub fn holds_back(&self, labels: &LabelSet, at_ns: i64) -> bool {
        (self.starts_ns..self.ends_ns).contains(&at_ns) && self.labels.matches(labels)
    }
}

/// Somebody takes care of an alert: it is not repeated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Acknowledgement {
    /// Who.
    pub author: String,
    /// Since when, ns since 1970 UTC.
    pub at_ns: i64,
    /// What that one says.
    #[serde(default)]
    pub comment: String,
}

/// The first instant from `from_ns` on at which nothing holds back an alert with these labels.
pub fn unmuted_from<'a>(
    mutes: impl Iterator<Item = &'a Mute> + Clone,
    labels: &LabelSet,
    from_ns: i64,
) -> i64 {
    let mut at = from_ns;
    // Each turn ends one mute for good, since none begins again.
    while let Some(mute) = mutes.clone().find(|mute| mute.holds_back(labels, at)) {
        at = mute.ends_ns;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mute(starts_ns: i64, ends_ns: i64, site: &str) -> Mute {
        let labels = LabelPatterns::of(&[("site", site)]);
        let (id, author) = (format!("{starts_ns}"), "ann".to_owned());
        let kind = MuteKind::Silence;
        let (name, comment) = (String::new(), String::new());
        Mute { id, name, kind, labels, starts_ns, ends_ns, author, comment }
    }

    proptest! {
        #[test]
        fn the_end_of_all_mutes_is_the_first_instant_that_none_covers(
            spans in prop::collection::vec((0..40_i64, 0..20_i64, prop::bool::ANY), 0..8),
            from in 0..60_i64,
        ) {
            let mutes: Vec<Mute> = spans
                .iter()
                .map(|&(start, length, ours)| {
                    mute(start, start + length, if ours { "ber" } else { "muc" })
                })
                .collect();
            let labels = LabelSet::from([("site".into(), "ber".into())]);
            let covered = |at: i64| mutes.iter().any(|mute| mute.holds_back(&labels, at));
            let by_hand = (from..).find(|&at| !covered(at)).unwrap();
            prop_assert_eq!(unmuted_from(mutes.iter(), &labels, from), by_hand);
        }
    }
}
