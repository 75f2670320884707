//! Durations in settings: nanoseconds here, "250us" or seconds as a number where they are
//! written.

use serde::de::{self, Visitor};
use serde::{Deserializer, Serializer};
use sonde_results::units::{format_duration, parse_duration};

/// For `#[serde(serialize_with)]`: exactly, in the greatest unit that does.
///
/// # Errors
/// The serializer's.
pub fn serialize<S: Serializer>(ns: &i64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format_duration(*ns))
}

/// For `#[serde(deserialize_with)]`: a text with a unit, or seconds.
///
/// # Errors
/// Neither of them, or not a whole count of nanoseconds.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    from.deserialize_any(Duration)
}

struct Duration;

impl Visitor<'_> for Duration {
    type Value = i64;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a duration: \"250us\", \"10ms\", \"1.5s\", or a number of seconds")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<i64, E> {
        parse_duration(text).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<i64, E> {
        self.visit_str(&seconds.to_string())
    }

    fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<i64, E> {
        self.visit_str(&seconds.to_string())
    }

    fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<i64, E> {
        self.visit_str(&seconds.to_string())
    }
}

/// The same where it may be absent.
pub mod option {
    use serde::Deserialize as _;

    use super::*;

    /// See [`super::serialize`].
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(ns: &Option<i64>, to: S) -> Result<S::Ok, S::Error> {
        match ns {
            Some(ns) => super::serialize(ns, to),
            None => to.serialize_none(),
        }
    }

    /// See [`super::deserialize`].
    ///
    /// # Errors
    /// As [`super::deserialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
        #[derive(serde::Deserialize)]
        struct Ns(#[serde(with = "super")] i64);
        Ok(Option::<Ns>::deserialize(from)?.map(|Ns(ns)| ns))
    }
}
