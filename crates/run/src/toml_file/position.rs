//! Where in a plan's text a value stands.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::super::plan::TomlText;

/// A step from a table, or a list, to what it holds.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    Key(&'a str),
    /// From 0.
    Item(usize),
}

/// The value at the end of `path`, from the top; the last on the way that the plan has.
pub fn position(source: &TomlText, path: &[Step<'_>]) -> Range<usize> {
    let Ok(table) = DeTable::parse(&source.text) else { return 0..0 };
    let (Some(Step::Key(first)), mut found) = (path.first(), 0..0) else { return 0..0 };
    let Some(mut value) = table.get_ref().get(*first) else { return found };
    found = value.span();
    for step in &path[1..] {
        let inner = match (step, value.get_ref()) {
            (Step::Key(key), DeValue::Table(table)) => table.get(*key),
            (Step::Item(item), DeValue::Array(items)) => items.get(*item),
            _ => None,
        };
        let Some(inner) = inner else { break };
        (value, found) = (inner, inner.span());
    }
    found
}

/// The same of a key of a table at the top.
pub fn key(source: &TomlText, table: &str, key: &str) -> Range<usize> {
    position(source, &[Step::Key(table), Step::Key(key)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_however_it_is_written() {
        let line = |text: &str, path: &[Step<'_>]| {
            let source = TomlText { file: "p".into(), text: text.into() };
            source.line(position(&source, path).start)
        };
        let frames = [Step::Key("workload"), Step::Key("frames"), Step::Item(1)];
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
        let second = [Step::Key("procedure"), Step::Item(1), Step::Key("loads")];
        let text = "[[procedure]]\nloads = []\n[[procedure]]\nkind = 'x'\nloads = []\n";
        assert_eq!(line(text, &second), 5);
    }
}
