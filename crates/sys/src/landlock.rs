//! Which files may still be written: Landlock (landlock(7), Linux 5.13).
//!
//! Reading is left to the permissions of files: a reload may name others. What is refused is
//! writing, making, removing and renaming, but below the paths that are given.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::syscall;

/// Has the kernel refuse the calling thread, and those that it starts from now on, to change files
/// but below `paths`. Of one that is no folder, or not there, it is the folder that is to hold it.
/// Devices, `/proc` and folders of temporary files stay writable as their permissions say. The version of Landlock.
///
/// # Errors
/// A kernel without it, or where it is switched off.
pub fn restrict_writes(paths: &[PathBuf]) -> io::Result<u32> {
    let version = version()?;
    let handled = handled_by(version);
    let attributes = RulesetAttributes { handled_access_fs: handled };
    // SAFETY: the kernel reads as many octets as are given.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const attributes,
            size_of::<RulesetAttributes>(),
            0,
        )
    };
    let fd = syscall::check(rc as i32)?;
    // SAFETY: the call made it, and nobody else has it.
    let rules = unsafe { OwnedFd::from_raw_fd(fd) };
    for path in paths {
        allow(&rules, folder_of(path), handled)?;
    }
    for folder in TEMPORARY.iter().map(Path::new).filter(|folder| folder.is_dir()) {
        allow(&rules, folder, handled)?;
    }
    let open = handled & (WRITE_FILE | TRUNCATE);
    allow(&rules, Path::new("/proc"), open)?;
    // Of /dev what is no folder: below /dev/shm there are files of others.
    for device in fs::read_dir("/dev")?.flatten().map(|entry| entry.path()) {
        if device.symlink_metadata().is_ok_and(|device| device.file_type().is_char_device()) {
            allow(&rules, &device, open)?;
        }
    }
    // SAFETY: integers only.
    syscall::check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    // SAFETY: integers only; the descriptor is open.
    let rc = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) };
    syscall::check(rc as i32)?;
    IN_FORCE.store(version, Ordering::Relaxed);
    Ok(version)
}

/// The version of Landlock that [`restrict_writes`] has put in force in this process; `None`: none.
pub fn in_force() -> Option<u32> {
    Some(IN_FORCE.load(Ordering::Relaxed)).filter(|&version| version > 0)
}

/// The version of Landlock that the kernel has.
fn version() -> io::Result<u32> {
    // SAFETY: no attributes are read for this question.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<RulesetAttributes>(),
            0,
            CREATE_RULESET_VERSION,
        )
    };
    Ok(syscall::check(rc as i32)?.unsigned_abs())
}

/// What is refused that a version knows: later ones know more.
fn handled_by(version: u32) -> u64 {
    let mut handled = CHANGES;
    if version >= 2 {
        handled |= REFER;
    }
    if version >= 3 {
        handled |= TRUNCATE;
    }
    handled
}

/// The folder itself, or the nearest one above that is there.
fn folder_of(path: &Path) -> &Path {
    let there = path.ancestors().find(|above| above.is_dir());
    there.unwrap_or(Path::new("."))
}

fn allow(rules: &OwnedFd, folder: &Path, access: u64) -> io::Result<()> {
    let folder = File::options().read(true).custom_flags(libc::O_PATH).open(folder)?;
    let rule = PathBeneath { allowed_access: access, parent_fd: folder.as_raw_fd() };
    // SAFETY: the kernel reads one rule of this kind, which lives through the call.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            rules.as_raw_fd(),
            RULE_PATH_BENEATH,
            &raw const rule,
            0,
        )
    };
    syscall::check(rc as i32).map(drop)
}

/// struct landlock_ruleset_attr, as its first version has it.
#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
}

/// struct landlock_path_beneath_attr.
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

static IN_FORCE: AtomicU32 = AtomicU32::new(0);
/// Where SQLite puts what does not fit its memory, and where programs in the kernel have names.
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/sys/fs/bpf"];
/// linux/landlock.h
const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: i32 = 1;
const WRITE_FILE: u64 = 1 << 1;
/// Removing folders and files, and making whatever there is: bits 4 to 12.
const CHANGES: u64 = WRITE_FILE | 0x1ff << 4;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_writes_below_its_folders_and_nowhere_else() {
        // Not below /tmp, where all may be written.
        let base = PathBuf::from(format!("/dev/shm/sonde-landlock-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let (own, other) = (base.join("own"), base.join("other"));
        fs::create_dir_all(&own).unwrap();
        fs::create_dir_all(&other).unwrap();
        let there = other.join("there");
        fs::write(&there, "as it was").unwrap();
        let (kept, new) = (own.clone(), other.join("file"));
        let done = std::thread::spawn(move || {
            restrict_writes(std::slice::from_ref(&kept))?;
            fs::create_dir(kept.join("folder")).unwrap();
            fs::write(kept.join("folder/file"), "x").unwrap();
            fs::rename(kept.join("folder/file"), kept.join("moved")).unwrap();
            fs::write(kept.join("moved"), "").unwrap();
            fs::remove_file(kept.join("moved")).unwrap();
            let refused = |done: io::Result<()>| {
                let error = done.unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EACCES), "{error}");
            };
            refused(fs::write(&new, "x"));
            refused(fs::create_dir(new.with_extension("folder")));
            refused(fs::write(&there, "x"));
            refused(fs::remove_dir(new.parent().unwrap()));
            // A thread of it is no freer, and reading is as before.
            let child = std::thread::spawn(move || fs::write(&new, "x"));
            refused(child.join().unwrap());
            assert!(fs::read("/proc/self/status").is_ok() && fs::write("/dev/null", "x").is_ok());
            io::Result::Ok(())
        });
        match done.join().unwrap() {
            Ok(()) => assert!(in_force().is_some_and(|version| version >= 1)),
            Err(error) => println!("skipped: this kernel has no Landlock: {error}"),
        }
        // This thread is as free as before.
        fs::write(other.join("file"), "x").unwrap();
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_version_is_asked_for_nothing_that_it_does_not_know() {
        assert_eq!(handled_by(1), 0b1_1111_1111_0010);
        assert_eq!(handled_by(2), handled_by(1) | 1 << 13);
        assert_eq!((handled_by(3), handled_by(7)), (0b111_1111_1111_0010, handled_by(3)));
    }

    #[test]
    fn a_path_that_is_not_there_stands_for_the_folder_above() {
        assert_eq!(folder_of(Path::new("/proc/no-such/store")), Path::new("/proc"));
        assert_eq!(folder_of(Path::new("/proc/self/status")), Path::new("/proc/self"));
        assert_eq!(folder_of(Path::new("no-such-file")), Path::new("."));
    }
}
