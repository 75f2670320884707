//! All keys and types of a file that are wrong, where serde alone names the first.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer};

use super::TomlText;
use crate::error::SettingsError;

impl TomlText {
    /// What it says, and all that `T` does not take: keys, types, values that cannot be.
    ///
    /// A unit in which something is wrong is left out of what it says. `depth`: how many keys name
    /// a unit, by the first of them. More than 100 errors are not looked for.
    ///
    /// # Errors
    /// It is no TOML.
    pub fn parse_all<T: DeserializeOwned + Default>(
        &self,
        depth: fn(&str) -> usize,
    ) -> Result<(T, Vec<SettingsError>), SettingsError> {
        let document = DeTable::parse(&self.text).map_err(|e| self.not_toml(&e))?;
        let (mut left, mut found) = (document.clone(), FoundErrors::default());
        let says = loop {
            let error = match T::deserialize(Deserializer::from(left.clone())) {
                Ok(says) if found.units.is_empty() => break says,
                Ok(_) => {
                    found.units.iter().for_each(|unit| remove(left.get_mut(), unit));
                    break T::deserialize(Deserializer::from(left)).unwrap_or_default();
                }
                Err(error) => error,
            };
            let place = error.span().and_then(|span| TomlPlace::find(left.get_ref(), span.start));
            if place.as_ref().is_none_or(|place| !found.follows(place)) {
                found.wrong.push(self.described(&error, document.get_ref()));
            }
            let Some(place) = place.filter(|_| found.wrong.len() < MOST_ERRORS) else {
                break T::default();
            };
            remove(left.get_mut(), &place.path);
            found.add(place, depth);
        };
        found.wrong.sort_by_key(|error| error.line);
        Ok((says, found.wrong))
    }
}

#[derive(Default)]
struct FoundErrors {
    wrong: Vec<SettingsError>,
    /// Units in which something is wrong.
    units: BTreeSet<Vec<TomlStepOwned>>,
    /// Tables from which something was taken, by where they begin.
    touched: BTreeSet<usize>,
}

impl FoundErrors {
    /// Whether it is wrong only because of what was taken away: the lack of a key, mostly.
    fn follows(&self, place: &TomlPlace) -> bool {
        place.table.is_some_and(|table| self.touched.contains(&table))
    }

    fn add(&mut self, place: TomlPlace, depth: fn(&str) -> usize) {
        self.touched.extend(place.owner);
        let keys = match place.path.first() {
            Some(TomlStepOwned::Key(first)) => depth(first),
            _ => 1,
        };
        self.units.insert(place.path.into_iter().take(keys).collect());
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TomlStepOwned {
    Key(String),
    Item(usize),
}

/// What stands at an offset of the text.
struct TomlPlace {
    path: Vec<TomlStepOwned>,
    /// Where the table begins in which it stands; `None`: it stands at the top.
    owner: Option<usize>,
    /// Where it begins, if it is a table itself.
    table: Option<usize>,
}

impl TomlPlace {
    fn find(table: &DeTable<'_>, offset: usize) -> Option<TomlPlace> {
        let mut place = TomlPlace { path: Vec::new(), owner: None, table: None };
        place.descend(table, None, offset).then_some(place)
    }

    /// Whether it stands in `table`, which begins at `start`.
    fn descend(&mut self, table: &DeTable<'_>, start: Option<usize>, offset: usize) -> bool {
        table.iter().any(|(key, value)| {
            self.path.push(TomlStepOwned::Key(key.get_ref().to_string()));
            let span = value.span();
            let is_here = span.contains(&offset);
            let at_key = key.span().contains(&offset);
            let found = match value.get_ref() {
                // What a table lacks is said of its name where it is one of many.
                DeValue::Table(_) if at_key => self.at_table(start, span.start),
                _ if at_key => true,
                DeValue::Table(inner) => {
                    self.descend(inner, Some(span.start), offset)
                        || is_here && self.at_table(start, span.start)
                }
                DeValue::Array(items) => self.descend_items(items, start, offset) || is_here,
                _ => is_here,
            };
            match found {
                true if self.owner.is_none() && self.table.is_none() => self.owner = start,
                true => {}
                false => drop(self.path.pop()),
            }
            found
        })
    }

    fn descend_items(&mut self, items: &DeArray<'_>, start: Option<usize>, offset: usize) -> bool {
        items.iter().enumerate().any(|(index, item)| {
            let DeValue::Table(table) = item.get_ref() else { return false };
            self.path.push(TomlStepOwned::Item(index));
            let span = item.span();
            let found = self.descend(table, Some(span.start), offset)
                || span.contains(&offset) && self.at_table(start, span.start);
            if !found {
                self.path.pop();
            }
            found
        })
    }

    fn at_table(&mut self, owner: Option<usize>, start: usize) -> bool {
        (self.owner, self.table) = (owner, Some(start));
        true
    }
}

/// Takes away what stands at the end of `path`.
fn remove(table: &mut DeTable<'_>, path: &[TomlStepOwned]) {
    let Some((TomlStepOwned::Key(key), rest)) = path.split_first() else { return };
    if rest.is_empty() {
        table.remove(key.as_str());
        return;
    }
    match (table.get_mut(key.as_str()).map(|value| value.get_mut()), rest) {
        (Some(DeValue::Table(inner)), rest) => remove(inner, rest),
        (Some(DeValue::Array(items)), [TomlStepOwned::Item(index)]) => {
            let mut kept = DeArray::new();
            let others = items.iter().enumerate().filter(|(i, _)| i != index);
            others.for_each(|(_, item)| kept.push(item.clone()));
            *items = kept;
        }
        (Some(DeValue::Array(items)), [TomlStepOwned::Item(index), rest @ ..]) => {
            if let Some(DeValue::Table(inner)) = items.get_mut(*index).map(|i| i.get_mut()) {
                remove(inner, rest);
            }
        }
        _ => {}
    }
}

/// Each takes a pass over the file.
const MOST_ERRORS: usize = 100;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Units {
        probe: BTreeMap<String, Probe>,
        title: Option<String>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Probe {
        #[serde(default)]
        size: u16,
        #[serde(default)]
        target: Vec<Target>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Target {
        host: String,
    }

    fn parse(text: &str) -> (Units, Vec<String>) {
        let text = TomlText { file: "f".into(), text: text.into() };
        let depth = |key: &str| if key == "probe" { 2 } else { 1 };
        let (says, wrong) = text.parse_all::<Units>(depth).unwrap();
        (says, wrong.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn all_keys_and_types_are_named_and_what_follows_from_them_is_not() {
        let (says, wrong) = parse(
            "titel = 'x'\n[probe.a]\nsiez = 1\nsize = 'long'\n[[probe.a.target]]\nhots = 'h'\n\
             [[probe.a.target]]\n[[probe.a.target]]\nhost = 5\n[prob.b]\n\
             [probe.c]\nsize = 7\n[[probe.c.target]]\nhost = 'c'\n",
        );
        assert_eq!(
            wrong,
            [
                "f line 1: unknown key 'titel'; did you mean 'title'?",
                "f line 3: unknown key 'siez' in [probe.a]; did you mean 'size'?",
                "f line 4: size must be u16, not string \"long\"",
                "f line 6: unknown key 'hots' in [[probe.a.target]]; did you mean 'host'?",
                "f line 7: this [[probe.a.target]] has no 'host'",
                "f line 9: host must be a string, not integer `5`",
                "f line 10: unknown key 'prob'; did you mean 'probe'?",
            ]
        );
        assert_eq!(says.probe.keys().collect::<Vec<_>>(), ["c"]);
        assert_eq!((says.probe["c"].size, says.probe["c"].target[0].host.as_str()), (7, "c"));
        assert_eq!(says.title, None);
    }

    #[test]
    fn what_is_right_is_read_and_many_errors_end() {
        let (says, wrong) = parse("title = 'x'\n[probe.a]\n");
        assert_eq!((wrong.len(), says.title.as_deref(), says.probe.len()), (0, Some("x"), 1));
        let many: String = (0..150).map(|n| format!("[[probe.a.target]]\nx{n} = 1\n")).collect();
        assert_eq!(parse(&many).1.len(), MOST_ERRORS);
        let text = TomlText { file: "f".into(), text: "a = 1\na = 2".into() };
        let error = text.parse_all::<Units>(|_| 1).unwrap_err();
        assert_eq!(error.message, "f line 2: duplicate key 'a'; keep one of them");
    }
}
