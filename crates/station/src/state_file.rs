//! Files beside the store in which a station keeps what a restart must not forget.

use std::path::Path;
use std::{fs, io};

use crate::alert::spool::refuse_link;

/// What the file holds.
///
/// # Errors
/// It cannot be read, or is no regular file: a pipe would be waited for, a device may have no end.
pub(crate) fn read(file: &Path) -> io::Result<Vec<u8>> {
    refuse_link(file, fs::FileType::is_file)?;
    fs::read(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_a_folder_and_a_socket_are_no_state() {
        let folder = crate::alert::testing::Folder::new("state-file");
        let file = folder.0.join("judge.json");
        assert_eq!(read(&file).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&file, "{}").unwrap();
        assert_eq!(read(&file).unwrap(), b"{}");
        let socket = folder.0.join("socket");
        let _held = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for other in [Path::new("/dev/zero"), &folder.0, &socket] {
            assert!(read(other).is_err(), "{}", other.display());
        }
    }
}
