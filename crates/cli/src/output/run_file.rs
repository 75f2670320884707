//! The run file: one JSON object.

use anyhow::Context as _;
use serde::Serialize;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use sonde_run::whole_file::{self, WriteLock};

use crate::console;

/// Saves `run` at `path`, as [`whole_file::save`] does; `-` is standard output. Signals end the wait
/// for the reader of a pipe.
///
/// # Errors
/// What the file system refuses; there was no reader.
fn save(path: &Path, run: &impl Serialize) -> io::Result<()> {
    if path == Path::new("-") {
        print(run);
        return Ok(());
    }
    whole_file::save(path, run, &console::stop())
}

/// Saves `run`, if there is a path, and shows its summary by `show`: before it is saved to a pipe,
/// whose reader may have to be waited for. What was not saved, and why.
pub fn save_and_show(
    path: Option<&Path>,
    run: &impl Serialize,
    show: impl FnOnce(),
) -> Option<String> {
    let save = || {
        let path = path?;
        let error = save(path, run).err()?;
        Some(format!("{}: {error}", path.display()))
    };
    if path.is_some_and(|path| path != Path::new("-") && !replaces(path)) {
        show();
        return save();
    }
    let unsaved = save();
    show();
    unsaved
}

/// The right to save a run at `path`, which is this process's until it is dropped: to be asked for
/// before hours are spent on the run. Nothing that is there is touched.
///
/// # Errors
/// What saving would fail with; another process writes to it.
pub fn claim(path: Option<&Path>) -> anyhow::Result<Option<WriteLock>> {
    let Some(path) = path.filter(|path| *path != Path::new("-")) else { return Ok(None) };
    WriteLock::take(path)
        .with_context(|| format!("cannot write {}; choose another path", path.display()))
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
    /// into this. A failure is reported at the end, by which time there may be room again.
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

/// Prints `run` on standard output.
pub fn print(run: &impl Serialize) {
    // The console keeps its failures for the exit code; types of keys that are strings can
    // always be written.
    let _ = whole_file::write(console::out(), run);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_claimed_without_a_trace() {
        let folder = std::env::temp_dir().join(format!("sonde-run-claim-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let old = folder.join("old.json");
        fs::write(&old, "old").unwrap();
        let claim = |path: &Path| claim(Some(path)).map(drop);
        let ok = [claim(&folder.join("new.json")), claim(&old), claim(Path::new("/dev/full"))];
        let text = claim(Path::new("/nonexistent/run.json")).unwrap_err().to_string();
        let (at_folder, left) = (claim(&folder), fs::read_dir(&folder).unwrap().count());
        let kept = fs::read(&old).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(ok.iter().all(Result::is_ok), "{ok:?}");
        assert!(text.contains("/nonexistent/run.json; choose another path"), "{text}");
        assert!(at_folder.is_err());
        assert_eq!((left, kept), (1, b"old".to_vec()));
    }
}
