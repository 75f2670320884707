//! TOML files, read by serde: errors name the file, the line and the key.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

/// A file's text, for messages that name a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TomlText {
    /// The file's name as it was given.
    pub file: String,
    /// The whole text of the file.
    pub text: String,
}

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The file's name as it was given.
    pub file: String,
    /// Line, from 1; `None`: the file as a whole.
    pub line: Option<usize>,
    /// What is wrong, with the key's name, and what to write instead.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{} line {line}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for Error {}

impl TomlText {
    /// Reads the file; `advice` is for who has none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path, advice: &str) -> Result<TomlText, Error> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(TomlText { file, text }),
            Err(e) => {
                let message = format!("cannot be read: {e}; {advice}");
                Err(Error { file, line: None, message })
            }
        }
    }

    /// What it says.
    ///
    /// # Errors
    /// No TOML, or not what `T` takes.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        toml::from_str(&self.text).map_err(|e| {
            let message = e.message().trim().replace('\n', ", ");
            let Some(span) = e.span() else { return self.whole(message) };
            let message = match DeTable::parse(&self.text) {
                Ok(table) => describe(&message, find(table.get_ref(), span.start)),
                // It is no TOML.
                Err(_) => message,
            };
            self.error(span, message)
        })
    }

    /// An error at this position of the text.
    pub fn error(&self, at: Range<usize>, message: impl Into<String>) -> Error {
        let line = Some(self.line(at.start));
        Error { file: self.file.clone(), line, message: message.into() }
    }

    /// An error of the file as a whole.
    pub fn whole(&self, message: impl Into<String>) -> Error {
        Error { file: self.file.clone(), line: None, message: message.into() }
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

/// Insertions, deletions and replacements between two short texts (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
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
        for (text, message) in [
            ("titel = 'x'", "f line 1: unknown key 'titel'; did you mean 'title'?"),
            (
                "title = 'x'\ncolour = 1",
                "f line 2: unknown key 'colour'; there are title, bed, port",
            ),
            ("\n\n", "f line 1: there is no 'title'"),
            ("title = 1", "f line 1: title must be a string, not integer `1`"),
            (
                "title = 'x'\n[bed]\ncpu = 1",
                "f line 3: unknown key 'cpu' in [bed]; did you mean 'cpus'?",
            ),
            ("title = 'x'\n[bed]\n", "f line 2: this [bed] has no 'cpus'"),
            (
                "title = 'x'\n[[port]]\ncpus = []\n[[port]]\n",
                "f line 4: this [[port]] has no 'cpus'",
            ),
            ("title = 'x'\n[port]\ncpus = []", "f line 2: port must be written as [[port]]"),
            ("title = 'x'\nbed.cpus = [1,\n 'a']", "f line 3: cpus must be u8, not string \"a\""),
            (
                "title = 'x'\n[[port]]\ncpus = [256]",
                "f line 3: cpus: invalid value: integer `256`, expected u8",
            ),
        ] {
            let source = TomlText { file: "f".into(), text: text.into() };
            assert_eq!(source.parse::<Top>().unwrap_err().to_string(), message, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[\\PC\n]{0,80}") {
            let _ = TomlText { file: "f".into(), text }.parse::<Top>();
        }

        #[test]
        fn distance_is_a_metric(a in "[a-c]{0,6}", b in "[a-c]{0,6}", c in "[a-c]{0,6}") {
            prop_assert_eq!(distance(&a, &b), distance(&b, &a));
            prop_assert_eq!(distance(&a, &b) == 0, a == b);
            prop_assert!(distance(&a, &c) <= distance(&a, &b) + distance(&b, &c));
        }
    }
}
