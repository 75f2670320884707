//! What the embedded store asks of a file system when it writes. Tests put one in its place that
//! fails where they want.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::own_files::open_own;

/// A file system to write to. What is written is read by `std::fs`.
pub trait Disk: Send + Sync {
    /// Makes a folder and those above it, for owner and group; one that is there is left.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// Makes a file, for owner and group. A regular file that is there goes; a link or anything else
    /// is an error.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file to write at its end.
    fn append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file another name, in place of one that is there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name; where the file system cannot, copies it.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Takes a regular file away; a link or anything else is an error.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes names in a folder durable.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// A file that is being written.
pub trait DiskFile: Write + Send {
    /// Makes what was written durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts it to `length` octets; what is written next goes there.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
}

/// The file system of the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostDisk;

impl Disk for HostDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o750).create(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        match create_new(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.remove(path)?;
                Ok(Box::new(create_new(path)?))
            }
            created => Ok(Box::new(created?)),
        }
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(open_own(path, OpenOptions::new().append(true))?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::hard_link(from, to) {
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists
                ) =>
            {
                // The file is new: a copy goes through no link.
                let mut copy = create_new(to)?;
                io::copy(&mut File::open(from)?, &mut copy)?;
                copy.sync_all()
            }
            linked => linked,
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if !fs::symlink_metadata(path)?.is_file() {
            let why = "it is no regular file, and stays; move it away";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        fs::remove_file(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        // The folder of a bare name is the current one.
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        File::open(path)?.sync_all()
    }
}

/// A file that was not there, for owner and group. The kernel follows no link to make it.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o640).open(path)
}

impl DiskFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)?;
        io::Seek::seek(self, io::SeekFrom::Start(length)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_bare_name_is_the_current_one() {
        let folder = Path::new("rows.parquet").parent().unwrap();
        HostDisk.sync_folder(folder).unwrap();
        assert!(HostDisk.sync_folder(Path::new("no/such")).is_err());
    }
}
