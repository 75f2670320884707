//! TOML files, read by serde: errors name the file, the line and the key.

mod every;
mod position;

use std::ops::Range;
use std::path::Path;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

pub use self::position::TomlStep;
use crate::error::{FileLine, SettingsError};
use crate::nearest::distance;
use crate::text_file;

/// A file's text, for messages that name a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TomlText {
    /// The file's name as it was given.
    pub file: String,
    /// The whole text of the file.
    pub text: String,
}

impl TomlText {
    /// Reads the file; `advice` is for who has none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path, advice: &str) -> Result<TomlText, SettingsError> {
        let file = path.display().to_string();
        match text_file::read(path) {
            Ok(text) => Ok(TomlText { file, text }),
            Err(e) => {
                let why = format!("cannot be read: {e}; {advice}");
                Err(TomlText { file, text: String::new() }.whole(why))
            }
        }
    }

    /// What it says.
    ///
    /// # Errors
    /// No TOML, or not what `T` takes.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, SettingsError> {
        toml::from_str(&self.text).map_err(|e| match DeTable::parse(&self.text) {
            Ok(table) => self.described(&e, table.get_ref()),
            Err(e) => self.not_toml(&e),
        })
    }

    /// What serde says of the text, of which `table` is the whole.
    fn described(&self, error: &toml::de::Error, table: &DeTable<'_>) -> SettingsError {
        let message = error.message().trim().replace('\n', ", ");
        let Some(span) = error.span() else { return self.whole(message) };
        let at = find(table, span.start);
        let missing = message.strip_prefix("missing field ").map(|name| name.trim_matches('`'));
        let key = at.path(missing);
        SettingsError { key, ..self.error(span, describe(&message, at)) }
    }

    /// What the parser says of a text that is no TOML.
    fn not_toml(&self, error: &toml::de::Error) -> SettingsError {
        let message = error.message().trim().replace('\n', ", ");
        let Some(span) = error.span() else { return self.whole(message) };
        let message = match (message.as_str(), self.text.get(span.clone())) {
            ("duplicate key", Some(key)) => format!("duplicate key '{key}'; keep one of them"),
            _ => message,
        };
        self.error(span, message)
    }

    /// An error at this position of the text, with the key that stands there.
    pub fn error(&self, at: Range<usize>, why: impl Into<String>) -> SettingsError {
        let line = FileLine { file: self.file.clone(), line: self.line(at.start) };
        let table = DeTable::parse(&self.text).ok();
        let key = table.and_then(|table| find(table.get_ref(), at.start).path(None));
        SettingsError { key, ..SettingsError::from(why.into()).at(Some(&line)) }
    }

    /// An error of the file as a whole.
    pub fn whole(&self, why: impl Into<String>) -> SettingsError {
        let error = SettingsError::from(why.into()).within(&self.file);
        SettingsError { file: Some(self.file.clone()), ..error }
    }

    /// The lines where the value of these keys, from the top down, stands. Of an array of tables
    /// there is one for each, else one, and none if it is not there.
    pub fn lines_of(&self, keys: &[&str]) -> Vec<usize> {
        let Ok(top) = DeTable::parse(&self.text) else { return Vec::new() };
        let Some((last, tables)) = keys.split_last() else { return Vec::new() };
        let table = tables.iter().try_fold(top.get_ref(), |table, key| {
            table.get(*key).and_then(|value| value.get_ref().as_table())
        });
        let Some((key, value)) = table.and_then(|table| table.get_key_value(*last)) else {
            return Vec::new();
        };
        match value.get_ref() {
            DeValue::Array(items) if items.iter().any(|item| item.get_ref().is_table()) => {
                items.iter().map(|item| self.line(item.span().start)).collect()
            }
            _ => vec![self.line(key.span().start)],
        }
    }

    /// The line of an octet of the text, from 1.
    pub fn line(&self, offset: usize) -> usize {
        self.text.as_bytes().iter().take(offset).filter(|&&b| b == b'\n').count() + 1
    }
}

/// A key, or the table that it is the name of.
#[derive(Default)]
struct KeyPosition<'a> {
    key: &'a str,
    /// As it stands in the file: "[bed]", "[[target]]", "" at the top.
    table: String,
    /// The key has a table's name: [`KeyPosition::table`] is where that stands.
    names: Option<String>,
}

impl KeyPosition<'_> {
    /// The key with its table before it, "bed.cpus". `missing`: one that is not there.
    fn path(&self, missing: Option<&str>) -> Option<String> {
        let table = match (missing, &self.names) {
            (Some(_), Some(table)) => table.trim_matches(['[', ']']),
            _ => self.table.trim_matches(['[', ']']),
        };
        match (table, missing.unwrap_or(self.key)) {
            (_, "") => None,
            ("", key) => Some(key.to_owned()),
            (table, key) => Some(format!("{table}.{key}")),
        }
    }
}

/// What stands at `offset`; the top if nothing does.
fn find<'a>(table: &'a DeTable<'_>, offset: usize) -> KeyPosition<'a> {
    fn inside<'a>(table: &'a DeTable<'_>, name: &str, offset: usize) -> Option<KeyPosition<'a>> {
        for (key, value) in table {
            let at_key = key.span().contains(&offset);
            let key: &str = key.get_ref();
            let path = match name {
                "" => key.to_owned(),
                name => format!("{}.{key}", name.trim_matches(['[', ']'])),
            };
            let here = |names| KeyPosition { key, table: name.to_owned(), names };
            if at_key {
                return Some(here(None));
            }
            let deeper = match value.get_ref() {
                DeValue::Table(table) => {
                    let name = format!("[{path}]");
                    inside(table, &name, offset)
                        .or_else(|| value.span().contains(&offset).then(|| here(Some(name))))
                }
                DeValue::Array(items) => items.iter().find_map(|item| {
                    let DeValue::Table(table) = item.get_ref() else { return None };
                    let name = format!("[[{path}]]");
                    inside(table, &name, offset)
                        .or_else(|| item.span().contains(&offset).then(|| here(Some(name))))
                }),
                _ => None,
            };
            if deeper.is_some() {
                return deeper;
            }
            if value.span().contains(&offset) {
                return Some(here(None));
            }
        }
        None
    }
    inside(table, "", offset).unwrap_or_default()
}

/// What serde says, in the terms of who writes the file.
fn describe(message: &str, at: KeyPosition<'_>) -> String {
    let KeyPosition { key, table, names } = at;
    let of = |table: &str| match table {
        "" => String::new(),
        table => format!(" in {table}"),
    };
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let mut known = rest.split('`').skip(1).step_by(2);
        let name = known.next().unwrap_or(key);
        return format!("unknown key '{name}'{}{}", of(&table), instead(name, known));
    }
    if let Some(rest) = message.strip_prefix("missing field ") {
        let name = rest.trim_matches('`');
        return match names {
            Some(table) => format!("this {table} has no '{name}'"),
            None => format!("there is no '{name}'"),
        };
    }
    let (Some(rest), false) = (message.strip_prefix("invalid type: "), key.is_empty()) else {
        return if key.is_empty() { message.into() } else { format!("{key}: {message}") };
    };
    match rest.split_once(", expected ") {
        Some(("map", "a sequence")) => format!("{key} must be written as [[{key}]]"),
        // Of serde's numbers these are the ones that TOML's 64 bits do not hold.
        Some((found, _)) if found.ends_with("` as i128") || found.ends_with("` as u128") => {
            let number = found.split('`').nth(1).unwrap_or_default();
            match number.starts_with('-') {
                true => format!("{key}: {number} is less than {}", i64::MIN),
                false => format!("{key}: {number} is more than {}", u64::MAX),
            }
        }
        Some((found, wanted)) => format!("{key} must be {wanted}, not {found}"),
        None => format!("{key}: {message}"),
    }
}

/// The key that was meant; if none is near, all there are.
fn instead<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let nearest = known.clone().map(|k| (distance(name, k), k)).min();
    match nearest.filter(|&(d, k)| d <= 2.max(k.len() / 3)) {
        Some((_, near)) => format!("; did you mean '{near}'?"),
        None => format!("; there are {}", known.collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only what is wrong with them is looked at")]
    struct Top {
        title: String,
        bed: Option<Bed>,
        #[serde(default)]
        port: Vec<Bed>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only what is wrong with them is looked at")]
    struct Bed {
        cpus: Vec<u8>,
    }

    #[test]
    fn line_and_key_are_named_wherever_they_stand() {
        for (text, message, key) in [
            ("titel = 'x'", "f line 1: unknown key 'titel'; did you mean 'title'?", "titel"),
            (
                "title = 'x'\ncolour = 1",
                "f line 2: unknown key 'colour'; there are title, bed, port",
                "colour",
            ),
            ("\n\n", "f line 1: there is no 'title'", "title"),
            ("title = 1", "f line 1: title must be a string, not integer `1`", "title"),
            (
                "title = 'x'\n[bed]\ncpu = 1",
                "f line 3: unknown key 'cpu' in [bed]; did you mean 'cpus'?",
                "bed.cpu",
            ),
            ("title = 'x'\n[bed]\n", "f line 2: this [bed] has no 'cpus'", "bed.cpus"),
            (
                "title = 'x'\n[[port]]\ncpus = []\n[[port]]\n",
                "f line 4: this [[port]] has no 'cpus'",
                "port.cpus",
            ),
            (
                "title = 'x'\n[port]\ncpus = []",
                "f line 2: port must be written as [[port]]",
                "port",
            ),
            (
                "title = 'x'\nbed.cpus = [1,\n 'a']",
                "f line 3: cpus must be u8, not string \"a\"",
                "bed.cpus",
            ),
            (
                "title = 'x'\n[[port]]\ncpus = [99999999999999999999]",
                "f line 3: cpus: 99999999999999999999 is more than 18446744073709551615",
                "port.cpus",
            ),
            (
                "title = 'x'\n[[port]]\ncpus = [256]",
                "f line 3: cpus: invalid value: integer `256`, expected u8",
                "port.cpus",
            ),
        ] {
            let source = TomlText { file: "f".into(), text: text.into() };
            let error = source.parse::<Top>().unwrap_err();
            assert_eq!(error.to_string(), message, "{text}");
            assert_eq!(error.key.as_deref(), Some(key), "{text}");
            let named = format!("f line {}: ", error.line.unwrap());
            assert!(message.starts_with(&named) && error.file.as_deref() == Some("f"), "{text}");
        }
    }

    #[test]
    fn an_error_at_a_position_has_the_key_that_stands_there() {
        let source = TomlText { file: "f".into(), text: "title = 'x'\n[bed]\ncpus = []".into() };
        let error = source.error(18..22, "too few");
        assert_eq!((error.key.as_deref(), error.line), (Some("bed.cpus"), Some(3)));
        assert_eq!(error.to_string(), "f line 3: too few");
        let whole = source.whole("is empty");
        assert_eq!((whole.key, whole.line), (None, None));
        assert_eq!(whole.message, "f: is empty");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[\\PC\n]{0,80}") {
            let _ = TomlText { file: "f".into(), text }.parse::<Top>();
        }
    }
}
