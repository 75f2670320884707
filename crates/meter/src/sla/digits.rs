//! Sums of 128 bits as text: readers of JSON have 53.

use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(sum: &i128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(sum)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i128, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}
