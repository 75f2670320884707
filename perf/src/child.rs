//! Processes that a benchmark starts, and that end with it.

use std::fs;
use std::process::{Child, Command, ExitStatus};

use anyhow::Result;

/// A process that is asked to end when dropped.
pub struct Ended(pub Child);

impl Ended {
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

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}
