//! The values in a plan: times, rates, loads, frame sizes, thresholds.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use sonde_results::units::{format_duration, parse_duration, parse_rate};
use sonde_wire::prefix::Prefix;

/// A time, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ns(pub i64);

/// Frames a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

/// A load: how much is offered in each direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IntendedLoad {
    /// Frames a second.
    Frames(f64),
    /// Bits a second of the frames with their FCS, without preamble and gap.
    Bits(f64),
    /// Of the rate that the procedure found, or of the greatest rate, 0 to 1.
    Share(f64),
}

impl IntendedLoad {
    /// Frames a second, for frames of this mean size with the FCS; `whole` is what shares
    /// are of.
    pub fn fps(self, frame_bytes: f64, whole: f64) -> f64 {
        match self {
            IntendedLoad::Frames(fps) => fps,
            IntendedLoad::Bits(bits) => bits / 8.0 / frame_bytes,
            IntendedLoad::Share(share) => share * whole,
        }
    }
}

impl fmt::Display for IntendedLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntendedLoad::Frames(fps) => write!(f, "{fps} frames/s"),
            IntendedLoad::Bits(bits) => write!(f, "{} Mbit/s", bits / 1e6),
            IntendedLoad::Share(share) => write!(f, "{} %", share * 100.0),
        }
    }
}

/// Frame sizes: one, or a repeated sequence (RFC 6985).
#[derive(Clone, Debug, PartialEq)]
pub struct FrameSizes {
    /// As reports show it: "64", "imix:aaaaaaaddddg".
    pub label: String,
    /// Octets with the FCS, in the order of sending, repeated.
    pub sizes: Vec<u16>,
}

impl FrameSizes {
    pub fn size(size: u16) -> FrameSizes {
        FrameSizes { label: size.to_string(), sizes: vec![size] }
    }

    /// Mean octets of a frame.
    pub fn mean(&self) -> f64 {
        self.sizes.iter().map(|&s| f64::from(s)).sum::<f64>() / self.sizes.len().max(1) as f64
    }

    /// Of more than one size.
    pub fn is_mix(&self) -> bool {
        self.smallest() != self.largest()
    }

    /// Octets of the largest.
    pub fn largest(&self) -> u16 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// Octets of the smallest.
    pub fn smallest(&self) -> u16 {
        self.sizes.iter().copied().min().unwrap_or(0)
    }
}

impl FromStr for FrameSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<FrameSizes, String> {
        if let Ok(size) = text.parse::<u16>() {
            return match size {
                SMALLEST..=LARGEST => Ok(FrameSizes::size(size)),
                _ => Err(format!(
                    "a frame of {size} octets cannot be; sizes count the FCS, {SMALLEST} to {LARGEST}"
                )),
            };
        }
        if text == "imix" {
            // 7 x 64, 4 x 594, 1 x 1518: the simple mix, with sizes that include the FCS.
            return FrameSizes::genome("imix", "7(64)4(594)1(1518)");
        }
        match text.split_once(':') {
            Some((name @ ("imix" | "genome"), genome)) => FrameSizes::genome(name, genome),
            _ => Err(format!(
                "'{text}' is no frame size; write 64, imix, or imix:aaaaaaaddddg with letters of \
                 RFC 6985, or imix:7(64)4(594)1(1518)"
            )),
        }
    }
}

impl FrameSizes {
    /// Letters stand for the sizes of RFC 6985, section 4; "7(64)" for seven frames of 64;
    /// "7a" for seven of the letter's.
    fn genome(name: &str, genome: &str) -> Result<FrameSizes, String> {
        let wrong = |what: &str| {
            format!("'{genome}': {what}; write aaaaaaaddddg, 7a4d1g or 7(64)4(594)1(1518)")
        };
        let mut sizes = Vec::new();
        let mut rest = genome;
        while !rest.is_empty() {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let count: usize = match &rest[..digits] {
                "" => 1,
                digits => digits.parse().map_err(|_| wrong("too many frames"))?,
            };
            rest = &rest[digits..];
            let size = if let Some(inside) = rest.strip_prefix('(') {
                let (size, after) =
                    inside.split_once(')').ok_or_else(|| wrong("a bracket is open"))?;
                rest = after;
                size.parse().map_err(|_| wrong("a size is no number"))?
            } else {
                let letter = rest.chars().next().ok_or_else(|| wrong("a count without a size"))?;
                rest = &rest[letter.len_utf8()..];
                letter_size(letter).ok_or_else(|| wrong("an unknown letter"))?
            };
            if !(SMALLEST..=LARGEST).contains(&size) {
                return Err(wrong(&format!("sizes are {SMALLEST} to {LARGEST}")));
            }
            if count == 0 || sizes.len() + count > LONGEST {
                return Err(wrong(&format!("a sequence has 1 to {LONGEST} frames")));
            }
            sizes.extend(std::iter::repeat_n(size, count));
        }
        if sizes.is_empty() {
            return Err(wrong("no frame"));
        }
        Ok(FrameSizes { label: format!("{name}:{genome}"), sizes })
    }
}

/// RFC 6985, section 4. Letter z is the MTU, which a plan has to name itself.
fn letter_size(letter: char) -> Option<u16> {
    Some(match letter {
        'a' => 64,
        'b' => 128,
        'c' => 256,
        'd' => 512,
        'e' => 1024,
        'f' => 1280,
        'g' => 1518,
        'h' => 2112,
        'i' => 9000,
        'j' => 16000,
        _ => return None,
    })
}

/// A threshold: a name, a comparison, a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// The text as it stands in the plan.
    pub text: String,
    /// A name among a finding's values.
    pub name: String,
    /// How it is compared.
    pub operator: Operator,
    pub limit: ThresholdLimit,
}

/// What a value is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThresholdLimit {
    /// In the value's own unit.
    Value(f64),
    /// A time, ns.
    Time(f64),
    /// Of 1: written in per cent.
    Share(f64),
    /// With k, M or G: of rates and of counts.
    Rate(f64),
}

impl ThresholdLimit {
    /// In the unit of a quantity; `None`: it is none of that kind.
    pub fn in_unit(self, unit: &str) -> Option<f64> {
        match (self, unit) {
            (ThresholdLimit::Value(n), _)
            | (ThresholdLimit::Time(n), "ns")
            | (ThresholdLimit::Share(n), "ratio") => Some(n),
            (ThresholdLimit::Time(ns), "s") => Some(ns / 1e9),
            (ThresholdLimit::Time(_) | ThresholdLimit::Share(_), _)
            | (ThresholdLimit::Rate(_), "ns" | "s" | "ratio") => None,
            (ThresholdLimit::Rate(n), _) => Some(n),
        }
    }
}

/// How a value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    AtLeast,
    AtMost,
    Above,
    Below,
}

impl Threshold {
    /// Whether it holds for a value of that unit; `None`: the two do not compare.
    pub fn holds(&self, value: f64, unit: &str) -> Option<bool> {
        let limit = self.limit.in_unit(unit)?;
        Some(match self.operator {
            Operator::AtLeast => value >= limit,
            Operator::AtMost => value <= limit,
            Operator::Above => value > limit,
            Operator::Below => value < limit,
        })
    }
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Threshold, String> {
        let wrong = || {
            format!(
                "'{text}' is no threshold; write 'throughput >= 1.0e6', 'latency_p99 <= 20us' or \
                 'loss_ratio <= 0.1 %'"
            )
        };
        let (name, operator, limit) = [
            (">=", Operator::AtLeast),
            ("<=", Operator::AtMost),
            (">", Operator::Above),
            ("<", Operator::Below),
        ]
        .into_iter()
        .find_map(|(sign, op)| text.split_once(sign).map(|(n, l)| (n.trim(), op, l.trim())))
        .ok_or_else(wrong)?;
        let finite = |text: &str| text.parse::<f64>().ok().filter(|n| n.is_finite());
        let limit = if let Some(share) = limit.strip_suffix('%') {
            finite(share.trim()).map(|percent| ThresholdLimit::Share(percent / 100.0))
        } else if let Some(value) = finite(limit) {
            Some(ThresholdLimit::Value(value))
        } else if limit.ends_with('s') {
            parse_duration(limit).ok().map(|ns| ThresholdLimit::Time(ns as f64))
        } else {
            parse_rate(limit).ok().map(|rate| ThresholdLimit::Rate(rate as f64))
        };
        match limit {
            Some(limit) if !name.is_empty() && !name.contains(char::is_whitespace) => {
                Ok(Threshold { text: text.into(), name: name.into(), operator, limit })
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for FrameSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

impl fmt::Display for Ns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_duration(self.0))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Ns {
    type Err = String;
    fn from_str(text: &str) -> Result<Ns, String> {
        match parse_duration(text)? {
            ns if ns > LONGEST_NS => Err(format!("'{text}' is longer than a year")),
            ns => Ok(Ns(ns)),
        }
    }
}

impl FromStr for Rate {
    type Err = String;
    fn from_str(text: &str) -> Result<Rate, String> {
        parse_rate(text).map(|r| Rate(r as f64))
    }
}

impl FromStr for IntendedLoad {
    type Err = String;

    fn from_str(text: &str) -> Result<IntendedLoad, String> {
        let wrong = || format!("'{text}' is no load; write 50 %, 25 Mbit/s, 100k or 1.5M frames/s");
        let positive = |n: &str| n.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
        if let Some(percent) = text.strip_suffix('%') {
            let share = positive(percent).ok_or_else(wrong)? / 100.0;
            return Ok(IntendedLoad::Share(share));
        }
        for (unit, scale) in [("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0)] {
            if let Some(bits) = text.strip_suffix(unit) {
                return Ok(IntendedLoad::Bits(positive(bits).ok_or_else(wrong)? * scale));
            }
        }
        let frames = text.strip_suffix("frames/s").or(text.strip_suffix("fps")).unwrap_or(text);
        parse_rate(frames.trim()).map(|r| IntendedLoad::Frames(r as f64)).map_err(|_| wrong())
    }
}

/// From text, and where `integers` allows it from an integer, through [`FromStr`].
struct Text<T> {
    integers: bool,
    example: &'static str,
    made: std::marker::PhantomData<T>,
}

impl<T: FromStr<Err = String>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a text as \"{}\"", self.example)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.trim().parse().map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<T, E> {
        if !self.integers {
            let what = serde::de::Unexpected::Signed(value);
            return Err(E::invalid_type(what, &self));
        }
        value.to_string().parse().map_err(E::custom)
    }
}

/// Networks: one as text, or a list of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes(pub Vec<Prefix>);

impl<'de> Deserialize<'de> for Prefixes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrMore)
    }
}

impl Serialize for Prefixes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Prefix::to_string))
    }
}

impl JsonSchema for Prefixes {
    fn schema_name() -> Cow<'static, str> {
        "Prefixes".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<String>::json_schema(generator)
    }
}

struct OneOrMore;

impl<'de> Visitor<'de> for OneOrMore {
    type Value = Prefixes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a prefix as \"10.0.0.0/8\", or a list of them")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Prefixes, E> {
        let prefix = text.trim().parse();
        Ok(Prefixes(vec![prefix.map_err(|e| E::custom(format!("'{text}': {e}")))?]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Prefixes, A::Error> {
        let mut all = Prefixes::default();
        while let Some(Prefixes(more)) = seq.next_element()? {
            all.0.extend(more);
        }
        Ok(all)
    }
}

/// In a plan each is a text; some may also be an integer.
macro_rules! from_text {
    ($($type:ty, $integers:expr, $example:expr;)*) => { $(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let (integers, example) = ($integers, $example);
                deserializer.deserialize_any(Text { integers, example, made: std::marker::PhantomData })
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                String::json_schema(generator)
            }
        }
    )* };
}

from_text! {
    Ns, false, "5s";
    Rate, true, "1.5M";
    IntendedLoad, true, "50 %";
    FrameSizes, true, "64";
    Threshold, false, "throughput >= 1.0e6";
}

/// Least frame of Ethernet, octets with the FCS.
const SMALLEST: u16 = 64;
/// Largest that the engines make, octets with the FCS.
const LARGEST: u16 = 16_000;
/// A year, ns: what is longer is a slip of the unit, and sums of it leave the range of 64 bits.
const LONGEST_NS: i64 = 366 * 86_400 * 1_000_000_000;
/// Frames of a sequence.
const LONGEST: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_sizes_and_mixes() {
        assert_eq!("1518".parse::<FrameSizes>().unwrap().sizes, [1518]);
        let mix: FrameSizes = "imix".parse().unwrap();
        assert_eq!((mix.sizes.len(), mix.largest(), mix.smallest()), (12, 1518, 64));
        // 7 x 64 + 4 x 594 + 1518 = 4342 octets in 12 frames.
        assert!((mix.mean() - 4342.0 / 12.0).abs() < 1e-9);
        for same in ["genome:aabg", "genome:2abg", "genome:2(64)1(128)g"] {
            assert_eq!(same.parse::<FrameSizes>().unwrap().sizes, [64, 64, 128, 1518], "{same}");
        }
        for bad in [
            "",
            "63",
            "17000",
            "imix:",
            "imix:x",
            "imix:3",
            "imix:(64",
            "imix:0a",
            "imix:5000a",
            "genome:99999999999999999999a",
            "jumbo",
        ] {
            assert!(bad.parse::<FrameSizes>().is_err(), "{bad}");
        }
    }

    #[test]
    fn loads_in_their_units() {
        assert_eq!("50 %".parse(), Ok(IntendedLoad::Share(0.5)));
        assert_eq!("25 Mbit/s".parse(), Ok(IntendedLoad::Bits(25e6)));
        assert_eq!("1.5M frames/s".parse(), Ok(IntendedLoad::Frames(1.5e6)));
        assert_eq!("100k".parse(), Ok(IntendedLoad::Frames(1e5)));
        // 100 Mbit/s of 64 octets is 195,312.5 frames a second.
        assert_eq!(IntendedLoad::Bits(100e6).fps(64.0, 0.0), 195_312.5);
        assert_eq!(IntendedLoad::Share(0.9).fps(64.0, 1000.0), 900.0);
        for bad in ["", "0 %", "-5 Mbit/s", "fast", "nan %"] {
            assert!(bad.parse::<IntendedLoad>().is_err(), "{bad}");
        }
    }

    #[test]
    fn thresholds() {
        let check: Threshold = "latency_p99@50 <= 20us".parse().unwrap();
        assert_eq!(
            (check.name.as_str(), check.limit),
            ("latency_p99@50", ThresholdLimit::Time(20_000.0))
        );
        for (text, unit, holds, breaks) in [
            ("latency_p99@50 <= 20us", "ns", 20_000.0, 20_000.5),
            ("implied_buffer_time <= 10ms", "s", 0.010, 0.011),
            ("throughput>=1.2M", "frames/s", 1.2e6, 1.1e6),
            ("address_caching_capacity > 4k", "addresses", 4_001.0, 4_000.0),
            ("loss_ratio < 0.1 %", "ratio", 0.0009, 0.001),
            ("loss_ratio <= 0.001", "ratio", 0.001, 0.0011),
            ("latency_p50 <= 900", "ns", 900.0, 901.0),
        ] {
            let check: Threshold = text.parse().unwrap();
            assert_eq!(check.holds(holds, unit), Some(true), "{text}");
            assert_eq!(check.holds(breaks, unit), Some(false), "{text}");
        }
        // What does not compare is never let by.
        for (text, unit) in [
            ("throughput >= 20us", "frames/s"),
            ("throughput >= 50 %", "frames/s"),
            ("latency_p99 <= 1k", "ns"),
            ("loss_ratio <= 1ms", "ratio"),
            ("loss_ratio <= 1k", "ratio"),
        ] {
            assert_eq!(text.parse::<Threshold>().unwrap().holds(0.0, unit), None, "{text}");
        }
        for bad in
            ["", "throughput", ">= 5", "a b > 5", "x > soon", "x > nan", "x > nan %", "x > %"]
        {
            assert!(bad.parse::<Threshold>().is_err(), "{bad}");
        }
    }
}
