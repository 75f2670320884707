//! Text files that people write: targets, plans, prefixes. They are read whole, within bounds.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Reads the file at `path`, without the byte order mark that some editors put before its text.
///
/// # Errors
/// It cannot be read, is no UTF-8, or has more than 64 MiB, as a device or pipe may have that
/// never ends.
pub fn read(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(octets(path)?);
    let mut text =
        text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text (UTF-8)"))?;
    if text.starts_with(MARK) {
        text.drain(..MARK.len_utf8());
    }
    Ok(text)
}

/// Reads the file at `path` as it is.
///
/// # Errors
/// As [`read`], but for UTF-8.
pub fn octets(path: &Path) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut octets)?;
    if octets.len() as u64 > LARGEST {
        let why = format!("it has more than {} MiB, so it is no such file", LARGEST >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(octets)
}

/// Octets of a file: those of a million targets.
const LARGEST: u64 = 64 << 20;
/// The byte order mark of UTF-8 (RFC 3629, section 6).
const MARK: char = '\u{feff}';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_no_text_and_what_never_ends_is_no_file() {
        let path = std::env::temp_dir().join(format!("sonde-text-{}", std::process::id()));
        std::fs::write(&path, "\u{feff}10.0.0.1\n\u{feff}x").unwrap();
        let text = read(&path).unwrap();
        std::fs::write(&path, b"\xff").unwrap();
        let wrong = read(&path).unwrap_err().kind();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((text.as_str(), wrong), ("10.0.0.1\n\u{feff}x", io::ErrorKind::InvalidData));
        let endless = read(Path::new("/dev/zero")).unwrap_err();
        assert!(endless.to_string().contains("more than 64 MiB"), "{endless}");
    }
}
