//! Processes that were started here.

use std::io;

/// Ends a process and all of its group at once (SIGKILL): one that was started as the leader of a
/// group of its own. Who has left the group goes on.
///
/// # Errors
/// No such group, or none that may be ended.
pub fn end_group(leader: u32) -> io::Result<()> {
    let group = i32::try_from(leader).map_err(io::Error::other)?;
    // 0 and 1 would be this process's own group, and everything.
    if group <= 1 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: kill has numbers as arguments only.
    match unsafe { libc::kill(-group, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::process::Command;

    #[test]
    fn a_group_ends_with_its_leader_and_no_other() {
        let start = || Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let (mut one, mut other) = (start(), start());
        end_group(one.id()).unwrap();
        assert_eq!(one.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(other.try_wait().unwrap().is_none());
        end_group(other.id()).unwrap();
        other.wait().unwrap();
        assert!(end_group(0).is_err() && end_group(1).is_err());
    }
}
