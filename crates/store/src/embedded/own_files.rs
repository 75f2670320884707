//! The files of a store and nobody else's: no link is followed below its folder, nothing is taken
//! away that has no name of the store, and others cannot read it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, DiskFile, create_new};
use super::names::{
    DAMAGED, FOUND, RESERVE, SEGMENTS, SegmentName, aside_name, is_day, is_own, journal_number,
};
use crate::error::StoreError;
use crate::table::Table;

/// The disk below a store. A link in a path below the store is an error, and so is taking away or
/// renaming what has no name of the store. The folder itself may be reached by a link.
pub(crate) struct OwnFiles {
    folder: PathBuf,
    /// Of the files of the journal, where that is not in the store.
    journal: PathBuf,
    inner: Arc<dyn Disk>,
}

impl OwnFiles {
    pub(crate) fn new(inner: Arc<dyn Disk>, folder: &Path, journal: &Path) -> Self {
        OwnFiles { folder: folder.to_owned(), journal: journal.to_owned(), inner }
    }

    /// An error where a folder of the path, below the store, is a link or no folder.
    fn check_folders(&self, path: &Path) -> io::Result<()> {
        let roots = [&self.folder, &self.journal];
        let inside = |root: &&PathBuf| path.strip_prefix(root).ok().map(|b| ((*root).clone(), b));
        let Some((mut at, below)) = roots.iter().find_map(inside) else { return Ok(()) };
        for part in below.components() {
            at.push(part);
            match fs::symlink_metadata(&at) {
                Ok(about) if about.is_dir() => {}
                Ok(_) => return Err(io::Error::new(io::ErrorKind::NotADirectory, LINK)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn check_parent(&self, path: &Path) -> io::Result<()> {
        self.check_folders(path.parent().unwrap_or(path))
    }

    /// An error where the store makes no file of that name.
    fn check_own(&self, path: &Path) -> io::Result<()> {
        self.check_parent(path)?;
        let of_journal = path.parent() == Some(&self.journal)
            && path
                .file_name()
                .and_then(|n| n.to_str())
                .is_some_and(|n| journal_number(n).is_some());
        match of_journal || path.strip_prefix(&self.folder).is_ok_and(is_own) {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::PermissionDenied, FOREIGN)),
        }
    }
}

impl Disk for OwnFiles {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.check_folders(path)?;
        self.inner.create_folder(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.check_parent(path)?;
        self.inner.create(path)
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.check_parent(path)?;
        self.inner.append(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check_own(from)?;
        self.check_parent(to)?;
        self.inner.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check_parent(from)?;
        self.check_parent(to)?;
        self.inner.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check_own(path)?;
        self.inner.remove(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_folder(path)
    }
}

/// Opens a regular file that is there. Unlike [`OpenOptions::open`] it follows no link: what was
/// opened is what has the name.
pub(crate) fn open_own(path: &Path, options: &OpenOptions) -> io::Result<File> {
    // A pipe would be waited for.
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, NO_FILE));
    }
    let file = options.open(path)?;
    let (opened, named) = (file.metadata()?, fs::symlink_metadata(path)?);
    match (opened.dev(), opened.ino()) == (named.dev(), named.ino()) {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, NO_FILE)),
    }
}

/// An error where `path` is there and is no folder of its own.
pub(crate) fn refuse_link(path: &Path) -> Result<(), StoreError> {
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => Ok(()),
        Ok(_) => Err(StoreError::Linked { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(StoreError::io("look at", path)(error)),
    }
}

/// What lies below `seg`.
#[derive(Debug, Default)]
pub(super) struct SegmentTree {
    /// Paths relative to the store of files that have a segment's name.
    pub(super) files: Vec<(PathBuf, SegmentName)>,
    /// Folders, `seg` among them.
    pub(super) folders: Vec<PathBuf>,
    /// What the store never makes: it is left alone.
    pub(super) foreign: Vec<PathBuf>,
}

/// Looks below `seg` of a store, three levels deep, through no link.
///
/// # Errors
/// A folder is a link, or cannot be listed.
pub(super) fn segment_tree(folder: &Path) -> Result<SegmentTree, StoreError> {
    let mut tree = SegmentTree::default();
    let top = folder.join(SEGMENTS);
    refuse_link(&top)?;
    if !top.exists() {
        return Ok(tree);
    }
    for (table, name) in entries(&top)? {
        if Table::from_name(&name).is_none() {
            tree.foreign.push(table);
            continue;
        }
        refuse_link(&table)?;
        for (day, name) in entries(&table)? {
            if !is_day(&name) {
                tree.foreign.push(day);
                continue;
            }
            refuse_link(&day)?;
            for (path, _) in entries(&day)? {
                let below = path.strip_prefix(folder).unwrap_or(&path);
                let about =
                    fs::symlink_metadata(&path).map_err(StoreError::io("look at", &path))?;
                match SegmentName::of(below).filter(|_| about.is_file()) {
                    Some(name) => tree.files.push((below.to_owned(), name)),
                    None => tree.foreign.push(path),
                }
            }
            tree.folders.push(day);
        }
        tree.folders.push(table);
    }
    tree.folders.push(top);
    Ok(tree)
}

fn entries(folder: &Path) -> Result<Vec<(PathBuf, String)>, StoreError> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).map_err(StoreError::io("list", folder))? {
        let entry = entry.map_err(StoreError::io("list", folder))?;
        all.push((entry.path(), entry.file_name().to_string_lossy().into_owned()));
    }
    all.sort();
    Ok(all)
}

/// Notes of readers in the folder `damaged`, the first `most` of them.
pub(super) fn found_notes(folder: &Path, most: usize) -> Vec<PathBuf> {
    let Ok(all) = fs::read_dir(folder) else { return Vec::new() };
    let is_note = |entry: &fs::DirEntry| {
        entry.file_type().is_ok_and(|kind| kind.is_file())
            && entry.file_name().to_string_lossy().ends_with(FOUND)
    };
    all.flatten().filter(is_note).take(most).map(|entry| entry.path()).collect()
}

/// Tells the process that writes that a segment is damaged, by a file in the folder `damaged`. A
/// reader that may not write there tells nobody.
pub(super) fn note_found(folder: &Path, segment: &Path) {
    let Ok(below) = segment.strip_prefix(folder) else { return };
    let aside = folder.join(DAMAGED);
    // The reader may be root, and the folder another user's.
    if SegmentName::of(below).is_some() && fs::symlink_metadata(&aside).is_ok_and(|a| a.is_dir()) {
        let name = format!("{}{FOUND}", aside_name(&below.to_string_lossy()));
        let _ = create_new(&aside.join(name));
    }
}

/// Takes from others what an earlier version let them do: files of the store are for owner and group.
/// What belongs to another user stays as it is.
pub(super) fn close_to_others(folder: &Path, journal: &Path, tree: &SegmentTree) {
    let beside = ["catalogue.db", "catalogue.db-wal", "catalogue.db-shm", LOCK, RESERVE];
    let beside = beside.map(|name| folder.join(name));
    let damaged = folder.join(DAMAGED);
    let aside = entries(&damaged).unwrap_or_default().into_iter().map(|(path, _)| path);
    let journals = super::journal::journal_files(journal).unwrap_or_default();
    let journals = journals.iter().map(|&number| super::journal::journal_path(journal, number));
    let segments = tree.files.iter().map(|(path, _)| folder.join(path));
    let folders = tree.folders.iter().cloned().chain([journal.to_owned(), damaged]);
    for path in beside.into_iter().chain(aside).chain(journals).chain(segments).chain(folders) {
        let _ = close(&path);
    }
    if is_only_a_store(folder) {
        let _ = close(folder);
    }
}

/// Whether a folder is a store's and nothing else: not one that others keep their things in, whom a
/// change of its mode would shut out.
fn is_only_a_store(folder: &Path) -> bool {
    let known = |name: &str| OF_A_STORE.iter().any(|own| name.starts_with(own));
    entries(folder).is_ok_and(|all| {
        all.iter().all(|(_, name)| known(name))
            && all.iter().any(|(_, name)| name == super::open::CATALOGUE)
    })
}

fn close(path: &Path) -> io::Result<()> {
    let about = fs::symlink_metadata(path)?;
    let mode = about.permissions().mode();
    if about.is_symlink() || mode & (OTHERS | STICKY) == 0 || mode & STICKY != 0 {
        return Ok(());
    }
    let file = File::open(path)?;
    let opened = file.metadata()?;
    if (opened.dev(), opened.ino()) != (about.dev(), about.ino()) {
        return Ok(());
    }
    file.set_permissions(fs::Permissions::from_mode(mode & 0o7777 & !OTHERS))
}

/// Held by the process that writes.
pub(super) const LOCK: &str = "lock";
/// What others, and the group beyond reading, may do.
const OTHERS: u32 = 0o027;
const STICKY: u32 = 0o1000;
/// What names in the folder of a store begin with: those of a station beside them, too.
const OF_A_STORE: [&str; 11] = [
    "catalogue.db",
    "journal",
    "seg",
    "damaged",
    "reserve",
    "lock",
    "judge.",
    ".judge.",
    "alerts",
    "clickhouse",
    "api.sock",
];
const LINK: &str = "a folder of the store is a symbolic link, or no folder; nothing was changed";
const FOREIGN: &str = "the store makes no file of this name, and takes none away";
const NO_FILE: &str = "it is no regular file, or was replaced by a link";

#[cfg(test)]
mod tests;
