//! Network namespaces by the names that `ip netns` knows.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt as _;

use crate::{SysError, syscall};

/// Runs `work` on a thread of its own in the namespace `name`, or in the caller's (`None`), and
/// waits for it. The sockets that it opens and the interfaces that it names are there.
///
/// # Errors
/// No such namespace, or not permitted to enter it.
pub fn inside<T: Send>(name: Option<&str>, work: impl FnOnce() -> T + Send) -> Result<T, SysError> {
    let Some(name) = name else { return Ok(work()) };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| enter(name).map(|()| work()));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Whether `name` can be a namespace's: neither empty nor a path, nor hidden. Others would
/// lead out of the folder of namespaces, wherever they came from.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('/') && !name.starts_with('.')
}

/// Moves the calling thread into the namespace `name` for the rest of its life.
///
/// # Errors
/// As [`inside`]; what [`is_name`] refuses.
pub fn enter(name: &str) -> Result<(), SysError> {
    if !is_name(name) {
        return Err(SysError::NamespaceName(name.to_owned()));
    }
    let error =
        |e| syscall::error(format!("enter the network namespace '{name}'"), e, "CAP_SYS_ADMIN");
    let file = File::open(format!("{DIRECTORY}/{name}")).map_err(error)?;
    // SAFETY: integers only; the descriptor is open.
    syscall::check(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) })
        .map(drop)
        .map_err(error)
}

/// Moves the calling thread into a new namespace, which ends with its last thread and socket.
///
/// # Errors
/// Not permitted (CAP_SYS_ADMIN).
pub fn enter_new() -> Result<(), SysError> {
    // SAFETY: integers only; affects this thread alone.
    syscall::check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
        .map(drop)
        .map_err(|e| syscall::error("make a network namespace", e, "CAP_SYS_ADMIN"))
}

/// What identifies a namespace, whatever it is called: that of the calling thread.
///
/// # Errors
/// Those of /proc.
pub fn identity() -> io::Result<(u64, u64)> {
    let own = std::fs::metadata("/proc/thread-self/ns/net")?;
    Ok((own.dev(), own.ino()))
}

/// Where `ip netns` keeps its names.
pub const DIRECTORY: &str = "/var/run/netns";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for good in ["blue", "sonde.bed.1.0.a", "a b", "-"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", ".", "..", ".hidden", "../../../proc/1/ns/net", "a/b", "/"] {
            assert!(!is_name(bad), "{bad}");
            let error = enter(bad).unwrap_err().to_string();
            assert!(error.contains("no name of a network namespace"), "{error}");
        }
    }
}
