//! The values of a targets file, each through the parser of the command line.

use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;

use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, SeqAccess, Visitor};
use sonde_meter::stamp::{ReflectorKind, Schedule};
use sonde_results::units::{parse_dscp, parse_duration, parse_positive_duration};

use super::super::settings::{self, PortRange};

/// What a value is written as.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Number,
    Any,
}
use Kind::{Any, Number, Text};

/// A value that `parse` accepts.
struct Value<T, P> {
    kind: Kind,
    parse: P,
    made: PhantomData<T>,
}

fn value<T, P: FnOnce(&str) -> Result<T, String>>(kind: Kind, parse: P) -> Value<T, P> {
    Value { kind, parse, made: PhantomData }
}

impl<T, P: FnOnce(&str) -> Result<T, String>> Value<T, P> {
    fn numeric<E: Error>(self, text: &str, found: serde::de::Unexpected<'_>) -> Result<T, E> {
        match self.kind {
            Text => Err(E::invalid_type(found, &self)),
            Number | Any => (self.parse)(text).map_err(E::custom),
        }
    }
}

impl<'de, T, P: FnOnce(&str) -> Result<T, String>> DeserializeSeed<'de> for Value<T, P> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<T, P: FnOnce(&str) -> Result<T, String>> Visitor<'_> for Value<T, P> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Text => "a string",
            Number => "a number",
            Any => "a string or a number",
        })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        match self.kind {
            Number => Err(E::invalid_type(serde::de::Unexpected::Str(text), &self)),
            Text | Any => (self.parse)(text).map_err(E::custom),
        }
    }

    fn visit_i64<E: Error>(self, given: i64) -> Result<T, E> {
        self.numeric(&given.to_string(), serde::de::Unexpected::Signed(given))
    }

    fn visit_u64<E: Error>(self, given: u64) -> Result<T, E> {
        self.numeric(&given.to_string(), serde::de::Unexpected::Unsigned(given))
    }

    fn visit_i128<E: Error>(self, given: i128) -> Result<T, E> {
        self.numeric(&given.to_string(), serde::de::Unexpected::Other("integer"))
    }

    fn visit_u128<E: Error>(self, given: u128) -> Result<T, E> {
        self.numeric(&given.to_string(), serde::de::Unexpected::Other("integer"))
    }

    fn visit_f64<E: Error>(self, given: f64) -> Result<T, E> {
        // With its ".0": what takes whole numbers takes no other.
        self.numeric(&format!("{given:?}"), serde::de::Unexpected::Float(given))
    }
}

macro_rules! values {
    ($($name:ident: $kind:ident -> $type:ty = $parse:expr;)*) => { $(
        pub(super) fn $name<'de, D>(deserializer: D) -> Result<Option<$type>, D::Error>
        where
            D: Deserializer<'de>,
        {
            value($kind, $parse).deserialize(deserializer).map(Some)
        }
    )* };
}

values! {
    interval: Any -> i64 = parse_positive_duration;
    timeout: Any -> i64 = settings::parse_timeout;
    record_interval: Any -> i64 = settings::parse_record_interval;
    late_limit: Any -> i64 = parse_duration;
    seed: Number -> u64 = |t| t.parse().map_err(|_| format!("'{t}' is not a whole number from 0 on"));
    count: Number -> u64 = settings::parse_count;
    size: Number -> u16 = settings::parse_size;
    port: Number -> u16 = settings::parse_port;
    flows: Number -> u16 = settings::parse_flows;
    flow_ports: Text -> PortRange = str::parse;
    schedule: Text -> Schedule = str::parse;
    ttl: Number -> u8 = settings::parse_ttl;
    reflector: Text -> ReflectorKind = str::parse;
    source: Text -> IpAddr = settings::parse_address;
    name: Text -> String = one_line;
    first: Number -> u64 =
        |t| settings::parse_count(t).map_err(|_| format!("'{t}' is not a number of hosts"));
}

pub(super) fn host<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    value(Text, one_line).deserialize(deserializer)
}

fn one_line(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("must not be empty".to_string()),
        // It would reach the terminal.
        text if text.contains(char::is_control) => {
            Err(format!("{text:?} holds a control character; leave it out"))
        }
        text => Ok(text.to_string()),
    }
}

/// A key that no target may have.
pub(super) fn of_the_run<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    IgnoredAny::deserialize(deserializer)?;
    Err(D::Error::custom("holds for the whole run; move it above the first [[target]]"))
}

pub(super) fn dscp<'de, D>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error>
where
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(OneOrMore).map(Some)
}

/// One DSCP, or a list of them.
struct OneOrMore;

impl<'de> Visitor<'de> for OneOrMore {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number, or a list of them")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<u8>, E> {
        value(Any, parse_dscp).visit_str(text).map(|dscp| vec![dscp])
    }

    fn visit_i64<E: Error>(self, given: i64) -> Result<Vec<u8>, E> {
        value(Any, parse_dscp).visit_i64(given).map(|dscp| vec![dscp])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u8>, A::Error> {
        let mut list = Vec::new();
        // In the parser, so that the item's own line is named.
        let fresh = |list: &[u8], text: &str| match parse_dscp(text)? {
            dscp if list.contains(&dscp) => Err(format!("{dscp} is listed twice")),
            dscp => Ok(dscp),
        };
        while let Some(dscp) = seq.next_element_seed(value(Any, |text: &str| fresh(&list, text)))? {
            list.push(dscp);
        }
        match list.is_empty() {
            true => Err(A::Error::custom("the list is empty; leave the key out instead")),
            false => Ok(list),
        }
    }
}
