//! Where in a file's text a value stands.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::TomlText;

/// A step from a table, or a list, to what it holds.
#[derive(Clone, Copy, Debug)]
pub enum TomlStep<'a> {
    /// A table's key.
    Key(&'a str),
    /// A list's item, from 0.
    Item(usize),
}

impl TomlText {
    /// Where the value at the end of `path` stands, from the top; or the last on the way that there
    /// is.
    pub fn position(&self, path: &[TomlStep<'_>]) -> Range<usize> {
        let Ok(table) = DeTable::parse(&self.text) else { return 0..0 };
        let (Some(TomlStep::Key(first)), mut found) = (path.first(), 0..0) else { return 0..0 };
        let Some(mut value) = table.get_ref().get(*first) else { return found };
        found = value.span();
        for step in &path[1..] {
            let inner = match (step, value.get_ref()) {
                (TomlStep::Key(key), DeValue::Table(table)) => table.get(*key),
                (TomlStep::Item(item), DeValue::Array(items)) => items.get(*item),
                _ => None,
            };
            let Some(inner) = inner else { break };
            (value, found) = (inner, inner.span());
        }
        found
    }

    /// The same of a key of a table at the top.
    pub fn key_position(&self, table: &str, key: &str) -> Range<usize> {
        self.position(&[TomlStep::Key(table), TomlStep::Key(key)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_however_it_is_written() {
        let line = |text: &str, path: &[TomlStep<'_>]| {
            let source = TomlText { file: "p".into(), text: text.into() };
            source.line(source.position(path).start)
        };
        let frames = [TomlStep::Key("workload"), TomlStep::Key("frames"), TomlStep::Item(1)];
        for (text, at) in [
            ("# [workload]\n[workload]\nframes = [64,\n 64]", 4),
            ("\nworkload.frames = [64, 65]", 2),
            ("\n\nworkload = { frames = [64, 65] }", 3),
            // As far as it goes.
            ("\n[workload]\nframes = [64]\n", 3),
            ("\n[workload]\n", 2),
            ("title = 'x'", 1),
            ("title = ", 1),
        ] {
            assert_eq!(line(text, &frames), at, "{text}");
        }
        let second = [TomlStep::Key("procedure"), TomlStep::Item(1), TomlStep::Key("loads")];
        let text = "[[procedure]]\nloads = []\n[[procedure]]\nkind = 'x'\nloads = []\n";
        assert_eq!(line(text, &second), 5);
    }
}
