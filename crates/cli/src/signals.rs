//! Ctrl-C, SIGTERM and a hang-up, as a request to end.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use sonde_run::confined::give_up;
use sonde_run::running::{Context, Invocation, Stop};

use crate::console::{self, InterruptibleStdout};

/// From now on they no longer kill the process, so that it can finish in order: the first asks
/// for the end, a second one for an end that waits for nothing. A hang-up that the starter has
/// the process ignore (nohup) stays ignored.
///
/// # Errors
/// Signals that cannot be caught, no thread to be had.
pub fn stop() -> Result<Stop> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let hang_up = (!is_ignored(&status, SIGHUP)).then_some(SIGHUP);
    catch([SIGINT, SIGTERM].into_iter().chain(hang_up), |_| false)
}

/// From now on a file that reaches the limit of its size (`ulimit -f`, `LimitFSIZE=`) fails as one on
/// a full disk does. Without this the kernel ends the process. What is started from here dies of it
/// as usual.
pub fn outlive_file_limit() {
    // Where it cannot be caught, all is as it was.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// The same for a daemon: a hang-up asks it to read its configuration again, by `reload`.
///
/// # Errors
/// As [`stop`].
pub fn daemon_stop(reload: impl Fn() + Send + 'static) -> Result<Stop> {
    catch([SIGINT, SIGTERM, SIGHUP].into_iter(), move |signal| {
        if signal == SIGHUP {
            reload();
        }
        signal == SIGHUP
    })
}

/// `other`: whether a signal means something else than the end.
fn catch(
    signals: impl Iterator<Item = i32>,
    other: impl Fn(i32) -> bool + Send + 'static,
) -> Result<Stop> {
    let mut signals = Signals::new(signals).context("cannot catch signals")?;
    let stop = Stop::default();
    console::wait_until(&stop);
    let asked = stop.clone();
    std::thread::Builder::new().name("sonde-signals".into()).spawn(move || {
        for signal in signals.forever() {
            match () {
                () if other(signal) => {}
                () if asked.is_asked() => asked.hurry(),
                () => asked.ask(),
            }
        }
    })?;
    Ok(stop)
}

/// What an instrument is given by a command: signals end it, `-` is standard output.
///
/// # Errors
/// As [`stop`].
pub fn context() -> Result<Context> {
    let stdout = || Box::new(InterruptibleStdout) as Box<dyn Write + Send>;
    Ok(Context { stop: stop()?, stdout: Some(stdout), when_open: None, invocation: invocation() })
}

/// As what this process was started.
pub fn invocation() -> Invocation {
    Invocation { command: command_line(), sonde: std::env::current_exe().ok() }
}

/// The command line of this process, for heads of runs and live views. Names of files are octets:
/// what is no UTF-8 in them is shown as U+FFFD. `std::env::args` would panic.
pub fn command_line() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// The same for a command that runs one instrument for long, and that strangers can reach: it
/// gives up what it does not need once all is open. It goes on to write to `writes`.
///
/// # Errors
/// As [`stop`].
pub fn confined_context(writes: Vec<std::path::PathBuf>) -> Result<Context> {
    let when_open =
        Arc::new(move |uses: &[_], more: &[_]| give_up(uses, &[writes.as_slice(), more].concat()));
    Ok(Context { when_open: Some(when_open), ..context()? })
}

/// Whether `/proc/PID/status` says that the process ignores `signal`: its line `SigIgn` is a
/// mask of signals, hexadecimal, whose lowest bit is signal 1.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_hang_up_is_found_in_the_mask() {
        let of = |mask: &str| format!("Name:\tsonde\nSigIgn:\t{mask}\nSigCgt:\t0000000000000001\n");
        assert!(is_ignored(&of("0000000000001001"), SIGHUP));
        assert!(!is_ignored(&of("0000000000001000"), SIGHUP));
        assert!(is_ignored(&of("0000000000000002"), SIGINT));
        assert!(!is_ignored("", SIGHUP));
    }
}
