//! The folder of a run: it grows while the run goes on, and is whole after every line.
//!
//! `run.json` holds the run without its trials and measurements, `trials.jsonl` a trial a
//! line, `measurements.jsonl` a finished measurement a line. A last line that
//! a kill or a full disk cut short does not count. Readers warn and leave it out, and it is taken
//! off when the run is taken up again. Nothing that Sonde does can damage more than that: whatever
//! else is missing or unreadable is an error.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sonde_results::bench::{BENCH_SCHEMA_VERSION, BenchRun, Measurement};
use sonde_results::trial::Trial;
use sonde_run::error::{RunError, UnsavedFile};
use sonde_run::output_file::open_lock;
use sonde_run::whole_file;

/// Something was measured, or was to be, that the folder does not take.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot write {}; what was measured before is there: free space, or make it writable, and \
     start the same command again; it goes on from there: {cause}",
    file.display()
)]
pub struct NotSaved {
    file: PathBuf,
    cause: io::Error,
}

impl From<NotSaved> for RunError {
    fn from(error: NotSaved) -> RunError {
        let message = error.to_string();
        RunError::Unsaved(UnsavedFile { file: error.file, message, cause: Some(error.cause) })
    }
}

/// A run's folder, open to be added to. Only one process at a time has it.
pub struct Store {
    folder: PathBuf,
    trials: File,
    measurements: File,
    /// Held while the run is under way; the kernel lets go of it with the process.
    _lock: File,
}

impl Store {
    /// Makes a new run's folder with its head, or takes up one of the same plan; the run
    /// that is returned then holds what has been measured.
    ///
    /// # Errors
    /// A folder that holds another plan's run, or something else; a run that another
    /// process is adding to; anything that the file system refuses.
    pub fn open(folder: &Path, head: BenchRun) -> Result<(Store, BenchRun), RunError> {
        fs::create_dir_all(folder).with_context(|| {
            format!("cannot make the folder {}; choose another with `out`", folder.display())
        })?;
        let head_file = folder.join(HEAD);
        let lock = lock(folder)?;
        let run = if head_file.exists() {
            let before = read(folder)?;
            if before.config.plan_sha256 != head.config.plan_sha256 {
                return Err(RunError::settings(anyhow!(
                    "{} holds a run of another plan ('{}'); choose another folder with `out`, \
                     or remove this one",
                    folder.display(),
                    before.config.title
                )));
            }
            before
        } else {
            let there = fs::read_dir(folder)
                .with_context(|| format!("cannot read {}", folder.display()))?;
            if there.flatten().any(|e| !is_ours(&e.file_name())) {
                return Err(RunError::settings(anyhow!(
                    "{} is not empty and holds no run; choose another folder with `out`",
                    folder.display()
                )));
            }
            whole_file::replace(&head_file, &head).with_context(|| {
                format!(
                    "cannot write {}; free space, or choose another folder with `out`",
                    head_file.display()
                )
            })?;
            head
        };
        let store = Store {
            folder: folder.to_owned(),
            trials: appendable(&folder.join(TRIALS))?,
            measurements: appendable(&folder.join(MEASUREMENTS))?,
            _lock: lock,
        };
        Ok((store, run))
    }

    /// Adds a trial. What is on the disk stays readable whatever happens here.
    pub fn add_trial(&mut self, trial: &Trial) -> Result<(), NotSaved> {
        append(&mut self.trials, trial).map_err(|e| self.not_saved(TRIALS, e))
    }

    /// Adds a finished measurement.
    pub fn add_measurement(&mut self, measurement: &Measurement) -> Result<(), NotSaved> {
        append(&mut self.measurements, measurement).map_err(|e| self.not_saved(MEASUREMENTS, e))
    }

    /// Writes the head anew: the end time, the bed's facts, the caveats.
    pub fn save_head(&self, run: &BenchRun) -> Result<(), NotSaved> {
        let head = BenchRun { trials: Vec::new(), measurements: Vec::new(), ..run.clone() };
        let file = self.folder.join(HEAD);
        whole_file::replace(&file, &head).map_err(|e| self.not_saved(HEAD, e))
    }

    fn not_saved(&self, name: &str, cause: io::Error) -> NotSaved {
        NotSaved { file: self.folder.join(name), cause }
    }
}

/// The files of a run's folder.
pub fn files(folder: &Path) -> [PathBuf; 3] {
    [HEAD, TRIALS, MEASUREMENTS].map(|name| folder.join(name))
}

/// Whether a process is adding to a run, as the kernel says without being asked for the lock: whoever
/// takes it, though for a moment, may keep a writer out.
pub fn is_under_way(folder: &Path) -> bool {
    let Ok(lock) = fs::metadata(folder.join(LOCK)) else { return false };
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    // "1: FLOCK  ADVISORY  WRITE 1234 fd:01:131078 0 EOF": device and inode.
    let inode = lock.ino().to_string();
    let file = |line: &str| line.split_whitespace().nth(5).map(str::to_owned);
    let is = |file: String| file.rsplit(':').next() == Some(&inode);
    locks.lines().filter(|line| line.contains("FLOCK")).filter_map(file).any(is)
}

/// Reads a run's folder, finished or not.
///
/// # Errors
/// A folder without a run; a run of another layout; a damaged line other than a last one that is
/// cut short; trials that are missing.
pub fn read(folder: &Path) -> Result<BenchRun, RunError> {
    Ok(whole_run(folder)?)
}

fn whole_run(folder: &Path) -> Result<BenchRun> {
    // Measurements before trials: a run under way adds a measurement after its trials.
    let mut run = head_and_findings(folder)?;
    let file = folder.join(TRIALS);
    run.trials = lines(&file)?;
    // The writer counts them from 1.
    for (expected, trial) in (1..).zip(&run.trials) {
        if trial.number != expected {
            bail!(
                "{} line {expected} has trial {} instead of trial {expected}: lines are missing \
                 or twice there; {ANEW}",
                file.display(),
                trial.number
            );
        }
    }
    for m in &run.measurements {
        let of_it = |n: u64| {
            let at = usize::try_from(n).ok()?.checked_sub(1)?;
            run.trials.get(at).filter(|t| t.measurement == m.id)
        };
        if let Some(missing) = m.trials.iter().find(|&&n| of_it(n).is_none()) {
            bail!(
                "{} does not have trial {missing}, by which {} was measured ({} lines): it was \
                 cut short; {ANEW}",
                file.display(),
                m.id,
                run.trials.len()
            );
        }
    }
    Ok(run)
}

/// The same without its trials, which are most of it.
///
/// # Errors
/// As [`read`], but for what is wrong with trials.
pub fn read_findings(folder: &Path) -> Result<BenchRun, RunError> {
    Ok(head_and_findings(folder)?)
}

fn head_and_findings(folder: &Path) -> Result<BenchRun> {
    let file = folder.join(HEAD);
    let text = fs::read(&file).with_context(|| {
        format!("{} holds no run of 'sonde bench': cannot read {HEAD}", folder.display())
    })?;
    let mut run: BenchRun = serde_json::from_slice(&text)
        .with_context(|| format!("{} is damaged; {ANEW}", file.display()))?;
    if run.header.schema != BENCH_SCHEMA_VERSION {
        bail!(
            "{} has layout {}, this Sonde reads {BENCH_SCHEMA_VERSION}; use the version that \
             wrote it ({})",
            file.display(),
            run.header.schema,
            run.header.version
        );
    }
    for measurement in lines(&folder.join(MEASUREMENTS))? {
        keep(&mut run.measurements, measurement);
    }
    Ok(run)
}

/// Adds a measurement. It replaces an earlier one of the same name, which was tried again.
pub fn keep(all: &mut Vec<Measurement>, measurement: Measurement) {
    match all.iter_mut().find(|m| m.id == measurement.id) {
        Some(before) => *before = measurement,
        None => all.push(measurement),
    }
}

/// Every whole line of a file that may not be there yet.
fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => {
            return Err(e).with_context(|| {
                format!("cannot read {}; read it as the user who measured", path.display())
            });
        }
    };
    let mut whole: Vec<&[u8]> = text.split(|&b| b == b'\n').collect();
    // What follows the last end of a line: nothing, unless the line was cut short.
    let torn = whole.pop().is_some_and(|rest| !rest.is_empty());
    if torn {
        tracing::warn!(
            "{} line {} was cut short, as by a kill or a full disk: it is left out",
            path.display(),
            whole.len() + 1
        );
    }
    let parse = |(i, line): (usize, &[u8])| {
        serde_json::from_slice(line)
            .with_context(|| format!("{} line {} is damaged; {ANEW}", path.display(), i + 1))
    };
    whole.into_iter().enumerate().map(parse).collect()
}

/// Opens a file to be added to, without a last line that is cut short.
fn appendable(path: &Path) -> Result<File> {
    let open = || -> io::Result<File> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let whole = text.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64)?;
        Ok(file)
    };
    open().with_context(|| {
        format!("cannot add to {}; go on as the user who began the run", path.display())
    })
}

/// One line, by one write; half a line is taken back, so that the next one is whole.
fn append(file: &mut File, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    let end = file.seek(SeekFrom::End(0))?;
    let written = file.write_all(&line).and_then(|()| file.sync_data());
    if written.is_err() {
        let _ = file.set_len(end);
    }
    written
}

/// What a start that was killed may have left before there was a run: the lock, and a head
/// that was not yet whole.
fn is_ours(name: &OsStr) -> bool {
    name == LOCK
        || name.to_str().is_some_and(|n| n.starts_with(".run.json.") && n.ends_with(".tmp"))
}

fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(LOCK);
    let file = open_lock(&path).with_context(|| {
        format!("cannot write {}; choose a folder that is yours with `out`", path.display())
    })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            bail!("another process is adding to {}; wait for it to end", folder.display())
        }
        Err(fs::TryLockError::Error(e)) => Err(e).with_context(|| {
            format!("cannot lock {}; choose a file system that has locks (flock)", path.display())
        }),
    }
}

const HEAD: &str = "run.json";
const TRIALS: &str = "trials.jsonl";
const MEASUREMENTS: &str = "measurements.jsonl";
const LOCK: &str = ".lock";
/// For a file that is not as Sonde wrote it.
const ANEW: &str = "bring it back from a copy, or measure again into another folder";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_folder::TestFolder;

    fn head(plan: &str) -> BenchRun {
        let mut run = BenchRun::default();
        run.header.schema = BENCH_SCHEMA_VERSION;
        run.config.plan_sha256 = plan.into();
        run
    }

    fn trial(number: u64) -> Trial {
        Trial {
            number,
            measurement: "m".into(),
            attempt: 1,
            purpose: "search".into(),
            start_ns: 1,
            offer: sonde_results::trial::Offer::steady(1e6, 1_000_000_000),
            directions: Vec::new(),
            ledger: Vec::new(),
            health: Default::default(),
            invalid: Vec::new(),
        }
    }

    #[test]
    fn a_run_is_taken_up_where_it_was_left_even_in_the_middle_of_a_line() {
        let folder = TestFolder::new("store-resume");
        let (mut store, run) = Store::open(&folder.0, head("p")).unwrap();
        assert!(run.trials.is_empty());
        store.add_trial(&trial(1)).unwrap();
        store.add_trial(&trial(2)).unwrap();
        store.add_measurement(&Measurement { id: "m".into(), ..Default::default() }).unwrap();
        drop(store);
        // A kill in the middle of the third trial's line.
        let mut file = OpenOptions::new().append(true).open(folder.0.join(TRIALS)).unwrap();
        file.write_all(b"{\"number\":3,\"meas").unwrap();
        assert_eq!(read(&folder.0).unwrap().trials.len(), 2);
        let (mut store, run) = Store::open(&folder.0, head("p")).unwrap();
        assert_eq!((run.trials.len(), run.measurements.len()), (2, 1));
        store.add_trial(&trial(3)).unwrap();
        let read = read(&folder.0).unwrap();
        assert_eq!(read.trials.iter().map(|t| t.number).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(read.trials[2], trial(3));
    }

    #[test]
    fn other_plans_other_folders_and_running_runs_are_refused() {
        let folder = TestFolder::new("store-refuse");
        let (store, _) = Store::open(&folder.0, head("p")).unwrap();
        let error = |run| Store::open(&folder.0, run).err().unwrap().to_string();
        assert!(error(head("p")).contains("another process"));
        drop(store);
        assert!(error(head("q")).contains("another plan"));
        fs::remove_file(folder.0.join(HEAD)).unwrap();
        // A start that was killed before it had written the head.
        fs::remove_file(folder.0.join(TRIALS)).unwrap();
        fs::remove_file(folder.0.join(MEASUREMENTS)).unwrap();
        fs::write(folder.0.join(".run.json.77.tmp"), "{\"hea").unwrap();
        drop(Store::open(&folder.0, head("p")).unwrap());
        fs::remove_file(folder.0.join(HEAD)).unwrap();
        assert!(error(head("p")).contains("not empty"));
        assert!(format!("{:#}", read(&folder.0).unwrap_err()).contains("holds no run"));
    }

    #[test]
    fn what_cannot_be_written_is_an_error_of_its_own_and_leaves_whole_lines() {
        let folder = TestFolder::new("store-full");
        let (mut store, _) = Store::open(&folder.0, head("p")).unwrap();
        store.add_trial(&trial(1)).unwrap();
        store.measurements = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let error = store.add_measurement(&Measurement::default()).unwrap_err();
        assert!(error.to_string().contains("start the same command again"), "{error}");
        assert!(error.to_string().contains("No space left"), "{error}");
        let text = error.to_string();
        match RunError::from(error) {
            RunError::Unsaved(unsaved) => {
                assert_eq!(unsaved.file.parent(), Some(folder.0.as_path()));
                assert_eq!(unsaved.to_string(), text);
            }
            other => panic!("{other:?}"),
        }
        drop(store);
        let (_, run) = Store::open(&folder.0, head("p")).unwrap();
        assert_eq!((run.trials.len(), run.measurements.len()), (1, 0));
    }

    #[test]
    fn a_damaged_line_is_named() {
        let folder = TestFolder::new("store-damaged");
        let (mut store, _) = Store::open(&folder.0, head("p")).unwrap();
        store.add_trial(&trial(1)).unwrap();
        store.add_measurement(&Measurement { id: "m".into(), ..Default::default() }).unwrap();
        drop(store);
        let whole = |name| fs::read_to_string(folder.0.join(name)).unwrap();
        let (trials, measurements) = (whole(TRIALS), whole(MEASUREMENTS));
        for (name, lines, damage) in [
            (MEASUREMENTS, &measurements, "nonsense\n"),
            (MEASUREMENTS, &measurements, "{}\n"),
            (TRIALS, &trials, "\0\0\0\0\n"),
            (TRIALS, &trials, "\n"),
            (TRIALS, &trials, &trials[..trials.len() / 2].replace('\n', "")),
        ] {
            for (text, line) in [
                // A damaged last line that has its end was not cut short.
                (format!("{lines}{}\n", damage.trim_end_matches('\n')), 2),
                (format!("{}\n{lines}", damage.trim_end_matches('\n')), 1),
            ] {
                fs::write(folder.0.join(name), text).unwrap();
                let wanted = format!("{} line {line} is damaged", folder.0.join(name).display());
                let error = format!("{:#}", read(&folder.0).unwrap_err());
                assert!(error.contains(&wanted), "{damage:?}: {error}");
                let taken_up = Store::open(&folder.0, head("p")).err().unwrap().to_string();
                assert!(taken_up.contains(&wanted), "{damage:?}: {taken_up}");
            }
            fs::write(folder.0.join(name), lines).unwrap();
            assert_eq!(read(&folder.0).unwrap().trials.len(), 1);
        }
    }

    #[test]
    fn trials_that_are_missing_are_an_error_and_none_is_measured_again_unasked() {
        let folder = TestFolder::new("store-missing");
        let (mut store, _) = Store::open(&folder.0, head("p")).unwrap();
        (1..=3).for_each(|n| store.add_trial(&trial(n)).unwrap());
        let m = Measurement { id: "m".into(), trials: vec![1, 2, 3], ..Default::default() };
        store.add_measurement(&m).unwrap();
        drop(store);
        let file = folder.0.join(TRIALS);
        let all = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = all.split_inclusive('\n').collect();
        let other = all.replace("\"measurement\":\"m\"", "\"measurement\":\"n\"");
        for (text, wanted) in [
            // Cut at the end of a line, in the middle of one, and whole.
            (lines[..2].concat(), "does not have trial 3, by which m was measured (2 lines)"),
            (all[..all.len() - 2].to_owned(), "does not have trial 3"),
            (String::new(), "does not have trial 1"),
            (other, "does not have trial 1"),
            (lines[0].to_owned() + lines[2], "line 2 has trial 3 instead of trial 2"),
            (all.clone() + lines[2], "line 4 has trial 3 instead of trial 4"),
        ] {
            fs::write(&file, text).unwrap();
            let error = read(&folder.0).unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains(TRIALS), "{error}");
            let taken_up = Store::open(&folder.0, head("p")).err().unwrap().to_string();
            assert!(taken_up.contains(wanted), "{taken_up}");
            // A listing of runs does not look at trials.
            assert_eq!(read_findings(&folder.0).unwrap().measurements, std::slice::from_ref(&m));
        }
        // Without its measurement, which a kill leaves so, it is taken up by its trials.
        fs::write(&file, lines[..2].concat()).unwrap();
        fs::remove_file(folder.0.join(MEASUREMENTS)).unwrap();
        assert_eq!(read(&folder.0).unwrap().trials.len(), 2);
    }
}
