//! Parameters of a request's path and query, read into a plain struct.
//!
//! A list is one parameter with commas. What the struct does not have is refused by name, as is
//! what comes twice.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer as _, MapAccess, SeqAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use crate::problem::{ProblemDetails, ProblemKind};

/// Reads the parameters.
///
/// # Errors
/// 400 with the name of the first that cannot be.
pub fn read<P: DeserializeOwned>(pairs: &[(String, String)]) -> Result<P, ProblemDetails> {
    for (i, (name, _)) in pairs.iter().enumerate() {
        if pairs[..i].iter().any(|(before, _)| before == name) {
            let why = "is there twice; a list is one parameter with commas";
            return Err(ProblemDetails::of_parameter(ProblemKind::Malformed, name, why));
        }
    }
    P::deserialize(Parameters(pairs)).map_err(|error| match error.name {
        Some(name) => ProblemDetails::of_parameter(ProblemKind::Malformed, &name, error.why),
        None => ProblemDetails::new(ProblemKind::Malformed, error.why),
    })
}

/// Name and value pairs of a query (`a=1&b=2`), without their percent-encoding.
///
/// # Errors
/// 400: an encoding that is none, or of octets that are no UTF-8.
pub fn query_pairs(query: &str) -> Result<Vec<(String, String)>, ProblemDetails> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let decode = |text: &str| {
        decode_percent(&text.replace('+', " ")).ok_or_else(|| {
            let why = format!("query: '{text}' is no percent-encoded UTF-8");
            ProblemDetails::new(ProblemKind::Malformed, why)
        })
    };
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        })
        .collect()
}

/// Takes the percent-encoding away (RFC 3986, section 2.1). `None`: it is none, or no UTF-8.
pub fn decode_percent(text: &str) -> Option<String> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(octet) = rest.next() {
        octets.push(match octet {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                (high << 4 | low) as u8
            }
            other => other,
        });
    }
    String::from_utf8(octets).ok()
}

/// Encodes all but the unreserved characters of RFC 3986.
pub fn encode_percent(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let one = |b: u8| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    text.bytes().map(one).collect()
}

#[derive(Debug)]
struct ParameterError {
    name: Option<String>,
    why: String,
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for ParameterError {}

impl serde::de::Error for ParameterError {
    fn custom<T: fmt::Display>(why: T) -> Self {
        ParameterError { name: None, why: why.to_string() }
    }
}

struct Parameters<'de>(&'de [(String, String)]);

impl<'de> Deserializer<'de> for Parameters<'de> {
    type Error = ParameterError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParameterError> {
        visitor.visit_map(InPairs { rest: self.0, value: None })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

struct InPairs<'de> {
    rest: &'de [(String, String)],
    value: Option<&'de (String, String)>,
}

impl<'de> MapAccess<'de> for InPairs<'de> {
    type Error = ParameterError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ParameterError> {
        let Some((pair, rest)) = self.rest.split_first() else { return Ok(None) };
        (self.rest, self.value) = (rest, Some(pair));
        let key: StrDeserializer<'_, ParameterError> = pair.0.as_str().into_deserializer();
        let named = |error| ParameterError { name: Some(pair.0.clone()), ..error };
        seed.deserialize(key).map(Some).map_err(named)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, ParameterError> {
        let Some((name, text)) = self.value.take() else {
            return Err(serde::de::Error::custom("a value without a name"));
        };
        let named = |error| ParameterError { name: Some(name.clone()), ..error };
        seed.deserialize(Value(text)).map_err(named)
    }
}

/// One value, which is text until somebody wants it to be something else.
struct Value<'de>(&'de str);

impl<'de> Value<'de> {
    fn parsed<T: std::str::FromStr>(&self, what: &str) -> Result<T, ParameterError> {
        let shown: String = self.0.chars().take(40).collect();
        let why = || ParameterError { name: None, why: format!("'{shown}' is no {what}") };
        self.0.parse().map_err(|_| why())
    }
}

macro_rules! parsed {
    ($($method:ident $visit:ident $what:literal),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParameterError> {
            visitor.$visit(self.parsed($what)?)
        }
    )*};
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = ParameterError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParameterError> {
        visitor.visit_borrowed_str(self.0)
    }

    parsed!(
        deserialize_bool visit_bool "true or false",
        deserialize_i8 visit_i8 "integer of 8 bits",
        deserialize_i16 visit_i16 "integer of 16 bits",
        deserialize_i32 visit_i32 "integer of 32 bits",
        deserialize_i64 visit_i64 "integer of 64 bits",
        deserialize_u8 visit_u8 "integer of 8 bits from 0",
        deserialize_u16 visit_u16 "integer of 16 bits from 0",
        deserialize_u32 visit_u32 "integer of 32 bits from 0",
        deserialize_u64 visit_u64 "integer of 64 bits from 0",
        deserialize_f64 visit_f64 "number"
    );

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParameterError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ParameterError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParameterError> {
        let items = if self.0.is_empty() { None } else { Some(self.0) };
        visitor.visit_seq(Items(items))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ParameterError> {
        let variant: StrDeserializer<'_, ParameterError> = self.0.into_deserializer();
        variant.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        i128 u128 f32 char str string bytes byte_buf unit unit_struct tuple tuple_struct map struct
        identifier ignored_any
    }
}

/// The items of a list that are left.
struct Items<'de>(Option<&'de str>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = ParameterError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ParameterError> {
        let Some(rest) = self.0 else { return Ok(None) };
        let (item, rest) = match rest.split_once(',') {
            Some((item, rest)) => (item, Some(rest)),
            None => (rest, None),
        };
        self.0 = rest;
        seed.deserialize(Value(item)).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instant::GivenInstant;
    use crate::role::AccessRole;
    use proptest::prelude::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Wanted {
        id: String,
        #[serde(default)]
        limit: Option<u32>,
        #[serde(default)]
        by: Vec<String>,
        #[serde(default)]
        roles: Vec<AccessRole>,
        from: Option<GivenInstant>,
        #[serde(default)]
        exact: bool,
    }

    fn wanted(query: &str) -> Result<Wanted, String> {
        let pairs = query_pairs(query).map_err(|problem| problem.detail)?;
        read(&pairs).map_err(|problem| {
            assert_eq!(problem.status, 400);
            problem.detail
        })
    }

    #[test]
    fn parameters_have_the_types_of_their_struct() {
        let read =
            wanted("id=a%2Fb+c&limit=5&by=site,class&roles=read,admin&from=now-5m&exact=true");
        assert_eq!(
            read.unwrap(),
            Wanted {
                id: "a/b c".into(),
                limit: Some(5),
                by: vec!["site".into(), "class".into()],
                roles: vec![AccessRole::Read, AccessRole::Admin],
                from: Some(GivenInstant::Before(300_000_000_000)),
                exact: true,
            }
        );
        let read = wanted("id=&by=").unwrap();
        assert_eq!((read.id.as_str(), read.by.len(), read.from), ("", 0, None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (query, parts) in [
            ("", ["missing field `id`", ""]),
            ("id=1&limit=-1", ["`limit`", "'-1' is no integer"]),
            ("id=1&limit=99999999999", ["`limit`", "is no integer of 32 bits"]),
            ("id=1&roles=read,root", ["`roles`", "unknown variant `root`"]),
            ("id=1&from=then", ["`from`", "'then' is no instant"]),
            ("id=1&offset=3", ["`offset`", "unknown field"]),
            ("id=1&id=2", ["`id`", "twice"]),
            ("id=%f", ["percent-encoded", ""]),
            ("id=%ff", ["UTF-8", ""]),
        ] {
            let why = wanted(query).unwrap_err();
            assert!(parts.iter().all(|part| why.contains(part)), "{query}: {why}");
        }
    }

    proptest! {
        #[test]
        fn any_query_is_read_or_refused(query in ".{0,80}") {
            let _ = wanted(&query);
        }

        #[test]
        fn what_is_encoded_is_decoded(text in ".{0,40}") {
            prop_assert_eq!(decode_percent(&encode_percent(&text)), Some(text));
        }
    }
}
