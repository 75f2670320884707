//! Options that take one of several named values.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use sonde_results::choice::Choice;

/// Takes a value of `T` by its name; the long help explains each.
pub fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    let values = T::ALL.iter().map(|(_, word, help)| PossibleValue::new(word).help(help.trim()));
    PossibleValuesParser::new(values).try_map(|word| {
        let found = T::ALL.iter().find(|(_, known, _)| *known == word);
        found.map(|(value, ..)| *value).ok_or("no such value")
    })
}
