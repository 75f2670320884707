//! By which standard an objective is judged, and how well its text is known here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The standard, edition and grid of an objective. Each report names all three: two editions
/// differ by more than two networks do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Standard {
    /// Its number: "ITU-T Y.1540".
    pub name: String,
    /// The edition, as far as it is known.
    pub edition: String,
    /// The grid in time: length of an interval, window, what counts as bad.
    pub grid: String,
    /// How far the figures stand on a text that was read.
    pub text: StandardText,
    /// Where the figures were read, or what is open about them.
    pub source: String,
}

/// How far the figures of a preset stand on the text of their standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StandardText {
    /// The standard's own text was read.
    Read,
    /// Another text that quotes it was read; `source` names it.
    Quoted,
    /// No text was read: check the figures before they become a contract.
    NotRead,
}

impl fmt::Display for Standard {
    /// One line, as it stands on reports.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}; {}", self.name, self.edition, self.grid)?;
        match self.text {
            StandardText::Read => Ok(()),
            StandardText::Quoted => write!(f, " (as quoted in {})", self.source),
            StandardText::NotRead => write!(f, " (text not read, to be checked: {})", self.source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_was_not_read_says_so() {
        let mut standard = Standard {
            name: "ITU-T Y.1540".into(),
            edition: "2016".into(),
            grid: "blocks of 1 min".into(),
            text: StandardText::NotRead,
            source: "recalled".into(),
        };
        assert_eq!(
            standard.to_string(),
            "ITU-T Y.1540, 2016; blocks of 1 min (text not read, to be checked: recalled)"
        );
        standard.text = StandardText::Read;
        assert_eq!(standard.to_string(), "ITU-T Y.1540, 2016; blocks of 1 min");
    }
}
