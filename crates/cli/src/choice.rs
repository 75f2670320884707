//! Options that take one of several named values.

use std::fmt::Display;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use sonde_results::choice::Choice;
use sonde_run::engine::Engine;

/// Takes a value of `T` by one of these names, as it parses them.
pub fn named<T>(names: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: Display> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse::<T>().map_err(|e| e.to_string()))
}

/// Takes an engine that fits, by its name.
pub fn engine(fits: fn(Engine) -> bool) -> impl TypedValueParser<Value = Engine> {
    named(Engine::ALL.iter().filter(move |engine| fits(**engine)).map(|engine| engine.name()))
}

/// Takes a value of `T` by its name; the long help explains each.
pub fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    let values = T::ALL.iter().map(|(_, word, help)| PossibleValue::new(word).help(help.trim()));
    PossibleValuesParser::new(values).try_map(|word| {
        let found = T::ALL.iter().find(|(_, known, _)| *known == word);
        found.map(|(value, ..)| *value).ok_or("no such value")
    })
}
