//! Text and integers from packets: bounded reading, and strings that can be shown.

/// Reads octets in order; `None` where there are too few.
#[derive(Clone, Copy)]
pub(super) struct ByteReader<'a>(pub &'a [u8]);

impl<'a> ByteReader<'a> {
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub(super) fn u24(&mut self) -> Option<usize> {
        let high = usize::from(self.u8()?);
        Some(high << 16 | usize::from(self.u16()?))
    }

    /// A vector with its length in one octet before it.
    pub(super) fn vector8(&mut self) -> Option<&'a [u8]> {
        let len = self.u8()?.into();
        self.take(len)
    }

    /// A vector whose length stands in two octets before it.
    pub(super) fn vector16(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?.into();
        self.take(len)
    }
}

/// The 16-bit integers in a vector.
pub(super) fn u16s(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// What can be shown of a packet's text: valid UTF-8 of at most [`MAX_TEXT`] octets. What
/// is no UTF-8, or could change how the text around it is shown (control characters, line
/// separators, changes of direction), is replaced by U+FFFD.
pub(super) fn text(bytes: &[u8]) -> String {
    let plain = |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
    if bytes.len() <= MAX_TEXT
        && plain(bytes)
        && let Ok(text) = str::from_utf8(bytes)
    {
        return text.to_owned();
    }
    let start = &bytes[..bytes.len().min(MAX_TEXT)];
    let mut shown = String::with_capacity(MAX_TEXT);
    for chunk in start.utf8_chunks() {
        let bad = (!chunk.invalid().is_empty()).then_some(char::REPLACEMENT_CHARACTER);
        for c in chunk.valid().chars().map(visible).chain(bad) {
            if shown.len() + c.len_utf8() > MAX_TEXT {
                return shown;
            }
            shown.push(c);
        }
    }
    shown
}

fn visible(c: char) -> char {
    match c {
        '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => {
            char::REPLACEMENT_CHARACTER
        }
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    }
}

/// The first line of `data` without its end, and what follows it; `None`: it does not end
/// here.
pub(super) fn line(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = data.iter().position(|byte| *byte == b'\n')?;
    let line = &data[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), &data[end + 1..]))
}

/// A header section that was cut off: its whole lines, closed by an empty one.
pub(super) fn closed(data: &[u8]) -> Vec<u8> {
    let end = data.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let mut lines = data[..end].to_vec();
    lines.extend_from_slice(b"\r\n");
    lines
}

/// `data` begins with `word`, whatever the case of its letters.
pub(super) fn begins(data: &[u8], word: &[u8]) -> bool {
    data.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// Most octets of a string that is kept.
pub(super) const MAX_TEXT: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_shown() {
        assert_eq!(text(b"plain text"), "plain text");
        assert_eq!(text("grün".as_bytes()), "grün");
        assert_eq!(text(b"a\x1B[2Jb\nc\x7F"), "a\u{FFFD}[2Jb\u{FFFD}c\u{FFFD}");
        assert_eq!(text("a\u{202E}b".as_bytes()), "a\u{FFFD}b");
        assert_eq!(text(b"\xFF\xC3"), "\u{FFFD}\u{FFFD}");
        // A character cut by the bound is left out or replaced, never half of it kept.
        let long = "x".repeat(254) + "ü";
        assert_eq!(text(long.as_bytes()), "x".repeat(254));
        assert_eq!(text(&[0xFF; 300]).len(), 255);
    }

    #[test]
    fn lines() {
        assert_eq!(line(b"a\r\nb"), Some((&b"a"[..], &b"b"[..])));
        assert_eq!(line(b"a\nb"), Some((&b"a"[..], &b"b"[..])));
        assert_eq!(line(b"a\r"), None);
        assert_eq!(closed(b"a: b\r\nc: d\r\ne:"), b"a: b\r\nc: d\r\n\r\n");
        assert_eq!(closed(b"a"), b"\r\n");
    }

    proptest! {
        #[test]
        fn text_is_bounded_and_has_no_control_characters(bytes: Vec<u8>) {
            let long = bytes.repeat(5);
            for input in [&bytes, &long] {
                let shown = text(input);
                prop_assert!(shown.len() <= MAX_TEXT);
                prop_assert!(!shown.chars().any(char::is_control));
            }
        }
    }
}
