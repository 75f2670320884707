//! Settings that are written as text, as on the command line: prefixes, engines, durations.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use schemars::{Schema, json_schema};
use serde::{Deserialize as _, Deserializer, Serializer, de};

/// For `#[serde(serialize_with)]`: as it is displayed.
///
/// # Errors
/// The serializer's.
pub fn serialize<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// For `#[serde(deserialize_with)]`: as it is parsed.
///
/// # Errors
/// No text, or one that is not of this kind.
pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    String::deserialize(from)?.parse().map_err(de::Error::custom)
}

/// The schema of a setting that is one of `values`, as they are displayed.
pub fn one_of(values: &[impl Display]) -> Schema {
    let names: Vec<String> = values.iter().map(ToString::to_string).collect();
    json_schema!({ "type": "string", "enum": names })
}

/// The same where it may be absent.
pub fn one_of_or_none(values: &[impl Display]) -> Schema {
    let names = values.iter().map(|value| Some(value.to_string()));
    let names: Vec<Option<String>> = names.chain([None]).collect();
    json_schema!({ "type": ["string", "null"], "enum": names })
}

/// A size of a table, in flows, which was typed as `text`.
///
/// # Errors
/// Out of range.
pub(crate) fn flows(text: &str, flows: u64, range: RangeInclusive<u32>) -> Result<u32, String> {
    let (low, high) = (range.start(), range.end());
    let fits = u32::try_from(flows).ok().filter(|flows| range.contains(flows));
    fits.ok_or_else(|| format!("'{text}' is not a number of flows, {low}..{high}"))
}

/// The same for lists.
pub mod list {
    use serde::Serialize as _;

    use super::*;

    /// See [`super::serialize`].
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(values: &[impl Display], to: S) -> Result<S::Ok, S::Error> {
        values.iter().map(ToString::to_string).collect::<Vec<_>>().serialize(to)
    }

    /// See [`super::deserialize`].
    ///
    /// # Errors
    /// No list of texts, or a text that is not of this kind.
    pub fn deserialize<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| text.parse().map_err(de::Error::custom)).collect()
    }
}

/// The same where it may be absent.
pub mod option {
    use super::*;

    /// See [`super::serialize`].
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(
        value: &Option<impl Display>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => super::serialize(value, to),
            None => to.serialize_none(),
        }
    }

    /// See [`super::deserialize`].
    ///
    /// # Errors
    /// As [`super::deserialize`].
    pub fn deserialize<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
    }
}
