//! The four types of time (RFC 7011, sections 6.1.7 to 6.1.10), against ns since 1970 UTC.

use super::element::DataType;
use super::record::unsigned;

/// A dateTimeMilliseconds; a time before 1970 has none and is 0.
#[inline]
pub fn millis(ns: i64) -> u64 {
    ns.max(0) as u64 / 1_000_000
}

/// A dateTimeMicroseconds: NTP's format, the last 11 bits 0 as section 6.1.9 asks. What
/// that cuts off is rounded up, so that who reads it rounding down gets the microsecond.
#[inline]
pub fn micros(ns: i64) -> u64 {
    let (seconds, rest) = ntp_seconds(ns);
    let fraction = ((rest / 1000) << 32).div_ceil(1_000_000);
    seconds | ((fraction + 0x7ff) & !0x7ff)
}

/// A dateTimeNanoseconds: NTP's format, rounded up likewise.
#[inline]
pub fn nanos(ns: i64) -> u64 {
    let (seconds, rest) = ntp_seconds(ns);
    seconds | (rest << 32).div_ceil(1_000_000_000)
}

/// What a value of one of the four types says, ns since 1970; `None` for other types and
/// wrong lengths. An NTP time is taken as one between 1968 and 2104.
pub fn to_ns(kind: DataType, value: &[u8]) -> Option<i64> {
    match (kind, value.len()) {
        (DataType::DateTimeSeconds, 4) => Some(unsigned(value)? as i64 * 1_000_000_000),
        (DataType::DateTimeMilliseconds, 8) => {
            i64::try_from(unsigned(value)?).ok()?.checked_mul(1_000_000)
        }
        (DataType::DateTimeMicroseconds, 8) => {
            let ntp = unsigned(value)? & !0x7ff;
            Some(from_ntp(ntp, 1_000_000) * 1000)
        }
        (DataType::DateTimeNanoseconds, 8) => Some(from_ntp(unsigned(value)?, 1_000_000_000)),
        _ => None,
    }
}

/// Seconds since 1900 in the upper half, and the ns of the second.
#[inline]
fn ntp_seconds(ns: i64) -> (u64, u64) {
    let seconds = ns.div_euclid(1_000_000_000) + NTP_TO_UNIX;
    ((seconds as u64) << 32, ns.rem_euclid(1_000_000_000) as u64)
}

/// In units of which `per_second` make a second, rounded down.
fn from_ntp(ntp: u64, per_second: u64) -> i64 {
    let era = if ntp >> 63 == 0 { 1 << 32 } else { 0 };
    let seconds = (ntp >> 32) as i64 + era - NTP_TO_UNIX;
    let fraction = ((ntp & 0xffff_ffff) * per_second) >> 32;
    seconds * per_second as i64 + fraction as i64
}

/// 1900 to 1970, s.
const NTP_TO_UNIX: i64 = 2_208_988_800;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_type_keeps_what_its_name_says(ns in 0i64..4_000_000_000_000_000_000) {
            let read = |kind, value: u64| to_ns(kind, &value.to_be_bytes()).unwrap();
            prop_assert_eq!(read(DataType::DateTimeNanoseconds, nanos(ns)), ns);
            prop_assert_eq!(read(DataType::DateTimeMicroseconds, micros(ns)), ns / 1000 * 1000);
            prop_assert_eq!(micros(ns) & 0x7ff, 0);
            prop_assert_eq!(
                read(DataType::DateTimeMilliseconds, millis(ns)),
                ns / 1_000_000 * 1_000_000
            );
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..9)) {
            for element in super::super::element::ALL {
                to_ns(element.kind, &bytes);
            }
        }
    }

    #[test]
    fn every_microsecond_of_a_second_is_kept() {
        for us in 0..1_000_000 {
            let ns = 1_700_000_000_000_000_000 + us * 1000;
            let value = micros(ns).to_be_bytes();
            assert_eq!(to_ns(DataType::DateTimeMicroseconds, &value), Some(ns));
        }
    }

    #[test]
    fn the_second_era_begins_in_2036() {
        let ns = 2_085_978_496 * 1_000_000_000;
        assert_eq!(nanos(ns), 0);
        assert_eq!(to_ns(DataType::DateTimeNanoseconds, &[0; 8]), Some(ns));
        assert_eq!(to_ns(DataType::Unsigned64, &[0; 8]), None);
        assert_eq!(to_ns(DataType::DateTimeSeconds, &[0, 0, 0, 2]), Some(2_000_000_000));
    }
}
