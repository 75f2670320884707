//! Sizes in settings: octets here, "64M" or an integer where they are written.

use std::fmt;

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserializer, Serializer};
use sonde_results::units::parse_octets;

/// For `#[serde(serialize_with)]`: the integer.
///
/// # Errors
/// The serializer's.
pub fn serialize<S: Serializer>(octets: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(*octets)
}

/// For `#[serde(deserialize_with)]`: an integer, or a text as the command line takes it.
///
/// # Errors
/// Neither of them.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_any(Octets)
}

/// The schema of a size.
pub fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["integer", "string"], "format": "uint64", "minimum": 0 })
}

struct Octets;

impl Visitor<'_> for Octets {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size in octets: 500000, \"500k\", \"64Mi\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        parse_octets(text).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, octets: u64) -> Result<u64, E> {
        Ok(octets)
    }

    fn visit_i64<E: de::Error>(self, octets: i64) -> Result<u64, E> {
        self.visit_str(&octets.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct Kept {
        #[serde(with = "super")]
        size: u64,
    }

    #[test]
    fn a_text_and_an_integer_are_the_same_size() {
        let of = |text: &str| serde_json::from_str::<Kept>(text).map(|kept| kept.size);
        assert_eq!(of(r#"{"size":"64M"}"#).unwrap(), of(r#"{"size":64000000}"#).unwrap());
        let toml: Kept = toml::from_str("size = '1Gi'").unwrap();
        assert_eq!(serde_json::to_string(&toml).unwrap(), r#"{"size":1073741824}"#);
        assert_eq!(toml::from_str::<Kept>("size = 7").unwrap().size, 7);
        for wrong in [r#"{"size":-1}"#, r#"{"size":"5X"}"#, r#"{"size":[]}"#, r#"{"size":1.5}"#] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
