//! Units as people type and read them: durations, rates, DSCP names, counts, shares.
//!
//! Parsing is exact (no floating point), so "0.1ms" is 100,000 ns on every machine.

use std::fmt::{Display, Write as _};
use std::ops::RangeInclusive;

pub use sonde_wire::SECOND;

/// Parses a duration into nanoseconds: "250us", "10ms", "1.5s", "2m", "1h"; a bare
/// number is seconds, as `ping -i` takes it.
pub fn parse_duration(text: &str) -> Result<i64, String> {
    let (number, unit) = split_unit(text);
    let scale = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "" | "s" => SECOND,
        "m" | "min" => 60 * SECOND,
        "h" => 3_600 * SECOND,
        "d" => 86_400 * SECOND,
        _ => return Err(format!("'{text}' has no known unit; write 250us, 10ms, 1.5s, 2m or 1h")),
    };
    scaled(number, scale).map_err(|why| match why {
        NotScaled::TooMuch => format!("'{text}' is more than {MOST_YEARS} years"),
        NotScaled::Malformed => format!(
            "'{text}' is not a duration of whole nanoseconds; write 250us, 10ms, 1.5s, 2m or 1h"
        ),
    })
}

/// A duration in nanoseconds as [`parse_duration`] reads it, exactly, in the greatest unit
/// that does.
pub fn format_duration(ns: i64) -> String {
    let (scale, unit) = [(SECOND, "s"), (1_000_000, "ms"), (1_000, "us")]
        .into_iter()
        .find(|(scale, _)| ns % scale == 0)
        .unwrap_or((1, "ns"));
    format!("{}{unit}", ns / scale)
}

/// A duration that must be longer than nothing.
pub fn parse_positive_duration(text: &str) -> Result<i64, String> {
    match parse_duration(text)? {
        0 => Err(format!("'{text}' must be longer than zero")),
        ns => Ok(ns),
    }
}

/// Parses a rate in packets a second: "200k", "1.5M", "200000", "200kpps".
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text);
    let scale = match unit.strip_suffix("pps").unwrap_or(unit) {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        _ => {
            return Err(format!(
                "'{text}' is not a rate; write 500, 200k or 1.5M packets a second"
            ));
        }
    };
    match scaled(number, scale) {
        Ok(rate) if rate > 0 => Ok(rate as u64),
        Err(NotScaled::TooMuch) => Err(format!("'{text}' is more than {}", i64::MAX)),
        _ => Err(format!("'{text}' is not a rate; write 500, 200k or 1.5M packets a second")),
    }
}

/// Parses an integer: "5000", "256k", "1.5M".
pub fn parse_amount(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text);
    let scale = match unit {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        _ => return Err(format!("'{text}' is not a number; write 5000, 256k or 1.5M")),
    };
    match scaled(number, scale).map(u64::try_from) {
        Ok(Ok(amount)) => Ok(amount),
        Err(NotScaled::TooMuch) => Err(format!("'{text}' is more than {}", i64::MAX)),
        _ => Err(format!("'{text}' is not a whole number; write 5000, 256k or 1.5M")),
    }
}

/// Parses an integer of at least 1, as [`parse_amount`] does.
pub fn parse_positive_amount(text: &str) -> Result<u64, String> {
    match parse_amount(text)? {
        0 => Err(format!("'{text}' is less than 1")),
        amount => Ok(amount),
    }
}

/// Parses an integer of a range, without a unit. The message says `what` it is to be, and the range.
pub fn parse_within<T>(text: &str, range: RangeInclusive<T>, what: &str) -> Result<T, String>
where
    T: Copy + Display + TryFrom<i128> + Into<i128>,
{
    let (low, high) = (*range.start(), *range.end());
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_whole = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let value = text.parse::<i128>().ok().filter(|value| is_whole && *value >= low.into());
    let fits = value.filter(|value| *value <= high.into()).map(T::try_from);
    match fits {
        Some(Ok(value)) => Ok(value),
        _ if high.into() == u64::MAX.into() => {
            Err(format!("'{text}' is not {what}, at least {low}"))
        }
        _ => Err(format!("'{text}' is not {what}, {low}..{high}")),
    }
}

/// Parses a size in octets: "4096", "500k", "64M", "1.5G", "2TB" by thousands, as disks are sold;
/// "64Ki", "2GiB" by 1024.
pub fn parse_octets(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size; write 500M or 2G octets, or 64Mi by 1024");
    let (number, unit) = split_unit(text);
    let unit = unit.strip_suffix('B').unwrap_or(unit);
    let (prefix, base) = match unit.strip_suffix('i') {
        Some(prefix) => (prefix, 1024),
        None => (unit, 1000_i64),
    };
    let power = match prefix {
        "" if base == 1000 => 0,
        "k" | "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return Err(wrong()),
    };
    match scaled(number, base.pow(power)) {
        Ok(octets) => Ok(octets as u64),
        Err(NotScaled::TooMuch) => Err(format!("'{text}' is more than {} octets", i64::MAX)),
        Err(NotScaled::Malformed) => Err(wrong()),
    }
}

/// A size in octets as [`parse_octets`] reads it, exactly, in the greatest unit by thousands that
/// does: "500MB".
pub fn format_octets(octets: u64) -> String {
    let units =
        [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    let fits = |(scale, _): &(u64, _)| octets > 0 && octets.is_multiple_of(*scale);
    let (scale, unit) = units.into_iter().find(fits).unwrap_or((1, "B"));
    format!("{}{unit}", octets / scale)
}

/// Parses a share of at most `most`: "5%", "5 %" or "0.05".
pub fn parse_share(text: &str, most: f64) -> Result<f64, String> {
    let (number, divisor) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), 100.0),
        None => (text, 1.0),
    };
    let share = number.parse::<f64>().map(|number| number / divisor);
    share
        .ok()
        .filter(|share| (0.0..=most).contains(share))
        .ok_or_else(|| format!("'{text}' is not a share; write 0 to {most}, as 5% or 0.05"))
}

/// Parses a DSCP: 0..=63, or its name (RFC 2474, RFC 2597, RFC 3246, RFC 5865, RFC 8622).
pub fn parse_dscp(text: &str) -> Result<u8, String> {
    if let Ok(value) = text.parse::<u8>()
        && value <= 63
    {
        return Ok(value);
    }
    let upper = text.to_ascii_uppercase();
    (0..64)
        .find(|&d| named_dscp(d).is_some_and(|n| n == upper))
        .or(match upper.as_str() {
            "DF" | "CS0" | "DEFAULT" => Some(0),
            "VOICE-ADMIT" => Some(44),
            _ => None,
        })
        .ok_or_else(|| {
            format!("'{text}' is not a DSCP; write 0..63, BE, EF, VA, LE, CS1..CS7 or AF11..AF43")
        })
}

/// The name of a DSCP, or its value where it has none.
pub fn format_dscp(dscp: u8) -> String {
    named_dscp(dscp).unwrap_or_else(|| dscp.to_string())
}

/// Parses a MAC address: "02:00:00:00:00:01".
pub fn parse_mac(text: &str) -> Result<[u8; 6], String> {
    let octet = |part: &str| {
        let hex = matches!(part.len(), 1 | 2) && part.bytes().all(|b| b.is_ascii_hexdigit());
        u8::from_str_radix(part, 16).ok().filter(|_| hex)
    };
    let octets: Option<Vec<u8>> = text.split(':').map(octet).collect();
    octets
        .and_then(|octets| octets.try_into().ok())
        .ok_or_else(|| format!("'{text}' is no MAC address; write 02:00:00:00:00:01"))
}

/// A MAC address as [`parse_mac`] reads it.
pub fn format_mac(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

/// A time in the fitting unit with three significant digits, as many as a [`crate::Hist`] has:
/// "31.4 us".
pub fn format_ns(ns: f64) -> String {
    let sign = if ns < 0.0 { "-" } else { "" };
    let magnitude = ns.abs();
    match time_unit(magnitude) {
        (_, "ns") => match magnitude.round() {
            0.0 => "0 ns".to_string(),
            whole => format!("{sign}{whole} ns"),
        },
        (scale, unit) => format!("{sign}{} {unit}", three_digits(magnitude / scale)),
    }
}

/// Nanoseconds in the unit in which a time of `ns` is read best, and its name. A unit begins where
/// three digits of the one before it would round over.
pub fn time_unit(ns: f64) -> (f64, &'static str) {
    let units = [(1.0, "ns"), (1e3, "us"), (1e6, "ms")];
    units.into_iter().find(|(scale, _)| ns / scale < 999.5).unwrap_or((1e9, "s"))
}

/// Four significant digits, as line rates differ in the fourth, without zeros at the end of a
/// fraction: "1.488". Integers stay integers.
pub fn format_number(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    if value.abs() < 1e-4 || value.abs() >= 1e15 {
        let text = format!("{value:.3e}");
        return match text.split_once('e') {
            Some((m, e)) => format!("{}e{e}", without_zeros(m)),
            None => text,
        };
    }
    let before = value.abs().log10().floor() as i32;
    let text = format!("{value:.*}", (3 - before).max(0) as usize);
    if text.contains('.') { without_zeros(&text).to_string() } else { text }
}

/// [`format_ns`], or "-" where there is no value.
pub fn format_ns_or_dash(ns: Option<i64>) -> String {
    ns.map_or_else(|| "-".to_string(), |ns| format_ns(ns as f64))
}

/// An integer with thousands apart: "200,000".
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share as per cent with three significant digits: "0%", "0.0021%", "12.5%". What is
/// not nothing never reads as 0%, what is not all never as 100%.
pub fn format_share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_string();
    }
    if part == 0 || part == whole {
        return if part == 0 { "0%" } else { "100%" }.to_string();
    }
    let percent = part as f64 / whole as f64 * 100.0;
    if percent >= 99.95 {
        return ">99.9%".to_string();
    }
    if percent >= 9.995 {
        return format!("{percent:.1}%");
    }
    let decimals = (2 - percent.log10().floor() as i32).clamp(2, 6) as usize;
    let text = format!("{percent:.decimals$}");
    let text = without_zeros(&text);
    if text == "0" { "<0.000001%".to_string() } else { format!("{text}%") }
}

/// A share, 1.0 being all, as per cent with four significant digits as [`format_number`] has them:
/// "0%", "0.0021%", "12.35%". What is not all never reads as 100%.
pub fn format_percent(share: f64) -> String {
    match format_number(share * 100.0) {
        all if all == "100" && share < 1.0 => ">99.99%".to_string(),
        percent => format!("{percent}%"),
    }
}

/// A share, or a range of shares, as per cent with four decimals, rounded down: an availability of
/// five nines is "99.999%", and what is not whole never reads as 100%.
pub fn format_availability((low, high): (f64, f64)) -> String {
    let percent = |share: f64| {
        let text = format!("{:.4}", (share * 1e6).floor() / 1e4);
        without_zeros(&text).to_string()
    };
    match (percent(low), percent(high)) {
        (low, high) if low == high => format!("{low}%"),
        (low, high) => format!("{low}% to {high}%"),
    }
}

/// Octets in hexadecimal digits, two for each.
pub fn format_hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Elapsed time as people read clocks: "12 s", "3 m 05 s", "2 h 00 m".
pub fn format_elapsed(ns: i64) -> String {
    let seconds = ns.max(0) / SECOND;
    let mut text = String::new();
    let _ = match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => write!(text, "{s} s"),
        (0, m, s) => write!(text, "{m} m {s:02} s"),
        (h, m, _) => write!(text, "{h} h {m:02} m"),
    };
    text
}

/// Octets of preamble, start delimiter and gap. So much longer than its octets with the FCS a frame
/// takes the wire (IEEE 802.3; RFC 2544, appendix B).
pub const WIRE_OCTETS: usize = 20;
/// Of 365.25 days, whole: what 64 bits of nanoseconds hold.
const MOST_YEARS: i64 = i64::MAX / (31_557_600 * SECOND);

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// Why a number with a unit is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotScaled {
    /// No digits, or more of a fraction than the unit has.
    Malformed,
    /// More than 64 bits hold.
    TooMuch,
}

/// `number` (digits with at most one point) times `scale`, if that is whole and fits.
fn scaled(number: &str, scale: i64) -> Result<i64, NotScaled> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(NotScaled::Malformed);
    }
    // What is no text of digits was left out before.
    let part = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<i64>().ok() };
    let fraction = fraction.trim_end_matches('0');
    let product = part(fraction).and_then(|part| part.checked_mul(scale));
    let divisor = 10_i64.checked_pow(fraction.len() as u32);
    // So long a fraction is finer than any unit.
    let (Some(product), Some(divisor)) = (product, divisor) else {
        return Err(NotScaled::Malformed);
    };
    if product % divisor != 0 {
        return Err(NotScaled::Malformed);
    }
    let whole = part(whole).and_then(|part| part.checked_mul(scale)).ok_or(NotScaled::TooMuch)?;
    whole.checked_add(product / divisor).ok_or(NotScaled::TooMuch)
}

/// A number with a fraction, without the zeros at its end.
fn without_zeros(text: &str) -> &str {
    text.trim_end_matches('0').trim_end_matches('.')
}

fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

fn named_dscp(dscp: u8) -> Option<String> {
    match dscp {
        0 => Some("BE".to_string()),
        1 => Some("LE".to_string()),
        44 => Some("VA".to_string()),
        46 => Some("EF".to_string()),
        d if d < 64 && d % 8 == 0 => Some(format!("CS{}", d / 8)),
        d if (10..=38).contains(&d) && d % 2 == 0 => Some(format!("AF{}{}", d / 8, d % 8 / 2)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_by_thousands_unless_they_say_otherwise() {
        for (text, octets) in [
            ("0", 0),
            ("4096", 4096),
            ("64k", 64_000),
            ("64K", 64_000),
            ("100MB", 100_000_000),
            ("1.5G", 1_500_000_000),
            ("2 TB", 2_000_000_000_000),
            ("7B", 7),
            ("64Ki", 65_536),
            ("1Gi", 1 << 30),
            ("1.5 GiB", 3 << 29),
        ] {
            assert_eq!(parse_octets(text), Ok(octets), "{text}");
        }
        for (octets, text) in
            [(0, "0B"), (1_500, "1500B"), (64_000, "64kB"), (2_000_000_000, "2GB")]
        {
            assert_eq!(format_octets(octets), text);
        }
        for text in ["", "G", "i", "5i", "5X", "-1", "1.0000005M", "0x10", "5kb", "5 B B"] {
            let wrong = parse_octets(text).unwrap_err();
            assert!(wrong.contains("write 500M or 2G"), "{text}: {wrong}");
        }
        let most = parse_octets("99999999999T").unwrap_err();
        assert_eq!(most, "'99999999999T' is more than 9223372036854775807 octets");
    }

    #[test]
    fn an_integer_out_of_its_range_is_told_the_range() {
        let of = |text: &str| parse_within(text, 64..=512_u16, "a whole number");
        assert_eq!((of("64"), of("512"), of("+70")), (Ok(64), Ok(512), Ok(70)));
        let nines = "9".repeat(60);
        for text in
            ["63", "513", "65536", &nines, "", "-", "-70", "1.5", "0x10", "5k", " 70", "++70"]
        {
            assert_eq!(of(text), Err(format!("'{text}' is not a whole number, 64..512")));
        }
        let any = |text: &str| parse_within(text, 1..=u64::MAX, "a seed");
        assert_eq!(any("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(any("0"), Err("'0' is not a seed, at least 1".into()));
        let most = "'18446744073709551616' is not a seed, at least 1";
        assert_eq!(any("18446744073709551616"), Err(most.into()));
    }

    #[test]
    fn durations_are_exact_and_bad_ones_refused() {
        for (text, ns) in [
            ("250us", 250_000),
            ("10ms", 10_000_000),
            ("1", SECOND),
            ("1.5", 1_500_000_000),
            (".5s", 500_000_000),
            ("0.1 ms", 100_000),
            ("2m", 120 * SECOND),
            ("1h", 3600 * SECOND),
            ("7ns", 7),
        ] {
            assert_eq!(parse_duration(text), Ok(ns), "{text}");
        }
        for text in ["", ".", "ms", "-1s", "1.5ns", "1..5s", "10 parsecs", "99999999999h", "1e3"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert!(parse_positive_duration("0s").is_err());
    }

    #[test]
    fn rates() {
        assert_eq!(parse_rate("200k"), Ok(200_000));
        assert_eq!(parse_rate("1.5Mpps"), Ok(1_500_000));
        assert_eq!(parse_rate("500"), Ok(500));
        assert_eq!((parse_amount("256k"), parse_amount("0")), (Ok(256_000), Ok(0)));
        assert_eq!(parse_amount("1.5M"), Ok(1_500_000));
        assert!(["", "k", "1.5", "-1", "1kpps"].iter().all(|t| parse_amount(t).is_err()));
        assert!(parse_rate("0").is_err() && parse_rate("200x").is_err());
    }

    #[test]
    fn shares_are_read_in_both_forms() {
        for (text, share) in [("5%", 0.05), ("2.5 %", 0.025), ("0.1", 0.1), ("0", 0.0), ("1", 1.0)]
        {
            assert_eq!(parse_share(text, 1.0), Ok(share), "{text}");
        }
        for wrong in ["", "x", "-1%", "NaN", "1.1"] {
            assert!(
                parse_share(wrong, 1.0).unwrap_err().contains("write 0 to 1, as 5%"),
                "{wrong}"
            );
        }
        assert_eq!(parse_share("200%", 10.0), Ok(2.0));
    }

    #[test]
    fn dscp_names_and_numbers_agree() {
        for (text, value) in
            [("EF", 46), ("ef", 46), ("AF41", 34), ("AF11", 10), ("CS5", 40), ("BE", 0), ("63", 63)]
        {
            assert_eq!(parse_dscp(text), Ok(value));
        }
        for dscp in 0..64 {
            assert_eq!(parse_dscp(&format_dscp(dscp)), Ok(dscp));
        }
        assert!(
            parse_dscp("64").is_err() && parse_dscp("AF44").is_err() && parse_dscp("").is_err()
        );
    }

    #[test]
    fn mac_addresses_have_six_octets() {
        let mac = [2, 0, 0, 0, 0x0a, 0xff];
        assert_eq!(format_mac(mac), "02:00:00:00:0a:ff");
        assert_eq!(parse_mac("02:00:00:00:0a:FF"), Ok(mac));
        assert_eq!(parse_mac("2:0:0:0:a:ff"), Ok(mac));
        for text in ["", "2:0:0:0:0", "2:0:0:0:0:0:0", "02-00-00-00-00-00", "+2:0:0:0:0:0"] {
            assert!(parse_mac(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_change_unit_where_they_round_over() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (999.4, "999 ns"),
            (999.6, "1.00 us"),
            (31_400.0, "31.4 us"),
            (99_960.0, "100 us"),
            (999_600.0, "1.00 ms"),
            (-2_500_000.0, "-2.50 ms"),
            (1.5e9, "1.50 s"),
            (3.7e12, "3700 s"),
        ] {
            assert_eq!(format_ns(ns), text);
        }
    }

    #[test]
    fn numbers_keep_four_digits() {
        for (value, text) in [
            (1.234_567, "1.235"),
            (1.5, "1.5"),
            (-20.0, "-20"),
            (0.000_15, "0.00015"),
            (1e-7, "1e-7"),
            (12_345.678, "12346"),
        ] {
            assert_eq!(format_number(value), text);
        }
    }

    #[test]
    fn counts_shares_and_elapsed() {
        assert_eq!(format_count(0), "0");
        assert_eq!(format_count(1_234_567), "1,234,567");
        assert_eq!(format_share(0, 10), "0%");
        assert_eq!(format_share(10, 10), "100%");
        assert_eq!(format_share(1, 3), "33.3%");
        assert_eq!(format_share(1, 100_000), "0.001%");
        assert_eq!(format_share(999_999, 1_000_000), ">99.9%");
        assert_eq!(format_share(1, u64::MAX), "<0.000001%");
        assert_eq!(format_share(0, 0), "-");
        assert_eq!(format_elapsed(185 * SECOND), "3 m 05 s");
        for (share, text) in [
            (0.0, "0%"),
            (0.015, "1.5%"),
            (0.000_001_5, "0.00015%"),
            (1e-9, "1e-7%"),
            (0.118_754, "11.88%"),
            (0.999_94, "99.99%"),
            (0.999_999, ">99.99%"),
            (1.0, "100%"),
            (1.5, "150%"),
            (-0.02, "-2%"),
        ] {
            assert_eq!(format_percent(share), text, "{share}");
        }
    }

    #[test]
    fn an_availability_is_rounded_down() {
        assert_eq!(format_availability((1.0, 1.0)), "100%");
        assert_eq!(format_availability((0.999_99, 0.999_99)), "99.999%");
        assert_eq!(format_availability((0.999_999_9, 1.0)), "99.9999% to 100%");
        assert_eq!(format_availability((0.0, 0.5)), "0% to 50%");
    }

    proptest! {
        #[test]
        fn whole_units_parse_to_themselves(n in 0u32..1_000_000) {
            prop_assert_eq!(parse_duration(&format!("{n}us")), Ok(i64::from(n) * 1_000));
            prop_assert_eq!(parse_duration(&format!("{n}.250s")), Ok(i64::from(n) * SECOND + 250_000_000));
        }

        #[test]
        fn a_printed_time_reads_back_within_its_digits(ns in 1i64..1_000_000_000_000) {
            let printed = parse_duration(&format_ns(ns as f64)).unwrap();
            prop_assert!((printed - ns).abs() * 200 <= ns, "{} -> {}", ns, printed);
        }

        #[test]
        fn a_printed_size_reads_back(octets in 0..=i64::MAX as u64, power in 0u32..13) {
            let octets = octets / 10u64.pow(power) * 10u64.pow(power);
            prop_assert_eq!(parse_octets(&format_octets(octets)), Ok(octets));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,12}") {
            let _ = (parse_duration(&text), parse_rate(&text), parse_dscp(&text));
        }
    }
}
