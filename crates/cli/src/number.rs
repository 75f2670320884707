//! Options that take an integer.

use std::fmt::Display;
use std::ops::RangeInclusive;

/// Takes an integer of a range; the message says which bound it is beyond.
pub fn whole<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: Copy + Display + TryFrom<i128> + Into<i128> + Send + Sync + 'static,
{
    move |text| {
        let (least, most) = (*range.start(), *range.end());
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!("'{text}' is not a whole number"));
        }
        // More digits than any type holds are beyond its end.
        let beyond = if text.starts_with('-') { i128::MIN } else { i128::MAX };
        let value = text.parse::<i128>().unwrap_or(beyond);
        if value < least.into() {
            return Err(format!("'{text}' is less than {least}"));
        }
        match T::try_from(value) {
            Ok(value) if value.into() <= most.into() => Ok(value),
            _ => Err(format!("'{text}' is more than {most}")),
        }
    }
}

/// Takes the index of a processor.
pub fn processor() -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    let index = whole(0..=u32::MAX);
    move |text| index(text).map(|cpu| cpu as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_that_is_passed_is_named() {
        let of = whole(64..=512_u16);
        assert_eq!((of("64"), of("512"), of("+70")), (Ok(64), Ok(512), Ok(70)));
        assert_eq!(of("63"), Err("'63' is less than 64".into()));
        let nines = "9".repeat(60);
        for text in ["513", "65536", &nines] {
            assert_eq!(of(text), Err(format!("'{text}' is more than 512")));
        }
        assert_eq!(of(&format!("-{nines}")), Err(format!("'-{nines}' is less than 64")));
        for text in ["", "-", "1.5", "0x10", "5k", " 5"] {
            assert_eq!(of(text), Err(format!("'{text}' is not a whole number")));
        }
        assert_eq!(whole(0..=u64::MAX)("18446744073709551615"), Ok(u64::MAX));
        let most = "'18446744073709551616' is more than 18446744073709551615";
        assert_eq!(whole(0..=u64::MAX)("18446744073709551616"), Err(most.into()));
    }
}
