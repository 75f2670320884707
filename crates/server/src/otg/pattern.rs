//! Values of header fields: one, several in turn, or by a rule.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use sonde_results::units::parse_mac;

/// A field's values: frame after frame takes the next, and after the last the first.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "T: Deserialize<'de>"))]
pub struct FieldPattern<T> {
    /// Which of the others counts.
    #[serde(default)]
    pub choice: PatternChoice,
    /// One for all frames.
    pub value: Option<T>,
    /// These, in this order.
    pub values: Option<Vec<T>>,
    /// Upwards.
    pub increment: Option<PatternCounter<T>>,
    /// Downwards.
    pub decrement: Option<PatternCounter<T>>,
    /// Drawn from a seed.
    pub random: Option<Random<T>>,
    /// Shown to the client; what it really is depends on the rest of the frame.
    #[serde(default, rename = "auto")]
    _auto: Option<serde::de::IgnoredAny>,
}

/// Which kind of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PatternChoice {
    /// `value`, or the field's default.
    #[default]
    Value,
    Values,
    Increment,
    Decrement,
    Random,
    /// As the rest of the frame demands.
    Auto,
}

/// Values at equal distances.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatternCounter<T> {
    pub start: Option<T>,
    /// From one to the next.
    pub step: Option<T>,
    /// How many, before it begins again.
    #[serde(default = "one", deserialize_with = "whole")]
    pub count: u64,
}

/// Values drawn from a range, both ends inclusive.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Random<T> {
    pub min: Option<T>,
    pub max: Option<T>,
    /// Of the pseudo-random generator.
    #[serde(default = "one", deserialize_with = "whole")]
    pub seed: u64,
    /// How many, before it begins again.
    #[serde(default = "one", deserialize_with = "whole")]
    pub count: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChecksumPattern {
    /// Which of the others counts.
    #[serde(default)]
    pub choice: ChecksumChoice,
    /// Right, or wrong on purpose.
    #[serde(default)]
    pub generated: Generated,
    /// This, whatever the frame holds.
    pub custom: Option<Integer>,
}

/// Who makes a checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChecksumChoice {
    /// Sonde computes it.
    #[default]
    Generated,
    /// The client gives it.
    Custom,
}

/// What kind of checksum we make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Generated {
    /// The right one.
    #[default]
    Good,
    /// One that is certainly wrong.
    Bad,
}

/// Something that can stand in a header: an integer of up to 128 bits.
pub trait FieldValue: Clone {
    /// As an integer, in network byte order.
    fn bits(&self) -> u128;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integer(pub u64);

impl FieldValue for Integer {
    fn bits(&self) -> u128 {
        self.0.into()
    }
}

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Integer, D::Error> {
        whole(d).map(Integer)
    }
}

/// A MAC address, "00:11:22:33:44:55".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacText(pub [u8; 6]);

impl FieldValue for MacText {
    fn bits(&self) -> u128 {
        self.0.iter().fold(0, |bits, &octet| bits << 8 | u128::from(octet))
    }
}

impl<'de> Deserialize<'de> for MacText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<MacText, D::Error> {
        let text = String::deserialize(d)?;
        // The model has two digits an octet.
        let mac = parse_mac(&text).ok().filter(|_| text.len() == 17);
        let wrong = || D::Error::custom(format!("'{text}' is no MAC address"));
        mac.map(MacText).ok_or_else(wrong)
    }
}

impl FieldValue for Ipv4Addr {
    fn bits(&self) -> u128 {
        self.to_bits().into()
    }
}

impl FieldValue for Ipv6Addr {
    fn bits(&self) -> u128 {
        self.to_bits()
    }
}

/// 64-bit integers come as text from clients that follow the JSON mapping of Protocol
/// Buffers, because JavaScript has none.
pub(crate) fn whole<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Integer(u64),
        Float(f64),
        Text(String),
    }
    match Either::deserialize(d) {
        Ok(Either::Integer(n)) => Ok(n),
        Ok(Either::Float(f)) if f >= 0.0 && f.fract() == 0.0 && f <= 2f64.powi(53) => Ok(f as u64),
        Ok(Either::Text(text)) => {
            text.parse().map_err(|_| D::Error::custom(format!("'{text}' is no whole number")))
        }
        _ => Err(D::Error::custom("not a whole number from 0 on")),
    }
}

pub(crate) fn one() -> u64 {
    1
}

/// An integer as the JSON mapping of Protocol Buffers writes 64 bits: as text.
pub(crate) fn as_text<S: serde::Serializer>(n: &u64, s: S) -> Result<S::Ok, S::Error> {
    n.to_string().serialize(s)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn integers_come_as_numbers_and_as_text() {
        for text in ["1000", "\"1000\"", "1000.0"] {
            assert_eq!(read::<Integer>(text), Ok(Integer(1000)), "{text}");
        }
        for text in ["-1", "1.5", "\"x\"", "null", "[]", "1e300"] {
            assert!(read::<Integer>(text).is_err(), "{text}");
        }
        assert_eq!(read::<Integer>("\"18446744073709551615\""), Ok(Integer(u64::MAX)));
    }

    #[test]
    fn mac_addresses_are_six_octets() {
        assert_eq!(read::<MacText>("\"02:00:00:00:0a:FF\"").unwrap().bits(), 0x0200_0000_0aff);
        for text in
            ["", "02:00:00:00:00", "02:00:00:00:00:00:00", "2:0:0:0:0:0", "02-00-00-00-00-00"]
        {
            assert!(read::<MacText>(&format!("\"{text}\"")).is_err(), "{text}");
        }
    }

    #[test]
    fn what_a_pattern_cannot_do_is_refused() {
        let error =
            read::<FieldPattern<Integer>>(r#"{"choice":"value","metric_tags":[]}"#).unwrap_err();
        assert!(error.contains("metric_tags"), "{error}");
        assert!(read::<FieldPattern<Integer>>(r#"{"choice":"sometimes"}"#).is_err());
        let all = read::<FieldPattern<Ipv4Addr>>(
            r#"{"choice":"increment","increment":{"start":"198.18.0.1","step":"0.0.0.1","count":3}}"#,
        );
        assert_eq!(all.unwrap().increment.unwrap().count, 3);
    }
}
