//! Standard output and standard error, for every command.
//!
//! A reader may leave, a disk may fill, a terminal may hang up: none of these may end a
//! measurement, let alone by a panic, as `println!` would. A failed write is remembered
//! here; `main` turns it into the exit code.

use std::borrow::Cow;
use std::fmt::Arguments;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::{Mutex, OnceLock, PoisonError};

use sonde_results::plain_text::is_unseen;
use sonde_run::running::Stop;
use sonde_sys::syscall::poll_one;

use crate::log::{self, Level};

/// Writes a line to standard output.
#[macro_export]
macro_rules! outln {
    ($($arg:tt)*) => { $crate::console::line(::std::format_args!($($arg)*)) };
}

/// Writes a message to standard error: its text as it is, or an object with `--log-format json`.
/// The level comes first: `errln!(WARN, "...")`.
#[macro_export]
macro_rules! errln {
    ($level:ident, $($arg:tt)*) => {
        $crate::console::message(
            "",
            $crate::log::Level::$level,
            ::std::module_path!(),
            &::std::format!($($arg)*),
        )
    };
}

/// The same, with "sonde: " before the text; an object has no lead.
#[macro_export]
macro_rules! sonde_errln {
    ($level:ident, $($arg:tt)*) => {
        $crate::console::message(
            $crate::log::LEAD,
            $crate::log::Level::$level,
            ::std::module_path!(),
            &::std::format!($($arg)*),
        )
    };
}

/// See [`outln!`].
pub fn line(text: Arguments<'_>) {
    print(&format!("{text}\n"));
}

/// `text` of which a terminal obeys nothing but line feeds, tabs and colours (SGR): names and reasons from
/// elsewhere may be in it. Marks of direction stay where a program may be the reader.
fn for_people(text: &str, is_terminal: bool) -> Cow<'_, str> {
    let steers = |c: char| match c {
        '\n' | '\t' => false,
        c => c.is_control() || (is_terminal && is_unseen(c)),
    };
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut seen = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let colour = colour_at(rest);
        let length = if colour > 0 { colour } else { c.len_utf8() };
        match colour == 0 && steers(c) {
            true => seen.push(char::REPLACEMENT_CHARACTER),
            false => seen.push_str(&rest[..length]),
        }
        rest = &rest[length..];
    }
    Cow::Owned(seen)
}

/// The length of the colour that `text` begins with, `ESC [ ... m`; 0: with none.
fn colour_at(text: &str) -> usize {
    let Some(inner) = text.strip_prefix("\x1b[") else { return 0 };
    let figures = inner.bytes().take_while(|b| b.is_ascii_digit() || *b == b';').count();
    if inner[figures..].starts_with('m') { figures + 3 } else { 0 }
}

/// See [`errln!`]. A failure cannot be reported anywhere.
pub fn message(lead: &str, level: Level, module: &str, text: &str) {
    let _ = log::write(lead, level, module, text);
}

/// Whether a capture can come by standard input, where `sources` name it.
///
/// # Errors
/// It is a terminal, which would be waited for.
pub fn check_input(sources: &[String]) -> anyhow::Result<()> {
    let waits = sources.iter().any(|source| source == "-") && io::stdin().is_terminal();
    anyhow::ensure!(
        !waits,
        "standard input is a terminal; pipe a capture into it: tcpdump -w - | sonde ..."
    );
    Ok(())
}

/// Writes `text` to standard output.
pub fn print(text: &str) {
    let is_terminal = *IS_TERMINAL.get_or_init(|| io::stdout().is_terminal());
    // This writer never fails.
    let _ = out().write_all(for_people(text, is_terminal).as_bytes());
}

/// Standard output as a writer that never fails: its first failure is remembered, and
/// nothing is written after it, so that no output is missing in between.
pub fn out() -> RememberingStdout {
    RememberingStdout(())
}

/// Whether nobody can read standard output any more: a closed pipe, a terminal that has
/// hung up.
pub fn reader_has_gone() -> bool {
    FAILURE.get().is_some_and(has_gone)
}

/// Why standard output is incomplete, unless its reader left of its own will.
pub fn failure() -> Option<&'static io::Error> {
    FAILURE.get().filter(|e| !has_gone(e))
}

/// See [`out`].
#[derive(Debug)]
pub struct RememberingStdout(());

impl Write for RememberingStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if FAILURE.get().is_none()
            && let Err(e) = InterruptibleStdout.write_all(bytes)
        {
            let _ = FAILURE.set(e);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Standard output, unbuffered. It waits for a reader that has stopped reading until
/// [an end that waits for nothing](Stop::is_urgent) is asked for.
#[derive(Debug)]
pub struct InterruptibleStdout;

impl Write for InterruptibleStdout {
    /// Writes up to a failure: what was written before it counts.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        with_stdout(|file| {
            let mut done = 0;
            while done < bytes.len() {
                match write_part(file, &bytes[done..]) {
                    Err(e) if done == 0 => return Err(e),
                    Ok(0) | Err(_) => break,
                    Ok(n) => done += n,
                }
            }
            Ok(done)
        })
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        with_stdout(|file| {
            while !bytes.is_empty() {
                match write_part(file, bytes)? {
                    0 => return Err(ErrorKind::WriteZero.into()),
                    n => bytes = &bytes[n..],
                }
            }
            Ok(())
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One writer at a time, so that no text is in the midst of another.
fn with_stdout<T>(write: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    let mut file = STDOUT.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut *file {
        Some(file) => write(file),
        none => write(none.insert(File::from(io::stdout().as_fd().try_clone_to_owned()?))),
    }
}

/// Writes so much as a pipe that is ready takes without waiting.
fn write_part(file: &mut File, bytes: &[u8]) -> io::Result<usize> {
    let part = &bytes[..bytes.len().min(libc::PIPE_BUF)];
    loop {
        while poll_one(file.as_raw_fd(), libc::POLLOUT, LOOK_NS)? == 0 {
            if STOP.get().is_some_and(Stop::is_urgent) {
                let why = "its reader has stopped reading";
                return Err(io::Error::new(ErrorKind::TimedOut, why));
            }
        }
        match file.write(part) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            written => return written,
        }
    }
}

/// `stop` ends the wait for whoever reads standard output.
pub fn wait_until(stop: &Stop) {
    let _ = STOP.set(stop.clone());
}

/// What signals ask; where they kill this process, nothing ever does.
pub fn stop() -> Stop {
    STOP.get().cloned().unwrap_or_default()
}

/// Whether standard output is one.
static IS_TERMINAL: OnceLock<bool> = OnceLock::new();
/// Opened by the first who writes.
static STDOUT: Mutex<Option<File>> = Mutex::new(None);
/// Signals ask it. `None`: they kill this process.
static STOP: OnceLock<Stop> = OnceLock::new();
/// How often a writer that waits looks whether it still may.
const LOOK_NS: i64 = 100_000_000;

/// The first write to standard output that failed.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// EIO is what a terminal answers that has hung up.
fn has_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe || error.raw_os_error() == Some(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_leaves_is_no_failure_and_a_full_disk_is() {
        let of = io::Error::from_raw_os_error;
        assert!(has_gone(&of(libc::EPIPE)) && has_gone(&of(libc::EIO)));
        assert!(!has_gone(&of(libc::ENOSPC)));
    }

    #[test]
    fn a_terminal_obeys_nothing_that_comes_from_elsewhere() {
        let own = "\x1b[1;31mbad\x1b[0m\tgrün\n";
        assert!(matches!(for_people(own, true), Cow::Borrowed(_)) || for_people(own, true) == own);
        let foreign = "a\x1b]0;pwn\x07b\x1b[2Jc\u{9b}d\re\u{202e}f";
        let seen = for_people(foreign, true);
        assert_eq!(seen, "a\u{fffd}]0;pwn\u{fffd}b\u{fffd}[2Jc\u{fffd}d\u{fffd}e\u{fffd}f");
        // A program reads the name as it is.
        assert!(for_people(foreign, false).ends_with("e\u{202e}f"));
    }
}
