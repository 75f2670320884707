//! Files, pipes and devices that results are written to. Nothing here blocks for good: an end that
//! is asked for also ends the wait for the reader of a pipe.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use sonde_sys::syscall::poll_one;

use crate::error::RunError;
use crate::running::Stop;

/// An output that is open for writing, by descriptors that do not block.
pub struct OutputFile {
    file: File,
    stop: Stop,
}

impl OutputFile {
    /// Opens `path`, made where nothing is, and empties nothing. A pipe without a reader is waited
    /// for, which is logged. An end that is asked for meanwhile ends the wait. Where one was asked
    /// for before, an urgent one does.
    ///
    /// # Errors
    /// As [`File::create`]. [`io::ErrorKind::Interrupted`]: the end was asked for before there was a
    /// reader.
    pub fn open(path: &Path, stop: &Stop) -> io::Result<OutputFile> {
        let was_asked = stop.is_asked();
        let mut said = false;
        loop {
            // With O_CREAT the kernel refuses pipes of others in folders as /tmp.
            let is_there = fs::metadata(path).is_ok_and(|about| !about.is_file());
            let mut options = nonblocking();
            options.write(true).create(!is_there).truncate(false).mode(0o640);
            match options.open(path) {
                Err(e) if e.raw_os_error() == Some(libc::ENXIO) && is_pipe(path) => {}
                opened => return opened.map(|file| OutputFile { file, stop: stop.clone() }),
            }
            if !said {
                tracing::info!(
                    "{}: this pipe has no reader yet, and is waited for; Ctrl-C ends the wait",
                    path.display()
                );
                said = true;
            }
            let is_over = if was_asked { stop.is_urgent() } else { stop.is_asked() };
            if is_over {
                let why = "interrupted before the pipe had a reader; start one, and run again";
                return Err(io::Error::new(io::ErrorKind::Interrupted, why));
            }
            match was_asked {
                true => std::thread::sleep(LOOK),
                false => {
                    stop.wait(LOOK);
                }
            }
        }
    }

    /// The file, pipe or device itself.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether it is an ordinary file, and no pipe or device.
    pub fn is_regular(&self) -> bool {
        self.file.metadata().is_ok_and(|about| about.is_file())
    }
}

impl fmt::Debug for OutputFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputFile").field("file", &self.file).finish_non_exhaustive()
    }
}

/// A file that was opened otherwise, and is no pipe.
impl From<File> for OutputFile {
    fn from(file: File) -> OutputFile {
        OutputFile { file, stop: Stop::default() }
    }
}

impl Write for OutputFile {
    /// Waits for room in a pipe until an urgent end is asked for.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.file.write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let look = i64::try_from(LOOK.as_nanos()).unwrap_or(i64::MAX);
                    if poll_one(self.file.as_raw_fd(), libc::POLLOUT, look)? == 0
                        && self.stop.is_urgent()
                    {
                        let why = "its reader has stopped reading";
                        return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                    }
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// That the output `path` cannot be opened, as the failure of a start.
pub(crate) fn refused(path: &Path, error: io::Error) -> RunError {
    if error.kind() == io::ErrorKind::Interrupted {
        return RunError::Interrupted(anyhow!("{}: {error}", path.display()));
    }
    let what = format!("cannot write {}; choose another path", path.display());
    RunError::Host(anyhow::Error::new(error).context(what))
}

/// Opens the file of a lock, made where nothing is; what is in it stays.
///
/// # Errors
/// As [`File::create`]; it is a pipe or device, which may block or be shared, or a link.
pub fn open_lock(path: &Path) -> io::Result<File> {
    let other = || {
        let why = format!("{} is no ordinary file; remove it", path.display());
        io::Error::new(io::ErrorKind::InvalidInput, why)
    };
    let opened = unlinked().write(true).create(true).truncate(false).mode(0o644).open(path);
    let file = match opened {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENXIO | libc::ELOOP)) => {
            return Err(other());
        }
        // Another user's, which can be locked though not written to.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            unlinked().read(true).open(path).map_err(|_| e)?
        }
        opened => opened?,
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(other()) }
}

/// Options for opening what may be a pipe: open(2) then does not wait for its other end.
pub(crate) fn nonblocking() -> fs::OpenOptions {
    let mut options = File::options();
    options.custom_flags(libc::O_NONBLOCK);
    options
}

/// The same for files beside those that a user names: a link in their place, perhaps made by another
/// user of the folder, is an error and is not followed.
pub(crate) fn unlinked() -> fs::OpenOptions {
    let mut options = File::options();
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
    options
}

fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|about| about.file_type().is_fifo())
}

/// Between two looks whether a pipe has a reader or room.
const LOOK: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    struct Pipe(PathBuf);

    impl Pipe {
        fn new(name: &str) -> Pipe {
            let name = format!("sonde-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
            Pipe(path)
        }
    }

    impl Drop for Pipe {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_pipe_waits_for_its_reader_and_a_stop_ends_the_wait() {
        let pipe = Pipe::new("waits");
        let stop = Stop::default();
        let interrupted = std::thread::scope(|s| {
            let opening = s.spawn(|| OutputFile::open(&pipe.0, &stop).map(drop));
            stop.ask();
            // It may have begun only after that.
            stop.hurry();
            opening.join().unwrap()
        });
        let again = OutputFile::open(&pipe.0, &stop).map(drop);
        let (path, asked) = (pipe.0.clone(), Stop::default());
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            File::open(path).unwrap().read_to_string(&mut text).unwrap();
            text
        });
        let mut out = OutputFile::open(&pipe.0, &asked).unwrap();
        // More than a pipe holds.
        let text = "x".repeat(1 << 20);
        out.write_all(text.as_bytes()).unwrap();
        drop(out);
        assert_eq!(reader.join().unwrap().len(), text.len());
        for error in [interrupted, again].map(Result::unwrap_err) {
            assert_eq!(error.kind(), io::ErrorKind::Interrupted, "{error}");
            assert!(matches!(refused(&pipe.0, error), RunError::Interrupted(_)));
        }
    }

    #[test]
    fn a_pipe_that_nobody_reads_any_more_holds_up_until_an_urgent_end() {
        let pipe = Pipe::new("full");
        let _reader = nonblocking().read(true).open(&pipe.0).unwrap();
        let stop = Stop::default();
        let mut out = OutputFile::open(&pipe.0, &stop).unwrap();
        stop.hurry();
        let error = out.write_all(&vec![0; 1 << 21]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_lock_is_an_ordinary_file() {
        let pipe = Pipe::new("lock");
        let refused = open_lock(&pipe.0).unwrap_err();
        assert!(refused.to_string().contains("no ordinary file"), "{refused}");
        let reader = nonblocking().read(true).open(&pipe.0).unwrap();
        assert!(open_lock(&pipe.0).is_err());
        drop(reader);
    }
}
