//! Text from elsewhere (names, labels, notes, what a peer says) as it can be shown: it steers no terminal,
//! forges no line, and reads in the order in which it is written.

use std::borrow::Cow;

/// What a person does not see, and a terminal or a reader's eye obeys: control characters (C0, C1, DEL), the
/// separators of lines and paragraphs, and the marks that turn the direction of text (Unicode UAX #9).
pub fn is_steering(c: char) -> bool {
    c.is_control() || is_unseen(c)
}

/// Those of them that are no control characters.
pub fn is_unseen(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` with U+FFFD for each of these.
///
/// ```
/// use sonde_results::plain_text::plain;
/// assert_eq!(plain("ber\u{1b}[31m\n"), "ber\u{fffd}[31m\u{fffd}");
/// ```
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_steering) {
        return Cow::Borrowed(text);
    }
    let seen = |c: char| if is_steering(c) { char::REPLACEMENT_CHARACTER } else { c };
    Cow::Owned(text.chars().map(seen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_is_seen_and_all_else_is_as_it_was() {
        let same = "Lyon, IPv6: größer 東京 العربية 🙂";
        assert!(matches!(plain(same), Cow::Borrowed(text) if text == same));
        for c in [
            '\u{1b}', '\n', '\t', '\r', '\u{7f}', '\u{9b}', '\u{2028}', '\u{202e}', '\u{2066}',
            '\u{200f}',
        ] {
            assert_eq!(plain(&format!("a{c}b")), "a\u{fffd}b", "{c:?}");
        }
    }
}
