//! Options that take an integer.

use std::fmt::Display;
use std::ops::RangeInclusive;

use sonde_results::units::parse_within;

/// Takes an integer of a range; the message says the range.
pub fn whole<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: Copy + Display + TryFrom<i128> + Into<i128> + Send + Sync + 'static,
{
    move |text| parse_within(text, range.clone(), "a whole number")
}

/// Takes the index of a processor.
pub fn processor() -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    |text| parse_within(text, 0..=u32::MAX, "the index of a processor").map(|cpu| cpu as usize)
}
