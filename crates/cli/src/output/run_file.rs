//! The run file: one JSON object, whole or not there at all.

use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Saves `run` at `path`. It is written beside it first and renamed, so that a reader
/// never sees half a file and a full disk leaves the old one. What is not an ordinary
/// file (a pipe, a device) is written to directly. `-` is standard output.
pub fn save(path: &Path, run: &impl Serialize) -> io::Result<()> {
    if path == Path::new("-") {
        return write(io::stdout().lock(), run);
    }
    if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        return write(File::options().write(true).open(path)?, run);
    }
    let temporary = beside(path);
    let saved = File::create(&temporary)
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
    fn no_such_folder_is_an_error() {
        let error = save(Path::new("/nonexistent/run.json"), &sample::run(1, 1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
