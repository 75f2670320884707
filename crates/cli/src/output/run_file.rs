//! The run file: one JSON object, whole or not there at all.

use anyhow::Context as _;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::console;

/// Saves `run` at `path`. It is written beside it first and renamed, so that a reader
/// never sees half a file and a full disk leaves the old one. What is not an ordinary
/// file (a pipe, a device) is written to directly. `-` is standard output.
pub fn save(path: &Path, run: &impl Serialize) -> io::Result<()> {
    if path == Path::new("-") {
        print(run);
        return Ok(());
    }
    if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        return write(File::options().write(true).open(path)?, run);
    }
    let temporary = beside(path);
    let saved = create(&temporary)
        .and_then(|file| {
            write(&file, run)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path));
    if saved.is_err() {
        // The first error is the one to report; there may be nothing to remove.
        let _ = fs::remove_file(&temporary);
    }
    saved
}

/// Whether a run could be saved at `path`: to be asked before hours are spent on it. Nothing
/// that is there is touched.
///
/// # Errors
/// What saving would fail with.
pub fn check(path: &Path) -> anyhow::Result<()> {
    let tried = if path == Path::new("-") {
        Ok(())
    } else if fs::metadata(path).is_ok_and(|m| m.is_dir()) {
        Err(io::ErrorKind::IsADirectory.into())
    } else if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        // Opening a pipe would wait for its reader.
        Ok(())
    } else {
        let temporary = beside(path);
        create(&temporary).and_then(|_| fs::remove_file(&temporary))
    };
    tried.with_context(|| format!("cannot write {}; choose another place", path.display()))
}

/// Whether saving at `path` makes or replaces a file, and may so be done again and again.
pub fn replaces(path: &Path) -> bool {
    path != Path::new("-") && fs::metadata(path).map_or(true, |m| m.is_file())
}

/// When a run file is to be written though the run goes on: so that a killed process leaves
/// what it has measured but for the last moments.
pub struct SaveSoFar(Instant);

impl Default for SaveSoFar {
    /// The first time is soon.
    fn default() -> Self {
        SaveSoFar(Instant::now() + FIRST_SAVE)
    }
}

impl SaveSoFar {
    /// Saves the run that `so_far` makes, if it is time: at most a twentieth of the time goes
    /// into this. A failure is told at the end, by which time there may be room again.
    pub fn save<R: Serialize>(&mut self, path: Option<&Path>, so_far: impl FnOnce() -> R) {
        let begin = Instant::now();
        let Some(path) = path.filter(|path| begin >= self.0 && replaces(path)) else { return };
        let _ = save(path, &so_far());
        let end = Instant::now();
        self.0 = end + SAVE_EVERY.max((end - begin) * 20);
    }
}

const FIRST_SAVE: Duration = Duration::from_secs(1);
/// Between two times that a run file is written.
const SAVE_EVERY: Duration = Duration::from_secs(10);

/// Opens a file for results, made or emptied. They hold people's addresses: a new file is
/// readable for its owner and group only.
///
/// # Errors
/// As [`File::create`].
pub fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(0o640).open(path)
}

/// Prints `run` on standard output.
pub fn print(run: &impl Serialize) {
    // The console keeps its failures for the exit code; types of keys that are strings can
    // always be written.
    let _ = write(console::out(), run);
}

/// Writes `run` as JSON with a final newline.
pub fn write(out: impl Write, run: &impl Serialize) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, out);
    serde_json::to_writer(&mut out, run)?;
    out.write_all(b"\n")?;
    out.flush()
}

fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::sample;
    use sonde_results::Run;

    #[test]
    fn what_is_saved_reads_back_and_replaces_the_old() {
        let folder = std::env::temp_dir().join(format!("sonde-run-file-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("run.json");
        fs::write(&path, "old").unwrap();
        let run = sample::run(3, 2);
        save(&path, &run).unwrap();
        let read: Run = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let left = fs::read_dir(&folder).unwrap().count();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read, run);
        assert_eq!(left, 1);
    }

    #[test]
    fn a_full_disk_is_an_error_and_the_device_stays() {
        let error = save(Path::new("/dev/full"), &sample::run(1, 1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        use std::os::unix::fs::FileTypeExt as _;
        assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());
    }

    #[test]
    fn a_place_is_checked_without_a_trace() {
        let folder = std::env::temp_dir().join(format!("sonde-run-check-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let old = folder.join("old.json");
        fs::write(&old, "old").unwrap();
        let ok = [check(&folder.join("new.json")), check(&old), check(Path::new("/dev/full"))];
        let text = check(Path::new("/nonexistent/run.json")).unwrap_err().to_string();
        let (at_folder, left) = (check(&folder), fs::read_dir(&folder).unwrap().count());
        let kept = fs::read(&old).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(ok.iter().all(Result::is_ok), "{ok:?}");
        assert!(text.contains("/nonexistent/run.json; choose another place"), "{text}");
        assert!(at_folder.is_err());
        assert_eq!((left, kept), (1, b"old".to_vec()));
    }

    #[test]
    fn results_are_not_for_everybody() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("sonde-run-mode-{}.json", std::process::id()));
        save(&path, &sample::run(1, 1)).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        fs::remove_file(&path).unwrap();
        assert_eq!(mode & 0o777 & !0o640, 0, "{mode:o}");
    }

    #[test]
    fn no_such_folder_is_an_error() {
        let error = save(Path::new("/nonexistent/run.json"), &sample::run(1, 1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
