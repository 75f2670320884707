//! Probes that were due and not sent, by reason.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_wire::NotSent;

/// How many for each reason. In JSON an object of the reasons that occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotSentCounts([u64; NotSent::ALL.len()]);

impl NotSentCounts {
    /// Counts `n` more packets for the reason `why`.
    pub fn add(&mut self, why: NotSent, n: u64) {
        self.0[why as usize] += n;
    }

    /// Those for one reason.
    pub fn of(&self, why: NotSent) -> u64 {
        self.0[why as usize]
    }

    /// Packets for all reasons together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds `other`, reason by reason.
    pub fn merge(&mut self, other: &NotSentCounts) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// The reasons that occurred, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (NotSent, u64)> {
        NotSent::ALL.into_iter().zip(self.0).filter(|&(_, n)| n > 0)
    }
}

impl Serialize for NotSentCounts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(why, n)| (why.name(), n)))
    }
}

impl<'de> Deserialize<'de> for NotSentCounts {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let map = BTreeMap::<String, u64>::deserialize(deserializer)?;
        let mut counts = NotSentCounts::default();
        for (name, n) in map {
            // A reason of a later version is none of those known here.
            let known = NotSent::ALL.into_iter().find(|why| why.name() == name);
            counts.add(known.unwrap_or(NotSent::Other), n);
        }
        Ok(counts)
    }
}

impl JsonSchema for NotSentCounts {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NotSentCounts".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        BTreeMap::<String, u64>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reasons_that_occurred_are_written_and_they_read_back() {
        let mut counts = NotSentCounts::default();
        counts.add(NotSent::LinkDown, 20);
        counts.add(NotSent::TooLong, 1);
        let json = serde_json::to_string(&counts).unwrap();
        assert_eq!(json, r#"{"link_down":20,"too_long":1}"#);
        assert_eq!(serde_json::from_str::<NotSentCounts>(&json).unwrap(), counts);
        let later: NotSentCounts = serde_json::from_str(r#"{"sunspots":3}"#).unwrap();
        assert_eq!((later.of(NotSent::Other), later.total()), (3, 3));
    }

    #[test]
    fn reasons_are_in_order() {
        for (i, why) in NotSent::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, i);
        }
    }
}
