//! Files of results that are whole, or not there at all.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::output_file::{OutputFile, nonblocking, open_lock, unlinked};
use crate::running::Stop;

/// Saves `run` at `path`. It is written beside it first and renamed, so that a reader
/// never sees half a file and a full disk leaves the old one. What is not an ordinary
/// file (a pipe, a device) is written to directly.
///
/// # Errors
/// What the file system refuses; as [`OutputFile::open`].
pub fn save(path: &Path, run: &impl Serialize, stop: &Stop) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        return write(OutputFile::open(path, stop)?, run);
    }
    replace(path, run)
}

/// Makes or replaces the file at `path` with `run`, as [`save`] does, whatever stands there.
///
/// # Errors
/// What the file system refuses.
pub fn replace(path: &Path, run: &impl Serialize) -> io::Result<()> {
    let temporary = beside(path);
    let saved = unlinked()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o640)
        .open(&temporary)
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

/// Opens a file for results, made or emptied. They hold people's addresses: a new file is
/// readable for its owner and group only. While it is open, no other process of Sonde writes to
/// it: their records would be spliced.
///
/// # Errors
/// As [`OutputFile::open`]; another process writes to it, and it was left as it is.
pub fn create(path: &Path, stop: &Stop) -> io::Result<OutputFile> {
    let output = OutputFile::open(path, stop)?;
    let file = output.file();
    // Pipes and devices are shared at will.
    if output.is_regular() {
        lock(file)?;
        if is_locked(&lock_of(path)) {
            return Err(in_use());
        }
        file.set_len(0)?;
    }
    Ok(output)
}

/// The right to replace a file again and again, as [`save`] does. It is that of one process, until
/// this is dropped.
#[derive(Debug)]
pub struct WriteLock {
    path: PathBuf,
    /// Held for as long as it is open.
    _file: File,
}

impl WriteLock {
    /// Of the file at `path`, which may not be there yet. Nothing that is there is touched.
    /// `None`: it is a pipe or a device.
    ///
    /// # Errors
    /// What [`save`] would fail with; another process writes to it.
    pub fn take(path: &Path) -> io::Result<Option<WriteLock>> {
        match fs::metadata(path) {
            Ok(about) if about.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(about) if !about.is_file() => return Ok(None),
            _ => {}
        }
        // A lock on the file itself would go with it when it is replaced.
        let lock_path = lock_of(path);
        loop {
            let file = open_lock(&lock_path)?;
            lock(&file)?;
            // Whoever had it before may have removed it meanwhile.
            if fs::metadata(&lock_path).is_ok_and(|there| is_same(&there, &file)) {
                let taken = WriteLock { path: lock_path, _file: file };
                return if is_locked(path) { Err(in_use()) } else { Ok(Some(taken)) };
            }
        }
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        // One that stays behind holds up nobody.
        let _ = fs::remove_file(&self.path);
    }
}

/// The file that [`WriteLock`] holds for `path`.
pub(crate) fn lock_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.lock"))
}

/// Where a file of flows is written that cannot be read before its end.
pub(crate) fn part_of(path: &Path) -> PathBuf {
    let mut part = path.to_owned().into_os_string();
    part.push(".part");
    part.into()
}

/// Keeps other processes from writing to a file, until it is closed.
fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(in_use()),
        // The file system has no locks: nobody has one either.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// Whether another process holds the lock of the file at `path`.
fn is_locked(path: &Path) -> bool {
    let Ok(file) = nonblocking().read(true).open(path) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

fn is_same(there: &fs::Metadata, file: &File) -> bool {
    file.metadata().is_ok_and(|held| (held.dev(), held.ino()) == (there.dev(), there.ino()))
}

fn in_use() -> io::Error {
    let why = "another process is writing to it";
    io::Error::new(io::ErrorKind::ResourceBusy, why)
}

/// The name of a file of a run by its index, from 1: the first as it was given, then
/// NAME-0002.EXT.
pub fn numbered(path: &Path, index: u32) -> PathBuf {
    if index == 1 {
        return path.to_owned();
    }
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push(format!("-{index:04}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Opens the first of a run's files after the one at `index` that does not exist yet.
/// Returns it with its index. `None`: it cannot be opened, which is logged; the file before
/// it goes on.
pub fn create_next(path: &Path, index: u32) -> Option<(OutputFile, u32)> {
    for next in index + 1.. {
        let name = numbered(path, next);
        match File::options().write(true).create_new(true).mode(0o640).open(&name) {
            Ok(file) => {
                // It is new: nobody else can have the lock.
                let _ = lock(&file);
                return Some((file.into(), next));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                tracing::warn!("{}: {error}; the file before it goes on", name.display());
                return None;
            }
        }
    }
    None
}

/// Writes `run` as JSON with a final newline.
pub fn write(out: impl Write, run: &impl Serialize) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, out);
    serde_json::to_writer(&mut out, run)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Where a file is written that is to be renamed to `path`: in the same folder.
pub fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn what_is_saved_reads_back_and_replaces_the_old() {
        let folder = std::env::temp_dir().join(format!("sonde-run-file-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("run.json");
        fs::write(&path, "old").unwrap();
        let run = json!({ "records": [1, 2, 3] });
        replace(&path, &run).unwrap();
        let read: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let left = fs::read_dir(&folder).unwrap().count();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read, run);
        assert_eq!(left, 1);
    }

    #[test]
    fn nothing_is_written_through_a_link_beside_a_file() {
        use std::os::unix::fs::symlink;
        let folder = std::env::temp_dir().join(format!("sonde-run-links-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, kept) = (folder.join("run.json"), folder.join("kept"));
        fs::write(&kept, "kept").unwrap();
        symlink(&kept, beside(&path)).unwrap();
        symlink(&kept, lock_of(&path)).unwrap();
        let refused = [replace(&path, &json!({})).is_err(), WriteLock::take(&path).is_err()];
        let after = fs::read_to_string(&kept).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((refused, after.as_str()), ([true, true], "kept"));
    }

    #[test]
    fn a_full_disk_is_an_error_and_the_device_stays() {
        let error = save(Path::new("/dev/full"), &json!({}), &Stop::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        use std::os::unix::fs::FileTypeExt as _;
        assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());
    }

    #[test]
    fn results_are_not_for_everybody() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("sonde-run-mode-{}.json", std::process::id()));
        replace(&path, &json!({})).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        fs::remove_file(&path).unwrap();
        assert_eq!(mode & 0o777 & !0o640, 0, "{mode:o}");
    }

    #[test]
    fn a_file_has_one_writer_whether_it_is_appended_to_or_replaced() {
        let folder = std::env::temp_dir().join(format!("sonde-writers-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("k.jsonl");
        let kind = |error: io::Error| error.kind();
        let create = |path: &Path| create(path, &Stop::default());
        let mut first = create(&path).unwrap();
        first.write_all(b"one\n").unwrap();
        let refused = [create(&path).unwrap_err(), WriteLock::take(&path).unwrap_err()].map(kind);
        let kept = fs::read(&path).unwrap();
        drop(first);
        let taken = WriteLock::take(&path).unwrap();
        replace(&path, &json!({})).unwrap();
        let replaced = [create(&path).unwrap_err(), WriteLock::take(&path).unwrap_err()].map(kind);
        drop(taken);
        // What a killed process leaves is no lock.
        fs::write(lock_of(&path), "").unwrap();
        let again = create(&path).is_ok();
        let last = WriteLock::take(&path).unwrap();
        drop(last);
        let left = fs::read_dir(&folder).unwrap().count();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(
            (refused, replaced),
            ([io::ErrorKind::ResourceBusy; 2], [io::ErrorKind::ResourceBusy; 2])
        );
        assert_eq!((kept, again, left), (b"one\n".to_vec(), true, 1));
    }

    #[test]
    fn pipes_and_devices_are_shared_and_folders_are_no_files() {
        let null = Path::new("/dev/null");
        let stop = Stop::default();
        let both = (create(null, &stop).unwrap(), create(null, &stop).unwrap());
        drop(both);
        assert!(WriteLock::take(null).unwrap().is_none());
        let folder = WriteLock::take(&std::env::temp_dir()).unwrap_err();
        assert_eq!(folder.kind(), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn no_such_folder_is_an_error() {
        let error =
            save(Path::new("/nonexistent/run.json"), &json!({}), &Stop::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
