//! Processes that a benchmark starts, and that end with it.

use std::fs;
use std::io::{Read as _, stdin};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use sonde_lab::Lab;

/// A process that is asked to end when dropped.
pub struct ChildGuard(pub Child);

impl ChildGuard {
    /// Processor time so far, all threads that live, s.
    pub fn cpu_seconds(&self) -> f64 {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.0.id())) else { return 0.0 };
        let nanos = |task: fs::DirEntry| -> Option<u64> {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse().ok()
        };
        tasks.flatten().filter_map(nanos).sum::<u64>() as f64 / 1e9
    }

    /// Asks it to end, and waits.
    pub fn finish(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.0.try_wait()? {
            return Ok(status);
        }
        Command::new("kill").args(["-INT", &self.0.id().to_string()]).status()?;
        Ok(self.0.wait()?)
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

/// A process that removes the labs of this one when this one has ended, however that happens: a signal
/// runs no destructors. It waits for the end of its standard input, which this process holds.
pub struct Sweeper(#[expect(dead_code, reason = "held")] Child);

impl Sweeper {
    pub fn start() -> Result<Sweeper> {
        let me = std::env::current_exe()?;
        let mut command = Command::new(me);
        command.args(["sweep", &std::process::id().to_string()]);
        // Ctrl-C goes to all processes of a group, and it has to outlast this one.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Sweeper(command.spawn().context("cannot start the process that tidies up")?))
    }
}

/// What that process does, for the labs of `pid`.
pub fn sweep(pid: u32) -> Result<()> {
    stdin().read_to_end(&mut Vec::new())?;
    Lab::sweep_after(pid, ENDING);
    Ok(())
}

/// Between closing its files and its end a process frees its memory.
const ENDING: Duration = Duration::from_secs(60);
