//! Secrets of receivers: read from files that are their owner's alone, and never said.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A file that holds a secret: its first line. Nobody but its owner may read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SecretFile(pub PathBuf);

/// A secret. It has no text for messages.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

/// Why a secret cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("{file} cannot be read: {why}; give the file that holds the secret")]
    Unreadable {
        /// Its name.
        file: String,
        /// What the kernel says.
        why: String,
    },
    /// Others may read or write it.
    #[error("others can read or write {file}; 'chmod 600 {file}'")]
    Open {
        /// Its name.
        file: String,
    },
    /// It holds no line of text, or too long a one.
    #[error(
        "{file} holds no secret: its first line is to have 1 to {LONGEST} printable characters"
    )]
    Empty {
        /// Its name.
        file: String,
    },
}

impl SecretFile {
    /// Reads it.
    ///
    /// # Errors
    /// It cannot be read, others can read it too, or its first line is no secret.
    pub fn read(&self) -> Result<SecretText, SecretError> {
        let file = self.0.display().to_string();
        let unreadable = |e: std::io::Error| SecretError::Unreadable {
            file: self.0.display().to_string(),
            why: e.to_string(),
        };
        let opened = File::open(&self.0).map_err(unreadable)?;
        // Of the file that is open, not of one that has taken its name since.
        let mode = opened.metadata().map_err(unreadable)?.mode();
        if mode & 0o077 != 0 {
            return Err(SecretError::Open { file });
        }
        let mut text = String::new();
        opened.take(LONGEST as u64 + 2).read_to_string(&mut text).map_err(unreadable)?;
        let line = text.lines().next().unwrap_or_default().trim();
        let fits = (1..=LONGEST).contains(&line.len()) && !line.chars().any(char::is_control);
        if fits { Ok(SecretText(line.to_owned())) } else { Err(SecretError::Empty { file }) }
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl SecretText {
    /// One that is at hand.
    pub fn new(text: &str) -> SecretText {
        SecretText(text.to_owned())
    }

    /// The secret itself: for a request, never for a message.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

/// Takes the secrets of a receiver out of what is said of it.
#[derive(Clone, Default)]
pub struct Redactor {
    /// As they may occur, the longest first.
    forms: Vec<String>,
}

impl Redactor {
    /// Of these secrets, as they are, in Base64 and with percent signs; and of an address also
    /// what stands after its host.
    pub fn of<'a>(secrets: impl IntoIterator<Item = &'a SecretText>) -> Redactor {
        let mut forms = Vec::new();
        for SecretText(secret) in secrets {
            forms.push(secret.clone());
            forms.push(BASE64_STANDARD.encode(secret));
            forms.push(BASE64_STANDARD.encode(format!("\0{secret}")));
            forms.push(percent_encoded(secret));
            let path = secret.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
            forms.extend(path.map(|(_, path)| path.to_owned()));
        }
        // One or two characters occur in any text.
        forms.retain(|form| form.len() >= 3);
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms.dedup();
        Redactor { forms }
    }

    /// `text` with `[secret]` in the place of each, on one line of at most [`SAID_MOST`] bytes.
    pub fn redact(&self, text: &str) -> String {
        let redacted = self.forms.iter().fold(text.to_owned(), |t, f| t.replace(f, "[secret]"));
        super::model::cut(&super::model::clean(&redacted, false), SAID_MOST)
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor of {} texts", self.forms.len())
    }
}

fn percent_encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes()
        .map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

/// Bytes of a secret, at most.
pub const LONGEST: usize = 4096;
/// Bytes of an error that is kept and shown, at most.
pub const SAID_MOST: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_secret_is_the_first_line_of_a_file_that_is_ours_alone() {
        let folder = crate::alert::testing::Folder::new("secret");
        let path = folder.0.join("key");
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            SecretFile(path.clone()).read()
        };
        assert_eq!(write("hunter22\nmore\n", 0o600).unwrap().expose(), "hunter22");
        let open = write("hunter22", 0o640).unwrap_err();
        assert!(open.to_string().contains("chmod 600"), "{open}");
        assert!(matches!(write("\n", 0o400), Err(SecretError::Empty { .. })));
        assert!(matches!(write(&"x".repeat(5000), 0o600), Err(SecretError::Empty { .. })));
        let absent = SecretFile("/nonexistent/key".into()).read().unwrap_err();
        assert!(matches!(absent, SecretError::Unreadable { .. }));
    }

    #[test]
    fn no_form_of_a_secret_is_said() {
        let secrets = ["pass word", "https://hooks.example/T0/B0/abc"].map(SecretText::new);
        let redactor = Redactor::of(&secrets);
        let encoded = BASE64_STANDARD.encode("pass word");
        let said = redactor.redact(&format!(
            "bad pass word, {encoded}, pass%20word, /T0/B0/abc, https://hooks.example/T0/B0/abc\r\n"
        ));
        let wanted = "bad [secret], [secret], [secret], /[secret], [secret]  ";
        assert_eq!(said, wanted);
        assert!(!format!("{redactor:?} {secrets:?}").contains("pass"));
        assert!(redactor.redact(&"y".repeat(1000)).len() <= SAID_MOST);
    }
}
