//! The folder of a bed: notes for other processes, and what its own processes need.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::LabError;

/// A folder below [`BASE`] that is removed when dropped.
#[derive(Debug)]
pub(crate) struct RunDir(PathBuf);

impl RunDir {
    /// Makes that of a lab. One that a dead process of the same id left is emptied.
    pub(crate) fn make(stem: &str) -> Result<RunDir, LabError> {
        let path = Path::new(BASE).join(stem);
        let made = fs::remove_dir_all(&path)
            .or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
            .and_then(|()| fs::create_dir_all(&path));
        made.map_err(|e| file_error(&path, e))?;
        Ok(RunDir(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a note; a reader sees the old one or the new one, whole.
    pub(crate) fn write(&self, name: &str, note: &impl Serialize) -> Result<(), LabError> {
        write_whole(&self.0.join(name), note)
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        // What is left, a sweep removes.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes JSON to a file, in one step.
pub(crate) fn write_whole(path: &Path, note: &impl Serialize) -> Result<(), LabError> {
    let new = path.with_extension("new");
    let text = serde_json::to_string_pretty(note).expect("these notes are JSON");
    fs::write(&new, text).and_then(|()| fs::rename(&new, path)).map_err(|e| file_error(path, e))
}

/// Reads one; `None`: there is none.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, LabError> {
    match fs::read_to_string(path) {
        Ok(text) => match serde_json::from_str(&text) {
            Ok(note) => Ok(Some(note)),
            Err(e) => Err(file_error(path, io::Error::new(io::ErrorKind::InvalidData, e))),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(file_error(path, e)),
    }
}

/// The folders of all labs, those of dead processes included.
pub(crate) fn all() -> Vec<PathBuf> {
    let Ok(directory) = fs::read_dir(BASE) else {
        return Vec::new(); // none was ever made
    };
    let mut all: Vec<_> = directory.flatten().map(|e| e.path()).filter(|p| p.is_dir()).collect();
    all.sort();
    all
}

/// Removes the folders of the labs that `gone` names.
pub(crate) fn sweep(gone: impl Fn(&str) -> bool) {
    for path in all() {
        if path.file_name().and_then(|n| n.to_str()).is_some_and(&gone) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Whether a lab made this (a namespace, or the folder of a bed) and its process is gone.
pub(crate) fn is_abandoned(name: &str) -> bool {
    owner(name).is_some_and(has_ended)
}

/// Whether there is no such process, or what is left of it waits for its parent.
pub(crate) fn has_ended(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // Behind the name, which may have brackets in it.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('Z' | 'X'))
}

/// The process id in a namespace's name, or in a lab's, if a lab made it.
fn owner(name: &str) -> Option<u32> {
    let parts: Vec<&str> = name.split('.').collect();
    let ([MARK, _prefix, pid, serial, _] | [MARK, _prefix, pid, serial]) = parts[..] else {
        return None;
    };
    serial.parse::<u32>().ok()?;
    pid.parse().ok()
}

pub(crate) fn file_error(path: &Path, cause: io::Error) -> LabError {
    LabError::File { path: path.to_owned(), cause }
}

/// Begins the name of each namespace and folder that a lab makes.
pub(crate) const MARK: &str = "sonde";
/// Memory, gone with the next start of the machine, as are the namespaces.
pub(crate) const BASE: &str = "/run/sonde";

#[cfg(test)]
mod tests {
    use std::process::id;

    use super::*;

    #[test]
    fn a_refused_file_says_the_cause_once_and_what_to_do() {
        let refused = io::Error::from_raw_os_error(13);
        let error = file_error(Path::new("/run/sonde/x"), refused);
        let text = "/run/sonde/x: Permission denied (os error 13); this needs root, outside of a \
                    container";
        assert_eq!(error.to_string(), text);
        assert!(std::error::Error::source(&error).is_none(), "it would be said twice");
        let full = file_error(Path::new("/x"), io::Error::from_raw_os_error(28));
        assert_eq!(full.to_string(), "/x: No space left on device (os error 28)");
    }

    #[test]
    fn only_a_labs_names_have_an_owner() {
        assert_eq!(owner("sonde.demo.4711.0.probe"), Some(4711));
        assert_eq!(owner("sonde.demo.4711.0"), Some(4711));
        for other in ["", "blue", "sonde", "sonde.demo.x.0.probe", "sonde.demo.1", "a.b.1.2.c"] {
            assert_eq!(owner(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_that_nobody_has_waited_for_has_ended() {
        assert!(!has_ended(id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        // It ends by itself, and stays until it is waited for.
        while !has_ended(child.id()) {
            std::thread::yield_now();
        }
        assert!(std::path::Path::new(&format!("/proc/{}", child.id())).exists());
        child.wait().unwrap();
        assert!(has_ended(child.id()));
    }
}
