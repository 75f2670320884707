//! Options that take one of several words.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use sonde_results::choice::Choice;

/// Takes one of the words of `T`, with what each means in the long help.
pub fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    let values = T::ALL.iter().map(|(_, word, help)| PossibleValue::new(word).help(help.trim()));
    PossibleValuesParser::new(values).try_map(|word| {
        let found = T::ALL.iter().find(|(_, known, _)| *known == word);
        found.map(|(value, ..)| *value).ok_or("no such word")
    })
}
