//! Files of results that are whole, or not there at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Saves `run` at `path`. It is written beside it first and renamed, so that a reader
/// never sees half a file and a full disk leaves the old one. What is not an ordinary
/// file (a pipe, a device) is written to directly.
pub fn save(path: &Path, run: &impl Serialize) -> io::Result<()> {
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

/// Opens a file for results, made or emptied. They hold people's addresses: a new file is
/// readable for its owner and group only.
///
/// # Errors
/// As [`File::create`].
pub fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(0o640).open(path)
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
pub fn create_next(path: &Path, index: u32) -> Option<(File, u32)> {
    for next in index + 1.. {
        let name = numbered(path, next);
        match File::options().write(true).create_new(true).mode(0o640).open(&name) {
            Ok(file) => return Some((file, next)),
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
        save(&path, &run).unwrap();
        let read: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let left = fs::read_dir(&folder).unwrap().count();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read, run);
        assert_eq!(left, 1);
    }

    #[test]
    fn a_full_disk_is_an_error_and_the_device_stays() {
        let error = save(Path::new("/dev/full"), &json!({})).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        use std::os::unix::fs::FileTypeExt as _;
        assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());
    }

    #[test]
    fn results_are_not_for_everybody() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("sonde-run-mode-{}.json", std::process::id()));
        save(&path, &json!({})).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        fs::remove_file(&path).unwrap();
        assert_eq!(mode & 0o777 & !0o640, 0, "{mode:o}");
    }

    #[test]
    fn no_such_folder_is_an_error() {
        let error = save(Path::new("/nonexistent/run.json"), &json!({})).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
