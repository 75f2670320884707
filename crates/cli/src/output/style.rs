//! Colours, only where a person looks and has not declined them; the terminal's size.

use std::io::{IsTerminal as _, stdout};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    colour: bool,
}

/// The meaning of a piece of text, shown by its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Without colour or weight.
    Plain,
    /// Bold.
    Head,
    /// Faint: of less weight.
    Dim,
    /// Green: as it should be.
    Good,
    /// Yellow: there is a caveat.
    Warn,
    /// Red: probes were lost, or a check failed.
    Bad,
}

impl Style {
    /// For standard output: colours on a terminal, unless NO_COLOR is set (no-color.org)
    /// or the terminal is dumb.
    pub fn for_stdout() -> Style {
        let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        Style { colour: stdout().is_terminal() && !set("NO_COLOR") && !dumb }
    }

    #[cfg(test)]
    pub fn new(colour: bool) -> Style {
        Style { colour }
    }

    /// `text` in `tone`.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => "",
            Tone::Head => "1",
            Tone::Dim => "2",
            Tone::Good => "32",
            Tone::Warn => "33",
            Tone::Bad => "31",
        };
        if !self.colour || code.is_empty() || text.is_empty() {
            return text.to_string();
        }
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Columns and rows: the terminal's, else COLUMNS and LINES, else 80 by 24.
pub fn terminal_size() -> (usize, usize) {
    if let Some((width, height)) = terminal_size::terminal_size() {
        return (width.0.into(), height.0.into());
    }
    let size_from = |name: &str| std::env::var(name).ok()?.parse().ok();
    (size_from("COLUMNS").unwrap_or(80), size_from("LINES").unwrap_or(24))
}

/// At most `width` characters of `text`, with an ellipsis where it is cut.
pub fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_string();
    }
    let mut clipped: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        clipped.push('…');
    }
    clipped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_added_only_where_wanted() {
        assert_eq!(Style::default().paint(Tone::Bad, "x"), "x");
        assert_eq!(Style::new(true).paint(Tone::Bad, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(Style::new(true).paint(Tone::Plain, "x"), "x");
    }

    #[test]
    fn clipping_counts_characters() {
        assert_eq!(clip("mäß", 3), "mäß");
        assert_eq!(clip("mäßig", 3), "mä…");
        assert_eq!(clip("abc", 0), "");
    }
}
