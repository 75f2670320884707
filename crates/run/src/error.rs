//! Why an instrument does not run, and which setting is to blame.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use serde::Serialize;

/// Why an instrument does not start, or ended before its time. The message names the next step.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A setting is wrong, or two do not go together: the same settings fail on every host. So does
    /// a file of settings that they name and that cannot be read, or is not what it should be. It
    /// holds targets, a plan, prefixes, certificates, keys or tokens.
    #[error("{0}")]
    Settings(SettingsError),
    /// This host does not let it: a privilege, an interface, an engine, a file of data.
    #[error("{0:#}")]
    Host(anyhow::Error),
    /// It ran, but what it was to write could not be written.
    #[error("{0}")]
    Unsaved(UnsavedFile),
    /// The end was asked for while a start waited, before anything was measured.
    #[error("{0:#}")]
    Interrupted(anyhow::Error),
}

/// A file that could not be written. The text names it, the cause and the next step.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct UnsavedFile {
    /// As its name was given; `-` is standard output.
    pub file: PathBuf,
    /// The whole text.
    pub message: String,
    /// Why. `None`: only the text says it. No `source`, as in all errors whose text has their
    /// cause: it would be shown twice.
    pub cause: Option<io::Error>,
}

impl UnsavedFile {
    /// With the text `cannot write FILE; ADVICE: CAUSE`.
    pub fn new(file: &Path, advice: &str, cause: io::Error) -> UnsavedFile {
        let message = format!("cannot write {}; {advice}: {cause}", file.display());
        UnsavedFile { file: file.to_owned(), message, cause: Some(cause) }
    }
}

impl RunError {
    /// Of settings, from an error that may name no key.
    pub fn settings(error: impl Into<SettingsError>) -> RunError {
        RunError::Settings(error.into())
    }
}

/// A failure on the way to a measurement is one of this host, unless said otherwise.
impl From<anyhow::Error> for RunError {
    fn from(error: anyhow::Error) -> RunError {
        RunError::Host(error)
    }
}

impl From<UnsavedFile> for RunError {
    fn from(error: UnsavedFile) -> RunError {
        RunError::Unsaved(error)
    }
}

impl From<SettingsError> for RunError {
    fn from(error: SettingsError) -> RunError {
        RunError::Settings(error)
    }
}

/// The first thing that is wrong with settings, for people, and which setting it is, for programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SettingsError {
    /// The whole path of the setting in the instrument's settings, with a dot between a table and
    /// its key: `input.workers`, `stream.ttl`. Of a target's own table `target.stream.ttl`. Where a
    /// file of another form was read (targets, a plan), the path in that file. `None`: it is not
    /// one setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The file in which it stands, as its name was given. `None`: it came from no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in that file, from 1. `None`: the file as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// What is wrong, and what to write instead. The whole text: it names file, line and key.
    pub message: String,
}

impl SettingsError {
    /// A value that cannot be. The message is `KEY: why`.
    pub fn new(key: &str, why: impl fmt::Display) -> SettingsError {
        SettingsError::of(key, format!("{key}: {why}"))
    }

    /// The setting `key`, in a message with its own wording.
    pub fn of(key: &str, message: impl Into<String>) -> SettingsError {
        SettingsError { key: Some(key.into()), ..SettingsError::from(message.into()) }
    }

    /// The same where the setting `key` names what is wrong, such as a file. It becomes the head of
    /// the text.
    pub fn because_of(self, key: &str) -> SettingsError {
        let message = format!("{key}: {}", self.message);
        SettingsError { key: Some(key.into()), message, ..self }
    }

    /// The same with the line where the setting stands, if it came from a file.
    pub fn at(self, position: Option<&FileLine>) -> SettingsError {
        let Some(FileLine { file, line }) = position else { return self };
        let message = format!("{file} line {line}: {}", self.message);
        SettingsError { file: Some(file.clone()), line: Some(*line), message, ..self }
    }

    /// The same of one of several alike, which `subject` names. The key stays the head of the text.
    pub fn within(self, subject: impl fmt::Display) -> SettingsError {
        let message = match self.split() {
            Some((key, why)) => format!("{key}: {subject}: {why}"),
            None => format!("{subject}: {}", self.message),
        };
        SettingsError { message, ..self }
    }

    /// The same of a setting in `table`, whose own checks know nothing of where it stands.
    pub fn inside(self, table: &str) -> SettingsError {
        let message = match self.split() {
            Some(_) => format!("{table}.{}", self.message),
            None => self.message,
        };
        SettingsError { key: self.key.map(|key| format!("{table}.{key}")), message, ..self }
    }

    /// The key and what follows it, where the message begins with the key.
    fn split(&self) -> Option<(&str, &str)> {
        let key = self.key.as_deref()?;
        Some((key, self.message.strip_prefix(key)?.strip_prefix(": ")?))
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SettingsError {}

impl From<String> for SettingsError {
    fn from(message: String) -> SettingsError {
        SettingsError { message, ..SettingsError::default() }
    }
}

/// With its causes on one line.
impl From<anyhow::Error> for SettingsError {
    fn from(error: anyhow::Error) -> SettingsError {
        format!("{error:#}").into()
    }
}

/// A line of a settings file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLine {
    /// The file's name as it was given.
    pub file: String,
    /// From 1.
    pub line: usize,
}

impl fmt::Display for FileLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} line {}", self.file, self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let refused = || io::Error::from_raw_os_error(libc::EACCES);
        let within = sonde_sys::SysError::Io {
            what: "open eth0".into(),
            cause: refused(),
            hint: "; be root".into(),
        };
        let text = "probe: open eth0: Permission denied (os error 13); be root";
        let error = anyhow::Error::from(within).context("probe");
        assert_eq!(RunError::Host(error).to_string(), text);
        let other = anyhow::Error::from(refused()).context("no x").context("no y");
        let text = "no y: no x: Permission denied (os error 13)";
        assert_eq!(RunError::Interrupted(other).to_string(), text);
        let unsaved =
            anyhow::Error::from(UnsavedFile::new(Path::new("f"), "free space", refused()));
        let text = "cannot write f; free space: Permission denied (os error 13)";
        assert_eq!(format!("{unsaved:#}"), text);
    }

    #[test]
    fn key_and_line_are_fields_and_the_text_is_whole() {
        let wrong = SettingsError::new("input.workers", "1..64");
        assert_eq!(wrong.key.as_deref(), Some("input.workers"));
        assert_eq!(RunError::from(wrong.clone()).to_string(), "input.workers: 1..64");
        let line = FileLine { file: "t.toml".into(), line: 7 };
        let at = SettingsError::of("stream.size", "size 20 is too short").at(Some(&line));
        assert_eq!((at.file.as_deref(), at.line), (Some("t.toml"), Some(7)));
        assert_eq!(at.to_string(), "t.toml line 7: size 20 is too short");
        assert_eq!(wrong.clone().at(None), wrong);
        let of_target = SettingsError::new("ttl", "0").inside("target.stream").within("target a");
        assert_eq!(of_target.to_string(), "target.stream.ttl: target a: 0");
        assert_eq!(of_target.key.as_deref(), Some("target.stream.ttl"));
        let own = SettingsError::of("size", "too long").inside("stream").within("192.0.2.1");
        assert_eq!(own, SettingsError::of("stream.size", "192.0.2.1: too long"));
        let of_file = SettingsError {
            file: Some("ca.pem".into()),
            ..SettingsError::from("no PEM".to_owned())
        };
        let named = of_file.because_of("tls_ca").inside("export");
        assert_eq!(
            (named.key.as_deref(), named.file.as_deref()),
            (Some("export.tls_ca"), Some("ca.pem"))
        );
        assert_eq!(named.message, "export.tls_ca: no PEM");
    }

    #[test]
    fn a_program_gets_the_same() {
        let wrong = SettingsError::new("out", "name a file");
        let json = serde_json::to_string(&wrong).unwrap();
        assert_eq!(json, r#"{"key":"out","message":"out: name a file"}"#);
        let full = io::Error::from(io::ErrorKind::StorageFull);
        match RunError::from(UnsavedFile::new(Path::new("t.csv"), "free space", full)) {
            RunError::Unsaved(unsaved) => {
                assert_eq!(unsaved.to_string(), "cannot write t.csv; free space: no storage space");
                assert_eq!(unsaved.file, Path::new("t.csv"));
                assert_eq!(unsaved.cause.unwrap().kind(), io::ErrorKind::StorageFull);
            }
            other => panic!("{other:?}"),
        }
        let causes = anyhow::anyhow!("no such file").context("cannot read p");
        assert_eq!(SettingsError::from(causes).message, "cannot read p: no such file");
    }
}
