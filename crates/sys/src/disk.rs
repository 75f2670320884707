//! Room on file systems.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Octets that a process without privileges can still write on the file system of `path`
/// (statvfs(3)).
///
/// # Errors
/// No such path.
pub fn free_octets(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: statvfs is plain data, for which all zeros is a valid value.
    let mut room: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` ends with a zero, and `room` is a valid statvfs.
    match unsafe { libc::statvfs(path.as_ptr(), &mut room) } {
        0 => Ok(room.f_bavail.saturating_mul(room.f_frsize)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_where_this_test_runs_and_none_nowhere() {
        assert!(free_octets(Path::new("/")).unwrap() > 0);
        assert!(free_octets(Path::new("/no/such/folder")).is_err());
    }
}
