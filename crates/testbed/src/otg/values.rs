//! The values of a header field, frame by frame.

use sonde_server::otg::pattern::{FieldPattern, FieldValue, PatternChoice};

/// What a field holds in frame after frame, from the first again after the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValues {
    /// Always this.
    One(u128),
    /// These in turn.
    List(Box<[u128]>),
    /// At equal distances, modulo the field's size.
    Steps {
        start: u128,
        /// From one to the next; two's complement where downwards.
        step: u128,
        /// How many.
        count: u64,
        /// The field's highest value: all of its bits set.
        mask: u128,
    },
}

impl FieldValues {
    /// Of a field of `width` bits, which is `default` if nothing is said, and `auto` where
    /// the client leaves it to us (`None`: we do not know, either).
    pub fn of<T: FieldValue>(
        pattern: Option<&FieldPattern<T>>,
        width: u32,
        default: u128,
        auto: Option<u128>,
    ) -> Result<FieldValues, String> {
        let mask = u128::MAX >> (128 - width);
        let fits = |value: u128| match value <= mask {
            true => Ok(value),
            false => Err(format!("{value} does not fit into {width} bits")),
        };
        let bits =
            |value: &Option<T>, else_: u128| value.as_ref().map_or(Ok(else_), |v| fits(v.bits()));
        let Some(pattern) = pattern else { return Ok(FieldValues::One(auto.unwrap_or(default))) };
        let counted = |count: u64, most: u64| match count {
            0 => Err("count: at least 1".to_owned()),
            n if n > most => Err(format!("count: at most {most}")),
            n => Ok(n),
        };
        Ok(match pattern.choice {
            PatternChoice::Value => FieldValues::One(bits(&pattern.value, default)?),
            PatternChoice::Auto => FieldValues::One(
                auto.ok_or("auto: this is resolved for devices, and there are none")?,
            ),
            PatternChoice::Values => {
                let list = pattern.values.as_deref().unwrap_or_default();
                let list: Result<Box<[u128]>, String> =
                    list.iter().map(|v| fits(v.bits())).collect();
                match list? {
                    list if list.is_empty() => FieldValues::One(default),
                    list => FieldValues::List(list),
                }
            }
            PatternChoice::Increment | PatternChoice::Decrement => {
                let down = pattern.choice == PatternChoice::Decrement;
                let (name, counter) = match down {
                    true => ("decrement", &pattern.decrement),
                    false => ("increment", &pattern.increment),
                };
                let counter = counter.as_ref().ok_or_else(|| format!("{name}: is missing"))?;
                let step = bits(&counter.step, 1)?;
                FieldValues::Steps {
                    start: bits(&counter.start, default)?,
                    step: if down { step.wrapping_neg() } else { step },
                    count: counted(counter.count, u64::MAX)?,
                    mask,
                }
            }
            PatternChoice::Random => {
                let random = pattern.random.as_ref().ok_or("random: is missing")?;
                let (low, high) = (bits(&random.min, 0)?, bits(&random.max, mask)?);
                if low > high {
                    return Err("random: min is greater than max".into());
                }
                let mut rng = fastrand::Rng::with_seed(random.seed);
                let count = counted(random.count, RANDOM_MAX)?;
                FieldValues::List((0..count).map(|_| rng.u128(low..=high)).collect())
            }
        })
    }

    /// That of frame `n`.
    #[inline]
    pub fn nth(&self, n: u64) -> u128 {
        match self {
            FieldValues::One(value) => *value,
            FieldValues::List(list) => list[(n % list.len() as u64) as usize],
            FieldValues::Steps { start, step, count, mask } => {
                start.wrapping_add(step.wrapping_mul(u128::from(n % count))) & mask
            }
        }
    }

    /// The first of 16 bits that is none of `known`.
    pub fn beyond(&self, known: &[u16]) -> Option<u16> {
        let distinct = match self {
            FieldValues::One(_) => 1,
            FieldValues::List(list) => list.len() as u64,
            // Of 16 bits: then they come again.
            FieldValues::Steps { count, .. } => (*count).min(1 << 16),
        };
        (0..distinct).map(|n| self.nth(n) as u16).find(|value| !known.contains(value))
    }

    /// Whether all of them lie in one or another of `ranges` (first and last, inclusive).
    /// Steps must stay in one of them without coming back to its begin.
    pub fn within(&self, ranges: &[(u128, u128)]) -> bool {
        let inside = |value: u128| ranges.iter().find(|r| (r.0..=r.1).contains(&value));
        match self {
            FieldValues::One(value) => inside(*value).is_some(),
            FieldValues::List(list) => list.iter().all(|&value| inside(value).is_some()),
            &FieldValues::Steps { start, step, count, .. } => {
                let Some(&(first, last)) = inside(start) else { return false };
                let times = u128::from(count - 1);
                // The step of a decrement is the negative of a small integer.
                let (step, room) = match step.wrapping_neg() {
                    down if down < step => (down, start - first),
                    _ => (step, last - start),
                };
                step.checked_mul(times).is_some_and(|way| way <= room)
            }
        }
    }
}

/// Writes the low `width` bits of `value`, network order, from bit `at` of `frame` on.
#[inline]
pub fn set_bits(frame: &mut [u8], at: usize, width: u32, value: u128) {
    let (first, width) = (at / 8, width as usize);
    let last = (at + width).div_ceil(8);
    let shift = last * 8 - at - width;
    if at.is_multiple_of(8) && shift == 0 {
        frame[first..last].copy_from_slice(&value.to_be_bytes()[16 - width / 8..]);
        return;
    }
    let mask = (u128::MAX >> (128 - width)) << shift;
    let bytes = &mut frame[first..last];
    let old = bytes.iter().fold(0, |bits, &b| bits << 8 | u128::from(b));
    let new = old & !mask | value << shift & mask;
    bytes.copy_from_slice(&new.to_be_bytes()[16 - bytes.len()..]);
}

/// Random values that are kept, at most.
const RANDOM_MAX: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sonde_server::otg::pattern::Integer;

    fn of(text: &str, width: u32) -> Result<FieldValues, String> {
        let pattern: FieldPattern<Integer> = serde_json::from_str(text).unwrap();
        FieldValues::of(Some(&pattern), width, 9, None)
    }

    fn first(text: &str, width: u32, n: u64) -> Vec<u128> {
        let values = of(text, width).unwrap();
        (0..n).map(|i| values.nth(i)).collect()
    }

    #[test]
    fn patterns_give_their_values_in_turn() {
        assert_eq!(first(r#"{"choice":"values","values":[5,1,4]}"#, 8, 5), [5, 1, 4, 5, 1]);
        let up = r#"{"choice":"increment","increment":{"start":250,"step":3,"count":4}}"#;
        assert_eq!(first(up, 8, 5), [250, 253, 0, 3, 250]);
        let down = r#"{"choice":"decrement","decrement":{"start":1,"count":3}}"#;
        assert_eq!(first(down, 4, 4), [1, 0, 15, 1]);
        assert_eq!(first(r#"{"choice":"value"}"#, 8, 2), [9, 9]);
        let random = r#"{"choice":"random","random":{"min":3,"max":5,"count":50,"seed":1}}"#;
        let values = first(random, 8, 100);
        assert!(values.iter().all(|v| (3..=5).contains(v)) && values[..50] == values[50..]);
        assert!(values[..50].iter().any(|&v| v != values[0]));
    }

    #[test]
    fn what_a_field_cannot_hold_is_refused() {
        for text in [
            r#"{"choice":"value","value":256}"#,
            r#"{"choice":"values","values":[1,300]}"#,
            r#"{"choice":"increment"}"#,
            r#"{"choice":"increment","increment":{"count":0}}"#,
            r#"{"choice":"random","random":{"min":5,"max":4}}"#,
            r#"{"choice":"random","random":{"count":100000}}"#,
            r#"{"choice":"auto"}"#,
        ] {
            assert!(of(text, 8).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_hold_all_values_or_not() {
        let ranges = [(10, 20), (100, 110)];
        let steps = |start, step: i128, count| FieldValues::Steps {
            start,
            step: step as u128,
            count,
            mask: 0xffff_ffff,
        };
        for (values, inside) in [
            (FieldValues::One(10), true),
            (FieldValues::One(21), false),
            (FieldValues::List([10, 105].into()), true),
            (FieldValues::List([10, 99].into()), false),
            (steps(10, 1, 11), true),
            (steps(10, 1, 12), false),
            (steps(20, -1, 11), true),
            (steps(20, -1, 12), false),
            (steps(10, 90, 2), false),
            (steps(15, 0, u64::MAX), true),
            (steps(5, 5, 2), false),
        ] {
            assert_eq!(values.within(&ranges), inside, "{values:?}");
        }
    }

    proptest! {
        #[test]
        fn bits_are_set_and_no_others(
            before: [u8; 24], at in 0usize..40, width in 1u32..=128, value: u128,
        ) {
            prop_assume!(at % 8 == 0 || width <= 120);
            let value = value & (u128::MAX >> (128 - width));
            let mut frame = before;
            set_bits(&mut frame, at, width, value);
            let bit = |frame: &[u8; 24], i: usize| frame[i / 8] >> (7 - i % 8) & 1;
            for i in 0..24 * 8usize {
                let want = match i.checked_sub(at) {
                    Some(j) if j < width as usize => (value >> (width as usize - 1 - j)) as u8 & 1,
                    _ => bit(&before, i),
                };
                prop_assert_eq!(bit(&frame, i), want, "bit {}", i);
            }
        }
    }
}
