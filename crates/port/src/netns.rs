//! Network namespaces by the names that `ip netns` knows.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::{PortError, sys};

/// Runs `work` on a thread of its own in the namespace `name`, or in the caller's (`None`),
/// and waits for it: the sockets that it opens and the interfaces that it names are there.
///
/// # Errors
/// No such namespace, or not permitted to enter it.
pub fn inside<T: Send>(
    name: Option<&str>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, PortError> {
    let Some(name) = name else { return Ok(work()) };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| enter(name).map(|()| work()));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Moves the calling thread into the namespace `name` for the rest of its life.
///
/// # Errors
/// As [`inside`].
pub fn enter(name: &str) -> Result<(), PortError> {
    let error = |e| sys::error(format!("enter the network namespace '{name}'"), e, "CAP_SYS_ADMIN");
    let file = File::open(format!("{DIRECTORY}/{name}")).map_err(error)?;
    // SAFETY: integers only; the descriptor is open.
    sys::check(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) })
        .map(drop)
        .map_err(error)
}

/// Where `ip netns` keeps its names.
const DIRECTORY: &str = "/var/run/netns";
