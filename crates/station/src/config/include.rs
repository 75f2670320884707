//! The files of a configuration: the first, and those that it and they include.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sonde_run::error::SettingsError;
use sonde_run::toml_file::TomlText;

use super::ReadFile;

/// Reads `path` and all that is included, each once.
///
/// # Errors
/// All files that cannot be read or parsed.
pub(super) fn read_all(path: &Path) -> Result<Vec<ReadFile>, Vec<SettingsError>> {
    let mut reading = Reading::default();
    reading.read(path, None);
    if reading.errors.is_empty() { Ok(reading.files) } else { Err(reading.errors) }
}

#[derive(Default)]
struct Reading {
    files: Vec<ReadFile>,
    errors: Vec<SettingsError>,
    seen: BTreeSet<PathBuf>,
}

impl Reading {
    /// `by`: the file and line that includes it.
    fn read(&mut self, path: &Path, by: Option<&ReadFile>) {
        // A file is told by what it is, however it was named: so a circle ends, too.
        let known = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if !self.seen.insert(known) {
            return;
        }
        if self.seen.len() > MOST_FILES {
            if self.seen.len() == MOST_FILES + 1 {
                let why = format!("a configuration has at most {MOST_FILES} files");
                self.error(by, why.into());
            }
            return;
        }
        if let Err(why) = check_file(path) {
            let file = path.display().to_string();
            let error = SettingsError::from(format!("{file}: {why}"));
            return self.error(by, SettingsError { file: Some(file), ..error });
        }
        let read = TomlText::read(path, "name a TOML file").and_then(ReadFile::parse);
        match read {
            Err(error) => self.error(by.filter(|_| error.line.is_none()), error),
            Ok(file) => {
                self.files.push(file.clone());
                for included in &file.says.include {
                    self.include(path, included, &file);
                }
            }
        }
    }

    fn include(&mut self, from: &Path, included: &str, by: &ReadFile) {
        let path = from.parent().unwrap_or(Path::new("")).join(included);
        if path.file_name().is_none_or(|name| name != "*.toml") {
            return self.read(&path, Some(by));
        }
        let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
        let entries = std::fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        match entries {
            Err(e) => {
                let why = format!("folder {} cannot be read: {e}; make it", folder.display());
                self.error(Some(by), why.into());
            }
            Ok(entries) => {
                let mut paths: Vec<PathBuf> = entries.iter().map(std::fs::DirEntry::path).collect();
                paths
                    .retain(|path| path.extension().is_some_and(|e| e == "toml") && path.is_file());
                paths.sort();
                paths.iter().for_each(|path| self.read(path, Some(by)));
            }
        }
    }

    fn error(&mut self, by: Option<&ReadFile>, error: SettingsError) {
        let at = by.map(|file| file.line_of(&["include"]));
        self.errors.push(SettingsError { key: Some("include".into()), ..error }.at(at.as_ref()));
    }
}

/// Refuses what may wait for ever or never end; what is not there is said by who reads it.
fn check_file(path: &Path) -> Result<(), String> {
    let Ok(about) = std::fs::metadata(path) else { return Ok(()) };
    if !about.is_file() {
        return Err("it is no regular file; name a TOML file".into());
    }
    match about.len() > LARGEST {
        true => Err(format!("it has more than {} MiB; share it out", LARGEST >> 20)),
        false => Ok(()),
    }
}

/// Octets of a file.
const LARGEST: u64 = 16 << 20;
/// Of one configuration.
const MOST_FILES: usize = 1_000;
